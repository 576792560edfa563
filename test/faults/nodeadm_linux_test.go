//go:build amd64 || arm64

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

var (
	program  string // nodeadm, as it ships
	metadata string // where the simulated instance answers
)

func TestMain(m *testing.M) {
	// Directories that get their mode in a second step show it this way when
	// there is no second step.
	syscall.Umask(0o077)
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "nodeadm-faults-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "nodeadm")
		build := exec.Command("make", "--silent", "-C", "../..", "build", "BIN="+program)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build nodeadm: %v\n%s", err, out)
			return 1
		}
		// Users without any rights run it too.
		if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(program, 0o755)); err != nil {
			panic(err)
		}
		endpoint, stop, err := simulator.New(simulator.Default()).Start("")
		if err != nil {
			panic(err)
		}
		defer stop()
		metadata = endpoint
		return m.Run()
	}())
}

// command is a command line of nodeadm for a root.
type command func(root string) []string

// bootstrap is a bootstrap that needs no network but instance metadata. Of a
// flag that is given twice the last one counts.
func bootstrap(more ...string) command {
	return func(root string) []string {
		c := simulator.Default().Cluster
		return append([]string{"bootstrap", "c", "--root", root, "--imds-endpoint", metadata, "--kubelet-version", "1.34.4",
			"--timeout", "30s", "--apiserver-endpoint", c.Endpoint, "--b64-cluster-ca", c.CertificateAuthority}, more...)
	}
}

func (c command) on(root string) *exec.Cmd {
	cmd := exec.Command(program, c(root)...)
	cmd.Dir = "/"
	cmd.Env = []string{"AWS_ENDPOINT_URL=http://127.0.0.1:1"} // where nobody answers
	return cmd
}

// run runs it undisturbed.
func (c command) run(t testing.TB, root string) (output string, code int) {
	t.Helper()
	return finish(t, c.on(root))
}

func finish(t testing.TB, cmd *exec.Cmd) (output string, code int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs it undisturbed, to success.
func (c command) must(t testing.TB, root string) {
	t.Helper()
	if out, code := c.run(t, root); code != 0 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
}

// scenario is a way for a run to meet a root.
type scenario struct {
	name string
	// prepare brings an empty root into the state that the run starts from.
	prepare func(t *testing.T, root string)
	run     command
	// again is what people do after a run that was cut short, and what must
	// lead to where run would have led; nil: run itself.
	again command
	// forgets: it ends with removing what it could go back by. A disk that fails
	// there leaves the rest of that to the next run.
	forgets bool
}

var scenarios = []scenario{
	{
		name:    "first run on an empty root",
		prepare: func(*testing.T, string) {},
		run:     bootstrap(),
	}, {
		name:    "first run on an image that has files",
		prepare: image,
		run:     bootstrap("--kubelet-extra-args", "--node-labels=team=blue"),
	}, {
		name: "second run with other arguments",
		prepare: func(t *testing.T, root string) {
			image(t, root)
			firstArguments.must(t, root)
		},
		run: otherArguments,
	}, {
		name:    "rollback",
		prepare: twoGenerations,
		run:     func(root string) []string { return []string{"rollback", "--root", root, "1"} },
	}, {
		name:    "reset",
		prepare: twoGenerations,
		run:     func(root string) []string { return []string{"reset", "--root", root} },
		forgets: true,
	},
}

var (
	firstArguments = bootstrap("--kubelet-extra-args", "--node-labels=team=blue --max-pods=20")
	// otherArguments change kubelet's configuration, its arguments and the
	// kubeconfig, and leave no use for the drop-in with the extra arguments.
	otherArguments = bootstrap("--dns-cluster-ip", "10.100.0.99", "--kubelet-version", "1.33.1", "--pause-container-version", "3.9", "--apiserver-endpoint", "https://192.0.2.1")
)

// twoGenerations is a root that has changed twice, and what kubelet keeps of
// the instance it ran on.
func twoGenerations(t *testing.T, root string) {
	image(t, root)
	firstArguments.must(t, root)
	otherArguments.must(t, root)
	put(t, root, "var/lib/kubelet/pki/kubelet-client-current.pem", "a certificate", 0o600)
	put(t, root, "var/lib/kubelet/cpu_manager_state", "{}", 0o600)
}

// image is what stands on the root of an image: a document that others have a
// say in, a file of the system's, and files with modes of their own that
// nodeadm takes over.
func image(t *testing.T, root string) {
	put(t, root, "etc/kubernetes/kubelet/kubelet-config.json", `{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","registryPullQPS":50}`, 0o600)
	put(t, root, "etc/containerd/config.toml", "version = 2\n", 0o640)
	put(t, root, "etc/eks/containerd-version.txt", "containerd github.com/containerd/containerd v2.0.5\n", 0o644)
	// Left over from when the image was part of a local cluster; it will go.
	put(t, root, "etc/hosts", "127.0.0.1\tlocalhost\n# BEGIN nodeadm: API server of the local cluster\n192.0.2.7\tapi.example\n# END nodeadm\n", 0o664)
}

// start makes the state that a scenario starts from, and the one it leads to.
func (s scenario) start(t *testing.T) (before, after tree) {
	t.Helper()
	root := t.TempDir()
	s.prepare(t, root)
	before = readTree(t, root)
	s.run.must(t, root)
	return before, readTree(t, root)
}

// namesPath tells whether an error in what nodeadm said names a path.
func namesPath(output string) bool { return errorMatches(output, `(^|[\s"'(])/[^\s/:]`) }

// namesThis tells whether an error names this path of the node, or where it is
// on the machine that holds the root; a path that only leads through it does
// not count.
func namesThis(output, path string) bool {
	return errorMatches(output, "/"+regexp.QuoteMeta(path)+`\.?([\s"'():,;]|$)`)
}

// namesThisOrBelow is content with a path that leads through this one, too.
func namesThisOrBelow(output, path string) bool {
	return errorMatches(output, "/"+regexp.QuoteMeta(path)+`($|[^\w.-])`)
}

func errorMatches(output, pattern string) bool {
	wanted := regexp.MustCompile(pattern)
	for line := range strings.Lines(output) {
		if text, isError := strings.CutPrefix(line, "error: "); isError && wanted.MatchString(text) {
			return true
		}
	}
	return false
}

// brief is what nodeadm said without its progress.
func brief(output string) string { return progress.ReplaceAllString(output, "") }

var progress = regexp.MustCompile(`(?m)^[\d:.]+ (info|warn) .*\n`)

// stateDir is where nodeadm keeps its own files.
const stateDir = "var/lib/nodeadm"

func isState(path string) bool { return path == stateDir || strings.HasPrefix(path, stateDir+"/") }
