package cases

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

var update = flag.Bool("update", false, "write what comes out as what is wanted")

func TestCases(t *testing.T) {
	worlds, err := filepath.Glob("*/world.yaml")
	if err != nil || len(worlds) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, world := range worlds {
		dir := filepath.Dir(world)
		t.Run(dir, func(t *testing.T) { t.Parallel(); run(t, dir) })
	}
}

func run(t *testing.T, dir string) {
	c, root := Open(t, dir), t.TempDir()
	c.Image(t, root)
	before := tree(t, root)
	result, err := c.Bootstrap(root)
	if err != nil {
		t.Fatal(err)
	}

	got := tree(t, root)
	for path := range got {
		if strings.HasPrefix(path, layout.StateDir+"/") {
			delete(got, path) // repeats all others
		}
	}
	for path, content := range before {
		if got[path] == content {
			delete(got, path) // as the image had it
		}
	}
	warnings := ""
	for _, w := range result.Plan.Warnings {
		warnings += w + "\n"
	}
	if *update {
		rewrite(t, dir, got, warnings)
		return
	}
	if diff := cmp.Diff(tree(t, filepath.Join(dir, "want")), got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	old, _ := os.ReadFile(filepath.Join(dir, "warnings")) // most cases have none
	if diff := cmp.Diff(string(old), warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}

	again, err := c.Bootstrap(root)
	if err != nil || len(again.Changes) > 0 {
		t.Errorf("a second run: %v, changes %v", err, again.Changes)
	}
}

// tree reads all files below dir, by path on the node.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return files
}

func rewrite(t *testing.T, dir string, files map[string]string, warnings string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "want")); err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		path = filepath.Join(dir, "want", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(filepath.Join(dir, "warnings"))
	if warnings != "" {
		if err := os.WriteFile(filepath.Join(dir, "warnings"), []byte(warnings), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
