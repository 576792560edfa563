package apply

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// Back tells what has to change so that root is again as it stood after
// generation to and before the next one; 0 is before the first run. Edited are
// the files that somebody has changed since the last generation that touched
// them: going back loses those edits, though not from the new generation.
// undone are the generations that are gone back over, the oldest first.
func Back(root rootfs.Root, to int) (changes []Change, edited []string, undone []Generation, err error) {
	all, err := Generations(root)
	if err != nil {
		return nil, nil, nil, err
	}
	exists := to == 0
	for _, g := range all {
		switch {
		case g.Number == to:
			exists = true
		case g.Number > to && g.Outcome == Damaged:
			return nil, nil, nil, fault.New(fault.Disk, "bring the files back by hand: "+folder(g.Number)+"/"+before+" holds what stood there before; then remove that folder", "generation %d cannot be undone: %s", g.Number, g.Reason)
		case g.Number > to:
			if to > 0 && (g.Pruned || g.Number != to+len(undone)+1) {
				return nil, nil, nil, fault.New(fault.Usage, "see nodeadm history; nodeadm reset goes back to before the first run", "what came after generation %d is kept no longer, so that nothing can go back there", to)
			}
			undone = append(undone, g)
		}
	}
	if !exists {
		return nil, nil, nil, fault.New(fault.Usage, "see nodeadm history", "there is no generation %d", to)
	}
	last := map[string]*Version{}
	first := map[string]Replaced{}
	from := map[string]Generation{}
	var paths []string
	for _, g := range undone {
		for _, f := range g.Files {
			if _, touched := first[f.Path]; !touched {
				first[f.Path], from[f.Path] = f, g
				paths = append(paths, f.Path)
			}
			last[f.Path] = f.After
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		f := first[path]
		now, err := look(root, path)
		if err != nil {
			return nil, nil, nil, err
		}
		if f.Before.matches(now) {
			continue
		}
		if now.data != nil && !last[path].matches(now) {
			edited = append(edited, path)
		}
		c := Change{Path: path, Action: Remove, Old: now.data, OldMode: now.mode, OldOwner: now.owner, Origin: f.Origin}
		if f.Before != nil {
			if c.New, err = from[path].Old(root, f); err != nil {
				return nil, nil, nil, err
			}
			c.Action, c.Mode, c.Owner, c.Secret = Update, f.Before.mode(), &f.Before.Owner, f.Before.Secret
			if now.data == nil {
				c.Action = Create
			} else if string(now.data) == string(c.New) {
				c.Action = Mode
			}
		}
		changes = append(changes, c)
	}
	return changes, edited, undone, nil
}

// RemoveDirectories removes the directories that generations had to make, where
// nothing is left in them.
func RemoveDirectories(root rootfs.Root, undone []Generation) error {
	var errs []error
	for _, g := range slices.Backward(undone) {
		for _, dir := range slices.Backward(g.Directories) {
			err := os.Remove(filepath.Join(string(root), dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
				errs = append(errs, diskError(dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Drift is a file that is not as the last run left it.
type Drift struct {
	Path string `json:"path"`
	What string `json:"what"` // "changed", "missing", "mode 0600" or why it cannot be read
}

// Drifted compares the files of the node with what the last run left.
func Drifted(root rootfs.Root, r Record) []Drift {
	var all []Drift
	for _, path := range slices.Sorted(maps.Keys(r.Files)) {
		w := r.Files[path]
		now, err := look(root, path)
		switch {
		case err != nil:
			all = append(all, Drift{path, err.Error()})
		case now.data == nil:
			all = append(all, Drift{path, "missing"})
		case hash(now.data) != w.SHA256:
			all = append(all, Drift{path, "changed"})
		case octal(now.mode) != w.Mode:
			all = append(all, Drift{path, "mode " + octal(now.mode) + " instead of " + w.Mode})
		}
	}
	return all
}
