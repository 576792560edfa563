package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFilesBeforePowerOn(t *testing.T) {
	source := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(source, []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, ctx := boot(t, Options{Files: map[string]File{
		"/etc/eks/nodeadm.d/10-a.yaml": {Content: "a: 1\n", Mode: 0o600},
		"/usr/bin/tool":                {Source: source},
		// Through the tree's own link /bin -> usr/bin.
		"/bin/tool-link": {Link: "tool"},
		"/etc/systemd/system/early.service": {Content: "[Service]\nType=oneshot\nExecStart=/usr/bin/touch /var/lib/early\n" +
			"[Install]\nWantedBy=multi-user.target\n"},
		"/etc/systemd/system/multi-user.target.wants/early.service": {Link: "../early.service"},
		"/var/lib/containerd/placed":                                {Content: "kept"},
	}})
	if got := m.MustRun(ctx, "stat", "-c", "%a %U %s", "/etc/eks/nodeadm.d/10-a.yaml"); got != "600 root 5\n" {
		t.Errorf("10-a.yaml: %s", got)
	}
	if got := m.MustRun(ctx, "tool-link"); got != "tool\n" {
		t.Errorf("tool-link: %q", got)
	}
	if !m.Exists("/var/lib/early") {
		t.Error("the unit placed before power-on did not run")
	}
	if got := m.ReadFile("/var/lib/containerd/placed"); got != "kept" {
		t.Errorf("in containerd's directory: %q", got)
	}
}

// An absolute link on the machine must never lead to the host.
func TestLinksStayInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	m := Boot(t, Options{Files: map[string]File{"/etc/trap": {Link: filepath.Dir(outside)}}})
	ctx := within(t, 30*time.Second)

	m.MustRun(ctx, "mkdir", "-p", filepath.Dir(outside))
	m.WriteFile("/etc/trap/outside", File{Content: "inside"})
	if exists(outside) {
		t.Error("written to the host")
	}
	if got := m.ReadFile("/etc/trap/outside"); got != "inside" {
		t.Errorf("read %q", got)
	}
	// /var/run is an absolute link in Debian, and /run is a tmpfs of the running machine.
	m.WriteFile("/var/run/here", File{Content: "1"})
	if got := m.MustRun(ctx, "cat", "/run/here"); got != "1" {
		t.Errorf("/run/here: %q", got)
	}
}

func TestDiskOutlivesPower(t *testing.T) {
	m, ctx := boot(t, Options{})
	id, leader := m.ReadFile("/etc/machine-id"), m.Leader()
	m.MustRun(ctx, "sh", "-c", "echo kept >/etc/kept; echo gone >/run/gone; echo kept >/var/lib/containerd/kept")

	start := time.Now()
	m.PowerOff()
	t.Logf("off after %v", time.Since(start).Round(time.Millisecond))
	if got := m.ReadFile("/etc/kept"); got != "kept\n" {
		t.Errorf("while off: %q", got)
	}
	if !strings.Contains(m.Journal(""), "Reached target") {
		t.Error("no journal while off")
	}
	m.WriteFile("/etc/while-off", File{Content: "new"})

	m.PowerOn()
	up := m.WaitBooted(ctx)
	t.Logf("second boot: %s after %v", up.State, up.Took.Round(time.Millisecond))
	if m.Leader() == leader {
		t.Error("the same PID 1 after power-off")
	}
	for path, want := range map[string]string{
		"/etc/kept": "kept\n", "/etc/while-off": "new", "/var/lib/containerd/kept": "kept\n", "/etc/machine-id": id,
	} {
		if got := m.ReadFile(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if m.Exists("/run/gone") {
		t.Error("/run outlived power-off")
	}

	m.MustRun(ctx, "systemctl", "--no-block", "poweroff")
	m.WaitOff(20 * time.Second)
	m.PowerOn()
	m.Reboot()
	m.PowerCut()
	m.PowerOn()
	if up := m.WaitBooted(ctx); up.State != "running" {
		t.Errorf("after a power cut: %+v", up)
	}
	if got := m.MustRun(ctx, "journalctl", "--list-boots", "--no-pager", "--quiet"); strings.Count(got, "\n") < 3 {
		t.Errorf("boots in the journal:\n%s", got)
	}
}
