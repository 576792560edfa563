package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// traces are what an instance leaves on its disk, as patterns: on a copy it
// would be another's, or give away something of this one.
var traces = []string{
	// cloud-init's memory, by which it would take the copy for the same instance.
	"/var/lib/cloud/*", "/etc/netplan/50-cloud-init.yaml", "/etc/network/interfaces.d/50-cloud-init*", "/etc/systemd/network/10-cloud-init-*",
	// Names and keys.
	"/etc/hostname", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_*", "/root/.ssh/authorized_keys", "/home/*/.ssh/authorized_keys", "/var/lib/systemd/random-seed",
	"/var/lib/systemd/credential.secret",
	// Network.
	"/var/lib/dhcp/*", "/var/lib/dhclient/*", "/var/lib/NetworkManager/*", "/run/systemd/netif/leases/*", "/etc/udev/rules.d/70-persistent-net.rules",
	// The node and its pods. A configuration of aws-node's would make the next node
	// Ready before it is.
	"/etc/cni/net.d/10-aws.conflist", "/var/lib/cni/*", "/var/lib/kubelet/pods/*", "/var/lib/kubelet/plugins_registry/*", "/var/lib/kubelet/checkpoints",
	// Agents that have registered this instance.
	"/var/lib/amazon/ssm/i-*", "/var/lib/amazon/ssm/Vault/*",
	// Logs and what was typed.
	"/var/log/cloud-init*", "/var/log/journal/*", "/var/log/aws-routed-eni/*", "/var/log/pods/*", "/var/log/containers/*", "/var/log/amazon/*", "/var/log/audit/*",
	"/var/log/messages*", "/var/log/syslog*", "/var/log/secure*", "/var/log/auth.log*", "/var/log/wtmp", "/var/log/btmp", "/var/log/lastlog",
	"/root/.bash_history", "/home/*/.bash_history",
}

// needCloudInit are those of the traces that only cloud-init makes anew.
var needCloudInit = map[string]bool{"/etc/hostname": true, "/etc/ssh/ssh_host_*": true, "/root/.ssh/authorized_keys": true, "/home/*/.ssh/authorized_keys": true}

// Traces finds what belongs to the one instance that an image was made on,
// besides what nodeadm's own runs wrote, which a reset takes back.
func Traces(root rootfs.Root) ([]string, error) {
	cloudInit := root.FirstExisting("/usr/bin/cloud-init", "/usr/local/bin/cloud-init") != ""
	var found []string
	for _, pattern := range append(layout.InstanceIdentity, traces...) {
		if needCloudInit[pattern] && !cloudInit {
			continue
		}
		matches, err := filepath.Glob(filepath.Join(string(root), pattern))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		for _, match := range matches {
			path := "/" + filepath.ToSlash(match[len(filepath.Clean(string(root))):])
			if root.Live() {
				path = match
			}
			found = append(found, filepath.Clean(path))
		}
	}
	return found, nil
}

// Clean removes traces and makes the machine's identity one that the next boot
// chooses.
func Clean(root rootfs.Root) ([]Change, error) {
	found, err := Traces(root)
	if err != nil {
		return nil, err
	}
	if root.Live() {
		// Or it writes the end of this very boot where the next one begins. Without
		// journald, or with one that is older than 243, there is no harm in it.
		exec.Command("journalctl", "--relinquish-var").Run()
	}
	var changes []Change
	for _, path := range found {
		host, err := root.Target(path)
		if err == nil {
			err = os.RemoveAll(host)
		}
		if err != nil {
			return changes, fault.New(fault.Disk, "", "%s: %w", path, err)
		}
		changes = append(changes, Change{path, "remove"})
	}
	disabled, err := disableNode(root)
	changes = append(changes, disabled...)
	if err != nil {
		return changes, err
	}
	// Empty, not absent: systemd then makes a new one and remembers it, and does
	// not reset every unit to its preset as at the very first boot.
	const machineID = "/etc/machine-id"
	host, err := root.Target(machineID)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(host); err == nil && info.Size() > 0 {
			err = os.Truncate(host, 0)
			changes = append(changes, Change{machineID, "empty"})
		} else if errors.Is(err, fs.ErrNotExist) {
			err = os.WriteFile(host, nil, 0o444)
			changes = append(changes, Change{machineID, "empty"})
		}
	}
	if err != nil {
		return changes, fault.New(fault.Disk, "", "%s: %w", machineID, err)
	}
	return changes, nil
}

// disableNode takes from the next boot the units that a run enabled and that a
// reset has taken back. It left them enabled, since it does not talk to systemd
// where nothing is to be started.
func disableNode(root rootfs.Root) ([]Change, error) {
	var changes []Change
	for _, unit := range []string{layout.KubeletService, layout.BPFMountService} {
		path := wants("multi-user.target", unit)
		early := unit == layout.KubeletService && !root.Exists(layout.Kubeconfig) // it would start before nodeadm
		if link(root, path) == "" || root.Exists(path) && !early {
			continue
		}
		host, err := root.Target(path)
		if err == nil {
			err = os.Remove(host)
		}
		if err != nil {
			return changes, fault.New(fault.Disk, "", "%s: %w", path, err)
		}
		changes = append(changes, Change{path, "unlink"})
	}
	return changes, nil
}
