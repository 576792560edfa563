package systemd

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRunBefore(t *testing.T) {
	entries := []string{
		`{"__REALTIME_TIMESTAMP": "5000000", "_SYSTEMD_INVOCATION_ID": "c"}`,
		`{"__REALTIME_TIMESTAMP": "4000000", "_SYSTEMD_INVOCATION_ID": "systemd", "INVOCATION_ID": "c"}`,
		`{"__REALTIME_TIMESTAMP": "3500000"}`,
		`no JSON`,
		`{"__REALTIME_TIMESTAMP": "3000000", "_SYSTEMD_INVOCATION_ID": "systemd", "INVOCATION_ID": "b"}`,
		`{"__REALTIME_TIMESTAMP": "2000000", "_SYSTEMD_INVOCATION_ID": "a"}`,
	}
	if id, wrote := runBefore("c", entries); id != "b" || !wrote.Equal(time.Unix(3, 0)) {
		t.Errorf("%s at %s", id, wrote)
	}
	if id, wrote := runBefore("c", entries[:4]); id != "" || !wrote.IsZero() {
		t.Errorf("%s at %s", id, wrote)
	}
}

// TestChanged: a file that was put back with its old time has changed.
func TestChanged(t *testing.T) {
	start := time.Now().Add(-time.Second)
	file := filepath.Join(t.TempDir(), "10.conf")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if changed := (State{DropIns: []string{file}}).changed(); changed.Before(start) {
		t.Errorf("%s", changed)
	}
}
