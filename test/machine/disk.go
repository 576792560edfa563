package machine

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed disk.sh
var diskScript string

// disk is a machine's disk: an overlay whose upper layer is on a tmpfs. It
// lives in the mount namespace of a process that does nothing else, so it
// outlives power-off and ends with the test.
type disk struct {
	dir    string // where it is mounted, in the keeper's mount namespace
	keeper int
	stdin  io.Closer
	done   <-chan error
}

func newDisk(recipe string, controllers bool, volumes int) (*disk, error) {
	lower, err := rootfs(recipe)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	// One empty directory serves all machines: each mounts over it in its own
	// namespace, and nothing is left to remove.
	dir := filepath.Join(cache, "machine")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private",
		"sh", "-eu", "-c", diskScript, "disk.sh", lower, dir, flag(controllers), strconv.Itoa(volumes))
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Wait closes StdoutPipe, and tether waits at once.
	stdout, stdoutWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	cmd.Stdout = stdoutWriter
	done, err := tether(cmd)
	stdoutWriter.Close()
	if err != nil {
		return nil, err
	}
	d := &disk{dir: dir, keeper: cmd.Process.Pid, stdin: stdin, done: done}
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		err := d.remove()
		return nil, fmt.Errorf("assembling the machine's disk: %v: %s", err, strings.TrimSpace(stderr.String()))
	}
	return d, nil
}

// flag is a boolean for a shell script.
func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// root is the disk as the host sees it, whether the machine runs or not.
func (d *disk) root() string { return d.host(d.dir + "/root") }

// volumes are the devices of the instance store volumes.
func (d *disk) volumes() ([]string, error) {
	text, err := os.ReadFile(d.host(d.dir + "/volumes"))
	return strings.Fields(string(text)), err
}

// host translates a path of the keeper's mount namespace.
func (d *disk) host(path string) string { return "/proc/" + strconv.Itoa(d.keeper) + "/root" + path }

// enter is the beginning of a command line that runs in the disk's mount namespace.
func (d *disk) enter() []string {
	return []string{"nsenter", "--mount", "--target", strconv.Itoa(d.keeper)}
}

// removeCgroup removes a control group and those below it. The kernel lets go
// of one some milliseconds after its last process has died.
func (d *disk) removeCgroup(name string) error {
	groups, err := filepath.Glob(d.host("/sys/fs/cgroup/*/" + name)) // cgroup v1
	if err != nil {
		return err
	}
	if unified := d.host("/sys/fs/cgroup/" + name); exists(unified) {
		groups = append(groups, unified)
	}
	var errs []error
	for _, group := range groups {
		errs = append(errs, removeGroup(group))
	}
	return errors.Join(errs...)
}

func removeGroup(top string) error {
	deadline := time.Now().Add(2 * time.Second)
	for {
		var dirs []string
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0 && err == nil; i-- { // the deepest first
			err = os.Remove(dirs[i])
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// remove ends the keeper and with it the mounts.
func (d *disk) remove() error {
	d.stdin.Close()
	return <-d.done
}
