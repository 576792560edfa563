// Package ownership knows who set each field of a document, as the API server
// does for server-side apply and with the library behind it. A document is
// merged from what its managers want; a field that somebody else has changed
// since is a conflict, and stays as that somebody set it unless conflicts are
// forced.
package ownership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// The managers that nobody applies: Image wrote the document before anybody
// here did, Hand has changed it afterwards.
const (
	Image = "image"
	Hand  = "hand"
)

// The operations, in the API server's words: an applier says what it wants
// every time, an updater has changed something once.
const (
	Apply  = "Apply"
	Update = "Update"
)

// ManagedFields are the fields of one manager, in the form of an object's
// metadata.managedFields.
type ManagedFields struct {
	Manager    string          `json:"manager"`
	Operation  string          `json:"operation"`
	FieldsType string          `json:"fieldsType"` // "FieldsV1"
	FieldsV1   json.RawMessage `json:"fieldsV1"`
}

// State is what is remembered of a document from one run to the next.
type State struct {
	// Document is the document as the last run left it.
	Document map[string]any  `json:"document"`
	Managed  []ManagedFields `json:"managedFields"`
}

// Intent is what one manager wants of a document.
type Intent struct {
	Manager string
	Fields  map[string]any
	// Yields: what the image has set otherwise stays, and is no conflict.
	Yields bool
}

// Conflict is a field that one manager wants otherwise than another has set it.
type Conflict struct {
	Field   string // such as .evictionHard["memory.available"]
	Manager string // who has set it
	Value   any    // what it is set to
	By      string // who wants it otherwise
	Wanted  any    // and how
	Taken   bool   // it was forced
}

// Merged is a document after everybody has had a say.
type Merged struct {
	Document  map[string]any
	State     State
	Conflicts []Conflict // in order of fields
}

// Merge works out a document. live is the document as it stands, nil if there
// is none, and before what was remembered of it, nil before the first run.
// Of several intents for a field the last one counts. Force takes conflicts
// over. Numbers in the result are int64, float64 or json.Number.
func Merge(live map[string]any, before *State, intents []Intent, force bool) (Merged, error) {
	wanted := map[string]any{}
	for _, intent := range intents {
		Overlay(wanted, plain(intent.Fields).(map[string]any))
	}
	m, err := track(live, before, wanted)
	if err != nil {
		return Merged{}, err
	}
	m.unite()
	config, err := m.parse(wanted)
	if err != nil {
		return Merged{}, err
	}

	// The first attempt finds the conflicts; if there are any, a second one makes
	// the document from what remains of the intents.
	var conflicts merge.Conflicts
	merged, managers, err := m.apply(config, false)
	if err != nil && !errors.As(err, &conflicts) {
		return Merged{}, err
	}
	var found []Conflict
	var given []fieldpath.Path
	for _, c := range conflicts {
		intent := owner(intents, c.Path)
		if c.Manager != Hand {
			if intent.Yields {
				given = append(given, c.Path)
			}
			continue
		}
		if !force {
			given = append(given, c.Path)
		}
		found = append(found, Conflict{
			Field: Field(c.Path), Manager: c.Manager, Value: lookup(m.live, c.Path),
			By: intent.Manager, Wanted: lookup(wanted, c.Path), Taken: force,
		})
	}
	slices.SortFunc(found, func(a, b Conflict) int { return bytes.Compare([]byte(a.Field), []byte(b.Field)) })
	if len(conflicts) > 0 {
		for _, p := range given {
			remove(wanted, p)
		}
		if config, err = m.parse(wanted); err != nil {
			return Merged{}, err
		}
		if merged, managers, err = m.apply(config, true); err != nil {
			return Merged{}, err
		}
	}
	document, _ := merged.AsValue().Unstructured().(map[string]any)
	if document == nil {
		document = map[string]any{}
	}
	managed, err := encode(split(managers, intents))
	if err != nil {
		return Merged{}, err
	}
	return Merged{Document: exact(document).(map[string]any), State: State{document, managed}, Conflicts: found}, nil
}

// Managed tells who set each field of a document as it stands now.
func Managed(live map[string]any, before *State) ([]ManagedFields, error) {
	m, err := track(live, before, nil)
	if err != nil {
		return nil, err
	}
	return encode(m.managers)
}

// tracked is a document as it stands, and whose its fields are.
type tracked struct {
	live     map[string]any
	value    *typed.TypedValue
	schema   *schema.Schema
	managers fieldpath.ManagedFields
	updater  *merge.Updater
}

// track finds out what was changed since the last run: those fields have become
// the hand's. Without a last run all fields are the image's. wanted is another
// document whose fields the schema has to know.
func track(live map[string]any, before *State, wanted map[string]any) (*tracked, error) {
	builder := merge.UpdaterBuilder{Converter: oneVersion{}, ReturnInputOnNoop: true}
	m := &tracked{live: plain(live).(map[string]any), managers: fieldpath.ManagedFields{}, updater: builder.BuildUpdater()}
	last, changer := map[string]any{}, Image
	if before != nil {
		last, changer = plain(before.Document).(map[string]any), Hand
		for _, entry := range before.Managed {
			set := fieldpath.NewSet()
			if err := set.FromJSON(bytes.NewReader(entry.FieldsV1)); err != nil {
				return nil, fmt.Errorf("managed fields of %q: %w", entry.Manager, err)
			}
			m.managers[entry.Manager] = fieldpath.NewVersionedSet(set, version, entry.Operation == Apply)
		}
	}
	m.schema = &schema.Schema{Types: []schema.TypeDef{{Name: documentType, Atom: shape(m.live, last, wanted)}, {Name: anyType, Atom: anything()}}}
	from, err := m.parse(last)
	if err != nil {
		return nil, err
	}
	if m.value, err = m.parse(m.live); err != nil {
		return nil, err
	}
	_, m.managers, err = m.updater.Update(from, m.value, version, m.managers, changer)
	return m, err
}

func (m *tracked) parse(document map[string]any) (*typed.TypedValue, error) {
	name := documentType
	return typed.AsTyped(value.NewValueInterface(document), m.schema, schema.TypeRef{NamedType: &name})
}

const (
	documentType = "document"
	anyType      = "any"
)

// shape is a schema that knows the fields of some documents, and any value in
// each. It is needed because of a map without declared fields the key is owned
// as well: whoever set the first field of a group would take all of the group
// away with it.
func shape(documents ...map[string]any) schema.Atom {
	below := map[string][]map[string]any{}
	for _, document := range documents {
		for key, v := range document {
			nested, _ := v.(map[string]any)
			below[key] = append(below[key], nested)
		}
	}
	group := anything()
	group.Map.ElementRelationship = schema.Separable
	for _, key := range slices.Sorted(maps.Keys(below)) {
		group.Map.Fields = append(group.Map.Fields, schema.StructField{Name: key, Type: schema.TypeRef{Inlined: shape(below[key]...)}})
	}
	return group
}

// anything is any value, lists and maps as a whole.
func anything() schema.Atom {
	untyped, name := schema.Untyped, anyType
	below := schema.TypeRef{NamedType: &name}
	return schema.Atom{
		Scalar: &untyped,
		List:   &schema.List{ElementType: below, ElementRelationship: schema.Atomic},
		Map:    &schema.Map{ElementType: below, ElementRelationship: schema.Atomic},
	}
}

// appliers stands for all managers that apply: between each other they have no
// conflicts, the last one counts.
const appliers = ""

// unite makes all appliers one.
func (m *tracked) unite() {
	all := fieldpath.NewSet()
	for _, name := range slices.Sorted(maps.Keys(m.managers)) {
		if m.managers[name].Applied() {
			all = all.Union(m.managers[name].Set())
			delete(m.managers, name)
		}
	}
	if !all.Empty() {
		m.managers[appliers] = fieldpath.NewVersionedSet(all, version, true)
	}
}

func (m *tracked) apply(config *typed.TypedValue, force bool) (*typed.TypedValue, fieldpath.ManagedFields, error) {
	return m.updater.Apply(m.value, config, version, m.managers.Copy(), appliers, force)
}

// split gives each applier the fields that were its own intent.
func split(managers fieldpath.ManagedFields, intents []Intent) fieldpath.ManagedFields {
	all, found := managers[appliers]
	if !found {
		return managers
	}
	delete(managers, appliers)
	sets := map[string]*fieldpath.Set{}
	all.Set().Iterate(func(p fieldpath.Path) {
		name := owner(intents, p).Manager
		if sets[name] == nil {
			sets[name] = fieldpath.NewSet()
		}
		sets[name].Insert(p.Copy())
	})
	for name, set := range sets {
		managers[name] = fieldpath.NewVersionedSet(set, version, true)
	}
	return managers
}

// owner is the intent that counts for a field: the last one that has it.
func owner(intents []Intent, p fieldpath.Path) Intent {
	for _, intent := range slices.Backward(intents) {
		if has(intent.Fields, p) {
			return intent
		}
	}
	return Intent{}
}

func encode(managers fieldpath.ManagedFields) ([]ManagedFields, error) {
	var all []ManagedFields
	for _, name := range slices.Sorted(maps.Keys(managers)) {
		fields, err := managers[name].Set().ToJSON()
		if err != nil {
			return nil, err
		}
		operation := Update
		if managers[name].Applied() {
			operation = Apply
		}
		all = append(all, ManagedFields{name, operation, "FieldsV1", fields})
	}
	return all, nil
}

// version is the only one there is: documents are never converted.
const version = fieldpath.APIVersion("v1")

type oneVersion struct{}

func (oneVersion) Convert(v *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return v, nil
}
func (oneVersion) IsMissingVersionError(error) bool { return false }
