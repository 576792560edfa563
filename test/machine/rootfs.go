package machine

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

//go:embed rootfs.sh
var rootfsRecipe string

var rootfses sync.Map // recipe → func() (string, error)

// rootfs returns the directory of a machine's disk, building it first if this
// computer has never done so. It is the lower layer of machines and is never
// written to.
func rootfs(recipe string) (string, error) {
	once, _ := rootfses.LoadOrStore(recipe, sync.OnceValues(func() (string, error) {
		cache, err := cacheDir()
		if err != nil {
			return "", err
		}
		arch, err := debianArch()
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(arch + "\n" + recipe))
		return cachedTree(filepath.Join(cache, fmt.Sprintf("rootfs-%x", sum[:6])), func(dir, log string) error {
			return buildRootfs(dir, log, arch, recipe)
		})
	}))
	return once.(func() (string, error))()
}

// cacheDir is where everything this package keeps between runs lies.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "nodeadm-test")
	return dir, os.MkdirAll(dir, 0o755)
}

// debianArch is Debian's name of this computer's architecture.
func debianArch() (string, error) {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return runtime.GOARCH, nil
	}
	return "", fmt.Errorf("no machine for %s", runtime.GOARCH)
}

// cachedTree returns dir, which build fills if it does not exist yet. Whoever
// sees dir sees all of it: it is built beside its place, under a lock, and
// renamed at the end. What an interrupted build left behind can be removed by
// whoever holds the lock, since nobody else builds.
func cachedTree(dir string, build func(dir, log string) error) (string, error) {
	if exists(dir) {
		return dir, nil
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Name(), err)
	}
	if exists(dir) { // another process built it while this one waited
		return dir, nil
	}
	stale, err := filepath.Glob(dir + ".building-*")
	if err != nil {
		return "", err
	}
	for _, s := range stale {
		if err := os.RemoveAll(s); err != nil {
			return "", err
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".building-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // it becomes the machine's /
		return "", err
	}
	if err := build(tmp, dir+".log"); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return dir, os.Rename(tmp, dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// buildRootfs runs the recipe. In namespaces of its own, because debootstrap
// mounts /proc in the tree: a build that is killed must leave neither mounts
// (removing the tree would then walk into the host's /proc) nor a debootstrap
// that goes on writing.
func buildRootfs(dir, log, arch, recipe string) error {
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()
	steps, stepsWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer steps.Close()
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
		"--propagation", "private", "sh", "-eu", "-c", recipe, "rootfs.sh", dir, arch)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{stepsWriter}
	start := time.Now()
	progress(start, "building the machine's disk, once, in 1 to 2 minutes; log in %s", log)
	done, err := tether(cmd)
	stepsWriter.Close()
	if err != nil {
		return err
	}
	go relay(start, steps)
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		select {
		case <-alive.C:
			progress(start, "  … %s", lastLine(log))
		case err := <-done:
			if err != nil {
				return fmt.Errorf("building the machine's disk: %w; the end of %s:\n%s", err, log, tailOf(log, 20))
			}
			progress(start, "the machine's disk is ready")
			return nil
		}
	}
}

// relay prints the recipe's own steps.
func relay(start time.Time, steps io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := steps.Read(buf)
		if n > 0 {
			progress(start, "%s", strings.TrimSpace(string(buf[:n])))
		}
		if err != nil {
			return
		}
	}
}

// progress goes to standard error at once: a test's log appears only when the
// test ends, and two silent minutes look like a hang.
func progress(start time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "machine: %3.0fs %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
}

func lastLine(path string) string { return tailOf(path, 1) }

// tailOf returns the last n lines of a file, or why it cannot.
func tailOf(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return tail(string(b), n)
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
