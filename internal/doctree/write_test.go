package doctree

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// words are texts that readers of YAML may take for something else.
var words = []string{
	"", " ", "a", "x y", "yes", "no", "on", "OFF", "y", "N", "true", "False", "null", "~", "Null", "0", "1", "-1", "0777", "08", "0x1F", "0b1", "0o7", "1_000", "1e3", ".5", ".inf", "-.INF", ".nan",
	"2024-05-06", "2024-05-06T07:08:09Z", "1:30", "<<", "=", "*a", "&a", "!a", "!!str a", "%a", "@a", "`a", "|", ">", ">-", "-", "- a", "? a", ": a", "a: b", "a:", "#", "# a", "a #b", "a#b", "[", "]", "{", "}", "{}", "[]", ",", "'", `"`, `\`, "it's",
	"---", "...", "--- a", " leading", "trailing ", "\ttab", "a\tb", "two\nlines", "end\n", "\nstart", "  in\n dented\n", "a\n\n\nb\n\n", "trailing \nblank", "\n", "\n\n", " \n", "cr\rhere", "crlf\r\n", "é", "日本", "\u2028", "\u0085", "\ufeff", "\x00", "\x01", "\x7f", "\U0001F600",
	strings.Repeat("long ", 60), strings.Repeat("x", 300), "[plugins.\"io.containerd\"]\n  a = 1\n\n  [b]\n\tc = 'd'\n", "--node-labels=a=b,c=d", "100Mi", "10.0.0.0/16", "https://a.b:443",
}

// numbers are in their JSON form.
var numbers = []string{"0", "1", "-1", "0.1", "1.50", "1e3", "1E+3", "2.5e-7", "9007199254740993", "-9223372036854775808", "18446744073709551615", "123456789012345678901234567890", "1e308", "0.30000000000000004", "100000000000000000000.5"}

func randomTree(r *rand.Rand, depth int) *Node {
	at := Origin{"random", 1 + r.IntN(99), 1}
	switch n := r.IntN(10); {
	case n < 3 && depth > 0:
		tree := NewMap(at)
		for range r.IntN(5) {
			tree.Map[words[r.IntN(len(words))]] = randomTree(r, depth-1)
		}
		return tree
	case n < 5 && depth > 0:
		tree := &Node{IsList: true, Origin: at}
		for range r.IntN(4) {
			tree.List = append(tree.List, randomTree(r, depth-1))
		}
		return tree
	case n < 6:
		return NewScalar(json.Number(numbers[r.IntN(len(numbers))]), at)
	case n == 6:
		return NewScalar(r.IntN(2) == 0, at)
	case n == 7 && depth < 3:
		return NewScalar(nil, at)
	}
	return NewScalar(words[r.IntN(len(words))], at)
}

// same makes sure that a tree's YAML reads back as the same tree, and that
// writing it once more changes nothing.
func same(t *testing.T, tree *Node) {
	t.Helper()
	text, err := tree.YAML()
	if err != nil {
		t.Fatal(err)
	}
	trees, problems := Parse(text, "written", 1)
	if len(problems) > 0 || len(trees) != 1 {
		t.Fatalf("%d documents and %v in\n%s\nof %s", len(trees), problems, text, tree.Text())
	}
	if diff := cmp.Diff(tree.Value(), trees[0].Value()); diff != "" {
		t.Fatalf("it was read back differently: %s\n%q", diff, text)
	}
	again, err := trees[0].YAML()
	if err != nil || string(again) != string(text) {
		t.Errorf("written once more (%v):\n%s\nand before:\n%s", err, again, text)
	}
}

func TestYAMLReadsBack(t *testing.T) {
	for _, word := range words {
		same(t, NewList([]string{word, "after"}, Origin{}))
		tree := NewMap(Origin{})
		tree.Set(NewScalar(word, Origin{}), "a", word)
		tree.Set(NewScalar(word, Origin{}), "b")
		same(t, tree)
	}
	same(t, NewMap(Origin{}))
	same(t, NewList(nil, Origin{}))
	for _, number := range numbers {
		same(t, &Node{IsList: true, List: []*Node{NewScalar(json.Number(number), Origin{})}})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		tree := randomTree(r, 4)
		if tree.Scalar == nil && !tree.IsMap && !tree.IsList {
			continue
		}
		same(t, tree)
	}
}

func TestYAMLIsInOrder(t *testing.T) {
	tree := parse(t, "b: [2, x]\na: {d: yes, c: 'yes', e: null, f: 2024-01-01}\n")[0]
	text, err := tree.YAML()
	want := "a:\n  c: \"yes\"\n  d: true\n  e: null\n  f: \"2024-01-01\"\nb:\n  - 2\n  - x\n"
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestFromValue(t *testing.T) {
	at := Origin{Source: "settings"}
	tree := FromValue(map[string]any{
		"text": "x", "yes": true, "nothing": nil, "number": json.Number("1.50"), "int": int64(9007199254740993), "float": 0.5, "uint": uint8(7),
		"list": []any{int64(1), "2", []any{}}, "map": map[string]any{"a": map[string]any{}}, "time": time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
	}, at)
	want := m{
		"text": "x", "yes": true, "nothing": nil, "number": json.Number("1.50"), "int": json.Number("9007199254740993"), "float": json.Number("0.5"), "uint": json.Number("7"),
		"list": l{json.Number("1"), "2", l{}}, "map": m{"a": m{}}, "time": "2024-05-06T07:08:09Z",
	}
	if diff := cmp.Diff(want, tree.Value()); diff != "" {
		t.Error(diff)
	}
	tree.Leaves(func(path string, leaf *Node) {
		if leaf.Origin != at || leaf.KeyOrigin != at {
			t.Errorf("%s is of %v and %v", path, leaf.Origin, leaf.KeyOrigin)
		}
	})
	same(t, tree)
	// What encoding/json reads is what Value gives.
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		tree := randomTree(r, 4)
		if diff := cmp.Diff(tree.Value(), FromValue(tree.Value(), at).Value()); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"x": "x", "'1'": "1", "1": "1", "yes": "true", "~": "null", "[a, 1]": `["a",1]`, "{b: '<&>', a: 1}": `{"a":1,"b":"<&>"}`, "{}": "{}", "|\n  a\n  b\n": "a\nb\n",
	} {
		if got := parse(t, text)[0].Text(); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
	if got := (*Node)(nil).Text(); got != "null" {
		t.Error(got)
	}
}

func TestDecode(t *testing.T) {
	var into struct {
		A string         `json:"a"`
		B map[string]any `json:"b"`
		C *bool          `json:"c"`
		D []int          `json:"d"`
	}
	if err := parse(t, "a: x\nb: {n: 9007199254740993, m: 1.50}\nc: no\nd: [1, 2]\n")[0].Decode(&into); err != nil {
		t.Fatal(err)
	}
	if into.A != "x" || *into.C || len(into.D) != 2 || into.B["n"] != json.Number("9007199254740993") || into.B["m"] != json.Number("1.50") {
		t.Errorf("%+v", into)
	}
	if err := parse(t, "a: [1]\n")[0].Decode(&into); err == nil {
		t.Error("a list went into a string")
	}
}
