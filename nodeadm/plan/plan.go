// Package plan works out a node from a configuration and facts: every file
// with its bytes, every unit with what becomes of it.
//
// It is a pure function. No clock, no disk, no network, no environment: the
// same input gives the same plan, byte for byte, so that a dry run, a test and
// the real run cannot differ.
package plan

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Plan is what a node is going to be.
type Plan struct {
	Files []File // sorted by path
	Units []Unit // in the order they are brought up

	Node    Node
	MaxPods MaxPods
	// Conflicts are fields that a hand has changed since the last run.
	Conflicts []Conflict
	// Origins tell for each field of kubelet-config.json where it comes from.
	Origins []Origin
	// HealthURL is where kubelet answers when it is well; "" if the
	// configuration switches that off.
	HealthURL string
	// Warnings are for people: what was assumed, and what will not work.
	Warnings []string
}

// Node is what the node is to its cluster, and how it gets there.
type Node struct {
	// Name is what kubelet registers under. Named: the user has chosen it.
	Name  string
	Named bool
	// Cluster is the cluster's name, and TokensFor what kubelet's tokens are made
	// for: the name too, but for a local cluster on an Outpost its id.
	Cluster, TokensFor string
	Endpoint           string // URL of the API server
	CA                 []byte // PEM
	// Direct: the API server is reached without the proxy.
	Direct bool
}

// Origin is where one field comes from.
type Origin struct{ Path, Value, From string }

// File is a file of the node.
type File struct {
	Path string
	Mode fs.FileMode
	Data []byte
	// State says whose each field of the file is; nil where all of it is
	// nodeadm's.
	State *ownership.State
	// Origin is who has a say in the file: managers, separated by commas.
	Origin string
	// Shared: the file is the system's and only a part of it is nodeadm's, so
	// it is never removed.
	Shared bool
	// Secret: the file may hold passwords.
	Secret bool
}

// Unit is a systemd unit and the files whose change it must be restarted for.
type Unit struct {
	Name    string
	Enabled bool // starts at boot
	Files   []string
	// StartOnly: changes need no restart, it only has to be active. OnChange:
	// the other way round, it does its work and ends.
	StartOnly, OnChange bool
}

// Options decide what becomes of others' work.
type Options struct {
	// ForceConflicts takes over fields that a hand has changed.
	ForceConflicts bool
}

// Build makes the plan.
func Build(c config.Config, f facts.Facts, o Options) (Plan, error) {
	b := &builder{config: c, facts: f, force: o.ForceConflicts}
	b.plan.Warnings = slices.Clone(f.Warnings)
	if err := b.settle(); err != nil {
		return Plan{}, err
	}
	err := errors.Join(
		b.environment(),
		b.network(),
		b.kernel(),
		b.bpfMount(),
		b.clusterCA(),
		b.kubeconfig(),
		b.hostsFile(),
		b.runtime(),
		b.kubelet(),
	)
	if err == nil {
		err = b.unwanted()
	}
	if err != nil {
		return Plan{}, err
	}
	b.warnOfConflicts()
	slices.SortFunc(b.plan.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return b.plan, nil
}

// builder holds the input, what was settled from it, and the plan so far.
type builder struct {
	config config.Config
	facts  facts.Facts
	force  bool
	plan   Plan

	cluster      cluster
	runtimeName  string // "containerd" or "dockerd"
	sandboxImage string
	// infraImage is what kubelet is told of it, which has to be what the runtime
	// uses: kubelet keeps that image from being collected.
	infraImage string
	// fastImagePull: the SOCI snapshotter pulls images.
	fastImagePull bool
	// left are fields of the KubeletConfiguration that nodeadm leaves out, for
	// what others have set.
	left []string
}

func (b *builder) file(path, data string) error {
	_, err := b.want(wish{path: path, mode: 0o644, text: data})
	return err
}

func (b *builder) unit(u Unit) { b.plan.Units = append(b.plan.Units, u) }

func (b *builder) warn(message string) { b.plan.Warnings = append(b.plan.Warnings, message) }

// settle decides what several files depend on.
func (b *builder) settle() error {
	runtime, err := b.chooseRuntime()
	if err != nil {
		return err
	}
	b.runtimeName = runtime
	b.fastImagePull = b.chooseFastImagePull()
	if b.cluster, err = settleCluster(b.config.Cluster, b.facts); err != nil {
		return err
	}
	b.sandboxImage = sandboxImage(b.config.PauseImage, b.facts)
	b.infraImage = b.sandboxImage
	b.plan.Node = b.node()
	b.plan.MaxPods, err = b.maxPods()
	return err
}

func (b *builder) node() Node {
	n := Node{Cluster: b.cluster.name, TokensFor: b.cluster.name, Endpoint: b.cluster.endpoint, CA: b.cluster.ca, Direct: b.facts.PrivateEndpoint}
	if b.cluster.outpost {
		n.TokensFor = b.cluster.id
	}
	n.Name, n.Named = b.config.Kubelet.Flag("hostname-override")
	cloud, given := b.config.Kubelet.Flag("cloud-provider")
	if cloud == "aws" || !given && !b.facts.Host.Kubelet.AtLeast(kubelet.ExternalCloudProvider) {
		n.Named = false // the provider that is built in asks EC2 for the name, whatever it is told
	}
	if !n.Named {
		n.Name = b.ownNodeName()
	}
	if n.Name == "" { // kubelet's own choice
		n.Name = b.facts.Instance.Hostname
	}
	n.Name = strings.ToLower(n.Name) // as kubelet does
	return n
}

// ownNodeName is the name that the node gets unless the user names it.
func (b *builder) ownNodeName() string {
	if b.config.Kubelet.InstanceIDNodeName {
		return b.facts.Instance.ID
	}
	return b.facts.Instance.NodeName
}

func (b *builder) clusterCA() error {
	return b.file(layout.CACertificate, string(b.cluster.ca))
}
