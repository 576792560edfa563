// Package nodeadm turns an EC2 instance into a node of an EKS cluster.
//
// Data flows one way: a configuration says what somebody wants, facts say what
// is true, a pure plan follows from both, and that plan is applied to the disk
// and activated through systemd. The phases below are all of it, in order.
package nodeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/disks"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// Options say where and how a bootstrap runs.
type Options struct {
	// Root is the directory with the node's root filesystem. Anything but "/"
	// is an image: files are written below it and nothing is started.
	Root string
	// NoStart leaves services alone on the running system too.
	NoStart bool
	// Wait is what a run that starts services waits for.
	Wait Wait
	// Timeout bounds the whole run.
	Timeout time.Duration
	// IMDSEndpoint is the URL of instance metadata; empty: EC2's own.
	IMDSEndpoint string
	// AWS says how AWS APIs are reached; its region, instance role and reports
	// are filled in here.
	AWS awsapi.Options
	// KubeletVersion and ContainerdVersion are used instead of asking the image.
	KubeletVersion, ContainerdVersion string
	// Machine, if set, stands for the hardware and kernel this runs on.
	Machine *facts.Machine
	// Simulated: the image is taken to hold the programs that a node needs.
	Simulated bool
	// CredentialPlugin makes kubelet's tokens: one of facts.CredentialPlugins, or
	// "" for the best one that is installed. Self is this program's path.
	CredentialPlugin, Self string
	// ForceConflicts takes over fields that a hand has changed.
	ForceConflicts bool
	// RollbackOnFailure brings the former configuration back where the services
	// do not run with the new one, or where the node does not join with it and
	// kubelet ran before.
	RollbackOnFailure bool
	// Command and Version are noted with what a run changes: what was asked
	// for, and of which nodeadm.
	Command, Version string
	// Progress, if set, is told when a phase begins, n of count.
	Progress func(phase string, n, count int)
	Log      logrus.FieldLogger
}

// Wait is how far a node has to have come when a run ends.
type Wait string

// What can be waited for, in the order in which it comes.
const (
	WaitNone    Wait = "none"    // systemd has started the services
	WaitHealthy Wait = "healthy" // kubelet says that it is, and goes on saying so; the default
	WaitJoined  Wait = "joined"  // the API server has the node
)

// Waits are all of them, the default first.
var Waits = []Wait{WaitHealthy, WaitJoined, WaitNone}

// ProxyEnvironment is the proxy that a configuration names, as environment
// variables. Whoever runs a bootstrap sets them for its own process before the
// first call, since nodeadm goes to AWS the way the node will.
func ProxyEnvironment(c config.Config) map[string]string {
	given := maps.Clone(c.Instance.Environment["default"])
	if given == nil {
		given = map[string]string{}
	}
	maps.Copy(given, plan.Proxy(c, facts.Facts{}))
	variables := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if value := cmp.Or(given[name], given[strings.ToLower(name)]); value != "" {
			variables[name] = value
		}
	}
	return variables
}

// Waiting says what the run is waiting for, so that it is never silent.
func (o Options) Waiting(err error, attempt int, waited time.Duration) {
	o.Log.Warnf("attempt %d, waiting since %s: %v", attempt, waited.Round(100*time.Millisecond), err)
}

// Limit bounds ctx by the time that the whole run has.
func (o Options) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.Timeout)
}

// Result is what a run did, or would do.
type Result struct {
	Plan    plan.Plan
	Facts   facts.Facts
	Changes []apply.Change
	// Left are files that are not wanted any more and that somebody has changed.
	Left []string
	Done []activate.Done
	// Disks is what was done to instance store volumes, or would be.
	Disks []disks.Step
	// Steps is what a preview would do to units, in order.
	Steps []activate.Step
	// Interrupted: an earlier run was cut short, and the next one undoes it.
	Interrupted bool
	// Node is the node as the API server has it, if that was waited for.
	Node *join.Node
	// Generation is the number under which the changes are kept, 0 if there
	// were none.
	Generation int
	// RolledBack: the services did not run or the node did not join with the
	// changes, and the former configuration is back.
	RolledBack bool
	// Forgotten is what a reset removed besides files that nodeadm had changed.
	Forgotten []string
	// Phases are the phases of the run with the time they took.
	Phases []Phase
}

// Phase is a phase that has ended.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// joining is the phase that a healthy node may fail in.
const joining = "join"

// phase is one step of a bootstrap.
type phase struct {
	name string
	when bool
	run  func(context.Context) error
}

// Bootstrap makes a node. Errors carry the exit code of their class.
func Bootstrap(ctx context.Context, c config.Config, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	b := newRun(o)
	b.config = c
	started := time.Now()
	err := b.locked(ctx, func() error {
		err := b.run(ctx, []phase{
			{"facts", true, b.gather},
			{"plan", true, b.build},
			{"disks", c.LocalDisks != "", b.disks},
			{"apply", true, b.apply},
			{"activate", b.starts(), b.activate},
			{"verify", b.verifies(), b.verify},
			{joining, b.starts() && o.Wait == WaitJoined, b.join},
		})
		err = b.conclude(ctx, err)
		b.writeStatus(started, err)
		return err
	})
	return b.result, err
}

// Preview works out what a bootstrap would change, and changes nothing.
func Preview(ctx context.Context, c config.Config, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	b := newRun(o)
	b.config, b.preview = c, true
	err := b.run(ctx, []phase{
		{"facts", true, b.gather},
		{"plan", true, b.build},
		{"disks", c.LocalDisks != "", b.previewDisks},
		{"compare", true, b.compare},
		{"journal", true, b.interrupted},
		{"units", b.starts(), b.previewUnits},
	})
	return b.result, err
}

// interrupted finds out about a run that was cut short.
func (b *bootstrap) interrupted(context.Context) error {
	g, found, err := apply.Interrupted(b.root)
	if errors.Is(err, fs.ErrPermission) {
		return nil // only root may look there
	}
	if found {
		if who := b.atWork(); who != "" {
			b.log.Warnf("%s is at work: what is shown here is half of what it does", who)
			return err
		}
		b.log.Warnf("an earlier run (%s) was cut short while it wrote generation %d; the next run undoes that first", g.Command, g.Number)
	}
	b.result.Interrupted = found
	return err
}

// Plan works out what a bootstrap would make of the node, without a look at
// what stands there.
func Plan(ctx context.Context, c config.Config, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	o.NoStart = true // what is missing on the image is only warned about
	b := newRun(o)
	b.config = c
	err := b.run(ctx, []phase{{"facts", true, b.gather}, {"plan", true, b.build}})
	return b.result, err
}

// bootstrap is a run under way.
type bootstrap struct {
	config  config.Config
	options Options
	root    rootfs.Root
	log     logrus.FieldLogger
	record  apply.Record
	manager *systemd.Manager
	preview bool
	// recovered: a run that was cut short was undone before this one began.
	recovered bool
	// ranBefore: kubelet was running when this run changed its configuration.
	ranBefore bool
	result    Result
}

func newRun(o Options) *bootstrap {
	return &bootstrap{options: o, root: rootfs.Root(o.Root), log: o.Log}
}

// starts tells whether this run has to do with services at all.
func (b *bootstrap) starts() bool { return b.root.Live() && !b.options.NoStart }

// verifies tells whether it finds out that the services run.
func (b *bootstrap) verifies() bool { return b.starts() && b.options.Wait != WaitNone }

func (b *bootstrap) run(ctx context.Context, phases []phase) error {
	phases = slices.DeleteFunc(phases, func(p phase) bool { return !p.when })
	defer b.disconnect()
	for i, p := range phases {
		step := fmt.Sprintf("%s %d/%d", p.name, i+1, len(phases))
		b.log.Debug(step)
		if b.options.Progress != nil {
			b.options.Progress(p.name, i+1, len(phases))
		}
		start := time.Now()
		err := p.run(ctx)
		took := time.Since(start)
		b.result.Phases = append(b.result.Phases, Phase{p.name, took.Seconds(), err != nil})
		if err != nil {
			b.log.Errorf("%s failed after %s", step, took.Round(time.Millisecond))
			if errors.Is(ctx.Err(), context.Canceled) {
				return fault.New(fault.Unexpected, "run it again; nothing was left half-done", "ended by a signal during %s", p.name)
			}
			return err
		}
		b.log.Infof("%s done in %s", step, took.Round(time.Millisecond))
	}
	return nil
}

// gather finds out what is true of the instance.
func (b *bootstrap) gather(ctx context.Context) (err error) {
	var warning string
	if b.record, warning, err = apply.ReadRecord(b.root); err != nil {
		return err
	}
	if warning == "" && len(b.record.Files) == 0 {
		if all, err := apply.Generations(b.root); err == nil && len(all) > 0 && all[len(all)-1].Outcome != apply.Applying && !strings.HasPrefix(all[len(all)-1].Command, "rollback to 0") {
			warning = layout.AppliedFile + " is missing: every file on the node is taken for somebody else's"
		}
	}
	if warning != "" {
		b.log.Warn(warning)
	}
	metadata := b.metadata()
	_, ownName := b.config.Kubelet.Flag("hostname-override")
	request := facts.Request{
		Host: facts.HostRequest{
			Root:                 b.root,
			KubeletVersion:       b.options.KubeletVersion,
			ContainerdVersion:    b.options.ContainerdVersion,
			ContainerdConfigFile: b.config.Containerd.ConfigFile,
			Machine:              b.options.Machine,
			Simulated:            b.options.Simulated,
			Own:                  b.record.Own(),
			Before:               b.record.Documents,
			RanBefore:            len(b.record.Files) > 0,
			CredentialPlugin:     b.options.CredentialPlugin,
			Self:                 b.self(),
			Partial:              !b.starts(),
		},
		IMDS:           metadata,
		AWS:            func(region string) *awsapi.Client { return b.aws(region, metadata) },
		Check:          func(h facts.Host) error { return plan.CheckKubelet(b.config, h.Kubelet) },
		ClusterRetries: b.config.Cluster.DescribeRetries,
		NodeName:       !ownName && !b.config.Kubelet.InstanceIDNodeName,
		IPv6:           b.config.Cluster.IPFamily == "ipv6",
		PauseAccount:   b.config.PauseImage.Account,
	}
	request.ClusterName, request.DescribeCluster = b.config.Cluster.Name, !b.config.Cluster.Described()
	request.Tags = b.config.Labels.NeedTags()
	if b.config.Proxy.HTTP != "" || b.config.Proxy.HTTPS != "" {
		request.PrivateEndpoint = b.config.Cluster.Endpoint
	}
	if outpost := b.config.Cluster.Outpost; outpost != nil && *outpost {
		request.ResolveEndpoint = b.config.Cluster.Endpoint
	}
	b.result.Facts, err = facts.Gather(ctx, request)
	return err
}

func (b *bootstrap) metadata() *imds.Client {
	return imds.New(imds.Options{Endpoint: b.options.IMDSEndpoint, Report: b.options.Waiting})
}

func (b *bootstrap) aws(region string, metadata *imds.Client) *awsapi.Client {
	o := b.options.AWS
	o.Region, o.IMDS = region, metadata
	o.Report = b.options.Waiting
	return awsapi.New(o)
}

// self is where this program stands on the node; in an image that is not known.
func (b *bootstrap) self() string {
	if !b.root.Live() {
		return ""
	}
	return b.options.Self
}

// build makes the plan and says what people should know of it.
func (b *bootstrap) build(context.Context) (err error) {
	if b.result.Plan, err = plan.Build(b.config, b.result.Facts, plan.Options{ForceConflicts: b.options.ForceConflicts}); err != nil {
		return err
	}
	if !b.preview { // it has them in its answer
		for _, w := range b.result.Plan.Warnings {
			b.log.Warn(w)
		}
	}
	p := b.result.Plan.MaxPods
	b.log.Infof("max pods %d from %s; %s: %s", p.Effective, p.Source, p.InstanceType, p.Arithmetic)
	return nil
}

// disks prepares instance store volumes before anything is written to where
// they will be mounted.
func (b *bootstrap) disks(ctx context.Context) error {
	if !b.starts() {
		b.log.Warn("instance store volumes are left alone: nothing is started")
		return nil
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	node := disks.Node{Root: b.root, Manager: b.manager, Report: func(s string) { b.log.Info(s) }}
	decision, err := node.Run(ctx, b.wantedDisks())
	b.noteDisks(decision)
	return err
}

// previewDisks tells what a run would do to instance store volumes.
func (b *bootstrap) previewDisks(ctx context.Context) error {
	if !b.starts() {
		b.log.Warn("instance store volumes are left alone: nothing is started")
		return nil
	}
	decision, err := disks.Node{Root: b.root}.Preview(ctx, b.wantedDisks())
	if errors.Is(err, fs.ErrPermission) {
		b.log.Warnf("only root can see what would be done to instance store volumes: %v", err)
		return nil
	}
	b.noteDisks(decision)
	return err
}

func (b *bootstrap) wantedDisks() disks.Wanted {
	storage := b.config.Instance.LocalStorage
	return disks.Wanted{Strategy: b.config.LocalDisks, Path: storage.MountPath, Disabled: storage.DisabledMounts}
}

func (b *bootstrap) noteDisks(d disks.Decision) {
	b.result.Disks = d.Steps
	for _, note := range d.Notes {
		b.log.Info(note)
	}
}

// compare tells the plan from what stands on the node.
func (b *bootstrap) compare(context.Context) (err error) {
	b.result.Changes, b.result.Left, err = apply.Compare(b.root, b.result.Plan.Files, b.record)
	for _, path := range b.result.Left {
		if b.preview {
			break
		}
		b.log.Warnf("%s is not wanted any more and somebody has changed it since nodeadm wrote it; it is left as it is", path)
	}
	return err
}

// apply brings the files onto the disk.
func (b *bootstrap) apply(ctx context.Context) error {
	if err := b.compare(ctx); err != nil {
		return err
	}
	units, err := b.unitsBefore(ctx)
	if err != nil {
		return err
	}
	b.ranBefore = slices.ContainsFunc(units, func(u apply.Unit) bool { return u.Name == layout.KubeletService && u.Active })
	changes := b.result.Changes
	record, err := b.record.Next(b.result.Plan.Files, changes).Change(b.root)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		if record != nil {
			return apply.CommitAlone(b.root, *record)
		}
		return nil
	}
	if b.root.Live() {
		// Before the first file changes, so that a run that is cut short in
		// between leaves word for the next one.
		pending, err := b.pending()
		if err != nil {
			return err
		}
		if err := b.setPending(activate.Stale(b.result.Plan.Units, b.changed(), pending)); err != nil {
			return err
		}
	}
	if record != nil {
		changes = append(slices.Clip(changes), *record)
	}
	// The dialect makes no difference to what is kept.
	return b.commit("bootstrap", changes, units, b.result.Plan.HealthURL)
}

// commit makes changes and keeps them as a generation.
func (b *bootstrap) commit(command string, changes []apply.Change, units []apply.Unit, healthURL string) (err error) {
	g := apply.Generation{Command: command, Version: b.options.Version, Units: units, HealthURL: healthURL}
	if b.root.Live() {
		now := time.Now().UTC().Truncate(time.Millisecond)
		g.Time = &now
	}
	if b.result.Generation, err = apply.Commit(b.root, changes, g); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Path != layout.AppliedFile {
			b.log.Infof("%s %s", c.Action, c.Path)
		}
	}
	return nil
}

func (b *bootstrap) changed() []string {
	var paths []string
	for _, c := range b.result.Changes {
		paths = append(paths, c.Path)
	}
	return paths
}

// conclude notes how it went with what this run changed and, where the services
// do not run with it or the node does not join, and that is wanted, brings back
// what was there.
func (b *bootstrap) conclude(ctx context.Context, err error) error {
	if b.result.Generation == 0 {
		if err == nil && b.verifies() {
			b.proven()
		}
		return err
	}
	outcome, reason := apply.Applied, ""
	switch {
	case err != nil:
		outcome, reason = apply.Failed, err.Error()
	case b.verifies():
		outcome = apply.Healthy
	}
	if finish := apply.Finish(b.root, b.result.Generation, outcome, reason); finish != nil {
		b.log.Warnf("the outcome of generation %d could not be noted: %v", b.result.Generation, finish)
	}
	if err == nil || !b.options.RollbackOnFailure {
		return err
	}
	if last := len(b.result.Phases) - 1; b.result.Phases[last].Name == joining && !b.ranBefore {
		// Going back would stop it, and with it the hope that it joins yet.
		b.log.Warn("the new configuration stays: there is none that kubelet ran with before, and it goes on trying to join")
		return err
	}
	return b.rollBackFailure(ctx, err)
}

// proven notes that the services run with what an earlier run had written and
// could not bring up, or was cut short before it did.
func (b *bootstrap) proven() {
	all, err := apply.Generations(b.root)
	if err == nil && len(all) > 0 {
		err = apply.Finish(b.root, all[len(all)-1].Number, apply.Healthy, "")
	}
	if err != nil {
		b.log.Warnf("the outcome of the last generation could not be noted: %v", err)
	}
}

// activate brings up the units.
func (b *bootstrap) activate(ctx context.Context) error {
	if err := b.connect(ctx); err != nil {
		return err
	}
	pending, err := b.pending()
	if err != nil {
		return err
	}
	stale := activate.Stale(b.result.Plan.Units, b.changed(), pending)
	done, err := activate.Units(ctx, b.manager, b.result.Plan.Units, stale, b.changed())
	b.did(done)
	if err != nil {
		return err
	}
	return b.setPending(nil)
}

func (b *bootstrap) did(done []activate.Done) {
	b.result.Done = append(b.result.Done, done...)
	for _, d := range done {
		b.log.Infof("%s %s: %s", d.Action, d.Unit, d.Why)
	}
}

// verify makes sure that kubelet stays up.
func (b *bootstrap) verify(ctx context.Context) error {
	return b.healthy(ctx, b.result.Plan.HealthURL)
}

func (b *bootstrap) healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return activate.Healthy(ctx, b.manager, layout.KubeletService, url, func(message string) { b.log.Warn(message) })
}
