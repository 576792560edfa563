// Package image makes a machine image one that nodes boot from, finds out what
// it still lacks, and takes out of it what belongs to the one instance that it
// was made on.
package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/systemd"
)

// Options say what an image is made to be.
type Options struct {
	Root rootfs.Root
	// Program is this program's file on the machine that runs it.
	Program string
	// AfterScripts: at boot nodeadm waits for the scripts in user data.
	AfterScripts bool
}

// Change is something that was done to an image.
type Change struct {
	Path   string `json:"path"`
	Action string `json:"action"` // "create", "update", "link", "unlink", "keep as …", "remove" or "empty"
}

// entry is a file, a link or, with neither, a directory of an image.
type entry struct {
	path string
	mode fs.FileMode
	data []byte
	link string
}

// unitPackages is where packages put units; one that stands there is theirs.
var unitPackages = []string{"/usr/lib/systemd/system/", "/lib/systemd/system/"}

// Install makes an image one that boots as a node: this program under all its
// names, its unit, the directories that it reads, what the kernel has to be, and
// the versions of kubelet and containerd, so that no boot has to ask. Nothing is
// started. A second run changes nothing.
func Install(ctx context.Context, o Options) ([]Change, error) {
	entries, err := contents(ctx, o)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, e := range entries {
		done, err := o.place(e)
		changes = append(changes, done...)
		if err != nil {
			return changes, fault.New(fault.Disk, "mend that and run it again: what is in place stays", "%w", err)
		}
	}
	removed, err := o.disable()
	return append(changes, removed...), err
}

// contents is all that an image gets, in order.
func contents(ctx context.Context, o Options) ([]entry, error) {
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return nil, fault.New(fault.Disk, "", "%w", err)
	}
	kubeletVersion, containerdVersion, err := facts.Versions(ctx, o.Root)
	if kubeletVersion == "" || containerdVersion == "" && errors.Is(err, fs.ErrPermission) {
		return nil, fault.New(fault.Usage, "install kubelet and containerd on the image first, for its architecture", "%w", err)
	}
	sysctl := "# What kubelet insists on with protectKernelDefaults.\n"
	for _, name := range slices.Sorted(maps.Keys(kubelet.KernelDefaults)) {
		sysctl += name + " = " + kubelet.KernelDefaults[name] + "\n"
	}
	text := func(path, data string) entry { return entry{path: path, mode: 0o644, data: []byte(data)} }
	entries := []entry{
		{path: layout.Program, mode: 0o755, data: program},
		{path: layout.BootstrapScript, link: layout.Program},
		{path: layout.MaxPodsScript, link: layout.Program},
		{path: layout.DropInDir, mode: 0o755},
		{path: layout.ContainerdConfigDir, mode: 0o755},
		{path: layout.RegistriesDir, mode: 0o755},
		text(layout.SysctlConfig, sysctl),
		text(layout.NetworkSysctl, "# Pods' packets are forwarded by the node.\nnet.ipv4.ip_forward = 1\n"),
		text(layout.ModulesLoad, "# containerd's snapshots.\noverlay\n# What kube-proxy may have to see of packets between pods.\nbr_netfilter\n"),
		text(layout.KubeletVersion, kubeletVersion+"\n"),
	}
	if containerdVersion != "" { // an image with dockerd has none
		entries = append(entries, text(layout.ContainerdVersion, containerdVersion+"\n"))
	}
	entries = append(entries, text(layout.RuntimeSlice, systemd.RuntimeSlice), text(inRuntimeSlice(containerdVersion), systemd.InRuntimeSlice))
	// In place of the package's preset of the same name, if there is one.
	preset := systemd.Preset
	if o.AfterScripts {
		preset = systemd.PresetAfterScripts
	}
	entries = append(entries, text(layout.Preset, preset))
	unit, data, target := o.unit()
	if !slices.ContainsFunc(unitPackages, func(dir string) bool { return o.Root.Exists(dir + filepath.Base(unit)) }) {
		entries = append(entries, text(unit, data))
	} else {
		unit = unitPackages[0] + filepath.Base(unit)
	}
	return append(entries, entry{path: wants(target, unit), link: unit}), nil
}

// inRuntimeSlice is the drop-in of the image's container runtime, under the name
// that it has on Amazon Linux.
func inRuntimeSlice(containerdVersion string) string {
	runtime := layout.ContainerdService
	if containerdVersion == "" {
		runtime = layout.DockerService
	}
	return "/etc/systemd/system/" + runtime + ".d/00-runtime-slice.conf"
}

// unit is the unit that makes nodes, what it says, and the target that wants it.
func (o Options) unit() (path, data, target string) {
	if o.AfterScripts {
		return layout.NodeadmAfterScripts, systemd.NodeadmAfterScripts, "cloud-init.target"
	}
	return layout.Nodeadm, systemd.Nodeadm, "multi-user.target"
}

func wants(target, unit string) string {
	return "/etc/systemd/system/" + target + ".wants/" + filepath.Base(unit)
}

// disable lets go of the other unit: two would be at work on one node.
func (o Options) disable() ([]Change, error) {
	unit, _, target := Options{AfterScripts: !o.AfterScripts}.unit()
	path := wants(target, unit)
	host, err := o.Root.Target(path)
	if err == nil {
		err = os.Remove(host)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fault.New(fault.Disk, "", "%s: %w", path, err)
	}
	return []Change{{path, "unlink"}}, nil
}

// place brings an entry into the image, if it is not there already.
func (o Options) place(e entry) ([]Change, error) {
	host, err := o.Root.Target(e.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(host)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return nil, err
	}
	if e.link == "" && e.data == nil {
		if !absent && info.IsDir() {
			return nil, nil
		}
		return []Change{{e.path, "create"}}, atomicfile.MkdirAll(host, e.mode)
	}
	if err := atomicfile.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		return nil, err
	}
	if e.link != "" {
		return o.placeLink(e, host, info)
	}
	change := Change{e.path, "create"}
	if !absent {
		old, err := os.ReadFile(host)
		if err == nil && info.Mode().IsRegular() && bytes.Equal(old, e.data) && info.Mode().Perm() == e.mode {
			return nil, nil
		}
		change.Action = "update"
	}
	return []Change{change}, atomicfile.Replace(host, e.data, e.mode)
}

// placeLink makes a link. A file that stands in its place is somebody else's
// work, such as the script that nodeadm stands in for, and is kept beside it.
func (o Options) placeLink(e entry, host string, info fs.FileInfo) (changes []Change, err error) {
	if info != nil {
		if to, err := os.Readlink(host); err == nil && to == e.link {
			return nil, nil
		}
		if info.Mode().IsRegular() {
			kept := host + ".before-nodeadm"
			if _, err := os.Lstat(kept); err == nil {
				return nil, fmt.Errorf("%s is a file, and what stood there before is already kept as %s: remove one of them", e.path, filepath.Base(kept))
			}
			if err := os.Link(host, kept); err != nil {
				return nil, err
			}
			changes = append(changes, Change{e.path, "keep as " + filepath.Base(kept)})
		}
	}
	// Beside its place and then renamed: a link has no moment of absence either.
	beside := filepath.Join(filepath.Dir(host), atomicfile.Prefix+filepath.Base(host))
	os.Remove(beside)
	err = os.Symlink(e.link, beside)
	if err == nil {
		err = atomicfile.InheritContext(beside)
	}
	if err != nil {
		return changes, err
	}
	return append(changes, Change{e.path, "link"}), os.Rename(beside, host)
}
