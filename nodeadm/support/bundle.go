// Package support collects what somebody needs who helps with a node, in one
// archive: without secrets, bounded in size, and without the network, which may
// be what is broken.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/userdata"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/doctor"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// How much is collected: of each file and answer the end, of all of it the
// beginning.
const (
	maxEach         = 2 << 20          // bytes
	maxTotal        = 32 << 20         // bytes, before compression
	programTimeout  = 5 * time.Second  // one program
	programsTimeout = 30 * time.Second // all of them
)

// files are patterns of files of a node. User data and private keys are not
// among them.
var files = []string{
	layout.StatusFile, layout.PendingFile, layout.AppliedFile, layout.Generations + "/*/*.json", layout.DropInDir + "/*",
	layout.KubeletConfig, "/etc/kubernetes/kubelet/config.json", "/etc/kubernetes/kubelet/config.json.d/*", layout.Kubeconfig, layout.BootstrapKubeconfig, layout.CACertificate,
	layout.CredentialProvider, layout.ContainerdConfig, layout.ContainerdConfigDir + "/*.toml", "/etc/containerd/certs.d/*/hosts.toml", layout.BaseRuntimeSpec,
	"/etc/systemd/system/*.service", "/etc/systemd/system/*.service.d/*.conf", "/etc/systemd/system/*.mount", "/etc/systemd/system.conf.d/*.conf", "/etc/systemd/resolved.conf.d/*.conf",
	"/etc/cni/net.d/*", "/etc/sysctl.d/*.conf", "/etc/modules-load.d/*.conf", "/etc/eks/*.txt", "/etc/eks/*.json",
	"/etc/resolv.conf", "/etc/hosts", "/etc/os-release", "/etc/fstab", "/proc/cmdline", "/proc/meminfo", "/proc/mounts", "/proc/swaps", "/proc/net/route", "/proc/net/ipv6_route", "/proc/uptime",
	"/run/cloud-init/status.json", "/run/cloud-init/result.json", "/var/log/cloud-init.log", "/var/log/cloud-init-output.log",
	"/var/log/aws-routed-eni/*.log",
}

// programs are asked what only they know. None of them goes to the network.
var programs = [][]string{
	{"journalctl", "--boot", "--no-pager", "--output=short-precise", "--lines=20000"},
	{"journalctl", "--boot", "--no-pager", "--output=short-precise", "--lines=5000", "--unit=nodeadm*", "--unit=kubelet", "--unit=containerd", "--unit=cloud-*"},
	{"systemctl", "--no-pager", "--all", "list-units"},
	{"systemctl", "--no-pager", "--failed", "list-units"},
	{"systemctl", "--no-pager", "list-jobs"},
	{"systemctl", "--no-pager", "cat", "nodeadm.service", "nodeadm-after-scripts.service", layout.KubeletService, layout.ContainerdService},
	{"systemctl", "--no-pager", "show", layout.KubeletService, layout.ContainerdService},
	{"ip", "address"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"}, {"ip", "neighbour"},
	{"ss", "-anp"}, {"iptables-save"}, {"nft", "list", "ruleset"}, {"networkctl", "--no-pager", "status", "--all"}, {"resolvectl", "--no-pager", "status"},
	{"df", "-h"}, {"df", "-i"}, {"free", "-m"}, {"lsblk", "-f"}, {"findmnt"}, {"ps", "-eo", "pid,ppid,user,rss,etime,stat,comm"}, {"dmesg", "--ctime"}, {"uname", "-a"}, {"timedatectl"},
	{"containerd", "--version"}, {"kubelet", "--version"}, {"containerd", "config", "dump"},
	{"ctr", "--namespace=k8s.io", "images", "ls"}, {"ctr", "--namespace=k8s.io", "containers", "ls"}, {"ctr", "plugins", "ls"}, {"crictl", "pods"}, {"crictl", "ps", "--all"},
}

// Options say what a bundle is made of.
type Options struct {
	Root    rootfs.Root // "/" but in tests
	Version string      // of nodeadm
	Self    string      // this program
	// Documents are the node's configuration. It is not collected, but what is
	// secret in it is taken out of everything else.
	Documents []config.Source
	Doctor    doctor.Report
}

// Write writes a bundle, a compressed tar, and says what is in it. What cannot be
// had is left out, and named in the file "missing" of the bundle.
func Write(ctx context.Context, to io.Writer, o Options) (names []string, err error) {
	compressed := gzip.NewWriter(to)
	b := &bundle{Options: o, archive: tar.NewWriter(compressed), made: time.Now(), room: maxTotal}
	var secrets [][]byte
	for _, source := range o.Documents {
		secrets = append(secrets, plain(source)...)
	}
	for _, path := range b.glob(layout.DropInDir + "/*") {
		if data, err := os.ReadFile(b.host(path)); err == nil {
			secrets = append(secrets, data)
		}
	}
	b.redactor = newRedactor(secrets)
	ctx, cancel := context.WithTimeout(ctx, programsTimeout)
	defer cancel()

	report, err := json.MarshalIndent(o.Doctor, "", "  ")
	if err != nil {
		return nil, err
	}
	b.add("doctor.json", report)
	b.add("nodeadm-version.txt", []byte(o.Version+"\n"))
	for _, pattern := range files {
		for _, path := range b.glob(pattern) {
			b.file(path)
		}
	}
	// AWS's APIs are not asked: a plan that needs them says so.
	for _, argv := range [][]string{{o.Self, "status"}, {o.Self, "history"}, {o.Self, "plan", "--timeout", "4s"}} {
		b.program(ctx, argv, "AWS_ENDPOINT_URL=http://127.0.0.1:9")
	}
	for _, argv := range programs {
		b.program(ctx, argv)
	}
	b.room = maxEach
	b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"))
	return b.names, errors.Join(b.err, b.archive.Close(), compressed.Close())
}

type bundle struct {
	Options
	redactor redactor
	archive  *tar.Writer
	made     time.Time
	room     int
	names    []string
	missing  []string
	err      error
}

func (b *bundle) host(path string) string { return filepath.Join(string(b.Root), path) }

// glob are the paths on the node that a pattern matches.
func (b *bundle) glob(pattern string) (paths []string) {
	found, _ := filepath.Glob(b.host(pattern))
	for _, host := range found {
		paths = append(paths, path.Clean("/"+strings.TrimPrefix(host, string(b.Root))))
	}
	return paths
}

// file adds the end of a file.
func (b *bundle) file(path string) {
	name, err := b.Root.Resolve(path, true)
	if strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/run/") {
		name, err = b.host(path), nil // of the running system, where links lead elsewhere
	}
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %v", path, err))
		return
	}
	data, err := tail(name)
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %v", path, err))
		return
	}
	b.add("files"+path, data)
}

// tail reads the end of a regular file.
func tail(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("no regular file")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info.Size() > maxEach {
		if _, err := file.Seek(-maxEach, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(file, maxEach))
}

// program adds what a program says.
func (b *bundle) program(ctx context.Context, argv []string, environment ...string) {
	command := strings.Join(append([]string{path.Base(argv[0])}, argv[1:]...), " ")
	if _, err := exec.LookPath(argv[0]); err != nil {
		b.missing = append(b.missing, command+": not installed")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0"), environment...)
	cmd.WaitDelay = time.Second
	said := &ending{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %v", command, err))
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune(" /=*", r) {
			return '_'
		}
		return r
	}, strings.ReplaceAll(command, "--", "")), "_")
	b.add("commands/"+name+".txt", said.bytes())
}

// ending keeps the end of what is written to it.
type ending struct{ data []byte }

func (e *ending) Write(p []byte) (int, error) {
	if e.data = append(e.data, p...); len(e.data) > 2*maxEach {
		e.data = slices.Clone(e.data[len(e.data)-maxEach:])
	}
	return len(p), nil
}

func (e *ending) bytes() []byte { return e.data[max(0, len(e.data)-maxEach):] }

// add adds a file without its secrets, as long as there is room.
func (b *bundle) add(name string, data []byte) {
	if b.err != nil {
		return
	}
	data = b.redactor.redact(data)
	if len(data) > b.room {
		b.missing = append(b.missing, fmt.Sprintf("%s: %d bytes, and there is no room for more than %d in all", name, len(data), maxTotal))
		return
	}
	b.room -= len(data)
	header := &tar.Header{Name: "nodeadm-support/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.made, Format: tar.FormatPAX}
	if err := b.archive.WriteHeader(header); err != nil {
		b.err = errors.Join(b.err, err)
		return
	}
	_, err := b.archive.Write(data)
	b.err = errors.Join(b.err, err)
	b.names = append(b.names, name)
}

// plain is a document, and everything that is packed in it.
func plain(source config.Source) [][]byte {
	all := [][]byte{source.Data}
	parts, _ := userdata.Parse(source.Data, source.Name)
	for _, part := range parts {
		all = append(all, part.Data)
	}
	return all
}
