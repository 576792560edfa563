package simulator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "ASIATEST", SecretAccessKey: "secret", SessionToken: "session"}, nil
	})
}

func ec2Client(base, region string) *ec2.Client {
	return ec2.New(ec2.Options{BaseEndpoint: &base, Region: region, Credentials: credentials(), Retryer: aws.NopRetryer{}, HTTPClient: &http.Client{}})
}

func eksClient(base, region string) *eks.Client {
	return eks.New(eks.Options{BaseEndpoint: &base, Region: region, Credentials: credentials(), Retryer: aws.NopRetryer{}, HTTPClient: &http.Client{}})
}

func wantAPIError(t *testing.T, err error, status int, code string) {
	t.Helper()
	var apiErr smithy.APIError
	if !errors.As(err, &apiErr) {
		t.Errorf("%v is no API error", err)
		return
	}
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) {
		t.Errorf("%v has no response", err)
		return
	}
	if apiErr.ErrorCode() != code || resp.HTTPStatusCode() != status {
		t.Errorf("got %d %s (%s), want %d %s", resp.HTTPStatusCode(), apiErr.ErrorCode(), apiErr.ErrorMessage(), status, code)
	}
}

func TestDescribeInstances(t *testing.T) {
	w := Default()
	w.Instance.PrivateDNSNameAfter = 2
	w.Instance.Lifecycle = "spot"
	w.Instance.IPv6 = []string{"2001:db8::1"}
	w.Instance.Tags["odd"] = `<&"'>`
	_, base := start(t, w)
	client := ec2Client(base, "eu-west-1")
	ctx := context.Background()
	in := &ec2.DescribeInstancesInput{InstanceIds: []string{w.Instance.ID}}

	var names []string
	var got ec2types.Instance
	for range 3 {
		out, err := client.DescribeInstances(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		got = out.Reservations[0].Instances[0]
		names = append(names, aws.ToString(got.PrivateDnsName))
	}
	if n := strings.Join(names, "|"); n != "||"+w.Instance.PrivateDNSName {
		t.Errorf("names: %s", n)
	}
	tags := make(map[string]string)
	for _, tag := range got.Tags {
		tags[*tag.Key] = *tag.Value
	}
	if len(tags) != len(w.Instance.Tags) || tags["kubernetes.io/cluster/ironman-2022"] != "owned" || tags["odd"] != `<&"'>` {
		t.Errorf("tags %v", tags)
	}
	switch {
	case *got.InstanceId != w.Instance.ID, *got.ImageId != w.Instance.AMI, got.InstanceType != "m5.large",
		*got.PrivateIpAddress != "192.168.18.230", *got.Placement.AvailabilityZone != "eu-west-1a",
		got.InstanceLifecycle != ec2types.InstanceLifecycleTypeSpot, got.State.Name != "running",
		*got.MetadataOptions.HttpPutResponseHopLimit != 2, got.MetadataOptions.HttpTokens != "required",
		*got.NetworkInterfaces[0].Ipv6Addresses[0].Ipv6Address != "2001:db8::1", got.LaunchTime.IsZero(),
		got.Architecture != "x86_64", !strings.HasSuffix(*got.IamInstanceProfile.Arn, "/NodeInstanceRole"):
		t.Errorf("got %+v", got)
	}

	_, err := client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000000"}})
	wantAPIError(t, err, 400, "InvalidInstanceID.NotFound")
	_, err = client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"x"}})
	wantAPIError(t, err, 400, "InvalidInstanceID.Malformed")
	_, err = client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: aws.String("a"), Values: []string{"b"}}}})
	wantAPIError(t, err, 400, "InvalidParameterValue")
	_, err = ec2Client(base, "eu-west-2").DescribeInstances(ctx, in)
	wantAPIError(t, err, 401, "AuthFailure")
	_, err = client.DescribeRegions(ctx, nil)
	wantAPIError(t, err, 400, "InvalidAction")
	if out, err := client.DescribeInstances(ctx, nil); err != nil || len(out.Reservations) != 1 {
		t.Errorf("without ids: %v, %v", out, err)
	}
}

func TestDescribeInstanceTypes(t *testing.T) {
	w := Default()
	w.InstanceTypes = []InstanceType{
		{Type: "p4d.24xlarge", IPv4PerENI: 50, VCPUs: 96, MemoryMiB: 1179648, Cards: []int{15, 15, 15, 15}},
		{Type: "m7g.metal", ENIs: 15, IPv4PerENI: 50, VCPUs: 64, MemoryMiB: 262144},
	}
	_, base := start(t, w)
	client := ec2Client(base, "eu-west-1")
	ctx := context.Background()
	out, err := client.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []ec2types.InstanceType{"m5.large", "p4d.24xlarge", "m7g.metal", "m4.large"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.InstanceTypes) != 4 {
		t.Fatalf("%d types", len(out.InstanceTypes))
	}
	m5, p4d, metal, m4 := out.InstanceTypes[0], out.InstanceTypes[1], out.InstanceTypes[2], out.InstanceTypes[3]
	switch {
	case *m5.NetworkInfo.MaximumNetworkInterfaces != 3, *m5.NetworkInfo.Ipv4AddressesPerInterface != 10,
		*m5.VCpuInfo.DefaultVCpus != 2, *m5.MemoryInfo.SizeInMiB != 8192, *m5.BareMetal,
		m5.Hypervisor != "nitro", m5.ProcessorInfo.SupportedArchitectures[0] != "x86_64",
		len(m5.NetworkInfo.NetworkCards) != 1, *m5.NetworkInfo.DefaultNetworkCardIndex != 0:
		t.Errorf("m5.large: %+v", m5)
	case *p4d.NetworkInfo.MaximumNetworkInterfaces != 60, len(p4d.NetworkInfo.NetworkCards) != 4,
		*p4d.NetworkInfo.NetworkCards[3].MaximumNetworkInterfaces != 15, *p4d.NetworkInfo.NetworkCards[3].NetworkCardIndex != 3:
		t.Errorf("p4d: %+v", p4d)
	case !*metal.BareMetal, metal.Hypervisor != "", metal.ProcessorInfo.SupportedArchitectures[0] != "arm64":
		t.Errorf("m7g.metal: %+v", metal)
	case m4.Hypervisor != "xen":
		t.Errorf("m4.large: %+v", m4)
	}
	_, err = client.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"z9.huge"}})
	wantAPIError(t, err, 400, "InvalidInstanceType")
}

func TestDescribeCluster(t *testing.T) {
	w := Default()
	w.Cluster.ActiveAfter = 1
	w.Cluster.ID = "0e7f1a5c-aaaa-bbbb-cccc-000000000000"
	w.Cluster.OutpostARN = "arn:aws:outposts:eu-west-1:111111111111:outpost/op-1"
	_, base := start(t, w)
	client := eksClient(base, "eu-west-1")
	ctx := context.Background()
	in := &eks.DescribeClusterInput{Name: aws.String("ironman-2022")}

	out, err := client.DescribeCluster(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if c := out.Cluster; c.Status != ekstypes.ClusterStatusCreating || c.Endpoint != nil || c.CertificateAuthority != nil {
		t.Errorf("the first answer: %+v", c)
	}
	out, err = client.DescribeCluster(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	c := out.Cluster
	switch {
	case c.Status != ekstypes.ClusterStatusActive, *c.Name != "ironman-2022", *c.Endpoint != w.Cluster.Endpoint,
		*c.CertificateAuthority.Data != exampleCA, *c.Version != "1.22", *c.Id != w.Cluster.ID,
		*c.Arn != "arn:aws:eks:eu-west-1:111111111111:cluster/ironman-2022",
		*c.KubernetesNetworkConfig.ServiceIpv4Cidr != "10.100.0.0/16", c.KubernetesNetworkConfig.IpFamily != "ipv4",
		c.OutpostConfig.OutpostArns[0] != w.Cluster.OutpostARN:
		t.Errorf("got %+v", c)
	}

	_, err = client.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("other")})
	wantAPIError(t, err, 404, "ResourceNotFoundException")
	var notFound *ekstypes.ResourceNotFoundException
	if !errors.As(err, &notFound) {
		t.Errorf("%v is no ResourceNotFoundException", err)
	}
	_, err = eksClient(base, "eu-west-2").DescribeCluster(ctx, in)
	wantAPIError(t, err, 403, "InvalidSignatureException")
	_, err = client.ListClusters(ctx, nil)
	wantAPIError(t, err, 404, "UnknownOperationException")
}

func TestDescribeClusterIPv6(t *testing.T) {
	_, base := start(t, World{
		Instance: Instance{Type: "m5.large", Region: "eu-west-1"},
		Cluster:  &Cluster{Name: "six", ServiceIPv6CIDR: "fd00:1::/108"},
	})
	out, err := eksClient(base, "eu-west-1").DescribeCluster(context.Background(), &eks.DescribeClusterInput{Name: aws.String("six")})
	if err != nil {
		t.Fatal(err)
	}
	n := out.Cluster.KubernetesNetworkConfig
	if n.IpFamily != "ipv6" || *n.ServiceIpv6Cidr != "fd00:1::/108" || n.ServiceIpv4Cidr != nil {
		t.Errorf("got %+v", n)
	}
}

func TestDenied(t *testing.T) {
	w := Default()
	w.Permissions.Deny = actions()
	_, base := start(t, w)
	ctx := context.Background()
	_, err := ec2Client(base, "eu-west-1").DescribeInstances(ctx, nil)
	wantAPIError(t, err, 403, "UnauthorizedOperation")
	_, err = ec2Client(base, "eu-west-1").DescribeInstanceTypes(ctx, nil)
	wantAPIError(t, err, 403, "UnauthorizedOperation")
	_, err = eksClient(base, "eu-west-1").DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("ironman-2022")})
	wantAPIError(t, err, 403, "AccessDeniedException")
	if err == nil || !strings.Contains(err.Error(), "eks:DescribeCluster") {
		t.Errorf("%v does not name the permission", err)
	}
}

func TestUnsigned(t *testing.T) {
	_, base := start(t, Default())
	for name, auth := range map[string]string{
		"none":         "",
		"basic":        "Basic abc",
		"no signature": "AWS4-HMAC-SHA256 Credential=A/20260101/eu-west-1/eks/aws4_request",
		"no scope":     "AWS4-HMAC-SHA256 Credential=A, SignedHeaders=host, Signature=0",
	} {
		for _, call := range []struct{ method, path, body, want string }{
			{"GET", "/clusters/ironman-2022", "", "MissingAuthenticationTokenException"},
			{"POST", "/", "Action=DescribeInstances&Version=2016-11-15", "<Code>MissingAuthenticationToken</Code>"},
		} {
			r, _ := http.NewRequest(call.method, base+call.path, strings.NewReader(call.body))
			if auth != "" {
				r.Header.Set("Authorization", auth)
			}
			status, body := do(t, r)
			if status != 403 || !strings.Contains(body, call.want) {
				t.Errorf("%s, %s: %d %s", name, call.path, status, body)
			}
		}
	}
}
