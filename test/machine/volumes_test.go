package machine

import (
	"strings"
	"testing"
	"time"
)

// TestInstanceStore is a node with one instance store volume: previewed, set up
// by hand, again, and after a reboot, where systemd mounts what kubelet needs
// before kubelet starts.
func TestInstanceStore(t *testing.T) {
	Require(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files := image(t, "1.34.4")
	files["/etc/systemd/system/nodeadm.service"] = File{Source: root + "/systemd/nodeadm.service"}
	files["/var/lib/kubelet/of-the-image"] = File{Content: "stays\n"}
	// The machine has containerd's data on a filesystem of its own.
	userData := nodeConfigUserData("  instance:\n    localStorage: {strategy: RAID0, disabledMounts: [Containerd, SOCI]}\n")
	m := Boot(t, Options{Files: files, Simulator: instance(t, userData), Volumes: 1})
	ctx := within(t, 180*time.Second)
	m.WaitBooted(ctx)
	volume := strings.TrimSpace(m.MustRun(ctx, "readlink", "-f", "/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1"))

	planned := m.Run(ctx, "nodeadm", "plan")
	want := "format " + volume + ": xfs, label k8s-disk-0\nmount " + volume + ": at /mnt/k8s-disks/0\n" +
		"move /var/lib/kubelet: to /mnt/k8s-disks/0/kubelet\nmove /var/log/pods: to /mnt/k8s-disks/0/pods\n"
	if planned.ExitCode != 10 || !strings.HasPrefix(planned.Stdout, want) || !strings.Contains(planned.Stdout, "; disks: 4 to do") {
		t.Errorf("plan: exit %d\n%s%s", planned.ExitCode, planned.Stdout, planned.Stderr)
	}
	if m.Exists("/mnt/k8s-disks") || m.MustRun(ctx, "wipefs", volume) != "" {
		t.Error("plan has done something")
	}
	document := strings.Replace(userData, "disabledMounts: [Containerd, SOCI]", "mountPath: /mnt/k8s-disks", 1)
	document = document[strings.Index(document, "apiVersion"):strings.Index(document, "--//--")]
	m.WriteFile("/root/all.yaml", File{Content: document})
	refused := m.Run(ctx, "nodeadm", "init", "-c", "file:///root/all.yaml")
	if refused.ExitCode != 4 || !strings.Contains(refused.Stderr, "/var/lib/containerd is a mount of its own") || m.MustRun(ctx, "wipefs", volume) != "" {
		t.Errorf("containerd has a filesystem of its own: exit %d\n%s", refused.ExitCode, refused.Stderr)
	}

	if first := m.Run(ctx, "nodeadm", "init"); first.ExitCode != 0 {
		t.Fatalf("exit %d\n%s", first.ExitCode, first.Stderr)
	}
	mounts := func(when string) {
		t.Helper()
		expect(t, "what is mounted "+when, volume+" xfs /mnt/k8s-disks/0\n"+volume+"[/kubelet] xfs /var/lib/kubelet\n"+volume+"[/pods] xfs /var/log/pods\n",
			m.MustRun(ctx, "sh", "-c", "for m in /mnt/k8s-disks/0 /var/lib/kubelet /var/log/pods; do findmnt --noheadings --raw --output SOURCE,FSTYPE,TARGET $m; done"))
		expect(t, "the image's file "+when, "stays\n", m.ReadFile("/var/lib/kubelet/of-the-image"))
		expect(t, "the units "+when, "enabled\nenabled\nenabled\n", m.MustRun(ctx, "systemctl", "is-enabled", `mnt-k8s\x2ddisks-0.mount`, "var-lib-kubelet.mount", "var-log-pods.mount"))
	}
	mounts("after the first run")
	if !m.Exists("/mnt/k8s-disks/0/kubelet/kubeconfig") {
		t.Error("the kubeconfig is not on the volume")
	}
	for _, unit := range []string{`mnt-k8s\x2ddisks-0.mount`, "var-lib-kubelet.mount"} {
		if out := m.Run(ctx, "systemd-analyze", "verify", "/etc/systemd/system/"+unit); out.ExitCode != 0 || out.Stderr != "" {
			t.Errorf("systemd-analyze verify %s: exit %d: %s", unit, out.ExitCode, out.Stderr)
		}
	}

	kubelet := mainPID(t, m, "kubelet.service")
	if again := m.Run(ctx, "nodeadm", "init"); again.ExitCode != 0 || !strings.Contains(again.Stderr, "nothing changed") || mainPID(t, m, "kubelet.service") != kubelet {
		t.Errorf("a second run: exit %d\n%s", again.ExitCode, again.Stderr)
	}
	if planned := m.Run(ctx, "nodeadm", "plan"); planned.ExitCode != 0 {
		t.Errorf("plan: exit %d\n%s%s", planned.ExitCode, planned.Stdout, planned.Stderr)
	}
	other := m.Run(ctx, bootstrapping("--local-disks", "mount", "--dry-run")...)
	if other.ExitCode != 4 || !strings.Contains(other.Stderr, volume+` holds xfs "k8s-disk-0", mounted at /mnt/k8s-disks/0`) {
		t.Errorf("mount: exit %d\n%s", other.ExitCode, other.Stderr)
	}

	m.MustRun(ctx, "systemctl", "enable", "nodeadm.service")
	m.Reboot()
	up := m.WaitBooted(ctx)
	if up.State != "running" {
		t.Fatalf("failed: %v\n%s", up.Failed, tail(m.Journal("nodeadm.service"), 40))
	}
	mounts("after a reboot")
	// systemd starts kubelet too, and nodeadm may come while it does.
	journal := m.Journal("nodeadm.service")
	quiet := strings.Contains(journal, "nothing changed") || strings.Contains(journal, "started kubelet.service: it was activating")
	if strings.Contains(journal, "format ") || strings.Contains(journal, "restarted ") || !quiet {
		t.Errorf("after a reboot:\n%s", tail(journal, 40))
	}
	started := func(unit string) string {
		return strings.TrimSpace(m.MustRun(ctx, "systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", unit))
	}
	if mount, kubelet := started("var-lib-kubelet.mount"), started("kubelet.service"); len(mount) > len(kubelet) || len(mount) == len(kubelet) && mount >= kubelet {
		t.Errorf("kubelet started at %s, and its directory was mounted at %s", kubelet, mount)
	}
	if cycle := m.Journal(""); strings.Contains(cycle, "ordering cycle") {
		t.Error("systemd found an ordering cycle")
	}

	// The instance was stopped and started: the volume is empty. kubelet does not
	// start on the root disk, and the next run makes everything anew.
	m.MustRun(ctx, "systemctl", "disable", "nodeadm.service")
	m.MustRun(ctx, "sh", "-c", "systemctl stop kubelet && umount /var/log/pods /var/lib/kubelet /mnt/k8s-disks/0 && wipefs --quiet --all "+volume)
	m.Reboot()
	m.WaitBooted(ctx)
	if state := m.Run(ctx, "systemctl", "is-active", "kubelet.service"); state.Stdout != "inactive\n" {
		t.Errorf("kubelet without its directory is %s", state.Stdout)
	}
	if out := m.Run(ctx, "nodeadm", "init"); out.ExitCode != 0 {
		t.Fatalf("with an empty volume: exit %d\n%s", out.ExitCode, out.Stderr)
	}
	mounts("after stop and start")
}

// TestInstanceStoreMounts is a node whose volumes are mounted one by one.
func TestInstanceStoreMounts(t *testing.T) {
	Require(t)
	m := Boot(t, Options{Files: image(t, "1.34.4"), Simulator: instance(t, ""), Volumes: 2})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)
	run := bootstrapping("--local-disks", "mount")
	if out := m.Run(ctx, run...); out.ExitCode != 0 {
		t.Fatalf("exit %d\n%s", out.ExitCode, out.Stderr)
	}
	mounted := func() string {
		return m.MustRun(ctx, "sh", "-c", "findmnt --noheadings --raw --output SOURCE,FSTYPE,LABEL /mnt/k8s-disks/1; findmnt --noheadings --raw --output SOURCE,FSTYPE,LABEL /mnt/k8s-disks/2")
	}
	before := mounted()
	if strings.Count(before, " xfs") != 2 {
		t.Errorf("mounted:\n%s", before)
	}
	if out := m.Run(ctx, run...); out.ExitCode != 0 || !strings.Contains(out.Stderr, "nothing changed") {
		t.Errorf("a second run: exit %d\n%s", out.ExitCode, out.Stderr)
	}
	m.Reboot()
	if up := m.WaitBooted(ctx); up.State != "running" {
		t.Errorf("failed: %v", up.Failed)
	}
	expect(t, "what is mounted after a reboot", before, mounted())
}
