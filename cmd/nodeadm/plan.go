package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/disks"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "show what init would change, and change nothing",
		Description: "Reads the same documents as init, or the call of bootstrap.sh in the user data, and shows every file as a\n" +
			"difference to what stands on the node, what would be done to units, and why. Exit code 0: there is nothing to\n" +
			"do; 10: changes are pending. For arguments of bootstrap.sh: nodeadm bootstrap --dry-run.",
		Flags:  append(append(sourceFlags(), outputFlag()), append(bootFlags(), forceFlag())...),
		Action: planNode,
	}
}

func planNode(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := bootOptions(c)
	if err != nil {
		return err
	}
	quiet(c, options)
	var cancel context.CancelFunc
	c.Context, cancel = options.Limit(c.Context)
	defer cancel()
	_, wanted, err := loadDocuments(c, options, c.StringSlice("config-source"), true)
	if err != nil {
		return err
	}
	return preview(c, wanted, options)
}

// changesPending is the exit code of a preview that found something to do.
const changesPending = exitCode(10)

// preview shows what a run would change.
func preview(c *cli.Context, wanted config.Config, options nodeadm.Options) error {
	if err := useProxy(wanted); err != nil {
		return err
	}
	quiet(c, options)
	result, err := nodeadm.Preview(c.Context, wanted, options)
	if err != nil {
		return err
	}
	p := newPreview(result, newOwner(options.Root))
	if err := output(c, p, func() { p.print(c.App.Writer) }); err != nil {
		return err
	}
	if p.Pending {
		return changesPending
	}
	return nil
}

// previewed is what a run would change, in JSON.
type previewed struct {
	Pending   bool              `json:"changesPending"`
	Files     []previewedFile   `json:"files"`
	Disks     []disks.Step      `json:"disks"`
	Units     []activate.Step   `json:"units"`
	Left      []string          `json:"left"`
	Conflicts []previewConflict `json:"conflicts"`
	Warnings  []string          `json:"warnings"`
	MaxPods   nodeadm.MaxPods   `json:"maxPods"`
}

type previewedFile struct {
	Path    string       `json:"path"`
	Action  apply.Action `json:"action"`
	OldMode string       `json:"oldMode,omitempty"`
	Mode    string       `json:"mode,omitempty"`
	Owner   string       `json:"owner,omitempty"` // UID:GID
	Origin  string       `json:"origin,omitempty"`
	Diff    string       `json:"diff,omitempty"`
}

type previewConflict struct {
	Path    string `json:"path"`
	Field   string `json:"field"`
	Manager string `json:"manager"`
	Value   any    `json:"value"`
	By      string `json:"wantedBy"`
	Wanted  any    `json:"wanted"`
	Taken   bool   `json:"taken"`
}

// newOwner is whom new files belong to: on a node to root, who alone can make
// them there, in an image to whoever makes it.
func newOwner(root string) string {
	if root == "/" {
		return "0:0"
	}
	return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
}

func newPreview(r nodeadm.Result, owner string) previewed {
	p := previewed{
		Pending: len(r.Changes) > 0 || len(r.Disks) > 0 || len(r.Steps) > 0 || r.Interrupted,
		Files:   []previewedFile{}, Disks: append([]disks.Step{}, r.Disks...), Units: append([]activate.Step{}, r.Steps...), Left: append([]string{}, r.Left...),
		Conflicts: []previewConflict{}, Warnings: append([]string{}, r.Plan.Warnings...),
		MaxPods: nodeadm.MaxPods{Pods: r.Plan.MaxPods.Effective, Source: r.Plan.MaxPods.Source, Arithmetic: r.Plan.MaxPods.Arithmetic},
	}
	for _, c := range r.Changes {
		f := previewFile(c)
		if f.Owner == "" {
			f.Owner = owner
		}
		p.Files = append(p.Files, f)
	}
	for _, c := range r.Plan.Conflicts {
		shown := previewConflict{c.Path, c.Field, c.Manager, c.Value, c.By, c.Wanted, c.Taken}
		if c.Secret {
			shown.Value, shown.Wanted = nil, nil
		}
		p.Conflicts = append(p.Conflicts, shown)
	}
	return p
}

func previewFile(c apply.Change) previewedFile {
	f := previewedFile{Path: c.Path, Action: c.Action, Origin: c.Origin, Diff: fileDiff(c.Path, c.Old, c.New, c.Secret)}
	if c.Old != nil {
		f.OldMode, f.Owner = fmt.Sprintf("%04o", c.OldMode), fmt.Sprintf("%d:%d", c.OldOwner.UID, c.OldOwner.GID)
	}
	if c.Action != apply.Remove {
		f.Mode = fmt.Sprintf("%04o", c.Mode)
	}
	if c.Owner != nil {
		f.Owner = fmt.Sprintf("%d:%d", c.Owner.UID, c.Owner.GID)
	}
	return f
}

// fileDiff is a unified diff of two versions of a file, "" if they are equal.
// Of a file that is not for everybody the values are hidden.
func fileDiff(path string, old, new []byte, secret bool) string {
	oldName, newName := path, path
	if old == nil {
		oldName = "/dev/null"
	}
	if new == nil {
		newName = "/dev/null"
	}
	if bytes.Equal(old, new) {
		return ""
	}
	if secret && !strings.HasPrefix(path, "/etc/systemd/") {
		return fmt.Sprintf("--- %s\n+++ %s\n(not shown: it is not for everybody)\n", oldName, newName)
	}
	if secret {
		before, after := hide(old), hide(new)
		if bytes.Equal(before, after) {
			return fmt.Sprintf("--- %s\n+++ %s\n(only values differ, which are not shown)\n", oldName, newName)
		}
		old, new = before, after
	}
	text := string(diff.Diff(oldName, []byte(redact(string(old))), newName, []byte(redact(string(new)))))
	// Its first line repeats the command line of diff.
	if _, rest, found := strings.Cut(text, "\n"); found {
		return rest
	}
	return text
}

var assigned = regexp.MustCompile(`^\s*(Environment|DefaultEnvironment)\s*=\s*['"]?([A-Za-z_][A-Za-z0-9_]*)=`)

// hide leaves of a unit file that is not for everybody its sections, directives
// and the first variable of a line: whatever else stands there may be secret.
func hide(data []byte) []byte {
	var out bytes.Buffer
	continued := false
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		key, _, found := bytes.Cut(text, []byte("="))
		m := assigned.FindSubmatch(line)
		switch {
		case continued:
			out.WriteString("…\n")
		case m != nil:
			fmt.Fprintf(&out, "%s='%s=…\n", m[1], m[2])
		case len(text) == 0 || text[0] == '[':
			fmt.Fprintf(&out, "%s\n", text)
		case found && directive.Match(key):
			fmt.Fprintf(&out, "%s=…\n", key)
		default:
			out.WriteString("…\n")
		}
		continued = bytes.HasSuffix(text, []byte(`\`))
	}
	return out.Bytes()
}

var directive = regexp.MustCompile(`^[A-Z][A-Za-z]*$`)

func printFiles(w io.Writer, files []previewedFile) {
	for _, f := range files {
		fmt.Fprintf(w, "%s %s", f.Action, f.Path)
		switch {
		case f.OldMode != "" && f.Mode != "" && f.OldMode != f.Mode:
			fmt.Fprintf(w, " (mode %s → %s, owner %s)", f.OldMode, f.Mode, f.Owner)
		case f.OldMode != "":
			fmt.Fprintf(w, " (mode %s, owner %s)", f.OldMode, f.Owner)
		default:
			fmt.Fprintf(w, " (mode %s, owner %s)", f.Mode, f.Owner)
		}
		fmt.Fprintf(w, "\n%s\n", f.Diff)
	}
}

func (p previewed) print(w io.Writer) {
	for _, s := range p.Disks {
		fmt.Fprintln(w, s)
	}
	printFiles(w, p.Files)
	for _, path := range p.Left {
		fmt.Fprintf(w, "left: %s is not wanted any more, and was changed by hand\n", path)
	}
	for _, message := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", strings.ReplaceAll(message, "\n", "\n  "))
	}
	for _, s := range p.Units {
		fmt.Fprintf(w, "%s %s: %s\n", s.Action, s.Unit, s.Why)
	}
	if !p.Pending {
		fmt.Fprintln(w, "nothing to do: the node is as it is planned")
		return
	}
	counts := map[apply.Action]int{}
	for _, f := range p.Files {
		counts[f.Action]++
	}
	var parts []string
	for _, a := range []apply.Action{apply.Create, apply.Update, apply.Mode, apply.Remove} {
		if counts[a] > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", counts[a], a))
		}
	}
	if len(parts) == 0 {
		parts = []string{"none to change"}
	}
	steps := ""
	if len(p.Disks) > 0 {
		steps = fmt.Sprintf("; disks: %d to do", len(p.Disks))
	}
	fmt.Fprintf(w, "\nfiles: %s%s; units: %d to do; nothing was changed\n", strings.Join(parts, ", "), steps, len(p.Units))
}
