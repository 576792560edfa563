package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// registriesPath is where containerd looks for what is said of each registry.
const registriesPath = layout.RegistriesDir + ":/etc/docker/certs.d"

// registryMirrors plans a hosts.toml for each registry that has mirrors.
// containerd reads them at each pull, so that nothing has to be restarted. The
// registry itself comes last without being named.
func (b *builder) registryMirrors() error {
	for _, registry := range slices.Sorted(maps.Keys(b.config.Containerd.RegistryMirrors)) {
		mirrors := b.config.Containerd.RegistryMirrors[registry]
		if len(mirrors) == 0 {
			continue
		}
		var t tomlText
		for i, mirror := range mirrors {
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

// checkRegistries refuses what would keep containerd from serving kubelet: it
// has an older way to name mirrors, and does not start that part of itself where
// both are used.
func (b *builder) checkRegistries(path string, document map[string]any) error {
	found := false
	plugins, _ := document["plugins"].(map[string]any)
	for _, name := range []string{criV2, criImages} {
		plugin, _ := plugins[name].(map[string]any)
		registry, _ := plugin["registry"].(map[string]any)
		configPath, _ := registry["config_path"].(string)
		if configPath == "" {
			continue
		}
		found = found || slices.Contains(strings.Split(configPath, ":"), layout.RegistriesDir)
		older := ""
		if mirrors, _ := registry["mirrors"].(map[string]any); len(mirrors) > 0 {
			older = "mirrors"
		}
		configs, _ := registry["configs"].(map[string]any)
		for _, host := range slices.Sorted(maps.Keys(configs)) {
			if config, _ := configs[host].(map[string]any); config["tls"] != nil {
				older = fmt.Sprintf("configs.%q.tls", host)
			}
		}
		if older != "" {
			return fault.New(fault.Usage, "write mirrors as spec.containerd.registryMirrors, or hosts.toml below "+layout.RegistriesDir+`; or, with spec.containerd.config, config_path = ""`,
				"%s: [plugins.%q.registry] has %s beside config_path, and with both containerd does not serve kubelet", path, name, older)
		}
	}
	if !found && len(b.config.Containerd.RegistryMirrors) > 0 {
		b.warn("spec.containerd.registryMirrors has no effect: the registry.config_path of " + path + " does not name " + layout.RegistriesDir)
	}
	return nil
}
