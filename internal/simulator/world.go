// Package simulator is one EC2 instance as a program on it sees it: the instance
// metadata service and the EKS, EC2 and ECR calls a node makes, answered over
// real HTTP on a single listener and described by one small document.
//
// A World says what is true of the instance, and what goes wrong there. A Server
// answers from it. Nothing is secret: the credentials it hands out open no door.
package simulator

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// World is the document: everything the simulated instance answers from. Only
// instance.type and instance.region have to be given; Complete says what the
// rest becomes.
type World struct {
	Instance Instance `yaml:"instance"`

	// UserData is served byte for byte; empty means that there is none (404).
	UserData string `yaml:"userData,omitempty"`
	// UserDataFile names a file instead, relative to the document. Parse reads
	// it into UserData.
	UserDataFile string `yaml:"userDataFile,omitempty"`

	// Cluster is what eks:DescribeCluster knows; nil means no such cluster.
	Cluster     *Cluster    `yaml:"cluster,omitempty"`
	Permissions Permissions `yaml:"permissions,omitempty"`

	// InstanceTypes are types that ec2:DescribeInstanceTypes knows besides the
	// few built in. An entry here wins over a built-in one.
	InstanceTypes []InstanceType `yaml:"instanceTypes,omitempty"`
	Faults        []Fault        `yaml:"faults,omitempty"`
}

// Instance is the machine, as IMDS and DescribeInstances tell it.
type Instance struct {
	Type           string   `yaml:"type"`
	ID             string   `yaml:"id,omitempty"`
	AMI            string   `yaml:"ami,omitempty"`
	Region         string   `yaml:"region"`
	Zone           string   `yaml:"zone,omitempty"`
	ZoneID         string   `yaml:"zoneID,omitempty"`
	Account        string   `yaml:"account,omitempty"`
	Partition      string   `yaml:"partition,omitempty"`
	ServicesDomain string   `yaml:"servicesDomain,omitempty"`
	Architecture   string   `yaml:"architecture,omitempty"`
	MAC            string   `yaml:"mac,omitempty"`
	LocalIPv4      string   `yaml:"localIPv4,omitempty"`
	IPv6           []string `yaml:"ipv6,omitempty"`
	VPCCIDRs       []string `yaml:"vpcCIDRs,omitempty"`
	VPCIPv6CIDRs   []string `yaml:"vpcIPv6CIDRs,omitempty"`

	// Hostname is IMDS local-hostname; a custom DHCP domain shows here.
	Hostname string `yaml:"hostname,omitempty"`
	// PrivateDNSName is what the EC2 API says.
	PrivateDNSName string `yaml:"privateDNSName,omitempty"`
	// PrivateDNSNameAfter is the number of DescribeInstances answers in which
	// the name is still empty, as it is for seconds after a launch.
	PrivateDNSNameAfter int `yaml:"privateDNSNameAfter,omitempty"`

	// Role is the instance profile's role; empty means none is attached, and
	// IMDS then has no iam directory at all.
	Role string            `yaml:"role,omitempty"`
	Tags map[string]string `yaml:"tags,omitempty"`
	// TagsInMetadata shows the tags in IMDS too. EC2 refuses that where a tag's
	// key has a slash in it, as the tag every EKS node needs has.
	TagsInMetadata bool   `yaml:"tagsInMetadata,omitempty"`
	Lifecycle      string `yaml:"lifecycle,omitempty"`
	// HopLimit is reported by DescribeInstances only. What a limit of 1 does to
	// a container is a fault: {match: /latest/api/token, hang: true}.
	HopLimit int `yaml:"hopLimit,omitempty"`
}

// Cluster is what eks:DescribeCluster answers.
type Cluster struct {
	Name                 string `yaml:"name"`
	Endpoint             string `yaml:"endpoint,omitempty"`
	CertificateAuthority string `yaml:"certificateAuthority,omitempty"`
	ServiceIPv4CIDR      string `yaml:"serviceIPv4CIDR,omitempty"`
	ServiceIPv6CIDR      string `yaml:"serviceIPv6CIDR,omitempty"`
	IPFamily             string `yaml:"ipFamily,omitempty"`
	// ID and OutpostARN are set only for a cluster on an Outpost.
	ID         string `yaml:"id,omitempty"`
	OutpostARN string `yaml:"outpostARN,omitempty"`
	Version    string `yaml:"version,omitempty"`
	Status     string `yaml:"status,omitempty"`
	// ActiveAfter is the number of DescribeCluster answers that still say
	// CREATING before Status is told.
	ActiveAfter int `yaml:"activeAfter,omitempty"`
}

// Permissions lists the API actions the role may not call; it may call the rest.
type Permissions struct {
	Deny []string `yaml:"deny,omitempty"`
}

// InstanceType is what DescribeInstanceTypes says of one type.
type InstanceType struct {
	Type         string `yaml:"type"`
	ENIs         int    `yaml:"enis,omitempty"`
	IPv4PerENI   int    `yaml:"ipv4PerENI"`
	VCPUs        int    `yaml:"vcpus"`
	MemoryMiB    int    `yaml:"memoryMiB"`
	Hypervisor   string `yaml:"hypervisor,omitempty"`
	Architecture string `yaml:"architecture,omitempty"`
	// Cards are the ENIs of each network card, the default card first. Empty
	// means one card, which carries them all.
	Cards []int `yaml:"cards,omitempty,flow"`
}

// Fault is something that goes wrong with the requests it matches. The first
// fault that answers ends the request; one that only delays lets it go on.
type Fault struct {
	// Match is an IMDS path, which covers what lies below it and every version
	// of the API, or an action such as eks:DescribeCluster or ec2:*.
	Match string `yaml:"match"`

	Status int `yaml:"status,omitempty"`
	// Code is the error code of an API answer, such as InvalidInstanceID.NotFound.
	Code string `yaml:"code,omitempty"`
	// Body is sent as it is, with status 200 if none is given.
	Body  string        `yaml:"body,omitempty"`
	Delay time.Duration `yaml:"delay,omitempty"`
	// Hang never answers. Drop closes the connection without a word.
	Hang bool `yaml:"hang,omitempty"`
	Drop bool `yaml:"drop,omitempty"`

	// First limits the fault to that many matching requests, Until to that long
	// after the start. Zero means no limit.
	First int           `yaml:"first,omitempty"`
	Until time.Duration `yaml:"until,omitempty"`
}

// Document writes w as a document that Parse reads back.
func (w World) Document() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(w); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// Complete fills what was left out, from what was given where that decides it.
// It shares no slice that it changes with w, and completing twice changes nothing.
func (w World) Complete() World {
	in := &w.Instance
	fill(&in.ID, "i-0a1b2c3d4e5f60718")
	fill(&in.AMI, "ami-08702177b0dcfc054")
	fill(&in.Zone, in.Region+"a")
	fill(&in.ZoneID, zoneID(in.Region, in.Zone))
	fill(&in.Account, "111111111111")
	fill(&in.Partition, partitionOf(in.Region))
	fill(&in.ServicesDomain, domainOf(in.Partition))
	fill(&in.Architecture, architectureOf(in.Type))
	fill(&in.MAC, "0a:00:c0:a8:12:e6")
	fill(&in.LocalIPv4, "192.168.18.230")
	fill(&in.Hostname, dnsName(in.LocalIPv4, in.Region))
	fill(&in.PrivateDNSName, in.Hostname)
	fill(&in.Lifecycle, "on-demand")
	if in.HopLimit == 0 {
		in.HopLimit = 2
	}
	if len(in.VPCCIDRs) == 0 {
		in.VPCCIDRs = []string{vpcOf(in.LocalIPv4)}
	}

	if w.Cluster != nil {
		c := *w.Cluster
		w.Cluster = &c
		fill(&c.IPFamily, familyOf(c))
		if c.IPFamily == "ipv4" {
			fill(&c.ServiceIPv4CIDR, serviceCIDR(in.VPCCIDRs))
		} else {
			fill(&c.ServiceIPv6CIDR, "fd30:1c53:5f8a::/108")
			if len(in.IPv6) == 0 {
				in.IPv6 = []string{"2001:db8::5"}
			}
		}
		fill(&c.Endpoint, "https://0123456789ABCDEF0123456789ABCDEF.gr7."+in.Region+".eks."+in.ServicesDomain)
		fill(&c.CertificateAuthority, exampleCA)
		fill(&c.Version, "1.33")
		fill(&c.Status, "ACTIVE")
	}

	types := make([]InstanceType, len(w.InstanceTypes))
	for i, t := range w.InstanceTypes {
		types[i] = t.complete()
	}
	if len(types) > 0 {
		w.InstanceTypes = types
	}
	return w
}

func (t InstanceType) complete() InstanceType {
	if t.ENIs == 0 {
		for _, n := range t.Cards {
			t.ENIs += n
		}
	}
	fill(&t.Architecture, architectureOf(t.Type))
	if !t.bareMetal() {
		fill(&t.Hypervisor, "nitro")
	}
	return t
}

func (t InstanceType) bareMetal() bool { return strings.Contains(t.Type, ".metal") }

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func partitionOf(region string) string {
	for _, p := range []struct{ prefix, partition string }{
		{"cn-", "aws-cn"},
		{"us-gov-", "aws-us-gov"},
		{"us-iso-", "aws-iso"},
		{"us-isob-", "aws-iso-b"},
		{"eu-isoe-", "aws-iso-e"},
		{"us-isof-", "aws-iso-f"},
		{"eusc-", "aws-eusc"},
	} {
		if strings.HasPrefix(region, p.prefix) {
			return p.partition
		}
	}
	return "aws"
}

func domainOf(partition string) string {
	switch partition {
	case "aws-cn":
		return "amazonaws.com.cn"
	case "aws-iso":
		return "c2s.ic.gov"
	case "aws-iso-b":
		return "sc2s.sgov.gov"
	case "aws-iso-e":
		return "cloud.adc-e.uk"
	case "aws-iso-f":
		return "csp.hci.ic.gov"
	case "aws-eusc":
		return "amazonaws.eu"
	}
	return "amazonaws.com"
}

// architectureOf reads it from the family's name, where a g after the
// generation is Graviton: m7g and c6gn, but neither g5 nor p5.
func architectureOf(instanceType string) string {
	family, _, _ := strings.Cut(instanceType, ".")
	generation := strings.IndexAny(family, "0123456789")
	if family == "a1" || generation >= 0 && strings.Contains(family[generation:], "g") {
		return "arm64"
	}
	return "x86_64"
}

// dnsName is EC2's own form of a host name; us-east-1 has an older one.
func dnsName(ip, region string) string {
	host := "ip-" + strings.ReplaceAll(ip, ".", "-")
	if region == "us-east-1" {
		return host + ".ec2.internal"
	}
	return host + "." + region + ".compute.internal"
}

// zoneID abbreviates as AWS does: eu-west-1b is euw1-az2, and the local zone
// us-west-2-lax-1a is usw2-lax1-az1. The letter's number differs from account
// to account in reality.
func zoneID(region, zone string) string {
	rest, ok := strings.CutPrefix(zone, region)
	if !ok || rest == "" {
		return ""
	}
	letter := rest[len(rest)-1]
	if letter < 'a' || letter > 'z' {
		return ""
	}
	local := strings.ReplaceAll(rest[:len(rest)-1], "-", "")
	if local != "" {
		local = "-" + local
	}
	return fmt.Sprintf("%s%s-az%d", abbreviate(region), local, letter-'a'+1)
}

func abbreviate(region string) string {
	var b strings.Builder
	for i, part := range strings.Split(region, "-") {
		switch {
		case i == 0 || part == "" || part[0] >= '0' && part[0] <= '9':
			b.WriteString(part)
		case part == "northeast" || part == "northwest" || part == "southeast" || part == "southwest":
			b.WriteByte(part[0])
			b.WriteByte(part[5])
		default:
			b.WriteByte(part[0])
		}
	}
	return b.String()
}

// vpcOf is the /16 around the address.
func vpcOf(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !addr.Is4() {
		return "192.168.0.0/16"
	}
	return netip.PrefixFrom(addr, 16).Masked().String()
}

// serviceCIDR is the one EKS picks when nobody chooses: the one of two that
// cannot collide with the VPC.
func serviceCIDR(vpcCIDRs []string) string {
	for _, cidr := range vpcCIDRs {
		if strings.HasPrefix(cidr, "10.") {
			return "172.20.0.0/16"
		}
	}
	return "10.100.0.0/16"
}

func familyOf(c Cluster) string {
	if c.ServiceIPv6CIDR != "" && c.ServiceIPv4CIDR == "" {
		return "ipv6"
	}
	return "ipv4"
}
