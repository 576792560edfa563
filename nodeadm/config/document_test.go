package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/cel"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// header is what every document begins with: two lines.
const header = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"

// clusterYAML is a cluster that nothing has to be asked about.
func clusterYAML() string {
	return "spec:\n  cluster:\n    name: my-cluster\n    apiServerEndpoint: https://example.com\n    certificateAuthority: " +
		simulator.Default().Cluster.CertificateAuthority + "\n    cidr: 10.100.0.0/16\n"
}

// sameConfig compares what was wanted, wherever it was written.
var sameConfig = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Document" }, cmp.Ignore()),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b *cel.Program) bool { return (a == nil) == (b == nil) }),
}

func sourcesOf(texts ...string) []Source {
	var sources []Source
	for i, text := range texts {
		sources = append(sources, Source{Name: fmt.Sprintf("doc%d", i+1), Data: []byte(text)})
	}
	return sources
}

// merged reads documents, of which each text is the spec, that must be right.
func merged(t *testing.T, specs ...string) (Documents, Config) {
	t.Helper()
	for i := range specs {
		specs[i] = header + specs[i]
	}
	documents, c, err := Read(sourcesOf(specs...), ReadOptions{})
	if err != nil || len(documents.Warnings) > 0 {
		t.Fatal(err, documents.Warnings)
	}
	return documents, c
}

// message is a MIME message with parts of the given header and body.
func message(parts ...[2]string) string {
	text := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\n\n"
	for _, p := range parts {
		text += "--BOUNDARY\n" + p[0] + "\n\n" + p[1] + "\n"
	}
	return text + "--BOUNDARY--\n"
}

const ours = "Content-Type: application/node.eks.aws"

// findings are the mistakes, each as "line:column message".
func findings(err error) []string {
	var all []string
	fault.Each(err, func(e error) {
		text := e.Error()
		if p := (*doctree.Problem)(nil); errors.As(e, &p) {
			text = fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Message)
		}
		if fault.CodeOf(e) != fault.Usage {
			text += " (not a usage error)"
		}
		all = append(all, text)
	})
	return all
}

func TestMergeRules(t *testing.T) {
	for _, test := range []struct{ name, earlier, later, want string }{
		{"a later text wins", "{cluster: {name: a}}", "{cluster: {name: b}}", `{"cluster":{"name":"b"}}`},
		{"an empty text never clears", "{cluster: {name: a}}", "{cluster: {name: ''}}", `{"cluster":{"name":"a"}}`},
		{"null never clears", "{cluster: {name: a}}", "{cluster: {name: }}", `{"cluster":{"name":"a"}}`},
		{"null never clears a group", "{cluster: {name: a}}", "{cluster: }", `{"cluster":{"name":"a"}}`},
		{"enableOutpost false overrides true", "{cluster: {enableOutpost: true}}", "{cluster: {enableOutpost: false}}", `{"cluster":{"enableOutpost":false}}`},
		{"enableOutpost true overrides false", "{cluster: {enableOutpost: false}}", "{cluster: {enableOutpost: true}}", `{"cluster":{"enableOutpost":true}}`},
		{"feature gates by name, false overrides", "{featureGates: {InstanceIdNodeName: true, FastImagePull: true}}", "{featureGates: {FastImagePull: false}}", `{"featureGates":{"FastImagePull":false,"InstanceIdNodeName":true}}`},
		{"no feature gates remove nothing", "{featureGates: {FastImagePull: true}}", "{featureGates: {}}", `{"featureGates":{"FastImagePull":true}}`},
		{"environment by name, empty overrides", "{instance: {environment: {default: {A: a, B: b}, kubelet: {C: c}}}}", "{instance: {environment: {default: {B: '', D: d}}}}", `{"instance":{"environment":{"default":{"A":"a","B":"","D":"d"},"kubelet":{"C":"c"}}}}`},
		{"no environment removes nothing", "{instance: {environment: {default: {A: a}}}}", "{instance: {environment: {default: {}}}}", `{"instance":{"environment":{"default":{"A":"a"}}}}`},
		{"lists are replaced as a whole", "{instance: {network: {nameservers: [10.0.0.1, 10.0.0.2], domains: [a.b]}}}", "{instance: {network: {nameservers: [10.0.0.3]}}}", `{"instance":{"network":{"domains":["a.b"],"nameservers":["10.0.0.3"]}}}`},
		{"an empty list does not clear", "{instance: {localStorage: {strategy: RAID0, disabledMounts: [PodLogs]}, network: {domains: [a.b]}}}", "{instance: {localStorage: {disabledMounts: []}, network: {domains: []}}}", `{"instance":{"localStorage":{"disabledMounts":["PodLogs"],"strategy":"RAID0"},"network":{"domains":["a.b"]}}}`},
		{"flags are appended", "{kubelet: {flags: [--v=1, --node-labels=a=b]}}", "{kubelet: {flags: [--v=2]}}", `{"kubelet":{"flags":["--v=1","--node-labels=a=b","--v=2"]}}`},
		{"no flags remove nothing", "{kubelet: {flags: [--v=1]}}", "{kubelet: {flags: []}}", `{"kubelet":{"flags":["--v=1"]}}`},
		{"kubelet.config is deep", "{kubelet: {config: {a: {b: 1, c: 2}, d: x}}}", "{kubelet: {config: {a: {c: 3, e: 4}}}}", `{"kubelet":{"config":{"a":{"b":1,"c":3,"e":4},"d":"x"}}}`},
		{"its lists are replaced", "{kubelet: {config: {a: [1, 2], m: [{x: 1}]}}}", "{kubelet: {config: {a: [3], m: [{y: 2}]}}}", `{"kubelet":{"config":{"a":[3],"m":[{"y":2}]}}}`},
		{"its empty values do override", "{kubelet: {config: {a: 1, b: true, c: x, d: [1], e: {f: 1}}}}", "{kubelet: {config: {a: 0, b: false, c: '', d: [], e: null}}}", `{"kubelet":{"config":{"a":0,"b":false,"c":"","d":[],"e":null}}}`},
		{"its maps and values replace each other", "{kubelet: {config: {a: {b: 1}, c: x}}}", "{kubelet: {config: {a: x, c: {d: 1}}}}", `{"kubelet":{"config":{"a":"x","c":{"d":1}}}}`},
		{"its empty map removes nothing", "{kubelet: {config: {a: {b: 1}}}}", "{kubelet: {config: {a: {}}}}", `{"kubelet":{"config":{"a":{"b":1}}}}`},
		{"numbers stay exact", "{kubelet: {config: {a: 1}}}", "{kubelet: {config: {a: 9007199254740993, b: 1.50}}}", `{"kubelet":{"config":{"a":9007199254740993,"b":1.50}}}`},
		{"baseRuntimeSpec too", "{containerd: {baseRuntimeSpec: {process: {rlimits: [{type: A}], x: true}}}}", "{containerd: {baseRuntimeSpec: {process: {rlimits: [], x: false}}}}", `{"containerd":{"baseRuntimeSpec":{"process":{"rlimits":[],"x":false}}}}`},
		{"TOML alone is kept as it is", "{containerd: {config: \"# mine\\n[a]\\n  b   = 1\\n\"}}", "{containerd: {config: ''}}", `{"containerd":{"config":"# mine\n[a]\n  b   = 1\n"}}`},
		{"TOML over none", "{containerd: {config: ''}}", "{containerd: {config: \"b   = 1 # x\\n\"}}", `{"containerd":{"config":"b   = 1 # x\n"}}`},
		{"TOML table by table", "{containerd: {config: \"x = true\\n[a]\\nb = 1\\nc = [1, 2]\\n\"}}", "{containerd: {config: \"x = false\\n[a]\\nc = [3]\\nd = 'e'\\n\"}}", `{"containerd":{"config":"x = false\n\n[a]\nb = 1\nc = [3]\nd = \"e\"\n"}}`},
		{"extensions follow the same rules", "{proxy: {http: 'http://a:1', noProxy: [x]}, labels: {lifecycle: true}}", "{proxy: {http: '', noProxy: []}, labels: {lifecycle: false}}", `{"labels":{"lifecycle":false},"proxy":{"http":"http://a:1","noProxy":["x"]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			documents, _ := merged(t, "spec: "+test.earlier+"\n", "spec: "+test.later+"\n")
			if diff := cmp.Diff(test.want, documents.Tree.Get("spec").Text()); diff != "" {
				t.Error(diff)
			}
			// In one part it is the same as in two sources.
			one, _ := merged(t, "spec: "+test.earlier+"\n---\n"+header+"spec: "+test.later+"\n")
			if diff := cmp.Diff(test.want, one.Tree.Get("spec").Text()); diff != "" {
				t.Errorf("as one part: %s", diff)
			}
		})
	}
	documents, _ := merged(t, "metadata: {name: a, labels: {x: '1', y: '2'}}\n", "metadata: {name: b, labels: {y: '3'}}\n")
	if got := documents.Tree.Get("metadata").Text(); got != `{"labels":{"x":"1","y":"3"},"name":"b"}` {
		t.Errorf("metadata is %s", got)
	}
}

// TestMergeOfCluster: a certificate authority is replaced, not put together.
func TestMergeOfCluster(t *testing.T) {
	other := base64.StdEncoding.EncodeToString([]byte("x"))
	_, c := merged(t, "spec: {cluster: {name: c, certificateAuthority: "+other+"}}\n", clusterYAML())
	want, _ := base64.StdEncoding.DecodeString(simulator.Default().Cluster.CertificateAuthority)
	if string(c.Cluster.CertificateAuthority) != string(want) {
		t.Errorf("certificate authority %q", c.Cluster.CertificateAuthority)
	}
}

func TestMergeTOML(t *testing.T) {
	got, err := MergeTOML("z = 1\nversion = 3\n[[a]]\nb = 1\n[c.'d.e']\nf = 2024-05-06T07:08:09Z\n", "[[a]]\nb = 2\n[[a]]\nb = 3\n[c.'d.e']\ng = 9007199254740993\n")
	want := "version = 3\nz = 1\n\n[[a]]\nb = 2\n[[a]]\nb = 3\n\n[c]\n[c.\"d.e\"]\nf = 2024-05-06T07:08:09Z\ng = 9007199254740993\n"
	squeeze := func(s string) string { return strings.ReplaceAll(s, "\n\n", "\n") }
	if diff := cmp.Diff(squeeze(want), squeeze(got)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, pair := range [][2]string{{"a = ", "b = 1"}, {"a = 1", "b = "}} {
		if _, err := MergeTOML(pair[0], pair[1]); err == nil {
			t.Errorf("%q was merged", pair)
		}
	}
}

// randomDocument makes documents in which maps, lists, scalars and null meet
// each other at the same places, by the real paths. What Load never lets
// through, such as flags that are no list, is left out.
func randomDocument(r *rand.Rand, source, path string) *doctree.Node {
	at := doctree.Origin{Source: source, Line: 1 + r.IntN(99), Column: 1}
	fields := map[string]string{
		"": "apiVersion metadata spec", "spec": "cluster kubelet containerd instance featureGates",
		"spec.cluster": "name enableOutpost dnsAddresses", "spec.kubelet": "config flags maxPods", "spec.kubelet.maxPods": "mode value",
		"spec.containerd": "config baseRuntimeSpec", "spec.instance": "environment network localStorage", "spec.instance.network": "nameservers domains",
		"spec.instance.environment": "default kubelet", "spec.instance.localStorage": "strategy disabledMounts",
	}
	pick := func(choices ...any) *doctree.Node { return doctree.FromValue(choices[r.IntN(len(choices))], at) }
	text, list := source+"!", []any{source, "x"}
	names, known := fields[path]
	inFree := false
	for _, free := range freeForm {
		inFree = inFree || path == free || strings.HasPrefix(path, free+".")
	}
	switch {
	case path == "spec.kubelet.flags":
		return pick([]any{}, list, []any{"--" + source})
	case path == "spec.containerd.config":
		return pick("", nil, "# "+source+"\na = 1\n", "[t]\n'"+source+"' = 1\nx = [1, '"+source+"']\n", "a = 0\n[t]\nx = []\n[t.u]\n"+source+" = 1.5\n", "[t.u]\na = false\n")
	case !known && inFree && (strings.Count(path, ".") < 3 || r.IntN(2) == 0 && strings.Count(path, ".") < 6):
		names, known = "a b c", true
		if path != "spec.kubelet.config" && path != "spec.featureGates" && path != "spec.containerd.baseRuntimeSpec" && r.IntN(5) == 0 {
			return pick(nil, "", text, list)
		}
	case !known && inFree:
		return pick(nil, "", text, list, []any{}, true, false, map[string]any{}, map[string]any{"a": source})
	case !known && r.IntN(2) == 0:
		return pick(nil, "", []any{})
	case !known:
		return pick(text, list, true, ReadOptions{})
	}
	tree := doctree.NewMap(at)
	for name := range strings.FieldsSeq(names) {
		if r.IntN(4) > 0 {
			sub := name
			if path != "" {
				sub = path + "." + name
			}
			tree.Map[name] = randomDocument(r, source, sub)
		}
	}
	return tree
}

// TestMergingIsAssociative: which of three documents are put together first
// does not matter, nor does the order that maps happen to have.
func TestMergingIsAssociative(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	must := func(earlier, later *doctree.Node) *doctree.Node {
		tree, err := merger.Merge(earlier, later)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	origins := func(tree *doctree.Node) map[string]string {
		all := map[string]string{}
		tree.Leaves(func(path string, leaf *doctree.Node) { all[path] = leaf.Origin.String() })
		return all
	}
	for range 3000 {
		a, b, c := randomDocument(r, "one", ""), randomDocument(r, "two", ""), randomDocument(r, "three", "")
		before := []any{a.Value(), b.Value(), c.Value(), origins(a), origins(b), origins(c)}
		left, right := must(must(a, b), c), must(a, must(b, c))
		if !reflect.DeepEqual(left.Value(), right.Value()) {
			t.Fatalf("a %s\nb %s\nc %s\n%s", a.Text(), b.Text(), c.Text(), cmp.Diff(left.Value(), right.Value()))
		}
		if diff := cmp.Diff(origins(left), origins(right)); diff != "" {
			t.Fatal(diff)
		}
		first, err := left.YAML()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if again, _ := must(must(a, b), c).YAML(); string(again) != string(first) {
				t.Fatalf("merged once more it is\n%s\nbefore\n%s", again, first)
			}
		}
		if after := []any{a.Value(), b.Value(), c.Value(), origins(a), origins(b), origins(c)}; !reflect.DeepEqual(before, after) {
			t.Fatal("merging changed what was merged")
		}
	}
}

func TestExamples(t *testing.T) {
	for name, spec := range map[string]string{
		"minimal":    "",
		"kubelet":    "  kubelet:\n    config: {shutdownGracePeriod: 30s, featureGates: {DisableKubeletCloudCredentialProviders: true}}\n    flags: [\"--v=5\", \"--node-labels=foo=bar,foo2=baz\", \"--register-with-taints=foo=bar:NoSchedule\"]\n",
		"containerd": "  containerd:\n    config: |\n      [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n      discard_unpacked_layers = false\n    baseRuntimeSpec: {process: {rlimits: [{type: RLIMIT_NOFILE, soft: 1024, hard: 1024}]}}\n",
		"instance": "  kubelet: {maxPodsExpression: \"((default_enis - 1) * (ips_per_eni - 1)) + 2\"}\n  featureGates: {InstanceIdNodeName: true, FastImagePull: false}\n  instance:\n" +
			"    localStorage: {strategy: RAID0, mountPath: /local, disabledMounts: [PodLogs]}\n    environment: {default: {HTTPS_PROXY: \"http://proxy:3128\", NO_PROXY: \"10.0.0.0/8\"}, kubelet: {FOO: bar}}\n    network: {nameservers: [10.0.0.2], domains: [corp.example]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			// What is not about the cluster stands in a second part, as in the field.
			whole, c := merged(t, clusterYAML()+spec)
			user := message([2]string{ours, header + clusterYAML()}, [2]string{ours, header + "spec:\n" + spec})
			documents, fromMIME, err := Read([]Source{{Name: "user data", Data: []byte(user)}}, ReadOptions{})
			if err != nil || len(documents.Warnings) > 0 || len(documents.Parts) != 2 {
				t.Fatal(err, documents.Warnings, documents.Parts)
			}
			if diff := cmp.Diff(c, fromMIME, sameConfig); diff != "" {
				t.Errorf("in two parts it is another: %s", diff)
			}
			if c.Cluster.Name != "my-cluster" || !c.Cluster.Described() || c.Cluster.ServiceCIDR.String() != "10.100.0.0/16" || c.Cluster.IPFamily != "ipv4" {
				t.Errorf("%+v", c.Cluster)
			}
			text := whole.Tree.Value()
			encoded := base64.StdEncoding.EncodeToString([]byte(header + clusterYAML() + spec))
			documents, _, err = Read([]Source{{Name: "user data", Data: []byte(encoded)}}, ReadOptions{})
			if diff := cmp.Diff(text, documents.Tree.Value()); diff != "" || err != nil {
				t.Errorf("in base64: %v %s", err, diff)
			}
		})
	}
}

func TestParts(t *testing.T) {
	user := message(
		[2]string{ours, header + clusterYAML()},
		[2]string{"Content-Type: text/x-shellscript", "#!/bin/bash\necho 'kind: NodeConfig, apiVersion: node.eks.aws/v1alpha1'"},
		[2]string{"Content-Type: text/x-shellscript; charset=us-ascii", "#!/bin/bash\n/etc/eks/bootstrap.sh my-cluster"},
		[2]string{"Content-Type: text/cloud-config", "#cloud-config\npackages: [vim]"},
		[2]string{"Content-Type: APPLICATION/node.eks.aws", header + "spec: {cluster: {name: second}, kubelet: {flags: [--v=2]}}"},
		[2]string{ours, "# nothing yet"},
		[2]string{"Content-Type: text/html; charset", "<p>"},
		[2]string{"X-Nothing: here", header + "spec: {kubelet: {flags: [--v=3]}}"},
	)
	documents, c, err := Read([]Source{
		{Name: "user data", Data: []byte(user)},
		{Name: "/etc/eks/nodeadm.d/10.yaml", Data: []byte(header + "spec: {cluster: {name: third}}\n---\n" + header + "spec: {cluster: {name: fourth}, kubelet: {flags: [--v=4]}}\n")},
		{Name: "/etc/eks/nodeadm.d/20.yaml", Data: []byte(" \n")},
	}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range documents.Parts {
		got = append(got, fmt.Sprintf("%s %s %s %t %s", p.Source, p.Index, p.ContentType, p.Used, p.Why))
	}
	want := []string{
		"user data 1 application/node.eks.aws true NodeConfig",
		"user data 2 text/x-shellscript false a shell script, for cloud-init",
		"user data 3 text/x-shellscript false a shell script that calls bootstrap.sh; it is run by cloud-init, not by nodeadm init",
		"user data 4 text/cloud-config false for cloud-init",
		"user data 5 application/node.eks.aws true NodeConfig",
		"user data 6 application/node.eks.aws false it holds no document",
	}
	if diff := cmp.Diff(want, got[:6]); diff != "" {
		t.Error(diff)
	}
	tail := documents.Parts[6:]
	if len(tail) != 4 || tail[0].Used || tail[0].Why == "" || !tail[1].Used || !tail[2].Used || tail[3].Used || tail[3].Why != "it is empty" {
		t.Errorf("%+v", tail)
	}
	// The part that cannot be read is said, and does no harm.
	if len(documents.Warnings) != 1 || !strings.Contains(documents.Warnings[0], "user data part 7 cannot be read and is left out") {
		t.Errorf("warnings %q", documents.Warnings)
	}
	if diff := cmp.Diff([]string{"--v=2", "--v=3", "--v=4"}, c.Kubelet.Flags); diff != "" || c.Cluster.Name != "fourth" {
		t.Errorf("name %s, flags %s", c.Cluster.Name, diff)
	}
	for path, want := range map[string]string{"spec.cluster.name": "/etc/eks/nodeadm.d/10.yaml:", "spec.cluster.cidr": "user data part 1:", "spec.kubelet.flags": "/etc/eks/nodeadm.d/10.yaml:"} {
		if got := c.Origin(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s is from %s", path, got)
		}
	}
	if (Config{}).Origin("spec") != "nobody" {
		t.Error("an empty configuration comes from somewhere")
	}
}

// TestNothing: what holds no document is no mistake, and says what it is.
func TestNothing(t *testing.T) {
	for name, test := range map[string]struct{ data, why string }{
		"empty":            {"", "it is empty"},
		"blank":            {" \n\t\n", "it is empty"},
		"comments":         {"# later\n", "it holds no document"},
		"document markers": {"---\n---\n", "it holds no document"},
		"script":           {"#!/bin/sh\necho\n", "a shell script, for cloud-init"},
		"bootstrap.sh":     {"#!/bin/sh\n/etc/eks/bootstrap.sh c --use-max-pods false\n", "a shell script that calls bootstrap.sh; it is run by cloud-init, not by nodeadm init"},
		"broken script":    {"#!/bin/sh\nif then\n", "a shell script, for cloud-init"},
		"cloud-config":     {"#cloud-config\npackages: [vim]\n", "for cloud-init"},
	} {
		documents, c, err := Read([]Source{{Name: "user data", Data: []byte(test.data)}}, ReadOptions{})
		if err != nil || documents.Tree != nil || len(documents.Parts) != 1 || documents.Parts[0].Used || documents.Parts[0].Why != test.why {
			t.Errorf("%s: %v %+v", name, err, documents)
		}
		if diff := cmp.Diff(Config{}, c, sameConfig); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if documents, err := Load(nil, ReadOptions{}); err != nil || documents.Tree != nil || documents.Parts != nil {
		t.Error(documents, err)
	}
}

// TestWrapper: what only holds user data is named, once, and is not told to be
// another document.
func TestWrapper(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec: {userData: x}\n": "a resource of Karpenter's",
		"apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nx: y\n":                 "a configuration of eksctl's",
		"AWSTemplateFormatVersion: '2010-09-09'\nResources: {}\n":                     "a CloudFormation template",
	} {
		documents, err := Load(sourcesOf(text), ReadOptions{Scripts: true})
		if all := findings(err); len(all) != 1 || !strings.HasPrefix(all[0], "1:1 this is "+want) || documents.Parts[0].Used || documents.Parts[0].Why != want {
			t.Errorf("%q: %q, %+v", text, all, documents.Parts)
		}
	}
}

// TestIdle: what does nothing is warned of at its place.
func TestIdle(t *testing.T) {
	for _, test := range []struct {
		storage string
		want    []string
	}{
		{"{strategy: RAID0, mountPath: /data, disabledMounts: [SOCI]}", nil},
		{"{strategy: Mount, mountPath: /data}", nil},
		{"{}", nil},
		{"{mountPath: /data, disabledMounts: [SOCI]}", []string{"3:45: spec.instance.localStorage.mountPath has no effect: without strategy", "3:68: spec.instance.localStorage.disabledMounts has no effect: without strategy"}},
		{"{strategy: Mount, disabledMounts: [SOCI]}", []string{"3:67: spec.instance.localStorage.disabledMounts has no effect: with strategy Mount"}},
	} {
		documents, _, err := Read(sourcesOf(header+"spec: {instance: {localStorage: "+test.storage+"}}\n"), ReadOptions{})
		if err != nil || len(documents.Warnings) != len(test.want) {
			t.Errorf("%s: %q, %v", test.storage, documents.Warnings, err)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(documents.Warnings[i], want) {
				t.Errorf("%s: %q, want %q", test.storage, documents.Warnings[i], want)
			}
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
		remedy     string // of the first
	}{
		{"no apiVersion", "kind: NodeConfig\n", []string{"1:1 apiVersion is missing"}, "write apiVersion: node.eks.aws/v1alpha1"},
		{"no kind", "apiVersion: node.eks.aws/v1alpha1\n", []string{"1:1 kind is missing"}, "write kind: NodeConfig"},
		{"neither", "spec: {}\n", []string{"1:1 apiVersion is missing", "1:1 kind is missing"}, "write apiVersion: node.eks.aws/v1alpha1"},
		{"wrong apiVersion", "apiVersion: node.eks.aws/v1alpha\nkind: NodeConfig\n", []string{`1:13 apiVersion is "node.eks.aws/v1alpha", which is not known`}, "write apiVersion: node.eks.aws/v1alpha1"},
		{"wrong kind", "apiVersion: node.eks.aws/v1alpha1\nkind: Nodeconfig\n", []string{`2:7 kind is "Nodeconfig", which is not known`}, "write kind: NodeConfig"},
		{"kind of another type", "apiVersion: node.eks.aws/v1alpha1\nkind: [x]\n", []string{`2:7 kind is "[\"x\"]", which is not known`}, "write kind: NodeConfig"},
		{"the second document", header + "---\nspec: {}\n", []string{"4:1 apiVersion is missing", "4:1 kind is missing"}, ""},
		{"a list", "- " + strings.ReplaceAll(header, "\n", "\n  "), []string{"1:1 this is not a NodeConfig: it must begin with apiVersion and kind"}, "write apiVersion: node.eks.aws/v1alpha1 and kind: NodeConfig"},
		{"a word", "hello\n", []string{"1:1 this is not a NodeConfig: it must begin with apiVersion and kind"}, ""},
		{"null", "null\n", []string{"1:1 this is not a NodeConfig: it must begin with apiVersion and kind"}, ""},
		{"a key twice", header + "spec:\n  cluster: {}\n  cluster: {}\n", []string{`5:3 "cluster" is there twice; the first is at line 4`}, "remove one of the two"},
		{"unknown field", header + "spec:\n  kubelet:\n    flag: [--v=1]\n", []string{`5:5 unknown field "flag" in spec.kubelet`}, "did you mean flags?"},
		{"upper case", header + "spec:\n  Cluster: {}\n", []string{`4:3 unknown field "Cluster" in spec: upper and lower case count`}, "write cluster"},
		{"truth value in environment", header + "spec: {instance: {environment: {default: {A: yes}}}}\n", []string{"3:46 spec.instance.environment.default.A must be text, and is the truth value true"}, "put quotes around it"},
		{"strategy", header + "spec: {instance: {localStorage: {strategy: raid10}}}\n", []string{`3:44 spec.instance.localStorage.strategy is "raid10", which is not known`}, "did you mean RAID10?"},
		{"disabledMounts", header + "spec: {instance: {localStorage: {disabledMounts: [PodLog]}}}\n", []string{`3:51 spec.instance.localStorage.disabledMounts[0] is "PodLog", which is not known`}, "did you mean PodLogs?"},
		{"tab", header + "spec:\n\tcluster: {}\n", []string{"4:1 not valid YAML: found character that cannot start any token"}, "check the indentation and the quotes around that line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(sourcesOf(test.text), ReadOptions{})
			if diff := cmp.Diff(test.want, findings(err)); diff != "" {
				t.Error(diff)
			}
			first := true
			fault.Each(err, func(e error) {
				if got := fault.Remedy(e); first && test.remedy != "" && got != test.remedy {
					t.Errorf("remedy %q, want %q", got, test.remedy)
				}
				first = false
			})
			if err != nil && !strings.HasPrefix(err.Error(), "doc1:") {
				t.Errorf("%v does not begin with its place", err)
			}
		})
	}
	// TOML that cannot be merged is said where the later one stands.
	_, err := Load(sourcesOf(header+"spec: {containerd: {config: 'a = 1'}}\n", header+"spec: {containerd: {config: 'a = '}}\n"), ReadOptions{})
	if err == nil || !strings.Contains(err.Error(), "doc2:3:") || fault.CodeOf(err) != fault.Usage {
		t.Error(err)
	}
	// The structure of a message has to be right.
	_, err = Load(sourcesOf(strings.Replace(message([2]string{ours, header}), "--BOUNDARY--", "", 1)), ReadOptions{})
	if err == nil || fault.CodeOf(err) != fault.Usage {
		t.Errorf("a message without its end: %v", err)
	}
}

func TestNodeConfigUnderAnotherType(t *testing.T) {
	for _, contentType := range []string{"text/plain", "text/x-yaml", "application/yaml", "text/plain; charset=utf-8"} {
		_, err := Load(sourcesOf(message([2]string{"Content-Type: " + contentType, header + clusterYAML()})), ReadOptions{})
		name, _, _ := strings.Cut(contentType, ";")
		if diff := cmp.Diff([]string{"doc1 holds a NodeConfig, but its content type is " + name + ": it would not be applied"}, findings(err)); diff != "" {
			t.Error(diff)
		}
		fault.Each(err, func(e error) {
			if got := fault.Remedy(e); got != "write Content-Type: application/node.eks.aws above it" {
				t.Errorf("remedy %q", got)
			}
		})
	}
	// Ours with a mistake in its header is an error, not a warning.
	documents, err := Load(sourcesOf(message([2]string{ours + "\nContent-Transfer-Encoding: base64", "!!!"})), ReadOptions{})
	if err == nil || len(documents.Warnings) > 0 || fault.CodeOf(err) != fault.Usage {
		t.Error(documents.Warnings, err)
	}
}

func TestLenient(t *testing.T) {
	text := header + "spec:\n  future: {a: 1}\n  kubelet:\n    flags: [--v=1]\n    nextYear: x\n"
	documents, c, err := Read(sourcesOf(text), ReadOptions{Lenient: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`doc1:4:3: unknown field "future" in spec; it is left out`, `doc1:7:5: unknown field "nextYear" in spec.kubelet; it is left out`}
	if diff := cmp.Diff(want, documents.Warnings); diff != "" {
		t.Error(diff)
	}
	if got := documents.Tree.Get("spec").Text(); got != `{"kubelet":{"flags":["--v=1"]}}` || len(c.Kubelet.Flags) != 1 {
		t.Error(got)
	}
	// It is about unknown fields only.
	_, _, err = Read(sourcesOf(header+"spec:\n  future: 1\n  cluster: {name: 5, cidr: x}\n"), ReadOptions{Lenient: true})
	if diff := cmp.Diff([]string{"5:19 spec.cluster.name must be text, and is the number 5", `5:28 spec.cluster.cidr: "x" is not a CIDR`}, findings(err)); diff != "" {
		t.Error(diff)
	}
}

// TestFiveMistakes: two are about the shape of a document and three about its
// values, mixed; each is reported once, in the order of their lines.
func TestFiveMistakes(t *testing.T) {
	spec := `spec:
  cluster:
    name: -x
    cidr: 10.100.0.0
  kubelet:
    flag: [--v=1]
    maxPods: {mode: fixd}
  instance:
    localStorage: {mountPath: data}
`
	want := []string{
		`5:11 spec.cluster.name: "-x" is not a cluster name`,
		`6:11 spec.cluster.cidr: "10.100.0.0" is not a CIDR`,
		`8:5 unknown field "flag" in spec.kubelet`,
		`9:21 spec.kubelet.maxPods.mode is "fixd", which is not known`,
		`11:31 spec.instance.localStorage.mountPath: "data" is not such a path`,
	}
	_, _, err := Read(sourcesOf(header+spec), ReadOptions{})
	if diff := cmp.Diff(want, findings(err)); diff != "" {
		t.Error(diff)
	}
	// In user data the lines are those of the user data.
	script := [2]string{"Content-Type: text/x-shellscript", "#!/bin/sh\necho\n"}
	text := message(script, [2]string{ours, header + spec})
	above := strings.Count(text[:strings.Index(text, header)], "\n")
	_, _, err = Read(sourcesOf(text), ReadOptions{})
	for i := range want {
		line, rest, _ := strings.Cut(want[i], ":")
		number := 0
		fmt.Sscan(line, &number)
		want[i] = fmt.Sprintf("%d:%s", number+above, rest)
	}
	if diff := cmp.Diff(want, findings(err)); diff != "" || above < 10 {
		t.Error(above, diff)
	}
	if !strings.HasPrefix(err.Error(), "doc1 part 2:") {
		t.Error(err)
	}
	// CRLF does not move them.
	_, _, err = Read(sourcesOf(strings.ReplaceAll(text, "\n", "\r\n")), ReadOptions{})
	if diff := cmp.Diff(want, findings(err)); diff != "" {
		t.Error(diff)
	}
}
