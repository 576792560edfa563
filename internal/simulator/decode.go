package simulator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// maxDocument bounds a document read from disk, maxUserData what EC2 accepts
// as user data before it is encoded.
const (
	maxDocument = 1 << 20
	maxUserData = 16 << 10
)

// Load reads and parses the document at path.
func Load(path string) (World, error) {
	doc, err := readLimited(path, maxDocument)
	if err != nil {
		return World{}, err
	}
	return Parse(doc, path)
}

// Parse reads a document in YAML or JSON and returns the completed world. name
// stands in errors, and userDataFile is relative to its directory. Every
// mistake is reported, each as name:line:column.
func Parse(doc []byte, name string) (World, error) {
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0:
		return World{}, fmt.Errorf("%s: the document is empty", name)
	case err != nil:
		return World{}, located(name, err)
	}
	var rest yaml.Node
	if err := dec.Decode(&rest); err == nil {
		return World{}, fmt.Errorf("%s:%d:%d: one document is expected, and a second begins here", name, rest.Line, rest.Column)
	} else if !errors.Is(err, io.EOF) {
		return World{}, located(name, err)
	}

	top := root.Content[0]
	c := checker{name: name}
	c.check(top, reflect.TypeFor[World](), "")
	if len(c.errs) > 0 {
		return World{}, errors.Join(c.errs...)
	}
	var w World
	if err := top.Decode(&w); err != nil {
		return World{}, located(name, err)
	}

	if w.UserDataFile != "" && w.UserData == "" {
		path := w.UserDataFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		data, err := readLimited(path, maxUserData)
		if err != nil {
			return World{}, fmt.Errorf("%s: userDataFile: %w", name, err)
		}
		w.UserData, w.UserDataFile = string(data), ""
	}

	w = w.Complete()
	for _, p := range w.problems() {
		n := locate(top, p.path)
		c.errs = append(c.errs, fmt.Errorf("%s:%d:%d: %w", name, n.Line, n.Column, p))
	}
	if len(c.errs) > 0 {
		return World{}, errors.Join(c.errs...)
	}
	return w, nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, nil
}

// checker compares a document's shape with the type it is for. The decoder can
// refuse unknown fields too, but names Go types instead of the document's own
// words, and knows no suggestion.
type checker struct {
	name string
	errs []error
}

func (c *checker) errorf(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s:%d:%d: %s", c.name, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

// check ends even where an alias names its own ancestor: it descends the type,
// which has a bottom.
func (c *checker) check(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	label := path
	if label == "" {
		label = "the document"
	}
	switch t.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			c.errorf(n, "%s must be a mapping of fields", label)
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			field, known := fieldNamed(t, key.Value)
			if field == nil {
				hint := ""
				if near := suggest.Nearest(key.Value, known); near != "" {
					hint = fmt.Sprintf(": did you mean %q?", near)
				}
				c.errorf(key, "unknown field %q in %s%s", key.Value, label, hint)
				continue
			}
			c.check(value, field, join(path, key.Value))
		}
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			c.errorf(n, "%s must be a mapping", label)
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			c.check(n.Content[i+1], t.Elem(), join(path, n.Content[i].Value))
		}
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			c.errorf(n, "%s must be a list", label)
			return
		}
		for i, item := range n.Content {
			c.check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		if n.Kind != yaml.ScalarNode {
			c.errorf(n, "%s must be a single value", label)
		}
	}
}

// fieldNamed returns the type of t's field of that name in the document, or nil
// and all names there are.
func fieldNamed(t reflect.Type, name string) (reflect.Type, []string) {
	known := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if tag == name {
			return f.Type, nil
		}
		known = append(known, tag)
	}
	return nil, known
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// locate finds the node at a path such as faults[2].match, or the deepest one
// on the way there: a field that is missing is reported where it should stand.
func locate(n *yaml.Node, path string) *yaml.Node {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next = n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
				next = n.Content[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// located turns the parser's "yaml: line 3: what" into "name:3: what".
func located(name string, err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return errors.New(prefixed(name, strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	var errs []error
	for _, e := range te.Errors {
		errs = append(errs, errors.New(prefixed(name, e)))
	}
	return errors.Join(errs...)
}

func prefixed(name, message string) string {
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		return name + ":" + rest
	}
	return name + ": " + message
}
