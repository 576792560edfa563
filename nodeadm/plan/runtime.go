package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// dockershimGone is the first minor of Kubernetes without dockershim.
const dockershimGone = 24

// The plugins that kubelet talks to: one in version 2 of containerd's
// configuration, two from version 3 on.
const (
	criV2      = "io.containerd.grpc.v1.cri"
	criImages  = "io.containerd.cri.v1.images"
	criRuntime = "io.containerd.cri.v1.runtime"
)

// chooseRuntime follows bootstrap.sh: dockerd is the default while kubelet
// still has dockershim, and containerd the only choice afterwards.
func (b *builder) chooseRuntime() (string, error) {
	minor, asked := b.facts.Host.Kubelet.Minor, b.config.Runtime
	if minor < dockershimGone {
		if asked != "" {
			return asked, nil
		}
		return "dockerd", nil
	}
	if asked == "dockerd" {
		return "", fault.New(fault.Usage, "leave it out, or write --container-runtime containerd",
			"--container-runtime dockerd: kubelet %s runs pods with containerd only; dockerd ended with kubelet 1.23", b.facts.Host.Kubelet)
	}
	var errs []error
	if b.config.Docker.Config != "" {
		errs = append(errs, fault.New(fault.Usage, "leave it out", "--docker-config-json: kubelet %s does not use dockerd", b.facts.Host.Kubelet))
	}
	if b.config.Docker.Bridge {
		errs = append(errs, fault.New(fault.Usage, "leave it out", "--enable-docker-bridge: kubelet %s does not use dockerd", b.facts.Host.Kubelet))
	}
	return "containerd", errors.Join(errs...)
}

func (b *builder) runtime() error {
	if b.runtimeName == "dockerd" {
		if len(b.config.Containerd.RegistryMirrors) > 0 {
			b.warn("spec.containerd.registryMirrors has no effect with dockerd")
		}
		return b.dockerd()
	}
	if b.config.Docker.Config != "" || b.config.Docker.Bridge {
		b.warn("--docker-config-json and --enable-docker-bridge have no effect with containerd")
	}
	return b.containerd()
}

func (b *builder) containerd() error {
	if unknown := b.facts.Host.ContainerdUnknown; unknown != nil {
		if !b.facts.Host.Partial {
			return unknown
		}
		b.warn(unknown.Error() + "; its configuration is written in version 2, which containerd 1.x and 2.x both read")
	}
	text, err := b.containerdText()
	if err != nil {
		return err
	}
	if template := b.facts.Host.ContainerdTemplate; template != nil {
		text = strings.ReplaceAll(string(template.Data), "SANDBOX_IMAGE", b.sandboxImage)
		if err := checkContainerdTemplate(template.Path, text, b.facts.Host.Containerd); err != nil {
			return err
		}
	}
	if h := b.facts.Host; h.NVIDIA && h.NVIDIARuntime == "" {
		b.warn("an NVIDIA device is present and /usr/bin/nvidia-container-runtime is not installed: pods will not see the GPU")
	}
	if b.config.Containerd.SELinux && !b.facts.Host.SELinux {
		b.warn("spec.containerd.selinux has no effect: this machine runs without SELinux")
	}
	if err := errors.Join(b.baseRuntimeSpec(), b.registryMirrors(), b.soci()); err != nil {
		return err
	}
	b.unit(Unit{Name: layout.ContainerdService, Enabled: true,
		Files: []string{layout.ContainerdConfig, layout.BaseRuntimeSpec, environmentFile(layout.ContainerdService)}})
	return b.containerdConfig(text)
}

// containerdConfig plans config.toml: what nodeadm and the user want, over what
// the image has set.
func (b *builder) containerdConfig(text string) error {
	wanted, err := decodeTOML([]byte(text))
	if err != nil {
		return err
	}
	intents := []ownership.Intent{{Manager: Agent, Fields: wanted}}
	if user := b.config.Containerd.Config; user != "" && b.facts.Host.ContainerdTemplate == nil {
		fields, err := decodeTOML([]byte(user))
		if err != nil {
			return err
		}
		intents = append(intents, ownership.Intent{Manager: managerOf(b.config.Source("spec", "containerd", "config")), Fields: fields})
	}
	w := wish{path: layout.ContainerdConfig, mode: 0o644, text: text, intents: intents}
	if live := b.facts.Host.Live[w.path]; live != nil {
		// Names of plugins differ between versions, so that their fields cannot
		// be put side by side.
		first := b.facts.Host.Before[w.path] == nil
		image, err := decodeTOML(live)
		switch {
		case err != nil && first:
			b.warn(fmt.Sprintf("the image's %s is replaced: %v", w.path, err))
		case err == nil && first && image["version"] != wanted["version"]:
			b.warn(fmt.Sprintf("the image's %s is replaced: it is written in version %v and the node's in version %v", w.path, cmp.Or[any](image["version"], 1), wanted["version"]))
		case err == nil:
			w.keepsImage = true
			if disabled := image["disabled_plugins"]; disabled != nil {
				w.intents[0].Fields["disabled_plugins"] = withoutCRI(disabled)
			}
		}
	}
	document, err := b.want(w)
	if err != nil {
		return err
	}
	b.infraImage = cmp.Or(sandboxOf(document), b.infraImage)
	return b.checkRegistries(w.path, document)
}

// withoutCRI takes the plugin that kubelet talks to out of a list: Docker's
// package of containerd comes with it switched off.
func withoutCRI(disabled any) []any {
	list, _ := disabled.([]any)
	return slices.DeleteFunc(slices.Clone(list), func(name any) bool {
		return name == "cri" || name == criV2 || name == criRuntime || name == criImages
	})
}

// checkContainerdTemplate refuses what containerd could not start with.
func checkContainerdTemplate(path, text, containerd string) error {
	var doc struct {
		Version int `toml:"version"`
	}
	if _, err := toml.Decode(text, &doc); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			// The parser counts a line break into the line after it.
			before := text[:min(parse.Position.Start, len(text))]
			line, column := strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")
			return fault.New(fault.Usage, "mend the TOML at that place", "%s:%d:%d: %s", path, line, column, parse.Message)
		}
		return fault.New(fault.Usage, "", "%s: %w", path, err)
	}
	if doc.Version >= 3 && major(containerd) == 1 {
		return fault.New(fault.Usage, "write it in version 2", "%s: it is written in version %d, which containerd %s does not read", path, doc.Version, containerd)
	}
	return nil
}

// containerdText is containerd's configuration with the user's merged over it:
// in version 3 for containerd 2.x, else in version 2, which every containerd
// reads. A user's own that is not of version 3 makes all of it version 2.
func (b *builder) containerdText() (string, error) {
	user, h := b.config.Containerd.Config, b.facts.Host
	fields, err := decodeTOML([]byte(user))
	if err != nil {
		return "", err
	}
	version, err := config.ContainerdVersion(fields)
	if err != nil {
		return "", fmt.Errorf("spec.containerd.config: %w", err)
	}
	plugins, _ := fields["plugins"].(map[string]any)
	if newer := plugins[criImages] != nil || plugins[criRuntime] != nil; (newer || version == 3) && major(h.Containerd) < 2 {
		return "", fault.New(fault.Usage, fmt.Sprintf("write it in version 2, with the plugin's name %q", criV2),
			"spec.containerd.config: it is of version 3, for containerd 2, and the node has %s", cmp.Or(h.Containerd, "an unknown containerd"))
	}
	text := b.containerdDefaults(major(h.Containerd) >= 2 && (user == "" || version == 3))
	if user == "" {
		return text, nil
	}
	text, err = config.MergeTOML(text, user)
	if err != nil {
		return "", fault.New(fault.Usage, "mend the TOML", "spec.containerd.config: %w", err)
	}
	return text, nil
}

func (b *builder) containerdDefaults(v3 bool) string {
	var t tomlText
	h, baseSpec := b.facts.Host, b.config.Containerd.BaseRuntimeSpec != nil
	snapshotter := func() {
		if b.fastImagePull {
			t.line("snapshotter = %q", "soci")
			t.line("disable_snapshot_annotations = false") // they tell it which image a layer is of
		}
	}
	images, runtime, version := `plugins."`+criV2+`"`, `plugins."`+criV2+`"`, 2
	if v3 {
		images, runtime, version = `plugins."`+criImages+`"`, `plugins."`+criRuntime+`"`, 3
	}
	t.line("version = %d", version)
	t.line("root = %q", "/var/lib/containerd")
	t.line("state = %q", "/run/containerd")
	t.line("imports = [%q]", layout.ContainerdConfigDir+"/*.toml")
	t.table("grpc")
	t.line("address = %q", strings.TrimPrefix(layout.ContainerdSocket, "unix://"))

	runtimes, defaultRuntime := ociRuntimes(h)
	// Container Device Interface: a switch from containerd 1.7 on, always on from
	// 2.4 on, and wanted by dynamic resource allocation in kubelet 1.32 and newer.
	cdi := h.Kubelet.Minor >= 32
	hasCDISwitch := (v3 || strings.HasPrefix(h.Containerd, "1.7.")) && !atLeast(h.Containerd, 2, 4)
	// Not wherever the host has it: pods that use the host's files, such as the
	// VPC CNI's, are then refused what their manifests do not ask for.
	selinux := b.config.Containerd.SELinux && h.SELinux
	if v3 {
		t.table(images)
		t.line("discard_unpacked_layers = true")
		snapshotter()
		t.table(images + ".pinned_images")
		t.line("sandbox = %q", b.sandboxImage)
		t.table(images + ".registry")
		t.line("config_path = %q", registriesPath)
		if hasCDISwitch || selinux {
			t.table(runtime)
		}
		if hasCDISwitch {
			t.line("enable_cdi = %t", cdi)
		}
		if selinux {
			t.line("enable_selinux = true")
		}
		t.table(runtime + ".containerd")
		t.line("default_runtime_name = %q", defaultRuntime)
	} else {
		t.table(runtime)
		t.line("sandbox_image = %q", b.sandboxImage)
		if hasCDISwitch {
			t.line("enable_cdi = %t", cdi)
		}
		if selinux {
			t.line("enable_selinux = true")
		}
		t.table(runtime + ".registry")
		t.line("config_path = %q", registriesPath)
		t.table(runtime + ".containerd")
		t.line("default_runtime_name = %q", defaultRuntime)
		t.line("discard_unpacked_layers = true")
		snapshotter()
	}
	for _, r := range runtimes {
		t.table(runtime + ".containerd.runtimes." + r.name)
		t.line("runtime_type = %q", "io.containerd.runc.v2")
		if baseSpec {
			t.line("base_runtime_spec = %q", layout.BaseRuntimeSpec)
		}
		t.table(runtime + ".containerd.runtimes." + r.name + ".options")
		t.line("SystemdCgroup = true")
		if r.binary != "" {
			t.line("BinaryName = %q", r.binary)
		}
	}
	t.table(runtime + ".cni")
	// Containerd 2.4 reads the older name in version 2 only.
	if v3 && atLeast(h.Containerd, 2, 1) {
		t.line("bin_dirs = [%q]", "/opt/cni/bin")
	} else {
		t.line("bin_dir = %q", "/opt/cni/bin")
	}
	t.line("conf_dir = %q", "/etc/cni/net.d")
	if b.fastImagePull {
		t.table("proxy_plugins.soci")
		t.line("type = %q", "snapshot")
		t.line("address = %q", layout.SOCISocket)
	}
	return t.String()
}

// ociRuntime is a program that makes containers, by the name that a
// RuntimeClass refers to. Without a path containerd finds runc itself.
type ociRuntime struct{ name, binary string }

// ociRuntimes are those that the machine has the hardware for. NVIDIA's is the
// default: pods that ask for a GPU name no class. Neuron's only serves those
// that do name it, since the device plugin gives pods their chips without it.
func ociRuntimes(h facts.Host) (all []ociRuntime, defaultName string) {
	all, defaultName = []ociRuntime{{name: "runc"}}, "runc"
	if h.NVIDIA && h.NVIDIARuntime != "" {
		all, defaultName = append(all, ociRuntime{"nvidia", h.NVIDIARuntime}), "nvidia"
	}
	if h.Neuron && h.NeuronRuntime != "" {
		all = append(all, ociRuntime{"neuron", h.NeuronRuntime})
	}
	return all, defaultName
}

type tomlText struct{ strings.Builder }

func (t *tomlText) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }
func (t *tomlText) table(name string)               { t.line("\n[%s]", name) }

// dockerd plans Docker for a kubelet that still has dockershim.
func (b *builder) dockerd() error {
	settings := map[string]any{
		"bridge":                   "none",
		"log-driver":               "json-file",
		"log-opts":                 map[string]any{"max-size": "10m", "max-file": "10"},
		"live-restore":             true,
		"max-concurrent-downloads": 10,
		"default-ulimits":          map[string]any{"memlock": map[string]any{"Hard": -1, "Name": "memlock", "Soft": -1}},
	}
	if given := b.config.Docker.Config; given != "" {
		settings = nil
		if err := json.Unmarshal([]byte(given), &settings); err != nil {
			return fault.New(fault.Usage, "write a JSON object", "--docker-config-json: %w", err)
		}
	}
	if b.config.Docker.Bridge {
		settings["bridge"], settings["live-restore"] = "docker0", false
	}
	text, err := indentJSON(settings)
	if err != nil {
		return err
	}
	b.unit(Unit{Name: layout.DockerService, Enabled: true, Files: []string{layout.DockerConfig}})
	return b.file(layout.DockerConfig, text)
}

// major is the first number of a version, 0 where there is none.
func major(version string) int {
	n, _ := numbers(version)
	return n
}

// atLeast tells whether a version is a minor one or a later one.
func atLeast(version string, major, minor int) bool {
	first, second := numbers(version)
	return first > major || first == major && second >= minor
}

// numbers are the first two of a version, 0 where there are none.
func numbers(version string) (major, minor int) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, _ = strconv.Atoi(first) // 0 where it is none
	minor, _ = strconv.Atoi(second)
	return major, minor
}
