package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/argv"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// BootstrapFlag is one flag of bootstrap.sh. Every one of them takes a value,
// "true" or "false" included, as the script had it; an empty value is the same
// as none, because templates leave values empty.
type BootstrapFlag struct {
	Name, Placeholder, Usage string
}

// BootstrapFlags are all flags of the dialect, in the order help shows them.
func BootstrapFlags() []BootstrapFlag {
	return []BootstrapFlag{
		{"apiserver-endpoint", "URL", "API server of the cluster; with --b64-cluster-ca EKS is not asked"},
		{"b64-cluster-ca", "BASE64", "certificate authority of the cluster, base64 of PEM"},
		{"kubelet-extra-args", "ARGS", "kubelet's own flags, in one quoted value"},
		{"use-max-pods", "true|false", "write max pods into kubelet's configuration (default true)"},
		{"kube-reserved-policy", "effective|legacy", "reserve memory for the pods that can run (default), or always for what the ENIs allow"},
		{"dns-cluster-ip", "IP[,IP]", "address of cluster DNS (default: the tenth of the service CIDR)"},
		{"service-ipv4-cidr", "CIDR", "services' addresses in the cluster"},
		{"service-ipv6-cidr", "CIDR", "the same for an IPv6 cluster"},
		{"ip-family", "ipv4|ipv6", "IP family of the cluster (default: as EKS says, else ipv4)"},
		{"container-runtime", "containerd|dockerd", "container runtime; dockerd only for kubelet 1.23 and older"},
		{"containerd-config-file", "FILE", "containerd's configuration instead of the planned one; SANDBOX_IMAGE in it is replaced"},
		{"docker-config-json", "JSON", "dockerd's daemon.json (dockerd only)"},
		{"enable-docker-bridge", "true|false", "keep Docker's bridge network (dockerd only)"},
		{"pause-container-account", "ACCOUNT", "ECR account of the pause image"},
		{"pause-container-version", "TAG", "tag of the pause image"},
		{"cluster-id", "ID", "id of a local cluster on an Outpost"},
		{"enable-local-outpost", "true|false", "the cluster is local to an Outpost (default: as EKS says)"},
		{"local-disks", "raid0|raid10|mount", "what to do with instance store volumes"},
		{"mount-bpf-fs", "true|false", "mount /sys/fs/bpf if nothing else does (default true)"},
		{"aws-api-retry-attempts", "N", "how often to ask EKS again (default: until --timeout)"},
	}
}

// ParseBootstrap reads a command line of bootstrap.sh, without the program's
// own name.
func ParseBootstrap(args []string) (Config, error) {
	values, operands, err := splitBootstrap(args)
	if err != nil {
		return Config{}, err
	}
	return FromBootstrap(values, operands)
}

// RunFlags are flags that stand in the same command line and say how to run, not
// what the node is to be. They have no place in a configuration.
var RunFlags = map[string]argv.Arity{
	"wait": argv.Value, "timeout": argv.Value, "credential-plugin": argv.Value, "kubelet-version": argv.Value, "imds-endpoint": argv.Value,
	"root": argv.Value, "log-format": argv.Value, "output": argv.Value, "o": argv.Value,
	"dry-run": argv.Switch, "no-start": argv.Switch, "force-conflicts": argv.Switch, "rollback-on-failure": argv.Switch, "v": argv.Switch,
}

func splitBootstrap(args []string) (values map[string]string, operands []string, err error) {
	known := maps.Clone(RunFlags)
	for _, f := range BootstrapFlags() {
		known[f.Name] = argv.Value
	}
	flags, operands, err := argv.Split(args, known)
	if err != nil {
		return nil, nil, err
	}
	values = map[string]string{}
	for _, f := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		values[name] = value
	}
	return values, operands, nil
}

// FromBootstrap reads the arguments of bootstrap.sh: values by flag name, as
// far as they were given, and the operands. It reports everything that is
// wrong with them at once.
func FromBootstrap(values map[string]string, operands []string) (Config, error) {
	tree, err := BootstrapDocument(values, operands)
	if tree == nil {
		return Config{}, err
	}
	c, err2 := Resolve(tree)
	return c, errors.Join(err, err2)
}

// BootstrapDocument writes the arguments of bootstrap.sh as a NodeConfig. The
// document is nil where they are too wrong to go on.
func BootstrapDocument(values map[string]string, operands []string) (*doctree.Node, error) {
	b := &bootstrapReader{values: values, tree: doctree.NewMap(doctree.Origin{Source: "bootstrap.sh"})}
	if b.swallowed(); len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	b.tree.Set(doctree.NewScalar(apiVersion, b.tree.Origin), "apiVersion")
	b.tree.Set(doctree.NewScalar(kind, b.tree.Origin), "kind")
	b.clusterName(operands)

	b.text("apiserver-endpoint", "cluster", "apiServerEndpoint")
	b.text("b64-cluster-ca", "cluster", "certificateAuthority")
	b.text("cluster-id", "cluster", "id")
	b.text("containerd-config-file", "containerd", "configFile")
	b.text("pause-container-account", "runtime", "pauseAccount")
	b.text("pause-container-version", "runtime", "pauseVersion")
	b.oneOf("container-runtime", []string{"containerd", "dockerd"}, nil, "runtime", "name")
	b.oneOf("kube-reserved-policy", []string{"effective", "legacy"}, nil, "kubelet", "kubeReserved", "policy")
	b.oneOf("ip-family", []string{"ipv4", "ipv6"}, nil, "cluster", "ipFamily")
	b.oneOf("local-disks", []string{"raid0", "raid10", "mount"}, []string{"RAID0", "RAID10", "Mount"}, "instance", "localStorage", "strategy")
	b.boolean("enable-local-outpost", "cluster", "enableOutpost")
	b.boolean("enable-docker-bridge", "runtime", "dockerBridge")
	b.boolean("mount-bpf-fs", "instance", "mountBPFFS")
	b.oneOf("use-max-pods", []string{"true", "false"}, []string{"", "none"}, "kubelet", "maxPods", "mode")
	b.dockerConfig()
	b.serviceCIDR()
	b.dnsAddresses()
	b.retries()
	b.kubeletFlags()
	return b.tree, errors.Join(b.errs...)
}

// bootstrapReader collects what is wrong while it reads, instead of stopping at
// the first mistake.
type bootstrapReader struct {
	values map[string]string
	tree   *doctree.Node
	errs   []error
}

func (b *bootstrapReader) fail(flag, remedy, format string, args ...any) {
	if flag != "" {
		format = "--" + flag + ": " + format
	}
	b.errs = append(b.errs, fault.New(fault.Usage, remedy, format, args...))
}

func (b *bootstrapReader) value(flag string) string { return strings.TrimSpace(b.values[flag]) }

func (b *bootstrapReader) set(flag string, value any, path ...string) {
	at := doctree.Origin{Source: "--" + flag}
	n := doctree.NewScalar(value, at)
	if list, ok := value.([]string); ok {
		n = doctree.NewList(list, at)
	}
	b.tree.Set(n, append([]string{"spec"}, path...)...)
}

// swallowed finds flags that took the next flag for their value, which happens
// when a shell variable is empty and not quoted.
func (b *bootstrapReader) swallowed() {
	names := map[string]bool{}
	for _, f := range BootstrapFlags() {
		names["--"+f.Name] = true
	}
	for _, f := range BootstrapFlags() {
		value := b.values[f.Name]
		if word, _, _ := strings.Cut(value, "="); names[word] && f.Name != "kubelet-extra-args" {
			b.fail(f.Name, "put the value in quotes; if it comes from a shell variable, that is empty", "it has no value, the next word is %s", short(value))
		}
	}
}

func (b *bootstrapReader) clusterName(operands []string) {
	switch {
	case len(operands) == 0 || operands[0] == "":
		b.fail("", "add the name of the EKS cluster: nodeadm bootstrap my-cluster", "no cluster name is given")
		return
	case len(operands) > 1:
		b.fail("", "put quotes around a value that contains spaces", "one cluster name is expected, and there are %d words: %s", len(operands), short(strings.Join(operands, " ")))
	}
	b.tree.Set(doctree.NewScalar(operands[0], doctree.Origin{Source: "the cluster's name"}), "spec", "cluster", "name")
}

func (b *bootstrapReader) text(flag string, path ...string) {
	if v := b.value(flag); v != "" {
		b.set(flag, v, path...)
	}
}

// oneOf takes one of several words in any case; documents say them as in
// written, or in the same way.
func (b *bootstrapReader) oneOf(flag string, allowed, written []string, path ...string) {
	value := b.value(flag)
	if value == "" {
		return
	}
	for i, a := range allowed {
		if !strings.EqualFold(value, a) {
			continue
		}
		if written != nil {
			a = written[i]
		}
		if a != "" {
			b.set(flag, a, path...)
		}
		return
	}
	if allowed[0] == "true" {
		b.fail(flag, "write --"+flag+" true or --"+flag+" false", "%q is neither true nor false", value)
		return
	}
	b.fail(flag, "write one of: "+strings.Join(allowed, ", "), "%q is not known", value)
}

func (b *bootstrapReader) boolean(flag string, path ...string) {
	switch value := b.value(flag); strings.ToLower(value) {
	case "":
	case "true":
		b.set(flag, true, path...)
	case "false":
		b.set(flag, false, path...)
	default:
		b.fail(flag, "write --"+flag+" true or --"+flag+" false", "%q is neither true nor false", value)
	}
}

func (b *bootstrapReader) dockerConfig() {
	value := b.value("docker-config-json")
	if value == "" {
		return
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(value), &doc); err != nil {
		b.fail("docker-config-json", "write a JSON object in single quotes", "not a JSON object: %v", err)
	}
	b.set("docker-config-json", value, "runtime", "dockerConfig")
}

func (b *bootstrapReader) serviceCIDR() {
	v4, v6 := b.value("service-ipv4-cidr"), b.value("service-ipv6-cidr")
	family := strings.ToLower(b.value("ip-family"))
	b.family("service-ipv4-cidr", v4, "10.100.0.0/16", netip.Addr.Is4)
	b.family("service-ipv6-cidr", v6, "fd30:1c53:5f8a::/108", netip.Addr.Is6)
	if v6 != "" && family == "ipv4" {
		b.fail("service-ipv6-cidr", "leave one of the two out", "it contradicts --ip-family ipv4")
	}
	if v4 != "" && (v6 != "" || family == "ipv6") {
		b.fail("service-ipv4-cidr", "leave it out for an IPv6 cluster", "the cluster's IP family is ipv6")
	}
	switch {
	case v6 != "":
		b.set("service-ipv6-cidr", v6, "cluster", "cidr")
		b.set("service-ipv6-cidr", "ipv6", "cluster", "ipFamily")
	case v4 != "":
		b.set("service-ipv4-cidr", v4, "cluster", "cidr")
	}
}

func (b *bootstrapReader) family(flag, value, example string, family func(netip.Addr) bool) {
	if p, err := netip.ParsePrefix(value); value != "" && (err != nil || !family(p.Addr())) {
		b.fail(flag, "write a CIDR such as "+example, "%q is not a CIDR of that family", value)
		b.values[flag] = ""
	}
}

func (b *bootstrapReader) dnsAddresses() {
	value := b.value("dns-cluster-ip")
	if value == "" {
		return
	}
	var addresses []string
	for ip := range strings.SplitSeq(value, ",") {
		addresses = append(addresses, strings.TrimSpace(ip))
	}
	b.set("dns-cluster-ip", addresses, "cluster", "dnsAddresses")
}

func (b *bootstrapReader) retries() {
	value := b.value("aws-api-retry-attempts")
	if value == "" {
		return
	}
	if n, err := strconv.Atoi(value); err != nil || n < 0 {
		b.fail("aws-api-retry-attempts", "write a number, 0 or more", "%q is not a number of attempts", value)
		return
	}
	b.set("aws-api-retry-attempts", json.Number(value), "cluster", "describeRetries")
}

func (b *bootstrapReader) kubeletFlags() {
	words, err := SplitWords(b.value("kubelet-extra-args"))
	if err != nil {
		b.fail("kubelet-extra-args", "close every quote, and put the whole value in single quotes", "%v", err)
	}
	for i := range words {
		words[i] = QuoteWord(words[i])
	}
	if len(words) > 0 {
		b.set("kubelet-extra-args", words, "kubelet", "flags")
	}
}

// short quotes a word for a message; certificates are long.
func short(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q…", s[:57])
	}
	return fmt.Sprintf("%q", s)
}
