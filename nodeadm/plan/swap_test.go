package plan

import (
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

func TestSwap(t *testing.T) {
	type object = map[string]any
	behavior := func(name string) object { return object{"swapBehavior": name} }
	for _, test := range []struct {
		name         string
		minor        int
		swap         string
		flags        string
		config       object
		partial      bool
		err, warning string
	}{
		{name: "none", minor: 34},
		{name: "none, and kubelet would mind", minor: 34, config: object{"failSwapOn": true}},
		{name: "on", minor: 34, swap: "/swapfile", err: "this machine swaps to /swapfile"},
		{name: "on, in an image build", minor: 34, swap: "/swapfile", partial: true, warning: "this machine swaps to /swapfile"},
		{name: "on, and asked for", minor: 34, swap: "/dev/zram0", config: object{"failSwapOn": false, "memorySwap": behavior("LimitedSwap")}},
		{name: "on, and minded", minor: 34, swap: "/swapfile", config: object{"failSwapOn": true}, err: "swaps to"},
		{name: "on, and a flag", minor: 34, swap: "/swapfile", flags: "--fail-swap-on=false"},
		{name: "the flag counts more", minor: 34, swap: "/swapfile", flags: "--fail-swap-on", config: object{"failSwapOn": false}, err: "swaps to"},
		{name: "behaviour", minor: 33, config: object{"memorySwap": behavior("NoSwap")}},
		{name: "none of its behaviours", minor: 33, config: object{"memorySwap": behavior("UnlimitedSwap")}, err: "has no swap behaviour UnlimitedSwap"},
		{name: "behaviour of an older one", minor: 29, config: object{"memorySwap": behavior("UnlimitedSwap"), "featureGates": object{"NodeSwap": true}}},
		{name: "behaviour before the gate", minor: 29, config: object{"memorySwap": behavior("LimitedSwap")}, err: "only with the feature gate NodeSwap"},
		{name: "the gate as a flag", minor: 29, flags: "--feature-gates=A=false,NodeSwap=true", config: object{"memorySwap": behavior("LimitedSwap")}},
		{name: "behaviour without the gate", minor: 33, config: object{"memorySwap": behavior("LimitedSwap"), "featureGates": object{"NodeSwap": false}}, err: "only with the feature gate NodeSwap"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, test.minor)
			if test.flags != "" {
				c, f = node(t, test.minor, "--kubelet-extra-args", test.flags)
			}
			c.Kubelet.Config = test.config
			f.Host.Machine = facts.Machine{CPUs: 2, BPFFS: true, KernelDefaults: true, Swap: test.swap}
			f.Host.Partial = test.partial
			p, err := Build(c, f, Options{})
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if warnings := strings.Join(p.Warnings, "\n"); strings.Contains(warnings, "swap") != (test.warning != "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}
