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
