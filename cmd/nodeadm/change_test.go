package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

const kubeletConfig = "/etc/kubernetes/kubelet/kubelet-config.json"

// edit changes a file of a root as somebody with an editor does.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("no %q in %s (%v)", old, path, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestChangeByHand is the night at the node: see, run, edit, see, run, take
// over, go back.
func TestChangeByHand(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	args := bootstrapArgs("nodeadm", endpoint, root, "c")
	run := func(want int, more ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := program(t, append(args, more...)...)
		if code != want {
			t.Fatalf("%v: exit %d, want %d:\n%s%s", more, code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	other := func(want int, words ...string) string {
		t.Helper()
		out, errs, code := program(t, append(append([]string{"nodeadm"}, words...), "--root", root)...)
		if code != want {
			t.Fatalf("%v: exit %d, want %d:\n%s%s", words, code, want, out, errs)
		}
		return out
	}
	other(1, "status")
	if out := other(0, "history", "-o", "json"); out != "[]\n" {
		t.Errorf("history before the first run: %s", out)
	}

	out, _ := run(10, "--dry-run")
	if !strings.Contains(out, "--- /dev/null\n+++ "+kubeletConfig+"\n@@ ") || !strings.Contains(out, "\n+  \"maxPods\": 29,\n") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("%s", out)
	}
	if entries, _ := os.ReadDir(root); len(entries) > 0 {
		t.Fatalf("the preview left %v", entries)
	}
	run(0)
	run(0, "--dry-run")
	other(0, "status")

	edit(t, root+kubeletConfig, `"maxPods": 29`, `"maxPods": 42`)
	if out := other(1, "status"); !strings.Contains(out, kubeletConfig+": changed") || !strings.Contains(out, `42, from kubelet-config.json, set by "hand"`) {
		t.Errorf("%s", out)
	}
	const conflict = "conflict with \"hand\" in " + kubeletConfig + ":\n"
	if out, _ := run(0, "--dry-run"); !strings.Contains(out, conflict) || !strings.Contains(out, `- .maxPods: 42, set by "hand", stays; "nodeadm" wants 29 (--force-conflicts)`) {
		t.Errorf("%s", out)
	}
	if _, errs := run(0); !strings.Contains(errs, conflict) || !strings.Contains(errs, "nothing changed") {
		t.Errorf("%s", errs)
	}
	if out := other(0, "config", "show", "--managed-fields"); !strings.Contains(strings.Join(strings.Fields(out), " "), ".maxPods 42 hand") {
		t.Errorf("%s", out)
	}
	run(10, "--dry-run", "--force-conflicts")
	run(0, "--force-conflicts")
	edit(t, root+kubeletConfig, `"maxPods": 29`, `"maxPods": 29`)

	other(0, "rollback")
	edit(t, root+kubeletConfig, `"maxPods": 42`, `"maxPods": 42`)
	if out := other(0, "history", "2"); !strings.Contains(out, "-  \"maxPods\": 42,\n+  \"maxPods\": 29,\n") {
		t.Errorf("%s", out)
	}
	other(0, "rollback", "2")
	edit(t, root+kubeletConfig, `"maxPods": 29`, `"maxPods": 29`)
	for _, wrong := range []string{"abc", "-1", "99"} {
		other(2, "rollback", wrong)
	}
	other(0, "reset")
	if left, _ := filepath.Glob(root + "/*/*/*"); len(left) > 0 {
		t.Errorf("after the reset: %v", left)
	}
	other(1, "status")
}

// TestPlanAnswersInJSON holds the answer to its shape: every key is always
// there, and lists are lists.
func TestPlanAnswersInJSON(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	keys := func(args ...string) map[string]any {
		t.Helper()
		out, errs, _ := program(t, bootstrapArgs("nodeadm", endpoint, root, append([]string{"c", "-o", "json", "--dry-run"}, args...)...)...)
		var answer map[string]any
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		for _, list := range []string{"files", "units", "left", "conflicts", "warnings"} {
			if _, isList := answer[list].([]any); !isList {
				t.Errorf("%s is %v", list, answer[list])
			}
		}
		return answer
	}
	first := keys()
	if first["changesPending"] != true || len(first["files"].([]any)) < 8 {
		t.Errorf("%v", first)
	}
	file := first["files"].([]any)[0].(map[string]any)
	if file["path"] != "/etc/containerd/config.toml" || file["action"] != "create" || file["mode"] != "0644" || file["origin"] != "nodeadm" || !strings.HasPrefix(file["diff"].(string), "--- /dev/null\n") {
		t.Errorf("%v", file)
	}
	if _, errs, code := program(t, bootstrapArgs("nodeadm", endpoint, root, "c")...); code != 0 {
		t.Fatal(errs)
	}
	edit(t, root+kubeletConfig, `"maxPods": 29`, `"maxPods": 42`)
	second := keys()
	want := []any{map[string]any{"path": kubeletConfig, "field": ".maxPods", "manager": "hand", "value": 42.0, "wantedBy": "nodeadm", "wanted": 29.0, "taken": false}}
	if diff := cmp.Diff(want, second["conflicts"]); diff != "" || second["changesPending"] != false {
		t.Errorf("pending %v, conflicts (-want +got):\n%s", second["changesPending"], diff)
	}
}

// No answer shows a password, and no file that everybody can read holds one.
func TestSecretsStaySecret(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	c := simulator.Default().Cluster
	document := filepath.Join(t.TempDir(), "node.yaml")
	write := func(password string) {
		text := "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster: {name: c, apiServerEndpoint: \"" + c.Endpoint + "\", certificateAuthority: " + c.CertificateAuthority + ", cidr: 10.100.0.0/16}\n" +
			"  proxy: {https: \"http://user:" + password + "@proxy:3128\"}\n  instance: {environment: {kubelet: {TOKEN: " + password + "}}}\n"
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := ""
	run := func(words ...string) {
		t.Helper()
		out, errs, _ := program(t, append([]string{"nodeadm"}, append(words, "--root", root)...)...)
		said += out + errs
	}
	source := []string{"-c", "file://" + document, "--imds-endpoint", endpoint, "--kubelet-version", "1.34.4", "--timeout", "5s"}
	write("hunter2")
	run(append([]string{"plan"}, source...)...)
	run(append([]string{"plan", "-o", "json"}, source...)...)
	run(append([]string{"init"}, source...)...)
	write("swordfish")
	run(append([]string{"plan"}, source...)...)
	run(append([]string{"init"}, source...)...)
	for _, words := range [][]string{{"history"}, {"history", "1"}, {"history", "2", "-o", "json"}, {"status", "-o", "json"}, {"config", "show", "--managed-fields"}, {"config", "show", "--managed-fields", "-o", "json"}} {
		run(words...)
	}
	if !strings.Contains(said, "TOKEN") {
		t.Fatalf("nothing was said of the file:\n%s", said)
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		info, infoErr := d.Info()
		if err != nil || infoErr != nil || d.IsDir() || info.Mode().Perm()&0o044 == 0 {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		for _, secret := range []string{"hunter2", "swordfish"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s (%v) holds a password", path, info.Mode())
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatal(files, err)
	}
	for _, secret := range []string{"hunter2", "swordfish"} {
		if at := strings.Index(said, secret); at >= 0 {
			t.Errorf("a password is shown: …%s…", said[max(0, at-80):min(len(said), at+40)])
		}
	}
}

// What somebody keeps from everybody stays so: the file, what is remembered of
// it, and what is shown.
func TestPrivateFilesStayPrivate(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	path := root + "/etc/containerd/config.toml"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.x.auth]\npassword = \"hunter2\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := bootstrapArgs("nodeadm", endpoint, root, "c")
	if out, _, _ := program(t, append(args, "--dry-run")...); strings.Contains(out, "hunter2") {
		t.Errorf("the password is shown:\n%s", out)
	}
	if _, errs, code := program(t, args...); code != 0 {
		t.Fatal(errs)
	}
	for _, name := range []string{path, root + "/var/lib/nodeadm/applied.json"} {
		data, err := os.ReadFile(name)
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil || !strings.Contains(string(data), "hunter2") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, %v", name, info.Mode(), err, statErr)
		}
	}
	if _, errs, code := program(t, args...); code != 0 || !strings.Contains(errs, "nothing changed") {
		t.Errorf("a second run: exit %d: %s", code, errs)
	}
}

// Undoing a run that was cut short is the rollback that was asked for.
func TestRollbackOfARunThatWasCutShort(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	for _, more := range []string{"--node-labels=a=b", "--node-labels=a=c"} {
		if _, errs, code := program(t, bootstrapArgs("nodeadm", endpoint, root, "c", "--kubelet-extra-args", more)...); code != 0 {
			t.Fatal(errs)
		}
	}
	edit(t, root+"/var/lib/nodeadm/generations/2/manifest.json", `"outcome": "applied"`, `"outcome": "applying"`)
	if _, errs, code := program(t, "nodeadm", "rollback", "--root", root); code != 0 || !strings.Contains(errs, "was undone") {
		t.Errorf("exit %d: %s", code, errs)
	}
	edit(t, root+"/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf", "a=b", "a=b")
}

func TestNoWayBack(t *testing.T) {
	endpoint, root := serveWorld(t, nil), t.TempDir()
	if _, errs, code := program(t, bootstrapArgs("nodeadm", endpoint, root, "c")...); code != 0 {
		t.Fatal(errs)
	}
	if err := os.RemoveAll(root + "/var/lib/nodeadm/generations"); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := program(t, "nodeadm", "reset", "--root", root); code != 4 || !strings.Contains(errs, "cannot be brought back") {
		t.Errorf("exit %d: %s", code, errs)
	}
	// A pipe in place of a file keeps nobody waiting.
	if err := os.Remove(root + kubeletConfig); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(root+kubeletConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := program(t, "nodeadm", "status", "--root", root); code != 1 || !strings.Contains(out, "not a regular file") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestHide(t *testing.T) {
	got := string(hide([]byte("[Service]\nEnvironment='A=S1'\nEnvironment=\"B=S2\" \"C=S3\"\n# D=S4\nEnvironment=E=x \\\n  F=S5\nExecStartPre=/bin/login --password S6\n")))
	if want := "[Service]\nEnvironment='A=…\nEnvironment='B=…\n…\nEnvironment='E=…\n…\nExecStartPre=…\n"; got != want {
		t.Errorf("%s", got)
	}
}
