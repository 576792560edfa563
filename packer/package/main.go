// Command package makes what a release consists of from binaries that are
// already built: per architecture a tarball, a deb, an rpm and a list of what
// is in the binary (SBOM), and SHA256SUMS over all of it. It is run by
// `make release`, in its own directory, and needs no network.
//
// The same commit, built with the same Go, gives the same bytes: every time is
// the commit's, every list is sorted, every mode is written down, and nothing
// tells the computer, the directory or who built it.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// top is the repository, seen from where this program runs.
const top = "../.."

func main() {
	version := flag.String("version", "", "what git describe says of the commit")
	date := flag.String("date", "", "the date of the commit, RFC 3339")
	binaries := flag.String("binaries", "", "the directory that holds linux_ARCH/nodeadm; without it, only what would stop a release is said")
	dist := flag.String("dist", "", "the directory to write to; an earlier release in it is removed")
	flag.Parse()
	if err := release(*version, *date, *binaries, *dist, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func release(described, date, binaries, dist string, archs []string) error {
	when, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return fmt.Errorf("a release is made of a commit, and there is none here (%w): run it in a clone, or give VERSION=v1.2.0 DATE=2026-01-02T03:04:05Z", err)
	}
	if len(archs) == 0 {
		return errors.New("no architecture is named: give ARCHS='amd64 arm64', or one of the two")
	}
	version, err := packageVersion(described, when)
	if err != nil {
		return err
	}
	if err := foreign(dist); err != nil {
		return err
	}
	if binaries == "" {
		return nil
	}
	described = strings.TrimPrefix(described, "v")
	scratch, err := os.MkdirTemp("", "nodeadm-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	written := map[string][]byte{} // by the name in dist
	for _, arch := range archs {
		name := "nodeadm_" + described + "_linux_" + arch
		program, err := inspect(filepath.Join(binaries, "linux_"+arch, "nodeadm"))
		if err != nil {
			return err
		}
		parts := parts{
			version:    version,
			arch:       arch,
			date:       when.UTC(),
			binary:     program.path,
			thirdParty: filepath.Join(scratch, arch),
		}
		if err := os.WriteFile(parts.thirdParty, program.thirdParty(), 0o644); err != nil {
			return err
		}
		for extension, make := range map[string]func() ([]byte, error){
			".cdx.json": func() ([]byte, error) { return program.sbom(described, when) },
			".tar.gz":   func() ([]byte, error) { return tarball(name, parts) },
			".deb":      func() ([]byte, error) { return pack("deb", parts) },
			".rpm":      func() ([]byte, error) { return pack("rpm", parts) },
		} {
			if written[name+extension], err = make(); err != nil {
				return fmt.Errorf("%s%s: %w", name, extension, err)
			}
		}
	}

	var sums bytes.Buffer
	for _, name := range sorted(written) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(written[name]), name)
	}
	written["SHA256SUMS"] = sums.Bytes()
	return replace(dist, written)
}

// foreign finds what no release has put into dist: SHA256SUMS would not know it.
func foreign(dist string) error {
	entries, err := os.ReadDir(dist)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != "SHA256SUMS" && !strings.HasPrefix(e.Name(), "nodeadm_") {
			return fmt.Errorf("%s: it is not of a release; remove it, or give another directory as DIST", filepath.Join(dist, e.Name()))
		}
	}
	return err
}

// replace puts files into dist and takes away those of an earlier release:
// what lies there is one release, as SHA256SUMS says.
func replace(dist string, files map[string][]byte) error {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dist, "nodeadm_*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, name := range sorted(files) {
		if err := os.WriteFile(filepath.Join(dist, name), files[name], 0o644); err != nil {
			return err
		}
		fmt.Printf("%9d %s\n", len(files[name]), filepath.Join(filepath.Base(dist), name))
	}
	return nil
}
