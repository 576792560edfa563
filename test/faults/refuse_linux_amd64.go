package faults

import "golang.org/x/sys/unix"

// refuse makes the system call that tid has stopped in front of return errno.
// No call has the number -1: the kernel does nothing, and leaves the result be.
func refuse(tid int, errno unix.Errno) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	regs.Orig_rax = ^uint64(0)
	regs.Rax = -uint64(errno)
	return unix.PtraceSetRegs(tid, &regs)
}
