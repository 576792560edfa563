// Command measure runs a program and prints its peak memory in KiB and its CPU
// time in microseconds. It is small: to the kernel a process has been as large
// as the one that started it, and a test is larger than what it measures.
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	p, err := os.StartProcess(os.Args[1], os.Args[1:], &os.ProcAttr{Env: os.Environ(), Files: []*os.File{os.Stdin, null, os.Stderr}})
	if err != nil {
		panic(err)
	}
	state, err := p.Wait()
	if err != nil || !state.Success() {
		panic(fmt.Sprint(state, err))
	}
	fmt.Println(state.SysUsage().(*syscall.Rusage).Maxrss, (state.UserTime() + state.SystemTime()).Microseconds())
}
