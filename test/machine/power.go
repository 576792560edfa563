package machine

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed poweron.sh
var powerOnScript string

// power is one stretch of a machine's life, from power-on to power-off.
type power struct {
	on     time.Time
	parent int // of systemd-nspawn; its death ends everything below it
	leader int // the machine's PID 1, as the host numbers it
	cgroup string
	kill   func() error
	done   <-chan error
}

// PowerOn boots the machine again, with the disk as power-off left it.
func (m *Machine) PowerOn() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power != nil {
		m.t.Fatalf("%s: already on", m.name)
	}
	m.boots++
	p, err := m.start(fmt.Sprintf("%s-boot%d", m.name, m.boots))
	if err != nil {
		m.t.Fatalf("%s: power-on: %v\n%s", m.name, err, tail(m.console.String(), 20))
	}
	m.power = p
}

func (m *Machine) start(cgroup string) (*power, error) {
	argv := append(m.disk.enter(), "unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
		"sh", "-eu", "-c", powerOnScript, "poweron.sh", m.disk.dir, cgroup, m.name, flag(m.controllers))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &m.console, &m.console
	p := &power{on: time.Now(), cgroup: cgroup}
	done, err := tether(cmd)
	if err != nil {
		return nil, err
	}
	p.parent, p.kill, p.done = cmd.Process.Pid, cmd.Process.Kill, done
	deadline := time.After(10 * time.Second)
	for {
		if p.leader = findLeader(p.parent); p.leader != 0 {
			return p, nil
		}
		select {
		case err := <-done:
			return nil, errors.Join(fmt.Errorf("systemd-nspawn ended: %v", err), m.disk.removeCgroup(cgroup))
		case <-deadline:
			p.kill()
			<-done
			return nil, errors.Join(errors.New("no PID 1 after 10 s"), m.disk.removeCgroup(cgroup))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// findLeader returns the machine's PID 1: a child of systemd-nspawn, itself
// the child of parent. Only once it has become systemd are all its namespaces
// and its root what they will be.
func findLeader(parent int) int {
	for _, nspawn := range children(parent) {
		for _, pid := range children(nspawn) {
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(comm) == "systemd\n" {
				return pid
			}
		}
	}
	return 0
}

// children reads every process's parent: /proc/PID/task/TID/children is there
// only in kernels built for checkpoints.
func children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// pid (comm) state ppid …, where comm may contain anything
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(strings.Split(stat, "/")[2])
			found = append(found, pid)
		}
	}
	return found
}

// PowerOff shuts the machine down as `systemctl poweroff` does, and returns
// when it is off. The disk stays until the test ends.
func (m *Machine) PowerOff() {
	m.t.Helper()
	m.shutdown(sigPowerOff)
}

// Reboot shuts down by way of reboot.target and boots again. In between every
// process, /run and the network namespace are gone; the disk stays.
func (m *Machine) Reboot() {
	m.t.Helper()
	m.shutdown(sigReboot)
	m.PowerOn()
}

// shutdown repeats the signal: PID 1 ignores it until it has set itself up, and
// a test may ask for power-off that early.
func (m *Machine) shutdown(sig syscall.Signal) {
	m.t.Helper()
	proc, err := os.FindProcess(m.Leader())
	if err != nil {
		m.t.Fatalf("%s: shutting down: %v", m.name, err)
	}
	for range 60 {
		proc.Signal(sig) // an error means that it has ended
		if m.off(500 * time.Millisecond) {
			return
		}
	}
	m.t.Fatalf("%s: still on 30 s after it was told to shut down; the console ends:\n%s", m.name, tail(m.console.String(), 20))
}

// WaitOff waits for a machine that shuts itself down, and fails the test if it
// is not off in time.
func (m *Machine) WaitOff(timeout time.Duration) {
	m.t.Helper()
	if !m.off(timeout) {
		m.t.Fatalf("%s: still on after %v; the console ends:\n%s", m.name, timeout, tail(m.console.String(), 20))
	}
}

// off tells whether the machine is off, or goes off within the time given.
func (m *Machine) off(within time.Duration) bool {
	p := m.running()
	if p == nil {
		return true
	}
	select {
	case <-p.done: // 0 after power-off, 133 after reboot: both are asked for
		m.ended(p)
		return true
	case <-time.After(within):
		return false
	}
}

// PowerCut ends the machine at once, in the middle of whatever it does.
func (m *Machine) PowerCut() {
	p := m.running()
	if p == nil {
		return
	}
	p.kill()
	<-p.done
	m.ended(p)
}

// ended tidies up after a stretch of power. The parent's end may be noticed
// before the kernel has ended the last process below it.
func (m *Machine) ended(p *power) {
	m.mu.Lock()
	m.power = nil
	m.mu.Unlock()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if !exists(fmt.Sprintf("/proc/%d", p.leader)) {
			break
		}
	}
	if err := m.disk.removeCgroup(p.cgroup); err != nil {
		m.t.Logf("%s: removing its control group: %v", m.name, err)
	}
}

// Leader is the machine's PID 1 as the host numbers it. It changes with each
// power-on.
func (m *Machine) Leader() int {
	m.t.Helper()
	p := m.running()
	if p == nil {
		m.t.Fatalf("%s: the machine is off", m.name)
	}
	return p.leader
}

func (m *Machine) running() *power {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power
}
