package machine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// BuildNodeadm builds this module's nodeadm as it ships, static, once per test
// process, and returns its path on the host.
func BuildNodeadm(t testing.TB) string {
	t.Helper()
	return built(t, target{dir: ".", name: "nodeadm"})
}

// StandInKubelet builds the program that takes kubelet's place (see the module
// test/machine/standin) and returns its path on the host. It says that it is
// kubelet of the given version, such as "1.34.4".
func StandInKubelet(t testing.TB, version string) string {
	t.Helper()
	version = strings.TrimPrefix(version, "v")
	return built(t, target{
		dir:     "test/machine/standin",
		pkg:     ".",
		name:    "kubelet-" + version,
		ldflags: "-X main.version=v" + version,
	})
}

// target is one program to build; without pkg it is built by make.
type target struct{ dir, pkg, name, ldflags string }

var builds sync.Map // target → func() (string, error)

func built(t testing.TB, what target) string {
	t.Helper()
	once, _ := builds.LoadOrStore(what, sync.OnceValues(func() (string, error) { return build(what) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("building %s: %v", what.name, err)
	}
	return path
}

// build leaves the program at a path of its own for each checkout, so that
// nothing piles up; the rename keeps one that is being copied or run whole.
func build(what target) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(root))
	dir := filepath.Join(cache, fmt.Sprintf("bin-%x", sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, ".building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out, path := filepath.Join(tmp, what.name), filepath.Join(dir, what.name)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w "+what.ldflags, "-o", out, what.pkg)
	if what.pkg == "" {
		cmd = exec.Command("make", "--silent", "build", "BIN="+out)
	}
	cmd.Dir = filepath.Join(root, what.dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, msg)
	}
	return path, os.Rename(out, path)
}

// moduleRoot finds the module by asking go, which knows it in whatever
// directory of it a test runs.
var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("not inside the module")
	}
	return filepath.Dir(mod), nil
})
