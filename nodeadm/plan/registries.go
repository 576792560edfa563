package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// registriesPath is where containerd looks for what is said of each registry.
const registriesPath = layout.RegistriesDir + ":/etc/docker/certs.d"

// registryMirrors plans a hosts.toml for each registry that has mirrors.
// containerd reads them at each pull, so that nothing has to be restarted. The
// registry itself comes last without being named.
func (b *builder) registryMirrors() error {
	for _, registry := range slices.Sorted(maps.Keys(b.config.Containerd.RegistryMirrors)) {
		var t tomlText
		for i, mirror := range b.config.Containerd.RegistryMirrors[registry] {
			if i > 0 {
				t.line("")
			}
			t.line("[host.%q]", mirror)
			t.line(`capabilities = ["pull", "resolve"]`)
			// To any other path containerd adds /v2, where registries have their API.
			if strings.Contains(mirror, "/v2/") {
				t.line("override_path = true")
			}
		}
		if _, err := b.want(wish{path: registryFile(registry), mode: 0o644, text: t.String(), manager: managerOf(b.config.Source("spec", "containerd", "registryMirrors", registry))}); err != nil {
			return err
		}
	}
	return nil
}

func registryFile(registry string) string {
	return layout.RegistriesDir + "/" + registry + "/hosts.toml"
}

// checkRegistries refuses what would keep containerd from serving kubelet,
// whoever wrote it: the image, an administrator, or the user.
func (b *builder) checkRegistries(path string, document map[string]any) error {
	if field := config.RegistryConflict(document, ""); field != "" {
		if template := b.facts.Host.ContainerdTemplate; template != nil {
			path = template.Path
		}
		return fault.New(fault.Usage, "write mirrors as spec.containerd.registryMirrors, or hosts.toml below "+layout.RegistriesDir,
			"%s: it has %s beside config_path, and with both containerd does not serve kubelet", path, field)
	}
	plugins, _ := document["plugins"].(map[string]any)
	named := slices.ContainsFunc([]string{criV2, criImages}, func(name string) bool {
		plugin, _ := plugins[name].(map[string]any)
		registry, _ := plugin["registry"].(map[string]any)
		configPath, _ := registry["config_path"].(string)
		return slices.Contains(strings.Split(configPath, ":"), layout.RegistriesDir)
	})
	if !named && len(b.config.Containerd.RegistryMirrors) > 0 {
		b.warn("spec.containerd.registryMirrors has no effect: the registry.config_path of " + path + " does not name " + layout.RegistriesDir)
	}
	return nil
}
