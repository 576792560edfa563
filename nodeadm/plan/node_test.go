package plan

import (
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// The name is the one that kubelet registers under.
func TestNodeName(t *testing.T) {
	const own, host = "ip-10-0-0-5.eu-west-1.compute.internal", "ip-10-0-0-5.example.com"
	for _, test := range []struct {
		minor     int
		args      string
		noName    bool // EC2's name was not asked for
		want      string
		wantNamed bool
	}{
		{34, "", false, own, false},
		{34, "--hostname-override=Blue", true, "blue", true},
		{34, "--hostname-override blue", true, "blue", true},
		{34, "--hostname-override=", true, host, true},
		{25, "", true, host, false},
		{25, "--hostname-override=blue", true, host, false},
		{25, "--hostname-override=blue --cloud-provider=external", true, "blue", true},
		{26, "--hostname-override=blue --cloud-provider=aws", true, host, false},
	} {
		c, f := node(t, test.minor, "--kubelet-extra-args", test.args)
		f.Instance.Hostname = host
		if test.noName {
			f.Instance.NodeName = ""
		}
		p, err := Build(c, f, Options{})
		if err != nil || p.Node.Name != test.want || p.Node.Named != test.wantNamed {
			t.Errorf("1.%d %q: %q, named %v, %v; want %q, %v", test.minor, test.args, p.Node.Name, p.Node.Named, err, test.want, test.wantNamed)
		}
	}
	c, f := node(t, 34)
	c.Kubelet.InstanceIDNodeName = true
	if p, err := Build(c, f, Options{}); err != nil || p.Node.Name != f.Instance.ID || !strings.Contains(file(t, p, "/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf"), "--hostname-override="+p.Node.Name) {
		t.Errorf("by instance id: %+v, %v", p.Node, err)
	}
}

func TestNode(t *testing.T) {
	c, f := node(t, 34)
	f.PrivateEndpoint = true
	p, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Node; n.Cluster != "c" || n.TokensFor != "c" || n.Endpoint != simulator.Default().Cluster.Endpoint || !strings.HasPrefix(string(n.CA), "-----BEGIN CERTIFICATE-----") || !n.Direct {
		t.Errorf("%+v", n)
	}

	// Tokens for a local cluster are made for its id.
	c, f = node(t, 30, "--enable-local-outpost", "true", "--cluster-id", "id-of-c")
	if p, err = Build(c, f, Options{}); err != nil || p.Node.Cluster != "c" || p.Node.TokensFor != "id-of-c" || p.Node.Direct {
		t.Errorf("%+v, %v", p.Node, err)
	}
}
