package machine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

const kubeletUnit = `[Service]
ExecStart=/usr/bin/kubelet --config /etc/kubernetes/kubelet/kubelet-config.json --kubeconfig=/var/lib/kubelet/kubeconfig '--node-labels=a=b c'
`

func TestStandInKubelet(t *testing.T) {
	Require(t)
	const config = "/etc/kubernetes/kubelet/kubelet-config.json"
	const head = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"`
	m, ctx := boot(t, Options{Files: map[string]File{
		"/usr/bin/kubelet":                    {Source: StandInKubelet(t, "1.34.4")},
		"/etc/systemd/system/kubelet.service": {Content: kubeletUnit},
		"/var/lib/kubelet/kubeconfig":         {Content: "apiVersion: v1\nkind: Config\n"},
		config:                                {Content: head + `,"maxPods":29}`},
	}})

	if got := m.MustRun(ctx, "kubelet", "--version"); got != "Kubernetes v1.34.4\n" {
		t.Errorf("--version: %q", got)
	}
	m.MustRun(ctx, "systemctl", "start", "kubelet")
	if !until(ctx, func() bool { return answers(ctx, m, "10248") }) {
		t.Fatalf("not healthy:\n%s", m.Journal("kubelet"))
	}
	var argv []string
	if err := json.Unmarshal([]byte(m.ReadFile("/run/kubelet-standin/args.json")), &argv); err != nil {
		t.Error(err)
	}
	want := []string{"/usr/bin/kubelet", "--config", config, "--kubeconfig=/var/lib/kubelet/kubeconfig", "--node-labels=a=b c"}
	if !slices.Equal(argv, want) {
		t.Errorf("argv %q, want %q", argv, want)
	}
	m.MustRun(ctx, "systemctl", "stop", "kubelet")
	if got := m.MustRun(ctx, "systemctl", "show", "-P", "Result", "kubelet"); got != "success\n" {
		t.Errorf("after SIGTERM: %s", got)
	}

	// Each way to die says why.
	for _, c := range []struct {
		name, path, content, says string
	}{
		{"unknown field", config, head + `,"maxPod":29}`, `unknown field "maxPod"`},
		{"fail at start", "/etc/kubelet-standin/fail", "no CNI for you", "no CNI for you"},
		{"fail later", "/etc/kubelet-standin/fail", "fail-after: 200ms\nout of memory", "out of memory"},
	} {
		m.WriteFile(config, File{Content: head + "}"})
		m.WriteFile(c.path, File{Content: c.content})
		m.MustRun(ctx, "systemctl", "start", "kubelet")
		failed := func() bool {
			return m.Run(ctx, "systemctl", "show", "-P", "ActiveState", "kubelet").Stdout == "failed\n"
		}
		if !until(ctx, failed) || !strings.Contains(m.Journal("kubelet"), c.says) {
			t.Errorf("%s: not failed, or no %q in the journal:\n%s", c.name, c.says, m.Journal("kubelet"))
		}
	}
}

// answers asks for /healthz with what the machine has: bash.
func answers(ctx context.Context, m *Machine, port string) bool {
	r := m.Run(ctx, "bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/`+port+
		` && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && cat <&3`)
	return strings.HasSuffix(r.Stdout, "\r\n\r\nok")
}

func until(ctx context.Context, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}
