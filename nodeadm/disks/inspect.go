package disks

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// Node is where disks are looked at and set up.
type Node struct {
	Root    rootfs.Root
	Manager Manager        // only for Run
	Report  func(s string) // told of each step before it is done
}

// byID holds a link for every disk, with its model in the name: udev makes them.
const (
	byID          = "/dev/disk/by-id"
	instanceStore = "nvme-Amazon_EC2_NVMe_Instance_Storage_"
)

var (
	partitionLink = regexp.MustCompile(`-part\d+$`)
	digits        = regexp.MustCompile(`\d+`)
)

// Inspect finds out what is true of a node's disks. It opens devices only for
// reading.
func (n Node) Inspect(ctx context.Context) (s State, err error) {
	found, err := n.volumes()
	if err != nil || len(found) == 0 {
		return State{}, err
	}
	if err := installed("wipefs"); err != nil {
		return State{}, err
	}
	for _, name := range found {
		device, err := n.device(ctx, name)
		if err != nil {
			return State{}, err
		}
		s.Disks = append(s.Disks, device)
		for _, holder := range device.Holders {
			known := slices.ContainsFunc(s.Arrays, func(a Array) bool { return a.Device.Path == "/dev/"+holder })
			if known || !n.Root.Exists("/sys/class/block/"+holder+"/md") {
				continue
			}
			array, err := n.array(ctx, holder)
			if err != nil {
				return State{}, err
			}
			s.Arrays = append(s.Arrays, array)
		}
	}
	if s.Mounts, err = n.mounts(); err != nil {
		return State{}, err
	}
	if s.Units, err = n.units(); err != nil {
		return State{}, err
	}
	s.Links = map[string]string{}
	for _, m := range moves {
		if to, err := n.link(m.where); err != nil {
			return State{}, err
		} else if to != "" {
			s.Links[m.where] = to
		}
	}
	return s, nil
}

// volumes are the kernel's names of the instance store volumes.
func (n Node) volumes() ([]string, error) {
	var names []string
	for _, link := range n.list(byID) {
		if !strings.HasPrefix(link, instanceStore) || partitionLink.MatchString(link) {
			continue
		}
		device, err := n.Root.Resolve(path.Join(byID, link), true)
		if err != nil {
			return nil, fault.Wrap(fault.Disk, err)
		}
		name := filepath.Base(device)
		if !n.Root.Exists("/sys/class/block/" + name) {
			return nil, fault.New(fault.Disk, "see what made that link: udevadm info --query=all "+name, "%s/%s leads to %s, which is not a block device", byID, link, name)
		}
		if !slices.Contains(names, name) { // a disk has several links
			names = append(names, name)
		}
	}
	// As people count: nvme2n1 before nvme10n1.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(countable(a), countable(b)) })
	return names, nil
}

// countable is a name with its numbers so long that they sort as numbers.
func countable(name string) string {
	return digits.ReplaceAllStringFunc(name, func(d string) string { return strings.Repeat("0", max(0, 6-len(d))) + d })
}

// device finds out what is on a block device.
func (n Node) device(ctx context.Context, name string) (d Device, err error) {
	d.Path = "/dev/" + name
	dir := "/sys/class/block/" + name
	d.Number = n.line(dir + "/dev")
	d.Holders = n.list(dir + "/holders")
	for _, entry := range n.list(dir) {
		if n.Root.Exists(path.Join(dir, entry, "partition")) {
			d.Partitions = append(d.Partitions, entry)
		}
	}
	file, err := n.Root.Resolve(d.Path, true)
	if err != nil {
		return d, fault.Wrap(fault.Disk, err)
	}
	if d.Busy, err = busy(file); err != nil {
		return d, fault.New(fault.Disk, "run nodeadm as root", "open %s: %w", d.Path, err)
	}
	out, err := run(ctx, "wipefs", "--parsable", file)
	if err != nil {
		return d, err
	}
	d.Signatures = parseSignatures(out)
	for _, s := range d.Signatures {
		if s.Type != "linux_raid_member" {
			continue
		}
		d.Member = &Member{Name: memberName(s.Label), UUID: s.UUID}
		if d.Member.Name == arrayName {
			if err := installed("mdadm"); err != nil {
				return d, err
			}
			out, err := run(ctx, "mdadm", "--examine", "--export", file)
			if err != nil {
				return d, err
			}
			d.Member = parseMember(out)
		}
	}
	return d, nil
}

// busy tells whether somebody has a device for himself: mounted, also where it
// cannot be seen from here, or a part of something, or held by a program.
func busy(file string) (bool, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, unix.Close(fd)
}

// parseSignatures reads lines of offset, UUID, label and type. A label may hold
// commas, nothing else can.
func parseSignatures(out []byte) (found []Signature) {
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) < 4 || strings.HasPrefix(line, "#") {
			continue
		}
		s := Signature{Type: f[len(f)-1], UUID: f[1], Label: strings.Join(f[2:len(f)-1], ",")}
		if !slices.Contains(found, s) { // some have several, such as both ends of a gpt
			found = append(found, s)
		}
	}
	return found
}

// parseMember reads what mdadm --examine --export says.
func parseMember(out []byte) *Member {
	m := &Member{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "MD_NAME":
			m.Name = memberName(value)
		case "MD_UUID":
			m.UUID = value
		case "MD_LEVEL":
			m.Level = value
		case "MD_DEVICES":
			m.Devices, _ = strconv.Atoi(value)
		}
	}
	return m
}

// memberName is the name of an array without that of the machine which made it.
func memberName(name string) string {
	if _, after, found := strings.Cut(name, ":"); found {
		return after
	}
	return name
}

// array finds out about an array by the kernel's name.
func (n Node) array(ctx context.Context, name string) (a Array, err error) {
	dir := "/sys/class/block/" + name
	a = Array{Device: Device{Path: "/dev/" + name}, Level: n.line(dir + "/md/level")}
	switch n.line(dir + "/md/array_state") {
	case "clear", "inactive", "suspended", "broken", "":
	default:
		a.Running = true
	}
	for _, member := range n.list(dir + "/slaves") {
		a.Members = append(a.Members, "/dev/"+member)
	}
	if a.Running {
		a.Device, err = n.device(ctx, name)
	}
	return a, err
}

// mounts reads what is mounted where.
func (n Node) mounts() (mounts []Mount, err error) {
	// Not by Root.ReadFile: it takes no link out of /proc.
	data, err := os.ReadFile(filepath.Join(string(n.Root), "/proc/self/mountinfo"))
	if err != nil {
		return nil, fault.Wrap(fault.Disk, err)
	}
	for line := range strings.Lines(string(data)) {
		// Such as: 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
		before, after, found := strings.Cut(line, " - ")
		f, source := strings.Fields(before), strings.Fields(after)
		if !found || len(f) < 5 || len(source) < 2 {
			continue
		}
		mounts = append(mounts, Mount{Number: f[2], Root: unescapeMount(f[3]), Where: unescapeMount(f[4]), Source: unescapeMount(source[1])})
	}
	return mounts, nil
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// units reads the mount units in /etc/systemd/system.
func (n Node) units() (map[string]Unit, error) {
	units := map[string]Unit{}
	entries := n.list(unitDir)
	for _, name := range entries {
		if !strings.HasSuffix(name, ".mount") {
			continue
		}
		text, err := n.Root.ReadFile(unitDir + name)
		if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fault.Disk, err)
		}
		u := Unit{Text: string(text)}
		for _, dir := range entries {
			if strings.HasSuffix(dir, ".wants") || strings.HasSuffix(dir, ".requires") {
				if n.Root.Exists(unitDir + dir + "/" + name) {
					u.Enabled = append(u.Enabled, dir)
				}
			}
		}
		units[name] = u
	}
	return units, nil
}

// link is where a symbolic link leads, "" if path is none.
func (n Node) link(path string) (string, error) {
	file, err := n.Root.Resolve(path, false)
	if err != nil {
		return "", fault.Wrap(fault.Disk, err)
	}
	to, err := os.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return to, fault.Wrap(fault.Disk, err)
}

// list is what a directory holds, sorted; nothing if it is not there.
func (n Node) list(dir string) (names []string) {
	file, err := n.Root.Resolve(dir, true)
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(file)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// line is the text of a file of one line, such as those in /sys.
func (n Node) line(path string) string {
	data, _ := n.Root.ReadFile(path)
	return strings.TrimSpace(string(data))
}

// packages are those that bring a program, by the names they have most often.
var packages = map[string]string{"mdadm": "mdadm", "mkfs.xfs": "xfsprogs", "wipefs": "util-linux", "cp": "coreutils"}

func installed(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fault.New(fault.Usage, "install the package "+packages[program]+" on the image, or leave --local-disks out", "instance store volumes need the program %s, which is not installed", program)
	}
	return nil
}

// run runs a program with no input: what asks whether to go on gets no answer,
// and does not. Its output is of the C locale.
func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String() + stdout.String())
		return nil, fault.New(fault.Disk, "", "%s %s: %w: %s", program, strings.Join(args, " "), err, said)
	}
	return stdout.Bytes(), nil
}
