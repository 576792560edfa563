package plan

import (
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	units "github.com/eks-bootstrap/nodeadm/systemd"
)

// bpfMount mounts the BPF filesystem where nobody else does.
func (b *builder) bpfMount() error {
	if host := b.facts.Host; !b.config.MountBPFFS || host.BPFFS && !host.OwnBPFMount {
		return nil
	}
	b.file(layout.BPFMountUnit, units.BPFMount)
	b.unit(Unit{Name: layout.BPFMountService, Enabled: true, StartOnly: true, Files: []string{layout.BPFMountUnit}})
	return nil
}
