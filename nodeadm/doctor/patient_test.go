package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

const (
	kubeletDocument = "etc/kubernetes/kubelet/kubelet-config.json"
	kubeconfigFile  = "var/lib/kubelet/kubeconfig"
	extraArgs       = "etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"
)

// TestDropIns: what stands in --config-dir counts for more, in the order of
// names, as kubelet merges it.
func TestDropIns(t *testing.T) {
	p := lying(t, map[string]string{
		kubeletDocument:                      `{"failSwapOn": true, "maxPods": 5, "clusterDNS": ["10.0.0.1", "10.0.0.2"], "evictionHard": {"memory.available": "1Mi"}}`,
		"etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --config /etc/kubernetes/kubelet/kubelet-config.json --config-dir=/etc/kubelet.d $KUBELET_EXTRA_ARGS\n",
		"etc/kubelet.d/20-b.conf":            `{"maxPods": 7, "clusterDNS": ["10.0.0.3"]}`,
		"etc/kubelet.d/10-a.conf":            "failSwapOn: false\nmaxPods: 6\nevictionHard: {nodefs.available: 5%}\n",
		"etc/kubelet.d/30-c.json":            `{"maxPods": 8}`,
	})
	c, err := p.kubelet()
	if err != nil || c.FailSwapOn == nil || *c.FailSwapOn || c.MaxPods != 7 || len(c.ClusterDNS) != 1 || len(c.EvictionHard) != 2 {
		t.Errorf("%v: %+v", err, c)
	}
}

// TestFlags: a later file sets a variable anew, and a later flag counts.
func TestFlags(t *testing.T) {
	p := lying(t, map[string]string{
		"usr/lib/systemd/system/kubelet.service":                    "[Service]\nExecStart=/usr/bin/kubelet --v=1 $KUBELET_ARGS $KUBELET_EXTRA_ARGS\n",
		"etc/systemd/system/kubelet.service.d/10-kubelet-args.conf": "[Service]\nEnvironment='KUBELET_ARGS=--v=2 --hostname-override=own'\n",
		extraArgs: "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--max-pods=3'\n",
		"etc/systemd/system/kubelet.service.d/40-hand.conf": "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--max-pods 4'\n",
	})
	if p.flag("v") != "2" || p.flag("max-pods") != "4" {
		t.Errorf("%q", p.flags())
	}
	if name, named := p.nodeName(); name != "own" || named {
		t.Errorf("%s, named: %t", name, named)
	}
	hand := lying(t, map[string]string{extraArgs: "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--hostname-override=Other'\n"})
	if name, named := hand.nodeName(); name != "other" || !named {
		t.Errorf("%s, named: %t", name, named)
	}
}

// kubelet's credential plugin knows nothing of who runs the doctor.
func TestKubeletEnvironment(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASOMEBODYELSE")
	t.Setenv("AWS_PROFILE", "mine")
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	p := lying(t, map[string]string{"etc/systemd/system/kubelet.service.d/environment.conf": "[Service]\nEnvironment=AWS_PROFILE=node AWS_REGION=eu-west-1\n"})
	environment := p.kubeletEnvironment()
	for variable, want := range map[string]bool{"AWS_ACCESS_KEY_ID=AKIASOMEBODYELSE": false, "AWS_PROFILE=mine": false, "AWS_PROFILE=node": true, "AWS_REGION=eu-west-1": true, "HTTPS_PROXY=http://proxy:3128": true} {
		if slices.Contains(environment, variable) != want {
			t.Errorf("%s is in it: %v", variable, !want)
		}
	}
}

const kubeconfigHead = "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"

func TestKubeconfig(t *testing.T) {
	const rest = "clusters: [{name: b, cluster: {server: https://b}}, {name: c, cluster: {server: https://c, certificate-authority: ../ca.crt, certificate-authority-data: Y2E=}}]\n" +
		"users: [{name: t, user: {}}, {name: u, user: {exec: {command: x, args: [-i, name]}}}]\n"
	p := lying(t, map[string]string{kubeconfigFile: kubeconfigHead + "current-context: a\n" + rest})
	k, err := p.kubeconfig()
	endpoint, ca, caErr := p.cluster()
	if err != nil || k.cluster != "name" || endpoint != "https://c" || string(ca) != "ca" || caErr != nil {
		t.Errorf("%v, %v: %+v, %s", err, caErr, k, ca)
	}
	path := lying(t, map[string]string{"var/lib/ca.crt": "file", kubeconfigFile: kubeconfigHead + "current-context: a\n" + strings.Replace(rest, ", certificate-authority-data: Y2E=", "", 1)})
	if _, ca, err := path.cluster(); err != nil || string(ca) != "file" {
		t.Errorf("%v: %s", err, ca)
	}
	for content, says := range map[string]string{
		kubeconfigHead + rest:                          "has no current-context",
		kubeconfigHead + "current-context: z\n" + rest: `has no context "z"`,
		kubeconfigHead + "current-context: a\n" + strings.Replace(rest, "name: u", "name: v", 1):      `has no user "u", for its current-context "a"`,
		kubeconfigHead + "current-context: a\n" + strings.Replace(rest, "name: c,", "name: d,", 1):    `has no cluster "c"`,
		kubeconfigHead + "current-context: a\n" + strings.Replace(rest, "server: https://c, ", "", 1): "has no server",
	} {
		p := lying(t, map[string]string{kubeletDocument: "{}", kubeconfigFile: content})
		if f := kubeletConfigParse(t.Context(), p); f.Status != Failed || !strings.Contains(f.Summary, says) {
			t.Errorf("%s: %s, want %s", f.Status, f.Summary, says)
		}
		if f := caValid(t.Context(), p); f.Status != Skipped {
			t.Errorf("ca-valid: %s: %s", f.Status, f.Summary)
		}
	}
}

func TestCNI(t *testing.T) {
	const ptp = `{"name": "pods", "plugins": [{"type": "ptp", "ipam": {"type": "host-local"}}]}`
	for _, test := range []struct {
		name, want string
		files      map[string]string
	}{
		{"all there", "", map[string]string{"etc/cni/net.d/10-ptp.conflist": ptp, "opt/cni/bin/ptp": "x", "opt/cni/bin/host-local": "x"}},
		{"no plugin", "the plugin ptp, and there is no such program in /opt/cni/bin", map[string]string{"etc/cni/net.d/10-ptp.conflist": ptp}},
		{"no plugin for addresses", "the plugin host-local", map[string]string{"etc/cni/net.d/10-ptp.conflist": ptp, "opt/cni/bin/ptp": "x"}},
		{"a single plugin", "the plugin bridge", map[string]string{"etc/cni/net.d/10.conf": `{"type": "bridge"}`}},
		{"another folder", "no such program in /elsewhere", map[string]string{"etc/cni/net.d/10-ptp.conflist": ptp, "etc/containerd/config.toml": "[plugins.\"io.containerd.cri.v1.runtime\".cni]\nbin_dirs = [\"/elsewhere\"]\n"}},
		{"no JSON", "is no JSON", map[string]string{"etc/cni/net.d/10-ptp.conflist": "{", "etc/cni/net.d/20-ptp.conflist": ptp}},
		{"a folder of that name", "there is no file", map[string]string{"etc/cni/net.d/10-ptp.conflist/x": ""}},
	} {
		test.files[kubeletDocument], test.files[kubeconfigFile] = "{}", "{}"
		p := lying(t, test.files)
		for _, program := range []string{"ptp", "host-local"} {
			_ = os.Chmod(p.host("/opt/cni/bin/"+program), 0o755)
		}
		f := cniConf(t.Context(), p)
		if (f.Status == Failed) != (test.want != "") || !strings.Contains(f.Summary, test.want) {
			t.Errorf("%s: %s: %s", test.name, f.Status, f.Summary)
		}
	}
}

func TestMemoryReserved(t *testing.T) {
	for threshold, want := range map[string]Status{"10%": OK, "60%": Failed, "100Mi": OK} {
		p := lying(t, map[string]string{"proc/meminfo": "MemTotal: 1048576 kB\n", kubeletDocument: `{"kubeReserved": {"memory": "500Mi"}, "evictionHard": {"memory.available": "` + threshold + `"}}`})
		if f := memoryReserved(t.Context(), p); f.Status != want {
			t.Errorf("%s: %s: %s", threshold, f.Status, f.Summary)
		}
	}
}

func TestForwarding(t *testing.T) {
	for value, want := range map[string]Status{"0": Warning, "1": Skipped} {
		p := lying(t, map[string]string{"proc/sys/net/ipv4/ip_forward": value + "\n", kubeletDocument: "{}", kubeconfigFile: "{}"})
		if f := kernelSettings(t.Context(), p); f.Status != want {
			t.Errorf("%s: %s: %s", value, f.Status, f.Summary)
		}
	}
}

// TestIMDSReach: what happened last is said, and what of EC2's may be behind it.
func TestIMDSReach(t *testing.T) {
	p := lying(t, nil)
	p.IMDSEndpoint = "http://127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	p = newPatient(ctx, p.Options)
	if f := imdsReach(t.Context(), p); f.Status != Failed || !strings.Contains(f.Summary, "connection refused") || !strings.Contains(f.Remedy, "HttpEndpoint") || !strings.Contains(f.Remedy, "iptables") {
		t.Errorf("%+v", f)
	}
}

// TestCRISocket: it is the socket that kubelet is told that has to be there.
func TestCRISocket(t *testing.T) {
	for endpoint, want := range map[string][2]string{
		"unix:///run/dockershim.sock":            {"the socket /run/dockershim.sock is missing", "set containerRuntimeEndpoint"},
		"unix:///run/containerd/wrong.sock":      {"the socket /run/containerd/wrong.sock is missing", "set containerRuntimeEndpoint"},
		"unix:///run/containerd/containerd.sock": {"the socket /run/containerd/containerd.sock is missing", "systemctl restart containerd"},
		"unix:///refuses.sock":                   {"does not take connections on /refuses.sock", "set containerRuntimeEndpoint"},
	} {
		p := lying(t, map[string]string{kubeletDocument: `{"containerRuntimeEndpoint": "` + endpoint + `"}`, "refuses.sock": ""})
		if f := criSocket(t.Context(), p); f.Status != Failed || !strings.Contains(f.Summary, want[0]) || !strings.Contains(f.Remedy, want[1]) {
			t.Errorf("%s: %+v", endpoint, f)
		}
	}
	p := lying(t, map[string]string{kubeletDocument: "{}", extraArgs: "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--container-runtime-endpoint=npipe:////./pipe/x'\n"})
	if f := criSocket(t.Context(), p); f.Status != Skipped {
		t.Errorf("%+v", f)
	}
}
