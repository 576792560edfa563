package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// TestFailureIsExplained is a node that nodeadm could not make: what is wrong is
// on the console, in the status, and the doctor's answer, whatever it was.
func TestFailureIsExplained(t *testing.T) {
	machine.Require(t)
	t.Parallel() // most of it is waiting
	c := StartControlPlane(t)
	ctx := within(t, 5*time.Minute)
	const broken = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\n\n--BOUNDARY\nContent-Type: application/node.eks.aws\n\n%s\n--BOUNDRY--\n"
	n := c.StartNode(NodeOptions{Kubelet: "1.36", UserData: fmt.Sprintf(broken, c.document()), Files: unitFiles(t)})
	n.WaitBooted(ctx)

	said := n.Journal("nodeadm.service")
	if !strings.Contains(said, "doctor: CAUSE userdata-mime: ") {
		t.Errorf("the journal does not name the cause:\n%s", said)
	}
	if lines := strings.Count(said, "doctor: "); lines == 0 || lines > 12 {
		t.Errorf("the doctor takes %d lines", lines)
	}
	// The console of this machine is a pipe, which journald does not write to.
	if to := n.MustRun(ctx, "systemctl", "show", "--property=StandardError", "--value", "nodeadm.service"); to != "journal+console\n" {
		t.Errorf("what nodeadm says goes to %s", to)
	}
	if run := n.LastRun(); run.Outcome != "failed" || run.ExitCode != 2 || run.Diagnosis == nil || run.Diagnosis.Cause != "userdata-mime" || len(run.Diagnosis.Results) < 40 {
		t.Errorf("status.json: %+v", run)
	}

	for _, test := range []struct{ name, userData, want, says string }{
		{"a broken MIME boundary", fmt.Sprintf(broken, c.document()), "userdata-mime", "line"},
		{"no configuration", "#cloud-config\npackages: [jq]\n", "config-found", "which cluster"},
		{"an unknown field", strings.Replace(c.document(), "maxPods:", "maxPodz:", 1), "config-strict", "maxPodz"},
		{"a label that kubelet would refuse", strings.Replace(c.document(), "team=blue", "kubernetes.io/team=blue", 1), "config-strict", "kubernetes.io/team"},
		{"a flag that kubelet does not have", strings.Replace(c.document(), "--node-labels", "--no-such-flag=1\", \"--node-labels", 1), "config-strict", "no-such-flag"},
		{"nodeadm that nobody ran", c.document(), "stale-marker", "has not run"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n.simulate(ctx, func(w *simulator.World) { w.UserData = test.userData })
			if test.want == "stale-marker" {
				n.MustRun(ctx, "rm", "/run/nodeadm/status.json")
			}
			d := n.examine(ctx)
			fmt.Printf("doctor: %-44s CAUSE %s\n", test.name, firstLine(d.Verdict))
			if d.Cause != test.want || !strings.Contains(d.Verdict, test.says) {
				t.Errorf("the doctor says %q, want %s: …%s…", d.Verdict, test.want, test.says)
			}
		})
	}

	t.Run("a role that nobody mapped", func(t *testing.T) {
		n.simulate(ctx, func(w *simulator.World) { w.UserData = c.document() })
		n.MustRun(ctx, "nodeadm", "init")
		n.importSandbox(ctx)
		out := n.Run(ctx, "nodeadm", "init", "--wait", "joined", "--timeout", "10s")
		for _, want := range []string{"doctor: CAUSE api-auth: the API server answers 401", "aws eks create-access-entry", "rolearn: arn:aws:iam::111111111111:role/" + Role} {
			if !strings.Contains(out.Stderr, want) {
				t.Errorf("it does not say %q", want)
			}
		}
		if lines := strings.Count(out.Stderr, "doctor: "); out.ExitCode != 6 || lines > 12 {
			t.Errorf("exit code %d, %d lines of the doctor's:\n%s", out.ExitCode, lines, out.Stderr)
		}
		if run := n.LastRun(); run.Diagnosis == nil || run.Diagnosis.Cause != "api-auth" || run.ExitCode != 6 {
			t.Errorf("status.json: %+v", run)
		}
	})
	t.Run("and helped with", func(t *testing.T) { checkBundle(t, n) })
}

// checkBundle wants all that helps in a support bundle, and no secret.
func checkBundle(t *testing.T, n *Node) {
	ctx := within(t, 2*time.Minute)
	const password, variable = "s3cr3t-Pa55word", "val0e-of-a-Token"
	key := newAuthority(t).client("somebody", "").key
	document := strings.Replace(n.control.document(), "    environment:\n", "    environment:\n      default: {REGISTRY_TOKEN: "+variable+"}\n", 1) +
		"  proxy:\n    https: http://alice:" + password + "@127.0.0.1:3128\n    noProxy: [eks.amazonaws.com]\n"
	userData := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B\nContent-Type: application/node.eks.aws\n\n" + document +
		"\n--B\nContent-Type: text/cloud-config\n\n#cloud-config\nwrite_files:\n- path: /etc/tls.key\n  content: |\n    " + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n    ") + "\n--B--\n"
	n.simulate(ctx, func(w *simulator.World) { w.UserData = userData })
	if out := n.Run(ctx, "nodeadm", "init"); out.ExitCode != 0 {
		t.Fatalf("exit code %d: %s", out.ExitCode, out.Stderr)
	}
	// As a script with set -x leaves them in the journal and in cloud-init's log.
	n.WriteFile("/root/leak.sh", machine.File{Mode: 0o755, Content: "#!/bin/sh\ncat <<'END' | logger -t user-data\n+ export HTTPS_PROXY=http://alice:" + password + "@127.0.0.1:3128\n+ curl -u alice:" + password + " https://x\n" + key + "END\n" +
		"cat >>/var/log/cloud-init-output.log <<'END'\n" + userData + "END\njournalctl --sync\n"})
	n.MustRun(ctx, "/root/leak.sh")

	start := time.Now()
	out := n.MustRun(ctx, "nodeadm", "support-bundle", "--file", "/root/bundle.tgz")
	fmt.Printf("support-bundle: %s in %.1f s\n", strings.TrimSpace(out), time.Since(start).Seconds())
	if mode := strings.TrimSpace(n.MustRun(ctx, "stat", "-c", "%a %s", "/root/bundle.tgz")); !strings.HasPrefix(mode, "600 ") {
		t.Errorf("the bundle's permissions and size are %s", mode)
	}
	files := unpack(t, n.ReadFile("/root/bundle.tgz"))
	total := 0
	for name, data := range files {
		total += len(data)
		for _, secret := range append(lines(key), password, variable) {
			if strings.Contains(data, secret) {
				at := strings.Index(data, secret)
				t.Errorf("%s holds the secret %q: …%q", name, secret, data[max(0, at-120):at+len(secret)])
			}
		}
	}
	if total > 32<<20 {
		t.Errorf("%d bytes", total)
	}
	for name, says := range map[string]string{
		"doctor.json":                                                            `"results"`,
		"files/run/nodeadm/status.json":                                          `"outcome"`,
		"files/etc/kubernetes/kubelet/kubelet-config.json":                       `"maxPods"`,
		"files/var/lib/kubelet/kubeconfig":                                       "/usr/bin/nodeadm",
		"files/etc/containerd/config.toml":                                       "SystemdCgroup",
		"files/var/log/cloud-init-output.log":                                    "[REDACTED]",
		"files/etc/resolv.conf":                                                  "nameserver",
		"commands/ip_route_show_table_all.txt":                                   "default via " + Address,
		"commands/journalctl_boot_no-pager_output_short-precise_lines_20000.txt": "user-data",
	} {
		if !strings.Contains(files[name], says) {
			t.Errorf("%s does not hold %q (%d bytes)", name, says, len(files[name]))
		}
	}
	var run nodeadm.LastRun
	if err := json.Unmarshal([]byte(files["files/run/nodeadm/status.json"]), &run); err != nil {
		t.Errorf("status.json does not read back: %v", err)
	}
}

func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		var data bytes.Buffer
		if _, err := io.Copy(&data, reader); err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "nodeadm-support/")] = data.String()
	}
}

// lines are the lines of a private key that are secret.
func lines(key string) (secret []string) {
	for line := range strings.Lines(key) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			secret = append(secret, line)
		}
	}
	return secret
}
