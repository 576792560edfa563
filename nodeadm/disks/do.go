package disks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
)

// Manager is what is needed of systemd; see internal/systemd.
type Manager interface {
	Reload(ctx context.Context) error
	Enable(ctx context.Context, units ...string) error
	ResetFailed(ctx context.Context, unit string) error
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	State(ctx context.Context, unit string) (systemd.State, error)
}

// Preview says what Run would do. It touches nothing.
func (n Node) Preview(ctx context.Context, w Wanted) (Decision, error) {
	s, err := n.Inspect(ctx)
	if err != nil {
		return Decision{}, err
	}
	d, err := Decide(w, s)
	if err != nil {
		return Decision{}, err
	}
	for _, step := range d.Steps {
		if program := programs[step.Action]; program != "" {
			if err := installed(program); err != nil {
				return Decision{}, err
			}
		}
	}
	return d, nil
}

var programs = map[Action]string{Create: "mdadm", Assemble: "mdadm", Format: "mkfs.xfs", Move: "cp"}

// Run makes the disks what is wanted, and says what it did.
func (n Node) Run(ctx context.Context, w Wanted) (done Decision, err error) {
	r := &runner{Node: n}
	defer func() {
		if again := r.startAgain(ctx); again != nil {
			err = errors.Join(err, again)
		}
	}()
	for {
		d, err := n.Preview(ctx, w)
		if err != nil {
			return done, err
		}
		done.Notes = d.Notes
		again := false
		for _, step := range d.Steps {
			n.Report(step.String())
			if err := r.do(ctx, step); err != nil {
				return done, err
			}
			done.Steps = append(done.Steps, step)
			// What an array holds, and what it is called, is seen once it is there.
			if again = step.Action == Create || step.Action == Assemble; again {
				break
			}
		}
		if !again {
			return done, nil
		}
	}
}

type runner struct {
	Node
	stopped []string
}

func (r *runner) do(ctx context.Context, s Step) error {
	switch s.Action {
	case Create:
		return r.create(ctx, s)
	case Assemble:
		_, err := run(ctx, "mdadm", append([]string{"--assemble", s.Device, "--uuid=" + s.uuid}, s.Members...)...)
		return r.appears(ctx, s, err)
	case Format:
		// Stripe unit and width are those that an array tells mkfs.xfs; only the log
		// takes no stripes as long as those. Without -f it does not write over
		// anything that has appeared there since.
		_, err := run(ctx, "mkfs.xfs", "-q", "-L", s.Label, "-l", "su=8b", s.Device)
		return err
	case MountIt:
		return r.mount(ctx, s)
	}
	return r.move(ctx, s)
}

func (r *runner) create(ctx context.Context, s Step) error {
	// Made for any host: it keeps its name where the instance's changes.
	args := []string{"--create", s.Device, "--level=" + strings.TrimPrefix(s.Level, "raid"), "--name=" + arrayName, "--homehost=any"}
	if s.Level == "raid10" {
		// After a crash only what was being written is compared again. Said
		// explicitly: versions of mdadm differ in whether they ask.
		args = append(args, "--bitmap=internal")
	}
	args = append(append(args, "--raid-devices="+strconv.Itoa(len(s.Members))), s.Members...)
	_, err := run(ctx, "mdadm", args...)
	return r.appears(ctx, s, err)
}

// appears makes sure that there is an array now: going on would make it over and
// over again.
func (r *runner) appears(ctx context.Context, s Step, err error) error {
	if err != nil {
		remedy := ""
		if !r.Root.Exists("/proc/mdstat") {
			remedy = "arrays need a kernel with md, and its module " + s.Level + "; without them use mount"
		}
		return fault.New(fault.Disk, remedy, "%s: %w", s.Device, err)
	}
	state, err := r.Inspect(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(state.Arrays, func(a Array) bool { return a.Running && slices.Contains(a.Members, s.Members[0]) }) {
		return fault.New(fault.Disk, "cat /proc/mdstat shows its state", "%s does not run, although mdadm has started it", s.Device)
	}
	return nil
}

// mount mounts a filesystem, now and at every boot.
func (r *runner) mount(ctx context.Context, s Step) error {
	device, err := r.device(ctx, filepath.Base(s.Device))
	if err != nil {
		return err
	}
	if len(device.Signatures) != 1 || device.Signatures[0].UUID == "" {
		return fault.New(fault.Disk, "blkid --probe "+s.Device+" shows what is there", "%s has no filesystem that can be mounted", s.Device)
	}
	if err := r.start(ctx, filesystemUnit(s.Where, device.Signatures[0].UUID)); err != nil {
		return err
	}
	// Data goes there next, and must not go to the root disk.
	mounts, err := r.mounts()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(mounts, func(m Mount) bool { return m.Where == s.Where && m.Number == device.Number }) {
		return fault.New(fault.Disk, "findmnt "+s.Where+" shows what is there", "%s is not mounted at %s, although systemd has started that", s.Device, s.Where)
	}
	return nil
}

// move copies a directory to the filesystem and mounts the copy in its place.
// What it held stays where it was, below the mount.
func (r *runner) move(ctx context.Context, s Step) error {
	if err := r.stop(ctx, s.move.service); err != nil {
		return err
	}
	from, err := r.Root.Target(s.Where)
	if err == nil {
		err = os.MkdirAll(from, 0o755)
	}
	if err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	if err := r.copy(ctx, s.Where, s.Device); err != nil {
		return err
	}
	return r.start(ctx, moveUnit(*s.move, path.Dir(s.Device)))
}

// copy copies a directory unless that was done before: then the copy is newer.
// It gets its name when it is complete and on the disk.
func (r *runner) copy(ctx context.Context, from, to string) error {
	if r.Root.Exists(to) {
		return nil
	}
	half, err := r.Root.Target(to + ".copying")
	if err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	if err := os.RemoveAll(half); err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	if err := os.MkdirAll(half, 0o755); err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	// containerd keeps devices, hard links and extended attributes there.
	if _, err := run(ctx, "cp", "--archive", "--one-file-system", "--", filepath.Join(string(r.Root), from)+"/.", half); err != nil {
		return err
	}
	if err := syncFilesystem(half); err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	if err := os.Rename(half, strings.TrimSuffix(half, ".copying")); err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	return fault.Wrap(fault.Disk, atomicfile.SyncDir(filepath.Dir(half)))
}

func syncFilesystem(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Syncfs(int(file.Fd())); err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// start writes a unit, and has systemd start it now and at every boot.
func (r *runner) start(ctx context.Context, u unitFile) error {
	target, err := r.Root.Target(unitDir + u.name)
	if err == nil {
		err = atomicfile.Replace(target, []byte(u.text), 0o644)
	}
	if err != nil {
		return fault.Wrap(fault.Disk, err)
	}
	for _, call := range []func() error{
		func() error { return r.Manager.Reload(ctx) },
		func() error { return r.Manager.Enable(ctx, u.name) },
		func() error {
			// After a boot without its disk it has failed, and would go on refusing.
			if state, err := r.Manager.State(ctx, u.name); err != nil || state.Active != "failed" {
				return err
			}
			return r.Manager.ResetFailed(ctx, u.name)
		},
		func() error { return r.Manager.Start(ctx, u.name) },
	} {
		if err := call(); err != nil {
			said := ""
			if words := systemd.LastWords(ctx, u.name, 6); len(words) > 0 {
				said = "\n  its last words:\n    " + strings.Join(words, "\n    ")
			}
			return fault.New(fault.Disk, "systemctl status '"+u.name+"' shows more", "%w%s", err, said)
		}
	}
	return nil
}

// stop keeps a service from writing to a directory that is being copied.
func (r *runner) stop(ctx context.Context, service string) error {
	state, err := r.Manager.State(ctx, service)
	if err != nil {
		return fault.Wrap(fault.Service, err)
	}
	if state.Active == "inactive" || state.Active == "failed" {
		return nil
	}
	r.Report("stop " + service + ": its data is moved")
	r.stopped = append(r.stopped, service)
	return fault.Wrap(fault.Service, r.Manager.Stop(ctx, service))
}

// startAgain starts what was stopped, the last one first: kubelet needs
// containerd. It does so after a failure, too.
func (r *runner) startAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, service := range slices.Backward(r.stopped) {
		r.Report("start " + service + " again")
		errs = append(errs, fault.Wrap(fault.Service, r.Manager.Start(ctx, service)))
	}
	return errors.Join(errs...)
}
