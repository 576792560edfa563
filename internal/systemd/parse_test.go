package systemd

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseUnit(t *testing.T) {
	service := func(directives ...Directive) Unit { return Unit{[]Section{{"Service", directives}}} }
	for _, test := range []struct {
		name, text string
		want       Unit
	}{
		{"nothing", "", Unit{}},
		{"comments and blank lines", "# a\n\n ; b\n[Service]\n\t#c\nA=1\n \n", service(Directive{"A", "1"})},
		{"space around", " [Service] \n\tA\t =  1 2 \t\n", service(Directive{"A", "1 2"})},
		{"an equals sign in the value", "[Service]\nA=b=c\n", service(Directive{"A", "b=c"})},
		{"a comment sign in the value", "[Service]\nA=b # c\n", service(Directive{"A", "b # c"})},
		{"repeated, with an empty one", "[Service]\nA=1\nA=\nA=2", service(Directive{"A", "1"}, Directive{"A", ""}, Directive{"A", "2"})},
		{"continued", "[Service]\nA=1\\\n  2 \\\n3\nB=4\n", service(Directive{"A", "1   2  3"}, Directive{"B", "4"})},
		{"space at the start of the next line stays", "[Service]\nA=1 \\\n\t2\n", service(Directive{"A", "1  \t2"})},
		{"a comment between", "[Service]\nA=1 \\\n# no \\\n  ; no\n2\n", service(Directive{"A", "1  2"})},
		{"an empty line ends it", "[Service]\nA=1 \\\n\nB=2\n", service(Directive{"A", "1"}, Directive{"B", "2"})},
		{"continued at the end", "[Service]\nA=1 \\", service(Directive{"A", "1"})},
		{"continued by a comment at the end", "[Service]\nA=1\\\n#", service(Directive{"A", "1"})},
		{"an escaped backslash continues nothing", "[Service]\nA=1\\\\\nB=2\n", service(Directive{"A", `1\\`}, Directive{"B", "2"})},
		{"a backslash and a space", "[Service]\nA=1\\ \nB=2\n", service(Directive{"A", `1\`}, Directive{"B", "2"})},
		{"a comment continues nothing", "# a \\\n[Service]\nA=1\n", service(Directive{"A", "1"})},
		{"lines end in all ways", "[Service]\rA=1\r\nB=2 \\\n\r3\n", service(Directive{"A", "1"}, Directive{"B", "2  3"})},
		{"a byte order mark", "\ufeff[Service]\nA=1\n", service(Directive{"A", "1"})},
		{"sections in order", "[Unit]\n[Service]\nA=1\n[Unit]\nB=2\n", Unit{[]Section{{"Unit", nil}, {"Service", []Directive{{"A", "1"}}}, {"Unit", []Directive{{"B", "2"}}}}}},
	} {
		got, err := ParseUnit([]byte(test.text))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}

func TestParseUnitRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\n":                      "line 1: an assignment before the first section",
		"# a\n\nA=1\n[Service]\n":    "line 3: an assignment before the first section",
		"[Service]\nA\n":             "line 2: neither a section header nor an assignment",
		"[Service]\n\n=secret\n":     "line 3: neither a section header nor an assignment",
		"[Service]\n.include /a=b\n": "line 2: neither a section header nor an assignment",
		"[Service]\nA \\\n# b\nc\n":  "line 2: neither a section header nor an assignment",
		"[Service\n":                 "line 1: not a section header",
		"[Ser'vice]\n":               "line 1: not a section header",
		"[Service]\nA=\xff\n":        "line 2: not valid UTF-8",
		"[Service]\nA=\ufffe\n":      "line 2: not valid UTF-8",
		"[Service]\n#\x00\n":         "line 2: a NUL byte",
	} {
		if _, err := ParseUnit([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParseAssignments(t *testing.T) {
	for value, want := range map[string][]Assignment{
		"":                                  nil,
		" \t":                               nil,
		"A=1":                               {{"A", "1"}},
		"A=1 B=2\tA=3":                      {{"A", "1"}, {"B", "2"}, {"A", "3"}},
		`'A=1 2' "B=it's" C='"' D=`:         {{"A", "1 2"}, {"B", "it's"}, {"C", `"`}, {"D", ""}},
		`A=a' b 'c"d"`:                      {{"A", "a b cd"}},
		`A=\x2d\t\n\s\101\\\'\" 'B=\u00e9'`: {{"A", "-\t\n A\\'\""}, {"B", "é"}},
		`A=\xc3\xa9\U0001F600`:              {{"A", "é😀"}},
		"A=100%% B=%%n C=%%%%d":             {{"A", "100%"}, {"B", "%n"}, {"C", "%%d"}},
		`A=100% B=\x25\x25`:                 {{"A", "100%"}, {"B", "%"}},
		"A=x=y_1=2":                         {{"A", "x=y_1=2"}},
	} {
		if got, err := ParseAssignments(value); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
	for value, want := range map[string]string{
		`A='1`:         "a quote that is not closed",
		`A=1 "`:        "a quote that is not closed",
		`A=1\`:         "an unknown escape sequence",
		`A=\q`:         "an unknown escape sequence",
		`A=\x00`:       "an unknown escape sequence",
		`A=\x4`:        "an unknown escape sequence",
		`A=\400`:       "an unknown escape sequence",
		`A=\ud800`:     "an unknown escape sequence",
		`A=\U00110000`: "an unknown escape sequence",
		`A=\xff`:       "assignment 1: not of the form NAME=VALUE",
		`A=\uffff`:     "assignment 1: not of the form NAME=VALUE",
		`A=1 secret`:   "assignment 2: not of the form NAME=VALUE",
		`''`:           "assignment 1: not of the form NAME=VALUE",
		`=1`:           "assignment 1: not of the form NAME=VALUE",
		`1A=1`:         "assignment 1: not of the form NAME=VALUE",
		`A-B=1`:        "assignment 1: not of the form NAME=VALUE",
		`A=1 B=%n`:     "assignment 2: a % specifier",
		`A=%%%n`:       "assignment 1: a % specifier",
		`A=\x25n`:      "assignment 1: a % specifier",
	} {
		if got, err := ParseAssignments(value); err == nil || err.Error() != want {
			t.Errorf("%s: %q, %v, want %s", value, got, err, want)
		}
	}
}

func TestParseWords(t *testing.T) {
	for value, want := range map[string][]string{
		"":                       nil,
		" \t\r\n":                nil,
		" a  b\tc\nd\re ":        {"a", "b", "c", "d", "e"},
		"a\vb\fc":                {"a\vb\fc"},
		`'a b' "c d" e' 'f`:      {"a b", "c d", "e f"},
		`"" '' a""`:              {"", "", "a"},
		`\a \\ \" "\"" '\'' \ b`: {"a", `\`, `"`, `"`, `'`, " b"},
		`\n\x41`:                 {"nx41"},
		`"a b`:                   {"a b"},
		`a "`:                    {"a", ""},
		`a \`:                    {"a", ""},
		`'a\`:                    {"a"},
	} {
		if got := ParseWords(value); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

// writable tells whether systemd can be made to read a string at all, and
// whether Environment and Variables write it so.
func writable(s string) bool { return isText(s) }

// readsBack holds Environment and Variables to the parsers: whoever reads what
// they write finds what was meant, or an error where that cannot be.
func readsBack(t *testing.T, words []string, variables map[string]string) {
	t.Helper()
	read := func(text []byte) (found []Assignment, err error) {
		unit, err := ParseUnit(text)
		if err != nil {
			return nil, err
		}
		for _, d := range unit.Sections[0].Directives {
			more, err := ParseAssignments(d.Value)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
		return found, nil
	}
	text := Environment("ARGS", words)
	found, err := read(text)
	switch {
	case err != nil && !slices.ContainsFunc(words, func(w string) bool { return !writable(w) }):
		t.Errorf("%q: %v\n%s", words, err, text)
	case err == nil && (len(found) != 1 || found[0].Name != "ARGS" || !slices.Equal(ParseWords(found[0].Value), words)):
		t.Errorf("%q reads as %q\n%s", words, found, text)
	}

	text = Variables("Service", "Environment", variables)
	found, err = read(text)
	got := map[string]string{}
	for _, a := range found {
		got[a.Name] = a.Value
	}
	unwritable := false
	for _, value := range variables {
		unwritable = unwritable || !writable(value)
	}
	switch {
	case err != nil && !unwritable:
		t.Errorf("%q: %v\n%s", variables, err, text)
	case err == nil && !reflect.DeepEqual(got, variables):
		t.Errorf("%q reads as %q\n%s", variables, got, text)
	}
}

func TestEnvironmentReadsBack(t *testing.T) {
	for _, words := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {" "}, {"a b", "c"}, {"'"}, {`"`}, {"it's", `say "x"`}, {`\`}, {`\\`}, {`a\`, "b"}, {`\'`}, {`\"`}, {`\n`}, {`\x41`},
		{"%"}, {"%%"}, {"100%", "b"}, {"%n"}, {"a\nb"}, {"\n"}, {"a\tb"}, {"\t"}, {"é世😀"}, {"\u00a0\u2028\ufeff"},
		{"\x01", "\x7f"}, {"\v\f", "a\vb"}, {"#a", ";b"}, {"[a]"}, {"a=b", "="}, {"$HOME", "${HOME}", "$$"}, {`--j={"a":"b"}`},
		{"a\rb"}, {"\r"}, {"a\r\nA=b"}, {"\xff"}, {"\ufffe"}, {"\U0001ffff"}, {"\x00"},
	} {
		readsBack(t, words, map[string]string{"A": strings.Join(words, " "), "_B2": "1"})
	}
}

func FuzzEnvironment(f *testing.F) {
	for _, seed := range []string{"", "--a=b c|--d", `it's|"|\|%`, "\n\t|\v\f\x01|é", "|", "\r", "\xff|\ufffe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		readsBack(t, strings.Split(text, "|"), map[string]string{"A": text, "B": strings.ToUpper(text)})
	})
}

// FuzzParseWords splits anything, and loses nothing but what has a meaning.
func FuzzParseWords(f *testing.F) {
	for _, seed := range []string{"", "a b", `"a b" 'c`, `\a \`, `"" ''`, "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := ParseWords(text)
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = quoteWord(w)
		}
		if again := ParseWords(strings.Join(quoted, " ")); !slices.Equal(words, again) {
			t.Errorf("%q: %q, then %q", text, words, again)
		}
		assignments, err := ParseAssignments(text)
		for _, a := range assignments {
			if err != nil || !isVariable(a.Name) || !utf8.ValidString(a.Value) {
				t.Errorf("%q: %q, %v", text, assignments, err)
			}
		}
	})
}
