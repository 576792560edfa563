package cluster

import (
	"bufio"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/test/cases"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

//go:embed accept.sh
var acceptScript string

// TestKubeletAccepts has every case of test/cases planned for each kubelet that
// can be built, and run by it: a kubelet ends at once over a flag, a field or a
// value that it does not take.
func TestKubeletAccepts(t *testing.T) {
	machine.Require(t)
	worlds, err := filepath.Glob("../cases/*/world.yaml")
	if err != nil || len(worlds) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for minor, version := range kubernetes {
		program := Build(t, minor, "kubelet")
		for _, world := range worlds {
			dir := filepath.Dir(world)
			c := cases.Open(t, dir)
			if v, err := kubelet.ParseVersion(c.Kubelet); err != nil || v.Minor < kubelet.ExternalCloudProvider {
				continue // its command is one that no kubelet of today has
			}
			t.Run(minor+"/"+filepath.Base(dir), func(t *testing.T) {
				root := t.TempDir()
				c.Kubelet = version
				c.Image(t, root)
				if _, err := c.Bootstrap(root); fault.CodeOf(err) == fault.Usage && strings.Contains(err.Error(), "no such feature gate") {
					return // the case is of an older kubelet, and this one would end over the gate
				} else if err != nil {
					t.Fatal(err)
				}
				said := runKubelet(t, root, program)
				if !taken(said) {
					t.Errorf("kubelet %s does not take what was planned for it:\n%s", version, said)
				}
				for line := range strings.Lines(said) {
					if strings.Contains(line, "unknown field") || strings.Contains(line, "strict decoding error") || strings.Contains(line, "has been deprecated, will be removed") && !strings.Contains(line, "--pod-infra-container-image") {
						t.Errorf("kubelet %s complains: %s", version, line)
					}
				}
			})
		}
	}
}

// TestKubeletAcceptsOthers has kubelet run with what others have set beside what
// nodeadm plans: each of them is a value that kubelet takes alone.
func TestKubeletAcceptsOthers(t *testing.T) {
	machine.Require(t)
	for _, test := range []struct{ name, config, flags string }{
		{"no graceful shutdown", `{"shutdownGracePeriod": "0s"}`, ""},
		{"a short shutdown", `{"shutdownGracePeriod": "20s"}`, ""},
		{"a shutdown by priority", `{"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}]}`, ""},
		{"no gate for graceful shutdown", `{"featureGates": {"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false, "WindowsGracefulNodeShutdown": false}}`, ""},
		{"no beta", `{"featureGates": {"AllBeta": false, "AllAlpha": false}}`, ""},
		{"no server certificate", `{"featureGates": {"RotateKubeletServerCertificate": false}}`, ""},
		{"reserved CPUs", `{"reservedSystemCPUs": "0"}`, ""},
		{"reserved CPUs as a flag", `{}`, "--reserved_cpus=0"},
		{"a negative number", `{}`, "--oom-score-adj -998"},
	} {
		for minor, version := range kubernetes {
			for _, where := range []string{"the user's", "on the node"} {
				t.Run(minor+"/"+test.name+", "+where, func(t *testing.T) {
					dir, root := t.TempDir(), t.TempDir()
					if err := os.CopyFS(dir, os.DirFS("../cases/nodeconfig-minimal")); err != nil {
						t.Fatal(err)
					}
					spec := "  kubelet:\n    flags: ['" + test.flags + "']\n"
					if where == "on the node" {
						path := filepath.Join(root, "etc/kubernetes/kubelet/kubelet-config.json")
						if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(test.config), 0o644)); err != nil {
							t.Fatal(err)
						}
					} else {
						spec += "    config: " + test.config + "\n"
					}
					userData, err := os.OpenFile(filepath.Join(dir, "user-data"), os.O_APPEND|os.O_WRONLY, 0)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := userData.WriteString(spec); errors.Join(err, userData.Close()) != nil {
						t.Fatal(err)
					}
					c := cases.Open(t, dir)
					c.Kubelet = version
					if _, err := c.Bootstrap(root); err != nil {
						t.Fatal(err)
					}
					if said := runKubelet(t, root, Build(t, minor, "kubelet")); !taken(said) {
						t.Errorf("kubelet %s does not take what was planned for it:\n%s", version, said)
					}
				})
			}
		}
	}
}

// TestKubeletRefuses makes sure that what TestKubeletAccepts waits for is not
// said whatever the configuration is.
func TestKubeletRefuses(t *testing.T) {
	machine.Require(t)
	for _, test := range []struct{ name, file, old, new, says string }{
		{"a flag", "etc/systemd/system/kubelet.service.d/10-kubelet-args.conf", "--v=2", "--container-runtime=remote", "unknown flag: --container-runtime"},
		{"a field", "etc/kubernetes/kubelet/kubelet-config.json", `"maxPods"`, `"maximumPods"`, `unknown field \"maximumPods\"`},
		{"a value", "etc/kubernetes/kubelet/kubelet-config.json", `"maxPods": `, `"maxPods": -`, "invalid configuration: maxPods"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			c := cases.Open(t, "../cases/nodeconfig-minimal")
			c.Kubelet = Version
			if _, err := c.Bootstrap(root); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, test.file)
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), test.old) {
				t.Fatalf("%v: no %s in %s", err, test.old, data)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(data), test.old, test.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			if said := runKubelet(t, root, Build(t, "1.36", "kubelet")); !strings.Contains(said, test.says) {
				t.Errorf("kubelet does not mind:\n%s", said)
			}
		})
	}
}

// runKubelet runs kubelet with what stands below root, and returns what it says.
func runKubelet(t *testing.T, root, program string) string {
	t.Helper()
	words := []string{"--config", "/etc/kubernetes/kubelet/kubelet-config.json", "--kubeconfig", "/var/lib/kubelet/kubeconfig"}
	for _, file := range []string{"10-kubelet-args.conf", "30-kubelet-extra-args.conf"} {
		data, err := os.ReadFile(filepath.Join(root, "etc/systemd/system/kubelet.service.d", file))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		unit, err := systemd.ParseUnit(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range unit.Sections {
			for _, d := range section.Directives {
				if d.Key != "Environment" {
					continue
				}
				variables, err := systemd.ParseAssignments(d.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range variables {
					words = append(words, systemd.ParseWords(v.Value)...)
				}
			}
		}
	}
	argv := append([]string{"--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-euc", acceptScript, "accept.sh", root, program}, words...)
	ctx := within(t, 30*time.Second)
	cmd := exec.CommandContext(ctx, "unshare", argv...)
	output, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if taken(lines.Text()) {
			cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || ctx.Err() != nil {
		t.Fatalf("kubelet did not end: %v\n%s", err, said.String())
	}
	return said.String()
}

// taken tells whether kubelet has come past its flags and its configuration:
// it looks for a container runtime, or asks for its first certificate.
func taken(said string) bool {
	return strings.Contains(said, "validate CRI v1 runtime API") || strings.Contains(said, "Using bootstrap kubeconfig to generate TLS client cert")
}

// TestTable holds data/kubelet's table to what kubelets say of themselves.
func TestTable(t *testing.T) {
	machine.Require(t)
	flag, gate := regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)( \S+)?`), regexp.MustCompile(`(?m)^ +(?:kube:)?([A-Z][A-Za-z0-9]+)=true\|false`)
	for minor, version := range kubernetes {
		v, err := kubelet.ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(Build(t, minor, "kubelet"), "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		flags, gates := map[string]bool{}, map[string]bool{}
		for _, found := range flag.FindAllSubmatch(out, -1) {
			flags[string(found[1])] = true
			if !kubelet.HasFlag(v, string(found[1])) {
				t.Errorf("kubelet %s has a flag --%s, and the table does not", version, found[1])
			}
			// The help has the kind of value behind the name, and nothing for switches;
			// of these two it only seems to.
			name, isSwitch := string(found[1]), len(found[2]) == 0
			if name == "seccomp-default" || name == "version" {
				isSwitch = true
			}
			if kubelet.IsSwitch(name) != isSwitch {
				t.Errorf("--%s of kubelet %s is a switch: %v, and the table has the other", name, version, isSwitch)
			}
		}
		for _, found := range gate.FindAllSubmatch(out, -1) {
			gates[string(found[1])] = true
		}
		if len(flags) < 50 || len(gates) < 50 {
			t.Fatalf("kubelet %s: %d flags and %d gates were found in its help", version, len(flags), len(gates))
		}
		for row := range kubelet.Rows() {
			switch {
			case row.IsFlag() && kubelet.HasFlag(v, row.Name) && !flags[row.Name]:
				t.Errorf("the table has a flag --%s, and kubelet %s does not", row.Name, version)
			// The help leaves out gates that are locked; alpha and beta ones are there.
			case row.Kind == kubelet.Gate && gates[row.Name] && !kubelet.HasGate(v, row.Name):
				t.Errorf("kubelet %s has a gate %s, and the table does not", version, row.Name)
			case row.Kind == kubelet.Gate && !gates[row.Name] && kubelet.HasGate(v, row.Name) && !kubelet.GateLocked(v, row.Name):
				t.Errorf("the table has a gate %s, and kubelet %s does not", row.Name, version)
			}
		}
	}
}
