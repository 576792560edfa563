// Package config is what somebody wants of a node, whichever way they said it:
// every dialect is read into the one type Config, and checked before anything
// else happens.
package config

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/cel"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
)

// Config is what the user wants. A zero value means "not said", and the plan
// then takes the default.
type Config struct {
	Cluster    Cluster
	Kubelet    Kubelet
	Containerd Containerd
	Docker     Docker
	PauseImage PauseImage

	// Runtime is "containerd", "dockerd", or "" for the kubelet version's own.
	Runtime  string
	Instance Instance
	Proxy    Proxy
	Labels   LabelsSpec
	// FastImagePull: containerd unpacks images with the SOCI snapshotter.
	FastImagePull bool
	// LocalDisks is what becomes of instance store volumes: "raid0", "raid10",
	// "mount", or "" to leave them alone.
	LocalDisks string
	// Document is the merged document that all of this was read from.
	Document *doctree.Node
	// MountBPFFS: /sys/fs/bpf is mounted where nothing else does it.
	MountBPFFS bool
}

// Origin tells where the value at a path of the document, or what holds it, was
// written.
func (c Config) Origin(path string) string {
	n := c.Document
	if n == nil {
		return "nobody"
	}
	for key := range strings.SplitSeq(path, ".") {
		if next := n.Get(key); next != nil {
			n = next
		}
	}
	return n.Origin.String()
}

// Source names what a field of the document, or what holds it, was written in:
// "user data part 1", the path of a file, or a flag.
func (c Config) Source(keys ...string) string {
	n := c.Document
	if n == nil {
		return ""
	}
	for _, key := range keys {
		if next := n.Get(key); next != nil {
			n = next
		}
	}
	return n.Origin.Source
}

// Cluster is the cluster to join.
type Cluster struct {
	Name                 string
	Endpoint             string // URL of the API server
	CertificateAuthority []byte // PEM
	ServiceCIDR          netip.Prefix
	IPFamily             string // "ipv4", "ipv6" or ""
	DNSAddresses         []netip.Addr
	ID                   string // of a local cluster on an Outpost
	Outpost              *bool  // nil: as EKS says
	// DescribeRetries bounds how often EKS is asked again; -1 means as often
	// as the time allows.
	DescribeRetries int
}

// Described tells that nothing about the cluster has to be asked of EKS.
func (c Cluster) Described() bool { return c.Endpoint != "" && len(c.CertificateAuthority) > 0 }

// Kubelet is what the user says about kubelet.
type Kubelet struct {
	// Flags are the user's own, in their order, one word each.
	Flags []string
	// Config is the user's KubeletConfiguration, over everything else.
	Config map[string]any
	// MaxPods says how max pods is worked out.
	MaxPods MaxPods
	// InstanceIDNodeName: the node's name is the instance's id.
	InstanceIDNodeName bool
	// ReservedPolicy decides which number of pods memory is reserved for:
	// "effective" (the default) or "legacy".
	ReservedPolicy string
}

// Containerd is what the user says about containerd.
type Containerd struct {
	// ConfigFile replaces the planned configuration; a path on the node.
	ConfigFile string
	// Config is TOML that is merged over the planned configuration.
	Config string
	// BaseRuntimeSpec is merged over the OCI specification of every container.
	BaseRuntimeSpec map[string]any
	// RegistryMirrors are URLs that are asked before a registry itself, in order,
	// by the registry's host name.
	RegistryMirrors map[string][]string
	// SELinux: containers get labels, where the host has SELinux.
	SELinux bool
}

// MaxPods says how max pods is worked out; the zero value is by secondary IPv4
// addresses.
type MaxPods struct {
	Mode                  string // "secondary-ip", "prefix-delegation", "ipv6", "fixed", "none" or ""
	Value                 int    // for "fixed"
	CustomNetworking      bool   // the first network interface gives no addresses to pods
	MaxENIs, ReservedENIs int    // 0: not said
	Cap                   string // "auto", "none" or ""
	Expression            *cel.Program
}

// Instance is what the user says about the instance itself.
type Instance struct {
	LocalStorage LocalStorageSpec
	Environment  map[string]map[string]string // by service; "default" is all
	Network      NetworkSpec
}

// KubeletVariable is a variable of kubelet's environment, "" if it is not set
// here.
func (i Instance) KubeletVariable(name string) string {
	for _, service := range []string{"kubelet.service", "kubelet", "default"} {
		if value, given := i.Environment[service][name]; given {
			return value
		}
	}
	return ""
}

// Proxy is the proxy that all of the node uses. The URLs may hold passwords.
type Proxy struct {
	HTTP, HTTPS string
	NoProxy     []string
}

// Docker is what the user says about dockerd, for kubelets before 1.24.
type Docker struct {
	Config string // JSON, replaces daemon.json
	Bridge bool   // keep Docker's default bridge
}

// PauseImage overrides where the pause image comes from.
type PauseImage struct {
	Account string // ECR account
	Version string // tag
}

// Flag returns the value of the user's own kubelet flag, the last one if it is
// given more than once, as kubelet reads it.
func (k Kubelet) Flag(name string) (value string, given bool) {
	for n, v := range k.flags {
		if n == name {
			value, given = v, true
		}
	}
	return value, given
}

// FeatureGates are those that the user's flags set; kubelet takes all of them
// together, and before those of its configuration.
func (k Kubelet) FeatureGates() map[string]bool {
	gates := map[string]bool{}
	for name, value := range k.flags {
		if name != "feature-gates" {
			continue
		}
		for pair := range strings.SplitSeq(value, ",") {
			gate, text, _ := strings.Cut(pair, "=")
			if on, err := strconv.ParseBool(strings.TrimSpace(text)); err == nil {
				gates[strings.TrimSpace(gate)] = on
			}
		}
	}
	return gates
}

// flags yields each of the user's flags with its value, in both spellings:
// --name=value and --name value. A flag without a value has "".
func (k Kubelet) flags(yield func(name, value string) bool) {
	for w := range k.words {
		if w.name != "" && !yield(w.name, w.value) {
			return
		}
	}
}

// word is a flag among the user's words, or one that no flag takes.
type word struct {
	at          int    // the place of its first word
	name        string // "" for a word that no flag takes
	value       string
	given       bool // there is a value, though it may be empty
	afterSwitch bool // for a word that no flag takes: it follows one like --register-node
}

// words are read as kubelet does: a flag takes the one word after it, unless its
// value stands behind an equals sign or it is a switch. A value that looks like
// a flag is taken for the next flag here, and kubelet's is then missing.
func (k Kubelet) words(yield func(word) bool) {
	for i := 0; i < len(k.Flags); i++ {
		w := word{at: i}
		w.name, w.value, w.given = cutFlag(k.Flags[i])
		switch {
		case k.Flags[i] == "--" && i == len(k.Flags)-1:
			return // the end of the flags
		case w.name == "":
			if i > 0 {
				before, _, inline := cutFlag(k.Flags[i-1])
				w.afterSwitch = !inline && kubelet.IsSwitch(before)
			}
		case w.given || kubelet.IsSwitch(w.name):
		case i+1 < len(k.Flags) && !strings.HasPrefix(k.Flags[i+1], "--"):
			i++
			w.value, w.given = k.Flags[i], true
		}
		if !yield(w) {
			return
		}
	}
}

// FlagNames are the names of the user's kubelet flags in order.
func (k Kubelet) FlagNames() []string {
	var names []string
	for name := range k.flags {
		names = append(names, name)
	}
	return names
}

// NeedTags tells whether labels or taints come from the instance's tags.
func (l LabelsSpec) NeedTags() bool {
	return l.FromManagedNodeGroup || l.FromTags.LabelPrefix != "" || l.FromTags.TaintPrefix != ""
}
