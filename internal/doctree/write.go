package doctree

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// YAML writes the tree as a document, keys in order.
func (n *Node) YAML() ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(n.yaml()); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

func (n *Node) yaml() *yaml.Node {
	switch {
	case n.IsMap:
		m := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range n.Keys() {
			m.Content = append(m.Content, text(key), n.Map[key].yaml())
		}
		return m
	case n.IsList:
		l := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range n.List {
			l.Content = append(l.Content, item.yaml())
		}
		return l
	}
	switch v := n.Scalar.(type) {
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: map[bool]string{true: "true", false: "false"}[v]}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case string:
		return text(v)
	}
	return text(n.Text())
}

// text quotes a string where a reader of YAML 1.1 would take it for something
// else.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if _, truth := yaml11[s]; truth {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// FromValue makes a tree of plain Go values, as encoding/json and TOML give
// them.
func FromValue(v any, at Origin) *Node {
	switch v := v.(type) {
	case map[string]any:
		n := NewMap(at)
		n.KeyOrigin = at
		for key, value := range v {
			n.Map[key] = FromValue(value, at)
		}
		return n
	case []any:
		n := &Node{IsList: true, Origin: at, KeyOrigin: at}
		for _, item := range v {
			n.List = append(n.List, FromValue(item, at))
		}
		return n
	case nil, bool, string, json.Number:
		return NewScalar(v, at)
	}
	// Numbers of all kinds have a JSON form; so does everything TOML has.
	data, err := json.Marshal(v)
	if err != nil {
		return NewScalar(nil, at)
	}
	var number json.Number
	if json.Unmarshal(data, &number) == nil {
		return NewScalar(number, at)
	}
	var s string
	if json.Unmarshal(data, &s) == nil {
		return NewScalar(s, at)
	}
	return NewScalar(string(data), at)
}
