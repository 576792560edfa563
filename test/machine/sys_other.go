//go:build !linux

package machine

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Require skips before any of these is reached; they are here so that the
// tests of other systems still compile.
var errNotLinux = errors.New("machines need Linux")

const (
	sigPowerOff = syscall.Signal(0)
	sigReboot   = syscall.Signal(0)
	oPath       = 0
)

func tether(*exec.Cmd) (<-chan error, error)         { return nil, errNotLinux }
func killTogether(*exec.Cmd)                         {}
func inNetworkOf(int, func() error) error            { return errNotLinux }
func lockFile(*os.File) error                        { return errNotLinux }
func signalled(*os.ProcessState) (int, bool)         { return 0, false }
func openIn(*os.File, string, int) (*os.File, error) { return nil, errNotLinux }
