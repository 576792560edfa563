package image

import (
	"bufio"
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
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
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
	look func(context.Context, rootfs.Root) (what, remedy string)
}

// checks are all of them, in the order of what depends on what.
var checks = []check{
	{"kubelet", checkKubelet},
	{"container-runtime", checkRuntime},
	{"runc", anyOf("runc", "install runc: containerd starts every container with it", "/usr/bin/runc", "/usr/sbin/runc", "/usr/local/bin/runc", "/usr/local/sbin/runc")},
	{"cni-loopback", anyOf("the CNI plugin loopback", "install the CNI plugins (containernetworking-plugins) into /opt/cni/bin: containerd makes no sandbox without it, and aws-node brings only its own", "/opt/cni/bin/loopback")},
	{"ca-certificates", anyOf("a bundle of certificate authorities", "install ca-certificates: AWS's APIs are asked over TLS", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")},
	{"mount", anyOf("mount", "install util-linux: kubelet mounts volumes with it", "/usr/bin/mount", "/bin/mount")},
	{"kernel-modules", checkModules},
	{"program", checkProgram},
	{"unit", checkUnit},
	{"recorded-versions", checkVersions},
	{"kernel-settings", checkSettings},
	{"kubelet-enabled", checkKubeletEnabled},
}

// Check finds all that a node would lack. It changes nothing.
func Check(ctx context.Context, root rootfs.Root) []Finding {
	var findings []Finding
	for _, c := range checks {
		if what, remedy := c.look(ctx, root); what != "" {
			findings = append(findings, Finding{c.name, what, remedy})
		}
	}
	return findings
}

func anyOf(what, remedy string, paths ...string) func(context.Context, rootfs.Root) (string, string) {
	return func(_ context.Context, root rootfs.Root) (string, string) {
		if root.FirstExisting(paths...) != "" {
			return "", ""
		}
		return fmt.Sprintf("%s is missing: none of %s exists", what, strings.Join(paths, ", ")), remedy
	}
}

func checkKubelet(ctx context.Context, root rootfs.Root) (string, string) {
	const remedy = "install kubelet at /usr/bin/kubelet, for the image's architecture"
	said, _, err := facts.Versions(ctx, root)
	if said == "" {
		what, _, _ := strings.Cut(err.Error(), "\n") // what is wrong with containerd comes after it
		return what, remedy
	}
	v, err := kubelet.ParseVersion(said)
	if err != nil || v.Major != 1 || v.Minor < kubelet.Oldest || v.Minor > kubelet.Newest {
		return fmt.Sprintf("kubelet %s is not supported", said), fmt.Sprintf("use a kubelet from 1.%d to 1.%d", kubelet.Oldest, kubelet.Newest)
	}
	return "", ""
}

// checkRuntime looks for containerd with a unit; kubelets that still have
// dockershim may do with dockerd.
func checkRuntime(_ context.Context, root rootfs.Root) (string, string) {
	unit := func(name string) bool {
		return root.Exists("/etc/systemd/system/"+name) || slices.ContainsFunc(append(unitPackages, "/usr/local/lib/systemd/system/"), func(dir string) bool { return root.Exists(dir + name) })
	}
	recorded, _ := root.ReadFile(layout.KubeletVersion)
	v, err := kubelet.ParseVersion(strings.TrimSpace(string(recorded)))
	if err == nil && v.Minor <= 23 && root.FirstExisting("/usr/bin/dockerd") != "" && unit(layout.DockerService) {
		return "", ""
	}
	if root.FirstExisting("/usr/bin/containerd", "/usr/local/bin/containerd") == "" {
		return "containerd is missing", "install containerd"
	}
	if !unit(layout.ContainerdService) {
		return "containerd has no " + layout.ContainerdService, "install its unit into /usr/lib/systemd/system"
	}
	return "", ""
}

// neededModules are what a node needs of its kernel, built in or not.
var neededModules = []string{"overlay", "veth", "nf_conntrack"}

// checkModules looks at every kernel of the image: which one boots is decided
// elsewhere.
func checkModules(_ context.Context, root rootfs.Root) (string, string) {
	const remedy = "install the kernel's package with all of its modules, such as kernel-modules-extra or linux-modules"
	dir := "/lib/modules"
	host, err := root.Resolve(dir, true)
	if err != nil {
		return err.Error(), remedy
	}
	kernels, _ := filepath.Glob(filepath.Join(host, "*", "modules.dep"))
	if len(kernels) == 0 {
		return dir + " holds no modules of any kernel", remedy
	}
	for _, dep := range kernels {
		var missing []string
		for _, module := range neededModules {
			if !lists(dep, module) && !lists(filepath.Join(filepath.Dir(dep), "modules.builtin"), module) {
				missing = append(missing, module)
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("the kernel %s has no module %s", filepath.Base(filepath.Dir(dep)), strings.Join(missing, ", ")), remedy
		}
	}
	return "", ""
}

// lists tells whether a list of modules, one path a line, names one.
func lists(file, module string) bool {
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		path, _, _ := strings.Cut(lines.Text(), ":")
		name, _, _ := strings.Cut(filepath.Base(path), ".ko")
		if strings.ReplaceAll(name, "-", "_") == module {
			return true
		}
	}
	return false
}

const again = "run nodeadm image install"

func checkProgram(_ context.Context, root rootfs.Root) (string, string) {
	if !root.Exists(layout.Program) {
		return layout.Program + " is missing", again
	}
	for _, path := range []string{layout.BootstrapScript, layout.MaxPodsScript} {
		if to := link(root, path); to != layout.Program {
			return path + " does not lead to " + layout.Program + ": user data that calls it does not reach nodeadm", again
		}
	}
	return "", ""
}

func link(root rootfs.Root, path string) string {
	host, err := root.Resolve(path, false)
	if err != nil {
		return ""
	}
	to, _ := os.Readlink(host)
	return to
}

// checkUnit wants one of the two units at boot, and that it can be loaded.
func checkUnit(_ context.Context, root rootfs.Root) (string, string) {
	var enabled []string
	for _, after := range []bool{false, true} {
		unit, _, target := Options{AfterScripts: after}.unit()
		if path := wants(target, unit); link(root, path) != "" {
			if !root.Exists(path) {
				return path + " leads to nothing", again
			}
			if after && !cloudInit(root) {
				return filepath.Base(unit) + " waits for cloud-init, which is not on the image or switched off", "run nodeadm image install without --after-user-scripts, or switch cloud-init on"
			}
			enabled = append(enabled, filepath.Base(unit))
		}
	}
	switch len(enabled) {
	case 0:
		return "nothing runs nodeadm at boot, unless user data calls it", again
	case 2:
		return "both " + strings.Join(enabled, " and ") + " run nodeadm at boot", again + ", which enables one of them"
	}
	return "", ""
}

// cloudInit tells whether cloud-init runs at boot, as far as that can be seen in
// an image: the kernel's command line can switch it off too.
func cloudInit(root rootfs.Root) bool {
	return root.FirstExisting("/usr/bin/cloud-init", "/usr/local/bin/cloud-init") != "" && !root.Exists("/etc/cloud/cloud-init.disabled")
}

// checkVersions compares what is recorded with what the programs say: a boot
// believes the record.
func checkVersions(ctx context.Context, root rootfs.Root) (string, string) {
	kubeletVersion, containerdVersion, _ := facts.Versions(ctx, root)
	for _, v := range []struct{ file, said string }{{layout.KubeletVersion, kubeletVersion}, {layout.ContainerdVersion, containerdVersion}} {
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

func checkSettings(_ context.Context, root rootfs.Root) (string, string) {
	for _, path := range []string{layout.SysctlConfig, layout.NetworkSysctl, layout.ModulesLoad} {
		if !root.Exists(path) {
			return path + " is missing", again
		}
	}
	return "", ""
}

// checkKubeletEnabled: kubelet that starts before nodeadm has been there fails,
// and what it logs misleads.
func checkKubeletEnabled(_ context.Context, root rootfs.Root) (string, string) {
	if link(root, wants("multi-user.target", layout.KubeletService)) != "" && !root.Exists(layout.Kubeconfig) {
		return layout.KubeletService + " is enabled, and there is no kubeconfig: it would start before nodeadm has made one", "systemctl disable " + layout.KubeletService + "; nodeadm enables it"
	}
	return "", ""
}
