package machine

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Result is what a command in the machine left: what it printed, and how it
// ended. ExitCode is 128 + N after signal N, and -1 when the command never ran
// or ran out of time; Stderr then says so.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Run runs a command in the machine as root, in all its namespaces, with the
// environment of a login and no more: nothing of the test's own environment
// shows up in there.
func (m *Machine) Run(ctx context.Context, argv ...string) Result {
	m.t.Helper()
	return run(ctx, append([]string{"nsenter", "--all", "--target", strconv.Itoa(m.Leader()), "--"}, argv...))
}

// MustRun is Run for a command that has to succeed; it returns standard output.
func (m *Machine) MustRun(ctx context.Context, argv ...string) string {
	m.t.Helper()
	r := m.Run(ctx, argv...)
	if r.ExitCode != 0 {
		m.t.Fatalf("%s: %s: exit code %d\nstdout:\n%s\nstderr:\n%s",
			m.name, strings.Join(argv, " "), r.ExitCode, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

var loginEnvironment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
	"SYSTEMD_PAGER=cat", "SYSTEMD_COLORS=0",
}

func run(ctx context.Context, argv []string) Result {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = loginEnvironment
	killTogether(cmd)
	cmd.WaitDelay = time.Second // a daemon it started may hold its pipes open
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: -1}
	switch {
	case ctx.Err() != nil:
		r.Stderr += fmt.Sprintf("(killed: %v)\n", context.Cause(ctx))
	case cmd.ProcessState == nil:
		r.Stderr += fmt.Sprintf("(not started: %v)\n", err)
	default:
		r.ExitCode = cmd.ProcessState.ExitCode()
		if sig, ok := signalled(cmd.ProcessState); ok {
			r.ExitCode = 128 + sig
		}
	}
	return r
}
