package nodeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// locked does something while no other run works on the same root, once what a
// run that was cut short left behind has been put right.
func (b *bootstrap) locked(ctx context.Context, do func() error) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	messages, err := apply.Recover(b.root)
	for _, m := range messages {
		b.log.Warn(m)
	}
	b.recovered = len(messages) > 0
	if err != nil {
		return err
	}
	return do()
}

// lock keeps two runs from working on one root at the same time. The second one
// waits, and says for whom.
func (b *bootstrap) lock(ctx context.Context) (unlock func(), err error) {
	path := b.lockDir()
	if b.root.Live() {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fault.New(fault.Disk, "run nodeadm as root", "%w", err)
		}
	}
	// The directory itself is locked: nothing is left behind in an image.
	dir, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Disk, "run nodeadm as root", "%w", err)
	}
	for start, told := time.Now(), false; ; {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			dir.Close()
			return nil, fault.New(fault.Disk, "", "lock %s: %w", path, err)
		}
		if !told {
			b.log.Warnf("%s is at work on %s; waiting for it", holder(dir), b.options.Root)
			told = true
		}
		select {
		case <-ctx.Done():
			err := fault.New(fault.Disk, "wait for it, or see what it is doing: journalctl -t nodeadm", "%s was still at work on %s after %s", holder(dir), b.options.Root, time.Since(start).Round(time.Second))
			dir.Close()
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lockDir is the directory whose lock a run holds: nothing is left behind in an
// image, and on a node it is gone with the next boot.
func (b *bootstrap) lockDir() string {
	if b.root.Live() {
		return filepath.Dir(layout.PendingFile)
	}
	return b.options.Root
}

// atWork says which run is working on the root just now, "" if none is.
func (b *bootstrap) atWork() string {
	dir, err := os.Open(b.lockDir())
	if err != nil {
		return ""
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return holder(dir)
	}
	return ""
}

// holder says who holds the lock on an open file, as far as /proc/locks tells.
func holder(file *os.File) string {
	const somebody = "another run of nodeadm"
	var s unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(file.Fd()), &s) != nil {
		return somebody
	}
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	for line := range strings.Lines(string(locks)) {
		// Such as: 1: FLOCK  ADVISORY  WRITE 4711 00:19:1234 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != inode {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		command, _ := os.ReadFile("/proc/" + f[4] + "/cmdline") // it may have ended by now
		if err == nil && pid > 0 {
			words := strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")
			return fmt.Sprintf("%s (process %d: %s)", somebody, pid, strings.Join(words[:min(2, len(words))], " "))
		}
	}
	return somebody
}
