package facts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// containerdTemplate is where AL2 images keep their containerd configuration;
// user data edits it before calling bootstrap.sh.
const containerdTemplate = "/etc/eks/containerd/containerd-config.toml"

// Where programs may be, best first.
var (
	kubeletPaths            = []string{"/usr/bin/kubelet", "/usr/local/bin/kubelet"}
	containerdPaths         = []string{"/usr/bin/containerd", "/usr/local/bin/containerd"}
	credentialProviderPaths = []string{"/etc/eks/image-credential-provider/ecr-credential-provider"}
	nodeadmPaths            = []string{"/usr/bin/nodeadm", "/usr/local/bin/nodeadm"}
	nvidiaRuntimePaths      = []string{"/usr/bin/nvidia-container-runtime", "/usr/local/bin/nvidia-container-runtime"}
	neuronRuntimePaths      = []string{"/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh"}
)

// CredentialPlugins are the programs that can make kubelet's tokens for the API
// server, best first.
var CredentialPlugins = []string{"nodeadm", "aws-iam-authenticator", "aws"}

// HostRequest says which host to look at.
type HostRequest struct {
	Root rootfs.Root
	// KubeletVersion, if set, is used instead of asking the image.
	KubeletVersion string
	// ContainerdConfigFile, if set, must exist.
	ContainerdConfigFile string
	// ContainerdVersion does the same for containerd.
	ContainerdVersion string
	// Machine, if set, stands for the hardware and kernel this runs on.
	Machine *Machine
	// CredentialPlugin is one of CredentialPlugins, or "" for the best one that is
	// installed. Self is the path of this program on the node, "" in an image.
	CredentialPlugin, Self string
	// Simulated: nothing of the image is there, and it is taken to hold the
	// programs that a node needs.
	Simulated bool
	// Own are the files that nodeadm wrote; Before is what it remembers of those
	// that others may change too. RanBefore: there was a run.
	Own       map[string]bool
	Before    map[string]*ownership.State
	RanBefore bool
	// Partial: nothing is going to be started, so an image without kubelet or
	// containerd is only warned about, as long as kubelet's version is known.
	Partial bool
}

// GatherHost reads the machine and the image. It starts no process unless the
// version of kubelet or containerd is recorded nowhere.
func GatherHost(ctx context.Context, r HostRequest) (h Host, warnings []string, err error) {
	if h.Machine = thisMachine(); r.Machine != nil {
		h.Machine = *r.Machine
	}
	h.Partial = r.Partial
	h.NVIDIARuntime = r.Root.FirstExisting(nvidiaRuntimePaths...)
	h.NeuronRuntime = r.Root.FirstExisting(neuronRuntimePaths...)
	h.SOCIUnits, h.Unpigz = sociUnits(r), r.Root.FirstExisting("/usr/bin/unpigz")
	h.SystemdMountsBPF = systemdVersion(r.Root) >= 238
	h.StubResolver = stubResolver(r.Root)
	if !r.Root.Live() && r.Machine == nil {
		h.KernelDefaults, h.Swap = false, "" // it is not this machine's kernel that will run the image
	}
	h.OwnSysctls, h.OwnBPFMount = r.Own[layout.SysctlConfig], r.Own[layout.BPFMountUnit]
	h.KubeletPath = r.Root.FirstExisting(kubeletPaths...)
	h.TokenProgram, h.TokenProgramAbsent = tokenProgram(r)
	h.CredentialProvider = r.Root.FirstExisting(credentialProviderPaths...)
	h.Nodeadm = nodeadmProgram(r)
	if r.Simulated {
		h.KubeletPath, h.TokenProgramAbsent, h.Nodeadm = kubeletPaths[0], false, nodeadmPaths[0]
	}

	if h.Kubelet, err = kubeletVersion(ctx, r); err != nil {
		return h, nil, err
	}
	h.Containerd, h.ContainerdUnknown = containerdVersion(ctx, r)
	if h.KubeletPath == "" {
		h.KubeletPath = kubeletPaths[0]
		if !r.Partial {
			return h, nil, fault.New(fault.Usage, "install kubelet", "%s does not exist", h.KubeletPath)
		}
		warnings = append(warnings, "kubelet is not installed at "+h.KubeletPath)
	}
	if h.KubeletUnit, err = imageUnit(r.Root, r.Own); err != nil {
		return h, nil, err
	}
	if h.HostsFile, err = readIfPresent(r.Root, layout.HostsFile); err != nil {
		return h, nil, err
	}
	h.Live, h.Before, h.Private, h.RanBefore = map[string][]byte{}, r.Before, map[string]fs.FileMode{}, r.RanBefore
	for _, path := range append(slices.Sorted(maps.Keys(r.Before)), layout.KubeletConfig, layout.ContainerdConfig, layout.SOCIConfig, layout.KubeletArgs, layout.KubeletExtraArgs, layout.CredentialProvider) {
		data, err := readIfPresent(r.Root, path)
		if err != nil {
			return h, nil, err
		}
		if data == nil {
			continue
		}
		h.Live[path] = data
		host, err := r.Root.Resolve(path, true)
		if err != nil {
			return h, nil, err
		}
		if info, err := os.Stat(host); err == nil && info.Mode().Perm()&0o004 == 0 {
			h.Private[path] = info.Mode().Perm()
		}
	}
	h.ContainerdTemplate, err = findContainerdTemplate(r)
	return h, warnings, err
}

// sociUnits finds the units of the SOCI snapshotter. Some images start it with
// the socket that systemd opens for it, which then has to be there first.
func sociUnits(r HostRequest) (units []string) {
	if !r.Simulated && r.Root.FirstExisting("/usr/bin/soci-snapshotter-grpc", "/usr/local/bin/soci-snapshotter-grpc") == "" {
		return nil
	}
	for _, name := range []string{"soci-snapshotter.socket", "soci-snapshotter.service"} {
		if r.Simulated || slices.ContainsFunc(unitDirs, func(dir string) bool { return r.Root.Exists(dir + "/" + name) }) {
			units = append(units, name)
		}
	}
	return units
}

// tokenProgram finds the program that makes kubelet's tokens. Where there is
// none, the answer is where one should be.
func tokenProgram(r HostRequest) (path string, absent bool) {
	plugins := CredentialPlugins
	if r.CredentialPlugin != "" {
		plugins = []string{r.CredentialPlugin}
	}
	for _, name := range plugins {
		path := ""
		if name == CredentialPlugins[0] {
			path = nodeadmProgram(r)
		} else {
			path = r.Root.FirstExisting("/usr/bin/"+name, "/usr/local/bin/"+name)
		}
		if path != "" {
			return path, false
		}
	}
	return "/usr/bin/" + plugins[0], true
}

// nodeadmProgram finds this program as kubelet can call it. Under the name of a
// script that it stands in for it takes no commands.
func nodeadmProgram(r HostRequest) string {
	places := nodeadmPaths
	if r.Self != "" && !strings.HasSuffix(r.Self, ".sh") {
		places = append(slices.Clip(places), r.Self)
	}
	return r.Root.FirstExisting(places...)
}

// maxFile bounds what is read of any file of the node, in bytes.
const maxFile = 4 << 20

func readIfPresent(root rootfs.Root, path string) ([]byte, error) {
	host, err := root.Resolve(path, true)
	if err != nil {
		return nil, fault.New(fault.Disk, "look at the directories on the way to it", "read %s: %w", path, err)
	}
	info, err := os.Stat(host)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	// Reading anything but a file may never end.
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		return nil, fault.New(fault.Disk, "put a regular file of at most 4 MiB there", "%s is not a regular file, or too large", path)
	}
	data, err := os.ReadFile(host)
	if err != nil {
		return nil, fault.New(fault.Disk, "run nodeadm as root", "%w", err)
	}
	return data, nil
}

func findContainerdTemplate(r HostRequest) (*Document, error) {
	path := r.ContainerdConfigFile
	if path == "" {
		data, err := readIfPresent(r.Root, containerdTemplate)
		if data == nil || err != nil {
			return nil, err
		}
		return &Document{containerdTemplate, data}, nil
	}
	data, err := readIfPresent(r.Root, path)
	if data == nil && err == nil && !r.Root.Live() {
		// Somebody who prepares an image from outside may name a file of theirs.
		data, err = readIfPresent("/", path)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "name a regular file of at most 4 MiB", "--containerd-config-file: %w", err)
	}
	if data == nil {
		return nil, fault.New(fault.Usage, "name a containerd configuration that exists on the node", "--containerd-config-file: %s does not exist", path)
	}
	return &Document{path, data}, nil
}

func kubeletVersion(ctx context.Context, r HostRequest) (kubelet.Version, error) {
	const remedy = "install kubelet on the image, or name its version with --kubelet-version"
	said, source := r.KubeletVersion, "--kubelet-version"
	if said == "" {
		recorded, err := readIfPresent(r.Root, layout.KubeletVersion)
		if err != nil {
			return kubelet.Version{}, err
		}
		said, source = strings.TrimSpace(string(recorded)), layout.KubeletVersion
	}
	if said == "" {
		out, path, err := askVersion(ctx, r.Root, kubeletPaths)
		if err != nil {
			return kubelet.Version{}, fault.New(fault.Usage, remedy, "version of kubelet: %w", err)
		}
		said, source = out, path+" --version"
	}
	v, err := kubelet.ParseVersion(said)
	if err != nil {
		return v, fault.New(fault.Usage, "write a Kubernetes version such as 1.34.4", "%s: %w", source, err)
	}
	if v.Minor < kubelet.Oldest || v.Minor > kubelet.Newest || v.Major != 1 {
		return v, fault.New(fault.Usage, fmt.Sprintf("use a kubelet from 1.%d to 1.%d", kubelet.Oldest, kubelet.Newest),
			"%s: kubelet %s is not supported", source, v)
	}
	return v, nil
}

var containerdVersionPattern = regexp.MustCompile(`(?:^|[^\d.])v?(\d+\.\d+\.\d+)`)

func containerdVersion(ctx context.Context, r HostRequest) (string, error) {
	if r.ContainerdVersion != "" {
		return r.ContainerdVersion, nil
	}
	said, err := readIfPresent(r.Root, layout.ContainerdVersion)
	if err != nil {
		return "", err
	}
	if len(bytes.TrimSpace(said)) == 0 {
		out, _, err := askVersion(ctx, r.Root, containerdPaths)
		if err != nil {
			return "", fault.New(fault.Usage, "install containerd", "version of containerd: %w", err)
		}
		said = []byte(out)
	}
	m := containerdVersionPattern.FindSubmatch(said)
	if m == nil {
		return "", fault.New(fault.Usage, "record it in "+layout.ContainerdVersion, "version of containerd: none in %q", strings.TrimSpace(string(said)))
	}
	return string(m[1]), nil
}

// Versions asks the programs of an image for their versions, whatever is
// recorded there. What cannot be found out is an error, and the other one is
// still told.
func Versions(ctx context.Context, root rootfs.Root) (kubeletVersion, containerdVersion string, err error) {
	said, path, kubeletErr := askVersion(ctx, root, kubeletPaths)
	if kubeletErr == nil {
		v, err := kubelet.ParseVersion(said)
		if kubeletVersion = v.String(); err != nil {
			kubeletVersion, kubeletErr = "", fmt.Errorf("%s --version: %w", path, err)
		}
	}
	said, path, containerdErr := askVersion(ctx, root, containerdPaths)
	if containerdErr == nil {
		if m := containerdVersionPattern.FindStringSubmatch(said); m != nil {
			containerdVersion = m[1]
		} else {
			containerdErr = fmt.Errorf("%s --version: no version in %q", path, strings.TrimSpace(said))
		}
	}
	return kubeletVersion, containerdVersion, errors.Join(kubeletErr, containerdErr)
}

// askVersion runs a program of the image with --version.
func askVersion(ctx context.Context, root rootfs.Root, paths []string) (out, path string, err error) {
	path = root.FirstExisting(paths...)
	if path == "" {
		return "", "", fmt.Errorf("%s does not exist", paths[0])
	}
	program, err := root.Resolve(path, true)
	if err != nil {
		return "", path, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // a cold EBS volume pages slowly
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second // what a script has started holds on to the output
	answer, err := cmd.Output()
	if err != nil {
		return "", path, fmt.Errorf("%s --version: %w", path, err)
	}
	return string(answer), path, nil
}

// Where systemd looks for units and their drop-ins, first wins.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// imageUnit finds what the image itself makes of kubelet.service: the command
// line (the last ExecStart= of unit and drop-ins in systemd's order) and the
// file it stands in. What nodeadm wrote does not count.
func imageUnit(root rootfs.Root, own map[string]bool) (*KubeletUnit, error) {
	var found *KubeletUnit
	var environment []string
	dropIns := map[string]string{}
	for _, dir := range unitDirs {
		path := dir + "/" + layout.KubeletService
		data, err := foreignFile(root, path, own)
		if err != nil {
			return nil, err
		}
		if found == nil && data != nil {
			found = &KubeletUnit{Path: path}
			if lines := directives(data, "ExecStart"); len(lines) > 0 {
				found.Exec = lines[len(lines)-1]
			}
			environment = directives(data, "EnvironmentFile")
		}
		host, err := root.Resolve(path+".d", true)
		if err != nil {
			return nil, fault.New(fault.Disk, "", "look for drop-ins of %s: %w", layout.KubeletService, err)
		}
		files, _ := filepath.Glob(filepath.Join(host, "*.conf"))
		for _, f := range files {
			name := filepath.Base(f)
			if _, hidden := dropIns[name]; !hidden {
				dropIns[name] = path + ".d/" + name
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		path := dropIns[name]
		if path == layout.KubeletArgs || path == layout.KubeletExtraArgs {
			continue
		}
		data, err := foreignFile(root, path, own)
		if err != nil {
			return nil, err
		}
		if lines := directives(data, "ExecStart"); len(lines) > 0 {
			found = &KubeletUnit{Path: path, Exec: lines[len(lines)-1]}
		}
		if name < filepath.Base(layout.KubeletArgs) { // which can only take back what comes before it
			environment = append(environment, directives(data, "EnvironmentFile")...)
		}
	}
	if found != nil {
		found.missEnvironment(root, environment)
	}
	return found, nil
}

// missEnvironment looks for a file that systemd would insist on. Names with
// specifiers or patterns are taken to be right.
func (u *KubeletUnit) missEnvironment(root rootfs.Root, given []string) {
	for i := slices.Index(given, ""); i >= 0; i = slices.Index(given, "") {
		given = given[i+1:] // an empty one takes those before it back
	}
	gone := func(file string) bool {
		return !strings.HasPrefix(file, "-") && !strings.ContainsAny(file, "%*?[") && !root.Exists(file)
	}
	if i := slices.IndexFunc(given, gone); i >= 0 {
		u.MissingEnvironment = given[i]
		u.Environment = slices.DeleteFunc(given, gone)
	}
}

// foreignFile reads a file unless it is not there or nodeadm's own.
func foreignFile(root rootfs.Root, path string, own map[string]bool) ([]byte, error) {
	if own[path] {
		return nil, nil
	}
	return readIfPresent(root, path)
}

// directives are the values of a directive in [Service], in order, read as
// leniently as systemd does.
func directives(unit []byte, name string) (values []string) {
	section, continued := "", ""
	for raw := range strings.Lines(string(unit)) {
		text := strings.TrimSpace(raw)
		if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
			continue // within a continued line too
		}
		if rest, more := strings.CutSuffix(text, "\\"); more {
			continued += rest + " "
			continue
		}
		text, continued = continued+text, ""
		if strings.HasPrefix(text, "[") {
			section = text
		}
		key, value, found := strings.Cut(text, "=")
		if found && section == "[Service]" && strings.TrimSpace(key) == name {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// systemdVersion is the version of the image's systemd, 0 where it is unknown.
// Since 2017 it is in the name of systemd's own library, so that nothing has to
// be run to know it; Amazon Linux 2 has an older one, without that library.
func systemdVersion(root rootfs.Root) int {
	newest := 0
	for _, dir := range []string{"/usr/lib/systemd", "/usr/lib64/systemd", "/lib/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd"} {
		host, err := root.Resolve(dir, true)
		if err != nil {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(host, "libsystemd-shared-*.so"))
		for _, path := range found {
			name := strings.TrimPrefix(filepath.Base(path), "libsystemd-shared-")
			number := name[:len(name)-len(strings.TrimLeft(name, "0123456789"))]
			if version, err := strconv.Atoi(number); err == nil {
				newest = max(newest, version)
			}
		}
	}
	return newest
}

// stubResolver tells whether /etc/resolv.conf is systemd-resolved's with the stub
// listener's address. In an image what the link leads to may not be there.
func stubResolver(root rootfs.Root) bool {
	const path = "/etc/resolv.conf"
	if host, err := root.Resolve(path, false); err == nil {
		if to, err := os.Readlink(host); err == nil {
			return strings.HasSuffix(to, "/run/systemd/resolve/stub-resolv.conf") || strings.HasSuffix(to, "/lib/systemd/resolv.conf")
		}
	}
	text, _ := root.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "nameserver" && words[1] == "127.0.0.53" {
			return true
		}
	}
	return false
}

func thisMachine() Machine {
	fips, _ := os.ReadFile("/proc/sys/crypto/fips_enabled") // absent without FIPS support
	mounts, _ := os.ReadFile("/proc/mounts")
	memory, _ := os.ReadFile("/proc/meminfo")
	swaps, _ := os.ReadFile("/proc/swaps") // absent in kernels without swap
	return Machine{
		CPUs:   onlineCPUs("/sys/devices/system/cpu/online"),
		NVIDIA: hasPCI(pciDevices, "0x10de"),
		Neuron: hasPCI(pciDevices, "0x1d0f", neuronDevices...),
		FIPS:   strings.TrimSpace(string(fips)) == "1",
		BPFFS:  mountsBPF(mounts),

		MemoryMiB: memoryMiB(memory),
		Swap:      swapsTo(swaps),
		SELinux:   rootfs.Root("/").Exists("/sys/fs/selinux/enforce"),

		KernelDefaults: hasKernelDefaults("/proc/sys"),
	}
}

// hasKernelDefaults tells whether the kernel is set as kubelet insists on.
func hasKernelDefaults(dir string) bool {
	for name, want := range kubelet.KernelDefaults {
		value, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(name, ".", "/")))
		if err != nil || strings.TrimSpace(string(value)) != want {
			return false
		}
	}
	return true
}

// onlineCPUs counts the processors in a list such as "0-3,5". Where that
// cannot be read, Go's own count stands in.
func onlineCPUs(path string) int {
	list, err := os.ReadFile(path)
	if err != nil {
		return runtime.NumCPU()
	}
	count := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || to < from {
			return runtime.NumCPU()
		}
		count += to - from + 1
	}
	return count
}

// pciDevices has a folder for each PCI device of this machine.
const pciDevices = "/sys/bus/pci/devices"

// neuronDevices are the PCI ids of Inferentia and Trainium chips. Amazon makes
// every other device of an instance too, so that its vendor id says nothing.
var neuronDevices = []string{
	"0x7064", "0x7065", "0x7066", "0x7067", // Inferentia
	"0x7164",           // Trainium
	"0x7264",           // Inferentia2
	"0x7364",           // Trainium2
	"0x7564", "0x7565", // Trainium3
}

// hasPCI tells whether there is a device of a vendor, and of one of the given
// ids if there are any.
func hasPCI(devices, vendor string, ids ...string) bool {
	folders, _ := filepath.Glob(filepath.Join(devices, "*"))
	return slices.ContainsFunc(folders, func(folder string) bool {
		read := func(name string) string {
			id, _ := os.ReadFile(filepath.Join(folder, name)) // a device that has just gone has none
			return strings.TrimSpace(string(id))
		}
		return read("vendor") == vendor && (len(ids) == 0 || slices.Contains(ids, read("device")))
	})
}

// memoryMiB reads the first line of /proc/meminfo, 0 if it is none.
func memoryMiB(meminfo []byte) int {
	fields := strings.Fields(string(meminfo))
	if len(fields) < 2 || fields[0] != "MemTotal:" {
		return 0
	}
	kib, _ := strconv.Atoi(fields[1]) // 0 if it is none
	return kib / 1024
}

// swapsTo reads the first entry of /proc/swaps, which begins with a heading.
func swapsTo(swaps []byte) string {
	_, entries, _ := strings.Cut(string(swaps), "\n")
	name, _, _ := strings.Cut(entries, " ")
	name, _, _ = strings.Cut(name, "\t")
	return name
}

func mountsBPF(mounts []byte) bool {
	for line := range bytes.Lines(mounts) {
		if f := strings.Fields(string(line)); len(f) > 2 && f[2] == "bpf" {
			return true
		}
	}
	return false
}
