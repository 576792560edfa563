package config

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

func TestSplitWords(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"  --a=b   --c\t--d\n", []string{"--a=b", "--c", "--d"}},
		{`--a="b c" --d='e f'`, []string{"--a=b c", "--d=e f"}},
		{`--a='b"c' --d="e'f"`, []string{`--a=b"c`, `--d=e'f`}},
		{`--a=b\ c`, []string{"--a=b c"}},
		{`"a\"b\\c\d" 'a\b'`, []string{`a"b\c\d`, `a\b`}},
		{`--empty="" ''`, []string{"--empty=", ""}},
		{"--a=b \\\n  --c=d", []string{"--a=b", "--c=d"}},
		{`--a=$HOME %n`, []string{"--a=$HOME", "%n"}},
	} {
		got, err := SplitWords(test.text)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", test.text, err, diff)
		}
	}
	for _, text := range []string{`"open`, `'open`, `back\`} {
		if words, err := SplitWords(text); err == nil {
			t.Errorf("%q was split into %q", text, words)
		}
	}
}

// FuzzSplitWords: words that are quoted by the simplest rule there is come
// back as they were.
func FuzzSplitWords(f *testing.F) {
	f.Add("a", "b c")
	f.Add(`'"\`, "\n\t ")
	f.Fuzz(func(t *testing.T, a, b string) {
		quote := func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'` }
		got, err := SplitWords(quote(a) + " " + quote(b))
		if err != nil || len(got) != 2 || got[0] != a || got[1] != b {
			t.Errorf("%q, %q came back as %q: %v", a, b, got, err)
		}
		_, _ = SplitWords(a) // anything may be refused, nothing may panic
	})
}

func TestLabels(t *testing.T) {
	for label, ok := range map[string]bool{
		"team=blue":                              true,
		"eks.amazonaws.com/nodegroup=ng":         true,
		"node.kubernetes.io/lifecycle=spot":      true,
		"a":                                      true,
		"a=":                                     true,
		"node-role.kubernetes.io/worker=":        false,
		"kubernetes.io/cluster=x":                false,
		"k8s.io/x=y":                             false,
		"=x":                                     false,
		"a=b c":                                  false,
		"a=-b":                                   false,
		"Upper.Case/x=y":                         false,
		"a/b/c=d":                                false,
		"a=" + strings.Repeat("x", 63):           true,
		"a=" + strings.Repeat("x", 64):           false,
		strings.Repeat("x", 64) + "=y":           false,
		strings.Repeat("x.", 126) + "y/z=1":      true,
		strings.Repeat("x.", 127) + "y/z=1":      false,
		"topology.kubernetes.io/zone=eu-west-1a": true,
	} {
		if err := CheckLabel(label); (err == nil) != ok {
			t.Errorf("%q: %v", label, err)
		}
	}
}

func TestKubeletFlags(t *testing.T) {
	k := Kubelet{Flags: []string{"--node-labels", "a=b", "--v=4", "--max-pods=1", "--max-pods", "2", "--fail-swap-on"}}
	if v, given := k.Flag("max-pods"); v != "2" || !given {
		t.Errorf("--max-pods is %q, %v; kubelet takes the last", v, given)
	}
	if diff := cmp.Diff([]string{"node-labels", "v", "max-pods", "max-pods", "fail-swap-on"}, k.FlagNames()); diff != "" {
		t.Error(diff)
	}
	if _, given := k.Flag("a=b"); given {
		t.Error("a value was taken for a flag")
	}
	k = Kubelet{Flags: []string{"--fail_swap_on", "--oom_score_adj", "-999", "--feature-gates=A=true,B=false", "--feature_gates", "B=true, C=0", "-v4", "--"}}
	if v, _ := k.Flag("v"); v != "4" || len(k.FlagNames()) != 5 {
		t.Errorf("-v%s among %q", v, k.FlagNames())
	}
	if v, given := k.Flag("oom-score-adj"); v != "-999" || !given {
		t.Errorf("--oom-score-adj is %q, %v; kubelet takes underscores and negative numbers", v, given)
	}
	if diff := cmp.Diff(map[string]bool{"A": true, "B": true, "C": false}, k.FeatureGates()); diff != "" {
		t.Error(diff)
	}
}

func TestBootstrapAccepts(t *testing.T) {
	cluster := simulator.Default().Cluster
	c, err := ParseBootstrap([]string{
		"--use-max-pods", "false", "my-cluster", "--kubelet-extra-args", "--node-labels=a=b --max-pods=8",
		"--apiserver-endpoint", cluster.Endpoint, "--b64-cluster-ca", cluster.CertificateAuthority,
		"--dns-cluster-ip=10.0.0.10,10.0.0.11", "--ip-family", "IPv4", "--enable-local-outpost", "False", "--aws-api-retry-attempts", "7", "--cluster-id", "",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Cluster.Name != "my-cluster" || !c.Cluster.Described() || len(c.Cluster.DNSAddresses) != 2 || c.Cluster.IPFamily != "ipv4" ||
		c.Kubelet.MaxPods.Mode != "none" || len(c.Kubelet.Flags) != 2 || !c.MountBPFFS || *c.Cluster.Outpost || c.Cluster.DescribeRetries != 7 {
		t.Errorf("%+v", c)
	}
	if empty, err := ParseBootstrap([]string{"c", "--apiserver-endpoint", "", "--b64-cluster-ca", "", "--kubelet-extra-args", ""}); err != nil || empty.Cluster.Described() {
		t.Errorf("templates leave values empty, which means not given: %v", err)
	}
}

func TestBootstrapRefuses(t *testing.T) {
	cluster := simulator.Default().Cluster
	twice := base64.StdEncoding.EncodeToString([]byte(cluster.CertificateAuthority))
	pem, _ := base64.StdEncoding.DecodeString(cluster.CertificateAuthority)
	for _, test := range []struct {
		name string
		args []string
		want string // in the error
		fix  string // in the remedy
	}{
		{"no name", nil, "no cluster name", "my-cluster"},
		{"two names", []string{"a", "b"}, "2 words", "quotes"},
		{"bad name", []string{"-a b"}, "unknown flag", ""},
		{"name with a slash", []string{"a/b"}, `"a/b" is not a cluster name`, "100"},
		{"unknown flag", []string{"c", "--kubelet-extra-arg", "x"}, "unknown flag --kubelet-extra-arg", "did you mean --kubelet-extra-args?"},
		{"missing value", []string{"c", "--apiserver-endpoint"}, "value is missing", "--apiserver-endpoint VALUE"},
		{"swallowed flag", []string{"c", "--apiserver-endpoint", "--b64-cluster-ca", "x"}, "--apiserver-endpoint: it has no value", "shell variable"},
		{"endpoint alone", []string{"c", "--apiserver-endpoint", cluster.Endpoint}, "without the certificate", "--b64-cluster-ca"},
		{"CA alone", []string{"c", "--b64-cluster-ca", cluster.CertificateAuthority}, "without the endpoint", "--apiserver-endpoint"},
		{"endpoint without scheme", []string{"c", "--apiserver-endpoint", "abc.eks.amazonaws.com", "--b64-cluster-ca", cluster.CertificateAuthority}, "https://", "https://HOST"},
		{"endpoint with a path", []string{"c", "--apiserver-endpoint", "https://a/b", "--b64-cluster-ca", cluster.CertificateAuthority}, "more than", ""},
		{"CA as PEM", []string{"c", "--apiserver-endpoint", cluster.Endpoint, "--b64-cluster-ca", string(pem)}, "PEM itself", ""},
		{"CA encoded twice", []string{"c", "--apiserver-endpoint", cluster.Endpoint, "--b64-cluster-ca", twice}, "twice", ""},
		{"CA without certificate", []string{"c", "--apiserver-endpoint", cluster.Endpoint, "--b64-cluster-ca", "aGVsbG8="}, "no PEM certificate", ""},
		{"CIDR", []string{"c", "--service-ipv4-cidr", "10.100.0.0"}, `"10.100.0.0" is not a CIDR`, "10.100.0.0/16"},
		{"CIDR of the other family", []string{"c", "--service-ipv4-cidr", "fd00::/108"}, "not a CIDR of that family", ""},
		{"CIDR with host bits", []string{"c", "--service-ipv4-cidr", "10.100.0.1/16"}, "beyond its prefix", "10.100.0.0/16"},
		{"families that contradict", []string{"c", "--ip-family", "ipv4", "--service-ipv6-cidr", "fd00::/108"}, "contradicts", ""},
		{"number", []string{"c", "--aws-api-retry-attempts", "-1"}, "not a number of attempts", ""},
		{"boolean", []string{"c", "--use-max-pods", "no"}, "neither true nor false", "--use-max-pods true"},
		{"label", []string{"c", "--kubelet-extra-args", "--node-labels=node-role.kubernetes.io/x="}, "kubelet would refuse", "kubectl"},
		{"label of two words", []string{"c", "--kubelet-extra-args", "--node-labels a=b=c"}, "kubelet would refuse", ""},
		{"taint", []string{"c", "--kubelet-extra-args", "--register-with-taints=a=b:Never"}, `"Never" is not an effect`, "NoSchedule"},
		{"taint without effect", []string{"c", "--kubelet-extra-args", "--register-with-taints=a=b"}, "no effect", "NoSchedule"},
		{"quote", []string{"c", "--kubelet-extra-args", `--a="b`}, "never closed", ""},
		{"control character", []string{"c", "--kubelet-extra-args", "--a=\x01"}, "control character", ""},
		{"no flag", []string{"c", "--kubelet-extra-args", "a=b"}, `"a=b" is not a flag`, ""},
		{"disks", []string{"c", "--local-disks", "raid5"}, "not known", "raid0, raid10, mount"},
		{"JSON", []string{"c", "--docker-config-json", "{"}, "not a JSON object", ""},
		{"account", []string{"c", "--pause-container-account", "x"}, "12-digit", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseBootstrap(test.args)
			if err == nil || !strings.Contains(err.Error(), test.want) || fault.CodeOf(err) != fault.Usage {
				t.Fatalf("error %v (class %d), want a usage error with %q", err, fault.CodeOf(err), test.want)
			}
			found := false
			fault.Each(err, func(e error) { found = found || strings.Contains(fault.Remedy(e), test.fix) })
			if !found {
				t.Errorf("no remedy of %v holds %q", err, test.fix)
			}
		})
	}
}

func TestEveryMistakeAtOnce(t *testing.T) {
	_, err := ParseBootstrap([]string{"--ip-family", "ipv5", "--use-max-pods", "x", "--local-disks", "y", "--dns-cluster-ip", "z"})
	count := 0
	fault.Each(err, func(error) { count++ })
	if count != 5 {
		t.Errorf("%d errors, want 5 with the missing name: %v", count, err)
	}
}

func TestCallOf(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want         []string
	}{
		{"plain", "#!/bin/bash -xe\nsudo /etc/eks/bootstrap.sh --apiserver-endpoint 'E' --b64-cluster-ca 'C' 'N'\n", []string{"--apiserver-endpoint", "E", "--b64-cluster-ca", "C", "N"}},
		{"variables and line breaks", "#!/bin/sh\nset -ex\nexport A=1 B=\"$A-2\"\n/etc/eks/bootstrap.sh my \\\n  --kubelet-extra-args \"--node-labels=a=$B --v=4\"\n", []string{"my", "--kubelet-extra-args", "--node-labels=a=1-2 --v=4"}},
		{"in a condition", "#!/bin/sh\nif true; then\n  exec /etc/eks/bootstrap.sh c\nfi\n", []string{"c"}},
		{"unset variable", "#!/bin/sh\n/etc/eks/bootstrap.sh c $NOTHING\n", []string{"c"}},
		{"no arguments", "#!/bin/sh\n/etc/eks/bootstrap.sh\n", []string{}},
		{"no call", "#!/bin/sh\necho\n", nil},
		{"mended before", "sed -i '/^set -o errexit/a\\\\nsource /etc/profile.d/bootstrap.sh' /etc/eks/bootstrap.sh\nbootstrap.sh c\n", []string{"c"}},
		{"tested before", "[ -x /etc/eks/bootstrap.sh ] || exit 1\ngrep -q pause /etc/eks/bootstrap.sh other\ntimeout -k 5 600 /etc/eks/bootstrap.sh c\n", []string{"c"}},
		{"run by a function", "try 5 /etc/eks/bootstrap.sh c\n", []string{"c"}},
		{"an array", "ARGS=(c --use-max-pods false)\nARGS+=(--kubelet-extra-args \"--v=4 --x\")\n/etc/eks/bootstrap.sh \"${ARGS[@]}\"\n", []string{"c", "--use-max-pods", "false", "--kubelet-extra-args", "--v=4 --x"}},
		{"put together", "ARGS=--v=4\nARGS+=\" --node-labels=a=b\"\nbootstrap.sh c --kubelet-extra-args \"$ARGS\"\n", []string{"c", "--kubelet-extra-args", "--v=4 --node-labels=a=b"}},
		{"within the branch", "if x; then C=a; bootstrap.sh $C; fi\n", []string{"a"}},
		{"set anew after a branch", "if x; then C=a; fi\nC=b\nbootstrap.sh $C\n", []string{"b"}},
		{"one after the other", "C=a && bootstrap.sh $C\n", []string{"a"}},
		{"dots that are no sequence", "N=x\nbootstrap.sh c --kubelet-extra-args \"--node-labels=name=${N},v=1..2\" '{a..b}'\n", []string{"c", "--kubelet-extra-args", "--node-labels=name=x,v=1..2", "{a..b}"}},
		{"unknown, and not used", "MAX=$(hostname)\nread A B\nbootstrap.sh c\n", []string{"c"}},
	} {
		got, err := callOf([]byte(test.script), "user-data")
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", test.name, err, diff)
		}
	}
	for _, test := range []struct{ name, script, want string }{
		{"broken shell", "#!/bin/sh\nif then\n/etc/eks/bootstrap.sh c\n", "user-data:2:"},
		{"command output", "#!/bin/sh\n/etc/eks/bootstrap.sh $(hostname)\n", "only known on the machine"},
		{"command output in a variable", "MAX=$(hostname)\nARGS=\"--max-pods=$MAX\"\nbootstrap.sh c --kubelet-extra-args \"$ARGS\"\n", "$ARGS at 3:"},
		{"a branch", "ARGS=--v=2\nif [ $x = spot ]; then ARGS=--v=3; fi\nbootstrap.sh c --kubelet-extra-args \"$ARGS\"\n", "$ARGS at 3:"},
		{"the other branch", "if x; then C=a; else bootstrap.sh $C; fi\n", "$C at 1:"},
		{"a short branch", "C=a\n[ x = y ] && C=b\nbootstrap.sh $C\n", "only known on the machine"},
		{"a loop", "for i in 1 2; do C=a$i; done\nbootstrap.sh $C\n", "only known on the machine"},
		{"a case", "case $x in a) C=1;; *) C=2;; esac\nbootstrap.sh $C\n", "only known on the machine"},
		{"a function", "run() { /etc/eks/bootstrap.sh \"$@\"; }\nrun c\n", "$@ at 1:"},
		{"what is read", "read C\nbootstrap.sh $C\n", "only known on the machine"},
		{"an array's first", "A=(c d)\nA+=x\nbootstrap.sh $A\n", "only known on the machine"},
		{"arithmetic", "#!/bin/sh\n/etc/eks/bootstrap.sh $((1<<60))\n", "arithmetic"},
		{"sequence", "#!/bin/bash\n/etc/eks/bootstrap.sh {1..1000000000}\n", "sequence"},
	} {
		if args, err := callOf([]byte(test.script), "user-data"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, error %v, want %q", test.name, args, err, test.want)
		}
	}
}

func FuzzCallOf(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n/etc/eks/bootstrap.sh c --v\n"))
	f.Add([]byte("A=1\nexport B=$A\nif x; then bootstrap.sh \"$B\" {a,b} ~; fi\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if args, err := callOf(data, "fuzz"); args != nil && err != nil {
			t.Errorf("arguments %q and error %v", args, err)
		}
	})
}
