package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Record is what nodeadm last wrote, by path; of a document in which others
// have a say, its own part. It tells the agent's own work
// from anybody else's: what it wrote it may replace and remove, what somebody
// changed since is theirs.
type Record map[string][]byte

// recordFile is the record's form on disk. Contents stand in it as base64,
// which is what encoding/json makes of bytes.
type recordFile struct {
	Files Record `json:"files"`
}

// ReadRecord reads the record of the last run; it is empty before the first.
func ReadRecord(root rootfs.Root) (Record, error) {
	data, err := root.ReadFile(layout.AppliedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return nil, diskError(layout.AppliedFile, err)
	}
	var f recordFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fault.New(fault.Disk, "remove it; nodeadm then takes every file on the node for somebody else's", "%s: %w", layout.AppliedFile, err)
	}
	return f.Files, nil
}

// WriteRecord records files as what nodeadm last wrote. Shared files are not
// its own and stay out, and so do files that already were as they should be
// without nodeadm having written them: those are somebody else's.
func WriteRecord(root rootfs.Root, files []plan.File, changes []Change, before Record) error {
	written := map[string]bool{}
	for _, c := range changes {
		written[c.Path] = true
	}
	record := Record{}
	for _, f := range files {
		_, known := before[f.Path]
		switch {
		case f.Shared || !written[f.Path] && !known && f.Own == nil:
		case f.Own != nil:
			record[f.Path] = f.Own
		default:
			record[f.Path] = f.Data
		}
	}
	data, err := json.MarshalIndent(recordFile{record}, "", " ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if old, err := root.ReadFile(layout.AppliedFile); err == nil && bytes.Equal(old, data) {
		return nil
	}
	target, err := root.Resolve(layout.AppliedFile, false)
	if err != nil {
		return diskError(layout.AppliedFile, err)
	}
	if _, err := makeDirs(filepath.Dir(target)); err != nil {
		return diskError(layout.AppliedFile, err)
	}
	// The record repeats whole files, some of which are not for everybody.
	s, err := atomicfile.Stage(target, data, 0o600)
	if err == nil {
		err = s.Commit()
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(target))
	}
	if err != nil {
		return diskError(layout.AppliedFile, err)
	}
	return nil
}
