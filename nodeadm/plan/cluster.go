package plan

import (
	"net/netip"
	"net/url"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// cluster is what is settled about the cluster: the user's word first, then
// what EKS says, then what follows from the network.
type cluster struct {
	name, endpoint string
	ca             []byte
	ipv6           bool
	dns            []netip.Addr
	outpost        bool
	id             string // authenticates to a local cluster
}

func settleCluster(c config.Cluster, f facts.Facts) (cluster, error) {
	s := cluster{name: c.Name, endpoint: c.Endpoint, ca: c.CertificateAuthority, id: c.ID, ipv6: c.IPFamily == "ipv6"}
	if s.name == "" {
		s.name = f.ClusterName
	}
	described := facts.Cluster{}
	if f.Cluster != nil {
		described = *f.Cluster
		s.endpoint, s.ca = described.Endpoint, described.CertificateAuthority
		if err := config.CheckCA(s.ca); err != nil {
			return s, fault.New(fault.AWS, "", "certificate authority of cluster %s, as EKS gave it: %w", c.Name, err)
		}
		if described.ID != "" {
			s.id = described.ID
		}
		if c.IPFamily == "" {
			s.ipv6 = described.IPFamily == "ipv6"
		}
	}
	s.outpost = described.OutpostARN != ""
	if c.Outpost != nil {
		s.outpost = *c.Outpost
	}
	if s.outpost && s.id == "" {
		return s, fault.New(fault.Usage, "add --cluster-id ID", "a local cluster on an Outpost is authenticated by its id, which is not known")
	}
	if s.ipv6 && len(f.Instance.IPv6) == 0 {
		return s, fault.New(fault.AWS, "launch the instance in a subnet that assigns IPv6 addresses", "the cluster's IP family is ipv6 and the instance has no IPv6 address")
	}
	var err error
	s.dns, err = clusterDNS(c, described, f.Instance.VPCIPv4CIDRs, s.ipv6)
	return s, err
}

// clusterDNS is the address of the cluster's DNS service: given, or the tenth
// address of the service CIDR, which is where EKS puts it.
func clusterDNS(c config.Cluster, described facts.Cluster, vpc []netip.Prefix, ipv6 bool) ([]netip.Addr, error) {
	if len(c.DNSAddresses) > 0 {
		return c.DNSAddresses, nil
	}
	service := c.ServiceCIDR
	if !service.IsValid() {
		text := described.ServiceIPv4CIDR
		if ipv6 {
			text = described.ServiceIPv6CIDR
		}
		if text != "" {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fault.New(fault.AWS, "", "service CIDR of the cluster, as EKS gave it: %w", err)
			}
			service = p
		}
	}
	if !service.IsValid() && ipv6 {
		return nil, fault.New(fault.Usage, "add --service-ipv6-cidr CIDR or --dns-cluster-ip IP", "an IPv6 cluster's DNS address cannot be known without its service CIDR")
	}
	if !service.IsValid() {
		// What EKS chose before clusters had a service CIDR of their own: the
		// range that does not collide with the VPC's.
		service = netip.MustParsePrefix("10.100.0.0/16")
		for _, p := range vpc {
			if p.Addr().Is4() && p.Addr().As4()[0] == 10 {
				service = netip.MustParsePrefix("172.20.0.0/16")
			}
		}
	}
	address := service.Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	if !service.Contains(address) {
		return nil, fault.New(fault.Usage, "give the address with --dns-cluster-ip IP", "the service CIDR %s has no tenth address for cluster DNS", service)
	}
	return []netip.Addr{address}, nil
}

// host is the API server's host without its port.
func (c cluster) host() string {
	u, err := url.Parse(c.endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
