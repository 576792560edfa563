package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Commit makes changes, all or none, and keeps them as a new generation, of
// which g tells the command, the version, the time and the units. It returns
// the number of the generation.
//
// The order is what makes it safe: what stands there now is in the generation's
// folder before the first file changes; all new files are complete beside their
// targets before the first is renamed into place; and only when all are in
// place is the generation said to be applied. A failure undoes what was done,
// a run that is killed is undone by the next one (see Recover).
func Commit(root rootfs.Root, changes []Change, g Generation) (number int, err error) {
	if g.Number, err = nextNumber(root); err != nil {
		return 0, err
	}
	g.Outcome = Applying
	dirs := map[string]bool{}
	for _, c := range changes {
		host, err := root.Target(c.Path)
		if err != nil {
			return 0, diskError(c.Path, err)
		}
		g.Files = append(g.Files, replaced(c))
		dirs[filepath.Dir(host)] = true
	}
	missing, err := missingDirs(root, dirs)
	if err != nil {
		return 0, err
	}
	// Where generations are kept is not the generation's to take away again.
	g.Directories = slices.DeleteFunc(missing, holdsGenerations)
	made, err := begin(root, changes, g)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil {
			return
		}
		// The first failure is what people must know; that the way back failed
		// too only matters if it did.
		if _, undone := undo(root, g); undone != nil {
			err = errors.Join(err, fmt.Errorf("what had been done could not be undone, the next run tries again: %w", undone))
		}
		removeDirs(root, made)
	}()

	for _, dir := range g.Directories {
		if err := makeDir(filepath.Join(string(root), dir), 0o755); err != nil {
			return 0, diskError(dir, err)
		}
	}
	staged := make([]*atomicfile.Staged, len(changes))
	var side errgroup.Group
	side.SetLimit(8)
	for i, c := range changes {
		if c.Action == Remove {
			continue
		}
		side.Go(func() (err error) {
			host := filepath.Join(string(root), c.Path)
			if staged[i], err = atomicfile.Stage(host, c.New, c.Mode, c.Owner); err != nil {
				return diskError(c.Path, immutable(host, err))
			}
			return nil
		})
	}
	if err := side.Wait(); err != nil {
		return 0, err
	}
	if err := holdOld(root, changes); err != nil {
		return 0, err
	}
	for i, c := range changes {
		host := filepath.Join(string(root), c.Path)
		if c.Action == Remove {
			err = os.Remove(host)
		} else {
			err = staged[i].Commit()
		}
		if err != nil && !(c.Action == Remove && errors.Is(err, fs.ErrNotExist)) {
			return 0, diskError(c.Path, immutable(host, err))
		}
	}
	for _, dir := range g.Directories {
		dirs[filepath.Dir(filepath.Join(string(root), dir))] = true
	}
	if err := syncDirs(dirs); err != nil {
		return 0, err
	}
	if err := keepSide(root, g, after, changes); err != nil {
		return 0, err
	}
	g.Outcome = Applied
	data, err := g.encode()
	if err != nil {
		return 0, err
	}
	manifest := filepath.Join(string(root), folder(g.Number), manifestFile)
	last, err := atomicfile.Stage(manifest, data, 0o600, nil)
	if err == nil {
		if err = dropOld(root, changes); err == nil {
			if err = last.Commit(); err == nil {
				err = atomicfile.SyncDir(filepath.Dir(manifest))
			}
		}
	}
	if err != nil {
		return 0, diskError(folder(g.Number)+"/"+manifestFile, err)
	}
	return g.Number, nil
}

// held is where the former version of a file is held while it is replaced: a
// second name beside it. Putting that back takes no space, so that it works on
// a full disk, and it is the very file, with its times and attributes.
func held(host string) string {
	return filepath.Join(filepath.Dir(host), atomicfile.Prefix+"old-"+filepath.Base(host))
}

// holdOld gives the files that are going to be replaced their second names.
// Where a filesystem cannot do that, the copies of the generation have to do.
func holdOld(root rootfs.Root, changes []Change) error {
	for _, c := range changes {
		if c.Old == nil {
			continue
		}
		host := filepath.Join(string(root), c.Path)
		switch err := os.Link(host, held(host)); {
		case err == nil, errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.ENAMETOOLONG):
		case errors.Is(err, syscall.EPERM) && !isImmutable(host): // so say filesystems without links
		default:
			return diskError(c.Path, immutable(host, err))
		}
	}
	return nil
}

// dropOld takes the second names away.
func dropOld(root rootfs.Root, changes []Change) error {
	for _, c := range changes {
		if c.Old == nil {
			continue
		}
		if err := os.Remove(held(filepath.Join(string(root), c.Path))); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENAMETOOLONG) {
			return err
		}
	}
	return nil
}

// CommitAlone makes a change that is worth no generation of its own: of what
// nodeadm itself remembers.
func CommitAlone(root rootfs.Root, c Change) error {
	host, err := root.Target(c.Path)
	if err == nil {
		if err = atomicfile.MkdirAll(filepath.Dir(host), 0o755); err == nil {
			err = atomicfile.Replace(host, c.New, c.Mode)
		}
	}
	if err != nil {
		return diskError(c.Path, immutable(host, err))
	}
	return nil
}

// begin puts a generation on the disk: what is going to be replaced, and the
// manifest that says with what. From then on it can be undone. made are the
// directories that had to be made for it.
func begin(root rootfs.Root, changes []Change, g Generation) (made []string, err error) {
	parent, err := root.Target(layout.Generations)
	if err != nil {
		return nil, diskError(layout.Generations, err)
	}
	dirs, err := missingDirs(root, map[string]bool{parent: true})
	if err != nil {
		return nil, err
	}
	temporary := filepath.Join(parent, temporaryPrefix+strconv.Itoa(g.Number))
	defer func() {
		if err != nil {
			os.RemoveAll(temporary)
			removeDirs(root, dirs)
		}
	}()
	for _, dir := range dirs {
		if err := makeDir(filepath.Join(string(root), dir), dirMode(dir)); err != nil {
			return nil, diskError(dir, err)
		}
	}
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return nil, diskError(layout.Generations, err)
	}
	if err := keepFiles(filepath.Join(temporary, before), before, g, changes, true); err != nil {
		return nil, err
	}
	data, err := g.encode()
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Write(filepath.Join(temporary, manifestFile), data, 0o600, true); err != nil {
		return nil, diskError(folder(g.Number), err)
	}
	host := filepath.Join(parent, strconv.Itoa(g.Number))
	if err := atomicfile.SyncDir(temporary); err != nil {
		return nil, diskError(folder(g.Number), err)
	}
	if err := os.Rename(temporary, host); err != nil {
		return nil, diskError(folder(g.Number), err)
	}
	touched := map[string]bool{parent: true}
	for _, dir := range dirs {
		touched[filepath.Dir(filepath.Join(string(root), dir))] = true
	}
	if err := syncDirs(touched); err != nil {
		os.Rename(host, temporary) // what is left of it is swept by the next run
		return nil, err
	}
	return dirs, nil
}

// holdsGenerations tells whether generations are kept in a directory or below.
func holdsGenerations(dir string) bool { return strings.HasPrefix(layout.Generations+"/", dir+"/") }

// removeDirs removes those of the directories that are empty.
func removeDirs(root rootfs.Root, dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		os.Remove(filepath.Join(string(root), dir))
	}
}

// dirMode keeps generations from everybody but root: old secrets lie there.
func dirMode(dir string) fs.FileMode {
	if dir == layout.Generations {
		return 0o700
	}
	return 0o755
}

// keepSide keeps one side of all changes in the folder of a generation.
func keepSide(root rootfs.Root, g Generation, side string, changes []Change) error {
	return keepFiles(filepath.Join(string(root), folder(g.Number), side), side, g, changes, false)
}

// keepFiles writes one side of all changes into dir, durably if a way back
// depends on it.
func keepFiles(dir, side string, g Generation, changes []Change, durable bool) error {
	var group errgroup.Group
	group.SetLimit(8)
	made := false
	for _, c := range changes {
		data := c.Old
		if side == after {
			data = c.New
		}
		if data == nil || side == after && c.Action == Remove {
			continue
		}
		if !made {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return diskError(folder(g.Number)+"/"+side, err)
			}
			made = true
		}
		group.Go(func() error {
			if err := atomicfile.Write(filepath.Join(dir, filepath.Base(g.Kept(side, c.Path))), data, 0o600, durable); err != nil {
				return diskError(g.Kept(side, c.Path), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil || !made || !durable {
		return err
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return diskError(folder(g.Number)+"/"+side, err)
	}
	return nil
}

// temporaryPrefix begins the names of folders that are not generations: not
// yet, or not any more.
const temporaryPrefix = atomicfile.Prefix

// removeFolder removes a generation as a whole.
func removeFolder(root rootfs.Root, number int) error {
	parent, err := root.Target(layout.Generations)
	if err != nil {
		return diskError(layout.Generations, err)
	}
	host := filepath.Join(parent, strconv.Itoa(number))
	temporary := filepath.Join(parent, temporaryPrefix+strconv.Itoa(number))
	if err := os.Rename(host, temporary); err != nil {
		return diskError(folder(number), err)
	}
	if err := errors.Join(atomicfile.SyncDir(parent), os.RemoveAll(temporary)); err != nil {
		return diskError(folder(number), err)
	}
	return nil
}

func nextNumber(root rootfs.Root) (int, error) {
	all, err := Generations(root)
	if err != nil || len(all) == 0 {
		return 1, err
	}
	return all[len(all)-1].Number + 1, nil
}

func replaced(c Change) Replaced {
	r := Replaced{Path: c.Path, Action: c.Action, Origin: c.Origin}
	if c.Old != nil {
		r.Before = &Version{SHA256: hash(c.Old), Mode: octal(c.OldMode), Owner: c.OldOwner, Secret: c.Secret}
	}
	if c.Action != Remove {
		owner := atomicfile.Owner{UID: os.Geteuid(), GID: os.Getegid()}
		if c.Old != nil {
			owner = c.OldOwner
		}
		if c.Owner != nil {
			owner = *c.Owner
		}
		r.After = &Version{SHA256: hash(c.New), Mode: octal(c.Mode), Owner: owner, Secret: c.Secret}
	}
	return r
}

// missingDirs lists the directories below root that have to be made so that
// all of dirs are there, outermost first, as paths on the node.
func missingDirs(root rootfs.Root, dirs map[string]bool) ([]string, error) {
	missing := map[string]bool{}
	for dir := range dirs {
		for ; len(dir) > len(filepath.Clean(string(root))); dir = filepath.Dir(dir) {
			_, err := os.Lstat(dir)
			if err == nil {
				break
			}
			path := "/" + rel(root, dir)
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, diskError(path, err)
			}
			missing[path] = true
		}
	}
	return slices.Sorted(maps.Keys(missing)), nil
}

func rel(root rootfs.Root, host string) string {
	path, err := filepath.Rel(string(root), host)
	if err != nil {
		return host
	}
	return path
}

func makeDir(host string, mode fs.FileMode) error {
	err := os.Mkdir(host, mode)
	if err == nil {
		err = atomicfile.InheritContext(host)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// The umask may have taken something away.
	if info, err := os.Stat(host); err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(host, mode)
}

func syncDirs(dirs map[string]bool) error {
	var group errgroup.Group
	for dir := range dirs {
		group.Go(func() error {
			if err := atomicfile.SyncDir(dir); err != nil {
				return diskError(dir, err)
			}
			return nil
		})
	}
	return group.Wait()
}
