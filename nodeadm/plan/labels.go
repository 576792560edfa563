package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
)

// Tags that EC2 and EKS put on instances, and what a managed node group's own
// labels are made of.
const (
	tagNodeGroup             = "eks:nodegroup-name"
	tagLaunchTemplateID      = "aws:ec2launchtemplate:id"
	tagLaunchTemplateVersion = "aws:ec2launchtemplate:version"
)

// ownLabelFlags are the flags for labels and taints that the instance itself
// can tell, as far as they are wanted. kubelet adds up repeated --node-labels,
// so the user's own stay as they are.
func (b *builder) ownLabelFlags() ([]string, error) {
	spec, i := b.config.Labels, b.facts.Instance
	labels, taints := map[string]string{}, []string{}
	if host := b.facts.Host; host.NVIDIA && host.Kubelet.Minor >= 35 {
		labels["nvidia.com/gpu.present"] = "true"
	}
	spot := i.Lifecycle == "spot"
	if spec.FromManagedNodeGroup {
		labels["eks.amazonaws.com/capacityType"] = map[bool]string{true: "SPOT", false: "ON_DEMAND"}[spot]
		labels["eks.amazonaws.com/nodegroup-image"] = i.AMI
		labels["eks.amazonaws.com/nodegroup"] = i.Tags[tagNodeGroup]
		labels["eks.amazonaws.com/sourceLaunchTemplateId"] = i.Tags[tagLaunchTemplateID]
		labels["eks.amazonaws.com/sourceLaunchTemplateVersion"] = i.Tags[tagLaunchTemplateVersion]
		for key, value := range labels {
			if value == "" {
				delete(labels, key) // an instance outside of a group or template
			}
		}
	}
	if spec.Lifecycle {
		labels["node-lifecycle"] = map[bool]string{true: "spot", false: "on-demand"}[spot]
	}
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		value := i.Tags[key]
		if name, found := strings.CutPrefix(key, spec.FromTags.LabelPrefix); found && spec.FromTags.LabelPrefix != "" {
			if err := config.CheckLabel(name + "=" + value); err != nil {
				return nil, fault.New(fault.Usage, "change the tag", "tag %s=%s cannot be a label: %v", key, value, err)
			}
			labels[name] = value
		}
		if name, found := strings.CutPrefix(key, spec.FromTags.TaintPrefix); found && spec.FromTags.TaintPrefix != "" {
			taint := name + "=" + value
			if strings.HasPrefix(value, ":") {
				taint = name + value
			}
			if err := config.CheckTaint(taint); err != nil {
				return nil, fault.New(fault.Usage, "write VALUE:EFFECT as the tag's value, such as blue:NoSchedule", "tag %s=%s cannot be a taint: %v", key, value, err)
			}
			taints = append(taints, taint)
		}
	}
	var flags []string
	if len(labels) > 0 {
		var list []string
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			list = append(list, fmt.Sprintf("%s=%s", key, labels[key]))
		}
		flags = append(flags, "--node-labels="+strings.Join(list, ","))
	}
	if len(taints) > 0 {
		flags = append(flags, "--register-with-taints="+strings.Join(taints, ","))
	}
	return flags, nil
}
