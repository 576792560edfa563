package simulator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// start serves w until the test ends.
func start(t *testing.T, w World, opts ...Option) (*Server, string) {
	t.Helper()
	s := New(w, append([]Option{WithLog(t.Logf)}, opts...)...)
	base, stop, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s, base
}

// ask calls the handler without a network. header is name, value, name, value.
func ask(s *Server, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	return rec
}

func token(t *testing.T, s *Server) string {
	t.Helper()
	rec := ask(s, http.MethodPut, "/latest/api/token", headerTTL, "60")
	if rec.Code != http.StatusOK {
		t.Fatalf("token: %d", rec.Code)
	}
	return rec.Body.String()
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	rec := ask(s, http.MethodGet, path, headerToken, token(t, s))
	return rec.Code, rec.Body.String()
}

func TestToken(t *testing.T) {
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
	}{
		{"shortest", "PUT", "/latest/api/token", []string{headerTTL, "1"}, 200},
		{"longest", "PUT", "/latest/api/token", []string{headerTTL, "21600"}, 200},
		{"no TTL", "PUT", "/latest/api/token", nil, 400},
		{"zero", "PUT", "/latest/api/token", []string{headerTTL, "0"}, 400},
		{"too long", "PUT", "/latest/api/token", []string{headerTTL, "21601"}, 400},
		{"no number", "PUT", "/latest/api/token", []string{headerTTL, "1h"}, 400},
		{"through a proxy", "PUT", "/latest/api/token", []string{headerTTL, "60", "X-Forwarded-For", "203.0.113.1"}, 403},
		{"GET", "GET", "/latest/api/token", nil, 405},
		{"dated version", "PUT", "/2021-03-23/api/token", []string{headerTTL, "60"}, 405},
		{"PUT elsewhere", "PUT", "/latest/meta-data/mac", []string{headerTTL, "60"}, 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := ask(New(Default()), tt.method, tt.path, tt.header...)
			if rec.Code != tt.status {
				t.Fatalf("status %d, want %d", rec.Code, tt.status)
			}
			if tt.status == 200 && (rec.Header().Get(headerTTL) != tt.header[1] || rec.Body.Len() == 0) {
				t.Errorf("TTL %q, body %q", rec.Header().Get(headerTTL), rec.Body)
			}
		})
	}
}

func TestTokenIsRequired(t *testing.T) {
	clock := time.Unix(1_700_000_000, 0)
	s := New(Default(), WithClock(func() time.Time { return clock }))
	path := "/latest/meta-data/instance-id"
	tok := token(t, s)
	foreign := token(t, New(Default()))
	flip := "A"
	if tok[0] == 'A' {
		flip = "B"
	}
	for name, bad := range map[string]string{"none": "", "nonsense": "x", "foreign": foreign, "changed": flip + tok[1:]} {
		if rec := ask(s, http.MethodGet, path, headerToken, bad); rec.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d, want 401", name, rec.Code)
		}
	}
	clock = clock.Add(59 * time.Second)
	rec := ask(s, http.MethodGet, path, headerToken, tok)
	if rec.Code != http.StatusOK || rec.Header().Get(headerTTL) != "1" {
		t.Errorf("a second before the end: status %d, TTL %q", rec.Code, rec.Header().Get(headerTTL))
	}
	clock = clock.Add(time.Second)
	if rec := ask(s, http.MethodGet, path, headerToken, tok); rec.Code != http.StatusUnauthorized {
		t.Errorf("expired: status %d, want 401", rec.Code)
	}
}

func TestMetadata(t *testing.T) {
	full := Default()
	full.Instance.IPv6 = []string{"2001:db8::1", "2001:db8::2"}
	full.Instance.VPCIPv6CIDRs = []string{"2001:db8::/56"}
	full.Instance.VPCCIDRs = []string{"192.168.0.0/16", "100.64.0.0/16"}
	bare := World{Instance: Instance{Type: "m5.large", Region: "us-east-1", Lifecycle: "spot", Tags: map[string]string{"Name": "n"}, TagsInMetadata: true}}

	const eni = "/latest/meta-data/network/interfaces/macs/0a:00:c0:a8:12:e6/"
	for _, tt := range []struct {
		world  World
		path   string
		status int
		body   string
	}{
		{full, "/", 200, strings.Join(versions(), "\n")},
		{full, "/latest/", 200, "dynamic\nmeta-data\nuser-data"},
		{full, "/latest", 200, "dynamic\nmeta-data\nuser-data"},
		{bare, "/latest/", 200, "dynamic\nmeta-data"},
		{full, "/latest/meta-data/", 200, "ami-id\nami-launch-index\nami-manifest-path\nhostname\niam/\ninstance-action\ninstance-id\ninstance-life-cycle\ninstance-type\nipv6\nlocal-hostname\nlocal-ipv4\nmac\nnetwork/\nplacement/\nreservation-id\nsecurity-groups\nservices/"},
		{full, "/latest//meta-data/instance-id", 200, "i-0a1b2c3d4e5f60718"},
		{full, "/1.0/meta-data/instance-id", 200, "i-0a1b2c3d4e5f60718"},
		{full, "/2021-03-23/meta-data/ami-id", 200, "ami-08702177b0dcfc054"},
		{full, "/2999-01-01/meta-data/ami-id", 404, ""},
		{full, "/latest/meta-data/mac/", 404, ""},
		{full, "/latest/meta-data/absent", 404, ""},
		{full, "/latest/meta-data/mac/below", 404, ""},
		{full, "/latest/meta-data/public-keys/", 404, ""},
		{full, "/latest/meta-data/tags/instance", 404, ""},
		{bare, "/latest/meta-data/tags/instance/", 200, "Name"},
		{bare, "/latest/meta-data/tags/instance/Name", 200, "n"},
		{full, "/latest/meta-data/local-hostname", 200, "ip-192-168-18-230.eu-west-1.compute.internal"},
		{bare, "/latest/meta-data/local-hostname", 200, "ip-192-168-18-230.ec2.internal"},
		{full, "/latest/meta-data/instance-life-cycle", 200, "on-demand"},
		{bare, "/latest/meta-data/instance-life-cycle", 200, "spot"},
		{full, "/latest/meta-data/placement/", 200, "availability-zone\navailability-zone-id\nregion"},
		{full, "/latest/meta-data/placement/availability-zone-id", 200, "euw1-az1"},
		{full, "/latest/meta-data/services/", 200, "domain\npartition"},
		{full, "/latest/meta-data/network/interfaces/macs/", 200, "0a:00:c0:a8:12:e6/"},
		{full, eni, 200, "device-number\ninterface-id\nipv6s\nlocal-hostname\nlocal-ipv4s\nmac\nowner-id\nsecurity-group-ids\nsecurity-groups\nsubnet-id\nsubnet-ipv4-cidr-block\nvpc-id\nvpc-ipv4-cidr-block\nvpc-ipv4-cidr-blocks\nvpc-ipv6-cidr-blocks"},
		{full, eni + "vpc-ipv4-cidr-blocks", 200, "192.168.0.0/16\n100.64.0.0/16"},
		{full, eni + "subnet-ipv4-cidr-block", 200, "192.168.0.0/19"},
		{full, eni + "ipv6s", 200, "2001:db8::1\n2001:db8::2"},
		{bare, eni + "ipv6s", 404, ""},
		{bare, "/latest/meta-data/iam/", 404, ""},
		{bare, "/latest/meta-data/iam/info", 404, ""},
		{bare, "/latest/meta-data/iam/security-credentials/", 404, ""},
		{full, "/latest/meta-data/iam/", 200, "info\nsecurity-credentials/"},
		{full, "/latest/meta-data/iam/security-credentials/", 200, "NodeInstanceRole"},
		{full, "/latest/dynamic/instance-identity/", 200, "document"},
		{full, "/latest/dynamic/instance-identity/pkcs7", 404, ""},
		{full, "/latest/user-data", 200, full.UserData},
		{bare, "/latest/user-data", 404, ""},
	} {
		status, body := get(t, New(tt.world), tt.path)
		if status != tt.status || status == 200 && body != tt.body {
			t.Errorf("%s: %d %q\nwant %d %q", tt.path, status, body, tt.status, tt.body)
		}
		if status != 200 && !strings.Contains(body, "<html") {
			t.Errorf("%s: an error that is no page: %q", tt.path, body)
		}
	}
}

// TestCrawl walks the tree as cloud-init does: whatever ends in a slash is a
// directory, everything else can be read.
func TestCrawl(t *testing.T) {
	s := New(Default())
	files := 0
	var crawl func(dir string)
	crawl = func(dir string) {
		status, listing := get(t, s, dir)
		if status != 200 || listing == "" {
			t.Fatalf("%s: %d %q", dir, status, listing)
		}
		for name := range strings.SplitSeq(listing, "\n") {
			if strings.HasSuffix(name, "/") {
				crawl(dir + name)
				continue
			}
			files++
			if status, body := get(t, s, dir+name); status != 200 || body == "" {
				t.Errorf("%s: %d %q", dir+name, status, body)
			}
		}
	}
	crawl("/2021-03-23/meta-data/")
	if files < 30 {
		t.Errorf("only %d files", files)
	}
}

func TestCredentials(t *testing.T) {
	_, body := get(t, New(Default()), "/latest/meta-data/iam/security-credentials/NodeInstanceRole")
	var c struct {
		Code, AccessKeyID, SecretAccessKey, Token string
		Expiration                                time.Time
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	if c.Code != "Success" || c.AccessKeyID == "" || c.SecretAccessKey == "" || c.Token == "" || time.Until(c.Expiration) < time.Hour {
		t.Errorf("got %+v", c)
	}
}

func TestIMDSWithSDK(t *testing.T) {
	s, base := start(t, Default())
	client := imds.New(imds.Options{Endpoint: base})
	ctx := context.Background()
	doc, err := client.GetInstanceIdentityDocument(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if doc.InstanceID != "i-0a1b2c3d4e5f60718" || doc.Region != "eu-west-1" || doc.AccountID != "111111111111" ||
		doc.Architecture != "x86_64" || doc.PendingTime.IsZero() {
		t.Errorf("got %+v", doc.InstanceIdentityDocument)
	}
	if _, err := client.GetIAMInfo(ctx, nil); err != nil {
		t.Error(err)
	}
	ud, err := client.GetUserData(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(ud.Content); string(b) != Default().UserData {
		t.Errorf("user data %q", b)
	}
	puts := 0
	for _, r := range s.Requests() {
		if r.Method == http.MethodPut {
			puts++
		}
		if r.Status != 200 || r.End.Before(r.Start) || r.Conn == 0 || r.Action != "" {
			t.Errorf("noted %+v", r)
		}
	}
	if puts != 1 {
		t.Errorf("%d token PUTs, want 1", puts)
	}
}

func TestVersionsAreSorted(t *testing.T) {
	if !slices.IsSorted(versions()) {
		t.Error("clients take the last one for the newest")
	}
}
