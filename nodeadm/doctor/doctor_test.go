package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestChecks: the order is one of dependence, and everybody can look a check up.
func TestChecks(t *testing.T) {
	before := map[string]bool{}
	for _, check := range Checks() {
		if before[check.Name] {
			t.Errorf("%s is there twice", check.Name)
		}
		for _, need := range check.Needs {
			if !before[need] {
				t.Errorf("%s needs %s, which does not stand before it", check.Name, need)
			}
		}
		if !strings.HasSuffix(check.Question, "?") || len(check.Explanation) < 40 || check.look == nil {
			t.Errorf("%s is not explained: %+v", check.Name, check)
		}
		if check.Name != strings.ToLower(check.Name) || strings.ContainsAny(check.Name, " _") {
			t.Errorf("%s is not in kebab case", check.Name)
		}
		before[check.Name] = true
	}
}

func fixed(name string, f Finding, needs ...string) Check {
	return Check{Name: name, Needs: needs, look: func(context.Context, *patient) Finding { return f }}
}

func TestCause(t *testing.T) {
	sick := failed("mend it", "it is broken")
	closed := skipped("nothing is there yet")
	closed.ends = true
	for _, test := range []struct {
		name           string
		checks         []Check
		verdict, cause string
		statuses       []Status
		consequences   []string
		because        map[string]string
	}{
		{"nothing", []Check{fixed("a", ok("fine")), fixed("b", skipped("not here"))}, "nothing is wrong: 1 checks are fine", "", []Status{OK, Skipped}, nil, nil},
		{"warnings", []Check{fixed("a", ok("fine")), fixed("b", warning("x", "odd"))}, "nothing keeps this node from its cluster; look at b", "", []Status{OK, Warning}, nil, nil},
		{"the first failure", []Check{fixed("a", ok("fine")), fixed("b", sick), fixed("c", sick)}, "b: it is broken", "b", []Status{OK, Failed, Failed}, []string{"c"}, nil},
		{"what needs it is not asked", []Check{fixed("a", sick), fixed("b", ok("fine"), "a"), fixed("c", sick, "b")}, "a: it is broken", "a", []Status{Failed, Skipped, Skipped}, nil,
			map[string]string{"b": "not asked, because of a", "c": "not asked, because of a"}},
		{"what was not applicable keeps nothing from being asked", []Check{fixed("a", skipped("no proxy")), fixed("b", sick, "a")}, "b: it is broken", "b", []Status{Skipped, Failed}, nil, nil},
		{"unless there is nothing to ask of", []Check{fixed("a", closed), fixed("b", sick, "a"), fixed("c", sick)}, "c: it is broken", "c", []Status{Skipped, Skipped, Failed}, nil, nil},
		{"nothing could be asked", []Check{fixed("a", skipped("no"))}, "nothing could be asked", "", []Status{Skipped}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Report{Results: examine(t.Context(), nil, test.checks)}
			r.conclude()
			var statuses []Status
			var consequences []string
			for _, result := range r.Results {
				statuses = append(statuses, result.Status)
				if result.Consequence {
					consequences = append(consequences, result.Check)
				}
				if want := test.because[result.Check]; want != "" && result.Summary != want {
					t.Errorf("%s: %q, want %q", result.Check, result.Summary, want)
				}
			}
			if r.Verdict != test.verdict || r.Cause != test.cause || !slices.Equal(statuses, test.statuses) || !slices.Equal(consequences, test.consequences) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestBudget: a check that does not answer is no failure, and holds up nobody.
func TestBudget(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	hangs := Check{Name: "hangs", look: func(context.Context, *patient) Finding { <-release; return failed("", "late") }}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	results := examine(ctx, nil, []Check{hangs, fixed("waits", failed("", "x"), "hangs"), fixed("answers", ok("fine"))})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	var statuses []Status
	for _, r := range results {
		statuses = append(statuses, r.Status)
	}
	if diff := cmp.Diff([]Status{Warning, Skipped, OK}, statuses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMistake: one check's mistake is not the end of the others.
func TestMistake(t *testing.T) {
	mistaken := Check{Name: "mistaken", look: func(context.Context, *patient) Finding { var none map[string]any; return ok("%v", none["x"].(string)) }}
	results := examine(t.Context(), nil, []Check{mistaken, fixed("b", ok("fine"))})
	if results[0].Status != Warning || !strings.Contains(results[0].Summary, "a mistake in nodeadm itself") || results[1].Status != OK {
		t.Errorf("%+v", results)
	}
}

func TestSelection(t *testing.T) {
	all := []Check{{Name: "a"}, {Name: "b", Level: Network, Needs: []string{"a"}}, {Name: "c", Level: AWS, Needs: []string{"b"}}, {Name: "d"}}
	for _, test := range []struct {
		s    Selection
		want string
	}{
		{Selection{Level: AWS}, "a b c d"}, {Selection{Level: Network}, "a b d"}, {Selection{}, "a d"},
		{Selection{Level: AWS, Only: []string{"b"}}, "a b"}, {Selection{Level: AWS, Only: []string{"c", "d"}, Skip: []string{"a"}}, "b c d"},
	} {
		var names []string
		for _, c := range test.s.choose(all) {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%+v: %s, want %s", test.s, got, test.want)
		}
	}
}

func TestLevelReadsBack(t *testing.T) {
	for level := Machine; level <= AWS; level++ {
		data, _ := json.Marshal(level)
		var back Level
		if err := json.Unmarshal(data, &back); err != nil || back != level {
			t.Errorf("%s: %v, %v", data, back, err)
		}
	}
	var none Level
	if json.Unmarshal([]byte(`"L3"`), &none) == nil {
		t.Error("L3 is a level")
	}
}

func TestDecode(t *testing.T) {
	for line, meaning := range map[string]string{
		`E1121 12:00:00.000000 1 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --no-such-flag"`:                                                                                                                                                         "does not know a flag",
		`E1121 run.go:72] "command failed" err="failed to set feature gates from initial flags-based config: unrecognized feature gate: NoSuchGate"`:                                                                                                                                   "feature gate",
		`E1121 run.go:72] "command failed" err="failed to load kubelet config file, path: /x, error: failed to load Kubelet config file"`:                                                                                                                                              "not understood",
		`E1121 run.go:72] "command failed" err="failed to run Kubelet: running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"`:                                                                                                                "swap is on",
		`E1121 run.go:72] "command failed" err="failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint \"unix:///run/containerd/x\""`:                                                                                                            "containerd does not answer",
		`E1121 run.go:72] "command failed" err="failed to parse kubelet flag: invalid argument \"x\" for \"-v, --v\" flag: strconv"`:                                                                                                                                                   `it cannot read a flag that it is given: failed to parse kubelet flag: invalid argument "x" for "-v, --v" flag`,
		`E1121 kubelet.go:1] "Failed to start ContainerManager" err="start cpu manager error: could not restore state from checkpoint: configured policy \"none\" differs from state checkpoint policy \"static\", please drain this node and delete the CPU manager checkpoint file"`: "of another policy, or damaged: start cpu manager error",
		`E1121 run.go:72] "command failed" err="failed to run Kubelet: mkdir /var/lib/kubelet/pki: read-only file system"`:                                                                                                                                                             "it cannot write: failed to run Kubelet: mkdir /var/lib/kubelet/pki",
		`E1121 run.go:72] "command failed" err="failed to run Kubelet: kubelet needs to run as uid ` + "`0`" + `. It is being run as 1000"`:                                                                                                                                            "does not run as root",
		`E1121 run.go:72] "command failed" err="failed to run Kubelet: invalid kubeconfig: yaml: line 3"`:                                                                                                                                                                              "cannot use its kubeconfig: failed to run Kubelet: invalid kubeconfig: yaml: line 3",
		`E1121 kubelet_node_status.go:107] "Unable to register node with API server" err="nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no nodes today" node="n"`:                                                                           `the cluster refuses what it sends: nodes "n" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no nodes today`,
		`E1121 reflector.go:158] "Unhandled Error" err="failed to list *v1.Node: Unauthorized"`:                                                                                                                                                                                        "does not know the node's role",
		`E1121 server.go:1] "Failed to listen and serve" err="listen tcp 0.0.0.0:10250: bind: address already in use"`:                                                                                                                                                                 "has one of its ports",
		`E1121 run.go:72] "command failed" err="failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [kubernetes.io/team]"`:                                                                                                      "a label that --node-labels gives",
	} {
		if found := decode([]string{"I1121 something else", line}); found == nil || !strings.Contains(found.meaning, meaning) {
			t.Errorf("%s: %+v", line, found)
		}
	}
	if found := decode([]string{`E1121 kubelet.go:1] "Error getting node" err="node \"n\" not found"`, `E1121 x.go:1] "x" err="admission webhook \"w\" denied the request: no"`}); found == nil || !strings.Contains(found.meaning, "denied the request: no") {
		t.Errorf("%+v", found)
	}
	if said := fatalOf([]string{`E1121 run.go:72] "command failed" err="failed to run Kubelet: something \"new\""`, "I1121 later"}); said != `failed to run Kubelet: something "new"` {
		t.Errorf("%q", said)
	}
	if found := decode([]string{"I1121 12:00:00 kubelet.go:1] Starting kubelet"}); found != nil {
		t.Errorf("%+v", found)
	}
}
