// Package activate brings up the units of a plan through systemd, and makes
// sure that kubelet really runs. It knows units, and nothing of files but
// their names.
package activate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Manager is what is needed of systemd; see internal/systemd.
type Manager interface {
	Reload(ctx context.Context) error
	Enable(ctx context.Context, units ...string) error
	ResetFailed(ctx context.Context, unit string) error
	Start(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error
	State(ctx context.Context, unit string) (systemd.State, error)
}

// Done tells what was done to a unit and why.
type Done struct {
	Unit   string `json:"unit"`
	Action string `json:"action"` // "enabled", "started", "restarted", "stopped", "disabled"
	Why    string `json:"why"`
}

// Stale lists the units that run an older configuration than is on disk,
// given the paths that changed and the units that an earlier run left so.
func Stale(units []plan.Unit, changed, pending []string) []string {
	var stale []string
	for _, u := range units {
		if u.StartOnly {
			continue
		}
		touched := slices.ContainsFunc(u.Files, func(f string) bool { return slices.Contains(changed, f) })
		if touched || slices.Contains(pending, u.Name) {
			stale = append(stale, u.Name)
		}
	}
	return stale
}

// Step is one thing that has to be done to a unit.
type Step struct {
	Unit   string `json:"unit"`
	Action string `json:"action"` // "enable", "start" or "restart"
	Why    string `json:"why"`
}

// Steps tells what has to be done to a unit in a state; stale says that it runs
// an older configuration than is on disk.
func Steps(u plan.Unit, state systemd.State, stale bool, changed []string) (steps []Step) {
	if u.Enabled && state.FileState == "disabled" {
		steps = append(steps, Step{u.Name, "enable", "it has to start at boot"})
	}
	switch {
	case stale && state.Active == "active":
		steps = append(steps, Step{u.Name, "restart", "its configuration changed: " + strings.Join(of(u.Files, changed), ", ")})
	case stale:
		steps = append(steps, Step{u.Name, "start", "its configuration changed: " + strings.Join(of(u.Files, changed), ", ")})
	case state.Active != "active" && !u.OnChange:
		steps = append(steps, Step{u.Name, "start", "it was " + state.Active})
	}
	return steps
}

// Loadable tells whether systemd can start a unit. written are the paths that
// will be there by then.
func Loadable(name string, state systemd.State, written []string) error {
	switch state.Load {
	case "loaded":
		return nil
	case "masked":
		return fault.New(fault.Service, "systemctl unmask "+name, "%s is masked", name)
	case "not-found":
		if slices.Contains(written, "/etc/systemd/system/"+name) {
			return nil
		}
		return fault.New(fault.Service, "install the package that brings it", "%s does not exist on this machine", name)
	}
	return fault.New(fault.Service, "systemd-analyze verify "+name, "systemd cannot load %s: its load state is %s", name, state.Load)
}

// Units brings up units in order: enabled where wanted, restarted if stale,
// started if not running, left alone otherwise. changed are the paths that
// were written; systemd reads its unit files again if one of them is among
// them.
func Units(ctx context.Context, m Manager, units []plan.Unit, stale, changed []string) (done []Done, err error) {
	reload := slices.ContainsFunc(changed, func(path string) bool { return strings.HasPrefix(path, "/etc/systemd/") })
	for _, u := range units {
		state, err := m.State(ctx, u.Name)
		if err != nil {
			return nil, fault.Wrap(fault.Service, err)
		}
		reload = reload || state.NeedReload
	}
	if reload {
		if err := m.Reload(ctx); err != nil {
			return nil, fault.Wrap(fault.Service, err)
		}
	}
	for _, u := range units {
		did, err := bringUp(ctx, m, u, slices.Contains(stale, u.Name), changed)
		done = append(done, did...)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func bringUp(ctx context.Context, m Manager, u plan.Unit, stale bool, changed []string) (done []Done, err error) {
	state, err := m.State(ctx, u.Name)
	if err != nil {
		return nil, fault.Wrap(fault.Service, err)
	}
	if err := Loadable(u.Name, state, nil); err != nil {
		return nil, err
	}
	for _, step := range Steps(u, state, stale, changed) {
		// A unit that has failed too often in a row refuses to start until told
		// that things have changed.
		if step.Action != "enable" && state.Active == "failed" {
			if err := m.ResetFailed(ctx, u.Name); err != nil {
				return done, fault.Wrap(fault.Service, err)
			}
		}
		switch step.Action {
		case "enable":
			err = fault.Wrap(fault.Service, m.Enable(ctx, u.Name))
		case "start":
			// Restart, so that nothing that is starting goes on with old files.
			call := m.Start
			if stale {
				call = m.Restart
			}
			if err = call(ctx, u.Name); err != nil {
				err = failure(ctx, m, u.Name, err)
			}
		case "restart":
			if err = m.Restart(ctx, u.Name); err != nil {
				err = failure(ctx, m, u.Name, err)
			}
		}
		if err != nil {
			return done, err
		}
		done = append(done, Done{u.Name, strings.TrimSuffix(step.Action, "e") + "ed", step.Why})
	}
	return done, nil
}

// of are the changed files that a unit depends on; after an interrupted run
// there may be none, since they were changed then.
func of(files, changed []string) []string {
	var both []string
	for _, f := range files {
		if slices.Contains(changed, f) {
			both = append(both, f)
		}
	}
	if len(both) == 0 {
		both = []string{"an earlier run was interrupted"}
	}
	return both
}

const (
	// settle is how long kubelet must have run before its health counts: it
	// answers as healthy before it has tried to set up its cgroups, and ends
	// within a second where that fails.
	settle = 2 * time.Second
	// tooManyRestarts: once may be bad luck, three times is a reason.
	tooManyRestarts = 3
	healthTimeout   = time.Second
	pollInterval    = 100 * time.Millisecond
)

// Healthy waits until a unit is active and its health endpoint answers, and
// ends with the unit's own last words where that cannot come any more. url may
// be empty: then being active is enough.
func Healthy(ctx context.Context, m Manager, unit, url string, report func(string)) error {
	client := &http.Client{Timeout: healthTimeout}
	start, reported := time.Now(), time.Now()
	restarts := uint32(0)
	for first := true; ; first = false {
		state, err := m.State(ctx, unit)
		if err != nil {
			return failure(ctx, m, unit, err)
		}
		if first {
			restarts = state.Restarts
		}
		waiting := fmt.Sprintf("%s is %s (%s)", unit, state.Active, state.Sub)
		switch {
		case state.Active == "failed":
			return failure(ctx, m, unit, fmt.Errorf("%s failed", unit))
		case state.Restarts >= restarts+tooManyRestarts:
			return failure(ctx, m, unit, fmt.Errorf("%s has ended %d times since it was started", unit, state.Restarts-restarts))
		case state.Active == "active":
			err := health(ctx, client, url)
			if err == nil && state.ActiveFor >= settle {
				return nil
			}
			if err != nil {
				waiting = err.Error()
			}
		}
		if time.Since(reported) >= 5*time.Second {
			reported = time.Now()
			report(fmt.Sprintf("waiting for %s since %s: %s", unit, time.Since(start).Round(time.Second), waiting))
		}
		select {
		case <-ctx.Done():
			return failure(context.WithoutCancel(ctx), m, unit, fmt.Errorf("%s did not become healthy within %s: %s", unit, time.Since(start).Round(time.Second), waiting))
		case <-time.After(pollInterval):
		}
	}
}

func health(ctx context.Context, client *http.Client, url string) error {
	if url == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("GET %s: no answer yet", url)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

// failure says what is known of a unit that does not run: systemd's result and
// the last lines the unit wrote.
func failure(ctx context.Context, m Manager, unit string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	detail := ""
	if state, err := m.State(ctx, unit); err == nil {
		detail = fmt.Sprintf("\n  state %s (%s), result %s, exit status %d, %d restarts", state.Active, state.Sub, state.Result, state.ExitStatus, state.Restarts)
	}
	if words := systemd.LastWords(ctx, unit, 12); len(words) > 0 {
		detail += "\n  its last words:\n    " + strings.Join(words, "\n    ")
	}
	return fault.New(fault.Service, "journalctl -u "+unit+" shows all of it", "%w%s", cause, detail)
}
