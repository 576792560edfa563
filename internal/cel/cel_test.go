package cel

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func variables() []string { return []string{"default_enis", "ips_per_eni", "max_pods"} }

func m5large() map[string]int64 {
	return map[string]int64{"default_enis": 3, "ips_per_eni": 10, "max_pods": 29}
}

func TestEval(t *testing.T) {
	for src, want := range map[string]any{
		"((default_enis - 1) * (ips_per_eni - 1)) + 2":  int64(20),
		"default_enis * ((ips_per_eni - 1) * 16) + 2":   int64(434),
		"max_pods > 110 ? 110 : max_pods":               int64(29),
		"max_pods < 8 ? 8 : max_pods < 30 ? 30 : 250":   int64(30),
		"max_pods in [17, 29] ? max_pods - 1 : 110":     int64(28),
		"int(double(max_pods) * 0.9)":                   int64(26),
		"double(max_pods) / 2.0":                        14.5,
		".max_pods % 10 // what is left":                int64(9),
		"1 + 2 * 3 - 4 / 2":                             int64(5),
		"-7 / 2":                                        int64(-3),
		"-7 % 2":                                        int64(-1),
		"-9223372036854775808":                          int64(math.MinInt64),
		"0x1F + 007":                                    int64(38),
		"3u * 0x10u":                                    uint64(48),
		".5 + 1.5e3":                                    1500.5,
		"1.0 / 0.0":                                     math.Inf(1),
		"'12' + \"3\"":                                  "123",
		`"a\tb\x41\101\u00e9" + r"\n" + '''x'y'''`:      "a\tbAAé\\nx'y",
		"string(1e6) + string(2u) + string(true)":       "1e+062true",
		"size('日本') + 'abc'.size() + [1, 2,].size()":    int64(7),
		"'abc'.contains('b') && 'abc'.startsWith('ab')": true,
		"'a' < 'b' && false < true && 1u <= 2u":         true,
		"([1] + [2, 3])[2]":                             int64(3),
		"[[1], [2]] == [[1], [2]]":                      true,
		"false && 1 / 0 == 1":                           false,
		"1 / 0 == 1 && false":                           false,
		"1 / 0 == 1 || true":                            true,
		"true ? 1 : 1 / 0":                              int64(1),
		"uint('12') == 12u && bool('true')":             true,
		"--5 + (!!true ? 1 : 0)":                        int64(6),
		"double('NaN') != double('NaN')":                true,
	} {
		p, err := Compile(src, variables())
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		v, err := p.Eval(m5large())
		if err != nil || !reflect.DeepEqual(v.Any(), want) {
			t.Errorf("%s: got %v, %v, want %v", src, v, err, want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for src, want := range map[string]string{
		"":                       "1:1: the expression is empty",
		" // nothing":            "1:12: the expression is empty",
		"1 +":                    "1:4: unexpected the end of the expression, expected a value",
		"(1":                     "1:3: unexpected the end of the expression, expected ')'",
		"1 2":                    "1:3: unexpected '2', expected an operator or the end of the expression",
		"1 +\n  'é' * x":         "2:9: unknown variable 'x': there are default_enis, ips_per_eni, max_pods",
		"max_pod + 1":            "1:1: unknown variable 'max_pod', did you mean 'max_pods'?",
		"default_eni":            "1:1: unknown variable 'default_eni', did you mean 'default_enis'?",
		"max_pods = 1":           "1:10: '=' is not an operator: write == to compare",
		"true & false":           "1:6: '&' is not an operator: write &&",
		"max_pods^2":             "1:9: unexpected character '^'",
		"max_pods * 0.9":         "1:10: '*' does not apply to an int and a double: convert one with double(...)",
		"1 == true":              "1:3: '==' does not apply to an int and a bool",
		"1 && true":              "1:3: '&&' does not apply to an int and a bool",
		"-3u":                    "1:1: '-' does not apply to a uint",
		"!1":                     "1:1: '!' does not apply to an int",
		"-!true":                 "1:2: '!' and '-' next to each other need parentheses between them",
		"1 ? 2 : 3":              "1:1: the condition before '?' is an int, not a bool",
		"true ? 1 : 'a'":         "1:6: the conditional is an int or a string, which must be of one type: convert one with string(...)",
		"true ? true ? 1 : 2: 3": "1:13: a conditional between ? and : needs parentheses around it",
		"9223372036854775808":    "1:1: the number 9223372036854775808 is out of range",
		`"a`:                     "1:1: the string does not end",
		"'a\n'":                  "1:1: the string does not end on its line",
		`'a\q'`:                  `1:3: the string has an invalid escape sequence \q`,
		"math.least(1, 2)":       "1:6: CEL has no function 'math.least' here: write (a < b ? a : b)",
		"math.greatest(1, 2)":    "1:6: CEL has no function 'math.greatest' here: write (a > b ? a : b)",
		"min(max_pods, 110)":     "1:1: CEL has no function 'min' here: write (a < b ? a : b)",
		"siz('a')":               "1:1: unknown function 'siz', did you mean 'size'?",
		"'a'.startswith('a')":    "1:5: unknown method 'startswith', did you mean 'startsWith'?",
		"'a'.contains(1)":        "1:5: the method 'contains' takes a string, not an int",
		"int(true)":              "1:1: the function 'int' does not apply to a bool",
		"int(1, 2)":              "1:1: the function 'int' takes one argument, not 2",
		"max_pods.x":             "1:10: an int has no field 'x'",
		"[1, 'a']":               "1:5: a list of int and string: lists of several types are not supported",
		"[1].exists(i, i > 1)":   "1:5: the macro 'exists' is not supported",
		"timestamp('x')":         "1:1: the function 'timestamp' is not supported",
		"{'a': 1}":               "1:1: maps are not supported",
		"b'abc'":                 "1:1: bytes are not supported",
		"if":                     "1:1: 'if' is a reserved word",
		"'\xff'":                 "1:1: the expression is not valid UTF-8",
	} {
		_, err := Compile(src, variables())
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", src, err, want)
		}
	}
}

func TestEvalErrors(t *testing.T) {
	for src, want := range map[string]string{
		"1 + max_pods / (default_enis - 3)": "1:14: division by zero",
		"1 % 0":                             "1:3: division by zero",
		"9223372036854775807 + 1":           "1:21: the result is beyond the range of int",
		"1u - 2u":                           "1:4: the result is beyond the range of uint",
		"-(-9223372036854775808)":           "1:1: the result is beyond the range of int",
		"int('many')":                       "1:1: the string \"many\" is not a decimal int",
		"[1, 2][2]":                         "1:7: there is no element 2 in a list of 2",
		"1 / 0 == 1 && true":                "1:3: division by zero",
		"1 / 0 == 1 ? 1 : 2":                "1:3: division by zero",
	} {
		p, err := Compile(src, variables())
		if err == nil {
			_, err = p.Eval(m5large())
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", src, err, want)
		}
	}
	p, err := Compile("max_pods", variables())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Eval(nil); err == nil {
		t.Error("a variable without a value has one")
	}
}

func TestInt(t *testing.T) {
	for src, want := range map[string]int64{
		"12": 12, "12u": 12, "29.9": 29, "-29.9": -29, "'12'": 12, "'+12'": 12,
	} {
		p, err := Compile(src, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Eval(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Int(); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", src, got, err, want)
		}
	}
	for src, want := range map[string]string{
		"true":                  "true is not an int: a bool cannot be converted to int",
		"[1]":                   "[1] is not an int: a list cannot be converted to int",
		"'1.5'":                 `"1.5" is not an int: the string "1.5" is not a decimal int`,
		"1e30":                  "1e+30 is not an int: 1e+30 is beyond the range of int",
		"double('NaN')":         "NaN is not an int: NaN is beyond the range of int",
		"18446744073709551615u": "18446744073709551615u is not an int: 18446744073709551615 is beyond the range of int",
	} {
		p, err := Compile(src, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Eval(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Int(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", src, err, want)
		}
	}
	if _, err := (Value{}).Int(); err == nil {
		t.Error("the zero Value is an int")
	}
}

func TestBounds(t *testing.T) {
	for _, src := range []string{
		strings.Repeat(" ", maxSource) + "1",
		strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000),
		strings.Repeat("(", 4000),
		strings.Repeat("[", 4000),
		strings.Repeat("int(", 1000),
		strings.Repeat("-(", 2000),
		strings.Repeat("true?1:", 500) + "1",
		strings.Repeat("1+", 2000) + "1",
		"[1]" + strings.Repeat("[0]", 1000),
		"''" + strings.Repeat(".size()", 500),
	} {
		if _, err := Compile(src, nil); err == nil || !strings.Contains(err.Error(), "supported") {
			t.Errorf("%.20s...: got error %v", src, err)
		}
	}
}

// FuzzCompile looks for what panics, and for errors that have no place in the
// source.
func FuzzCompile(f *testing.F) {
	for _, src := range []string{
		"((default_enis - 1) * (ips_per_eni - 1)) + 2",
		"max_pods > 110 ? 110 : max_pods // limit",
		"int('12') + size([1, 2,]) - [[1], [2]][0][0] * -0x1F % 3",
		`"a\x41\u00e9\101" + r'\' + '''b''' == string(1.5e3) || !("a".contains("b")) && 3u in [4u]`,
		"[1].exists(i, i > .5)",
		"- -1 / 0",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		check := func(err error) {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: %T is not an *Error", src, err)
			}
			lines := strings.Split(src, "\n")
			if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
				t.Errorf("%q: %v is outside of it", src, err)
			}
		}
		p, err := Compile(src, variables())
		if err != nil {
			check(err)
			return
		}
		v, err := p.Eval(m5large())
		if err != nil {
			check(err)
			return
		}
		if got := typeOf(v.Any()); got != p.root.typ && !(got == "list" && p.root.typ.isList()) {
			t.Errorf("%q: a %s, which the checker has as %s", src, got, p.root.typ)
		}
		_, _ = v.Int()
		_ = v.String()
	})
}

func BenchmarkCompileAndEval(b *testing.B) {
	for b.Loop() {
		p, err := Compile("((default_enis - 1) * (ips_per_eni - 1)) + 2", variables())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Eval(m5large()); err != nil {
			b.Fatal(err)
		}
	}
}
