package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/internal/cel"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// kubeletDefaultMaxPods is what kubelet takes when nobody says anything.
const kubeletDefaultMaxPods = 110

// MaxPods is how many pods the node takes and how that was worked out.
type MaxPods struct {
	InstanceType     string
	ENIs, IPv4PerENI int    // of the default network card
	VCPUs            int    // 0 where unknown
	Prefixes         bool   // network interfaces can take prefixes instead of addresses
	ENILimited       int    // pods that can get a secondary IPv4 address
	Planned          int    // what kubelet-config.json says, if it says anything
	Effective        int    // pods kubelet will accept
	Source           string // where Effective comes from
	Written          bool   // Planned stands in kubelet-config.json
	Arithmetic       string // the calculation, as people check it
	Assumed          string // how the limits were guessed; "" where they are known
}

// ENIMaxPods is the number of pods that can get a secondary IPv4 address: the
// first address of each network interface belongs to the node, and the two
// pods of the host network, aws-node and kube-proxy, need none.
func ENIMaxPods(enis, ipv4PerENI int) int { return enis*(ipv4PerENI-1) + 2 }

// Limits starts the calculation for a type of the table.
func Limits(t instancetypes.Type) MaxPods {
	return MaxPods{
		InstanceType: t.Name, ENIs: t.ENIs, IPv4PerENI: t.IPv4PerENI, VCPUs: t.VCPUs,
		Prefixes: t.Hypervisor == "nitro" || t.BareMetal,
	}
}

// WorkOut works max pods out as somebody wants it.
func (m MaxPods) WorkOut(c config.MaxPods) (MaxPods, error) {
	m.ENILimited = ENIMaxPods(m.ENIs, m.IPv4PerENI)
	m.Source = "network interfaces of " + m.InstanceType
	enis, how := m.ENIs, fmt.Sprintf("%d ENIs", m.ENIs)
	if c.MaxENIs > 0 && c.MaxENIs < enis {
		enis, how = c.MaxENIs, fmt.Sprintf("%d of %d ENIs", c.MaxENIs, m.ENIs)
	}
	for _, less := range []struct {
		n   int
		why string
	}{{c.ReservedENIs, "reserved"}, {map[bool]int{true: 1}[c.CustomNetworking], "for the node alone"}} {
		if less.n > 0 {
			enis, how = max(0, enis-less.n), fmt.Sprintf("%s − %d %s", how, less.n, less.why)
		}
	}
	if enis != m.ENIs {
		how = "(" + how + ")"
	}
	limit := 0
	switch c.Mode {
	case "", "none", "secondary-ip":
		m.Planned = ENIMaxPods(enis, m.IPv4PerENI)
		m.Arithmetic = fmt.Sprintf("%s × (%d IPv4 addresses − 1) + 2 = %d", how, m.IPv4PerENI, m.Planned)
		if c.Cap == "auto" {
			limit = m.cap()
		}
	case "prefix-delegation":
		if !m.Prefixes {
			return m, fault.New(fault.Usage, "leave maxPods.mode out for this type", "instance type %s cannot take prefixes: only Nitro and bare-metal instances can", m.InstanceType)
		}
		m.Planned = enis*(m.IPv4PerENI-1)*16 + 2
		m.Arithmetic = fmt.Sprintf("%s × (%d slots − 1) × 16 addresses of a /28 + 2 = %d", how, m.IPv4PerENI, m.Planned)
		if c.Cap != "none" {
			limit = m.cap()
		}
	case "ipv6":
		m.Planned = m.cap()
		m.Arithmetic = fmt.Sprintf("a /80 prefix has addresses for any number of pods; the recommended most for %d vCPUs is %d", m.VCPUs, m.Planned)
	case "fixed":
		m.Planned, m.Source = c.Value, "maxPods.value"
		m.Arithmetic = fmt.Sprintf("fixed: %d", c.Value)
	}
	if limit > 0 && m.Planned > limit {
		m.Planned = limit
		m.Arithmetic += fmt.Sprintf(", at most %d with %d vCPUs", limit, m.VCPUs)
	}
	if c.Expression != nil {
		n, err := m.evaluate(c.Expression)
		if err != nil {
			return m, fault.New(fault.Usage, "the result must be a whole number of at least 1", "maxPodsExpression: %w", err)
		}
		m.Arithmetic = fmt.Sprintf("%s = %d, with default_enis %d, ips_per_eni %d, max_pods %d", c.Expression, n, m.ENIs, m.IPv4PerENI, m.Planned)
		m.Planned, m.Source = n, "maxPodsExpression"
	}
	m.Written = c.Mode != "none"
	m.Effective = m.Planned
	return m, nil
}

// cap is the number of pods that AWS recommends at the most. No instance has
// between 25 and 31 vCPUs, so that "more than 30" and "at least 30" agree.
func (m MaxPods) cap() int {
	if m.VCPUs > 30 {
		return 250
	}
	return 110
}

func (m MaxPods) evaluate(e *cel.Program) (int, error) {
	value, err := e.Eval(map[string]int64{"default_enis": int64(m.ENIs), "ips_per_eni": int64(m.IPv4PerENI), "max_pods": int64(m.Planned)})
	if err != nil {
		return 0, err
	}
	n, err := value.Int()
	if err != nil {
		return 0, err
	}
	if n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s is %d", e, n)
	}
	return int(n), nil
}

func (b *builder) maxPods() (MaxPods, error) {
	m, err := eniLimits(b.facts.Instance)
	if err != nil {
		return m, err
	}
	if m.Assumed != "" {
		b.warn(m.Assumed)
	}
	if m, err = m.WorkOut(b.config.Kubelet.MaxPods); err != nil {
		return m, err
	}
	if !m.Written {
		m.Effective, m.Source = kubeletDefaultMaxPods, "kubelet's default"
	}
	if value, given := b.config.Kubelet.Config["maxPods"]; given && value != nil {
		n, err := strconv.Atoi(fmt.Sprint(value))
		if err != nil || n < 0 {
			return m, fault.New(fault.Usage, "write a number", "spec.kubelet.config.maxPods: %v is not a number of pods", value)
		}
		m.Effective, m.Source = n, "kubelet.config.maxPods"
	}
	if value, given := b.config.Kubelet.Flag("max-pods"); given {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return m, fault.New(fault.Usage, "write a number, such as --max-pods=29", "kubelet's flags: --max-pods: %q is not a number of pods", value)
		}
		m.Effective, m.Source = n, "kubelet's flag --max-pods"
	}
	if n, changed := b.handsMaxPods(); changed {
		m.Effective, m.Source = n, "kubelet's flag --max-pods, changed by hand"
	}
	return m, nil
}

// eniLimits finds the limits of the instance's type: the embedded table, then
// EC2's answer, then a careful guess that never promises an address that does
// not exist.
func eniLimits(i facts.Instance) (MaxPods, error) {
	m := MaxPods{InstanceType: i.Type}
	if t, ok := instancetypes.Lookup(i.Type); ok {
		m = Limits(t)
	} else if l := i.Limits; l != nil {
		m.ENIs, m.IPv4PerENI, m.VCPUs, m.Prefixes = l.ENIs, l.IPv4PerENI, l.VCPUs, l.Prefixes
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

// handsMaxPods is the flag as a hand has put it into the drop-in since the last
// run, where it stays.
func (b *builder) handsMaxPods() (int, bool) {
	if b.force {
		return 0, false
	}
	now, err := decodeUnit(b.facts.Host.Live[layout.KubeletExtraArgs])
	if err != nil || !b.facts.Host.RanBefore {
		return 0, false
	}
	keys := []string{"Service", "Environment", "KUBELET_EXTRA_ARGS", "--max-pods"}
	if !has(now, keys) {
		return 0, false
	}
	value := fmt.Sprint(at(now, keys))
	if before := b.facts.Host.Before[layout.KubeletExtraArgs]; before != nil {
		if owner, err := before.Owners(); err == nil && has(before.Document, keys) && fmt.Sprint(at(before.Document, keys)) == value && owner(keys...) != ownership.Hand {
			return 0, false
		}
	}
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= 0
}
