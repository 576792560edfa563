// Package apply brings files onto a root directory, all of them or none. It
// knows paths, modes and bytes, and nothing of what they mean.
//
// What a run changes is a generation: what it wrote, what stood there before,
// and a manifest. The generation is on the disk before the first file changes,
// and is what undoes a run that was cut short, and what a rollback goes by.
package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Action is what happens to a file.
type Action string

// The actions. Mode means that only permissions or owner change.
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
	// OldMode and OldOwner are those of the file that was there.
	OldMode  fs.FileMode
	OldOwner atomicfile.Owner
	Mode     fs.FileMode
	// Owner is whom the file is to belong to; nil keeps the owner.
	Owner *atomicfile.Owner
	// Secret contents are not for everybody. Origin is whose work they are.
	Secret bool
	Origin string
}

// Compare tells what has to change below root so that it holds files. Files
// that nodeadm wrote earlier and that are not wanted any more are removed,
// unless somebody has changed them since; those are returned as left.
func Compare(root rootfs.Root, files []plan.File, record Record) (changes []Change, left []string, err error) {
	wanted := map[string]bool{}
	for _, f := range files {
		wanted[f.Path] = true
		old, err := look(root, f.Path)
		if err != nil {
			return nil, nil, err
		}
		c := Change{Path: f.Path, Old: old.data, OldMode: old.mode, OldOwner: old.owner, New: f.Data, Mode: f.Mode, Secret: f.Secret, Origin: f.Origin}
		switch {
		case old.data == nil:
			c.Action = Create
		case !bytes.Equal(old.data, f.Data):
			c.Action = Update
		case old.mode != f.Mode && !f.Shared:
			c.Action = Mode
		default:
			continue
		}
		if f.Shared && old.data != nil {
			c.Mode = old.mode // the system's file: its permissions are not ours to set
		}
		changes = append(changes, c)
	}
	for _, path := range slices.Sorted(maps.Keys(record.Files)) {
		if wanted[path] || record.Files[path].Found {
			continue
		}
		old, err := look(root, path)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case old.data == nil:
		case record.Files[path].SHA256 == hash(old.data):
			changes = append(changes, Change{Path: path, Action: Remove, Old: old.data, OldMode: old.mode, OldOwner: old.owner, Secret: old.mode&0o044 == 0})
		default:
			left = append(left, path)
		}
	}
	return changes, left, nil
}

// there is a file as it stands; data is nil if there is none.
type there struct {
	data  []byte
	mode  fs.FileMode
	owner atomicfile.Owner
}

func look(root rootfs.Root, path string) (there, error) {
	host, err := root.Target(path)
	if err != nil {
		return there{}, diskError(path, err)
	}
	found, err := lookAt(host)
	switch {
	case errors.Is(err, errIrregular):
		to, _ := os.Readlink(host)
		if to == "/dev/null" {
			return there{}, fault.New(fault.Disk, "systemctl unmask "+filepath.Base(path), "%s is masked", path)
		}
		return there{}, fault.New(fault.Disk, "remove it, or put a regular file in its place",
			"%s is not a regular file (%w%s); nodeadm does not write through it", path, err, to)
	case err != nil:
		return there{}, diskError(path, err)
	}
	return found, nil
}

// irregular is what stands where a regular file should be.
type irregular fs.FileMode

var errIrregular = errors.New("not a regular file")

func (i irregular) Error() string        { return fs.FileMode(i).Type().String() }
func (i irregular) Is(target error) bool { return target == errIrregular }

func lookAt(host string) (there, error) {
	info, err := os.Lstat(host)
	if errors.Is(err, fs.ErrNotExist) {
		return there{}, nil
	}
	if err != nil {
		return there{}, err
	}
	if !info.Mode().IsRegular() {
		return there{}, irregular(info.Mode())
	}
	data, err := os.ReadFile(host)
	if err != nil {
		return there{}, err
	}
	if data == nil {
		data = []byte{}
	}
	return there{data, info.Mode().Perm(), atomicfile.OwnerOf(info)}, nil
}

func diskError(path string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, rootfs.ErrLink):
		remedy = "put a real directory in its place; to have it on another disk, mount that there"
	case errors.Is(err, fs.ErrPermission):
		remedy = "run nodeadm as root; if it was, look for an immutable file (lsattr) or a security module"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "free some space on that filesystem"
	case errors.Is(err, syscall.EROFS):
		remedy = "remount that filesystem read-write"
	case errors.Is(err, syscall.EIO):
		remedy = "look for errors of that disk: dmesg"
	}
	return fault.New(fault.Disk, remedy, "%s: %w", path, err)
}

// immutable says so where a file cannot be replaced because it, or the
// directory it is in, has been made immutable: the kernel itself only says
// "operation not permitted".
func immutable(host string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, path := range []string{host, filepath.Dir(host)} {
		if isImmutable(path) {
			return fmt.Errorf("%w: %s is immutable (chattr -i makes it writable)", err, path)
		}
	}
	return err
}

func isImmutable(path string) bool {
	var s unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &s) == nil && s.Attributes&unix.STATX_ATTR_IMMUTABLE != 0
}
