package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
)

// lying is a node of which only files are there, and no user data.
func lying(t *testing.T, files map[string]string) *patient {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return newPatient(t.Context(), Options{
		Root: rootfs.Root(root), level: Network,
		Documents: func(context.Context) ([]config.Source, error) { return nil, nil },
	})
}

// TestNothingWanted: a node that was configured by other means than its user
// data has no mistake there, and a run that failed is no sign of one.
func TestNothingWanted(t *testing.T) {
	p := lying(t, map[string]string{"etc/kubernetes/kubelet/kubelet-config.json": "{}", "var/lib/kubelet/kubeconfig": "{}"})
	p.LastRun = &LastRun{Command: "init", Error: "the node has not joined"}
	for _, check := range configChecks[:3] {
		if f := check.look(t.Context(), p); f.Status == Failed || f.Status == Warning {
			t.Errorf("%s: %s: %s", check.Name, f.Status, f.Summary)
		}
	}
}
