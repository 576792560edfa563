package awsapi_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// start serves a world and makes a client with static credentials for it.
func start(t *testing.T, w simulator.World) (*simulator.Server, awsapi.Options) {
	t.Helper()
	s := simulator.New(w)
	base, stop, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s, awsapi.Options{
		Region:          w.Instance.Region,
		Endpoints:       map[string]string{"": base},
		AccessKeyID:     "ASIATEST",
		SecretAccessKey: "secret",
		SessionToken:    "session",
	}
}

// withRole takes the static credentials away.
func withRole(o awsapi.Options) awsapi.Options {
	o.AccessKeyID, o.SecretAccessKey, o.SessionToken = "", "", ""
	o.IMDS = imds.New(imds.Options{Endpoint: o.Endpoints[""]})
	return o
}

func world(faults ...simulator.Fault) simulator.World {
	w := simulator.Default()
	w.Faults = faults
	return w
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// count is how often an action was asked for; "" is IMDS.
func count(s *simulator.Server, action string) (n int) {
	for _, r := range s.Requests() {
		if r.Action == action {
			n++
		}
	}
	return n
}

const (
	describeCluster = "eks:DescribeCluster"
	describeTypes   = "ec2:DescribeInstanceTypes"
	describe        = "ec2:DescribeInstances"
)

func TestDescribeCluster(t *testing.T) {
	w := world()
	w.Cluster.ID = "0e7f1a5c-aaaa-bbbb-cccc-000000000000"
	w.Cluster.OutpostARN = "arn:aws:outposts:eu-west-1:111111111111:outpost/op-1"
	s, o := start(t, w)
	got, err := awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", 3)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(got.CertificateAuthority, []byte("-----BEGIN CERTIFICATE-----\n")) {
		t.Errorf("certificate authority %q", got.CertificateAuthority)
	}
	got.CertificateAuthority = nil
	want := awsapi.Cluster{
		Endpoint:        w.Cluster.Endpoint,
		ServiceIPv4CIDR: "10.100.0.0/16",
		IPFamily:        "ipv4",
		ID:              w.Cluster.ID,
		OutpostARN:      w.Cluster.OutpostARN,
		Version:         "1.22",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := count(s, ""); n != 0 {
		t.Errorf("%d requests to IMDS with static credentials", n)
	}
}

func TestDescribeClusterIPv6(t *testing.T) {
	w := world()
	w.Cluster.IPFamily, w.Cluster.ServiceIPv4CIDR, w.Cluster.ServiceIPv6CIDR = "ipv6", "", "fd30:1c53:5f8a::/108"
	_, o := start(t, w)
	got, err := awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", 0)
	if err != nil || got.IPFamily != "ipv6" || got.ServiceIPv6CIDR != "fd30:1c53:5f8a::/108" || got.ServiceIPv4CIDR != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestClusterIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := world()
	w.Cluster.ActiveAfter = 1
	s, o := start(t, w)
	var reports []string
	o.Report = func(err error, attempt int, _ time.Duration) { reports = append(reports, err.Error()) }
	got, err := awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", -1)
	if err != nil || got.Endpoint == "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if n := count(s, describeCluster); n != 2 {
		t.Errorf("asked %d times", n)
	}
	if len(reports) != 1 || !strings.Contains(reports[0], "CREATING") {
		t.Errorf("reported %q", reports)
	}
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		retries, want int
	}{{0, 1}, {1, 2}} {
		s, o := start(t, world(simulator.Fault{Match: describeCluster, Status: 503}))
		_, err := awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", test.retries)
		if n := count(s, describeCluster); n != test.want || err == nil || fault.CodeOf(err) != fault.AWS {
			t.Errorf("%d retries: asked %d times, %v", test.retries, n, err)
		}
	}
	// Negative retries end with the context alone.
	s, o := start(t, world(simulator.Fault{Match: describeCluster, Hang: true}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := awsapi.New(o).DescribeCluster(ctx, "ironman-2022", -1)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), describeCluster) || fault.Remedy(err) == "" {
		t.Errorf("%v, remedy %q", err, fault.Remedy(err))
	}
	if n := count(s, describeCluster); n > 1 {
		t.Errorf("asked %d times", n)
	}
}

// Whatever the API says for good ends the call at the first answer.
func TestFinalAnswers(t *testing.T) {
	for _, test := range []struct {
		name            string
		faults          []simulator.Fault
		change          func(*simulator.World)
		call            func(context.Context, *awsapi.Client) error
		action          string
		denied          bool
		message, remedy string
	}{
		{
			name: "cluster denied", action: describeCluster, denied: true,
			change:  func(w *simulator.World) { w.Permissions.Deny = []string{describeCluster} },
			message: "eks:DescribeCluster: AccessDeniedException", remedy: `"Action": "eks:DescribeCluster"`,
		}, {
			name: "denied without a word", action: describeCluster, denied: true,
			faults:  []simulator.Fault{{Match: describeCluster, Status: 403}},
			message: "eks:DescribeCluster", remedy: `"Action": "eks:DescribeCluster"`,
		}, {
			name: "no such cluster", action: describeCluster,
			change:  func(w *simulator.World) { w.Cluster.Name = "another" },
			message: "ResourceNotFoundException: No cluster found for name: ironman-2022", remedy: "eu-west-1",
		}, {
			name: "cluster failed", action: describeCluster,
			change:  func(w *simulator.World) { w.Cluster.Status = "FAILED" },
			message: "FAILED", remedy: "ACTIVE",
		}, {
			name: "cluster deleting", action: describeCluster,
			change:  func(w *simulator.World) { w.Cluster.Status = "DELETING" },
			message: "DELETING", remedy: "ACTIVE",
		}, {
			name: "clock off", action: describeCluster,
			faults:  []simulator.Fault{{Match: describeCluster, Status: 403, Code: "InvalidSignatureException"}},
			message: "InvalidSignatureException", remedy: "clock",
		}, {
			name: "instances denied", action: describe, denied: true,
			change:  func(w *simulator.World) { w.Permissions.Deny = []string{describe} },
			call:    privateDNSName,
			message: "ec2:DescribeInstances: UnauthorizedOperation", remedy: `"Action": "ec2:DescribeInstances"`,
		}, {
			name: "malformed", action: describe,
			faults:  []simulator.Fault{{Match: describe, Status: 400, Code: "InvalidInstanceID.Malformed"}},
			call:    privateDNSName,
			message: "InvalidInstanceID.Malformed",
		}, {
			name: "types denied", action: describeTypes, denied: true,
			change:  func(w *simulator.World) { w.Permissions.Deny = []string{describeTypes} },
			call:    describeType,
			message: "ec2:DescribeInstanceTypes: UnauthorizedOperation", remedy: `"Action": "ec2:DescribeInstanceTypes"`,
		}, {
			name: "no such type", action: describeTypes, call: describeType,
			message: "InvalidInstanceType",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world(test.faults...)
			if test.change != nil {
				test.change(&w)
			}
			s, o := start(t, w)
			call := test.call
			if call == nil {
				call = func(ctx context.Context, c *awsapi.Client) error {
					_, err := c.DescribeCluster(ctx, "ironman-2022", -1)
					return err
				}
			}
			err := call(soon(t), awsapi.New(o))
			if err == nil {
				t.Fatal("no error")
			}
			if n := count(s, test.action); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if errors.Is(err, awsapi.ErrDenied) != test.denied {
				t.Errorf("denied: %t: %v", !test.denied, err)
			}
			if fault.CodeOf(err) != fault.AWS || !strings.Contains(err.Error(), test.message) {
				t.Errorf("class %d: %v", fault.CodeOf(err), err)
			}
			if remedy := fault.Remedy(err); !strings.Contains(remedy, test.remedy) {
				t.Errorf("remedy %q", remedy)
			}
			if strings.Contains(err.Error(), "operation error") {
				t.Errorf("the SDK's words in %q", err)
			}
		})
	}
}

func privateDNSName(ctx context.Context, c *awsapi.Client) error {
	_, err := c.DescribeInstance(ctx, simulator.Default().Instance.ID, true)
	return err
}

func describeType(ctx context.Context, c *awsapi.Client) error {
	_, err := c.DescribeInstanceType(ctx, "z9.huge")
	return err
}

func TestWhatPassesIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault simulator.Fault
	}{
		{"throttled by EKS", simulator.Fault{Match: describeCluster, Status: 429}},
		{"throttled with 400", simulator.Fault{Match: describeCluster, Status: 400, Code: "ThrottlingException"}},
		{"EKS unavailable", simulator.Fault{Match: describeCluster, Status: 503}},
		{"connection closed", simulator.Fault{Match: describeCluster, Drop: true}},
		{"throttled by EC2", simulator.Fault{Match: describe, Status: 503, Code: "RequestLimitExceeded"}},
		{"EC2 fails", simulator.Fault{Match: describe, Status: 500}},
		{"instance not known everywhere yet", simulator.Fault{Match: describe, Status: 400, Code: "InvalidInstanceID.NotFound"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.fault.First = 1
			s, o := start(t, world(test.fault))
			var err error
			if test.fault.Match == describeCluster {
				_, err = awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", -1)
			} else {
				err = privateDNSName(soon(t), awsapi.New(o))
			}
			if err != nil {
				t.Error(err)
			}
			if n := count(s, test.fault.Match); n != 2 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestPrivateDNSName(t *testing.T) {
	t.Parallel()
	w := world()
	w.Instance.PrivateDNSNameAfter = 1
	w.Instance.PrivateDNSName = "ip-192-168-18-230.eu-west-1.compute.internal"
	w.Instance.Hostname = "host.corp.example.com"
	s, o := start(t, w)
	got, err := awsapi.New(o).DescribeInstance(soon(t), w.Instance.ID, true)
	if err != nil || got.PrivateDNSName != w.Instance.PrivateDNSName {
		t.Errorf("got %q, %v", got, err)
	}
	if n := count(s, describe); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestDescribeInstanceType(t *testing.T) {
	w := world()
	w.InstanceTypes = []simulator.InstanceType{
		{Type: "p4d.24xlarge", IPv4PerENI: 50, VCPUs: 96, MemoryMiB: 1179648, Cards: []int{14, 15, 15, 15}},
		{Type: "m7g.metal", ENIs: 15, IPv4PerENI: 50, VCPUs: 64, MemoryMiB: 262144},
	}
	_, o := start(t, w)
	c := awsapi.New(o)
	for name, want := range map[string]awsapi.InstanceType{
		"p4d.24xlarge": {VCPUs: 96, MemoryMiB: 1179648, ENIs: 14, IPv4PerENI: 50, NetworkCards: 4, Nitro: true},
		"m7g.metal":    {VCPUs: 64, MemoryMiB: 262144, ENIs: 15, IPv4PerENI: 50, NetworkCards: 1, BareMetal: true},
		"m5.large":     {VCPUs: 2, MemoryMiB: 8192, ENIs: 3, IPv4PerENI: 10, NetworkCards: 1, Nitro: true},
		"m4.large":     {VCPUs: 2, MemoryMiB: 8192, ENIs: 2, IPv4PerENI: 10, NetworkCards: 1},
	} {
		got, err := c.DescribeInstanceType(soon(t), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A service's own endpoint goes before the one for all.
func TestEndpoints(t *testing.T) {
	right, o := start(t, world())
	wrong, other := start(t, world())
	o.Endpoints = map[string]string{"": other.Endpoints[""], "EKS": o.Endpoints[""]}
	if _, err := awsapi.New(o).DescribeCluster(soon(t), "ironman-2022", 0); err != nil {
		t.Fatal(err)
	}
	if count(right, describeCluster) != 1 || len(wrong.Requests()) != 0 {
		t.Error("EKS was asked at the wrong endpoint")
	}
	if err := privateDNSName(soon(t), awsapi.New(o)); err != nil {
		t.Fatal(err)
	}
	if count(wrong, describe) != 1 {
		t.Error("EC2 was asked at the wrong endpoint")
	}
}

// The role's credentials come late on a new instance: the directory is not
// there at first, or it is and the credentials are not.
func TestRoleCredentials(t *testing.T) {
	const dir = "/latest/meta-data/iam/security-credentials"
	for _, test := range []struct {
		name  string
		fault simulator.Fault
	}{
		{"there", simulator.Fault{Match: "/latest/nothing", Status: 404}},
		{"no directory yet", simulator.Fault{Match: dir, Status: 404, First: 2}},
		{"no credentials yet", simulator.Fault{Match: dir + "/NodeInstanceRole", Status: 404, First: 1}},
		{"not assumed yet", simulator.Fault{Match: dir + "/NodeInstanceRole", First: 1,
			Body: `{"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role", "LastUpdated": "2026-01-01T00:00:00Z"}`}},
		{"ended long ago", simulator.Fault{Match: dir + "/NodeInstanceRole", First: 1,
			Body: `{"Code": "Success", "AccessKeyId": "ASIA", "SecretAccessKey": "x", "Token": "x", "Expiration": "2020-01-01T00:00:00Z"}`}},
		{"busy", simulator.Fault{Match: dir, Status: 503, First: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, o := start(t, world(test.fault))
			c := awsapi.New(withRole(o))
			for range 2 {
				if _, err := c.DescribeCluster(soon(t), "ironman-2022", -1); err != nil {
					t.Fatal(err)
				}
			}
			tokens, answered := 0, 0
			for _, r := range s.Requests() {
				if r.Path == "/latest/api/token" {
					tokens++
				}
				if r.Path == dir+"/NodeInstanceRole" && r.Status == 200 {
					answered++
				}
			}
			if test.fault.Body != "" {
				answered-- // which was the refusal
			}
			if tokens != 1 || answered != 1 {
				t.Errorf("%d tokens, and the credentials were read %d times", tokens, answered)
			}
		})
	}
}

// Two calls at once share one retrieval.
func TestCredentialsAreShared(t *testing.T) {
	s, o := start(t, world())
	c, ctx := awsapi.New(withRole(o)), soon(t)
	ended := make(chan error)
	go func() { ended <- privateDNSName(ctx, c) }()
	go func() { _, err := c.DescribeCluster(ctx, "ironman-2022", -1); ended <- err }()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, "/NodeInstanceRole") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the credentials were read %d times", n)
	}
}

func TestNoRole(t *testing.T) {
	w := world()
	w.Instance.Role = ""
	s, o := start(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := awsapi.New(withRole(o)).DescribeCluster(ctx, "ironman-2022", -1)
	if !errors.Is(err, context.DeadlineExceeded) || fault.CodeOf(err) != fault.AWS {
		t.Errorf("got %v", err)
	}
	if n := count(s, describeCluster); n != 0 {
		t.Errorf("asked %d times without credentials", n)
	}
}

// Where the metadata service is switched off there is nothing to wait for, and
// it is not the API that refuses.
func TestMetadataSwitchedOff(t *testing.T) {
	_, o := start(t, world(simulator.Fault{Match: "/latest/api/token", Status: 403}))
	_, err := awsapi.New(withRole(o)).DescribeCluster(soon(t), "ironman-2022", -1)
	if err == nil || errors.Is(err, awsapi.ErrDenied) || !strings.Contains(fault.Remedy(err), "--http-endpoint enabled") {
		t.Errorf("%v, remedy %q", err, fault.Remedy(err))
	}
}

func TestPolicyStatement(t *testing.T) {
	if got := awsapi.PolicyStatement("eks:DescribeCluster"); !strings.Contains(got, `{"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}`) {
		t.Error(got)
	}
	if got := awsapi.PolicyStatement("a:B", "c:D"); !strings.Contains(got, `"Action": ["a:B", "c:D"], "Resource"`) {
		t.Error(got)
	}
}
