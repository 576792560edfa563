package disks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
)

// The tests in this package that need devices have loop devices over sparse
// files, and run in a process of their own: with a mount namespace that ends
// with it and a root of its own, in which the loop devices are the instance
// store volumes and the only disks there are.
const (
	insideVariable = "NODEADM_TEST_LOOP_DEVICES" // their names, with commas
	loopSize       = 512 << 20                   // mkfs.xfs makes none below 300 MB
)

// lab is a root with instance store volumes.
type lab struct {
	t       *testing.T
	loops   []string // such as "loop3"
	manager *mounter
}

// inside runs the calling test once more, in the process that is to have the
// volumes, and tells there what it has. Outside it is nil, and the test has
// ended.
func inside(t *testing.T, volumes int) *lab {
	t.Helper()
	if loops := os.Getenv(insideVariable); loops != "" {
		l := &lab{t: t, loops: strings.Split(loops, ",")}
		l.manager = &mounter{lab: l, services: map[string]string{}}
		l.enter()
		return l
	}
	requireLoopDevices(t)
	var loops []string
	for n := range volumes {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("volume%d", n))
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, loopSize)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
		device := strings.TrimSpace(string(out))
		if err != nil || !strings.HasPrefix(device, "/dev/loop") {
			t.Fatalf("losetup: %v: %s", err, out)
		}
		// The kernel gives it up when it is closed for the last time: also those of a
		// test that is killed.
		open, err := os.Open(device)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { open.Close() })
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Fatalf("losetup --detach %s: %v: %s", device, err, out)
		}
		loops = append(loops, filepath.Base(device))
	}
	// The kernel gives out whichever number is free; volumes are taken by number.
	slices.SortFunc(loops, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Dir = t.TempDir() // the root there
	cmd.Env = append(os.Environ(), insideVariable+"="+strings.Join(loops, ","))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\n--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
	return nil
}

// requireLoopDevices leaves a test out where it cannot run; under CI=true that
// is a failure.
func requireLoopDevices(t *testing.T) {
	t.Helper()
	missing := ""
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = " a kernel with loop devices"
	}
	if filesystems, err := os.ReadFile("/proc/filesystems"); err != nil || !bytes.Contains(filesystems, []byte("\txfs\n")) {
		if exec.Command("modprobe", "xfs").Run() != nil {
			missing += " a kernel with XFS"
		}
	}
	if os.Geteuid() != 0 {
		missing += " root"
	}
	for program, pkg := range map[string]string{"losetup": "mount", "mkfs.xfs": "xfsprogs", "mdadm": "mdadm", "wipefs": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			missing += " " + program + " (apt-get install " + pkg + ")"
		}
	}
	require(t, missing)
}

// require is for what a test needs and does not have; "" if that is nothing.
func require(t *testing.T, missing string) {
	t.Helper()
	switch {
	case missing == "":
	case os.Getenv("CI") == "true":
		t.Fatalf("this cannot run here, and CI=true forbids to skip: it needs%s", missing)
	default:
		t.Skipf("\n*** SKIPPED: %s cannot run here: it needs%s ***", t.Name(), missing)
	}
}

// inUserMode runs the calling test on a kernel of Debian's that has md, as a
// process. It sees this machine's files, and cannot write to them.
func inUserMode(t *testing.T) {
	t.Helper()
	missing := ""
	for program, pkg := range map[string]string{"linux.uml": "user-mode-linux", "insmod": "kmod", "mdadm": "mdadm", "mkfs.xfs": "xfsprogs"} {
		if _, err := exec.LookPath(program); err != nil {
			missing += " " + program + " (apt-get install " + pkg + ")"
		}
	}
	require(t, missing)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	boot := filepath.Join(t.TempDir(), "init")
	script := `#!/bin/sh
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin CI=true TMPDIR=/mnt
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs -o size=1g tmpfs /mnt
mountpoint -q /dev || mount -t devtmpfs dev /dev
for module in loop md-mod raid0 raid10; do
	insmod $(find /usr/lib/uml/modules/$(uname -r) -name $module.ko)
done
cd /mnt
` + self + " -test.v -test.timeout=3m '-test.run=^" + t.Name() + "$'\necho o >/proc/sysrq-trigger\nsleep 60\n"
	if err := os.WriteFile(boot, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "linux.uml", "rootfstype=hostfs", "rootflags=/", "ro", "mem=1536M", "init="+boot, "con=null", "con0=fd:0,fd:1", "quiet")
	// It is several processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, _ := cmd.CombinedOutput() // how a kernel ends says nothing
	if !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("on a kernel in user mode:\n%s", out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// arrays tells whether the kernel has md, which it may have to load first.
func arrays() bool {
	if _, err := os.Stat("/proc/mdstat"); err == nil {
		return true
	}
	_ = exec.Command("modprobe", "--quiet", "md_mod").Run()
	_, err := os.Stat("/proc/mdstat")
	return err == nil
}

// enter makes the root and goes there.
func (l *lab) enter() {
	t := l.t
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Getwd()
	must(err)
	must(unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"))
	for _, dir := range []string{"usr", "bin", "sbin", "lib", "lib64", "proc", "sys"} {
		if to, err := os.Readlink("/" + dir); err == nil {
			must(os.Symlink(to, filepath.Join(root, dir)))
		} else if _, err := os.Stat("/" + dir); err == nil {
			must(os.Mkdir(filepath.Join(root, dir), 0o755))
			must(unix.Mount("/"+dir, filepath.Join(root, dir), "", unix.MS_BIND|unix.MS_REC, ""))
		}
	}
	for _, dir := range []string{"dev", unitDir, "var/lib", "var/log", "run", "tmp", "mnt"} {
		must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(unix.Mount("tmpfs", filepath.Join(root, "dev"), "tmpfs", 0, "mode=755"))
	must(unix.Mknod(filepath.Join(root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	for n := 120; n < 128; n++ { // mdadm takes the last one that is free
		must(unix.Mknod(filepath.Join(root, fmt.Sprintf("dev/md%d", n)), unix.S_IFBLK|0o600, int(unix.Mkdev(9, uint32(n)))))
	}
	for _, dir := range []string{byID, "/dev/disk/by-uuid"} {
		must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for i, loop := range l.loops {
		var s unix.Stat_t
		must(unix.Stat("/dev/"+loop, &s))
		must(unix.Mknod(filepath.Join(root, "dev", loop), unix.S_IFBLK|0o600, int(s.Rdev)))
		link := filepath.Join(root, byID, fmt.Sprintf("nvme-Amazon_EC2_NVMe_Instance_Storage_AWS%d", i+1))
		must(os.Symlink("../../"+loop, link))
		must(os.Symlink("../../"+loop, link+"_1")) // udev makes two
	}
	must(os.Symlink("../../null", filepath.Join(root, byID, "nvme-Amazon_Elastic_Block_Store_vol1")))
	must(unix.Chroot(root))
	must(os.Chdir("/"))
}

func (l *lab) node() Node {
	return Node{Root: "/", Manager: l.manager, Report: func(s string) { l.t.Log(s) }}
}

func (l *lab) run(w Wanted) (steps []string, err error) {
	d, err := l.node().Run(context.Background(), w)
	for _, s := range d.Steps {
		steps = append(steps, s.String())
	}
	return steps, err
}

// wantRun wants a run to do these steps, and a preview to have said so; the
// instance's volumes are D1, D2 and so on.
func (l *lab) wantRun(w Wanted, want ...string) {
	l.t.Helper()
	for i := range want {
		for n, loop := range l.loops {
			want[i] = strings.ReplaceAll(want[i], fmt.Sprintf("D%d", n+1), "/dev/"+loop)
		}
	}
	preview, err := l.node().Preview(context.Background(), w)
	if err != nil {
		l.t.Fatal(err)
	}
	steps, err := l.run(w)
	if err != nil {
		l.t.Fatal(err)
	}
	if !slices.Equal(steps, want) || len(preview.Steps) != len(steps) {
		l.t.Fatalf("steps\n%s\nwant\n%s\nand the preview was\n%v", strings.Join(steps, "\n"), strings.Join(want, "\n"), preview.Steps)
	}
}

// written tells how much was ever written to each of the volumes.
func (l *lab) written() (sectors []string) {
	for _, loop := range l.loops {
		data, err := os.ReadFile("/sys/class/block/" + loop + "/stat")
		if err != nil {
			l.t.Fatal(err)
		}
		sectors = append(sectors, loop+": "+strings.Fields(string(data))[6])
	}
	return sectors
}

func (l *lab) write(path, text string) {
	l.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) want(path, text string) {
	l.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		l.t.Errorf("%s: %q, %v, want %q", path, got, err, text)
	}
}

func (l *lab) wantNone(path string) {
	l.t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("%s is there: %v", path, err)
	}
}

// device is the number of the device that a file is on.
func (l *lab) device(path string) uint64 {
	l.t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		l.t.Fatal(err)
	}
	return s.Dev
}

func (l *lab) command(name string, args ...string) {
	l.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// powerOff leaves what a machine has on its disks when it is switched off.
func (l *lab) powerOff() {
	l.t.Helper()
	mounts, err := l.node().mounts()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Where, "/mnt/") || strings.HasPrefix(m.Where, "/var/") {
			if err := unix.Unmount(m.Where, 0); err != nil {
				l.t.Fatalf("%s: %v", m.Where, err)
			}
		}
	}
}

// mounter stands for systemd and udev: it mounts by the units that are there.
type mounter struct {
	lab      *lab
	services map[string]string // active states
	calls    []string
	read     map[string]string // units as they were at the last reload
}

func (m *mounter) call(verb, unit string) { m.calls = append(m.calls, verb+" "+unit) }

func (m *mounter) Reload(context.Context) error {
	m.call("reload", "units")
	m.read = map[string]string{}
	files, err := filepath.Glob(unitDir + "*.mount")
	for _, file := range files {
		data, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		m.read[filepath.Base(file)] = string(data)
	}
	return err
}

func (m *mounter) Enable(_ context.Context, units ...string) error {
	for _, unit := range units {
		m.call("enable", unit)
		for line := range strings.Lines(m.read[unit]) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			suffix, found := map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires"}[key]
			if !found {
				continue
			}
			link := unitDir + value + suffix + "/" + unit
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				return err
			}
			if err := os.Symlink("../"+unit, link); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

func (m *mounter) ResetFailed(_ context.Context, unit string) error {
	m.call("reset-failed", unit)
	return nil
}

func (m *mounter) Start(_ context.Context, unit string) error {
	m.call("start", unit)
	text, isMount := m.read[unit]
	if !isMount {
		m.services[unit] = "active"
		return nil
	}
	set := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		set[key] = value
	}
	mounts, err := m.lab.node().mounts()
	if err != nil || slices.ContainsFunc(mounts, func(o Mount) bool { return o.Where == set["Where"] }) {
		return err
	}
	devices, _ := filepath.Glob("/sys/class/block/md*")
	for _, device := range append(devices, m.lab.loops...) {
		device = "/dev/" + filepath.Base(device)
		out, _ := exec.Command("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device).Output()
		if uuid := strings.TrimSpace(string(out)); uuid != "" {
			link := "/dev/disk/by-uuid/" + uuid
			_ = os.Remove(link) // an array may come back under another number
			_ = os.Symlink(device, link)
		}
	}
	if err := os.MkdirAll(set["Where"], 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-t", set["Type"], "-o", set["Options"], set["What"], set["Where"]).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

func (m *mounter) Stop(_ context.Context, unit string) error {
	m.call("stop", unit)
	m.services[unit] = "inactive"
	return nil
}

func (m *mounter) State(_ context.Context, unit string) (systemd.State, error) {
	if active, found := m.services[unit]; found {
		return systemd.State{Load: "loaded", Active: active}, nil
	}
	return systemd.State{Load: "not-found", Active: "inactive"}, nil
}

// One volume: raid0 makes a plain filesystem of it, and the node's data goes there.
func TestLoopRaid0OfOne(t *testing.T) {
	l := inside(t, 1)
	if l == nil {
		return
	}
	raid0 := Wanted{Strategy: "raid0", Disabled: []string{"SOCI"}}
	mounts := []string{"mount D1: at /mnt/k8s-disks/0", "move /var/lib/kubelet: to /mnt/k8s-disks/0/kubelet",
		"move /var/lib/containerd: to /mnt/k8s-disks/0/containerd", "move /var/log/pods: to /mnt/k8s-disks/0/pods"}
	all := append([]string{"format D1: xfs, label k8s-disk-0"}, mounts...)
	l.write("/var/lib/kubelet/config", "kubelet's")
	l.write("/var/lib/containerd/a", "a layer")
	l.write("/mnt/k8s-disks/0/other", "hidden by the mount")
	if err := errors.Join(
		os.Chmod("/var/lib/kubelet", 0o750),
		os.Link("/var/lib/containerd/a", "/var/lib/containerd/b"),
		unix.Mknod("/var/lib/containerd/whiteout", unix.S_IFCHR, 0),
	); err != nil {
		t.Fatal(err)
	}
	l.manager.services["kubelet.service"], l.manager.services["containerd.service"] = "activating", "active"
	root, before := l.device("/var/lib/kubelet"), l.written()

	if _, err := l.node().Preview(context.Background(), raid0); err != nil {
		t.Fatal(err)
	}
	if after := l.written(); !slices.Equal(before, after) || len(l.manager.calls) > 0 {
		t.Fatalf("a preview has done something: %v, before %v; %v", after, before, l.manager.calls)
	}

	l.wantRun(raid0, all...)
	volume := l.device("/mnt/k8s-disks/0")
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods"} {
		if device := l.device(dir); device == root || device != volume {
			t.Errorf("%s is on device %x, the root disk is %x and the volume %x", dir, device, root, volume)
		}
	}
	l.wantNone("/var/lib/soci-snapshotter")
	l.want("/var/lib/kubelet/config", "kubelet's")
	var a, b, whiteout, dir unix.Stat_t
	if err := errors.Join(unix.Stat("/var/lib/containerd/a", &a), unix.Stat("/var/lib/containerd/b", &b), unix.Stat("/var/lib/containerd/whiteout", &whiteout), unix.Stat("/var/lib/kubelet", &dir)); err != nil {
		t.Fatal(err)
	}
	if a.Ino != b.Ino || whiteout.Mode&unix.S_IFMT != unix.S_IFCHR || dir.Mode&0o777 != 0o750 {
		t.Errorf("inodes %d and %d, modes %o and %o", a.Ino, b.Ino, whiteout.Mode, dir.Mode)
	}
	calls := strings.Join(l.manager.calls, "\n")
	for _, want := range []string{"stop kubelet.service\nreload", "stop containerd.service\nreload", "start containerd.service\nstart kubelet.service"} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q is not in\n%s", want, calls)
		}
	}
	if _, err := os.Lstat(unitDir + "kubelet.service.requires/var-lib-kubelet.mount"); err != nil {
		t.Error(err)
	}

	l.manager.calls = nil
	l.wantRun(raid0)
	if len(l.manager.calls) > 0 {
		t.Errorf("a second run called %v", l.manager.calls)
	}

	// What came later is not replaced by what stayed on the root disk.
	l.write("/var/lib/kubelet/config", "newer")
	l.powerOff()
	l.want("/var/lib/kubelet/config", "kubelet's")
	l.want("/mnt/k8s-disks/0/other", "hidden by the mount")
	l.wantRun(raid0, slices.Clone(mounts)...)
	l.want("/var/lib/kubelet/config", "newer")
	l.wantRun(raid0)

	// A run that was killed while it copied.
	if err := errors.Join(unix.Unmount("/var/log/pods", 0), os.Rename("/mnt/k8s-disks/0/pods", "/mnt/k8s-disks/0/pods.copying")); err != nil {
		t.Fatal(err)
	}
	l.write("/mnt/k8s-disks/0/pods.copying/half", "half")
	l.write("/var/log/pods/log", "line")
	l.wantRun(raid0, "move /var/log/pods: to /mnt/k8s-disks/0/pods")
	l.want("/var/log/pods/log", "line")
	l.wantNone("/var/log/pods/half")

	// The instance was stopped: the volume is another one, and empty.
	l.powerOff()
	l.command("wipefs", "--quiet", "--all", "/dev/"+l.loops[0])
	l.wantRun(raid0, slices.Clone(all)...)
	l.wantRun(raid0)

	// A pod runs by what is below the directory that would be moved.
	l.powerOff()
	l.command("mkdir", "-p", "/var/lib/kubelet/pods/1/volume")
	l.command("mount", "-t", "tmpfs", "tmpfs", "/var/lib/kubelet/pods/1/volume")
	if steps, err := l.run(raid0); err == nil || !strings.Contains(err.Error(), "/var/lib/kubelet is in use: /var/lib/kubelet/pods/1/volume") || len(steps) > 0 {
		t.Errorf("%v, %v", steps, err)
	}
}

func TestLoopMount(t *testing.T) {
	l := inside(t, 3)
	if l == nil {
		return
	}
	mount := Wanted{Strategy: "mount", Path: "/mnt/my-disks/"}
	third := filepath.Join(byID, "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS3")
	if err := errors.Join(os.Remove(third), os.Remove(third+"_1")); err != nil {
		t.Fatal(err)
	}
	l.wantRun(mount, "format D1: xfs, label k8s-disk-1", "mount D1: at /mnt/my-disks/1", "format D2: xfs, label k8s-disk-2", "mount D2: at /mnt/my-disks/2")
	if a, b := l.device("/mnt/my-disks/1"), l.device("/mnt/my-disks/2"); a == b {
		t.Errorf("both are device %x", a)
	}
	l.manager.calls = nil
	l.wantRun(mount)
	if len(l.manager.calls) > 0 {
		t.Errorf("a second run called %v", l.manager.calls)
	}
	l.write("/mnt/my-disks/1/data", "of the first")
	l.write("/mnt/my-disks/2/data", "of the second")
	l.wantNone("/var/lib/kubelet")

	l.powerOff()
	if err := os.Symlink("../../"+l.loops[2], third); err != nil {
		t.Fatal(err)
	}
	l.wantRun(mount, "mount D1: at /mnt/my-disks/1", "mount D2: at /mnt/my-disks/2", "format D3: xfs, label k8s-disk-3", "mount D3: at /mnt/my-disks/3")
	l.want("/mnt/my-disks/1/data", "of the first")
	l.want("/mnt/my-disks/2/data", "of the second")

	l.command("umount", "/mnt/my-disks/2")
	l.wantRun(mount, "mount D2: at /mnt/my-disks/2")
	if err := os.Remove(unitDir + `multi-user.target.wants/mnt-my\x2ddisks-1.mount`); err != nil {
		t.Fatal(err)
	}
	l.wantRun(mount, "mount D1: at /mnt/my-disks/1")
	l.wantRun(mount)
}

// Nothing is written anywhere while a single device holds something else.
func TestLoopRefused(t *testing.T) {
	l := inside(t, 2)
	if l == nil {
		return
	}
	second := "/dev/" + l.loops[1]
	nothing := func() {}
	for _, test := range []struct {
		name string
		put  func() (undo func())
		want string
	}{
		{"ext4", func() func() { l.command("mke2fs", "-q", "-t", "ext4", "-L", "data", second); return nothing }, ` holds ext4 "data", which nodeadm did not put there`},
		{"mounted", func() func() {
			l.command("mke2fs", "-q", "-t", "ext4", second)
			l.command("mkdir", "-p", "/mnt/data")
			l.command("mount", "-t", "ext4", second, "/mnt/data")
			return func() { l.command("umount", "/mnt/data") }
		}, " holds ext4, mounted at /mnt/data"},
		{"xfs of somebody else", func() func() { l.command("mkfs.xfs", "-q", "-L", "data", second); return nothing }, ` holds xfs "data"`},
		{"swap", func() func() { l.command("mkswap", "-L", "pages", second); return nothing }, ` holds swap "pages"`},
		{"a partition table", func() func() {
			table := make([]byte, 512)
			copy(table[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0})
			table[510], table[511] = 0x55, 0xaa
			if err := writeAt(second, table, 0); err != nil {
				t.Fatal(err)
			}
			return nothing
		}, " holds dos"},
		{"held by a program", func() func() {
			fd, err := unix.Open(second, unix.O_RDONLY|unix.O_EXCL, 0)
			if err != nil {
				t.Fatal(err)
			}
			return func() { unix.Close(fd) }
		}, " is in use by a program or the kernel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			undo := test.put()
			before := l.written()
			for _, strategy := range []string{"mount", "raid0", "raid10"} {
				steps, err := l.run(Wanted{Strategy: strategy})
				if err == nil || !strings.Contains(err.Error(), second+test.want) || len(steps) > 0 {
					t.Errorf("%s: %v, %v, want %s%s", strategy, steps, err, second, test.want)
				}
			}
			if after := l.written(); !slices.Equal(before, after) || len(l.manager.calls) > 0 {
				t.Errorf("something was done: %v, before %v; %v", after, before, l.manager.calls)
			}
			undo()
			l.command("wipefs", "--quiet", "--all", second)
		})
	}
}

// The superblock of an array is read without a kernel that has arrays.
func TestLoopMember(t *testing.T) {
	l := inside(t, 2)
	if l == nil {
		return
	}
	for role, loop := range l.loops {
		if err := writeSuperblock("/dev/"+loop, "any:kubernetes", len(l.loops), role); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.node().Inspect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range s.Disks {
		if m := disk.Member; m == nil || !disk.inArray() || m.Level != "raid0" || m.Devices != 2 || m.UUID == "" {
			t.Fatalf("%+v, %+v", disk, m)
		}
	}
	d, err := Decide(Wanted{Strategy: "raid0"}, s)
	if err != nil || len(d.Steps) < 2 || d.Steps[0].Action != Assemble || d.Steps[1].Action != MountIt {
		t.Errorf("%v, %v", d.Steps, err)
	}
	if _, err := Decide(Wanted{Strategy: "mount"}, s); err == nil || !strings.Contains(err.Error(), "/dev/"+l.loops[0]+` holds a part of the array "kubernetes"`) {
		t.Errorf("mount: %v", err)
	}
	if err := writeSuperblock("/dev/"+l.loops[1], "any:data", 2, 1); err != nil {
		t.Fatal(err)
	}
	if steps, err := l.run(Wanted{Strategy: "raid0"}); err == nil || !strings.Contains(err.Error(), "/dev/"+l.loops[1]+` holds a part of the array "data"`) || len(steps) > 0 {
		t.Errorf("somebody else's array: %v, %v", steps, err)
	}
}

func TestLoopRaid0(t *testing.T) { raid(t, "raid0", 2) }

func TestLoopRaid10(t *testing.T) { raid(t, "raid10", 4) }

func raid(t *testing.T, level string, volumes int) {
	if !arrays() {
		inUserMode(t)
		return
	}
	l := inside(t, volumes)
	if l == nil {
		return
	}
	stop := func() {
		for _, holder := range l.node().list("/sys/class/block/" + l.loops[0] + "/holders") {
			l.command("mdadm", "--stop", "/dev/"+holder)
		}
	}
	t.Cleanup(func() { l.powerOff(); stop() })
	w := Wanted{Strategy: level, Disabled: []string{"Containerd", "PodLogs", "SOCI"}}
	l.write("/var/lib/kubelet/config", "kubelet's")
	steps, err := l.run(w)
	if err != nil || len(steps) != 4 || !strings.HasPrefix(steps[0], "create /dev/md/kubernetes: "+level) || !strings.HasPrefix(steps[1], "format /dev/md") {
		t.Fatalf("%q, %v", steps, err)
	}
	l.want("/var/lib/kubelet/config", "kubelet's")
	l.manager.calls = nil
	l.wantRun(w)
	if len(l.manager.calls) > 0 {
		t.Errorf("a second run called %v", l.manager.calls)
	}
	l.write("/var/lib/kubelet/config", "newer")
	l.powerOff()
	stop()
	steps, err = l.run(w)
	if err != nil || len(steps) != 3 || !strings.HasPrefix(steps[0], "assemble /dev/md/kubernetes: "+level) {
		t.Fatalf("%q, %v", steps, err)
	}
	l.want("/var/lib/kubelet/config", "newer")
	other := map[string]string{"raid0": "raid10", "raid10": "raid0"}[level]
	if steps, err := l.run(Wanted{Strategy: other}); err == nil || !strings.Contains(err.Error(), "hold the "+level+" array kubernetes") {
		t.Errorf("%s: %v, %v", other, steps, err)
	}
}

// Where the kernel has no arrays nothing is written either.
func TestLoopWithoutArrays(t *testing.T) {
	if arrays() {
		t.Skip("this kernel has md, and other tests make arrays")
	}
	l := inside(t, 2)
	if l == nil {
		return
	}
	before := l.written()
	steps, err := l.run(Wanted{Strategy: "raid0"})
	if err == nil || !strings.Contains(err.Error(), "/dev/md/kubernetes: mdadm --create") || len(steps) > 0 {
		t.Errorf("%v, %v", steps, err)
	}
	t.Log(err)
	if after := l.written(); !slices.Equal(before, after) || len(l.manager.calls) > 0 {
		t.Errorf("something was done: %v, before %v; %v", after, before, l.manager.calls)
	}
}

func TestLoopMissingProgram(t *testing.T) {
	l := inside(t, 2)
	if l == nil {
		return
	}
	for _, test := range []struct{ strategy, without, pkg string }{
		{"raid0", "mdadm", "mdadm"},
		{"raid0", "mkfs.xfs", "xfsprogs"},
		{"mount", "mkfs.xfs", "xfsprogs"},
		{"mount", "wipefs", "util-linux"},
	} {
		t.Run(test.strategy+" without "+test.without, func(t *testing.T) {
			bin := filepath.Join("/tmp", test.strategy+test.without)
			if err := os.Mkdir(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			for program := range packages {
				if at, err := exec.LookPath(program); err == nil && program != test.without {
					if err := os.Symlink(at, filepath.Join(bin, program)); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("PATH", bin)
			before := l.written()
			steps, err := l.run(Wanted{Strategy: test.strategy})
			if err == nil || !strings.Contains(err.Error(), "need the program "+test.without) || !strings.Contains(fault.Remedy(err), "the package "+test.pkg) || len(steps) > 0 {
				t.Errorf("%v, %v", steps, err)
			}
			if after := l.written(); !slices.Equal(before, after) {
				t.Errorf("something was done: %v, before %v", after, before)
			}
		})
	}
}

// writeSuperblock writes what mdadm --create leaves on a device: metadata 1.2,
// raid0, 4 KiB from the beginning.
func writeSuperblock(device, name string, devices, role int) error {
	b := make([]byte, 256+2*devices)
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0xa92b4efc)
	le.PutUint32(b[4:], 1) // major version
	copy(b[16:], "0123456789abcdef")
	copy(b[32:], name)
	le.PutUint64(b[64:], 1700000000)                // made when
	le.PutUint32(b[72:], 0)                         // level
	le.PutUint32(b[88:], 1024)                      // chunk, in sectors
	le.PutUint32(b[92:], uint32(devices))           // how many
	le.PutUint64(b[128:], 2048)                     // where data begins
	le.PutUint64(b[136:], loopSize/512-2048)        // and how much of it there is
	le.PutUint64(b[144:], 8)                        // where this is
	le.PutUint32(b[160:], uint32(role))             // which device this is
	copy(b[168:], fmt.Sprintf("device %09d", role)) // its UUID
	le.PutUint64(b[192:], 1700000000)               // last written when
	le.PutUint32(b[220:], uint32(devices))
	for n := range devices {
		le.PutUint16(b[256+2*n:], uint16(n))
	}
	var sum uint64
	for i := 0; i+4 <= len(b); i += 4 {
		sum += uint64(le.Uint32(b[i:]))
	}
	le.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	return writeAt(device, b, 4096)
}

func writeAt(device string, data []byte, offset int64) error {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, offset)
	return errors.Join(err, f.Sync(), f.Close())
}
