package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// limitedSwap is the minor of kubelet from which on pods may swap without a
// feature gate.
const limitedSwap = 30

// checkSwapBehavior refuses what kubelet would end over.
func (b *builder) checkSwapBehavior() error {
	memorySwap, _ := b.config.Kubelet.Config["memorySwap"].(map[string]any)
	behavior, _ := memorySwap["swapBehavior"].(string)
	if behavior == "" {
		return nil
	}
	const path = "spec.kubelet.config.memorySwap.swapBehavior"
	v, origin := b.facts.Host.Kubelet, b.config.Origin(path)
	known := []string{"LimitedSwap", "NoSwap"}
	if v.Minor < limitedSwap {
		known[1] = "UnlimitedSwap"
	}
	if !slices.Contains(known, behavior) {
		return fault.New(fault.Usage, "write "+strings.Join(known, " or "), "%s: %s: kubelet %s has no swap behaviour %s", origin, path, v, behavior)
	}
	gates, _ := b.config.Kubelet.Config["featureGates"].(map[string]any)
	if b.config.Kubelet.FeatureGates()["NodeSwap"] { // it counts more
		return nil
	}
	if gate, given := gates["NodeSwap"]; gate == false || !given && v.Minor < limitedSwap {
		return fault.New(fault.Usage, "write featureGates: {NodeSwap: true} beside it", "%s: %s: kubelet %s takes it only with the feature gate NodeSwap", origin, path, v)
	}
	return nil
}

// checkSwap finds out before kubelet does that the machine swaps: kubelet ends
// then, unless it is told not to mind.
func (b *builder) checkSwap(doc map[string]any) error {
	minds := doc["failSwapOn"] != false
	if value, given := b.config.Kubelet.Flag("fail-swap-on"); given {
		minds = isTrue(value)
	}
	swap := b.facts.Host.Swap
	if swap == "" || !minds {
		return nil
	}
	message := fmt.Sprintf("this machine swaps to %s, and kubelet would not start", swap)
	const remedy = "turn swap off (swapoff -a, and /etc/fstab), or write failSwapOn: false in spec.kubelet.config, and memorySwap: {swapBehavior: LimitedSwap} for pods that may use it"
	if b.facts.Host.Partial {
		b.warn(message + ": " + remedy)
		return nil
	}
	return fault.New(fault.Usage, remedy, "%s", message)
}
