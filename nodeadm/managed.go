package nodeadm

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// ManagedFile is a file of the node and who has set each of its fields, the
// edits of a hand since the last run included.
type ManagedFile struct {
	Path          string                    `json:"path"`
	ManagedFields []ownership.ManagedFields `json:"managedFields"`
	// Fields are the same, one by one.
	Fields []ManagedField `json:"fields"`
}

// ManagedField is one field and who has set it; of a file that is not for
// everybody there is no value.
type ManagedField struct {
	Field    string   `json:"field"`
	Value    any      `json:"value,omitempty"`
	Managers []string `json:"managers"`
}

// ManagedFiles tells who has set each field of the files that others may change
// too. It looks at the node alone, and changes nothing.
func ManagedFiles(o Options) ([]ManagedFile, error) {
	b := newRun(o)
	record, warning, err := apply.ReadRecord(b.root)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		b.log.Warn(warning)
	}
	files := []ManagedFile{}
	for _, path := range slices.Sorted(maps.Keys(record.Documents)) {
		live, err := b.liveFields(path)
		if err != nil {
			return nil, err
		}
		managed, err := ownership.Managed(live, record.Documents[path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		file := ManagedFile{Path: path, ManagedFields: managed}
		managers := map[string][]string{}
		values := map[string]any{}
		for _, m := range managed {
			fields, err := m.Values(live)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			for field, value := range fields {
				managers[field] = append(managers[field], m.Manager)
				values[field] = value
			}
		}
		for _, field := range slices.Sorted(maps.Keys(managers)) {
			f := ManagedField{Field: field, Managers: managers[field]}
			if !record.Secret()[path] {
				f.Value = values[field]
			}
			file.Fields = append(file.Fields, f)
		}
		files = append(files, file)
	}
	return files, nil
}

// liveFields reads a file of the node field by field; nil if it is not there.
func (b *bootstrap) liveFields(path string) (map[string]any, error) {
	data, err := b.root.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Disk, "run nodeadm as root", "%w", err)
	}
	fields, err := plan.Fields(path, data)
	if err != nil {
		return nil, fault.New(fault.Usage, "mend the file, or remove it", "%s: %w", path, err)
	}
	return fields, nil
}
