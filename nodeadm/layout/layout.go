// Package layout is where things stand on a node: every path that more than
// one part of the agent must agree on.
package layout

// Files that make a node.
const (
	KubeletConfig       = "/etc/kubernetes/kubelet/kubelet-config.json"
	KubeletUnit         = "/etc/systemd/system/kubelet.service"
	KubeletArgs         = "/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf"
	KubeletExtraArgs    = "/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"
	Kubeconfig          = "/var/lib/kubelet/kubeconfig"
	BootstrapKubeconfig = "/var/lib/kubelet/bootstrap-kubeconfig"
	CACertificate       = "/etc/kubernetes/pki/ca.crt"
	CredentialProvider  = "/etc/eks/image-credential-provider/config.json"
	ContainerdConfig    = "/etc/containerd/config.toml"
	BaseRuntimeSpec     = "/etc/containerd/base-runtime-spec.json"
	ResolvedConfig      = "/etc/systemd/resolved.conf.d/40-eks.conf"
	DefaultEnvironment  = "/etc/systemd/system.conf.d/environment.conf"
	// UplinkResolvConf is what systemd-resolved writes the real name servers to.
	UplinkResolvConf     = "/run/systemd/resolve/resolv.conf"
	SysctlConfig         = "/etc/sysctl.d/90-nodeadm-kubelet.conf"
	SysctlService        = "systemd-sysctl.service"
	ResolvedService      = "systemd-resolved.service"
	ContainerdConfigDir  = "/etc/containerd/config.d"
	RegistriesDir        = "/etc/containerd/certs.d"
	SOCIConfig           = "/etc/soci-snapshotter-grpc/config.toml"
	SOCISocket           = "/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"
	DockerConfig         = "/etc/docker/daemon.json"
	BPFMountUnit         = "/etc/systemd/system/sys-fs-bpf.mount"
	HostsFile            = "/etc/hosts"
	ContainerdSocket     = "unix:///run/containerd/containerd.sock"
	KubeletService       = "kubelet.service"
	ContainerdService    = "containerd.service"
	DockerService        = "docker.service"
	BPFMountService      = "sys-fs-bpf.mount"
	KubeletHealthAddress = "127.0.0.1"
	KubeletHealthPort    = 10248
)

// What an image of nodes has.
const (
	Program             = "/usr/bin/nodeadm"
	Nodeadm             = "/etc/systemd/system/nodeadm.service"
	NodeadmAfterScripts = "/etc/systemd/system/nodeadm-after-scripts.service"
	Preset              = "/etc/systemd/system-preset/90-nodeadm.preset"
	RuntimeSlice        = "/etc/systemd/system/runtime.slice"
	BootstrapScript     = "/etc/eks/bootstrap.sh"
	MaxPodsScript       = "/etc/eks/max-pods-calculator.sh"
	ModulesLoad         = "/etc/modules-load.d/90-nodeadm.conf"
	NetworkSysctl       = "/etc/sysctl.d/90-nodeadm-network.conf"
	// KubeletVersion and ContainerdVersion record versions, so that no boot has to
	// page in two large binaries only to ask them.
	KubeletVersion    = "/etc/eks/kubelet-version.txt"
	ContainerdVersion = "/etc/eks/containerd-version.txt"
)

// The agent's own state.
const (
	// DropInDir holds NodeConfig documents that are merged over user data.
	DropInDir = "/etc/eks/nodeadm.d"
	// StateDir is the agent's memory; it holds nothing that a node runs on.
	StateDir = "/var/lib/nodeadm"
	// AppliedFile tells the agent's work from anybody else's: which files it
	// wrote, and who set which field of those that others may change.
	AppliedFile = StateDir + "/applied.json"
	// Generations holds a folder for each run that changed something.
	Generations = StateDir + "/generations"
	// PendingFile lists the units that still run an older configuration, from
	// the moment files change until the units have been restarted. It is in
	// /run: a reboot starts everything afresh.
	PendingFile = "/run/nodeadm/pending-restarts"
	// StatusFile tells how the last run of this boot went.
	StatusFile = "/run/nodeadm/status.json"
)

// InstanceIdentity is what kubelet keeps of the one instance it ran on: its
// certificates, and the resources it has given out. On a copy of the disk they
// would be another node's.
var InstanceIdentity = []string{
	"/var/lib/kubelet/pki",
	"/var/lib/kubelet/cpu_manager_state",
	"/var/lib/kubelet/memory_manager_state",
	"/var/lib/kubelet/dra_manager_state",
	"/var/lib/kubelet/allocated_pods_state",
	"/var/lib/kubelet/actuated_pods_state",
	"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
}
