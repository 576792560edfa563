package systemd

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// RenderTree writes a tree as Tree gives it: Environment= in the shape of
// Environment and Variables, a flag's value after an equals sign. Everything
// stands in the order in which the examples have it, the first one first, and
// then by name; an example that cannot be read has no say.
//
// What is written reads back as the tree. A tree for which that is impossible
// is an error. An environment without variables leaves no trace.
func RenderTree(tree map[string]any, like ...[]byte) ([]byte, error) {
	r := renderer{order: orderOf(like)}
	r.tree(tree)
	text := []byte(r.out.String())
	if r.wrong || !readsAs(text, tree, r.flagVariables) {
		return nil, errors.New("the settings cannot be written as a unit file")
	}
	return text, nil
}

// readsAs holds what was written to what was meant, and so keeps a value from
// becoming a line of its own.
func readsAs(text []byte, tree map[string]any, flagVariables []string) bool {
	unit, err := ParseUnit(text)
	if err != nil {
		return false
	}
	got, err := unit.Tree(flagVariables...)
	if err != nil {
		return false
	}
	for name, section := range tree {
		for key, value := range section.(map[string]any) {
			if empty, isMap := value.(map[string]any); isMap && len(empty) == 0 && isEnvironment(key) {
				below(below(got, name), key)
			}
		}
	}
	return len(got) == 0 && len(tree) == 0 || reflect.DeepEqual(got, tree)
}

type renderer struct {
	out           strings.Builder
	order         order
	flagVariables []string
	wrong         bool // something was of no type that a tree has
}

func (r *renderer) tree(tree map[string]any) {
	for i, name := range r.order.keys(tree) {
		if i > 0 {
			r.out.WriteString("\n")
		}
		r.out.WriteString("[" + name + "]\n")
		section := r.fields(tree[name])
		for _, key := range r.order.keys(section, name) {
			if isEnvironment(key) {
				r.environment(name, key, r.fields(section[key]))
				continue
			}
			for _, value := range values(section[key]) {
				r.line(key, r.text(value))
			}
		}
	}
}

func (r *renderer) line(key, value string) {
	if endsInBackslash(value) {
		value += " " // or else the next line would continue this one
	}
	r.out.WriteString(key + "=" + value + "\n")
}

func (r *renderer) environment(section, key string, variables map[string]any) {
	for _, name := range r.order.keys(variables, section, key) {
		value, isText := variables[name].(string)
		switch {
		case name == "":
			r.line(key, r.text(variables[name]))
			continue
		case !isText:
			r.flagVariables = append(r.flagVariables, name)
			value = r.flags(r.fields(variables[name]), section, key, name)
		}
		r.line(key, "'"+assignmentEscaper.Replace(name+"="+value)+"'")
	}
}

func (r *renderer) flags(flags map[string]any, above ...string) string {
	var words []string
	for _, name := range r.order.keys(flags, above...) {
		for _, value := range values(flags[name]) {
			word := name
			if value != true {
				word += "=" + r.text(value)
			}
			words = append(words, quoteWord(word))
		}
	}
	return strings.Join(words, " ")
}

// values is a list of what may be a list or a single value.
func values(v any) []any {
	if list, isList := v.([]any); isList {
		return list
	}
	return []any{v}
}

func (r *renderer) fields(v any) map[string]any {
	fields, ok := v.(map[string]any)
	r.wrong = r.wrong || !ok
	return fields
}

func (r *renderer) text(v any) string {
	text, ok := v.(string)
	r.wrong = r.wrong || !ok
	return text
}

// order is the place of each key in the examples, by the keys on the way there.
type order map[string]int

func orderOf(examples [][]byte) order {
	o := order{}
	for _, example := range examples {
		unit, err := ParseUnit(example)
		if err != nil {
			continue
		}
		for _, s := range unit.Sections {
			o.note(s.Name)
			for _, d := range s.Directives {
				o.note(s.Name, d.Key)
				o.noteVariables(s.Name, d)
			}
		}
	}
	return o
}

func (o order) noteVariables(section string, d Directive) {
	if !isEnvironment(d.Key) {
		return
	}
	assignments, _ := ParseAssignments(d.Value)
	for _, a := range assignments {
		o.note(section, d.Key, a.Name)
		for _, word := range ParseWords(a.Value) {
			flag, _, _ := strings.Cut(word, "=")
			o.note(section, d.Key, a.Name, flag)
		}
	}
}

func (o order) note(keys ...string) {
	if path := strings.Join(keys, "\x00"); !o.knows(path) {
		o[path] = len(o)
	}
}

func (o order) knows(path string) bool {
	_, known := o[path]
	return known
}

// keys are the keys of a map in order. An empty assignment comes before what it
// must not reset.
func (o order) keys(m map[string]any, above ...string) []string {
	place := func(key string) int {
		path := strings.Join(append(slices.Clone(above), key), "\x00")
		switch {
		case key == "":
			return -1
		case !o.knows(path):
			return math.MaxInt
		}
		return o[path]
	}
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
	})
}
