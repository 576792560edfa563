package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
)

// progress says which phase a run is in: to the service manager and, on a
// terminal, in one line below the log that is written over again and again.
type progress struct {
	mu   sync.Mutex
	out  io.Writer
	live bool   // out is a terminal
	line string // what stands there now
}

func newProgress(out *os.File) *progress {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &progress{out: out, live: err == nil}
}

// follow shows the progress of a run on standard error, below its log.
func follow(options *nodeadm.Options) *progress {
	p := newProgress(os.Stderr)
	if log, isLogger := options.Log.(*logrus.Logger); isLogger {
		log.SetOutput(p)
	}
	options.Progress = p.phase
	return p
}

// phase is told when a phase begins.
func (p *progress) phase(name string, n, count int) {
	systemd.Notify(fmt.Sprintf("STATUS=%s %d/%d", name, n, count))
	p.show(fmt.Sprintf("%s %d/%d …", name, n, count))
}

// done ends the line and tells the service manager how the run went.
func (p *progress) done(err error) {
	p.show("")
	if err != nil {
		systemd.Notify("STATUS=failed: " + strings.SplitN(err.Error(), "\n", 2)[0])
		return
	}
	systemd.Notify(systemd.Ready, "STATUS=done")
}

const eraseLine = "\r\033[K"

func (p *progress) show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		fmt.Fprint(p.out, eraseLine+line)
		p.line = line
	}
}

// Write puts lines of the log above the line of progress.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == "" {
		return p.out.Write(data)
	}
	if _, err := fmt.Fprintf(p.out, "%s%s%s", eraseLine, data, p.line); err != nil {
		return 0, err
	}
	return len(data), nil
}
