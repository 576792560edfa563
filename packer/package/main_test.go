package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck: what would stop a release is said before anything is compiled.
func TestCheck(t *testing.T) {
	const version, date = "v1.2.0", "2026-01-02T03:04:05Z"
	for _, test := range []struct {
		name, version, date string
		archs               []string
		file                string // stands in dist
		says                string // "" if a release can be made
	}{
		{"good", version, date, []string{"amd64"}, "nodeadm_1.1.0_linux_amd64.deb", ""},
		{"sums of an earlier one", version, date, []string{"amd64"}, "SHA256SUMS", ""},
		{"no commit", version, "unknown", []string{"amd64"}, "", "run it in a clone"},
		{"build metadata", "v1.2.0+meta", date, []string{"amd64"}, "", "write a version such as v1.2.0"},
		{"no architecture", version, date, nil, "", "give ARCHS"},
		{"something else in dist", version, date, []string{"amd64"}, "notes.txt", "notes.txt: it is not of a release"},
	} {
		dist := t.TempDir()
		if test.file != "" {
			if err := os.WriteFile(filepath.Join(dist, test.file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := release(test.version, test.date, "", dist, test.archs)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}
