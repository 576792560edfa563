package plan

import "fmt"

// kubeReserved is what is set aside for the node's own daemons. For memory the
// number of pods counts, since each costs kubelet and containerd some: the
// pods that can really run, which is never more than a scheduler outside
// expects. The policy "legacy" counts what the network interfaces would allow,
// whatever max pods is, as bootstrap.sh did.
func kubeReserved(cpus int, m MaxPods, policy string) map[string]any {
	pods := min(m.ENILimited, m.Effective)
	if policy == "legacy" {
		pods = m.ENILimited
	}
	return map[string]any{
		"cpu":               fmt.Sprintf("%dm", reservedMilliCPU(cpus)),
		"ephemeral-storage": "1Gi",
		"memory":            fmt.Sprintf("%dMi", 11*pods+255),
	}
}

// reservedMilliCPU is 6 % of the first CPU, 1 % of the second, 0.5 % of the
// third and fourth, and 0.25 % of the rest.
func reservedMilliCPU(cpus int) int {
	total := 0
	for _, share := range []struct{ from, to, perTenThousand int }{
		{0, 1000, 600}, {1000, 2000, 100}, {2000, 4000, 50}, {4000, max(4000, cpus*1000), 25},
	} {
		if have := min(cpus*1000, share.to) - share.from; have > 0 {
			total += have * share.perTenThousand / 10000
		}
	}
	return total
}
