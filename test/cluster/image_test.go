package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/test/machine"
	"github.com/eks-bootstrap/nodeadm/test/release"
)

// TestImage is the life of an image: the package is installed and nodeadm makes
// an image of the machine; an instance boots from it and joins; and so does
// another one, of a snapshot of the first, on which nothing of it is left.
func TestImage(t *testing.T) {
	machine.Require(t)
	c := StartControlPlane(t)
	ctx := within(t, 4*time.Minute)
	c.MapRole(ctx, Role, byName)
	n := c.StartNode(NodeOptions{Kubelet: "1.36", Bare: true, Files: map[string]machine.File{
		"/var/nodeadm.deb": {Source: release.Deb(t)},
		// A container has no kernel of its own.
		"/lib/modules/6.1.0/modules.dep":     {Content: "kernel/fs/overlayfs/overlay.ko:\nkernel/net/netfilter/nf_conntrack.ko:\n"},
		"/lib/modules/6.1.0/modules.builtin": {Content: "kernel/drivers/net/veth.ko\n"},
	}})
	n.WaitBooted(ctx)
	n.MustRun(ctx, "dpkg", "-i", "/var/nodeadm.deb")
	n.MustRun(ctx, "nodeadm", "image", "install")
	if again := n.MustRun(ctx, "nodeadm", "image", "install"); !strings.Contains(again, "nothing to do") {
		t.Errorf("a second image install: %s", again)
	}
	if check := n.Run(ctx, "nodeadm", "image", "check"); check.ExitCode != 0 {
		t.Errorf("image check: exit code %d\n%s", check.ExitCode, check.Stdout)
	}
	if out := n.Run(ctx, "systemd-analyze", "verify", "nodeadm.service"); out.ExitCode != 0 || out.Stdout+out.Stderr != "" {
		t.Errorf("systemd-analyze verify: %+v", out)
	}
	n.MustRun(ctx, "nodeadm", "image", "clean")
	n.PowerOff()

	instances := []simulator.Instance{n.World.Instance, n.World.Instance}
	for i := range instances {
		in := &instances[i]
		in.ID, in.LocalIPv4 = fmt.Sprintf("i-0%d23456789abcdef0", i+1), fmt.Sprintf("192.168.18.23%d", i+1)
		in.Hostname = strings.ReplaceAll("ip-"+in.LocalIPv4, ".", "-") + ".eu-west-1.compute.internal"
		in.PrivateDNSName, in.MAC = in.Hostname, fmt.Sprintf("0a:00:c0:a8:12:e%d", i+1)
	}
	for i, in := range instances {
		n.Become(ctx, func(w *simulator.World) { w.Instance, w.UserData = in, c.document() })
		joined, o := n.WaitReady(ctx)
		if up := n.WaitBooted(ctx); up.State != "running" {
			t.Errorf("boot %s, failed: %v", up.State, up.Failed)
		}
		joined.Of(n.LastRun())
		fmt.Printf("kubelet %s, instance %d of one image: %s\n", Version, i+1, joined)
		checkNode(t, n, o, Version, 17)
		if strings.Contains(n.Journal(""), "ordering cycle") {
			t.Error("systemd found an ordering cycle")
		}
		if i == 0 {
			n.MustRun(ctx, "nodeadm", "image", "clean")
			n.PowerOff()
		} else {
			n.wantNoTrace(ctx, t, instances[0])
		}
	}
}

// wantNoTrace looks for an instance in every file of the disk.
func (n *Node) wantNoTrace(ctx context.Context, t *testing.T, in simulator.Instance) {
	t.Helper()
	name, _, _ := strings.Cut(in.Hostname, ".")
	for _, word := range []string{in.ID, name, in.LocalIPv4, in.MAC} {
		out := n.Run(ctx, "grep", "--recursive", "--files-with-matches", "--fixed-strings", "--binary-files=text", "--devices=skip", "--word-regexp", word, "/etc", "/var", "/root", "/home", "/opt", "/srv", "/usr/local")
		if out.ExitCode == 0 {
			t.Errorf("%s of the instance before is still in:\n%s", word, out.Stdout)
		} else if out.ExitCode != 1 {
			t.Errorf("grep: exit code %d: %s", out.ExitCode, out.Stderr)
		}
	}
}
