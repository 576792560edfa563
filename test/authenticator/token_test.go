// Package authenticator holds nodeadm's tokens to the program that EKS's API
// servers check them with. It is a module of its own, so that what that program
// needs stays out of nodeadm's.
package authenticator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/aws-iam-authenticator/pkg/token"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// partitions that the verifier knows, with regions of each.
var partitions = map[string]string{
	"eu-west-1": "aws", "us-east-1": "aws", "ap-southeast-5": "aws", "cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov",
	"us-iso-east-1": "aws-iso", "us-isob-east-1": "aws-iso-b",
}

// intercepted lets the verifier's requests to STS end in the simulator.
func intercepted(t *testing.T, world simulator.World) *simulator.Server {
	t.Helper()
	server := simulator.New(world)
	real := http.DefaultTransport
	http.DefaultTransport = roundTripper(func(r *http.Request) (*http.Response, error) {
		answer := httptest.NewRecorder()
		r.Host = r.URL.Host
		server.ServeHTTP(answer, r)
		return answer.Result(), nil
	})
	t.Cleanup(func() { http.DefaultTransport = real })
	return server
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTokenIsAccepted(t *testing.T) {
	for region, partition := range partitions {
		for _, variant := range []struct {
			name            string
			fips, dualStack bool
		}{{"", false, false}, {" FIPS", true, false}, {" dual stack", false, true}, {" FIPS and dual stack", true, true}} {
			t.Run(region+variant.name, func(t *testing.T) {
				world := simulator.Default()
				world.Instance.Region, world.Instance.Zone, world.Instance.Partition = region, region+"a", partition
				endpoint, stop, err := simulator.New(world).Start("")
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				client := awsapi.New(awsapi.Options{Region: region, IMDS: imds.New(imds.Options{Endpoint: endpoint}), UseFIPS: variant.fips, UseDualStack: variant.dualStack})
				made, expires, err := client.Token(context.Background(), "my-cluster", time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if left := time.Until(expires); left < 13*time.Minute || left > 14*time.Minute {
					t.Errorf("it expires in %v", left)
				}
				intercepted(t, world)
				identity, err := token.NewVerifier("my-cluster", partition, region).Verify(made)
				if err != nil {
					t.Fatal(err)
				}
				want := "arn:" + partition + ":sts::" + world.Instance.Account + ":assumed-role/NodeInstanceRole/" + world.Instance.ID
				if identity.ARN != want || identity.SessionName != world.Instance.ID {
					t.Errorf("it is for %s, session %s; want %s", identity.ARN, identity.SessionName, want)
				}
				if _, err := token.NewVerifier("other-cluster", partition, region).Verify(made); err == nil || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
					t.Errorf("another cluster takes it too: %v", err)
				}
			})
		}
	}
}

// What STS refuses, the verifier does.
func TestTokenThatIsRefused(t *testing.T) {
	world := simulator.Default()
	intercepted(t, world)
	verify := func(o awsapi.Options, at time.Time) error {
		o.Region = world.Instance.Region
		made, _, err := awsapi.New(o).Token(context.Background(), "c", at)
		if err != nil {
			t.Fatal(err)
		}
		_, err = token.NewVerifier("c", "aws", o.Region).Verify(made)
		return err
	}
	good := awsapi.Options{AccessKeyID: "ASIASIMULATED0000000", SecretAccessKey: "simulated-secret-access-key", SessionToken: "simulated-session-token"}
	if err := verify(good, time.Now()); err != nil {
		t.Fatal(err)
	}
	bad := good
	bad.SecretAccessKey = "guessed"
	for what, err := range map[string]error{
		"another secret": verify(bad, time.Now()), "an old one": verify(good, time.Now().Add(-16*time.Minute)), "one of the future": verify(good, time.Now().Add(6*time.Minute)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
