package config

// What every document says of itself.
const (
	apiVersion = "node.eks.aws/v1alpha1"
	kind       = "NodeConfig"
)

// NodeConfig is the document that nodes are configured with. Fields that
// AWS's own nodeadm does not have are marked as extensions in their
// descriptions. The struct tags carry what the JSON Schema says: doc describes
// a field, enum lists its values.
type NodeConfig struct {
	APIVersion string         `json:"apiVersion" enum:"node.eks.aws/v1alpha1" doc:"Version of this document."`
	Kind       string         `json:"kind" enum:"NodeConfig" doc:"Kind of this document."`
	Metadata   map[string]any `json:"metadata,omitempty" doc:"Kubernetes object metadata; accepted and not used."`
	Spec       Spec           `json:"spec,omitempty" doc:"What the node should be."`
}

// Spec is what a node should be.
type Spec struct {
	Cluster      ClusterSpec     `json:"cluster,omitempty" doc:"The EKS cluster to join."`
	Kubelet      KubeletSpec     `json:"kubelet,omitempty" doc:"kubelet."`
	Containerd   ContainerdSpec  `json:"containerd,omitempty" doc:"containerd."`
	Instance     InstanceSpec    `json:"instance,omitempty" doc:"The instance itself."`
	FeatureGates map[string]bool `json:"featureGates,omitempty" doc:"Features by name: InstanceIdNodeName, FastImagePull."`
	Labels       LabelsSpec      `json:"labels,omitempty" doc:"Labels and taints that the instance itself can tell. Extension."`
	Proxy        ProxySpec       `json:"proxy,omitempty" doc:"Proxy for nodeadm, containerd and kubelet. Extension."`
	Runtime      RuntimeSpec     `json:"runtime,omitempty" doc:"Container runtime and pause image, for what bootstrap.sh had flags. Extension."`
}

// ClusterSpec is the cluster to join.
type ClusterSpec struct {
	Name                 string   `json:"name,omitempty" doc:"Name of the cluster."`
	APIServerEndpoint    string   `json:"apiServerEndpoint,omitempty" doc:"URL of the API server. Without it EKS DescribeCluster is asked."`
	CertificateAuthority string   `json:"certificateAuthority,omitempty" doc:"Certificate authority of the API server, base64 of PEM."`
	CIDR                 string   `json:"cidr,omitempty" doc:"Service CIDR of the cluster. The tenth address is cluster DNS."`
	EnableOutpost        *bool    `json:"enableOutpost,omitempty" doc:"The cluster is local to an Outpost."`
	ID                   string   `json:"id,omitempty" doc:"Id of a local cluster on an Outpost."`
	IPFamily             string   `json:"ipFamily,omitempty" enum:"ipv4,ipv6" doc:"IP family of the cluster; default: that of the service CIDR. Extension."`
	DNSAddresses         []string `json:"dnsAddresses,omitempty" doc:"Addresses of cluster DNS. Extension."`
	DescribeRetries      *int     `json:"describeRetries,omitempty" doc:"How often EKS is asked again. Extension."`
}

// KubeletSpec is kubelet's part.
type KubeletSpec struct {
	Config            map[string]any   `json:"config,omitempty" doc:"KubeletConfiguration (kubelet.config.k8s.io/v1beta1), merged over the defaults."`
	Flags             []string         `json:"flags,omitempty" doc:"Flags of kubelet, one an item, in order."`
	MaxPodsExpression string           `json:"maxPodsExpression,omitempty" doc:"CEL expression over default_enis, ips_per_eni and max_pods."`
	MaxPods           MaxPodsSpec      `json:"maxPods,omitempty" doc:"How max pods is worked out. Extension."`
	KubeReserved      KubeReservedSpec `json:"kubeReserved,omitempty" doc:"How much is set aside for the node's daemons. Extension."`
}

// MaxPodsSpec chooses how max pods is worked out.
type MaxPodsSpec struct {
	Mode             string `json:"mode,omitempty" enum:"secondary-ip,prefix-delegation,ipv6,fixed,none" doc:"What pods get their addresses from; fixed takes value, none leaves max pods to kubelet."`
	Value            *int   `json:"value,omitempty" doc:"Max pods, with mode fixed."`
	CustomNetworking bool   `json:"customNetworking,omitempty" doc:"The first network interface gives no addresses to pods."`
	MaxENIs          *int   `json:"maxENIs,omitempty" doc:"MAX_ENI of the VPC CNI."`
	ReservedENIs     *int   `json:"reservedENIs,omitempty" doc:"Network interfaces that are kept for something else."`
	Cap              string `json:"cap,omitempty" enum:"auto,none" doc:"auto: at most 110, or 250 with more than 30 vCPUs. Default: none with secondary-ip, else auto."`
}

// KubeReservedSpec chooses how memory is reserved.
type KubeReservedSpec struct {
	Policy string `json:"policy,omitempty" enum:"effective,legacy" doc:"effective: for the pods that can run; legacy: for all that the network interfaces allow."`
}

// ContainerdSpec is containerd's part.
type ContainerdSpec struct {
	Config          string         `json:"config,omitempty" doc:"TOML, merged over the defaults."`
	BaseRuntimeSpec map[string]any `json:"baseRuntimeSpec,omitempty" doc:"OCI runtime specification, merged over the default of every container."`
	ConfigFile      string         `json:"configFile,omitempty" doc:"File on the node that replaces containerd's configuration. Extension."`
	SELinux         bool           `json:"selinux,omitempty" doc:"Containers get SELinux labels, where the host has SELinux. Extension."`

	RegistryMirrors map[string][]string `json:"registryMirrors,omitempty" doc:"URLs that are asked for images before the registry itself, in order, by the registry's host name; _default stands for all others. Extension."`
}

// InstanceSpec is about the instance itself.
type InstanceSpec struct {
	LocalStorage LocalStorageSpec             `json:"localStorage,omitempty" doc:"Instance store volumes."`
	Environment  map[string]map[string]string `json:"environment,omitempty" doc:"Environment variables by service; default stands for all."`
	Network      NetworkSpec                  `json:"network,omitempty" doc:"Name resolution."`
	MountBPFFS   *bool                        `json:"mountBPFFS,omitempty" doc:"Mount /sys/fs/bpf where nothing else does; default true. Extension."`
}

// LocalStorageSpec says what becomes of instance store volumes.
type LocalStorageSpec struct {
	Strategy       string   `json:"strategy,omitempty" enum:"RAID0,RAID10,Mount" doc:"What becomes of instance store volumes."`
	MountPath      string   `json:"mountPath,omitempty" doc:"Where they are mounted; default /mnt/k8s-disks."`
	DisabledMounts []string `json:"disabledMounts,omitempty" enum:"Containerd,PodLogs,SOCI" doc:"What is not moved onto them."`
}

// NetworkSpec is about name resolution.
type NetworkSpec struct {
	Nameservers []string `json:"nameservers,omitempty" doc:"DNS servers."`
	Domains     []string `json:"domains,omitempty" doc:"Search domains."`
}

// LabelsSpec chooses labels and taints that the instance can find out itself.
type LabelsSpec struct {
	FromTags             TagLabelsSpec `json:"fromTags,omitempty" doc:"Labels and taints from the instance's tags."`
	FromManagedNodeGroup bool          `json:"managedNodeGroup,omitempty" doc:"The eks.amazonaws.com labels that a managed node group would set."`
	Lifecycle            bool          `json:"lifecycle,omitempty" doc:"The label node-lifecycle: spot or on-demand."`
}

// TagLabelsSpec says which tags become labels and taints.
type TagLabelsSpec struct {
	LabelPrefix string `json:"labelPrefix,omitempty" doc:"Tags whose key begins with this become labels, without it."`
	TaintPrefix string `json:"taintPrefix,omitempty" doc:"Tags whose key begins with this become taints; the tag's value is VALUE:EFFECT."`
}

// ProxySpec is the proxy that all of the node uses.
type ProxySpec struct {
	HTTP    string   `json:"http,omitempty" doc:"URL of the proxy for http."`
	HTTPS   string   `json:"https,omitempty" doc:"URL of the proxy for https; default: the one for http."`
	NoProxy []string `json:"noProxy,omitempty" doc:"Hosts and CIDRs besides those that nodeadm adds itself."`
}

// RuntimeSpec is about the container runtime where the image leaves a choice.
type RuntimeSpec struct {
	Name         string `json:"name,omitempty" enum:"containerd,dockerd" doc:"Container runtime; dockerd only for kubelet 1.23 and older."`
	PauseAccount string `json:"pauseAccount,omitempty" doc:"ECR account of the pause image."`
	PauseVersion string `json:"pauseVersion,omitempty" doc:"Tag of the pause image."`
	DockerConfig string `json:"dockerConfig,omitempty" doc:"dockerd's daemon.json."`
	DockerBridge bool   `json:"dockerBridge,omitempty" doc:"Keep Docker's default bridge."`
}
