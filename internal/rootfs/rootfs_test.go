package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// image makes a root with some files and links; a value that begins with -> is
// a link to the rest.
func image(t *testing.T, entries map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for path, content := range entries {
		host := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(to, host)
		} else {
			err = os.WriteFile(host, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Root(root)
}

func TestResolve(t *testing.T) {
	root := image(t, map[string]string{
		"/usr/lib/file":       "here",
		"/lib":                "->usr/lib",
		"/usr/absolute":       "->/usr/lib",
		"/usr/relative":       "->../usr/./lib",
		"/usr/escape":         "->../../../../../../etc",
		"/usr/escape-twice":   "->/../usr/escape/..//lib",
		"/etc/file-link":      "->/usr/lib/file",
		"/etc/chain":          "->chain-2",
		"/etc/chain-2":        "->/lib/file",
		"/etc/dangling":       "->/run/not/there",
		"/etc/dangling-rel":   "->not-there",
		"/etc/dir-of-nothing": "->/var/nothing",
		"/etc/self":           "->.",
		"/etc/root":           "->/",
	})
	for _, test := range []struct {
		path       string
		follow     string // what it is with the last element followed
		lastAsItIs string // and without; empty means the same
	}{
		{"/usr/lib/file", "/usr/lib/file", ""},
		{"usr//lib/./file/", "/usr/lib/file", ""},
		{"/lib/file", "/usr/lib/file", ""},
		{"/lib", "/usr/lib", "/lib"},
		{"/usr/absolute/file", "/usr/lib/file", ""},
		{"/usr/relative/file", "/usr/lib/file", ""},
		{"/usr/escape/file-link", "/usr/lib/file", "/etc/file-link"},
		{"/usr/escape-twice/file", "/usr/lib/file", ""}, // up to the root by way of /etc, and on by /lib
		{"/../../../usr/lib/file", "/usr/lib/file", ""},
		{"/usr/lib/../../..", "/", ""},
		{"/etc/file-link", "/usr/lib/file", "/etc/file-link"},
		{"/etc/chain", "/usr/lib/file", "/etc/chain"},
		{"/etc/dangling", "/run/not/there", "/etc/dangling"},
		{"/etc/dangling-rel", "/etc/not-there", "/etc/dangling-rel"},
		{"/etc/dir-of-nothing/new", "/var/nothing/new", ""},
		{"/not/there/at/all", "/not/there/at/all", ""},
		{"/not/there/../../etc/file-link", "/usr/lib/file", "/etc/file-link"},
		{"/etc/self/self/chain", "/usr/lib/file", "/etc/chain"},
		{"/etc/root/etc/root/usr/lib/file", "/usr/lib/file", ""},
		{"/", "/", ""},
		{"", "/", ""},
	} {
		for _, follow := range []bool{true, false} {
			want := test.follow
			if !follow && test.lastAsItIs != "" {
				want = test.lastAsItIs
			}
			got, err := root.Resolve(test.path, follow)
			if err != nil || got != filepath.Join(string(root), want) {
				t.Errorf("Resolve(%q, %t) = %q, %v, want %s in %s", test.path, follow, got, err, want, root)
			}
		}
	}
}

func TestLoops(t *testing.T) {
	entries := map[string]string{"/etc/a": "->b", "/etc/b": "->/etc/a", "/etc/me": "->me", "/etc/deeper": "->deeper/x"}
	for i := range 40 {
		entries["/long/"+strconv.Itoa(i)] = "->" + strconv.Itoa(i+1)
	}
	entries["/long/40"] = "the end"
	entries["/long/start"] = "->0"
	root := image(t, entries)
	for _, path := range []string{"/etc/a", "/etc/a/file", "/etc/me", "/etc/deeper", "/long/start"} {
		if got, err := root.Resolve(path, true); err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
		if root.Exists(path) {
			t.Errorf("%s exists", path)
		}
	}
	if data, err := root.ReadFile("/long/0"); err != nil || string(data) != "the end" {
		t.Errorf("forty links: %q, %v", data, err)
	}
	if _, err := root.Resolve("/etc/a", false); err != nil {
		t.Errorf("a loop that nobody follows: %v", err)
	}
}

// What a path leads to in the image must not be what it leads to outside.
func TestNeverOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := image(t, map[string]string{
		"/etc/absolute": "->" + outside,
		"/etc/relative": "->../../../../../../../../../../../../.." + outside,
		"/etc/dir":      "->" + filepath.Dir(outside),
	})
	for _, path := range []string{"/etc/absolute", "/etc/relative", "/etc/dir/secret", outside} {
		if data, err := root.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: read %q, %v", path, data, err)
		}
		if root.Exists(path) {
			t.Errorf("%s exists", path)
		}
	}
}

func TestReadFileAndExists(t *testing.T) {
	root := image(t, map[string]string{
		"/usr/bin/kubelet": "binary", "/bin": "->usr/bin", "/etc/dangling": "->/nothing", "/opt/link": "->/bin/kubelet",
	})
	for path, want := range map[string]string{"/usr/bin/kubelet": "binary", "/bin/kubelet": "binary", "/opt/link": "binary"} {
		data, err := root.ReadFile(path)
		if err != nil || string(data) != want || !root.Exists(path) {
			t.Errorf("%s: %q, %v, exists %t", path, data, err, root.Exists(path))
		}
	}
	for _, path := range []string{"/etc/dangling", "/nothing", "/usr/bin/kubelet/x", "/etc/dangling/x"} {
		if _, err := root.ReadFile(path); err == nil || root.Exists(path) {
			t.Errorf("%s: %v, exists %t", path, err, root.Exists(path))
		}
	}
	if got := root.FirstExisting("/nothing", "/etc/dangling", "/bin/kubelet", "/usr/bin/kubelet"); got != "/bin/kubelet" {
		t.Errorf("first existing: %q", got)
	}
	if got := root.FirstExisting("/nothing", "/etc/dangling"); got != "" {
		t.Errorf("first existing of none: %q", got)
	}
}

// A root that is reached by a link of the machine itself is no link of the node.
func TestRootBehindALink(t *testing.T) {
	real := image(t, map[string]string{"/etc/file": "here", "/etc/link": "->/etc/file"})
	link := filepath.Join(t.TempDir(), "mnt")
	if err := os.Symlink(string(real), link); err != nil {
		t.Fatal(err)
	}
	for _, root := range []Root{Root(link), Root(link + "/")} {
		if data, err := root.ReadFile("/etc/link"); err != nil || string(data) != "here" {
			t.Errorf("%s: %q, %v", root, data, err)
		}
	}
}

func TestLive(t *testing.T) {
	for root, want := range map[Root]bool{"/": true, "//": true, "/.": true, "/mnt/..": true, "/mnt": false, "/mnt/": false, ".": false, "": false} {
		if root.Live() != want {
			t.Errorf("%q is live: %t", root, !want)
		}
	}
}

func TestGlob(t *testing.T) {
	root := image(t, map[string]string{
		"/data/cloud/instances/i-1": "",
		"/data/home/a/.key":         "",
		"/var/lib/cloud":            "->/data/cloud",
		"/home":                     "->data/home",
		"/data/home/file":           "",
		"/data/home/a/link":         "->nowhere",
		"/gone":                     "->/not/there",
	})
	// The root's own path is no pattern.
	odd := Root(string(root) + "[1]*")
	if err := os.Rename(string(root), string(odd)); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"/var/lib/cloud/instances/*": "/var/lib/cloud/instances/i-1",
		"/home/*/.key":               "/home/a/.key",
		"/home/*":                    "/home/a /home/file",
		"/home/a/l*":                 "/home/a/link",
		"/var/lib/cloud":             "/var/lib/cloud",
		"/absent/*":                  "",
	} {
		if found, err := odd.Glob(pattern); err != nil || strings.Join(found, " ") != want {
			t.Errorf("%s: %v, %v; want %s", pattern, found, err, want)
		}
	}
	for _, pattern := range []string{"/gone/*", "/home/a/*/x", "/home/["} {
		if found, err := odd.Glob(pattern); err == nil {
			t.Errorf("%s: %v", pattern, found)
		}
	}
}
