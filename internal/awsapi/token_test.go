package awsapi

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

var someone = Options{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", SessionToken: "session"}

func presigned(t *testing.T, o Options, at time.Time) *url.URL {
	t.Helper()
	token, _, err := New(o).Token(context.Background(), "my-cluster", at)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "k8s-aws-v1."))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(decoded))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTokenHosts(t *testing.T) {
	for region, want := range map[string]string{
		"eu-west-1": "sts.eu-west-1.amazonaws.com", "cn-north-1": "sts.cn-north-1.amazonaws.com.cn", "us-gov-west-1": "sts.us-gov-west-1.amazonaws.com",
		"us-iso-east-1": "sts.us-iso-east-1.c2s.ic.gov", "us-isob-east-1": "sts.us-isob-east-1.sc2s.sgov.gov", "us-isof-south-1": "sts.us-isof-south-1.csp.hci.ic.gov",
		"eu-isoe-west-1": "sts.eu-isoe-west-1.cloud.adc-e.uk", "eusc-de-east-1": "sts.eusc-de-east-1.amazonaws.eu",
	} {
		o := someone
		for _, o.UseDualStack = range []bool{false, true} {
			for _, o.UseFIPS = range []bool{false, true} {
				o.Region = region
				if got := presigned(t, o, time.Now()).Host; got != want {
					t.Errorf("%s: %s, want %s", region, got, want)
				}
			}
		}
	}
	o := someone
	o.Region, o.UseFIPS = "us-east-1", true
	if got := presigned(t, o, time.Now()).Host; got != "sts-fips.us-east-1.amazonaws.com" {
		t.Errorf("FIPS: %s", got)
	}
	// The control plane goes there, whichever way the node takes.
	o.Endpoints = map[string]string{"": "https://vpce.example/", "STS": "https://sts.example/"}
	if got := presigned(t, o, time.Now()).Host; got != "sts-fips.us-east-1.amazonaws.com" {
		t.Errorf("with endpoints of the node's own: %s", got)
	}
}

func TestTokenRefuses(t *testing.T) {
	for _, test := range []struct{ region, cluster, says string }{
		{"", "c", "is no region"}, {"EU-WEST-1", "c", "is no region"}, {"eu-west-1 ", "c", "is no region"}, {"../evil.com/#", "c", "is no region"},
		{"--", "c", "is no region"}, {"eu-west-1-", "c", "is no region"}, {"bogus", "c", "is no region"},
		{"eu-west-1", "", "is no name of a cluster"}, {"eu-west-1", "bad name!!", "is no name of a cluster"}, {"eu-west-1", "c\n", "is no name of a cluster"},
	} {
		o := someone
		o.Region = test.region
		if _, _, err := New(o).Token(t.Context(), test.cluster, time.Now()); err == nil || !strings.Contains(err.Error(), test.says) || fault.Remedy(err) == "" {
			t.Errorf("%q %q: %v", test.region, test.cluster, err)
		}
	}
}

func TestTokenIsThatRequest(t *testing.T) {
	o := someone
	o.Region = "eu-west-1"
	query := presigned(t, o, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)).Query()
	query.Del("X-Amz-Signature")
	want := url.Values{
		"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}, "X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-Credential": {"AKIDEXAMPLE/20260102/eu-west-1/sts/aws4_request"},
		"X-Amz-Date": {"20260102T030405Z"}, "X-Amz-Expires": {"60"}, "X-Amz-Security-Token": {"session"}, "X-Amz-SignedHeaders": {"host;x-k8s-aws-id"},
	}
	if diff := cmp.Diff(want, query); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
