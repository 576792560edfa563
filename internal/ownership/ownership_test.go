package ownership

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func doc(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var d map[string]any
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// managed tells who has which fields, such as "hand: .a .b".
func managed(t *testing.T, entries []ManagedFields) (all []string) {
	t.Helper()
	for _, e := range entries {
		fields, err := e.Values(nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Manager+": "+strings.Join(slices.Sorted(maps.Keys(fields)), " "))
	}
	return all
}

// run is one run after the other on a document; state goes through JSON in
// between, as on a node.
type run struct {
	image            string // the document before the first run
	defaults, wanted string
	hand             string // what a person makes of the document, "" for nothing
	defaults2        string
	wanted2          string
	force            bool
}

func TestTwoRuns(t *testing.T) {
	for _, test := range []struct {
		name string
		run
		first     string
		second    string
		managed   []string
		conflicts []Conflict
	}{
		{name: "nobody else", run: run{defaults: `{"a":1,"b":{"x":1}}`, wanted: `{"b":{"y":2}}`, defaults2: `{"a":1,"b":{"x":1}}`, wanted2: `{"b":{"y":2}}`},
			first: `{"a":1,"b":{"x":1,"y":2}}`, second: `{"a":1,"b":{"x":1,"y":2}}`, managed: []string{"nodeadm: .a .b.x", "user-data: .b.y"}},
		{name: "what is not wanted any more goes", run: run{defaults: `{"a":1}`, wanted: `{"b":{"y":2},"a":5}`, defaults2: `{"a":1}`, wanted2: `{}`},
			first: `{"a":5,"b":{"y":2}}`, second: `{"a":1}`, managed: []string{"nodeadm: .a"}},
		{name: "the image keeps its word against defaults only", run: run{image: `{"a":7,"b":7,"c":7}`, defaults: `{"a":1}`, wanted: `{"b":2}`, defaults2: `{"a":1}`, wanted2: `{"b":2}`},
			first: `{"a":7,"b":2,"c":7}`, second: `{"a":7,"b":2,"c":7}`, managed: []string{"image: .a .c", "user-data: .b"}},
		{name: "a hand's value stays", run: run{defaults: `{"a":1}`, wanted: `{"b":2}`, hand: `{"a":8,"b":9,"c":3}`, defaults2: `{"a":1}`, wanted2: `{"b":2}`},
			first: `{"a":1,"b":2}`, second: `{"a":8,"b":9,"c":3}`, managed: []string{"hand: .a .b .c"},
			conflicts: []Conflict{{Field: ".a", Manager: "hand", Value: int64(8), By: "nodeadm", Wanted: int64(1)}, {Field: ".b", Manager: "hand", Value: int64(9), By: "user-data", Wanted: int64(2)}}},
		{name: "unless it is forced", run: run{defaults: `{"a":1}`, wanted: `{"b":2}`, hand: `{"a":8,"b":9,"c":3}`, defaults2: `{"a":1}`, wanted2: `{"b":2}`, force: true},
			first: `{"a":1,"b":2}`, second: `{"a":1,"b":2,"c":3}`, managed: []string{"hand: .c", "nodeadm: .a", "user-data: .b"},
			conflicts: []Conflict{{Field: ".a", Manager: "hand", Value: int64(8), By: "nodeadm", Wanted: int64(1), Taken: true}, {Field: ".b", Manager: "hand", Value: int64(9), By: "user-data", Wanted: int64(2), Taken: true}}},
		{name: "force does not take what the image has against a default", run: run{image: `{"a":7}`, defaults: `{"a":1}`, wanted: `{}`, defaults2: `{"a":1}`, wanted2: `{}`, force: true},
			first: `{"a":7}`, second: `{"a":7}`, managed: []string{"image: .a"}},
		{name: "the same value is no conflict, and both have it", run: run{defaults: `{"a":1}`, wanted: `{}`, hand: `{"a":2}`, defaults2: `{"a":1}`, wanted2: `{"a":2}`},
			first: `{"a":1}`, second: `{"a":2}`, managed: []string{"hand: .a", "user-data: .a"}},
		{name: "what a hand removes comes back", run: run{defaults: `{"a":1,"b":{"x":1,"y":1}}`, wanted: `{}`, hand: `{"b":{"x":1}}`, defaults2: `{"a":1,"b":{"x":1,"y":1}}`, wanted2: `{}`},
			first: `{"a":1,"b":{"x":1,"y":1}}`, second: `{"a":1,"b":{"x":1,"y":1}}`, managed: []string{"nodeadm: .a .b.x .b.y"}},
		{name: "what was removed with the file comes back", run: run{defaults: `{"a":1}`, wanted: `{"b":2}`, hand: `{}`, defaults2: `{"a":1}`, wanted2: `{"b":2}`},
			first: `{"a":1,"b":2}`, second: `{"a":1,"b":2}`, managed: []string{"nodeadm: .a", "user-data: .b"}},
		{name: "a list is one value", run: run{defaults: `{"l":["a","b"]}`, wanted: `{}`, hand: `{"l":["a","b","c"]}`, defaults2: `{"l":["a","b"]}`, wanted2: `{}`},
			first: `{"l":["a","b"]}`, second: `{"l":["a","b","c"]}`, managed: []string{"hand: .l"},
			conflicts: []Conflict{{Field: ".l", Manager: "hand", Value: []any{"a", "b", "c"}, By: "nodeadm", Wanted: []any{"a", "b"}}}},
		{name: "a hand's own field in a group that goes", run: run{defaults: `{"a":1}`, wanted: `{"g":{"x":1}}`, hand: `{"a":1,"g":{"x":1,"h":2}}`, defaults2: `{"a":1}`, wanted2: `{}`},
			first: `{"a":1,"g":{"x":1}}`, second: `{"a":1,"g":{"h":2}}`, managed: []string{"hand: .g.h", "nodeadm: .a"}},
		{name: "a field moves between appliers", run: run{defaults: `{"a":1}`, wanted: `{"a":2}`, defaults2: `{"a":3}`, wanted2: `{}`},
			first: `{"a":2}`, second: `{"a":3}`, managed: []string{"nodeadm: .a"}},
		{name: "numbers stay as they are written", run: run{image: `{"n":0.10,"big":123456789012345678901234567890,"e":1e3}`, defaults: `{"a":0.5}`, wanted: `{}`, defaults2: `{"a":0.5}`, wanted2: `{}`},
			first: `{"a":0.5,"big":123456789012345678901234567890,"e":1e3,"n":0.10}`, second: `{"a":0.5,"big":123456789012345678901234567890,"e":1e3,"n":0.10}`, managed: []string{"image: .big .e .n", "nodeadm: .a"}},
		{name: "null, empty maps and keys with dots", run: run{image: `{"z":null,"m":{},"e":{"memory.available":"1Mi"}}`, defaults: `{"e":{"memory.available":"2Mi"},"k":{}}`, wanted: `{"e":{"nodefs.available":"5%"}}`,
			hand:      `{"z":null,"m":{},"e":{"memory.available":"1Mi","nodefs.available":"9%"},"k":{}}`,
			defaults2: `{"e":{"memory.available":"2Mi"},"k":{}}`, wanted2: `{"e":{"nodefs.available":"5%"}}`},
			first:     `{"e":{"memory.available":"1Mi","nodefs.available":"5%"},"k":{},"m":{},"z":null}`,
			second:    `{"e":{"memory.available":"1Mi","nodefs.available":"9%"},"k":{},"m":{},"z":null}`,
			managed:   []string{`hand: .e["nodefs.available"]`, `image: .e["memory.available"] .m .z`, "nodeadm: .k"},
			conflicts: []Conflict{{Field: `.e["nodefs.available"]`, Manager: "hand", Value: "9%", By: "user-data", Wanted: "5%"}}},
		{name: "lists of maps of lists", run: run{defaults: `{"p":[{"m":["a",["b"],{"c":[1]}]}]}`, wanted: `{}`, defaults2: `{"p":[{"m":["a",["b"],{"c":[1]}]}]}`, wanted2: `{}`},
			first: `{"p":[{"m":["a",["b"],{"c":[1]}]}]}`, second: `{"p":[{"m":["a",["b"],{"c":[1]}]}]}`, managed: []string{"nodeadm: .p"}},
		{name: "a hand puts a value in place of a group", run: run{defaults: `{"g":{"x":1}}`, wanted: `{}`, hand: `{"g":"no"}`, defaults2: `{"g":{"x":1}}`, wanted2: `{}`},
			first: `{"g":{"x":1}}`, second: `{"g":"no"}`, managed: []string{"hand: .g"},
			conflicts: []Conflict{{Field: ".g", Manager: "hand", Value: "no", By: "nodeadm", Wanted: map[string]any{"x": int64(1)}}}},
		{name: "a hand puts a group in place of a value", run: run{defaults: `{"g":1}`, wanted: `{}`, hand: `{"g":{"x":1}}`, defaults2: `{"g":1}`, wanted2: `{}`},
			first: `{"g":1}`, second: `{"g":{"x":1}}`, managed: []string{"hand: .g.x"},
			conflicts: []Conflict{{Field: ".g", Manager: "hand", Value: map[string]any{"x": int64(1)}, By: "nodeadm", Wanted: int64(1)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			intents := func(defaults, wanted string) []Intent {
				return []Intent{{Manager: "nodeadm", Fields: doc(t, defaults), Yields: true}, {Manager: "user-data", Fields: doc(t, wanted)}}
			}
			first, err := Merge(doc(t, test.image), nil, intents(test.defaults, test.wanted), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, first.Document); got != test.first {
				t.Errorf("first run: %s, want %s", got, test.first)
			}
			if len(first.Conflicts) > 0 {
				t.Errorf("conflicts in the first run: %v", first.Conflicts)
			}
			var state State
			if err := json.Unmarshal([]byte(text(t, first.State)), &state); err != nil {
				t.Fatal(err)
			}
			live := first.Document
			if test.hand != "" {
				live = doc(t, test.hand)
			}
			second, err := Merge(live, &state, intents(test.defaults2, test.wanted2), test.force)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, second.Document); got != test.second {
				t.Errorf("second run: %s, want %s", got, test.second)
			}
			if diff := cmp.Diff(test.managed, managed(t, second.State.Managed)); diff != "" {
				t.Errorf("managed fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.conflicts, second.Conflicts); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
			// The third run finds what the second one left, and says the same again
			// of conflicts that were not taken.
			third, err := Merge(second.Document, &second.State, intents(test.defaults2, test.wanted2), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, third.Document); got != test.second {
				t.Errorf("third run: %s, want %s", got, test.second)
			}
			if diff := cmp.Diff(text(t, second.State), text(t, third.State)); diff != "" {
				t.Errorf("the third run remembers otherwise:\n%s", diff)
			}
			want := test.conflicts
			if test.force {
				want = nil
			}
			if diff := cmp.Diff(want, third.Conflicts); diff != "" {
				t.Errorf("conflicts of the third run (-want +got):\n%s", diff)
			}
		})
	}
}

// Without anybody else's fields a document is what the intents say, whatever
// was wanted before.
func TestOnlyIntents(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b, c, d := tree(random, 3), tree(random, 3), tree(random, 3), tree(random, 3)
		first, err := Merge(nil, nil, []Intent{{"nodeadm", a, true}, {"user-data", b, false}}, false)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Merge(first.Document, &first.State, []Intent{{"nodeadm", c, true}, {"user-data", d, false}}, false)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		Overlay(want, c)
		Overlay(want, d)
		if diff := cmp.Diff(text(t, want), text(t, second.Document)); diff != "" || len(second.Conflicts) > 0 {
			t.Fatalf("first %s over %s, then %s over %s (-want +got):\n%s%v", text(t, b), text(t, a), text(t, d), text(t, c), diff, second.Conflicts)
		}
	}
}

func tree(random *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for _, key := range []string{"a", "b", "c.d"} {
		switch n := random.IntN(6); {
		case n == 0 && depth > 0:
			if below := tree(random, depth-1); len(below) > 0 {
				m[key] = below
			}
		case n == 1:
			m[key] = int64(random.IntN(3))
		case n == 2:
			m[key] = []any{"x", int64(random.IntN(2))}
		}
	}
	return m
}

func TestManaged(t *testing.T) {
	first, err := Merge(doc(t, `{"i":1}`), nil, []Intent{{"nodeadm", doc(t, `{"a":1,"b":2}`), true}}, false)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := Managed(doc(t, `{"i":1,"a":5,"b":2}`), &first.State)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hand: .a", "image: .i", "nodeadm: .b"}, managed(t, entries)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	entries[0].FieldsV1 = []byte("garbage")
	if _, err := Managed(nil, &State{Managed: entries}); err == nil || !strings.Contains(err.Error(), `"hand"`) {
		t.Errorf("garbage: %v", err)
	}
}
