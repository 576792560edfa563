//go:build amd64 || arm64

package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program makes thousands of system calls, and each stop costs more than most
// of them. So the kernel is given the list of those that matter, and stops
// nothing else. A process can do that only to itself: a command is started as
// this very program, which filters itself and then becomes the command.

// filtering is the name under which this program does that.
const filtering = "nodeadm-faults-filter"

// filtered makes cmd run behind the filter.
func filtered(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if _, err := exec.LookPath(cmd.Path); err != nil { // while it can be told apart from what the command says
		return err
	}
	cmd.Args = append([]string{filtering, cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	return nil
}

func init() {
	if os.Args[0] != filtering {
		return
	}
	runtime.LockOSThread() // the filter is one thread's, and that one goes on as the command
	err := filter()
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", filtering, err)
	os.Exit(127)
}

// filter lets this thread stop for its tracer at every call that may change the
// disk, and whatever it becomes or starts.
func filter() error {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	for _, number := range slices.Sorted(maps.Keys(calls)) {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	// What only root may do otherwise.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&list)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
