package machine

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Where no machine can run, a developer gets a skip that is not to be
// overlooked, and CI a failure.
func TestRequire(t *testing.T) {
	if os.Getenv("NODEADM_TEST_REQUIRE") != "" {
		Require(t)
		return
	}
	Require(t)
	for ci, want := range map[string]string{"": "*** SKIPPED", "true": "forbids to skip"} {
		// Without a PATH there is no systemd-nspawn.
		cmd := exec.Command(os.Args[0], "-test.run=^TestRequire$", "-test.v")
		cmd.Env = []string{"NODEADM_TEST_REQUIRE=1", "PATH=/nonexistent", "CI=" + ci}
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) || (err != nil) != (ci == "true") {
			t.Errorf("CI=%q: %v\n%s", ci, err, out)
		}
	}
}
