package systemd

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Manager is a connection to systemd over D-Bus.
type Manager struct {
	conn *dbus.Conn
}

// Connect reaches systemd by the system bus or, where that is not up yet, by
// systemd's own socket. Close it after use.
func Connect(ctx context.Context) (*Manager, error) {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to systemd over D-Bus: %w", err)
	}
	// Without a subscription systemd sends no JobRemoved, and the result of a
	// job would never arrive.
	if err := conn.Subscribe(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribe to systemd's signals: %w", err)
	}
	return &Manager{conn}, nil
}

// Observe reaches systemd for State only, and leaves no trace there.
func Observe(ctx context.Context) (*Manager, error) {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to systemd over D-Bus: %w", err)
	}
	return &Manager{conn}, nil
}

// Close ends the connection.
func (m *Manager) Close() { m.conn.Close() }

// Reload makes systemd read all unit files again (systemctl daemon-reload).
func (m *Manager) Reload(ctx context.Context) error {
	if err := m.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("daemon-reload: %w", err)
	}
	return nil
}

// Enable makes units start at boot.
func (m *Manager) Enable(ctx context.Context, units ...string) error {
	if _, _, err := m.conn.EnableUnitFilesContext(ctx, units, false, false); err != nil {
		return fmt.Errorf("enable %s: %w", strings.Join(units, ", "), err)
	}
	return nil
}

// Disable makes units not start at boot.
func (m *Manager) Disable(ctx context.Context, units ...string) error {
	if _, err := m.conn.DisableUnitFilesContext(ctx, units, false); err != nil {
		return fmt.Errorf("disable %s: %w", strings.Join(units, ", "), err)
	}
	return nil
}

// ResetFailed forgets the failures of a unit, so that it may be started again.
func (m *Manager) ResetFailed(ctx context.Context, unit string) error {
	if err := m.conn.ResetFailedUnitContext(ctx, unit); err != nil {
		return fmt.Errorf("reset-failed %s: %w", unit, err)
	}
	return nil
}

// Restart restarts a unit, starting it if it was not running, and waits for
// the job to end. The error tells the job's result when that is not "done".
func (m *Manager) Restart(ctx context.Context, unit string) error {
	return m.job(ctx, "restart", unit, m.conn.RestartUnitContext)
}

// Start starts a unit and waits for the job to end.
func (m *Manager) Start(ctx context.Context, unit string) error {
	return m.job(ctx, "start", unit, m.conn.StartUnitContext)
}

// Stop stops a unit and waits for the job to end.
func (m *Manager) Stop(ctx context.Context, unit string) error {
	return m.job(ctx, "stop", unit, m.conn.StopUnitContext)
}

type jobCall func(ctx context.Context, name, mode string, result chan<- string) (int, error)

func (m *Manager) job(ctx context.Context, verb, unit string, call jobCall) error {
	result := make(chan string, 1)
	if _, err := call(ctx, unit, "replace", result); err != nil {
		return fmt.Errorf("%s %s: %w", verb, unit, err)
	}
	select {
	case r := <-result:
		if r != "done" {
			return fmt.Errorf("%s %s: the job ended with result %q", verb, unit, r)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: the job did not end in time: %w", verb, unit, context.Cause(ctx))
	}
}

// State is what systemd knows of a unit, in systemd's words.
type State struct {
	Load, Active, Sub string // such as "loaded", "active", "running"
	FileState         string // such as "enabled"; empty where the unit has no file
	Fragment          string // path of the unit file
	Result            string // why the service last ended: "success", "exit-code", "start-limit-hit" …
	ExitStatus        int    // status of the main process when it last ended
	MainPID           uint32
	Restarts          uint32 // automatic restarts since the unit was last started by a job
	NeedReload        bool   // files changed since systemd read them
	DropIns           []string
	Invocation        string // id of the run that goes on, or else of the last one; "" if there was none

	ActiveFor time.Duration // since the unit became active; 0 if it is not
}

// Since is when what runs now was started, by the clock of today; now if it does
// not run.
func (s State) Since() time.Time { return time.Now().Add(-s.ActiveFor) }

// State asks for the state of a unit. A unit that does not exist is not an
// error: its Load is "not-found".
func (m *Manager) State(ctx context.Context, unit string) (State, error) {
	p, err := m.conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return State{}, fmt.Errorf("state of %s: %w", unit, err)
	}
	s := State{}
	s.Load, _ = p["LoadState"].(string)
	s.Active, _ = p["ActiveState"].(string)
	s.Sub, _ = p["SubState"].(string)
	s.FileState, _ = p["UnitFileState"].(string)
	if s.FileState == "disabled" {
		// While others refer to a unit, systemd remembers that from before the unit
		// was enabled. This reads the disk; in a pattern a backslash escapes.
		files, err := m.conn.ListUnitFilesByPatternsContext(ctx, nil, []string{strings.ReplaceAll(unit, `\`, `\\`)})
		if err == nil && len(files) == 1 {
			s.FileState = files[0].Type
		}
	}
	s.Fragment, _ = p["FragmentPath"].(string)
	s.Result, _ = p["Result"].(string)
	status, _ := p["ExecMainStatus"].(int32)
	s.ExitStatus = int(status)
	s.MainPID, _ = p["MainPID"].(uint32)
	s.Restarts, _ = p["NRestarts"].(uint32)
	s.NeedReload, _ = p["NeedDaemonReload"].(bool)
	s.DropIns, _ = p["DropInPaths"].([]string)
	invocation, _ := p["InvocationID"].([]byte)
	s.Invocation = hex.EncodeToString(invocation)
	// By the monotonic clock: the other one is set while machines boot.
	since, _ := p["ActiveEnterTimestampMonotonic"].(uint64)
	if now := monotonic(); now > 0 && s.Active == "active" && since > 0 {
		s.ActiveFor = now - time.Duration(since)*time.Microsecond
	}
	return s, nil
}
