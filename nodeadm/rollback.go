package nodeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Previous asks for the generation before the last one.
const Previous = -1

// Rollback brings back the configuration as it stood after a generation and
// before the next one: files, then units. It is itself a generation, so that
// rolling back again undoes it.
func Rollback(ctx context.Context, to int, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	b := newRun(o)
	started := time.Now()
	err := b.locked(ctx, func() error {
		if to == Previous {
			all, err := apply.Generations(b.root)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fault.New(fault.Usage, "", "nothing has been changed by nodeadm yet: there is nothing to roll back")
			}
			to = all[len(all)-1].Number - 1
		}
		b.options.Command = fmt.Sprintf("rollback to %d", to)
		defer b.disconnect()
		err := b.goBack(ctx, to)
		if b.result.Generation > 0 {
			err = b.conclude(ctx, err)
		}
		b.writeStatus(started, err)
		return err
	})
	return b.result, err
}

// Reset brings back what stood before the first run, and then forgets that
// there was one: nodeadm's own memory goes, and what kubelet keeps of the
// identity of this instance.
func Reset(ctx context.Context, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	b := newRun(o)
	err := b.locked(ctx, func() error {
		b.options.Command = "reset"
		defer b.disconnect()
		if err := b.goBack(ctx, 0); err != nil {
			return err
		}
		return b.forget()
	})
	return b.result, err
}

// rollBackFailure brings back what stood before this run, because the services
// do not run with what it wrote. The cause stays the error.
func (b *bootstrap) rollBackFailure(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	failed := b.result.Generation
	b.log.Warnf("going back to what stood before generation %d", failed)
	b.options.RollbackOnFailure = false
	b.options.Command = fmt.Sprintf("rollback to %d, because generation %d failed", failed-1, failed)
	defer b.disconnect()
	err := b.goBack(ctx, failed-1)
	if err = b.conclude(ctx, err); err != nil {
		return errors.Join(cause, fmt.Errorf("going back to what stood before failed too: %w", err))
	}
	b.result.RolledBack = true
	return fault.New(fault.CodeOf(cause), fault.Remedy(cause), "%w\n  what stood before is back (generation %d)", cause, b.result.Generation)
}

// goBack brings back the files of a generation and the units as they were.
func (b *bootstrap) goBack(ctx context.Context, to int) (err error) {
	changes, edited, undone, err := apply.Back(b.root, to)
	if err != nil {
		return err
	}
	b.result.Changes = nil
	for _, c := range changes {
		if c.Path != layout.AppliedFile {
			b.result.Changes = append(b.result.Changes, c)
		}
	}
	units, err := b.unitsOf(ctx, undone)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			return
		}
		// Empty directories are in nobody's way, but a reset leaves nothing.
		if empty := apply.RemoveDirectories(b.root, undone); to == 0 {
			err = empty
		} else if empty != nil {
			b.log.Warnf("directories that have become empty stay: %v", empty)
		}
	}()
	if len(changes) > 0 {
		// Units that were not enabled or not running before: while the files that
		// say what they are still exist.
		if err := b.calm(ctx, units); err != nil {
			return err
		}
		var now []apply.Unit
		for _, u := range units {
			now = append(now, u.now)
		}
		// For the run after one that is cut short before units are restarted.
		if b.starts() {
			if err := b.setPending(activate.Stale(wantedAgain(units), b.changed(), nil)); err != nil {
				return err
			}
		}
		if err := b.commit(b.options.Command, changes, now, b.healthURLOf(to)); err != nil {
			return err
		}
		for _, path := range edited {
			if path != layout.AppliedFile {
				b.log.Warnf("%s had been changed by hand; that version is kept in %s", path, (apply.Generation{Number: b.result.Generation}).Kept("before", path))
			}
		}
	}
	return b.wake(ctx, units, to)
}

// unitBack is a unit that goes back to how it was.
type unitBack struct {
	plan.Unit
	now, before apply.Unit
}

// unitsOf are the units of generations that are undone: as they were before
// the first of these, and as they are.
func (b *bootstrap) unitsOf(ctx context.Context, undone []apply.Generation) (units []unitBack, err error) {
	for _, g := range undone {
		for _, u := range g.Units {
			at := slices.IndexFunc(units, func(known unitBack) bool { return known.Name == u.Name })
			if at < 0 {
				units = append(units, unitBack{plan.Unit{Name: u.Name, StartOnly: u.StartOnly, OnChange: u.OnChange}, u, u})
				at = len(units) - 1
			}
			for _, path := range u.Files {
				if !slices.Contains(units[at].Files, path) {
					units[at].Files = append(units[at].Files, path)
				}
			}
		}
	}
	if !b.starts() || len(units) == 0 {
		return units, nil
	}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	for i := range units {
		state, err := b.manager.State(ctx, units[i].Name)
		if err != nil {
			return nil, fault.Wrap(fault.Service, err)
		}
		units[i].now.Enabled, units[i].now.Active = state.FileState == "enabled", state.Active == "active" || state.Active == "activating"
		units[i].now.Files = units[i].Files
	}
	return units, nil
}

// calm disables and stops what was not enabled or not running.
func (b *bootstrap) calm(ctx context.Context, units []unitBack) error {
	if !b.starts() {
		return nil
	}
	for _, u := range slices.Backward(units) {
		if u.OnChange {
			continue
		}
		if u.now.Enabled && !u.before.Enabled {
			if err := b.manager.Disable(ctx, u.Name); err != nil {
				return fault.Wrap(fault.Service, err)
			}
			b.did([]activate.Done{{Unit: u.Name, Action: "disabled", Why: "it was not enabled before"}})
		}
		if u.now.Active && !u.before.Active {
			if err := b.manager.Stop(ctx, u.Name); err != nil {
				return fault.Wrap(fault.Service, err)
			}
			b.did([]activate.Done{{Unit: u.Name, Action: "stopped", Why: "it was not running before"}})
		}
	}
	return nil
}

// wake brings the units that were running before up with the files that are
// back, and waits for kubelet if it is one of them.
func (b *bootstrap) wake(ctx context.Context, units []unitBack, to int) error {
	if !b.starts() || len(units) == 0 {
		return nil
	}
	wanted := wantedAgain(units)
	pending, err := b.pending()
	if err != nil {
		return err
	}
	if err := b.manager.Reload(ctx); err != nil {
		return fault.Wrap(fault.Service, err)
	}
	done, err := activate.Units(ctx, b.manager, wanted, activate.Stale(wanted, b.changed(), pending), b.changed())
	b.did(done)
	if err != nil {
		return err
	}
	if err := b.setPending(nil); err != nil {
		return err
	}
	if !slices.ContainsFunc(wanted, func(u plan.Unit) bool { return u.Name == layout.KubeletService }) {
		return nil
	}
	return b.healthy(ctx, b.healthURLOf(to))
}

// wantedAgain are the units that were running before, in their order.
func wantedAgain(units []unitBack) (wanted []plan.Unit) {
	for _, u := range units {
		if u.before.Active || u.OnChange {
			u.Enabled = u.before.Enabled
			wanted = append(wanted, u.Unit)
		}
	}
	return wanted
}

// healthURLOf is where kubelet answers with the configuration of a generation.
func (b *bootstrap) healthURLOf(number int) string {
	all, err := apply.Generations(b.root)
	if err != nil {
		return ""
	}
	url := ""
	for _, g := range all {
		if g.Number <= number && g.HealthURL != "" {
			url = g.HealthURL
		}
	}
	return url
}

// forget removes what a reset leaves no trace of.
func (b *bootstrap) forget() error {
	// In one step: half a history would keep the next run from starting.
	if host, err := b.root.Target(layout.Generations); err == nil {
		err = os.Rename(host, filepath.Join(filepath.Dir(host), ".nodeadm-generations"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Disk, "", "%s: %w", layout.Generations, err)
		}
	}
	for _, path := range append(slices.Clone(layout.InstanceIdentity), layout.StateDir) {
		host, err := b.root.Target(path)
		if err == nil {
			if _, err = os.Lstat(host); err == nil {
				b.result.Forgotten = append(b.result.Forgotten, path)
				err = os.RemoveAll(host)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Disk, "run nodeadm reset again once that is mended; the files are back already", "%s: %w", path, err)
		}
	}
	if b.root.Live() {
		for _, path := range []string{layout.PendingFile, layout.StatusFile} {
			os.Remove(filepath.Join(string(b.root), path)) // gone with the next boot anyway
		}
	}
	return nil
}
