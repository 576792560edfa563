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
		if to == Previous && b.recovered {
			return nil // that was the last change
		}
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
		w := wayBack{bootstrap: b, to: to, command: fmt.Sprintf("rollback to %d", to)}
		err := b.run(ctx, w.phases())
		err = b.conclude(ctx, err)
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
		w := wayBack{bootstrap: b, to: 0, command: "reset", forgets: true}
		return b.run(ctx, append(w.phases(), phase{"forget", true, w.forget}))
	})
	return b.result, err
}

// rollBackFailure brings back what stood before this run, because the services
// do not run with what it wrote, or the node does not join. The cause stays the
// error.
func (b *bootstrap) rollBackFailure(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	failed := b.result.Generation
	b.log.Warnf("going back to what stood before generation %d", failed)
	b.options.RollbackOnFailure, b.options.Wait = false, WaitHealthy
	w := wayBack{bootstrap: b, to: failed - 1, command: fmt.Sprintf("rollback to %d, because generation %d failed", failed-1, failed)}
	err := b.run(ctx, w.phases())
	if err = b.conclude(ctx, err); err != nil {
		return errors.Join(cause, fmt.Errorf("going back to what stood before failed too: %w", err))
	}
	b.result.RolledBack = true
	return fault.New(fault.CodeOf(cause), fault.Remedy(cause), "%w\n  what stood before is back (generation %d)", cause, b.result.Generation)
}

// wayBack is a run that brings back the node as it stood after a generation.
type wayBack struct {
	*bootstrap
	to      int
	command string // for the generation that it makes itself
	forgets bool   // that generation goes with all others

	changes []apply.Change
	edited  []string
	undone  []apply.Generation
	units   []unitBack
}

// unitBack is a unit that goes back to how it was.
type unitBack struct {
	plan.Unit
	now, before apply.Unit
}

// phases are the way back, in order.
func (w *wayBack) phases() []phase {
	return []phase{
		{"compare", true, w.compare},
		{"stop", w.starts(), w.stop},
		{"apply", true, w.apply},
		{"activate", w.starts(), w.activate},
		{"verify", w.starts(), w.verify},
	}
}

// compare finds out what has to change back.
func (w *wayBack) compare(ctx context.Context) (err error) {
	if w.changes, w.edited, w.undone, err = apply.Back(w.root, w.to); err != nil {
		return err
	}
	if w.to == 0 && len(w.undone) == 0 {
		record, _, err := apply.ReadRecord(w.root)
		if err != nil {
			return err
		}
		for path, own := range record.Own() {
			if own {
				return fault.New(fault.Disk, "remove by hand what nodeadm wrote (the files in "+layout.AppliedFile+"), then that file",
					"%s is gone, and with it what stood there before: %s and others cannot be brought back", layout.Generations, path)
			}
		}
	}
	w.result.Changes = nil
	for _, c := range w.changes {
		if c.Path != layout.AppliedFile {
			w.result.Changes = append(w.result.Changes, c)
		}
	}
	return w.findUnits(ctx)
}

// findUnits takes the units of the generations that are undone: as they were
// before the first of these, and as they are.
func (w *wayBack) findUnits(ctx context.Context) error {
	for _, g := range w.undone {
		for _, u := range g.Units {
			at := slices.IndexFunc(w.units, func(known unitBack) bool { return known.Name == u.Name })
			if at < 0 {
				w.units = append(w.units, unitBack{plan.Unit{Name: u.Name, StartOnly: u.StartOnly, OnChange: u.OnChange}, u, u})
				at = len(w.units) - 1
			}
			for _, path := range u.Files {
				if !slices.Contains(w.units[at].Files, path) {
					w.units[at].Files = append(w.units[at].Files, path)
				}
			}
		}
	}
	if !w.starts() || len(w.units) == 0 {
		return nil
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	for i := range w.units {
		u := &w.units[i]
		state, err := w.manager.State(ctx, u.Name)
		if err != nil {
			return fault.Wrap(fault.Service, err)
		}
		u.now.Files, u.now.Unwanted = u.Files, !u.before.Active
		u.now.Enabled, u.now.Active = state.FileState == "enabled", state.Active == "active" || state.Active == "activating"
	}
	return nil
}

// stop disables and stops what was not enabled or not running, while the files
// that say what these units are still exist.
func (w *wayBack) stop(ctx context.Context) error {
	for _, u := range slices.Backward(w.units) {
		if u.OnChange {
			continue
		}
		if u.now.Enabled && !u.before.Enabled {
			if err := w.manager.Disable(ctx, u.Name); err != nil {
				return fault.Wrap(fault.Service, err)
			}
			w.did([]activate.Done{{Unit: u.Name, Action: "disabled", Why: "it was not enabled before"}})
		}
		if u.now.Active && !u.before.Active {
			if err := w.manager.Stop(ctx, u.Name); err != nil {
				return fault.Wrap(fault.Service, err)
			}
			w.did([]activate.Done{{Unit: u.Name, Action: "stopped", Why: "it was not running before"}})
		}
		// One that does not run with its configuration may end by itself just then.
		if u.before.Active {
			continue
		}
		state, err := w.manager.State(ctx, u.Name)
		if err == nil && state.Active == "failed" {
			err = w.manager.ResetFailed(ctx, u.Name)
		}
		if err != nil {
			return fault.Wrap(fault.Service, err)
		}
	}
	return nil
}

// apply puts the files back.
func (w *wayBack) apply(context.Context) error {
	if len(w.changes) > 0 {
		var now []apply.Unit
		for _, u := range w.units {
			now = append(now, u.now)
		}
		if w.starts() {
			// For the run after one that is cut short before units are restarted.
			if err := w.setPending(activate.Stale(w.again(), w.changed(), nil)); err != nil {
				return err
			}
		}
		if err := w.commit(w.command, w.changes, now, w.healthURL()); err != nil {
			return err
		}
		for _, path := range w.edited {
			switch {
			case path == layout.AppliedFile:
			case w.forgets:
				w.log.Warnf("%s had been changed by hand; that version is gone", path)
			default:
				w.log.Warnf("%s had been changed by hand; that version is kept in %s", path, (apply.Generation{Number: w.result.Generation}).Kept("before", path))
			}
		}
	}
	if err := apply.RemoveDirectories(w.root, w.undone); err != nil {
		w.log.Warnf("directories that have become empty stay: %v", err)
	}
	return nil
}

// activate brings the units that were running before up with the files that are
// back.
func (w *wayBack) activate(ctx context.Context) error {
	if len(w.units) == 0 {
		return nil
	}
	pending, err := w.pending()
	if err != nil {
		return err
	}
	if err := w.manager.Reload(ctx); err != nil {
		return fault.Wrap(fault.Service, err)
	}
	done, err := activate.Units(ctx, w.manager, w.again(), activate.Stale(w.again(), w.changed(), pending), w.changed())
	w.did(done)
	if err != nil {
		return err
	}
	return w.setPending(nil)
}

// verify waits for kubelet, if it was running before.
func (w *wayBack) verify(ctx context.Context) error {
	if !slices.ContainsFunc(w.again(), func(u plan.Unit) bool { return u.Name == layout.KubeletService }) {
		return nil
	}
	return w.healthy(ctx, w.healthURL())
}

// again are the units that were running before, in their order.
func (w *wayBack) again() (units []plan.Unit) {
	for _, u := range w.units {
		if u.before.Active || u.OnChange {
			u.Enabled = u.before.Enabled
			units = append(units, u.Unit)
		}
	}
	return units
}

// healthURL is where kubelet answers with the configuration that is back.
func (w *wayBack) healthURL() string {
	all, err := apply.Generations(w.root)
	if err != nil {
		return "" // then its unit has to do
	}
	url := ""
	for _, g := range all {
		if g.Number <= w.to && g.HealthURL != "" {
			url = g.HealthURL
		}
	}
	return url
}

// forget removes what a reset leaves no trace of. The memory by which this could
// be repeated goes last, and in one step: half of it would keep the next run
// from starting.
func (w *wayBack) forget(context.Context) error {
	for _, path := range layout.InstanceIdentity {
		if err := w.remove(path); err != nil {
			return err
		}
	}
	if err := apply.RemoveDirectories(w.root, w.undone); err != nil {
		return err
	}
	host, err := w.root.Target(layout.Generations)
	if err == nil {
		if err = os.Rename(host, filepath.Join(filepath.Dir(host), ".nodeadm-generations")); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fault.New(fault.Disk, "", "%s: %w", layout.Generations, err)
	}
	if err := w.remove(layout.StateDir); err != nil {
		return err
	}
	if w.root.Live() {
		for _, path := range []string{layout.PendingFile, layout.StatusFile} {
			os.Remove(path) // gone with the next boot anyway
		}
	}
	return nil
}

// remove removes a path with all that is below it.
func (w *wayBack) remove(path string) error {
	host, err := w.root.Target(path)
	if err == nil {
		if _, err = os.Lstat(host); err == nil {
			w.result.Forgotten = append(w.result.Forgotten, path)
			err = os.RemoveAll(host)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Disk, "run nodeadm reset again once that is mended; the files are back already", "%s: %w", path, err)
	}
	return nil
}
