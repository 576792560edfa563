package machine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A test that is killed runs no cleanup. Its machine must go all the same, and
// the next one must boot.
func TestKilledTestTakesItsMachineAlong(t *testing.T) {
	const key = "NODEADM_TEST_TO_BE_KILLED"
	if os.Getenv(key) != "" {
		m := Boot(t, Options{})
		m.WaitBooted(within(t, 30*time.Second))
		fmt.Printf("pids %d %d\n", m.Leader(), m.disk.keeper)
		select {}
	}
	Require(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), key+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var leader, keeper int
	var said []string
	for lines := bufio.NewScanner(stdout); leader == 0 && lines.Scan(); {
		said = append(said, lines.Text())
		fmt.Sscanf(lines.Text(), "pids %d %d", &leader, &keeper)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if leader == 0 {
		t.Fatalf("no machine in the child:\n%s", strings.Join(said, "\n"))
	}
	for _, pid := range []int{leader, keeper} {
		gone := func() bool { return !exists(fmt.Sprintf("/proc/%d", pid)) }
		for end := time.Now().Add(5 * time.Second); !gone() && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if !gone() {
			t.Errorf("process %d outlived the test that started it", pid)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), "nodeadm-test") {
		t.Errorf("mounts on the host (%v):\n%s", err, mounts)
	}
	boot(t, Options{})
}
