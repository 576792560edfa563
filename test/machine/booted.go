package machine

import (
	"context"
	"strings"
	"time"
)

// Booted is how a boot went.
type Booted struct {
	State  string        // systemd's own word: running, degraded, maintenance …
	Failed []string      // the units that failed, when State is degraded
	Took   time.Duration // from power-on until nothing was left to start
}

// WaitBooted waits until systemd has nothing left to start, cloud-init and its
// user scripts included. A degraded machine is an answer, not a failure: a
// bootstrap that is meant to fail leaves one. A boot that does not end before
// ctx does fails the test.
func (m *Machine) WaitBooted(ctx context.Context) Booted {
	m.t.Helper()
	for {
		r := m.Run(ctx, "systemctl", "is-system-running", "--wait")
		switch state := strings.TrimSpace(r.Stdout); state {
		case "running", "degraded", "maintenance":
			b := Booted{State: state, Took: m.SincePowerOn()}
			if state != "running" {
				b.Failed = strings.Fields(m.MustRun(ctx, "sh", "-c",
					"systemctl list-units --failed --plain --no-legend | cut -d ' ' -f 1"))
			}
			return b
		default: // systemd does not listen yet
			if ctx.Err() != nil {
				m.t.Fatalf("%s: not booted %v after power-on: %q\njobs:\n%s", m.name, m.SincePowerOn().Round(time.Millisecond),
					state+r.Stderr, m.jobs())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// SincePowerOn is the time since the machine was last powered on.
func (m *Machine) SincePowerOn() time.Duration {
	m.t.Helper()
	p := m.running()
	if p == nil {
		m.t.Fatalf("%s: the machine is off", m.name)
	}
	return time.Since(p.on)
}

// jobs lists what systemd still waits for: with a boot that does not end, the
// one thing to know.
func (m *Machine) jobs() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := m.Run(ctx, "systemctl", "list-jobs", "--no-legend")
	return r.Stdout + r.Stderr
}
