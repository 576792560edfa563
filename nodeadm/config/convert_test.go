package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// commandLines use every flag of bootstrap.sh at least once.
func commandLines() map[string][]string {
	cluster := simulator.Default().Cluster
	described := []string{"--apiserver-endpoint", cluster.Endpoint, "--b64-cluster-ca", cluster.CertificateAuthority}
	return map[string][]string{
		"name only":                {"my-cluster"},
		"described":                append([]string{"my-cluster"}, described...),
		"values with equals signs": {"--apiserver-endpoint=" + cluster.Endpoint, "--b64-cluster-ca=" + cluster.CertificateAuthority, "my-cluster"},
		"empty values":             {"c", "--apiserver-endpoint", "", "--b64-cluster-ca", "", "--kubelet-extra-args", "", "--dns-cluster-ip", "", "--ip-family", ""},
		"kubelet's flags":          {"c", "--kubelet-extra-args", "--node-labels=a=b,c=d --register-with-taints=x=y:NoSchedule --v=4 --max-pods 20"},
		"quotes in them":           {"c", "--kubelet-extra-args", `--node-labels="a=b" '--x=it is' --y="it's" --z=a\ b --q="say \"hi\" \\ \$HOME" --empty='' --pct=%n --dollar=$HOME`},
		"words of YAML in them":    {"c", "--kubelet-extra-args", "--a yes --b null --c 0777 --d '# x' --e ': y' --f '- z' --g @x --h '*'"},
		"lines in them":            {"c", "--kubelet-extra-args", "--v=1 \\\n  --node-labels=a=b\n\t--x='a\n\n  b '"},
		"max pods":                 {"c", "--use-max-pods", "false", "--kube-reserved-policy", "legacy"},
		"max pods as usual":        {"c", "--use-max-pods", "true", "--kube-reserved-policy", "effective"},
		"DNS":                      {"c", "--dns-cluster-ip", "10.0.0.10, 10.0.0.11"},
		"IPv4":                     {"c", "--service-ipv4-cidr", "10.100.0.0/16"},
		"IPv4 said":                {"c", "--service-ipv4-cidr", "10.100.0.0/16", "--ip-family", "ipv4"},
		"IPv6":                     append([]string{"c", "--service-ipv6-cidr", "fd30:1c53:5f8a::/108"}, described...),
		"IPv6 said":                {"c", "--service-ipv6-cidr", "fd30:1c53:5f8a::/108", "--ip-family", "IPv6"},
		"IPv6 to be asked about":   {"c", "--ip-family", "ipv6"},
		"containerd":               {"c", "--container-runtime", "containerd", "--containerd-config-file", "/etc/eks/my containerd.toml"},
		"dockerd":                  {"c", "--container-runtime", "DOCKERD", "--docker-config-json", `{"bridge": "none", "log-opts": {"max-size": "10m"}, "x": "it's"}`, "--enable-docker-bridge", "True"},
		"no bridge":                {"c", "--enable-docker-bridge", "false"},
		"pause image":              {"c", "--pause-container-account", "012345678901", "--pause-container-version", "3.10"},
		"Outpost":                  append([]string{"c", "--cluster-id", "9a1f43b2-0000-4000-8000-000000000001", "--enable-local-outpost", "true"}, described...),
		"no Outpost":               {"c", "--enable-local-outpost", "false"},
		"RAID0":                    {"c", "--local-disks", "RAID0"},
		"RAID10":                   {"c", "--local-disks", "raid10"},
		"disks mounted":            {"c", "--local-disks", "mount"},
		"bpf":                      {"c", "--mount-bpf-fs", "false"},
		"bpf as usual":             {"c", "--mount-bpf-fs", "true"},
		"retries":                  {"c", "--aws-api-retry-attempts", "7"},
		"no retries":               {"c", "--aws-api-retry-attempts", "0"},
		"names like other things":  {"1e3", "--pause-container-version", "1.0"},
		"a truth value as a name":  {"yes"},
		"a number as a name":       {"0777"},
		"everything": append([]string{
			"my-cluster", "--kubelet-extra-args", "--node-labels=a=b 'c'", "--use-max-pods", "false", "--kube-reserved-policy", "legacy", "--dns-cluster-ip", "10.100.0.10", "--service-ipv4-cidr", "10.100.0.0/16",
			"--ip-family", "ipv4", "--container-runtime", "containerd", "--containerd-config-file", "/x", "--docker-config-json", "{}", "--enable-docker-bridge", "true", "--pause-container-account", "602401143452",
			"--pause-container-version", "3.5", "--cluster-id", "abc", "--enable-local-outpost", "true", "--local-disks", "mount", "--mount-bpf-fs", "true", "--aws-api-retry-attempts", "3",
		}, described...),
	}
}

func TestConversionsMeanTheSame(t *testing.T) {
	used := map[string]bool{}
	for name, args := range commandLines() {
		if name == "everything" {
			args[2] = "--node-labels=a=b --c 'd e'" // 'c' alone would be no flag
		}
		for _, word := range args {
			flag, _, _ := strings.Cut(word, "=")
			used[flag] = true
		}
		t.Run(name, func(t *testing.T) {
			want, err := ParseBootstrap(args)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := ParseBootstrapDocument(args)
			if err != nil {
				t.Fatal(err)
			}
			text, err := tree.YAML()
			if err != nil {
				t.Fatal(err)
			}
			documents, got, err := Read([]Source{{Name: "converted", Data: text}}, ReadOptions{})
			if err != nil || len(documents.Warnings) > 0 {
				t.Fatalf("%v %q in\n%s", err, documents.Warnings, text)
			}
			if diff := cmp.Diff(want, got, sameConfig); diff != "" {
				t.Errorf("as NodeConfig it is another:\n%s\n%s", text, diff)
			}
			if diff := cmp.Diff(tree.Value(), documents.Tree.Value()); diff != "" {
				t.Error(diff)
			}
			back(t, documents.Tree, want)
		})
	}
	for _, f := range BootstrapFlags() {
		if !used["--"+f.Name] {
			t.Errorf("--%s is in no command line", f.Name)
		}
	}
}

// back turns a document into a line of shell, and that into what it wants.
func back(t *testing.T, tree *doctree.Node, want Config) {
	t.Helper()
	args, left := ToBootstrap(tree)
	if len(left) > 0 {
		t.Errorf("not converted: %q", left)
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = QuoteWord(arg)
	}
	line := strings.Join(quoted, " ")
	words, err := SplitWords(line)
	if diff := cmp.Diff(args, words); diff != "" || err != nil {
		t.Fatalf("%v\n%s\n%s", err, line, diff)
	}
	got, err := ParseBootstrap(words)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if diff := cmp.Diff(want, got, sameConfig); diff != "" {
		t.Errorf("as %s it is another:\n%s", line, diff)
	}
}

func TestQuoteWord(t *testing.T) {
	for word, want := range map[string]string{
		"": "''", "a": "a", "--a=b,c": "--a=b,c", "a b": "'a b'", "it's": `'it'\''s'`, `"`: `'"'`, `\`: `'\'`, "a\nb": "'a\nb'", "'": `''\'''`,
	} {
		if got := QuoteWord(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}

// TestToBootstrapLeaves: what bootstrap.sh has no words for is listed.
func TestToBootstrapLeaves(t *testing.T) {
	documents, _ := merged(t, `metadata: {name: x}
spec:
  cluster: {name: c, ipFamily: ipv4}
  kubelet:
    config: {maxPods: 5, evictionHard: {memory.available: 5%}, failSwapOn: false}
    maxPodsExpression: max_pods
    kubeReserved: {policy: ""}
    flags: [--v=1]
  containerd: {config: "a = 1", baseRuntimeSpec: {process: {rlimits: []}}}
  featureGates: {InstanceIdNodeName: true}
  instance:
    localStorage: {strategy: RAID0, mountPath: /x, disabledMounts: [SOCI]}
    environment: {default: {A: b}}
    network: {nameservers: [10.0.0.2], domains: []}
  labels: {lifecycle: true}
  proxy: {http: "http://p:1"}
`)
	args, left := ToBootstrap(documents.Tree)
	if diff := cmp.Diff([]string{"c", "--ip-family", "ipv4", "--local-disks", "raid0", "--kubelet-extra-args", "--v=1"}, args); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"spec.containerd.config", "spec.featureGates.InstanceIdNodeName", "spec.instance.environment.default.A",
		"spec.instance.localStorage.disabledMounts", "spec.instance.localStorage.mountPath", "spec.instance.network.nameservers",
		"spec.kubelet.config.evictionHard.memory.available", "spec.kubelet.config.failSwapOn", "spec.kubelet.config.maxPods", "spec.kubelet.maxPodsExpression", "spec.labels.lifecycle", "spec.proxy.http",
	}
	// Whether the empty list in baseRuntimeSpec is listed is not said here.
	var given []string
	for _, path := range left {
		if !strings.HasPrefix(path, "spec.containerd.baseRuntimeSpec") {
			given = append(given, path)
		}
	}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Error(diff)
	}
	for mode, listed := range map[string]bool{"none": false, "prefix-delegation": true, "secondary-ip": true, "ipv6": true} {
		documents, _ := merged(t, "spec: {cluster: {name: c}, kubelet: {maxPods: {mode: "+mode+"}}}\n")
		if args, left := ToBootstrap(documents.Tree); (len(left) > 0) != listed || (len(args) == 3) == listed {
			t.Errorf("mode %s: %q, left %q", mode, args, left)
		}
	}
}

const bottlerocketData = `# from a launch template
[settings.kubernetes]
cluster-name = "my-cluster"
api-server = "https://ABC.gr7.eu-west-1.eks.amazonaws.com"
cluster-certificate = "CERTIFICATE"
cluster-dns-ip = "10.100.0.10"
cluster-domain = "cluster.local"
max-pods = 58
container-log-max-files = 3
pod-pids-limit = 4096
cpu-cfs-quota-enforced = true
cpu-manager-policy = "static"
allowed-unsafe-sysctls = ["net.core.*"]
shutdown-grace-period = "30s"

[settings.kubernetes.node-labels]
"team" = "blue"
"example.com/pool" = "a b is not a value, this is: x"

[settings.kubernetes.node-taints]
dedicated = "gpu:NoSchedule"
special = ["true:NoExecute", "true:PreferNoSchedule"]
bare = ":NoSchedule"

[settings.kubernetes.eviction-hard]
"memory.available" = "15%"

[settings.kubernetes.kube-reserved]
cpu = "100m"

[settings.host-containers.admin]
enabled = true

[settings.network]
https-proxy = "http://proxy:3128"
no-proxy = ["corp.example", "10.0.0.0/8"]

[settings.dns]
name-servers = ["10.0.0.2"]
search-list = ["corp.example"]

[[settings.container-registry.mirrors]]
registry = "docker.io"
endpoint = ["mirror.example.com", "http://10.0.0.9:5000"]

[[settings.container-registry.mirrors]]
registry = "*"
endpoint = ["https://all.example.com"]

[settings.metrics]
send-metrics = false
`

func TestFromBottlerocket(t *testing.T) {
	data := strings.Replace(bottlerocketData, "CERTIFICATE", simulator.Default().Cluster.CertificateAuthority, 1)
	data = strings.Replace(data, "a b is not a value, this is: x", "x", 1)
	tree, left, err := Convertible([]byte(data), "user-data.toml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"settings.host-containers.admin.enabled", "settings.metrics.send-metrics"}, left); diff != "" {
		t.Error(diff)
	}
	text, err := tree.YAML()
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := Read([]Source{{Name: "converted", Data: text}}, ReadOptions{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff([]string{"--node-labels=example.com/pool=x,team=blue", "--register-with-taints=bare:NoSchedule,dedicated=gpu:NoSchedule,special=true:NoExecute,special=true:PreferNoSchedule"}, c.Kubelet.Flags); diff != "" {
		t.Error(diff)
	}
	config := doctree.FromValue(c.Kubelet.Config, doctree.Origin{}).Text()
	want := `{"allowedUnsafeSysctls":["net.core.*"],"clusterDomain":"cluster.local","containerLogMaxFiles":3,"cpuCFSQuota":true,"cpuManagerPolicy":"static","evictionHard":{"memory.available":"15%"},"kubeReserved":{"cpu":"100m"},"maxPods":58,"podPidsLimit":4096,"shutdownGracePeriod":"30s"}`
	if diff := cmp.Diff(want, config); diff != "" {
		t.Error(diff)
	}
	if c.Cluster.Name != "my-cluster" || !c.Cluster.Described() || fmt.Sprint(c.Cluster.DNSAddresses) != "[10.100.0.10]" || c.Proxy.HTTPS != "http://proxy:3128" || len(c.Proxy.NoProxy) != 2 ||
		fmt.Sprint(c.Instance.Network) != "{[10.0.0.2] [corp.example]}" {
		t.Errorf("%+v", c)
	}
	if mirrors := fmt.Sprint(c.Containerd.RegistryMirrors); mirrors != "map[_default:[https://all.example.com] docker.io:[https://mirror.example.com http://10.0.0.9:5000]]" {
		t.Error(mirrors)
	}
	// Numbers that are written as text, and lists of addresses.
	tree, _, err = Convertible([]byte("[settings.kubernetes]\nmax-pods = \"20\"\ncluster-dns-ip = [\"10.0.0.10\", \"10.0.0.11\"]\n"), "x")
	if err != nil || tree.Get("spec").Text() != `{"cluster":{"dnsAddresses":["10.0.0.10","10.0.0.11"]},"kubelet":{"config":{"maxPods":20}}}` {
		t.Error(tree.Text(), err)
	}
}

func TestConvertible(t *testing.T) {
	script := "#!/bin/bash\nset -e\nNAME=my-cluster\n/etc/eks/bootstrap.sh $NAME --use-max-pods false --kubelet-extra-args '--v=1'\n"
	want := `{"cluster":{"name":"my-cluster"},"kubelet":{"flags":["--v=1"],"maxPods":{"mode":"none"}}}`
	for name, data := range map[string]string{
		"a script":            script,
		"a script in MIME":    message([2]string{"Content-Type: text/cloud-config", "#cloud-config\n"}, [2]string{"Content-Type: text/x-shellscript", script}),
		"a NodeConfig":        header + "spec: {cluster: {name: my-cluster}, kubelet: {flags: [--v=1], maxPods: {mode: none}}}\n",
		"a NodeConfig, twice": message([2]string{ours, header + "spec: {cluster: {name: other}, kubelet: {flags: [--v=1]}}"}, [2]string{ours, header + "spec: {cluster: {name: my-cluster}, kubelet: {maxPods: {mode: none}}}"}),
	} {
		tree, left, err := Convertible([]byte(data), "user data")
		if err != nil || len(left) > 0 {
			t.Errorf("%s: %v %q", name, err, left)
			continue
		}
		if got := tree.Get("spec").Text(); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, test := range map[string]struct{ data, want string }{
		"nothing":                   {"", ""},
		"a script without it":       {"#!/bin/sh\necho\n", ""},
		"a script that is wrong":    {"#!/bin/sh\n/etc/eks/bootstrap.sh c --local-disks x\n", "not known"},
		"what only a machine says":  {"#!/bin/sh\n/etc/eks/bootstrap.sh $(hostname)\n", "only known on the machine"},
		"a NodeConfig with a typo":  {header + "spec: {clutser: {}}\n", "clutser"},
		"a value that is wrong":     {header + "spec: {cluster: {cidr: x}}\n", "is not a CIDR"},
		"settings that are no TOML": {"[settings.kubernetes]\nx =\n", "x: "},
		"settings that are wrong":   {"[settings.kubernetes]\ncluster-name = \"a b\"\n", "is not a cluster name"},
	} {
		_, _, err := Convertible([]byte(test.data), "x")
		if err == nil || !strings.Contains(err.Error(), test.want) || fault.CodeOf(err) != fault.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}
