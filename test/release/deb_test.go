package release

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// TestDeb installs the package on a machine, uses it, and takes it away again.
func TestDeb(t *testing.T) {
	machine.Require(t)
	m := machine.Boot(t, machine.Options{Files: map[string]machine.File{"/var/nodeadm.deb": {Source: Deb(t)}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m.WaitBooted(ctx)
	before := state(ctx, m)

	install := func() {
		t.Helper()
		if got := m.Run(ctx, "dpkg", "-i", "/var/nodeadm.deb"); got.ExitCode != 0 || got.Stderr != "" {
			t.Fatalf("dpkg -i: %+v", got)
		}
	}
	install()
	if got := m.MustRun(ctx, "nodeadm", "version"); !strings.HasPrefix(got, "nodeadm ") || strings.Contains(got, "unknown") {
		t.Errorf("version: %s", got)
	}
	if got := m.MustRun(ctx, "systemctl", "cat", "nodeadm.service"); !strings.Contains(got, "ExecStart=/usr/bin/nodeadm init\n") {
		t.Errorf("the unit:\n%s", got)
	}
	if got, silent := m.Run(ctx, "systemd-analyze", "verify", "nodeadm.service"), (machine.Result{}); got != silent {
		t.Errorf("systemd-analyze verify: %+v", got)
	}
	wantUnit(t, ctx, m, "disabled", "inactive")
	if diff := cmp.Diff(before.active, active(ctx, m)); diff != "" {
		t.Errorf("the package started or stopped something (-before +after):\n%s", diff)
	}

	// Whoever applies presets gets the unit at the next boot, and not sooner. An
	// update leaves that as it is.
	m.MustRun(ctx, "systemctl", "preset", "nodeadm.service")
	wantUnit(t, ctx, m, "enabled", "inactive")
	install()
	wantUnit(t, ctx, m, "enabled", "inactive")

	// The unit that nodeadm image install puts there is no file of the package's.
	const afterScripts = "/etc/systemd/system/nodeadm-after-scripts.service"
	m.WriteFile(afterScripts, machine.File{Source: machine.Source(t, "systemd/nodeadm-after-scripts.service")})
	m.MustRun(ctx, "systemctl", "enable", "nodeadm-after-scripts.service")
	m.WriteFile("/etc/systemd/system-preset/90-nodeadm.preset", machine.File{Source: machine.Source(t, "systemd/90-nodeadm-after-scripts.preset")})
	// Nor are its links. Of the scripts only one stood there before.
	const script, kept = "/etc/eks/bootstrap.sh", "/etc/eks/bootstrap.sh.before-nodeadm"
	m.WriteFile(kept, machine.File{Content: "AWS's\n"})
	m.MustRun(ctx, "ln", "-s", "/usr/bin/nodeadm", script)
	m.MustRun(ctx, "ln", "-s", "/usr/bin/nodeadm", "/etc/eks/max-pods-calculator.sh")
	install()
	if got := m.MustRun(ctx, "readlink", script); got != "/usr/bin/nodeadm\n" {
		t.Errorf("after an update, %s leads to %s", script, got)
	}

	const document = "/etc/eks/nodeadm.d/10-node.yaml"
	m.WriteFile(document, machine.File{Content: "apiVersion: node.eks.aws/v1alpha1\n"})
	m.MustRun(ctx, "dpkg", "-r", "nodeadm")
	if got := m.MustRun(ctx, "systemctl", "show", "--property=LoadState,ActiveState", "nodeadm.service"); got != "LoadState=not-found\nActiveState=inactive\n" {
		t.Errorf("after removal: %s", got)
	}
	if got := m.MustRun(ctx, "cat", script); got != "AWS's\n" {
		t.Errorf("after removal, %s is %q", script, got)
	}
	after := state(ctx, m) // with no link left, of either unit
	want := append([]string{"/etc/eks d 755\n", "/etc/eks/nodeadm.d d 755\n", script + " f 644\n", "/etc/systemd/system-preset d 755\n", document + " f 644\n"}, before.files...)
	slices.Sort(want)
	if diff := cmp.Diff(want, after.files); diff != "" {
		t.Errorf("after removal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.active, after.active); diff != "" {
		t.Errorf("after removal, units (-want +got):\n%s", diff)
	}
}

func wantUnit(t *testing.T, ctx context.Context, m *machine.Machine, enabled, active string) {
	t.Helper()
	gotEnabled := strings.TrimSpace(m.Run(ctx, "systemctl", "is-enabled", "nodeadm.service").Stdout)
	gotActive := strings.TrimSpace(m.Run(ctx, "systemctl", "is-active", "nodeadm.service").Stdout)
	if gotEnabled != enabled || gotActive != active {
		t.Errorf("nodeadm.service is %s and %s, want %s and %s", gotEnabled, gotActive, enabled, active)
	}
}

// machineState is what a package could leave behind.
type machineState struct{ files, active []string }

func state(ctx context.Context, m *machine.Machine) machineState {
	// Without what dpkg, systemd and containerd keep for themselves.
	files := m.MustRun(ctx, "sh", "-c", `find /etc /opt /root /srv /usr /var/lib -xdev \
		\( -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/lib/containerd \) -prune -o -printf '%p %y %m\n'`)
	return machineState{slices.Sorted(strings.Lines(files)), active(ctx, m)}
}

// active are the services that run, or have run and count as active.
func active(ctx context.Context, m *machine.Machine) []string {
	return strings.Fields(m.MustRun(ctx, "sh", "-c", "systemctl list-units --type=service --state=active --plain --no-legend | cut -d ' ' -f 1 | sort"))
}
