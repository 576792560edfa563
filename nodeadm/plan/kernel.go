package plan

import (
	"maps"
	"slices"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// kernel sets the kernel as kubelet insists on with protectKernelDefaults. EKS
// images are made so; other distributions are not, and there kubelet would end
// as soon as it starts.
func (b *builder) kernel() error {
	if b.config.Kubelet.Config["protectKernelDefaults"] == false || b.facts.Host.KernelDefaults && !b.facts.Host.OwnSysctls {
		return nil
	}
	text := "# What kubelet insists on with protectKernelDefaults.\n"
	for _, name := range slices.Sorted(maps.Keys(kubelet.KernelDefaults)) {
		text += name + " = " + kubelet.KernelDefaults[name] + "\n"
	}
	b.unit(Unit{Name: layout.SysctlService, OnChange: true, Files: []string{layout.SysctlConfig}})
	return b.file(layout.SysctlConfig, text)
}
