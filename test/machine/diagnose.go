package machine

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
)

// Journal returns what a unit has logged since the machine was made, over all
// its boots; an empty unit means everything. It can be read after power-off.
func (m *Machine) Journal(unit string) string {
	argv := []string{"journalctl", "--no-pager", "--quiet", "--output=short-precise"}
	if unit != "" {
		argv = append(argv, "--unit="+unit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var r Result
	if m.running() != nil {
		m.Run(ctx, "journalctl", "--sync") // what was printed this moment is there too
		r = m.Run(ctx, argv...)
	} else {
		// The machine's own journalctl, on the disk of the machine that is off.
		argv = append(argv, "--directory=/var/log/journal")
		r = run(ctx, append(append(m.disk.enter(), "chroot", m.disk.dir+"/root"), argv...))
	}
	return r.Stdout + r.Stderr
}

// ConsoleLog is what the machine printed on its console since it was made, the
// messages of systemd-nspawn among it. When there is no journal to ask, it is
// all there is.
func (m *Machine) ConsoleLog() string { return m.console.String() }

// report prints what helps to see why a test failed.
func (m *Machine) report() {
	m.t.Logf("%s: the end of the journal:\n%s", m.name, clip(tail(m.Journal(""), 80)))
	m.t.Logf("%s: the end of the console:\n%s", m.name, tail(m.console.String(), 20))
	if m.running() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		m.t.Logf("%s: failed units:\n%s", m.name, m.Run(ctx, "systemctl", "--failed", "--no-legend", "--plain").Stdout)
	}
}

// clip shortens long lines: containerd logs its whole configuration in one.
func clip(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if len(line) > 640 {
			lines[i] = line[:640] + "…"
		}
	}
	return strings.Join(lines, "\n")
}

// lockedBuffer is written by the machine while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
