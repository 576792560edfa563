package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// fromDocuments is a configuration of NodeConfig documents: user data and one
// drop-in.
func fromDocuments(t *testing.T, userData, dropIn string) config.Config {
	t.Helper()
	document := func(spec string) string {
		return "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n" + spec
	}
	c := simulator.Default().Cluster
	cluster := "  cluster: {name: c, apiServerEndpoint: \"" + c.Endpoint + "\", certificateAuthority: " + c.CertificateAuthority + ", cidr: 10.100.0.0/16}\n"
	sources := []config.Source{{Name: "user data", Data: []byte(document(cluster + userData))}}
	if dropIn != "" {
		sources = append(sources, config.Source{Name: layout.DropInDir + "/10-team.yaml", Data: []byte(document(dropIn))})
	}
	_, wanted, err := config.Read(sources, config.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return wanted
}

// A field that a hand has changed since the last run is named, stays, and is
// taken over if that is forced; what nobody here sets is left alone.
func TestHandsOnFiles(t *testing.T) {
	const dropIn, unit = layout.KubeletExtraArgs, layout.KubeletUnit
	for _, test := range []struct {
		name      string
		path      string
		old, new  string // what the hand replaces, and with what
		conflicts string // as they are named, "" for none
		kept      string // what the file still has afterwards
		taken     string // and what it has if it is forced
	}{
		{"a number in kubelet's configuration", layout.KubeletConfig, `"maxPods": 29`, `"maxPods": 42`,
			"1 conflict: conflict with \"hand\" in " + layout.KubeletConfig + ":\n- .maxPods: 42, set by \"hand\", stays; \"nodeadm\" wants 29", `"maxPods": 42`, `"maxPods": 29`},
		{"the user's own field", layout.KubeletConfig, `"registryPullQPS": 7`, `"registryPullQPS": 70`,
			`.registryPullQPS: 70, set by "hand", stays; "user-data" wants 7`, `"registryPullQPS": 70`, `"registryPullQPS": 7`},
		{"a drop-in document's field", layout.KubeletConfig, `"registryBurst": 9`, `"registryBurst": 90`,
			`.registryBurst: 90, set by "hand", stays; "nodeadm.d/10-team.yaml" wants 9`, `"registryBurst": 90`, `"registryBurst": 9`},
		{"a field that is nobody's here", layout.KubeletConfig, `"maxPods": 29`, "\"maxPods\": 29,\n  \"podPidsLimit\": 100", "", `"podPidsLimit": 100`, `"podPidsLimit": 100`},
		{"containerd's configuration, with a comment", layout.ContainerdConfig, `default_runtime_name = "runc"`, "# by hand\ndefault_runtime_name = \"crun\"",
			`.plugins["io.containerd.grpc.v1.cri"].containerd.default_runtime_name: "crun", set by "hand"`, `# by hand`, `default_runtime_name = "runc"`},
		{"a flag", dropIn, "--max-pods=20", "--max-pods=21", `.Service.Environment.KUBELET_EXTRA_ARGS["--max-pods"]: "21", set by "hand", stays; "user-data" wants "20"`, "--max-pods=21", "--max-pods=20"},
		{"a flag that is nobody's here", dropIn, "--max-pods=20", "--max-pods=20 --v=4", "", "--v=4", "--v=4"},
		{"a directive that is nobody's here", dropIn, "[Service]", "[Unit]\nDescription=mine\n[Service]\nNice=5", "", "Nice=5", "Nice=5"},
		{"a flag that nodeadm works out", layout.KubeletArgs, "--node-ip=10.0.0.5", "--node-ip=10.0.0.6", `.Service.Environment.KUBELET_ARGS["--node-ip"]: "10.0.0.6"`, "--node-ip=10.0.0.6", "--node-ip=10.0.0.5"},
		{"the unit", unit, "RestartSec=5", "RestartSec=9", `.Service.RestartSec: "9", set by "hand", stays; "nodeadm" wants "5"`, "RestartSec=9", "RestartSec=5"},
		{"a specifier, which means nothing here", dropIn, "--max-pods=20", "--max-pods=20 --x=%i", "the whole file: it cannot be read field by field", "--x=%i", "--max-pods=20'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, f := node(t, 34)
			c := fromDocuments(t, "  kubelet:\n    flags: [--max-pods=20]\n    config: {registryPullQPS: 7}\n", "  kubelet: {config: {registryBurst: 9}}\n")
			if strings.Contains(test.old, "maxPods") {
				c = fromDocuments(t, "  kubelet: {config: {registryPullQPS: 7}}\n", "")
			}
			first, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			f = afterwards(f, first)
			if !strings.Contains(string(f.Host.Live[test.path]), test.old) {
				t.Fatalf("no %q in\n%s", test.old, f.Host.Live[test.path])
			}
			edited := strings.Replace(string(f.Host.Live[test.path]), test.old, test.new, 1)
			f.Host.Live[test.path] = []byte(edited)

			second, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			warnings := strings.Join(second.Warnings, "\n")
			if test.conflicts == "" && len(second.Conflicts) > 0 || !strings.Contains(warnings, test.conflicts) {
				t.Errorf("warnings %q, want %q", warnings, test.conflicts)
			}
			if diff := cmp.Diff(edited, file(t, second, test.path)); diff != "" {
				t.Errorf("the hand's file (-was +becomes):\n%s", diff)
			}
			// The run after that says so again, and changes nothing either.
			f = afterwards(f, second)
			third, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(edited, file(t, third, test.path)); diff != "" || !strings.Contains(strings.Join(third.Warnings, "\n"), test.conflicts) {
				t.Errorf("the third run: %q\n%s", third.Warnings, diff)
			}

			forced, err := Build(c, f, Options{ForceConflicts: true})
			if err != nil {
				t.Fatal(err)
			}
			if text := file(t, forced, test.path); !strings.Contains(text, test.taken) || test.taken != test.kept && strings.Contains(text, test.kept) {
				t.Errorf("forced:\n%s", text)
			}
			if test.conflicts == "" {
				return
			}
			// And then it is nodeadm's again.
			f = afterwards(f, forced)
			if last, err := Build(c, f, Options{}); err != nil || len(last.Conflicts) > 0 {
				t.Errorf("after it was forced: %v, %v", err, last.Conflicts)
			}
		})
	}
}

// What earlier runs wrote and this one does not want goes; what a hand put into
// the same file stays.
func TestUnwantedFiles(t *testing.T) {
	c, f := node(t, 34, "--kubelet-extra-args", "--max-pods=20 --node-labels=a=b")
	first, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, _ = node(t, 34)
	has := func(p Plan) bool {
		return slices.ContainsFunc(p.Files, func(f File) bool { return f.Path == layout.KubeletExtraArgs })
	}
	f = afterwards(f, first)
	if second, err := Build(c, f, Options{}); err != nil || has(second) {
		t.Errorf("the arguments are still planned (%v)", err)
	}
	f.Host.Live[layout.KubeletExtraArgs] = []byte("[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--max-pods=20 --v=4 --node-labels=a=c'\n")
	second, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--v=4 --node-labels=a=c'\n", file(t, second, layout.KubeletExtraArgs)); diff != "" {
		t.Errorf("the hand's arguments (-want +got):\n%s", diff)
	}
	f = afterwards(f, second)
	delete(f.Host.Live, layout.KubeletExtraArgs)
	if third, err := Build(c, f, Options{}); err != nil || has(third) {
		t.Errorf("a file that a hand removed is planned (%v)", err)
	}
}

// What an image's config.toml says and nobody here does stays, unless it would
// keep kubelet from finding containerd.
func TestImagesContainerdConfig(t *testing.T) {
	for _, test := range []struct {
		name, image string
		want, not   string
		warning     string
	}{
		{"a field of its own", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nmax_container_log_line_size = 100\nsandbox_image = \"old\"\n", "max_container_log_line_size = 100", `"old"`, ""},
		{"as Docker's package has it", "version = 2\ndisabled_plugins = [\"cri\", \"zfs\"]\n", `disabled_plugins = ["zfs"]`, `"cri"`, ""},
		{"of another version", "disabled_plugins = [\"cri\"]\n", "version = 2", "disabled_plugins", "is written in version 1"},
		{"broken", "version = \n", "version = 2", "", "is replaced"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, 34)
			f.Host.Live = map[string][]byte{layout.ContainerdConfig: []byte(test.image)}
			first, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			text := file(t, first, layout.ContainerdConfig)
			if !strings.Contains(text, test.want) || test.not != "" && strings.Contains(text, test.not) || !strings.Contains(strings.Join(first.Warnings, "\n"), test.warning) {
				t.Errorf("%q\n%s", first.Warnings, text)
			}
			second, err := Build(c, afterwards(f, first), Options{})
			if err != nil || file(t, second, layout.ContainerdConfig) != text || len(second.Conflicts) > 0 {
				t.Errorf("a second run: %v, %v\n%s", err, second.Conflicts, file(t, second, layout.ContainerdConfig))
			}
		})
	}
}

// A password is named in no conflict.
func TestConflictOverASecret(t *testing.T) {
	_, f := node(t, 34)
	c := fromDocuments(t, "  instance: {environment: {kubelet: {TOKEN: hunter2}}}\n", "")
	first, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f = afterwards(f, first)
	path := environmentFile(layout.KubeletService)
	f.Host.Live[path] = []byte(strings.Replace(string(f.Host.Live[path]), "hunter2", "swordfish", 1))
	second, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(second.Warnings, "\n"); !strings.Contains(text, ".Service.Environment.TOKEN") || strings.Contains(text, "hunter2") || strings.Contains(text, "swordfish") {
		t.Errorf("%s", text)
	}
}

// A drop-in that a hand has written since the last run is a hand's, and memory
// is reserved for the number of pods that it says.
func TestHandsOwnDropIn(t *testing.T) {
	c, f := node(t, 34)
	first, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f = afterwards(f, first)
	f.Host.Live[layout.KubeletExtraArgs] = []byte("[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=7 --max-pods=12\"\n")
	c, _ = node(t, 34, "--kubelet-extra-args", "--node-labels=a=b --max-pods=20")
	second, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := file(t, second, layout.KubeletExtraArgs)
	for _, word := range []string{"--v=7", "--max-pods=12", "--node-labels=a=b"} {
		if !strings.Contains(text, word) {
			t.Errorf("no %s in\n%s", word, text)
		}
	}
	if len(second.Conflicts) != 1 || second.MaxPods.Effective != 12 || !strings.Contains(file(t, second, layout.KubeletConfig), `"memory": "387Mi"`) {
		t.Errorf("max pods %d, conflicts %v\n%s", second.MaxPods.Effective, second.Conflicts, file(t, second, layout.KubeletConfig))
	}
	forced, err := Build(c, f, Options{ForceConflicts: true})
	if err != nil || forced.MaxPods.Effective != 20 {
		t.Errorf("forced: %v, max pods %d", err, forced.MaxPods.Effective)
	}
}
