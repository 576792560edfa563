// Package cases holds whole behaviours as folders that can be read without
// knowing Go. Each is one bootstrap:
//
//	command      the command line of bootstrap.sh, as a shell would read it, or
//	user-data    NodeConfig documents, as EC2 hands them out
//	drop-ins/    documents in /etc/eks/nodeadm.d, if any
//	world.yaml   the simulated instance and cluster (see nodeadm simulate serve)
//	versions     versions of kubelet and containerd on the image
//	machine      the hardware and kernel, as facts.Machine in JSON, if not the usual
//	image/       what stands on the node before, if anything
//	want/        what stands there afterwards, file by file
//	warnings     what people are warned of, one a line, if anything
//
// After a change that is meant to change them, run go test ./test/cases -update
// and read the difference.
package cases

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// Case is one folder, and the instance that it describes.
type Case struct {
	// Kubelet and Containerd are the versions on the image.
	Kubelet, Containerd string

	dir      string
	endpoint string
	machine  facts.Machine
	wanted   config.Config
}

// Open reads a case and starts its simulated instance, for as long as the test
// takes.
func Open(t testing.TB, dir string) *Case {
	t.Helper()
	world, err := simulator.Load(filepath.Join(dir, "world.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, stop, err := simulator.New(world).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	versions := strings.Fields(read(t, dir, "versions"))
	return &Case{Kubelet: versions[1], Containerd: versions[3], dir: dir, endpoint: endpoint, machine: hardware(t, dir), wanted: configuration(t, dir)}
}

// Image copies what stands on the node before to root.
func (c *Case) Image(t testing.TB, root string) {
	t.Helper()
	if err := os.CopyFS(root, os.DirFS(filepath.Join(c.dir, "image"))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// Bootstrap makes the node below root.
func (c *Case) Bootstrap(root string) (nodeadm.Result, error) {
	log := logrus.New()
	log.SetOutput(&strings.Builder{})
	options := nodeadm.Options{
		Root: root, Timeout: 30 * time.Second, IMDSEndpoint: c.endpoint, Log: log,
		KubeletVersion: c.Kubelet, ContainerdVersion: c.Containerd,
		Machine: &c.machine, Simulated: true,
	}
	options.AWS.Endpoints = map[string]string{"": c.endpoint}
	return nodeadm.Bootstrap(context.Background(), c.wanted, options)
}

// hardware reads what the machine of the case has besides the usual.
func hardware(t testing.TB, dir string) facts.Machine {
	t.Helper()
	m := facts.Machine{CPUs: 2, BPFFS: true, KernelDefaults: true}
	if _, err := os.Stat(filepath.Join(dir, "machine")); err != nil {
		return m
	}
	if err := json.Unmarshal([]byte(read(t, dir, "machine")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// configuration reads what the case wants, in either dialect.
func configuration(t testing.TB, dir string) config.Config {
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

func read(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
