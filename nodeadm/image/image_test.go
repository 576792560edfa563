package image

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// image is a root with what a distribution and an image build bring.
func image(t *testing.T) (rootfs.Root, Options) {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"usr/bin/kubelet":                              "#!/bin/sh\necho Kubernetes v1.34.4\n",
		"usr/bin/containerd":                           "#!/bin/sh\necho containerd github.com/containerd/containerd/v2 v2.1.4 abc\n",
		"usr/lib/systemd/system/containerd.service":    "[Service]\nExecStart=/usr/bin/containerd\n",
		"usr/sbin/runc":                                "",
		"opt/cni/bin/loopback":                         "",
		"usr/bin/mount":                                "",
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
	if diff := cmp.Diff([]string{"program", "unit", "recorded-versions", "kernel-settings"}, names(Check(context.Background(), root))); diff != "" {
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
	if findings := Check(context.Background(), root); len(findings) > 0 {
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
	if findings := Check(context.Background(), root); len(findings) > 0 {
		t.Errorf("after scripts: %v", findings)
	}
	if err := os.MkdirAll(filepath.Join(string(root), "etc/cloud"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(root), "etc/cloud/cloud-init.disabled"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if findings := Check(context.Background(), root); len(findings) != 1 || !strings.Contains(findings[0].What, "waits for cloud-init") {
		t.Errorf("after scripts that never run: %v", findings)
	}
}

// Of two programs that are missing, each has its own finding.
func TestCheckBothMissing(t *testing.T) {
	root, _ := image(t)
	for _, program := range []string{"kubelet", "containerd"} {
		if err := os.Remove(filepath.Join(string(root), "usr/bin", program)); err != nil {
			t.Fatal(err)
		}
	}
	findings := Check(context.Background(), root)
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
	if findings := Check(context.Background(), root); len(findings) > 0 {
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
	} {
		root, o := image(t)
		if _, err := Install(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := test.change(string(root)); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range Check(context.Background(), root) {
			found = found || f.Name == test.name && strings.Contains(f.What, test.says) && f.Remedy != ""
		}
		if !found {
			t.Errorf("%s, %q: %+v", test.name, test.says, Check(context.Background(), root))
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
	changes, err := Clean(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"/var/lib/kubelet/pki", "remove"},
		{"/var/lib/cloud/instances", "remove"},
		{"/etc/hostname", "remove"},
		{"/etc/ssh/ssh_host_rsa_key", "remove"},
		{"/home/ec2-user/.ssh/authorized_keys", "remove"},
		{"/var/log/journal/abc", "remove"},
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
	if again, err := Clean(root); err != nil || len(again) > 0 {
		t.Errorf("a second run: %v, %v", again, err)
	}
}
