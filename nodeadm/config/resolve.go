package config

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/cel"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Resolve reads a merged document and checks all of it, before anything is
// asked of anybody: each mistake is reported at the place where it was
// written, all of them at once.
func Resolve(tree *doctree.Node) (Config, error) {
	r := &resolver{tree: tree}
	for _, p := range doctree.Check(tree, reflect.TypeFor[NodeConfig]()) {
		r.add(p)
	}
	if len(r.errs) > 0 {
		return Config{}, errors.Join(r.errs...)
	}
	tree.Leaves(func(path string, leaf *doctree.Node) {
		if !utf8.ValidString(leaf.Text()) {
			r.add(&doctree.Problem{Origin: leaf.Origin, Message: path + ": the text is not UTF-8", Remedy: "write it in UTF-8; systemd drops a line that is not"})
		}
	})
	var doc NodeConfig
	if err := tree.Decode(&doc); err != nil {
		return Config{}, fault.New(fault.Usage, "", "%s: %w", tree.Origin, err)
	}
	c := Config{
		Document:   tree,
		Cluster:    r.cluster(doc.Spec.Cluster),
		Kubelet:    r.kubelet(doc.Spec.Kubelet),
		Containerd: r.containerd(doc.Spec.Containerd),
		Instance:   r.instance(doc.Spec.Instance),
		Proxy:      r.proxy(doc.Spec.Proxy),
		Labels:     doc.Spec.Labels,
		Docker:     Docker{Config: doc.Spec.Runtime.DockerConfig, Bridge: doc.Spec.Runtime.DockerBridge},
		PauseImage: r.pauseImage(doc.Spec.Runtime),
		Runtime:    doc.Spec.Runtime.Name,
		LocalDisks: strings.ToLower(doc.Spec.Instance.LocalStorage.Strategy),
		MountBPFFS: doc.Spec.Instance.MountBPFFS == nil || *doc.Spec.Instance.MountBPFFS,
	}
	r.featureGates(doc.Spec.FeatureGates)
	c.Kubelet.InstanceIDNodeName = doc.Spec.FeatureGates["InstanceIdNodeName"]
	c.FastImagePull = doc.Spec.FeatureGates["FastImagePull"]
	return c, errors.Join(r.errs...)
}

// resolver collects what is wrong, each at its place.
type resolver struct {
	tree *doctree.Node
	errs []error
}

func (r *resolver) add(p *doctree.Problem) {
	r.errs = append(r.errs, fault.New(fault.Usage, p.Remedy, "%w", p))
}

// fail reports a mistake in the value at a path below spec, such as
// "kubelet.flags[2]".
func (r *resolver) fail(path, remedy, format string, args ...any) {
	r.failAt(strings.Split(path, "."), remedy, format, args...)
}

// failAt does so where keys may hold dots. The path is said where the origin is
// a document; a flag says it itself.
func (r *resolver) failAt(path []string, remedy, format string, args ...any) {
	at := r.tree.Origin
	message := fmt.Sprintf(format, args...)
	n := r.tree
	for _, key := range append([]string{"spec"}, path...) {
		name, index, isItem := strings.Cut(key, "[")
		next := n.Get(name)
		if i, err := strconv.Atoi(strings.TrimSuffix(index, "]")); isItem && err == nil && next != nil && i < len(next.List) {
			next = next.List[i]
		}
		if next == nil {
			break
		}
		n, at = next, next.Origin
	}
	if at.Line > 0 || n == r.tree {
		message = "spec." + strings.Join(path, ".") + ": " + message
	}
	r.add(&doctree.Problem{Origin: at, Message: message, Remedy: remedy})
}

// own is the remedy in the words of whoever wrote the field below spec: those of
// a document, or of bootstrap.sh.
func (r *resolver) own(document, flags string, path ...string) string {
	if n := r.tree.Get(append([]string{"spec"}, path...)...); n != nil && n.Origin.Line == 0 {
		return flags
	}
	return document
}

func (r *resolver) cluster(spec ClusterSpec) Cluster {
	c := Cluster{Name: spec.Name, Endpoint: spec.APIServerEndpoint, IPFamily: spec.IPFamily, ID: spec.ID, Outpost: spec.EnableOutpost, DescribeRetries: -1}
	if spec.Name != "" && !clusterNamePattern.MatchString(spec.Name) {
		r.fail("cluster.name", "EKS cluster names begin with a letter or digit and go on with letters, digits, - and _, at most 100 in all", "%s is not a cluster name", short(spec.Name))
	}
	if spec.APIServerEndpoint != "" {
		if err := checkEndpoint(spec.APIServerEndpoint); err != nil {
			r.fail("cluster.apiServerEndpoint", "write it as https://HOST, as `aws eks describe-cluster` shows it", "%v", err)
		}
	}
	if spec.CertificateAuthority != "" {
		var err error
		if c.CertificateAuthority, err = decodeCA(spec.CertificateAuthority); err != nil {
			r.fail("cluster.certificateAuthority", "copy certificateAuthority.data of `aws eks describe-cluster` as it is", "%v", err)
		}
	}
	switch {
	case spec.APIServerEndpoint != "" && spec.CertificateAuthority == "":
		r.fail("cluster.apiServerEndpoint", r.own("add spec.cluster.certificateAuthority", "add the certificate authority (--b64-cluster-ca)", "cluster", "apiServerEndpoint")+", or leave both out so that EKS is asked", "the endpoint is given without the certificate authority")
	case spec.APIServerEndpoint == "" && spec.CertificateAuthority != "":
		r.fail("cluster.certificateAuthority", r.own("add spec.cluster.apiServerEndpoint", "add the endpoint (--apiserver-endpoint)", "cluster", "certificateAuthority")+", or leave both out so that EKS is asked", "the certificate authority is given without the endpoint")
	}
	if spec.CIDR != "" {
		p, err := netip.ParsePrefix(spec.CIDR)
		switch {
		case err != nil:
			r.fail("cluster.cidr", "write a CIDR such as 10.100.0.0/16", "%q is not a CIDR", spec.CIDR)
		case p != p.Masked():
			r.fail("cluster.cidr", "write "+p.Masked().String(), "%s has address bits beyond its prefix", spec.CIDR)
		case c.IPFamily != "" && (c.IPFamily == "ipv6") != p.Addr().Is6():
			r.fail("cluster.cidr", "leave one of the two out", "%s contradicts the IP family %s", spec.CIDR, c.IPFamily)
		default:
			c.ServiceCIDR = p
			if c.IPFamily = "ipv4"; p.Addr().Is6() {
				c.IPFamily = "ipv6"
			}
		}
	}
	for i, ip := range spec.DNSAddresses {
		path := fmt.Sprintf("cluster.dnsAddresses[%d]", i)
		addr, err := netip.ParseAddr(ip)
		if err != nil || addr.Zone() != "" {
			r.fail(path, "write an IP address such as 10.100.0.10, several with commas and no spaces", "%q is not an IP address", ip)
			continue
		}
		if v6 := addr.Is6(); v6 != (c.IPFamily == "ipv6") && c.IPFamily != "" || addr.IsUnspecified() {
			r.fail(path, "write an address of the cluster's IP family", "%s cannot be the address of this cluster's DNS", ip)
		}
		c.DNSAddresses = append(c.DNSAddresses, addr)
	}
	// When EKS is asked it tells the CIDR.
	if c.IPFamily == "ipv6" && spec.CIDR == "" && len(spec.DNSAddresses) == 0 && spec.APIServerEndpoint != "" {
		r.fail("cluster.ipFamily", r.own("add spec.cluster.cidr or spec.cluster.dnsAddresses", "add --service-ipv6-cidr CIDR or --dns-cluster-ip IP", "cluster", "ipFamily"), "an IPv6 cluster's DNS address cannot be known without its service CIDR")
	}
	if spec.ID != "" && !clusterIDPattern.MatchString(spec.ID) {
		r.fail("cluster.id", "copy id of `aws eks describe-cluster`", "%s is not the id of a cluster", short(spec.ID))
	}
	if spec.DescribeRetries != nil {
		if c.DescribeRetries = *spec.DescribeRetries; c.DescribeRetries < 0 {
			r.fail("cluster.describeRetries", "write a number, 0 or more", "%d is not a number of attempts", c.DescribeRetries)
		}
	}
	if spec.EnableOutpost != nil && *spec.EnableOutpost && spec.ID == "" && spec.APIServerEndpoint != "" {
		r.fail("cluster.enableOutpost", r.own("add the cluster's id as spec.cluster.id", "add --cluster-id ID", "cluster", "enableOutpost"), "a local cluster is authenticated by its id, which is not given")
	}
	return c
}

func (r *resolver) kubelet(spec KubeletSpec) Kubelet {
	k := Kubelet{Config: spec.Config, ReservedPolicy: spec.KubeReserved.Policy, MaxPods: r.maxPods(spec)}
	var items []int // of each word, the item that it stands in
	for i, item := range spec.Flags {
		// An item may hold several flags, or quotes: it has always been split
		// once more on its way to kubelet.
		words, err := SplitWords(item)
		if err != nil {
			r.fail(fmt.Sprintf("kubelet.flags[%d]", i), "close every quote", "%s: %v", short(item), err)
		}
		k.Flags = append(k.Flags, words...)
		for range words {
			items = append(items, i)
		}
	}
	r.flags(k, func(word int) string { return fmt.Sprintf("kubelet.flags[%d]", items[word]) })
	for _, field := range []struct{ key, want string }{{"apiVersion", "kubelet.config.k8s.io/v1beta1"}, {"kind", "KubeletConfiguration"}} {
		if value, given := spec.Config[field.key]; given && value != field.want {
			r.fail("kubelet.config."+field.key, "write "+field.want+", or leave it out", "%v is not what kubelet reads", value)
		}
	}
	return k
}

func (r *resolver) maxPods(spec KubeletSpec) MaxPods {
	m := MaxPods{Mode: spec.MaxPods.Mode, CustomNetworking: spec.MaxPods.CustomNetworking, Cap: spec.MaxPods.Cap}
	for _, field := range []struct {
		name  string
		given *int
		least int
	}{{"value", spec.MaxPods.Value, 1}, {"maxENIs", spec.MaxPods.MaxENIs, 0}, {"reservedENIs", spec.MaxPods.ReservedENIs, 0}} {
		if field.given != nil && *field.given < field.least {
			r.fail("kubelet.maxPods."+field.name, fmt.Sprintf("write %d or more", field.least), "%d is too small", *field.given)
		}
	}
	if spec.MaxPods.Value != nil {
		m.Value = *spec.MaxPods.Value
	}
	if spec.MaxPods.MaxENIs != nil {
		m.MaxENIs = *spec.MaxPods.MaxENIs
	}
	if spec.MaxPods.ReservedENIs != nil {
		m.ReservedENIs = *spec.MaxPods.ReservedENIs
	}
	if (m.Mode == "fixed") != (spec.MaxPods.Value != nil) {
		r.fail("kubelet.maxPods", "write mode: fixed with value: N, or neither", "mode fixed and value belong together")
	}
	if spec.MaxPodsExpression != "" {
		if m.Mode != "" {
			r.fail("kubelet.maxPodsExpression", "leave one of the two out", "it contradicts maxPods.mode %s", m.Mode)
		}
		program, err := cel.Compile(spec.MaxPodsExpression, MaxPodsVariables)
		if err != nil {
			r.fail("kubelet.maxPodsExpression", "write an expression of "+strings.Join(MaxPodsVariables, ", "), "%v", err)
		}
		m.Expression = program
	}
	return m
}

// MaxPodsVariables are what a max-pods expression may refer to.
var MaxPodsVariables = []string{"default_enis", "ips_per_eni", "max_pods"}

func (r *resolver) containerd(spec ContainerdSpec) Containerd {
	if spec.Config != "" {
		var doc map[string]any
		if _, err := toml.Decode(spec.Config, &doc); err != nil {
			at := ""
			if parse := (toml.ParseError{}); errors.As(err, &parse) {
				at = fmt.Sprintf("line %d of it: ", strings.Count(spec.Config[:min(parse.Position.Start, len(spec.Config))], "\n")+1)
				err = errors.New(parse.Message)
			}
			r.fail("containerd.config", "mend the TOML at that line", "not valid TOML: %s%v", at, err)
		}
		if _, err := ContainerdVersion(doc); err != nil {
			r.fail("containerd.config", fault.Remedy(err), "%v", err)
		}
		if field := RegistryConflict(doc, "nodeadm's own"); field != "" {
			r.fail("containerd.config", `write mirrors as registryMirrors beside it, or hosts.toml below /etc/containerd/certs.d; or write config_path = "" in [….registry]`,
				"%s stands beside config_path, which nodeadm sets, and with both containerd does not serve kubelet", field)
		}
		if spec.ConfigFile != "" {
			r.fail("containerd.configFile", "leave one of the two out", "a file that replaces the configuration and a configuration to merge contradict each other")
		}
	}
	if _, found := controlCharacter(spec.ConfigFile); found {
		r.fail("containerd.configFile", "name a file", "%q is not a path", spec.ConfigFile)
	}
	return Containerd{ConfigFile: spec.ConfigFile, Config: spec.Config, BaseRuntimeSpec: spec.BaseRuntimeSpec, RegistryMirrors: r.registryMirrors(spec.RegistryMirrors), SELinux: spec.SELinux}
}

// ContainerdVersion is the version that a part of containerd's configuration is
// written in, by what it says or by the names of its plugins; 0 if both could
// read it. In version 2 containerd 2 knows the names of version 3, too; in
// version 3 it passes over those of version 2.
func ContainerdVersion(document map[string]any) (int, error) {
	plugins, _ := document["plugins"].(map[string]any)
	_, images := plugins["io.containerd.cri.v1.images"]
	_, runtime := plugins["io.containerd.cri.v1.runtime"]
	const older = "io.containerd.grpc.v1.cri"
	cri, _ := plugins[older].(map[string]any)
	moved := "" // what version 3 has elsewhere
	for _, field := range slices.Sorted(maps.Keys(cri)) {
		if !slices.Contains(streaming, field) {
			moved = field
		}
	}
	said, given := document["version"]
	v2, v3 := said == int64(2), said == int64(3)
	switch {
	case given && !v2 && !v3:
		return 0, fault.New(fault.Usage, "write version = 3, which newer ones read as well, or leave it out; the plugins' names are then those of version 2 or 3", "version = %#v: nodeadm writes containerd's configuration in version 2, or for containerd 2 in version 3", said)
	case v3 && moved != "":
		return 0, fault.New(fault.Usage, "use the names of version 3, io.containerd.cri.v1.images and io.containerd.cri.v1.runtime, or leave version out",
			"version = 3, and plugins.%q.%s is of version 2: containerd would pass over it", older, moved)
	case v2 || moved != "":
		return 2, nil
	case v3 || images || runtime:
		return 3, nil
	}
	return 0, nil
}

// streaming are the fields that io.containerd.grpc.v1.cri has kept in version 3
// (containerd, internal/cri/config).
var streaming = []string{"disable_tcp_service", "enable_tls_streaming", "stream_idle_timeout", "stream_server_address", "stream_server_port", "x509_key_pair_streaming"}

// RegistryConflict finds a field of containerd's configuration that it does not
// take together with config_path: its older way to name mirrors and their
// certificates. assumed is config_path where the document says nothing.
func RegistryConflict(document map[string]any, assumed string) (field string) {
	plugins, _ := document["plugins"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		plugin, _ := plugins[name].(map[string]any)
		registry, _ := plugin["registry"].(map[string]any)
		configPath, given := registry["config_path"]
		if given && configPath == "" || !given && assumed == "" {
			continue
		}
		if mirrors, _ := registry["mirrors"].(map[string]any); len(mirrors) > 0 {
			return "registry.mirrors"
		}
		configs, _ := registry["configs"].(map[string]any)
		for _, host := range slices.Sorted(maps.Keys(configs)) {
			if config, _ := configs[host].(map[string]any); config["tls"] != nil {
				return fmt.Sprintf("registry.configs.%q.tls", host)
			}
		}
	}
	return ""
}

// registryMirrors checks names, which become folders, and URLs, which it returns
// as containerd takes them: it knows schemes in small letters only, and would
// look for /v2 behind a slash at the end.
func (r *resolver) registryMirrors(given map[string][]string) map[string][]string {
	mirrors := maps.Clone(given)
	for _, registry := range slices.Sorted(maps.Keys(given)) {
		path := []string{"containerd", "registryMirrors", registry}
		switch {
		case registry == "registry-1.docker.io" || registry == "index.docker.io":
			r.failAt(path, "write docker.io", "images of Docker Hub are named docker.io/…, and containerd would not look here for them")
		case registry != "_default" && !registryPattern.MatchString(registry):
			r.failAt(path, "write what image names begin with, such as docker.io or registry.example.com:5000, or _default", "%q is not the host name of a registry", registry)
		}
		if len(given[registry]) == 0 {
			r.failAt(path, "name a mirror such as https://mirror.example.com, or leave the registry out", "no mirror is named")
		}
		mirrors[registry] = nil
		for i, mirror := range given[registry] {
			path[2] = fmt.Sprintf("%s[%d]", registry, i)
			u, err := url.Parse(mirror)
			switch {
			case err == nil && !portExists(u):
				r.failAt(path, "write a port from 1 to 65535, or none", "there is no port %s", u.Port())
				continue
			case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
				// The value may hold a password and is not repeated.
				r.failAt(path, "write https://HOST, with a port and a path if need be, and without a password", "this is not the URL of a registry")
				continue
			}
			plain := u.Scheme + "://" + strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/")
			if slices.Contains(mirrors[registry], plain) {
				r.failAt(path, "name each mirror once", "%s is named before, and containerd would read nothing of the file", plain)
				continue
			}
			mirrors[registry] = append(mirrors[registry], plain)
		}
	}
	return mirrors
}

// portExists tells whether a URL's port, if it has one, is one.
func portExists(u *url.URL) bool {
	port, err := strconv.Atoi(u.Port())
	return u.Port() == "" || err == nil && port > 0 && port < 1<<16
}

var (
	registryPattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`)
	serviceNamePattern  = regexp.MustCompile(`^[A-Za-z0-9:_.@-]{1,255}$`)
	mountPathPattern    = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)*/?$`)
	variableNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (r *resolver) instance(spec InstanceSpec) Instance {
	i := Instance{LocalStorage: spec.LocalStorage, Environment: spec.Environment, Network: spec.Network}
	if p := spec.LocalStorage.MountPath; p != "" && (!mountPathPattern.MatchString(p) || slices.Contains(strings.Split(p, "/"), "..")) {
		r.fail("instance.localStorage.mountPath", "write an absolute path of letters, digits, dots, dashes and underscores", "%q is not such a path", p)
	} else if err := layout.CheckDisksPath(cmp.Or(p, layout.DisksPath), spec.LocalStorage.Strategy != "Mount"); err != nil {
		r.fail("instance.localStorage.mountPath", "choose a directory of its own, such as "+layout.DisksPath, "%v", err)
	}
	for _, service := range slices.Sorted(maps.Keys(spec.Environment)) {
		if !serviceNamePattern.MatchString(service) {
			r.fail("instance.environment", "write the name of a systemd service, or default", "%q is not the name of a service", service)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Environment[service])) {
			path := []string{"instance", "environment", service, name}
			if !variableNamePattern.MatchString(name) {
				r.failAt(path, "write letters, digits and _", "%q is not the name of a variable", name)
			}
			if c, found := controlCharacter(spec.Environment[service][name]); found {
				r.failAt(path, "remove it", "the value holds the control character %q", c)
			}
		}
	}
	for n, server := range spec.Network.Nameservers {
		if addr, err := netip.ParseAddr(server); err != nil || addr.Zone() != "" {
			r.fail(fmt.Sprintf("instance.network.nameservers[%d]", n), "write IP addresses", "%q is not an IP address", server)
		}
	}
	for n, domain := range spec.Network.Domains {
		// systemd-resolved takes a tilde for a domain that only routes queries.
		name := strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(domain), "~"), ".")
		if domain != "~." && !prefixPattern.MatchString(name) {
			r.fail(fmt.Sprintf("instance.network.domains[%d]", n), "write DNS names", "%q is not a DNS name", domain)
		}
	}
	return i
}

// controlCharacter finds what systemd would not pass on.
func controlCharacter(text string) (rune, bool) {
	for _, c := range text {
		if c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
			return c, true
		}
	}
	return 0, false
}

func (r *resolver) proxy(spec ProxySpec) Proxy {
	p := Proxy(spec)
	if p.HTTPS == "" {
		p.HTTPS = p.HTTP
	}
	for _, field := range []struct{ name, value string }{{"http", spec.HTTP}, {"https", spec.HTTPS}} {
		if field.value == "" {
			continue
		}
		if u, err := url.Parse(field.value); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !portExists(u) {
			// The value may hold a password and is not repeated.
			r.fail("proxy."+field.name, "write http://HOST:PORT", "this is not the URL of a proxy")
		}
	}
	for i, entry := range spec.NoProxy {
		if entry == "" || strings.ContainsFunc(entry, func(c rune) bool { return c <= ' ' || c == ',' || c == 0x7f }) {
			r.fail(fmt.Sprintf("proxy.noProxy[%d]", i), "write one host, domain or CIDR an item", "%q is not one", entry)
		}
	}
	return p
}

func (r *resolver) pauseImage(spec RuntimeSpec) PauseImage {
	var doc map[string]any
	if spec.DockerConfig != "" && json.Unmarshal([]byte(spec.DockerConfig), &doc) != nil {
		r.fail("runtime.dockerConfig", "write a JSON object", "it is not a JSON object")
	}
	if spec.PauseAccount != "" && !accountPattern.MatchString(spec.PauseAccount) {
		r.fail("runtime.pauseAccount", "write a 12-digit AWS account", "%q is not a 12-digit AWS account", spec.PauseAccount)
	}
	if spec.PauseVersion != "" && !tagPattern.MatchString(spec.PauseVersion) {
		r.fail("runtime.pauseVersion", "write an image tag such as 3.10", "%q is not an image tag", spec.PauseVersion)
	}
	return PauseImage{Account: spec.PauseAccount, Version: spec.PauseVersion}
}

// gates are the feature gates there are.
var gates = []string{"FastImagePull", "InstanceIdNodeName"}

func (r *resolver) featureGates(given map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(gates, name) {
			continue
		}
		remedy := "the gates are " + strings.Join(gates, " and ")
		if near := suggest.Nearest(name, gates); near != "" {
			remedy = "did you mean " + near + "?"
		}
		r.fail("featureGates."+name, remedy, "there is no feature gate %s", name)
	}
}

// flags checks what kubelet would refuse at its start, when nobody is looking
// any more.
func (r *resolver) flags(k Kubelet, place func(word int) string) {
	for i, w := range k.Flags {
		if _, found := controlCharacter(w); found {
			r.fail(place(i), "remove it", "%q holds a control character", w)
		}
	}
	for w := range k.words {
		text := short(k.Flags[w.at])
		switch {
		case w.name == "" && w.at == 0:
			r.fail(place(0), "write kubelet's flags, such as '--node-labels=team=blue'", "%s is not a flag", text)
			continue
		case w.name == "" && w.afterSwitch:
			flag := k.Flags[w.at-1]
			r.fail(place(w.at), "write "+flag+"=false, or "+flag+" alone for true", "%s takes no word after it: kubelet would refuse to start over %s", flag, text)
			continue
		case w.name == "":
			r.fail(place(w.at), "remove it, or put quotes around a value that contains spaces", "%s follows no flag that could take it: kubelet would refuse to start", text)
			continue
		case !strings.HasPrefix(k.Flags[w.at], "--") && len(w.name) > 1:
			r.fail(place(w.at), "write --"+w.name, "%s begins with one dash: kubelet would refuse to start", text)
		case !w.given && !kubelet.IsSwitch(w.name):
			r.fail(place(w.at), "write --"+w.name+"=VALUE", "%s has no value: kubelet would refuse to start", text)
		case w.given && kubelet.IsSwitch(w.name):
			if _, err := strconv.ParseBool(w.value); err != nil && w.name != "version" {
				r.fail(place(w.at), "write true or false", "--%s=%s is neither true nor false: kubelet would refuse to start", w.name, short(w.value))
			}
		}
		i, value := w.at, w.value
		switch w.name {
		case "kube-reserved", "system-reserved", "qos-reserved", "eviction-minimum-reclaim", "eviction-soft-grace-period":
			r.pairs(place(i), w, "=")
		case "eviction-hard", "eviction-soft":
			r.pairs(place(i), w, "<")
		case "feature-gates":
			for pair := range strings.SplitSeq(value, ",") {
				_, on, _ := strings.Cut(pair, "=")
				if _, err := strconv.ParseBool(strings.TrimSpace(on)); err != nil && pair != "" {
					r.fail(place(i), "write Name=true or Name=false", "--feature-gates: kubelet would refuse %s", short(pair))
				}
			}
		case "node-labels":
			for label := range strings.SplitSeq(value, ",") {
				if label == "" {
					continue
				}
				label = trimPair(label)
				if err := CheckLabel(label); err != nil {
					r.fail(place(i), labelRemedy(label), "--node-labels: kubelet would refuse %q: %v", label, err)
				}
			}
		case "register-with-taints":
			for taint := range strings.SplitSeq(value, ",") {
				if taint == "" {
					continue
				}
				if err := CheckTaint(taint); err != nil {
					r.fail(place(i), "write key=value:NoSchedule, with NoSchedule, PreferNoSchedule or NoExecute", "--register-with-taints: kubelet would refuse %q: %v", taint, err)
				}
			}
		}
	}
}

// trimPair takes the space away that kubelet takes away around a key and a value.
func trimPair(pair string) string {
	key, value, given := strings.Cut(pair, "=")
	if !given {
		return strings.TrimSpace(pair)
	}
	return strings.TrimSpace(key) + "=" + strings.TrimSpace(value)
}

// pairs checks a flag that is a list of names with values.
func (r *resolver) pairs(place string, w word, sign string) {
	for pair := range strings.SplitSeq(w.value, ",") {
		if pair != "" && !strings.Contains(pair, sign) {
			r.fail(place, "write name"+sign+"value, with commas between several", "--%s: kubelet would refuse %s", w.name, short(pair))
		}
	}
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
