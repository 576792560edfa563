package doctree

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ruled has a rule for each top level name, which holds below it too.
var ruled = Merger{
	Rule: func(path string) Rule {
		top, _, _ := strings.Cut(path, ".")
		switch top {
		case "keep":
			return KeepUnlessSet
		case "append":
			return Append
		case "custom":
			return Custom
		}
		return Replace
	},
	Combine: func(_ string, earlier, later *Node) (*Node, error) {
		if later.Text() == "bad" {
			return nil, errors.New("a bad value")
		}
		merged := *later
		merged.Scalar = earlier.Text() + "+" + later.Text()
		return &merged, nil
	},
}

func TestMerge(t *testing.T) {
	for _, test := range []struct{ name, earlier, later, want string }{
		{"different keys", "{a: 1}", "{b: 2}", `{"a":1,"b":2}`},
		{"deep", "{a: {b: {c: 1, d: 2}}}", "{a: {b: {d: 3, e: 4}}}", `{"a":{"b":{"c":1,"d":3,"e":4}}}`},
		{"an empty map removes nothing", "{a: {b: 1}}", "{a: {}}", `{"a":{"b":1}}`},
		{"replace by a value", "{a: 1}", "{a: 2}", `{"a":2}`},
		{"replace by false", "{a: true}", "{a: false}", `{"a":false}`},
		{"replace by zero", "{a: 1}", "{a: 0}", `{"a":0}`},
		{"replace by nothing", "{a: x}", "{a: ''}", `{"a":""}`},
		{"replace by null", "{a: {b: 1}}", "{a: null}", `{"a":null}`},
		{"replace a list", "{a: [1, 2]}", "{a: [3]}", `{"a":[3]}`},
		{"replace a list by an empty one", "{a: [1, 2]}", "{a: []}", `{"a":[]}`},
		{"replace a map by a value", "{a: {b: 1}}", "{a: x}", `{"a":"x"}`},
		{"replace a value by a map", "{a: x}", "{a: {b: 1}}", `{"a":{"b":1}}`},
		{"keep unless set", "{keep: x}", "{keep: z}", `{"keep":"z"}`},
		{"keep what an empty text would clear", "{keep: x}", "{keep: ''}", `{"keep":"x"}`},
		{"keep what null would clear", "{keep: {a: x}}", "{keep: {a: null}}", `{"keep":{"a":"x"}}`},
		{"keep the map that null would clear", "{keep: {a: x}}", "{keep: null}", `{"keep":{"a":"x"}}`},
		{"keep what an empty list would clear", "{keep: [x]}", "{keep: []}", `{"keep":["x"]}`},
		{"false is a value", "{keep: true}", "{keep: false}", `{"keep":false}`},
		{"zero is a value", "{keep: 1}", "{keep: 0}", `{"keep":0}`},
		{"a list replaces a list as a whole", "{keep: [x, y]}", "{keep: [z]}", `{"keep":["z"]}`},
		{"append", "{append: [x, w]}", "{append: [w, z]}", `{"append":["x","w","w","z"]}`},
		{"append nothing", "{append: [x]}", "{append: []}", `{"append":["x"]}`},
		{"append to nothing", "{append: []}", "{append: [x]}", `{"append":["x"]}`},
		{"custom", "{custom: a}", "{custom: b}", `{"custom":"a+b"}`},
		{"custom alone", "{custom: a}", "{}", `{"custom":"a"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ruled.Merge(parse(t, test.earlier)[0], parse(t, test.later)[0])
			if err != nil || got.Text() != test.want {
				t.Errorf("%s (%v), want %s", got.Text(), err, test.want)
			}
		})
	}
	if _, err := ruled.Merge(parse(t, "{custom: a}")[0], parse(t, "{custom: bad}")[0]); err == nil {
		t.Error("the error of Combine is lost")
	}
	if got, err := ruled.Merge(nil, nil); got != nil || err != nil {
		t.Error(got, err)
	}
	one := parse(t, "a: 1")[0]
	if left, _ := ruled.Merge(one, nil); left != one {
		t.Error("merged with nothing it is another")
	}
	if right, _ := ruled.Merge(nil, one); right != one {
		t.Error("merged over nothing it is another")
	}
}

func TestMergeKeepsOrigins(t *testing.T) {
	earlier, _ := Parse([]byte("a: {b: 1, c: 2}\nkeep: x\nappend: [p]\n"), "first", 1)
	later, _ := Parse([]byte("a: {c: 3}\nkeep: ''\nappend: [q]\n"), "second", 1)
	merged, err := ruled.Merge(earlier[0], later[0])
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	merged.Leaves(func(path string, leaf *Node) { got[path] = leaf.Origin.Source })
	for i, item := range merged.Get("append").List {
		got["append"+string(rune('0'+i))] = item.Origin.Source
	}
	want := map[string]string{"a.b": "first", "a.c": "second", "keep": "first", "append": "second", "append0": "first", "append1": "second"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// clone copies a tree with all that is in it, maps in a new order.
func clone(n *Node) *Node {
	if n == nil {
		return nil
	}
	c := *n
	if n.Map != nil {
		c.Map = map[string]*Node{}
		for key, value := range n.Map {
			c.Map[key] = clone(value)
		}
	}
	c.List = nil
	for _, item := range n.List {
		c.List = append(c.List, clone(item))
	}
	return &c
}

// conflicting makes trees of few names, so that maps, lists, scalars and null
// meet each other at the same places. Under append there are lists only, and
// under keep what is empty does not meet maps.
func conflicting(r *rand.Rand, source string, path []string) *Node {
	at := Origin{source, 1 + r.IntN(9), 1 + r.IntN(9)}
	if len(path) == 1 && path[0] == "append" {
		return NewList(words[:r.IntN(3)], at)
	}
	if len(path) == 0 || len(path) < 4 && r.IntN(2) == 0 {
		names := []string{"a", "b", "c"}
		if len(path) == 0 {
			names = []string{"keep", "append", "replace"}
		}
		tree := NewMap(at)
		for _, name := range names {
			if r.IntN(3) > 0 {
				tree.Map[name] = conflicting(r, source, append(path[:len(path):len(path)], name))
			}
		}
		return tree
	}
	anything := path[0] != "keep" || len(path) == 4
	switch r.IntN(5) {
	case 0:
		return NewScalar(r.IntN(2) == 0, at)
	case 1:
		return NewList([]string{"x", "y", "z"}[:1+r.IntN(3)], at)
	case 2:
		if anything {
			return []*Node{NewScalar(nil, at), NewScalar("", at), NewList(nil, at)}[r.IntN(3)]
		}
	}
	return NewScalar(source, at)
}

func TestMergeIsAssociative(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	must := func(earlier, later *Node) *Node {
		merged, err := ruled.Merge(earlier, later)
		if err != nil {
			t.Fatal(err)
		}
		return merged
	}
	for range 20_000 {
		a, b, c := conflicting(r, "a", nil), conflicting(r, "b", nil), conflicting(r, "c", nil)
		a2, b2, c2 := clone(a), clone(b), clone(c)
		left, right := must(must(a, b), c), must(a, must(b, c))
		if !reflect.DeepEqual(left.Value(), right.Value()) || !reflect.DeepEqual(left, right) {
			t.Fatalf("a %s\nb %s\nc %s\n(ab)c %s\na(bc) %s", a.Text(), b.Text(), c.Text(), left.Text(), right.Text())
		}
		if again := must(must(a2, b2), c2); !reflect.DeepEqual(left, again) {
			t.Fatalf("another order of the maps gives %s, before %s", again.Text(), left.Text())
		}
		if !reflect.DeepEqual(a, a2) || !reflect.DeepEqual(b, b2) || !reflect.DeepEqual(c, c2) {
			t.Fatal("merging changed what was merged")
		}
	}
}
