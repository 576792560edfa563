package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/atomicfile"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// traces are what an instance leaves on its disk, as patterns: on a copy it
// would be another's, or give away something of this one.
var traces = []string{
	// cloud-init's memory, by which it would take the copy for the same instance.
	// Seeds, handlers and scripts beside it are the image's.
	"/var/lib/cloud/instances", "/var/lib/cloud/instance", "/var/lib/cloud/data", "/var/lib/cloud/sem", "/var/lib/cloud/scripts/vendor",
	"/etc/netplan/50-cloud-init.yaml", "/etc/network/interfaces.d/50-cloud-init*", "/etc/systemd/network/10-cloud-init-*",
	// Names and keys.
	"/etc/hostname", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_*", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
	"/etc/nvme/hostnqn", "/etc/nvme/hostid", "/etc/lvm/devices/system.devices",
	// Network.
	"/var/lib/dhcp/*", "/var/lib/dhclient/*", "/var/lib/NetworkManager/*", "/run/systemd/netif/leases/*", "/etc/udev/rules.d/70-persistent-net.rules",
	// The node and its pods. A configuration that a cluster's network plugin wrote
	// would make the next node Ready before it is.
	"/etc/cni/net.d/10-aws.conflist", "/etc/cni/net.d/05-cilium.conf*", "/etc/cni/net.d/10-calico.conflist", "/etc/cni/net.d/calico-kubeconfig",
	"/etc/cni/net.d/10-flannel.conflist", "/etc/cni/net.d/00-multus.conf*", "/etc/cni/net.d/multus.d",
	"/var/lib/calico/nodename", "/var/lib/cni/*", "/var/lib/kubelet/pods/*", "/var/lib/kubelet/plugins_registry/*", "/var/lib/kubelet/checkpoints",
	// Agents that have registered this instance.
	"/var/lib/amazon/ssm/i-*", "/var/lib/amazon/ssm/Vault/*", "/var/lib/ubuntu-advantage/private/machine-token.json",
	// Logs, those that were rotated too.
	"/var/log/cloud-init*", "/var/log/journal/*", "/var/log/aws-routed-eni/*", "/var/log/pods/*", "/var/log/containers/*", "/var/log/amazon/*", "/var/log/audit/*",
	"/var/log/messages*", "/var/log/syslog*", "/var/log/secure*", "/var/log/auth.log*", "/var/log/wtmp*", "/var/log/btmp*", "/var/log/lastlog",
	"/var/log/kern.log*", "/var/log/dmesg*", "/var/log/daemon.log*", "/var/log/user.log*", "/var/log/debug*", "/var/log/boot.log*", "/var/log/cron*", "/var/log/maillog*",
	"/var/log/mail.log*", "/var/log/kubelet.log*", "/var/log/user-data.log*", "/var/log/apt/*", "/var/log/dnf.log*", "/var/log/sa/*", "/var/log/private/*",
	"/opt/aws/amazon-cloudwatch-agent/logs/*",
	"/tmp/*", "/var/tmp/*",
}

// homeTraces are what somebody who was logged in leaves: keys, and what was typed
// and opened.
var homeTraces = []string{
	".ssh/authorized_keys", ".ssh/authorized_keys2", ".ssh/known_hosts*",
	".bash_history", ".zsh_history", ".ash_history", ".sh_history", ".local/share/fish/fish_history", ".python_history", ".mysql_history", ".psql_history",
	".viminfo", ".lesshst",
}

// patterns are all traces, in the homes of an image too.
func patterns(root rootfs.Root) []string {
	patterns := append(slices.Clone(layout.InstanceIdentity), traces...)
	for _, home := range homes(root) {
		for _, trace := range homeTraces {
			patterns = append(patterns, path.Join(home, trace))
		}
	}
	return patterns
}

// homes are the directories of users, as patterns: the usual ones, and those that
// /etc/passwd names.
func homes(root rootfs.Root) []string {
	homes := []string{"/root", "/home/*"}
	data, _ := root.ReadFile("/etc/passwd")
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Split(line, ":")
		if len(f) < 6 || !strings.HasPrefix(f[5], "/") || strings.ContainsAny(f[5], `*?[\`) {
			continue
		}
		if root.Exists(f[5]) {
			homes = append(homes, f[5])
		}
	}
	return homes
}

// needsCloudInit tells of those traces that only cloud-init makes anew.
func needsCloudInit(pattern string) bool {
	return pattern == "/etc/hostname" || pattern == "/etc/ssh/ssh_host_*" || strings.HasPrefix(path.Base(pattern), "authorized_keys")
}

// Empty, not absent: systemd then makes a new one and remembers it, and does
// not reset every unit to its preset as at the very first boot.
const machineID = "/etc/machine-id"

// cleaning is what has to be done to an image, found before anything is.
type cleaning struct {
	root   rootfs.Root
	mounts []string // on this machine; nil where /proc does not tell
	// brought tells of files that a reset writes (true) or removes.
	brought map[string]bool
	steps   []step
	errs    []error
}

type step struct {
	Change
	host string
	do   func(host string) error
}

// Plan tells what a reset and Clean would do. An error is something that they
// could do by halves only.
func Plan(root rootfs.Root) ([]Change, error) {
	root = resolved(root)
	if !root.Exists("/etc") {
		return nil, fault.New(fault.Usage, "name the directory where the image's root filesystem is mounted with --root", "%s holds no root filesystem: it has no /etc", root)
	}
	back, _, _, err := apply.Back(root, 0)
	if err != nil {
		return nil, err
	}
	c := cleaning{root: root, mounts: mounts(), brought: map[string]bool{}}
	var changes []Change
	for _, change := range back {
		if change.Path == layout.AppliedFile {
			continue
		}
		c.brought[change.Path] = change.Action != apply.Remove
		changes = append(changes, Change{change.Path, "bring back"})
	}
	forgotten := append(slices.Clone(layout.InstanceIdentity), layout.StateDir)
	for _, path := range forgotten {
		host, err := root.Target(path)
		if err != nil {
			c.refuse(path, err, "put a directory there, with what the link leads to: nodeadm follows no link where it writes and removes")
			continue
		}
		info, err := os.Lstat(host)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			c.refuse(path, rootfs.ErrLink, "remove it, and what it leads to")
		} else if err == nil {
			c.unmounted(path, host)
			changes = append(changes, Change{path, "remove"})
		}
	}
	c.find()
	for _, s := range c.steps {
		if !slices.Contains(forgotten, s.Path) {
			changes = append(changes, s.Change)
		}
	}
	return changes, errors.Join(c.errs...)
}

// Clean removes traces and makes the machine's identity one that the next boot
// chooses. What cannot be removed keeps nothing else from being.
func Clean(ctx context.Context, root rootfs.Root) ([]Change, error) {
	root = resolved(root)
	c := cleaning{root: root, mounts: mounts()}
	c.find()
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	if root.Live() {
		// Or it writes the end of this very boot where the next one begins. Without
		// journald, or with one that is older than 243, there is no harm in it.
		exec.CommandContext(ctx, "journalctl", "--relinquish-var").Run()
	}
	var changes []Change
	for _, s := range c.steps {
		if ctx.Err() != nil {
			c.errs = append(c.errs, fault.New(fault.Disk, cleanAgain, "stopped before all was removed: %w", ctx.Err()))
			break
		}
		if err := s.do(s.host); err != nil {
			c.refuse(s.Path, err, "mend that, then "+cleanAgain+": everything else is done")
			continue
		}
		changes = append(changes, s.Change)
	}
	return changes, errors.Join(c.errs...)
}

const cleanAgain = "run nodeadm image clean again"

func (c *cleaning) refuse(path string, err error, remedy string) {
	c.errs = append(c.errs, fault.New(fault.Disk, remedy, "%s: %w", path, err))
}

func (c *cleaning) add(path, action string, do func(host string) error) {
	host, err := c.root.Resolve(path, false)
	if err != nil {
		c.refuse(path, err, "mend that and "+cleanAgain)
		return
	}
	if !slices.ContainsFunc(c.steps, func(s step) bool { return s.host == host }) {
		c.steps = append(c.steps, step{Change{path, action}, host, do})
	}
}

// remove is for what goes with all that is below it.
func (c *cleaning) remove(path string) {
	if host, err := c.root.Resolve(path, false); err == nil {
		c.unmounted(path, host)
	}
	c.add(path, "remove", os.RemoveAll)
}

// unmounted refuses a path with something mounted there: it is not on the
// image's disk, and removing would reach into a volume of a pod, or worse.
func (c *cleaning) unmounted(path, host string) {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(host)); err == nil {
		host = filepath.Join(dir, filepath.Base(host))
	}
	if mount := c.mountIn(host); mount != "" {
		c.refuse(path, fmt.Errorf("%s is mounted, and would be emptied", mount), "stop what uses it, umount "+mount+" and "+cleanAgain)
	}
}

// find collects all steps, and what stands in their way.
func (c *cleaning) find() {
	for _, pattern := range patterns(c.root) {
		if needsCloudInit(pattern) && !cloudInit(c.root) {
			continue
		}
		if dir, last := path.Split(pattern); last == "*" && strings.HasSuffix(dir, "tmp/") {
			// What is mounted there is gone with the next boot, or of the machine that
			// builds the image.
			host, err := c.root.Resolve(dir, true)
			if mounted, known := c.mounted(host); err == nil && (mounted || !known) {
				continue
			}
		}
		for _, path := range c.glob(pattern) {
			c.removeLinked(pattern, path)
			c.remove(path)
		}
	}
	for _, path := range unfinished(c.root, installed(c.root).contents(nil, versions{containerd: "any"})) {
		c.remove(path)
	}
	c.findDisks()
	c.findInitiator()
	c.findEnabled()
	c.findMachineID()
}

func (c *cleaning) glob(pattern string) []string {
	found, err := c.root.Glob(pattern)
	if err != nil {
		c.refuse(pattern, err, "mount what it leads to inside the image, or remove the link: nothing has been removed yet")
	}
	return found
}

// removeLinked removes what stands elsewhere under the same name, where a link
// has been put in place of a file: the link would go, and the key stay. Links
// under any other name, such as a history that is /dev/null, are not followed.
func (c *cleaning) removeLinked(pattern, link string) {
	host, err := c.root.Resolve(link, true)
	if err != nil || strings.Contains(path.Base(pattern), "*") || filepath.Base(host) != path.Base(link) {
		return
	}
	if asItIs, err := c.root.Resolve(link, false); err != nil || asItIs == host {
		return
	}
	to := c.onNode(host)
	if info, err := os.Lstat(host); err == nil && to != machineID && (info.IsDir() || info.Mode().IsRegular()) {
		c.remove(to)
	}
}

func (c *cleaning) onNode(host string) string {
	rel, err := filepath.Rel(string(c.root), host)
	if err != nil {
		return host // of absolute paths there always is one
	}
	return "/" + rel
}

const unitDir = "/etc/systemd/system/"

// diskUnits are mount units of the instance store of the instance that the image
// was made on, by what --local-disks writes in their first line.
func diskUnits(root rootfs.Root) ([]string, error) {
	units, err := root.Glob(unitDir + "*.mount")
	return slices.DeleteFunc(units, func(unit string) bool {
		data, err := root.ReadFile(unit)
		return err != nil || !strings.HasPrefix(string(data), "# Written by nodeadm for --local-disks.")
	}), err
}

// findDisks takes the filesystems of this instance's disks from the next boot,
// which would wait for them.
func (c *cleaning) findDisks() {
	units, err := diskUnits(c.root)
	if err != nil {
		c.refuse(unitDir, err, "mend that and "+cleanAgain)
	}
	links := append(c.glob(unitDir+"*.wants/*.mount"), c.glob(unitDir+"*.requires/*.mount")...)
	for _, unit := range units {
		for _, link := range links {
			if path.Base(link) == path.Base(unit) {
				c.add(link, "unlink", os.Remove)
			}
		}
		c.remove(unit)
	}
	for _, path := range []string{"/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"} {
		c.rewrite(path, withoutArray)
	}
}

// withoutArray leaves the array of --local-disks out of mdadm's configuration.
// Only mdadm's own tools write it there, and the next instance's array has the
// same name and another UUID.
func withoutArray(data string) string {
	var kept strings.Builder
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		ours := len(f) > 1 && f[0] == "ARRAY" && (f[1] == "/dev/md/kubernetes" || slices.ContainsFunc(f[2:], func(word string) bool {
			return word == "name=kubernetes" || strings.HasPrefix(word, "name=") && strings.HasSuffix(word, ":kubernetes")
		}))
		if !ours {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// rewrite is for a file of which only a part goes.
func (c *cleaning) rewrite(path string, edit func(string) string) {
	data, err := c.root.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.refuse(path, err, "mend that and "+cleanAgain)
		return
	}
	edited := edit(string(data))
	if edited == string(data) {
		return
	}
	c.add(path, "update", func(host string) error {
		info, err := os.Lstat(host)
		if err != nil {
			return err
		}
		return atomicfile.Replace(host, []byte(edited), info.Mode().Perm())
	})
}

// findInitiator: two machines with one iSCSI name take each other's disks.
// Debian makes one where the file asks for it, others where there is no file.
func (c *cleaning) findInitiator() {
	const initiator = "/etc/iscsi/initiatorname.iscsi"
	if c.root.FirstExisting("/usr/lib/open-iscsi/startup-checks.sh", "/lib/open-iscsi/startup-checks.sh") != "" {
		c.rewrite(initiator, func(string) string { return "GenerateName=yes\n" })
	} else if len(c.glob(initiator)) > 0 {
		c.remove(initiator)
	}
}

// findEnabled takes from the next boot the units that a run enabled and that a
// reset has taken back. It left them enabled, since it does not talk to systemd
// where nothing is to be started.
func (c *cleaning) findEnabled() {
	exists := func(path string) bool {
		if there, known := c.brought[path]; known {
			return there
		}
		return c.root.Exists(path)
	}
	for _, unit := range []string{layout.KubeletService, layout.BPFMountService} {
		path := wants("multi-user.target", unit)
		to := link(c.root, path)
		early := unit == layout.KubeletService && !exists(layout.Kubeconfig) // it would start before nodeadm
		if to != "" && (early || !exists(to) || !c.root.Exists(path)) {
			c.add(path, "unlink", os.Remove)
		}
	}
}

func (c *cleaning) findMachineID() {
	host, err := c.root.Resolve(machineID, false)
	if err != nil {
		c.refuse(machineID, err, "mend that and "+cleanAgain)
		return
	}
	info, err := os.Lstat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.refuse(machineID, err, "mend that and "+cleanAgain)
		return
	case info.Mode().IsRegular():
		if info.Size() > 0 {
			c.add(machineID, "empty", func(host string) error { return os.Truncate(host, 0) })
		}
		return
	case info.Mode()&fs.ModeSymlink == 0:
		c.refuse(machineID, errors.New("not a file"), "remove it: clean leaves an empty file there")
		return
	}
	// What a link leads to may be on another machine's disk, or nowhere: a file
	// takes its place.
	c.removeLinked(machineID, machineID)
	c.add(machineID, "empty", func(host string) error {
		if err := os.Remove(host); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return atomicfile.Write(host, nil, 0o444, true)
	})
}
