package apply

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// put makes a file of the node with exactly that mode.
func put(t *testing.T, root rootfs.Root, path, content string, mode fs.FileMode) {
	t.Helper()
	host := filepath.Join(string(root), path)
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(host, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(host, mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, root rootfs.Root, path, to string) {
	t.Helper()
	host := filepath.Join(string(root), path)
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, host); err != nil {
		t.Fatal(err)
	}
}

// tree is everything below root, told by mode and content.
func tree(t *testing.T, root rootfs.Root) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(string(root), func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == string(root) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			what = "-> " + to
		}
		all[strings.TrimPrefix(path, string(root))] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func file(path, content string) plan.File {
	return plan.File{Path: path, Mode: 0o644, Data: []byte(content)}
}

func wantDiskFault(t *testing.T, err error, says, remedy string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	if fault.CodeOf(err) != fault.Disk || !strings.Contains(err.Error(), says) || !strings.Contains(fault.Remedy(err), remedy) {
		t.Errorf("class %d: %v, remedy %q; want it to say %q and %q", fault.CodeOf(err), err, fault.Remedy(err), says, remedy)
	}
}

func TestCompare(t *testing.T) {
	shared := func(content string) plan.File {
		f := file("/etc/f", content)
		f.Shared = true
		return f
	}
	private := plan.File{Path: "/etc/f", Mode: 0o600, Data: []byte("new")}
	for _, test := range []struct {
		name   string
		there  string // content of /etc/f; "-" means that it is not there
		mode   fs.FileMode
		files  []plan.File
		record Record
		want   []Change
		left   []string
	}{
		{name: "new", there: "-", files: []plan.File{file("/etc/f", "new")},
			want: []Change{{Path: "/etc/f", Action: Create, New: []byte("new"), Mode: 0o644}}},
		{name: "new and empty", there: "-", files: []plan.File{file("/etc/f", "")},
			want: []Change{{Path: "/etc/f", Action: Create, New: []byte(""), Mode: 0o644}}},
		{name: "as wanted", there: "new", mode: 0o644, files: []plan.File{file("/etc/f", "new")}},
		{name: "empty as wanted", there: "", mode: 0o644, files: []plan.File{file("/etc/f", "")}},
		{name: "other content", there: "old", mode: 0o644, files: []plan.File{file("/etc/f", "new")},
			want: []Change{{Path: "/etc/f", Action: Update, Old: []byte("old"), New: []byte("new"), Mode: 0o644}}},
		{name: "empty before", there: "", mode: 0o644, files: []plan.File{file("/etc/f", "new")},
			want: []Change{{Path: "/etc/f", Action: Update, Old: []byte{}, New: []byte("new"), Mode: 0o644}}},
		{name: "other content and mode", there: "old", mode: 0o644, files: []plan.File{private},
			want: []Change{{Path: "/etc/f", Action: Update, Old: []byte("old"), New: []byte("new"), Mode: 0o600}}},
		{name: "other mode", there: "new", mode: 0o644, files: []plan.File{private},
			want: []Change{{Path: "/etc/f", Action: Mode, Old: []byte("new"), New: []byte("new"), Mode: 0o600}}},
		{name: "shared keeps its mode", there: "old", mode: 0o664, files: []plan.File{shared("new")},
			want: []Change{{Path: "/etc/f", Action: Update, Old: []byte("old"), New: []byte("new"), Mode: 0o664}}},
		{name: "shared with another mode", there: "new", mode: 0o600, files: []plan.File{shared("new")}},
		{name: "shared and not there", there: "-", files: []plan.File{shared("new")},
			want: []Change{{Path: "/etc/f", Action: Create, New: []byte("new"), Mode: 0o644}}},
		{name: "not wanted any more", there: "old", mode: 0o644, record: Record{"/etc/f": {[]byte("old")}},
			want: []Change{{Path: "/etc/f", Action: Remove, Old: []byte("old")}}},
		{name: "not wanted and changed by somebody", there: "theirs", mode: 0o644, record: Record{"/etc/f": {[]byte("old")}}, left: []string{"/etc/f"}},
		{name: "not wanted and gone", there: "-", record: Record{"/etc/f": {[]byte("old")}}},
		{name: "never ours", there: "theirs", mode: 0o644},
		{name: "wanted and recorded", there: "new", mode: 0o644, files: []plan.File{file("/etc/f", "new")}, record: Record{"/etc/f": {[]byte("new")}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := rootfs.Root(t.TempDir())
			if test.there != "-" {
				put(t, root, "/etc/f", test.there, test.mode)
			}
			before := tree(t, root)
			changes, left, err := Compare(root, test.files, test.record)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tree(t, root)); diff != "" {
				t.Errorf("Compare changed something:\n%s", diff)
			}
		})
	}
}

// Changes come in the plan's order, then what is removed, sorted.
func TestCompareOrder(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	record := Record{}
	for _, p := range []string{"/z", "/y", "/x"} {
		put(t, root, p, "old", 0o644)
		record[p] = [][]byte{[]byte("old")}
	}
	changes, _, err := Compare(root, []plan.File{file("/b", ""), file("/a", "")}, record)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, string(c.Action)+" "+c.Path)
	}
	if diff := cmp.Diff([]string{"create /b", "create /a", "remove /x", "remove /y", "remove /z"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompareRefuses(t *testing.T) {
	const unit = "/etc/systemd/system/kubelet.service"
	for _, test := range []struct {
		name         string
		make         func(*testing.T, rootfs.Root)
		says, remedy string
	}{
		{"masked unit", func(t *testing.T, r rootfs.Root) { link(t, r, unit, "/dev/null") }, unit + " is masked", "systemctl unmask kubelet.service"},
		{"link to a file", func(t *testing.T, r rootfs.Root) { link(t, r, unit, "/opt/unit") }, unit + " is not a regular file", "remove it"},
		{"directory", func(t *testing.T, r rootfs.Root) { put(t, r, unit+"/x", "", 0o644) }, unit + " is not a regular file", "remove it"},
		{"file for a directory", func(t *testing.T, r rootfs.Root) { put(t, r, "/etc/systemd", "", 0o644) }, unit, ""},
		{"directories in a circle", func(t *testing.T, r rootfs.Root) { link(t, r, "/etc/systemd", "systemd") }, unit, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := rootfs.Root(t.TempDir())
			test.make(t, root)
			_, _, err := Compare(root, []plan.File{file(unit, "new")}, nil)
			wantDiskFault(t, err, test.says, test.remedy)
			// The same for a file that is to be removed.
			_, _, err = Compare(root, nil, Record{unit: {[]byte("old")}})
			wantDiskFault(t, err, test.says, test.remedy)
		})
	}
}

func TestCommit(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/hosts", "127.0.0.1 localhost\n", 0o664)
	put(t, root, "/etc/update", "old", 0o644)
	put(t, root, "/etc/mode", "secret", 0o644)
	put(t, root, "/etc/theirs", "changed", 0o644)
	put(t, root, "/etc/stays", "same", 0o640)
	put(t, root, "/etc/dir/gone", "ours", 0o644)
	put(t, root, "/usr/lib/systemd/system/x.service", "vendor", 0o644)
	link(t, root, "/etc/systemd/system", "/usr/lib/systemd/system")
	record := Record{"/etc/dir/gone": {[]byte("ours")}, "/etc/theirs": {[]byte("ours")}}
	files := []plan.File{
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n10.0.0.1 api\n"), Shared: true},
		file("/etc/update", "new"),
		{Path: "/etc/mode", Mode: 0o600, Data: []byte("secret")},
		{Path: "/etc/new/deeper/file", Mode: 0o600, Data: []byte("created")},
		{Path: "/etc/new/other", Mode: 0o755, Data: []byte("created too")},
		{Path: "/etc/stays", Mode: 0o640, Data: []byte("same")},
		file("/etc/systemd/system/x.service", "by way of a link"),
	}
	changes, left, err := Compare(root, files, record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/etc/theirs"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if err := commit(root, changes); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/etc/hosts":           "-rw-rw-r-- 127.0.0.1 localhost\n10.0.0.1 api\n",
		"/etc/update":          "-rw-r--r-- new",
		"/etc/mode":            "-rw------- secret",
		"/etc/theirs":          "-rw-r--r-- changed",
		"/etc/new/deeper/file": "-rw------- created",
		"/etc/new/other":       "-rwxr-xr-x created too",
		"/etc/stays":           "-rw-r----- same",
		"/etc/systemd/system":  "-> /usr/lib/systemd/system",

		"/usr/lib/systemd/system/x.service": "-rw-r--r-- by way of a link",
	}
	got := tree(t, root)
	for path, what := range got {
		if strings.HasPrefix(what, "d") {
			delete(got, path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A second run finds nothing to do, and does nothing.
	if err := Commit(root, files, created(files), nil); err != nil {
		t.Fatal(err)
	}
	record, _, err = ReadRecord(root)
	if err != nil {
		t.Fatal(err)
	}
	changes, left, err = Compare(root, files, record)
	if err != nil || len(changes) != 0 || len(left) != 0 {
		t.Errorf("the second time: %v, %v, %v", changes, left, err)
	}
	before := tree(t, root)
	if err := commit(root, changes); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("the second time something changed:\n%s", diff)
	}

	// And without files, everything that is nodeadm's goes, and nothing else.
	changes, left, err = Compare(root, nil, record)
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	if err := commit(root, changes); err != nil {
		t.Fatal(err)
	}
	got = tree(t, root)
	if got["/etc/hosts"] != want["/etc/hosts"] || got["/etc/theirs"] != want["/etc/theirs"] {
		t.Errorf("files of others: %v", got)
	}
	for _, f := range files[1:] {
		if what, ok := got[f.Path]; ok {
			t.Errorf("%s is still there: %s", f.Path, what)
		}
	}
}

func TestFailedCommitLeavesNothing(t *testing.T) {
	good := []Change{
		{Path: "/etc/f", Action: Update, Old: []byte("old"), New: []byte("new"), Mode: 0o600},
		{Path: "/etc/gone", Action: Remove, Old: []byte("ours")},
		{Path: "/etc/new/deeper/file", Action: Create, New: []byte("new"), Mode: 0o644},
		{Path: "/etc/new/other", Action: Create, New: []byte("new"), Mode: 0o644},
	}
	for _, test := range []struct {
		name string
		make func(*testing.T, rootfs.Root)
		bad  Change
	}{
		{"a directory where the file should be", func(t *testing.T, r rootfs.Root) { put(t, r, "/etc/bad/x", "", 0o644) },
			Change{Path: "/etc/bad", Action: Create, New: []byte("new"), Mode: 0o644}},
		{"a link where the file should be", func(t *testing.T, r rootfs.Root) { link(t, r, "/etc/bad", "f") },
			Change{Path: "/etc/bad", Action: Create, New: []byte("new"), Mode: 0o644}},
		{"a file where the directory should be", func(t *testing.T, r rootfs.Root) { put(t, r, "/etc/bad", "", 0o644) },
			Change{Path: "/etc/bad/file", Action: Create, New: []byte("new"), Mode: 0o644}},
		{"a link to a file where the directory should be", func(t *testing.T, r rootfs.Root) { link(t, r, "/etc/bad", "f") },
			Change{Path: "/etc/bad/deeper/file", Action: Create, New: []byte("new"), Mode: 0o644}},
		{"a name that is too long", func(*testing.T, rootfs.Root) {},
			Change{Path: "/etc/new/third/" + strings.Repeat("x", 300) + "/file", Action: Create, New: []byte("new"), Mode: 0o644}},
		{"a directory's name that is too long", func(*testing.T, rootfs.Root) {},
			Change{Path: "/etc/third/fourth/" + strings.Repeat("x", 256), Action: Create, New: []byte("new"), Mode: 0o644}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := rootfs.Root(t.TempDir())
			put(t, root, "/etc/f", "old", 0o644)
			put(t, root, "/etc/gone", "ours", 0o644)
			test.make(t, root)
			before := tree(t, root)
			for at := range len(good) + 1 {
				changes := append(append(append([]Change(nil), good[:at]...), test.bad), good[at:]...)
				wantDiskFault(t, commit(root, changes), test.bad.Path, "")
				if diff := cmp.Diff(before, tree(t, root)); diff != "" {
					t.Errorf("failing at change %d left something (-before +after):\n%s", at, diff)
				}
			}
			// Without what is in the way it is done, as if nothing had been.
			if err := commit(root, good); err != nil {
				t.Error(err)
			}
		})
	}
}

// Directories that were there keep what is in them, and are kept.
func TestFailedCommitKeepsOthersDirectories(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/new/theirs", "theirs", 0o644)
	if err := os.Mkdir(filepath.Join(string(root), "/etc/empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, root, "/etc/bad/x", "", 0o644)
	before := tree(t, root)
	err := commit(root, []Change{
		{Path: "/etc/new/file", Action: Create, New: []byte("new"), Mode: 0o644},
		{Path: "/etc/empty/file", Action: Create, New: []byte("new"), Mode: 0o644},
		{Path: "/etc/bad", Action: Create, New: []byte("new"), Mode: 0o644},
	})
	wantDiskFault(t, err, "/etc/bad", "")
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	record, _, err := ReadRecord(root)
	if err != nil || len(record) != 0 {
		t.Fatalf("before the first run: %v, %v", record, err)
	}
	files := []plan.File{
		{Path: "/etc/binary", Mode: 0o600, Data: []byte("\x00\xff\"\n")},
		{Path: "/etc/empty", Mode: 0o644, Data: []byte{}},
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("not ours"), Shared: true},
	}
	if err := Commit(root, files, created(files), nil); err != nil {
		t.Fatal(err)
	}
	record, _, err = ReadRecord(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Record{"/etc/binary": {[]byte("\x00\xff\"\n")}, "/etc/empty": {{}}}, record); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	host := filepath.Join(string(root), layout.AppliedFile)
	first, err := os.Stat(host)
	if err != nil || first.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", first.Mode(), err)
	}
	// The same record is not written again; another one replaces it.
	if err := Commit(root, files, nil, record); err != nil {
		t.Fatal(err)
	}
	if second, err := os.Stat(host); err != nil || !os.SameFile(first, second) {
		t.Errorf("written again (%v)", err)
	}
	if err := Commit(root, files[:1], created(files[:1]), nil); err != nil {
		t.Fatal(err)
	}
	if record, _, err = ReadRecord(root); err != nil || len(record) != 1 {
		t.Errorf("%v, %v", record, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(host)); len(entries) != 1 {
		t.Errorf("beside the record: %v", entries)
	}
}

func TestCorruptRecord(t *testing.T) {
	for _, content := range []string{"", "{", "garbage", `{"files": ["/etc/f"]}`, `{"files": {"/etc/f": "***"}}`} {
		root := rootfs.Root(t.TempDir())
		put(t, root, layout.AppliedFile, content, 0o600)
		record, warning, err := ReadRecord(root)
		if err != nil || len(record) > 0 || !strings.Contains(warning, layout.AppliedFile) {
			t.Errorf("%q: record %v, warning %q, %v", content, record, warning, err)
		}
	}
	// The place of the record is somebody's directory, or its directory a file.
	for _, path := range []string{layout.AppliedFile + "/x", filepath.Dir(layout.AppliedFile)} {
		root := rootfs.Root(t.TempDir())
		put(t, root, path, "", 0o600)
		_, _, err := ReadRecord(root)
		wantDiskFault(t, err, layout.AppliedFile, "")
		wantDiskFault(t, Commit(root, nil, nil, nil), layout.AppliedFile, "")
	}
}

func TestDiskErrorKeepsItsCause(t *testing.T) {
	err := diskError("/etc/f", &fs.PathError{Op: "open", Path: "/etc/f", Err: fs.ErrPermission})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	wantDiskFault(t, err, "/etc/f", "run nodeadm as root")
}

// created are the changes that bring files onto an empty root.
func created(files []plan.File) []Change {
	var changes []Change
	for _, f := range files {
		if !f.Shared {
			changes = append(changes, Change{Path: f.Path, Action: Create, New: f.Data, Mode: f.Mode})
		}
	}
	return changes
}

// A file that already was as it should be is not nodeadm's to remove later.
func TestSomebodyElsesFileIsNotAdopted(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	if err := os.WriteFile(string(root)+"/same", []byte("same"), 0o644); err != nil {
		t.Fatal(err)
	}
	files := []plan.File{{Path: "/same", Mode: 0o644, Data: []byte("same")}}
	changes, _, err := Compare(root, files, Record{})
	if err != nil || len(changes) > 0 {
		t.Fatalf("%v %v", changes, err)
	}
	if err := Commit(root, files, changes, Record{}); err != nil {
		t.Fatal(err)
	}
	record, _, err := ReadRecord(root)
	if err != nil {
		t.Fatal(err)
	}
	if changes, left, err := Compare(root, nil, record); err != nil || len(changes)+len(left) > 0 {
		t.Errorf("changes %v, left %v, %v", changes, left, err)
	}
}

// A run that is cut short between any two steps leaves nothing that the next
// one does not know for nodeadm's own.
func TestCutShortAnywhere(t *testing.T) {
	old := []plan.File{{Path: "/etc/a", Mode: 0o644, Data: []byte("old a")}, {Path: "/etc/gone", Mode: 0o644, Data: []byte("old gone")}}
	next := []plan.File{{Path: "/etc/a", Mode: 0o644, Data: []byte("new a")}, {Path: "/etc/b", Mode: 0o644, Data: []byte("new b")}}
	for cut := 0; cut < 5; cut++ {
		root := rootfs.Root(t.TempDir())
		if err := Commit(root, old, created(old), nil); err != nil {
			t.Fatal(err)
		}
		record, _, err := ReadRecord(root)
		if err != nil {
			t.Fatal(err)
		}
		changes, _, err := Compare(root, next, record)
		if err != nil {
			t.Fatal(err)
		}
		between, err := record.and(record.after(next, changes)).encode()
		if err != nil {
			t.Fatal(err)
		}
		steps := append([]Change{recordChange(between)}, changes...)
		if err := commit(root, steps[:min(cut, len(steps))]); err != nil {
			t.Fatal(err)
		}
		put(t, root, "/etc/.nodeadm-12345", "left by a run that was killed", 0o600)

		// Somebody wants only b now.
		record, _, err = ReadRecord(root)
		if err != nil {
			t.Fatal(err)
		}
		changes, left, err := Compare(root, next[1:], record)
		if err != nil || len(left) > 0 {
			t.Fatalf("cut after %d steps: %v is taken for somebody else's, %v", cut, left, err)
		}
		if err := Commit(root, next[1:], changes, record); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(string(root) + "/etc")
		if err != nil || len(entries) != 1 || entries[0].Name() != "b" {
			t.Errorf("cut after %d steps: %v, %v", cut, entries, err)
		}
	}
}
