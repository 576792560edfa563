// Package kubelet knows what each version of the kubelet understands: flags,
// fields of its configuration, feature gates, and the labels it lets a node
// have.
//
// A kubelet does not start with a flag or a feature gate that it does not know,
// so what nodeadm writes depends on the version it writes for. The facts stand in
// table.txt, each with the source it was read from.
package kubelet

import (
	_ "embed"
	"iter"
	"strconv"
	"strings"
)

// The minors that the table covers.
const (
	Oldest = 22
	Newest = 37
)

// ExternalCloudProvider is the first minor whose nodes are looked after by the
// cloud controller manager; before it, kubelet's built-in AWS code did that.
// EKS made the change with 1.26, Kubernetes dropped the built-in code in 1.27.
const ExternalCloudProvider = 26

//go:embed table.txt
var table string

// Kind is what a row of the table is about.
type Kind string

const (
	Flag   Kind = "flag"   // a flag, without its dashes
	Switch Kind = "switch" // a flag that takes no word after it, only =true or =false
	Field  Kind = "field"  // a top-level field of KubeletConfiguration, as in JSON, or logging.verbosity
	Gate   Kind = "gate"   // a feature gate
	Value  Kind = "value"  // a value of a flag, as flag=value
	API    Kind = "api"    // a group/version of the image credential provider
	Env    Kind = "env"    // an environment variable that a feature insists on
)

// Row is one fact of the table.
type Row struct {
	Kind  Kind
	Name  string
	Since int // first minor with it; Oldest stands for any before, too
	Until int // first minor without it; 0 where it is still there

	// For gates: the first minor in which it is on by default, and the first
	// one that refuses to have it turned off. 0 is never.
	On, Locked int

	Source string // module, version and file that it was read from
}

// Has reports whether the kubelet of version v has something.
//
// A version older than the table is taken for Oldest, a newer one for Newest: a
// kubelet that came out after this program is best served like the one before
// it. What a kubelet of unknown version is served is for the caller to decide.
func Has(v Version, kind Kind, name string) bool {
	r, ok := Find(kind, name)
	return ok && r.in(v)
}

// HasFlag reports whether the kubelet knows a flag, given without dashes. The
// table has every flag of the Linux kubelet, so that false means that the
// kubelet would not start.
func HasFlag(v Version, name string) bool { return Has(v, Flag, name) || Has(v, Switch, name) }

// IsSwitch reports whether a flag takes no word after it, in every version that
// has it.
func IsSwitch(name string) bool {
	_, is := Find(Switch, name)
	return is
}

// IsFlag reports whether the row is about a flag of either kind.
func (r Row) IsFlag() bool { return r.Kind == Flag || r.Kind == Switch }

// HasField reports whether KubeletConfiguration has a field. The table has every
// top-level field, and logging.verbosity.
func HasField(v Version, name string) bool { return Has(v, Field, name) }

// HasGate reports whether the kubelet knows a feature gate. The table has only
// gates that matter to how a node is set up, so that false is no reason to
// refuse a gate that somebody asks for.
func HasGate(v Version, name string) bool { return Has(v, Gate, name) }

// GateLocked reports whether the kubelet knows a gate and refuses to have it
// turned off. Every locked gate of the table is locked to on.
func GateLocked(v Version, name string) bool {
	r, ok := Find(Gate, name)
	return ok && r.in(v) && r.Locked != 0 && v.minor() >= r.Locked
}

// Rows gives the whole table, sorted by kind and name.
func Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for text := range strings.Lines(table) {
			if !strings.HasPrefix(text, "#") && !yield(parseRow(strings.TrimSuffix(text, "\n"))) {
				return
			}
		}
	}
}

func (r Row) in(v Version) bool {
	minor := v.minor()
	return minor >= r.Since && (r.Until == 0 || minor < r.Until)
}

func (v Version) minor() int { return min(max(v.Minor, Oldest), Newest) }

// Find gives the row of something, whichever versions have it.
func Find(kind Kind, name string) (Row, bool) {
	// A name with white space in it would match across the columns.
	if name == "" || strings.ContainsAny(name, " \n") {
		return Row{}, false
	}
	i := strings.Index(table, "\n"+string(kind)+" "+name+" ")
	if i < 0 {
		return Row{}, false
	}
	text, _, _ := strings.Cut(table[i+1:], "\n")
	return parseRow(text), true
}

func parseRow(text string) Row {
	column := func() string {
		var s string
		s, text, _ = strings.Cut(text, " ")
		return s
	}
	number := func() int {
		n, _ := strconv.Atoi(column()) // "-" is 0
		return n
	}
	r := Row{Kind: Kind(column()), Name: column(), Since: number(), Until: number(), On: number(), Locked: number()}
	module, file := column(), text
	minor := r.Since
	if strings.HasPrefix(file, "CHANGELOG/") {
		minor = r.Until // a change log tells of what has gone
	}
	major := "v0."
	if module == "k8s.io/kubernetes" {
		major = "v1." // the libraries count from 0
	}
	r.Source = module + "@" + major + strconv.Itoa(minor) + ".0/" + file
	return r
}

// KernelDefaults are the kernel settings that a kubelet with
// protectKernelDefaults insists on; it ends with an error where one differs
// (k8s.io/kubernetes pkg/util/sysctl).
var KernelDefaults = map[string]string{
	"vm.overcommit_memory":      "1",
	"vm.panic_on_oom":           "0",
	"kernel.panic":              "10",
	"kernel.panic_on_oops":      "1",
	"kernel.keys.root_maxkeys":  "1000000",
	"kernel.keys.root_maxbytes": "25000000",
}
