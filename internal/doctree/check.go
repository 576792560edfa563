package doctree

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// Check compares a tree with the Go type it is meant for, by json tags: field
// names, kinds of values and, where a field has an enum tag, the values. All
// differences are reported at their places.
//
// A struct has exactly the fields it names; a map[string]any takes anything.
func Check(tree *Node, want reflect.Type) []*Problem {
	c := &checker{}
	c.check(tree, want, "", "")
	return c.problems
}

type checker struct{ problems []*Problem }

func (c *checker) fail(at Origin, remedy, format string, args ...any) {
	c.problems = append(c.problems, &Problem{Origin: at, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (c *checker) check(n *Node, t reflect.Type, path, enum string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Interface || !n.IsMap && !n.IsList && n.Scalar == nil {
		return // anything goes; and null says nothing
	}
	switch t.Kind() {
	case reflect.Struct:
		if !n.IsMap {
			c.fail(n.Origin, "write fields below it, indented", "%s must be a group of fields, and is %s", named(path), kindOf(path, n))
			return
		}
		fields := Fields(t)
		for _, key := range n.Keys() {
			i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key })
			if i < 0 {
				c.unknown(n.Map[key].KeyOrigin, key, path, fields)
				last := c.problems[len(c.problems)-1]
				last.Unknown, last.Drop = true, func() { delete(n.Map, key) }
				continue
			}
			c.member(n, key, fields[i].Type, join(path, key), fields[i].Tag.Get("enum"))
		}
	case reflect.Map:
		if !n.IsMap {
			c.fail(n.Origin, "write names and values below it, indented", "%s must be a map, and is %s", named(path), kindOf(path, n))
			return
		}
		for _, key := range n.Keys() {
			c.member(n, key, t.Elem(), join(path, key), "")
		}
	case reflect.Slice:
		if !n.IsList {
			c.fail(n.Origin, "write it as [a, b], or one item a line after a dash", "%s must be a list, and is %s", named(path), kindOf(path, n))
			return
		}
		for i, item := range n.List {
			before := len(c.problems)
			c.check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), enum)
			for _, p := range c.problems[before:] {
				if p.Drop == nil { // one wrong item must not hide the others
					p.Drop = func() { n.List = slices.DeleteFunc(n.List, func(other *Node) bool { return other == item }) }
				}
			}
		}
	default:
		c.scalar(n, t, path, enum)
	}
}

// member checks a member of a map, which can be dropped if it is wrong.
func (c *checker) member(n *Node, key string, t reflect.Type, path, enum string) {
	before := len(c.problems)
	c.check(n.Map[key], t, path, enum)
	for _, p := range c.problems[before:] {
		if p.Drop == nil {
			p.Drop = func() { delete(n.Map, key) }
		}
	}
}

func (c *checker) unknown(at Origin, key, path string, fields []Field) {
	var names []string
	for _, f := range fields {
		if strings.EqualFold(f.Name, key) {
			c.fail(at, "write "+f.Name, "unknown field %q in %s: upper and lower case count", key, named(path))
			return
		}
		names = append(names, f.Name)
	}
	remedy := "the fields are " + strings.Join(names, ", ")
	if near := suggest.Nearest(key, names); near != "" {
		remedy = "did you mean " + near + "?"
	}
	c.fail(at, remedy, "unknown field %q in %s", key, named(path))
}

func (c *checker) scalar(n *Node, t reflect.Type, path, enum string) {
	want := map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "a whole number"}[t.Kind()]
	fits := false
	if !n.IsMap && !n.IsList {
		switch v := n.Scalar.(type) {
		case string:
			fits = t.Kind() == reflect.String
		case bool:
			fits = t.Kind() == reflect.Bool
		case json.Number:
			_, err := v.Int64()
			fits = t.Kind() == reflect.Int && err == nil
		}
	}
	if !fits {
		remedy := "write " + want
		if t.Kind() == reflect.String && !n.IsMap && !n.IsList {
			remedy = "put quotes around it"
		}
		c.fail(n.Origin, remedy, "%s must be %s, and is %s", named(path), want, kindOf(path, n))
		return
	}
	if enum == "" {
		return
	}
	allowed := strings.Split(enum, ",")
	if value := n.Text(); value != "" && !slices.Contains(allowed, value) {
		remedy := "write " + strings.Join(allowed, " or ")
		if near := suggest.Nearest(strings.ToLower(value), lower(allowed)); near != "" && len(allowed) > 1 {
			remedy = "did you mean " + allowed[slices.Index(lower(allowed), near)] + "?"
		}
		c.fail(n.Origin, remedy, "%s is %q, which is not known", named(path), value)
	}
}

func lower(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strings.ToLower(w)
	}
	return all
}

// Field is a field of a struct under its name in documents.
type Field struct {
	Name string
	reflect.StructField
}

// Fields are the fields of a struct that have json names, in their order.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields = append(fields, Field{name, t.Field(i)})
		}
	}
	return fields
}

func named(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

// kindOf says what a value is. Text is repeated only where it cannot be a
// secret: proxies and environments hold passwords.
func kindOf(path string, n *Node) string {
	if lower := strings.ToLower(path); strings.Contains(lower, "proxy") || strings.Contains(lower, "environment") {
		if _, isText := n.Scalar.(string); isText {
			return "text"
		}
	}
	switch {
	case n.IsMap:
		return "a map"
	case n.IsList:
		return "a list"
	}
	switch v := n.Scalar.(type) {
	case bool:
		return fmt.Sprintf("the truth value %t", v)
	case json.Number:
		return "the number " + v.String()
	case string:
		return fmt.Sprintf("the text %q", v)
	}
	return "nothing"
}
