package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Record is what nodeadm knows of its own work: each file as the last run left
// it and, of documents in which others have a say, whose each field is. It
// tells the agent's work from anybody else's.
type Record struct {
	Files     map[string]Written          `json:"files"`
	Documents map[string]*ownership.State `json:"documents,omitempty"`
}

// Written is a file as a run left it.
type Written struct {
	SHA256 string `json:"sha256"`
	Mode   string `json:"mode"` // octal
	// Found: it already was as it should be, and nodeadm did not write it. It is
	// somebody else's, and is never removed.
	Found bool `json:"found,omitempty"`
}

// Own are the paths that nodeadm wrote.
func (r Record) Own() map[string]bool {
	own := map[string]bool{}
	for path, w := range r.Files {
		own[path] = !w.Found
	}
	return own
}

// Secret are the paths of files that are not for everybody.
func (r Record) Secret() map[string]bool {
	secret := map[string]bool{}
	for path, w := range r.Files {
		mode := (&Version{Mode: w.Mode}).mode()
		secret[path] = mode&0o004 == 0
	}
	return secret
}

// Next is the record once changes have brought files into place. Shared files
// are the system's and stay out.
func (r Record) Next(files []plan.File, changes []Change) Record {
	next := Record{Files: map[string]Written{}, Documents: map[string]*ownership.State{}}
	for _, f := range files {
		if f.Shared {
			continue
		}
		written := slices.ContainsFunc(changes, func(c Change) bool { return c.Path == f.Path })
		before, known := r.Files[f.Path]
		next.Files[f.Path] = Written{
			SHA256: hash(f.Data), Mode: octal(f.Mode),
			Found: !written && (!known || before.Found),
		}
		if f.State != nil {
			next.Documents[f.Path] = f.State
		}
	}
	return next
}

// Change is the change that puts a record in place, nil if it is there already.
// It repeats values of documents, and so is readable for everybody only if all
// of them are.
func (r Record) Change(root rootfs.Root) (*Change, error) {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	file := plan.File{Path: layout.AppliedFile, Mode: 0o644, Data: append(data, '\n'), Origin: "nodeadm"}
	for path := range r.Documents {
		if r.Secret()[path] {
			file.Mode, file.Secret = 0o600, true
		}
	}
	changes, _, err := Compare(root, []plan.File{file}, Record{})
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	return &changes[0], nil
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
		return Record{}, "", diskError(layout.AppliedFile, err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Sprintf("%s cannot be read (%v): every file on the node is taken for somebody else's", layout.AppliedFile, err), nil
	}
	return r, "", nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
