// Package release installs what `make release` makes.
package release

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// Deb makes the release for this computer's architecture and returns the path
// of its deb.
func Deb(t testing.TB) string {
	t.Helper()
	dist := t.TempDir()
	out, err := exec.Command("make", "--silent", "-C", machine.Source(t, "."), "release", "ARCHS="+runtime.GOARCH, "DIST="+dist).CombinedOutput()
	if err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dist, "*_"+runtime.GOARCH+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}
