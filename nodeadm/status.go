package nodeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/doctor"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// LastRun is how the last run of this boot went; layout.StatusFile holds it.
type LastRun struct {
	Command      string            `json:"command"`
	Version      string            `json:"nodeadm"`
	Started      time.Time         `json:"started"`
	Seconds      float64           `json:"seconds"`
	Outcome      string            `json:"outcome"` // "changed", "unchanged", "failed" or "rolled back"
	ExitCode     int               `json:"exitCode"`
	Error        string            `json:"error,omitempty"`
	Remedy       string            `json:"remedy,omitempty"`
	Phases       []Phase           `json:"phases"`
	Generation   int               `json:"generation,omitempty"` // of its changes
	Changes      []ChangedFile     `json:"changes,omitempty"`
	Units        []activate.Done   `json:"units,omitempty"`
	Watched      []Watched         `json:"watched,omitempty"`
	Node         *join.Node        `json:"node,omitempty"` // as the API server has it, if that was waited for
	MaxPods      *MaxPods          `json:"maxPods,omitempty"`
	InstanceType string            `json:"instanceType,omitempty"`
	Kubelet      string            `json:"kubelet,omitempty"` // version
	Warnings     []string          `json:"warnings,omitempty"`
	Conflicts    []UnforcedSetting `json:"conflicts,omitempty"`
	// Diagnosis is what was found behind a failure.
	Diagnosis *doctor.Report `json:"diagnosis,omitempty"`
}

// Watched is a unit that has to run, and the files that it runs with.
type Watched struct {
	Unit  string   `json:"unit"`
	Files []string `json:"files"`
}

// ChangedFile is a file that a run changed.
type ChangedFile struct {
	Path   string       `json:"path"`
	Action apply.Action `json:"action"`
}

// UnforcedSetting is a field that stays as a hand has set it.
type UnforcedSetting struct {
	Path    string `json:"path"`
	Field   string `json:"field"`
	Manager string `json:"manager"`
	Wanted  string `json:"wantedBy"`
}

// MaxPods is how many pods the node takes, and why.
type MaxPods struct {
	Pods       int    `json:"pods"`
	Source     string `json:"source"`
	Arithmetic string `json:"arithmetic,omitempty"`
}

// writeStatus tells how the run went. It is for people and for the doctor: a
// run that went well does not fail because of it.
func (b *bootstrap) writeStatus(started time.Time, err error) {
	if !b.root.Live() {
		return
	}
	r := b.result
	s := LastRun{
		Command: b.options.Command, Version: b.options.Version, Started: started.UTC(), Seconds: time.Since(started).Seconds(),
		Outcome: "unchanged", Phases: r.Phases, Generation: r.Generation,
		Units: r.Done, Warnings: r.Plan.Warnings, InstanceType: r.Facts.Instance.Type, Node: r.Node,
	}
	if len(r.Changes) > 0 || len(r.Done) > 0 {
		s.Outcome = "changed"
	}
	if err != nil {
		s.fail(err)
	}
	if r.RolledBack {
		s.Outcome = "rolled back"
	}
	for _, c := range r.Changes {
		s.Changes = append(s.Changes, ChangedFile{c.Path, c.Action})
	}
	units := r.Plan.Units
	for _, u := range units {
		if !u.OnChange {
			s.Watched = append(s.Watched, Watched{u.Name, u.Files})
		}
	}
	if p := r.Plan.MaxPods; p.Effective > 0 {
		s.MaxPods = &MaxPods{p.Effective, p.Source, p.Arithmetic}
		s.Kubelet = r.Facts.Host.Kubelet.String()
	}
	for _, c := range r.Plan.Conflicts {
		if !c.Taken {
			s.Conflicts = append(s.Conflicts, UnforcedSetting{c.Path, c.Field, c.Manager, c.By})
		}
	}
	if err := s.write(); err != nil {
		b.log.Warn(err)
	}
}

// Status is how a node stands against what nodeadm made of it.
type Status struct {
	// Verdict is one of the constants below.
	Verdict    string        `json:"verdict"`
	LastRun    *LastRun      `json:"lastRun,omitempty"` // nil: none in this boot
	Generation int           `json:"generation"`        // the newest; 0: none
	Outcome    apply.Outcome `json:"outcome,omitempty"` // of that generation
	// Interrupted: a run was cut short; the next one undoes what it did.
	Interrupted bool `json:"interrupted,omitempty"`
	// AtWork is the run that is under way just now.
	AtWork  string        `json:"atWork,omitempty"`
	Drift   []apply.Drift `json:"drift"`
	Units   []UnitStatus  `json:"units,omitempty"`
	MaxPods *MaxPods      `json:"maxPods,omitempty"`
}

// UnitStatus is how a unit stands.
type UnitStatus struct {
	Name    string `json:"name"`
	Active  string `json:"active"` // in systemd's words
	Enabled string `json:"enabled,omitempty"`
	// Current: it runs what is on disk; otherwise Why says what it does not.
	Current bool   `json:"runsWhatIsOnDisk"`
	Why     string `json:"why,omitempty"`
}

// The verdicts.
const (
	AsPlanned   = "as planned"
	HasDrifted  = "drifted"
	ServiceDown = "a service is down"
	NeverRun    = "never run"
	RunAtWork   = "a run is at work"
)

// ReadStatus looks at the node and changes nothing.
func ReadStatus(ctx context.Context, o Options) (Status, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	b := newRun(o)
	s := Status{Verdict: AsPlanned, Drift: []apply.Drift{}}
	record, warning, err := apply.ReadRecord(b.root)
	if err != nil {
		return s, err
	}
	if warning != "" {
		b.log.Warn(warning)
	}
	all, err := apply.Generations(b.root)
	switch {
	case errors.Is(err, fs.ErrPermission):
		b.log.Warn("generations can only be read by root")
	case err != nil:
		return s, err
	case len(all) > 0:
		last := all[len(all)-1]
		s.Generation, s.Outcome, s.Interrupted = last.Number, last.Outcome, last.Outcome == apply.Applying
	}
	if s.AtWork = b.atWork(); s.AtWork != "" {
		s.Interrupted = false
	}
	if s.LastRun, err = lastRun(b.root.Live()); err != nil {
		return s, err
	}
	if s.LastRun != nil {
		s.MaxPods = s.LastRun.MaxPods
	}
	if len(record.Files) == 0 && len(all) == 0 && s.LastRun == nil && s.AtWork == "" {
		s.Verdict = NeverRun
		return s, nil
	}
	s.Drift = append(s.Drift, apply.Drifted(b.root, record)...)
	if s.MaxPods == nil {
		s.MaxPods = b.maxPodsOf(record)
	}
	if b.starts() {
		if s.Units, err = b.unitStatus(ctx, watched(s.LastRun, all), b.editedFiles(record, all)); err != nil {
			return s, err
		}
	}
	stale := slices.ContainsFunc(s.Units, func(u UnitStatus) bool { return !u.Current })
	switch {
	case s.AtWork != "":
		s.Verdict = RunAtWork
	case slices.ContainsFunc(s.Units, func(u UnitStatus) bool { return u.Active != "active" }):
		s.Verdict = ServiceDown
	case len(s.Drift) > 0 || stale || s.Interrupted:
		s.Verdict = HasDrifted
	}
	return s, nil
}

func lastRun(live bool) (*LastRun, error) {
	if !live {
		return nil, nil
	}
	data, err := os.ReadFile(layout.StatusFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Disk, "", "%w", err)
	}
	var run LastRun
	if err := json.Unmarshal(data, &run); err != nil {
		return nil, fault.New(fault.Disk, "remove it; the next run writes it anew", "%s: %w", layout.StatusFile, err)
	}
	return &run, nil
}

// watched are the units that have to run: those of the last plan or, after a
// reboot or a rollback, of the newest generation that knows.
func watched(run *LastRun, all []apply.Generation) []Watched {
	if run != nil && len(run.Watched) > 0 {
		return run.Watched
	}
	for _, g := range slices.Backward(all) {
		if len(g.Units) == 0 {
			continue
		}
		var units []Watched
		for _, u := range g.Units {
			if !u.OnChange && !u.Unwanted {
				units = append(units, Watched{u.Name, u.Files})
			}
		}
		return units
	}
	return nil
}

// editedFiles are the files that are not as the last run that touched them
// wrote them: somebody has changed them, whether the run after that kept it or
// there has been none.
func (b *bootstrap) editedFiles(record apply.Record, all []apply.Generation) []string {
	written := apply.Record{Files: maps.Clone(record.Files)}
	for _, g := range all {
		for _, f := range g.Files {
			if w, ours := written.Files[f.Path]; ours && f.After != nil {
				w.SHA256 = f.After.SHA256
				written.Files[f.Path] = w
			}
		}
	}
	var edited []string
	for _, d := range apply.Drifted(b.root, written) {
		edited = append(edited, d.Path)
	}
	return edited
}

// unitStatus asks systemd for units, and finds out whether each runs what is on
// disk: no run left it with an older configuration, and no file of its was
// changed after it was started.
func (b *bootstrap) unitStatus(ctx context.Context, watched []Watched, edited []string) ([]UnitStatus, error) {
	manager, err := systemd.Observe(ctx)
	if err != nil {
		return nil, fault.New(fault.Service, "", "%w", err)
	}
	defer manager.Close()
	pending, err := b.pending()
	if err != nil {
		return nil, err
	}
	var units []UnitStatus
	for _, w := range watched {
		name := w.Unit
		state, err := manager.State(ctx, name)
		if err != nil {
			return nil, fault.Wrap(fault.Service, err)
		}
		u := UnitStatus{Name: name, Active: state.Active, Enabled: state.FileState, Current: true}
		switch {
		case slices.Contains(pending, name):
			u.Current, u.Why = false, "a run was cut short before it restarted it"
		case state.NeedReload:
			u.Current, u.Why = false, "unit files changed since systemd read them (systemctl daemon-reload)"
		default:
			for _, path := range w.Files {
				info, err := os.Stat(filepath.Join(string(b.root), path))
				if err == nil && slices.Contains(edited, path) && state.Active == "active" && time.Since(info.ModTime()) < state.ActiveFor {
					u.Current, u.Why = false, path+" was changed by hand after it was started"
				}
			}
		}
		units = append(units, u)
	}
	return units, nil
}

// maxPodsOf reads max pods from the configuration itself, where no run of this
// boot tells more.
func (b *bootstrap) maxPodsOf(record apply.Record) *MaxPods {
	live, err := b.liveFields(layout.KubeletConfig)
	number, isNumber := live["maxPods"].(json.Number)
	if err != nil || !isNumber {
		return nil
	}
	pods, err := strconv.Atoi(number.String())
	if err != nil {
		return nil
	}
	source := "kubelet-config.json"
	if managed, err := ownership.Managed(live, record.Documents[layout.KubeletConfig]); err == nil {
		if owner, err := (&ownership.State{Managed: managed}).Owners(); err == nil {
			source += fmt.Sprintf(", set by %q", owner("maxPods"))
		}
	}
	return &MaxPods{Pods: pods, Source: source}
}
