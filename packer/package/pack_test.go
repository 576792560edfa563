package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rpm "github.com/sassoftware/go-rpmutils"
)

// someParts stand for a binary and its licences, which only their owner may
// read: that is no business of whoever installs them.
func someParts(t *testing.T) parts {
	t.Helper()
	p := parts{version: "1.2.0~rc.1", arch: "arm64", date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for name, path := range map[string]*string{"nodeadm": &p.binary, "licences": &p.thirdParty} {
		*path = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(*path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestRPM(t *testing.T) {
	p := someParts(t)
	content, err := pack("rpm", p)
	if err != nil {
		t.Fatal(err)
	}
	read, err := rpm.ReadRpm(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	nevra, err := read.Header.GetNEVRA()
	if err != nil || nevra.String() != "nodeadm-0:1.2.0~rc.1-1.aarch64.rpm" {
		t.Errorf("%v, %v", nevra, err)
	}
	files, err := read.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range files {
		fmt.Fprintf(&got, "%06o %s:%s %s\n", f.Mode(), f.UserName(), f.GroupName(), f.Name())
		if int64(f.Mtime()) != p.date.Unix() {
			t.Errorf("%s is of %v", f.Name(), time.Unix(int64(f.Mtime()), 0))
		}
	}
	const want = `040755 root:root /etc/eks
040755 root:root /etc/eks/nodeadm.d
100755 root:root /usr/bin/nodeadm
100644 root:root /usr/lib/systemd/system-preset/90-nodeadm.preset
100644 root:root /usr/lib/systemd/system/nodeadm.service
040755 root:root /usr/share/doc/nodeadm
100644 root:root /usr/share/doc/nodeadm/README.md
040755 root:root /usr/share/licenses/nodeadm
100644 root:root /usr/share/licenses/nodeadm/LICENSE
100644 root:root /usr/share/licenses/nodeadm/THIRD-PARTY-LICENSES
`
	if got.String() != want {
		t.Errorf("files:\n%swant:\n%s", &got, want)
	}
	if host, err := read.Header.GetString(rpm.BUILDHOST); err != nil || host != "reproducible" {
		t.Errorf("built on %q, %v", host, err)
	}
}

func TestTarball(t *testing.T) {
	p := someParts(t)
	content, err := tarball("nodeadm_1.2.0-rc.1_linux_arm64", p)
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for in := tar.NewReader(uncompressed); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, under := strings.CutPrefix(h.Name, "nodeadm_1.2.0-rc.1_linux_arm64/")
		fmt.Fprintf(&got, "%o %s:%s %s\n", h.Mode, h.Uname, h.Gname, name)
		if !under || !h.ModTime.Equal(p.date) {
			t.Errorf("%s of %v", h.Name, h.ModTime)
		}
	}
	const want = `755 root:root 
644 root:root 90-nodeadm.preset
644 root:root LICENSE
644 root:root README.md
644 root:root THIRD-PARTY-LICENSES
755 root:root nodeadm
644 root:root nodeadm.service
`
	if got.String() != want {
		t.Errorf("files:\n%swant:\n%s", &got, want)
	}
}
