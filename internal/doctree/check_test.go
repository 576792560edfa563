package doctree

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type document struct {
	Name    string                       `json:"name,omitempty"`
	Count   *int                         `json:"count,omitempty"`
	Yes     bool                         `json:"yes,omitempty"`
	Maybe   *bool                        `json:"maybe,omitempty"`
	Kind    string                       `json:"kind,omitempty" enum:"RAID0,RAID10,Mount"`
	Only    string                       `json:"only,omitempty" enum:"v1"`
	Kinds   []string                     `json:"kinds,omitempty" enum:"Containerd,PodLogs"`
	Any     map[string]any               `json:"any,omitempty"`
	Gates   map[string]bool              `json:"gates,omitempty"`
	Nested  map[string]map[string]string `json:"nested,omitempty"`
	Inner   inner                        `json:"inner,omitempty"`
	Inners  []inner                      `json:"inners,omitempty"`
	Hidden  string                       `json:"-"`
	Unnamed string
}

type inner struct {
	ServerName string `json:"serverName,omitempty"`
	Port       int    `json:"port,omitempty"`
}

var documentType = reflect.TypeFor[document]()

func TestCheckAccepts(t *testing.T) {
	for _, text := range []string{
		"{}", "null", "name: x\ncount: 0\nyes: no\nmaybe: on\nkind: RAID10\nkinds: [PodLogs, Containerd]\n",
		"any: {x: [1, {y: null}], z: {a: b}}\ngates: {a: true, b: false}\nnested: {a: {b: c, d: '1'}, e: {}}\n",
		"inner: {serverName: x, port: -1}\ninners: [{}, {port: 1}]\n",
		"name:\ncount:\nyes:\nkind:\nkinds:\nany:\ngates:\nnested: {a: }\ninner:\ninners: [null]\n",
		"name: ''\nkind: ''\nkinds: ['']\n", "count: 9223372036854775807", "any: {}", "kinds: []",
	} {
		for _, p := range Check(parse(t, text)[0], documentType) {
			t.Errorf("%s: %v", text, p)
		}
	}
	if problems := Check(parse(t, "name: x")[0], reflect.TypeFor[*document]()); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct {
		text, place, message, remedy, rest string
	}{
		{"name: x\nnaem: y", "2:1", `unknown field "naem" in the document`, "did you mean name?", `{"name":"x"}`},
		{"NAME: x", "1:1", `unknown field "NAME" in the document: upper and lower case count`, "write name", "{}"},
		{"inner:\n  servername: x\n  port: 1", "2:3", `unknown field "servername" in inner: upper and lower case count`, "write serverName", `{"inner":{"port":1}}`},
		{"inner: {zzzzzzzzzzzzzzzzzzzzzz: x}", "1:9", `unknown field "zzzzzzzzzzzzzzzzzzzzzz" in inner`, "the fields are serverName, port", `{"inner":{}}`},
		{"Hidden: x", "1:1", `unknown field "Hidden"`, "", "{}"},
		{"Unnamed: x", "1:1", `unknown field "Unnamed"`, "", "{}"},
		{"inners:\n- port: 1\n- prt: 2", "3:3", `unknown field "prt" in inners[1]`, "did you mean port?", `{"inners":[{"port":1},{}]}`},
		{"name: 5", "1:7", "name must be text, and is the number 5", "put quotes around it", "{}"},
		{"name: yes", "1:7", "name must be text, and is the truth value true", "put quotes around it", "{}"},
		{"name: [x]", "1:7", "name must be text, and is a list", "write text", "{}"},
		{"name: {x: y}", "1:7", "name must be text, and is a map", "write text", "{}"},
		{"count: '5'", "1:8", `count must be a whole number, and is the text "5"`, "write a whole number", "{}"},
		{"count: 1.5", "1:8", "count must be a whole number, and is the number 1.5", "", "{}"},
		{"count: 9223372036854775808", "1:8", "count must be a whole number", "", "{}"},
		{"count: true", "1:8", "and is the truth value true", "", "{}"},
		{"yes: 'true'", "1:6", `yes must be true or false, and is the text "true"`, "write true or false", "{}"},
		{"maybe: 1", "1:8", "maybe must be true or false, and is the number 1", "", "{}"},
		{"kind: raid10", "1:7", `kind is "raid10", which is not known`, "did you mean RAID10?", "{}"},
		{"kind: Mont", "1:7", `"Mont"`, "did you mean Mount?", "{}"},
		{"kind: qqqqqqqqqqqqq", "1:7", "not known", "write RAID0 or RAID10 or Mount", "{}"},
		{"only: v2", "1:7", `only is "v2"`, "write v1", "{}"},
		{"kinds: [PodLogs, podlog]", "1:18", `kinds[1] is "podlog", which is not known`, "did you mean PodLogs?", `{"kinds":["PodLogs"]}`},
		{"kinds: PodLogs", "1:8", `kinds must be a list, and is the text "PodLogs"`, "write it as [a, b], or one item a line after a dash", "{}"},
		{"kinds: [[PodLogs]]", "1:9", "kinds[0] must be text, and is a list", "", `{"kinds":[]}`},
		{"any: x", "1:6", `any must be a map, and is the text "x"`, "write names and values below it, indented", "{}"},
		{"any: [x]", "1:6", "any must be a map, and is a list", "", "{}"},
		{"gates: {a: true, b: 'false'}", "1:21", `gates.b must be true or false, and is the text "false"`, "", `{"gates":{"a":true}}`},
		{"nested: {a: {b: 1, c: d}}", "1:17", "nested.a.b must be text, and is the number 1", "put quotes around it", `{"nested":{"a":{"c":"d"}}}`},
		{"nested: {a: b}", "1:13", `nested.a must be a map, and is the text "b"`, "", `{"nested":{}}`},
		{"inner: x", "1:8", `inner must be a group of fields, and is the text "x"`, "write fields below it, indented", "{}"},
		{"inner: [1]", "1:8", "inner must be a group of fields, and is a list", "", "{}"},
		{"inners: [x]", "1:10", `inners[0] must be a group of fields, and is the text "x"`, "", `{"inners":[]}`},
		{"inners: {port: 1}", "1:9", "inners must be a list, and is a map", "", "{}"},
		{"[1]", "1:1", "the document must be a group of fields, and is a list", "", "[1]"},
		{"x", "1:1", `the document must be a group of fields, and is the text "x"`, "", "x"},
	} {
		t.Run(test.text, func(t *testing.T) {
			tree := parse(t, test.text)[0]
			problems := Check(tree, documentType)
			if len(problems) != 1 {
				t.Fatalf("problems: %v", problems)
			}
			p := problems[0]
			if got := p.Origin.String(); got != "file:"+test.place {
				t.Errorf("it stands at %s", got)
			}
			if !strings.Contains(p.Message, test.message) || test.remedy != "" && p.Remedy != test.remedy {
				t.Errorf("%q, remedy %q", p.Message, p.Remedy)
			}
			if p.Unknown != strings.Contains(test.message, "unknown field") {
				t.Errorf("Unknown is %v", p.Unknown)
			}
			if p.Drop != nil {
				p.Drop()
			}
			if got := tree.Text(); got != test.rest {
				t.Errorf("what is left is %s", got)
			}
			if p.Drop != nil {
				if more := Check(tree, documentType); len(more) > 0 {
					t.Errorf("still wrong without it: %v", more)
				}
			}
		})
	}
}

// TestCheckReportsAll also drops all that is wrong: the rest is as it was.
func TestCheckReportsAll(t *testing.T) {
	tree := parse(t, "name: 1\nx: 1\ncount: a\nkinds: [q, 1]\ninner: {port: x, serverName: ok}\ninners: [{port: y}, 5]\ngates: {a: 1, b: yes}\n")[0]
	var got []string
	problems := Check(tree, documentType)
	for _, p := range problems {
		message, _, _ := strings.Cut(p.Message, " must")
		got = append(got, message)
	}
	want := []string{"count", "gates.a", "inner.port", "inners[0].port", "inners[1]", `kinds[0] is "q", which is not known`, "kinds[1]", "name", `unknown field "x" in the document`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, p := range problems {
		p.Drop()
	}
	if got := tree.Text(); got != `{"gates":{"b":true},"inner":{"serverName":"ok"},"inners":[{}],"kinds":[]}` {
		t.Errorf("what is left is %s", got)
	}
}

func TestFields(t *testing.T) {
	var names []string
	for _, f := range Fields(documentType) {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff(strings.Fields("name count yes maybe kind only kinds any gates nested inner inners"), names); diff != "" {
		t.Error(diff)
	}
}

func TestTree(t *testing.T) {
	at := Origin{"x", 1, 2}
	tree := NewMap(at)
	tree.Set(NewScalar("v", at), "a", "b", "c")
	tree.Set(NewScalar("w", at), "a", "d")
	tree.Set(NewList([]string{"1"}, at), "a", "d", "e") // what is in the way gives way
	if got := tree.Text(); got != `{"a":{"b":{"c":"v"},"d":{"e":["1"]}}}` {
		t.Error(got)
	}
	for path, there := range map[string]bool{"a": true, "a.b.c": true, "a.b.c.d": false, "x": false, "a.x.y": false} {
		if got := tree.Get(strings.Split(path, ".")...) != nil; got != there {
			t.Errorf("%s is there: %v", path, got)
		}
	}
	if (*Node)(nil).Get("a") != nil || (*Node)(nil).Value() != nil || !(*Node)(nil).Empty() {
		t.Error("nothing has something in it")
	}
	var leaves []string
	parse(t, "b: {}\na: [1]\nc: {d: null, e: {f: x}}\n")[0].Leaves(func(path string, leaf *Node) { leaves = append(leaves, path+"="+leaf.Text()) })
	if want := []string{"a=[1]", "b={}", "c.d=null", "c.e.f=x"}; !slices.Equal(leaves, want) {
		t.Errorf("leaves are %q", leaves)
	}
	for text, empty := range map[string]bool{"''": true, "null": true, "{}": true, "[]": true, "0": false, "false": false, "' '": false, "[null]": false, "{a: null}": false} {
		if got := parse(t, text)[0]; got.Empty() != empty {
			t.Errorf("%s is empty: %v", text, !empty)
		}
	}
}
