package plan

import (
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	units "github.com/eks-bootstrap/nodeadm/systemd"
)

// bpfMount mounts the BPF filesystem where nobody else does: from version 238
// on systemd does it, and loads no unit of anybody's for that place.
func (b *builder) bpfMount() error {
	if host := b.facts.Host; !b.config.MountBPFFS || host.SystemdMountsBPF || host.BPFFS && !host.OwnBPFMount {
		return nil
	}
	b.unit(Unit{Name: layout.BPFMountService, Enabled: true, StartOnly: true, Files: []string{layout.BPFMountUnit}})
	return b.file(layout.BPFMountUnit, units.BPFMount)
}
