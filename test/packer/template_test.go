// Package packer tests the templates in packer/: that they are valid, and that
// their provisioners make an image.
package packer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// require ends the test where a program is missing, as machine.Require does.
func require(t *testing.T, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v, and CI=true forbids to skip", err)
	default:
		t.Skipf("\n*** SKIPPED: %s: %v ***", t.Name(), err)
	}
}

// packer is a command line, with the environment that it needs and no traffic
// but that of the build.
func packer(t *testing.T, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHECKPOINT_DISABLE=1"}
	return cmd
}

// variables are what has to be said for every image.
func variables(pkg, pkgSum, kubeletURL, kubeletSum string) []string {
	return []string{
		"-var=nodeadm_package=" + pkg, "-var=nodeadm_sha256=" + pkgSum,
		"-var=kubernetes_version=1.34.4", "-var=kubelet_url=" + kubeletURL, "-var=kubelet_sha256=" + kubeletSum,
	}
}

var sources = []string{"al2023", "debian-12", "ubuntu-2204", "ubuntu-2404"}

func TestValidate(t *testing.T) {
	require(t, "packer")
	templates := machine.Source(t, "packer")
	pkg := filepath.Join(t.TempDir(), "nodeadm.deb")
	if err := os.WriteFile(pkg, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0123456789abcdef", 4)
	good := variables(pkg, sum, "https://example.com/kubelet", sum)
	validate := func(more ...string) (string, error) {
		args := slices.Concat([]string{"packer", "validate"}, good, more, []string{templates})
		out, err := packer(t, args...).CombinedOutput()
		return string(out), err
	}
	for _, source := range sources {
		for _, arch := range []string{"amd64", "arm64"} {
			if out, err := validate("-only=amazon-ebs."+source, "-var=arch="+arch); err != nil {
				t.Errorf("%s, %s: %v\n%s", source, arch, err, out)
			}
		}
	}
	// All of them at once, which also says that there are no others.
	out, err := packer(t, "packer", "inspect", templates).CombinedOutput()
	if err != nil || strings.Count(string(out), "  amazon-ebs.") != len(sources) {
		t.Errorf("inspect: %v\n%s", err, out)
	}
	copied := func(name string) string {
		path := filepath.Join(filepath.Dir(pkg), name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, broken := range []struct{ name, value, says string }{
		{"nodeadm_sha256", "0123", "Nodeadm_sha256 has to be"},
		{"nodeadm_sha256", strings.Repeat("z", 64), "Nodeadm_sha256 has to be"},
		{"kubelet_sha256", sum + "0", "Kubelet_sha256 has to be"},
		{"kubelet_sha256", strings.Repeat("z", 64), "Kubelet_sha256 has to be"},
		{"kubernetes_version", "v1.34.2", "Kubernetes_version has to be"},
		{"kubernetes_version", "1.34", "Kubernetes_version has to be"},
		{"kubernetes_version", "1.34.2.", "Kubernetes_version has to be"},
		{"kubernetes_version", "", "Kubernetes_version has to be"},
		{"kubelet_url", "", "Kubelet_url has to be"},
		{"kubelet_url", "example.com/kubelet", "Kubelet_url has to be"},
		{"kubelet_url", "https://example.com", "Kubelet_url has to be"},
		{"nodeadm_package", filepath.Join(templates, "../README.md"), "Nodeadm_package has to be"},
		{"nodeadm_package", pkg + "x", "Nodeadm_package has to be"},
		{"nodeadm_package", copied("nodeadm 1.deb"), "Nodeadm_package has to have a name"},
		{"nodeadm_package", copied("nodeadm;id.deb"), "Nodeadm_package has to have a name"},
		{"nodeadm_package", copied("nodeadm_1.2.0_linux_arm64.deb"), "nodeadm_package for arm64"},
		{"nodeadm_package", "x" + filepath.Base(pkg), "no such file or directory"},
		{"arch", "x86_64", "Arch has to be"},
		{"kubelet_version", "1.34.4", "kubelet_version"},
	} {
		out, err := validate("-var=" + broken.name + "=" + broken.value)
		if err == nil || !strings.Contains(out, broken.says) || strings.Contains(out, "Invalid index") {
			t.Errorf("%s=%s: %v, without %q\n%s", broken.name, broken.value, err, broken.says, out)
		}
	}
	for _, good := range []string{"nodeadm_sha256=" + strings.ToUpper(sum), "kubernetes_version=1.34.12", "nodeadm_package=" + copied("nodeadm_0.0.0~git2026.1+dirty_linux_amd64.deb")} {
		if out, err := validate("-var=" + good); err != nil {
			t.Errorf("%s: %v\n%s", good, err, out)
		}
	}
	for i := range good {
		args := slices.Concat([]string{"packer", "validate"}, slices.Delete(slices.Clone(good), i, i+1), []string{templates})
		if out, err := packer(t, args...).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("Unset variable")) {
			t.Errorf("without %s: %v\n%s", good[i], err, out)
		}
	}
	for _, dir := range []string{templates, filepath.Join(templates, "plugins")} {
		if out, err := packer(t, "packer", "fmt", "-check", "-diff", dir).CombinedOutput(); err != nil {
			t.Errorf("packer fmt: %v\n%s", err, out)
		}
	}
}

func TestScripts(t *testing.T) {
	require(t, "shellcheck")
	scripts, err := filepath.Glob(machine.Source(t, "packer/scripts/*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%v, %v", scripts, err)
	}
	if out, err := exec.Command("shellcheck", append([]string{"--enable=quote-safe-variables"}, scripts...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A kubelet that is another than was said is not put in place, by its checksum
// or by what it says.
func TestKubeletScript(t *testing.T) {
	text, err := os.ReadFile(machine.Source(t, "packer/scripts/kubelet.sh"))
	if err != nil {
		t.Fatal(err)
	}
	const program = "#!/bin/sh\necho Kubernetes v1.34.4-eks-abc\n"
	for _, test := range []struct {
		name, version, sum string
		installed          bool
	}{
		{"as was said", "1.34.4", fmt.Sprintf("%x", sha256.Sum256([]byte(program))), true},
		{"another version", "1.34.5", fmt.Sprintf("%x", sha256.Sum256([]byte(program))), false},
		{"another file", "1.34.4", strings.Repeat("0", 64), false},
	} {
		dir, source := t.TempDir(), filepath.Join(t.TempDir(), "kubelet")
		if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", strings.ReplaceAll(string(text), "/usr/bin/", dir+"/"))
		cmd.Env = append(os.Environ(), "KUBELET_URL=file://"+source, "KUBELET_SHA256="+test.sum, "KUBERNETES_VERSION="+test.version)
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.installed {
			t.Errorf("%s: %v\n%s", test.name, err, out)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if want := test.installed; err != nil || (len(left) > 0) != want || want && !slices.Equal(left, []string{filepath.Join(dir, "kubelet")}) {
			t.Errorf("%s: %v, %v", test.name, left, err)
		}
	}
}
