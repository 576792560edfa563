package nodeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/doctor"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Diagnose finds out what is wrong with this node, as it stands and as the last
// run in this boot left it.
func Diagnose(ctx context.Context, o Options, s doctor.Selection) doctor.Report {
	started := time.Now()
	o.Timeout = statusTimeout
	status, err := ReadStatus(ctx, o)
	if err != nil {
		o.Log.Warnf("what nodeadm's last run left is not known: %v", err)
	}
	return diagnose(ctx, o, s, status, started)
}

func diagnose(ctx context.Context, o Options, s doctor.Selection, status Status, started time.Time) doctor.Report {
	d := doctor.Options{
		Started: started,
		Root:    rootfs.Root(o.Root), IMDSEndpoint: o.IMDSEndpoint, AWS: o.AWS,
		Documents: func(ctx context.Context) ([]config.Source, error) {
			return ReadSources(ctx, nil, rootfs.Root(o.Root), imds.New(imds.Options{Endpoint: o.IMDSEndpoint}), strings.NewReader(""))
		},
	}
	for _, drift := range status.Drift {
		d.Edited = append(d.Edited, drift.Path+": "+drift.What)
	}
	for _, unit := range status.Units {
		if unit.Active == "active" && !unit.Current {
			d.Stale = append(d.Stale, unit.Name+": "+unit.Why)
		}
	}
	if run := status.LastRun; run != nil {
		d.LastRun = &doctor.LastRun{Command: run.Command, Error: run.Error, Remedy: run.Remedy}
		for _, phase := range run.Phases {
			if phase.Failed {
				d.LastRun.Phase = phase.Name
			}
		}
	}
	return doctor.Examine(ctx, d, s)
}

// ExplainFailure finds out why a run has failed, by the checks that need no
// permission of AWS's, and notes what they found beside how the run went. It
// takes as long as the checks may, whatever time the run had.
func ExplainFailure(ctx context.Context, o Options, started time.Time, failure error) doctor.Report {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctor.Budget+statusTimeout)
	defer cancel()
	begun := time.Now()
	o.Timeout = statusTimeout
	status, err := ReadStatus(ctx, o)
	if err != nil {
		o.Log.Debugf("status: %v", err)
	}
	if status.LastRun == nil || status.LastRun.Error != failure.Error() {
		// It failed before there was anything to run.
		status.LastRun = &LastRun{Command: o.Command, Version: o.Version, Started: started.UTC(), Seconds: time.Since(started).Seconds(), Phases: []Phase{}}
		status.LastRun.fail(failure)
	}
	report := diagnose(ctx, o, doctor.Selection{Level: doctor.Network}, status, begun)
	status.LastRun.Diagnosis = &report
	if err := status.LastRun.write(); err != nil {
		o.Log.Warn(err)
	}
	return report
}

// statusTimeout is how long systemd may take to say how units stand.
const statusTimeout = 3 * time.Second

func (r *LastRun) fail(err error) {
	r.Outcome, r.ExitCode, r.Error, r.Remedy = "failed", int(fault.CodeOf(err)), err.Error(), fault.Remedy(err)
}

func (r *LastRun) write() error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(layout.StatusFile), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Replace(layout.StatusFile, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("%s: %w", layout.StatusFile, err)
	}
	return nil
}

// Explicable tells whether it makes sense to look for what is behind a failure:
// not where somebody ended the run, nor in an image.
func Explicable(ctx context.Context, o Options, err error) bool {
	return err != nil && !errors.Is(ctx.Err(), context.Canceled) && rootfs.Root(o.Root).Live() && !o.NoStart && os.Geteuid() == 0
}
