package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// File is something on a machine's disk: a regular file with Content, a copy
// of the host's Source, or a symbolic link to Link. At most one of the three is
// set; none means an empty file. Missing directories above it are made.
type File struct {
	Content string
	Source  string      // path on the host, the mode of which is kept unless Mode is set
	Link    string      // target, as it is written into the link
	Mode    fs.FileMode // permission bits; 0 means 0644
}

// Root is a host path under which the machine's files can be seen: as the
// running machine sees them, /run and /proc included, or, when it is off, as
// they are on its disk. Absolute symbolic links under it lead to the host's
// files; ReadFile and WriteFile take care of that.
func (m *Machine) Root() string {
	if p := m.running(); p != nil {
		return "/proc/" + strconv.Itoa(p.leader) + "/root"
	}
	return m.disk.root()
}

// ReadFile returns the content of a file of the machine, running or off.
func (m *Machine) ReadFile(path string) string {
	m.t.Helper()
	b, err := readIn(m.Root(), path)
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return string(b)
}

// Exists tells whether the machine, running or off, has something at path. A
// link counts only if what it leads to is there.
func (m *Machine) Exists(path string) bool {
	m.t.Helper()
	f, err := openUnder(m.Root(), path, oPath)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			m.t.Fatalf("%s: %v", m.name, err)
		}
		return false
	}
	f.Close()
	return true
}

// WriteFile puts a file on the machine, running or off, in place of whatever
// stood there.
func (m *Machine) WriteFile(path string, f File) {
	m.t.Helper()
	if err := place(m.Root(), path, f); err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, path, err)
	}
}

func readIn(root, path string) ([]byte, error) {
	f, err := openUnder(root, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// place writes f under root. It replaces a link instead of following it, since
// the test has said what is to stand at that very path.
func place(root, name string, f File) error {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
		return errors.New("not a clean absolute path")
	}
	dir, err := makeDirs(root, path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	// The open directory, not its name, says where the file goes.
	target := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path.Base(name))
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, target)
	}
	mode := f.Mode.Perm()
	content := io.Reader(strings.NewReader(f.Content))
	if f.Source != "" {
		src, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		defer src.Close()
		content = src
		if info, err := src.Stat(); err == nil && mode == 0 {
			mode = info.Mode().Perm()
		}
	}
	if mode == 0 {
		mode = 0o644
	}
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Chmod(mode), out.Close()) // Chmod: the umask has no say
}

// makeDirs opens a directory under root, making what is missing on the way.
func makeDirs(root, name string) (*os.File, error) {
	dir, err := openUnder(root, name, oPath|syscall.O_DIRECTORY)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	parent, err := makeDirs(root, path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	made := fmt.Sprintf("/proc/self/fd/%d/%s", parent.Fd(), path.Base(name))
	if err := os.Mkdir(made, 0o755); err != nil {
		return nil, err
	}
	return openUnder(root, name, oPath|syscall.O_DIRECTORY)
}

func openUnder(root, path string, flags int) (*os.File, error) {
	top, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return openIn(top, path, flags)
}
