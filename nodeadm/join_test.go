package nodeadm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// The phase asks the API server as the node: with tokens of the instance's role,
// for its own Node object of this boot.
func TestJoinPhase(t *testing.T) {
	world := simulator.Default()
	metadata, stop, err := simulator.New(world).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	bootID, err := os.ReadFile(bootIDFile)
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name    string
		knowsAt int // from which question on the API server knows the role
	}{
		{"joins", 2}, {"does not join", 1 << 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tokens []string
			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/ip-10-0-0-5.eu-west-1.compute.internal" {
					w.Header().Set("Content-Type", "application/json")
					json.NewEncoder(w).Encode(map[string]any{"spec": map[string]any{"renewTime": time.Now()}})
					return
				}
				if r.URL.Path != "/api/v1/nodes/ip-10-0-0-5.eu-west-1.compute.internal" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				tokens = append(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				w.Header().Set("Content-Type", "application/json")
				if len(tokens) < test.knowsAt {
					w.WriteHeader(http.StatusUnauthorized)
					w.Write([]byte(`{"kind":"Status","message":"Unauthorized"}`))
					return
				}
				json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{
					"nodeInfo":   map[string]any{"bootID": strings.TrimSpace(string(bootID))},
					"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "cni plugin not initialized"}},
				}})
			}))
			defer api.Close()
			var said bytes.Buffer
			log := logrus.New()
			log.Out = &said

			// Keys of the one who runs nodeadm are not the node's.
			b := newRun(Options{Root: "/", IMDSEndpoint: metadata, Log: log, AWS: awsapi.Options{AccessKeyID: "AKIASOMEBODYELSE", SecretAccessKey: "x"}})
			b.result.Facts.Instance = facts.Instance{ID: world.Instance.ID, Region: "eu-west-1", Partition: "aws", Account: "111111111111"}
			b.result.Plan.Node = plan.Node{
				Name: "ip-10-0-0-5.eu-west-1.compute.internal", Cluster: "c", TokensFor: "c", Endpoint: api.URL, Direct: true,
				CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}),
			}
			ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
			defer cancel()
			err := b.waitJoined(ctx, func(context.Context) time.Time { return time.Time{} })

			if test.knowsAt < 10 {
				if err != nil || b.result.Node == nil || b.result.Node.Reason != "KubeletNotReady" || !strings.Contains(said.String(), "Ready=False (KubeletNotReady: cni plugin not initialized)") {
					t.Errorf("%v, %+v\n%s", err, b.result.Node, &said)
				}
			} else if fault.CodeOf(err) != fault.NotJoined || b.result.Node != nil || !strings.Contains(fault.Remedy(err), "rolearn: arn:aws:iam::111111111111:role/"+world.Instance.Role+"\n") {
				t.Errorf("%v\nfix: %s", err, fault.Remedy(err))
			}
			if url, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(tokens[0], "k8s-aws-v1.")); err != nil || !strings.Contains(string(url), "X-Amz-Credential=ASIA") {
				t.Errorf("%v: the token is not of the instance's role: %s", err, url)
			}
			if len(tokens) < 2 || !strings.HasPrefix(tokens[0], "k8s-aws-v1.") || tokens[1] != tokens[0] {
				t.Errorf("tokens %q", tokens)
			}
			if err != nil {
				said.WriteString(err.Error() + fault.Remedy(err))
			}
			for _, token := range tokens {
				if strings.Contains(said.String(), token) {
					t.Error("the log has the token")
				}
			}
		})
	}
}
