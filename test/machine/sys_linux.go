package machine

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tether starts cmd so that the kernel kills it when this process ends, in
// whatever way. The death signal is bound to the thread that started the
// child, so one goroutine keeps that thread until the child has been waited
// for. Pipes of cmd are drained by Wait, whose result the channel carries.
func tether(cmd *exec.Cmd) (<-chan error, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, done := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	return done, <-started
}

// killTogether makes the cancellation of cmd reach its children too: nsenter
// forks, and killing it alone would leave the command running in the machine.
func killTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// lockFile waits until this process alone holds f. The kernel lets go when the
// process ends, so an interrupted holder blocks nobody.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// inNetworkOf calls f on a thread that is in the network namespace of a process.
// A thread that cannot be brought back ends with its goroutine.
func inNetworkOf(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		result <- func() error {
			runtime.LockOSThread()
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer own.Close()
			there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				return err
			}
			defer there.Close()
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			err = f()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			return err
		}()
	}()
	return <-result
}

// signalled returns the signal that ended a process.
func signalled(s *os.ProcessState) (int, bool) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return 0, false
	}
	return int(ws.Signal()), true
}

// systemd's own signals to PID 1 (see systemd(1)): SIGRTMIN+4 powers off,
// SIGRTMIN+5 reboots. They work when D-Bus does not. 34 is the C library's
// SIGRTMIN.
const (
	sigPowerOff = syscall.Signal(34 + 4)
	sigReboot   = syscall.Signal(34 + 5)
)

// openIn opens path as a process with its root at root would see it: absolute
// symlinks lead to the machine's files, never to the host's. With so many
// links like /var/run in a Debian tree, plain path joining would write to the
// computer that runs the tests. It opens what is there and creates nothing.
func openIn(root *os.File, path string, flags int) (*os.File, error) {
	const (
		openat2       = 437 // on every architecture Go supports
		resolveInRoot = 0x10
	)
	how := struct{ flags, mode, resolve uint64 }{uint64(flags | syscall.O_CLOEXEC), 0, resolveInRoot}
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	for {
		fd, _, errno := syscall.Syscall6(openat2, root.Fd(), uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return os.NewFile(fd, path), nil
		case syscall.EINTR, syscall.EAGAIN: // EAGAIN: a rename raced with the walk
			continue
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: errno}
	}
}

// oPath opens a place in the tree without opening what is there.
const oPath = 0x200000
