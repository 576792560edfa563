package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// QuoteWord writes a word so that SplitWords gives it back.
func QuoteWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\r\n'\"\\") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ToBootstrap writes a document as the arguments of bootstrap.sh. left are the
// paths that bootstrap.sh has no words for.
func ToBootstrap(tree *doctree.Node) (args, left []string) {
	take := func(flag string, path ...string) {
		if n := tree.Get(append([]string{"spec"}, path...)...); !n.Empty() {
			args = append(args, "--"+flag, n.Text())
		}
	}
	known := map[string]bool{}
	if name := tree.Get("spec", "cluster", "name"); !name.Empty() {
		args = append(args, name.Text())
	}
	for _, f := range []struct{ flag, path string }{
		{"apiserver-endpoint", "cluster.apiServerEndpoint"},
		{"b64-cluster-ca", "cluster.certificateAuthority"},
		{"cluster-id", "cluster.id"},
		{"enable-local-outpost", "cluster.enableOutpost"},
		{"aws-api-retry-attempts", "cluster.describeRetries"},
		{"containerd-config-file", "containerd.configFile"},
		{"kube-reserved-policy", "kubelet.kubeReserved.policy"},
		{"container-runtime", "runtime.name"},
		{"pause-container-account", "runtime.pauseAccount"},
		{"pause-container-version", "runtime.pauseVersion"},
		{"docker-config-json", "runtime.dockerConfig"},
		{"enable-docker-bridge", "runtime.dockerBridge"},
		{"mount-bpf-fs", "instance.mountBPFFS"},
	} {
		take(f.flag, strings.Split(f.path, ".")...)
		known["spec."+f.path] = true
	}
	cidr, family := tree.Get("spec", "cluster", "cidr"), tree.Get("spec", "cluster", "ipFamily")
	switch {
	case !cidr.Empty() && strings.Contains(cidr.Text(), ":"):
		args = append(args, "--service-ipv6-cidr", cidr.Text())
	case !cidr.Empty():
		args = append(args, "--service-ipv4-cidr", cidr.Text())
	}
	if !family.Empty() && (cidr.Empty() || family.Text() == "ipv4") {
		args = append(args, "--ip-family", family.Text())
	}
	if dns := tree.Get("spec", "cluster", "dnsAddresses"); !dns.Empty() {
		var list []string
		for _, item := range dns.List {
			list = append(list, item.Text())
		}
		args = append(args, "--dns-cluster-ip", strings.Join(list, ","))
	}
	if disks := tree.Get("spec", "instance", "localStorage", "strategy"); !disks.Empty() {
		args = append(args, "--local-disks", strings.ToLower(disks.Text()))
	}
	if mode := tree.Get("spec", "kubelet", "maxPods", "mode"); !mode.Empty() && mode.Text() == "none" {
		args = append(args, "--use-max-pods", "false")
		known["spec.kubelet.maxPods.mode"] = true
	}
	if flags := tree.Get("spec", "kubelet", "flags"); !flags.Empty() {
		var list []string
		for _, item := range flags.List {
			list = append(list, item.Text())
		}
		args = append(args, "--kubelet-extra-args", strings.Join(list, " "))
	}
	for _, path := range []string{"apiVersion", "kind", "spec.cluster.name", "spec.cluster.cidr", "spec.cluster.ipFamily", "spec.cluster.dnsAddresses",
		"spec.instance.localStorage.strategy", "spec.kubelet.flags"} {
		known[path] = true
	}
	tree.Leaves(func(path string, leaf *doctree.Node) {
		counts := !leaf.Empty() || slices.ContainsFunc(freeForm, func(prefix string) bool { return strings.HasPrefix(path, prefix+".") })
		if !known[path] && counts && !strings.HasPrefix(path, "metadata") {
			left = append(left, path)
		}
	})
	return args, left
}

// bottlerocket are the settings of Bottlerocket that a NodeConfig has too.
var bottlerocket = map[string]string{
	"kubernetes.cluster-name":                            "cluster.name",
	"kubernetes.api-server":                              "cluster.apiServerEndpoint",
	"kubernetes.cluster-certificate":                     "cluster.certificateAuthority",
	"kubernetes.cluster-dns-ip":                          "cluster.dnsAddresses",
	"kubernetes.cluster-domain":                          "kubelet.config.clusterDomain",
	"kubernetes.max-pods":                                "kubelet.config.maxPods",
	"kubernetes.eviction-hard":                           "kubelet.config.evictionHard",
	"kubernetes.eviction-soft":                           "kubelet.config.evictionSoft",
	"kubernetes.eviction-soft-grace-period":              "kubelet.config.evictionSoftGracePeriod",
	"kubernetes.kube-reserved":                           "kubelet.config.kubeReserved",
	"kubernetes.system-reserved":                         "kubelet.config.systemReserved",
	"kubernetes.allowed-unsafe-sysctls":                  "kubelet.config.allowedUnsafeSysctls",
	"kubernetes.registry-qps":                            "kubelet.config.registryPullQPS",
	"kubernetes.registry-burst":                          "kubelet.config.registryBurst",
	"kubernetes.event-qps":                               "kubelet.config.eventRecordQPS",
	"kubernetes.event-burst":                             "kubelet.config.eventBurst",
	"kubernetes.kube-api-qps":                            "kubelet.config.kubeAPIQPS",
	"kubernetes.kube-api-burst":                          "kubelet.config.kubeAPIBurst",
	"kubernetes.container-log-max-size":                  "kubelet.config.containerLogMaxSize",
	"kubernetes.container-log-max-files":                 "kubelet.config.containerLogMaxFiles",
	"kubernetes.cpu-cfs-quota-enforced":                  "kubelet.config.cpuCFSQuota",
	"kubernetes.cpu-manager-policy":                      "kubelet.config.cpuManagerPolicy",
	"kubernetes.cpu-manager-reconcile-period":            "kubelet.config.cpuManagerReconcilePeriod",
	"kubernetes.topology-manager-policy":                 "kubelet.config.topologyManagerPolicy",
	"kubernetes.topology-manager-scope":                  "kubelet.config.topologyManagerScope",
	"kubernetes.pod-pids-limit":                          "kubelet.config.podPidsLimit",
	"kubernetes.image-gc-high-threshold-percent":         "kubelet.config.imageGCHighThresholdPercent",
	"kubernetes.image-gc-low-threshold-percent":          "kubelet.config.imageGCLowThresholdPercent",
	"kubernetes.shutdown-grace-period":                   "kubelet.config.shutdownGracePeriod",
	"kubernetes.shutdown-grace-period-for-critical-pods": "kubelet.config.shutdownGracePeriodCriticalPods",
	"network.https-proxy":                                "proxy.https",
	"network.no-proxy":                                   "proxy.noProxy",
	"dns.name-servers":                                   "instance.network.nameservers",
	"dns.search-list":                                    "instance.network.domains",
}

// FromBottlerocket writes Bottlerocket's user data, which is TOML, as a
// NodeConfig. left are the settings that have no counterpart.
func FromBottlerocket(data []byte, source string) (tree *doctree.Node, left []string, err error) {
	var doc struct {
		Settings map[string]any `toml:"settings"`
	}
	if _, err := toml.Decode(string(data), &doc); err != nil {
		return nil, nil, fault.New(fault.Usage, "mend the TOML", "%s: %w", source, err)
	}
	at := doctree.Origin{Source: source}
	tree = doctree.NewMap(at)
	tree.Set(doctree.NewScalar(apiVersion, at), "apiVersion")
	tree.Set(doctree.NewScalar(kind, at), "kind")
	var flags []string
	var walk func(prefix string, table map[string]any)
	walk = func(prefix string, table map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			path, value := prefix+key, table[key]
			nested, isTable := value.(map[string]any)
			switch {
			case path == "kubernetes.node-labels" && isTable:
				var list []string
				for _, k := range slices.Sorted(maps.Keys(nested)) {
					list = append(list, fmt.Sprintf("%s=%v", k, nested[k]))
				}
				flags = append(flags, "--node-labels="+strings.Join(list, ","))
			case path == "kubernetes.node-taints" && isTable:
				flags = append(flags, "--register-with-taints="+strings.Join(bottlerocketTaints(nested), ","))
			case path == "container-registry.mirrors":
				for registry, mirrors := range bottlerocketMirrors(value) {
					tree.Set(doctree.NewList(mirrors, at), "spec", "containerd", "registryMirrors", registry)
				}
			case bottlerocket[path] != "":
				node := doctree.FromValue(value, at)
				if text, isText := value.(string); isText {
					// Bottlerocket writes numbers as text in places.
					if _, err := strconv.Atoi(text); path == "kubernetes.max-pods" && err == nil {
						node = doctree.NewScalar(json.Number(text), at)
					}
					if bottlerocket[path] == "cluster.dnsAddresses" {
						node = doctree.NewList([]string{text}, at)
					}
				}
				tree.Set(node, append([]string{"spec"}, strings.Split(bottlerocket[path], ".")...)...)
			case isTable:
				walk(path+".", nested)
			default:
				left = append(left, "settings."+path)
			}
		}
	}
	walk("", doc.Settings)
	if len(flags) > 0 {
		for i := range flags {
			flags[i] = QuoteWord(flags[i])
		}
		tree.Set(doctree.NewList(flags, at), "spec", "kubelet", "flags")
	}
	return tree, left, nil
}

// bottlerocketMirrors reads a list of {registry = "docker.io", endpoint = ["URL", …]},
// in which a URL may lack https://, and a star stands for all registries.
func bottlerocketMirrors(list any) map[string][]string {
	mirrors := map[string][]string{}
	tables, _ := list.([]map[string]any)
	for _, table := range tables {
		registry, _ := table["registry"].(string)
		if registry == "*" {
			registry = "_default"
		}
		endpoints, _ := table["endpoint"].([]any)
		for _, endpoint := range endpoints {
			mirror := fmt.Sprint(endpoint)
			if !strings.Contains(mirror, "://") {
				mirror = "https://" + mirror
			}
			mirrors[registry] = append(mirrors[registry], mirror)
		}
	}
	return mirrors
}

// bottlerocketTaints reads key = "value:Effect" and key = ["value:Effect", …].
func bottlerocketTaints(table map[string]any) []string {
	var taints []string
	for _, key := range slices.Sorted(maps.Keys(table)) {
		values, isList := table[key].([]any)
		if !isList {
			values = []any{table[key]}
		}
		for _, v := range values {
			value, effect, _ := strings.Cut(fmt.Sprint(v), ":")
			taint := key + "=" + value + ":" + effect
			if value == "" {
				taint = key + ":" + effect
			}
			taints = append(taints, taint)
		}
	}
	return taints
}

// ParseBootstrapDocument reads a command line of bootstrap.sh as a document.
func ParseBootstrapDocument(args []string) (*doctree.Node, error) {
	values, operands, err := splitBootstrap(args)
	if err != nil {
		return nil, err
	}
	return BootstrapDocument(values, operands)
}

var bottlerocketTable = regexp.MustCompile(`(?m)^[ \t]*\[settings[.\]]`)

// Convertible reads user data that calls bootstrap.sh, NodeConfig documents or
// Bottlerocket's settings as one document. left are settings that have no
// counterpart.
func Convertible(data []byte, source string) (tree *doctree.Node, left []string, err error) {
	if bottlerocketTable.Match(data) && !strings.HasPrefix(string(data), "#!") && !strings.Contains(string(data), "MIME-Version") && !strings.Contains(string(data), apiVersion) {
		tree, left, err = FromBottlerocket(data, source)
	} else {
		var documents Documents
		documents, err = Load([]Source{{Name: source, Data: data}}, ReadOptions{Scripts: true})
		if tree = documents.Tree; tree == nil && err == nil {
			err = fault.New(fault.Usage, "give a NodeConfig, user data that calls bootstrap.sh, or Bottlerocket's settings", "%s: there is nothing in it to convert", source)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err = Resolve(tree); err != nil {
		return nil, nil, err
	}
	return tree, left, nil
}
