package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself, as rpm does
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// parts are what the packages of one architecture are made of, beside the
// files of the repository.
type parts struct {
	version    string // as packageVersion gives it
	arch       string // as Go calls it
	date       time.Time
	binary     string // paths
	thirdParty string
}

// pack makes a deb or an rpm of what nfpm.yaml says.
func pack(format string, p parts) ([]byte, error) {
	config, err := nfpm.ParseFileWithEnvMapping("nfpm.yaml", func(name string) string {
		return map[string]string{"VERSION": p.version, "ARCH": p.arch, "BINARY": p.binary, "THIRD_PARTY": p.thirdParty}[name]
	})
	if err != nil {
		return nil, err
	}
	info, err := config.Get(format)
	if err != nil {
		return nil, err
	}
	info.MTime = p.date
	packager, err := nfpm.Get(format)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = packager.Package(info, &b)
	return b.Bytes(), err
}

// tarball puts the same files into one directory, for whoever has a package
// manager of another kind, or none.
func tarball(name string, p parts) ([]byte, error) {
	var b bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(compressed)
	add := func(h tar.Header, content []byte) error {
		h.Name = name + "/" + h.Name
		h.Size = int64(len(content))
		h.ModTime = p.date
		h.Uname, h.Gname = "root", "root"
		h.Format = tar.FormatPAX
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
		_, err := out.Write(content)
		return err
	}
	if err := add(tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name, source string
		mode         int64
	}{
		{"90-nodeadm.preset", filepath.Join(top, "systemd/90-nodeadm.preset"), 0o644},
		{"LICENSE", filepath.Join(top, "LICENSE"), 0o644},
		{"README.md", filepath.Join(top, "README.md"), 0o644},
		{"THIRD-PARTY-LICENSES", p.thirdParty, 0o644},
		{"nodeadm", p.binary, 0o755},
		{"nodeadm.service", filepath.Join(top, "systemd/nodeadm.service"), 0o644},
	} {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return nil, err
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode}, content); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return b.Bytes(), err
}
