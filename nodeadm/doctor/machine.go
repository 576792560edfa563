package doctor

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/nodeadm/image"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// machineChecks ask about the machine and its kernel.
var machineChecks = []Check{
	{Name: "filesystem-writable", Question: "Can files be written where a node's are?", look: filesystemWritable,
		Explanation: "nodeadm, kubelet and containerd write below these directories. Linux mounts a filesystem with errors read-only; images with a read-only root need writable mounts here."},
	{Name: "disk-space", Question: "Is there room where kubelet and containerd keep their data?", look: diskSpace,
		Explanation: "Below the thresholds of evictionHard in kubelet's configuration (10 % of the node's and 15 % of the images' filesystem, unless set) the node has DiskPressure: kubelet removes images, evicts pods and takes no new ones. On a full disk nodeadm cannot write either."},
	{Name: "disk-inodes", Question: "Are there inodes left?", look: diskInodes,
		Explanation: "A filesystem without free inodes takes no new file, however much room there is. evictionHard counts them as nodefs.inodesFree (5 % unless set)."},
	{Name: "swap", Question: "Is swap off, if kubelet insists on that?", look: unlessItRuns(swap),
		Explanation: "kubelet does not start while swap is on, unless failSwapOn is false in its configuration."},
	{Name: "cgroup-version", Question: "Does kubelet run with this version of cgroups?", look: unlessItRuns(cgroupVersion),
		Explanation: "From 1.35 on kubelet refuses cgroups v1 unless failCgroupV1 is false. The kernel's command line and the distribution decide which version there is."},
	{Name: "kernel-modules", Question: "Has the kernel what containers need?", look: kernelModules,
		Explanation: "containerd unpacks images with overlay; pods are connected by veth, and kube-proxy follows connections with nf_conntrack. Kernels of minimal images have them in a package of their own."},
	{Name: "kernel-settings", Question: "Are the kernel's settings those that kubelet insists on?", look: unlessItRuns(kernelSettings),
		Explanation: "With protectKernelDefaults kubelet compares some sysctls with what it would set, and does not start if they differ. Pods need net.ipv4.ip_forward, which containerd's CNI plugins turn on and files in /etc/sysctl.d may turn off again."},
	{Name: "kernel-limits", Question: "Does the kernel allow for enough processes and watches?", look: kernelLimits,
		Explanation: "Each container takes processes, open files and inotify instances of the node's. \"too many open files\" of kubelet is often fs.inotify.max_user_instances."},
	{Name: "memory-reserved", Question: "Is memory left for pods?", look: unlessItRuns(memoryReserved),
		Explanation: "What kubelet reserves for itself and the system (kubeReserved, systemReserved, evictionHard) is taken from what pods get. With more reserved than there is, kubelet does not start."},
	{Name: "exec-allowed", Question: "Can kubelet and the container runtime be executed?", look: execAllowed,
		Explanation: "A program that is missing, not executable, for another architecture or on a filesystem mounted noexec ends with status 203/EXEC in systemd. SELinux and fapolicyd can refuse it too: see the audit log."},
}

// unlessItRuns is a check of what kubelet is said not to start with: one that
// has started knows better.
func unlessItRuns(look func(context.Context, *patient) Finding) func(context.Context, *patient) Finding {
	return func(ctx context.Context, p *patient) Finding {
		f := look(ctx, p)
		if f.Status != Failed {
			return f
		}
		state, err := p.unit(ctx, layout.KubeletService)
		if err == nil && state.Active == "active" && (state.ActiveFor > restartsAfter || state.Restarts == 0 && state.ActiveFor > startsWithin) {
			f.Status = Warning
			f.Summary += "; the one that runs does not mind"
		}
		return f
	}
}

// startsWithin is how long it takes kubelet to find out that it cannot start.
const startsWithin = 5 * time.Second

// dataDirs are where a node's data goes.
var dataDirs = []string{"/etc", "/var/lib", "/var/lib/kubelet", "/var/lib/containerd", "/var/log", "/run"}

// statfs looks at the filesystem of a directory, or of the nearest one above it
// that exists.
func (p *patient) statfs(dir string) (s unix.Statfs_t, err error) {
	for ; ; dir = path.Dir(dir) {
		if err = unix.Statfs(p.host(dir), &s); err == nil || dir == "/" {
			return s, err
		}
	}
}

func filesystemWritable(_ context.Context, p *patient) Finding {
	for _, dir := range dataDirs {
		s, err := p.statfs(dir)
		if err != nil {
			return failed("see dmesg for errors of the disk", "the filesystem of %s does not answer: %v", dir, err)
		}
		if s.Flags&unix.ST_RDONLY != 0 {
			return failed("see dmesg for why; if the disk is sound: mount -o remount,rw", "the filesystem of %s is read-only", dir)
		}
	}
	return ok("all of %s can be written to", strings.Join(dataDirs, ", "))
}

// leastBytes is what nodeadm needs to write anything, whatever the thresholds are.
const leastBytes = 8 << 20

func diskSpace(_ context.Context, p *patient) Finding {
	var evidence []string
	for _, dir := range dataDirs {
		s, err := p.statfs(dir)
		if err != nil || s.Blocks == 0 {
			continue
		}
		free, size := s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)
		seen := fmt.Sprintf("%s: %s of %s free (%.0f %%)", dir, bytesOf(free), bytesOf(size), 100*float64(free)/float64(size))
		evidence = append(evidence, seen)
		remedy := "make room: crictl rmi --prune, journalctl --vacuum-size=100M; du -xh -d2 " + dir + " | sort -h shows what takes it. Or give the instance a larger volume"
		if least := p.threshold(dir, "available", size); free < least {
			return failed(remedy, "%s is full: %s of %s are free, and kubelet evicts pods below %s", dir, bytesOf(free), bytesOf(size), bytesOf(least)).seen(seen)
		}
		if free < leastBytes {
			return failed(remedy, "%s is full: %s are free", dir, bytesOf(free)).seen(seen)
		}
	}
	return ok("there is room").seen(evidence...)
}

// bytesOf is a number of bytes as people read it.
func bytesOf(n uint64) string {
	for _, unit := range []struct {
		name string
		size uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// threshold is what has to be free of a filesystem so that kubelet does not
// evict pods: its signals nodefs and imagefs, kind "available" or "inodesFree".
func (p *patient) threshold(dir, kind string, size uint64) uint64 {
	signal, standard := "", ""
	switch dir {
	case "/var/lib/kubelet":
		signal, standard = "nodefs."+kind, map[string]string{"available": "10%", "inodesFree": "5%"}[kind]
	case "/var/lib/containerd":
		signal, standard = "imagefs."+kind, map[string]string{"available": "15%", "inodesFree": "5%"}[kind]
	default:
		return 0
	}
	value := standard
	// Where the configuration has thresholds, those are all there are.
	if c, err := p.kubelet(); err == nil && c.EvictionHard != nil {
		value = c.EvictionHard[signal]
	}
	return uint64(amount(value, float64(size)))
}

// amount is what a threshold of evictionHard comes to: a quantity, or a share.
func amount(value string, size float64) float64 {
	if percent, found := strings.CutSuffix(value, "%"); found {
		share, _ := strconv.ParseFloat(percent, 64)
		return share / 100 * size
	}
	n, _ := quantity(value)
	return n
}

// quantity reads a quantity of Kubernetes, such as 100Mi.
func quantity(s string) (float64, bool) {
	s = strings.Trim(s, `"`)
	factor := 1.0
	for _, unit := range []struct {
		suffix string
		factor float64
	}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"m", 1e-3}} {
		if number, found := strings.CutSuffix(s, unit.suffix); found {
			s, factor = number, unit.factor
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	return n * factor, err == nil
}

func diskInodes(_ context.Context, p *patient) Finding {
	for _, dir := range dataDirs {
		s, err := p.statfs(dir)
		if err != nil || s.Files == 0 { // filesystems such as btrfs do not count
			continue
		}
		if least := p.threshold(dir, "inodesFree", s.Files); s.Ffree < max(least, 64) {
			return failed("remove what has many small files: du --inodes -x -d2 "+dir+" | sort -h shows where they are", "%s has no inodes left: %d of %d are free, %d are needed", dir, s.Ffree, s.Files, max(least, 64))
		}
	}
	return ok("there are inodes")
}

func swap(_ context.Context, p *patient) Finding {
	c, err := p.kubelet()
	if err != nil && !absent(err) {
		return skipped("kubelet's configuration cannot be read")
	}
	if err == nil && c.FailSwapOn != nil && !*c.FailSwapOn {
		return skipped("kubelet runs with swap: failSwapOn is false")
	}
	var devices []string
	for _, line := range lines(p.text("/proc/swaps")) {
		if device := strings.Fields(line)[0]; device != "Filename" {
			devices = append(devices, device)
		}
	}
	if len(devices) > 0 {
		return failed("turn it off (swapoff --all) and take it out of /etc/fstab or mask its unit; or set failSwapOn: false in kubelet's configuration", "swap is on (%s), and kubelet does not start with it", strings.Join(devices, ", "))
	}
	return ok("swap is off")
}

const cgroup2Magic = 0x63677270

func cgroupVersion(_ context.Context, p *patient) Finding {
	var s unix.Statfs_t
	if err := unix.Statfs(p.host("/sys/fs/cgroup"), &s); err != nil {
		return failed("mount the cgroup filesystem, as systemd does", "there are no cgroups: %v", err)
	}
	if s.Type == cgroup2Magic {
		return ok("cgroups are of version 2")
	}
	version, err := p.version()
	if err != nil {
		return skipped("kubelet's version is not known: %v", err)
	}
	c, err := p.kubelet()
	fails := true
	switch wanted, unknown := p.wanted(); {
	case err == nil:
		fails = c.FailCgroupV1 == nil || *c.FailCgroupV1
	case !absent(err) || unknown != nil:
		return skipped("kubelet's configuration is not known")
	default:
		fails = wanted.Kubelet.Config["failCgroupV1"] != false
	}
	if version.Minor < 35 || !fails {
		return ok("cgroups are of version 1, which kubelet %s takes", version)
	}
	return failed("boot with systemd.unified_cgroup_hierarchy=1, or use an image with cgroups of version 2; or set failCgroupV1: false in kubelet's configuration", "cgroups are of version 1, and kubelet %s does not start with them", version)
}

// modules are what is looked for in the running kernel, and where it shows that
// it is there.
var modules = map[string]string{"overlay": "/proc/filesystems"}

func kernelModules(_ context.Context, p *patient) Finding {
	for module, list := range modules {
		if !strings.Contains(p.text(list), module) && !p.loadable(module) {
			return failed("install the kernel's package with all of its modules, such as kernel-modules-extra or linux-modules-extra, for "+release(), "the running kernel has no %s", module)
		}
	}
	return ok("the running kernel has what containers need")
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "the running kernel"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// loadable tells whether a module can be loaded when it is needed.
func (p *patient) loadable(module string) bool {
	dir := "/lib/modules/" + release()
	for _, list := range []string{"/modules.dep", "/modules.builtin"} {
		if strings.Contains(p.text(dir+list), "/"+module+".ko") {
			return true
		}
	}
	return false
}

func kernelSettings(_ context.Context, p *patient) Finding {
	if p.configured() && strings.TrimSpace(p.text("/proc/sys/net/ipv4/ip_forward")) == "0" {
		return warning("sysctl -w net.ipv4.ip_forward=1, and see which file in /etc/sysctl.d says otherwise", "net.ipv4.ip_forward is 0: pods reach nothing outside of the node over IPv4")
	}
	c, err := p.kubelet()
	if err != nil || !c.ProtectKernelDefaults {
		return skipped("kubelet does not insist on settings of the kernel")
	}
	for name, want := range kubelet.KernelDefaults {
		if have := strings.TrimSpace(p.text("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))); have != "" && have != want {
			return failed(fmt.Sprintf("sysctl -w %s=%s, and see which file in /etc/sysctl.d says otherwise", name, want), "%s is %s, and kubelet wants it to be %s", name, have, want)
		}
	}
	return ok("the kernel's settings are those that kubelet wants")
}

func kernelLimits(_ context.Context, p *patient) Finding {
	for _, limit := range []struct {
		name  string
		least int
	}{{"kernel.pid_max", 32768}, {"fs.inotify.max_user_instances", 128}, {"fs.inotify.max_user_watches", 8192}} {
		have, err := strconv.Atoi(strings.TrimSpace(p.text("/proc/sys/" + strings.ReplaceAll(limit.name, ".", "/"))))
		if err == nil && have < limit.least {
			return warning(fmt.Sprintf("raise it in /etc/sysctl.d: %s = %d", limit.name, limit.least), "%s is %d, less than any distribution's default", limit.name, have)
		}
	}
	if f := strings.Fields(p.text("/proc/sys/fs/file-nr")); len(f) == 3 {
		open, _ := strconv.ParseFloat(f[0], 64)
		most, _ := strconv.ParseFloat(f[2], 64)
		if most > 0 && open > 0.95*most {
			return warning("find who holds them: lsof | awk '{print $1}' | sort | uniq -c | sort -n", "%s of %s open files are in use", f[0], f[2])
		}
	}
	return ok("limits are as usual")
}

func memoryReserved(_ context.Context, p *patient) Finding {
	c, err := p.kubelet()
	if err != nil {
		return skipped("there is no kubelet configuration")
	}
	var total float64
	for _, line := range lines(p.text("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			total = kib * 1024
		}
	}
	kube, _ := quantity(string(c.KubeReserved["memory"]))
	system, _ := quantity(string(c.SystemReserved["memory"]))
	evict := amount(c.EvictionHard["memory.available"], total)
	reserved := kube + system + evict
	evidence := fmt.Sprintf("kubeReserved %s, systemReserved %s, evictionHard %s, memory %s", bytesOf(uint64(kube)), bytesOf(uint64(system)), bytesOf(uint64(evict)), bytesOf(uint64(total)))
	if total > 0 && reserved >= total {
		return failed("use a larger instance type, lower max pods, or set kubeReserved.memory", "%s of memory are reserved, and there are only %s", bytesOf(uint64(reserved)), bytesOf(uint64(total))).seen(evidence)
	}
	return ok("%s of %s of memory are left for pods", bytesOf(uint64(total-reserved)), bytesOf(uint64(total))).seen(evidence)
}

func execAllowed(ctx context.Context, p *patient) Finding {
	for _, finding := range image.Check(ctx, image.Options{Root: p.Root}) {
		switch finding.Name {
		case "kubelet", "container-runtime", "runc":
			return failed(finding.Remedy, "%s", finding.What)
		}
	}
	for _, program := range []string{"/usr/bin/kubelet", "/usr/local/bin/kubelet", "/usr/bin/containerd", "/usr/local/bin/containerd"} {
		info, err := os.Stat(p.host(program))
		if err != nil {
			continue
		}
		if info.Mode()&0o111 == 0 {
			return failed("chmod 755 "+program, "%s is not executable", program)
		}
		if s, err := p.statfs(program); err == nil && s.Flags&unix.ST_NOEXEC != 0 {
			return failed("mount -o remount,exec the filesystem of "+program+", and mend /etc/fstab", "%s is on a filesystem that is mounted noexec", program)
		}
	}
	return ok("kubelet and the container runtime are there")
}

// absentFiles are those of kubelet's files that are not there yet.
func (p *patient) absentFiles() (missing []string) {
	if !p.Root.Exists(layout.KubeletConfig) {
		missing = append(missing, layout.KubeletConfig)
	}
	if !p.Root.Exists(layout.Kubeconfig) && !p.Root.Exists(layout.BootstrapKubeconfig) {
		missing = append(missing, layout.Kubeconfig)
	}
	return missing
}
