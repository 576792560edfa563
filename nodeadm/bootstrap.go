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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/activate"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
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
	Log       logrus.FieldLogger
}

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

// Result is what a bootstrap did.
type Result struct {
	Plan    plan.Plan
	Facts   facts.Facts
	Changes []apply.Change
	Done    []activate.Done
}

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
	b := &bootstrap{config: c, options: o, root: rootfs.Root(o.Root), log: o.Log}
	starts := b.root.Live() && !o.NoStart
	unlock, err := b.lock(ctx)
	if err != nil {
		return b.result, err
	}
	defer unlock()
	err = b.run(ctx, []phase{
		{"facts", true, b.gather},
		{"plan", true, b.build},
		{"disks", c.LocalDisks != "", b.disks},
		{"apply", true, b.apply},
		{"activate", starts, b.activate},
		{"verify", starts, b.verify},
	})
	return b.result, err
}

// Plan works out what a bootstrap would make of the node, and changes nothing.
func Plan(ctx context.Context, c config.Config, o Options) (Result, error) {
	ctx, cancel := o.Limit(ctx)
	defer cancel()
	o.NoStart = true // what is missing on the image is only warned about
	b := &bootstrap{config: c, options: o, root: rootfs.Root(o.Root), log: o.Log}
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
	result  Result
}

// lock keeps two runs from working on one root at the same time. The second one
// waits, and says so.
func (b *bootstrap) lock(ctx context.Context) (unlock func(), err error) {
	path := b.options.Root
	if b.root.Live() {
		path = filepath.Dir(layout.PendingFile)
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
			b.log.Warnf("another run of nodeadm is at work on %s; waiting for it", b.options.Root)
			told = true
		}
		select {
		case <-ctx.Done():
			dir.Close()
			return nil, fault.New(fault.Disk, "wait for it, or see what it is doing: journalctl -t nodeadm", "another run of nodeadm was still at work on %s after %s", b.options.Root, time.Since(start).Round(time.Second))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *bootstrap) run(ctx context.Context, phases []phase) error {
	phases = slices.DeleteFunc(phases, func(p phase) bool { return !p.when })
	defer func() {
		if b.manager != nil {
			b.manager.Close()
		}
	}()
	for i, p := range phases {
		step := fmt.Sprintf("%s %d/%d", p.name, i+1, len(phases))
		b.log.Debug(step)
		start := time.Now()
		if err := p.run(ctx); err != nil {
			b.log.Errorf("%s failed after %s", step, time.Since(start).Round(time.Millisecond))
			if errors.Is(ctx.Err(), context.Canceled) {
				return fault.New(fault.Unexpected, "run it again; nothing was left half-done", "ended by a signal during %s", p.name)
			}
			return err
		}
		b.log.Infof("%s done in %s", step, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// gather finds out what is true of the instance.
func (b *bootstrap) gather(ctx context.Context) (err error) {
	var warning string
	if b.record, warning, err = apply.ReadRecord(b.root); err != nil {
		return err
	}
	if warning != "" {
		b.log.Warn(warning)
	}
	metadata := imds.New(imds.Options{Endpoint: b.options.IMDSEndpoint, Report: b.options.Waiting})
	_, ownName := b.config.Kubelet.Flag("hostname-override")
	request := facts.Request{
		Host: facts.HostRequest{
			Root:                 b.root,
			KubeletVersion:       b.options.KubeletVersion,
			ContainerdVersion:    b.options.ContainerdVersion,
			ContainerdConfigFile: b.config.Containerd.ConfigFile,
			Machine:              b.options.Machine,
			Simulated:            b.options.Simulated,
			Applied:              b.record,
			Partial:              !b.root.Live() || b.options.NoStart,
		},
		IMDS: metadata,
		AWS: func(region string) *awsapi.Client {
			o := b.options.AWS
			o.Region, o.IMDS = region, metadata
			o.Report = b.options.Waiting
			return awsapi.New(o)
		},
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

// build makes the plan and says what people should know of it.
func (b *bootstrap) build(context.Context) (err error) {
	if b.result.Plan, err = plan.Build(b.config, b.result.Facts); err != nil {
		return err
	}
	for _, w := range b.result.Plan.Warnings {
		b.log.Warn(w)
	}
	p := b.result.Plan.MaxPods
	b.log.Infof("max pods %d from %s; %s: %s", p.Effective, p.Source, p.InstanceType, p.Arithmetic)
	return nil
}

// disksProgram is the image's own program for instance store volumes.
const disksProgram = "/usr/bin/setup-local-disks"

// disks prepares instance store volumes before anything is written to where
// they will be mounted.
func (b *bootstrap) disks(ctx context.Context) error {
	if !b.root.Live() || b.options.NoStart {
		b.log.Warn("instance store volumes are left alone: nothing is started")
		return nil
	}
	if !b.root.Exists(disksProgram) {
		return fault.New(fault.Usage, "leave --local-disks out, or install that program on the image", "--local-disks %s: %s does not exist", b.config.LocalDisks, disksProgram)
	}
	out, err := exec.CommandContext(ctx, disksProgram, b.result.Plan.Disks...).CombinedOutput()
	if err != nil {
		return fault.New(fault.Disk, "", "%s %s: %w: %s", disksProgram, b.config.LocalDisks, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// apply brings the files onto the disk.
func (b *bootstrap) apply(context.Context) error {
	changes, left, err := apply.Compare(b.root, b.result.Plan.Files, b.record)
	if err != nil {
		return err
	}
	for _, path := range left {
		b.log.Warnf("%s is not wanted any more and somebody has changed it since nodeadm wrote it; it is left as it is", path)
	}
	if len(changes) == 0 {
		return apply.Commit(b.root, b.result.Plan.Files, nil, b.record)
	}
	b.result.Changes = changes
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
	if err := apply.Commit(b.root, b.result.Plan.Files, changes, b.record); err != nil {
		return err
	}
	for _, c := range changes {
		b.log.Infof("%s %s", c.Action, c.Path)
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

// activate brings up the units.
func (b *bootstrap) activate(ctx context.Context) (err error) {
	if b.manager, err = systemd.Connect(ctx); err != nil {
		return fault.New(fault.Service, "on a machine without systemd use --root DIR or --no-start", "%w", err)
	}
	pending, err := b.pending()
	if err != nil {
		return err
	}
	stale := activate.Stale(b.result.Plan.Units, b.changed(), pending)
	b.result.Done, err = activate.Units(ctx, b.manager, b.result.Plan.Units, stale, b.changed())
	for _, d := range b.result.Done {
		b.log.Infof("%s %s: %s", d.Action, d.Unit, d.Why)
	}
	if err != nil {
		return err
	}
	return b.setPending(nil)
}

// verify makes sure that kubelet stays up.
func (b *bootstrap) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return activate.Healthy(ctx, b.manager, layout.KubeletService, b.result.Plan.HealthURL, func(message string) { b.log.Warn(message) })
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
