package nodeadm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// connect reaches systemd, once a run.
func (b *bootstrap) connect(ctx context.Context) (err error) {
	if b.manager != nil {
		return nil
	}
	if b.manager, err = systemd.Connect(ctx); err != nil {
		return fault.New(fault.Service, "on a machine without systemd use --root DIR or --no-start", "%w", err)
	}
	return nil
}

func (b *bootstrap) disconnect() {
	if b.manager != nil {
		b.manager.Close()
		b.manager = nil
	}
}

// unitsBefore notes how the units of the plan are before anything changes, for
// the way back, and finds out while nothing has changed yet that one of them
// cannot be started.
func (b *bootstrap) unitsBefore(ctx context.Context) ([]apply.Unit, error) {
	var units []apply.Unit
	for _, u := range b.result.Plan.Units {
		units = append(units, apply.Unit{Name: u.Name, Files: u.Files, StartOnly: u.StartOnly, OnChange: u.OnChange})
	}
	if !b.starts() {
		return units, nil
	}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	for i, u := range units {
		state, err := b.manager.State(ctx, u.Name)
		if err != nil {
			return nil, fault.Wrap(fault.Service, err)
		}
		// What systemd has read may be older than what is on disk: only what no
		// reload will mend is an error by now.
		if err := activate.Loadable(u.Name, state, b.planned()); err != nil && !state.NeedReload {
			return nil, err
		}
		units[i].Enabled, units[i].Active = state.FileState == "enabled", state.Active == "active"
	}
	return units, nil
}

func (b *bootstrap) planned() []string {
	var paths []string
	for _, f := range b.result.Plan.Files {
		paths = append(paths, f.Path)
	}
	return paths
}

// previewUnits tells what a run would do to units.
func (b *bootstrap) previewUnits(ctx context.Context) error {
	manager, err := systemd.Observe(ctx)
	if err != nil {
		return fault.New(fault.Service, "on a machine without systemd use --root DIR or --no-start", "%w", err)
	}
	defer manager.Close()
	pending, err := b.pending()
	if err != nil {
		return err
	}
	stale := activate.Stale(b.result.Plan.Units, b.changed(), pending)
	for _, u := range b.result.Plan.Units {
		state, err := manager.State(ctx, u.Name)
		if err != nil {
			return fault.Wrap(fault.Service, err)
		}
		if err := activate.Loadable(u.Name, state, b.planned()); err != nil && !state.NeedReload {
			return err
		}
		if state.Load == "not-found" {
			state.FileState = "disabled"
		}
		b.result.Steps = append(b.result.Steps, activate.Steps(u, state, slices.Contains(stale, u.Name), b.changed())...)
	}
	return nil
}

// pending are the units that an earlier run in this boot left with an older
// configuration.
func (b *bootstrap) pending() ([]string, error) {
	data, err := b.root.ReadFile(layout.PendingFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Disk, "", "read %s: %w", layout.PendingFile, err)
	}
	return strings.Fields(string(data)), nil
}

func (b *bootstrap) setPending(units []string) error {
	path, err := b.root.Resolve(layout.PendingFile, false)
	if err == nil && len(units) == 0 {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	} else if err == nil {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(strings.Join(units, "\n")+"\n"), 0o644)
		}
	}
	if err != nil {
		return fault.New(fault.Disk, "", "%s: %w", layout.PendingFile, err)
	}
	return nil
}
