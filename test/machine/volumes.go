package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// requireVolumes leaves a test out where the kernel has no loop devices or no
// XFS; under CI=true that is a failure.
func requireVolumes(t testing.TB) {
	t.Helper()
	missing := ""
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = " loop devices"
	}
	if filesystems, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(filesystems), "\txfs\n") {
		if exec.Command("modprobe", "xfs").Run() != nil {
			missing += " XFS"
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CI") == "true":
		t.Fatalf("this cannot run here, and CI=true forbids to skip: it needs a kernel with%s", missing)
	default:
		t.Skipf("\n*** SKIPPED: %s needs a kernel with%s ***", t.Name(), missing)
	}
}

// volumeFiles stand for udev, which does not run in containers: they link the
// volumes by their names and, at boot and after mkfs.xfs, by what is on them.
func volumeFiles(volumes []string) map[string]File {
	const script, service = "/usr/local/sbin/simulated-udev", "simulated-udev.service"
	links := "#!/bin/sh -eu\nmkdir -p /dev/disk/by-id /dev/disk/by-uuid\n"
	for n, volume := range volumes {
		links += fmt.Sprintf("ln -sfn ../../%s /dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_AWS%d\n", filepath.Base(volume), n+1)
		links += fmt.Sprintf("uuid=$(blkid --probe --match-tag UUID --output value %s || true)\n[ -z \"$uuid\" ] || ln -sfn %s \"/dev/disk/by-uuid/$uuid\"\n", volume, volume)
	}
	return map[string]File{
		script:                     {Content: links, Mode: 0o755},
		"/usr/local/sbin/mkfs.xfs": {Content: "#!/bin/sh -eu\n/usr/sbin/mkfs.xfs \"$@\"\n" + script + "\n", Mode: 0o755},
		"/etc/systemd/system/" + service: {Content: "[Unit]\nDefaultDependencies=no\nWants=local-fs-pre.target\nBefore=local-fs-pre.target\n\n" +
			"[Service]\nType=oneshot\nExecStart=" + script + "\n"},
		"/etc/systemd/system/sysinit.target.wants/" + service: {Link: "../" + service},
	}
}
