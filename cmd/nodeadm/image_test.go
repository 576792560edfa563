package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

func TestGroups(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"image", "name one of install, check, clean; see nodeadm image --help"},
		{"config", "see nodeadm config --help"},
		{"image chekc", "did you mean nodeadm image check?"},
		{"image check extra", "see nodeadm image check --help"},
		{"status extra", "see nodeadm status --help"},
	} {
		if _, errs, code := program(t, append([]string{"nodeadm"}, strings.Fields(test.args)...)...); code != 2 || !strings.Contains(errs, test.says) {
			t.Errorf("%s: exit %d: %s", test.args, code, errs)
		}
	}
	for _, args := range []string{"image --help", "image help", "config --help"} {
		if out, _, code := program(t, append([]string{"nodeadm"}, strings.Fields(args)...)...); code != 0 || !strings.Contains(out, "COMMANDS") {
			t.Errorf("%s: exit %d: %s", args, code, out)
		}
	}
}

// A chroot may be without /proc.
func TestOwnProgram(t *testing.T) {
	none := func() (string, error) { return "", os.ErrNotExist }
	if self, err := ownProgram(none, "/bin/sh"); err != nil || self != "/bin/sh" {
		t.Errorf("%q, %v", self, err)
	}
	if self, err := ownProgram(none, "/nowhere/nodeadm"); err == nil || fault.Remedy(err) == "" {
		t.Errorf("%q, %v", self, err)
	}
}

// TestImageClean: what a dry run tells is what is done then.
func TestImageClean(t *testing.T) {
	root := t.TempDir()
	if _, errs, code := program(t, "nodeadm", "image", "clean", "--root", root); code != 2 || !strings.Contains(errs, "fix: name the directory") {
		t.Errorf("an empty root: exit %d: %s", code, errs)
	}
	if _, errs, code := program(t, bootstrapArgs("nodeadm", serveWorld(t, nil), root, "c")...); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, path := range []string{"/var/lib/kubelet/pki/a", "/var/log/syslog", "/etc/machine-id"} {
		os.MkdirAll(filepath.Dir(root+path), 0o755)
		if err := os.WriteFile(root+path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	planned, errs, code := program(t, "nodeadm", "image", "clean", "--dry-run", "--root", root)
	for _, want := range []string{"would bring back /etc/kubernetes/kubelet/kubelet-config.json", "would remove     /var/lib/nodeadm", "would remove     /var/log/syslog", "would empty      /etc/machine-id"} {
		if !strings.Contains(planned, want) {
			t.Errorf("no %q in exit %d: %s%s", want, code, planned, errs)
		}
	}
	done, errs, again := program(t, "nodeadm", "image", "clean", "--root", root)
	squeezed := func(text string) string {
		var lines []string
		for line := range strings.Lines(strings.ReplaceAll(text, "would ", "")) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return strings.Join(lines, "\n")
	}
	if code != 10 || again != 0 || squeezed(planned) != squeezed(done) {
		t.Errorf("planned, exit %d:\n%s\ndone, exit %d:\n%s%s", code, planned, again, done, errs)
	}
	if out, _, code := program(t, "nodeadm", "image", "clean", "--dry-run", "--root", root); code != 0 || !strings.Contains(out, "nothing to do") {
		t.Errorf("afterwards: exit %d: %s", code, out)
	}
}
