package config

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// BootstrapFlag is one flag of bootstrap.sh. Every one of them takes a value,
// "true" or "false" included, as the script had it; an empty value is the same
// as none, because templates leave values empty.
type BootstrapFlag struct {
	Name, Placeholder, Usage string
	set                      func(*bootstrapArgs, string)
}

// bootstrapArgs are the values as given, before anything is checked.
type bootstrapArgs struct {
	endpoint, ca, retries, clusterID, runtime, containerdConfig string
	dns, dockerConfig, dockerBridge, outpost, ipFamily          string
	ipv4CIDR, ipv6CIDR, kubeletArgs, disks, bpf                 string
	pauseAccount, pauseVersion, useMaxPods, reservedPolicy      string
}

// BootstrapFlags are all flags of the dialect, in the order help shows them.
func BootstrapFlags() []BootstrapFlag {
	return []BootstrapFlag{
		{"apiserver-endpoint", "URL", "API server of the cluster; with --b64-cluster-ca EKS is not asked", func(a *bootstrapArgs, v string) { a.endpoint = v }},
		{"b64-cluster-ca", "BASE64", "certificate authority of the cluster, base64 of PEM", func(a *bootstrapArgs, v string) { a.ca = v }},
		{"kubelet-extra-args", "ARGS", "kubelet's own flags, in one quoted value", func(a *bootstrapArgs, v string) { a.kubeletArgs = v }},
		{"use-max-pods", "true|false", "write max pods into kubelet's configuration (default true)", func(a *bootstrapArgs, v string) { a.useMaxPods = v }},
		{"kube-reserved-policy", "effective|legacy", "reserve memory for the pods that can run (default), or always for what the ENIs allow", func(a *bootstrapArgs, v string) { a.reservedPolicy = v }},
		{"dns-cluster-ip", "IP[,IP]", "address of cluster DNS (default: the tenth of the service CIDR)", func(a *bootstrapArgs, v string) { a.dns = v }},
		{"service-ipv4-cidr", "CIDR", "services' addresses in the cluster", func(a *bootstrapArgs, v string) { a.ipv4CIDR = v }},
		{"service-ipv6-cidr", "CIDR", "the same for an IPv6 cluster", func(a *bootstrapArgs, v string) { a.ipv6CIDR = v }},
		{"ip-family", "ipv4|ipv6", "IP family of the cluster (default: as EKS says, else ipv4)", func(a *bootstrapArgs, v string) { a.ipFamily = v }},
		{"container-runtime", "containerd|dockerd", "container runtime; dockerd only for kubelet 1.23 and older", func(a *bootstrapArgs, v string) { a.runtime = v }},
		{"containerd-config-file", "FILE", "containerd's configuration instead of the planned one; SANDBOX_IMAGE in it is replaced", func(a *bootstrapArgs, v string) { a.containerdConfig = v }},
		{"docker-config-json", "JSON", "dockerd's daemon.json (dockerd only)", func(a *bootstrapArgs, v string) { a.dockerConfig = v }},
		{"enable-docker-bridge", "true|false", "keep Docker's bridge network (dockerd only)", func(a *bootstrapArgs, v string) { a.dockerBridge = v }},
		{"pause-container-account", "ACCOUNT", "ECR account of the pause image", func(a *bootstrapArgs, v string) { a.pauseAccount = v }},
		{"pause-container-version", "TAG", "tag of the pause image", func(a *bootstrapArgs, v string) { a.pauseVersion = v }},
		{"cluster-id", "ID", "id of a local cluster on an Outpost", func(a *bootstrapArgs, v string) { a.clusterID = v }},
		{"enable-local-outpost", "true|false", "the cluster is local to an Outpost (default: as EKS says)", func(a *bootstrapArgs, v string) { a.outpost = v }},
		{"local-disks", "raid0|raid10|mount", "what to do with instance store volumes", func(a *bootstrapArgs, v string) { a.disks = v }},
		{"mount-bpf-fs", "true|false", "mount /sys/fs/bpf if nothing else does (default true)", func(a *bootstrapArgs, v string) { a.bpf = v }},
		{"aws-api-retry-attempts", "N", "how often to ask EKS again (default: until --timeout)", func(a *bootstrapArgs, v string) { a.retries = v }},
	}
}

// FromBootstrap reads the arguments of bootstrap.sh: values by flag name, as
// far as they were given, and the operands. It reports everything that is
// wrong with them at once.
func FromBootstrap(values map[string]string, operands []string) (Config, error) {
	var a bootstrapArgs
	for _, f := range BootstrapFlags() {
		f.set(&a, strings.TrimSpace(values[f.Name]))
	}
	r := &reader{}
	names := map[string]bool{}
	for _, f := range BootstrapFlags() {
		names["--"+f.Name] = true
	}
	for _, f := range BootstrapFlags() {
		value := values[f.Name]
		if word, _, _ := strings.Cut(value, "="); names[word] && f.Name != "kubelet-extra-args" {
			r.fail(f.Name, "put the value in quotes; if it comes from a shell variable, that is empty", "it has no value, the next word is %s", short(value))
		}
	}
	if len(r.errs) > 0 {
		return Config{}, errors.Join(r.errs...)
	}
	c := Config{
		Cluster: Cluster{
			Name:            r.clusterName(operands),
			ID:              a.clusterID,
			DescribeRetries: -1,
		},
		Kubelet: Kubelet{
			Flags:          r.kubeletFlags(a.kubeletArgs),
			OmitMaxPods:    !r.boolean("use-max-pods", a.useMaxPods, true),
			ReservedPolicy: r.oneOf("kube-reserved-policy", a.reservedPolicy, "effective", "legacy"),
		},
		Containerd: Containerd{ConfigFile: a.containerdConfig},
		Docker:     Docker{Config: r.json("docker-config-json", a.dockerConfig), Bridge: r.boolean("enable-docker-bridge", a.dockerBridge, false)},
		PauseImage: PauseImage{Account: r.matching("pause-container-account", a.pauseAccount, accountPattern, "a 12-digit AWS account"), Version: r.matching("pause-container-version", a.pauseVersion, tagPattern, "an image tag such as 3.10")},
		Runtime:    r.oneOf("container-runtime", a.runtime, "containerd", "dockerd"),
		LocalDisks: r.oneOf("local-disks", a.disks, "raid0", "raid10", "mount"),
		MountBPFFS: r.boolean("mount-bpf-fs", a.bpf, true),
	}
	r.cluster(&c.Cluster, a)
	r.kubelet(c.Kubelet)
	return c, errors.Join(r.errs...)
}

// reader collects what is wrong while it reads, instead of stopping at the
// first mistake.
type reader struct{ errs []error }

func (r *reader) fail(flag, remedy, format string, args ...any) {
	if flag != "" {
		format = "--" + flag + ": " + format
	}
	r.errs = append(r.errs, fault.New(fault.Usage, remedy, format, args...))
}

func (r *reader) clusterName(operands []string) string {
	switch {
	case len(operands) == 0 || operands[0] == "":
		r.fail("", "add the name of the EKS cluster: nodeadm bootstrap my-cluster", "no cluster name is given")
		return ""
	case len(operands) > 1:
		r.fail("", "put quotes around a value that contains spaces", "one cluster name is expected, and there are %d words: %s", len(operands), short(strings.Join(operands, " ")))
	}
	if !clusterNamePattern.MatchString(operands[0]) {
		r.fail("", "EKS cluster names begin with a letter or digit and go on with letters, digits, - and _, at most 100 in all", "%s is not a cluster name", short(operands[0]))
	}
	return operands[0]
}

func (r *reader) boolean(flag, value string, otherwise bool) bool {
	switch strings.ToLower(value) {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	}
	r.fail(flag, "write --"+flag+" true or --"+flag+" false", "%q is neither true nor false", value)
	return otherwise
}

func (r *reader) oneOf(flag, value string, allowed ...string) string {
	if value == "" {
		return ""
	}
	for _, a := range allowed {
		if strings.EqualFold(value, a) {
			return a
		}
	}
	r.fail(flag, "write one of: "+strings.Join(allowed, ", "), "%q is not known", value)
	return ""
}

func (r *reader) matching(flag, value string, pattern interface{ MatchString(string) bool }, want string) string {
	if value != "" && !pattern.MatchString(value) {
		r.fail(flag, "write "+want, "%q is not %s", value, want)
	}
	return value
}

func (r *reader) json(flag, value string) string {
	if value == "" {
		return ""
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(value), &doc); err != nil {
		r.fail(flag, "write a JSON object in single quotes", "not a JSON object: %v", err)
	}
	return value
}

func (r *reader) kubeletFlags(text string) []string {
	words, err := SplitWords(text)
	if err != nil {
		r.fail("kubelet-extra-args", "close every quote, and put the whole value in single quotes", "%v", err)
	}
	for _, w := range words {
		for _, c := range w {
			if c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
				r.fail("kubelet-extra-args", "remove it", "%q holds a control character", w)
				break
			}
		}
	}
	return words
}

// cluster reads what is said of the cluster's API server and network.
func (r *reader) cluster(c *Cluster, a bootstrapArgs) {
	if a.endpoint != "" {
		c.Endpoint = a.endpoint
		if err := checkEndpoint(a.endpoint); err != nil {
			r.fail("apiserver-endpoint", "write it as https://HOST, as `aws eks describe-cluster` shows it", "%v", err)
		}
	}
	if a.ca != "" {
		pemData, err := decodeCA(a.ca)
		if err != nil {
			r.fail("b64-cluster-ca", "copy certificateAuthority.data of `aws eks describe-cluster` as it is", "%v", err)
		}
		c.CertificateAuthority = pemData
	}
	switch {
	case a.endpoint != "" && a.ca == "":
		r.fail("apiserver-endpoint", "add --b64-cluster-ca, or leave both out so that EKS is asked", "the endpoint is given without the certificate authority")
	case a.endpoint == "" && a.ca != "":
		r.fail("b64-cluster-ca", "add --apiserver-endpoint, or leave both out so that EKS is asked", "the certificate authority is given without the endpoint")
	}

	c.IPFamily = r.oneOf("ip-family", a.ipFamily, "ipv4", "ipv6")
	ipv4 := r.cidr("service-ipv4-cidr", a.ipv4CIDR, "10.100.0.0/16", netip.Addr.Is4)
	ipv6 := r.cidr("service-ipv6-cidr", a.ipv6CIDR, "fd30:1c53:5f8a::/108", netip.Addr.Is6)
	if a.ipv6CIDR != "" {
		if c.IPFamily == "ipv4" {
			r.fail("service-ipv6-cidr", "leave one of the two out", "it contradicts --ip-family ipv4")
		}
		c.IPFamily = "ipv6"
	}
	if c.ServiceCIDR = ipv4; c.IPFamily == "ipv6" {
		c.ServiceCIDR = ipv6
		if a.ipv4CIDR != "" {
			r.fail("service-ipv4-cidr", "leave it out for an IPv6 cluster", "the cluster's IP family is ipv6")
		}
	}
	for ip := range strings.SplitSeq(a.dns, ",") {
		if a.dns == "" {
			break
		}
		addr, err := netip.ParseAddr(strings.TrimSpace(ip))
		if err != nil {
			r.fail("dns-cluster-ip", "write an IP address such as 10.100.0.10, several with commas and no spaces", "%q is not an IP address", ip)
			continue
		}
		c.DNSAddresses = append(c.DNSAddresses, addr)
	}
	// When EKS is asked it tells the CIDR.
	if c.IPFamily == "ipv6" && a.ipv6CIDR == "" && a.dns == "" && a.endpoint != "" {
		r.fail("ip-family", "add --service-ipv6-cidr CIDR or --dns-cluster-ip IP", "an IPv6 cluster's DNS address cannot be known without its service CIDR")
	}

	if a.retries != "" {
		n, err := strconv.Atoi(a.retries)
		if err != nil || n < 0 {
			r.fail("aws-api-retry-attempts", "write a number, 0 or more", "%q is not a number of attempts", a.retries)
		}
		c.DescribeRetries = n
	}
	if a.outpost != "" {
		on := r.boolean("enable-local-outpost", a.outpost, false)
		c.Outpost = &on
		if on && a.clusterID == "" && a.endpoint != "" {
			r.fail("enable-local-outpost", "add --cluster-id ID", "a local cluster is authenticated by its id, which is not given")
		}
	}
}

func (r *reader) cidr(flag, value, example string, family func(netip.Addr) bool) netip.Prefix {
	if value == "" {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(value)
	if err != nil || !family(p.Addr()) {
		r.fail(flag, "write a CIDR such as "+example, "%q is not a CIDR of that family", value)
		return netip.Prefix{}
	}
	if p != p.Masked() {
		r.fail(flag, "write "+p.Masked().String(), "%s has address bits beyond its prefix", value)
	}
	return p
}

// short quotes a word for a message; certificates are long.
func short(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q…", s[:57])
	}
	return fmt.Sprintf("%q", s)
}

// decodeCA decodes a certificate authority and makes sure that it is one.
func decodeCA(b64 string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		if strings.Contains(b64, "BEGIN CERTIFICATE") {
			return nil, errors.New("this is PEM itself, not base64 of it")
		}
		return nil, fmt.Errorf("not base64: %w", err)
	}
	if again, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data))); err == nil && isPEM(again) {
		return nil, errors.New("the certificate is base64-encoded twice")
	}
	return data, CheckCA(data)
}

func isPEM(data []byte) bool {
	block, _ := pem.Decode(data)
	return block != nil
}
