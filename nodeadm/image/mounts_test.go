package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// bind mounts a directory of the test's into an image.
func bind(t *testing.T, dir, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("mounting is for root")
	}
	if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
}

// withoutMountInfo has nobody list mount points for the rest of the test.
func withoutMountInfo(t *testing.T) {
	before := mountInfo
	mountInfo = filepath.Join(t.TempDir(), "mountinfo")
	t.Cleanup(func() { mountInfo = before })
}

// A directory of the machine that builds the image is not emptied, whatever the
// image's root is called, and with /proc or without.
func TestCleanLeavesMountedTmp(t *testing.T) {
	for _, test := range []struct {
		name           string
		linked, noProc bool
	}{{"by its name", false, false}, {"by a link", true, false}, {"without /proc", false, true}, {"by a link, without /proc", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			root, _ := image(t)
			put(t, root, map[string]string{"/var/tmp/of-the-image": "x"})
			outside := t.TempDir()
			put(t, rootfs.Root(outside), map[string]string{"/mine": "x"})
			bind(t, outside, filepath.Join(string(root), "tmp"))
			named := root
			if test.linked {
				named = rootfs.Root(filepath.Join(t.TempDir(), "link"))
				if err := os.Symlink(string(root), string(named)); err != nil {
					t.Fatal(err)
				}
			}
			if test.noProc {
				withoutMountInfo(t)
			}
			if _, err := Plan(named); err != nil {
				t.Fatal(err)
			}
			if _, err := Clean(context.Background(), named); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(outside, "mine")); err != nil {
				t.Error(err)
			}
			if root.Exists("/var/tmp/of-the-image") {
				t.Error("what is on the image stays")
			}
		})
	}
}

func TestPlanRefusesMounted(t *testing.T) {
	for path, noProc := range map[string]bool{"var/lib/kubelet/pods/uid/volumes/data": false, "var/lib/kubelet/pods/uid": true} {
		t.Run(path, func(t *testing.T) {
			root, _ := image(t)
			volume := filepath.Join(string(root), path)
			bind(t, t.TempDir(), volume)
			if noProc {
				withoutMountInfo(t)
			}
			if _, err := Plan(root); err == nil || !strings.Contains(err.Error(), volume+" is mounted") {
				t.Errorf("%v", err)
			}
		})
	}
}
