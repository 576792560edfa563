//go:build amd64 || arm64

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// shell is a script that works in root.
func shell(root, script string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Dir = root
	return cmd
}

func calledBy(t *testing.T, root, script string) []string {
	t.Helper()
	out, err := Run(shell(root, script), root, nil)
	if err != nil || out.Code != 0 || out.Killed {
		t.Fatalf("%v, %+v", err, out)
	}
	var said []string
	for i, p := range out.Points {
		if p.N != i+1 {
			t.Errorf("%v is the one at %d", p, i+1)
		}
		// Which of a family a program calls is the C library's business.
		name, rest, _ := strings.Cut(p.Call, " ")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "2"), "at")
		if name == "rmdir" {
			name = "unlink"
		}
		said = append(said, name+" "+rest)
	}
	return said
}

func TestEveryChangeIsSeen(t *testing.T) {
	outside := t.TempDir()
	for script, want := range map[string][]string{
		"echo a >a; mv a b":                            {"open a", "write a", "rename a -> b"},
		"echo a >>a":                                   {"open a", "write a"},
		"mkdir d; cd d; echo a >../a":                  {"mkdir d", "open a", "write a"},
		"mkdir d; rmdir d":                             {"mkdir d", "unlink d"},
		"ln -s a b; rm b":                              {"symlink b", "unlink b"},
		": >a; ln a b; chmod 600 b":                    {"open a", "link a -> b", "fchmod b"},
		": >a; sync a; sync -f .":                      {"open a", "fsync a", "syncfs ."},
		": >a; truncate -s 9 a":                        {"open a", "open a", "ftruncate a"},
		"mkfifo p; chown 0:0 p":                        {"mknod p", "fchown p"},
		"sync":                                         {"sync "},
		"(echo a >a) & wait; (: >b)":                   {"open a", "write a", "open b"},
		"cat /dev/null; ls -la":                        nil,
		"echo a >" + outside + "/a":                    nil,
		"echo a >/dev/null":                            nil,
		": >" + outside + "/a; mv " + outside + "/a b": {"rename " + outside + "/a -> b"},
		"ln -s . d; cd d; : >d/d/a":                    {"symlink d", "open a"},
		"ln -s " + outside + " o; : >o/a":              {"symlink o", "open o/a"},
	} {
		if want != nil && strings.Contains(script, "chown") && os.Geteuid() != 0 {
			continue
		}
		if diff := cmp.Diff(want, calledBy(t, t.TempDir(), script)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", script, diff)
		}
	}
}

// A program is killed before the change that it is killed at, and after the one
// before, and nothing that it started goes on.
func TestKill(t *testing.T) {
	const script = "echo a >a; mv a b; echo c >c"
	want := [][]string{nil, {"a="}, {"a=a\n"}, {"b=a\n"}, {"b=a\n", "c="}, {"b=a\n", "c=c\n"}}
	for n := 1; n <= len(want); n++ {
		root := t.TempDir()
		out, err := Run(shell(root, script), root, func(p Point) Action {
			if p.N == n {
				return Kill
			}
			return Continue
		})
		last := n == len(want)
		if err != nil || out.Killed == last || (out.Code == 0) != last || len(out.Points) != min(n, len(want)-1) {
			t.Errorf("point %d: %v, %+v", n, err, out)
		}
		if diff := cmp.Diff(want[n-1], filesIn(t, root)); diff != "" {
			t.Errorf("killed at point %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestKillTakesChildrenAlong(t *testing.T) {
	root := t.TempDir()
	out, err := Run(shell(root, "sleep 1000 & sleep 1000 | : >a"), root, func(Point) Action { return Kill })
	if err != nil || !out.Killed || out.Code != -1 {
		t.Errorf("%v, %+v", err, out)
	}
}

func TestFail(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EIO, unix.EROFS, unix.EACCES} {
		root := t.TempDir()
		out, err := Run(shell(root, "echo a >a; mv a b || cat a; echo b >b"), root, func(p Point) Action {
			if strings.HasPrefix(p.Call, "rename") {
				return Fail(errno)
			}
			return Continue
		})
		if err != nil || out.Code != 0 || out.Killed {
			t.Fatalf("%v, %+v", err, out)
		}
		if want := message(errno); !strings.Contains(out.Output, want) || !strings.HasSuffix(out.Output, "a\n") {
			t.Errorf("%v: the program said %q", errno, out.Output)
		}
		if diff := cmp.Diff([]string{"a=a\n", "b=b\n"}, filesIn(t, root)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", errno, diff)
		}
	}
}

// message is how the C library says it.
func message(errno unix.Errno) string {
	text := errno.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

func TestRunReportsHowACommandEnds(t *testing.T) {
	root := t.TempDir()
	out, err := Run(shell(root, "echo out; echo err >&2; exit 7"), root, nil)
	if err != nil || out.Code != 7 || out.Output != "out\nerr\n" || len(out.Points) > 0 {
		t.Errorf("%v, %+v", err, out)
	}
	if out, err := Run(shell(root, "kill -TERM $$"), root, nil); err != nil || out.Code != -1 || out.Killed {
		t.Errorf("%v, %+v", err, out)
	}
	if _, err := Run(exec.Command("/no/such/program"), root, nil); err == nil {
		t.Error("a program that does not exist was run")
	}
	if _, err := Run(shell(root, ":"), root+"/none", nil); err == nil {
		t.Error("a root that does not exist was accepted")
	}
}

// filesIn are the files below a directory with what they hold.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		data, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		found = append(found, e.Name()+"="+string(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}
