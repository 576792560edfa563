// Package doctree holds configuration as trees in which every value knows
// where it came from. Trees are read from YAML or JSON with all their
// positions, merged so that later ones win, and written out again; a mistake
// found afterwards can still be shown at its line.
package doctree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Origin is where a value was written.
type Origin struct {
	Source string // such as "user data part 2" or "/etc/eks/nodeadm.d/10.yaml"; a flag is "--name"
	Line   int    // 1-based; 0 where the source has no lines
	Column int
}

func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
}

// Node is one value of a tree: a map, a list or a scalar.
type Node struct {
	// Exactly one of these is used: Map if IsMap, List if IsList, else Scalar,
	// which is nil, bool, json.Number or string.
	Map    map[string]*Node
	List   []*Node
	Scalar any
	IsMap  bool
	IsList bool

	// Origin is where the value stands, KeyOrigin where the key that names it.
	Origin, KeyOrigin Origin

	// reset: whatever earlier documents say below here is dropped, because a
	// document in between said something other than a map. Without it the
	// result would depend on the order in which documents are put together.
	reset bool
}

// NewMap makes an empty map.
func NewMap(at Origin) *Node { return &Node{IsMap: true, Map: map[string]*Node{}, Origin: at} }

// NewScalar makes a scalar of nil, bool, json.Number or string.
func NewScalar(v any, at Origin) *Node { return &Node{Scalar: v, Origin: at, KeyOrigin: at} }

// NewList makes a list of strings.
func NewList(items []string, at Origin) *Node {
	n := &Node{IsList: true, Origin: at, KeyOrigin: at}
	for _, item := range items {
		n.List = append(n.List, NewScalar(item, at))
	}
	return n
}

// Keys are the keys of a map in order.
func (n *Node) Keys() []string { return slices.Sorted(maps.Keys(n.Map)) }

// Get follows a path of keys and is nil where there is nothing.
func (n *Node) Get(path ...string) *Node {
	for _, key := range path {
		if n == nil || !n.IsMap {
			return nil
		}
		n = n.Map[key]
	}
	return n
}

// Set puts a value at a path of keys, making maps on the way.
func (n *Node) Set(value *Node, path ...string) {
	for _, key := range path[:len(path)-1] {
		next := n.Map[key]
		if next == nil || !next.IsMap {
			next = NewMap(value.Origin)
			next.KeyOrigin = value.KeyOrigin
			n.Map[key] = next
		}
		n = next
	}
	n.Map[path[len(path)-1]] = value
}

// Empty tells whether a value says nothing: null, "", or a map or list without
// members.
func (n *Node) Empty() bool {
	switch {
	case n == nil:
		return true
	case n.IsMap:
		return len(n.Map) == 0
	case n.IsList:
		return len(n.List) == 0
	}
	return n.Scalar == nil || n.Scalar == ""
}

// Rule says how values at a path come together.
type Rule int

// The rules. Maps are always merged key by key; these are for the rest.
const (
	Replace       Rule = iota // the later value wins, whatever it is
	KeepUnlessSet             // the later value wins unless it is empty
	Append                    // lists are put one behind the other
	Custom                    // the merger's Combine decides
)

// Merger merges trees by rules.
type Merger struct {
	// Rule tells the rule for a path, such as "spec.kubelet.flags".
	Rule func(path string) Rule
	// Combine merges two values at a path whose rule is Custom.
	Combine func(path string, earlier, later *Node) (*Node, error)
}

// Merge puts later over earlier. Neither is changed. Merging is associative:
// it does not matter which of several documents are put together first.
func (m Merger) Merge(earlier, later *Node) (*Node, error) { return m.merge("", earlier, later) }

func (m Merger) merge(path string, earlier, later *Node) (*Node, error) {
	switch {
	case earlier == nil:
		return later, nil
	case later == nil:
		return earlier, nil
	case earlier.IsMap && later.IsMap:
		if later.reset {
			return later, nil
		}
		merged := *later
		merged.reset = earlier.reset
		merged.Map = maps.Clone(earlier.Map)
		for _, key := range later.Keys() {
			value, err := m.merge(join(path, key), earlier.Map[key], later.Map[key])
			if err != nil {
				return nil, err
			}
			merged.Map[key] = value
		}
		return &merged, nil
	}
	switch m.Rule(path) {
	case KeepUnlessSet:
		if later.Empty() {
			return earlier, nil
		}
		if earlier.Empty() {
			return later, nil
		}
	case Append:
		if later.Empty() {
			return earlier, nil
		}
		if earlier.Empty() {
			return later, nil
		}
		if earlier.IsList && later.IsList {
			merged := *later
			merged.List = slices.Concat(earlier.List, later.List)
			return &merged, nil
		}
	case Custom:
		return m.Combine(path, earlier, later)
	}
	if later.IsMap {
		merged := *later
		merged.reset = true
		return &merged, nil
	}
	return later, nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Leaves calls f for every value that is not a map with members, in order of
// its path.
func (n *Node) Leaves(f func(path string, leaf *Node)) { n.leaves("", f) }

func (n *Node) leaves(path string, f func(string, *Node)) {
	if n == nil {
		return
	}
	if !n.IsMap || len(n.Map) == 0 {
		f(path, n)
		return
	}
	for _, key := range n.Keys() {
		n.Map[key].leaves(join(path, key), f)
	}
}

// Value is the tree as plain Go values, numbers as json.Number.
func (n *Node) Value() any {
	switch {
	case n == nil:
		return nil
	case n.IsMap:
		m := make(map[string]any, len(n.Map))
		for key, value := range n.Map {
			m[key] = value.Value()
		}
		return m
	case n.IsList:
		l := make([]any, len(n.List))
		for i, item := range n.List {
			l[i] = item.Value()
		}
		return l
	}
	return n.Scalar
}

// Decode stores the tree in a Go value by its json tags.
func (n *Node) Decode(into any) error {
	data, err := json.Marshal(n.Value())
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(into)
}

// Text is a value as people would write it on one line.
func (n *Node) Text() string {
	if n != nil && !n.IsMap && !n.IsList {
		if s, ok := n.Scalar.(string); ok {
			return s
		}
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(n.Value()); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(out.String(), "\n")
}
