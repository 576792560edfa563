package machine

import (
	"context"
	"strings"
	"testing"
	"time"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// boot waits until the machine is up, and wants nothing to have failed. The
// clock starts after Boot, which may have to build the disk first.
func boot(t *testing.T, o Options) (*Machine, context.Context) {
	t.Helper()
	m := Boot(t, o)
	ctx := within(t, 30*time.Second)
	up := m.WaitBooted(ctx)
	if up.State != "running" {
		t.Fatalf("%s, failed: %v", up.State, up.Failed)
	}
	t.Logf("running %v after power-on", up.Took.Round(time.Millisecond))
	return m, ctx
}

func TestBoot(t *testing.T) {
	m, ctx := boot(t, Options{Hostname: "ip-10-0-0-1"})

	if got := m.MustRun(ctx, "busctl", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "Virtualization"); got != "s \"systemd-nspawn\"\n" {
		t.Errorf("D-Bus says %q", got)
	}
	if got := m.MustRun(ctx, "systemctl", "is-active", "containerd.service", "dbus.service"); got != "active\nactive\n" {
		t.Errorf("containerd and D-Bus are %q", got)
	}
	m.MustRun(ctx, "ctr", "namespaces", "create", "k8s.io")
	if got := m.MustRun(ctx, "hostname"); got != "ip-10-0-0-1\n" {
		t.Errorf("hostname %q", got)
	}
	if got := m.MustRun(ctx, "ip", "-oneline", "link"); strings.Count(got, "\n") != 1 || !strings.Contains(got, " lo: ") {
		t.Errorf("the machine sees more than loopback:\n%s", got)
	}
	if !strings.Contains(m.Journal("containerd.service"), "containerd successfully booted") {
		t.Errorf("containerd's journal:\n%s", m.Journal("containerd.service"))
	}
}

func TestRun(t *testing.T) {
	t.Setenv("NODEADM_TEST_LEAK", "1")
	m := Boot(t, Options{})
	ctx := within(t, 30*time.Second)

	if got, want := m.Run(ctx, "sh", "-c", "echo out; echo err >&2; exit 7"), (Result{"out\n", "err\n", 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := m.Run(ctx, "sh", "-c", "kill -TERM $$"); got.ExitCode != 128+15 {
		t.Errorf("after SIGTERM: %+v", got)
	}
	if got := m.Run(ctx, "no-such-command"); got.ExitCode != 127 || got.Stderr == "" {
		t.Errorf("no such command: %+v", got)
	}
	if got := m.MustRun(ctx, "env"); strings.Contains(got, "NODEADM_TEST_LEAK") || !strings.Contains(got, "PATH=/usr/local/sbin:") {
		t.Errorf("environment:\n%s", got)
	}

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if got := m.Run(short, "sleep", "4711"); got.ExitCode != -1 || !strings.Contains(got.Stderr, "deadline") {
		t.Errorf("out of time: %+v", got)
	}
	if got := m.Run(ctx, "pgrep", "-f", "^sleep 4711"); got.ExitCode != 1 {
		t.Errorf("the command outlived its deadline: %+v", got)
	}
}

func TestStrace(t *testing.T) {
	m := Boot(t, Options{})
	ctx := within(t, 30*time.Second)
	got := m.MustRun(ctx, "strace", "-f", "-e", "trace=execve", "-o", "/dev/stdout", "sh", "-c", "/bin/true; exit 0")
	if strings.Count(got, "execve(") != 2 || !strings.Contains(got, `"/bin/true"`) {
		t.Errorf("strace:\n%s", got)
	}
}

func TestSideBySide(t *testing.T) {
	a, b := Boot(t, Options{}), Boot(t, Options{})
	ctx := within(t, 30*time.Second)
	for _, m := range []*Machine{a, b} {
		if up := m.WaitBooted(ctx); up.State != "running" {
			t.Errorf("%s, failed: %v", up.State, up.Failed)
		}
		// The same address twice, since each has a network of its own.
		m.MustRun(ctx, "ip", "address", "add", "169.254.169.254/32", "dev", "lo")
	}
	a.WriteFile("/etc/only-a", File{Content: "a"})
	if b.Exists("/etc/only-a") {
		t.Error("one machine's file is on the other")
	}
	if a.ReadFile("/etc/machine-id") == b.ReadFile("/etc/machine-id") {
		t.Error("both have the same identity")
	}
	a.MustRun(ctx, "systemctl", "stop", "containerd")
	if got := b.MustRun(ctx, "systemctl", "is-active", "containerd"); got != "active\n" {
		t.Errorf("after one machine's containerd was stopped, the other's is %s", got)
	}
}
