package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// versions is what the programs of an image say of themselves, "" with the
// reason where one says nothing.
type versions struct {
	kubelet, containerd       string
	kubeletErr, containerdErr error
	self                      string // the program that asks
}

func askVersions(ctx context.Context, root rootfs.Root) (v versions) {
	var err error
	v.kubelet, v.containerd, err = facts.Versions(ctx, root)
	fault.Each(err, func(e error) { // kubelet's first
		if exit := (*exec.ExitError)(nil); errors.As(e, &exit) {
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
				e = fmt.Errorf("%w: it was killed, after 30 s without an answer or by somebody else", e)
			}
		}
		if v.kubelet == "" && v.kubeletErr == nil {
			v.kubeletErr = e
		} else {
			v.containerdErr = e
		}
	})
	return v
}

// versionRemedy tells what to do about a program that does not tell its version.
func versionRemedy(program string, err error) string {
	exit := (*exec.ExitError)(nil)
	switch {
	case errors.As(err, &exit):
		return "run it by hand, with --version, and see what it waits for or says"
	case errors.Is(err, fs.ErrPermission):
		return "chmod 0755, or mount the image without noexec"
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, fs.ErrNotExist):
		// Of a program that is there, its interpreter or loader is not.
		return "install one that is built for the architecture of the image, and of this computer"
	}
	return "install " + program + " on the image first, for its architecture"
}

// dockershim tells whether kubelet can do with dockerd, and has it.
func (v versions) dockershim(root rootfs.Root) bool {
	parsed, err := kubelet.ParseVersion(v.kubelet)
	return err == nil && parsed.Minor <= 23 && root.FirstExisting("/usr/bin/dockerd") != ""
}
