package systemd

import (
	"testing"
	"time"
)

func TestReason(t *testing.T) {
	command := func(started, ended uint64, how, status int32, ignored bool, argv ...string) [][]any {
		return [][]any{{argv[0], argv, ignored, uint64(1), started, uint64(1), ended, uint32(7), how, status}}
	}
	start := command(1, 2, 1, 203, false, "/usr/bin/nowhere", "--config", "x")
	for _, test := range []struct {
		want string
		p    map[string]any
	}{
		{"", map[string]any{"ActiveState": "inactive", "Result": "success", "ConditionResult": false, "ConditionTimestampMonotonic": uint64(0)}},
		{"", map[string]any{"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": int32(1), "ExecStart": start}},
		{"", map[string]any{"ActiveState": "failed", "Result": "signal", "ExecMainStatus": int32(203), "ExecStart": start}},
		{"its condition is not met: ConditionPathExists=!/x", map[string]any{"ActiveState": "inactive", "Result": "success", "ConditionResult": false, "ConditionTimestampMonotonic": uint64(5),
			"Conditions": [][]any{{"ConditionPathExists", false, true, "/x", int32(-1)}, {"ConditionPathExists", false, false, "/y", int32(1)}}}},
		{"its assert is not met: AssertPathExists=/x", map[string]any{"ActiveState": "failed", "ConditionResult": true, "AssertResult": false, "AssertTimestampMonotonic": uint64(5),
			"Asserts": [][]any{{"AssertPathExists", false, false, "/x", int32(-1)}}}},
		{"its ExecStartPre=/bin/false -x ended with status 1", map[string]any{"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code", "ExecStartPre": command(1, 2, 1, 1, false, "/bin/false", "-x")}},
		{"", map[string]any{"Result": "exit-code", "ExecStartPre": command(1, 2, 1, 1, true, "/bin/false")}},
		{"", map[string]any{"SubState": "start-pre", "Result": "success", "ExecStartPre": command(9e6, 0, 0, 0, false, "/bin/sleep", "9")}},
		{"its ExecStartPre=/bin/sleep 9 does not end: it runs for 5s", map[string]any{"SubState": "start-pre", "Result": "success", "ExecStartPre": command(5e6, 0, 0, 0, false, "/bin/sleep", "9")}},
		{"the program of ExecStart= cannot be run: /usr/bin/nowhere", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(203), "ExecStart": start}},
		{"the user of User= does not exist: nobody-here", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(217), "User": "nobody-here"}},
		{"its cgroup cannot be set up", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(219)}},
	} {
		if got := reasonOf(test.p, 10*time.Second); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
