package plan

import (
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// containerd takes mirrors in hosts.toml or in its own configuration, and not
// in both places.
func TestRegistries(t *testing.T) {
	const (
		v2 = `[plugins."io.containerd.grpc.v1.cri".registry`
		v3 = `[plugins."io.containerd.cri.v1.images".registry`
	)
	for _, test := range []struct {
		name, containerd, user, image, template string
		err, warning                            string
	}{
		{name: "neither"},
		{name: "in version 2", user: v2 + `.mirrors."docker.io"]` + "\nendpoint = ['https://m']", err: "has registry.mirrors beside config_path"},
		{name: "in version 3", containerd: "2.1.4", user: v3 + `.mirrors."docker.io"]` + "\nendpoint = ['https://m']", err: "has registry.mirrors beside config_path"},
		{name: "certificates", user: v2 + `.configs."a:5000".tls]` + "\ninsecure_skip_verify = true", err: `has registry.configs."a:5000".tls beside config_path`},
		{name: "passwords", user: v2 + `.configs."a:5000".auth]` + "\nusername = 'x'"},
		{name: "instead", user: v2 + "]\nconfig_path = ''\n" + v2 + `.mirrors."docker.io"]` + "\nendpoint = ['https://m']", warning: "registryMirrors has no effect"},
		{name: "the image's", image: "version = 2\n" + v2 + `.mirrors."docker.io"]` + "\nendpoint = ['https://m']", err: layout.ContainerdConfig + ": "},
		{name: "an administrator's", template: "version = 2\n" + v2 + `.mirrors."docker.io"]` + "\nendpoint = ['https://m']", warning: "registryMirrors has no effect"},
		{name: "an administrator's path", template: "version = 2\n" + v2 + "]\nconfig_path = '" + layout.RegistriesDir + "'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, 34)
			if test.containerd != "" {
				f.Host.Containerd = test.containerd
			}
			c.Containerd.Config = test.user
			c.Containerd.RegistryMirrors = map[string][]string{"docker.io": {"https://a", "https://b/v2/hub"}}
			if test.image != "" {
				f.Host.Live = map[string][]byte{layout.ContainerdConfig: []byte(test.image)}
			}
			if test.template != "" {
				f.Host.ContainerdTemplate = &facts.Document{Path: "/x.toml", Data: []byte(test.template)}
			}
			p, err := Build(c, f, Options{})
			if err != nil || test.err != "" {
				if test.err == "" || err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if warnings := strings.Join(p.Warnings, "\n"); !strings.Contains(warnings, test.warning) || test.warning == "" && strings.Contains(warnings, "registryMirrors") {
				t.Errorf("warnings %q", warnings)
			}
			const want = "[host.\"https://a\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n[host.\"https://b/v2/hub\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\n"
			if got := file(t, p, layout.RegistriesDir+"/docker.io/hosts.toml"); got != want {
				t.Errorf("hosts.toml:\n%s", got)
			}
		})
	}
}
