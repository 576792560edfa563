package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// nodeConfigUserData is MIME user data with a NodeConfig; more follows what it
// says of kubelet.
func nodeConfigUserData(more string) string {
	c := simulator.Default().Cluster
	return fmt.Sprintf(`MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: ironman-2022
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: 10.100.0.0/16
  kubelet:
    flags: ["--node-labels=from=user-data"]
%s
--//--
`, c.Endpoint, c.CertificateAuthority, more)
}

// TestInitFromUserData is a node as Karpenter and managed node groups make
// them: user data is MIME with a NodeConfig and a script, and the unit that
// ships runs `nodeadm init`. A drop-in document of the image has the last word.
func TestInitFromUserData(t *testing.T) {
	Require(t)
	userData := nodeConfigUserData(`    config: {maxPods: 17, registryPullQPS: 7}

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
touch /var/lib/user-script-ran
`)
	files := image(t, "1.34.4")
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files["/etc/systemd/system/nodeadm.service"] = File{Source: root + "/systemd/nodeadm.service"}
	files["/etc/systemd/system/multi-user.target.wants/nodeadm.service"] = File{Link: "/etc/systemd/system/nodeadm.service"}
	files["/etc/eks/nodeadm.d/50-site.yaml"] = File{Content: "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 11}, flags: [--v=4]}}\n"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, userData)})
	ctx := within(t, 120*time.Second)
	up := m.WaitBooted(ctx)
	t.Logf("boot %s after %v", up.State, up.Took.Round(time.Millisecond))
	if up.State != "running" {
		t.Fatalf("failed: %v\n%s", up.Failed, tail(m.Journal("nodeadm.service"), 40))
	}
	if !m.Exists("/var/lib/user-script-ran") {
		t.Error("the user's script did not run")
	}
	expect(t, "30-kubelet-extra-args.conf", "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--node-labels=from=user-data --v=4'\n",
		m.ReadFile("/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"))
	if config := m.ReadFile("/etc/kubernetes/kubelet/kubelet-config.json"); !strings.Contains(config, `"maxPods": 11`) || !strings.Contains(config, `"registryPullQPS": 7`) {
		t.Errorf("kubelet-config.json:\n%s", config)
	}
	if args := kubeletArgs(t, m); !slices.Contains(args, "--node-labels=from=user-data") {
		t.Errorf("kubelet runs with %q", args)
	}
	journal := m.Journal("nodeadm.service")
	for _, want := range []string{"user data part 1 (application/node.eks.aws", "is used: NodeConfig", "user data part 2 (text/x-shellscript", "is not used"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal does not say %q", want)
		}
	}
	if cycle := m.Journal(""); strings.Contains(cycle, "ordering cycle") {
		t.Error("systemd found an ordering cycle")
	}
	if out := m.Run(ctx, "systemd-analyze", "verify", "nodeadm.service"); out.ExitCode != 0 || out.Stderr != "" {
		t.Errorf("systemd-analyze verify: exit %d: %s", out.ExitCode, out.Stderr)
	}

	kubelet := mainPID(t, m, "kubelet.service")
	out := m.Run(ctx, "nodeadm", "init")
	if out.ExitCode != 0 || !strings.Contains(out.Stderr, "nothing changed") || mainPID(t, m, "kubelet.service") != kubelet {
		t.Errorf("a second run: exit %d: %s", out.ExitCode, out.Stderr)
	}
	// A mistake in a drop-in is refused as a whole, and leaves the node running.
	m.WriteFile("/etc/eks/nodeadm.d/60-typo.yaml", File{Content: "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {falgs: [--v=9]}}\n"})
	out = m.Run(ctx, "nodeadm", "init")
	if out.ExitCode != 2 || !strings.Contains(out.Stderr, "/etc/eks/nodeadm.d/60-typo.yaml:3:18") || !strings.Contains(out.Stderr, "did you mean flags?") {
		t.Errorf("a typing mistake: exit %d: %s", out.ExitCode, out.Stderr)
	}
	expect(t, "kubelet's main PID", kubelet, mainPID(t, m, "kubelet.service"))
}

// TestInstanceOptions: environment and resolver settings of a document reach
// who they are for before kubelet runs, at the very first boot.
func TestInstanceOptions(t *testing.T) {
	Require(t)
	files := image(t, "1.34.4")
	maps.Copy(files, unit(t, beforeScripts))
	// In the place of systemd's, which shows what it was started with.
	files["/usr/lib/systemd/system/systemd-resolved.service"] = File{Content: "[Service]\nExecStart=/bin/sh -c 'cat /etc/systemd/resolved.conf.d/* >/run/resolved; exec sleep infinity'\n[Install]\nWantedBy=multi-user.target\n"}
	files["/etc/resolv.conf"] = File{Link: "../run/systemd/resolve/stub-resolv.conf"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, nodeConfigUserData(`  instance:
    environment: {default: {HTTPS_PROXY: "http://192.0.2.1:3128", ALL: "a  b"}, kubelet: {FOO: "100%"}, systemd-sysctl: {BAR: x}}
    network: {nameservers: [10.0.0.2, 10.0.0.3], domains: [corp.example]}
`))})
	ctx := within(t, 90*time.Second)
	if up := m.WaitBooted(ctx); up.State != "running" {
		t.Fatalf("boot %s, failed: %v\n%s", up.State, up.Failed, tail(m.Journal(beforeScripts), 40))
	}
	expect(t, "systemd-resolved was started with", "[Resolve]\nDNS=10.0.0.2 10.0.0.3\nDomains=corp.example\n", m.ReadFile("/run/resolved"))
	expect(t, "systemd-resolved at the next boot", "enabled\n", m.Run(ctx, "systemctl", "is-enabled", "systemd-resolved.service").Stdout)
	inOrder(t, "systemd-resolved.service", timesOf(ctx, m, "systemd-resolved.service").active, "kubelet.service", timesOf(ctx, m, "kubelet.service").started)
	var environment map[string]string
	if err := json.Unmarshal([]byte(m.ReadFile("/run/kubelet-standin/env.json")), &environment); err != nil {
		t.Fatal(err)
	}
	runtime := strings.Split(m.ReadFile("/proc/"+mainPID(t, m, "containerd.service")+"/environ"), "\x00")
	for name, value := range map[string]string{"HTTPS_PROXY": "http://192.0.2.1:3128", "ALL": "a  b"} {
		expect(t, "kubelet's "+name, value, environment[name])
		if !slices.Contains(runtime, name+"="+value) {
			t.Errorf("containerd has no %s=%s", name, value)
		}
	}
	expect(t, "kubelet's FOO", "100%", environment["FOO"])
	expect(t, "systemd-sysctl.service's", "Environment=BAR=x\n", m.MustRun(ctx, "systemctl", "show", "--property=Environment", "systemd-sysctl.service"))
	expect(t, "what is started later", "a  b\n", m.MustRun(ctx, "systemd-run", "--quiet", "--pipe", "--wait", "sh", "-c", `echo "$ALL"`))
	if config := m.ReadFile("/etc/kubernetes/kubelet/kubelet-config.json"); !strings.Contains(config, `"resolvConf": "/run/systemd/resolve/resolv.conf"`) {
		t.Errorf("pods would be given the stub:\n%s", config)
	}
	if out := m.Run(ctx, "nodeadm", "init"); out.ExitCode != 0 || !strings.Contains(out.Stderr, "nothing changed") {
		t.Errorf("a second run: exit %d: %s", out.ExitCode, out.Stderr)
	}
}

// TestInitWithScript: on an image for user data of either kind the unit leaves
// the node to a script that calls bootstrap.sh.
func TestInitWithScript(t *testing.T) {
	Require(t)
	files := image(t, "1.34.4")
	maps.Copy(files, unit(t, beforeScripts))
	m := Boot(t, Options{Files: files, Simulator: instance(t, managedUserData())})
	ctx := within(t, 120*time.Second)
	if up := m.WaitBooted(ctx); up.State != "running" {
		t.Fatalf("boot %s, failed: %v\n%s", up.State, up.Failed, tail(m.Journal(beforeScripts), 40))
	}
	expect(t, beforeScripts, "active\n", m.Run(ctx, "systemctl", "is-active", beforeScripts).Stdout)
	if journal := m.Journal(beforeScripts); !strings.Contains(journal, "user data part 2 calls bootstrap.sh: the node is left to that script") {
		t.Errorf("the journal:\n%s", journal)
	}
	if args := kubeletArgs(t, m); !m.Exists("/var/lib/bootstrapped") || !slices.Contains(args, "--max-pods=29") {
		t.Errorf("the script did not make the node; kubelet runs with %q", args)
	}
}
