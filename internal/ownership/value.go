package ownership

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// literal marks a number that neither int64 nor float64 would write the same
// way again, such as 0.10: it travels as a string.
const literal = "\x00number:"

// plain makes a copy of a value in the types that the library knows.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = plain(value)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, item := range v {
			l[i] = plain(item)
		}
		return l
	case []map[string]any: // an array of tables in TOML
		l := make([]any, len(v))
		for i, item := range v {
			l[i] = plain(item)
		}
		return l
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil && strconv.FormatInt(n, 10) == v.String() {
			return n
		}
		if f, err := v.Float64(); err == nil && strconv.FormatFloat(f, 'g', -1, 64) == v.String() {
			return f
		}
		return literal + v.String()
	case int:
		return int64(v)
	case nil, bool, int64, float64, string:
		return v
	}
	return fmt.Sprint(v) // a date in TOML
}

// exact is the way back for numbers that travelled as strings.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = exact(value)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, item := range v {
			l[i] = exact(item)
		}
		return l
	case string:
		if number, found := strings.CutPrefix(v, literal); found {
			return json.Number(number)
		}
	}
	return v
}

// UnmarshalJSON reads numbers exactly.
func (s *State) UnmarshalJSON(data []byte) error {
	type same State
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if err := dec.Decode((*same)(s)); err != nil {
		return err
	}
	if s.Document == nil {
		s.Document = map[string]any{}
	}
	return nil
}

// Overlay puts the fields of top over those of document, maps field by field,
// everything else as a whole.
func Overlay(document, top map[string]any) {
	for key, value := range top {
		nested, isMap := value.(map[string]any)
		under, underIsMap := document[key].(map[string]any)
		if isMap && underIsMap {
			under = maps.Clone(under)
			Overlay(under, nested)
			document[key] = under
			continue
		}
		document[key] = value
	}
}

// Equal tells whether two documents say the same.
func Equal(a, b map[string]any) bool { return equal(plain(a), plain(b)) }

func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, isMap := b.(map[string]any)
		return isMap && maps.EqualFunc(a, b, equal)
	case []any:
		b, isList := b.([]any)
		return isList && slices.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func has(document map[string]any, p fieldpath.Path) bool {
	for i, element := range p {
		if element.FieldName == nil {
			return false
		}
		value, found := document[*element.FieldName]
		if !found || i == len(p)-1 {
			return found
		}
		document, _ = value.(map[string]any)
	}
	return false
}

func lookup(document map[string]any, p fieldpath.Path) any {
	var value any = document
	for _, element := range p {
		m, _ := value.(map[string]any)
		if element.FieldName == nil || m == nil {
			return nil
		}
		value = m[*element.FieldName]
	}
	return exact(value)
}

// remove takes a field out of a document, and groups that become empty by it.
func remove(document map[string]any, p fieldpath.Path) {
	if len(p) == 0 || p[0].FieldName == nil {
		return
	}
	key := *p[0].FieldName
	group, isMap := document[key].(map[string]any)
	if len(p) > 1 && isMap {
		if remove(group, p[1:]); len(group) > 0 {
			return
		}
	}
	delete(document, key)
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Field writes a path for people, in the manner of jq: plain keys after a dot,
// all others in brackets.
func Field(p fieldpath.Path) string {
	var text strings.Builder
	for _, element := range p {
		switch {
		case element.FieldName == nil:
			text.WriteString(element.String())
		case plainKey.MatchString(*element.FieldName):
			text.WriteString("." + *element.FieldName)
		default:
			text.WriteString("[" + strconv.Quote(*element.FieldName) + "]")
		}
	}
	return text.String()
}

// Values are the fields of a manager, written for people, with what a document
// has there.
func (m ManagedFields) Values(document map[string]any) (map[string]any, error) {
	set := fieldpath.NewSet()
	if err := set.FromJSON(strings.NewReader(string(m.FieldsV1))); err != nil {
		return nil, fmt.Errorf("managed fields of %q: %w", m.Manager, err)
	}
	document = plain(document).(map[string]any)
	fields := map[string]any{}
	set.Leaves().Iterate(func(p fieldpath.Path) { fields[Field(p)] = lookup(document, p) })
	return fields, nil
}

// Owners tells who has a field: of several managers the one that applies it. It
// is "" for a field that nobody has.
func (s *State) Owners() (func(keys ...string) string, error) {
	sets := make([]*fieldpath.Set, len(s.Managed))
	for i, m := range s.Managed {
		sets[i] = fieldpath.NewSet()
		if err := sets[i].FromJSON(bytes.NewReader(m.FieldsV1)); err != nil {
			return nil, fmt.Errorf("managed fields of %q: %w", m.Manager, err)
		}
	}
	return func(keys ...string) (owner string) {
		path := make(fieldpath.Path, len(keys))
		for i := range keys {
			path[i] = fieldpath.FieldNameElement(keys[i])
		}
		for i, m := range s.Managed {
			if sets[i].Has(path) && (owner == "" || m.Operation == Apply) {
				owner = m.Manager
			}
		}
		return owner
	}, nil
}
