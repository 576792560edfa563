package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// kubeletDefaultMaxPods is what kubelet takes when nobody says anything.
const kubeletDefaultMaxPods = 110

// MaxPods is how many pods the node takes and how that was worked out.
type MaxPods struct {
	InstanceType     string
	ENIs, IPv4PerENI int    // of the default network card
	ENILimited       int    // pods that can get an address of their own
	Effective        int    // pods kubelet will accept
	Source           string // where Effective comes from
	Written          bool   // it stands in kubelet-config.json
	Assumed          string // how the limits were guessed; "" where they are known
}

// ENIMaxPods is the number of pods that can get a secondary IPv4 address: the
// first address of each network interface belongs to the node, and the two
// pods of the host network, aws-node and kube-proxy, need none.
func ENIMaxPods(enis, ipv4PerENI int) int { return enis*(ipv4PerENI-1) + 2 }

// Arithmetic writes the calculation out, as people check it.
func (m MaxPods) Arithmetic() string {
	return fmt.Sprintf("%d ENIs × (%d IPv4 addresses − 1) + 2 = %d", m.ENIs, m.IPv4PerENI, m.ENILimited)
}

func (b *builder) maxPods() (MaxPods, error) {
	m, err := eniLimits(b.facts.Instance)
	if err != nil {
		return m, err
	}
	if m.Assumed != "" {
		b.warn(m.Assumed)
	}
	m.Written = !b.config.Kubelet.OmitMaxPods
	if m.Written {
		m.Effective, m.Source = m.ENILimited, "network interfaces of "+m.InstanceType
	} else {
		m.Effective, m.Source = kubeletDefaultMaxPods, "kubelet's default"
		// Somebody else's number in the document stays where nodeadm writes none.
		if doc, err := b.foreignKubeletConfig(); err != nil {
			return m, err
		} else if n, err := strconv.Atoi(fmt.Sprint(doc["maxPods"])); err == nil {
			m.Effective, m.Source = n, "kubelet-config.json as it stood"
		}
	}
	if value, given := b.config.Kubelet.Flag("max-pods"); given {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return m, fault.New(fault.Usage, "write a number, such as --max-pods=29", "--kubelet-extra-args: --max-pods: %q is not a number of pods", value)
		}
		m.Effective, m.Source = n, "--max-pods in --kubelet-extra-args"
	}
	return m, nil
}

// eniLimits finds the limits of the instance's type: the embedded table, then
// EC2's answer, then a careful guess that never promises an address that does
// not exist.
func eniLimits(i facts.Instance) (MaxPods, error) {
	m := MaxPods{InstanceType: i.Type}
	if t, ok := instancetypes.Lookup(i.Type); ok {
		m.ENIs, m.IPv4PerENI = t.ENIs, t.IPv4PerENI
	} else if l := i.Limits; l != nil {
		m.ENIs, m.IPv4PerENI = l.ENIs, l.IPv4PerENI
	} else if t, ok := instancetypes.SmallestOfFamily(i.Type); ok {
		m.ENIs, m.IPv4PerENI = t.ENIs, t.IPv4PerENI
		m.Assumed = fmt.Sprintf("instance type %s is unknown: max pods is taken from %s, the smallest of its family, and may be far too low; "+
			"allow ec2:DescribeInstanceTypes, update nodeadm, or set it with --use-max-pods false --kubelet-extra-args '--max-pods=N'", i.Type, t.Name)
	} else if t, ok := smallestOfSize(i.Type); ok {
		m.ENIs, m.IPv4PerENI = t.ENIs, t.IPv4PerENI
		m.Assumed = fmt.Sprintf("instance type %s is unknown and so is its family: max pods is taken from %s, the smallest of that size in any family, and may be far too low; "+
			"allow ec2:DescribeInstanceTypes, update nodeadm, or set it with --use-max-pods false --kubelet-extra-args '--max-pods=N'", i.Type, t.Name)
	} else {
		return m, fault.New(fault.Usage, "allow ec2:DescribeInstanceTypes to the node's role, or update nodeadm",
			"instance type %s: neither it nor its family nor its size is known, so the number of pods it can run cannot be worked out", i.Type)
	}
	m.ENILimited = ENIMaxPods(m.ENIs, m.IPv4PerENI)
	return m, nil
}

// smallestOfSize is the type with the fewest pods among all of one size, such
// as "large": what a family that nobody has seen yet has at the least.
func smallestOfSize(name string) (smallest instancetypes.Type, found bool) {
	_, size, _ := strings.Cut(name, ".")
	for _, t := range instancetypes.All() {
		if !strings.HasSuffix(t.Name, "."+size) || size == "" {
			continue
		}
		if !found || ENIMaxPods(t.ENIs, t.IPv4PerENI) < ENIMaxPods(smallest.ENIs, smallest.IPv4PerENI) {
			smallest, found = t, true
		}
	}
	return smallest, found
}
