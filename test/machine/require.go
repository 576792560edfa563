package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Require ends the test where no machine can run: by skipping it on a
// developer's computer, by failing it under CI=true. A suite that skips itself
// silently in CI is green and proves nothing.
func Require(t testing.TB) {
	t.Helper()
	err := obstacle()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no machine can be booted here, and CI=true forbids to skip: %v", err)
	}
	t.Skipf("\n*** SKIPPED: %s needs a machine, and none can be booted here: %v ***", t.Name(), err)
}

// obstacle says why no machine can run here. The answer does not change while
// the process lives, and the probe costs some milliseconds, so it is asked once.
var obstacle = sync.OnceValue(func() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("this is %s; machines are Linux containers", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("not root; try: sudo env \"PATH=$PATH\" go test ./test/machine/")
	}
	if _, err := debianArch(); err != nil {
		return err
	}
	for tool, pkg := range map[string]string{
		"unshare":        "util-linux",
		"nsenter":        "util-linux",
		"ip":             "iproute2",
		"systemd-nspawn": "systemd-container",
		"debootstrap":    "debootstrap",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; apt-get install %s", tool, pkg)
		}
	}
	return probe()
})

// probe does, in a namespace that vanishes with it, the mounts a machine
// needs. Trying tells the truth where reading capabilities would not: seccomp
// filters, security modules and unprivileged containers all say no in their
// own ways.
func probe() error {
	dir, err := os.MkdirTemp("", "nodeadm-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const mounts = `set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/lower" "$1/upper" "$1/scratch" "$1/root" "$1/cgroup"
mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/scratch" overlay "$1/root"
mount -t cgroup2 cgroup2 "$1/cgroup"`
	out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		"--propagation", "private", "sh", "-c", mounts, "probe", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("namespaces, tmpfs, overlayfs and cgroup2 are needed (CAP_SYS_ADMIN): %v: %s",
			err, strings.TrimSpace(string(out)))
	}
	return nil
}
