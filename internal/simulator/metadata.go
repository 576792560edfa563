package simulator

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// node is a file of the metadata tree, if it can be read, or a directory.
type node struct {
	read     func() []byte
	children map[string]*node
}

// put makes a file below n, and the directories on the way to it.
func (n *node) put(path string, read func() []byte) {
	for _, name := range segments(path) {
		if n.children == nil {
			n.children = make(map[string]*node)
		}
		next := n.children[name]
		if next == nil {
			next = new(node)
			n.children[name] = next
		}
		n = next
	}
	n.read = read
}

func (n *node) at(path []string) *node {
	for _, name := range path {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// list names what is in a directory, a line each and none at the end.
// Crawlers go by the slash behind a directory's name.
func (n *node) list(slash bool) string {
	names := make([]string, 0, len(n.children))
	for name, child := range n.children {
		if slash && child.read == nil {
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// metadata builds the whole tree below a version. What has no value on a real
// instance has no entry here either: absence is most of what a client must get
// right.
func (s *Server) metadata() *node {
	in := s.world.Instance
	root := new(node)
	text := func(path, value string) { root.put(path, func() []byte { return []byte(value) }) }
	optional := func(path string, values ...string) {
		if value := strings.Join(values, "\n"); value != "" {
			text(path, value)
		}
	}

	md := func(name string) string { return "meta-data/" + name }
	text(md("ami-id"), in.AMI)
	text(md("ami-launch-index"), "0")
	text(md("ami-manifest-path"), "(unknown)")
	text(md("hostname"), in.Hostname)
	text(md("instance-action"), "none")
	text(md("instance-id"), in.ID)
	text(md("instance-life-cycle"), in.Lifecycle)
	text(md("instance-type"), in.Type)
	text(md("local-hostname"), in.Hostname)
	text(md("local-ipv4"), in.LocalIPv4)
	text(md("mac"), in.MAC)
	text(md("placement/availability-zone"), in.Zone)
	optional(md("placement/availability-zone-id"), in.ZoneID)
	text(md("placement/region"), in.Region)
	text(md("reservation-id"), in.derivedID("r"))
	text(md("security-groups"), securityGroup)
	text(md("services/domain"), in.ServicesDomain)
	text(md("services/partition"), in.Partition)
	if in.TagsInMetadata {
		for key, value := range in.Tags {
			text(md("tags/instance/"+key), value)
		}
	}

	eni := md("network/interfaces/macs/" + in.MAC + "/")
	text(eni+"device-number", "0")
	text(eni+"interface-id", in.derivedID("eni"))
	text(eni+"local-hostname", in.Hostname)
	text(eni+"local-ipv4s", in.LocalIPv4)
	text(eni+"mac", in.MAC)
	text(eni+"owner-id", in.Account)
	text(eni+"security-group-ids", in.derivedID("sg"))
	text(eni+"security-groups", securityGroup)
	text(eni+"subnet-id", in.derivedID("subnet"))
	text(eni+"subnet-ipv4-cidr-block", in.subnet())
	text(eni+"vpc-id", in.derivedID("vpc"))
	text(eni+"vpc-ipv4-cidr-block", in.VPCCIDRs[0])
	text(eni+"vpc-ipv4-cidr-blocks", strings.Join(in.VPCCIDRs, "\n"))
	optional(eni+"vpc-ipv6-cidr-blocks", in.VPCIPv6CIDRs...)
	optional(eni+"ipv6s", in.IPv6...)
	if len(in.IPv6) > 0 {
		text(md("ipv6"), in.IPv6[0])
	}

	if in.Role != "" {
		root.put(md("iam/info"), s.profile)
		root.put(md("iam/security-credentials/"+in.Role), s.credentials)
	}
	root.put("dynamic/instance-identity/document", s.identity)
	optional("user-data", s.world.UserData)
	return root
}

const securityGroup = "eks-cluster-sg"

// derivedID makes the id of something that belongs to the instance.
func (in Instance) derivedID(kind string) string {
	return kind + "-" + strings.TrimPrefix(in.ID, "i-")
}

// subnet is the /19 around the address, as eksctl cuts a VPC, or the whole VPC
// range where that is smaller.
func (in Instance) subnet() string {
	addr, err := netip.ParseAddr(in.LocalIPv4)
	if err != nil {
		return ""
	}
	bits := 19
	for _, cidr := range in.VPCCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil && p.Contains(addr) {
			bits = max(bits, p.Bits())
		}
	}
	return netip.PrefixFrom(addr, bits).Masked().String()
}

func (s *Server) startTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started.UTC().Truncate(time.Second)
}

func (s *Server) identity() []byte {
	in := s.world.Instance
	doc := struct {
		AccountID               string    `json:"accountId"`
		Architecture            string    `json:"architecture"`
		AvailabilityZone        string    `json:"availabilityZone"`
		BillingProducts         []string  `json:"billingProducts"`
		DevpayProductCodes      []string  `json:"devpayProductCodes"`
		MarketplaceProductCodes []string  `json:"marketplaceProductCodes"`
		ImageID                 string    `json:"imageId"`
		InstanceID              string    `json:"instanceId"`
		InstanceType            string    `json:"instanceType"`
		KernelID                *string   `json:"kernelId"`
		PendingTime             time.Time `json:"pendingTime"`
		PrivateIP               string    `json:"privateIp"`
		RamdiskID               *string   `json:"ramdiskId"`
		Region                  string    `json:"region"`
		Version                 string    `json:"version"`
	}{
		AccountID: in.Account, Architecture: in.Architecture, AvailabilityZone: in.Zone,
		ImageID: in.AMI, InstanceID: in.ID, InstanceType: in.Type, PendingTime: s.startTime(),
		PrivateIP: in.LocalIPv4, Region: in.Region, Version: "2017-09-30",
	}
	return indented(doc)
}

func (s *Server) profile() []byte {
	in := s.world.Instance
	return indented(struct {
		Code               string
		LastUpdated        time.Time
		InstanceProfileArn string
		InstanceProfileId  string
	}{
		"Success", s.startTime(),
		"arn:" + in.Partition + ":iam::" + in.Account + ":instance-profile/" + in.Role,
		"AIPASIMULATED00000000",
	})
}

func (s *Server) credentials() []byte {
	now := s.now().UTC().Truncate(time.Second)
	return indented(struct {
		Code            string
		LastUpdated     time.Time
		Type            string
		AccessKeyId     string
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}{
		"Success", now, "AWS-HMAC", roleKeyID, roleSecret, roleSessionToken, now.Add(6 * time.Hour),
	})
}

// The credentials of the instance's role.
const (
	roleKeyID        = "ASIASIMULATED0000000"
	roleSecret       = "simulated-secret-access-key"
	roleSessionToken = "simulated-session-token"
)

func indented(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // only fixed types come here, and they encode
	}
	return b
}
