package packer

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/test/machine"
	"github.com/eks-bootstrap/nodeadm/test/release"
)

//go:embed rootfs.sh
var recipe string

// TestBuild has packer make an image: the templates' own provisioners, over SSH,
// on an instance. Only who starts the instance differs, which is not Amazon but
// this test. A second instance boots from the image and becomes a node; then the
// same is done to that one, and makes the same image.
func TestBuild(t *testing.T) {
	machine.Require(t)
	require(t, "packer")
	kubelet := machine.StandInKubelet(t, "1.34.4")
	deb := release.Deb(t)
	b := &build{
		templates: templates(t),
		variables: variables(deb, released(t, deb), "http://127.0.0.1:8080/"+filepath.Base(kubelet), sum(t, kubelet)),
		kubelet:   kubelet,
	}

	first := newInstance(t, 1)
	b.Machine = machine.Boot(t, machine.Options{
		Recipe:    recipe,
		Hostname:  first.Hostname,
		Simulator: &machine.Simulator{Binary: machine.BuildNodeadm(t), ConfigYAML: first.document},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	start := time.Now()
	// A file that is another than was said is not installed, and ends the build.
	other := strings.Repeat("0123456789abcdef", 4)
	for _, program := range []string{"kubelet", "nodeadm"} {
		out, err := b.packer(t, first, "-var="+program+"_sha256="+other)
		if err == nil || !strings.Contains(out, "computed checksum did NOT match") || b.Exists("/usr/bin/"+program) {
			t.Fatalf("with another %s: %v\n%s", program, err, out)
		}
	}

	out, err := b.packer(t, first)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fmt.Printf("packer build, refused twice and then done: %v\n", time.Since(start).Round(time.Second))
	if want := "the image has what a node needs"; !strings.Contains(out, want) {
		t.Errorf("packer does not say %q:\n%s", want, out)
	}
	b.PowerOff()
	second := newInstance(t, 2)
	b.WriteFile("/etc/nodeadm-test/world.yaml", machine.File{Content: string(second.document), Mode: 0o600})
	b.wantImage(ctx, t, first)
	before := b.tree(t)

	b.PowerOn()
	if up := b.WaitBooted(ctx); up.State != "running" {
		t.Errorf("the second instance is %s, failed: %v\n%s", up.State, up.Failed, b.Journal("nodeadm.service"))
	}
	if got := b.MustRun(ctx, "systemctl", "is-active", "kubelet.service", "containerd.service"); got != "active\nactive\n" {
		t.Errorf("the second instance's kubelet and containerd are %q", got)
	}
	// The release's other files, over the deb: the same bytes in the same places.
	// rpm then takes away what it brought, which the build has to mend.
	b.WriteFile("/var/nodeadm.sh", machine.File{Source: machine.Source(t, "packer/scripts/nodeadm.sh")})
	for _, suffix := range []string{".tar.gz", ".rpm"} {
		pkg, there := strings.TrimSuffix(deb, ".deb")+suffix, "/var/nodeadm"+suffix
		b.WriteFile(there, machine.File{Source: pkg})
		got := b.MustRun(ctx, "env", "NODEADM_PACKAGE="+there, "NODEADM_SHA256="+released(t, pkg), "bash", "/var/nodeadm.sh")
		if got != "nothing to do: everything is installed\n" {
			t.Errorf("%s: %s", suffix, got)
		}
		b.MustRun(ctx, "rm", there)
	}
	b.MustRun(ctx, "rpm", "--erase", "nodeadm")
	b.MustRun(ctx, "rm", "-r", "/var/nodeadm.sh", "/root/.rpmdb", "/usr/share/licenses")

	start = time.Now()
	if out, err := b.packer(t, second); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fmt.Printf("packer build, once more on an instance of that image: %v\n", time.Since(start).Round(time.Second))
	b.PowerOff()
	third := newInstance(t, 3)
	b.WriteFile("/etc/nodeadm-test/world.yaml", machine.File{Content: string(third.document), Mode: 0o600})
	b.wantImage(ctx, t, second)
	if diff := cmp.Diff(before, b.tree(t)); diff != "" {
		t.Errorf("the second image is another (-first +second):\n%s", diff)
	}
}

// build is an instance, and what packer does to it.
type build struct {
	*machine.Machine
	templates string
	variables []string
	kubelet   string
}

// templates are those of packer/ with another kind of source: an instance that
// runs already.
func templates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(machine.Source(t, "packer/scripts"), filepath.Join(dir, "scripts")); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(machine.Source(t, "packer/"+name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const amazon, running = `"source.amazon-ebs.`, `"source.null.`
	provisioners := read("build.pkr.hcl")
	if n := strings.Count(provisioners, amazon); n != len(sources) || strings.Count(provisioners, "amazon") != n {
		t.Fatalf("build.pkr.hcl names amazon otherwise than as %d sources", len(sources))
	}
	instances := "variable \"key\" {}\n"
	for _, source := range sources {
		instances += fmt.Sprintf("source \"null\" %q {\n  ssh_host = \"127.0.0.1\"\n  ssh_username = \"admin\"\n  ssh_private_key_file = var.key\n  ssh_timeout = \"1m\"\n}\n", source)
	}
	for name, text := range map[string]string{
		"build.pkr.hcl":     strings.ReplaceAll(provisioners, amazon, running),
		"variables.pkr.hcl": read("variables.pkr.hcl"),
		"sources.pkr.hcl":   instances,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packer runs a build from within the instance's network, where kubelet can be
// downloaded too.
func (b *build) packer(t *testing.T, in instance, more ...string) (string, error) {
	t.Helper()
	l, err := b.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(filepath.Dir(b.kubelet)))}
	go server.Serve(l)
	defer server.Close()
	args := slices.Concat([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", b.Leader()), "packer", "build", "-color=false", "-only=null.debian-12"},
		b.variables, []string{"-var=key=" + in.key}, more, []string{b.templates})
	out, err := packer(t, args...).CombinedOutput()
	return string(out), err
}

// instance is who a machine is.
type instance struct {
	simulator.Instance
	document  []byte // the simulator's
	key       string // the path of the private key to log in with
	publicKey string
}

func newInstance(t *testing.T, n int) instance {
	t.Helper()
	w := simulator.Default()
	in := &w.Instance
	in.ID, in.LocalIPv4 = fmt.Sprintf("i-0%d23456789abcdef0", n), fmt.Sprintf("192.168.18.23%d", n)
	in.Hostname = strings.ReplaceAll("ip-"+in.LocalIPv4, ".", "-") + ".eu-west-1.compute.internal"
	in.PrivateDNSName, in.MAC = in.Hostname, fmt.Sprintf("0a:00:c0:a8:12:e%d", n)
	private, public := keyPair(t)
	w.UserData = fmt.Sprintf(`MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/cloud-config

#cloud-config
ssh_authorized_keys: [%q]

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: ironman-2022, apiServerEndpoint: %q, certificateAuthority: %s, cidr: 10.100.0.0/16}

--//--
`, public, w.Cluster.Endpoint, w.Cluster.CertificateAuthority)
	document, err := w.Document()
	if err != nil {
		t.Fatal(err)
	}
	return instance{w.Instance, document, private, public}
}

// keyPair makes a key of the kind that EC2 makes for packer.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private = filepath.Join(t.TempDir(), "key.pem")
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := os.WriteFile(private, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	var blob []byte // RFC 4253, 6.6
	for _, field := range [][]byte{[]byte("ssh-rsa"), big.NewInt(int64(key.E)).Bytes(), append([]byte{0}, key.N.Bytes()...)} {
		blob = append(binary.BigEndian.AppendUint32(blob, uint32(len(field))), field...)
	}
	return private, "ssh-rsa " + base64.StdEncoding.EncodeToString(blob)
}

// wantImage looks at the disk of the machine, which is off: it has to be an
// image, with nothing of the instance that it was made on.
func (b *build) wantImage(ctx context.Context, t *testing.T, in instance) {
	t.Helper()
	root := b.Root()
	// The image's own nodeadm, since check compares that with itself; copied, since
	// the disk is in a mount namespace of its own.
	own := filepath.Join(t.TempDir(), "nodeadm")
	if err := os.WriteFile(own, []byte(b.ReadFile("/usr/bin/nodeadm")), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, own, "image", "check", "--root", root).CombinedOutput(); err != nil {
		t.Errorf("image check --root: %v\n%s", err, out)
	}
	for path, want := range map[string]string{
		"/etc/eks/bootstrap.sh":                                       "/usr/bin/nodeadm",
		"/etc/eks/max-pods-calculator.sh":                             "/usr/bin/nodeadm",
		"/etc/systemd/system/multi-user.target.wants/nodeadm.service": "/usr/lib/systemd/system/nodeadm.service",
	} {
		if to, err := os.Readlink(root + path); err != nil || to != want {
			t.Errorf("%s leads to %q, %v", path, to, err)
		}
	}
	if got := b.ReadFile("/etc/eks/kubelet-version.txt"); got != "v1.34.4\n" {
		t.Errorf("kubelet-version.txt: %q", got)
	}
	if got := b.ReadFile("/etc/machine-id"); got != "" {
		t.Errorf("machine-id: %q", got)
	}
	for _, path := range []string{"/usr/bin/containerd", "/usr/sbin/runc", "/opt/cni/bin/loopback", "/opt/cni/bin/host-local", "/etc/eks/nodeadm.d", "/usr/lib/systemd/system/nodeadm.service", "/etc/containerd/certs.d"} {
		if !b.Exists(path) {
			t.Errorf("%s is missing", path)
		}
	}
	for _, path := range []string{"/etc/kubernetes", "/etc/hostname", "/var/lib/kubelet/kubeconfig", "/var/lib/nodeadm", "/home/admin/.ssh/authorized_keys", "/var/lib/cloud/instance", "/etc/systemd/system/multi-user.target.wants/kubelet.service"} {
		if b.Exists(path) {
			t.Errorf("%s is on the image", path)
		}
	}
	if left, err := filepath.Glob(root + "/etc/ssh/ssh_host_*"); err != nil || len(left) > 0 {
		t.Errorf("host keys: %v, %v", left, err)
	}
	if left, err := filepath.Glob(root + "/tmp/*nodeadm*"); err != nil || len(left) > 0 {
		t.Errorf("in /tmp: %v, %v", left, err)
	}
	name, _, _ := strings.Cut(in.Hostname, ".")
	_, key, _ := strings.Cut(in.publicKey, " ")
	for _, word := range []string{in.ID, name, in.LocalIPv4, in.MAC, key} {
		out, err := exec.CommandContext(ctx, "grep", "--recursive", "--files-with-matches", "--fixed-strings", "--binary-files=text", "--devices=skip", word,
			root+"/etc", root+"/home", root+"/opt", root+"/root", root+"/srv", root+"/tmp", root+"/usr/local/bin", root+"/var").CombinedOutput()
		if exit, ok := err.(*exec.ExitError); err == nil || !ok || exit.ExitCode() != 1 {
			t.Errorf("%s of the instance is still in: %v\n%s", word, err, out)
		}
	}
}

// passing are the paths in which two images of one machine may differ: logs,
// databases of packages and containers, and what cloud-init dates and adds to.
var passing = []string{"/etc/nodeadm-test", "/etc/sudoers.d/90-cloud-init-users", "/var/cache", "/var/lib/containerd", "/var/lib/dpkg", "/var/log"}

// tree is every file of the disk: its mode and a checksum, or where it leads.
func (b *build) tree(t *testing.T) map[string]string {
	t.Helper()
	root, tree := b.Root(), map[string]string{}
	for _, top := range []string{"/boot", "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/var"} {
		err := filepath.WalkDir(root+top, func(host string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			path := strings.TrimPrefix(host, root)
			if slices.Contains(passing, path) {
				if e.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			tree[path] = info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				tree[path] += " " + sum(t, host)
			case info.Mode()&fs.ModeSymlink != 0:
				to, err := os.Readlink(host)
				tree[path] += " " + to
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// released is what the release says is the checksum of one of its files.
func released(t *testing.T, path string) string {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(filepath.Dir(path), "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		if s, name, _ := strings.Cut(strings.TrimSpace(line), "  "); name == filepath.Base(path) {
			return s
		}
	}
	t.Fatalf("SHA256SUMS does not name %s:\n%s", path, sums)
	return ""
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}
