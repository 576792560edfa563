package machine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
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

// Source is the host path of a file of this module.
func Source(t testing.TB, name string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, name)
}

// BuildProgram builds a program of this module by its folder.
func BuildProgram(t testing.TB, dir string) string {
	t.Helper()
	return built(t, target{dir: dir, pkg: ".", name: path.Base(dir)})
}

// BuildPinned builds a program all of whose sources are pinned by the module in
// dir, which is below this module's root, once on this computer, and returns
// its path on the host. Some such programs take minutes.
func BuildPinned(t testing.TB, dir, pkg, ldflags string) string {
	t.Helper()
	name := path.Base(pkg)
	tree, err := pinned(dir, pkg, ldflags)
	if err != nil {
		t.Fatalf("building %s: %v", name, err)
	}
	return filepath.Join(tree, name)
}

func pinned(dir, pkg, ldflags string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name, dir := path.Base(pkg), filepath.Join(root, dir)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, pkg, ldflags)
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	return cachedTree(filepath.Join(cache, fmt.Sprintf("%s-%x", name, sum.Sum(nil)[:6])), func(tree, log string) error {
		start := time.Now()
		progress(start, "building %s in %s, once; this can take minutes", name, dir)
		cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w "+ldflags, "-o", filepath.Join(tree, name), pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, tail(string(msg), 40))
		}
		progress(start, "%s is built", name)
		return nil
	})
}

// target is one program to build; without pkg it is built by make.
type target struct{ dir, pkg, name, ldflags string }

var builds sync.Map // target → func() (string, error)

func built(t testing.TB, what target) string {
	t.Helper()
	once, _ := builds.LoadOrStore(what, sync.OnceValues(func() (string, error) { return build(what) }))
	program, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("building %s: %v", what.name, err)
	}
	return program
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
