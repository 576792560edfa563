package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFlagValue(t *testing.T) {
	for _, c := range []struct{ argv, want string }{
		{"kubelet --config /a", "/a"},
		{"kubelet --config=/a --v=2", "/a"},
		{"kubelet --config=/a --config /b", "/b"},
		{"kubelet --config-dir=/d", ""},
		{"kubelet --config", ""},
	} {
		if got := flagValue(strings.Fields(c.argv), "--config"); got != c.want {
			t.Errorf("%s: %q, want %q", c.argv, got, c.want)
		}
	}
}

func TestConfigIsStrict(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, c := range map[string]struct{ content, wantErr string }{
		"fits":           {head + "maxPods: 29\nclusterDNS: [10.100.0.10]\n", ""},
		"JSON fits":      {`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":29}`, ""},
		"unknown field":  {head + "maxPod: 29\n", `unknown field "maxPod"`},
		"wrong case":     {head + "maxpods: 29\n", `unknown field "maxpods"`},
		"wrong type":     {head + "maxPods: many\n", "maxPods"},
		"given twice":    {head + "maxPods: 1\nmaxPods: 2\n", "already set"},
		"another kind":   {"apiVersion: v1\nkind: Config\n", "v1 Config"},
		"no kind at all": {"maxPods: 29\n", "KubeletConfiguration"},
	} {
		t.Run(name, func(t *testing.T) { wantErr(t, checkConfig(write(t, c.content)), c.wantErr) })
	}
	wantErr(t, checkConfig("/nonexistent"), "no such file")
}

func checkConfig(path string) error {
	_, err := readConfig(path)
	return err
}

func TestKubeconfig(t *testing.T) {
	wantErr(t, checkKubeconfig(write(t, "apiVersion: v1\nkind: Config\n")), "")
	wantErr(t, checkKubeconfig(write(t, "a: [")), "is not YAML")
	wantErr(t, checkKubeconfig(write(t, "")), "is empty")
	wantErr(t, checkKubeconfig("/nonexistent"), "no such file")
}

func TestFailure(t *testing.T) {
	argv := []string{"kubelet", "--node-labels=bad=1"}
	for content, want := range map[string]failure{
		"no CNI\n":              {message: "no CNI"},
		"fail-after: 2s\nOOM\n": {message: "OOM", after: 2 * time.Second},
		"fail-after: 300ms":     {message: "failed on order after 300ms", after: 300 * time.Millisecond},
		"when-arg: --node-labels=bad=1\nfail-after: 2s\nbad label": {message: "bad label", after: 2 * time.Second, whenArg: "--node-labels=bad=1"},
	} {
		got, err := readFailure(write(t, content), argv)
		if err != nil || *got != want {
			t.Errorf("%q: %+v, %v; want %+v", content, got, err, want)
		}
	}
	if got, err := readFailure("/nonexistent", argv); got != nil || err != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
	if got, err := readFailure(write(t, "when-arg: --node-labels=bad=2\nbad label"), argv); got != nil || err != nil {
		t.Errorf("another argument: %v, %v", got, err)
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantErr(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
		return
	}
	t.Errorf("error %v, want %q", err, want)
}
