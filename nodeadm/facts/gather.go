package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/data/pauseimage"
	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
)

// Request says what a plan will need, so that nothing else is asked for.
type Request struct {
	Host HostRequest
	IMDS *imds.Client
	// AWS makes a client for the instance's region.
	AWS func(region string) *awsapi.Client

	// Check, if set, is asked before any AWS API is: what this host cannot do is
	// no reason to wait for anybody.
	Check func(Host) error
	// ClusterName is the cluster's name, or "" if the instance's tags have to
	// tell it; DescribeCluster: EKS has to be asked about it.
	ClusterName     string
	DescribeCluster bool
	// Tags: the instance's tags are needed.
	Tags bool
	// PrivateEndpoint: whether the API server at this URL has private addresses
	// only is needed; "" if not, or if EKS tells the URL.
	PrivateEndpoint string
	// ClusterRetries bounds the repetitions of that; negative: only time does.
	ClusterRetries int
	// NodeName: the name EC2 gives the instance is needed.
	NodeName bool
	// IPv6: the node is going to use IPv6 whatever EKS says.
	IPv6 bool
	// ResolveEndpoint is the URL whose host's addresses are needed, or "".
	// Outposts: so it is for a cluster on an Outpost, if EKS says it is one.
	ResolveEndpoint string
	// PauseAccount is the registry account of the pause image if it is not the
	// region's own.
	PauseAccount string
}

// Gather finds out everything, side by side where nothing depends on another.
// It ends with ctx at the latest.
func Gather(ctx context.Context, r Request) (Facts, error) {
	var f Facts
	var hostWarnings []string
	g, here := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		f.Host, hostWarnings, err = GatherHost(here, r.Host)
		return err
	})
	g.Go(func() (err error) {
		f.Instance, err = GatherInstance(here, r.IMDS)
		return err
	})
	if err := g.Wait(); err != nil {
		return f, err
	}
	f.Warnings = hostWarnings
	if r.Check != nil {
		if err := r.Check(f.Host); err != nil {
			return f, err
		}
	}
	return f, gatherAWS(ctx, r, &f)
}

// gatherAWS asks the AWS APIs for what the instance itself could not tell: one
// call of each kind at the most.
func gatherAWS(ctx context.Context, r Request, f *Facts) error {
	aws := r.AWS(f.Instance.Region)
	var instanceWarning, typeWarning string
	g, here := errgroup.WithContext(ctx)
	describeCluster := func(name string) error {
		if !r.DescribeCluster {
			return nil
		}
		c, err := aws.DescribeCluster(here, name, r.ClusterRetries)
		if err != nil {
			return err
		}
		f.Cluster = &Cluster{
			Endpoint: c.Endpoint, CertificateAuthority: c.CertificateAuthority,
			ServiceIPv4CIDR: c.ServiceIPv4CIDR, ServiceIPv6CIDR: c.ServiceIPv6CIDR, IPFamily: c.IPFamily,
			ID: c.ID, OutpostARN: c.OutpostARN,
		}
		return nil
	}
	if r.ClusterName != "" {
		g.Go(func() error { return describeCluster(r.ClusterName) })
	}
	g.Go(func() (err error) {
		if instanceWarning, err = describeInstance(here, aws, r, f); err != nil || r.ClusterName != "" {
			return err
		}
		if f.ClusterName, err = clusterName(f.Instance.Tags); err != nil {
			return err
		}
		return describeCluster(f.ClusterName)
	})
	g.Go(func() error {
		if _, known := instancetypes.Lookup(f.Instance.Type); !known {
			f.Instance.Limits, typeWarning = limits(here, aws, f.Instance.Type)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for _, w := range []string{instanceWarning, typeWarning} {
		if w != "" {
			f.Warnings = append(f.Warnings, w)
		}
	}

	// What depends on the cluster's answer.
	var err error
	if (r.IPv6 || f.Cluster != nil && f.Cluster.IPFamily == "ipv6") && len(f.Instance.IPv6) == 0 {
		if f.Instance.IPv6, err = waitForIPv6(ctx, r.IMDS, f.Instance.MAC); err != nil {
			return err
		}
	}
	if r.PrivateEndpoint != "" {
		f.PrivateEndpoint = private(ctx, r.PrivateEndpoint)
	}
	endpoint := r.ResolveEndpoint
	if endpoint == "" && f.Cluster != nil && f.Cluster.OutpostARN != "" {
		endpoint = f.Cluster.Endpoint
	}
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil {
			return err
		}
		if f.Host.EndpointAddresses, err = resolve(ctx, u.Hostname()); err != nil {
			return fmt.Errorf("addresses of the cluster's API server: %w", err)
		}
	}
	if f.Host.FIPS {
		f.Host.ECRFIPS = resolves(ctx, ecrFIPSHost(f.Instance, r.PauseAccount))
	}
	return nil
}

// describeInstance finds the instance's private DNS name as EC2 knows it and,
// where wanted, its tags. Where the machine's own name has EC2's form for the
// region it is that name and no API is asked; a VPC with a DHCP domain of its
// own gives names of another form.
func describeInstance(ctx context.Context, aws *awsapi.Client, r Request, f *Facts) (warning string, err error) {
	i := &f.Instance
	// Older kubelets find their name themselves.
	needName := r.NodeName && f.Host.Kubelet.AtLeast(kubelet.ExternalCloudProvider)
	if needName && isEC2Name(i.Hostname, i.Region) {
		i.NodeName, needName = i.Hostname, false
	}
	needTags := r.Tags || r.ClusterName == ""
	if !needName && !needTags {
		return "", nil
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok && !needTags {
		// Leave time for the rest of the boot where EC2 does not answer at all.
		limited, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	defer cancel()
	found, err := aws.DescribeInstance(limited, i.ID, needName)
	switch {
	case err == nil:
		i.Tags = found.Tags
		if needName {
			i.NodeName = found.PrivateDNSName
		}
		return "", nil
	case needTags && r.ClusterName == "":
		return "", fault.New(fault.AWS, cmp.Or(fault.Remedy(err), "name the cluster"), "the cluster's name is not given, and EC2 could not be asked for the instance's tags: %w", err)
	case needTags || ctx.Err() != nil:
		return "", err
	}
	i.NodeName = addressName(*i)
	return fmt.Sprintf("the host name %s is not one of EC2's and EC2 could not be asked for the private DNS name (%v): "+
		"the node registers as %s, made from its address%s", i.Hostname, err, i.NodeName, ifDenied(err, "ec2:DescribeInstances")), nil
}

// clusterName finds the cluster an instance belongs to in its tags.
func clusterName(tags map[string]string) (string, error) {
	const prefix = "kubernetes.io/cluster/"
	var names []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if name, found := strings.CutPrefix(key, prefix); found {
			names = append(names, name)
		}
	}
	for _, key := range []string{"eks:cluster-name", "eks:eks-cluster-name"} {
		if name := tags[key]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", fault.New(fault.Usage, "name the cluster in the configuration, or tag the instance "+prefix+"NAME=owned", "no cluster name is given, and the instance has no tag that tells it")
	}
	return "", fault.New(fault.Usage, "name the cluster in the configuration", "no cluster name is given, and the instance's tags name several: %s", strings.Join(names, ", "))
}

var (
	ipNamePattern       = regexp.MustCompile(`^ip-[0-9]+-[0-9]+-[0-9]+-[0-9]+\.`)
	resourceNamePattern = regexp.MustCompile(`^i-[0-9a-f]{8,17}\.`)
)

// isEC2Name tells whether name is a private DNS name as EC2 itself gives them
// in region, by address or by instance id.
func isEC2Name(name, region string) bool {
	prefix := ipNamePattern.FindString(name)
	if prefix == "" {
		prefix = resourceNamePattern.FindString(name)
	}
	return prefix != "" && name[len(prefix):] == privateDomain(region)
}

func privateDomain(region string) string {
	if region == "us-east-1" {
		return "ec2.internal"
	}
	return region + ".compute.internal"
}

func addressName(i Instance) string {
	return "ip-" + strings.ReplaceAll(i.IPv4.String(), ".", "-") + "." + privateDomain(i.Region)
}

// limits asks EC2 for a type that the embedded table does not have.
func limits(ctx context.Context, aws *awsapi.Client, name string) (*Limits, string) {
	// A short while only: there is a careful answer without EC2, and a node
	// that waits minutes for a better one is no use.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	t, err := aws.DescribeInstanceType(ctx, name)
	if err != nil {
		return nil, fmt.Sprintf("instance type %s is newer than this nodeadm, and EC2 could not be asked about it: %v%s",
			name, err, ifDenied(err, "ec2:DescribeInstanceTypes"))
	}
	return &Limits{ENIs: t.ENIs, IPv4PerENI: t.IPv4PerENI, VCPUs: t.VCPUs, Prefixes: t.Nitro || t.BareMetal}, ""
}

// ifDenied is the end of a sentence about a call that failed: how to allow it,
// if that is what it failed for.
func ifDenied(err error, permission string) string {
	if !errors.Is(err, awsapi.ErrDenied) {
		return ""
	}
	return "; " + awsapi.PolicyStatement(permission)
}

func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return nil, err
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// private tells whether the host of a URL has private addresses only. Where it
// does not resolve at all, nothing is lost by going direct.
func private(ctx context.Context, endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	return err == nil && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.Unmap().IsPrivate() })
}

func resolves(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	return err == nil && len(addrs) > 0
}

// ecrFIPSHost is the FIPS endpoint of the registry that holds the pause image.
func ecrFIPSHost(i Instance, account string) string {
	region := i.Region
	if account == "" {
		account, region = pauseimage.Registry(i.Region)
	}
	return fmt.Sprintf("%s.dkr.ecr-fips.%s.%s", account, region, i.ServicesDomain)
}
