package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// labelled is a directory with a context, where SELinux need not run.
func labelled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := setContext(dir, "system_u:object_r:etc_t:s0")
	if (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP)) && os.Getenv("CI") != "true" {
		t.Skip("SELinux contexts can be set by root, on a filesystem that has them:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantContext(t *testing.T, path, want string) {
	t.Helper()
	if got, err := contextOf(path); err != nil || got != want {
		t.Errorf("%s: context %q, %v; want %q", path, got, err, want)
	}
}

func TestContext(t *testing.T) {
	const unit, secret = "system_u:object_r:systemd_unit_file_t:s0", "system_u:object_r:container_file_t:s0:c1,c2"
	dir := labelled(t)
	old, plain, long := filepath.Join(dir, "old"), filepath.Join(dir, "plain"), filepath.Join(dir, "long")
	for path, context := range map[string]string{old: unit, plain: "", long: secret + string(make([]byte, 300))} {
		write(t, path, "x", 0o644)
		if context == "" {
			continue
		}
		if err := setContext(path, context); err != nil {
			t.Fatal(err)
		}
	}
	fresh := filepath.Join(dir, "new")
	for _, path := range []string{old, plain, long, fresh} {
		if err := Replace(path, []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, "y", 0o600)
	}
	wantContext(t, old, unit)
	wantContext(t, plain, "") // as it was
	wantContext(t, long, secret+string(make([]byte, 300)))
	wantContext(t, fresh, "system_u:object_r:etc_t:s0")

	below := filepath.Join(dir, "a", "b")
	if err := MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	wantContext(t, filepath.Dir(below), "system_u:object_r:etc_t:s0")
	wantContext(t, below, "system_u:object_r:etc_t:s0")
	if err := MkdirAll(below, 0o755); err != nil {
		t.Error("a second time:", err)
	}
	if err := MkdirAll(filepath.Join(old, "c"), 0o755); err == nil {
		t.Error("a directory below a file")
	}

	link := filepath.Join(dir, "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	if err := InheritContext(link); err != nil {
		t.Fatal(err)
	}
	wantContext(t, link, "system_u:object_r:etc_t:s0")
	if err := InheritContext(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
