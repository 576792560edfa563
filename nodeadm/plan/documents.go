package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Managers of fields besides those of package ownership. A drop-in document
// manages its fields under its own name.
const (
	Agent = "nodeadm" // what nodeadm works out, and its defaults
	// UserData is the user's configuration, in whichever dialect it came:
	// documents, or the arguments of bootstrap.sh.
	UserData = "user-data"
)

// Conflict is a field of a file that somebody has set otherwise than is wanted.
type Conflict struct {
	Path   string // of the file
	Secret bool   // the values are not for everybody
	ownership.Conflict
}

// codec reads and writes a kind of file field by field.
type codec struct {
	decode func([]byte) (map[string]any, error)
	// encode writes a document; like are files of the same kind whose order is
	// kept where the kind has one.
	encode func(document map[string]any, like ...[]byte) ([]byte, error)
	// tolerant: the file may mean something to its reader even where it cannot be
	// read here, such as a unit with specifiers.
	tolerant bool
}

// codecOf is the codec for a file whose fields have owners; ok is false for one
// that is all nodeadm's.
func codecOf(name string) (c codec, ok bool) {
	switch {
	case strings.HasPrefix(name, layout.RegistriesDir+"/"):
		// The order of the tables in there is what containerd goes by.
		return codec{}, false
	case path.Ext(name) == ".json":
		return codec{decodeJSON, func(document map[string]any, _ ...[]byte) ([]byte, error) {
			text, err := indentJSON(document)
			return []byte(text), err
		}, false}, true
	case path.Ext(name) == ".toml":
		return codec{decodeTOML, encodeTOML, false}, true
	case strings.HasPrefix(name, "/etc/systemd/"):
		return codec{decodeUnit, systemd.RenderTree, true}, true
	}
	return codec{}, false
}

// wholeFile is the field of a conflict about a file that cannot be read field
// by field.
const wholeFile = "."

// Fields reads a file field by field; nil if fields of such a file have no
// owners.
func Fields(name string, data []byte) (map[string]any, error) {
	kind, ok := codecOf(name)
	if !ok || data == nil {
		return nil, nil
	}
	return kind.decode(data)
}

func decodeTOML(data []byte) (document map[string]any, err error) {
	_, err = toml.Decode(string(data), &document)
	return document, err
}

func encodeTOML(document map[string]any, _ ...[]byte) ([]byte, error) {
	var out strings.Builder
	enc := toml.NewEncoder(&out)
	enc.Indent = ""
	err := enc.Encode(document)
	return []byte(out.String()), err
}

func decodeUnit(data []byte) (map[string]any, error) {
	unit, err := systemd.ParseUnit(data)
	if err != nil {
		return nil, err
	}
	return unit.Tree("KUBELET_ARGS", "KUBELET_EXTRA_ARGS")
}

// wish is a file as nodeadm and the user want it.
type wish struct {
	path string
	mode fs.FileMode
	// text is the file where nobody else has a say.
	text string
	// intents are text field by field; empty: all of it is manager's.
	intents []ownership.Intent
	manager string
	// keepsImage: fields that the image has set and nobody here does stay.
	// Otherwise a file that nodeadm has not written is replaced, as bootstrap.sh
	// replaces its drop-ins: an image made of a node that ran would bring that
	// node's own arguments along.
	keepsImage bool
}

// want plans a file: what is wanted, merged with what others have set.
func (b *builder) want(w wish) (document map[string]any, err error) {
	w.manager = cmp.Or(w.manager, Agent)
	file := b.private(File{Path: w.path, Mode: w.mode, Data: []byte(w.text), Origin: w.manager, Secret: w.mode&0o004 == 0})
	defer func() {
		if err == nil {
			b.plan.Files = append(b.plan.Files, file)
		}
	}()
	kind, hasFields := codecOf(w.path)
	if !hasFields {
		return nil, nil
	}
	wanted, err := kind.decode(file.Data)
	if err != nil {
		// Such as an argument with a control character in it: systemd hands that
		// on, and nobody needs it field by field.
		return nil, nil
	}
	if len(w.intents) == 0 {
		w.intents = []ownership.Intent{{Manager: w.manager, Fields: wanted}}
	}
	merged, err := b.merge(&file, kind, w.intents, w.keepsImage)
	if err != nil || merged == nil {
		return wanted, err
	}
	// Where nothing has to change, the file stays as somebody laid it out, with
	// their comments; where nobody else has a say, it is as planned.
	live := b.facts.Host.Live[w.path]
	now, nowErr := kind.decode(live)
	switch {
	case live != nil && nowErr == nil && ownership.Equal(merged, now):
		file.Data = live
	case !ownership.Equal(merged, wanted):
		file.Data, err = kind.encode(merged, file.Data, live)
	}
	return merged, err
}

// private keeps a file from everybody that somebody has kept from everybody: it
// may hold a password of theirs.
func (b *builder) private(f File) File {
	if mode, is := b.facts.Host.Private[f.Path]; is && mode&^f.Mode == 0 {
		f.Mode, f.Secret = mode, true
	}
	return f
}

// merge works out the fields of a file and notes conflicts. It returns nil for
// a file that somebody has changed so that it cannot be read any more: what
// becomes of that is settled in here.
func (b *builder) merge(file *File, kind codec, intents []ownership.Intent, keepsImage bool) (map[string]any, error) {
	before, live := b.facts.Host.Before[file.Path], b.facts.Host.Live[file.Path]
	switch {
	case before != nil || keepsImage:
	case b.facts.Host.RanBefore && live != nil:
		// It was not there, or nobody's business, when nodeadm last ran.
		before = &ownership.State{}
	default:
		live = nil
	}
	fields, err := kind.decode(live)
	if live == nil {
		fields, err = nil, nil
	}
	if err != nil && !b.force && kind.tolerant {
		b.plan.Conflicts = append(b.plan.Conflicts, Conflict{Path: file.Path, Conflict: ownership.Conflict{Field: wholeFile, Manager: ownership.Hand, Value: err.Error(), By: file.Origin}})
		file.Data, file.State, file.Origin = live, before, ownership.Hand
		return nil, nil
	}
	if err != nil && !b.force {
		return nil, fault.New(fault.Usage, "mend the file, or remove it; --force-conflicts replaces it", "%s: %w", file.Path, err)
	}
	if err != nil {
		before, fields = nil, nil
		b.warn(fmt.Sprintf("%s could not be read (%v) and is replaced as a whole", file.Path, err))
	}
	merged, err := ownership.Merge(fields, before, intents, b.force)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	file.State = &merged.State
	var managers []string
	for _, m := range merged.State.Managed {
		managers = append(managers, m.Manager)
	}
	file.Origin = strings.Join(managers, ", ")
	for _, c := range merged.Conflicts {
		b.plan.Conflicts = append(b.plan.Conflicts, Conflict{Path: file.Path, Secret: file.Secret, Conflict: c})
	}
	return merged.Document, nil
}

// unwanted plans what remains of files that earlier runs wrote and this one
// does not: what a hand has put into them.
func (b *builder) unwanted() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.facts.Host.Before)) {
		kind, hasFields := codecOf(name)
		if !hasFields || slices.ContainsFunc(b.plan.Files, func(f File) bool { return f.Path == name }) {
			continue
		}
		live := b.facts.Host.Live[name]
		file := b.private(File{Path: name, Mode: 0o644})
		if live == nil {
			continue
		}
		rest, err := b.merge(&file, kind, nil, false)
		if err == nil && len(rest) > 0 {
			file.Data, err = kind.encode(rest, live)
		}
		if err == nil && file.Data != nil {
			b.plan.Files = append(b.plan.Files, file)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// byManager takes a part of the configuration apart by who wrote each field.
// prefix is the path of the part in the document.
func (b *builder) byManager(prefix string, fields map[string]any) []ownership.Intent {
	parts := map[string]map[string]any{}
	for _, leaf := range leafPaths(fields, "") {
		keys := strings.Split(leaf, "\x00")
		manager := managerOf(b.config.Source(append(strings.Split(prefix, "."), keys...)...))
		if parts[manager] == nil {
			parts[manager] = map[string]any{}
		}
		into := parts[manager]
		for _, key := range keys[:len(keys)-1] {
			next, _ := into[key].(map[string]any)
			if next == nil {
				next = map[string]any{}
				into[key] = next
			}
			into = next
		}
		into[keys[len(keys)-1]] = at(fields, keys)
	}
	var intents []ownership.Intent
	for _, manager := range slices.Sorted(maps.Keys(parts)) {
		intents = append(intents, ownership.Intent{Manager: manager, Fields: parts[manager]})
	}
	return intents
}

// managerOf is the manager's name for a source of configuration.
func managerOf(source string) string {
	if strings.HasPrefix(source, layout.DropInDir+"/") {
		return strings.TrimPrefix(source, path.Dir(layout.DropInDir)+"/")
	}
	return UserData
}

// describeConflicts says all conflicts of a file in one message, in the words
// of server-side apply.
func describeConflicts(found []Conflict) string {
	noun := "1 conflict: conflict"
	if len(found) > 1 {
		noun = fmt.Sprintf("%d conflicts: conflicts", len(found))
	}
	text := fmt.Sprintf("Apply found %s with %q in %s:", noun, found[0].Manager, found[0].Path)
	for _, c := range found {
		now, wanted := show(c.Value), show(c.Wanted)
		if c.Secret {
			now, wanted = "a value not shown", "another one"
		}
		if c.Field == wholeFile {
			text += fmt.Sprintf("\n- the whole file: it cannot be read field by field (%s) and stays; --force-conflicts replaces it", c.Value)
			continue
		}
		if c.Taken {
			text += fmt.Sprintf("\n- %s: %s, set by %q, becomes %s, wanted by %q", c.Field, now, c.Manager, wanted, c.By)
			continue
		}
		text += fmt.Sprintf("\n- %s: %s, set by %q, stays; %q wants %s (--force-conflicts)", c.Field, now, c.Manager, c.By, wanted)
	}
	return text
}

// warnOfConflicts names them, file by file.
func (b *builder) warnOfConflicts() {
	byFile := map[string][]Conflict{}
	for _, c := range b.plan.Conflicts {
		byFile[c.Path] = append(byFile[c.Path], c)
	}
	for _, name := range slices.Sorted(maps.Keys(byFile)) {
		b.warn(describeConflicts(byFile[name]))
	}
}

// show is a value as people write it on one line.
func show(v any) string {
	text, err := indentJSON(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Join(strings.Fields(text), " ")
}
