package plan

import (
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// kubelet is told the image that containerd is told, whoever names it.
func TestInfraContainerImage(t *testing.T) {
	const v2, v3 = "[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'mine:1'\n", "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'mine:1'\n"
	for _, test := range []struct{ name, containerd, user, template, want string }{
		{"nodeadm's own", "1.7.27", "", "", "/eks/pause:3.5"},
		{"the user's, containerd 1", "1.7.27", v2, "", "mine:1"},
		{"the user's, containerd 2", "2.1.4", v3, "", "mine:1"},
		{"the user's, older names on containerd 2", "2.1.4", v2, "", "mine:1"},
		{"a file of the user's", "2.1.4", "", "version = 2\n" + v2, "mine:1"},
		{"a file that says nothing of it", "2.1.4", "", "version = 2\n", "/eks/pause:3.5"},
	} {
		c, f := node(t, 30)
		f.Host.Containerd, c.Containerd.Config = test.containerd, test.user
		if test.template != "" {
			f.Host.ContainerdTemplate = &facts.Document{Path: "/x", Data: []byte(test.template)}
		}
		p, err := Build(c, f, Options{})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		_, given, _ := strings.Cut(file(t, p, layout.KubeletArgs), "--pod-infra-container-image=")
		if given, _, _ = strings.Cut(given, " "); !strings.HasSuffix(given, test.want) {
			t.Errorf("%s: kubelet is told %q, want %q", test.name, given, test.want)
		}
	}
}
