package plan

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// node is a configuration and facts from which every test starts.
func node(t testing.TB, minor int, args ...string) (config.Config, facts.Facts) {
	t.Helper()
	c := simulator.Default().Cluster
	wanted, err := config.ParseBootstrap(append([]string{"c", "--apiserver-endpoint", c.Endpoint, "--b64-cluster-ca", c.CertificateAuthority}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return wanted, facts.Facts{
		Instance: facts.Instance{
			ID: "i-0a1b2c3d4e5f60718", Type: "m5.large", Region: "eu-west-1", Zone: "eu-west-1a", Partition: "aws", ServicesDomain: "amazonaws.com",
			IPv4: netip.MustParseAddr("10.0.0.5"), NodeName: "ip-10-0-0-5.eu-west-1.compute.internal",
		},
		Host: facts.Host{
			Machine: facts.Machine{CPUs: 2, BPFFS: true, KernelDefaults: true}, Kubelet: kubelet.Version{Major: 1, Minor: minor}, Containerd: "1.7.27",
			KubeletPath: "/usr/bin/kubelet", TokenProgram: "/usr/bin/aws-iam-authenticator", CredentialProvider: "/etc/eks/image-credential-provider/ecr-credential-provider",
		},
	}
}

func file(t *testing.T, p Plan, path string) string {
	t.Helper()
	for _, f := range p.Files {
		if f.Path == path {
			return string(f.Data)
		}
	}
	t.Fatalf("the plan has no %s", path)
	return ""
}

// afterwards are the facts once a plan has been carried out.
func afterwards(f facts.Facts, p Plan) facts.Facts {
	f.Host.Live, f.Host.Before, f.Host.Private, f.Host.RanBefore = map[string][]byte{}, map[string]*ownership.State{}, map[string]fs.FileMode{}, true
	for _, file := range p.Files {
		f.Host.Live[file.Path] = file.Data
		if file.Secret {
			f.Host.Private[file.Path] = file.Mode
		}
		if file.State != nil {
			f.Host.Before[file.Path] = file.State
		}
	}
	return f
}

func document(t *testing.T, p Plan) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(file(t, p, layout.KubeletConfig)), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestEveryKubelet holds the plan for each version to what that kubelet's own
// source knows: fields, flags and feature gates.
func TestEveryKubelet(t *testing.T) {
	for minor := kubelet.Oldest; minor <= kubelet.Newest; minor++ {
		for _, containerd := range []string{"1.6.20", "1.7.27", "2.1.4"} {
			t.Run(fmt.Sprintf("1.%d with containerd %s", minor, containerd), func(t *testing.T) {
				c, f := node(t, minor, "--kubelet-extra-args", "--node-labels=a=b")
				f.Host.Containerd = containerd
				f.Host.NVIDIA, f.Host.NVIDIARuntime = true, "/usr/bin/nvidia-container-runtime"
				p, err := Build(c, f, Options{})
				if err != nil {
					t.Fatal(err)
				}
				fields, err := os.ReadFile(fmt.Sprintf("../../data/kubelet/testdata/fields/v1.%d.txt", minor))
				if err != nil {
					t.Fatal(err)
				}
				known := strings.Fields(string(fields))
				doc := document(t, p)
				for path := range paths(doc, "") {
					if !slices.Contains(known, path) {
						t.Errorf("kubelet 1.%d has no field %s", minor, path)
					}
				}
				for gate := range doc["featureGates"].(map[string]any) {
					if !kubelet.HasGate(f.Host.Kubelet, gate) {
						t.Errorf("kubelet 1.%d has no gate %s", minor, gate)
					}
				}
				line := file(t, p, layout.KubeletUnit) + file(t, p, layout.KubeletArgs)
				for word := range strings.FieldsSeq(line) {
					word = strings.TrimPrefix(strings.Trim(word, "'"), "Environment='KUBELET_ARGS=")
					if flag, found := strings.CutPrefix(word, "--"); found && flag != "-P" {
						name, value, _ := strings.Cut(flag, "=")
						if !kubelet.HasFlag(f.Host.Kubelet, name) {
							t.Errorf("kubelet 1.%d has no flag --%s", minor, name)
						}
						if name == "cloud-provider" && value == "aws" && minor > 26 {
							t.Errorf("kubelet 1.%d has no cloud provider aws", minor)
						}
					}
				}
				if minor < dockershimGone {
					return // dockerd: no containerd configuration
				}
				var parsed map[string]any
				if _, err := toml.Decode(file(t, p, layout.ContainerdConfig), &parsed); err != nil {
					t.Error(err)
				}
				if want := map[bool]int64{false: 2, true: 3}[strings.HasPrefix(containerd, "2.")]; parsed["version"] != want {
					t.Errorf("containerd configuration version %v, want %d", parsed["version"], want)
				}
			})
		}
	}
}

// freeForm are fields whose keys are the user's or another component's.
var freeForm = []string{"evictionHard", "featureGates", "kubeReserved", "systemReserved"}

func paths(doc map[string]any, prefix string) map[string]bool {
	all := map[string]bool{}
	for key, value := range doc {
		path := prefix + key
		all[path] = true
		if nested, ok := value.(map[string]any); ok && !slices.Contains(freeForm, path) {
			for p := range paths(nested, path+".") {
				all[p] = true
			}
		}
	}
	return all
}

func TestSameInputSameBytes(t *testing.T) {
	c, f := node(t, 35, "--kubelet-extra-args", "--node-labels=a=b,c=d --v=4")
	first, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := Build(c, f, Options{})
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Fatalf("%v %s", err, diff)
		}
	}
}

func TestMaxPodsAgreesWithEveryType(t *testing.T) {
	for _, i := range instancetypes.All() {
		c, f := node(t, 30)
		f.Instance.Type = i.Name
		p, err := Build(c, f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := document(t, p)["maxPods"], float64(i.ENIs*(i.IPv4PerENI-1)+2); got != want {
			t.Errorf("%s: maxPods %v, want %v", i.Name, got, want)
		}
	}
}

func TestKubeReserved(t *testing.T) {
	for _, test := range []struct {
		name   string
		cpus   int
		args   []string
		type_  string
		cpu    string
		memory string
	}{
		{"one CPU", 1, nil, "m5.large", "60m", "574Mi"},
		{"two", 2, nil, "m5.large", "70m", "574Mi"},
		{"four", 4, nil, "m5.xlarge", "80m", "893Mi"},
		{"eight", 8, nil, "m5.large", "90m", "574Mi"},
		{"192", 192, nil, "p5.48xlarge", "550m", "1355Mi"},
		{"fewer pods than addresses", 16, []string{"--kubelet-extra-args", "--max-pods=110"}, "c9g.4xlarge", "110m", "1465Mi"},
		{"more pods than addresses", 2, []string{"--kubelet-extra-args", "--max-pods=110"}, "t3.medium", "70m", "442Mi"},
		{"kubelet's own default", 16, []string{"--use-max-pods", "false"}, "c9g.4xlarge", "110m", "1465Mi"},
		{"legacy", 16, []string{"--kube-reserved-policy", "legacy", "--kubelet-extra-args", "--max-pods=110"}, "c9g.4xlarge", "110m", "4589Mi"},
	} {
		c, f := node(t, 30, test.args...)
		f.Host.CPUs, f.Instance.Type = test.cpus, test.type_
		p, err := Build(c, f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"cpu": test.cpu, "ephemeral-storage": "1Gi", "memory": test.memory}
		if diff := cmp.Diff(want, document(t, p)["kubeReserved"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestClusterDNS(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		vpc  string
		eks  *facts.Cluster
		want string
	}{
		{"given", []string{"--dns-cluster-ip", "10.9.8.7,10.9.8.8"}, "", nil, "10.9.8.7 10.9.8.8"},
		{"tenth address", []string{"--service-ipv4-cidr", "10.100.0.0/16"}, "", nil, "10.100.0.10"},
		{"tenth address of a small range", []string{"--service-ipv4-cidr", "10.100.0.16/28"}, "", nil, "10.100.0.26"},
		{"IPv6", []string{"--service-ipv6-cidr", "fd30:1c53:5f8a::/108"}, "", nil, "fd30:1c53:5f8a::a"},
		{"as EKS says", nil, "", &facts.Cluster{ServiceIPv4CIDR: "172.20.0.0/16"}, "172.20.0.10"},
		{"VPC beside 10/8", nil, "192.168.0.0/16", nil, "10.100.0.10"},
		{"VPC in 10/8", nil, "192.168.0.0/16 10.1.0.0/16", nil, "172.20.0.10"},
	} {
		c, f := node(t, 30, test.args...)
		f.Instance.IPv6 = []netip.Addr{netip.MustParseAddr("2001:db8::1")}
		for _, cidr := range strings.Fields(test.vpc) {
			f.Instance.VPCIPv4CIDRs = append(f.Instance.VPCIPv4CIDRs, netip.MustParsePrefix(cidr))
		}
		if test.eks != nil {
			test.eks.Endpoint, test.eks.CertificateAuthority = c.Cluster.Endpoint, c.Cluster.CertificateAuthority
			f.Cluster = test.eks
		}
		p, err := Build(c, f, Options{})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := fmt.Sprint(document(t, p)["clusterDNS"]); got != "["+test.want+"]" {
			t.Errorf("%s: clusterDNS %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		minor  int
		args   []string
		change func(*facts.Facts)
		want   string
	}{
		{"dockerd for a kubelet without dockershim", 24, []string{"--container-runtime", "dockerd"}, nil, "--container-runtime dockerd: kubelet v1.24.0"},
		{"Docker's configuration above 1.23", 30, []string{"--docker-config-json", "{}", "--enable-docker-bridge", "true"}, nil, "--docker-config-json"},
		{"a flag that was removed", 30, []string{"--kubelet-extra-args", "--container-runtime=remote"}, nil, "has no flag --container-runtime"},
		{"a misspelt flag", 30, []string{"--kubelet-extra-args", "--node-lables=a=b"}, nil, "has no flag --node-lables"},
		{"the in-tree cloud provider", 27, []string{"--kubelet-extra-args", "--cloud-provider=aws"}, nil, "no cloud provider aws"},
		{"another cloud provider", 28, []string{"--kubelet-extra-args", "--cloud-provider gce"}, nil, "no cloud provider gce"},
		{"a kubelet that ends", 33, []string{"--kubelet-extra-args", "--runonce"}, nil, "never join"},
		{"drop-ins that are in alpha", 29, []string{"--kubelet-extra-args", "--config-dir=/x"}, nil, "KUBELET_CONFIG_DROPIN_DIR_ALPHA"},
		{"a gate that was removed, as a flag", 28, []string{"--kubelet-extra-args", "--v=2 --feature_gates=NodeSwap=true,KubeletCredentialProviders=true"}, nil, "--feature-gates=KubeletCredentialProviders: kubelet v1.28.0 has no such feature gate"},
		{"a gate that is locked, as a flag", 35, []string{"--kubelet-extra-args", "--feature-gates DynamicResourceAllocation=false"}, nil, "does not let it be turned off"},
		{"a gate that was removed, on the node", 33, nil, func(f *facts.Facts) {
			f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"featureGates": {"DisableCloudProviders": true}}`)}
		}, layout.KubeletConfig + ": featureGates.DisableCloudProviders: kubelet v1.33.0 has no such feature gate"},
		{"a kubelet that ends, on the node", 33, nil, func(f *facts.Facts) {
			f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"runOnce": true}`)}
		}, layout.KubeletConfig + ": runOnce"},
		{"max pods that is no number", 30, []string{"--kubelet-extra-args", "--max-pods=many"}, nil, `"many" is not a number`},
		{"a service range without a tenth address", 30, []string{"--service-ipv4-cidr", "10.100.0.0/29"}, nil, "no tenth address"},
		{"version 3 for containerd 1.7", 30, nil, func(f *facts.Facts) {
			f.Host.ContainerdTemplate = &facts.Document{Path: "/x.toml", Data: []byte("version = 3\n")}
		}, "/x.toml: it is written in version 3"},
		{"broken TOML", 30, nil, func(f *facts.Facts) {
			f.Host.ContainerdTemplate = &facts.Document{Path: "/x.toml", Data: []byte("version = 2\n[a\n")}
		}, "/x.toml:2:"},
		{"a kubelet-config.json that is no JSON", 30, nil, func(f *facts.Facts) { f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte("kind: Kubelet")} }, "not a JSON object"},
		{"text for a number on the node", 30, nil, func(f *facts.Facts) {
			f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"maxPods": "40"}`)}
		}, `maxPods must be a number, and is "40"`},
		{"half a pod on the node", 30, nil, func(f *facts.Facts) {
			f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"maxPods": 40.5}`)}
		}, `maxPods must be a whole number, and is 40.5`},
		{"text for a group on the node", 30, nil, func(f *facts.Facts) {
			f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"evictionHard": "x", "authentication": {"anonymous": null}}`)}
		}, `evictionHard must be an object, and is "x"`},
		{"a drop-in that swallows the arguments", 30, nil, func(f *facts.Facts) {
			f.Host.KubeletUnit = &facts.KubeletUnit{Path: "/etc/systemd/system/kubelet.service.d/99-mine.conf", Exec: "/usr/bin/kubelet"}
		}, "99-mine.conf"},
		{"no service CIDR for IPv6", 30, nil, func(f *facts.Facts) {
			f.Instance.IPv6 = []netip.Addr{netip.MustParseAddr("2001:db8::1")}
			f.Cluster = &facts.Cluster{IPFamily: "ipv6"}
		}, "certificate authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, test.minor, test.args...)
			if test.change != nil {
				test.change(&f)
			}
			p, err := Build(c, f, Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) || len(p.Files) > 0 {
				t.Errorf("error %v with %d files, want one with %q and no files", err, len(p.Files), test.want)
			}
			if code := fault.CodeOf(err); code != fault.Usage && code != fault.AWS {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestOthersSettingsStay is user data that edits kubelet-config.json with jq
// before it calls bootstrap.sh, the commonest way to set what has no flag.
func TestOthersSettingsStay(t *testing.T) {
	c, f := node(t, 30)
	f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(`{"registryPullQPS": 50, "clusterDomain": "corp.local", "maxPods": 5, "kubeReserved": {"pid": "100"}, "big": 9007199254740993}`)}
	first, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	doc := document(t, first)
	if doc["registryPullQPS"] != 50.0 || doc["clusterDomain"] != "corp.local" || doc["maxPods"] != 29.0 || doc["kubeReserved"].(map[string]any)["pid"] != "100" {
		t.Errorf("the document is %v", doc)
	}
	if text := file(t, first, layout.KubeletConfig); !strings.Contains(text, "9007199254740993") {
		t.Error("a number lost its last digits")
	}
	// The next run finds its own work and the others' side by side.
	f = afterwards(f, first)
	second, err := Build(c, f, Options{})
	if diff := cmp.Diff(file(t, first, layout.KubeletConfig), file(t, second, layout.KubeletConfig)); diff != "" || err != nil {
		t.Errorf("a second run (-first +second): %v\n%s", err, diff)
	}
	// What was nodeadm's own goes when it is not wanted any more.
	c.Kubelet.MaxPods.Mode = "none"
	third, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if doc := document(t, third); doc["maxPods"] != nil || doc["registryPullQPS"] != 50.0 || third.MaxPods.Effective != kubeletDefaultMaxPods {
		t.Errorf("without max pods: %v, effective %d", doc["maxPods"], third.MaxPods.Effective)
	}
}

// TestClashes are values that kubelet takes alone, and not beside some of
// nodeadm's own; a test with the real kubelets holds the same cases.
func TestClashes(t *testing.T) {
	const cgroups, shutdown = "kubeReservedCgroup systemReservedCgroup", "shutdownGracePeriod shutdownGracePeriodCriticalPods"
	for _, test := range []struct {
		name, config, flags string
		left, stay          string
	}{
		{"nothing", `{}`, "", "", cgroups + " serverTLSBootstrap " + shutdown},
		{"no graceful shutdown", `{"shutdownGracePeriod": "0s"}`, "", "shutdownGracePeriodCriticalPods", "shutdownGracePeriod"},
		{"a short shutdown", `{"shutdownGracePeriod": "20s"}`, "", "shutdownGracePeriodCriticalPods", "shutdownGracePeriod"},
		{"a long shutdown", `{"shutdownGracePeriod": "5m"}`, "", "", shutdown},
		{"a part of the shutdown", `{"shutdownGracePeriodCriticalPods": "10s"}`, "", "", shutdown},
		{"a shutdown by priority", `{"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}]}`, "", shutdown, ""},
		{"the gate", `{"featureGates": {"GracefulNodeShutdown": false}}`, "", shutdown, "serverTLSBootstrap"},
		{"the gate as a flag", `{}`, "--feature-gates=GracefulNodeShutdown=false", shutdown, "serverTLSBootstrap"},
		{"no beta", `{"featureGates": {"AllBeta": false}}`, "", shutdown, "serverTLSBootstrap"},
		{"no beta but this", `{"featureGates": {"AllBeta": false, "GracefulNodeShutdown": true}}`, "", "", shutdown},
		{"the other gate, null", `{"featureGates": {"RotateKubeletServerCertificate": null}}`, "", "serverTLSBootstrap", shutdown},
		{"the other gate", `{"featureGates": {"RotateKubeletServerCertificate": false}}`, "", "serverTLSBootstrap", shutdown},
		{"reserved CPUs", `{"reservedSystemCPUs": "0"}`, "", cgroups, ""},
		{"no reserved CPUs", `{"reservedSystemCPUs": ""}`, "", "", cgroups},
		{"reserved CPUs as a flag", `{}`, "--reserved_cpus 0", cgroups, ""},
	} {
		for _, where := range []string{"the user's", "on the node"} {
			t.Run(test.name+", "+where, func(t *testing.T) {
				c, f := node(t, 34, "--kubelet-extra-args", test.flags)
				if where == "on the node" {
					f.Host.Live = map[string][]byte{layout.KubeletConfig: []byte(test.config)}
				} else if err := json.Unmarshal([]byte(test.config), &c.Kubelet.Config); err != nil {
					t.Fatal(err)
				}
				first, err := Build(c, f, Options{})
				if err != nil {
					t.Fatal(err)
				}
				again, err := Build(c, afterwards(f, first), Options{})
				if err != nil || len(again.Conflicts) > 0 {
					t.Errorf("the second run: %v, %v", err, again.Conflicts)
				}
				for _, p := range []Plan{first, again} {
					doc := document(t, p)
					for _, field := range strings.Fields(test.left) {
						if doc[field] != nil {
							t.Errorf("%s is %v", field, doc[field])
						}
					}
					for _, field := range strings.Fields(test.stay) {
						if doc[field] == nil {
							t.Errorf("%s is missing", field)
						}
					}
				}
				// Once they are gone, nodeadm's own come back, and the other way round.
				plain, own := node(t, 34)
				before, err := Build(plain, own, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if where == "the user's" {
					p, err := Build(plain, afterwards(f, first), Options{})
					if diff := cmp.Diff(document(t, before), document(t, p)); diff != "" || err != nil {
						t.Errorf("without them (-want): %v\n%s", err, diff)
					}
					p, err = Build(c, afterwards(own, before), Options{})
					if diff := cmp.Diff(document(t, first), document(t, p)); diff != "" || err != nil {
						t.Errorf("with them, later (-want): %v\n%s", err, diff)
					}
				}
			})
		}
	}
}

// TestNulls: a field that the user sets to null, which is kubelet's own default,
// comes back to nodeadm's when the user wants nothing more of it.
func TestNulls(t *testing.T) {
	for _, field := range []string{"authentication", "featureGates", "logging", "evictionHard", "kubeReserved", "authorization.webhook", "featureGates.KubeletPSI", "maxPods", "serializeImagePulls"} {
		t.Run(field, func(t *testing.T) {
			plain, f := node(t, 33)
			c, _ := node(t, 33)
			outer, inner, nested := strings.Cut(field, ".")
			c.Kubelet.Config = map[string]any{outer: nil}
			if nested {
				c.Kubelet.Config[outer] = map[string]any{inner: nil}
			}
			before, err := Build(plain, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			first, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			second, err := Build(c, afterwards(f, first), Options{})
			if diff := cmp.Diff(document(t, first), document(t, second)); diff != "" || err != nil || len(second.Conflicts) > 0 {
				t.Errorf("a second run: %v, %v\n%s", err, second.Conflicts, diff)
			}
			third, err := Build(plain, afterwards(f, second), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(document(t, before), document(t, third)); diff != "" {
				t.Errorf("without it (-want +got):\n%s", diff)
			}
		})
	}
	c, f := node(t, 36)
	c.Kubelet.Config = map[string]any{"featureGates": map[string]any{"NodeSwap": nil}}
	if err := CheckKubelet(c, f.Host.Kubelet); err == nil || !strings.Contains(err.Error(), "does not let it be turned off") {
		t.Errorf("a gate that is locked, and null: %v", err)
	}
}

func TestHealthURL(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "http://127.0.0.1:10248/healthz",
		"--healthz-port=0":               "",
		"--healthz-port 123":             "http://127.0.0.1:123/healthz",
		"--healthz-bind-address=0.0.0.0": "http://127.0.0.1:10248/healthz",
		"--healthz-bind-address=::1":     "http://[::1]:10248/healthz",
	} {
		c, f := node(t, 30, "--kubelet-extra-args", args)
		p, err := Build(c, f, Options{})
		if err != nil || p.HealthURL != want {
			t.Errorf("%q: %v, URL %q, want %q", args, err, p.HealthURL, want)
		}
	}
}

// A value of the wrong kind would only be found by kubelet, when nobody looks.
func TestUserValuesOfTheWrongKind(t *testing.T) {
	for _, test := range []struct {
		config map[string]any
		want   string
	}{
		{map[string]any{"maxPods": "20"}, "maxPods must be a number"},
		{map[string]any{"authentication": map[string]any{"anonymous": true}}, "authentication.anonymous must be a map"},
		{map[string]any{"tlsCipherSuites": "x"}, "tlsCipherSuites must be a list"},
		{map[string]any{"serverTLSBootstrap": "yes"}, "serverTLSBootstrap must be true or false"},
		{map[string]any{"featureGates": map[string]any{"RotateKubeletServerCertificate": "true"}}, "featureGates.RotateKubeletServerCertificate must be true or false"},
		{map[string]any{"maxPods": json.Number("20"), "clusterDomain": "x", "registryPullQPS": json.Number("5"), "address": nil}, ""},
	} {
		c, f := node(t, 34)
		c.Kubelet.Config = test.config
		if err := CheckKubelet(c, f.Host.Kubelet); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.config, err, test.want)
		}
	}
}

// kubelet ends with a stack trace over a feature gate that it does not have.
func TestUserGates(t *testing.T) {
	for _, test := range []struct {
		minor int
		gate  string
		on    bool
		want  string
	}{
		{32, "DisableCloudProviders", true, ""},
		{33, "DisableCloudProviders", true, "kubelet v1.33.0 has no such feature gate"},
		{25, "DynamicResourceAllocation", true, "has no such feature gate"},
		{34, "DynamicResourceAllocation", false, ""},
		{35, "DynamicResourceAllocation", false, "does not let it be turned off"},
		{35, "DynamicResourceAllocation", true, ""},
		{35, "SomethingOfTomorrow", true, ""},
	} {
		c, f := node(t, test.minor)
		c.Kubelet.Config = map[string]any{"featureGates": map[string]any{test.gate: test.on}}
		err := CheckKubelet(c, f.Host.Kubelet)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s=%t with 1.%d: %v, want %q", test.gate, test.on, test.minor, err, test.want)
		}
	}
}

// On a distribution that is not made for EKS kubelet would not start without.
func TestKernelDefaults(t *testing.T) {
	c, f := node(t, 34)
	f.Host.KernelDefaults = false
	p, err := Build(c, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := file(t, p, layout.SysctlConfig); !strings.Contains(text, "vm.overcommit_memory = 1\n") || !strings.Contains(text, "kernel.panic = 10\n") {
		t.Errorf("%s", text)
	}
	// Once they are set, the file that set them stays.
	f.Host.KernelDefaults, f.Host.OwnSysctls = true, true
	if again, err := Build(c, f, Options{}); err != nil || file(t, again, layout.SysctlConfig) != file(t, p, layout.SysctlConfig) {
		t.Errorf("the next run: %v", err)
	}
	c.Kubelet.Config = map[string]any{"protectKernelDefaults": false}
	f.Host.KernelDefaults, f.Host.OwnSysctls = false, false
	if p, err = Build(c, f, Options{}); err != nil || slices.ContainsFunc(p.Files, func(f File) bool { return f.Path == layout.SysctlConfig }) {
		t.Errorf("kubelet does not insist: %v", err)
	}
}

func BenchmarkBuild(b *testing.B) {
	c, f := node(b, 34, "--kubelet-extra-args", "--node-labels=a=b")
	p, err := Build(c, f, Options{})
	if err != nil {
		b.Fatal(err)
	}
	again := afterwards(f, p)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if _, err := Build(c, f, Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("second", func(b *testing.B) {
		for b.Loop() {
			if _, err := Build(c, again, Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
