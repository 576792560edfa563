package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Interrupted is the generation of a run that was cut short, if there is one.
func Interrupted(root rootfs.Root) (g Generation, found bool, err error) {
	all, err := Generations(root)
	if err != nil || len(all) == 0 || all[len(all)-1].Outcome != Applying {
		return Generation{}, false, err
	}
	return all[len(all)-1], true, nil
}

// Recover undoes a run that was cut short while it changed files, so that the
// next one begins where that one did. The messages say what was done; there
// are none if there was nothing to do.
func Recover(root rootfs.Root) (messages []string, err error) {
	if err := sweepFolders(root); err != nil {
		return nil, err
	}
	g, found, err := Interrupted(root)
	if err != nil || !found {
		return nil, err
	}
	left, err := undo(root, g)
	if err != nil {
		return nil, err
	}
	messages = []string{fmt.Sprintf("an earlier run (%s) was cut short while it wrote generation %d; what it had written was undone", g.Command, g.Number)}
	for _, path := range left {
		messages = append(messages, fmt.Sprintf("%s was changed by somebody after that run was cut short; it is left as it is", path))
	}
	return messages, nil
}

// sweepFolders removes folders that were not generations yet, or not any more.
func sweepFolders(root rootfs.Root) error {
	host, err := root.Target(layout.Generations)
	if err != nil {
		return diskError(layout.Generations, err)
	}
	for _, dir := range []string{host, filepath.Dir(host)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError(layout.Generations, err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), temporaryPrefix) {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					return diskError(layout.Generations, err)
				}
			}
		}
		numbered, _ := filepath.Glob(filepath.Join(host, "[0-9]*"))
		for _, folder := range numbered {
			atomicfile.Sweep(folder)
		}
	}
	return nil
}

// undo puts back what a generation replaced and forgets the generation. What is
// neither as it was before nor as the generation made it is somebody else's
// work by now and is left.
func undo(root rootfs.Root, g Generation) (left []string, err error) {
	dirs := map[string]bool{}
	for _, f := range slices.Backward(g.Files) {
		host, err := root.Target(f.Path)
		if isInTheWay(err) {
			left = append(left, f.Path)
			continue
		}
		if err != nil {
			return nil, diskError(f.Path, err)
		}
		dirs[filepath.Dir(host)] = true
		now, err := look(root, f.Path)
		if err != nil && !isInTheWay(err) {
			return nil, err
		}
		switch {
		case err == nil && f.Before.matches(now):
			continue
		case err != nil || !f.After.matches(now):
			left = append(left, f.Path)
			continue
		}
		if err := restore(root, g, f); err != nil {
			return nil, err
		}
	}
	for dir := range dirs {
		atomicfile.Sweep(dir) // new files and second names of old ones
	}
	removeDirs(root, g.Directories)
	for _, dir := range g.Directories {
		host := filepath.Join(string(root), dir)
		delete(dirs, host)
		dirs[filepath.Dir(host)] = true
	}
	for dir := range dirs {
		if _, err := os.Lstat(dir); err != nil {
			delete(dirs, dir)
		}
	}
	if err := syncDirs(dirs); err != nil {
		return nil, err
	}
	return left, removeFolder(root, g.Number)
}

// isInTheWay tells an error that comes of what stands at a path, such as a link
// or a directory, from one of the disk.
func isInTheWay(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err != nil
	}
	return errno == syscall.ENOTDIR || errno == syscall.ENAMETOOLONG || errno == syscall.ELOOP
}

// restore puts back one file as it was before a generation.
func restore(root rootfs.Root, g Generation, f Replaced) error {
	host := filepath.Join(string(root), f.Path)
	if f.Before == nil {
		if err := os.Remove(host); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError(f.Path, err)
		}
		return nil
	}
	if now, err := lookAt(held(host)); err == nil && f.Before.matches(now) {
		if err := os.Rename(held(host), host); err != nil {
			return diskError(f.Path, immutable(host, err))
		}
		return nil
	}
	data, err := g.Old(root, f)
	if err != nil {
		return err
	}
	staged, err := atomicfile.Stage(host, data, f.Before.mode(), &f.Before.Owner)
	if err == nil {
		if err = staged.Commit(); err != nil {
			staged.Discard()
		}
	}
	if err != nil {
		return diskError(f.Path, immutable(host, err))
	}
	return nil
}

func (v *Version) mode() fs.FileMode {
	mode, err := strconv.ParseUint(v.Mode, 8, 32)
	if err != nil {
		return 0o600
	}
	return fs.FileMode(mode).Perm()
}

func (v *Version) matches(now there) bool {
	if v == nil || now.data == nil {
		return v == nil && now.data == nil
	}
	return v.SHA256 == hash(now.data) && v.Mode == octal(now.mode)
}
