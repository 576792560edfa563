package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Where the SOCI snapshotter cannot pull images, nothing points at it.
func TestFastImagePull(t *testing.T) {
	for _, test := range []struct {
		name    string
		minor   int
		change  func(*facts.Host)
		warning string
	}{
		{"as asked", 34, nil, ""},
		{"version 3", 34, func(h *facts.Host) { h.Containerd = "2.4.2" }, ""},
		{"too few CPUs", 34, func(h *facts.Host) { h.CPUs = 2 }, "here are 2 and 15.0 GiB"},
		{"too little memory", 34, func(h *facts.Host) { h.MemoryMiB = 7000 }, "here are 4 and 6.8 GiB"},
		{"not installed", 34, func(h *facts.Host) { h.SOCIUnits = nil }, "not installed"},
		{"an administrator's file", 34, func(h *facts.Host) {
			h.ContainerdTemplate = &facts.Document{Path: "/x.toml", Data: []byte("version = 2\n")}
		}, "/x.toml replaces"},
		{"an old kubelet", 26, nil, "kubelet v1.26.0 has no imageServiceEndpoint"},
		{"dockerd", 23, nil, "the container runtime is dockerd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, test.minor)
			c.FastImagePull = true
			f.Host.CPUs, f.Host.MemoryMiB, f.Host.SOCIUnits = 4, 15*1024, []string{"soci-snapshotter.socket", "soci-snapshotter.service"}
			if test.change != nil {
				test.change(&f.Host)
			}
			p, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			warned := strings.Contains(strings.Join(p.Warnings, "\n"), "FastImagePull has no effect")
			if warned != (test.warning != "") || !strings.Contains(strings.Join(p.Warnings, "\n"), test.warning) {
				t.Errorf("warnings %q", p.Warnings)
			}
			var units []string
			for _, u := range p.Units {
				units = append(units, u.Name)
			}
			for _, f := range p.Files {
				if speaks := strings.Contains(string(f.Data), "soci"); warned && speaks {
					t.Errorf("%s:\n%s", f.Path, f.Data)
				}
			}
			if warned {
				if strings.Contains(strings.Join(units, " "), "soci") {
					t.Errorf("units %q", units)
				}
				return
			}
			// kubelet pulls through it and it through containerd, so it comes first.
			want := []string{"soci-snapshotter.socket", "soci-snapshotter.service", layout.ContainerdService, layout.KubeletService}
			if !slices.Equal(units, want) {
				t.Errorf("units %q", units)
			}
			for path, want := range map[string]string{
				layout.ContainerdConfig: "snapshotter = \"soci\"\ndisable_snapshot_annotations = false\n",
				layout.KubeletConfig:    `"imageServiceEndpoint": "unix:///run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"`,
				layout.SOCIConfig:       "[pull_modes.parallel_pull_unpack]\nenable = true\n",
			} {
				if text := file(t, p, path); !strings.Contains(text, want) {
					t.Errorf("%s:\n%s", path, text)
				}
			}
		})
	}
}

// What the image says to the snapshotter counts more than what nodeadm would.
func TestImagesSOCIConfig(t *testing.T) {
	c, f := node(t, 34)
	c.FastImagePull = true
	f.Host.CPUs, f.Host.MemoryMiB, f.Host.SOCIUnits = 4, 15*1024, []string{"soci-snapshotter.service"}
	f.Host.Live = map[string][]byte{layout.SOCIConfig: []byte("[pull_modes.parallel_pull_unpack]\nenable = true\nmax_concurrent_unpacks_per_image = 3\n")}
	p, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := file(t, p, layout.SOCIConfig); !strings.Contains(text, "max_concurrent_unpacks_per_image = 3") || !strings.Contains(text, "enable_keychain = true") || len(p.Conflicts) > 0 {
		t.Errorf("%v\n%s", p.Conflicts, text)
	}
}
