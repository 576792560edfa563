package doctree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is a mistake in a document, at its place.
type Problem struct {
	Origin
	Message string
	Remedy  string // what to write instead; may be empty
	// Unknown says that the problem is a field nobody knows.
	Unknown bool
	// Drop, if set, takes the value out of its tree, so that the rest can be
	// used or checked further.
	Drop func()
}

func (p *Problem) Error() string { return p.Origin.String() + ": " + p.Message }

// Parse reads all documents of a YAML (or JSON) text. firstLine is the line of
// its source on which the text begins. Problems are all the mistakes that do
// not keep the rest from being read, such as a key that is there twice.
func Parse(text []byte, source string, firstLine int) (trees []*Node, problems []*Problem) {
	p := &parser{source: source, offset: max(firstLine, 1) - 1}
	dec := yaml.NewDecoder(bytes.NewReader(unescapeSlashes(text)))
	for {
		var root yaml.Node
		err := dec.Decode(&root)
		if errors.Is(err, io.EOF) {
			return trees, p.problems
		}
		if err != nil {
			return trees, append(p.problems, p.syntax(err, text))
		}
		if len(root.Content) == 0 || root.Content[0].Tag == "!!null" && root.Content[0].Value == "" {
			continue // nothing between two document markers
		}
		if tree := p.node(root.Content[0], 0); tree != nil {
			trees = append(trees, tree)
		}
	}
}

// unescapeSlashes undoes the one escape that JSON has and YAML has not, \/, in
// a text that is JSON.
func unescapeSlashes(text []byte) []byte {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) == 0 || start[0] != '{' || !bytes.Contains(text, []byte(`\/`)) || !json.Valid(text) {
		return text
	}
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			if text[i+1] != '/' {
				out = append(out, text[i])
			}
			i++
		}
		out = append(out, text[i])
	}
	return out
}

// The limits keep aliases and nesting from using up the machine.
const (
	maxDepth = 100
	maxNodes = 200_000
)

type parser struct {
	source   string
	offset   int
	nodes    int
	full     bool // a limit was reached
	problems []*Problem
}

func (p *parser) at(n *yaml.Node) Origin {
	return Origin{Source: p.source, Line: n.Line + p.offset, Column: n.Column}
}

func (p *parser) fail(n *yaml.Node, remedy, format string, args ...any) {
	p.problems = append(p.problems, &Problem{Origin: p.at(n), Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// syntax turns the YAML library's error into a Problem with its line.
func (p *parser) syntax(err error, text []byte) *Problem {
	message := plainYAML(err)
	line := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits by the pattern
	}
	// The library tells the line of the construct, or one too few. The mistake
	// is where a text that ends there begins to fail in the same way.
	ends := 0
	for number, rest := 1, text; len(rest) > 0 && number <= 1000; number++ {
		next := bytes.IndexByte(rest, '\n') + 1
		if next == 0 {
			next = len(rest)
		}
		ends, rest = ends+next, rest[next:]
		if failsWith(text[:ends], message) {
			line = number
			break
		}
	}
	at := Origin{Source: p.source, Line: line + p.offset, Column: 1}
	return &Problem{Origin: at, Message: "not valid YAML: " + message, Remedy: "check the indentation and the quotes around that line"}
}

func failsWith(text []byte, message string) bool {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := dec.Decode(&n); err != nil {
			return !errors.Is(err, io.EOF) && plainYAML(err) == message
		}
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// plainYAML is what the YAML library says, without its name and the line.
func plainYAML(err error) string {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if at := yamlLine.FindStringIndex(message); at != nil && at[0] == 0 {
		message = message[at[1]:]
	}
	return message
}

// count keeps to the limits; it reports once that they are reached.
func (p *parser) count(n *yaml.Node, depth int) bool {
	if p.nodes++; p.nodes <= maxNodes && depth <= maxDepth {
		return true
	}
	if !p.full {
		p.fail(n, "make it smaller, and write aliases out", "the document is too large or nested too deeply")
		p.full = true
	}
	p.nodes = maxNodes
	return false
}

func (p *parser) node(n *yaml.Node, depth int) *Node {
	if !p.count(n, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return p.node(n.Alias, depth+1)
	case yaml.MappingNode:
		tree := NewMap(p.at(n))
		p.mapping(tree, n, depth)
		return tree
	case yaml.SequenceNode:
		tree := &Node{IsList: true, Origin: p.at(n)}
		for _, item := range n.Content {
			if child := p.node(item, depth+1); child != nil {
				child.KeyOrigin = child.Origin
				tree.List = append(tree.List, child)
			}
		}
		return tree
	case yaml.ScalarNode:
		return &Node{Scalar: p.scalar(n), Origin: p.at(n)}
	}
	return nil
}

func (p *parser) mapping(tree *Node, n *yaml.Node, depth int) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			p.fail(key, "write a plain name", "a key must be a name")
			continue
		}
		if first, twice := tree.Map[key.Value]; twice {
			p.fail(key, "remove one of the two", "%q is there twice; the first is at line %d", key.Value, first.KeyOrigin.Line)
			continue
		}
		if child := p.node(value, depth+1); child != nil {
			child.KeyOrigin = p.at(key)
			tree.Map[key.Value] = child
		}
	}
	for _, value := range merged {
		p.merge(tree, value, depth+1)
	}
}

// merge adds the fields of a merge key (<<), which never replace others: those
// of one map, or of several of which the first counts most.
func (p *parser) merge(tree *Node, n *yaml.Node, depth int) {
	if !p.count(n, depth) {
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		p.merge(tree, n.Alias, depth+1)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			p.merge(tree, item, depth+1)
		}
	case yaml.MappingNode:
		below := NewMap(p.at(n))
		p.mapping(below, n, depth+1)
		for key, value := range below.Map {
			if _, there := tree.Map[key]; !there {
				tree.Map[key] = value
			}
		}
	default:
		p.fail(n, "name a map", "<< merges maps only")
	}
}

// yaml11 are the words that YAML 1.1, which Kubernetes reads, takes for truth
// values where they are not quoted.
var yaml11 = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// scalar reads a scalar as Kubernetes does, numbers without loss.
func (p *parser) scalar(n *yaml.Node) any {
	if n.Style&yaml.TaggedStyle != 0 {
		p.fail(n, "leave the tag out, and put quotes around text", "the tag %s is not understood here", n.Tag)
		return nil
	}
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		digits := strings.ReplaceAll(n.Value, "_", "")
		if i, ok := new(big.Int).SetString(digits, 0); ok {
			return json.Number(i.String())
		}
	case "!!float":
		if f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err == nil {
			if text, err := json.Marshal(f); err == nil {
				if exact := json.Number(n.Value); validNumber(n.Value) {
					return exact
				}
				return json.Number(text)
			}
		}
		p.fail(n, "write a number, or put quotes around it", "%s is no number that a configuration can hold", n.Value)
	case "!!str":
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			if truth, ok := yaml11[n.Value]; ok {
				return truth
			}
		}
	}
	return n.Value
}

// validNumber tells whether text is a number in JSON too.
func validNumber(text string) bool {
	var n json.Number
	return json.Unmarshal([]byte(text), &n) == nil
}
