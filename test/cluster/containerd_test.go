package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/test/cases"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// containerds are the versions that are built besides Debian's, by minor; see
// containerd/add.sh.
var containerds = map[string]string{"1.7": "1.7.35", "2.1": "2.1.9", "2.4": "2.4.2"}

// BuildContainerd builds containerd of a minor version.
func BuildContainerd(t testing.TB, minor string) string {
	t.Helper()
	path := "github.com/containerd/containerd"
	if !strings.HasPrefix(minor, "1.") {
		path += "/v2"
	}
	return machine.BuildPinned(t, "test/cluster/containerd/"+minor, path+"/cmd/containerd", "-X "+path+"/version.Version="+containerds[minor])
}

const (
	containerdConfig = "/etc/containerd/config.toml"
	baseRuntimeSpec  = "/etc/containerd/base-runtime-spec.json"
)

// TestContainerdAccepts has every case of test/cases planned for each containerd
// there is, and read by it: `config dump` shows what it made of the file. It
// passes over a field that it does not know, some versions without a word, so
// each value that was planned must be where that version reads it.
func TestContainerdAccepts(t *testing.T) {
	programs := map[string]machine.File{}
	for minor := range containerds {
		programs["/opt/containerd-"+minor] = machine.File{Source: BuildContainerd(t, minor)}
	}
	m := machine.Boot(t, machine.Options{Files: programs})
	ctx := within(t, 5*time.Minute)
	m.WaitBooted(ctx)
	m.MustRun(ctx, "systemctl", "stop", "containerd.service")
	commands := map[string]string{strings.Fields(m.MustRun(ctx, "containerd", "--version"))[2]: "containerd"}
	for minor, version := range containerds {
		commands[version] = "/opt/containerd-" + minor
	}
	worlds, err := filepath.Glob("../cases/*/world.yaml")
	if err != nil || len(worlds) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, version := range slices.Sorted(maps.Keys(commands)) {
		read := 0
		for _, world := range worlds {
			dir := filepath.Dir(world)
			t.Run(version+"/"+filepath.Base(dir), func(t *testing.T) {
				root, c := t.TempDir(), cases.Open(t, dir)
				c.Containerd, _, _ = strings.Cut(version, "~") // Debian's own ending
				c.Image(t, root)
				if _, err := c.Bootstrap(root); fault.CodeOf(err) == fault.Usage && strings.Contains(err.Error(), "it is of version 3, for containerd 2") {
					return // the case is of containerd 2
				} else if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(filepath.Join(root, containerdConfig))
				if os.IsNotExist(err) {
					return // the case is of dockerd
				}
				if err != nil {
					t.Fatal(err)
				}
				m.WriteFile(containerdConfig, machine.File{Content: string(text)})
				spec := filepath.Join(root, baseRuntimeSpec)
				if _, err := os.Stat(spec); err == nil {
					m.WriteFile(baseRuntimeSpec, machine.File{Source: spec})
				}
				r := m.Run(ctx, commands[version], "--config", containerdConfig, "config", "dump")
				if r.ExitCode != 0 {
					t.Fatalf("containerd %s does not take what was planned for it:\n%s\n%s", version, r.Stderr, text)
				}
				read++
				for line := range strings.Lines(r.Stderr) {
					if !strings.Contains(line, "Configuration migrated from version") {
						t.Errorf("containerd %s complains: %s", version, line)
					}
				}
				var planned, dumped map[string]any
				if _, err := toml.Decode(string(text), &planned); err != nil {
					t.Fatal(err)
				}
				if _, err := toml.Decode(r.Stdout, &dumped); err != nil {
					t.Fatalf("%v\n%s", err, r.Stdout)
				}
				for _, lost := range lost(planned, dumped) {
					t.Errorf("containerd %s: %s", version, lost)
				}
				if slices.Contains(serving, filepath.Base(dir)) {
					if refused, found := refused(t, m, commands[version]); len(refused) > 0 || found == 0 {
						t.Errorf("containerd %s, of %d plugins, does without %q:\n%s", version, found, refused, m.Journal("containerd-here.service"))
					}
				}
			})
		}
		if read < 10 {
			t.Errorf("containerd %s has read %d configurations", version, read)
		}
	}
}

// serving are the cases that differ in what containerd looks at when it starts.
var serving = []string{"accelerator-neuron", "fast-image-pull", "gpu-nvidia", "nodeconfig-containerd-and-oci", "nodeconfig-minimal", "selinux"}

// refused are the plugins that kubelet needs and that containerd, started with
// the configuration that stands on the machine, does without: each looks at its
// own fields only then. found is how many of them there are in all.
func refused(t *testing.T, m *machine.Machine, command string) (refused []string, found int) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	m.MustRun(ctx, "systemd-run", "--quiet", "--unit=containerd-here", "--service-type=notify", "-p", "Delegate=yes", command, "--config", containerdConfig)
	defer m.MustRun(ctx, "systemctl", "stop", "containerd-here.service")
	for line := range strings.Lines(m.MustRun(ctx, "ctr", "plugins", "ls")) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0]+" "+words[1] != "io.containerd.grpc.v1 cri" && words[0]+" "+words[1] != "io.containerd.snapshotter.v1 soci" && words[0] != "io.containerd.cri.v1" {
			continue
		}
		found++
		if words[len(words)-1] != "ok" {
			refused = append(refused, strings.Join(words, " "))
		}
	}
	return refused, found
}

// TestContainerdRefuses makes sure that what nodeadm refuses to write is what
// containerd would do without kubelet for.
func TestContainerdRefuses(t *testing.T) {
	programs := map[string]machine.File{containerdConfig: {Content: "version = 2\n[plugins.\"" + cri + "\".registry]\nconfig_path = \"/etc/containerd/certs.d\"\n" +
		"[plugins.\"" + cri + "\".registry.mirrors.\"docker.io\"]\nendpoint = [\"https://mirror.example.com\"]\n"}}
	for minor := range containerds {
		programs["/opt/containerd-"+minor] = machine.File{Source: BuildContainerd(t, minor)}
	}
	m := machine.Boot(t, machine.Options{Files: programs})
	ctx := within(t, time.Minute)
	m.WaitBooted(ctx)
	m.MustRun(ctx, "systemctl", "stop", "containerd.service")
	for _, command := range append(slices.Sorted(maps.Keys(programs)), "containerd") {
		if command == containerdConfig {
			continue
		}
		if refused, _ := refused(t, m, command); len(refused) == 0 {
			t.Errorf("%s takes mirrors in both places", command)
		}
	}
}

// TestContainerdLoses makes sure that TestContainerdAccepts would notice a field
// that containerd does not have.
func TestContainerdLoses(t *testing.T) {
	dumped := map[string]any{"version": int64(2), "plugins": map[string]any{cri: map[string]any{"sandbox_image": "a", "registry": map[string]any{"config_path": "/x"}}}}
	for text, want := range map[string]int{
		`sandbox_image = "a"`: 0, `sandbox_image = "b"`: 1, `sandboximage = "a"`: 1, "registry = {config_path = '/x'}": 0, "registry = {config_path = '/y', mirrors = {a = 'b'}}": 2,
	} {
		var planned map[string]any
		if _, err := toml.Decode("version = 2\n[plugins.\""+cri+"\"]\n"+text, &planned); err != nil {
			t.Fatal(err)
		}
		if found := lost(planned, dumped); len(found) != want {
			t.Errorf("%s: %q", text, found)
		}
	}
}

// Plugins that kubelet talks to, by the name that version 2 has for both, and by
// the names of versions 3 and 4.
const (
	cri        = "io.containerd.grpc.v1.cri"
	criImages  = "io.containerd.cri.v1.images"
	criRuntime = "io.containerd.cri.v1.runtime"
)

// lost are the values of a configuration that are not where the containerd that
// wrote the dump reads them.
func lost(planned, dumped map[string]any) (lost []string) {
	version, _ := dumped["version"].(int64)
	var walk func(value any, path []string)
	walk = func(value any, path []string) {
		if table, isTable := value.(map[string]any); isTable {
			for key, value := range table {
				walk(value, append(slices.Clone(path), key))
			}
			return
		}
		place, want := path, value
		switch path[0] {
		case "version", "imports": // of the file, not of what is in it
			return
		case "grpc":
			if version >= 4 {
				place = append([]string{"plugins", "io.containerd.server.v1.grpc"}, path[1:]...)
			}
		case "plugins":
			if version >= 3 {
				place, want = migrated(path, value)
			}
		}
		got := any(dumped)
		for _, key := range place {
			table, _ := got.(map[string]any)
			got = table[key]
		}
		if !reflect.DeepEqual(got, want) {
			lost = append(lost, fmt.Sprintf("%q of %q is %v in its dump and was planned as %v", place, path, got, want))
		}
	}
	walk(planned, nil)
	slices.Sort(lost)
	return lost
}

// migrated is where containerd 2 reads a field of a plugin of version 2.
func migrated(path []string, value any) ([]string, any) {
	if path[1] != cri {
		return path, value
	}
	rest := path[2:]
	field := rest[len(rest)-1]
	switch {
	case field == "sandbox_image":
		return []string{"plugins", criImages, "pinned_images", "sandbox"}, value
	case rest[0] == "registry", slices.Contains([]string{"max_concurrent_downloads", "image_pull_progress_timeout"}, field):
		return append([]string{"plugins", criImages}, rest...), value
	case len(rest) == 2 && slices.Contains([]string{"discard_unpacked_layers", "snapshotter", "disable_snapshot_annotations"}, field):
		return []string{"plugins", criImages, field}, value
	case field == "bin_dir":
		return []string{"plugins", criRuntime, "cni", "bin_dirs"}, []any{value}
	}
	return append([]string{"plugins", criRuntime}, rest...), value
}
