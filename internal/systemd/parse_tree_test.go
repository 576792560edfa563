package systemd

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func treeOf(t *testing.T, text string) map[string]any {
	t.Helper()
	unit, err := ParseUnit([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	tree, err := unit.Tree("ARGS", "MORE")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tree
}

type fields = map[string]any

func TestTree(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       fields
	}{
		{"nothing", "", fields{}},
		{"values", "[Unit]\n[Service]\nA=1\nB=x  y\n", fields{"Unit": fields{}, "Service": fields{"A": "1", "B": "x  y"}}},
		{"repeated", "[Service]\nA=1\nB=\nA=\n[Service]\nA=2\n", fields{"Service": fields{"A": []any{"1", "", "2"}, "B": ""}}},
		{"variables", "[Service]\nEnvironment=A=1 B=2\nEnvironment=A=3\n[Manager]\nDefaultEnvironment='C=a b'\n",
			fields{"Service": fields{"Environment": fields{"A": "3", "B": "2"}}, "Manager": fields{"DefaultEnvironment": fields{"C": "a b"}}}},
		{"a reset", "[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n", fields{"Service": fields{"Environment": fields{"": "", "B": "2"}}}},
		{"flags", "[Service]\nEnvironment='ARGS=--a=1 --b --c 2 --d= -v=3 --e=x=y --f \"\"' MORE= OTHER=--a\n",
			fields{"Service": fields{"Environment": fields{"MORE": fields{}, "OTHER": "--a",
				"ARGS": fields{"--a": "1", "--b": true, "--c": "2", "--d": "", "-v": "3", "--e": "x=y", "--f": ""}}}}},
		{"repeated flags", "[Service]\nEnvironment='ARGS=--a=1 --b=2 --a --a 3'\n",
			fields{"Service": fields{"Environment": fields{"ARGS": fields{"--a": []any{"1", true, "3"}, "--b": "2"}}}}},
		{"negative numbers", "[Service]\nEnvironment='ARGS=--a -999 --b -'\n", fields{"Service": fields{"Environment": fields{"ARGS": fields{"--a": "-999", "--b": "-"}}}}},
		{"only the last assignment counts", "[Service]\nEnvironment=ARGS=x\nEnvironment=ARGS=--a\n", fields{"Service": fields{"Environment": fields{"ARGS": fields{"--a": true}}}}},
	} {
		if diff := cmp.Diff(test.want, treeOf(t, test.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	for text, want := range map[string]string{
		"[Service]\nEnvironment=A=%n\n":            "Environment= in section Service: assignment 1: a % specifier",
		"[Service]\nEnvironment='ARGS=--a b c'\n":  "Environment= in section Service: ARGS: word 3 is neither a flag nor the value of one",
		"[Service]\nEnvironment='ARGS=--a=b c'\n":  "Environment= in section Service: ARGS: word 2 is neither a flag nor the value of one",
		"[Service]\nEnvironment='ARGS=--a -- b'\n": "Environment= in section Service: ARGS: word 2 is neither a flag nor the value of one",
		"[Service]\nEnvironment='ARGS=-5'\n":       "Environment= in section Service: ARGS: word 1 is neither a flag nor the value of one",
	} {
		unit, err := ParseUnit([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unit.Tree("ARGS"); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestRenderTreeKeepsShape: what the agent writes comes out as it went in.
func TestRenderTreeKeepsShape(t *testing.T) {
	texts := []string{
		"",
		string(Environment("ARGS", []string{"--z=1", "--a=x y", "--label=it's", "--label=b", `--q="\`, "--m=100%", "--n=a\nb\tc", "--empty="})),
		string(Environment("ARGS", nil)),
		string(Environment("OTHER", []string{"any", "words at all", ""})),
		string(Environment("ARGS", []string{"--a=1"})) + "ExecStart=\nExecStart=/usr/bin/kubelet $ARGS $MORE\n",
		string(Variables("Manager", "DefaultEnvironment", map[string]string{"b": "http://u:p%40@h/", "A": "", "C": "it's \"x\"", "MORE": "--z=1 --a=2"})),
		string(Variables("Service", "Environment", nil)),
		"[Service]\nEnvironment=\nEnvironment='B=1'\nEnvironment='A=2'\n",
	}
	units, err := filepath.Glob("../../systemd/*.[ms][eo]*")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, name := range units {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, withoutComments(string(text)))
	}
	for _, text := range texts {
		got, err := RenderTree(treeOf(t, text), []byte(text))
		if err != nil || string(got) != text {
			t.Errorf("%s\nbecomes, with %v,\n%s", text, err, got)
		}
	}
}

func withoutComments(text string) (rest string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			rest += line
		}
	}
	return rest
}

func TestRenderTreeOrder(t *testing.T) {
	tree := treeOf(t, "[A]\nz=1\n[Service]\nb=1\nc=1\nEnvironment='ARGS=--new=1 --z=1 --a=1 --b' OLD=1 NEW=1\na=1\n[Unit]\nx=1\n")
	first := "[Service]\nc=9\nEnvironment='ARGS=--z=9 --gone'\n"
	second := "[Unit]\n[Service]\nEnvironment=OLD=1\nEnvironment=ARGS=--b\nb=1\nc=1\n"
	got, err := RenderTree(tree, []byte(first), []byte("not a unit"), []byte(second), nil)
	want := "[Service]\nc=1\nEnvironment='ARGS=--z=1 --b --a=1 --new=1'\nEnvironment='OLD=1'\nEnvironment='NEW=1'\nb=1\na=1\n\n[Unit]\nx=1\n\n[A]\nz=1\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestRenderTreeRefuses(t *testing.T) {
	environment := func(v any) fields { return fields{"Service": fields{"Environment": v}} }
	for name, tree := range map[string]fields{
		"a section of no fields":       {"Service": "x"},
		"a number":                     {"Service": fields{"A": 1}},
		"nil":                          {"Service": fields{"A": nil}},
		"true outside of flags":        {"Service": fields{"A": true}},
		"a nested map":                 {"Service": fields{"A": fields{}}},
		"a line of its own":            {"Service": fields{"A": "1\nB=2"}},
		"a key of two lines":           {"Service": fields{"A=1\nB": "2"}},
		"space at the end":             {"Service": fields{"A": "1 "}},
		"a list of one":                {"Service": fields{"A": []any{"1"}}},
		"a section in the name":        {"Service]\n[Unit": fields{}},
		"not UTF-8":                    {"Service": fields{"A": "\xff"}},
		"an environment of text":       environment("A=1"),
		"not a variable":               environment(fields{"A-B": "1"}),
		"a variable of bytes":          environment(fields{"A": "\xff"}),
		"a reset with a value":         environment(fields{"": "x"}),
		"a variable of numbers":        environment(fields{"A": 1}),
		"a flag without dashes":        environment(fields{"A": fields{"a": "1"}}),
		"a flag with an equals sign":   environment(fields{"A": fields{"--a=b": "1"}}),
		"a flag of dashes":             environment(fields{"A": fields{"--": true}}),
		"a flag that is false":         environment(fields{"A": fields{"--a": false}}),
		"flags here and text there":    {"A": fields{"Environment": fields{"V": fields{}}}, "B": fields{"Environment": fields{"V": "x"}}},
		"a flag with a list of one":    environment(fields{"A": fields{"--a": []any{"1"}}}),
		"a flag with a list of a list": environment(fields{"A": fields{"--a": []any{[]any{"1"}, "1"}}}),
	} {
		if got, err := RenderTree(tree); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, err := RenderTree(environment(fields{})); err != nil || string(got) != "[Service]\n" {
		t.Errorf("an empty environment: %q, %v", got, err)
	}
}

// TestRenderTreeReadsBack makes up trees with whatever text in them.
func TestRenderTreeReadsBack(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 36))
	alphabet := []rune("ab=-, \t\n\r\v\f\x01\x7f'\"\\%$#;[]{}é世\u0085\ufeff")
	text := func() (s string) {
		for range random.IntN(8) {
			s += string(alphabet[random.IntN(len(alphabet))])
		}
		return s
	}
	line := func() string { return strings.Trim(strings.NewReplacer("\n", "", "\r", "").Replace(text()), space) }
	for range 5000 {
		flags, variables := fields{}, fields{}
		for i := range random.IntN(5) {
			flags[fmt.Sprintf("--f%s%d", strings.ReplaceAll(text(), "=", ""), i)] = []any{true, text(), []any{text(), true, text()}}[random.IntN(3)]
			variables[fmt.Sprintf("V%d", i)] = text()
		}
		variables["ARGS"] = flags
		if random.IntN(4) == 0 {
			variables[""] = ""
		}
		tree := fields{"Service": fields{"Environment": variables, "A": line(), "B": []any{line(), line()}}, "Unit": fields{"X": line()}}
		got, err := RenderTree(tree)
		if err != nil {
			t.Fatalf("%q: %v", tree, err)
		}
		if diff := cmp.Diff(tree, treeOf(t, string(got))); diff != "" {
			t.Fatalf("%s\n%s", got, diff)
		}
	}
}

func FuzzParseUnit(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		unit, err := ParseUnit([]byte(text))
		if err != nil {
			return
		}
		tree, err := unit.Tree("ARGS", "MORE")
		if err != nil {
			return
		}
		rendered, err := RenderTree(tree, []byte(text))
		if err != nil {
			t.Fatalf("%q: %v", tree, err)
		}
		again := treeOf(t, string(rendered))
		if !reflect.DeepEqual(tree, again) {
			t.Errorf("%q\nis written as %q\nwhich is %q", tree, rendered, again)
		}
		if twice, err := RenderTree(again, rendered); err != nil || string(twice) != string(rendered) {
			t.Errorf("%q, then %q, %v", rendered, twice, err)
		}
	})
}
