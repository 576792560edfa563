package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

func TestToken(t *testing.T) {
	endpoint := serveWorld(t, nil)
	for _, test := range []struct {
		info, version string
	}{
		{"", "v1beta1"},
		{`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}`, "v1"},
		{`{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential"}`, "v1beta1"},
	} {
		t.Setenv("KUBERNETES_EXEC_INFO", test.info)
		out, errs, code := program(t, "nodeadm", "token", "--cluster-name", "my-cluster", "--imds-endpoint", endpoint)
		var answer execCredential
		if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
		}
		expires, err := time.Parse(time.RFC3339, answer.Status.ExpirationTimestamp)
		if err != nil || time.Until(expires) < 13*time.Minute || time.Until(expires) > 14*time.Minute {
			t.Errorf("expires %v, %v", expires, err)
		}
		if answer.APIVersion != "client.authentication.k8s.io/"+test.version || answer.Kind != "ExecCredential" || !strings.HasPrefix(answer.Status.Token, "k8s-aws-v1.") {
			t.Errorf("%s", out)
		}
	}
	t.Setenv("KUBERNETES_EXEC_INFO", "")
	noRole := serveWorld(t, func(w *simulator.World) { w.Instance.Role = "" })
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{}, 2, "--cluster-name is missing"},
		{[]string{"--cluster-name", "c", "word"}, 2, "unexpected word"},
		{[]string{"--cluster-name", "c", "--imds-endpoint", noRole, "--timeout", "1s"}, 3, "credentials of the instance's role"},
	} {
		if out, errs, code := program(t, append([]string{"nodeadm", "token"}, test.args...)...); code != test.code || !strings.Contains(errs, test.says) || out != "" {
			t.Errorf("%v: exit %d, want %d: %s%s", test.args, code, test.code, out, errs)
		}
	}
	t.Setenv("KUBERNETES_EXEC_INFO", `{"apiVersion":"client.authentication.k8s.io/v1alpha1"}`)
	if _, errs, code := program(t, "nodeadm", "token", "--cluster-name", "c", "--imds-endpoint", endpoint); code != 2 || !strings.Contains(errs, "v1alpha1") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
