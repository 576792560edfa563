package doctree

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parse reads text that must be right.
func parse(t *testing.T, text string) []*Node {
	t.Helper()
	trees, problems := Parse([]byte(text), "file", 1)
	for _, p := range problems {
		t.Errorf("%q: %v", text, p)
	}
	return trees
}

func values(trees []*Node) []any {
	var all []any
	for _, tree := range trees {
		all = append(all, tree.Value())
	}
	return all
}

type (
	m = map[string]any
	l = []any
)

func TestParse(t *testing.T) {
	num := func(s string) json.Number { return json.Number(s) }
	for _, test := range []struct {
		name, text string
		want       []any
	}{
		{"nothing", "", nil},
		{"only comments", "# a\n\n# b\n", nil},
		{"empty documents", "---\n---\n# c\n---\n...\n", nil},
		{"several documents", "a: 1\n---\nb: 2\n---\n---\n- c\n", []any{m{"a": num("1")}, m{"b": num("2")}, l{"c"}}},
		{"a null that is written is a document", "null\n", []any{nil}},
		{"comments", "# head\na: 1 # tail\n# between\nb: '#' # more\n", []any{m{"a": num("1"), "b": "#"}}},
		{"JSON", `{"a": [1, true, null, "x"], "b": {"c": {}}}`, []any{m{"a": l{num("1"), true, nil, "x"}, "b": m{"c": m{}}}}},
		{"JSON over several lines with tabs", "{\n\t\"a\": 1,\n\t\"b\": [\n\t\t2\n\t]\n}\n", []any{m{"a": num("1"), "b": l{num("2")}}}},
		{"JSON's escapes", `{"a": "\u00e9\n\t\"\\\/", "b": "https:\/\/x\\/"}`, []any{m{"a": "é\n\t\"\\/", "b": `https://x\/`}}},
		{"aliases", "a: &x [1, {b: 2}]\nc: *x\nd: *x\n", []any{m{
			"a": l{num("1"), m{"b": num("2")}}, "c": l{num("1"), m{"b": num("2")}}, "d": l{num("1"), m{"b": num("2")}},
		}}},
		{"merge key", "a: &x {b: 1, c: {d: 2}}\ne:\n  <<: *x\n  f: 3\n", []any{m{
			"a": m{"b": num("1"), "c": m{"d": num("2")}}, "e": m{"b": num("1"), "c": m{"d": num("2")}, "f": num("3")},
		}}},
		{"merge key with a map", "a:\n  <<: {b: 1}\n", []any{m{"a": m{"b": num("1")}}}},
		{"a quoted merge key is a key", `"<<": 1`, []any{m{"<<": num("1")}}},
		{
			"YAML 1.1's truth values, unquoted", "[y, Y, yes, Yes, YES, on, On, ON, true, True, TRUE, n, N, no, No, NO, off, Off, OFF, false, False, FALSE]",
			[]any{l{true, true, true, true, true, true, true, true, true, true, true, false, false, false, false, false, false, false, false, false, false, false}},
		},
		{
			"the same words quoted", "- 'yes'\n- \"no\"\n- 'true'\n- |-\n  on\n- >-\n  off\n- 'y'\n- 'null'\n- '1'\n",
			[]any{l{"yes", "no", "true", "on", "off", "y", "null", "1"}},
		},
		{"words that only look like them", "[yEs, yess, oN, nO, 'Y ', truth]", []any{l{"yEs", "yess", "oN", "nO", "Y ", "truth"}}},
		{"truth values as keys", "on: 1\n'off': 2\ny: 3\n5: 4\n", []any{m{"on": num("1"), "off": num("2"), "y": num("3"), "5": num("4")}}},
		{
			"whole numbers are exact", "[9007199254740993, -9007199254740993, 9223372036854775807, 18446744073709551616, 123456789012345678901234567890]",
			[]any{l{num("9007199254740993"), num("-9007199254740993"), num("9223372036854775807"), num("18446744073709551616"), num("123456789012345678901234567890")}},
		},
		{"other bases", "[0x1F, 0o17, 0777, 0b101, 1_000, +7, -0x10]", []any{l{num("31"), num("15"), num("511"), num("5"), num("1000"), num("7"), num("-16")}}},
		{"fractions", "[0.1, 1.50, 1e3, -2.5E-7, .5, 1_0.5]", []any{l{num("0.1"), num("1.50"), num("1e3"), num("-2.5E-7"), num("0.5"), num("10.5")}}},
		{"nulls", "{a: null, b: ~, c: Null, d: , e: NULL}", []any{m{"a": nil, "b": nil, "c": nil, "d": nil, "e": nil}}},
		{"dates, versions and sizes are text", "[2024-05-06, 1.30.0, 100Mi, 1:30, 0x, 1e, 10.0.0.0/16]", []any{l{"2024-05-06", "1.30.0", "100Mi", "1:30", "0x", "1e", "10.0.0.0/16"}}},
		{"blocks of text", "a: |\n  x\n   y\nb: >-\n  p\n  q\n", []any{m{"a": "x\n y\n", "b": "p q"}}},
		{"byte order mark and CRLF", "\ufeffa: 1\r\nb: x\r\n", []any{m{"a": num("1"), "b": "x"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, values(parse(t, test.text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	text := "# one\nspec:\n  list:\n  - a\n  -   b\n  map: {k: v}\n---\nnext:\n    x\n"
	trees, problems := Parse([]byte(text), "user data part 2", 41)
	if len(problems) > 0 || len(trees) != 2 {
		t.Fatal(trees, problems)
	}
	for _, test := range []struct {
		what      string
		got, want Origin
	}{
		{"document", trees[0].Origin, Origin{"user data part 2", 42, 1}},
		{"key of a list", trees[0].Get("spec", "list").KeyOrigin, Origin{"user data part 2", 43, 3}},
		{"item", trees[0].Get("spec", "list").List[1].Origin, Origin{"user data part 2", 45, 7}},
		{"item as its own key", trees[0].Get("spec", "list").List[1].KeyOrigin, Origin{"user data part 2", 45, 7}},
		{"key in braces", trees[0].Get("spec", "map", "k").KeyOrigin, Origin{"user data part 2", 46, 9}},
		{"value in braces", trees[0].Get("spec", "map", "k").Origin, Origin{"user data part 2", 46, 12}},
		{"value in the second document", trees[1].Get("next").Origin, Origin{"user data part 2", 49, 5}},
	} {
		if test.got != test.want {
			t.Errorf("%s stands at %v, want %v", test.what, test.got, test.want)
		}
	}
	if got := trees[1].Get("next").Origin.String(); got != "user data part 2:49:5" {
		t.Error(got)
	}
	if got := (Origin{Source: "--flag"}).String(); got != "--flag" {
		t.Error(got)
	}
	// Data that was unpacked has no line in its source; it is counted by itself.
	if trees, _ := Parse([]byte("a: 1\n"), "s", 0); trees[0].Origin.Line != 1 {
		t.Errorf("line %d", trees[0].Origin.Line)
	}
}

func TestAliasesKeepTheirOrigins(t *testing.T) {
	tree := parse(t, "a: &x\n  b: 1\nc: *x\n")[0]
	if c := tree.Get("c"); c.KeyOrigin.Line != 3 || c.Get("b").Origin.Line != 2 {
		t.Errorf("key at %v, value at %v", c.KeyOrigin, c.Get("b").Origin)
	}
	if tree.Get("a").KeyOrigin.Line != 1 {
		t.Errorf("the alias changed what it stands for: %v", tree.Get("a").KeyOrigin)
	}
}

func TestParseProblems(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string // place and a part of the message
		value      any      // what is left of the last document
	}{
		{"a key twice", "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", []string{`s:15:3|"c" is there twice; the first is at line 13`}, m{"a": json.Number("1"), "b": m{"c": json.Number("1"), "d": json.Number("2")}}},
		{"three times, and in JSON", `{"a": 1, "a": 2, "a": 3}`, []string{`s:11:10|"a" is there twice; the first is at line 11`, `s:11:18|"a" is there twice`}, m{"a": json.Number("1")}},
		{"quoted and unquoted are the same key", "on: 1\n'on': 2\n", []string{`s:12:1|"on" is there twice`}, m{"on": json.Number("1")}},
		{"the same key in two documents is fine", "a: 1\n---\na: 2\n", nil, m{"a": json.Number("2")}},
		{"a key that is no name", "a: 1\n? [x]\n: 2\n", []string{"s:12:3|a key must be a name"}, m{"a": json.Number("1")}},
		{"infinity", "a: .inf\nb: -.inf\nc: .nan\n", []string{"s:11:4|.inf is no number", "s:12:4|-.inf is no number", "s:13:4|.nan is no number"}, nil},
		{"tab", "a: 1\nb:\n\tc: 2\n", []string{"s:13:1|not valid YAML: found character that cannot start any token"}, nil},
		{"colon in a value", "a: 1\nb: c: d\n", []string{"s:12:1|not valid YAML: mapping values are not allowed in this context"}, nil},
		{"the syntax of the second document", "a: 1\n---\nb: 1\nc: d: e\n", []string{"s:14:1|mapping values are not allowed"}, m{"a": json.Number("1")}},
		{"problems before a syntax error are not lost", "a: 1\na: 2\n---\nb: c: d\n", []string{"s:12:1|is there twice", "s:14:1|not valid YAML"}, m{"a": json.Number("1")}},
		{"control character", "a: \x01\n", []string{"s:11:1|control characters are not allowed"}, nil},
		{"not UTF-8", "a: \xff\xfe\n", []string{"s:11:1|not valid YAML"}, nil},
		{"unclosed bracket", "a: [1, 2\n", []string{"s:|not valid YAML"}, nil},
		{"unclosed quote", "a: 'x\nb: y\n", []string{"s:|not valid YAML"}, nil},
		{"unknown anchor", "a: *x\n", []string{"s:11:1|unknown anchor 'x' referenced"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			trees, problems := Parse([]byte(test.text), "s", 11)
			if len(problems) != len(test.want) {
				t.Errorf("%d problems, want %d", len(problems), len(test.want))
			}
			for i, p := range problems {
				if i >= len(test.want) {
					t.Errorf("more: %v", p)
					continue
				}
				place, message, _ := strings.Cut(test.want[i], "|")
				if !strings.HasPrefix(p.Origin.String(), place) || !strings.Contains(p.Error(), message) || p.Remedy == "" {
					t.Errorf("%v (remedy %q), want %q at %s", p, p.Remedy, message, place)
				}
			}
			if test.value != nil {
				if diff := cmp.Diff(test.value, trees[len(trees)-1].Value()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestBombs: documents that are small and mean something enormous are refused,
// soon and with a word.
func TestBombs(t *testing.T) {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	maps := "a0: &a0 {k: x}\n"
	for i := 1; i < 20; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
		maps += fmt.Sprintf("a%[1]d: &a%[1]d {p: *a%[2]d, q: *a%[2]d, r: *a%[2]d}\n", i, i-1)
	}
	for name, text := range map[string]string{
		"aliases of lists":       laughs,
		"aliases of maps":        maps,
		"an alias of itself":     "a: &a [*a, *a]\n",
		"a map in itself":        "a: &a {b: *a, c: *a}\n",
		"depth":                  strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"depth of maps":          strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000),
		"depth beyond all sense": strings.Repeat("[", 1_000_000),
		"depth in block style":   strings.Repeat("- ", 5000) + "x\n",
		"many values":            "[" + strings.Repeat("1,", 300_000) + "1]",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, problems := Parse([]byte(text), "bomb", 1)
			if len(problems) == 0 {
				t.Error("there is no problem with it")
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	// A hundred levels are more than anybody needs, and are fine.
	if _, problems := Parse([]byte(strings.Repeat("[", 100)+strings.Repeat("]", 100)), "deep", 1); len(problems) > 0 {
		t.Error(problems)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: 1\n---\nb: [x, {y: z}]\n", "a: &a {b: *a}\n", "? [x]\n: y\n", "a: |\n  b\n", "\ufeff{}", "a: 'b", "!!binary aGk=", "- 0x1F\n- .5\n- ~\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// A merge key may stand for the map that it is in; that is not read yet.
		trees, problems := Parse(data, "fuzz", 1)
		for _, p := range problems {
			if p.Line < 1 || p.Message == "" {
				t.Errorf("a problem without a place or a message: %+v", p)
			}
		}
		for _, tree := range trees {
			same(t, tree)
		}
	})
}

// Merge keys add fields and never replace any; the first of several maps counts.
func TestMergeKeys(t *testing.T) {
	for text, want := range map[string]string{
		"b: &b {x: 1, name: b}\nm: {<<: *b, name: z}":         `{"b":{"name":"b","x":1},"m":{"name":"z","x":1}}`,
		"b: &b {x: 1, name: b}\nm: {name: z, <<: *b}":         `{"b":{"name":"b","x":1},"m":{"name":"z","x":1}}`,
		"b: &b {x: 1}\nc: &c {x: 2, z: 3}\nm: {<<: [*b, *c]}": `{"b":{"x":1},"c":{"x":2,"z":3},"m":{"x":1,"z":3}}`,
		"b: &b {x: 1}\nc: &c {<<: *b, y: 2}\nm: {<<: *c}":     `{"b":{"x":1},"c":{"x":1,"y":2},"m":{"x":1,"y":2}}`,
	} {
		trees, problems := Parse([]byte(text), "file", 1)
		if len(problems) > 0 || len(trees) != 1 || trees[0].Text() != want {
			t.Errorf("%s: %v %v", text, trees, problems)
		}
	}
	bomb := "a0: &a0 {x: 1}\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i-1, i-1)
	}
	for _, text := range []string{"metadata: &a\n  <<: *a\n", "m: {<<: 5}\n", bomb} {
		if _, problems := Parse([]byte(text), "file", 1); len(problems) == 0 || len(problems) > 5 {
			t.Errorf("%.40q: %d problems", text, len(problems))
		}
	}
}

func TestSyntaxErrorsHaveTheirLine(t *testing.T) {
	const head = "apiVersion: x\nkind: y\n"
	for text, line := range map[string]int{
		head + "spec: {cluster: [}\n":                             3,
		head + "spec:\n  cluster:\n    name: x\n   kubelet: {}\n": 6,
		head + "spec: *nope\n":                                    3,
		head + "spec: \x01\n":                                     3,
		head + "\tspec: x\n":                                      3,
		head + "spec: a: b\n":                                     3,
	} {
		if _, problems := Parse([]byte(text), "file", 1); len(problems) != 1 || problems[0].Line != line {
			t.Errorf("%q: %v, want line %d", text, problems, line)
		}
	}
}
