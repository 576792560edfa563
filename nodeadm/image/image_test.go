package image

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// built is how a program for an architecture begins.
func built(arch string) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string([]byte{byte(machines[arch]), 0})
}

// otherArch is one that this computer does not run.
var otherArch = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]

// image is a root with what a distribution and an image build bring.
func image(t *testing.T) (rootfs.Root, Options) {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"usr/bin/kubelet":                              "#!/bin/sh\necho Kubernetes v1.34.4\n",
		"usr/bin/containerd":                           "#!/bin/sh\necho containerd github.com/containerd/containerd/v2 v2.1.4 abc\n",
		"usr/lib/systemd/system/containerd.service":    "[Service]\nExecStart=/usr/bin/containerd\n",
		"usr/sbin/runc":                                built(runtime.GOARCH),
		"opt/cni/bin/loopback":                         built(runtime.GOARCH),
		"usr/bin/mount":                                built(runtime.GOARCH),
		"etc/ssl/certs/ca-certificates.crt":            "x",
		"lib/modules/6.1.0/modules.dep":                "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/netfilter/nf_conntrack.ko:\n",
		"lib/modules/6.1.0/modules.builtin":            "kernel/drivers/net/veth.ko\n",
		"etc/eks/bootstrap.sh":                         "#!/bin/bash\necho the old one\n",
		"program":                                      "nodeadm",
		"etc/machine-id":                               "0123456789abcdef0123456789abcdef\n",
		"usr/bin/cloud-init":                           "",
		"var/lib/cloud/instances/i-0123/user-data.txt": "secret",
		"etc/hostname":                                 "ip-10-0-0-1\n",
		"etc/ssh/ssh_host_rsa_key":                     "secret",
		"home/ec2-user/.ssh/authorized_keys":           "key",
		"var/lib/kubelet/pki/kubelet.crt":              "x",
		"var/log/journal/abc/system.journal":           "x",
		"var/log/dpkg.log":                             "stays",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return rootfs.Root(root), Options{Root: rootfs.Root(root), Program: filepath.Join(root, "program")}
}

func names(findings []Finding) (names []string) {
	for _, f := range findings {
		names = append(names, f.Name)
	}
	return names
}

func TestInstall(t *testing.T) {
	root, o := image(t)
	if diff := cmp.Diff([]string{"program", "directories", "unit", "runtime-slice", "recorded-versions", "kernel-settings"}, names(Check(context.Background(), o))); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	changes, err := Install(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(changes, Change{layout.BootstrapScript, "keep as bootstrap.sh.before-nodeadm"}) {
		t.Errorf("%v", changes)
	}
	for path, want := range map[string]string{
		"/etc/eks/bootstrap.sh.before-nodeadm": "#!/bin/bash\necho the old one\n",
		layout.KubeletVersion:                  "v1.34.4\n",
		layout.ContainerdVersion:               "2.1.4\n",
		layout.BootstrapScript:                 "nodeadm",
	} {
		host := filepath.Join(string(root), path)
		if to, err := os.Readlink(host); err == nil {
			host = filepath.Join(string(root), to)
		}
		if data, err := os.ReadFile(host); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v; want %q", path, data, err, want)
		}
	}
	if findings := Check(context.Background(), o); len(findings) > 0 {
		t.Errorf("afterwards: %v", findings)
	}
	if changes, err := Install(context.Background(), o); err != nil || len(changes) > 0 {
		t.Errorf("a second run: %v, %v", changes, err)
	}

	// The other unit takes the first one's place.
	o.AfterScripts = true
	changes, err = Install(context.Background(), o)
	want := []Change{
		{layout.Preset, "update"},
		{layout.NodeadmAfterScripts, "create"},
		{"/etc/systemd/system/cloud-init.target.wants/nodeadm-after-scripts.service", "link"},
		{"/etc/systemd/system/multi-user.target.wants/nodeadm.service", "unlink"},
	}
	if diff := cmp.Diff(want, changes); diff != "" || err != nil {
		t.Errorf("after scripts: %v (-want +got):\n%s", err, diff)
	}
	if findings := Check(context.Background(), o); len(findings) > 0 {
		t.Errorf("after scripts: %v", findings)
	}
	if err := os.MkdirAll(filepath.Join(string(root), "etc/cloud"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(root), "etc/cloud/cloud-init.disabled"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if findings := Check(context.Background(), o); len(findings) != 1 || !strings.Contains(findings[0].What, "waits for cloud-init") {
		t.Errorf("after scripts that never run: %v", findings)
	}
}

// Of two programs that are missing, each has its own finding.
func TestCheckBothMissing(t *testing.T) {
	root, o := image(t)
	for _, program := range []string{"kubelet", "containerd"} {
		if err := os.Remove(filepath.Join(string(root), "usr/bin", program)); err != nil {
			t.Fatal(err)
		}
	}
	findings := Check(context.Background(), o)
	for i, want := range []string{"/usr/bin/kubelet does not exist", "containerd is missing"} {
		if findings[i].What != want {
			t.Errorf("%q, want %q", findings[i].What, want)
		}
	}
}

// A package's unit is not written a second time.
func TestInstallWithPackage(t *testing.T) {
	root, o := image(t)
	unit := filepath.Join(string(root), "usr/lib/systemd/system/nodeadm.service")
	if err := os.WriteFile(unit, []byte("[Service]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if root.Exists(layout.Nodeadm) {
		t.Error("the unit stands there twice")
	}
	if findings := Check(context.Background(), o); len(findings) > 0 {
		t.Errorf("%v", findings)
	}
}

func TestInstallWithoutKubelet(t *testing.T) {
	root, o := image(t)
	if err := os.Remove(filepath.Join(string(root), "usr/bin/kubelet")); err != nil {
		t.Fatal(err)
	}
	if changes, err := Install(context.Background(), o); err == nil || len(changes) > 0 || root.Exists(layout.Program) {
		t.Errorf("%v, %v", changes, err)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(root string) error
		says   string
	}{
		{"kubelet", func(r string) error { return os.Remove(r + "/usr/bin/kubelet") }, "does not exist"},
		{"kubelet", func(r string) error {
			return os.WriteFile(r+"/usr/bin/kubelet", []byte("#!/bin/sh\necho Kubernetes v1.20.1\n"), 0o755)
		}, "not supported"},
		{"container-runtime", func(r string) error { return os.Remove(r + "/usr/bin/containerd") }, "containerd is missing"},
		{"container-runtime", func(r string) error { return os.Remove(r + "/usr/lib/systemd/system/containerd.service") }, "has no containerd.service"},
		{"runc", func(r string) error { return os.Remove(r + "/usr/sbin/runc") }, "runc is missing"},
		{"cni-loopback", func(r string) error { return os.Remove(r + "/opt/cni/bin/loopback") }, "loopback"},
		{"ca-certificates", func(r string) error { return os.Remove(r + "/etc/ssl/certs/ca-certificates.crt") }, "authorities"},
		{"kernel-modules", func(r string) error { return os.Remove(r + "/lib/modules/6.1.0/modules.builtin") }, "6.1.0 has no module veth"},
		{"kernel-modules", func(r string) error { return os.RemoveAll(r + "/lib/modules") }, "no modules of any kernel"},
		{"program", func(r string) error { return os.Remove(r + "/etc/eks/bootstrap.sh") }, "bootstrap.sh does not lead"},
		{"unit", func(r string) error { return os.Remove(r + layout.Nodeadm) }, "leads to nothing"},
		{"recorded-versions", func(r string) error { return os.WriteFile(r+layout.KubeletVersion, []byte("v1.33.0\n"), 0o644) }, "says 1.33.0, and the program v1.34.4"},
		{"kernel-settings", func(r string) error { return os.Remove(r + layout.ModulesLoad) }, "is missing"},
		{"kubelet-enabled", func(r string) error {
			return os.Symlink("/usr/lib/systemd/system/kubelet.service", r+"/etc/systemd/system/multi-user.target.wants/kubelet.service")
		}, "would start before nodeadm"},
		{"kubelet-enabled", func(r string) error {
			os.MkdirAll(r+"/etc/systemd/system/graphical.target.requires", 0o755)
			return os.Symlink("/usr/lib/systemd/system/kubelet.service", r+"/etc/systemd/system/graphical.target.requires/kubelet.service")
		}, "/etc/systemd/system/graphical.target.requires/kubelet.service: kubelet is enabled"},
		{"kubelet-enabled", func(r string) error { return os.Symlink("/dev/null", r+"/etc/systemd/system/kubelet.service") }, "kubelet.service is masked"},
		{"program", func(r string) error { return os.Truncate(r+layout.Program, 0) }, "nodeadm is empty"},
		{"program", func(r string) error { return os.Chmod(r+layout.Program, 0o644) }, "nodeadm is not executable"},
		{"program", func(r string) error { return os.WriteFile(r+layout.Program, []byte("nodeadn"), 0o755) }, "is not the nodeadm that looks at it"},
		{"program", func(r string) error { return os.WriteFile(r+layout.Program, []byte("another"), 0o755) }, "is not the nodeadm that looks at it"},
		{"program", func(r string) error { return os.Chmod(r+layout.Program, 0o775) }, "can be written by others"},
		{"program", func(r string) error { return os.Chmod(r+layout.Program, 0o757) }, "can be written by others"},
		{"runc", func(r string) error { return os.WriteFile(r+"/usr/sbin/runc", []byte("#!/bin/sh\n"), 0o755) }, "runc is no program"},
		{"runc", func(r string) error { return os.WriteFile(r+"/usr/sbin/runc", []byte(built(otherArch)), 0o755) }, "runc is not built for " + runtime.GOARCH},
		{"cni-loopback", func(r string) error { return os.WriteFile(r+"/opt/cni/bin/loopback", []byte(built(otherArch)), 0o755) }, "loopback is not built for"},
		{"mount", func(r string) error { return os.WriteFile(r+"/usr/bin/mount", []byte("x"), 0o755) }, "mount is no program"},
		{"runc", func(r string) error { return os.Chmod(r+"/usr/sbin/runc", 0o644) }, "runc is not executable"},
		{"cni-loopback", func(r string) error { return os.Chmod(r+"/opt/cni/bin/loopback", 0o644) }, "loopback is not executable"},
		{"ca-certificates", func(r string) error { return os.Truncate(r+"/etc/ssl/certs/ca-certificates.crt", 0) }, "is empty"},
		{"directories", func(r string) error { return os.Remove(r + layout.DropInDir) }, layout.DropInDir + " is missing"},
		{"kernel-settings", func(r string) error { return os.Truncate(r+layout.SysctlConfig, 0) }, "does not say kernel.keys.root_max"},
		{"runtime-slice", func(r string) error { return os.Remove(r + layout.RuntimeSlice) }, "runtime.slice is missing"},
		{"runtime-slice", func(r string) error { return os.Truncate(r+inRuntimeSlice(layout.ContainerdService), 0) }, "is not as nodeadm image install"},
		{"unit", func(r string) error { return os.WriteFile(r+layout.Nodeadm, []byte("[Unit]\n"), 0o644) }, "is not as nodeadm image install"},
		{"unit", func(r string) error { os.Remove(r + layout.Nodeadm); return os.Symlink("/dev/null", r+layout.Nodeadm) }, "is masked"},
		{"unit", func(r string) error {
			return os.WriteFile(r+"/usr/lib/systemd/system/nodeadm.service", []byte("[Service]\n"), 0o644)
		}, "stands in the way of the package's"},
		{"container-runtime", func(r string) error { return os.Symlink("/dev/null", r+"/etc/systemd/system/containerd.service") }, "containerd.service is masked"},
		{"local-disks", func(r string) error {
			return os.WriteFile(r+"/etc/systemd/system/mnt.mount", []byte("# Written by nodeadm for --local-disks.\n"), 0o644)
		}, "mnt.mount"},
		{"kubelet", func(r string) error { return os.Chmod(r+"/usr/bin/kubelet", 0o644) }, "permission denied"},
		{"kubelet", func(r string) error {
			return os.WriteFile(r+"/usr/bin/kubelet", []byte("#!/bin/sh\nkill -9 $$\n"), 0o755)
		}, "signal: killed: it was killed"},
	} {
		root, o := image(t)
		if _, err := Install(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := test.change(string(root)); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range Check(context.Background(), o) {
			found = found || f.Name == test.name && strings.Contains(f.What, test.says) && f.Remedy != ""
		}
		if !found {
			t.Errorf("%s, %q: %+v", test.name, test.says, Check(context.Background(), o))
		}
	}
}

func TestClean(t *testing.T) {
	root, _ := image(t)
	// What a reset that starts nothing leaves enabled.
	wants := filepath.Join(string(root), "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"kubelet.service", "sys-fs-bpf.mount", "ssh.service"} {
		if err := os.Symlink("/etc/systemd/system/"+unit, filepath.Join(wants, unit)); err != nil {
			t.Fatal(err)
		}
	}
	changes, err := Clean(context.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"/var/lib/kubelet/pki", "remove"},
		{"/var/lib/cloud/instances", "remove"},
		{"/etc/hostname", "remove"},
		{"/etc/ssh/ssh_host_rsa_key", "remove"},
		{"/var/log/journal/abc", "remove"},
		{"/home/ec2-user/.ssh/authorized_keys", "remove"},
		{"/etc/systemd/system/multi-user.target.wants/kubelet.service", "unlink"},
		{"/etc/systemd/system/multi-user.target.wants/sys-fs-bpf.mount", "unlink"},
		{"/etc/machine-id", "empty"},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !root.Exists("/var/log/dpkg.log") || !root.Exists("/var/log/journal") {
		t.Error("something is gone that is no instance's")
	}
	if again, err := Clean(context.Background(), root); err != nil || len(again) > 0 {
		t.Errorf("a second run: %v, %v", again, err)
	}
}

// put makes files, links (a text that begins with ->) and directories (/) in a
// root.
func put(t *testing.T, root rootfs.Root, files map[string]string) {
	t.Helper()
	for path, text := range files {
		host := filepath.Join(string(root), path)
		err := os.MkdirAll(filepath.Dir(host), 0o755)
		if to, isLink := strings.CutPrefix(text, "->"); err == nil && isLink {
			os.RemoveAll(host)
			err = os.Symlink(to, host)
		} else if err == nil && strings.HasSuffix(path, "/") {
			err = os.MkdirAll(host, 0o755)
		} else if err == nil {
			os.RemoveAll(host)
			err = os.WriteFile(host, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCleanRemoves(t *testing.T) {
	const disks = "# Written by nodeadm for --local-disks.\n[Mount]\n"
	for name, test := range map[string]struct {
		files map[string]string
		gone  []string
		stays []string
	}{
		"links inside the image": {
			map[string]string{"/data/cloud/instances/i-1/x": "x", "/var/lib/cloud": "->/data/cloud", "/home": "->data/home", "/data/home/a/.ssh/authorized_keys": "x", "/data/home/a/.profile": "x"},
			[]string{"/data/cloud/instances", "/data/home/a/.ssh/authorized_keys"}, []string{"/data/home/a/.profile"}},
		"a key that is a link": {
			map[string]string{"/root/.ssh/authorized_keys": "->/data/authorized_keys", "/data/authorized_keys": "x", "/root/.bash_history": "->/dev/null", "/dev/null": "x", "/tmp/program": "->/usr/bin/program", "/usr/bin/program": "x"},
			[]string{"/data/authorized_keys", "/root/.bash_history", "/tmp/program"}, []string{"/dev/null", "/usr/bin/program"}},
		"cloud-init that is switched off": {
			map[string]string{"/etc/cloud/cloud-init.disabled": ""}, []string{"/var/lib/cloud/instances"}, []string{"/etc/hostname", "/etc/ssh/ssh_host_rsa_key", "/home/ec2-user/.ssh/authorized_keys"}},
		"what of cloud-init's is the image's": {
			map[string]string{"/var/lib/cloud/seed/nocloud/meta-data": "x", "/var/lib/cloud/scripts/per-boot/a": "x", "/var/lib/cloud/handlers/a.py": "x", "/var/lib/cloud/data/instance-id": "x", "/var/lib/cloud/sem/x": "x"},
			[]string{"/var/lib/cloud/data", "/var/lib/cloud/sem"}, []string{"/var/lib/cloud/seed/nocloud/meta-data", "/var/lib/cloud/scripts/per-boot/a", "/var/lib/cloud/handlers/a.py"}},
		"local disks": {
			map[string]string{"/etc/systemd/system/mnt-k8s\\x2ddisks-0.mount": disks, "/etc/systemd/system/multi-user.target.wants/mnt-k8s\\x2ddisks-0.mount": "->../mnt-k8s\\x2ddisks-0.mount",
				"/etc/systemd/system/var-lib-kubelet.mount": disks, "/etc/systemd/system/kubelet.service.requires/var-lib-kubelet.mount": "->/etc/systemd/system/var-lib-kubelet.mount",
				"/etc/systemd/system/srv.mount": "[Mount]\n", "/etc/systemd/system/multi-user.target.wants/srv.mount": "->../srv.mount"},
			[]string{"/etc/systemd/system/mnt-k8s\\x2ddisks-0.mount", "/etc/systemd/system/multi-user.target.wants/mnt-k8s\\x2ddisks-0.mount", "/etc/systemd/system/var-lib-kubelet.mount", "/etc/systemd/system/kubelet.service.requires/var-lib-kubelet.mount"},
			[]string{"/etc/systemd/system/srv.mount", "/etc/systemd/system/multi-user.target.wants/srv.mount"}},
		"logs, histories and other machines": {
			map[string]string{"/var/log/kern.log.1": "", "/var/log/syslog.2.gz": "", "/var/log/kubelet.log": "", "/root/.zsh_history": "", "/home/a/.viminfo": "", "/root/.ssh/known_hosts": "", "/var/tmp/a/b": "", "/etc/cni/net.d/05-cilium.conflist": "", "/etc/cni/net.d/10-mine.conflist": "", "/etc/iscsi/initiatorname.iscsi": "x"},
			[]string{"/var/log/kern.log.1", "/var/log/syslog.2.gz", "/var/log/kubelet.log", "/root/.zsh_history", "/home/a/.viminfo", "/root/.ssh/known_hosts", "/var/tmp/a", "/etc/cni/net.d/05-cilium.conflist", "/etc/iscsi/initiatorname.iscsi"},
			[]string{"/root/.ssh", "/var/tmp", "/etc/cni/net.d/10-mine.conflist"}},
		"names and keys": {
			map[string]string{"/etc/nvme/hostnqn": "x", "/etc/nvme/hostid": "x", "/etc/nvme/discovery.conf": "x", "/var/lib/calico/nodename": "x", "/etc/lvm/devices/system.devices": "x", "/etc/lvm/lvm.conf": "x",
				"/var/lib/ubuntu-advantage/private/machine-token.json": "x", "/root/.ssh/authorized_keys2": "x", "/root/.mysql_history": "x", "/home/a/.sh_history": "x"},
			[]string{"/etc/nvme/hostnqn", "/etc/nvme/hostid", "/var/lib/calico/nodename", "/etc/lvm/devices/system.devices", "/var/lib/ubuntu-advantage/private/machine-token.json", "/root/.ssh/authorized_keys2", "/root/.mysql_history", "/home/a/.sh_history"},
			[]string{"/etc/nvme/discovery.conf", "/etc/lvm/lvm.conf"}},
		"homes elsewhere": {
			map[string]string{"/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\ngit:x:997:997::/srv/git:/bin/sh\nodd:x:1:1::/opt/*:/bin/sh\nbroken\n", "/srv/git/.ssh/authorized_keys": "x", "/srv/git/.bash_history": "x", "/srv/git/.ssh/config": "x", "/opt/a/.ssh/authorized_keys": "x"},
			[]string{"/srv/git/.ssh/authorized_keys", "/srv/git/.bash_history"}, []string{"/srv/git/.ssh/config", "/opt/a/.ssh/authorized_keys"}},
		"homes elsewhere, without cloud-init": {
			map[string]string{"/etc/passwd": "git:x:997:997::/srv/git:/bin/sh\n", "/srv/git/.ssh/authorized_keys2": "x", "/etc/cloud/cloud-init.disabled": ""}, nil, []string{"/srv/git/.ssh/authorized_keys2"}},
		"more logs": {
			map[string]string{"/opt/aws/amazon-cloudwatch-agent/logs/a.log": "x", "/opt/aws/amazon-cloudwatch-agent/bin/a": "x", "/var/log/apt/history.log": "x", "/var/log/dnf.log.1": "x", "/var/log/sa/sa01": "x", "/var/log/user-data.log": "x", "/var/log/private/a/b": "x"},
			[]string{"/opt/aws/amazon-cloudwatch-agent/logs/a.log", "/var/log/apt/history.log", "/var/log/dnf.log.1", "/var/log/sa/sa01", "/var/log/user-data.log", "/var/log/private/a"},
			[]string{"/opt/aws/amazon-cloudwatch-agent/bin/a", "/var/log/apt", "/var/log/private"}},
	} {
		root, _ := image(t)
		// The root's own path is no pattern.
		odd := rootfs.Root(string(root) + "[1]")
		if err := os.Rename(string(root), string(odd)); err != nil {
			t.Fatal(err)
		}
		put(t, odd, test.files)
		planned, err := Plan(odd)
		if err != nil {
			t.Fatal(name, err)
		}
		changes, err := Clean(context.Background(), odd)
		if diff := cmp.Diff(planned, changes); err != nil || diff != "" {
			t.Errorf("%s: %v (-planned +done):\n%s", name, err, diff)
		}
		for _, path := range test.gone {
			if _, err := os.Lstat(filepath.Join(string(odd), path)); err == nil {
				t.Errorf("%s: %s is still there", name, path)
			}
		}
		for _, path := range test.stays {
			if _, err := os.Lstat(filepath.Join(string(odd), path)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestCleanRewrites(t *testing.T) {
	root, _ := image(t)
	put(t, root, map[string]string{
		"/etc/mdadm/mdadm.conf":                 "MAILADDR root\nARRAY /dev/md/kubernetes UUID=1:2\nARRAY /dev/md/0  metadata=1.2 name=ip-10-0-0-1:kubernetes\nARRAY /dev/md/mine UUID=3\n",
		"/etc/iscsi/initiatorname.iscsi":        "InitiatorName=iqn.1993-08.org.debian:01:abc\n",
		"/usr/lib/open-iscsi/startup-checks.sh": "",
	})
	if _, err := Clean(context.Background(), root); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/etc/mdadm/mdadm.conf": "MAILADDR root\nARRAY /dev/md/mine UUID=3\n", "/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n"} {
		if data, err := root.ReadFile(path); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
}

// Whatever stands for the machine id, an empty file takes its place, and nothing
// is touched outside the image.
func TestCleanMachineID(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "machine-id")
	if err := os.WriteFile(outside, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{outside, outside + "-dangling", "../var/lib/dbus/machine-id", "/etc/machine-id", "../../../../../../../.." + outside} {
		root, _ := image(t)
		put(t, root, map[string]string{machineID: "->" + to, "/var/lib/dbus/machine-id": "0123"})
		if to == machineID {
			os.Remove(string(root) + machineID)
			put(t, root, map[string]string{"/var/lib/dbus/machine-id": "->" + to})
		}
		if _, err := Clean(context.Background(), root); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		if info, err := os.Lstat(string(root) + machineID); err != nil || !info.Mode().IsRegular() || info.Size() > 0 || root.Exists("/var/lib/dbus/machine-id") {
			t.Errorf("%s: %v, %v", to, info, err)
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "host" {
		t.Errorf("outside: %q, %v", data, err)
	}
	if _, err := os.Lstat(outside + "-dangling"); err == nil {
		t.Error("a file was made outside")
	}
}

// What cannot be done in full is refused before anything is removed.
func TestPlanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"a link to nothing":         {map[string]string{"/home": "->/data/home"}, "/home is a symbolic link that leads to nothing"},
		"kubelet's directory":       {map[string]string{"/var/lib/kubelet": "->/data"}, "/var/lib/kubelet is a symbolic link"},
		"a directory as machine id": {map[string]string{"/etc/machine-id/": ""}, "/etc/machine-id: not a file"},
	} {
		root, _ := image(t)
		for path := range test.files {
			os.RemoveAll(filepath.Join(string(root), path))
		}
		put(t, root, test.files)
		if _, err := Plan(root); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		} else {
			fault.Each(err, func(e error) {
				if fault.Remedy(e) == "" {
					t.Errorf("%s: no remedy: %v", name, e)
				}
			})
		}
	}
	if _, err := Plan(rootfs.Root(t.TempDir())); fault.CodeOf(err) != fault.Usage {
		t.Errorf("an empty root: %v", err)
	}
}

// What --local-disks writes is known by its first line.
func TestDiskUnits(t *testing.T) {
	data, err := os.ReadFile("../disks/units.go")
	if err != nil || !strings.Contains(string(data), `"# Written by nodeadm for --local-disks.`) {
		t.Errorf("units of --local-disks begin otherwise, or: %v", err)
	}
}

// install runs once more on what stands in its way, or is left from before.
func TestInstallAgain(t *testing.T) {
	const kept = layout.BootstrapScript + ".before-nodeadm"
	for name, test := range map[string]struct {
		change func(r string) error
		want   []Change
		fails  string
	}{
		"bootstrap.sh from a package, the same as before": {func(r string) error {
			os.Remove(r + layout.BootstrapScript)
			return os.WriteFile(r+layout.BootstrapScript, []byte("#!/bin/bash\necho the old one\n"), 0o755)
		}, []Change{{layout.BootstrapScript, "link"}}, ""},
		"bootstrap.sh from a package, another": {func(r string) error {
			os.Remove(r + layout.BootstrapScript)
			return os.WriteFile(r+layout.BootstrapScript, []byte("#!/bin/bash\n"), 0o755)
		}, nil, "already kept as bootstrap.sh.before-nodeadm"},
		"a directory in the place of a link": {func(r string) error {
			os.Remove(r + layout.BootstrapScript)
			return os.Mkdir(r+layout.BootstrapScript, 0o755)
		}, nil, layout.BootstrapScript + " is a directory"},
		"a pipe in the place of a file": {func(r string) error {
			os.Remove(r + layout.ModulesLoad)
			return syscall.Mkfifo(r+layout.ModulesLoad, 0o644)
		}, nil, layout.ModulesLoad + " is a special file"},
		"a unit that a package has brought meanwhile": {func(r string) error {
			return os.WriteFile(r+"/usr/lib/systemd/system/nodeadm.service", []byte("[Service]\n"), 0o644)
		}, []Change{{"/etc/systemd/system/multi-user.target.wants/nodeadm.service", "link"}, {layout.Nodeadm, "remove"}}, ""},
		"a masked unit": {func(r string) error {
			os.Remove(r + layout.Nodeadm)
			return os.Symlink("/dev/null", r+layout.Nodeadm)
		}, nil, "is masked"},
		"no container runtime": {func(r string) error { return os.Remove(r + "/usr/bin/containerd") }, nil, "/usr/bin/containerd does not exist"},
		"dockerd instead": {func(r string) error {
			os.Remove(r + "/usr/bin/containerd")
			os.WriteFile(r+"/usr/bin/dockerd", nil, 0o755)
			return os.WriteFile(r+"/usr/bin/kubelet", []byte("#!/bin/sh\necho Kubernetes v1.23.1\n"), 0o755)
		}, []Change{{layout.KubeletVersion, "update"}, {inRuntimeSlice(layout.DockerService), "create"}, {layout.ContainerdVersion, "remove"}, {inRuntimeSlice(layout.ContainerdService), "remove"}}, ""},
	} {
		root, o := image(t)
		if _, err := Install(context.Background(), o); err != nil || !root.Exists(kept) {
			t.Fatal(err)
		}
		if err := test.change(string(root)); err != nil {
			t.Fatal(err)
		}
		changes, err := Install(context.Background(), o)
		if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails) || fault.Remedy(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, changes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if left, _ := filepath.Glob(string(root) + "/etc/eks/.nodeadm-*"); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

// AWS's image has units of its own that run /usr/bin/nodeadm, with flags that
// only AWS's has.
func TestInstallOverAWS(t *testing.T) {
	root, o := image(t)
	const wants, lib = "/etc/systemd/system/multi-user.target.wants/", "/usr/lib/systemd/system/"
	units := map[string]string{
		"nodeadm-config.service":    "[Service]\nExecStart=/usr/bin/nodeadm init --skip run\n",
		"nodeadm-run.service":       "[Service]\nExecStart=-/usr/bin/nodeadm init --skip config\n",
		"nodeadm-reconcile.service": "[Service]\nExecStart=/usr/bin/nodeadm reconcile\n",
		"custom.service":            "[Service]\nExecStart=/usr/bin/nodeadm init \\\n  --config-cache=/run/x\n",
		"mine.service":              "[Service]\nExecStart=/usr/bin/nodeadm doctor\n",
		"nodeadm-mine.service":      "[Service]\nExecStart=/usr/bin/nodeadm status\n",
		"nodeadm-changed.service":   "[Service]\nExecStart=/usr/bin/nodeadm init --skip run\n",
	}
	for name, text := range units {
		put(t, root, map[string]string{lib + name: text, wants + name: "->" + lib + name})
	}
	put(t, root, map[string]string{
		"/etc/systemd/system/other.target.requires/nodeadm-run.service": "->" + lib + "nodeadm-run.service",
		"/etc/systemd/system/nodeadm-changed.service.d/mine.conf":       "[Service]\nExecStart=\nExecStart=/usr/bin/true\n",
	})
	want := []Change{
		{wants + "custom.service", "unlink"}, {wants + "nodeadm-config.service", "unlink"}, {wants + "nodeadm-reconcile.service", "unlink"}, {wants + "nodeadm-run.service", "unlink"},
		{"/etc/systemd/system/other.target.requires/nodeadm-run.service", "unlink"},
	}
	changes, err := Install(context.Background(), o)
	if diff := cmp.Diff(want, changes[max(0, len(changes)-len(want)):]); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if findings := Check(context.Background(), o); len(findings) > 0 {
		t.Errorf("%v", findings)
	}
	if changes, err := Install(context.Background(), o); err != nil || len(changes) > 0 {
		t.Errorf("a second run: %v, %v", changes, err)
	}
	put(t, root, map[string]string{wants + "nodeadm-run.service": "->" + lib + "nodeadm-run.service"})
	if findings := Check(context.Background(), o); len(findings) != 1 || findings[0].Name != "unit" || !strings.Contains(findings[0].What, "nodeadm-run.service: enabled for AWS") {
		t.Errorf("enabled again: %v", findings)
	}
}

// install takes the program back from whoever else could write it.
func TestInstallMendsOwner(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("giving files away is for root")
	}
	root, o := image(t)
	if _, err := Install(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(string(root)+layout.Program, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if findings := Check(context.Background(), o); len(findings) != 1 || !strings.Contains(findings[0].What, "is not root's") {
		t.Errorf("%v", findings)
	}
	changes, err := Install(context.Background(), o)
	if diff := cmp.Diff([]Change{{layout.Program, "update"}}, changes); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if findings := Check(context.Background(), o); len(findings) > 0 {
		t.Errorf("afterwards: %v", findings)
	}
}

// Programs that this computer runs by an emulator do not run on the node.
func TestForeign(t *testing.T) {
	root, _ := image(t)
	for path, text := range map[string]string{"/other": built(otherArch), "/same": built(runtime.GOARCH), "/script": "#!/bin/sh\necho 12345678901234567890\n", "/short": "x"} {
		put(t, root, map[string]string{path: text})
		if what := foreign(root, path); (what != "") != (path == "/other") {
			t.Errorf("%s: %q", path, what)
		}
	}
	for name, look := range map[string]func(rootfs.Root, versions) (string, string){"kubelet": checkKubelet, "containerd": checkRuntime} {
		put(t, root, map[string]string{"/usr/bin/" + name: built(otherArch)})
		if what, remedy := look(root, versions{kubelet: "v1.34.4", containerd: "2.1.4"}); what != foreign(root, "/usr/bin/"+name) || remedy == "" {
			t.Errorf("%s: %q, %q", name, what, remedy)
		}
	}
}

// Others may set what install sets; the last one counts, in systemd's order.
func TestCheckOverridden(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		check string
		says  string // "": nothing is found
	}{
		"forwarding":             {map[string]string{"/etc/sysctl.d/99-cis.conf": "net.ipv4.ip_forward=0\n"}, "kernel-settings", "/etc/sysctl.d/99-cis.conf says net.ipv4.ip_forward = 0"},
		"memory":                 {map[string]string{"/usr/lib/sysctl.d/95-db.conf": "# a\n -vm/overcommit_memory = 2\n"}, "kernel-settings", "/usr/lib/sysctl.d/95-db.conf says vm.overcommit_memory = 2"},
		"all interfaces":         {map[string]string{"/run/sysctl.d/99-a.conf": "net.ipv4.conf.all.forwarding = 0\n"}, "kernel-settings", "/run/sysctl.d/99-a.conf"},
		"sysctl.conf, by a link": {map[string]string{"/etc/sysctl.conf": "kernel.panic = 60\n", "/etc/sysctl.d/99-sysctl.conf": "->../sysctl.conf"}, "kernel-settings", "/etc/sysctl.d/99-sysctl.conf says kernel.panic = 60"},
		"sysctl.conf alone":      {map[string]string{"/etc/sysctl.conf": "kernel.panic = 60\n"}, "", ""},
		"earlier":                {map[string]string{"/etc/sysctl.d/50-a.conf": "net.ipv4.ip_forward = 0\n"}, "", ""},
		"the same, and patterns": {map[string]string{"/etc/sysctl.d/99-a.conf": "net.ipv4.ip_forward = 1\nnet.ipv4.conf.*.forwarding = 0\n;x\n"}, "", ""},
		"masked":                 {map[string]string{"/usr/lib/sysctl.d/99-a.conf": "net.ipv4.ip_forward = 0\n", "/etc/sysctl.d/99-a.conf": "->/dev/null"}, "", ""},
		"set back":               {map[string]string{"/etc/sysctl.d/98-a.conf": "net.ipv4.ip_forward = 0\n", "/usr/lib/sysctl.d/99-a.conf": "net/ipv4/ip_forward = 1\n"}, "", ""},
		"a module":               {map[string]string{"/etc/modprobe.d/cis.conf": "install overlay /bin/true\n"}, "kernel-modules", "/etc/modprobe.d/cis.conf keeps the module overlay"},
		"a module, by its alias": {map[string]string{"/usr/lib/modprobe.d/x.conf": "blacklist br-netfilter\n"}, "kernel-modules", "br-netfilter"},
		"other modules":          {map[string]string{"/etc/modprobe.d/x.conf": "# blacklist veth\nblacklist pcspkr\noptions overlay redirect_dir=on\ninstall veth /sbin/modprobe --ignore-install veth\n"}, "", ""},
	} {
		root, o := image(t)
		if _, err := Install(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		put(t, root, test.files)
		findings := Check(context.Background(), o)
		switch {
		case test.says == "" && len(findings) > 0:
			t.Errorf("%s: %v", name, findings)
		case test.says != "" && (len(findings) != 1 || findings[0].Name != test.check || !strings.Contains(findings[0].What, test.says)):
			t.Errorf("%s: %v", name, findings)
		}
	}
}

// A killed install leaves files behind that are as large as nodeadm itself. What
// a run that was killed will be undone with is not among them.
func TestUnfinished(t *testing.T) {
	for _, do := range []func(Options) ([]Change, error){
		func(o Options) ([]Change, error) { return Install(context.Background(), o) },
		func(o Options) ([]Change, error) { return Clean(context.Background(), o.Root) },
	} {
		root, o := image(t)
		left := []string{"/usr/bin/.nodeadm-123456789", "/etc/systemd/system/.nodeadm-1", "/etc/systemd/system/containerd.service.d/.nodeadm-2"}
		stays := []string{"/etc/sysctl.d/.nodeadm-old-90-nodeadm-kubelet.conf", "/usr/bin/.nodeadm", "/usr/bin/.other-1"}
		for _, path := range slices.Concat(left, stays) {
			put(t, root, map[string]string{path: "x"})
		}
		changes, err := do(o)
		for _, path := range left {
			if err != nil || root.Exists(path) || !slices.Contains(changes, Change{path, "remove"}) {
				t.Errorf("%s: %v, %v", path, changes, err)
			}
		}
		for _, path := range stays {
			if !root.Exists(path) {
				t.Errorf("%s is gone", path)
			}
		}
	}
}
