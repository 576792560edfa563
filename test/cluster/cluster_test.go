package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

const byName = "system:node:{{EC2PrivateDNSName}}"

// script is user data of the older kind, with the cluster's name alone: EKS is
// asked for the rest.
const script = `#!/bin/bash
export AWS_ENDPOINT_URL=http://169.254.169.254
/etc/eks/bootstrap.sh ironman-2022 --kubelet-extra-args '--node-labels=team=blue,tier=1 --register-with-taints=dedicated=test:NoSchedule --pod-manifest-path=/etc/kubernetes/manifests'
`

// document is user data of the newer kind. failCgroupV1 lets kubelets from 1.35
// on run on a host with cgroup v1, which the computer of the test may be.
func (c *ControlPlane) document() string {
	return fmt.Sprintf(`apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: ironman-2022
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: 10.100.0.0/16
  instance:
    environment:
      kubelet: {AWS_ENDPOINT_URL_ECR: "http://169.254.169.254"}
  containerd:
    registryMirrors: {%s: ["http://127.0.0.1:5000"]}
  kubelet:
    config:
      failCgroupV1: false
      maxPods: 17
      staticPodPath: /etc/kubernetes/manifests
      registerWithTaints: [{key: dedicated, value: test, effect: NoSchedule}]
    flags: ["--node-labels=team=blue,tier=1"]
`, Endpoint, base64Of(c.CA), privateRegistry)
}

// privateRegistry is the name of a registry that its mirror, on the node, stands
// for: it cannot be reached itself.
const privateRegistry = "111111111111.dkr.ecr.eu-west-1.amazonaws.com"

// unitFiles make an image boot by nodeadm.service, as it ships.
func unitFiles(t *testing.T) map[string]machine.File {
	return map[string]machine.File{
		"/etc/systemd/system/nodeadm.service":                         {Source: machine.Source(t, "systemd/nodeadm.service")},
		"/etc/systemd/system/multi-user.target.wants/nodeadm.service": {Link: "../nodeadm.service"},
	}
}

// TestJoin is the proof of a bootstrap: from user data alone, a Node object that
// is Ready and as planned.
func TestJoin(t *testing.T) {
	machine.Require(t)
	c := StartControlPlane(t)
	c.MapRole(within(t, time.Minute), Role, byName)
	for _, test := range []struct {
		kubelet, userData string
		files             map[string]machine.File
		again             []string
		maxPods           int
	}{
		{"1.33", script, nil, []string{"sh", "-c", strings.Join(strings.Split(script, "\n")[1:], "\n")}, 29},
		{"1.36", c.document(), unitFiles(t), []string{"nodeadm", "init"}, 17},
	} {
		t.Run("kubelet "+test.kubelet, func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			c := c.with(t)
			n := c.StartNode(NodeOptions{Kubelet: test.kubelet, UserData: test.userData, Files: test.files})
			defer n.Destroy(ctx)
			joined, o := n.WaitReady(ctx)
			if up := n.WaitBooted(ctx); up.State != "running" {
				t.Errorf("boot %s, failed: %v", up.State, up.Failed)
			}
			joined.Of(n.LastRun())
			fmt.Printf("kubelet %s: %s\n", kubernetes[test.kubelet], joined)
			checkNode(t, n, o, kubernetes[test.kubelet], test.maxPods)

			restarted := time.Now()
			n.MustRun(ctx, "systemctl", "restart", "kubelet.service")
			n.waitHeartbeat(ctx, restarted)

			pid := n.mainPID(ctx)
			out := n.Run(ctx, test.again...)
			if out.ExitCode != 0 || !strings.Contains(out.Stderr, "nothing changed") || n.mainPID(ctx) != pid {
				t.Errorf("a second run: exit %d, kubelet was %s and is %s:\n%s", out.ExitCode, pid, n.mainPID(ctx), out.Stderr)
			}

			n.Reboot()
			joined, again := n.WaitReady(ctx)
			fmt.Printf("kubelet %s, second boot: Ready after %.1f s\n", kubernetes[test.kubelet], joined.Ready.Seconds())
			if again.Metadata.UID != o.Metadata.UID {
				t.Errorf("after the restart and the reboot there is another Node object: %s, was %s", again.Metadata.UID, o.Metadata.UID)
			}
			checkNode(t, n, again, kubernetes[test.kubelet], test.maxPods)
			checkRestriction(t, n)
			checkStaticPod(t, n)
			if test.kubelet != "1.33" { // bootstrap.sh has no way to set kubelet's environment
				checkECR(t, n)
			}
		})
	}
}

// checkNode compares a Node object with what the user data asked for.
func checkNode(t *testing.T, n *Node, o Object, version string, maxPods int) {
	t.Helper()
	in := n.World.Instance
	for what, values := range map[string][2]string{
		"name":                {in.PrivateDNSName, o.Metadata.Name},
		"label team":          {"blue", o.Metadata.Labels["team"]},
		"label tier":          {"1", o.Metadata.Labels["tier"]},
		"label hostname":      {in.PrivateDNSName, o.Metadata.Labels["kubernetes.io/hostname"]},
		"providerID":          {"aws:///" + in.Zone + "/" + in.ID, o.Spec.ProviderID},
		"capacity.pods":       {strconv.Itoa(maxPods), o.Status.Capacity["pods"]},
		"allocatable.pods":    {strconv.Itoa(maxPods), o.Status.Allocatable["pods"]},
		"allocatable.cpu":     {allocatableCPU(t, o.Status.Capacity["cpu"]), o.Status.Allocatable["cpu"]},
		"kubeletVersion":      {"v" + version, o.Status.NodeInfo.KubeletVersion},
		"InternalIP":          {in.LocalIPv4, address(o, "InternalIP")},
		"Hostname":            {in.PrivateDNSName, address(o, "Hostname")},
		"taint dedicated":     {"test:NoSchedule", taint(o, "dedicated")},
		"taint uninitialized": {"true:NoSchedule", taint(o, "node.cloudprovider.kubernetes.io/uninitialized")},
	} {
		if values[0] != values[1] {
			t.Errorf("%s is %q, want %q", what, values[1], values[0])
		}
	}
	// 11 MiB for each pod and 255 MiB are reserved, and 100 MiB kept from pods.
	reserved := kibibytes(t, o.Status.Capacity["memory"]) - kibibytes(t, o.Status.Allocatable["memory"])
	if want := (11*maxPods + 255 + 100) << 10; reserved != want {
		t.Errorf("%d KiB of memory are kept from pods, want %d", reserved, want)
	}
}

// allocatableCPU is what pods get of a number of CPUs: of the first 60m are
// reserved, of the second 10m, of the third and fourth 5m each, and of every
// further one 2.5m.
func allocatableCPU(t *testing.T, cpus string) string {
	t.Helper()
	n, err := strconv.Atoi(cpus)
	if err != nil {
		t.Fatalf("%q CPUs: %v", cpus, err)
	}
	reserved := 60.0
	for i := 2; i <= n; i++ {
		switch {
		case i == 2:
			reserved += 10
		case i <= 4:
			reserved += 5
		default:
			reserved += 2.5
		}
	}
	return strconv.Itoa(n*1000-int(reserved)) + "m"
}

func address(o Object, kind string) string {
	for _, a := range o.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return ""
}

func taint(o Object, key string) string {
	for _, t := range o.Spec.Taints {
		if t.Key == key {
			return t.Value + ":" + t.Effect
		}
	}
	return ""
}

func kibibytes(t *testing.T, quantity string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(quantity, "Ki"))
	if err != nil {
		t.Fatalf("memory of %q: %v", quantity, err)
	}
	return n
}

// checkRestriction does what a node may not do, with the node's own token.
func checkRestriction(t *testing.T, n *Node) {
	ctx := within(t, time.Minute)
	var credential struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(n.MustRun(ctx, "nodeadm", "token", "--cluster-name", "ironman-2022")), &credential); err != nil {
		t.Fatal(err)
	}
	const other = "ip-192-168-0-1.eu-west-1.compute.internal"
	n.control.Apply(ctx, nodePath(other), map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": other}})
	defer n.control.Delete(ctx, nodePath(other))
	label := func(key string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"labels": map[string]string{key: "x"}}}
	}
	for _, test := range []struct {
		node, label string
		status      int
		says        string
	}{
		{n.Name(), "mine", http.StatusOK, ""},
		{n.Name(), "node-restriction.kubernetes.io/mine", http.StatusForbidden, "is not allowed to modify labels"},
		{other, "mine", http.StatusForbidden, "is not allowed to modify node"},
	} {
		status, answer, err := n.control.requestAs(ctx, credential.Status.Token, http.MethodPatch, nodePath(test.node), "application/merge-patch+json", label(test.label))
		if err != nil || status != test.status || !strings.Contains(string(answer), test.says) {
			t.Errorf("label %s of %s: %d %s %v", test.label, test.node, status, answer, err)
		}
	}
}

// checkStaticPod runs a pod of an image that is on the node, in a sandbox of the
// image that the plan names.
func checkStaticPod(t *testing.T, n *Node) {
	ctx := within(t, 90*time.Second)
	sandbox := n.importSandbox(ctx)
	n.Import(ctx, "docker.io/library/app:1")
	n.startPod(ctx, "static", "docker.io/library/app:1", "Never")
	if containers := n.MustRun(ctx, "ctr", "--namespace=k8s.io", "containers", "list"); !strings.Contains(containers, sandbox) {
		t.Errorf("no sandbox is made of %s:\n%s", sandbox, containers)
	}
}

// importSandbox puts the image that the plan names onto the node.
func (n *Node) importSandbox(ctx context.Context) (sandbox string) {
	t := n.control.t
	t.Helper()
	for line := range strings.Lines(n.MustRun(ctx, "containerd", "config", "dump")) {
		if name, value, found := strings.Cut(line, "="); found && strings.TrimSpace(name) == "sandbox_image" {
			sandbox = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	if !strings.HasPrefix(sandbox, "602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:") {
		t.Fatalf("the sandbox image is %q", sandbox)
	}
	n.Import(ctx, sandbox)
	return sandbox
}

// checkECR runs a pod of an image in a registry that takes no other password
// than the one that ECR gives out, which kubelet gets through nodeadm.
func checkECR(t *testing.T, n *Node) {
	ctx := within(t, 90*time.Second)
	n.StartRegistry(ctx, privateRegistry, "AWS:"+simulator.RegistryPassword(n.World.Instance.Account))
	n.startPod(ctx, "ecr", privateRegistry+"/app:1", "Always")
	journal := n.Journal("registry.service")
	if !strings.Contains(journal, `user "AWS" known true`) {
		t.Errorf("the registry was not asked with ECR's password:\n%s", journal)
	}
	if log := n.Journal(machine.SimulatorUnit); !strings.Contains(log, `"ecr:GetAuthorizationToken" 200`) {
		t.Error("ECR was not asked for the password")
	}
}
