package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
		return fmt.Sprintf("%s is not built for %s, as nodeadm is", path, runtime.GOARCH)
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
	host, err := root.Resolve(layout.Program, true)
	if err != nil {
		return err.Error()
	}
	info, err := os.Stat(host)
	switch {
	case err != nil:
		return err.Error()
	case info.Mode().Perm()&0o022 != 0:
		return layout.Program + " can be written by others than its owner"
	case !ours(info):
		return fmt.Sprintf("%s belongs to the user with the number %d", layout.Program, atomicfile.OwnerOf(info).UID)
	case self == "":
		return ""
	}
	if same, err := sameContent(host, info, self); err != nil {
		return err.Error()
	} else if !same {
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

// sameContent compares a file with another. On the instance itself it is the one
// that runs, and need not be read.
func sameContent(host string, info os.FileInfo, other string) (bool, error) {
	otherInfo, err := os.Stat(other)
	if err != nil || os.SameFile(info, otherInfo) || info.Size() != otherInfo.Size() {
		return err == nil && os.SameFile(info, otherInfo), err
	}
	data, err := os.ReadFile(host)
	otherData, errOther := os.ReadFile(other)
	return bytes.Equal(data, otherData), errors.Join(err, errOther)
}
