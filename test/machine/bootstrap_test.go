package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
)

// labels of a managed node group's node, as its user data gives them.
const labels = "eks.amazonaws.com/sourceLaunchTemplateVersion=1,alpha.eksctl.io/nodegroup-name=demo-ng,alpha.eksctl.io/cluster-name=ironman-2022," +
	"eks.amazonaws.com/nodegroup-image=ami-08702177b0dcfc054,eks.amazonaws.com/capacityType=ON_DEMAND,eks.amazonaws.com/nodegroup=demo-ng," +
	"eks.amazonaws.com/sourceLaunchTemplateId=lt-04b22845f7d14ce5f"

// image is a machine image with nodeadm, under bootstrap.sh's name too, and a
// kubelet of the given version.
func image(t *testing.T, kubelet string) map[string]File {
	return map[string]File{
		"/usr/bin/nodeadm":      {Source: BuildNodeadm(t)},
		"/etc/eks/bootstrap.sh": {Link: "/usr/bin/nodeadm"},
		"/usr/bin/kubelet":      {Source: StandInKubelet(t, kubelet)},
	}
}

// instance is the simulated instance that the machine runs on, with user data.
func instance(t *testing.T, userData string) *Simulator {
	t.Helper()
	w := simulator.Default()
	w.Instance.LocalIPv4 = "192.168.16.253"
	w.UserData = userData
	document, err := w.Document()
	if err != nil {
		t.Fatal(err)
	}
	return &Simulator{Binary: BuildNodeadm(t), ConfigYAML: document}
}

// clusterFlags name the API server and its certificate authority, so that no
// AWS API is needed.
func clusterFlags() []string {
	c := simulator.Default().Cluster
	return []string{"--b64-cluster-ca", c.CertificateAuthority, "--apiserver-endpoint", c.Endpoint}
}

// kubeletArgs is the command line that kubelet was started with.
func kubeletArgs(t *testing.T, m *Machine) []string {
	t.Helper()
	var args []string
	if err := json.Unmarshal([]byte(m.ReadFile("/run/kubelet-standin/args.json")), &args); err != nil {
		t.Fatal(err)
	}
	return args
}

func mainPID(t *testing.T, m *Machine, unit string) string {
	t.Helper()
	return strings.TrimSpace(m.MustRun(within(t, 10*time.Second), "systemctl", "show", "--property=MainPID", "--value", unit))
}

func expect(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// managedUserData is user data as a managed node group makes it: MIME, with the
// administrator's own script before the generated one.
func managedUserData() string {
	c := simulator.Default().Cluster
	return `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo prepared >/var/lib/prepared

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
set -ex
B64_CLUSTER_CA=` + c.CertificateAuthority + `
API_SERVER_URL=` + c.Endpoint + `
K8S_CLUSTER_DNS_IP=10.100.0.10
/etc/eks/bootstrap.sh ironman-2022 --kubelet-extra-args '--node-labels=` + labels + ` --max-pods=29' --b64-cluster-ca $B64_CLUSTER_CA --apiserver-endpoint $API_SERVER_URL --dns-cluster-ip $K8S_CLUSTER_DNS_IP --use-max-pods false
cut -d ' ' -f 1 /proc/uptime >/var/lib/bootstrapped

--//--
`
}

func TestBootFromUserData(t *testing.T) {
	Require(t)
	m := Boot(t, Options{Files: image(t, "1.34.4"), Simulator: instance(t, managedUserData())})
	waiting := within(t, 60*time.Second)
	for !m.Exists("/var/lib/bootstrapped") && waiting.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	took := m.SincePowerOn()
	ctx := within(t, 120*time.Second)
	up := m.WaitBooted(ctx)
	if waiting.Err() != nil {
		t.Fatalf("bootstrap.sh did not end well; cloud-init says:\n%s", tail(m.ReadFile("/var/log/cloud-init-output.log"), 60))
	}
	t.Logf("from power-on to a healthy kubelet and the end of user data: %v; boot %s after %v", took.Round(time.Millisecond), up.State, up.Took.Round(time.Millisecond))
	if status := m.MustRun(ctx, "cloud-init", "status"); !strings.Contains(status, "status: done") {
		t.Errorf("cloud-init: %s", status)
	}

	expect(t, "30-kubelet-extra-args.conf",
		"[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--node-labels="+labels+" --max-pods=29'\n",
		m.ReadFile("/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"))
	want := []string{"/usr/bin/kubelet",
		"--config", "/etc/kubernetes/kubelet/kubelet-config.json", "--kubeconfig", "/var/lib/kubelet/kubeconfig",
		"--node-ip=192.168.16.253",
		"--pod-infra-container-image=602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:3.5",
		"--v=2",
		"--hostname-override=ip-192-168-18-230.eu-west-1.compute.internal",
		"--cloud-provider=external",
		"--image-credential-provider-config=/etc/eks/image-credential-provider/config.json",
		"--image-credential-provider-bin-dir=/usr/bin",
		"--node-labels=" + labels, "--max-pods=29"}
	if diff := cmp.Diff(want, kubeletArgs(t, m)); diff != "" {
		t.Errorf("kubelet's command line (-want +got):\n%s", diff)
	}
	for _, unit := range []string{"containerd.service", "kubelet.service"} {
		expect(t, unit, "active enabled\n", m.MustRun(ctx, "sh", "-c", "echo $(systemctl is-active "+unit+") $(systemctl is-enabled "+unit+")"))
	}
	if dump := m.MustRun(ctx, "containerd", "config", "dump"); !strings.Contains(dump, `sandbox_image = "602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:3.5"`) || !strings.Contains(dump, "SystemdCgroup = true") {
		t.Errorf("containerd reads its configuration otherwise:\n%s", dump)
	}
	if out := m.Run(ctx, "systemd-analyze", "verify", "kubelet.service"); out.ExitCode != 0 || out.Stderr != "" {
		t.Errorf("systemd-analyze verify: exit %d: %s", out.ExitCode, out.Stderr)
	}

	t.Run("a second run changes and restarts nothing", func(t *testing.T) {
		kubelet, containerd := mainPID(t, m, "kubelet.service"), mainPID(t, m, "containerd.service")
		out := m.Run(ctx, append([]string{"/etc/eks/bootstrap.sh", "ironman-2022", "--use-max-pods", "false", "--dns-cluster-ip", "10.100.0.10",
			"--kubelet-extra-args", "--node-labels=" + labels + " --max-pods=29"}, clusterFlags()...)...)
		if out.ExitCode != 0 || !strings.Contains(out.Stderr, "nothing changed") {
			t.Errorf("exit %d: %s", out.ExitCode, out.Stderr)
		}
		expect(t, "kubelet's main PID", kubelet, mainPID(t, m, "kubelet.service"))
		expect(t, "containerd's main PID", containerd, mainPID(t, m, "containerd.service"))
	})

	t.Run("other values take effect and restart kubelet alone", func(t *testing.T) {
		kubelet, containerd := mainPID(t, m, "kubelet.service"), mainPID(t, m, "containerd.service")
		out := m.Run(ctx, append([]string{"nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...)...)
		if out.ExitCode != 0 {
			t.Fatalf("exit %d: %s", out.ExitCode, out.Stderr)
		}
		if m.Exists("/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf") {
			t.Error("the drop-in of the first run's arguments is still there")
		}
		if args := kubeletArgs(t, m); slices.Contains(args, "--max-pods=29") {
			t.Errorf("kubelet still runs with %q", args)
		}
		if mainPID(t, m, "kubelet.service") == kubelet {
			t.Error("kubelet was not restarted")
		}
		expect(t, "containerd's main PID", containerd, mainPID(t, m, "containerd.service"))
	})

	t.Run("a run cut short before the restart is finished by the next", func(t *testing.T) {
		kubelet := mainPID(t, m, "kubelet.service")
		m.WriteFile("/run/nodeadm/pending-restarts", File{Content: "kubelet.service\n"})
		out := m.Run(ctx, append([]string{"nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...)...)
		if out.ExitCode != 0 || mainPID(t, m, "kubelet.service") == kubelet || m.Exists("/run/nodeadm/pending-restarts") {
			t.Errorf("exit %d; kubelet was %s and is %s; %s", out.ExitCode, kubelet, mainPID(t, m, "kubelet.service"), out.Stderr)
		}
	})

	t.Run("the node comes back after a reboot", func(t *testing.T) {
		m.Reboot()
		up := m.WaitBooted(within(t, 60*time.Second))
		expect(t, "kubelet", "active\n", m.Run(within(t, 10*time.Second), "systemctl", "is-active", "kubelet.service").Stdout)
		t.Logf("boot %s after %v", up.State, up.Took.Round(time.Millisecond))
	})
}

// TestProcesses holds the boot path to its word: no process but the two that
// tell their version where the image has not recorded it.
func TestProcesses(t *testing.T) {
	Require(t)
	m := Boot(t, Options{Files: image(t, "1.34.4"), Simulator: instance(t, "")})
	ctx := within(t, 60*time.Second)
	m.WaitBooted(ctx)
	executed := func(name string) []string {
		trace := "/root/" + name
		m.MustRun(ctx, append([]string{"strace", "-f", "-e", "trace=execve", "-o", trace, "nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...)...)
		var programs []string
		for line := range strings.Lines(m.ReadFile(trace)) {
			if _, rest, found := strings.Cut(line, "execve(\""); found && !strings.Contains(line, "ENOENT") {
				program, _, _ := strings.Cut(rest, "\"")
				programs = append(programs, program)
			}
		}
		slices.Sort(programs)
		return programs
	}
	if diff := cmp.Diff([]string{"/usr/bin/containerd", "/usr/bin/kubelet", "/usr/bin/nodeadm"}, executed("asked")); diff != "" {
		t.Errorf("programs run (-want +got):\n%s", diff)
	}
	m.WriteFile("/etc/eks/kubelet-version.txt", File{Content: "v1.34.4\n"})
	m.WriteFile("/etc/eks/containerd-version.txt", File{Content: "1.6.20\n"})
	if diff := cmp.Diff([]string{"/usr/bin/nodeadm"}, executed("recorded")); diff != "" {
		t.Errorf("programs run with recorded versions (-want +got):\n%s", diff)
	}
}

func TestKubeletThatFails(t *testing.T) {
	Require(t)
	files := image(t, "1.30.4")
	m := Boot(t, Options{Files: files, Simulator: instance(t, "")})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)
	for _, test := range []struct{ name, fail, words string }{
		{"at once", "E1121 run.go: failed to run Kubelet: running with swap on is not supported", "running with swap on is not supported"},
		{"after answering as healthy", "fail-after: 1s\nE1121 failed to start ContainerManager: system validation failed", "failed to start ContainerManager"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m.WriteFile("/etc/kubelet-standin/fail", File{Content: test.fail + "\n"})
			out := m.Run(ctx, append([]string{"nodeadm", "bootstrap", "ironman-2022", "--timeout", "40s"}, clusterFlags()...)...)
			if out.ExitCode != 5 || !strings.Contains(out.Stderr, test.words) || !strings.Contains(out.Stderr, "journalctl -u kubelet.service") {
				t.Errorf("exit %d, want 5 with kubelet's last words %q:\n%s", out.ExitCode, test.words, out.Stderr)
			}
		})
	}
	t.Run("and runs once the cause is gone", func(t *testing.T) {
		m.MustRun(ctx, "rm", "/etc/kubelet-standin/fail")
		m.MustRun(ctx, append([]string{"nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...)...)
		expect(t, "kubelet", "active\n", m.Run(ctx, "systemctl", "is-active", "kubelet.service").Stdout)
	})
	for _, test := range []struct{ name, command, words string }{
		{"masked", "systemctl stop containerd; systemctl mask containerd", "systemctl unmask containerd.service"},
		{"missing", "systemctl unmask containerd; mv /lib/systemd/system/containerd.service /root/; systemctl daemon-reload", "containerd.service does not exist"},
	} {
		t.Run("containerd "+test.name, func(t *testing.T) {
			m.MustRun(ctx, "sh", "-c", test.command)
			out := m.Run(ctx, append([]string{"nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...)...)
			if out.ExitCode != 5 || !strings.Contains(out.Stderr, test.words) {
				t.Errorf("exit %d, want 5 with %q:\n%s", out.ExitCode, test.words, out.Stderr)
			}
		})
	}
}

// TestDockerCommandLine is a managed node of Kubernetes 1.22 with dockerd: the
// whole command line that such nodes were seen to run.
func TestDockerCommandLine(t *testing.T) {
	Require(t)
	files := image(t, "1.22.17")
	files["/etc/systemd/system/docker.service"] = File{Content: "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, "")})
	ctx := within(t, 60*time.Second)
	m.WaitBooted(ctx)
	m.MustRun(ctx, append([]string{"/etc/eks/bootstrap.sh", "ironman-2022", "--use-max-pods", "false",
		"--kubelet-extra-args", "--node-labels=" + labels + " --max-pods=29"}, clusterFlags()...)...)
	expect(t, "kubelet's command line", "/usr/bin/kubelet --cloud-provider aws --config /etc/kubernetes/kubelet/kubelet-config.json --kubeconfig /var/lib/kubelet/kubeconfig "+
		"--container-runtime docker --network-plugin cni --node-ip=192.168.16.253 "+
		"--pod-infra-container-image=602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:3.5 --v=2 --node-labels="+labels+" --max-pods=29",
		strings.Join(kubeletArgs(t, m), " "))
	expect(t, "docker", "active\n", m.Run(ctx, "systemctl", "is-active", "docker.service").Stdout)
}

// TestForeignUnit is an image whose kubelet.service leaves no place for
// nodeadm's arguments, and insists on a file that nobody writes any more, as
// that of AWS's images does.
func TestForeignUnit(t *testing.T) {
	Require(t)
	files := image(t, "1.34.4")
	files["/usr/lib/systemd/system/kubelet.service"] = File{Content: "[Service]\nExecStart=/usr/bin/kubelet $SOME_OTHER_ARGS\nEnvironment=FROM_IMAGE=yes\nEnvironmentFile=/etc/eks/kubelet/environment\nEnvironmentFile=/etc/os-release\n[Install]\nWantedBy=multi-user.target\n"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, "")})
	ctx := within(t, 60*time.Second)
	m.WaitBooted(ctx)
	bootstrap := append([]string{"nodeadm", "bootstrap", "ironman-2022", "--kubelet-extra-args", "--node-labels=a=b"}, clusterFlags()...)
	m.MustRun(ctx, bootstrap...)
	if args := kubeletArgs(t, m); !slices.Contains(args, "--node-labels=a=b") || !slices.Contains(args, "--cloud-provider=external") {
		t.Errorf("kubelet runs with %q", args)
	}
	if m.Exists("/etc/systemd/system/kubelet.service") {
		t.Error("the image's unit was replaced")
	}
	environment := m.MustRun(ctx, "cat", "/proc/"+strings.TrimSpace(mainPID(t, m, "kubelet.service"))+"/environ")
	for _, variable := range []string{"FROM_IMAGE=yes", "ID=debian"} {
		if !strings.Contains("\x00"+environment, "\x00"+variable+"\x00") {
			t.Errorf("kubelet's environment has no %s: %q", variable, environment)
		}
	}
	if out := m.Run(ctx, bootstrap...); !strings.Contains(out.Stderr, "nothing changed") {
		t.Errorf("a second run: %s", out.Stderr)
	}
}

// TestSystemdReadsWhatWasMeant holds the quoting of Environment= to systemd's
// own reading: whatever the words, a service receives exactly these.
func TestSystemdReadsWhatWasMeant(t *testing.T) {
	Require(t)
	m := Boot(t, Options{Files: map[string]File{
		"/usr/local/bin/words": {Content: "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\n", Mode: 0o755},
	}})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)

	const alphabet = "ab=,-/.:; \t\n'\"\\%$#{}[]()*?!&|<>~`^@é世n0xu"
	runes := []rune(alphabet)
	random := rand.New(rand.NewPCG(22, 37))
	var cases [][]string
	for range 300 {
		words := make([]string, 1+random.IntN(5))
		for i := range words {
			for range random.IntN(12) {
				words[i] += string(runes[random.IntN(len(runes))])
			}
		}
		cases = append(cases, words)
	}
	cases = append(cases, []string{`--a="b c"`, `\\`, `\`, `'`, `"`, `%%`, `%n`, `$HOME`, `${HOME}`, "", `--j={"a":"b"}`}, []string{"--node-labels=" + labels})
	var units []string
	for i, words := range cases {
		unit := fmt.Sprintf("words-%d.service", i)
		m.WriteFile("/etc/systemd/system/"+unit, File{Content: fmt.Sprintf("[Service]\nType=oneshot\nExecStart=/usr/local/bin/words $WORDS\nStandardOutput=truncate:/var/lib/words-%d\n", i)})
		m.WriteFile("/etc/systemd/system/"+unit+".d/10-words.conf", File{Content: string(systemd.Environment("WORDS", words))})
		units = append(units, unit)
	}
	m.MustRun(ctx, "systemctl", "daemon-reload")
	m.MustRun(ctx, append([]string{"systemctl", "start"}, units...)...)
	for i, words := range cases {
		got := strings.Split(strings.TrimSuffix(m.ReadFile(fmt.Sprintf("/var/lib/words-%d", i)), "\x00"), "\x00")
		if diff := cmp.Diff(words, got); diff != "" {
			t.Errorf("systemd reads (-want +got):\n%s\nfrom\n%s", diff, systemd.Environment("WORDS", words))
		}
	}
	t.Logf("%d lists of words", len(cases))
}
