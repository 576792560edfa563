package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Outcome is how far a generation came.
type Outcome string

// The outcomes, in order. A generation that is found applying was cut short.
const (
	Applying Outcome = "applying" // files are being put in place
	Applied  Outcome = "applied"  // all files are in place
	Healthy  Outcome = "healthy"  // and the services run with them
	Failed   Outcome = "failed"   // or do not
	// Damaged: the manifest cannot be read. Nothing goes back over it, but it is
	// no reason for a node not to boot.
	Damaged Outcome = "damaged"
)

// Generation is what one run changed: the manifest of a folder below
// layout.Generations. In an image it holds no time, so that two builds of one
// image are the same; the time of the file tells.
type Generation struct {
	Number  int        `json:"generation"`
	Outcome Outcome    `json:"outcome"`
	Reason  string     `json:"reason,omitempty"` // why it failed
	Command string     `json:"command"`          // such as "init" or "rollback to 3"
	Version string     `json:"nodeadm"`
	Time    *time.Time `json:"time,omitempty"`
	Files   []Replaced `json:"files"`
	// Directories are those that had to be made, outermost first.
	Directories []string `json:"directories,omitempty"`
	Units       []Unit   `json:"units,omitempty"`
	// HealthURL is where kubelet answers with this configuration.
	HealthURL string `json:"healthURL,omitempty"`
	// Pruned: only what reset needs is left of it.
	Pruned bool `json:"pruned,omitempty"`
}

// Replaced is a file before and after; nil where there was none.
type Replaced struct {
	Path   string   `json:"path"`
	Action Action   `json:"action"`
	Origin string   `json:"origin,omitempty"`
	Before *Version `json:"before"`
	After  *Version `json:"after"`
}

// Version is one state of a file; its bytes are in the generation's folder.
type Version struct {
	SHA256 string           `json:"sha256"`
	Mode   string           `json:"mode"` // octal
	Owner  atomicfile.Owner `json:"owner"`
	Secret bool             `json:"secret,omitempty"`
}

// Unit is a systemd unit of the run's plan, and how it was before.
type Unit struct {
	Name      string   `json:"name"`
	Files     []string `json:"files"`
	StartOnly bool     `json:"startOnly,omitempty"`
	OnChange  bool     `json:"onChange,omitempty"`
	Enabled   bool     `json:"enabledBefore"`
	Active    bool     `json:"activeBefore"`
	// Unwanted: with this generation it does not have to run.
	Unwanted bool `json:"unwanted,omitempty"`
}

// The two sides of a generation.
const (
	before = "before"
	after  = "after"
)

const manifestFile = "manifest.json"

// keep is how many generations stay complete.
const keep = 10

func folder(number int) string { return layout.Generations + "/" + strconv.Itoa(number) }

// Kept is the path of one side of a file in a generation's folder.
func (g Generation) Kept(side, path string) string {
	name := strings.NewReplacer("+", "++", "/", "+").Replace(strings.TrimPrefix(path, "/"))
	if len(name) > 200 { // a file's name has at most 255 bytes
		name = name[:100] + "+" + hash([]byte(path))
	}
	return folder(g.Number) + "/" + side + "/" + name
}

// Old and New are what a file was before and after a generation, nil where
// there was none.
func (g Generation) Old(root rootfs.Root, f Replaced) ([]byte, error) {
	return g.read(root, before, f.Path, f.Before)
}

// New is the other side.
func (g Generation) New(root rootfs.Root, f Replaced) ([]byte, error) {
	return g.read(root, after, f.Path, f.After)
}

func (g Generation) read(root rootfs.Root, side, path string, v *Version) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	data, err := root.ReadFile(g.Kept(side, path))
	if err != nil {
		return nil, diskError(g.Kept(side, path), err)
	}
	if hash(data) != v.SHA256 {
		return nil, fault.New(fault.Disk, "", "%s is damaged: it is not what was written", g.Kept(side, path))
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// Generations reads all manifests, the oldest first.
func Generations(root rootfs.Root) ([]Generation, error) {
	host, err := root.Target(layout.Generations + "/x")
	if err != nil {
		return nil, diskError(layout.Generations, err)
	}
	entries, err := os.ReadDir(filepath.Dir(host))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskError(layout.Generations, err)
	}
	var all []Generation
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil || number < 1 || !e.IsDir() {
			continue
		}
		g, err := readManifest(root, number)
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		if err != nil {
			g = Generation{Number: number, Outcome: Damaged, Reason: err.Error(), Command: "unknown", Time: &time.Time{}}
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Generation) int { return a.Number - b.Number })
	return all, nil
}

func readManifest(root rootfs.Root, number int) (g Generation, err error) {
	path := folder(number) + "/" + manifestFile
	data, err := root.ReadFile(path)
	if err != nil {
		return g, diskError(path, err)
	}
	err = json.Unmarshal(data, &g)
	if err == nil && g.Number != number {
		err = fmt.Errorf("it is the manifest of %d", g.Number)
	}
	if err != nil {
		return g, fault.New(fault.Disk, "", "%s is damaged: %w", path, err)
	}
	if g.Time == nil {
		if info, err := os.Stat(filepath.Join(string(root), path)); err == nil {
			t := info.ModTime().UTC()
			g.Time = &t
		}
	}
	return g, nil
}

// Finish notes how a generation ended, and forgets what is older than anybody
// will want to go back to.
func Finish(root rootfs.Root, number int, outcome Outcome, reason string) error {
	g, err := readManifest(root, number)
	if err != nil {
		return err
	}
	if g.Outcome != outcome || g.Reason != reason {
		if g.Outcome, g.Reason = outcome, reason; !root.Live() {
			g.Time = nil
		}
		if err := g.write(root); err != nil {
			return err
		}
	}
	return prune(root)
}

func (g Generation) encode() ([]byte, error) {
	data, err := json.MarshalIndent(g, "", " ")
	return append(data, '\n'), err
}

// write replaces the manifest of a generation that is there.
func (g Generation) write(root rootfs.Root) error {
	data, err := g.encode()
	if err != nil {
		return err
	}
	path := folder(g.Number) + "/" + manifestFile
	host, err := root.Target(path)
	if err == nil {
		err = atomicfile.Replace(host, data, 0o600)
	}
	if err != nil {
		return diskError(path, err)
	}
	return nil
}

// prune thins out old generations: of a file that an earlier generation has
// touched already, reset needs no more than that earlier one.
func prune(root rootfs.Root) error {
	all, err := Generations(root)
	if err != nil || len(all) <= keep {
		return err
	}
	touched := map[string]bool{}
	for _, g := range all[:len(all)-keep] {
		first := slices.DeleteFunc(slices.Clone(g.Files), func(f Replaced) bool { return touched[f.Path] })
		for _, f := range g.Files {
			touched[f.Path] = true
		}
		if g.Pruned || g.Outcome == Damaged {
			continue
		}
		if len(first) == 0 {
			if err := removeFolder(root, g.Number); err != nil {
				return err
			}
			continue
		}
		thin := g
		if thin.Files, thin.Pruned = first, true; !root.Live() {
			thin.Time = nil
		}
		if err := thin.write(root); err != nil {
			return err
		}
		// What the manifest does not name any more goes; a run that is killed
		// here leaves it to lie, which costs a little space.
		for _, f := range g.Files {
			os.Remove(filepath.Join(string(root), g.Kept(after, f.Path)))
			if !slices.ContainsFunc(first, func(o Replaced) bool { return o.Path == f.Path }) {
				os.Remove(filepath.Join(string(root), g.Kept(before, f.Path)))
			}
		}
		os.Remove(filepath.Join(string(root), folder(g.Number), after))
	}
	return nil
}
