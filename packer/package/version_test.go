package main

import (
	"os/exec"
	"testing"
	"time"

	rpm "github.com/sassoftware/go-rpmutils"
)

// TestPackageVersion goes from the oldest to the newest.
func TestPackageVersion(t *testing.T) {
	date := time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600))
	previous := ""
	for _, c := range []struct{ described, want string }{
		{"0123456789ab", "0.0.0~git20260102030405.0123456789ab"},
		{"0123456789ab-dirty", "0.0.0~git20260102030405.0123456789ab+dirty"},
		{"v0.1.0", "0.1.0"},
		{"v1.2.0-alpha", "1.2.0~alpha"},
		{"v1.2.0-rc.1", "1.2.0~rc.1"},
		{"v1.2.0-rc.1-4-g0123456789ab", "1.2.0~rc.1+4.g0123456789ab"},
		{"v1.2.0-rc.2", "1.2.0~rc.2"},
		{"v1.2.0-rc.10", "1.2.0~rc.10"},
		{"1.2.0", "1.2.0"},
		{"v1.2.0-dirty", "1.2.0+dirty"},
		{"v1.2.1", "1.2.1"},
		{"v1.2.1-4-gfedcba987654", "1.2.1+4.gfedcba987654"},
		{"v1.2.1-4-gfedcba987654-dirty", "1.2.1+4.gfedcba987654.dirty"},
		{"v1.2.1-10-g0123456789ab", "1.2.1+10.g0123456789ab"},
		{"v1.2.2", "1.2.2"},
	} {
		got, err := packageVersion(c.described, date)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.described, got, err, c.want)
		}
		if previous != "" && rpm.Vercmp(previous, got) >= 0 {
			t.Errorf("to rpm %s is not older than %s", previous, got)
		}
		if dpkg, err := exec.LookPath("dpkg"); err == nil && previous != "" {
			if err := exec.Command(dpkg, "--compare-versions", previous, "lt", got).Run(); err != nil {
				t.Errorf("to dpkg %s is not older than %s", previous, got)
			}
		}
		previous = got
	}
	for _, described := range []string{"", "0.0.0-dev+1", "v1.2", "release-1"} {
		if got, err := packageVersion(described, date); err == nil {
			t.Errorf("%q became %q", described, got)
		}
	}
}
