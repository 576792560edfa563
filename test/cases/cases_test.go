// Package cases holds whole behaviours as folders that can be read without
// knowing Go. Each is one bootstrap:
//
//	command      the command line of bootstrap.sh, as a shell would read it, or
//	user-data    NodeConfig documents, as EC2 hands them out
//	drop-ins/    documents in /etc/eks/nodeadm.d, if any
//	world.yaml   the simulated instance and cluster (see nodeadm simulate serve)
//	versions     versions of kubelet and containerd on the image
//	image/       what stands on the node before, if anything
//	want/        what stands there afterwards, file by file
//	warnings     what people are warned of, one a line, if anything
//
// After a change that is meant to change them, run go test ./test/cases -update
// and read the difference.
package cases

import (
	"context"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
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
	world, err := simulator.Load(filepath.Join(dir, "world.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, stop, err := simulator.New(world).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(filepath.Join(dir, "image"))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	before := tree(t, root)
	wanted := configuration(t, dir)
	versions := strings.Fields(read(t, dir, "versions"))
	log := logrus.New()
	log.SetOutput(&strings.Builder{})
	options := nodeadm.Options{
		Root: root, Timeout: 30 * time.Second, IMDSEndpoint: endpoint, Log: log,
		KubeletVersion: versions[1], ContainerdVersion: versions[3],
		Machine: &facts.Machine{CPUs: 2, BPFFS: true, KernelDefaults: true}, Simulated: true,
	}
	options.AWS.Endpoints = map[string]string{"": endpoint}
	result, err := nodeadm.Bootstrap(context.Background(), wanted, options)
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

	again, err := nodeadm.Bootstrap(context.Background(), wanted, options)
	if err != nil || len(again.Changes) > 0 {
		t.Errorf("a second run: %v, changes %v", err, again.Changes)
	}
}

// configuration reads what the case wants, in either dialect.
func configuration(t *testing.T, dir string) config.Config {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "command")); err == nil {
		words, err := config.SplitWords(read(t, dir, "command"))
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := config.ParseBootstrap(words[1:])
		if err != nil {
			t.Fatal(err)
		}
		return wanted
	}
	sources := []config.Source{{Name: "user data", Data: []byte(read(t, dir, "user-data"))}}
	dropIns, _ := filepath.Glob(filepath.Join(dir, "drop-ins", "*"))
	for _, path := range dropIns {
		sources = append(sources, config.Source{Name: filepath.Base(path), Data: []byte(read(t, "", path))})
	}
	_, wanted, err := config.Read(sources, config.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return wanted
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
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
