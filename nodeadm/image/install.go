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
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
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
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return nil, fault.New(fault.Disk, "run nodeadm from a file that can be read", "%w", err)
	}
	v := askVersions(ctx, o.Root)
	if v.kubelet == "" {
		return nil, fault.New(fault.Usage, versionRemedy("kubelet", v.kubeletErr), "%w", v.kubeletErr)
	}
	if v.containerd == "" && (!v.dockershim(o.Root) || errors.Is(v.containerdErr, fs.ErrPermission)) {
		return nil, fault.New(fault.Usage, versionRemedy("containerd", v.containerdErr), "%w", v.containerdErr)
	}
	if masked(o.Root, o.unitName()) {
		return nil, fault.New(fault.Usage, "run systemctl unmask "+o.unitName()+", with --root for an image that is mounted", "%s%s is masked: nodeadm would not run at boot", unitDir, o.unitName())
	}
	entries := o.contents(program, v)
	changes, err := removeAll(o.Root, unfinished(o.Root, entries))
	if err != nil {
		return changes, err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return changes, fault.New(fault.Disk, "run it again: what is in place stays", "stopped before all was installed: %w", ctx.Err())
		}
		done, err := o.place(e)
		changes = append(changes, done...)
		if err != nil {
			return changes, fault.New(fault.Disk, "mend that and run it again: what is in place stays", "%w", err)
		}
	}
	gone, err := removeAll(o.Root, o.superseded(v))
	return append(changes, gone...), err
}

// removeAll removes files and links.
func removeAll(root rootfs.Root, paths []string) (changes []Change, err error) {
	for _, path := range paths {
		host, err := root.Target(path)
		if err == nil {
			err = os.Remove(host)
		}
		if err != nil {
			return changes, fault.New(fault.Disk, "remove it", "%s: %w", path, err)
		}
		action := "remove"
		if strings.Contains(path, ".wants/") || strings.Contains(path, ".requires/") {
			action = "unlink"
		}
		changes = append(changes, Change{path, action})
	}
	return changes, nil
}

// unfinished are files that an install which was killed had not put in place.
func unfinished(root rootfs.Root, entries []entry) (paths []string) {
	for _, e := range entries {
		found, _ := root.Glob(filepath.Dir(e.path) + "/" + atomicfile.Unfinished) // what cannot be read is refused where it is written to
		for _, path := range found {
			if isFile(root, path) && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// superseded is what an earlier install, an earlier nodeadm or AWS's own left in
// the way of what is installed now.
func (o Options) superseded(v versions) (paths []string) {
	paths = predecessors(o.Root)
	other := Options{Root: o.Root, AfterScripts: !o.AfterScripts}
	_, _, target := other.unit()
	// Two units would be at work on one node.
	if path := wants(target, other.unitName()); link(o.Root, path) != "" {
		paths = append(paths, path)
	}
	// systemd takes /etc's unit, however old, before the package's.
	if unit, _, _ := o.unit(); o.packaged() != "" && isFile(o.Root, unit) {
		paths = append(paths, unit)
	}
	runtime := layout.DockerService
	if v.containerd == "" {
		runtime = layout.ContainerdService
		if o.Root.Exists(layout.ContainerdVersion) {
			paths = append(paths, layout.ContainerdVersion)
		}
	}
	if path := inRuntimeSlice(runtime); isFile(o.Root, path) {
		if data, err := o.Root.ReadFile(path); err == nil && string(data) == systemd.InRuntimeSlice {
			paths = append(paths, path)
		}
	}
	return paths
}

// isFile tells of a regular file, links in its place not followed.
func isFile(root rootfs.Root, path string) bool {
	host, err := root.Resolve(path, false)
	if err != nil {
		return false
	}
	info, err := os.Lstat(host)
	return err == nil && info.Mode().IsRegular()
}

// masked tells whether somebody decided that a unit is not to run: a link to
// /dev/null, or an empty file.
func masked(root rootfs.Root, unit string) bool {
	if link(root, unitDir+unit) == "/dev/null" {
		return true
	}
	data, err := root.ReadFile(unitDir + unit)
	return err == nil && len(data) == 0 && isFile(root, unitDir+unit)
}

// contents is all that an image gets, in order.
func (o Options) contents(program []byte, v versions) []entry {
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
		text(layout.KubeletVersion, v.kubelet+"\n"),
	}
	runtime := layout.DockerService
	if v.containerd != "" { // an image with dockerd has none
		runtime = layout.ContainerdService
		entries = append(entries, text(layout.ContainerdVersion, v.containerd+"\n"))
	}
	entries = append(entries, text(layout.RuntimeSlice, systemd.RuntimeSlice), text(inRuntimeSlice(runtime), systemd.InRuntimeSlice))
	// In place of the package's preset of the same name, if there is one.
	preset := systemd.Preset
	if o.AfterScripts {
		preset = systemd.PresetAfterScripts
	}
	entries = append(entries, text(layout.Preset, preset))
	unit, data, target := o.unit()
	if packaged := o.packaged(); packaged != "" {
		unit = packaged
	} else {
		entries = append(entries, text(unit, data))
	}
	return append(entries, entry{path: wants(target, unit), link: unit})
}

// packaged is where a package has put the unit, "" where none has.
func (o Options) packaged() string {
	var paths []string
	for _, dir := range unitPackages {
		paths = append(paths, dir+o.unitName())
	}
	return o.Root.FirstExisting(paths...)
}

// inRuntimeSlice is the drop-in of a container runtime's unit, under the name
// that it has on Amazon Linux.
func inRuntimeSlice(runtime string) string { return unitDir + runtime + ".d/00-runtime-slice.conf" }

// unit is the unit that makes nodes, what it says, and the target that wants it.
func (o Options) unit() (path, data, target string) {
	if o.AfterScripts {
		return layout.NodeadmAfterScripts, systemd.NodeadmAfterScripts, "cloud-init.target"
	}
	return layout.Nodeadm, systemd.Nodeadm, "multi-user.target"
}

func wants(target, unit string) string {
	return unitDir + target + ".wants/" + filepath.Base(unit)
}

func (o Options) unitName() string {
	path, _, _ := o.unit()
	return filepath.Base(path)
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
		// Looked at first: reading a pipe may never end.
		if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
			return nil, inTheWay(e.path, info)
		}
		if info.Mode().IsRegular() && info.Mode().Perm() == e.mode && ours(info) {
			if old, err := os.ReadFile(host); err == nil && bytes.Equal(old, e.data) {
				return nil, nil
			}
		}
		change.Action = "update"
	}
	return []Change{change}, replace(host, e)
}

// replace writes a file that belongs to whoever installs, which is root.
func replace(host string, e entry) error {
	staged, err := atomicfile.Stage(host, e.data, e.mode, &atomicfile.Owner{UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		return err
	}
	if err := staged.Commit(); err != nil {
		staged.Discard()
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(host))
}

func inTheWay(path string, info fs.FileInfo) error {
	what := "a special file"
	if info.IsDir() {
		what = "a directory"
	}
	return fault.New(fault.Disk, "move it away and run it again: what is in place stays", "%s is %s, where nodeadm puts a file", path, what)
}

// placeLink makes a link. A file that stands in its place is somebody else's
// work, such as the script that nodeadm stands in for, and is kept beside it.
func (o Options) placeLink(e entry, host string, info fs.FileInfo) (changes []Change, err error) {
	if info != nil {
		if to, err := os.Readlink(host); err == nil && to == e.link {
			return nil, nil
		}
		switch {
		case info.Mode().IsRegular():
			kept := e.path + ".before-nodeadm"
			if isFile(o.Root, kept) && o.equal(e.path, kept) {
				break // a package has written it once more
			}
			if _, err := os.Lstat(host + ".before-nodeadm"); err == nil {
				return nil, fmt.Errorf("%s is a file, and another that stood there before is already kept as %s: remove one of them", e.path, filepath.Base(kept))
			}
			if err := os.Link(host, host+".before-nodeadm"); err != nil {
				return nil, err
			}
			changes = append(changes, Change{e.path, "keep as " + filepath.Base(kept)})
		case info.Mode()&fs.ModeSymlink == 0:
			return nil, inTheWay(e.path, info)
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
	if err := os.Rename(beside, host); err != nil {
		os.Remove(beside)
		return changes, err
	}
	return append(changes, Change{e.path, "link"}), nil
}

// equal tells of two files that have the same content.
func (o Options) equal(a, b string) bool {
	first, err := o.Root.ReadFile(a)
	second, errSecond := o.Root.ReadFile(b)
	return err == nil && errSecond == nil && bytes.Equal(first, second)
}
