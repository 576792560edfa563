// Package rootfs finds the files of a node inside the directory where its root
// filesystem is mounted. Symbolic links lead where they would lead on the node
// itself: an absolute link inside an image never escapes to the machine that
// builds it.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Root is the directory that holds the node's root filesystem; "/" on the node.
type Root string

// Resolve returns the path on this machine of path on the node, with every
// link on the way followed inside the root. The last element need not exist,
// and if it is a link itself it is followed only when followLast is set.
func (r Root) Resolve(path string, followLast bool) (string, error) {
	rest := splitPath(path)
	var done []string
	for links := 0; len(rest) > 0; {
		elem := rest[0]
		rest = rest[1:]
		if elem == ".." {
			if len(done) > 0 {
				done = done[:len(done)-1]
			}
			continue
		}
		here := filepath.Join(string(r), filepath.Join(done...), elem)
		info, err := os.Lstat(here)
		isLink := err == nil && info.Mode()&fs.ModeSymlink != 0
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if !isLink || (len(rest) == 0 && !followLast) {
			done = append(done, elem)
			continue
		}
		if links++; links > 40 {
			return "", fmt.Errorf("%s: too many levels of symbolic links", path)
		}
		target, err := os.Readlink(here)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = nil
		}
		rest = append(splitPath(target), rest...)
	}
	return filepath.Join(string(r), filepath.Join(done...)), nil
}

// ErrLink says that a symbolic link stands where none may be followed.
var ErrLink = errors.New("symbolic link")

// Target returns the path on this machine of a file of the node that is to be
// written. A link on the way, or a file where a directory should be, is an
// error: whoever planted it decided where the file would go, and nobody asked
// for that. What stands at the path itself is the caller's business.
func (r Root) Target(path string) (string, error) {
	elems := splitPath(path)
	here := string(r)
	for i, elem := range elems[:max(0, len(elems)-1)] {
		here = filepath.Join(here, elem)
		info, err := os.Lstat(here)
		name := "/" + filepath.Join(elems[:i+1]...)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(string(r), path), nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(here)
			return "", fmt.Errorf("%s is a %w to %s, which is not followed", name, ErrLink, to)
		case !info.IsDir():
			return "", fmt.Errorf("%s is not a directory", name)
		}
	}
	return filepath.Join(string(r), path), nil
}

// Glob returns the paths on the node that match a pattern as of path.Match.
// Links to directories on the way lead where they lead on the node; the last
// element is not followed. A link on the way that leads nowhere is an error:
// what it led to may be on another disk.
func (r Root) Glob(pattern string) ([]string, error) {
	found := []string{"/"}
	for _, elem := range splitPath(pattern) {
		var next []string
		for _, dir := range found {
			names, err := r.names(dir)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				matches, err := path.Match(elem, name)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", pattern, err)
				}
				if matches {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		found = next
	}
	return found, nil
}

// names lists a directory, sorted. What is none has no names.
func (r Root) names(dir string) ([]string, error) {
	host, err := r.Resolve(dir, true)
	if err != nil {
		return nil, err
	}
	// Opening a pipe may never end.
	if info, err := os.Stat(host); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is a %w that leads to nothing", dir, ErrLink) // its name was listed
	} else if err != nil || !info.IsDir() {
		return nil, err
	}
	entries, err := os.ReadDir(host)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

// ReadFile reads a file of the node.
func (r Root) ReadFile(path string) ([]byte, error) {
	p, err := r.Resolve(path, true)
	if err != nil {
		return nil, err
	}
	// Reading a pipe or a device may never end.
	if info, err := os.Stat(p); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.ReadFile(p)
}

// Exists reports whether path is there on the node, links followed.
func (r Root) Exists(path string) bool {
	p, err := r.Resolve(path, true)
	if err != nil {
		return false
	}
	_, err = os.Stat(p)
	return err == nil
}

// FirstExisting is the first of paths that is there, or "".
func (r Root) FirstExisting(paths ...string) string {
	for _, p := range paths {
		if r.Exists(p) {
			return p
		}
	}
	return ""
}

// Live tells whether this root is the running system rather than an image.
func (r Root) Live() bool { return filepath.Clean(string(r)) == "/" }

func splitPath(path string) []string {
	var elems []string
	for e := range strings.SplitSeq(path, "/") {
		if e != "" && e != "." {
			elems = append(elems, e)
		}
	}
	return elems
}
