// Package facts finds out what is true of an instance: what EC2 says about it,
// what the machine and its image hold and, only where something is missing
// otherwise, what the EKS and EC2 APIs know. It changes nothing.
package facts

import (
	"io/fs"
	"net/netip"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
)

// Facts are everything a plan needs besides the configuration.
type Facts struct {
	Instance Instance
	Host     Host
	Cluster  *Cluster // nil where EKS was not asked
	// ClusterName is the cluster's name as the instance's tags tell it, where
	// the configuration does not.
	ClusterName string
	// PrivateEndpoint: the API server's name resolves to private addresses only.
	PrivateEndpoint bool
	Warnings        []string // what could not be found out, and what was assumed instead
}

// Instance is what EC2 says of the instance.
type Instance struct {
	ID, Type, AMI         string
	Region, Zone, Account string
	Partition             string // "aws", "aws-cn", "aws-us-gov" …
	ServicesDomain        string // "amazonaws.com", "amazonaws.com.cn" …
	MAC                   string
	IPv4                  netip.Addr
	IPv6                  []netip.Addr // in EC2's order
	VPCIPv4CIDRs          []netip.Prefix
	Hostname              string // IMDS local-hostname, first word
	// NodeName is the name the node must register under: EC2's private DNS
	// name. Empty where the configuration names the node itself.
	NodeName string
	// Lifecycle is "spot" or "on-demand".
	Lifecycle string
	// Tags of the instance; nil where EC2 was not asked.
	Tags map[string]string
	// Limits come from EC2's API, for a type that the embedded table lacks and
	// where the API may be asked.
	Limits *Limits
}

// RoleARN is the ARN of a role of the instance's account, without a path, as
// access entries and aws-auth want it; "" if some part of it is not known.
func (i Instance) RoleARN(role string) string {
	if role == "" || i.Partition == "" || i.Account == "" {
		return ""
	}
	return "arn:" + i.Partition + ":iam::" + i.Account + ":role/" + role
}

// Limits of an instance type, of the default network card.
type Limits struct {
	ENIs, IPv4PerENI int
	VCPUs            int
	Prefixes         bool // network interfaces can take prefixes
}

// Cluster is what EKS says of the cluster.
type Cluster struct {
	Endpoint             string
	CertificateAuthority []byte // PEM
	ServiceIPv4CIDR      string
	ServiceIPv6CIDR      string
	IPFamily             string // "ipv4", "ipv6"
	ID                   string
	OutpostARN           string
}

// Machine is the hardware and the running kernel.
type Machine struct {
	CPUs int // online processors
	// MemoryMiB is what the kernel has for everybody: somewhat less than the
	// instance type has.
	MemoryMiB int
	NVIDIA    bool // a PCI device of NVIDIA's is present
	Neuron    bool // an Inferentia or Trainium chip is present
	FIPS      bool // the kernel runs in FIPS mode
	BPFFS     bool // a bpf filesystem is mounted
	SELinux   bool // the kernel has a SELinux policy, enforcing or not
	// Swap is the first device or file that the kernel swaps to, "" if none.
	Swap string
	// KernelDefaults: the kernel's settings are those that kubelet insists on.
	KernelDefaults bool
}

// Host is what the machine and the image on it hold.
type Host struct {
	Machine

	Kubelet    kubelet.Version
	Containerd string // such as "1.7.27"; empty where it is not known
	// ContainerdUnknown says why Containerd is empty.
	ContainerdUnknown error
	// Partial: nothing is going to be started, so what is missing on the image
	// may come later.
	Partial bool
	// NVIDIARuntime and NeuronRuntime are the paths of programs that containerd
	// can run in runc's place, so that containers get such devices; empty where
	// absent.
	NVIDIARuntime, NeuronRuntime string
	// SOCIUnits are the units of the SOCI snapshotter in the order in which they
	// have to start; nil where it is not installed.
	SOCIUnits []string
	// Unpigz is the path of a program that unpacks images faster than Go does;
	// empty where absent.
	Unpigz string
	// SystemdMountsBPF: the image's systemd mounts the bpf filesystem itself,
	// and refuses a unit for it.
	SystemdMountsBPF bool
	// StubResolver: the image's /etc/resolv.conf names systemd-resolved on the
	// loopback interface, which no pod can reach.
	StubResolver bool
	// OwnSysctls: the file that makes the kernel's settings so is nodeadm's.
	OwnSysctls bool
	// OwnBPFMount: the unit that mounts the bpf filesystem is nodeadm's.
	OwnBPFMount bool

	// Paths on the node of programs that a plan refers to; empty where absent.
	KubeletPath        string // never empty
	TokenProgram       string // one of CredentialPlugins; never empty
	CredentialProvider string // ecr-credential-provider
	Nodeadm            string // this program

	// TokenProgramAbsent: there is nothing at TokenProgram yet.
	TokenProgramAbsent bool

	// KubeletUnit is kubelet.service as the image brings it, drop-ins
	// included; nil where it has none but nodeadm's own.
	KubeletUnit *KubeletUnit

	// Live are files that others may change, as they stand: those of which
	// nodeadm keeps who set which field, and those that images bring.
	Live map[string][]byte
	// Before is what the last run remembers of them, and Private the permissions
	// of those that are not for everybody. RanBefore: there was a run.
	Before    map[string]*ownership.State
	Private   map[string]fs.FileMode
	RanBefore bool

	ContainerdTemplate *Document // an administrator's containerd configuration
	HostsFile          []byte    // nil where absent

	// Addresses of the API server's host name, for local clusters on Outposts.
	EndpointAddresses []netip.Addr
	// ECRFIPS: the FIPS endpoint of the pause image's registry resolves.
	ECRFIPS bool
}

// Document is a file and where it was found.
type Document struct {
	Path string
	Data []byte
}

// KubeletUnit is the image's idea of how kubelet is started.
type KubeletUnit struct {
	Exec string // the command line
	Path string // the unit or drop-in that it stands in

	// MissingEnvironment is an EnvironmentFile= without which systemd would not
	// start kubelet, and Environment are the others then. AWS's nodeadm writes
	// that of its images on each boot.
	MissingEnvironment string
	Environment        []string
}
