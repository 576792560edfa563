package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// diagnosis is what nodeadm doctor answers, as far as tests look at it.
type diagnosis struct {
	Verdict, Cause string
	Seconds        float64
	Results        []struct {
		Check, Status, Summary, Remedy string
		Evidence                       []string
		Consequence                    bool
	}
}

func (d diagnosis) in(status string) (checks []string) {
	for _, r := range d.Results {
		if r.Status == status {
			checks = append(checks, r.Check)
		}
	}
	return checks
}

// examine runs the doctor on a node, with variables of the environment.
func (n *Node) examine(ctx context.Context, environment ...string) (d diagnosis) {
	t := n.control.t
	t.Helper()
	argv := slices.Concat([]string{"env", "AWS_ENDPOINT_URL=http://169.254.169.254"}, environment, []string{"nodeadm", "doctor", "-o", "json"})
	out := n.Run(ctx, argv...)
	if err := json.Unmarshal([]byte(out.Stdout), &d); err != nil {
		t.Fatalf("%v: exit code %d: %s%s", err, out.ExitCode, out.Stdout, out.Stderr)
	}
	want := 0
	switch {
	case d.Cause != "":
		want = 2
	case len(d.in("warning")) > 0:
		want = 1
	}
	if out.ExitCode != want {
		t.Errorf("exit code %d, want %d for %q", out.ExitCode, want, d.Verdict)
	}
	return d
}

func (n *Node) sh(ctx context.Context, script string) {
	n.control.t.Helper()
	if script != "" {
		n.MustRun(ctx, "bash", "-euc", script)
	}
}

// simulate changes what EC2 says of the instance from now on.
func (n *Node) simulate(ctx context.Context, change func(*simulator.World)) {
	t := n.control.t
	t.Helper()
	world := n.World
	if change != nil {
		change(&world)
	}
	document, err := world.Document()
	if err != nil {
		t.Fatal(err)
	}
	n.WriteFile("/etc/nodeadm-test/world.yaml", machine.File{Content: string(document), Mode: 0o600})
	n.sh(ctx, "systemctl reset-failed "+machine.SimulatorUnit+" || true; systemctl restart "+machine.SimulatorUnit)
}

// disease is something that is wrong with a node, and the check that has to say
// so.
type disease struct {
	name string
	want string
	says string // in the verdict
	// breaks and mends are run on the node; world changes what EC2 says; either is
	// what the control plane does.
	breaks, mends string
	world         func(*simulator.World)
	control       func() (mend func())
}

const (
	kubeletJSON = "/etc/kubernetes/kubelet/kubelet-config.json"
	kubeconfig  = "/var/lib/kubelet/kubeconfig"
	extraArgs   = "/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"
	tomlFile    = "/etc/containerd/config.toml"
	caFile      = "/etc/kubernetes/pki/ca.crt"
	restart     = "systemctl daemon-reload; systemctl reset-failed kubelet || true; systemctl restart kubelet\n"
	renew       = "systemctl reset-failed containerd || true; systemctl restart containerd; systemctl reset-failed kubelet || true; systemctl restart kubelet\n"
)

// dropIn starts kubelet anew with a drop-in of a hand's, as far as it starts, and
// undrop takes that away.
func dropIn(text string) string {
	return "printf '" + text + "\\n' >/etc/systemd/system/kubelet.service.d/99-hand.conf; systemctl daemon-reload; systemctl reset-failed kubelet || true; systemctl restart --no-block kubelet; sleep 1\n"
}

const undrop = "rm /etc/systemd/system/kubelet.service.d/99-hand.conf; systemctl stop kubelet; " + restart

// edited changes a file by sed while it lasts, and keeps the file's time, so
// that it is the change that counts.
func edited(file, sed, then string) (breaks, mends string) {
	return "cp -a " + file + " /root/whole; sed -i '" + sed + "' " + file + "; if cmp -s " + file + " /root/whole; then echo nothing was changed; exit 1; fi\n" + then,
		"cp -a /root/whole " + file + "\n" + then
}

func edit(name, want, says, file, sed, then string) disease {
	breaks, mends := edited(file, sed, then)
	return disease{name: name, want: want, says: says, breaks: breaks, mends: mends}
}

func metadataFault(path string, f simulator.Fault) func(*simulator.World) {
	return func(w *simulator.World) {
		f.Match = "/latest/" + path
		w.Faults = append(slices.Clone(w.Faults), f)
	}
}

// TestDoctor breaks a node that is well, in every way that can be done to a
// machine, and wants the doctor to name each as the cause, and nothing when it is
// mended.
func TestDoctor(t *testing.T) {
	machine.Require(t)
	t.Parallel() // most of it is waiting
	c := StartControlPlane(t)
	ctx := within(t, 15*time.Minute)
	c.MapRole(ctx, Role, byName)
	n := c.StartNode(NodeOptions{Kubelet: "1.36", UserData: c.document(), Files: unitFiles(t), World: func(w *simulator.World) {
		cluster := *w.Cluster
		cluster.Endpoint, cluster.CertificateAuthority = Endpoint, base64Of(c.CA)
		w.Cluster = &cluster
	}})
	n.WaitReady(ctx)
	n.WaitBooted(ctx)
	n.importSandbox(ctx)
	const role = "meta-data/iam/security-credentials/" + Role
	other := newAuthority(t)
	server := c.authority.server(Host)
	for path, content := range map[string]string{
		"/root/other.crt": other.PEM, "/root/front.pem": server.cert + server.key, "/root/front.py": front,
		"/etc/systemd/system/other.service": "[Service]\nExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 8080\n",
		"/etc/systemd/system/mute.service":  "[Service]\nExecStart=/usr/bin/python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 8444)); time.sleep(9999)'\n",
		"/etc/systemd/system/front.service": "[Service]\nExecStart=/usr/bin/python3 /root/front.py\n",
	} {
		n.WriteFile(path, machine.File{Content: content})
	}
	n.sh(ctx, "systemctl daemon-reload; systemctl start other front mute")

	healthy := n.examine(ctx)
	if healthy.Cause != "" || len(healthy.in("warning")) > 0 {
		t.Fatalf("of a node that is well the doctor says %q: %+v", healthy.Verdict, healthy.Results)
	}
	if healthy.Seconds > 5 {
		t.Errorf("it took %.1f s to find that nothing is wrong", healthy.Seconds)
	}
	fmt.Printf("doctor: %-44s %s, in %.1f s\n", "a node that is well", healthy.Verdict, healthy.Seconds)

	firewall := func(target string) disease {
		return disease{want: "tcp-443", control: func() func() {
			c.MustRun(ctx, "sh", "-c", "iptables -I INPUT -i vpc -p tcp --dport 443 -j "+target)
			return func() { c.MustRun(ctx, "sh", "-c", "iptables -D INPUT -i vpc -p tcp --dport 443 -j "+target) }
		}}
	}
	named := func(name, says string, d disease) disease {
		d.name, d.says = name, says
		return d
	}
	mapped := func(role, username string) func() func() {
		return func() func() {
			c.MapRole(ctx, role, username)
			c.waitMapping(ctx)
			return func() {
				c.MapRole(ctx, Role, byName)
				c.waitMapping(ctx)
			}
		}
	}
	at := func(endpoint string) string { return "s#server: .*#server: " + endpoint + "#" }

	diseases := []disease{
		// The machine.
		{name: "a directory that is read-only", want: "filesystem-writable", says: "/var/log is read-only",
			breaks: "mount --bind /var/log /var/log; mount -o remount,bind,ro /var/log", mends: "umount /var/log"},
		{name: "a full disk", want: "disk-space", says: "/var/log is full",
			breaks: "mount -t tmpfs -o size=1m tmpfs /var/log; head -c 900000 /dev/zero >/var/log/big", mends: "umount /var/log"},
		{name: "a disk fuller than kubelet allows", want: "disk-space", says: "kubelet evicts pods",
			breaks: "cp -a " + kubeletJSON + " /root/whole; sed -i 's/\"nodefs.available\": \"[^\"]*\"/\"nodefs.available\": \"100%\"/' " + kubeletJSON + "; if cmp -s /root/whole " + kubeletJSON + "; then exit 1; fi",
			mends:  "cp -a /root/whole " + kubeletJSON},
		{name: "no inodes", want: "disk-inodes", says: "no inodes",
			breaks: "mount -t tmpfs -o nr_inodes=20 tmpfs /var/log", mends: "umount /var/log"},
		{name: "swap", want: "swap", says: "swap is on",
			breaks: "printf 'Filename Type Size Used Priority\\n/swapfile file 1048572 0 -2\\n' >/root/swaps; mount --bind /root/swaps /proc/swaps; " + restart, mends: "umount /proc/swaps; " + restart},
		edit("more memory reserved than there is", "memory-reserved", "are reserved", kubeletJSON, `s/"memory": "[0-9]*Mi"/"memory": "9000Gi"/`, restart),
		{name: "kubelet that cannot be executed", want: "exec-allowed", says: "/usr/bin/kubelet", breaks: "chmod -x /usr/bin/kubelet", mends: "chmod +x /usr/bin/kubelet"},
		{name: "no runc", want: "exec-allowed", says: "runc", breaks: "mv $(command -v runc) /root/runc", mends: "mv /root/runc /usr/sbin/runc"},

		// Instance metadata.
		{name: "instance metadata gone", want: "imds-reach", says: "does not answer", breaks: "systemctl stop " + machine.SimulatorUnit, mends: "systemctl start " + machine.SimulatorUnit},
		{name: "instance metadata switched off", want: "imds-reach", says: "403", world: metadataFault("api/token", simulator.Fault{Status: 403})},
		{name: "instance metadata that hangs, as behind a hop limit", want: "imds-reach", says: "does not answer", world: metadataFault("api/token", simulator.Fault{Hang: true})},
		edit("an endpoint of another region", "region-partition", "us-east-1", kubeconfig, at("https://0123456789ABCDEF0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com"), ""),
		{name: "no role", want: "instance-profile", says: "no instance profile", world: func(w *simulator.World) { w.Instance.Role = "" }},
		{name: "a role that EC2 may not assume", want: "creds-fresh", says: "AssumeRoleUnauthorizedAccess",
			world: metadataFault(role, simulator.Fault{Body: `{"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role"}`})},
		{name: "credentials that have ended", want: "creds-fresh", says: "ended",
			world: metadataFault(role, simulator.Fault{Body: `{"Code": "Success", "AccessKeyId": "ASIASIMULATED0000000", "SecretAccessKey": "x", "Token": "x", "LastUpdated": "2020-01-01T00:00:00Z", "Expiration": "2020-01-01T06:00:00Z"}`})},

		// The network.
		{name: "a certificate authority that is none", want: "ca-valid", says: "is none", breaks: "cp -a " + caFile + " /root/whole; echo broken >" + caFile, mends: "cp -a /root/whole " + caFile},
		{name: "no default route", want: "default-route", says: "no default route", breaks: "ip route del default; ip route add unreachable " + Address, mends: "ip route del unreachable " + Address + "; ip route add default via " + Address},
		{name: "no name server", want: "resolv-sane", says: "no name server", breaks: "cp /etc/resolv.conf /root/resolv; : >/etc/resolv.conf; cp /etc/hosts /root/hosts; echo 127.0.0.1 localhost >/etc/hosts", mends: "cp /root/resolv /etc/resolv.conf; cp /root/hosts /etc/hosts"},
		{name: "an API server's name that does not exist", want: "endpoint-resolves", says: "does not exist",
			breaks: "cp /etc/hosts /root/hosts; echo 127.0.0.1 localhost >/etc/hosts; systemctl start nxdomain", mends: "cp /root/hosts /etc/hosts; systemctl stop nxdomain"},
		{name: "a name server that does not answer", want: "endpoint-resolves", says: "no name server answers",
			breaks: "cp /etc/hosts /root/hosts; echo 127.0.0.1 localhost >/etc/hosts", mends: "cp /root/hosts /etc/hosts"},
		{name: "a proxy that refuses", want: "proxy-works", says: "proxy",
			breaks: "printf '[Service]\\nEnvironment=HTTPS_PROXY=http://127.0.0.1:8080 NO_PROXY=169.254.169.254\\n' >/etc/systemd/system/kubelet.service.d/99-proxy.conf; " + restart, mends: "rm /etc/systemd/system/kubelet.service.d/99-proxy.conf; " + restart},
		{name: "a proxy that says nothing", want: "proxy-works", says: "does not answer CONNECT",
			breaks: "printf '[Service]\\nEnvironment=HTTPS_PROXY=http://127.0.0.1:8444 NO_PROXY=169.254.169.254\\n' >/etc/systemd/system/kubelet.service.d/99-proxy.conf; " + restart, mends: "rm /etc/systemd/system/kubelet.service.d/99-proxy.conf; " + restart},
		named("a firewall that drops", "does not answer", firewall("DROP")),
		named("a firewall that rejects", "refused", firewall("REJECT --reject-with tcp-reset")),
		named("a firewall that says unreachable", "no route", firewall("REJECT --reject-with icmp-host-unreachable")),
		{name: "a route that forbids", want: "tcp-443", says: "permission denied", breaks: "ip route add prohibit " + Address, mends: "ip route del prohibit " + Address},
		edit("an API server that says nothing", "tls-ca", "says nothing after that", kubeconfig, at("https://127.0.0.1:8444"), ""),
		edit("a port where nobody listens", "tcp-443", "refused", kubeconfig, at("https://"+Host+":6445"), ""),
		{name: "a clock that is ten minutes off", want: "clock-skew", says: "behind the API server",
			breaks: "echo 600 >/root/skew; echo '127.0.0.1 localhost " + Host + "' >/root/here; cp /etc/hosts /root/hosts; cp /root/here /etc/hosts; sed -i.whole 's#server: .*#server: https://" + Host + ":8443#' " + kubeconfig,
			mends:  "cp /root/hosts /etc/hosts; mv " + kubeconfig + ".whole " + kubeconfig},
		{name: "a CA of another cluster", want: "tls-ca", says: "not signed by", breaks: "cp -a " + caFile + " /root/whole; cp /root/other.crt " + caFile, mends: "cp -a /root/whole " + caFile},
		edit("an endpoint that does not speak TLS", "tls-ca", "does not speak TLS", kubeconfig, at("https://127.0.0.1:8080"), ""),
		edit("an endpoint with another's certificate", "tls-ca", "another name", kubeconfig, at("https://wrong.example:443"), "echo '"+Address+" wrong.example' >>/etc/hosts\n"),
		{name: "an endpoint that is no API server", want: "api-anon", says: "no Kubernetes API server",
			breaks: "echo html >/root/skew; echo '127.0.0.1 localhost " + Host + "' >/root/here; cp /etc/hosts /root/hosts; cp /root/here /etc/hosts; sed -i.whole 's#server: .*#server: https://" + Host + ":8443#' " + kubeconfig,
			mends:  "cp /root/hosts /etc/hosts; mv " + kubeconfig + ".whole " + kubeconfig},

		// The container runtime.
		edit("a containerd configuration that is no TOML", "containerd-toml", "line", tomlFile, "$a this is = = broken", ""),
		{name: "containerd masked", want: "unit-containerd", says: "masked", breaks: "systemctl stop containerd; ln -s /dev/null /run/systemd/system/containerd.service; mkdir -p /root/u; systemctl mask --runtime containerd || { mv /etc/systemd/system/containerd.service /root/u/; systemctl mask containerd; }; systemctl daemon-reload",
			mends: "rm -f /run/systemd/system/containerd.service; systemctl unmask containerd || true; [ ! -e /root/u/containerd.service ] || mv /root/u/containerd.service /etc/systemd/system/; systemctl daemon-reload; " + renew},
		{name: "containerd stopped", want: "unit-containerd", says: "was not started", breaks: "systemctl stop containerd", mends: renew},
		edit("containerd without its CRI plugin", "cri-socket", "switched off", tomlFile, `/^disabled_plugins/d; 1i disabled_plugins = ["io.containerd.grpc.v1.cri"]`, "systemctl reset-failed containerd || true; systemctl restart containerd\n"),
		edit("a socket where no container runtime is", "cri-socket", "the socket /run/dockershim.sock is missing", kubeletJSON, `s#"containerRuntimeEndpoint": "[^"]*"#"containerRuntimeEndpoint": "unix:///run/dockershim.sock"#`, restart),
		edit("different cgroup drivers", "cgroup-driver", "by cgroupfs", tomlFile, "s/SystemdCgroup = true/SystemdCgroup = false/", ""),
		{name: "no image credential provider", want: "credential-provider", says: "missing", breaks: "d=$(ls -d /etc/eks/image-credential-provider); f=$(ls $d | grep -v config.json | head -1); [ -n \"$f\" ] && mv $d/$f /root/provider-$f || sed -i.whole 's/\"name\": \"[^\"]*\"/\"name\": \"gone\"/' $d/config.json",
			mends: "d=/etc/eks/image-credential-provider; for f in /root/provider-*; do [ ! -e $f ] || mv $f $d/${f#/root/provider-}; done; [ ! -e $d/config.json.whole ] || mv $d/config.json.whole $d/config.json"},
		{name: "a sandbox image that cannot be had", want: "pause-image", says: "its registry does not answer",
			breaks: "ctr -n k8s.io images export /root/pause.tar $(ctr -n k8s.io images ls -q | grep pause); ctr -n k8s.io images rm $(ctr -n k8s.io images ls -q | grep pause)", mends: "ctr -n k8s.io images import /root/pause.tar"},

		// kubelet.
		edit("a kubelet configuration that is no JSON", "kubelet-config-parse", "kubelet-config.json", kubeletJSON, "1s/{/[/", ""),
		edit("a kubeconfig without a current context", "kubelet-config-parse", "has no current-context", kubeconfig, "/^current-context/d", ""),
		{name: "no kubeconfig", want: "kubelet-config-parse", says: "kubeconfig is missing", breaks: "mv " + kubeconfig + " /root/kubeconfig", mends: "mv /root/kubeconfig " + kubeconfig},
		edit("another instance's files", "ran-from-ami", "another instance", kubeletJSON, `s#"providerID": "[^"]*"#"providerID": "aws:///eu-west-1a/i-00000000000000000"#`, ""),
		{name: "a port of kubelet's that is taken", want: "ports-free", says: "10250", breaks: "systemctl stop kubelet; systemd-run --unit=taken --collect /usr/bin/python3 -m http.server 10250; for i in $(seq 50); do ss -ltn | grep -q :10250 && break; sleep 0.1; done", mends: "systemctl stop taken; " + restart},
		{name: "kubelet masked", want: "unit-kubelet", says: "masked", breaks: "systemctl stop kubelet; mv /etc/systemd/system/kubelet.service /root/; systemctl mask kubelet", mends: "systemctl unmask kubelet; mv /root/kubelet.service /etc/systemd/system/; " + restart},
		{name: "kubelet stopped", want: "unit-kubelet", says: "was not started", breaks: "systemctl stop kubelet", mends: restart},
		edit("a flag that kubelet does not know", "unit-kubelet", "unknown flag: --no-such-flag", extraArgs, "s/--node-labels/--no-such-flag --node-labels/", restart+"sleep 2\n"),
		func() disease {
			d := edit("a flag that was mended, and then no program", "unit-kubelet", "the program of ExecStart= cannot be run: /usr/bin/nowhere", extraArgs, "s/--node-labels/--no-such-flag --node-labels/", restart+"sleep 2\n")
			d.breaks += "cp -a /root/whole " + extraArgs + "\n" + dropIn("[Service]\\nExecStart=\\nExecStart=/usr/bin/nowhere")
			d.mends = undrop
			return d
		}(),
		{name: "a condition that is not met", want: "unit-kubelet", says: "ConditionPathExists=/nowhere", breaks: "systemctl stop kubelet; " + dropIn("[Unit]\\nConditionPathExists=/nowhere"), mends: undrop},
		{name: "a command before kubelet that fails", want: "unit-kubelet", says: "ExecStartPre=/bin/false ended with status 1", breaks: dropIn("[Service]\\nExecStartPre=/bin/false"), mends: undrop},
		{name: "a command before kubelet that hangs", want: "unit-kubelet", says: "ExecStartPre=/bin/sleep 100 does not end", breaks: dropIn("[Service]\\nExecStartPre=/bin/sleep 100") + "sleep 4\n", mends: undrop},
		{name: "a unit that kubelet needs and that fails", want: "unit-kubelet", says: "needed.service, which it needs (Requires=), is failed",
			breaks: "printf '[Service]\\nType=oneshot\\nExecStart=/bin/false\\n' >/etc/systemd/system/needed.service; systemctl stop kubelet; " + dropIn("[Unit]\\nRequires=needed.service\\nAfter=needed.service"), mends: "rm /etc/systemd/system/needed.service; " + undrop},
		{name: "a CPU manager that had another policy before", want: "unit-kubelet", says: "could not restore state from checkpoint",
			breaks: "systemctl stop kubelet; cp -a /var/lib/kubelet/cpu_manager_state /root/whole; sed -i 's/\"policyName\":\"none\"/\"policyName\":\"static\"/' /var/lib/kubelet/cpu_manager_state; " + restart + "sleep 3\n", mends: "rm -f /var/lib/kubelet/cpu_manager_state; " + restart},
		edit("a field of the wrong kind", "unit-kubelet", "not understood", kubeletJSON, `s/"serializeImagePulls": [a-z]*/"serializeImagePulls": "no"/`, restart+"sleep 2\n"),
		edit("a feature gate that kubelet does not know", "unit-kubelet", "feature gate", kubeletJSON, `s/"featureGates": {/"featureGates": {"NoSuchGate": true,/`, restart+"sleep 2\n"),
		edit("a label that kubelet may not give itself", "unit-kubelet", "label", extraArgs, "s/--node-labels=/--node-labels=node-role.kubernetes.io\\/master=,/", restart+"sleep 2\n"),
		{name: "kubelet that hangs", want: "kubelet-health", says: "does not answer", breaks: "systemctl kill --signal=STOP kubelet", mends: "systemctl kill --signal=CONT kubelet"},
		{name: "a kubelet too new", want: "version-skew", says: "newer", breaks: "printf '#!/bin/sh\\necho Kubernetes v1.37.0\\n' >/root/kubelet; chmod +x /root/kubelet; mount --bind /root/kubelet /usr/bin/kubelet", mends: "umount /usr/bin/kubelet"},
		{name: "a kubelet too old", want: "version-skew", says: "older", breaks: "printf '#!/bin/sh\\necho Kubernetes v1.30.0\\n' >/root/kubelet; chmod +x /root/kubelet; mount --bind /root/kubelet /usr/bin/kubelet", mends: "umount /usr/bin/kubelet"},

		// The cluster.
		edit("a credential plugin that is missing", "token-mint", "no token", kubeconfig, "s#command: .*#command: /usr/bin/gone#", ""),
		{name: "a stale token", want: "token-mint", says: "stale", breaks: "sed -i.whole 's#command: .*#command: /root/stale#' " + kubeconfig + `
date=$(date -u -d '1 hour ago' +%Y%m%dT%H%M%SZ)
token=k8s-aws-v1.$(printf 'https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&X-Amz-Date='$date | base64 -w0 | tr -d =)
printf '#!/bin/sh\necho '"'"'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{},"status":{"token":"'$token'"}}'"'"'\n' >/root/stale; chmod +x /root/stale`,
			mends: "mv " + kubeconfig + ".whole " + kubeconfig},
		edit("the name of another cluster", "cluster-described", "no cluster", kubeconfig, "s/ironman-2022/ironman-2023/", ""),
		{name: "a role that nobody mapped", want: "api-auth", says: "does not know the role arn:aws:iam::111111111111:role/" + Role, control: mapped("SomebodyElse", byName)},
		{name: "a role that is mapped to a person", want: "identity", says: "alice", control: mapped(Role, "alice")},
		{name: "a role that is mapped to names of another kind", want: "name-agrees", says: "system:node:i-", control: mapped(Role, "system:node:{{SessionName}}")},
		edit("a name that a hand gave", "name-agrees", "kubelet registers as other", extraArgs, "s/--node-labels/--hostname-override=other --node-labels/", restart),
		{name: "a Node object of another instance", want: "node-exists-elsewhere", says: "i-00000000000000001", mends: restart, control: func() func() {
			c.Delete(ctx, nodePath(n.Name()))
			c.Apply(ctx, nodePath(n.Name()), map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name()}, "spec": map[string]any{"providerID": "aws:///eu-west-1a/i-00000000000000001"}})
			return func() { c.Delete(ctx, nodePath(n.Name())) }
		}},
		func() disease {
			d := edit("a kubelet that does not register", "node-registered", "has not registered", extraArgs, "s/--node-labels/--register-node=false --node-labels/", restart)
			d.control = func() func() { c.Delete(ctx, nodePath(n.Name())); return func() {} }
			return d
		}(),
		{name: "a policy that refuses nodes", want: "node-registered", says: "denied request: no nodes today", mends: restart, control: func() func() {
			const policies, bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/no-nodes", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/no-nodes"
			object := func(kind string, spec map[string]any) map[string]any {
				return map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "no-nodes"}, "spec": spec}
			}
			c.Apply(ctx, policies, object("ValidatingAdmissionPolicy", map[string]any{
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"nodes"}}}},
				"validations":      []any{map[string]any{"expression": "false", "message": "no nodes today"}},
			}))
			c.Apply(ctx, bindings, object("ValidatingAdmissionPolicyBinding", map[string]any{"policyName": "no-nodes", "validationActions": []string{"Deny"}}))
			time.Sleep(2 * time.Second) // until the API server goes by it
			c.Delete(ctx, nodePath(n.Name()))
			n.sh(ctx, restart)
			return func() {
				c.Delete(ctx, bindings)
				c.Delete(ctx, policies)
				time.Sleep(2 * time.Second)
			}
		}},
		{name: "a CNI plugin that is missing", want: "cni-conf", says: "the plugin ptp, and there is no such program in /opt/cni/bin", breaks: "mv /usr/lib/cni/ptp /root/", mends: "mv /root/ptp /usr/lib/cni/"},
		{name: "no network for pods", want: "cni-conf", says: "pods have no network", breaks: "mv /etc/cni/net.d /root/net.d; mkdir /etc/cni/net.d; sleep 31", mends: "rmdir /etc/cni/net.d; mv /root/net.d /etc/cni/net.d"},
	}
	n.writeNXDOMAIN(ctx)
	for _, disease := range diseases {
		t.Run(disease.name, func(t *testing.T) {
			mend := func() {}
			n.sh(ctx, disease.breaks)
			if disease.world != nil {
				n.simulate(ctx, disease.world)
			}
			if disease.control != nil {
				mend = disease.control()
			}
			d := n.examine(ctx)
			fmt.Printf("doctor: %-44s CAUSE %s\n", disease.name, firstLine(d.Verdict))
			if d.Cause != disease.want || !strings.Contains(d.Verdict, disease.says) {
				t.Errorf("the doctor says %q, want %s: …%s…\nfailed: %v", d.Verdict, disease.want, disease.says, d.in("failed"))
			}
			for _, r := range d.Results {
				if r.Check == d.Cause && r.Remedy == "" {
					t.Errorf("%s has no remedy", r.Check)
				}
				if r.Status == "failed" && r.Check != d.Cause && !r.Consequence {
					t.Errorf("%s is no consequence", r.Check)
				}
			}
			if d.Seconds > 20.5 {
				t.Errorf("it took %.1f s", d.Seconds)
			}
			mend()
			if disease.world != nil {
				n.simulate(ctx, nil)
			}
			n.sh(ctx, disease.mends)
			n.waitHealthy(ctx)
		})
	}

	for _, odd := range []struct{ name, warns, breaks, mends string }{
		{"a kubelet that was started only now", "", restart, ""},
		{"a kernel that forwards nothing yet", "kernel-settings", "echo 0 >/proc/sys/net/ipv4/ip_forward", "echo 1 >/proc/sys/net/ipv4/ip_forward"},
		{"swap that kubelet was told to bear", "", "printf 'Filename Type Size Used Priority\\n/swapfile file 1048572 0 -2\\n' >/root/swaps; mount --bind /root/swaps /proc/swaps; cp -a " + extraArgs + " /root/whole; sed -i 's/--node-labels/--fail-swap-on=false --node-labels/' " + extraArgs + "; " + restart,
			"umount /proc/swaps; cp -a /root/whole " + extraArgs + "; " + restart},
		{"swap that a drop-in lets it bear", "", "printf 'Filename Type Size Used Priority\\n/swapfile file 1048572 0 -2\\n' >/root/swaps; mount --bind /root/swaps /proc/swaps; mkdir -p /etc/kubelet.d; " +
			"printf 'apiVersion: kubelet.config.k8s.io/v1beta1\\nkind: KubeletConfiguration\\nfailSwapOn: false\\n' >/etc/kubelet.d/10-swap.conf; cp -a " + extraArgs + " /root/whole; sed -i 's#--node-labels#--config-dir=/etc/kubelet.d --node-labels#' " + extraArgs + "; " + restart,
			"umount /proc/swaps; cp -a /root/whole " + extraArgs + "; " + restart},
		{"swap that came on while kubelet runs", "swap", "sleep 6; printf 'Filename Type Size Used Priority\\n/swapfile file 1048572 0 -2\\n' >/root/swaps; mount --bind /root/swaps /proc/swaps", "umount /proc/swaps"},
		{"a certificate authority in the kubeconfig", "", "cp -a " + kubeconfig + " /root/whole; sed -i \"s#certificate-authority: .*#certificate-authority-data: $(base64 -w0 " + caFile + ")#\" " + kubeconfig + "; " + restart, "cp -a /root/whole " + kubeconfig + "; " + restart},
		{"another runtime beside runc", "", "cp -a " + tomlFile + " /root/whole; printf '\\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runsc]\\nruntime_type = \"io.containerd.runsc.v1\"\\n' >>" + tomlFile + "; " + renew, "cp -a /root/whole " + tomlFile + "; " + renew},
		{"a certificate authority with a comment", "", "cp -a " + caFile + " /root/whole; (echo '# of the cluster'; cat /root/whole; cat /root/whole) >" + caFile, "cp -a /root/whole " + caFile},
	} {
		t.Run("nor is anything wrong with "+odd.name, func(t *testing.T) {
			n.sh(ctx, odd.breaks)
			d := n.examine(ctx)
			fmt.Printf("doctor: %-44s %s\n", odd.name, firstLine(d.Verdict))
			if d.Cause != "" || odd.warns != "" && !slices.Contains(d.in("warning"), odd.warns) {
				t.Errorf("the doctor says %q", d.Verdict)
			}
			n.sh(ctx, odd.mends)
			n.waitHealthy(ctx)
		})
	}
	t.Run("and nothing of AWS's is needed", func(t *testing.T) {
		n.simulate(ctx, func(w *simulator.World) {
			w.Permissions.Deny = []string{"eks:DescribeCluster", "ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ecr:GetAuthorizationToken"}
		})
		d := n.examine(ctx)
		if d.Cause != "" || len(d.in("warning")) > 0 {
			t.Errorf("with all permissions denied the doctor says %q", d.Verdict)
		}
		for _, check := range []string{"cluster-described", "instance-tag"} {
			if !slices.Contains(d.in("skipped"), check) {
				t.Errorf("%s was not skipped: %+v", check, d.Results)
			}
		}
	})
}

// front is an HTTPS server that claims to be an API server of another time, or
// is none at all, as /root/skew says.
const front = `import http.server, ssl, time
class Front(http.server.BaseHTTPRequestHandler):
    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + int(self.mode() if self.mode() != "html" else 0))
    def mode(self):
        return open("/root/skew").read().strip()
    def do_GET(self):
        body, kind = (b"<html>", "text/html") if self.mode() == "html" else (b'{"gitVersion": "v1.36.3"}', "application/json")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/front.pem")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), Front)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
`

// waitHealthy waits until the doctor finds nothing wrong any more.
func (n *Node) waitHealthy(ctx context.Context) {
	t := n.control.t
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		d := n.examine(ctx)
		if d.Cause == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("once it is mended the doctor still says %q", d.Verdict)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}
