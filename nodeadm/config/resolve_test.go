package config

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

func TestResolve(t *testing.T) {
	_, c := merged(t, clusterYAML()+`    enableOutpost: no
    dnsAddresses: [10.100.0.10, 10.100.0.11]
    describeRetries: 3
  kubelet:
    config: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, podPidsLimit: 9007199254740993}
    flags: ["--v=2 --node-labels='a=b'", --fail-swap-on, --image-gc-high-threshold, "80"]
    maxPods: {mode: fixed, value: 20, customNetworking: true, maxENIs: 4, reservedENIs: 1, cap: auto}
    kubeReserved: {policy: legacy}
  containerd: {config: "version = 3\n", baseRuntimeSpec: {process: {noNewPrivileges: true}}}
  featureGates: {InstanceIdNodeName: true, FastImagePull: true}
  labels: {managedNodeGroup: true, lifecycle: true, fromTags: {labelPrefix: l/, taintPrefix: t/}}
  proxy: {http: "http://user:secret@proxy:3128", noProxy: [corp.example]}
  runtime: {name: containerd, pauseAccount: "602401143452", pauseVersion: "3.10"}
  instance:
    mountBPFFS: false
    localStorage: {strategy: RAID10, mountPath: /data, disabledMounts: [SOCI]}
    environment: {default: {A: "x\ty"}, containerd: {B: ""}, "kubelet@1.service": {C_1: c}}
    network: {nameservers: [10.0.0.2, "fd00::2"], domains: [Corp.example., x]}
`)
	k := c.Kubelet
	if diff := cmp.Diff([]string{"--v=2", "--node-labels=a=b", "--fail-swap-on", "--image-gc-high-threshold", "80"}, k.Flags); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(MaxPods{Mode: "fixed", Value: 20, CustomNetworking: true, MaxENIs: 4, ReservedENIs: 1, Cap: "auto"}, k.MaxPods, sameConfig); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(LabelsSpec{FromTags: TagLabelsSpec{"l/", "t/"}, FromManagedNodeGroup: true, Lifecycle: true}, c.Labels); diff != "" || !c.Labels.NeedTags() {
		t.Error(diff)
	}
	if c.Proxy.HTTPS != c.Proxy.HTTP || c.LocalDisks != "raid10" || c.MountBPFFS || !c.FastImagePull || !k.InstanceIDNodeName || k.ReservedPolicy != "legacy" || c.Runtime != "containerd" ||
		c.Cluster.Outpost == nil || *c.Cluster.Outpost || c.Cluster.DescribeRetries != 3 || len(c.Cluster.DNSAddresses) != 2 || k.Config["podPidsLimit"] != json.Number("9007199254740993") ||
		c.PauseImage != (PauseImage{"602401143452", "3.10"}) || c.Instance.Environment["containerd"]["B"] != "" || len(c.Instance.Network.Domains) != 2 {
		t.Errorf("%+v", c)
	}

	// containerd takes a mirror's URL in one way of writing.
	_, c = merged(t, "spec: {containerd: {registryMirrors: {docker.io: ['HTTPS://M.Example:5000/', 'https://m.example/v2/Hub/', 'https://m.example/a%20b']}}}\n")
	if diff := cmp.Diff([]string{"https://m.example:5000", "https://m.example/v2/Hub", "https://m.example/a%20b"}, c.Containerd.RegistryMirrors["docker.io"]); diff != "" {
		t.Error(diff)
	}

	// Nothing said is nothing wanted.
	_, c = merged(t, "spec: {}\n")
	if diff := cmp.Diff(Config{Cluster: Cluster{DescribeRetries: -1}, MountBPFFS: true}, c, sameConfig); diff != "" || c.Labels.NeedTags() {
		t.Error(diff)
	}
	_, c = merged(t, "spec: {cluster: {cidr: 'fd30:1c53:5f8a::/108', describeRetries: 0}, kubelet: {maxPodsExpression: 'max_pods - 1'}}\n")
	if c.Cluster.IPFamily != "ipv6" || c.Cluster.DescribeRetries != 0 || c.Kubelet.MaxPods.Expression == nil {
		t.Errorf("%+v", c)
	}
}

func TestResolveRefuses(t *testing.T) {
	ca := simulator.Default().Cluster.CertificateAuthority
	pem, _ := base64.StdEncoding.DecodeString(ca)
	quoted := string(mustJSON(string(pem))) // JSON is YAML
	described := "apiServerEndpoint: https://a, certificateAuthority: " + ca
	with := func(ca string) string {
		return "{cluster: {apiServerEndpoint: https://a, certificateAuthority: " + ca + "}}"
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	kubelet := func(flag string) string { return "{kubelet: {flags: ['" + flag + "']}}" }
	for _, test := range []struct{ name, spec, path, message, remedy string }{
		{"name", "{cluster: {name: a/b}}", "cluster.name", "is not a cluster name", "at most 100"},
		{"long name", "{cluster: {name: " + strings.Repeat("x", 101) + "}}", "cluster.name", "is not a cluster name", ""},
		{"endpoint without scheme", "{cluster: {apiServerEndpoint: a.example, certificateAuthority: " + ca + "}}", "cluster.apiServerEndpoint", "https://", "https://HOST"},
		{"endpoint with a path", "{cluster: {apiServerEndpoint: 'https://a/b', certificateAuthority: " + ca + "}}", "cluster.apiServerEndpoint", "more than", ""},
		{"endpoint with a user", "{cluster: {apiServerEndpoint: 'https://u@a', certificateAuthority: " + ca + "}}", "cluster.apiServerEndpoint", "more than", ""},
		{"endpoint at a port that there is not", "{cluster: {apiServerEndpoint: 'https://a:0', certificateAuthority: " + ca + "}}", "cluster.apiServerEndpoint", "a port that there is not", ""},
		{"endpoint that is none", "{cluster: {apiServerEndpoint: 'https://a b', certificateAuthority: " + ca + "}}", "cluster.apiServerEndpoint", "not a URL", ""},
		{"endpoint alone", "{cluster: {apiServerEndpoint: https://a}}", "cluster.apiServerEndpoint", "without the certificate authority", "add spec.cluster.certificateAuthority"},
		{"endpoint with an empty CA", with("''"), "cluster.apiServerEndpoint", "without the certificate authority", ""},
		{"CA alone", "{cluster: {certificateAuthority: " + ca + "}}", "cluster.certificateAuthority", "without the endpoint", "add spec.cluster.apiServerEndpoint"},
		{"CA as PEM", with(quoted), "cluster.certificateAuthority", "PEM itself", "as it is"},
		{"CA twice encoded", with(encode(ca)), "cluster.certificateAuthority", "twice", ""},
		{"CA of something else", with(encode("hello")), "cluster.certificateAuthority", "no PEM certificate", ""},
		{"CA that is no base64", with("'***'"), "cluster.certificateAuthority", "not base64", ""},
		{"CA that is a key", with(encode("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")), "cluster.certificateAuthority", "no PEM certificate", ""},
		{"CA with a broken certificate", with(encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), "cluster.certificateAuthority", "cannot be read", ""},
		{"CIDR", "{cluster: {cidr: 10.100.0.0}}", "cluster.cidr", `"10.100.0.0" is not a CIDR`, "10.100.0.0/16"},
		{"CIDR too long", "{cluster: {cidr: 10.100.0.0/33}}", "cluster.cidr", "is not a CIDR", ""},
		{"CIDR with host bits", "{cluster: {cidr: 10.100.0.1/16}}", "cluster.cidr", "beyond its prefix", "write 10.100.0.0/16"},
		{"CIDR of the other family", "{cluster: {cidr: 10.100.0.0/16, ipFamily: ipv6}}", "cluster.cidr", "contradicts the IP family ipv6", ""},
		{"DNS address", "{cluster: {dnsAddresses: [10.0.0]}}", "cluster.dnsAddresses[0]", `"10.0.0" is not an IP address`, ""},
		{"DNS address of the other family", "{cluster: {cidr: 10.100.0.0/16, dnsAddresses: ['fd00::a']}}", "cluster.dnsAddresses[0]", "cannot be the address", ""},
		{"IPv6 without a CIDR", "{cluster: {" + described + ", ipFamily: ipv6}}", "cluster.ipFamily", "cannot be known without its service CIDR", "add spec.cluster.cidr"},
		{"Outpost without id", "{cluster: {" + described + ", enableOutpost: true}}", "cluster.enableOutpost", "not given", "as spec.cluster.id"},
		{"id", "{cluster: {id: \"a\\nb\"}}", "cluster.id", "not the id of a cluster", ""},

		{"restricted label", kubelet("--node-labels=node-role.kubernetes.io/x="), "kubelet.flags[0]", `kubelet would refuse "node-role.kubernetes.io/x="`, "kubectl"},
		{"label value", kubelet("--node-labels=a=b,c=d=e"), "kubelet.flags[0]", `kubelet would refuse "c=d=e"`, "key=value"},
		{"label of two words", kubelet("--node-labels a=-"), "kubelet.flags[0]", "kubelet would refuse", ""},
		{"taint effect", kubelet("--register-with-taints=a=b:Never"), "kubelet.flags[0]", `"Never" is not an effect`, "NoSchedule"},
		{"taint without effect", kubelet("--register-with-taints=a=b"), "kubelet.flags[0]", "no effect", ""},
		{"taint key", kubelet("--register-with-taints=-a=b:NoSchedule"), "kubelet.flags[0]", "kubelet would refuse", ""},
		{"a word that no flag takes", kubelet("--v=1 node-labels=a=b"), "kubelet.flags[0]", "follows no flag", ""},
		{"a word after a switch", kubelet("--fail-swap-on false"), "kubelet.flags[0]", "--fail-swap-on takes no word after it", "write --fail-swap-on=false"},
		{"a switch that is neither", kubelet("--register-node=maybe"), "kubelet.flags[0]", "neither true nor false", "write true or false"},
		{"one dash", kubelet("-max-pods=5"), "kubelet.flags[0]", "begins with one dash", "write --max-pods"},
		{"no value", kubelet("--node-labels --v=2"), "kubelet.flags[0]", `"--node-labels" has no value`, "--node-labels=VALUE"},
		{"dashes that end nothing", kubelet("-- --v=2"), "kubelet.flags[0]", "is not a flag", ""},
		{"no value at the end", kubelet("--v"), "kubelet.flags[0]", "has no value", ""},
		{"underscores", kubelet("--node_labels=kubernetes.io/x=y"), "kubelet.flags[0]", `kubelet would refuse "kubernetes.io/x=y"`, ""},
		{"memory without a name", kubelet("--kube-reserved=cpu=100m,bogus"), "kubelet.flags[0]", `--kube-reserved: kubelet would refuse "bogus"`, "name=value"},
		{"a threshold without a value", kubelet("--eviction-hard=memory.available"), "kubelet.flags[0]", "--eviction-hard: kubelet would refuse", "name<value"},
		{"a gate that is neither", kubelet("--feature-gates=NodeSwap=maybe"), "kubelet.flags[0]", "--feature-gates: kubelet would refuse", "Name=true"},
		{"open quote", "{kubelet: {flags: ['--a=\"b']}}", "kubelet.flags[0]", "never closed", "close every quote"},
		{"control character in a flag", "{kubelet: {flags: [\"--a=\\x01\"]}}", "kubelet.flags[0]", "control character", "remove it"},
		{"kubelet's apiVersion", "{kubelet: {config: {apiVersion: v1}}}", "kubelet.config.apiVersion", "v1 is not what kubelet reads", "kubelet.config.k8s.io/v1beta1"},
		{"kubelet's kind", "{kubelet: {config: {kind: 5}}}", "kubelet.config.kind", "5 is not what kubelet reads", "KubeletConfiguration"},
		{"fixed without value", "{kubelet: {maxPods: {mode: fixed}}}", "kubelet.maxPods", "belong together", "value: N"},
		{"value without fixed", "{kubelet: {maxPods: {value: 5}}}", "kubelet.maxPods", "belong together", ""},
		{"value with another mode", "{kubelet: {maxPods: {mode: ipv6, value: 5}}}", "kubelet.maxPods", "belong together", ""},
		{"negative value", "{kubelet: {maxPods: {mode: fixed, value: -1}}}", "kubelet.maxPods.value", "-1 is too small", "1 or more"},
		{"negative maxENIs", "{kubelet: {maxPods: {maxENIs: -2}}}", "kubelet.maxPods.maxENIs", "-2 is too small", ""},
		{"negative reservedENIs", "{kubelet: {maxPods: {reservedENIs: -2}}}", "kubelet.maxPods.reservedENIs", "-2 is too small", ""},
		{"expression and mode", "{kubelet: {maxPodsExpression: max_pods, maxPods: {mode: none}}}", "kubelet.maxPodsExpression", "contradicts maxPods.mode none", ""},
		{"expression of an unknown name", "{kubelet: {maxPodsExpression: max_pod + 1}}", "kubelet.maxPodsExpression", "max_pod", "default_enis, ips_per_eni, max_pods"},
		{"expression that is none", "{kubelet: {maxPodsExpression: '1 +'}}", "kubelet.maxPodsExpression", "", ""},
		{"expression that is a truth value", "{kubelet: {maxPodsExpression: 'max_pods + true'}}", "kubelet.maxPodsExpression", "", ""},

		{"TOML", "{containerd: {config: \"a = 1\\nb =\\nc = 2\\n\"}}", "containerd.config", "not valid TOML: line 2 of it", "mend"},
		{"TOML twice", "{containerd: {config: \"a = 1\\na = 2\\n\"}}", "containerd.config", "not valid TOML", ""},
		{"TOML and a file", "{containerd: {config: 'a = 1', configFile: /x}}", "containerd.configFile", "contradict each other", "leave one"},
		{"mirrors the older way", `{containerd: {config: "[plugins.'io.containerd.grpc.v1.cri'.registry.mirrors.'docker.io']\nendpoint = ['https://m.example']\n"}}`, "containerd.config", "registry.mirrors stands beside config_path", "registryMirrors"},
		{"version 1 of containerd's configuration", `{containerd: {config: "version = 1\n[debug]\nlevel = 'debug'\n"}}`, "containerd.config", "version = 1: nodeadm writes", "version = 3, which newer ones"},
		{"a version to come", `{containerd: {config: "version = 4\n"}}`, "containerd.config", "version = 4: nodeadm writes", ""},
		{"a version that is text", `{containerd: {config: "version = '3'\n"}}`, "containerd.config", `version = "3": nodeadm writes`, ""},
		{"version 3 with names of version 2", `{containerd: {config: "version = 3\n[plugins.'io.containerd.cri.v1.images']\nmax_concurrent_downloads = 5\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'x'\n"}}`, "containerd.config", ".sandbox_image is of version 2", "names of version 3"},
		{"mirror named twice", "{containerd: {registryMirrors: {docker.io: [https://m.example/, 'HTTPS://M.example']}}}", "containerd.registryMirrors.docker.io[1]", "https://m.example is named before", "once"},
		{"mirror of a URL", "{containerd: {registryMirrors: {'https://docker.io': [https://m.example]}}}", "containerd.registryMirrors.https://docker.io", "not the host name of a registry", "such as docker.io"},
		{"mirror upwards", "{containerd: {registryMirrors: {'..': [https://m.example]}}}", "containerd.registryMirrors...", "not the host name of a registry", ""},
		{"mirror of Docker Hub's own server", "{containerd: {registryMirrors: {registry-1.docker.io: [https://m.example]}}}", "containerd.registryMirrors.registry-1.docker.io", "named docker.io/", "write docker.io"},
		{"mirror without scheme", "{containerd: {registryMirrors: {docker.io: [https://m.example, m.example]}}}", "containerd.registryMirrors.docker.io[1]", "not the URL of a registry", "https://HOST"},
		{"mirror with a password", "{containerd: {registryMirrors: {docker.io: ['https://user:secret@m.example']}}}", "containerd.registryMirrors.docker.io[0]", "not the URL of a registry", "without a password"},
		{"mirror at a port that there is not", "{containerd: {registryMirrors: {docker.io: ['https://m.example:99999']}}}", "containerd.registryMirrors.docker.io[0]", "there is no port 99999", "1 to 65535"},
		{"registry without mirrors", "{containerd: {registryMirrors: {docker.io: []}}}", "containerd.registryMirrors.docker.io", "no mirror is named", "leave the registry out"},
		{"feature gate", "{featureGates: {FastImagePul: true}}", "featureGates.FastImagePul", "there is no feature gate FastImagePul", "did you mean FastImagePull?"},
		{"feature gate far off", "{featureGates: {Xyz: false}}", "featureGates.Xyz", "there is no feature gate Xyz", "the gates are FastImagePull and InstanceIdNodeName"},
		{"relative mountPath", "{instance: {localStorage: {mountPath: data}}}", "instance.localStorage.mountPath", `"data" is not such a path`, ""},
		{"mountPath upwards", "{instance: {localStorage: {mountPath: /mnt/../etc}}}", "instance.localStorage.mountPath", "is not such a path", ""},
		{"mountPath of the system", "{instance: {localStorage: {strategy: Mount, mountPath: /}}}", "instance.localStorage.mountPath", "/ is the system's own", "such as /mnt/k8s-disks"},
		{"mountPath inside of the system", "{instance: {localStorage: {strategy: Mount, mountPath: /proc/x/}}}", "instance.localStorage.mountPath", "/proc is the system's own", "such as /mnt/k8s-disks"},
		{"mountPath inside of what is moved", "{instance: {localStorage: {strategy: RAID0, mountPath: /var/lib/containerd/x}}}", "instance.localStorage.mountPath", "/var/lib/containerd, which is moved there", "such as /mnt/k8s-disks"},
		{"mountPath above of what is moved", "{instance: {localStorage: {strategy: RAID10, mountPath: /var/lib}}}", "instance.localStorage.mountPath", "inside of one another", ""},
		{"service", "{instance: {environment: {'a b': {}}}}", "instance.environment", `"a b" is not the name of a service`, "default"},
		{"service with a path", "{instance: {environment: {../x: {A: b}}}}", "instance.environment", "is not the name of a service", ""},
		{"variable", "{instance: {environment: {default: {1A: b}}}}", "instance.environment.default.1A", `"1A" is not the name of a variable`, ""},
		{"variable with an equals sign", "{instance: {environment: {kubelet: {'A=B': c}}}}", "instance.environment.kubelet.A=B", "is not the name of a variable", ""},
		{"control character in a variable", "{instance: {environment: {default: {A: \"b\\0\"}}}}", "instance.environment.default.A", "control character", "remove it"},
		{"nameserver", "{instance: {network: {nameservers: [10.0.0.2, dns.example]}}}", "instance.network.nameservers[1]", `"dns.example" is not an IP address`, ""},
		{"domain", "{instance: {network: {domains: ['corp example']}}}", "instance.network.domains[0]", `"corp example" is not a DNS name`, ""},
		{"domain over two lines", "{instance: {network: {domains: [\"a\\nDNS=b\"]}}}", "instance.network.domains[0]", "is not a DNS name", ""},
		{"proxy without scheme", "{proxy: {http: 'user:secret@proxy:3128'}}", "proxy.http", "not the URL of a proxy", "http://HOST:PORT"},
		{"proxy at a port that there is not", "{proxy: {http: 'http://proxy:70000'}}", "proxy.http", "not the URL of a proxy", ""},
		{"proxy of another scheme", "{proxy: {https: 'socks5://secret@proxy:3128'}}", "proxy.https", "not the URL of a proxy", ""},
		{"pause account", "{runtime: {pauseAccount: '123'}}", "runtime.pauseAccount", "12-digit", ""},
		{"pause version", "{runtime: {pauseVersion: 'a b'}}", "runtime.pauseVersion", "not an image tag", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			documents, err := Load(sourcesOf(header+"spec: "+test.spec+"\n"), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = Resolve(documents.Tree)
			all := findings(err)
			if len(all) != 1 || fault.CodeOf(err) != fault.Usage {
				t.Fatalf("findings %q", all)
			}
			if !strings.HasPrefix(all[0], "3:") || !strings.Contains(all[0], " spec."+test.path+": ") || !strings.Contains(all[0], test.message) || strings.Contains(all[0], "secret") {
				t.Errorf("%s, want %q at spec.%s", all[0], test.message, test.path)
			}
			fault.Each(err, func(e error) {
				if remedy := fault.Remedy(e); !strings.Contains(remedy, test.remedy) || remedy == "" {
					t.Errorf("remedy %q", remedy)
				}
			})
		})
	}
}

// TestRemedyOfTheDialect: what to write instead is said in the words of whoever
// wrote it.
func TestRemedyOfTheDialect(t *testing.T) {
	ca := simulator.Default().Cluster.CertificateAuthority
	_, flags := ParseBootstrap([]string{"c", "--apiserver-endpoint", "https://a", "--b64-cluster-ca", ca, "--enable-local-outpost", "true"})
	_, _, document := Read(sourcesOf(header+"spec: {cluster: {apiServerEndpoint: https://a, certificateAuthority: "+ca+", enableOutpost: true}}\n"), ReadOptions{})
	for _, test := range []struct {
		err  error
		want string
	}{{flags, "add --cluster-id ID"}, {document, "add the cluster's id as spec.cluster.id"}} {
		if test.err == nil {
			t.Errorf("nothing is said, want %q", test.want)
		}
		fault.Each(test.err, func(e error) {
			if remedy := fault.Remedy(e); remedy != test.want {
				t.Errorf("%v: %q, want %q", e, remedy, test.want)
			}
		})
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// TestResolveOfAnUncheckedTree: what Load would have dropped is an error here.
func TestResolveOfAnUncheckedTree(t *testing.T) {
	documents, err := Load(sourcesOf(header), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tree := documents.Tree
	tree.Map["spce"] = tree.Map["kind"]
	if _, err := Resolve(tree); err == nil || !strings.Contains(err.Error(), `unknown field "spce"`) || fault.CodeOf(err) != fault.Usage {
		t.Error(err)
	}
}
