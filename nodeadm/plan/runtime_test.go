package plan

import (
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Hardware and a program for it make a runtime; one of them alone makes none.
func TestRuntimes(t *testing.T) {
	const nvidia, neuron = "/usr/bin/nvidia-container-runtime", "/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh"
	for _, test := range []struct {
		name     string
		change   func(*facts.Host)
		standard string
		runtimes []string
		warning  string
	}{
		{"neither", func(*facts.Host) {}, "runc", []string{"runc"}, ""},
		{"programs without hardware", func(h *facts.Host) { h.NVIDIARuntime, h.NeuronRuntime = nvidia, neuron }, "runc", []string{"runc"}, ""},
		{"a GPU without the program", func(h *facts.Host) { h.NVIDIA = true }, "runc", []string{"runc"}, "pods will not see the GPU"},
		{"a chip without the program", func(h *facts.Host) { h.Neuron = true }, "runc", []string{"runc"}, ""},
		{"a GPU", func(h *facts.Host) { h.NVIDIA, h.NVIDIARuntime = true, nvidia }, "nvidia", []string{"runc", "nvidia"}, ""},
		{"a chip", func(h *facts.Host) { h.Neuron, h.NeuronRuntime = true, neuron }, "runc", []string{"runc", "neuron"}, ""},
	} {
		for _, containerd := range []string{"1.6.20", "1.7.27", "2.0.5", "2.4.2"} {
			t.Run(test.name+" with containerd "+containerd, func(t *testing.T) {
				c, f := node(t, 34)
				f.Host.Containerd = containerd
				test.change(&f.Host)
				p, err := Build(c, f, Options{})
				if err != nil {
					t.Fatal(err)
				}
				text := file(t, p, layout.ContainerdConfig)
				if !strings.Contains(text, `default_runtime_name = "`+test.standard+`"`) || strings.Count(text, ".options]") != len(test.runtimes) || strings.Count(text, "SystemdCgroup = true") != len(test.runtimes) {
					t.Errorf("%s", text)
				}
				for _, name := range test.runtimes {
					if !strings.Contains(text, ".containerd.runtimes."+name+"]") {
						t.Errorf("no runtime %s:\n%s", name, text)
					}
				}
				if warnings := strings.Join(p.Warnings, "\n"); !strings.Contains(warnings, test.warning) || test.warning == "" && warnings != "" {
					t.Errorf("warnings %q", warnings)
				}
			})
		}
	}
}

// The user's part decides which version of containerd's configuration all of it
// is: containerd passes over what is named as in another.
func TestContainerdVersion(t *testing.T) {
	const images, cri = `plugins."io.containerd.cri.v1.images"`, `plugins."io.containerd.grpc.v1.cri"`
	for _, test := range []struct{ name, containerd, user, has, hasNot, err string }{
		{"said to be 3", "2.1.9", "version = 3\n[debug]\nlevel = 'debug'", images, cri, ""},
		{"streaming, which version 3 has kept", "2.1.9", "version = 3\n[" + cri + "]\nstream_server_port = '1'", images, cri + ".containerd", ""},
		{"said to be 2", "2.1.9", "version = 2\n[debug]\nlevel = 'debug'", cri, images, ""},
		{"not said", "2.1.9", "[debug]\nlevel = 'debug'", cri, images, ""},
		{"by its names", "2.1.9", "[" + images + "]\nmax_concurrent_downloads = 5", images, cri, ""},
		{"said to be 2, with names of 3", "2.1.9", "version = 2\n[" + images + "]\nmax_concurrent_downloads = 5", cri + ".containerd", "version = 3", ""},
		{"names of both", "2.1.9", "[" + images + "]\nmax_concurrent_downloads = 5\n[" + cri + "]\nsandbox_image = 'x'", cri + ".containerd", "version = 3", ""},
		{"names of both for 1.7", "1.7.35", "[" + images + "]\nmax_concurrent_downloads = 5\n[" + cri + "]\nsandbox_image = 'x'", "", "", "of version 3, for containerd 2"},
		{"3 for 1.7", "1.7.35", "version = 3", "", "", "of version 3, for containerd 2, and the node has 1.7.35"},
		{"names of 3 for 1.7", "1.7.35", "[" + images + "]\nmax_concurrent_downloads = 5", "", "", "of version 3, for containerd 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, 34)
			f.Host.Containerd, c.Containerd.Config = test.containerd, test.user
			p, err := Build(c, f, Options{})
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("%v, want %q", err, test.err)
			}
			if err != nil {
				return
			}
			if text := strings.ReplaceAll(file(t, p, layout.ContainerdConfig), "'", `"`); !strings.Contains(text, test.has) || strings.Contains(text, test.hasNot) {
				t.Errorf("it has no %s, or has %s:\n%s", test.has, test.hasNot, text)
			}
		})
	}
}

func TestSELinux(t *testing.T) {
	for _, containerd := range []string{"1.6.20", "2.1.4", "2.4.2"} {
		for _, test := range []struct{ asked, has, on, warned bool }{{false, true, false, false}, {true, true, true, false}, {true, false, false, true}} {
			c, f := node(t, 34)
			c.Containerd.SELinux, f.Host.SELinux, f.Host.Containerd = test.asked, test.has, containerd
			p, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if on := strings.Contains(file(t, p, layout.ContainerdConfig), "enable_selinux = true\n"); on != test.on {
				t.Errorf("containerd %s, %+v: enabled %t", containerd, test, on)
			}
			if warned := strings.Contains(strings.Join(p.Warnings, "\n"), "runs without SELinux"); warned != test.warned {
				t.Errorf("containerd %s, %+v: %q", containerd, test, p.Warnings)
			}
		}
	}
}
