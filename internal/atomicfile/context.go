package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// contextAttribute holds a file's SELinux context. Who is confined and meets
// another context than the policy names may not read the file: systemd a unit,
// for one.
const contextAttribute = "security.selinux"

// keepContext gives a new file the context of the one that it is going to
// replace.
func keepContext(made, target string) error {
	want, err := contextOf(target)
	if errors.Is(err, fs.ErrNotExist) {
		return InheritContext(made)
	}
	if err != nil || want == "" {
		return err
	}
	has, err := contextOf(made)
	if err != nil || has == want {
		return err
	}
	return setContext(made, want)
}

// InheritContext gives a new file or directory the context of the directory it
// is in, unless it has one: the kernel gives it one where SELinux runs, which it
// need not where an image is made.
func InheritContext(made string) error {
	has, err := contextOf(made)
	if err != nil || has != "" {
		return err
	}
	want, err := contextOf(filepath.Dir(made))
	if err != nil || want == "" {
		return err
	}
	return setContext(made, want)
}

// MkdirAll is os.MkdirAll whose directories inherit their context.
func MkdirAll(path string, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		err = InheritContext(path)
	}
	return err
}

// contextOf is the context of what stands at a path, "" for none.
func contextOf(path string) (string, error) {
	buffer := make([]byte, 256)
	n, err := unix.Lgetxattr(path, contextAttribute, buffer)
	if errors.Is(err, unix.ERANGE) {
		buffer = make([]byte, 64<<10) // there is none longer
		n, err = unix.Lgetxattr(path, contextAttribute, buffer)
	}
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "read the SELinux context of", Path: path, Err: err}
	}
	return string(buffer[:n]), nil
}

func setContext(path, context string) error {
	if err := unix.Lsetxattr(path, contextAttribute, []byte(context), 0); err != nil {
		return &fs.PathError{Op: "set the SELinux context of", Path: path, Err: err}
	}
	return nil
}
