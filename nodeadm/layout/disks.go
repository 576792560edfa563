package layout

import (
	"fmt"
	"path"
	"strings"
)

// DisksPath is where instance store volumes are mounted below unless somebody
// says otherwise.
const DisksPath = "/mnt/k8s-disks"

// The node's data that an array of instance store volumes takes over.
const (
	KubeletDir    = "/var/lib/kubelet"
	ContainerdDir = "/var/lib/containerd"
	PodLogsDir    = "/var/log/pods"
	SOCIDir       = "/var/lib/soci-snapshotter"
)

// CheckDisksPath tells why volumes cannot be mounted below a path: what is
// there is the system's, or, with moves, it is what will be moved onto them.
func CheckDisksPath(where string, moves bool) error {
	where = path.Clean(where)
	if where == "/" {
		return fmt.Errorf("/ is the system's own")
	}
	for _, dir := range []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"} {
		if within(where, dir) {
			return fmt.Errorf("%s is the system's own", dir)
		}
	}
	for _, dir := range []string{KubeletDir, ContainerdDir, PodLogsDir, SOCIDir} {
		if moves && (within(where, dir) || within(dir, where)) {
			return fmt.Errorf("%s and %s, which is moved there, are inside of one another", where, dir)
		}
	}
	return nil
}

func within(where, dir string) bool { return where == dir || strings.HasPrefix(where, dir+"/") }
