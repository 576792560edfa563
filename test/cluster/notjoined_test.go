package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// TestNotJoined is what can stand between a healthy kubelet and the cluster. For
// each, nodeadm ends with 6, names that cause, and says what to do.
func TestNotJoined(t *testing.T) {
	machine.Require(t)
	t.Parallel() // most of it is waiting
	c := StartControlPlane(t)
	ctx := within(t, 8*time.Minute)
	c.MapRole(ctx, Role, byName)
	n := c.StartNode(NodeOptions{Kubelet: "1.36"})
	n.WaitBooted(ctx)
	n.Import(ctx, "602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:3.5")
	n.WriteFile("/etc/kubernetes/joins.yaml", machine.File{Content: c.document()})
	// Something that listens and is no API server.
	n.WriteFile("/etc/systemd/system/other.service", machine.File{Content: "[Service]\nExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 8080\n"})
	n.MustRun(ctx, "systemctl", "daemon-reload")
	n.MustRun(ctx, "systemctl", "start", "other.service")

	none := func() {}
	other := newAuthority(t).PEM
	for _, test := range []struct {
		name          string
		endpoint      string
		ca            string
		flags         string // for kubelet
		breaks, mends func()
		cause         []string
		remedy        []string
		doctor        string // which check names the cause, without user data to compare with
	}{
		// The first: later ones find a node that has joined in between.
		{"a kubelet that does not register", Endpoint, c.CA, "--register-node=false", none, none,
			[]string{"kubelet has not registered the node " + n.Name()}, []string{"journalctl -u kubelet.service"}, "node-registered"},
		{"a CA of another cluster", Endpoint, other, "", none, none,
			[]string{"not signed by the"}, []string{"describe-cluster", "certificateAuthority"}, "tls-ca"},
		{"an endpoint that does not exist", "https://ffff.gr7.eu-west-1.eks.amazonaws.com", c.CA, "",
			func() { n.answerNXDOMAIN(ctx) }, none,
			[]string{"ffff.gr7.eu-west-1.eks.amazonaws.com", "does not exist"}, []string{"endpoint"}, "endpoint-resolves"},
		{"an endpoint where nobody listens", "https://" + Address + ":6443", c.CA, "", none, none,
			[]string{Address + ":6443", "refused"}, []string{"endpoint"}, "tcp-443"},
		{"an endpoint behind a firewall", Endpoint, c.CA, "",
			func() {
				c.MustRun(ctx, "iptables", "-I", "INPUT", "-i", "vpc", "-p", "tcp", "--dport", "443", "-j", "DROP")
			},
			func() {
				c.MustRun(ctx, "iptables", "-D", "INPUT", "-i", "vpc", "-p", "tcp", "--dport", "443", "-j", "DROP")
			},
			[]string{"does not answer"}, []string{"security group", "443"}, "tcp-443"},
		{"an endpoint that is something else", "https://127.0.0.1:8080", c.CA, "", none, none,
			[]string{"127.0.0.1:8080", "TLS"}, []string{"endpoint"}, "tls-ca"},
		{"a role that nobody mapped", Endpoint, c.CA, "",
			func() { c.MapRole(ctx, "SomebodyElse", byName) },
			func() { c.MapRole(ctx, Role, byName) },
			[]string{"401", "arn:aws:iam::111111111111:role/" + Role}, []string{"aws eks create-access-entry --cluster-name ironman-2022 --principal-arn arn:aws:iam::111111111111:role/" + Role, "rolearn: arn:aws:iam::111111111111:role/" + Role}, "api-auth"},
		{"a name that is not the instance's", Endpoint, c.CA, "--hostname-override=blue-node", none, none,
			[]string{"system:node:" + n.Name(), "blue-node"}, []string{"--hostname-override"}, "name-agrees"},
		{"an access entry for names of another kind", Endpoint, c.CA, "",
			func() { c.MapRole(ctx, Role, "system:node:{{SessionName}}") },
			func() { c.MapRole(ctx, Role, byName) },
			[]string{"system:node:" + n.World.Instance.ID, n.Name()}, []string{"EC2PrivateDNSName"}, "name-agrees"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.breaks()
			defer test.mends()
			n.control.waitMapping(ctx)
			document := strings.NewReplacer(Endpoint, test.endpoint, base64Of(c.CA), base64Of(test.ca)).Replace(c.document())
			if test.flags != "" {
				document = strings.Replace(document, "flags: [", `flags: ["`+test.flags+`", `, 1)
			}
			n.WriteFile("/etc/kubernetes/breaks.yaml", machine.File{Content: document})
			start := time.Now()
			out := n.Run(ctx, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/breaks.yaml", "--wait", "joined", "--timeout", "10s")
			took := time.Since(start)
			if out.ExitCode != 6 {
				t.Errorf("exit code %d, want 6", out.ExitCode)
			}
			said := last(out.Stderr)
			for _, want := range slices.Concat(test.cause, test.remedy) {
				if !strings.Contains(said, want) {
					t.Errorf("nodeadm does not say %q", want)
				}
			}
			if d := n.LastRun().Diagnosis; d == nil || d.Cause != test.doctor {
				t.Errorf("the doctor says %+v, want %s", d, test.doctor)
			}
			// Then the doctor looks, which waits 5 s where nothing comes back.
			if took > 20*time.Second {
				t.Errorf("nodeadm took %v with a timeout of 10 s", took)
			}
			if t.Failed() {
				t.Logf("after %v:\n%s", took, out.Stderr)
			}
			fmt.Printf("kubelet does not join: %-42s %s\n", test.name+":", strings.SplitN(said, "\n", 2)[0])
		})
	}

	t.Run("and joins once nothing is wrong", func(t *testing.T) {
		out := n.Run(ctx, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/joins.yaml", "--wait", "joined", "--timeout", "60s")
		if out.ExitCode != 0 || !strings.Contains(out.Stderr, "joined as "+n.Name()) {
			t.Fatalf("exit code %d:\n%s", out.ExitCode, out.Stderr)
		}
		if o, exists := n.Object(ctx); !exists || o.Status.NodeInfo.BootID != n.BootID(ctx) {
			t.Errorf("nodeadm says that the node joined, and the API server knows %+v", o)
		}
	})
	t.Run("and not by what an earlier kubelet said", func(t *testing.T) {
		// The Node object is of this boot and Ready, and this kubelet gets no token.
		out := n.Run(ctx, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/joins.yaml", "--credential-plugin", "aws", "--wait", "joined", "--timeout", "10s")
		if said := last(out.Stderr); out.ExitCode != 6 || !strings.Contains(said, "has not heard from the kubelet that was started at") {
			t.Errorf("exit code %d:\n%s", out.ExitCode, out.Stderr)
		}
		n.MustRun(ctx, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/joins.yaml", "--wait", "joined", "--timeout", "60s")
	})
	t.Run("nor by where the node's own way to AWS leads", func(t *testing.T) {
		elsewhere := []string{"env", "AWS_ENDPOINT_URL=http://169.254.169.254", "AWS_ACCESS_KEY_ID=AKIASOMEBODYELSE", "AWS_SECRET_ACCESS_KEY=x"}
		out := n.Run(ctx, append(elsewhere, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/joins.yaml", "--wait", "joined", "--timeout", "30s")...)
		if out.ExitCode != 0 {
			t.Errorf("exit code %d:\n%s", out.ExitCode, out.Stderr)
		}
		if out := n.Run(ctx, append(elsewhere, "nodeadm", "doctor")...); out.ExitCode != 0 {
			t.Errorf("the doctor's exit code %d:\n%s", out.ExitCode, out.Stdout)
		}
	})
	t.Run("or when the cause goes while nodeadm waits", func(t *testing.T) {
		c.MapRole(ctx, "SomebodyElse", byName)
		c.Delete(ctx, nodePath(n.Name()))
		n.MustRun(ctx, "systemctl", "stop", "kubelet.service")
		done := make(chan machine.Result, 1)
		go func() {
			done <- n.Run(ctx, "nodeadm", "init", "--config-source", "file:///etc/kubernetes/joins.yaml", "--wait", "joined", "--timeout", "90s")
		}()
		time.Sleep(8 * time.Second)
		select {
		case out := <-done:
			t.Fatalf("nodeadm did not wait: exit code %d:\n%s", out.ExitCode, out.Stderr)
		default:
		}
		c.MapRole(ctx, Role, byName)
		if out := <-done; out.ExitCode != 0 || !strings.Contains(out.Stderr, "401") {
			t.Errorf("exit code %d:\n%s", out.ExitCode, out.Stderr)
		}
	})
}

// last is the error at the end of what nodeadm says.
func last(stderr string) string {
	if at := strings.LastIndex(stderr, "error:"); at >= 0 {
		return stderr[at:]
	}
	return stderr
}

// waitMapping gives the authenticator time to see a change of aws-auth, and the
// API server to forget what it knew of a token.
func (c *ControlPlane) waitMapping(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(1500 * time.Millisecond):
	}
}

// answerNXDOMAIN gives the node a name server that knows no name.
func (n *Node) answerNXDOMAIN(ctx context.Context) {
	n.writeNXDOMAIN(ctx)
	n.MustRun(ctx, "systemctl", "start", "nxdomain.service")
}

// writeNXDOMAIN installs nxdomain.service.
func (n *Node) writeNXDOMAIN(ctx context.Context) {
	n.WriteFile("/usr/local/lib/nxdomain.py", machine.File{Content: `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
while True:
    q, who = s.recvfrom(4096)
    s.sendto(q[:2] + b"\x81\x83" + q[4:6] + b"\0\0\0\0\0\0" + q[12:], who)
`})
	n.WriteFile("/etc/systemd/system/nxdomain.service", machine.File{Content: "[Service]\nExecStart=/usr/bin/python3 /usr/local/lib/nxdomain.py\n"})
	n.MustRun(ctx, "systemctl", "daemon-reload")
}
