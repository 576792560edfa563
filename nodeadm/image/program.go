package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// machines are the architectures of ELF files, by Go's names.
var machines = map[string]uint16{"amd64": 62, "arm64": 183}

// machineOf reads the architecture that a program is built for, 0 if it is none.
func machineOf(root rootfs.Root, path string) uint16 {
	host, err := root.Resolve(path, true)
	if err != nil {
		return 0
	}
	f, err := os.Open(host)
	if err != nil {
		return 0
	}
	defer f.Close()
	header := make([]byte, 20)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte("\x7fELF")) {
		return 0
	}
	return binary.LittleEndian.Uint16(header[18:]) // big-endian ones are none of machines either way
}

// foreign tells of a program that is built for another architecture than this
// one, which is the node's nodeadm. A script is of any.
func foreign(root rootfs.Root, path string) string {
	if machine := machineOf(root, path); machine != 0 && machine != machines[runtime.GOARCH] {
		return path + " is not built for " + runtime.GOARCH + ", as nodeadm is"
	}
	return ""
}

// checkProgram wants this very program, which nobody else can replace, under
// all its names.
func checkProgram(root rootfs.Root, v versions) (string, string) {
	if what := unlikeSelf(root, v.self); what != "" {
		return what, again
	}
	for _, path := range []string{layout.BootstrapScript, layout.MaxPodsScript} {
		if to := link(root, path); to != layout.Program {
			return path + " does not lead to " + layout.Program + ": user data that calls it does not reach nodeadm", again
		}
	}
	return "", ""
}

func unlikeSelf(root rootfs.Root, self string) string {
	if what, _ := executable("nodeadm", again, layout.Program)(root, versions{}); what != "" {
		return what
	}
	info, err := stat(root, layout.Program)
	switch {
	case err != nil:
		return err.Error()
	case info.Mode().Perm()&0o022 != 0:
		return layout.Program + " can be written by others than its owner"
	case !ours(info):
		return layout.Program + " is not root's"
	case self == "":
		return ""
	}
	data, err := root.ReadFile(layout.Program)
	own, errOwn := os.ReadFile(self)
	if err := errors.Join(err, errOwn); err != nil {
		return err.Error()
	}
	if !bytes.Equal(data, own) {
		return layout.Program + " is not the nodeadm that looks at it"
	}
	return ""
}

// ours tells of a file that is root's, or of whoever makes images without being
// root.
func ours(info os.FileInfo) bool {
	uid := atomicfile.OwnerOf(info).UID
	return uid == 0 || uid == os.Geteuid()
}
