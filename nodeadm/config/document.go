package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/userdata"
)

// mediaType is the content type of NodeConfig documents in MIME messages.
const mediaType = "application/node.eks.aws"

// Source is where documents come from, and what was read there.
type Source struct {
	Name string // as errors and origins say it: "user data", a path, "standard input"
	Data []byte
}

// Part is one part of a source and what became of it. Every part is reported:
// nothing that somebody wrote is left out silently.
type Part struct {
	Source      string `json:"source"`
	Index       string `json:"index"`       // "1", "2"; nested "2.1"
	ContentType string `json:"contentType"` // as declared, or as recognised
	Size        int    `json:"size"`        // bytes, decoded
	Used        bool   `json:"used"`
	Why         string `json:"why"` // what it is used for, or why not
}

// Documents is what a number of sources say together.
type Documents struct {
	Tree     *doctree.Node // the merged document, nil if there is none
	Parts    []Part
	Warnings []string
	// Script is the last part that is a shell script which calls bootstrap.sh,
	// and was left to cloud-init; "" if there is none.
	Script string

	order []string // of sources, as origins name them
}

// Read loads and resolves: all mistakes there are, in the order in which they
// were written.
func Read(sources []Source, o ReadOptions) (Documents, Config, error) {
	documents, err := Load(sources, o)
	if documents.Tree == nil {
		return documents, Config{}, err
	}
	c, err2 := Resolve(documents.Tree)
	documents.Warnings = append(documents.Warnings, idle(documents.Tree)...)
	return documents, c, inOrder(errors.Join(err, err2), documents.order)
}

// idle names settings that do nothing beside the others. AWS's API takes them, so
// they are no mistakes.
func idle(tree *doctree.Node) (warnings []string) {
	storage := tree.Get("spec", "instance", "localStorage")
	strategy := storage.Get("strategy")
	warn := func(key, why string) {
		if n := storage.Get(key); !n.Empty() {
			warnings = append(warnings, fmt.Sprintf("%s: spec.instance.localStorage.%s has no effect: %s", n.Origin, key, why))
		}
	}
	switch {
	case strategy.Empty():
		warn("mountPath", "without strategy, instance store volumes are left alone; add strategy, or leave it out")
		warn("disabledMounts", "without strategy, instance store volumes are left alone; add strategy, or leave it out")
	case strategy.Text() == "Mount":
		warn("disabledMounts", "with strategy Mount nothing is moved onto the volumes; leave it out")
	}
	return warnings
}

// inOrder sorts mistakes by their places, sources in the order in which they
// were read; those without a place come first.
func inOrder(err error, sources []string) error {
	var all []error
	fault.Each(err, func(e error) { all = append(all, e) })
	place := func(e error) [3]int {
		if p := (*doctree.Problem)(nil); errors.As(e, &p) {
			return [3]int{slices.Index(sources, p.Source), p.Line, p.Column}
		}
		return [3]int{-2}
	}
	slices.SortStableFunc(all, func(a, b error) int {
		x, y := place(a), place(b)
		return slices.Compare(x[:], y[:])
	})
	return errors.Join(all...)
}

// ReadOptions say how documents are read.
type ReadOptions struct {
	// Lenient: unknown fields are warned of and dropped.
	Lenient bool
	// Scripts: shell scripts that call bootstrap.sh count as the documents that
	// say the same. A node itself leaves them to cloud-init, which runs them.
	Scripts bool
}

// Load reads all documents of the sources, in order, and merges them: later
// ones win. All mistakes of all documents are reported at once.
func Load(sources []Source, o ReadOptions) (Documents, error) {
	l := &loader{options: o}
	for _, s := range sources {
		l.source(s)
	}
	return l.Documents, errors.Join(l.errs...)
}

type loader struct {
	Documents
	options ReadOptions
	errs    []error
}

func (l *loader) source(s Source) {
	if len(bytes.TrimSpace(s.Data)) == 0 {
		l.Parts = append(l.Parts, Part{Source: s.Name, Index: "1", Why: "it is empty"})
		return
	}
	parts, err := userdata.Parse(s.Data, s.Name)
	if err != nil {
		l.errs = append(l.errs, fault.Wrap(fault.Usage, err))
		return
	}
	for _, p := range parts {
		report := Part{Source: s.Name, Index: p.Index, ContentType: p.ContentType, Size: p.Size}
		report.Used, report.Why = l.part(s.Name, len(parts) > 1 || p.Index != "1", p)
		l.Parts = append(l.Parts, report)
	}
}

// part uses one part, if it is for nodeadm.
func (l *loader) part(source string, several bool, p userdata.Part) (used bool, why string) {
	name, line := source, p.Line
	if several {
		name = fmt.Sprintf("%s part %s", source, p.Index)
	}
	l.order = append(l.order, name)
	ours := p.ContentType == mediaType
	switch {
	case p.Problem != nil && (ours || strings.Contains(strings.ToLower(p.Declared), "node.eks.aws")):
		l.errs = append(l.errs, fault.Wrap(fault.Usage, p.Problem))
		return false, p.Problem.Error()
	case p.Problem != nil:
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s cannot be read and is left out: %v", name, p.Problem))
		return false, p.Problem.Error()
	case p.ContentType == "text/x-shellscript":
		args, err := callOf(p.Data, name)
		if l.options.Scripts && (args != nil || err != nil) {
			var tree *doctree.Node
			if err == nil {
				tree, err = ParseBootstrapDocument(args)
			}
			if err != nil {
				l.errs = append(l.errs, fault.Wrap(fault.Usage, err))
			}
			if tree == nil {
				return false, "its call of bootstrap.sh cannot be read; of a template, check what it makes"
			}
			l.merge(tree)
			return true, "the arguments of bootstrap.sh"
		}
		// In a script that cannot be read to its end the call is known by its name.
		if args != nil || err != nil && bytes.Contains(p.Data, []byte("bootstrap.sh")) {
			l.Script = name
			return false, "a shell script that calls bootstrap.sh; it is run by cloud-init, not by nodeadm init"
		}
		return false, "a shell script, for cloud-init"
	case p.ContentType == "" && p.Declared == "":
		// A document alone has no content type to say what it is; a part
		// without one is taken at its word too.
	case !ours && isNodeConfig(p.Data):
		l.errs = append(l.errs, fault.New(fault.Usage, "write Content-Type: "+mediaType+" above it",
			"%s holds a NodeConfig, but its content type is %s: it would not be applied", name, p.ContentType))
		return false, "a NodeConfig under another content type"
	case !ours:
		return false, "for cloud-init"
	}
	trees, problems := doctree.Parse(p.Data, name, line)
	for _, problem := range problems {
		l.problem(problem)
	}
	for _, tree := range trees {
		l.document(tree)
	}
	if len(trees) == 0 && len(problems) == 0 {
		return false, "it holds no document"
	}
	if len(trees) > 0 && !slices.ContainsFunc(trees, func(n *doctree.Node) bool { return wrapper(n) == "" }) {
		return false, wrapper(trees[0])
	}
	return true, "NodeConfig"
}

// isNodeConfig tells whether a text of another type is a NodeConfig all the
// same. One that only holds a NodeConfig somewhere, such as a cloud-config that
// writes a drop-in, is not.
func isNodeConfig(text []byte) bool {
	if !bytes.Contains(text, []byte(apiVersion)) {
		return false
	}
	trees, _ := doctree.Parse(text, "", 1)
	return slices.ContainsFunc(trees, func(n *doctree.Node) bool { return n.Get("apiVersion") != nil && n.Get("kind") != nil })
}

func (l *loader) problem(p *doctree.Problem) {
	l.errs = append(l.errs, fault.New(fault.Usage, p.Remedy, "%w", p))
}

// document checks the shape of one document and merges it over the others.
func (l *loader) document(tree *doctree.Node) {
	if !tree.IsMap {
		l.problem(&doctree.Problem{Origin: tree.Origin, Message: "this is not a NodeConfig: it must begin with apiVersion and kind", Remedy: "write apiVersion: " + apiVersion + " and kind: " + kind})
		return
	}
	if name := wrapper(tree); name != "" {
		l.problem(&doctree.Problem{Origin: tree.Origin, Message: "this is " + name + ", which instances do not read: they get the user data in it", Remedy: "check that user data, in a file of its own"})
		return
	}
	for _, field := range []struct{ name, want string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		switch value := tree.Get(field.name); {
		case value == nil:
			l.problem(&doctree.Problem{Origin: tree.Origin, Message: field.name + " is missing", Remedy: "write " + field.name + ": " + field.want})
		case value.Text() != field.want:
			l.problem(&doctree.Problem{Origin: value.Origin, Message: fmt.Sprintf("%s is %q, which is not known", field.name, value.Text()), Remedy: "write " + field.name + ": " + field.want})
		}
	}
	for _, p := range doctree.Check(tree, reflect.TypeFor[NodeConfig]()) {
		switch {
		case strings.HasPrefix(p.Message, "apiVersion ") || strings.HasPrefix(p.Message, "kind "):
			// said above
		case p.Unknown && l.options.Lenient:
			l.Warnings = append(l.Warnings, p.Error()+"; it is left out")
		default:
			l.problem(p)
		}
		// What is wrong in its shape must not hide what else is wrong.
		if p.Drop != nil {
			p.Drop()
		}
	}
	l.merge(tree)
}

// wrapper names what a document is that only holds user data, "" for any other.
func wrapper(tree *doctree.Node) string {
	if tree.Get("AWSTemplateFormatVersion") != nil {
		return "a CloudFormation template"
	}
	version := tree.Get("apiVersion")
	if version == nil {
		return ""
	}
	for _, w := range []struct{ group, name string }{
		{"karpenter.k8s.aws/", "a resource of Karpenter's"}, {"karpenter.sh/", "a resource of Karpenter's"}, {"eksctl.io/", "a configuration of eksctl's"},
	} {
		if strings.HasPrefix(version.Text(), w.group) {
			return w.name
		}
	}
	return ""
}

func (l *loader) merge(tree *doctree.Node) {
	merged, err := merger.Merge(l.Tree, tree)
	if err != nil {
		l.errs = append(l.errs, fault.Wrap(fault.Usage, err))
		return
	}
	l.Tree = merged
}

// merger puts NodeConfig documents together.
var merger = doctree.Merger{Rule: mergeRule, Combine: combineTOML}

// freeForm are maps in which a value is what it is, empty or not.
var freeForm = []string{"spec.kubelet.config", "spec.containerd.baseRuntimeSpec", "spec.featureGates", "spec.instance.environment"}

func mergeRule(path string) doctree.Rule {
	switch path {
	case "spec.kubelet.flags":
		return doctree.Append
	case "spec.containerd.config":
		return doctree.Custom
	}
	for _, prefix := range freeForm {
		// Below it, not the map itself: saying nothing takes nothing away. For
		// the environment that goes for each service, too.
		below, found := strings.CutPrefix(path, prefix+".")
		if found && (prefix != "spec.instance.environment" || strings.Contains(below, ".")) {
			return doctree.Replace
		}
	}
	return doctree.KeepUnlessSet
}

// combineTOML merges two texts of TOML table by table. One of them alone stays
// as it was written, comments and all.
func combineTOML(path string, earlier, later *doctree.Node) (*doctree.Node, error) {
	if later.Empty() {
		return earlier, nil
	}
	if earlier.Empty() {
		return later, nil
	}
	text, err := MergeTOML(earlier.Text(), later.Text())
	if err != nil {
		return nil, fault.New(fault.Usage, "mend the TOML there", "%s: %s: %w", later.Origin, path, err)
	}
	merged := *later
	merged.Scalar = text
	return &merged, nil
}

// MergeTOML merges two TOML documents: tables key by key, everything else,
// arrays too, by the later one.
func MergeTOML(earlier, later string) (string, error) {
	var under, over map[string]any
	if _, err := toml.Decode(earlier, &under); err != nil {
		return "", err
	}
	if _, err := toml.Decode(later, &over); err != nil {
		return "", err
	}
	var out strings.Builder
	enc := toml.NewEncoder(&out)
	enc.Indent = ""
	err := enc.Encode(mergeTables(under, over))
	return out.String(), err
}

func mergeTables(under, over map[string]any) map[string]any {
	merged := maps.Clone(under)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, key := range slices.Sorted(maps.Keys(over)) {
		a, aIsTable := merged[key].(map[string]any)
		b, bIsTable := over[key].(map[string]any)
		if aIsTable && bIsTable {
			merged[key] = mergeTables(a, b)
			continue
		}
		merged[key] = over[key]
	}
	return merged
}
