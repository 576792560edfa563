package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LastWords returns the last lines that a unit wrote to the journal, and systemd
// about it, in the run that goes on or else the last one: what an earlier one
// said may long be mended. Where systemd has restarted the unit by itself, the
// run before counts too, since a new one may not have come as far yet. It runs
// journalctl, so it is for explaining failures only; where that is impossible
// the answer is empty.
func LastWords(ctx context.Context, unit string, lines int) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	manager, err := Observe(ctx)
	if err != nil {
		return nil
	}
	defer manager.Close()
	state, err := manager.State(ctx, unit)
	if err != nil || state.Invocation == "" {
		return nil
	}
	matches := invoked(state.Invocation)
	if before := state.before(ctx, unit); state.Restarts > 0 && before != "" {
		matches = append(append(matches, "+"), invoked(before)...)
	}
	return journal(ctx, append([]string{"--output=cat", "--lines=" + strconv.Itoa(lines)}, matches...)...)
}

// invoked matches what a run wrote, or systemd about it.
func invoked(id string) []string {
	return []string{"_SYSTEMD_INVOCATION_ID=" + id, "+", "INVOCATION_ID=" + id}
}

// before is the run before, unless the unit's files have changed since.
func (s State) before(ctx context.Context, unit string) string {
	id, wrote := runBefore(s.Invocation, journal(ctx, "--output=json", "--output-fields=_SYSTEMD_INVOCATION_ID,INVOCATION_ID", "--reverse", "--lines=300", "--unit="+unit))
	return either(s.changed().Before(wrote), id, "")
}

// runBefore is the run before the current one, and when it wrote last, by lines
// of the journal in JSON, the last first.
func runBefore(current string, entries []string) (id string, wrote time.Time) {
	for _, line := range entries {
		var entry struct {
			Time  int64  `json:"__REALTIME_TIMESTAMP,string"` // µs
			Own   string `json:"_SYSTEMD_INVOCATION_ID"`
			About string `json:"INVOCATION_ID"` // where it is systemd that writes, which has an invocation of its own
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		if id = entry.About; id == "" {
			id = entry.Own
		}
		if id != "" && id != current {
			return id, time.UnixMicro(entry.Time)
		}
	}
	return "", time.Time{}
}

// changed is when the unit's files were last changed, or put back.
func (s State) changed() (last time.Time) {
	for _, path := range append([]string{s.Fragment}, s.DropIns...) {
		var file unix.Stat_t
		if unix.Stat(path, &file) == nil && time.Unix(file.Ctim.Unix()).After(last) {
			last = time.Unix(file.Ctim.Unix())
		}
	}
	return last
}

// journal reads lines of this boot.
func journal(ctx context.Context, arguments ...string) (words []string) {
	out, err := exec.CommandContext(ctx, "journalctl", append([]string{"--boot", "--no-pager", "--quiet"}, arguments...)...).Output()
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(out) {
		if s := strings.TrimSpace(string(line)); s != "" {
			words = append(words, s)
		}
	}
	return words
}
