package apply

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
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

// written is a record of files with these contents and mode 0644.
func written(files ...string) Record {
	r := Record{Files: map[string]Written{}}
	for i := 0; i < len(files); i += 2 {
		r.Files[files[i]] = Written{SHA256: hash([]byte(files[i+1])), Mode: "0644"}
	}
	return r
}

// commit makes changes as a generation.
func commit(root rootfs.Root, changes []Change) error {
	_, err := Commit(root, changes, Generation{Command: "test", Version: "1"})
	return err
}

// state takes the agent's own memory out of a tree.
func withoutState(all map[string]string) map[string]string {
	for path := range all {
		if strings.HasPrefix(path+"/", layout.StateDir+"/") || path == "/var" || path == "/var/lib" {
			delete(all, path)
		}
	}
	return all
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
		{name: "not wanted any more", there: "old", mode: 0o644, record: written("/etc/f", "old"),
			want: []Change{{Path: "/etc/f", Action: Remove, Old: []byte("old")}}},
		{name: "not wanted and changed by somebody", there: "theirs", mode: 0o644, record: written("/etc/f", "old"), left: []string{"/etc/f"}},
		{name: "not wanted and gone", there: "-", record: written("/etc/f", "old")},
		{name: "never ours", there: "theirs", mode: 0o644},
		{name: "wanted and recorded", there: "new", mode: 0o644, files: []plan.File{file("/etc/f", "new")}, record: written("/etc/f", "new")},
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
			if diff := cmp.Diff(test.want, changes, cmpopts.IgnoreFields(Change{}, "OldMode", "OldOwner", "Secret")); diff != "" {
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
	record := written("/z", "old", "/y", "old", "/x", "old")
	for _, p := range []string{"/z", "/y", "/x"} {
		put(t, root, p, "old", 0o644)
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
			_, _, err := Compare(root, []plan.File{file(unit, "new")}, Record{})
			wantDiskFault(t, err, test.says, test.remedy)
			// The same for a file that is to be removed.
			_, _, err = Compare(root, nil, written(unit, "old"))
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
	record := written("/etc/dir/gone", "ours", "/etc/theirs", "ours")
	files := []plan.File{
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n10.0.0.1 api\n"), Shared: true},
		file("/etc/update", "new"),
		{Path: "/etc/mode", Mode: 0o600, Data: []byte("secret")},
		{Path: "/etc/new/deeper/file", Mode: 0o600, Data: []byte("created")},
		{Path: "/etc/new/other", Mode: 0o755, Data: []byte("created too")},
		{Path: "/etc/stays", Mode: 0o640, Data: []byte("same")},
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
	}
	got := withoutState(tree(t, root))
	for path, what := range got {
		if strings.HasPrefix(what, "d") {
			delete(got, path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A second run finds nothing to do.
	record = record.Next(files, changes)
	again, left, err := Compare(root, files, record)
	if err != nil || len(again) != 0 || len(left) != 0 {
		t.Errorf("the second time: %v, %v, %v", again, left, err)
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
	for _, f := range slices.DeleteFunc(files[1:], func(f plan.File) bool { return f.Path == "/etc/stays" }) {
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
				says := test.bad.Path
				if len(filepath.Base(filepath.Dir(says))) > 255 {
					says = filepath.Dir(says)
				}
				wantDiskFault(t, commit(root, changes), says, "")
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
	if err != nil || len(record.Files) != 0 {
		t.Fatalf("before the first run: %v, %v", record, err)
	}
	files := []plan.File{
		{Path: "/etc/binary", Mode: 0o600, Data: []byte("\x00\xff\"\n")},
		{Path: "/etc/found", Mode: 0o644, Data: []byte("was there")},
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("not ours"), Shared: true},
		{Path: "/etc/open.json", Mode: 0o644, Data: []byte("{}"), State: &ownership.State{Document: map[string]any{"a": "b"}}},
	}
	next := record.Next(files, []Change{{Path: "/etc/binary"}, {Path: "/etc/open.json"}})
	change, err := next.Change(root)
	if err != nil || change == nil || change.Mode != 0o644 || change.Secret {
		t.Fatalf("%+v, %v", change, err)
	}
	if err := CommitAlone(root, *change); err != nil {
		t.Fatal(err)
	}
	read, _, err := ReadRecord(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(next, read); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"/etc/binary": true, "/etc/found": false, "/etc/open.json": true}, read.Own()); diff != "" {
		t.Errorf("own (-want +got):\n%s", diff)
	}
	// The same record is not written again.
	if change, err := read.Next(files, nil).Change(root); change != nil || err != nil {
		t.Errorf("written again: %+v, %v", change, err)
	}
	// One that repeats values which are not for everybody is not either.
	files[0].State = &ownership.State{}
	if change, err := read.Next(files, nil).Change(root); err != nil || change == nil || change.Mode != 0o600 || !change.Secret {
		t.Errorf("%+v, %v", change, err)
	}
}

func TestCorruptRecord(t *testing.T) {
	for _, content := range []string{"", "{", "garbage", `{"files": ["/etc/f"]}`, `{"files": {"/etc/f": "***"}}`, `{"files": {"/etc/f": ["YQ=="]}}`} {
		root := rootfs.Root(t.TempDir())
		put(t, root, layout.AppliedFile, content, 0o600)
		record, warning, err := ReadRecord(root)
		if err != nil || len(record.Files) > 0 || !strings.Contains(warning, layout.AppliedFile) {
			t.Errorf("%q: record %v, warning %q, %v", content, record, warning, err)
		}
	}
	// The place of the record is somebody's directory, or its directory a file.
	for _, path := range []string{layout.AppliedFile + "/x", filepath.Dir(layout.AppliedFile)} {
		root := rootfs.Root(t.TempDir())
		put(t, root, path, "", 0o600)
		_, _, err := ReadRecord(root)
		wantDiskFault(t, err, layout.AppliedFile, "")
		_, err = Record{}.Change(root)
		wantDiskFault(t, err, layout.AppliedFile, "")
	}
}

func TestDiskErrorKeepsItsCause(t *testing.T) {
	err := diskError("/etc/f", &fs.PathError{Op: "open", Path: "/etc/f", Err: fs.ErrPermission})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	wantDiskFault(t, err, "/etc/f", "run nodeadm as root")
}

// A file that already was as it should be is not nodeadm's to remove later.
func TestSomebodyElsesFileIsNotAdopted(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/same", "same", 0o644)
	files := []plan.File{{Path: "/same", Mode: 0o644, Data: []byte("same")}}
	changes, _, err := Compare(root, files, Record{})
	if err != nil || len(changes) > 0 {
		t.Fatalf("%v %v", changes, err)
	}
	record := Record{}.Next(files, changes).Next(files, nil)
	if changes, left, err := Compare(root, nil, record); err != nil || len(changes)+len(left) > 0 {
		t.Errorf("changes %v, left %v, %v", changes, left, err)
	}
}
