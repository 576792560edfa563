package facts

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

const macs = "/latest/meta-data/network/interfaces/macs/"

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a simulated instance; nothing that is made from what it returns
// asks anybody else.
func serve(t *testing.T, w simulator.World) (*simulator.Server, Request) {
	t.Helper()
	s := simulator.New(w)
	return s, request(t, listen(t, s))
}

func listen(t *testing.T, s *simulator.Server) (base string) {
	t.Helper()
	base, stop, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return base
}

func request(t *testing.T, base string) Request {
	return Request{
		ClusterName: "c",
		Host: HostRequest{
			Root:              rootfs.Root(t.TempDir()),
			KubeletVersion:    "1.30.4",
			ContainerdVersion: "1.7.27",
			Machine:           &Machine{CPUs: 2},
			Simulated:         true,
		},
		IMDS: imds.New(imds.Options{Endpoint: base}),
		AWS: func(region string) *awsapi.Client {
			return awsapi.New(awsapi.Options{Region: region, Endpoints: map[string]string{"": base},
				AccessKeyID: "ASIATEST", SecretAccessKey: "secret", SessionToken: "session"})
		},
	}
}

func actions(s *simulator.Server) (all []string) {
	for _, r := range s.Requests() {
		if r.Action != "" {
			all = append(all, r.Action)
		}
	}
	return all
}

func addrs(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

var compareAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestGatherInstance(t *testing.T) {
	w := simulator.Default()
	w.Instance.VPCCIDRs = []string{"192.168.0.0/16", "100.64.0.0/16"}
	w.Instance.IPv6 = []string{"2001:db8::2", "2001:db8::1"}
	w.Instance.Hostname = "IP-192-168-18-230.Corp.example other.example"
	_, r := serve(t, w)
	got, err := GatherInstance(soon(t), r.IMDS)
	if err != nil {
		t.Fatal(err)
	}
	want := Instance{
		ID: "i-0a1b2c3d4e5f60718", Type: "m5.large", AMI: "ami-08702177b0dcfc054",
		Region: "eu-west-1", Zone: "eu-west-1a", Account: "111111111111",
		Partition: "aws", ServicesDomain: "amazonaws.com", MAC: w.Instance.MAC,
		IPv4: netip.MustParseAddr("192.168.18.230"),
		IPv6: addrs("2001:db8::2", "2001:db8::1"), // EC2's order, not sorted
		VPCIPv4CIDRs: []netip.Prefix{
			netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/16")},
		Hostname: "ip-192-168-18-230.corp.example", Lifecycle: "on-demand",
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGatherInstanceElsewhere(t *testing.T) {
	for region, want := range map[string][2]string{
		"cn-north-1":     {"aws-cn", "amazonaws.com.cn"},
		"us-gov-west-1":  {"aws-us-gov", "amazonaws.com"},
		"us-isob-east-1": {"aws-iso-b", "sc2s.sgov.gov"},
		"eusc-de-east-1": {"aws-eusc", "amazonaws.eu"},
		"ap-southeast-4": {"aws", "amazonaws.com"},
	} {
		_, r := serve(t, simulator.World{Instance: simulator.Instance{Type: "u-6tb1.112xlarge", Region: region}})
		got, err := GatherInstance(soon(t), r.IMDS)
		if err != nil || got.Partition != want[0] || got.ServicesDomain != want[1] || got.Region != region || got.Type != "u-6tb1.112xlarge" {
			t.Errorf("%s: %+v, %v", region, got, err)
		}
		if len(got.IPv6) != 0 {
			t.Errorf("%s: IPv6 addresses %v of an instance that has none", region, got.IPv6)
		}
	}
}

// waves holds each request until all of its wave are there: what passes it
// asks for a wave's values side by side.
type waves struct {
	next http.Handler
	of   func(path string) int // the number of the wave

	mu   sync.Mutex
	left []int // how many requests each wave still waits for
	all  []chan struct{}
}

func (w *waves) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	wave := w.of(r.URL.Path)
	w.mu.Lock()
	if w.left[wave]--; w.left[wave] == 0 {
		close(w.all[wave])
	}
	w.mu.Unlock()
	select {
	case <-w.all[wave]:
	case <-r.Context().Done():
	}
	w.next.ServeHTTP(rw, r)
}

// After the token there are two round trips that depend on one another, and no
// more: the second is for what is filed under the MAC address.
func TestTwoRoundTrips(t *testing.T) {
	w := simulator.Default()
	w.Instance.IPv6 = []string{"2001:db8::1"}
	sim := simulator.New(w)
	h := &waves{next: sim, left: []int{1, 7, 2}, of: func(path string) int {
		switch {
		case path == "/latest/api/token":
			return 0
		case strings.HasPrefix(path, macs):
			return 2
		}
		return 1
	}}
	for range h.left {
		h.all = append(h.all, make(chan struct{}))
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	if _, err := GatherInstance(soon(t), request(t, srv.URL).IMDS); err != nil {
		t.Fatal(err)
	}
	rs := sim.Requests()
	if len(rs) != 10 {
		t.Errorf("%d requests", len(rs))
	}
	var token, mac simulator.Request
	for _, r := range rs {
		switch r.Path {
		case "/latest/api/token":
			token = r
		case "/latest/meta-data/mac":
			mac = r
		}
	}
	for _, r := range rs {
		if r.Path != token.Path && r.Start.Before(token.End) {
			t.Errorf("%s began before the token was there", r.Path)
		}
		if strings.HasPrefix(r.Path, macs) && r.Start.Before(mac.End) {
			t.Errorf("%s began before the MAC address was known", r.Path)
		}
	}
}

func TestGatherInstanceEnds(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault simulator.Fault
		says  string
	}{
		{"forbidden", simulator.Fault{Match: "/latest/meta-data/mac", Status: 403}, "GET /latest/meta-data/mac: the service answered 403"},
		{"not a document", simulator.Fault{Match: "/latest/dynamic", Body: "<html>"}, `not an instance identity document`},
		{"document without values", simulator.Fault{Match: "/latest/dynamic", Body: "{}"}, `instanceId is ""`},
		{"odd region", simulator.Fault{Match: "/latest/dynamic",
			Body: `{"instanceId":"i-0a1b2c3d4e5f60718","instanceType":"m5.large","region":"../x","availabilityZone":"eu-west-1a"}`}, `region is "../x"`},
		{"not an address", simulator.Fault{Match: "/latest/meta-data/local-ipv4", Body: "nowhere"}, "nowhere"},
		{"not a MAC address", simulator.Fault{Match: "/latest/meta-data/mac", Body: "../../user-data"}, `unexpected value "../../user-data"`},
		{"not a host name", simulator.Fault{Match: "/latest/meta-data/local-hostname", Body: " "}, "local-hostname: it is empty"},
		{"not a partition", simulator.Fault{Match: "/latest/meta-data/services/partition", Body: "a b"}, "services/partition"},
		{"not an IPv6 address", simulator.Fault{Match: macs + simulator.Default().Instance.MAC + "/ipv6s", Body: "x"}, "/ipv6s"},
		{"not a range", simulator.Fault{Match: macs + simulator.Default().Instance.MAC + "/vpc-ipv4-cidr-blocks", Body: "x"}, "/vpc-ipv4-cidr-blocks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := simulator.Default()
			w.Faults = []simulator.Fault{test.fault}
			_, r := serve(t, w)
			_, err := GatherInstance(soon(t), r.IMDS)
			if err == nil || fault.CodeOf(err) != fault.AWS || !strings.Contains(err.Error(), test.says) {
				t.Errorf("class %d: %v", fault.CodeOf(err), err)
			}
		})
	}
}

// A value that is nonsense once may be whole the next time.
func TestGatherInstanceTriesAgain(t *testing.T) {
	t.Parallel()
	w := simulator.Default()
	w.Faults = []simulator.Fault{
		{Match: "/latest/dynamic", Body: `{"instanceId": "i-0a1b`, First: 1},
		{Match: "/latest/meta-data/local-ipv4", Status: 404, First: 1},
		{Match: macs, Status: 503, First: 1},
	}
	_, r := serve(t, w)
	got, err := GatherInstance(soon(t), r.IMDS)
	if err != nil || got.Type != "m5.large" || got.Hostname != w.Instance.Hostname || len(got.VPCIPv4CIDRs) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIsEC2Name(t *testing.T) {
	for _, test := range []struct {
		name, region string
		want         bool
	}{
		{"ip-10-0-0-7.ec2.internal", "us-east-1", true},
		{"ip-10-0-0-7.us-east-1.compute.internal", "us-east-1", false},
		{"ip-10-0-0-7.ec2.internal", "eu-west-1", false},
		{"ip-10-0-0-7.eu-west-1.compute.internal", "eu-west-1", true},
		{"ip-10-0-0-7.eu-west-1.compute.internal", "eu-west-2", false},
		{"ip-10-0-0-7.cn-north-1.compute.internal", "cn-north-1", true},
		{"i-0a1b2c3d4e5f60718.eu-west-1.compute.internal", "eu-west-1", true},
		{"i-0a1b2c3d4e5f60718.ec2.internal", "us-east-1", true},
		{"i-0a1b2c3d.ec2.internal", "us-east-1", true},
		{"ip-10-0-0-7.corp.example.com", "eu-west-1", false},
		{"ip-10-0-0-7", "eu-west-1", false},
		{"ip-10-0-0.eu-west-1.compute.internal", "eu-west-1", false},
		{"xip-10-0-0-7.eu-west-1.compute.internal", "eu-west-1", false},
		{"node.eu-west-1.compute.internal", "eu-west-1", false},
		{"i-xyz.eu-west-1.compute.internal", "eu-west-1", false},
		{"ip-10-0-0-7.eu-west-1xcompute.internal", "eu-west-1", false},
		{"ip-10-0-0-7.sub.eu-west-1.compute.internal", "eu-west-1", false},
		{"", "eu-west-1", false},
	} {
		if got := isEC2Name(test.name, test.region); got != test.want {
			t.Errorf("%s in %s: %t", test.name, test.region, got)
		}
	}
}

func TestNodeName(t *testing.T) {
	const byAddress = "ip-192-168-18-230.eu-west-1.compute.internal"
	for _, test := range []struct {
		name     string
		change   func(*simulator.World)
		kubelet  string
		unwanted bool
		want     string
		actions  []string
		warning  []string
	}{
		{name: "EC2's own form", want: byAddress},
		{name: "resource name", change: func(w *simulator.World) {
			w.Instance.Hostname = "i-0a1b2c3d4e5f60718.eu-west-1.compute.internal"
		}, want: "i-0a1b2c3d4e5f60718.eu-west-1.compute.internal"},
		{name: "domain of their own", change: func(w *simulator.World) {
			w.Instance.Hostname = "ip-192-168-18-230.corp.example.com"
			w.Instance.PrivateDNSName = byAddress
		}, want: byAddress, actions: []string{"ec2:DescribeInstances"}},
		{name: "known late", change: func(w *simulator.World) {
			w.Instance.Hostname = "ip-192-168-18-230.corp.example.com"
			w.Instance.PrivateDNSName = "i-0a1b2c3d4e5f60718.eu-west-1.compute.internal"
			w.Instance.PrivateDNSNameAfter = 1
		}, want: "i-0a1b2c3d4e5f60718.eu-west-1.compute.internal", actions: []string{"ec2:DescribeInstances", "ec2:DescribeInstances"}},
		{name: "denied", change: func(w *simulator.World) {
			w.Instance.Hostname = "node.corp.example.com"
			w.Permissions.Deny = []string{"ec2:DescribeInstances"}
		}, want: byAddress, actions: []string{"ec2:DescribeInstances"},
			warning: []string{"node.corp.example.com", byAddress, `"Action": "ec2:DescribeInstances"`}},
		{name: "configuration names the node", unwanted: true, change: func(w *simulator.World) { w.Instance.Hostname = "node.corp.example.com" }},
		{name: "kubelet asks itself", kubelet: "1.25.0", change: func(w *simulator.World) { w.Instance.Hostname = "node.corp.example.com" }},
		{name: "first kubelet that does not", kubelet: "1.26.0", want: byAddress},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := simulator.Default()
			if test.change != nil {
				test.change(&w)
			}
			s, r := serve(t, w)
			r.NodeName = !test.unwanted
			if test.kubelet != "" {
				r.Host.KubeletVersion = test.kubelet
			}
			got, err := Gather(soon(t), r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Instance.NodeName != test.want {
				t.Errorf("node name %q, want %q", got.Instance.NodeName, test.want)
			}
			if diff := cmp.Diff(test.actions, actions(s)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if (len(got.Warnings) != 0) != (test.warning != nil) || len(got.Warnings) > 1 {
				t.Errorf("warnings %q", got.Warnings)
			}
			for _, words := range test.warning {
				if !strings.Contains(strings.Join(got.Warnings, "\n"), words) {
					t.Errorf("%q does not say %q", got.Warnings, words)
				}
			}
		})
	}
	if kubelet.ExternalCloudProvider != 26 {
		t.Errorf("ExternalCloudProvider is 1.%d; the cases above are for 1.26", kubelet.ExternalCloudProvider)
	}
}

// Half of the time that there is may go into the question; then the node needs
// a name all the same.
func TestNodeNameOfASilentEC2(t *testing.T) {
	t.Parallel()
	w := simulator.Default()
	w.Faults = []simulator.Fault{{Match: "ec2:DescribeInstances", Hang: true}}
	_, r := serve(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	r.NodeName, r.ClusterName = true, "c"
	f := &Facts{
		Instance: Instance{ID: w.Instance.ID, Region: "eu-west-1", Hostname: "node.corp.example.com", IPv4: netip.MustParseAddr("10.0.0.7")},
		Host:     Host{Kubelet: kubelet.Version{Major: 1, Minor: 34}},
	}
	warning, err := describeInstance(ctx, r.AWS("eu-west-1"), r, f)
	if name := f.Instance.NodeName; err != nil || name != "ip-10-0-0-7.eu-west-1.compute.internal" || !strings.Contains(warning, "node.corp.example.com") {
		t.Errorf("%q, %q, %v", name, warning, err)
	}
	// Whose time is over altogether gets no name made up.
	cancel()
	f.Instance.NodeName = ""
	if warning, err = describeInstance(ctx, r.AWS("eu-west-1"), r, f); err == nil || f.Instance.NodeName != "" || warning != "" {
		t.Errorf("%q, %q, %v", f.Instance.NodeName, warning, err)
	}
}

func TestAddressName(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "ip-10-0-0-7.ec2.internal",
		"us-east-2": "ip-10-0-0-7.us-east-2.compute.internal",
	} {
		if got := addressName(Instance{Region: region, IPv4: netip.MustParseAddr("10.0.0.7")}); got != want {
			t.Errorf("%s: %s", region, got)
		}
	}
}

func TestLimits(t *testing.T) {
	unknown := simulator.InstanceType{Type: "z99.huge", IPv4PerENI: 50, VCPUs: 8, MemoryMiB: 1 << 14, Cards: []int{7, 8}}
	for _, test := range []struct {
		name    string
		typ     string
		types   []simulator.InstanceType
		deny    bool
		want    *Limits
		actions []string
		warning []string
	}{
		{name: "in the table", typ: "m5.large"},
		{name: "EC2 knows it", typ: "z99.huge", types: []simulator.InstanceType{unknown}, want: &Limits{ENIs: 7, IPv4PerENI: 50},
			actions: []string{"ec2:DescribeInstanceTypes"}},
		{name: "denied", typ: "z99.huge", types: []simulator.InstanceType{unknown}, deny: true, actions: []string{"ec2:DescribeInstanceTypes"},
			warning: []string{"z99.huge", `"Action": "ec2:DescribeInstanceTypes"`}},
		{name: "nobody knows it", typ: "z99.huge", actions: []string{"ec2:DescribeInstanceTypes"}, warning: []string{"z99.huge", "InvalidInstanceType"}},
	} {
		w := simulator.Default()
		w.Instance.Type, w.InstanceTypes = test.typ, test.types
		if test.deny {
			w.Permissions.Deny = []string{"ec2:DescribeInstanceTypes"}
		}
		s, r := serve(t, w)
		got, err := Gather(soon(t), r)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		limits := got.Instance.Limits
		if (limits != nil) != (test.want != nil) || limits != nil && (limits.ENIs != test.want.ENIs || limits.IPv4PerENI != test.want.IPv4PerENI) {
			t.Errorf("%s: limits %+v, want %+v", test.name, limits, test.want)
		}
		if diff := cmp.Diff(test.actions, actions(s)); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", test.name, diff)
		}
		if (len(got.Warnings) != 0) != (test.warning != nil) {
			t.Errorf("%s: warnings %q", test.name, got.Warnings)
		}
		for _, words := range test.warning {
			if !strings.Contains(strings.Join(got.Warnings, "\n"), words) {
				t.Errorf("%s: %q does not say %q", test.name, got.Warnings, words)
			}
		}
	}
}

func TestCluster(t *testing.T) {
	s, r := serve(t, simulator.Default())
	if got, err := Gather(soon(t), r); err != nil || got.Cluster != nil || len(actions(s)) != 0 {
		t.Errorf("EKS was asked without need: %+v, %v, %q", got.Cluster, err, actions(s))
	}
	r.ClusterName, r.DescribeCluster, r.ClusterRetries = "ironman-2022", true, 3
	got, err := Gather(soon(t), r)
	if err != nil || got.Cluster == nil || got.Cluster.Endpoint != simulator.Default().Cluster.Endpoint || len(got.Cluster.CertificateAuthority) == 0 {
		t.Errorf("got %+v, %v", got.Cluster, err)
	}
	r.ClusterName = "another"
	if _, err := Gather(soon(t), r); fault.CodeOf(err) != fault.AWS || !strings.Contains(err.Error(), "another") {
		t.Errorf("got %v", err)
	}
}

// On an Outpost the API server's addresses are needed; an address is its own.
func TestEndpointAddresses(t *testing.T) {
	w := simulator.Default()
	w.Cluster.ID, w.Cluster.Endpoint = "0e7f1a5c", "https://10.1.2.3"
	w.Cluster.OutpostARN = "arn:aws:outposts:eu-west-1:111111111111:outpost/op-1"
	_, r := serve(t, w)
	r.ClusterName, r.DescribeCluster = "ironman-2022", true
	got, err := Gather(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addrs("10.1.2.3"), got.Host.EndpointAddresses, compareAddrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.ResolveEndpoint = "https://[2001:db8::9]:6443/"
	if got, err = Gather(soon(t), r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addrs("2001:db8::9"), got.Host.EndpointAddresses, compareAddrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// EC2 gives an interface its IPv6 address after the instance has started.
func TestIPv6IsWaitedFor(t *testing.T) {
	t.Parallel()
	path := macs + simulator.Default().Instance.MAC + "/ipv6s"
	for _, byEKS := range []bool{false, true} {
		w := simulator.Default()
		w.Instance.IPv6 = []string{"2001:db8::1"}
		w.Faults = []simulator.Fault{{Match: path, Status: 404, First: 2}}
		if byEKS {
			w.Cluster.IPFamily, w.Cluster.ServiceIPv4CIDR, w.Cluster.ServiceIPv6CIDR = "ipv6", "", "fd30:1c53:5f8a::/108"
		}
		_, r := serve(t, w)
		if r.IPv6 = !byEKS; byEKS {
			r.ClusterName, r.DescribeCluster = "ironman-2022", true
		}
		got, err := Gather(soon(t), r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(addrs("2001:db8::1"), got.Instance.IPv6, compareAddrs); diff != "" {
			t.Errorf("by EKS %t (-want +got):\n%s", byEKS, diff)
		}
	}
	// Nobody waits for an address that the node does not need.
	w := simulator.Default()
	s, r := serve(t, w)
	if got, err := Gather(soon(t), r); err != nil || len(got.Instance.IPv6) != 0 {
		t.Errorf("got %v, %v", got.Instance.IPv6, err)
	}
	n := 0
	for _, r := range s.Requests() {
		if r.Path == path {
			n++
		}
	}
	if n != 1 {
		t.Errorf("asked %d times", n)
	}
	// And an address that never comes ends with the time there is.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report := func(error, int, time.Duration) { cancel() } // as soon as it waits
	client := imds.New(imds.Options{Endpoint: listen(t, simulator.New(w)), Report: report})
	if _, err := waitForIPv6(ctx, client, w.Instance.MAC); fault.CodeOf(err) != fault.AWS || !strings.Contains(err.Error(), "/ipv6s") {
		t.Errorf("got %v", err)
	}
}

func TestECRFIPSHost(t *testing.T) {
	i := Instance{Region: "us-west-2", ServicesDomain: "amazonaws.com"}
	if got := ecrFIPSHost(i, "123456789012"); got != "123456789012.dkr.ecr-fips.us-west-2.amazonaws.com" {
		t.Error(got)
	}
	if got := ecrFIPSHost(i, ""); !strings.HasSuffix(got, ".dkr.ecr-fips.us-west-2.amazonaws.com") || strings.HasPrefix(got, ".") {
		t.Error(got)
	}
}
