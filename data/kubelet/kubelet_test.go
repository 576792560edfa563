package kubelet

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func minor(n int) Version { return Version{Major: 1, Minor: n} }

func TestTableIsSound(t *testing.T) {
	var last Row
	n := 0
	for r := range Rows() {
		n++
		if last.Kind > r.Kind || last.Kind == r.Kind && last.Name >= r.Name {
			t.Errorf("%s %s does not come after %s %s", r.Kind, r.Name, last.Kind, last.Name)
		}
		last = r
		if !slices.Contains([]Kind{Flag, Switch, Field, Gate, Value, API, Env}, r.Kind) {
			t.Errorf("%s %s: no such kind", r.Kind, r.Name)
		}
		if r.Since < Oldest || r.Since > Newest || r.Until != 0 && (r.Until <= r.Since || r.Until > Newest) {
			t.Errorf("%s %s: from %d until %d", r.Kind, r.Name, r.Since, r.Until)
		}
		if r.Kind != Gate && (r.On != 0 || r.Locked != 0) {
			t.Errorf("%s %s: only gates are on or locked", r.Kind, r.Name)
		}
		// What is locked is locked to on.
		if r.Locked != 0 && (r.On == 0 || r.Locked < r.On) {
			t.Errorf("%s: locked in 1.%d, on in 1.%d", r.Name, r.Locked, r.On)
		}
		module, rest, ok := strings.Cut(r.Source, "@")
		version, file, _ := strings.Cut(rest, "/")
		if _, err := ParseVersion(version); !ok || err != nil || !strings.HasPrefix(module, "k8s.io/") ||
			!strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, ".md") {
			t.Errorf("%s %s: source %q", r.Kind, r.Name, r.Source)
		}
		if got, ok := Find(r.Kind, r.Name); !ok || got != r {
			t.Errorf("%s %s is not found: %+v", r.Kind, r.Name, got)
		}
	}
	if n < 300 {
		t.Errorf("only %d rows", n)
	}
}

// The table has every top-level field of every minor, and no other. The lists
// were read from the types of each minor; below the top level only
// logging.verbosity is in the table.
func TestFieldsOfEveryMinor(t *testing.T) {
	for n := Oldest; n <= Newest; n++ {
		text, err := os.ReadFile("testdata/fields/v1." + strconv.Itoa(n) + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text))
		if !slices.IsSorted(fields) {
			t.Errorf("1.%d: not sorted", n)
		}
		fields = slices.DeleteFunc(fields, func(f string) bool {
			return strings.Contains(f, ".") && f != "logging.verbosity"
		})
		for _, f := range fields {
			if !HasField(minor(n), f) {
				t.Errorf("1.%d has the field %s", n, f)
			}
		}
		for r := range Rows() {
			if r.Kind == Field && r.in(minor(n)) && !slices.Contains(fields, r.Name) {
				t.Errorf("1.%d does not have the field %s", n, r.Name)
			}
		}
	}
}

func TestHas(t *testing.T) {
	for _, tt := range []struct {
		kind  Kind
		name  string
		first int // 0: never
		last  int
	}{
		{Flag, "node-labels", 22, 37},
		{Flag, "v", 22, 37},
		{Flag, "cloud-provider", 22, 37},
		{Flag, "container-runtime", 22, 26},
		{Flag, "container-runtime-endpoint", 22, 37},
		{Flag, "network-plugin", 22, 23},
		{Flag, "pod-infra-container-image", 22, 34},
		{Flag, "config-dir", 28, 37},
		{Flag, "log-dir", 22, 25},
		{Flag, "no-such-flag", 0, 0},
		{Flag, "register-node", 0, 0},
		{Switch, "register-node", 22, 37},
		{Switch, "node-labels", 0, 0},
		{Flag, "node", 0, 0},
		{Flag, "", 0, 0},
		{Flag, "address 22", 0, 0},
		{Field, "maxPods", 22, 37},
		{Field, "containerRuntimeEndpoint", 27, 37},
		{Field, "imageServiceEndpoint", 27, 37},
		{Field, "registerWithTaints", 23, 37},
		{Field, "failCgroupV1", 31, 37},
		{Field, "logging", 22, 37},
		{Field, "logging.verbosity", 23, 37},
		{Gate, "RotateKubeletServerCertificate", 22, 37},
		{Gate, "DynamicResourceAllocation", 26, 37},
		{Gate, "MutableCSINodeAllocatableCount", 33, 37},
		{Gate, "KubeletCredentialProviders", 22, 27},
		{Gate, "LocalStorageCapacityIsolation", 22, 26},
		{Gate, "node-labels", 0, 0},
		{Value, "cloud-provider=aws", 22, 26},
		{API, "credentialprovider.kubelet.k8s.io/v1beta1", 24, 37},
		{API, "kubelet.config.k8s.io/v1", 26, 37},
		{Env, "KUBELET_CONFIG_DROPIN_DIR_ALPHA", 28, 29},
	} {
		for n := Oldest; n <= Newest; n++ {
			want := tt.first <= n && n <= tt.last
			if got := Has(minor(n), tt.kind, tt.name); got != want {
				t.Errorf("1.%d: %s %q: %v, want %v", n, tt.kind, tt.name, got, want)
			}
		}
	}
}

func TestVersionsOutsideOfTheTable(t *testing.T) {
	if !HasFlag(minor(18), "network-plugin") {
		t.Error("1.18 is not taken for the oldest minor")
	}
	if HasFlag(minor(99), "network-plugin") || !HasFlag(minor(99), "config-dir") {
		t.Error("1.99 is not taken for the newest minor")
	}
}

func TestGateLocked(t *testing.T) {
	for _, tt := range []struct {
		minor int
		gate  string
		want  bool
	}{
		{34, "DynamicResourceAllocation", false},
		{35, "DynamicResourceAllocation", true},
		{35, "MutableCSINodeAllocatableCount", false},
		{36, "MutableCSINodeAllocatableCount", true},
		{37, "RotateKubeletServerCertificate", false},
		{27, "KubeletCredentialProviders", true},
		{28, "KubeletCredentialProviders", false}, // gone
		{37, "NoSuchGate", false},
	} {
		if got := GateLocked(minor(tt.minor), tt.gate); got != tt.want {
			t.Errorf("1.%d: %s: %v, want %v", tt.minor, tt.gate, got, tt.want)
		}
	}
}

func TestLabelAllowed(t *testing.T) {
	for key, want := range map[string]bool{
		"team":                              true,
		"example.com/team":                  true,
		"eks.amazonaws.com/nodegroup":       true,
		"notkubernetes.io/x":                true,
		"kubernetes.io.example.com/x":       true,
		"kubernetes.io":                     true, // a key without a namespace
		"kubernetes.io/arch":                true,
		"topology.kubernetes.io/zone":       true,
		"beta.kubernetes.io/instance-type":  true,
		"node.kubernetes.io/anything":       true,
		"x.node.kubernetes.io/anything":     true,
		"kubelet.kubernetes.io/a":           true,
		"kubernetes.io/role":                false,
		"kubernetes.io/arch2":               false,
		"node-role.kubernetes.io/worker":    false,
		"topology.kubernetes.io/rack":       false,
		"xnode.kubernetes.io/a":             false,
		"node-restriction.kubernetes.io/a":  false,
		"k8s.io/a":                          false,
		"node.k8s.io/a":                     false,
		"topology.ebs.csi.k8s.io/zone":      false,
		"failure-domain.beta.kubernetes.io": true,
	} {
		if got := LabelAllowed(key); got != want {
			t.Errorf("LabelAllowed(%q) = %v", key, got)
		}
	}
	if !slices.IsSorted(AllowedLabels()) || !slices.IsSorted(AllowedLabelNamespaces()) {
		t.Error("not sorted")
	}
}
