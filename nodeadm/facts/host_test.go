package facts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// image makes a root. A content that begins with -> is a link to the rest, and
// one that begins with #! is a program.
func image(t *testing.T, entries map[string]string) rootfs.Root {
	t.Helper()
	root := t.TempDir()
	for path, content := range entries {
		host := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		var err error
		if to, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(to, host)
		} else {
			err = os.WriteFile(host, []byte(content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return rootfs.Root(root)
}

// says is a program that answers --version and nothing else.
func says(text string) string {
	return "#!/bin/sh\n[ \"$*\" = --version ] || exit 64\necho '" + text + "'\n"
}

const fails = "#!/bin/sh\nexit 1\n"

func host(t *testing.T, r HostRequest) (Host, []string, error) {
	if r.Machine == nil {
		r.Machine = &Machine{CPUs: 4}
	}
	return GatherHost(t.Context(), r)
}

// A program that does not answer is waited for no longer than it may take, also
// where it is a script and what that has started lives on.
func TestVersionsInTime(t *testing.T) {
	root := image(t, map[string]string{"/usr/bin/kubelet": "#!/bin/sh\nsleep 10\necho Kubernetes v1.34.4\n"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if v, _, err := Versions(ctx, root); v != "" || err == nil {
		t.Errorf("%q, %v", v, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		name       string
		image      map[string]string
		request    HostRequest
		kubelet    kubelet.Version
		containerd string
	}{
		{name: "recorded, and nothing is run",
			image: map[string]string{"/usr/bin/kubelet": fails, "/usr/bin/containerd": fails,
				layout.KubeletVersion: "v1.31.2-eks-abc\n", layout.ContainerdVersion: "containerd github.com/containerd/containerd v1.7.27 05044ec\n"},
			kubelet: kubelet.Version{Major: 1, Minor: 31, Patch: 2}, containerd: "1.7.27"},
		{name: "recorded bare",
			image:   map[string]string{"/usr/bin/kubelet": fails, layout.KubeletVersion: "1.31.2", layout.ContainerdVersion: "2.0.5\n"},
			kubelet: kubelet.Version{Major: 1, Minor: 31, Patch: 2}, containerd: "2.0.5"},
		{name: "asked",
			image: map[string]string{"/usr/bin/kubelet": says("Kubernetes v1.30.4-eks-a737599"),
				"/usr/bin/containerd": says("containerd github.com/containerd/containerd/v2 2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376")},
			kubelet: kubelet.Version{Major: 1, Minor: 30, Patch: 4}, containerd: "2.1.4"},
		{name: "asked elsewhere, behind links",
			image: map[string]string{"/usr/local/bin/kubelet": "->/opt/kubelet", "/opt/kubelet": says("Kubernetes v1.30.4"),
				"/usr/local/bin/containerd": says("containerd containerd.io 1.6.33 abc")},
			kubelet: kubelet.Version{Major: 1, Minor: 30, Patch: 4}, containerd: "1.6.33"},
		{name: "said",
			image:   map[string]string{"/usr/bin/kubelet": fails, layout.KubeletVersion: "1.31.2", layout.ContainerdVersion: "2.0.5"},
			request: HostRequest{KubeletVersion: "v1.29", ContainerdVersion: "1.7.0"},
			kubelet: kubelet.Version{Major: 1, Minor: 29}, containerd: "1.7.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.request.Root = image(t, test.image)
			h, _, err := host(t, test.request)
			if err != nil || h.ContainerdUnknown != nil {
				t.Fatal(err, h.ContainerdUnknown)
			}
			if h.Kubelet != test.kubelet || h.Containerd != test.containerd {
				t.Errorf("kubelet %v and containerd %q", h.Kubelet, h.Containerd)
			}
		})
	}
}

func TestKubeletVersionUnusable(t *testing.T) {
	for _, test := range []struct {
		name         string
		image        map[string]string
		said         string
		says, remedy string
	}{
		{"not installed", nil, "", "/usr/bin/kubelet does not exist", "--kubelet-version"},
		{"does not run", map[string]string{"/usr/bin/kubelet": fails}, "", "/usr/bin/kubelet --version: exit status 1", "--kubelet-version"},
		{"not a program", map[string]string{"/usr/bin/kubelet": "text"}, "", "/usr/bin/kubelet --version", "--kubelet-version"},
		{"answers nonsense", map[string]string{"/usr/bin/kubelet": says("hello")}, "", "/usr/bin/kubelet --version", "1.34.4"},
		{"recorded nonsense", map[string]string{"/usr/bin/kubelet": "", layout.KubeletVersion: "latest\n"}, "", layout.KubeletVersion, "1.34.4"},
		{"said nonsense", map[string]string{"/usr/bin/kubelet": ""}, "newest", "--kubelet-version", "1.34.4"},
		{"too old", map[string]string{"/usr/bin/kubelet": ""}, "1.21.14", "kubelet v1.21.14 is not supported", "from 1.22 to"},
		{"too new", map[string]string{"/usr/bin/kubelet": ""}, "1.99.0", "kubelet v1.99.0 is not supported", "from 1.22 to"},
		{"another major", map[string]string{"/usr/bin/kubelet": ""}, "2.30.0", "kubelet v2.30.0 is not supported", "from 1.22 to"},
		{"said, and not installed", nil, "1.30.0", "/usr/bin/kubelet does not exist", "install kubelet"},
		{"the record is a directory", map[string]string{layout.KubeletVersion + "/x": ""}, "", layout.KubeletVersion, "regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := host(t, HostRequest{Root: image(t, test.image), KubeletVersion: test.said, ContainerdVersion: "1.7.0"})
			want := fault.Usage
			if test.name == "the record is a directory" {
				want = fault.Disk
			}
			if fault.CodeOf(err) != want || err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(fault.Remedy(err), test.remedy) {
				t.Errorf("class %d: %v, remedy %q", fault.CodeOf(err), err, fault.Remedy(err))
			}
		})
	}
}

// Whether an unknown containerd matters is for the plan to say.
func TestContainerdVersionUnknown(t *testing.T) {
	for _, test := range []struct {
		name  string
		image map[string]string
		says  string
	}{
		{"not installed", nil, "/usr/bin/containerd does not exist"},
		{"does not run", map[string]string{"/usr/bin/containerd": fails}, "exit status 1"},
		{"answers nonsense", map[string]string{"/usr/bin/containerd": says("containerd dev")}, `none in "containerd dev"`},
		{"recorded nonsense", map[string]string{layout.ContainerdVersion: "unknown\n"}, `none in "unknown"`},
	} {
		h, _, err := host(t, HostRequest{Root: image(t, test.image), KubeletVersion: "1.30.0", Simulated: true})
		if err != nil || h.Containerd != "" || h.ContainerdUnknown == nil || !strings.Contains(h.ContainerdUnknown.Error(), test.says) {
			t.Errorf("%s: %q, %v, %v", test.name, h.Containerd, h.ContainerdUnknown, err)
		}
	}
}

func TestPrograms(t *testing.T) {
	r := HostRequest{KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0"}
	r.Root = image(t, map[string]string{
		"/usr/local/bin/kubelet": "", "/usr/bin/aws": "", "/usr/local/bin/aws-iam-authenticator": "",
		"/usr/bin/nvidia-container-runtime": "->/opt/nvidia", "/opt/nvidia": "", credentialProviderPaths[0]: "",
	})
	h, warnings, err := host(t, r)
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	if h.KubeletPath != "/usr/local/bin/kubelet" || h.TokenProgram != "/usr/local/bin/aws-iam-authenticator" ||
		h.CredentialProvider != credentialProviderPaths[0] || h.Nodeadm != "" || h.NVIDIARuntime != nvidiaRuntimePaths[0] || h.Partial {
		t.Errorf("got %+v", h)
	}

	// An image that is not finished lacks what a node needs, and is told so.
	r.Root, r.Partial = image(t, nil), true
	h, warnings, err = host(t, r)
	if err != nil || h.KubeletPath != "/usr/bin/kubelet" || !h.Partial || len(warnings) != 1 || !strings.Contains(warnings[0], "kubelet is not installed") {
		t.Errorf("got %+v, %q, %v", h, warnings, err)
	}
	if h.TokenProgram != "/usr/bin/nodeadm" || !h.TokenProgramAbsent || h.CredentialProvider != "" || h.Nodeadm != "" || h.NVIDIARuntime != "" {
		t.Errorf("programs of an empty image: %+v", h)
	}

	// A simulated one has what a node needs.
	r.Partial, r.Simulated = false, true
	h, warnings, err = host(t, r)
	if err != nil || len(warnings) != 0 || h.KubeletPath != "/usr/bin/kubelet" || h.TokenProgramAbsent || h.Nodeadm != "/usr/bin/nodeadm" {
		t.Errorf("got %+v, %q, %v", h, warnings, err)
	}
}

func TestDocuments(t *testing.T) {
	before := map[string]*ownership.State{layout.KubeletConfig: {}, layout.KubeletArgs: {}, layout.KubeletExtraArgs: {}}
	r := HostRequest{KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0", Simulated: true,
		Own: map[string]bool{layout.BPFMountUnit: true, layout.SysctlConfig: false}, Before: before, RanBefore: true,
		Root: image(t, map[string]string{layout.KubeletConfig: "now", layout.KubeletArgs: "args", layout.ContainerdConfig: "toml", layout.HostsFile: "hosts", containerdTemplate: "template"})}
	h, _, err := host(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if string(h.HostsFile) != "hosts" || !h.OwnBPFMount || h.OwnSysctls || h.Before[layout.KubeletArgs] != before[layout.KubeletArgs] || len(h.Private) > 0 || !h.RanBefore {
		t.Errorf("got %+v", h)
	}
	if diff := cmp.Diff(map[string][]byte{layout.KubeletConfig: []byte("now"), layout.KubeletArgs: []byte("args"), layout.ContainerdConfig: []byte("toml")}, h.Live); diff != "" {
		t.Errorf("live files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Document{containerdTemplate, []byte("template")}, h.ContainerdTemplate); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	r.Root, r.Own, r.Before = image(t, nil), nil, nil
	h, _, err = host(t, r)
	if err != nil || len(h.Live) > 0 || h.HostsFile != nil || h.ContainerdTemplate != nil || h.OwnBPFMount || h.KubeletUnit != nil {
		t.Errorf("of nothing: %+v, %v", h, err)
	}
}

func TestContainerdConfigFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(outside, []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := image(t, map[string]string{"/etc/mine.toml": "inside", containerdTemplate: "template"})
	for path, want := range map[string]string{"/etc/mine.toml": "inside", outside: "outside"} {
		got, err := findContainerdTemplate(HostRequest{Root: root, ContainerdConfigFile: path})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&Document{path, []byte(want)}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	_, err := findContainerdTemplate(HostRequest{Root: root, ContainerdConfigFile: outside + ".not"})
	if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "--containerd-config-file: "+outside+".not") {
		t.Errorf("got %v", err)
	}
}

func TestImageUnit(t *testing.T) {
	const (
		etc     = "/etc/systemd/system/kubelet.service"
		usr     = "/usr/lib/systemd/system/kubelet.service"
		run     = "/run/systemd/system/kubelet.service"
		service = "[Unit]\nDescription=kubelet\n[Service]\nExecStart="
	)
	for _, test := range []struct {
		name    string
		image   map[string]string
		applied map[string]string
		want    *KubeletUnit
	}{
		{"none", nil, nil, nil},
		{"vendor's", map[string]string{usr: service + "/usr/bin/kubelet --vendor\n"}, nil, &KubeletUnit{Exec: "/usr/bin/kubelet --vendor", Path: usr}},
		{"without usr merge", map[string]string{"/lib/systemd/system/kubelet.service": service + "/bin/kubelet\n"}, nil,
			&KubeletUnit{Exec: "/bin/kubelet", Path: "/lib/systemd/system/kubelet.service"}},
		{"administrator's hides the vendor's", map[string]string{usr: service + "/vendor\n", etc: service + "/admin\n"}, nil, &KubeletUnit{Exec: "/admin", Path: etc}},
		{"behind a link", map[string]string{etc: "->/opt/kubelet.service", "/opt/kubelet.service": service + "/opt/kubelet\n"}, nil, &KubeletUnit{Exec: "/opt/kubelet", Path: etc}},
		{"continued lines", map[string]string{usr: service + "/usr/bin/kubelet \\\n  --a \\\n  --b\n"}, nil,
			&KubeletUnit{Exec: "/usr/bin/kubelet  --a  --b", Path: usr}},
		{"a comment within a continued line", map[string]string{usr: service + "/usr/bin/kubelet \\\n# why\n  --a\n"}, nil,
			&KubeletUnit{Exec: "/usr/bin/kubelet  --a", Path: usr}},
		{"a line that systemd passes over", map[string]string{usr: "[Service]\nnonsense\nExecStart=/vendor\n"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"a very long line", map[string]string{usr: service + "/vendor " + strings.Repeat("x", 5000) + "\n"}, nil,
			&KubeletUnit{Exec: "/vendor " + strings.Repeat("x", 5000), Path: usr}},
		{"the image's behind nodeadm's own", map[string]string{etc: service + "/ours\n", usr: service + "/vendor\n"}, map[string]string{etc: service + "/ours\n"},
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"drop-in", map[string]string{usr: service + "/vendor\n", etc + ".d/20-x.conf": "[Service]\nExecStart=\nExecStart=/dropin\n"}, nil,
			&KubeletUnit{Exec: "/dropin", Path: etc + ".d/20-x.conf"}},
		{"drop-in of no command", map[string]string{usr: service + "/vendor\n", etc + ".d/20-x.conf": "[Service]\nEnvironment=A=B\n"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"the last name wins, wherever it is", map[string]string{
			usr:                      service + "/vendor\n",
			usr + ".d/90-last.conf":  "[Service]\nExecStart=\nExecStart=/last\n",
			etc + ".d/10-first.conf": "[Service]\nExecStart=\nExecStart=/first\n",
		}, nil, &KubeletUnit{Exec: "/last", Path: usr + ".d/90-last.conf"}},
		{"the same name, hidden", map[string]string{
			usr:                  service + "/vendor\n",
			usr + ".d/50-x.conf": "[Service]\nExecStart=\nExecStart=/hidden\n",
			run + ".d/50-x.conf": "[Service]\nExecStart=\nExecStart=/run\n",
		}, nil, &KubeletUnit{Exec: "/run", Path: run + ".d/50-x.conf"}},
		{"a drop-in that is switched off", map[string]string{
			usr:                  service + "/vendor\n",
			usr + ".d/50-x.conf": "[Service]\nExecStart=\nExecStart=/off\n",
			etc + ".d/50-x.conf": "->/dev/null",
		}, nil, &KubeletUnit{Exec: "/vendor", Path: usr}},
		{"not a drop-in", map[string]string{usr: service + "/vendor\n", etc + ".d/50-x.conf.bak": "[Service]\nExecStart=/backup\n"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"nodeadm's own drop-ins", map[string]string{
			usr:                     service + "/vendor\n",
			layout.KubeletArgs:      "[Service]\nExecStart=/ours\n",
			layout.KubeletExtraArgs: "[Service]\nExecStart=/ours too\n",
		}, nil, &KubeletUnit{Exec: "/vendor", Path: usr}},
		{"nodeadm's own unit", map[string]string{etc: service + "/ours\n"}, map[string]string{etc: service + "/ours\n"}, nil},
		{"nodeadm's own unit, changed since", map[string]string{etc: service + "/theirs\n"}, map[string]string{etc: service + "/ours\n"}, nil},
		{"nodeadm's own unit and their drop-in", map[string]string{
			etc:                  service + "/ours\n",
			etc + ".d/20-x.conf": "[Service]\nExecStart=\nExecStart=/theirs\n",
		}, map[string]string{etc: service + "/ours\n"}, &KubeletUnit{Exec: "/theirs", Path: etc + ".d/20-x.conf"}},
		{"environment that is there, or need not be", map[string]string{usr: service + "/vendor\nEnvironmentFile=/etc/here\nEnvironmentFile=-/etc/gone\nEnvironmentFile=/etc/%i\nEnvironmentFile=/etc/*.env\n", "/etc/here": "A=B"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"environment that is missing", map[string]string{usr: service + "/vendor\nEnvironmentFile=/etc/here\nEnvironmentFile=/etc/gone\n", etc + ".d/05-x.conf": "[Service]\nEnvironmentFile=-/etc/maybe\n", "/etc/here": "A=B"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr, MissingEnvironment: "/etc/gone", Environment: []string{"/etc/here", "-/etc/maybe"}}},
		{"environment that a drop-in leaves out", map[string]string{usr: service + "/vendor\nEnvironmentFile=/etc/gone\n", etc + ".d/05-x.conf": "[Service]\nEnvironmentFile=\n"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"environment of a later drop-in, which nodeadm's cannot change", map[string]string{usr: service + "/vendor\n", etc + ".d/90-x.conf": "[Service]\nEnvironmentFile=/etc/gone\n"}, nil,
			&KubeletUnit{Exec: "/vendor", Path: usr}},
		{"command in another section", map[string]string{usr: "[X-Other]\nExecStart=/other\n[Service]\nType=notify\n"}, nil, &KubeletUnit{Exec: "", Path: usr}},
	} {
		t.Run(test.name, func(t *testing.T) {
			own := map[string]bool{}
			for path := range test.applied {
				own[path] = true
			}
			got, err := imageUnit(image(t, test.image), own)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := imageUnit(image(t, map[string]string{"/etc/systemd": "a file"}), nil); fault.CodeOf(err) != fault.Disk {
		t.Errorf("got %v", err)
	}
}

func TestSystemdVersion(t *testing.T) {
	for _, test := range []struct {
		file string
		want int
		bpf  bool
	}{
		{"/usr/lib/systemd/libsystemd-shared-252.23-3.amzn2023.so", 252, true},
		{"/lib/systemd/libsystemd-shared-249.so", 249, true},
		{"/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-255.so", 255, true},
		{"/usr/lib/aarch64-linux-gnu/systemd/libsystemd-shared-257.so", 257, true},
		{"/usr/lib64/systemd/libsystemd-shared-238.so", 238, true},
		{"/usr/lib/systemd/libsystemd-shared-237.so", 237, false},
		{"/usr/lib/systemd/libsystemd-shared-abc.so", 0, false},
		{"/usr/lib/systemd/systemd", 0, false},
	} {
		root := image(t, map[string]string{test.file: ""})
		if got := systemdVersion(root); got != test.want {
			t.Errorf("%s: %d", test.file, got)
		}
		h, _, err := host(t, HostRequest{Root: root, KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0", Simulated: true})
		if err != nil || h.SystemdMountsBPF != test.bpf {
			t.Errorf("%s: mounts bpf: %t, %v", test.file, h.SystemdMountsBPF, err)
		}
	}
}

func TestStubResolver(t *testing.T) {
	for to, want := range map[string]bool{
		"../run/systemd/resolve/stub-resolv.conf":  true,
		"/run/systemd/resolve/stub-resolv.conf":    true,
		"../usr/lib/systemd/resolv.conf":           true,
		"../run/systemd/resolve/resolv.conf":       false, // Amazon Linux 2023
		"/run/NetworkManager/no-stub-resolv.conf":  false,
		"/mnt/run/systemd/resolve/stub-resolv.con": false,
	} {
		root := image(t, map[string]string{"/etc/hosts": ""})
		if err := os.Symlink(to, filepath.Join(string(root), "etc/resolv.conf")); err != nil {
			t.Fatal(err)
		}
		if got := stubResolver(root); got != want {
			t.Errorf("a link to %s: %t", to, got)
		}
	}
	for text, want := range map[string]bool{
		"# nameserver 127.0.0.53\nnameserver 10.0.0.2\n":  false,
		"search x\nnameserver\t127.0.0.53\noptions edns0": true,
		"": false,
	} {
		if got := stubResolver(image(t, map[string]string{"/etc/resolv.conf": text})); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if stubResolver(image(t, map[string]string{"/etc/hosts": ""})) {
		t.Error("without the file")
	}
}

func TestOnlineCPUs(t *testing.T) {
	dir := t.TempDir()
	for list, want := range map[string]int{
		"0\n": 1, "0-3\n": 4, "0-3,5": 5, "0,2,4-7\n": 6, "0-191\n": 192, "5-5": 1,
		"": runtime.NumCPU(), "garbage": runtime.NumCPU(), "3-1": runtime.NumCPU(), "0-": runtime.NumCPU(), "0-3,": runtime.NumCPU(),
	} {
		path := filepath.Join(dir, "online")
		if err := os.WriteFile(path, []byte(list), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := onlineCPUs(path); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	if got := onlineCPUs(filepath.Join(dir, "nothing")); got != runtime.NumCPU() {
		t.Errorf("no list: %d", got)
	}
}

func TestMountsBPF(t *testing.T) {
	const proc = "proc /proc proc rw,nosuid 0 0\n"
	for mounts, want := range map[string]bool{
		"":   false,
		proc: false,
		proc + "bpf /sys/fs/bpf bpf rw,nosuid,nodev,noexec,relatime,mode=700 0 0\n": true,
		proc + "none /sys/fs/bpf bpf rw 0 0":                                        true,
		"bpf /sys/fs/bpf tmpfs rw 0 0\n":                                            false,
		"bpf\n":                                                                     false,
	} {
		if got := mountsBPF([]byte(mounts)); got != want {
			t.Errorf("%q: %t", mounts, got)
		}
	}
}

func TestPCI(t *testing.T) {
	root := string(image(t, map[string]string{
		"/0000:00:00.0/vendor": "0x8086\n", "/0000:00:00.0/device": "0x7364\n",
		"/0000:00:1e.0/vendor": "0x10de\n",
		"/0000:00:1f.0/vendor": "0x1d0f\n", "/0000:00:1f.0/device": "0xec20\n",
	}))
	if !hasPCI(root, "0x10de") || !hasPCI(root, "0x1d0f") || hasPCI(root, "0x1d0e") || hasPCI(root+"/nothing", "0x10de") {
		t.Error("vendors")
	}
	if hasPCI(root, "0x1d0f", neuronDevices...) || !hasPCI(root, "0x1d0f", "0x1", "0xec20") {
		t.Error("devices: an ENA interface is no Neuron chip")
	}
}

// Where nobody says what the machine is, this one is it.
func TestThisMachine(t *testing.T) {
	h, _, err := GatherHost(t.Context(), HostRequest{Root: image(t, nil), KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0", Simulated: true})
	if err != nil || h.CPUs < 1 {
		t.Errorf("%+v, %v", h.Machine, err)
	}
	h, _, err = GatherHost(t.Context(), HostRequest{Root: image(t, nil), KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0", Simulated: true,
		Machine: &Machine{CPUs: 999, NVIDIA: true, Neuron: true, FIPS: true, BPFFS: true}})
	if err != nil || h.Machine != (Machine{CPUs: 999, NVIDIA: true, Neuron: true, FIPS: true, BPFFS: true}) {
		t.Errorf("%+v, %v", h.Machine, err)
	}
}

func TestMemory(t *testing.T) {
	for meminfo, want := range map[string]int{"MemTotal:        7953124 kB\nMemFree: 1 kB\n": 7766, "": 0, "MemTotal:": 0, "MemFree: 5 kB\n": 0, "MemTotal: many kB": 0} {
		if got := memoryMiB([]byte(meminfo)); got != want {
			t.Errorf("%q: %d, want %d", meminfo, got, want)
		}
	}
}

func TestSwap(t *testing.T) {
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for swaps, want := range map[string]string{
		"": "", heading: "",
		heading + "/swapfile                               file\t\t1048572\t\t0\t\t-2\n": "/swapfile",
		heading + "/dev/zram0\tpartition\t8\t0\t100\n/dev/dm-1 partition\t8\t0\t-2\n":    "/dev/zram0",
	} {
		if got := swapsTo([]byte(swaps)); got != want {
			t.Errorf("%q: %q, want %q", swaps, got, want)
		}
	}
}

func TestSOCIUnits(t *testing.T) {
	const program, socket, service = "/usr/local/bin/soci-snapshotter-grpc", "/etc/systemd/system/soci-snapshotter.socket", "/usr/lib/systemd/system/soci-snapshotter.service"
	for paths, want := range map[string]string{
		"": "", socket + " " + service: "", program: "",
		program + " " + service:                "soci-snapshotter.service",
		program + " " + service + " " + socket: "soci-snapshotter.socket soci-snapshotter.service",
	} {
		files := map[string]string{}
		for path := range strings.FieldsSeq(paths) {
			files[path] = ""
		}
		if got := strings.Join(sociUnits(HostRequest{Root: image(t, files)}), " "); got != want {
			t.Errorf("%s: %q, want %q", paths, got, want)
		}
	}
}

// What cannot be looked at is an error, and not an absence.
func TestUnreadable(t *testing.T) {
	for _, path := range []string{layout.KubeletConfig, layout.HostsFile, containerdTemplate} {
		_, _, err := host(t, HostRequest{Root: image(t, map[string]string{path + "/x": ""}), KubeletVersion: "1.30.0", ContainerdVersion: "1.7.0", Simulated: true})
		if fault.CodeOf(err) != fault.Disk || !strings.Contains(err.Error(), path) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTokenProgram(t *testing.T) {
	for _, test := range []struct {
		name        string
		image       string // paths that are there
		asked, self string
		want        string
		absent      bool
		own         string // where nodeadm is, for whatever else it does
	}{
		{name: "its own first", image: "/usr/bin/nodeadm /usr/bin/aws /usr/bin/aws-iam-authenticator", want: "/usr/bin/nodeadm", own: "/usr/bin/nodeadm"},
		{name: "in the other usual place", image: "/usr/local/bin/nodeadm /usr/bin/aws", self: "/opt/nodeadm", want: "/usr/local/bin/nodeadm", own: "/usr/local/bin/nodeadm"},
		{name: "this one, wherever it is", image: "/opt/nodeadm /usr/bin/aws", self: "/opt/nodeadm", want: "/opt/nodeadm", own: "/opt/nodeadm"},
		{name: "not under the name of a script", image: "/etc/eks/bootstrap.sh /usr/bin/aws", self: "/etc/eks/bootstrap.sh", want: "/usr/bin/aws"},
		{name: "then the authenticator", image: "/usr/bin/aws /usr/local/bin/aws-iam-authenticator", want: "/usr/local/bin/aws-iam-authenticator"},
		{name: "then the CLI", image: "/usr/bin/aws", want: "/usr/bin/aws"},
		{name: "as asked", image: "/usr/bin/nodeadm /usr/bin/aws", asked: "aws", want: "/usr/bin/aws", own: "/usr/bin/nodeadm"},
		{name: "asked and not there", image: "/usr/bin/nodeadm", asked: "aws-iam-authenticator", want: "/usr/bin/aws-iam-authenticator", absent: true, own: "/usr/bin/nodeadm"},
		{name: "none", want: "/usr/bin/nodeadm", absent: true},
	} {
		files := map[string]string{}
		for _, path := range strings.Fields(test.image) {
			files[path] = "program"
		}
		r := HostRequest{Root: image(t, files), CredentialPlugin: test.asked, Self: test.self}
		if path, absent := tokenProgram(r); path != test.want || absent != test.absent {
			t.Errorf("%s: %s, absent %t; want %s, %t", test.name, path, absent, test.want, test.absent)
		}
		if path := nodeadmProgram(r); path != test.own {
			t.Errorf("%s: nodeadm at %q, want %q", test.name, path, test.own)
		}
	}
}
