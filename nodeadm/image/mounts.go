package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// mountInfo is where the kernel lists mount points, except to a test.
var mountInfo = "/proc/self/mountinfo"

// resolved is a root by the name that the kernel has for it.
func resolved(root rootfs.Root) rootfs.Root {
	if real, err := filepath.EvalSymlinks(string(root)); err == nil {
		return rootfs.Root(real)
	}
	return root
}

// mounts are the mount points of this machine, nil where there is no /proc, as
// in a chroot.
func mounts() (mounts []string) {
	data, _ := os.ReadFile(mountInfo)
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 4 {
			mounts = append(mounts, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4]))
		}
	}
	return mounts
}

// mounted tells whether a path is a mount point. Kernels before 5.8 do not tell
// it of a path.
func (c *cleaning) mounted(host string) (is, known bool) {
	if c.mounts != nil {
		return slices.Contains(c.mounts, host), true
	}
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, host, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &st)
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// mountIn is a mount point at a path or, where /proc tells them, below it; "" if
// there is none.
func (c *cleaning) mountIn(host string) string {
	if is, _ := c.mounted(host); is {
		return host
	}
	for _, mount := range c.mounts {
		if strings.HasPrefix(mount, host+"/") {
			return mount
		}
	}
	return ""
}
