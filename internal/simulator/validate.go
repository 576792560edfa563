package simulator

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// problem is one thing that is wrong, and where in the document.
type problem struct{ path, text string }

func (p problem) Error() string { return p.path + ": " + p.text }

// Validate reports everything that is wrong with the completed world.
func (w World) Validate() error {
	var errs []error
	for _, p := range w.Complete().problems() {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// actions are all the API calls a node makes.
func actions() []string {
	return []string{actionDescribeInstances, actionDescribeInstanceTypes, actionDescribeCluster, actionECRToken, actionECRPublicToken}
}

// actionPatterns are what a document may call API calls by.
func actionPatterns() []string {
	return append(actions(), "ec2:*", "eks:*", "ecr:*", "ecr-public:*")
}

func (w World) problems() []problem {
	var ps []problem
	bad := func(path, format string, args ...any) {
		ps = append(ps, problem{path, fmt.Sprintf(format, args...)})
	}
	oneOf := func(path, value string, allowed ...string) {
		for _, a := range allowed {
			if value == a {
				return
			}
		}
		bad(path, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
	notNegative := func(path string, n int) {
		if n < 0 {
			bad(path, "must not be negative")
		}
	}
	cidr := func(path, value string, v4 bool) {
		if p, err := netip.ParsePrefix(value); err != nil || p.Addr().Is4() != v4 {
			bad(path, "%q is not an %s range such as %s", value, family(v4), map[bool]string{true: "10.0.0.0/16", false: "2001:db8::/56"}[v4])
		} else if p != p.Masked() {
			bad(path, "%q has bits set behind its prefix; write %s", value, p.Masked())
		}
	}
	address := func(path, value string, v4 bool) {
		if a, err := netip.ParseAddr(value); err != nil || a.Is4() != v4 {
			bad(path, "%q is not an %s address", value, family(v4))
		}
	}

	in := w.Instance
	if class, size, _ := strings.Cut(in.Type, "."); class == "" || size == "" {
		bad("instance.type", "%q is not an instance type such as m5.large", in.Type)
	}
	if strings.Count(in.Region, "-") < 2 {
		bad("instance.region", "%q is not a region such as eu-west-1", in.Region)
	}
	if !strings.HasPrefix(in.Zone, in.Region) || in.Zone == in.Region {
		bad("instance.zone", "%q is not a zone of region %q", in.Zone, in.Region)
	}
	if !strings.HasPrefix(in.ID, "i-") {
		bad("instance.id", "%q does not begin with i-", in.ID)
	}
	if !strings.HasPrefix(in.AMI, "ami-") {
		bad("instance.ami", "%q does not begin with ami-", in.AMI)
	}
	if len(in.Account) != 12 || strings.Trim(in.Account, "0123456789") != "" {
		bad("instance.account", "%q is not twelve digits", in.Account)
	}
	if m, err := net.ParseMAC(in.MAC); err != nil || m.String() != in.MAC {
		bad("instance.mac", "%q is not a MAC address in the form 0a:1b:2c:3d:4e:5f", in.MAC)
	}
	address("instance.localIPv4", in.LocalIPv4, true)
	for i, ip := range in.IPv6 {
		address(fmt.Sprintf("instance.ipv6[%d]", i), ip, false)
	}
	for i, c := range in.VPCCIDRs {
		cidr(fmt.Sprintf("instance.vpcCIDRs[%d]", i), c, true)
	}
	for i, c := range in.VPCIPv6CIDRs {
		cidr(fmt.Sprintf("instance.vpcIPv6CIDRs[%d]", i), c, false)
	}
	oneOf("instance.lifecycle", in.Lifecycle, "on-demand", "spot")
	oneOf("instance.architecture", in.Architecture, "x86_64", "arm64")
	notNegative("instance.privateDNSNameAfter", in.PrivateDNSNameAfter)
	if in.HopLimit < 1 || in.HopLimit > 64 {
		bad("instance.hopLimit", "%d is not between 1 and 64", in.HopLimit)
	}
	if strings.ContainsAny(in.Role, "/ \n") {
		bad("instance.role", "%q: give the role's name, not its path or ARN", in.Role)
	}
	if in.TagsInMetadata {
		for _, key := range sortedKeys(in.Tags) {
			if key == "." || key == ".." || key == "" || strings.ContainsAny(key, "/ ") {
				bad("instance.tagsInMetadata", "EC2 refuses this with a tag key such as %q", key)
			}
		}
	}

	if w.UserDataFile != "" {
		if w.UserData != "" {
			bad("userDataFile", "give userData or userDataFile, not both")
		} else {
			bad("userDataFile", "only a document read by Parse or Load can name a file")
		}
	}
	if len(w.UserData) > maxUserData {
		bad("userData", "%d bytes; EC2 accepts %d", len(w.UserData), maxUserData)
	}

	if c := w.Cluster; c != nil {
		if c.Name == "" {
			bad("cluster.name", "a cluster needs a name")
		}
		if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "https" || u.Host == "" {
			bad("cluster.endpoint", "%q is not an https URL", c.Endpoint)
		}
		// Whether it holds a certificate is for the program under test to see.
		if _, err := base64.StdEncoding.DecodeString(c.CertificateAuthority); err != nil {
			bad("cluster.certificateAuthority", "not base64: %v", err)
		}
		oneOf("cluster.ipFamily", c.IPFamily, "ipv4", "ipv6")
		oneOf("cluster.status", c.Status, "ACTIVE", "CREATING", "PENDING", "UPDATING", "DELETING", "FAILED")
		notNegative("cluster.activeAfter", c.ActiveAfter)
		if c.ActiveAfter > 0 && c.Status != "ACTIVE" {
			bad("cluster.activeAfter", "the cluster becomes %s after that: leave status out", c.Status)
		}
		if c.ServiceIPv4CIDR != "" {
			cidr("cluster.serviceIPv4CIDR", c.ServiceIPv4CIDR, true)
		}
		if c.ServiceIPv6CIDR != "" {
			cidr("cluster.serviceIPv6CIDR", c.ServiceIPv6CIDR, false)
		}
	}

	for i, a := range w.Permissions.Deny {
		if allowed := actionPatterns(); !known(a, allowed) {
			bad(fmt.Sprintf("permissions.deny[%d]", i), "%s", unknownAction(a, allowed))
		}
	}

	for i, t := range w.InstanceTypes {
		at := fmt.Sprintf("instanceTypes[%d]", i)
		if !strings.Contains(t.Type, ".") {
			bad(at+".type", "%q is not an instance type such as m5.large", t.Type)
		}
		oneOf(at+".architecture", t.Architecture, "x86_64", "arm64")
		if !t.bareMetal() {
			oneOf(at+".hypervisor", t.Hypervisor, "nitro", "xen")
		}
		for _, f := range []struct {
			name  string
			value int
		}{{"enis", t.ENIs}, {"ipv4PerENI", t.IPv4PerENI}, {"vcpus", t.VCPUs}, {"memoryMiB", t.MemoryMiB}} {
			if f.value < 1 {
				bad(at+"."+f.name, "must be at least 1")
			}
		}
		for j, n := range t.Cards {
			if n < 1 {
				bad(fmt.Sprintf("%s.cards[%d]", at, j), "must be at least 1")
			}
		}
	}

	for i, f := range w.Faults {
		at := fmt.Sprintf("faults[%d]", i)
		allowed := actionPatterns()
		if !strings.HasPrefix(f.Match, "/") && !known(f.Match, allowed) {
			bad(at+".match", "neither a path that begins with / nor an action; %s", unknownAction(f.Match, allowed))
		}
		if strings.HasPrefix(f.Match, "/") && strings.Contains(f.Match, "*") {
			bad(at+".match", "a path stands for all below it and takes no *: write %s", strings.TrimRight(strings.TrimSuffix(f.Match, "*"), "/"))
		}
		if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
			bad(at+".status", "%d is not an HTTP status between 200 and 599", f.Status)
		}
		if f.Code != "" && strings.HasPrefix(f.Match, "/") {
			bad(at+".code", "only an API answer has a code")
		}
		if f.Code != "" && f.Body != "" {
			bad(at+".code", "give a code or a body, not both")
		}
		if f.Delay < 0 {
			bad(at+".delay", "must not be negative")
		}
		if f.Until < 0 {
			bad(at+".until", "must not be negative")
		}
		notNegative(at+".first", f.First)
		answers := f.Status != 0 || f.Code != "" || f.Body != ""
		switch {
		case f.Hang && f.Drop || (f.Hang || f.Drop) && answers:
			bad(at, "hang, drop and an answer (status, code, body) exclude each other")
		case !f.Hang && !f.Drop && !answers && f.Delay == 0:
			bad(at, "nothing goes wrong here: give status, code, body, delay, hang or drop")
		}
	}
	return ps
}

func family(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}

func known(word string, words []string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

func unknownAction(a string, allowed []string) string {
	if near := suggest.Nearest(a, allowed); near != "" {
		return fmt.Sprintf("unknown action %q: did you mean %q?", a, near)
	}
	return fmt.Sprintf("unknown action %q; known are %s", a, strings.Join(allowed, ", "))
}
