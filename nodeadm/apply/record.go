package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Record is what nodeadm wrote, by path; of a document in which others have a
// say, its own part. It tells the agent's own work from anybody else's: what it
// wrote it may replace and remove, what somebody changed since is theirs.
//
// While a run is under way a file has two versions here, the former one and the
// one that is about to be written, so that whatever a run that is cut short
// leaves behind is still known for nodeadm's own. A finished run leaves one.
type Record map[string][][]byte

// Has tells whether data is a version of path that nodeadm wrote.
func (r Record) Has(path string, data []byte) bool {
	return slices.ContainsFunc(r[path], func(v []byte) bool { return bytes.Equal(v, data) })
}

// and joins what either of two records knows.
func (r Record) and(other Record) Record {
	both := maps.Clone(r)
	if both == nil {
		both = Record{}
	}
	for path, versions := range other {
		for _, v := range versions {
			if !both.Has(path, v) {
				both[path] = append(slices.Clip(both[path]), v)
			}
		}
	}
	return both
}

// after is the record once files are in place. Shared files are the system's
// and stay out, and so do files that already were as they should be without
// nodeadm having written them: those are somebody else's.
func (r Record) after(files []plan.File, changes []Change) Record {
	written := map[string]bool{}
	for _, c := range changes {
		written[c.Path] = true
	}
	record := Record{}
	for _, f := range files {
		_, known := r[f.Path]
		switch {
		case f.Shared || !written[f.Path] && !known && f.Own == nil:
		case f.Own != nil:
			record[f.Path] = [][]byte{f.Own}
		default:
			record[f.Path] = [][]byte{f.Data}
		}
	}
	return record
}

// recordFile is the record's form on disk. Contents stand in it as base64,
// which is what encoding/json makes of bytes.
type recordFile struct {
	Files Record `json:"files"`
}

func (r Record) encode() ([]byte, error) {
	data, err := json.MarshalIndent(recordFile{r}, "", " ")
	return append(data, '\n'), err
}

// ReadRecord reads the record of the last run; it is empty before the first.
// One that cannot be understood is a warning and counts as empty: a node must
// boot, and all that is lost is which files nodeadm may remove.
func ReadRecord(root rootfs.Root) (r Record, warning string, err error) {
	data, err := root.ReadFile(layout.AppliedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, "", nil
	}
	if err != nil {
		return nil, "", diskError(layout.AppliedFile, err)
	}
	var f recordFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Record{}, fmt.Sprintf("%s cannot be read (%v): every file on the node is taken for somebody else's", layout.AppliedFile, err), nil
	}
	return f.Files, "", nil
}
