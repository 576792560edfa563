package apply

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// TestContexts: files keep their SELinux context through runs and back, and
// what is new has its directory's, made directories included.
func TestContexts(t *testing.T) {
	const attribute, etc, theirs = "security.selinux", "system_u:object_r:etc_t:s0", "system_u:object_r:systemd_unit_file_t:s0"
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/theirs", "theirs", 0o640)
	set := func(path, context string) {
		t.Helper()
		err := unix.Lsetxattr(filepath.Join(string(root), path), attribute, []byte(context), 0)
		if (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP)) && os.Getenv("CI") != "true" {
			t.Skip("SELinux contexts can be set by root, on a filesystem that has them:", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set("/etc", etc)
	set("/etc/theirs", theirs)
	want := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for path := range want {
			buffer := make([]byte, 256)
			n, err := unix.Lgetxattr(filepath.Join(string(root), path), attribute, buffer)
			if err != nil {
				t.Fatal(when, path, err)
			}
			got[path] = string(buffer[:n])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	record := bring(t, root, Record{}, file("/etc/theirs", "1"), file("/etc/deep/er/new", "1"))
	want("after a run", map[string]string{"/etc/theirs": theirs, "/etc/deep": etc, "/etc/deep/er": etc, "/etc/deep/er/new": etc})
	bring(t, root, record, file("/etc/theirs", "2"), file("/etc/deep/er/new", "1"))
	want("after another", map[string]string{"/etc/theirs": theirs})
	back(t, root, 0)
	want("before the first", map[string]string{"/etc/theirs": theirs})
}
