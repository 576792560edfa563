package disks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
)

// stage is a root whose devices are files, where mdadm, wipefs and mkfs.xfs are
// scripts that do to /sys and the files what the kernel and they would. It shows
// what is asked of mdadm also on kernels without arrays.
type stage struct {
	t    *testing.T
	root string
}

// Each device has a file in /held with what wipefs says of it.
var programsOfStage = map[string]string{
	"wipefs": `cat "$STAGE/held/${2##*/}" 2>/dev/null || true`,
	"mkfs.xfs": `echo "mkfs.xfs $*" >>"$STAGE/calls"
for device; do :; done
echo "0x0,4711,$3,xfs" >"$STAGE/held/${device##*/}"`,
	"mdadm": `echo "mdadm $*" >>"$STAGE/calls"
block=$STAGE/sys/class/block
case $1 in
--examine) cat "$STAGE/examine"; exit ;;
--create)
	case $3 in --level=0) level=raid0 ;; *) level=raid10 ;; esac
	printf 'MD_LEVEL=%s\nMD_DEVICES=%s\nMD_NAME=any:kubernetes\nMD_UUID=1:2:3:4\n' $level $(ls -d "$block"/nvme* | wc -l) >"$STAGE/examine" ;;
esac
[ -z "$REFUSE" ] || { echo "mdadm: RUN_ARRAY failed: Invalid argument" >&2; exit 1; }
mkdir -p "$block/md127/md" "$block/md127/slaves"
echo 9:127 >"$block/md127/dev"
echo clean >"$block/md127/md/array_state"
: >"$STAGE/dev/md127"
for device; do
	name=${device##*/}
	case $name in nvme*) ;; *) continue ;; esac
	echo "0x1000,1-2-3-4,any:kubernetes,linux_raid_member" >"$STAGE/held/$name"
	mkdir -p "$block/$name/holders/md127" "$block/md127/slaves/$name"
done`,
	"cp": `exec /bin/cp "$@"`,
}

func newStage(t *testing.T, volumes int) *stage {
	s := &stage{t, t.TempDir()}
	bin := filepath.Join(s.root, "bin")
	dirs := []string{bin, "held", "dev/disk/by-id", "proc/self", "etc/systemd/system", "var/lib/kubelet", "var/log"}
	for _, dir := range dirs {
		s.must(os.MkdirAll(filepath.Join(s.root, strings.TrimPrefix(dir, s.root)), 0o755))
	}
	for name, text := range programsOfStage {
		s.must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh -eu\n"+text+"\n"), 0o755))
	}
	for n := range volumes {
		device := disk(n + 1)
		name := filepath.Base(device.Path)
		s.write("dev/"+name, "")
		s.write("sys/class/block/"+name+"/dev", device.Number)
		s.must(os.Symlink("../../"+name, filepath.Join(s.root, "dev/disk/by-id", instanceStore+name)))
	}
	s.write("proc/self/mountinfo", "")
	s.write("var/lib/kubelet/config", "kubelet's")
	t.Setenv("STAGE", s.root)
	t.Setenv("REFUSE", "")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) write(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	s.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

// calls are those that change something, since the last time.
func (s *stage) calls() (calls []string) {
	file := filepath.Join(s.root, "calls")
	data, _ := os.ReadFile(file)
	_ = os.Remove(file)
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, "--examine") {
			calls = append(calls, strings.ReplaceAll(strings.TrimSpace(line), s.root, ""))
		}
	}
	return calls
}

func (s *stage) run(w Wanted) ([]string, error) {
	n := Node{Root: rootfs.Root(s.root), Manager: s, Report: func(string) {}}
	d, err := n.Run(context.Background(), w)
	var steps []string
	for _, step := range d.Steps {
		steps = append(steps, step.String())
	}
	return steps, err
}

func (s *stage) Reload(context.Context) error              { return nil }
func (s *stage) ResetFailed(context.Context, string) error { return nil }
func (s *stage) Stop(context.Context, string) error        { return nil }

func (s *stage) Enable(_ context.Context, units ...string) error {
	for _, unit := range units {
		s.write("etc/systemd/system/multi-user.target.wants/"+unit, "")
		if strings.HasPrefix(unit, "var-") {
			s.write("etc/systemd/system/kubelet.service.requires/"+unit, "")
		}
	}
	return nil
}

func (s *stage) Start(_ context.Context, unit string) error {
	line := map[string]string{
		`mnt-k8s\x2ddisks-0.mount`: "30 1 9:127 / /mnt/k8s-disks/0 rw - xfs /dev/md127 rw\n",
		"var-lib-kubelet.mount":    "31 1 9:127 /kubelet /var/lib/kubelet rw - xfs /dev/md127 rw\n",
	}[unit]
	data, err := os.ReadFile(filepath.Join(s.root, "proc/self/mountinfo"))
	s.write("proc/self/mountinfo", string(data)+line)
	return err
}

func (s *stage) State(context.Context, string) (systemd.State, error) {
	return systemd.State{Active: "inactive"}, nil
}

func TestRunArray(t *testing.T) {
	disabled := []string{"Containerd", "PodLogs", "SOCI"}
	for _, test := range []struct {
		level   string
		volumes int
		options string
		devices string
	}{
		{"raid0", 2, "--level=0 --name=kubernetes --homehost=any", "/dev/nvme1n1 /dev/nvme2n1"},
		{"raid10", 4, "--level=10 --name=kubernetes --homehost=any --bitmap=internal", "/dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1 /dev/nvme4n1"},
	} {
		t.Run(test.level, func(t *testing.T) {
			s := newStage(t, test.volumes)
			w := Wanted{Strategy: test.level, Disabled: disabled}
			listed := strings.ReplaceAll(test.devices, " ", ", ")
			mounts := []string{"mount /dev/md127: at /mnt/k8s-disks/0", "move /var/lib/kubelet: to /mnt/k8s-disks/0/kubelet"}
			steps, err := s.run(w)
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"create /dev/md/kubernetes: " + test.level + " of " + listed, "format /dev/md127: xfs, label k8s-disk-0"}, mounts...)
			if diff := cmp.Diff(want, steps); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{
				"mdadm --create /dev/md/kubernetes " + test.options + " --raid-devices=" + string('0'+rune(test.volumes)) + " " + test.devices,
				"mkfs.xfs -q -L k8s-disk-0 -l su=8b /dev/md127",
			}, s.calls()); diff != "" {
				t.Error(diff)
			}
			if data, err := os.ReadFile(filepath.Join(s.root, "mnt/k8s-disks/0/kubelet/config")); string(data) != "kubelet's" {
				t.Errorf("%q, %v", data, err)
			}

			if steps, err := s.run(w); err != nil || len(steps) > 0 || len(s.calls()) > 0 {
				t.Errorf("a second run: %v, %v", steps, err)
			}

			// After a boot without udev's rules for arrays.
			s.write("proc/self/mountinfo", "")
			s.must(os.RemoveAll(filepath.Join(s.root, "sys/class/block/md127")))
			for n := range test.volumes {
				s.must(os.RemoveAll(filepath.Join(s.root, "sys/class/block", filepath.Base(disk(n+1).Path), "holders")))
			}
			if steps, err = s.run(w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{"assemble /dev/md/kubernetes: " + test.level + " of " + listed}, mounts...), steps); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"mdadm --assemble /dev/md/kubernetes --uuid=1:2:3:4 " + test.devices}, s.calls()); diff != "" {
				t.Error(diff)
			}

			s.write("held/md127", "0x438,1,data,ext4\n")
			if steps, err := s.run(w); err == nil || !strings.Contains(err.Error(), `/dev/md127 holds ext4 "data"`) || len(steps) > 0 {
				t.Errorf("%v, %v", steps, err)
			}
			s.write("sys/class/block/md127/md/array_state", "inactive")
			if steps, err := s.run(w); err == nil || !strings.Contains(err.Error(), "/dev/md127, the array kubernetes, does not run") || len(steps) > 0 {
				t.Errorf("%v, %v", steps, err)
			}
		})
	}
}

// mdadm may have written to the devices before it fails; it is not tried over and
// over again, and the next run says what is there.
func TestRunArrayFails(t *testing.T) {
	s := newStage(t, 2)
	t.Setenv("REFUSE", "1")
	steps, err := s.run(Wanted{Strategy: "raid0"})
	if err == nil || !strings.Contains(err.Error(), "RUN_ARRAY failed") || len(steps) > 0 || len(s.calls()) != 1 {
		t.Errorf("%v, %v", steps, err)
	}
}

func TestInspectLinks(t *testing.T) {
	s := newStage(t, 0)
	for link, name := range map[string]string{"AWS1": "nvme10n1", "AWS1_1": "nvme10n1", "AWS2": "nvme2n1", "AWS2-part1": "nvme2n1p1"} {
		s.must(os.Symlink("../../"+name, filepath.Join(s.root, "dev/disk/by-id", instanceStore+link)))
		s.write("sys/class/block/"+name+"/dev", "259:1")
	}
	s.must(os.Symlink("../../nvme0n1", filepath.Join(s.root, "dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1")))
	n := Node{Root: rootfs.Root(s.root)}
	if got, err := n.volumes(); err != nil || !slices.Equal(got, []string{"nvme2n1", "nvme10n1"}) {
		t.Errorf("%v, %v", got, err)
	}
	s.must(os.Symlink("../../sr0", filepath.Join(s.root, "dev/disk/by-id", instanceStore+"AWS3")))
	if got, err := n.volumes(); err == nil || !strings.Contains(err.Error(), "leads to sr0, which is not a block device") {
		t.Errorf("%v, %v", got, err)
	}
	s.must(os.RemoveAll(filepath.Join(s.root, "dev")))
	if got, err := n.Inspect(context.Background()); err != nil || len(got.Disks) > 0 {
		t.Errorf("without volumes: %v, %v", got, err)
	}
}
