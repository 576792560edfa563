package machine

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Options say what a machine is before it is powered on for the first time.
type Options struct {
	// Files are put on the disk before power-on, by absolute path. What is
	// under /run and /tmp is hidden by the running machine.
	Files map[string]File

	// Simulator, if set, puts a simulated instance metadata service on
	// 169.254.169.254 early in boot. With it cloud-init runs; without it
	// cloud-init is switched off, as it would wait for one.
	Simulator *Simulator

	// Controllers gives the machine the resource controllers, of the kind that
	// the computer has, and the privileges that kubelet needs beside them.
	Controllers bool

	// Volumes is the number of NVMe instance store volumes: loop devices, with
	// udev's links to them. The test is skipped where the kernel cannot do that.
	Volumes int

	// Hostname is the name the machine starts with; empty means a unique one.
	Hostname string

	// Recipe is a shell script that builds another disk than rootfs.sh does, and
	// is run as that is.
	Recipe string
}

// controllersService makes the controllers writable for the machine: nspawn
// mounts those of cgroup v1 so that they can only be read.
const (
	controllersUnit    = "writable-controllers.service"
	controllersService = `[Unit]
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
ExecStart=sh -euc 'mount -o remount,bind,rw /sys/fs/cgroup; for c in /sys/fs/cgroup/*; do if mountpoint -q $$c; then mount -o remount,bind,rw $$c; fi; done'
RemainAfterExit=yes
`
)

// Machine is a booted Linux. Its methods may be used from several goroutines;
// those that can fail without the caller's having asked fail the test.
type Machine struct {
	t    testing.TB
	name string
	disk *disk

	controllers bool

	console lockedBuffer

	mu    sync.Mutex // guards what changes with each power-on
	boots int
	power *power // nil while the machine is off
}

var serial atomic.Int64

// Boot powers a machine on and returns as soon as commands can be run in it;
// WaitBooted waits for the rest. The machine ends with the test. Where none can
// run, the test is skipped as Require says. The first Boot on a computer builds
// the disk, so a deadline should be set after Boot, not before.
func Boot(t testing.TB, o Options) *Machine {
	t.Helper()
	Require(t)
	name := fmt.Sprintf("nodeadm-test-%d-%d", os.Getpid(), serial.Add(1))
	if o.Volumes > 0 {
		requireVolumes(t)
	}
	if o.Recipe == "" {
		o.Recipe = rootfsRecipe
	}
	d, err := newDisk(o.Recipe, o.Controllers, o.Volumes)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m := &Machine{t: t, name: name, disk: d, controllers: o.Controllers}
	t.Cleanup(m.destroy)

	files := map[string]File{"/etc/hostname": {Content: o.Hostname + "\n"}}
	if o.Hostname == "" {
		files["/etc/hostname"] = File{Content: name + "\n"}
	}
	if o.Controllers {
		files["/etc/systemd/system/"+controllersUnit] = File{Content: controllersService}
		files["/etc/systemd/system/sysinit.target.wants/"+controllersUnit] = File{Link: "../" + controllersUnit}
	}
	if o.Simulator == nil {
		files["/etc/cloud/cloud-init.disabled"] = File{}
	} else {
		for path, f := range o.Simulator.files() {
			files[path] = f
		}
	}
	volumes, err := d.volumes()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(volumes) > 0 {
		for path, f := range volumeFiles(volumes) {
			files[path] = f
		}
	}
	for path, f := range o.Files {
		files[path] = f
	}
	for path, f := range files {
		if err := place(d.root(), path, f); err != nil {
			t.Fatalf("%s: %s: %v", name, path, err)
		}
	}
	m.PowerOn()
	return m
}

// destroy ends the machine without ceremony: nothing on it is wanted any more,
// except, when the test has failed, what it has to say about that.
func (m *Machine) destroy() {
	if m.t.Failed() {
		m.report()
	}
	m.PowerCut()
	start := time.Now()
	if err := m.disk.remove(); err != nil {
		m.t.Errorf("%s: removing the disk: %v after %v", m.name, err, time.Since(start))
	}
}
