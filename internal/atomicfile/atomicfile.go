// Package atomicfile replaces files in two steps: Stage writes and syncs the
// new content beside the target, Commit renames it into place. A reader, or a
// machine that loses power, sees the old file or the new one, never a part.
//
// A target that is not a regular file is refused: writing through a link would
// change a file nobody named, and replacing the link would undo somebody's
// decision (a masked unit is such a link).
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Staged is a new version of a file, complete and synced, not yet in place.
type Staged struct {
	temp, target string
}

// Owner is who a file belongs to.
type Owner struct{ UID, GID int }

// OwnerOf is the owner of a file that was looked at.
func OwnerOf(info fs.FileInfo) Owner {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Owner{os.Geteuid(), os.Getegid()}
	}
	return Owner{int(stat.Uid), int(stat.Gid)}
}

// Stage writes data for target. mode is what the new file gets, owner whom it
// belongs to; nil: to whom the target does, if there is one. Its SELinux context
// is the target's, or that of the directory, which must exist.
func Stage(target string, data []byte, mode fs.FileMode, owner *Owner) (_ *Staged, err error) {
	info, err := os.Lstat(target)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "replace", Path: target, Err: fmt.Errorf("not a regular file but %s", kind(target, info))}
	case err == nil && owner == nil:
		o := OwnerOf(info)
		owner = &o
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(target), stagedPattern)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	// Mode, owner and context before content: a secret is never readable for a
	// moment.
	if err := f.Chmod(mode); err != nil {
		return nil, err
	}
	if owner != nil && *owner != (Owner{os.Geteuid(), os.Getegid()}) {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return nil, err
		}
	}
	if err := keepContext(f.Name(), target); err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &Staged{temp: f.Name(), target: target}, nil
}

// Commit puts the staged file in place. The rename itself is atomic; call
// SyncDir on the directory to make it last through a power cut.
func (s *Staged) Commit() error { return os.Rename(s.temp, s.target) }

// Discard removes what Stage wrote. It does nothing after Commit.
func (s *Staged) Discard() { os.Remove(s.temp) }

// Replace stages data for target and puts it in place at once, durably.
func Replace(target string, data []byte, mode fs.FileMode) error {
	s, err := Stage(target, data, mode, nil)
	if err != nil {
		return err
	}
	if err := s.Commit(); err != nil {
		s.Discard()
		return err
	}
	return SyncDir(filepath.Dir(target))
}

// Write makes a new file that nobody reads yet, in a folder that is not in
// place yet; durable ones survive a power cut.
func Write(path string, data []byte, mode fs.FileMode, durable bool) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Sweep removes what a process that was killed left in dir: staged files that
// never got into place. Nothing else may be staging there at the same time.
func Sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, stagedPattern))
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			os.Remove(path)
		}
	}
}

// Prefix begins the names of files that are there for a moment only.
const Prefix = ".nodeadm-"

// Unfinished is how staged files are called that never got into place, and no
// others with that prefix: what CreateTemp puts in begins with a digit.
const Unfinished = Prefix + "[0-9]*"

// stagedPattern is how staged files are called.
const stagedPattern = Prefix + "*"

// SyncDir makes renames and removals in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func kind(path string, info fs.FileInfo) string {
	if info.Mode()&fs.ModeSymlink != 0 {
		to, _ := os.Readlink(path)
		return "a symbolic link to " + to
	}
	if info.IsDir() {
		return "a directory"
	}
	return "a special file"
}
