package kubelet

import "strings"

// LabelAllowed reports whether a kubelet may be started with a node label of
// this key.
//
// Keys outside of kubernetes.io and k8s.io are nobody's business but the
// user's. Inside, a kubelet refuses to start unless the key is one of
// AllowedLabels or stands in one of AllowedLabelNamespaces; node-role.kubernetes.io
// is what people stumble over. The rule was the same in every kubelet from 1.22
// to 1.37 (k8s.io/kubelet pkg/apis/well_known_labels.go, and ValidateKubeletFlags
// in k8s.io/kubernetes cmd/kubelet/app/options/options.go). Whether the key is a
// well-formed one is another question.
func LabelAllowed(key string) bool {
	namespace, _, ok := strings.Cut(key, "/")
	if !ok || !within(namespace, "kubernetes.io") && !within(namespace, "k8s.io") {
		return true
	}
	for _, allowed := range AllowedLabels() {
		if key == allowed {
			return true
		}
	}
	for _, allowed := range AllowedLabelNamespaces() {
		if within(namespace, allowed) {
			return true
		}
	}
	return false
}

// AllowedLabels gives the keys that a kubelet may set one by one, sorted.
func AllowedLabels() []string {
	return []string{
		"beta.kubernetes.io/arch",
		"beta.kubernetes.io/instance-type",
		"beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone",
		"kubernetes.io/arch",
		"kubernetes.io/hostname",
		"kubernetes.io/os",
		"node.kubernetes.io/instance-type",
		"topology.kubernetes.io/region",
		"topology.kubernetes.io/zone",
	}
}

// AllowedLabelNamespaces gives the namespaces in which, and below which, a
// kubelet may set any key, sorted.
func AllowedLabelNamespaces() []string {
	return []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
}

// within reports whether a namespace is domain, or a subdomain of it.
func within(namespace, domain string) bool {
	rest, ok := strings.CutSuffix(namespace, domain)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}
