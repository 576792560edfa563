package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// NodeOptions say what a node is before its first boot.
type NodeOptions struct {
	// Kubelet is the minor version of kubelet, such as "1.36".
	Kubelet string
	// UserData is what EC2 hands out.
	UserData string
	// World, if set, changes the simulated instance.
	World func(*simulator.World)
	// Bare: nodeadm is not on the image yet.
	Bare bool
	// Files are on the image besides what every node needs.
	Files map[string]machine.File
}

// Node is a machine that is to join a control plane.
type Node struct {
	*machine.Machine
	World simulator.World

	control *ControlPlane
}

// StartNode boots an instance with user data, connected to the control plane.
// The image holds nodeadm, kubelet, containerd and CNI plugins; neither the AWS
// CLI nor aws-iam-authenticator nor ecr-credential-provider.
func (c *ControlPlane) StartNode(o NodeOptions) *Node {
	c.t.Helper()
	world := c.World
	world.UserData = o.UserData
	if o.World != nil {
		o.World(&world)
	}
	document, err := world.Document()
	if err != nil {
		c.t.Fatal(err)
	}
	files := map[string]machine.File{
		"/usr/bin/kubelet": {Source: Build(c.t, o.Kubelet, "kubelet")},
		"/opt/cni/bin":     {Link: "/usr/lib/cni"},
		"/etc/cni/net.d/10-ptp.conflist": {Content: `{"cniVersion": "0.3.1", "name": "pods", "plugins": [{"type": "ptp",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "192.168.64.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}` + "\n"},
		"/etc/hosts": {Content: "127.0.0.1 localhost\n" + Address + " " + Host + "\n"},
		// A computer in which root may not lower what the kernel kills last, as in
		// many virtual machines, starts no sandbox without this.
		"/etc/containerd/config.toml":     {Content: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n"},
		"/etc/resolv.conf":                {Content: "nameserver 127.0.0.1\n"},
		"/etc/kubernetes/manifests/.keep": {},
		// On EC2 the network is there when the instance boots; here the cable is
		// laid in the first milliseconds of it.
		"/etc/systemd/system/" + machine.SimulatorUnit + ".d/network.conf": {Content: "[Service]\nExecStartPre=bash -c 'until ip -4 address show dev " + cable + " 2>/dev/null | grep -q inet && ip route | grep -q default; do sleep 0.01; done'\n"},
	}
	if !o.Bare {
		files["/usr/bin/nodeadm"] = machine.File{Source: machine.BuildNodeadm(c.t)}
		files["/etc/eks/bootstrap.sh"] = machine.File{Link: "/usr/bin/nodeadm"}
	}
	for path, f := range o.Files {
		files[path] = f
	}
	n := &Node{World: world, control: c}
	n.Machine = machine.Boot(c.t, machine.Options{
		Controllers: true,
		Hostname:    world.Instance.Hostname,
		Files:       files,
		Simulator:   &machine.Simulator{Binary: machine.BuildNodeadm(c.t), ConfigYAML: document},
	})
	n.connect()
	return n
}

// cable is the node's network interface. cloud-init leaves those of this name
// alone; for another it would wait a minute for a DHCP server.
const cable = "veth-vpc"

// connect lays the cable and does what EC2's DHCP server does, and the image's
// sysctl.d, before which this network was not there.
func (n *Node) connect() {
	n.control.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	machine.Connect(n.Machine, cable, n.control.Machine, "node")
	n.control.MustRun(ctx, "ip", "link", "set", "node", "master", "vpc", "up")
	n.MustRun(ctx, "sh", "-euc", "ip address add "+n.World.Instance.LocalIPv4+"/16 dev "+cable+"; ip link set "+cable+" up; ip route add default via "+Address+"; echo 1 >/proc/sys/net/ipv4/ip_forward")
}

// Reboot boots the node again, which takes its cable away.
func (n *Node) Reboot() {
	n.control.t.Helper()
	n.Machine.Reboot()
	n.connect()
}

// Become turns a machine that is off into another instance, of which the control
// plane is told too, and powers it on.
func (n *Node) Become(ctx context.Context, change func(*simulator.World)) {
	t := n.control.t
	t.Helper()
	change(&n.World)
	document, err := n.World.Document()
	if err != nil {
		t.Fatal(err)
	}
	world := machine.File{Content: string(document), Mode: 0o600}
	n.WriteFile("/etc/nodeadm-test/world.yaml", world)
	n.control.WriteFile("/etc/cluster/world.yaml", world)
	n.control.MustRun(ctx, "systemctl", "restart", "aws.service")
	n.PowerOn()
	n.connect()
}

// Destroy ends the node and takes it out of the cluster, so that another can
// take its place.
func (n *Node) Destroy(ctx context.Context) {
	n.PowerCut()
	n.control.Delete(ctx, nodePath(n.Name()))
	// As the garbage collector of pods would: the next node has the same name.
	n.control.Delete(ctx, "/api/v1/namespaces/default/pods?gracePeriodSeconds=0&fieldSelector=spec.nodeName="+n.Name())
}

// Name is the name that EC2 gave the instance.
func (n *Node) Name() string { return n.World.Instance.PrivateDNSName }

func nodePath(name string) string { return "/api/v1/nodes/" + name }

// Object is a Node object, as far as tests look at it.
type Object struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
		Taints     []struct {
			Key, Value, Effect string
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		Capacity    map[string]string `json:"capacity"`
		Allocatable map[string]string `json:"allocatable"`
		Addresses   []struct {
			Type, Address string
		} `json:"addresses"`
		Conditions []Condition `json:"conditions"`
		NodeInfo   struct {
			KubeletVersion, BootID, MachineID, ContainerRuntimeVersion string
		} `json:"nodeInfo"`
	} `json:"status"`
}

// Condition is one of the conditions of a Node.
type Condition struct {
	Type, Status, Reason, Message         string
	LastHeartbeatTime, LastTransitionTime time.Time
}

// Condition returns a condition by its type.
func (o Object) Condition(kind string) Condition {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// Object reads the node's own Node object.
func (n *Node) Object(ctx context.Context) (o Object, exists bool) {
	n.control.t.Helper()
	exists = n.control.Get(ctx, nodePath(n.Name()), &o)
	return o, exists
}

// BootID is the identifier of the machine's present boot.
func (n *Node) BootID(ctx context.Context) string {
	return strings.TrimSpace(n.MustRun(ctx, "cat", "/proc/sys/kernel/random/boot_id"))
}

// Joined is when a node reached each step, from power-on.
type Joined struct {
	Nodeadm, Configured, Registered, Ready time.Duration
	// Phases are nodeadm's own.
	Phases []nodeadm.Phase

	powerOn time.Time
}

func (j Joined) String() string {
	var phases []string
	for _, p := range j.Phases {
		phases = append(phases, fmt.Sprintf("%s %.2f s", p.Name, p.Seconds))
	}
	return fmt.Sprintf("power-on to Ready %.1f s: boot to nodeadm %.1f s; nodeadm %.1f s (%s); registered after %.1f s; Ready after %.1f s",
		j.Ready.Seconds(), j.Nodeadm.Seconds(), (j.Configured - j.Nodeadm).Seconds(), strings.Join(phases, ", "), j.Registered.Seconds(), j.Ready.Seconds())
}

// Of notes when nodeadm ran.
func (j *Joined) Of(run nodeadm.LastRun) {
	j.Nodeadm = run.Started.Sub(j.powerOn)
	j.Configured = j.Nodeadm + time.Duration(run.Seconds*float64(time.Second))
	j.Phases = run.Phases
}

// WaitReady waits until the kubelet of this boot has reported the node as Ready.
func (n *Node) WaitReady(ctx context.Context) (Joined, Object) {
	t := n.control.t
	t.Helper()
	j := Joined{powerOn: time.Now().Add(-n.SincePowerOn())}
	for {
		var o Object
		status, answer, err := n.control.request(ctx, http.MethodGet, nodePath(n.Name()), "", nil)
		if err == nil && status == http.StatusOK {
			if err := json.Unmarshal(answer, &o); err != nil {
				t.Fatal(err)
			}
			if o.Status.NodeInfo.BootID == n.BootID(ctx) {
				if j.Registered == 0 {
					j.Registered = n.SincePowerOn()
				}
				if ready := o.Condition("Ready"); ready.Status == "True" && ready.LastHeartbeatTime.After(j.powerOn.Add(-time.Second)) {
					j.Ready = n.SincePowerOn()
					return j, o
				}
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("the node is not Ready %v after power-on: %d %s %v\ncloud-init:\n%s\nkubelet:\n%s", n.SincePowerOn().Round(time.Second), status, answer, err,
				n.output("/var/log/cloud-init-output.log"), n.Journal("kubelet.service"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// waitHeartbeat waits until kubelet has renewed the node's lease after a moment
// and the node is Ready. (An unchanged status is only reported every five
// minutes, but a kubelet that starts may first report that it has not asked the
// container runtime yet.)
func (n *Node) waitHeartbeat(ctx context.Context, after time.Time) {
	t := n.control.t
	t.Helper()
	for {
		var lease struct {
			Spec struct{ RenewTime time.Time }
		}
		renewed := n.control.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+n.Name(), &lease) && lease.Spec.RenewTime.After(after)
		o, _ := n.Object(ctx)
		if renewed && o.Condition("Ready").Status == "True" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the node is not Ready after %v: lease of %v, %+v", after, lease.Spec.RenewTime, o.Condition("Ready"))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (n *Node) mainPID(ctx context.Context) string {
	return strings.TrimSpace(n.MustRun(ctx, "systemctl", "show", "--property=MainPID", "--value", "kubelet.service"))
}

// startPod makes kubelet run a static pod, and waits until the API server shows
// it as running.
func (n *Node) startPod(ctx context.Context, name, image, pull string) {
	t := n.control.t
	t.Helper()
	n.WriteFile("/etc/kubernetes/manifests/"+name+".json", machine.File{Content: string(encode(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"tolerations": []any{map[string]any{"operator": "Exists"}},
			"containers":  []any{map[string]any{"name": "app", "image": image, "imagePullPolicy": pull}},
		},
	}))})
	for {
		var pod struct {
			Status struct {
				Phase, PodIP      string
				ContainerStatuses []struct{ Image string }
			}
		}
		status, answer, err := n.control.request(ctx, http.MethodGet, "/api/v1/namespaces/default/pods/"+name+"-"+n.Name(), "", nil)
		if err == nil && status == http.StatusOK {
			if err := json.Unmarshal(answer, &pod); err != nil {
				t.Fatal(err)
			}
		}
		if pod.Status.Phase == "Running" {
			if c := pod.Status.ContainerStatuses; len(c) != 1 || c[0].Image != image {
				t.Errorf("pod %s runs %v, want %s", name, c, image)
			}
			if !strings.HasPrefix(pod.Status.PodIP, "192.168.64.") {
				t.Errorf("pod %s has the address %q", name, pod.Status.PodIP)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("pod %s does not run: %d %s %v\n%s", name, status, answer, err, n.Journal("kubelet.service"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// StartRegistry serves the image app:1 of a registry to who has the password, on
// the node itself: as a mirror at http://127.0.0.1:5000.
func (n *Node) StartRegistry(ctx context.Context, host, secret string) {
	t := n.control.t
	t.Helper()
	program, err := os.ReadFile(machine.BuildProgram(t, "test/cluster/pause"))
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range layout(host+"/app:1", program) {
		n.WriteFile("/var/lib/registry/"+path, machine.File{Content: string(data)})
	}
	n.WriteFile("/usr/local/bin/registry", machine.File{Source: machine.BuildProgram(t, "test/cluster/registry")})
	n.WriteFile("/etc/systemd/system/registry.service", machine.File{Content: "[Service]\nExecStart=/usr/local/bin/registry 127.0.0.1:5000 /var/lib/registry " + secret + "\n"})
	n.MustRun(ctx, "systemctl", "daemon-reload")
	n.MustRun(ctx, "systemctl", "start", "registry.service")
}

func (n *Node) output(path string) string {
	if !n.Exists(path) {
		return path + " is missing"
	}
	return n.ReadFile(path)
}

// LastRun is what nodeadm says of its last run in this boot; nothing if there
// was none.
func (n *Node) LastRun() (run nodeadm.LastRun) {
	const status = "/run/nodeadm/status.json"
	if n.Exists(status) {
		if err := json.Unmarshal([]byte(n.ReadFile(status)), &run); err != nil {
			n.control.t.Fatal(err)
		}
	}
	return run
}

// Import puts an image that runs test/cluster/pause into containerd.
func (n *Node) Import(ctx context.Context, names ...string) {
	t := n.control.t
	t.Helper()
	program, err := os.ReadFile(machine.BuildProgram(t, "test/cluster/pause"))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		path := fmt.Sprintf("/var/tmp/image-%d.tar", i)
		n.WriteFile(path, machine.File{Content: string(archive(layout(name, program)))})
		n.MustRun(ctx, "ctr", "--namespace=k8s.io", "images", "import", path)
	}
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
