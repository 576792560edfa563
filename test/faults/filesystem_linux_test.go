//go:build amd64 || arm64

package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The disks here are as bad as they seem: what a tracer makes up is only what
// somebody thought of.

func TestFullDisk(t *testing.T) {
	privileged(t, nil)
	for _, s := range scenarios {
		for option, used := range map[string]func(unix.Statfs_t) uint64{
			"size":      func(fs unix.Statfs_t) uint64 { return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize) },
			"nr_inodes": func(fs unix.Statfs_t) uint64 { return fs.Files - fs.Ffree },
		} {
			t.Run(s.name+", "+option, func(t *testing.T) {
				privateMounts(t)
				before, after := s.start(t)
				step := uint64(1)
				if option == "size" {
					step = uint64(os.Getpagesize())
				}
				failed := 0
				for left := step; ; left += step {
					root := t.TempDir()
					mount(t, root, "tmpfs", 0, "mode=700")
					before.write(t, root)
					var fs unix.Statfs_t
					if err := unix.Statfs(root, &fs); err != nil {
						t.Fatal(err)
					}
					mount(t, root, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("%s=%d", option, used(fs)+left))
					output, code := s.run.run(t, root)
					allOrNothing(t, fmt.Sprintf("%d left", left), before, after, readTree(t, root), output, code)
					if code == 0 {
						break
					}
					if !strings.Contains(output, unix.ENOSPC.Error()) {
						t.Errorf("%d left: the error is another one:\n%s", left, brief(output))
					}
					if failed++; failed > 500 {
						t.Fatalf("%d left are still not enough:\n%s", left, brief(output))
					}
				}
				if failed == 0 {
					t.Error("nothing was needed")
				}
			})
		}
	}
}

func TestReadOnlyDisk(t *testing.T) {
	privileged(t, nil)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			privateMounts(t)
			before, after := s.start(t)
			for _, start := range []tree{before, after} {
				root := t.TempDir()
				start.write(t, root)
				bind(t, root)
				output, code := s.run.run(t, root)
				if diff := difference(start, readTree(t, root)); diff != "" {
					t.Errorf("what has changed:%s", diff)
				}
				done := strings.Contains(output, "nothing changed")
				failed := strings.Contains(output, unix.EROFS.Error()) && namesPath(output)
				switch {
				case difference(start, after) == "" && (code != 0 || !done):
					t.Errorf("nothing had to be written: exit %d:\n%s", code, brief(output))
				case difference(start, after) != "" && (code != 4 || !failed):
					t.Errorf("want exit 4, got %d:\n%s", code, brief(output))
				}
			}
		})
	}
}

// bind makes a directory a filesystem that is mounted read-only.
func bind(t *testing.T, dir string) {
	t.Helper()
	mount(t, dir, "", unix.MS_BIND, "")
	mount(t, dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

// Files, and the directories that hold them, may be immutable for root too.
func TestImmutable(t *testing.T) {
	privileged(t, nil)
	s := scenarios[2]
	before, after := s.start(t)
	for _, place := range before.paths() {
		isDir := before[place].mode.IsDir()
		if isState(place) || !isDir && before[place] == after[place] || isDir && !holdsChange(before, after, place) {
			continue
		}
		t.Run(place, func(t *testing.T) {
			root := t.TempDir()
			if err := tryImmutable(root); errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
				privateMounts(t) // tmpfs knows the flag
				mount(t, root, "tmpfs", 0, "mode=700")
				privileged(t, tryImmutable(root))
			} else {
				privileged(t, err)
			}
			before.write(t, root)
			path := filepath.Join(root, place)
			if err := setImmutable(path, true); err != nil {
				t.Fatal(err)
			}
			defer setImmutable(path, false)
			output, code := s.run.run(t, root)
			if code != 4 || !isDir && !namesThis(output, place) {
				t.Errorf("want exit 4 and an error that names /%s, got %d:\n%s", place, code, brief(output))
			}
			if diff := difference(before, readTree(t, root)); diff != "" {
				t.Errorf("what has changed:%s", diff)
			}
		})
	}
}

// holdsChange tells whether a file right in this directory changes.
func holdsChange(before, after tree, dir string) bool {
	for path, e := range before {
		if filepath.Dir(path) == dir && !e.mode.IsDir() && e != after[path] {
			return true
		}
	}
	return false
}

func tryImmutable(dir string) error {
	path := filepath.Join(dir, "try")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	return errors.Join(setImmutable(path, true), setImmutable(path, false))
}

func setImmutable(path string, on bool) error {
	const immutable = 0x10 // FS_IMMUTABLE_FL
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if flags &^= immutable; on {
		flags |= immutable
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// What has to be a directory is somebody's file, or the other way round.
func TestInTheWay(t *testing.T) {
	s := scenarios[0]
	_, after := s.start(t)
	for _, place := range after.places() {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if after[place].mode.IsDir() {
				put(t, root, place, "somebody's\n", 0o644)
			} else {
				put(t, root, place+"/somebodys", "", 0o644)
			}
			before := readTree(t, root)
			output, code := s.run.run(t, root)
			if code != 4 || !namesThisOrBelow(output, place) {
				t.Errorf("/%s is in the way: want exit 4 and an error that names it, got %d:\n%s", place, code, brief(output))
			}
			if diff := difference(before, readTree(t, root)); diff != "" {
				t.Errorf("/%s is in the way; what has changed:%s", place, diff)
			}
		})
	}
}

func TestWithoutRights(t *testing.T) {
	privileged(t, nil)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, _ := s.start(t)
			root := t.TempDir()
			before.write(t, root)
			// It is the files that are to be out of reach, not the root itself.
			if err := errors.Join(os.Chmod(filepath.Dir(root), 0o711), os.Chmod(root, 0o755)); err != nil {
				t.Fatal(err)
			}
			before = readTree(t, root)
			const nobody = 65534
			cmd := s.run.on(root)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			output, code := finish(t, cmd)
			if code != 4 || !namesPath(output) || !strings.Contains(output, unix.EACCES.Error()) {
				t.Errorf("want exit 4, got %d:\n%s", code, brief(output))
			}
			if diff := difference(before, readTree(t, root)); diff != "" {
				t.Errorf("what has changed:%s", diff)
			}
		})
	}
}

// privileged ends a test that only root can run, or that err keeps from
// running: a developer gets a skip that is not to be overlooked, CI a failure.
func privileged(t *testing.T, err error) {
	t.Helper()
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("not root; try: sudo env \"PATH=$PATH\" go test ./test/faults/")
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("this cannot run here, and CI=true forbids to skip: %v", err)
	default:
		t.Skipf("\n*** SKIPPED: %s cannot run here: %v ***", t.Name(), err)
	}
}

// privateMounts lets the test mount what it likes. The goroutine keeps its
// thread, which has a mount namespace of its own, until both end together: not
// even a test that is killed leaves a mount behind. What the test starts sees
// the mounts; subtests and other goroutines do not.
func privateMounts(t *testing.T) {
	t.Helper()
	privileged(t, nil)
	runtime.LockOSThread()
	privileged(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	privileged(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// mount mounts a directory, or a filesystem of a kind, on a directory.
func mount(t *testing.T, dir, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(dir, dir, kind, flags, data); err != nil {
		t.Fatalf("mount %s %s: %v", kind, data, err)
	}
	if flags&unix.MS_REMOUNT == 0 {
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) // or the directory cannot be removed
	}
}
