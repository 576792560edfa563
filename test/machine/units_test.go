package machine

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	beforeScripts = "nodeadm.service"
	afterScripts  = "nodeadm-after-scripts.service"
)

// wantedBy is the target that starts each of the two units.
var wantedBy = map[string]string{beforeScripts: "multi-user.target", afterScripts: "cloud-init.target"}

// unit is a unit as it ships, enabled.
func unit(t *testing.T, name string) map[string]File {
	return map[string]File{
		"/etc/systemd/system/" + name:                              {Source: Source(t, "systemd/"+name)},
		"/etc/systemd/system/" + wantedBy[name] + ".wants/" + name: {Link: "/etc/systemd/system/" + name},
	}
}

// TestUnitsVerify: systemd finds nothing to say about any unit that ships, nor
// about what they are ordered against.
func TestUnitsVerify(t *testing.T) {
	Require(t)
	files := image(t, "1.34.4")
	shipped, err := filepath.Glob(Source(t, "systemd") + "/*.[sm]*")
	if err != nil || len(shipped) < 5 {
		t.Fatal(shipped, err)
	}
	var names []string
	for _, path := range shipped {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// systemd loads nobody's unit for /sys/fs/bpf, from the version on that
		// mounts it itself; at another place it does.
		name := strings.Replace(filepath.Base(path), "sys-fs", "mnt", 1)
		names = append(names, name)
		files["/etc/systemd/system/"+name] = File{Content: strings.NewReplacer("@RUNTIME@", "containerd.service",
			"@EXEC@", "/usr/bin/kubelet $KUBELET_ARGS", "@RESTART@", "on-failure", "=/sys/fs/bpf", "=/mnt/bpf").Replace(string(text))}
	}
	m, ctx := boot(t, Options{Files: files})
	for _, name := range append(names, "cloud-init.target", "multi-user.target") {
		if got, silent := m.Run(ctx, "systemd-analyze", "verify", "--man=no", name), (Result{}); got != silent {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// systemd's own word for what is below 5 is "OK". Lower there is little: what
	// is left are mounts of its own, a user or a network that nodeadm cannot have.
	var sections []string
	for name := range wantedBy {
		_, section, _ := strings.Cut(m.ReadFile("/etc/systemd/system/"+name), "\n[Service]\n")
		section, _, _ = strings.Cut(section, "\n[Install]\n")
		sections = append(sections, section)
		got := m.Run(ctx, "systemd-analyze", "security", "--offline=true", "--threshold=49", "--no-pager", "/etc/systemd/system/"+name)
		if got.ExitCode != 0 {
			t.Errorf("%s is more exposed than it has to be:\n%s", name, got.Stdout)
		}
	}
	expect(t, "one unit's [Service] and the other's", sections[0], sections[1])
}

// TestUnitsOrdering: on no distribution's cloud-init is there a circle. The
// folders of cloud-init hold how its units are ordered there: what upstream's
// templates of that version say for that distribution, each with its source, and
// not what is in the distribution's package. Debian 12's are the machine's own.
func TestUnitsOrdering(t *testing.T) {
	Require(t)
	folders, err := filepath.Glob(Source(t, "test/machine/cloud-init") + "/*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	files := map[string]File{"/usr/bin/nodeadm": {Source: BuildNodeadm(t)}}
	const top = "/var/ordering/"
	var distributions []string
	for _, folder := range append(folders, "debian-12") {
		distribution := filepath.Base(folder)
		distributions = append(distributions, distribution)
		for path, f := range distributionUnits(t, folder) {
			files[top+distribution+"/"+path] = f
		}
	}
	for name, target := range wantedBy {
		files[top+name+"/"+name] = File{Source: Source(t, "systemd/"+name)}
		files[top+name+"/"+target+".wants/"+name] = File{Link: "../" + name}
	}
	// What must not be written: systemd has to find this circle wherever user
	// scripts run after multi-user.target, or this test would see none at all.
	const circle = "circle.service"
	files[top+circle+"/"+circle] = File{Content: "[Unit]\nAfter=cloud-final.service\n[Service]\nExecStart=/usr/bin/nodeadm init\n"}
	files[top+circle+"/multi-user.target.wants/"+circle] = File{Link: "../" + circle}

	m, ctx := boot(t, Options{Files: files})
	for _, distribution := range distributions {
		for _, name := range []string{beforeScripts, afterScripts, circle} {
			path := top + name + ":" + top + distribution + ":/usr/lib/systemd/system"
			out := m.Run(ctx, "env", "SYSTEMD_UNIT_PATH="+path, "systemd-analyze", "verify", "--man=no", "multi-user.target")
			cycle := strings.Contains(out.Stderr, "ordering cycle")
			if want := name == circle && !strings.Contains(distribution, "amazon"); cycle != want {
				t.Errorf("%s with %s: an ordering cycle: %v, want %v\n%s", distribution, name, cycle, want, out.Stderr)
			}
			if name != circle && (strings.Contains(out.Stderr, "nodeadm") || strings.Contains(out.Stderr, "cloud-")) {
				t.Errorf("%s with %s:\n%s", distribution, name, out.Stderr)
			}
		}
	}
}

// distributionUnits are the units of a folder of cloud-init, enabled, and those
// of Debian that they stand for out of the way.
func distributionUnits(t *testing.T, folder string) map[string]File {
	t.Helper()
	services := []string{"cloud-init-local.service", "cloud-init.service", "cloud-config.service", "cloud-final.service"}
	if !filepath.IsAbs(folder) {
		files := map[string]File{"multi-user.target.wants/cloud-init.target": {Link: "../cloud-init.target"}}
		for _, name := range services {
			files["cloud-init.target.wants/"+name] = File{Link: "/usr/lib/systemd/system/" + name}
		}
		return files
	}
	files := map[string]File{}
	for _, name := range services {
		files[name] = File{Link: "/dev/null"}
	}
	units, err := filepath.Glob(folder + "/*")
	if err != nil || len(units) < 6 {
		t.Fatal(folder, units, err)
	}
	for _, path := range units {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		files[name] = File{Content: string(text)}
		if _, target, enabled := strings.Cut(string(text), "\nWantedBy="); enabled {
			files[strings.TrimSpace(target)+".wants/"+name] = File{Link: "../" + name}
		}
	}
	return files
}

// TestUnitsBoot boots each unit on a machine with cloud-init, with cloud-init
// switched off, and without any.
func TestUnitsBoot(t *testing.T) {
	Require(t)
	off := map[string]File{"/etc/cloud/cloud-init.disabled": {}}
	absent := map[string]File{"/etc/systemd/system-generators/cloud-init-generator": {Link: "/dev/null"}}
	for _, name := range []string{"cloud-init-local.service", "cloud-init.service", "cloud-config.service", "cloud-config.target", "cloud-final.service", "cloud-init.target"} {
		absent["/etc/systemd/system/"+name] = File{Link: "/dev/null"}
	}
	fromUserData, fromScript := "--node-labels=from=user-data", "--v=5"
	for _, test := range []struct {
		name, unit string
		files      map[string]File
		scripts    bool     // those in user data run
		flags      []string // of kubelet; nil: nodeadm does not run
	}{
		{"with cloud-init", beforeScripts, nil, true, []string{fromUserData}},
		{"after scripts", afterScripts, nil, true, []string{fromUserData, fromScript}},
		{"cloud-init switched off", beforeScripts, off, false, []string{fromUserData}},
		{"cloud-init switched off, after scripts", afterScripts, off, false, nil},
		{"without cloud-init", beforeScripts, absent, false, []string{fromUserData}},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := image(t, "1.34.4")
			maps.Copy(files, unit(t, test.unit))
			maps.Copy(files, test.files)
			m := Boot(t, Options{Files: files, Simulator: instance(t, nodeConfigUserData(`
--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
mkdir -p /etc/eks/nodeadm.d
sleep 1
printf 'apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {flags: [--v=5]}}\n' >/etc/eks/nodeadm.d/50-script.yaml
`))})
			ctx := within(t, 2*time.Minute)
			if up := m.WaitBooted(ctx); up.State != "running" {
				t.Errorf("boot %s, failed: %v", up.State, up.Failed)
			}
			if strings.Contains(m.Journal(""), "ordering cycle") {
				t.Error("systemd found an ordering cycle")
			}
			if ran := m.Exists("/etc/eks/nodeadm.d/50-script.yaml"); ran != test.scripts {
				t.Errorf("the script in user data has run: %v", ran)
			}
			nodeadm := timesOf(ctx, m, test.unit)
			if test.flags == nil {
				if nodeadm.started != 0 {
					t.Error("it ran")
				}
				return
			}
			if nodeadm.state != "active" || nodeadm.status != "done" {
				t.Errorf("it is %s, and says %q", nodeadm.state, nodeadm.status)
			}
			args := kubeletArgs(t, m)
			for _, flag := range []string{fromUserData, fromScript} {
				if given := slices.Contains(args, flag); given != slices.Contains(test.flags, flag) {
					t.Errorf("kubelet has %s: %v", flag, given)
				}
			}
			final := timesOf(ctx, m, "cloud-final.service")
			inOrder(t, "network-online.target", timesOf(ctx, m, "network-online.target").active, test.unit, nodeadm.started)
			if test.unit == afterScripts {
				inOrder(t, "cloud-final.service", final.active, test.unit, nodeadm.started)
				inOrder(t, test.unit, nodeadm.active, "cloud-init.target", timesOf(ctx, m, "cloud-init.target").active)
				return
			}
			inOrder(t, test.unit, nodeadm.active, "multi-user.target", timesOf(ctx, m, "multi-user.target").active)
			if test.scripts {
				inOrder(t, "cloud-config.target", timesOf(ctx, m, "cloud-config.target").active, test.unit, nodeadm.started)
				inOrder(t, test.unit, nodeadm.active, "cloud-final.service", final.started)
			}
		})
	}
}

// times is when a unit was started and became active, in µs since the kernel
// was, 0 for never, and what it says of itself.
type times struct {
	started, active int
	state, status   string
}

func timesOf(ctx context.Context, m *Machine, unit string) (u times) {
	for line := range strings.Lines(m.MustRun(ctx, "systemctl", "show", "--property=ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic,ActiveState,StatusText", unit)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ExecMainStartTimestampMonotonic":
			u.started, _ = strconv.Atoi(value)
		case "ActiveEnterTimestampMonotonic":
			u.active, _ = strconv.Atoi(value)
		case "ActiveState":
			u.state = value
		case "StatusText":
			u.status = value
		}
	}
	return u
}

func inOrder(t *testing.T, first string, end int, second string, start int) {
	t.Helper()
	if end == 0 || start < end {
		t.Errorf("%s: done at %d µs; %s: at %d µs", first, end, second, start)
	}
}

// TestUnitsPreset: where presets are applied one of the two units is enabled,
// which one says the image.
func TestUnitsPreset(t *testing.T) {
	Require(t)
	m, ctx := boot(t, Options{Files: map[string]File{
		"/usr/bin/nodeadm":                                 {Source: BuildNodeadm(t)},
		"/usr/lib/systemd/system/" + beforeScripts:         {Source: Source(t, "systemd/"+beforeScripts)},
		"/usr/lib/systemd/system/" + afterScripts:          {Source: Source(t, "systemd/"+afterScripts)},
		"/usr/lib/systemd/system-preset/90-nodeadm.preset": {Source: Source(t, "systemd/90-nodeadm.preset")},
		"/usr/lib/systemd/system-preset/99-rest.preset":    {Content: "disable *\n"},
	}})
	want := func(when, want string) {
		t.Helper()
		m.MustRun(ctx, "systemctl", "preset", beforeScripts, afterScripts)
		expect(t, when, want, m.Run(ctx, "systemctl", "is-enabled", beforeScripts, afterScripts).Stdout)
	}
	want("with the package's preset", "enabled\ndisabled\n")
	m.WriteFile("/etc/systemd/system-preset/90-nodeadm.preset", File{Source: Source(t, "systemd/90-nodeadm-after-scripts.preset")})
	want("after scripts", "disabled\nenabled\n")
}

// TestUnitsFirstBoot: an image without a machine id, on which nobody has enabled
// anything, boots a node because of the preset. Debian's own would enable both units.
func TestUnitsFirstBoot(t *testing.T) {
	Require(t)
	files := image(t, "1.34.4")
	maps.Copy(files, map[string]File{
		"/etc/machine-id":                                  {Content: "uninitialized\n"},
		"/usr/lib/systemd/system/" + beforeScripts:         {Source: Source(t, "systemd/"+beforeScripts)},
		"/usr/lib/systemd/system/" + afterScripts:          {Source: Source(t, "systemd/"+afterScripts)},
		"/usr/lib/systemd/system-preset/90-nodeadm.preset": {Source: Source(t, "systemd/90-nodeadm.preset")},
		// They ask at the console, where nobody is, and wait for a network card.
		"/etc/systemd/system/systemd-firstboot.service":            {Link: "/dev/null"},
		"/etc/systemd/system/systemd-networkd-wait-online.service": {Link: "/dev/null"},
		"/etc/systemd/system/etcd.service":                         {Link: "/dev/null"},
	})
	m := Boot(t, Options{Files: files, Simulator: instance(t, nodeConfigUserData(""))})
	ctx := within(t, 90*time.Second)
	m.WaitBooted(ctx)
	expect(t, "enabled", "enabled\ndisabled\n", m.Run(ctx, "systemctl", "is-enabled", beforeScripts, afterScripts).Stdout)
	if u := timesOf(ctx, m, beforeScripts); u.state != "active" || u.status != "done" {
		t.Errorf("%s is %s, and says %q", beforeScripts, u.state, u.status)
	}
	if strings.Contains(m.Journal(""), "ordering cycle") {
		t.Error("systemd found an ordering cycle")
	}
}

// child is what nodeadm's unit must leave possible, to it and to the programs
// that it calls for disks.
const child = `
readlink /proc/self/ns/mnt >/run/mounts
echo x >/etc/written
echo x >/var/lib/written
mkdir /mnt/disk
mount -t tmpfs disk /mnt/disk
# containerd's images are moved to a disk as they are.
mkdir /var/store
cp /bin/true /var/store/su
chown 65534:65534 /var/store/su
chmod 6755 /var/store/su
mkdir -m 700 /var/store/private
chown 65534 /var/store/private
touch /var/store/private/file
mknod /var/store/null c 1 3
python3 -c '
import os
os.setxattr("/var/store/su", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
os.setxattr("/var/store/su", "security.selinux", b"system_u:object_r:container_ro_file_t:s0")
os.setxattr("/var/store", "trusted.overlay.opaque", b"y")'
cp -a /var/store /mnt/disk/store
mount --bind /mnt/disk/store /var/store
# systemd does for it what it may not do itself.
systemctl daemon-reload
systemctl restart systemd-sysctl.service systemd-modules-load.service containerd.service
if unshare --mount true; then exit 9; fi
`

func TestUnitsSandbox(t *testing.T) {
	Require(t)
	files := map[string]File{"/usr/bin/nodeadm": {Source: BuildNodeadm(t)}, "/var/child": {Content: child}}
	maps.Copy(files, unit(t, beforeScripts))
	files["/etc/systemd/system/"+beforeScripts+".d/child.conf"] = File{Content: "[Service]\nType=oneshot\nExecStart=\nExecStart=/bin/sh -eux /var/child\n"}
	m, ctx := boot(t, Options{Files: files})
	if unit, all := m.ReadFile("/run/mounts"), m.MustRun(ctx, "readlink", "/proc/1/ns/mnt"); unit != all {
		t.Errorf("it has mounts of its own: %s, systemd %s", unit, all)
	}
	// What a container has of devices does not show that disks are open to it.
	expect(t, "devices", "DevicePolicy=auto\nProtectClock=no\n", m.MustRun(ctx, "systemctl", "show", "--property=DevicePolicy,DeviceAllow,ProtectClock", beforeScripts))
	m.MustRun(ctx, "mountpoint", "/mnt/disk")
	m.MustRun(ctx, "mountpoint", "/var/store")
	if got := m.MustRun(ctx, "stat", "--format=%a %u", "/var/store/su"); got != "6755 65534\n" {
		t.Errorf("what was moved is %s", got)
	}
}
