package systemd

import (
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready is the line that tells the service manager that a service has started.
const Ready = daemon.SdNotifyReady

// Notify tells the service manager how this process is doing, in lines of
// sd_notify(3), if it was started by a unit of Type=notify; otherwise nobody
// listens, and nothing happens.
func Notify(lines ...string) {
	// Whoever listens is told once more in a moment, and nobody else minds.
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}
