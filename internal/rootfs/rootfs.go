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
