// Package disks makes filesystems of an instance's NVMe instance store volumes
// and mounts them where a node's data goes.
//
// It comes in two halves. Decide is a pure function of what is wanted and what
// the devices hold: it says what has to be done, or why nothing may be. Inspect
// finds out what they hold, and Run does what was decided. What is already as it
// should be is left alone, and a device with anything on it that is not
// nodeadm's is never written to.
package disks

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// DefaultPath is where filesystems are mounted below unless somebody says otherwise.
const DefaultPath = layout.DisksPath

// What is nodeadm's is known by its name. That of the array is the one that
// setup-local-disks gives; that of a filesystem ends with the number under which
// it is mounted, so that it comes back to the same place whatever order the
// devices appear in. XFS has room for 12 letters.
const (
	arrayName   = "kubernetes"
	arrayDevice = "/dev/md/" + arrayName
	labelPrefix = "k8s-disk-"
)

// Wanted is what a configuration asks for.
type Wanted struct {
	Strategy string   // "raid0", "raid10" or "mount"
	Path     string   // filesystems are mounted below it; "" is DefaultPath
	Disabled []string // what is not moved: "Containerd", "PodLogs", "SOCI"
}

func (w Wanted) path() string { return path.Clean(cmp.Or(w.Path, DefaultPath)) }

// Signature is what tells that a device is in use for something.
type Signature struct {
	Type  string // such as "xfs", "linux_raid_member", "gpt"
	Label string
	UUID  string
}

func (s Signature) String() string {
	if s.Label != "" {
		return fmt.Sprintf("%s %q", s.Type, s.Label)
	}
	return s.Type
}

// Member is what the superblock of an array says on one of its devices.
type Member struct {
	Name    string // without the name of the machine that made it
	UUID    string
	Level   string // such as "raid0"
	Devices int    // how many the array has
}

// Device is a block device.
type Device struct {
	Path       string // such as /dev/nvme1n1
	Number     string // such as "259:1"
	Signatures []Signature
	Member     *Member // nil if it is not part of an array
	Partitions []string
	Holders    []string // devices made of it, such as "md127"
	Busy       bool     // the kernel or a program has it for itself
}

// blank tells whether nothing at all is known to be on a device.
func (d Device) blank() bool {
	return len(d.Signatures) == 0 && d.Member == nil && len(d.Partitions) == 0 && len(d.Holders) == 0 && !d.Busy
}

// number is the number that nodeadm has given to a filesystem of its own.
func (d Device) number() (n int, ours bool) {
	if len(d.Signatures) != 1 || d.Signatures[0].Type != "xfs" || len(d.Partitions) > 0 || len(d.Holders) > 0 {
		return 0, false
	}
	digits, found := strings.CutPrefix(d.Signatures[0].Label, labelPrefix)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// inArray tells whether a device is part of an array of nodeadm's name, and of
// nothing else.
func (d Device) inArray() bool {
	return d.Member != nil && d.Member.Name == arrayName && len(d.Signatures) == 1 && len(d.Partitions) == 0
}

// Array is an array that the kernel runs.
type Array struct {
	Device  Device
	Level   string
	Running bool     // otherwise some of it is assembled
	Members []string // paths of devices
}

// Mount is a mounted filesystem, or a directory of one.
type Mount struct {
	Number string // of the device
	Root   string // the directory of the filesystem that is mounted
	Where  string
	Source string
}

// Unit is a mount unit as it stands on the disk.
type Unit struct {
	Text string
	// Enabled are the directories of /etc/systemd/system with a link to it, such
	// as multi-user.target.wants.
	Enabled []string
}

// State is what is true of an instance's disks.
type State struct {
	Disks  []Device // instance store volumes
	Arrays []Array  // arrays with at least one of them
	Mounts []Mount  // in the order in which they were mounted
	Units  map[string]Unit
	// Links are the symbolic links among the directories that are to be moved.
	Links map[string]string
}

// Action is a kind of step.
type Action string

// What can have to be done, in this order.
const (
	Create   Action = "create"
	Assemble Action = "assemble"
	Format   Action = "format"
	MountIt  Action = "mount"
	Move     Action = "move"
)

// Step is one thing that has to be done.
type Step struct {
	Action Action `json:"action"`
	// Device is what is made, formatted or mounted; of a move it is the directory
	// that the data goes to.
	Device string `json:"device"`
	// Members are what an array is made of, and Level its kind.
	Members []string `json:"members,omitempty"`
	Level   string   `json:"level,omitempty"`
	// Label is that of a filesystem, and Where the place of a mount.
	Label string `json:"label,omitempty"`
	Where string `json:"where,omitempty"`

	uuid string // of an array
	move *move
}

func (s Step) String() string {
	switch s.Action {
	case Create:
		return fmt.Sprintf("create %s: %s of %s", s.Device, s.Level, strings.Join(s.Members, ", "))
	case Assemble:
		return fmt.Sprintf("assemble %s: %s of %s", s.Device, s.Level, strings.Join(s.Members, ", "))
	case Format:
		return fmt.Sprintf("format %s: xfs, label %s", s.Device, s.Label)
	case MountIt:
		return fmt.Sprintf("mount %s: at %s", s.Device, s.Where)
	}
	return fmt.Sprintf("move %s: to %s", s.Where, s.Device)
}

// move is a directory that goes onto the disks, under its last element's name.
type move struct {
	where string
	// service uses it: it is not to run before the disks are mounted, and not
	// while the data goes over.
	service string
	option  string // what disabledMounts calls it; kubelet's cannot be left out
}

var moves = []move{
	{layout.KubeletDir, "kubelet.service", ""},
	{layout.ContainerdDir, "containerd.service", "Containerd"},
	{layout.PodLogsDir, "kubelet.service", "PodLogs"},
	{layout.SOCIDir, "soci-snapshotter.service", "SOCI"},
}

// Decision is what has to be done, and what people should know of it.
type Decision struct {
	Steps []Step
	Notes []string
}

// Decide says what has to be done so that devices in a state become what is
// wanted: nothing, if they are that already. Wherever a device holds something
// that is not nodeadm's it is an error, and nothing is to be touched.
func Decide(w Wanted, s State) (Decision, error) {
	if len(s.Disks) == 0 {
		return Decision{Notes: []string{"the instance has no NVMe instance store volumes: there is nothing to do"}}, nil
	}
	d := &decider{wanted: w, state: s}
	if w.Strategy == "mount" {
		d.each()
	} else {
		d.together()
	}
	if len(d.errs) > 0 {
		return Decision{}, errors.Join(d.errs...)
	}
	return d.decision, nil
}

type decider struct {
	wanted   Wanted
	state    State
	decision Decision
	errs     []error
}

func (d *decider) step(s Step) { d.decision.Steps = append(d.decision.Steps, s) }

func (d *decider) note(format string, args ...any) {
	d.decision.Notes = append(d.decision.Notes, fmt.Sprintf(format, args...))
}

func (d *decider) fail(remedy, format string, args ...any) {
	d.errs = append(d.errs, fault.New(fault.Disk, remedy, format, args...))
}

// each makes a filesystem of every volume.
func (d *decider) each() {
	taken := map[int]string{}
	for _, disk := range d.state.Disks {
		n, ours := disk.number()
		switch {
		case ours && n > 0 && taken[n] != "":
			d.fail("wipe one of them: wipefs --all "+disk.Path, "%s and %s are both labelled %s%d", taken[n], disk.Path, labelPrefix, n)
		case ours && n > 0:
			taken[n] = disk.Path
		case !disk.blank():
			d.foreign(disk)
		}
	}
	next := 1
	for _, disk := range d.state.Disks {
		n, ours := disk.number()
		if !ours {
			for taken[next] != "" {
				next++
			}
			n, taken[next] = next, disk.Path
		}
		d.filesystem(disk, n)
	}
}

// together makes one filesystem of all volumes, and moves the node's data there.
func (d *decider) together() {
	d.checkPath()
	var members, blank []Device
	var single *Device
	for _, disk := range d.state.Disks {
		switch n, ours := disk.number(); {
		case disk.inArray():
			members = append(members, disk)
		case disk.blank():
			blank = append(blank, disk)
		case ours && n == 0 && len(d.state.Disks) == 1 && d.wanted.Strategy == "raid0":
			single = &disk
		default:
			d.foreign(disk)
		}
	}
	if len(d.errs) > 0 {
		return
	}
	count := len(d.state.Disks)
	switch {
	case len(members) > 0:
		for _, disk := range blank {
			d.note("%s is left alone: it is empty, and the array %s was made without it", disk.Path, arrayName)
		}
		d.array(members)
	case single != nil:
		d.volume(*single)
	case d.wanted.Strategy == "raid10" && (count < 4 || count%2 != 0):
		d.errs = append(d.errs, fault.New(fault.Usage, "use raid0 or mount, or an instance type with more volumes", "raid10 needs an even number of instance store volumes, four or more; this instance has %d: %s", count, paths(d.state.Disks)))
	case count == 1:
		// An array of one device would only be another layer, and need mdadm.
		d.volume(blank[0])
	default:
		d.step(Step{Action: Create, Device: arrayDevice, Level: d.wanted.Strategy, Members: names(blank)})
		d.volume(Device{Path: arrayDevice})
	}
}

// array goes on with an array that was made before.
func (d *decider) array(members []Device) {
	first := members[0].Member
	for _, disk := range members[1:] {
		if disk.Member.UUID != first.UUID {
			d.fail(wipe(names(members)...), "%s and %s are parts of two different arrays, and both are called %s", members[0].Path, disk.Path, arrayName)
			return
		}
	}
	if first.Level != d.wanted.Strategy {
		d.fail("ask for "+first.Level+", or give up what is on them: stop the array and "+wipe(names(members)...), "%s hold the %s array %s, and %s is asked for", paths(members), first.Level, arrayName, d.wanted.Strategy)
		return
	}
	i := slices.IndexFunc(d.state.Arrays, func(a Array) bool {
		return slices.ContainsFunc(members, func(m Device) bool { return slices.Contains(a.Members, m.Path) })
	})
	if i < 0 {
		for _, disk := range members {
			if len(disk.Holders) > 0 || disk.Busy {
				d.fail("free it, and run this again", "%s is a part of the array %s, which does not run, and is in use%s", disk.Path, arrayName, by(disk.Holders))
				return
			}
		}
		if len(members) < first.Devices {
			d.fail("what is on them is lost: "+wipe(names(members)...), "the array %s needs %d devices, and only %s are there", arrayName, first.Devices, paths(members))
			return
		}
		d.step(Step{Action: Assemble, Device: arrayDevice, Level: first.Level, Members: names(members), uuid: first.UUID})
		d.volume(Device{Path: arrayDevice, Signatures: []Signature{{Type: "xfs"}}})
		return
	}
	array := d.state.Arrays[i]
	for _, member := range array.Members {
		if !slices.ContainsFunc(members, func(m Device) bool { return m.Path == member }) {
			d.fail("rename that array, or leave --local-disks out", "%s, an array called %s, is not nodeadm's: %s in it is not an instance store volume of that name", array.Device.Path, arrayName, member)
			return
		}
	}
	if !array.Running {
		d.fail("mdadm --stop "+array.Device.Path+", and run this again", "%s, the array %s, does not run: it has %d of %d devices", array.Device.Path, arrayName, len(array.Members), first.Devices)
		return
	}
	if len(array.Members) < first.Devices {
		d.note("%s, the array %s, runs with %d of %d devices", array.Device.Path, arrayName, len(array.Members), first.Devices)
	}
	if xfs := len(array.Device.Signatures) == 1 && array.Device.Signatures[0].Type == "xfs"; !xfs && !array.Device.blank() {
		d.foreign(array.Device)
		return
	}
	d.volume(array.Device)
}

// volume mounts the one filesystem there is, and moves the data to it.
func (d *decider) volume(device Device) {
	d.filesystem(device, 0)
	for _, m := range moves {
		if m.option == "" || !slices.Contains(d.wanted.Disabled, m.option) {
			d.move(m, device)
		}
	}
}

// filesystem makes a filesystem, unless there is one, and mounts it.
func (d *decider) filesystem(device Device, n int) {
	where := path.Join(d.wanted.path(), strconv.Itoa(n))
	if len(device.Signatures) == 0 {
		d.step(Step{Action: Format, Device: device.Path, Label: labelPrefix + strconv.Itoa(n)})
	}
	mounted, found := d.at(where)
	if found && (device.Number == "" || mounted.Number != device.Number || mounted.Root != "/") {
		d.fail("unmount it, or choose another mountPath", "%s is taken: %s is mounted there, and %s should be", where, mounted.Source, device.Path)
		return
	}
	if !found && device.Number != "" {
		// Directories of it may be mounted anywhere, all of it only in its place.
		if i := slices.IndexFunc(d.state.Mounts, func(m Mount) bool { return m.Number == device.Number && m.Root == "/" }); i >= 0 {
			d.fail("unmount it, or set mountPath to where it is", "%s is mounted at %s, and not at %s", device.Path, d.state.Mounts[i].Where, where)
			return
		}
	}
	uuid := ""
	if len(device.Signatures) == 1 {
		uuid = device.Signatures[0].UUID
	}
	if !found || !d.stands(filesystemUnit(where, uuid)) {
		d.step(Step{Action: MountIt, Device: device.Path, Where: where})
	}
}

// move brings a directory onto the filesystem.
func (d *decider) move(m move, device Device) {
	volume := path.Join(d.wanted.path(), "0")
	to := path.Join(volume, path.Base(m.where))
	leave := "unmount it"
	if m.option != "" {
		leave = "unmount it, or add " + m.option + " to spec.instance.localStorage.disabledMounts"
	}
	if link, found := d.state.Links[m.where]; found {
		d.fail("make it a directory, or leave --local-disks out", "%s is a symbolic link to %s, and nothing can be mounted there", m.where, link)
		return
	}
	mounted, found := d.at(m.where)
	if found && (device.Number == "" || mounted.Number != device.Number || mounted.Root != "/"+path.Base(m.where)) {
		d.fail(leave, "%s is a mount of its own, of %s: it cannot be moved to %s", m.where, mounted.Source, device.Path)
		return
	}
	if !found {
		if below := slices.IndexFunc(d.state.Mounts, func(o Mount) bool { return strings.HasPrefix(o.Where, m.where+"/") }); below >= 0 {
			d.fail("drain the node and stop its pods (crictl rmp --all --force), or replace the node", "%s is in use: %s is mounted below it, and would stay behind", m.where, d.state.Mounts[below].Where)
			return
		}
	}
	if !found || !d.stands(moveUnit(m, volume)) {
		d.step(Step{Action: Move, Device: to, Where: m.where, move: &m})
	}
}

// at is what is mounted somewhere: the last of all that were.
func (d *decider) at(where string) (Mount, bool) {
	for _, m := range slices.Backward(d.state.Mounts) {
		if m.Where == where {
			return m, true
		}
	}
	return Mount{}, false
}

// stands tells whether a unit is there as it should be, and starts at boot.
func (d *decider) stands(u unitFile) bool {
	unit, found := d.state.Units[u.name]
	return found && unit.Text == u.text && !slices.ContainsFunc(u.links(), func(dir string) bool { return !slices.Contains(unit.Enabled, dir) })
}

// checkPath refuses a mountPath inside of what will be moved onto it. The
// configuration has been asked the same; who passes by it is not spared.
func (d *decider) checkPath() {
	if err := layout.CheckDisksPath(d.wanted.path(), true); err != nil {
		d.errs = append(d.errs, fault.New(fault.Usage, "choose a directory of its own, such as "+DefaultPath, "spec.instance.localStorage.mountPath: %w", err))
	}
}

// foreign refuses a device and says what is on it.
func (d *decider) foreign(device Device) {
	var held []string
	for _, s := range device.Signatures {
		switch {
		case s.Type == "linux_raid_member" && device.Member != nil:
			held = append(held, fmt.Sprintf("a part of the array %q", device.Member.Name))
		default:
			held = append(held, s.String())
		}
	}
	if len(device.Partitions) > 0 {
		held = append(held, "partitions "+strings.Join(device.Partitions, ", "))
	}
	if len(device.Holders) > 0 {
		held = append(held, "something that "+strings.Join(device.Holders, ", ")+" is made of")
	}
	at := ""
	if i := slices.IndexFunc(d.state.Mounts, func(m Mount) bool { return m.Number == device.Number && m.Root == "/" }); i >= 0 {
		at = ", mounted at " + d.state.Mounts[i].Where
	}
	remedy := "if nobody needs it: " + wipe(device.Path) + "; otherwise leave --local-disks out"
	switch {
	case len(held) == 0:
		d.fail("end what uses it (lsof "+device.Path+"), or leave --local-disks out", "%s is in use by a program or the kernel", device.Path)
		return
	case len(device.Signatures) == 1 && device.Signatures[0].Type == "xfs" && d.wanted.Strategy == "mount":
		remedy = "to keep it, give it a label of nodeadm's: xfs_admin -L " + labelPrefix + "1 " + device.Path + "; " + remedy
	}
	d.fail(remedy, "%s holds %s%s, which nodeadm did not put there for --local-disks %s; nothing was touched", device.Path, strings.Join(held, " and "), at, d.wanted.Strategy)
}

func wipe(devices ...string) string { return "wipefs --all " + strings.Join(devices, " ") }

func by(holders []string) string {
	if len(holders) == 0 {
		return ""
	}
	return " by " + strings.Join(holders, ", ")
}

func names(devices []Device) (names []string) {
	for _, d := range devices {
		names = append(names, d.Path)
	}
	return names
}

func paths(devices []Device) string { return strings.Join(names(devices), ", ") }
