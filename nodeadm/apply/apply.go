// Package apply brings the files of a plan onto a root directory. It knows
// paths, modes and bytes, and nothing of what they mean.
package apply

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Action is what happens to a file.
type Action string

// The actions. Mode means that only the permissions change.
const (
	Create Action = "create"
	Update Action = "update"
	Mode   Action = "mode"
	Remove Action = "remove"
)

// Change is a file that has to become another one.
type Change struct {
	Path   string
	Action Action
	Old    []byte // nil where there was no file
	New    []byte
	Mode   fs.FileMode
}

// Compare tells what has to change below root so that it holds files. Files
// that nodeadm wrote earlier and that are not wanted any more are removed,
// unless somebody has changed them since; those are returned as left.
func Compare(root rootfs.Root, files []plan.File, record Record) (changes []Change, left []string, err error) {
	wanted := map[string]bool{}
	for _, f := range files {
		wanted[f.Path] = true
		old, mode, err := current(root, f.Path)
		if err != nil {
			return nil, nil, err
		}
		c := Change{Path: f.Path, Old: old, New: f.Data, Mode: f.Mode}
		switch {
		case old == nil:
			c.Action = Create
		case !bytes.Equal(old, f.Data):
			c.Action = Update
		case mode != f.Mode && !f.Shared:
			c.Action = Mode
		default:
			continue
		}
		if f.Shared && old != nil {
			c.Mode = mode // the system's file: its permissions are not ours to set
		}
		changes = append(changes, c)
	}
	for _, path := range slices.Sorted(maps.Keys(record)) {
		if wanted[path] {
			continue
		}
		old, _, err := current(root, path)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case old == nil:
		case record.Has(path, old):
			changes = append(changes, Change{Path: path, Action: Remove, Old: old})
		default:
			left = append(left, path)
		}
	}
	return changes, left, nil
}

// current reads a file as it is; nil bytes mean that there is none.
func current(root rootfs.Root, path string) ([]byte, fs.FileMode, error) {
	host, err := root.Resolve(path, false)
	if err != nil {
		return nil, 0, diskError(path, err)
	}
	info, err := os.Lstat(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, diskError(path, err)
	}
	if !info.Mode().IsRegular() {
		to, _ := os.Readlink(host)
		if to == "/dev/null" {
			return nil, 0, fault.New(fault.Disk, "systemctl unmask "+filepath.Base(path), "%s is masked", path)
		}
		return nil, 0, fault.New(fault.Disk, "remove it, or put a regular file in its place",
			"%s is not a regular file (%s%s); nodeadm does not write through it", path, info.Mode().Type(), to)
	}
	data, err := os.ReadFile(host)
	if err != nil {
		return nil, 0, diskError(path, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, info.Mode().Perm(), nil
}

// Commit makes the changes that bring files onto the root, and records them.
// Everything, the record too, is written and synced beside its target first;
// only when all of that has succeeded is anything put in place. A failure
// before that leaves the root as it was.
func Commit(root rootfs.Root, files []plan.File, changes []Change, before Record) (err error) {
	after := before.after(files, changes)
	final, err := after.encode()
	if err != nil {
		return err
	}
	// In the order in which they are put in place: first the record that knows
	// both the old files and the new ones, then the files, then the record of
	// the new ones alone.
	var steps []Change
	if len(changes) > 0 {
		between, err := before.and(after).encode()
		if err != nil {
			return err
		}
		steps = append(steps, recordChange(between))
		steps = append(steps, changes...)
	}
	if old, err := root.ReadFile(layout.AppliedFile); len(changes) > 0 || err != nil || !bytes.Equal(old, final) {
		steps = append(steps, recordChange(final))
	}
	return commit(root, steps)
}

func recordChange(data []byte) Change {
	// The record repeats whole files, some of which are not for everybody.
	return Change{Path: layout.AppliedFile, Action: Update, New: data, Mode: 0o600}
}

func commit(root rootfs.Root, steps []Change) (err error) {
	staged := make([]*atomicfile.Staged, len(steps))
	var madeDirs []string
	defer func() {
		if err == nil {
			return
		}
		for _, s := range staged {
			if s != nil {
				s.Discard()
			}
		}
		for _, dir := range slices.Backward(madeDirs) {
			os.Remove(dir) // only if empty
		}
	}()

	targets := make([]string, len(steps))
	dirs := map[string]bool{}
	for i, c := range steps {
		if targets[i], err = root.Resolve(c.Path, false); err != nil {
			return diskError(c.Path, err)
		}
		dir := filepath.Dir(targets[i])
		if c.Action != Remove {
			made, err := makeDirs(dir)
			madeDirs = append(madeDirs, made...)
			if err != nil {
				return diskError(c.Path, err)
			}
		}
		if !dirs[dir] {
			atomicfile.Sweep(dir)
			dirs[dir] = true
		}
	}
	for i, c := range steps {
		if c.Action == Remove {
			continue
		}
		if staged[i], err = atomicfile.Stage(targets[i], c.New, c.Mode); err != nil {
			return diskError(c.Path, err)
		}
	}

	for i, c := range steps {
		if c.Action != Remove {
			err = staged[i].Commit()
		} else if err = os.Remove(targets[i]); errors.Is(err, fs.ErrNotExist) {
			err = nil // somebody was faster
		}
		if err != nil {
			return diskError(c.Path, err)
		}
		// The first record must be there before any file that it speaks of.
		if i == 0 && len(steps) > 1 {
			if err := atomicfile.SyncDir(filepath.Dir(targets[i])); err != nil {
				return diskError(c.Path, err)
			}
		}
	}
	for _, dir := range madeDirs {
		dirs[filepath.Dir(dir)] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := atomicfile.SyncDir(dir); err != nil {
			return diskError(dir, err)
		}
	}
	return nil
}

// makeDirs is os.MkdirAll that tells which directories it made.
func makeDirs(dir string) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		made = append(made, d)
		if err := os.Chmod(d, 0o755); err != nil { // whatever the umask
			return made, err
		}
	}
	return made, nil
}

func diskError(path string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		remedy = "run nodeadm as root; if it was, look for an immutable file or a security module"
	case errors.Is(err, syscall.ENOSPC):
		remedy = "free some space on that filesystem"
	case errors.Is(err, syscall.EROFS):
		remedy = "remount that filesystem read-write"
	}
	return fault.New(fault.Disk, remedy, "%s: %w", path, err)
}
