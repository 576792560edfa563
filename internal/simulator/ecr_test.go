package simulator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// ecrCall is a call to ECR, and what is wrong with it.
type ecrCall struct {
	target, service, region string
	credentials             aws.Credentials
	at                      time.Time
	signed                  func(*http.Request) // changes the request before it is signed
	sent                    func(*http.Request) // and after that
}

func (c ecrCall) do(t *testing.T, base string) (int, string) {
	t.Helper()
	body := []byte("{}")
	r, err := http.NewRequest(http.MethodPost, base+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", amzJSON)
	r.Header.Set("X-Amz-Target", c.target)
	if c.signed != nil {
		c.signed(r)
	}
	hash := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(context.Background(), c.credentials, r, hex.EncodeToString(hash[:]), c.service, c.region, c.at); err != nil {
		t.Fatal(err)
	}
	if c.sent != nil {
		c.sent(r)
	}
	return do(t, r)
}

func roleCall() ecrCall {
	return ecrCall{
		target: "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", service: "ecr", region: "eu-west-1", at: time.Now(),
		credentials: aws.Credentials{AccessKeyID: roleKeyID, SecretAccessKey: roleSecret, SessionToken: roleSessionToken},
	}
}

func publicCall() ecrCall {
	c := roleCall()
	c.target, c.service, c.region = "SpencerFrontendService.GetAuthorizationToken", "ecr-public", ecrPublicRegion
	return c
}

func TestRegistryTokens(t *testing.T) {
	s, base := start(t, Default())
	type token struct {
		AuthorizationToken []byte
		ExpiresAt          float64
		ProxyEndpoint      string
	}
	check := func(got token, proxy string) {
		t.Helper()
		left := time.Until(time.UnixMilli(int64(got.ExpiresAt * 1000)))
		if string(got.AuthorizationToken) != "AWS:registry-password-of-111111111111" || left < 11*time.Hour || left > 12*time.Hour || got.ProxyEndpoint != proxy {
			t.Errorf("got %+v", got)
		}
	}
	var private struct{ AuthorizationData []token }
	call := roleCall()
	call.region = "us-west-2" // ECR is everywhere
	if status, body := call.do(t, base); status != 200 || json.Unmarshal([]byte(body), &private) != nil || len(private.AuthorizationData) != 1 {
		t.Fatalf("%d %s", status, body)
	}
	check(private.AuthorizationData[0], "https://111111111111.dkr.ecr.us-west-2.amazonaws.com")
	var public struct{ AuthorizationData token }
	if status, body := publicCall().do(t, base); status != 200 || json.Unmarshal([]byte(body), &public) != nil {
		t.Fatalf("%d %s", status, body)
	}
	check(public.AuthorizationData, "")
	if rs := s.Requests(); rs[0].Action != actionECRToken || rs[1].Action != actionECRPublicToken {
		t.Errorf("noted %+v", rs)
	}
}

func TestRegistryTokenIsRefused(t *testing.T) {
	_, base := start(t, Default())
	for _, test := range []struct {
		name   string
		change func(*ecrCall)
		want   string // "" is an answer
	}{
		{"as the role", func(*ecrCall) {}, ""},
		{"by a signer that leaves the length out", func(c *ecrCall) {
			c.signed = func(r *http.Request) { r.ContentLength = 0 }
			c.sent = func(r *http.Request) { r.ContentLength = 2 }
		}, ""},
		{"with a header that is not signed", func(c *ecrCall) { c.sent = func(r *http.Request) { r.Header.Set("X-Other", "1") } }, ""},
		{"4 minutes ago", func(c *ecrCall) { c.at = c.at.Add(-4 * time.Minute) }, ""},
		{"unsigned", func(c *ecrCall) { c.sent = func(r *http.Request) { r.Header.Del("Authorization") } }, "MissingAuthenticationTokenException"},
		{"6 minutes ago", func(c *ecrCall) { c.at = c.at.Add(-6 * time.Minute) }, "InvalidSignatureException Signature expired: "},
		{"6 minutes ahead", func(c *ecrCall) { c.at = c.at.Add(6 * time.Minute) }, "InvalidSignatureException Signature not yet current: "},
		{"no date", func(c *ecrCall) { c.sent = func(r *http.Request) { r.Header.Del("X-Amz-Date") } }, "IncompleteSignatureException"},
		{"somebody else", func(c *ecrCall) { c.credentials.AccessKeyID = "AKIDEXAMPLE" }, "UnrecognizedClientException"},
		{"another session", func(c *ecrCall) { c.credentials.SessionToken = "another" }, "UnrecognizedClientException"},
		{"no session", func(c *ecrCall) { c.credentials.SessionToken = "" }, "UnrecognizedClientException"},
		{"another secret", func(c *ecrCall) { c.credentials.SecretAccessKey = "guessed" }, "InvalidSignatureException The request signature we calculated does not match"},
		{"another body", func(c *ecrCall) {
			c.sent = func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }
		}, "InvalidSignatureException The request signature"},
		{"another host", func(c *ecrCall) { c.sent = func(r *http.Request) { r.Host = "api.ecr.eu-west-1.amazonaws.com" } }, "InvalidSignatureException The request signature"},
		{"another date", func(c *ecrCall) {
			c.sent = func(r *http.Request) {
				r.Header.Set("X-Amz-Date", time.Now().UTC().Add(time.Second).Format("20060102T150405Z"))
			}
		}, "InvalidSignatureException The request signature"},
		{"a header that ought to be signed", func(c *ecrCall) { c.sent = func(r *http.Request) { r.Header.Set("X-Amz-Other", "1") } }, "InvalidSignatureException 'x-amz-other' must be a 'SignedHeader'"},
		{"another service", func(c *ecrCall) { c.service = "ecr-public" }, "InvalidSignatureException Credential should be scoped to correct service: 'ecr'"},
		{"another partition", func(c *ecrCall) { c.region = "cn-north-1" }, "UnrecognizedClientException"},
		{"another call", func(c *ecrCall) { c.target = "AmazonEC2ContainerRegistry_V20150921.DescribeImages" }, "UnknownOperationException"},
		{"another protocol", func(c *ecrCall) {
			c.signed = func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }
		}, "UnknownOperationException"},
		{"public elsewhere", func(c *ecrCall) { *c = publicCall(); c.region = "eu-west-1" }, "UnsupportedCommandException"},
	} {
		call := roleCall()
		test.change(&call)
		status, body := call.do(t, base)
		if test.want == "" {
			if status != 200 {
				t.Errorf("%s: %d %s", test.name, status, body)
			}
			continue
		}
		var answer struct {
			Type    string `json:"__type"`
			Message string
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 400 || !strings.HasPrefix(strings.TrimPrefix(answer.Type, "com.amazon.coral.service#")+" "+answer.Message, test.want) {
			t.Errorf("%s: %d %s, want %s", test.name, status, body, test.want)
		}
	}
}

func TestRegistryTokenElsewhere(t *testing.T) {
	_, base := start(t, World{Instance: Instance{Type: "m5.large", Region: "cn-north-1", Role: "NodeInstanceRole"}})
	if status, body := publicCall().do(t, base); status != 400 || !strings.Contains(body, "UnrecognizedClientException") {
		t.Errorf("ECR Public from China: %d %s", status, body)
	}
	call := roleCall()
	call.region = "cn-northwest-1"
	if status, body := call.do(t, base); status != 200 || !strings.Contains(body, ".dkr.ecr.cn-northwest-1.amazonaws.com.cn") {
		t.Errorf("%d %s", status, body)
	}
}

func TestRegistryTokenDeniedAndFaulty(t *testing.T) {
	w := Default()
	w.Permissions.Deny = []string{"ecr-public:*", actionECRToken}
	w.Faults = []Fault{{Match: "ecr:*", Status: 429, First: 1}, {Match: actionECRToken, Status: 503, First: 1}, {Match: "ecr-public:*", Code: "ServerException", Status: 500, First: 1}}
	_, base := start(t, w)
	for _, test := range []struct {
		call   ecrCall
		status int
		code   string
	}{
		{roleCall(), 429, "ThrottlingException"}, {roleCall(), 503, "ServiceUnavailableException"}, {roleCall(), 400, "AccessDeniedException"},
		{publicCall(), 500, "ServerException"}, {publicCall(), 400, "AccessDeniedException"},
	} {
		if status, body := test.call.do(t, base); status != test.status || !strings.Contains(body, "#"+test.code) {
			t.Errorf("%d %s, want %d %s", status, body, test.status, test.code)
		}
	}
}
