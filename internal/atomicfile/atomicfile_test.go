package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != content {
		t.Errorf("%s holds %q (%v), want %q", path, data, err, content)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != mode {
		t.Errorf("%s: mode %v (%v), want %v", path, info.Mode(), err, mode)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestReplace(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o644, 0o755, 0o444, 0o666} {
		for _, old := range []string{"", "old content"} {
			target := filepath.Join(t.TempDir(), "file")
			if old != "" {
				write(t, target, old, 0o604)
			}
			s, err := Stage(target, []byte("new content"), mode, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Until Commit the target is what it was, and what lies beside it
			// is complete and no more readable than the target will be.
			if old != "" {
				wantFile(t, target, old, 0o604)
			} else if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the target is there before Commit: %v", err)
			}
			wantFile(t, s.temp, "new content", mode)
			if unfinished, _ := filepath.Match(Unfinished, filepath.Base(s.temp)); !unfinished {
				t.Errorf("%s is not known as one that never got into place", s.temp)
			}
			if filepath.Dir(s.temp) != filepath.Dir(target) {
				t.Errorf("staged at %s: a rename from there need not be atomic", s.temp)
			}
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			s.Discard() // does nothing any more
			wantFile(t, target, "new content", mode)
			if got := names(t, filepath.Dir(target)); !slices.Equal(got, []string{"file"}) {
				t.Errorf("left behind: %v", got)
			}
		}
	}
}

// A reader that has the old file open reads on in the old file.
func TestOpenReaderKeepsItsFile(t *testing.T) {
	target := filepath.Join(t.TempDir(), "file")
	write(t, target, "old", 0o644)
	reader, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s, err := Stage(target, []byte("newer"), 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 10)
	if n, _ := reader.Read(buffer); string(buffer[:n]) != "old" {
		t.Errorf("read %q", buffer[:n])
	}
}

func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "file")
	write(t, target, "old", 0o600)
	for _, name := range []string{"file", "new"} {
		s, err := Stage(filepath.Join(dir, name), []byte("new"), 0o644, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Discard()
		s.Discard()
		if err := s.Commit(); err == nil {
			t.Error("Commit after Discard succeeded")
		}
	}
	wantFile(t, target, "old", 0o600)
	if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
		t.Errorf("left behind: %v", got)
	}
}

func TestRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(target string) error
		says string
	}{
		{"link to a file", func(p string) error { return os.Symlink("elsewhere", p) }, "a symbolic link to elsewhere"},
		{"masked unit", func(p string) error { return os.Symlink("/dev/null", p) }, "a symbolic link to /dev/null"},
		{"dangling link", func(p string) error { return os.Symlink("nothing", p) }, "a symbolic link to nothing"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o755) }, "a directory"},
		{"pipe", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "a special file"},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "elsewhere"), "mine", 0o600)
		target := filepath.Join(dir, "target")
		if err := test.make(target); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(target)
		s, err := Stage(target, []byte("new"), 0o644, nil)
		if err == nil {
			t.Errorf("%s: staged at %s", test.name, s.temp)
			continue
		}
		var path *fs.PathError
		if !errors.As(err, &path) || path.Path != target || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
		if after, _ := os.Lstat(target); after.Mode() != before.Mode() {
			t.Errorf("%s: %v became %v", test.name, before.Mode(), after.Mode())
		}
		if got := names(t, dir); !slices.Equal(got, []string{"elsewhere", "target"}) {
			t.Errorf("%s: left behind: %v", test.name, got)
		}
		wantFile(t, filepath.Join(dir, "elsewhere"), "mine", 0o600)
	}
}

func TestNoDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "", 0o644)
	if _, err := Stage(filepath.Join(dir, "nothing", "file"), nil, 0o644, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := Stage(filepath.Join(dir, "file", "below"), nil, 0o644, nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file for a directory: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
		t.Errorf("left behind: %v", got)
	}
}

func TestOwnerIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "only root can give files away")
	}
	target := filepath.Join(t.TempDir(), "file")
	write(t, target, "old", 0o600)
	if err := os.Chown(target, 12, 34); err != nil {
		skip(t, err) // a user namespace without these ids
	}
	s, err := Stage(target, []byte("new"), 0o640, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(target)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 12 || st.Gid != 34 {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	wantFile(t, target, "new", 0o640)
}

func TestSyncDir(t *testing.T) {
	dir := t.TempDir()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// skip leaves a test out where it cannot run; CI has to be able to run all.
func skip(t *testing.T, why any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
