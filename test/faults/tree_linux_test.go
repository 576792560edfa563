//go:build amd64 || arm64

package faults

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree is all that is below a directory, by path; the directory itself is ".".
type tree map[string]entry

// entry is what people would miss if it were another one. Times are left out.
type entry struct {
	mode     fs.FileMode
	uid, gid uint32
	content  string // of a file; of a link, where it leads
}

func (e entry) String() string {
	if e == (entry{}) {
		return "nothing"
	}
	said := fmt.Sprintf("%v %d:%d", e.mode, e.uid, e.gid)
	if e.mode.IsRegular() {
		return fmt.Sprintf("%s %d bytes", said, len(e.content))
	}
	return strings.TrimSpace(said + " " + e.content)
}

func readTree(t testing.TB, root string) tree {
	t.Helper()
	found := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		e := entry{mode: info.Mode(), uid: owner.Uid, gid: owner.Gid}
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			e.content = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			if e.content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, err := filepath.Rel(root, path)
		found[rel] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// files are the paths of all that is not a directory.
func (t tree) files() []string {
	return slices.DeleteFunc(t.paths(), func(path string) bool { return t[path].mode.IsDir() })
}

// places are the paths of the files and directories that somebody else may
// have put something in the way of. Deep in its own directory nodeadm looks for
// a name that is free.
func (t tree) places() []string {
	return slices.DeleteFunc(t.paths(), func(path string) bool {
		deep := isState(path) && path != stateDir && filepath.Dir(path) != stateDir
		return path == "." || deep || t[path].mode&fs.ModeSymlink != 0
	})
}

func (t tree) paths() []string { return slices.Sorted(maps.Keys(t)) }

// below is the part of the tree that begins at a path.
func (t tree) below(path string) tree {
	part := tree{}
	for p, e := range t {
		if rel, err := filepath.Rel(path, p); err == nil && filepath.IsLocal(rel) {
			part[rel] = e
		}
	}
	return part
}

// difference says how got differs from want, a line for each path and no more
// lines than people read; nothing if they are equal.
func difference(want, got tree) string {
	all := maps.Clone(want)
	maps.Copy(all, got)
	var lines []string
	for _, path := range all.paths() {
		if w, g := want[path], got[path]; w.String() != g.String() {
			lines = append(lines, fmt.Sprintf("\n\t%s: want %v, got %v", path, w, g))
		} else if w != g {
			wanted, gotten := firstDifference(w.content, g.content)
			lines = append(lines, fmt.Sprintf("\n\t%s: want %q, got %q", path, wanted, gotten))
		}
	}
	const most = 6
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("\n\tand %d more", more))
	}
	return strings.Join(lines, "")
}

// firstDifference are the first two lines that differ.
func firstDifference(want, got string) (wanted, gotten string) {
	for want != "" || got != "" {
		wanted, want, _ = strings.Cut(want, "\n")
		gotten, got, _ = strings.Cut(got, "\n")
		if wanted != gotten {
			break
		}
	}
	return wanted, gotten
}

// write makes root hold a tree. Whatever else is there stays.
func (t tree) write(tb testing.TB, root string) {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	paths := t.paths()
	for _, rel := range paths {
		e, path := t[rel], filepath.Join(root, rel)
		switch {
		case e.mode.IsDir():
			must(os.MkdirAll(path, 0o700))
		case e.mode&fs.ModeSymlink != 0:
			must(os.Symlink(e.content, path))
		default:
			must(os.WriteFile(path, []byte(e.content), 0o600))
		}
		must(os.Lchown(path, int(e.uid), int(e.gid)))
	}
	// Last and from below: what is not writable would be in the way.
	for _, rel := range slices.Backward(paths) {
		if t[rel].mode&fs.ModeSymlink == 0 {
			must(os.Chmod(filepath.Join(root, rel), t[rel].mode))
		}
	}
}

// put writes a file of the node below root, with the directories above it.
func put(t testing.TB, root, path, content string, mode fs.FileMode) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
