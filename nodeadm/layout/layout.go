// Package layout is where things stand on a node: every path that more than
// one part of the agent must agree on.
package layout

// Files that make a node.
const (
	KubeletConfig        = "/etc/kubernetes/kubelet/kubelet-config.json"
	KubeletUnit          = "/etc/systemd/system/kubelet.service"
	KubeletArgs          = "/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf"
	KubeletExtraArgs     = "/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"
	Kubeconfig           = "/var/lib/kubelet/kubeconfig"
	BootstrapKubeconfig  = "/var/lib/kubelet/bootstrap-kubeconfig"
	CACertificate        = "/etc/kubernetes/pki/ca.crt"
	CredentialProvider   = "/etc/eks/image-credential-provider/config.json"
	ContainerdConfig     = "/etc/containerd/config.toml"
	BaseRuntimeSpec      = "/etc/containerd/base-runtime-spec.json"
	ResolvedConfig       = "/etc/systemd/resolved.conf.d/40-eks.conf"
	DefaultEnvironment   = "/etc/systemd/system.conf.d/environment.conf"
	SysctlConfig         = "/etc/sysctl.d/90-nodeadm-kubelet.conf"
	SysctlService        = "systemd-sysctl.service"
	ResolvedService      = "systemd-resolved.service"
	ContainerdConfigDir  = "/etc/containerd/config.d"
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

// The agent's own state.
const (
	// DropInDir holds NodeConfig documents that are merged over user data.
	DropInDir = "/etc/eks/nodeadm.d"
	// AppliedFile holds each file as nodeadm last wrote it: what tells the
	// agent's work from anybody else's.
	AppliedFile = "/var/lib/nodeadm/applied.json"
	// PendingFile lists the units that still run an older configuration, from
	// the moment files change until the units have been restarted. It is in
	// /run: a reboot starts everything afresh.
	PendingFile = "/run/nodeadm/pending-restarts"
)
