package faults

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuse makes the system call that tid has stopped in front of return errno.
// No call has the number -1: the kernel does nothing, and leaves the result be.
func refuse(tid int, errno unix.Errno) error {
	const ntPRStatus = 1
	var regs unix.PtraceRegsArm64
	if err := unix.PtraceGetRegSetArm64(tid, ntPRStatus, &regs); err != nil {
		return err
	}
	regs.Regs[0] = -uint64(errno)
	if err := unix.PtraceSetRegSetArm64(tid, ntPRStatus, &regs); err != nil {
		return err
	}
	none := int32(-1)
	vector := unix.Iovec{Base: (*byte)(unsafe.Pointer(&none)), Len: uint64(unsafe.Sizeof(none))}
	_, _, failed := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(tid), unix.NT_ARM_SYSTEM_CALL, uintptr(unsafe.Pointer(&vector)), 0, 0)
	if failed != 0 {
		return failed
	}
	return nil
}
