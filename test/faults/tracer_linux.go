//go:build amd64 || arm64

package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Point is a change of the disk that is about to be made.
type Point struct {
	N    int    // the first is 1
	Call string // for people, such as "renameat etc/.new -> etc/hosts"
}

func (p Point) String() string {
	if p.N == 0 {
		return "no point"
	}
	return fmt.Sprintf("point %d (%s)", p.N, p.Call)
}

// Action is what becomes of a change.
type Action struct {
	kill  bool
	errno unix.Errno
}

// Continue lets the change be made. Kill ends the command and all that it
// started before the change is made.
var (
	Continue = Action{}
	Kill     = Action{kill: true}
)

// Fail makes the system call return errno without having done anything.
func Fail(errno unix.Errno) Action { return Action{errno: errno} }

// Outcome is how a command ended.
type Outcome struct {
	Points []Point // all changes that were made or that were to be made
	Killed bool    // by Kill
	Code   int     // the exit code; -1 after a signal
	Output string  // of standard output and standard error together
}

// Run runs cmd and asks at before each system call that changes something below
// root; at nil stands for Continue. A call is taken to change something if it
// may: opening a file for writing does, whether or not anything is written.
// Children are followed as long as they stay in the command's process group.
func Run(cmd *exec.Cmd, root string, at func(Point) Action) (Outcome, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Outcome{}, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return Outcome{}, err
	}
	if at == nil {
		at = func(Point) Action { return Continue }
	}
	read, write, err := os.Pipe()
	if err != nil {
		return Outcome{}, err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write

	t := &tracer{root: root, at: at}
	ended := make(chan error, 1)
	go func() {
		// Only the thread that started a process may trace it. The thread ends
		// with this goroutine, and with it whatever it traced: see EXITKILL.
		runtime.LockOSThread()
		err := t.start(cmd)
		write.Close()
		if err == nil {
			err = t.follow()
		}
		if err != nil && t.pid != 0 {
			unix.Kill(-t.pid, unix.SIGKILL)
		}
		ended <- err
	}()
	output, readErr := io.ReadAll(read)
	err = errors.Join(<-ended, readErr)
	t.outcome.Output = string(output)
	return t.outcome, err
}

type tracer struct {
	root    string
	at      func(Point) Action
	pid     int // of the command, and its process group
	outcome Outcome
}

const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL

// start leaves the command stopped before its first instruction.
func (t *tracer) start(cmd *exec.Cmd) error {
	if err := filtered(cmd); err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	// A process group of its own, so that waiting for it never takes the end of
	// a child away from other goroutines.
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	t.pid = cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil { // it is waited for here
		return err
	}
	var status unix.WaitStatus
	if _, err := wait(t.pid, &status); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("%s ended before it was traced: %v", cmd.Path, status)
	}
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return fmt.Errorf("trace %s: %w", cmd.Path, err)
	}
	return unix.PtraceCont(t.pid, 0)
}

func wait(pid int, status *unix.WaitStatus) (int, error) {
	for {
		tid, err := unix.Wait4(pid, status, unix.WALL|unix.WNOTHREAD, nil)
		if err != unix.EINTR {
			return tid, err
		}
	}
}

// follow goes from stop to stop until nothing is left that could stop.
func (t *tracer) follow() error {
	known := map[int]bool{t.pid: true}
	for {
		var status unix.WaitStatus
		tid, err := wait(-t.pid, &status)
		if err == unix.ECHILD {
			return nil
		}
		if err != nil {
			return err
		}
		if !status.Stopped() {
			delete(known, tid) // the number may come again
			if tid == t.pid {
				t.outcome.Code = status.ExitStatus() // -1 after a signal
			}
			continue
		}
		signal := 0
		switch s := status.StopSignal(); {
		case s == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if err := t.call(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		case s == unix.SIGTRAP && status.TrapCause() > 0: // a new thread or program
		case s == unix.SIGSTOP && !known[tid]: // how new threads begin
		default:
			signal = int(s)
		}
		known[tid] = true
		// Anything may be killed at any time, by a Kill here among others.
		if err := unix.PtraceCont(tid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
}

// call deals with the system call that tid has stopped in front of.
func (t *tracer) call(tid int) error {
	if t.outcome.Killed {
		return nil
	}
	info, err := syscallInfo(tid)
	if err != nil {
		return err
	}
	made, known := calls[info.nr]
	if !known {
		return nil
	}
	text, changes := made.describe(tracee{tid, t.root}, info.args)
	if !changes {
		return nil
	}
	p := Point{N: len(t.outcome.Points) + 1, Call: text}
	t.outcome.Points = append(t.outcome.Points, p)
	switch action := t.at(p); {
	case action.kill:
		t.outcome.Killed = true
		// The call is taken back too: of what happens to a call whose process is
		// killed in front of it, the manual promises nothing.
		return errors.Join(refuse(tid, unix.EINTR), unix.Kill(-t.pid, unix.SIGKILL))
	case action.errno != 0:
		return refuse(tid, action.errno)
	}
	return nil
}

// info is struct ptrace_syscall_info, as far as it matters here.
type info struct {
	_    [24]byte
	nr   uint64
	args [6]uint64
}

func syscallInfo(tid int) (i info, err error) {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)), 0, 0)
	if errno != 0 {
		return i, errno
	}
	return i, nil
}
