package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Finding is something that an image lacks, or has too much of.
type Finding struct {
	// Name is the check's, and does not change from release to release.
	Name   string `json:"name"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// check is one look at an image. It returns what is wrong, "" if nothing is.
type check struct {
	name string
	look func(rootfs.Root, versions) (what, remedy string)
}

// checks are all of them, in the order of what depends on what.
var checks = []check{
	{"kubelet", checkKubelet},
	{"container-runtime", checkRuntime},
	{"runc", program("runc", "install runc: containerd starts every container with it", "/usr/bin/runc", "/usr/sbin/runc", "/usr/local/bin/runc", "/usr/local/sbin/runc")},
	{"cni-loopback", program("the CNI plugin loopback", "install the CNI plugins (containernetworking-plugins) into /opt/cni/bin: containerd makes no sandbox without it, and aws-node brings only its own", "/opt/cni/bin/loopback")},
	{"ca-certificates", anyOf("a bundle of certificate authorities", "install ca-certificates: AWS's APIs are asked over TLS", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")},
	{"mount", program("mount", "install util-linux: kubelet mounts volumes with it", "/usr/bin/mount", "/bin/mount")},
	{"kernel-modules", checkModules},
	{"program", checkProgram},
	{"directories", checkDirectories},
	{"unit", checkUnit},
	{"runtime-slice", checkSlice},
	{"recorded-versions", checkVersions},
	{"kernel-settings", checkSettings},
	{"kubelet-enabled", checkKubeletEnabled},
	{"local-disks", checkDisks},
}

// Check finds all that a node would lack. It changes nothing.
// The image's nodeadm is compared with o.Program, unless that is "".
func Check(ctx context.Context, o Options) []Finding {
	var findings []Finding
	v := askVersions(ctx, o.Root) // once: a program that does not answer takes its time
	v.self = o.Program
	for _, c := range checks {
		if what, remedy := c.look(o.Root, v); what != "" {
			findings = append(findings, Finding{c.name, what, remedy})
		}
	}
	return findings
}

// anyOf wants one of several files, with something in it.
func anyOf(what, remedy string, paths ...string) func(rootfs.Root, versions) (string, string) {
	return func(root rootfs.Root, _ versions) (string, string) {
		path := root.FirstExisting(paths...)
		if path == "" {
			return fmt.Sprintf("%s is missing: none of %s exists", what, strings.Join(paths, ", ")), remedy
		}
		if info, err := stat(root, path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return path + " is empty, or not a file", remedy
		}
		return "", ""
	}
}

// program wants one that this architecture can run, the first of those that are
// there.
func program(what, remedy string, paths ...string) func(rootfs.Root, versions) (string, string) {
	there := executable(what, remedy, paths...)
	return func(root rootfs.Root, v versions) (string, string) {
		if what, remedy := there(root, v); what != "" {
			return what, remedy
		}
		path := root.FirstExisting(paths...)
		if machineOf(root, path) == 0 {
			return path + " is no program", remedy
		}
		return foreign(root, path), remedy
	}
}

// executable wants a file that may be run, the first of those that are there.
func executable(what, remedy string, paths ...string) func(rootfs.Root, versions) (string, string) {
	there := anyOf(what, remedy, paths...)
	return func(root rootfs.Root, v versions) (string, string) {
		if what, remedy := there(root, v); what != "" {
			return what, remedy
		}
		path := root.FirstExisting(paths...)
		if info, err := stat(root, path); err != nil || info.Mode().Perm()&0o111 == 0 {
			return path + " is not executable", "chmod 0755 " + path
		}
		return "", ""
	}
}

func stat(root rootfs.Root, path string) (fs.FileInfo, error) {
	host, err := root.Resolve(path, true)
	if err != nil {
		return nil, err
	}
	return os.Stat(host)
}

const otherBuild = "install one that is built for the architecture of the image"

func checkKubelet(root rootfs.Root, v versions) (string, string) {
	if v.kubelet == "" {
		return v.kubeletErr.Error(), versionRemedy("kubelet", v.kubeletErr)
	}
	if what := foreign(root, root.FirstExisting("/usr/bin/kubelet", "/usr/local/bin/kubelet")); what != "" {
		return what, otherBuild
	}
	parsed, err := kubelet.ParseVersion(v.kubelet)
	if err != nil || parsed.Major != 1 || parsed.Minor < kubelet.Oldest || parsed.Minor > kubelet.Newest {
		return fmt.Sprintf("kubelet %s is not supported", v.kubelet), fmt.Sprintf("use a kubelet from 1.%d to 1.%d", kubelet.Oldest, kubelet.Newest)
	}
	return "", ""
}

// checkRuntime looks for containerd with a unit; kubelets that still have
// dockershim may do with dockerd.
func checkRuntime(root rootfs.Root, v versions) (string, string) {
	unit := func(name string) bool {
		return root.FirstExisting(unitDir+name, "/usr/lib/systemd/system/"+name, "/lib/systemd/system/"+name, "/usr/local/lib/systemd/system/"+name) != ""
	}
	runtime := layout.ContainerdService
	containerd := root.FirstExisting("/usr/bin/containerd", "/usr/local/bin/containerd")
	switch {
	case v.dockershim(root) && unit(layout.DockerService):
		runtime = layout.DockerService
	case containerd == "":
		return "containerd is missing", "install containerd"
	case v.containerd == "":
		return v.containerdErr.Error(), versionRemedy("containerd", v.containerdErr)
	case foreign(root, containerd) != "":
		return foreign(root, containerd), otherBuild
	case masked(root, layout.ContainerdService): // also where there is no /dev
	case !unit(layout.ContainerdService):
		return "containerd has no " + layout.ContainerdService, "install its unit into /usr/lib/systemd/system"
	}
	if masked(root, runtime) {
		return unitDir + runtime + " is masked", "systemctl unmask " + runtime
	}
	return "", ""
}

// neededModules are what a node needs of its kernel, built in or not.
var neededModules = []string{"overlay", "veth", "nf_conntrack"}

// checkModules looks at every kernel of the image: which one boots is decided
// elsewhere.
func checkModules(root rootfs.Root, _ versions) (string, string) {
	const remedy = "install the kernel's package with all of its modules, such as kernel-modules-extra or linux-modules"
	const dir = "/lib/modules"
	kernels, err := root.Glob(dir + "/*/modules.dep")
	if err != nil {
		return err.Error(), remedy
	}
	if len(kernels) == 0 {
		return dir + " holds no modules of any kernel", remedy
	}
	for _, dep := range kernels {
		var missing []string
		for _, module := range neededModules {
			if !lists(root, dep, module) && !lists(root, filepath.Join(filepath.Dir(dep), "modules.builtin"), module) {
				missing = append(missing, module)
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("the kernel %s has no module %s", filepath.Base(filepath.Dir(dep)), strings.Join(missing, ", ")), remedy
		}
	}
	return barred(root, append(slices.Clone(neededModules), "br_netfilter")), "take that line out"
}

// lists tells whether a list of modules, one path a line, names one.
func lists(root rootfs.Root, file, module string) bool {
	for _, line := range lines(root, file) {
		path, _, _ := strings.Cut(line, ":")
		name, _, _ := strings.Cut(filepath.Base(path), ".ko")
		if strings.ReplaceAll(name, "-", "_") == module {
			return true
		}
	}
	return false
}

const again = "run nodeadm image install"

func link(root rootfs.Root, path string) string {
	host, err := root.Resolve(path, false)
	if err != nil {
		return ""
	}
	to, _ := os.Readlink(host)
	return to
}

// installed are the options that an image was installed with, as its links tell.
func installed(root rootfs.Root) Options {
	before, after := Options{Root: root}, Options{Root: root, AfterScripts: true}
	_, _, target := before.unit()
	if link(root, wants(target, before.unitName())) != "" {
		return before
	}
	_, _, target = after.unit()
	after.AfterScripts = link(root, wants(target, after.unitName())) != ""
	return after
}

// unlike compares an image's entries with what install would put there.
func unlike(root rootfs.Root, v versions, concerns func(entry) bool) string {
	for _, e := range installed(root).contents(nil, v) {
		if !concerns(e) {
			continue
		}
		info, err := stat(root, e.path)
		switch {
		case err != nil:
			return e.path + " is missing"
		case e.data == nil && !info.IsDir():
			return e.path + " is not a directory"
		case e.data == nil:
			continue
		}
		if data, err := root.ReadFile(e.path); err != nil || !bytes.Equal(data, e.data) {
			return e.path + " is not as nodeadm image install writes it"
		}
	}
	return ""
}

func checkDirectories(root rootfs.Root, v versions) (string, string) {
	return unlike(root, v, func(e entry) bool { return e.mode.Perm() == 0o755 && e.path != layout.Program }), again
}

// checkSlice: kubelet's own configuration names the control group.
func checkSlice(root rootfs.Root, v versions) (string, string) {
	return unlike(root, v, func(e entry) bool {
		known := v.containerd != "" || v.dockershim(root) // or another check says so
		return e.path == layout.RuntimeSlice || known && strings.HasSuffix(e.path, ".d/00-runtime-slice.conf")
	}), again
}

// checkUnit wants one of the two units at boot, and that it can be loaded.
func checkUnit(root rootfs.Root, v versions) (string, string) {
	var enabled []string
	for _, after := range []bool{false, true} {
		o := Options{Root: root, AfterScripts: after}
		unit, _, target := o.unit()
		path := wants(target, unit)
		if link(root, path) == "" {
			continue
		}
		switch {
		case masked(root, o.unitName()):
			return unit + " is masked: nodeadm does not run at boot", "systemctl unmask " + o.unitName() + ", then " + again
		case o.packaged() != "" && isFile(root, unit):
			return unit + " stands in the way of the package's: systemd takes it, however old it is", again + ", which removes it"
		case !root.Exists(path):
			return path + " leads to nothing", again
		case after && !cloudInit(root):
			return o.unitName() + " waits for cloud-init, which is not on the image or switched off", "run nodeadm image install without --after-user-scripts, or switch cloud-init on"
		}
		enabled = append(enabled, o.unitName())
	}
	switch len(enabled) {
	case 0:
		return "nothing runs nodeadm at boot, unless user data calls it", again
	case 2:
		return "both " + strings.Join(enabled, " and ") + " run nodeadm at boot", again + ", which enables one of them"
	}
	if links := predecessors(root); len(links) > 0 {
		return strings.Join(links, ", ") + ": enabled for AWS's nodeadm, with which this one shares its path and not its flags", again + ", which removes the links"
	}
	return unlike(root, v, func(e entry) bool {
		return e.path == layout.Preset || e.path == layout.Nodeadm || e.path == layout.NodeadmAfterScripts
	}), again
}

// cloudInit tells whether cloud-init runs at boot, as far as that can be seen in
// an image: the kernel's command line can switch it off too.
func cloudInit(root rootfs.Root) bool {
	return root.FirstExisting("/usr/bin/cloud-init", "/usr/local/bin/cloud-init") != "" && !root.Exists("/etc/cloud/cloud-init.disabled")
}

// checkVersions compares what is recorded with what the programs say: a boot
// believes the record.
func checkVersions(root rootfs.Root, asked versions) (string, string) {
	for _, v := range []struct{ file, said string }{{layout.KubeletVersion, asked.kubelet}, {layout.ContainerdVersion, asked.containerd}} {
		recorded, err := root.ReadFile(v.file)
		if v.said == "" {
			continue // another check says so
		}
		if errors.Is(err, fs.ErrNotExist) {
			return v.file + " is missing: every boot pages in the program to ask it", again
		}
		if have := strings.TrimPrefix(strings.TrimSpace(string(recorded)), "v"); have != strings.TrimPrefix(v.said, "v") {
			return fmt.Sprintf("%s says %s, and the program %s", v.file, have, v.said), again
		}
	}
	return "", ""
}

// checkSettings wants every line of install's, and that no file which is read
// later says otherwise; a run may have written more.
func checkSettings(root rootfs.Root, v versions) (string, string) {
	have := settings(root)
	for _, e := range installed(root).contents(nil, v) {
		if !slices.Contains([]string{layout.SysctlConfig, layout.NetworkSysctl, layout.ModulesLoad}, e.path) {
			continue
		}
		data, err := root.ReadFile(e.path)
		if errors.Is(err, fs.ErrNotExist) {
			return e.path + " is missing", again
		}
		has := strings.Split(string(data), "\n")
		for _, line := range strings.Split(string(e.data), "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if !slices.Contains(has, line) {
				return fmt.Sprintf("%s does not say %s", e.path, line), again
			}
			name, value, found := strings.Cut(line, " = ")
			if last := have[settingName(name)]; found && last.value != value {
				return last.file + " says " + name + " = " + last.value + ", and is read after " + e.path, "take that out of " + last.file + ", or make it " + value
			}
		}
	}
	return "", ""
}

// checkDisks: a boot would wait for disks that went with their instance.
func checkDisks(root rootfs.Root, _ versions) (string, string) {
	units, err := diskUnits(root)
	if err != nil {
		return err.Error(), "mend that"
	}
	if len(units) > 0 {
		return strings.Join(units, ", ") + ": filesystems of the instance that the image was made on", "run nodeadm image clean"
	}
	return "", ""
}

// checkKubeletEnabled: kubelet that starts before nodeadm has been there fails,
// and what it logs misleads. One that is masked never starts.
func checkKubeletEnabled(root rootfs.Root, _ versions) (string, string) {
	if masked(root, layout.KubeletService) {
		return unitDir + layout.KubeletService + " is masked: nodeadm cannot start kubelet", "systemctl unmask " + layout.KubeletService
	}
	if links := enabling(root, layout.KubeletService); len(links) > 0 && !root.Exists(layout.Kubeconfig) {
		return strings.Join(links, ", ") + ": kubelet is enabled, and there is no kubeconfig: it would start before nodeadm has made one", "systemctl disable " + layout.KubeletService + "; nodeadm enables it"
	}
	return "", ""
}
