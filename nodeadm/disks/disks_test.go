package disks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// disk is an empty volume, nvme1n1 being the first.
func disk(n int) Device {
	return Device{Path: fmt.Sprintf("/dev/nvme%dn1", n), Number: fmt.Sprintf("259:%d", n)}
}

func empty(count int) (disks []Device) {
	for n := range count {
		disks = append(disks, disk(n+1))
	}
	return disks
}

// holding is a volume with signatures.
func holding(n int, signatures ...Signature) Device {
	d := disk(n)
	d.Signatures = signatures
	return d
}

// formatted is a volume with a filesystem of nodeadm's.
func formatted(n, number int) Device {
	return holding(n, Signature{"xfs", fmt.Sprintf("k8s-disk-%d", number), fmt.Sprintf("uuid-%d", number)})
}

// members are the volumes of an array; holder is "" for one that is not assembled.
func members(count int, level, holder string) (disks []Device) {
	for n := range count {
		d := holding(n+1, Signature{"linux_raid_member", "any:kubernetes", "array"})
		d.Member = &Member{Name: "kubernetes", UUID: "array", Level: level, Devices: count}
		if holder != "" {
			d.Holders, d.Busy = []string{holder}, true
		}
		disks = append(disks, d)
	}
	return disks
}

// array is one of members, with a filesystem unless there are no signatures.
func array(level string, of []Device, signatures ...Signature) Array {
	return Array{Device: Device{Path: "/dev/md127", Number: "9:127", Signatures: signatures}, Level: level, Running: true, Members: names(of)}
}

// mounted is a state in which a device is mounted for raid0 or raid10, with the
// directories moved.
func mounted(s State, number, uuid string) State {
	const path = "/mnt/k8s-disks"
	s.Units = map[string]Unit{}
	stand := func(u unitFile) { s.Units[u.name] = Unit{u.text, u.links()} }
	s.Mounts = append(s.Mounts, Mount{number, "/", path + "/0", "/dev/x"})
	stand(filesystemUnit(path+"/0", uuid))
	for _, m := range moves {
		s.Mounts = append(s.Mounts, Mount{number, "/" + m.where[strings.LastIndex(m.where, "/")+1:], m.where, "/dev/x"})
		stand(moveUnit(m, path+"/0"))
	}
	return s
}

var moved = []string{
	"move /var/lib/kubelet: to /mnt/k8s-disks/0/kubelet",
	"move /var/lib/containerd: to /mnt/k8s-disks/0/containerd",
	"move /var/log/pods: to /mnt/k8s-disks/0/pods",
	"move /var/lib/soci-snapshotter: to /mnt/k8s-disks/0/soci-snapshotter",
}

func with(first ...string) []string { return append(first, moved...) }

func TestDecide(t *testing.T) {
	raid0, raid10, mount := Wanted{Strategy: "raid0"}, Wanted{Strategy: "raid10"}, Wanted{Strategy: "mount"}
	xfs := Signature{"xfs", "k8s-disk-0", "uuid-0"}
	ext4 := Signature{"ext4", "data", "1"}
	running2 := members(2, "raid0", "md127")
	complete := mounted(State{Disks: running2, Arrays: []Array{array("raid0", running2, xfs)}}, "9:127", "uuid-0")
	single := mounted(State{Disks: []Device{formatted(1, 0)}}, "259:1", "uuid-0")

	without := func(s State, where string) State {
		var left []Mount
		for _, m := range s.Mounts {
			if m.Where != where {
				left = append(left, m)
			}
		}
		s.Mounts = left
		return s
	}
	changed := func(s State, unit, text string, enabled ...string) State {
		units := map[string]Unit{}
		for name, u := range s.Units {
			units[name] = u
		}
		units[unit] = Unit{text, enabled}
		s.Units = units
		return s
	}

	for _, test := range []struct {
		name  string
		w     Wanted
		s     State
		steps []string
		note  string
	}{
		{"no volumes", raid0, State{}, nil, "nothing to do"},
		{"no volumes, raid10", raid10, State{}, nil, "nothing to do"},
		{"raid0 of two", raid0, State{Disks: empty(2)}, with("create /dev/md/kubernetes: raid0 of /dev/nvme1n1, /dev/nvme2n1", "format /dev/md/kubernetes: xfs, label k8s-disk-0", "mount /dev/md/kubernetes: at /mnt/k8s-disks/0"), ""},
		{"raid10 of four", raid10, State{Disks: empty(4)}, with("create /dev/md/kubernetes: raid10 of /dev/nvme1n1, /dev/nvme2n1, /dev/nvme3n1, /dev/nvme4n1", "format /dev/md/kubernetes: xfs, label k8s-disk-0", "mount /dev/md/kubernetes: at /mnt/k8s-disks/0"), ""},
		{"raid0 of one is a plain filesystem", raid0, State{Disks: empty(1)}, with("format /dev/nvme1n1: xfs, label k8s-disk-0", "mount /dev/nvme1n1: at /mnt/k8s-disks/0"), ""},
		{"everything disabled that can be", Wanted{"raid0", "/local/", []string{"Containerd", "PodLogs", "SOCI"}}, State{Disks: empty(1)},
			[]string{"format /dev/nvme1n1: xfs, label k8s-disk-0", "mount /dev/nvme1n1: at /local/0", "move /var/lib/kubelet: to /local/0/kubelet"}, ""},
		{"nothing to do", raid0, complete, nil, ""},
		{"nothing to do, one volume", raid0, single, nil, ""},
		{"cut short after create", raid0, State{Disks: running2, Arrays: []Array{array("raid0", running2)}}, with("format /dev/md127: xfs, label k8s-disk-0", "mount /dev/md127: at /mnt/k8s-disks/0"), ""},
		{"cut short after format", raid0, State{Disks: running2, Arrays: []Array{array("raid0", running2, xfs)}}, with("mount /dev/md127: at /mnt/k8s-disks/0"), ""},
		{"a filesystem of setup-local-disks on the array", raid0, State{Disks: running2, Arrays: []Array{array("raid0", running2, Signature{"xfs", "", "u"})}}, with("mount /dev/md127: at /mnt/k8s-disks/0"), ""},
		{"an array that is not assembled", raid0, State{Disks: members(2, "raid0", "")}, with("assemble /dev/md/kubernetes: raid0 of /dev/nvme1n1, /dev/nvme2n1", "mount /dev/md/kubernetes: at /mnt/k8s-disks/0"), ""},
		{"one mount is missing", raid0, without(complete, "/var/log/pods"), moved[2:3], ""},
		{"a unit that somebody else wrote", raid0, changed(complete, "var-lib-kubelet.mount", "x", "multi-user.target.wants", "kubelet.service.requires"), moved[:1], ""},
		{"a unit that is not enabled", raid0, changed(complete, "mnt-k8s\\x2ddisks-0.mount", filesystemUnit("/mnt/k8s-disks/0", "uuid-0").text), []string{"mount /dev/md127: at /mnt/k8s-disks/0"}, ""},
		{"a move that its service does not require", raid0, changed(complete, "var-lib-containerd.mount", moveUnit(moves[1], "/mnt/k8s-disks/0").text, "multi-user.target.wants"), moved[1:2], ""},
		{"an empty volume beside the array", raid0, func() State {
			s := complete
			s.Disks = append(s.Disks[:2:2], disk(3))
			return s
		}(), nil, "/dev/nvme3n1 is left alone"},
		{"a degraded raid10", raid10, func() State {
			of := members(4, "raid10", "md127")[:3]
			return mounted(State{Disks: of, Arrays: []Array{array("raid10", of, xfs)}}, "9:127", "uuid-0")
		}(), nil, "runs with 3 of 4 devices"},
		{"mount", mount, State{Disks: empty(2)}, []string{"format /dev/nvme1n1: xfs, label k8s-disk-1", "mount /dev/nvme1n1: at /mnt/k8s-disks/1", "format /dev/nvme2n1: xfs, label k8s-disk-2", "mount /dev/nvme2n1: at /mnt/k8s-disks/2"}, ""},
		{"mount: the names have changed, and one is new", mount, State{Disks: []Device{disk(1), formatted(2, 1), formatted(3, 3)}},
			[]string{"format /dev/nvme1n1: xfs, label k8s-disk-2", "mount /dev/nvme1n1: at /mnt/k8s-disks/2", "mount /dev/nvme2n1: at /mnt/k8s-disks/1", "mount /dev/nvme3n1: at /mnt/k8s-disks/3"}, ""},
		{"mount: nothing to do", mount, State{Disks: []Device{formatted(1, 1)}, Mounts: []Mount{{"259:1", "/", "/mnt/k8s-disks/1", "/dev/nvme1n1"}},
			Units: map[string]Unit{"mnt-k8s\\x2ddisks-1.mount": {filesystemUnit("/mnt/k8s-disks/1", "uuid-1").text, []string{"multi-user.target.wants"}}}}, nil, ""},
		{"somebody mounts a directory of it elsewhere", raid0, func() State {
			s := single
			s.Mounts = append([]Mount{{"259:1", "/kubelet/pods/x", "/var/lib/kubelet/pods/y", "/dev/nvme1n1"}}, s.Mounts...)
			return s
		}(), nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := Decide(test.w, test.s)
			if err != nil {
				t.Fatal(err)
			}
			var steps []string
			for _, s := range d.Steps {
				steps = append(steps, s.String())
			}
			if diff := cmp.Diff(test.steps, steps); diff != "" {
				t.Error(diff)
			}
			if notes := strings.Join(d.Notes, "\n"); !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, test.note)
			}
		})
	}

	busy := func(d Device) Device { d.Busy = true; return d }
	partitioned := holding(1, Signature{"gpt", "", ""})
	partitioned.Partitions = []string{"nvme1n1p1"}
	lvm := holding(1, Signature{"LVM2_member", "", "1"})
	lvm.Holders, lvm.Busy = []string{"dm-0"}, true
	foreign := members(2, "raid0", "md127")
	for i := range foreign {
		foreign[i].Member = &Member{Name: "data", Level: "raid0"}
	}
	two := members(2, "raid0", "")
	two[1].Member = &Member{Name: "kubernetes", UUID: "other", Level: "raid0", Devices: 2}
	notRunning := array("raid0", running2)
	notRunning.Running = false
	notRunning.Members = notRunning.Members[:1]
	withEBS := array("raid0", running2, xfs)
	withEBS.Members = append(withEBS.Members, "/dev/nvme9n1")

	for _, test := range []struct {
		name         string
		w            Wanted
		s            State
		code         fault.Code
		want, remedy string
	}{
		{"a filesystem", raid0, State{Disks: []Device{disk(1), holding(2, ext4)}}, fault.Disk, `/dev/nvme2n1 holds ext4 "data", which nodeadm did not put there for --local-disks raid0; nothing was touched`, "wipefs --all /dev/nvme2n1"},
		{"a filesystem, mount", mount, State{Disks: []Device{disk(1), holding(2, ext4)}}, fault.Disk, `/dev/nvme2n1 holds ext4 "data"`, "wipefs --all /dev/nvme2n1"},
		{"all of them are named", mount, State{Disks: []Device{holding(1, ext4), holding(2, Signature{"swap", "", ""})}}, fault.Disk, "/dev/nvme1n1 holds ext4 \"data\", which nodeadm did not put there for --local-disks mount; nothing was touched\n/dev/nvme2n1 holds swap", ""},
		{"a mounted filesystem", raid0, State{Disks: []Device{busy(holding(1, ext4))}, Mounts: []Mount{{"259:1", "/", "/data", "/dev/nvme1n1"}}}, fault.Disk, `holds ext4 "data", mounted at /data`, ""},
		{"a filesystem of setup-local-disks", mount, State{Disks: []Device{holding(1, Signature{"xfs", "", "1"})}}, fault.Disk, "/dev/nvme1n1 holds xfs", "xfs_admin -L k8s-disk-1 /dev/nvme1n1"},
		{"a label that is nearly nodeadm's", mount, State{Disks: []Device{holding(1, Signature{"xfs", "k8s-disk-01", "1"})}}, fault.Disk, `xfs "k8s-disk-01"`, ""},
		{"nodeadm's label on something else", mount, State{Disks: []Device{holding(1, Signature{"ext4", "k8s-disk-1", "1"})}}, fault.Disk, `ext4 "k8s-disk-1"`, ""},
		{"a second signature", mount, State{Disks: []Device{holding(1, Signature{"xfs", "k8s-disk-1", "1"}, Signature{"dos", "", ""})}}, fault.Disk, `xfs "k8s-disk-1" and dos`, ""},
		{"partitions", raid0, State{Disks: []Device{partitioned}}, fault.Disk, "holds gpt and partitions nvme1n1p1", ""},
		{"LVM", raid0, State{Disks: []Device{lvm}}, fault.Disk, "holds LVM2_member and something that dm-0 is made of", ""},
		{"held by a program", raid0, State{Disks: []Device{busy(disk(1))}}, fault.Disk, "/dev/nvme1n1 is in use by a program or the kernel", "lsof /dev/nvme1n1"},
		{"somebody else's array", raid0, State{Disks: foreign, Arrays: []Array{array("raid0", foreign, ext4)}}, fault.Disk, `a part of the array "data"`, ""},
		{"nodeadm's array, and mount", mount, State{Disks: members(2, "raid0", "md127")}, fault.Disk, `a part of the array "kubernetes"`, ""},
		{"another level", raid10, State{Disks: running2, Arrays: []Array{array("raid0", running2, xfs)}}, fault.Disk, "hold the raid0 array kubernetes, and raid10 is asked for", "ask for raid0"},
		{"something else on the array", raid0, State{Disks: running2, Arrays: []Array{array("raid0", running2, ext4)}}, fault.Disk, `/dev/md127 holds ext4 "data"`, ""},
		{"an array with a member that is not instance store", raid0, State{Disks: running2, Arrays: []Array{withEBS}}, fault.Disk, "/dev/nvme9n1 in it is not an instance store volume", ""},
		{"an array that has stopped half-way", raid0, State{Disks: running2, Arrays: []Array{notRunning}}, fault.Disk, "does not run: it has 1 of 2 devices", "mdadm --stop /dev/md127"},
		{"two arrays", raid0, State{Disks: two}, fault.Disk, "parts of two different arrays", ""},
		{"a member is missing", raid0, State{Disks: members(2, "raid0", "")[:1]}, fault.Disk, "needs 2 devices, and only /dev/nvme1n1 are there", "wipefs --all /dev/nvme1n1"},
		{"a member in use", raid0, State{Disks: []Device{busy(members(1, "raid0", "")[0])}}, fault.Disk, "which does not run, and is in use", ""},
		{"volumes of mount, and raid0", raid0, State{Disks: []Device{formatted(1, 1), formatted(2, 2)}}, fault.Disk, `xfs "k8s-disk-1"`, ""},
		{"one volume of raid0, and mount", mount, State{Disks: []Device{formatted(1, 0)}}, fault.Disk, `xfs "k8s-disk-0"`, ""},
		{"two of one label", mount, State{Disks: []Device{formatted(1, 1), formatted(2, 1)}}, fault.Disk, "/dev/nvme1n1 and /dev/nvme2n1 are both labelled k8s-disk-1", "wipefs --all /dev/nvme2n1"},
		{"raid10 of one", raid10, State{Disks: empty(1)}, fault.Usage, "raid10 needs an even number of instance store volumes, four or more; this instance has 1: /dev/nvme1n1", "use raid0 or mount"},
		{"raid10 of two", raid10, State{Disks: empty(2)}, fault.Usage, "this instance has 2", ""},
		{"raid10 of five", raid10, State{Disks: empty(5)}, fault.Usage, "this instance has 5", ""},
		{"the place is taken", mount, State{Disks: empty(1), Mounts: []Mount{{"8:1", "/", "/mnt/k8s-disks/1", "/dev/sda1"}}}, fault.Disk, "/mnt/k8s-disks/1 is taken: /dev/sda1 is mounted there", "another mountPath"},
		{"another mountPath than last time", Wanted{Strategy: "raid0", Path: "/new"}, single, fault.Disk, "/dev/nvme1n1 is mounted at /mnt/k8s-disks/0, and not at /new/0", "set mountPath"},
		{"containerd has a disk of its own", raid0, State{Disks: empty(1), Mounts: []Mount{{"8:1", "/", "/var/lib/containerd", "/dev/sda1"}}}, fault.Disk, "/var/lib/containerd is a mount of its own, of /dev/sda1", "add Containerd to spec.instance.localStorage.disabledMounts"},
		{"pods run", raid0, State{Disks: empty(1), Mounts: []Mount{{"0:50", "/", "/var/lib/kubelet/pods/1/volumes/x", "tmpfs"}}}, fault.Disk, "/var/lib/kubelet is in use: /var/lib/kubelet/pods/1/volumes/x is mounted below it", "drain the node"},
		{"a symbolic link", raid0, State{Disks: empty(1), Links: map[string]string{"/var/lib/kubelet": "/data"}}, fault.Disk, "/var/lib/kubelet is a symbolic link to /data", ""},
		{"mountPath inside of what is moved", Wanted{Strategy: "raid0", Path: "/var/lib/kubelet/disks"}, State{Disks: empty(1)}, fault.Usage, "/var/lib/kubelet/disks and /var/lib/kubelet", ""},
		{"mountPath above of what is moved", Wanted{Strategy: "raid0", Path: "/var/lib"}, State{Disks: empty(1)}, fault.Usage, "/var/lib and /var/lib/kubelet", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := Decide(test.w, test.s)
			if err == nil {
				t.Fatalf("steps: %v", d.Steps)
			}
			if len(d.Steps) > 0 {
				t.Errorf("an error, and steps: %v", d.Steps)
			}
			if fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d: %v, want %d: %s", fault.CodeOf(err), err, test.code, test.want)
			}
			fault.Each(err, func(err error) {
				if remedy := fault.Remedy(err); remedy == "" || !strings.Contains(remedy, test.remedy) {
					t.Errorf("remedy %q, want %q", remedy, test.remedy)
				}
			})
		})
	}
}

func TestUnits(t *testing.T) {
	u := filesystemUnit("/mnt/k8s-disks/0", "4711")
	if want := "# Written by nodeadm for --local-disks.\n[Unit]\nDescription=Instance store volumes\n\n" +
		"[Mount]\nWhat=/dev/disk/by-uuid/4711\nWhere=/mnt/k8s-disks/0\nType=xfs\nOptions=defaults,noatime\n\n" +
		"[Install]\nWantedBy=multi-user.target\n"; u.text != want || u.name != `mnt-k8s\x2ddisks-0.mount` {
		t.Errorf("%s\n%s", u.name, u.text)
	}
	u = moveUnit(moves[2], "/mnt/k8s-disks/0")
	if want := "# Written by nodeadm for --local-disks.\n[Unit]\nDescription=/var/log/pods on instance store volumes\nBefore=kubelet.service\n\n" +
		"[Mount]\nWhat=/mnt/k8s-disks/0/pods\nWhere=/var/log/pods\nType=none\nOptions=bind\n\n" +
		"[Install]\nWantedBy=multi-user.target\nRequiredBy=kubelet.service\n"; u.text != want || u.name != "var-log-pods.mount" {
		t.Errorf("%s\n%s", u.name, u.text)
	}
	for where, want := range map[string]string{"/mnt/x/./y": "mnt-x-.-y.mount", "/.data/0": `\x2edata-0.mount`, "/a_b/1": "a_b-1.mount"} {
		if got := filesystemUnit(where, "").name; got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	got := parseSignatures([]byte("# offset,uuid,label,type\n0x438,e42,my\\x20data,x,ext4\n0x200,,,gpt\n0x1ffe00,,,gpt\n0x1fe,,,PMBR\n0x1000,1,any:kubernetes,linux_raid_member\n"))
	if diff := cmp.Diff([]Signature{{"ext4", `my\x20data,x`, "e42"}, {"gpt", "", ""}, {"PMBR", "", ""}, {"linux_raid_member", "any:kubernetes", "1"}}, got); diff != "" {
		t.Error(diff)
	}
	if got := parseSignatures(nil); got != nil {
		t.Errorf("of an empty device: %v", got)
	}
	member := parseMember([]byte("MD_LEVEL=raid10\nMD_DEVICES=4\nMD_METADATA=1.2\nMD_NAME=ip-10-0-0-1:kubernetes\nMD_UUID=1:2:3:4\n"))
	if diff := cmp.Diff(&Member{"kubernetes", "1:2:3:4", "raid10", 4}, member); diff != "" {
		t.Error(diff)
	}
	if a, b := countable("nvme2n1"), countable("nvme10n1"); a >= b {
		t.Errorf("%s comes after %s", a, b)
	}
}
