package systemd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Reason is why a unit does not run, as far as systemd knows that by itself, with
// what to do about it; "" where it is for the program to say.
func (m *Manager) Reason(ctx context.Context, unit string) (reason, remedy string) {
	p, err := m.conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return "", ""
	}
	remedy = "systemctl cat " + unit + " shows the line and the file; mend it, then systemctl daemon-reload && systemctl restart " + unit
	if reason = reasonOf(p, monotonic()); reason != "" {
		return reason, remedy
	}
	for _, kind := range []string{"Requires", "Requisite", "BindsTo"} {
		required, _ := p[kind].([]string)
		for _, name := range required {
			state, err := m.State(ctx, name)
			if err == nil && (state.Active == "failed" || state.Load != "loaded" && state.Active != "active") {
				return fmt.Sprintf("%s, which it needs (%s=), is %s", name, kind, either(state.Active == "failed", "failed", state.Load)), "systemctl status " + name + "; it has to start before " + unit + " does"
			}
		}
	}
	// systemd forgets a unit that was not started and that nobody refers to.
	if p["ActiveState"] == "inactive" {
		for _, line := range journal(ctx, "--output=cat", "--lines=1", "_PID=1", "UNIT="+unit) {
			if notStarted(line) {
				return line, remedy
			}
		}
	}
	return "", ""
}

// notStarted tells whether systemd says that it has not even tried.
func notStarted(line string) bool {
	return slices.ContainsFunc([]string{"skipped because of", "being skipped", "ssertion failed", "Dependency failed"}, func(words string) bool { return strings.Contains(line, words) })
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// beforeTheProgram are the statuses with which systemd ends a process in the
// program's stead, since it cannot be started as the unit says.
var beforeTheProgram = map[int32]string{
	200: "the directory of WorkingDirectory= cannot be entered",
	203: "the program of ExecStart= cannot be run",
	205: "its limits (Limit…=) cannot be set",
	209: "its standard output cannot be opened",
	216: "the group of Group= does not exist",
	217: "the user of User= does not exist",
	219: "its cgroup cannot be set up",
	226: "its mounts cannot be set up: a path of ReadWritePaths=, BindPaths= or the like is missing",
	238: "its StateDirectory= cannot be made",
	240: "its LogsDirectory= cannot be made",
}

// patienceBefore is how long a command before the program may take.
const patienceBefore = 3 * time.Second

// reasonOf is what the properties of a unit say, at a time of the monotonic clock.
func reasonOf(p map[string]any, now time.Duration) string {
	for _, kind := range []string{"Condition", "Assert"} {
		tested, _ := p[kind+"TimestampMonotonic"].(uint64)
		if met, known := p[kind+"Result"].(bool); known && !met && tested > 0 && p["ActiveState"] != "active" {
			return "its " + strings.ToLower(kind) + " is not met: " + unmet(p[kind+"s"])
		}
	}
	for _, kind := range []string{"ExecCondition", "ExecStartPre"} {
		commands, _ := p[kind].([][]any)
		for _, c := range commands {
			if reason := beforehand(p, c, now); reason != "" {
				return "its " + kind + "=" + words(c) + " " + reason
			}
		}
	}
	status, _ := p["ExecMainStatus"].(int32)
	reason, known := beforeTheProgram[status]
	if !known || p["Result"] != "exit-code" {
		return ""
	}
	named := map[int32]string{200: "WorkingDirectory", 216: "Group", 217: "User"}[status]
	name, _ := p[named].(string)
	if commands, _ := p["ExecStart"].([][]any); status == 203 && len(commands) > 0 {
		name, _ = commands[0][0].(string)
	}
	return strings.TrimSuffix(reason+": "+name, ": ")
}

// unmet are the conditions that failed: a(sbbsi), type, trigger, negate,
// parameter, state.
func unmet(property any) string {
	all, _ := property.([][]any)
	all = slices.DeleteFunc(slices.Clone(all), func(c []any) bool { state, _ := c[4].(int32); return state >= 0 })
	var failed []string
	for _, c := range all {
		failed = append(failed, fmt.Sprintf("%v=%s%v", c[0], either(c[2] == true, "!", ""), c[3]))
	}
	return strings.Join(failed, ", ")
}

// beforehand is what came of a command before the program, "" if it went well:
// a(sasbttttuii), path, words, whether failure is ignored, when it started and
// ended by two clocks, its process, how it ended, and its status.
func beforehand(p map[string]any, c []any, now time.Duration) string {
	ignored, _ := c[2].(bool)
	started, _ := c[4].(uint64)
	ended, _ := c[6].(uint64)
	how, _ := c[8].(int32)
	status, _ := c[9].(int32)
	running := now - time.Duration(started)*time.Microsecond
	switch {
	case started == 0:
	case ended < started && (p["SubState"] == "start-pre" || p["SubState"] == "condition") && running > patienceBefore:
		return fmt.Sprintf("does not end: it runs for %s", running.Round(time.Second))
	case ended >= started && how != 0 && status != 0 && !ignored && p["Result"] != "success":
		return fmt.Sprintf("ended with status %d", status)
	}
	return ""
}

func words(c []any) string {
	argv, _ := c[1].([]string)
	return strings.Join(argv, " ")
}

// monotonic is the time by the clock that nobody sets.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
