package plan

import (
	"fmt"
	"strings"

	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

const (
	hostsBegin = "# BEGIN nodeadm: API server of the local cluster"
	hostsEnd   = "# END nodeadm"
)

// hostsFile pins the API server of a local cluster on an Outpost, so that the
// node finds it while the Outpost is cut off from its region. The entries
// stand in one marked block that is replaced as a whole.
func (b *builder) hostsFile() error {
	current := string(b.facts.Host.HostsFile)
	begin := strings.Index(current, hostsBegin)
	if !b.cluster.outpost && begin < 0 {
		return nil
	}
	unknown := b.cluster.outpost && len(b.facts.Host.EndpointAddresses) == 0
	if unknown {
		b.warn(layout.HostsFile + " does not get the addresses of the local cluster's API server: they are not known here, since EKS does not say that " + b.cluster.name + " is on an Outpost, and no endpoint is given")
		if begin < 0 {
			return nil
		}
	}
	rest := current
	if begin >= 0 && !unknown {
		rest = current[:begin]
		if _, after, found := strings.Cut(current[begin:], hostsEnd+"\n"); found {
			rest += after
		}
	}
	if b.cluster.outpost && !unknown {
		if rest != "" && !strings.HasSuffix(rest, "\n") {
			rest += "\n"
		}
		rest += hostsBegin + "\n"
		for _, addr := range b.facts.Host.EndpointAddresses {
			rest += fmt.Sprintf("%s\t%s\n", addr, b.cluster.host())
		}
		rest += hostsEnd + "\n"
	}
	b.plan.Files = append(b.plan.Files, File{Path: layout.HostsFile, Mode: 0o644, Data: []byte(rest), Shared: true, Origin: Agent})
	return nil
}
