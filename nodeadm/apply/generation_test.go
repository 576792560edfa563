package apply

import (
	"fmt"
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

// bring makes root hold files, as a run does, and returns the new record.
func bring(t *testing.T, root rootfs.Root, record Record, files ...plan.File) Record {
	t.Helper()
	changes, _, err := Compare(root, files, record)
	if err != nil {
		t.Fatal(err)
	}
	number, err := Commit(root, changes, Generation{Command: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Finish(root, number, Healthy, ""); err != nil {
		t.Fatal(err)
	}
	return record.Next(files, changes)
}

// back goes back to a generation, as a rollback does.
func back(t *testing.T, root rootfs.Root, to int) (edited []string) {
	t.Helper()
	changes, edited, _, err := Back(root, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Commit(root, changes, Generation{Command: "back", Version: "1"}); err != nil {
		t.Fatal(err)
	}
	return edited
}

func TestGenerationsTellWhatChanged(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/theirs", "theirs", 0o640)
	record := bring(t, root, Record{}, file("/etc/a", "1"), file("/etc/theirs", "ours"))
	bring(t, root, record, file("/etc/theirs", "ours"), plan.File{Path: "/etc/deep/b", Mode: 0o600, Data: []byte("2"), Secret: true, Origin: "user-data"})
	all, err := Generations(root)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	if diff := cmp.Diff([]string{"/etc/deep"}, append(all[1].Directories, all[0].Directories...)); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	var got []string
	for _, g := range all {
		if g.Outcome != Healthy || g.Command != "test" || g.Version != "1" || g.Time == nil {
			t.Errorf("%+v", g)
		}
		for _, f := range g.Files {
			old, err := g.Old(root, f)
			if err != nil {
				t.Error(err)
			}
			fresh, err := g.New(root, f)
			if err != nil {
				t.Error(err)
			}
			what := fmt.Sprintf("%d %s %s %q→%q", g.Number, f.Action, f.Path, old, fresh)
			if f.Before != nil {
				what += " " + f.Before.Mode
			}
			if f.After != nil && f.After.Secret {
				what += " secret of " + f.Origin
			}
			got = append(got, what)
		}
	}
	if diff := cmp.Diff([]string{
		`1 create /etc/a ""→"1"`, `1 update /etc/theirs "theirs"→"ours" 0640`,
		`2 create /etc/deep/b ""→"2" secret of user-data`, `2 remove /etc/a "1"→"" 0644`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	info, err := os.Stat(string(root) + layout.Generations)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("generations are for everybody: %v, %v", info.Mode(), err)
	}
	// What was kept is told from what somebody made of it.
	put(t, root, all[0].Kept("before", "/etc/theirs"), "rot", 0o600)
	if _, err := all[0].Old(root, all[0].Files[1]); fault.CodeOf(err) != fault.Disk || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged copy: %v", err)
	}
}

func TestBack(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/image", "image", 0o640)
	states := []map[string]string{withoutState(tree(t, root))}
	record := Record{}
	for _, files := range [][]plan.File{
		{file("/etc/image", "1"), file("/etc/a", "1")},
		{file("/etc/image", "2"), file("/etc/b", "2")},
		{file("/etc/image", "3"), file("/etc/a", "3"), file("/etc/b", "2")},
	} {
		record = bring(t, root, record, files...)
		states = append(states, withoutState(tree(t, root)))
	}
	check := func(what string, want map[string]string) {
		t.Helper()
		got := withoutState(tree(t, root))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	back(t, root, 2) // makes 4
	check("after the second", states[2])
	back(t, root, 3) // makes 5
	check("and back again", states[3])
	put(t, root, "/etc/a", "by hand", 0o644)
	if diff := cmp.Diff([]string{"/etc/a"}, back(t, root, 1)); diff != "" { // makes 6
		t.Errorf("edited (-want +got):\n%s", diff)
	}
	check("after the first", states[1])
	// Nothing is lost: the edit comes back too.
	back(t, root, 5)
	states[3]["/etc/a"] = "-rw-r--r-- by hand"
	check("before that", states[3])
	back(t, root, 0)
	check("before the first", states[0])
	for _, number := range []int{99} {
		if _, _, _, err := Back(root, number); fault.CodeOf(err) != fault.Usage {
			t.Errorf("to %d: %v", number, err)
		}
	}
}

func TestPruned(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/image", "image", 0o640)
	before := withoutState(tree(t, root))
	record := Record{}
	for i := range keep + 5 {
		files := []plan.File{file("/etc/image", fmt.Sprint(i))}
		if i >= 2 {
			files = append(files, file("/etc/late", fmt.Sprint(i)))
		}
		record = bring(t, root, record, files...)
	}
	all, err := Generations(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range all[:len(all)-keep] {
		for _, f := range g.Files {
			got = append(got, fmt.Sprintf("%d %s %v", g.Number, f.Path, g.Pruned))
		}
	}
	if diff := cmp.Diff([]string{"1 /etc/image true", "3 /etc/late true"}, got); diff != "" {
		t.Errorf("what is left of old generations (-want +got):\n%s", diff)
	}
	kept, _ := filepath.Glob(string(root) + layout.Generations + "/[13]/*/*")
	if len(kept) != 1 || filepath.Base(kept[0]) != "etc+image" {
		t.Errorf("files left of old generations: %v", kept)
	}
	if _, _, _, err := Back(root, 2); fault.CodeOf(err) != fault.Usage {
		t.Errorf("to a generation that is gone: %v", err)
	}
	if _, _, _, err := Back(root, 3); fault.CodeOf(err) != fault.Usage {
		t.Errorf("to a generation of which the next is gone: %v", err)
	}
	back(t, root, 0)
	if diff := cmp.Diff(before, withoutState(tree(t, root))); diff != "" {
		t.Errorf("before the first run (-want +got):\n%s", diff)
	}
}

// What somebody did between a run that was cut short and the next one is not
// undone with it.
func TestRecoverLeavesOthersWork(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	put(t, root, "/etc/a", "old", 0o644)
	put(t, root, "/etc/b", "old", 0o644)
	before := tree(t, root)
	changes, _, err := Compare(root, []plan.File{file("/etc/a", "new"), file("/etc/b", "new"), file("/etc/new/c", "new")}, Record{})
	if err != nil {
		t.Fatal(err)
	}
	number, err := Commit(root, changes, Generation{Command: "test"})
	if err != nil {
		t.Fatal(err)
	}
	// The process died just before it said that all was in place.
	if err := Finish(root, number, Applying, ""); err != nil {
		t.Fatal(err)
	}
	put(t, root, "/etc/b", "by hand", 0o644)
	put(t, root, "/etc/.nodeadm-1234", "staged", 0o600)
	messages, err := Recover(root)
	if err != nil || len(messages) != 2 || !strings.Contains(messages[0], "generation 1") || !strings.Contains(messages[1], "/etc/b") {
		t.Errorf("%q, %v", messages, err)
	}
	before["/etc/b"] = "-rw-r--r-- by hand"
	if diff := cmp.Diff(before, withoutState(tree(t, root))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if messages, err := Recover(root); err != nil || len(messages) > 0 {
		t.Errorf("the second time: %q, %v", messages, err)
	}
}

func TestDrifted(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	record := bring(t, root, Record{}, file("/etc/a", "1"), file("/etc/b", "1"), file("/etc/c", "1"), file("/etc/d", "1"))
	if drift := Drifted(root, record); len(drift) > 0 {
		t.Errorf("%v", drift)
	}
	put(t, root, "/etc/a", "2", 0o644)
	put(t, root, "/etc/b", "1", 0o600)
	if err := os.Remove(string(root) + "/etc/c"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Drift{{"/etc/a", "changed"}, {"/etc/b", "mode 0600 instead of 0644"}, {"/etc/c", "missing"}}, Drifted(root, record)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A manifest that cannot be read is in nobody's way but of whoever wants to go
// back over it.
func TestDamagedManifest(t *testing.T) {
	root := rootfs.Root(t.TempDir())
	record := bring(t, root, Record{}, file("/etc/a", "1"))
	record = bring(t, root, record, file("/etc/a", "2"))
	for _, content := range []string{"garbage", "", `{"generation": 7}`} {
		put(t, root, layout.Generations+"/2/manifest.json", content, 0o600)
		if messages, err := Recover(root); err != nil || len(messages) > 0 {
			t.Errorf("%q: %q, %v", content, messages, err)
		}
		all, err := Generations(root)
		if err != nil || all[1].Number != 2 || all[1].Outcome != Damaged || !strings.Contains(all[1].Reason, "manifest.json is damaged") {
			t.Fatalf("%q: %+v, %v", content, all, err)
		}
		if _, _, _, err := Back(root, 1); fault.CodeOf(err) != fault.Disk || !strings.Contains(err.Error(), "generation 2 cannot be undone") {
			t.Errorf("%q: going back: %v", content, err)
		}
	}
	bring(t, root, record, file("/etc/a", "3"))
	back(t, root, 3)
}
