package doctor

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eks-bootstrap/nodeadm/internal/kubeapi"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
)

// networkChecks ask about the way to the API server, step by step.
var networkChecks = []Check{
	{Name: "default-route", Question: "Is there one way out?", look: defaultRoute,
		Explanation: "Without a default route only the VPC's own subnet is reached. Two with the same metric, as on instances with several network interfaces that an OS configures all, send answers the wrong way."},
	{Name: "resolv-sane", Question: "Are there name servers, and is the search domain this region's?", look: resolvSane,
		Explanation: "/etc/resolv.conf comes from the DHCP options of the VPC. A search domain of another region, copied with an image or a DHCP option set, makes short names of this one unknown."},
	{Name: "proxy-env", Question: "Do the proxy settings make sense?", look: proxyEnv,
		Explanation: "Instance metadata must not be asked through a proxy, which would answer for itself. NO_PROXY needs 169.254.169.254, the VPC's and the services' CIDRs, and a private API server."},
	{Name: "endpoint-resolves", Level: Network, Question: "Does the API server's name resolve?", look: endpointResolves,
		Explanation: "A private endpoint's name is known to the VPC's resolver only, with enableDnsSupport and enableDnsHostnames; name servers of one's own have to forward eks.amazonaws.com to it."},
	{Name: "proxy-works", Level: Network, Question: "Does the proxy let the node through to the API server?", Needs: []string{"endpoint-resolves"}, look: proxyWorks,
		Explanation: "The API server is asked through the proxy with CONNECT, unless NO_PROXY names it. A proxy that refuses answers 403 or 407, or not at all."},
	{Name: "tcp-443", Level: Network, Question: "Does the API server take connections?", Needs: []string{"proxy-works"}, look: tcp443,
		Explanation: "No answer: a security group, a network ACL, a missing route to a NAT gateway. Refused: somebody else's address, or a firewall that says so. Unreachable: no route on the node, or one of type prohibit or blackhole."},
	{Name: "clock-skew", Level: Network, Question: "Is the clock right, by the API server's?", Needs: []string{"tcp-443"}, look: clockSkew,
		Explanation: "Tokens are signed with the time, and refused 15 minutes later; certificates begin and end. Five minutes are too much, one minute is a sign. The kernel says if anything keeps the clock."},
	{Name: "tls-ca", Level: Network, Question: "Is the API server's certificate signed by the cluster's authority?", Needs: []string{"tcp-443"}, look: tlsCA,
		Explanation: "Another authority means another cluster, an authority that was copied wrongly, or a proxy that opens TLS. Silence after the connection was taken means that large packets get lost (MTU), or that the API server or something before it hangs."},
	{Name: "api-anon", Level: Network, Question: "Is it a Kubernetes API server that answers?", Needs: []string{"tls-ca"}, look: apiAnon,
		Explanation: "Any answer of a Kubernetes API, even a refusal, shows that the way to it is free."},
}

func defaultRoute(_ context.Context, p *patient) Finding {
	var routes []string
	metrics := map[string][]string{}
	for i, line := range lines(p.text("/proc/net/route")) {
		// Iface Destination Gateway Flags RefCnt Use Metric Mask …
		if f := strings.Fields(line); i > 0 && len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && !rejects(f[3]) {
			routes = append(routes, fmt.Sprintf("default via %s dev %s metric %s", ipv4Of(f[2]), f[0], f[6]))
			metrics[f[6]] = append(metrics[f[6]], f[0])
		}
	}
	v6 := 0
	for _, line := range lines(p.text("/proc/net/ipv6_route")) {
		// destination length source length gateway metric … device; lo refuses
		if f := strings.Fields(line); len(f) > 9 && f[1] == "00" && strings.Trim(f[0], "0") == "" && f[9] != "lo" {
			v6++
			routes = append(routes, "default (IPv6) dev "+f[9])
		}
	}
	if len(routes) == 0 && p.reachable() {
		return warning("bring the primary network interface up by DHCP (networkctl status, ip route), unless all that the node needs is in its own subnet", "there is no default route")
	}
	if len(routes) == 0 {
		return failed("bring the primary network interface up by DHCP (networkctl status, ip route)", "there is no default route")
	}
	for metric, devices := range metrics {
		if len(devices) > 1 && devices[0] != devices[1] {
			return warning("leave network interfaces other than the first to the CNI: no DHCP on them, or a higher metric", "%d default routes have the metric %s: %s", len(devices), metric, strings.Join(devices, ", ")).seen(routes...)
		}
	}
	return ok("%s", routes[0]).seen(routes[1:]...)
}

// rejects tells whether a route's flags say that there is no way.
func rejects(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&unix.RTF_REJECT != 0
}

// reachable tells whether the API server answers, whatever it says.
func (p *patient) reachable() bool {
	if p.level < Network {
		return false
	}
	if endpoint, _, err := p.cluster(); err != nil || endpoint == "" {
		return false
	}
	var met *kubeapi.Error
	return !errors.As(p.contact().err, &met) || met.Where == kubeapi.Status
}

// ipv4Of reads an address as /proc/net/route has it.
func ipv4Of(text string) string {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 4 {
		return text
	}
	return netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]}).String()
}

func resolvSane(_ context.Context, p *patient) Finding {
	var servers, domains []string
	for _, line := range lines(p.text("/etc/resolv.conf")) {
		switch f := strings.Fields(line); f[0] {
		case "nameserver":
			servers = append(servers, f[1:]...)
		case "search", "domain":
			domains = f[1:]
		}
	}
	if len(servers) == 0 && p.reachable() {
		return warning("set domain-name-servers (AmazonProvidedDNS) in the VPC's DHCP options", "/etc/resolv.conf names no name server")
	}
	if len(servers) == 0 {
		return failed("set domain-name-servers (AmazonProvidedDNS) in the VPC's DHCP options, or see why DHCP has not brought them: networkctl status, resolvectl", "/etc/resolv.conf names no name server")
	}
	instance, err := p.instance()
	for _, domain := range domains {
		region, isRegion := strings.CutSuffix(domain, ".compute.internal")
		region = region[strings.LastIndex(region, ".")+1:]
		if domain == "ec2.internal" {
			region, isRegion = "us-east-1", true
		}
		if err == nil && isRegion && region != instance.Region {
			return warning("correct domain-name in the VPC's DHCP options, or what sets it on the image", "the search domain %s is of another region than this instance: %s", domain, instance.Region)
		}
	}
	return ok("name servers %s, search domains %s", strings.Join(servers, ", "), strings.Join(domains, ", "))
}

// proxyVariables are how the environment names proxies.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}

func proxyEnv(_ context.Context, p *patient) Finding {
	proxy := ""
	for _, name := range proxyVariables {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		proxy = name
		if u, err := url.Parse(value); (err != nil || u.Host == "") && !bareProxy().MatchString(value) {
			return failed("write http://HOST:PORT", "%s is no URL", name) // without its value: there may be a password in it
		}
	}
	if proxy == "" {
		return skipped("there is no proxy")
	}
	if !direct(os.Getenv("NO_PROXY")+","+os.Getenv("no_proxy"), netip.MustParseAddr("169.254.169.254")) {
		return warning("add 169.254.169.254 to NO_PROXY", "%s is set, and instance metadata would be asked through it", proxy)
	}
	return ok("%s is set, and instance metadata is asked without it", proxy)
}

// bareProxy is a proxy without a scheme, which Go and curl take for HTTP.
var bareProxy = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^\s/]+:[0-9]+$`) })

// direct tells whether NO_PROXY names an address.
func direct(noProxy string, address netip.Addr) bool {
	for entry := range strings.SplitSeq(noProxy, ",") {
		entry = strings.TrimSpace(entry)
		cidr, err := netip.ParsePrefix(entry)
		if entry == "*" || entry == address.String() || err == nil && cidr.Contains(address) {
			return true
		}
	}
	return false
}

// reached judges by what the first contact with the API server met: whether it
// got past a step.
func (p *patient) reached(here []kubeapi.Where, done string, args ...any) Finding {
	endpoint, _, err := p.cluster()
	if err != nil || endpoint == "" {
		return skipped("the API server is not known yet")
	}
	var met *kubeapi.Error
	if err := p.contact().err; !errors.As(err, &met) {
		return ok(done, args...)
	}
	for _, where := range here {
		if met.Where == where {
			o := p.joining()
			obstacle := o.Connection(met)
			return failed(obstacle.Remedy, "%s", obstacle)
		}
	}
	return ok(done, args...)
}

func (p *patient) endpoint() string {
	endpoint, _, _ := p.cluster()
	return endpoint
}

func endpointResolves(ctx context.Context, p *patient) Finding {
	f := p.reached([]kubeapi.Where{kubeapi.Name, kubeapi.Resolver}, "%s resolves", p.endpoint())
	if u, err := url.Parse(p.endpoint()); err == nil && f.Status == OK {
		f = f.seen(resolve(ctx, u.Hostname())...)
	}
	return f
}

func proxyWorks(_ context.Context, p *patient) Finding {
	return p.reached([]kubeapi.Where{kubeapi.Proxy}, "no proxy is in the way")
}

func tcp443(ctx context.Context, p *patient) Finding {
	f := p.reached([]kubeapi.Where{kubeapi.Refused, kubeapi.Timeout, kubeapi.Unreachable, kubeapi.Broken}, "%s takes connections", p.endpoint())
	if u, err := url.Parse(p.endpoint()); err == nil && f.Status == Failed {
		f = f.seen(p.addresses(ctx, u.Hostname())...)
	}
	return f
}

// addresses are those of a name, and where they come from if that is not DNS: a
// line in /etc/hosts outlives the address.
func (p *patient) addresses(ctx context.Context, host string) []string {
	all := resolve(ctx, host)
	for _, line := range lines(p.text("/etc/hosts")) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 1 && slices.ContainsFunc(f[1:], func(name string) bool { return strings.EqualFold(name, host) }) {
			all = append(all, f[0]+" is from /etc/hosts")
		}
	}
	return all
}

func tlsCA(_ context.Context, p *patient) Finding {
	return p.reached([]kubeapi.Where{kubeapi.Silent, kubeapi.NotTLS, kubeapi.UnknownCA, kubeapi.OtherHost, kubeapi.Certificate}, "its certificate is signed by the cluster's authority")
}

// How far off a clock may be.
const (
	skewNoticed = time.Minute
	skewWrong   = 5 * time.Minute
)

func clockSkew(_ context.Context, p *patient) Finding {
	f := p.reached([]kubeapi.Where{kubeapi.Expired}, "the API server says no time")
	if f.Status != OK {
		return f
	}
	c := p.contact()
	if c.date.IsZero() {
		return f
	}
	kept := "nothing keeps the clock, says the kernel"
	if clockIsKept() {
		kept = "the clock is kept, says the kernel"
	}
	off := c.met.Sub(c.date)
	direction := "ahead of"
	if off < 0 {
		direction = "behind"
	}
	const remedy = "set the clock, and let chronyd or systemd-timesyncd keep it (169.254.169.123 is EC2's time service)"
	switch {
	case off.Abs() >= skewWrong:
		return failed(remedy, "this machine's clock is %s %s the API server's", off.Abs().Round(time.Second), direction).seen(kept)
	case off.Abs() >= skewNoticed:
		return warning(remedy, "this machine's clock is %s %s the API server's", off.Abs().Round(time.Second), direction).seen(kept)
	}
	return ok("the clock is right").seen(kept)
}

func apiAnon(_ context.Context, p *patient) Finding {
	f := p.reached([]kubeapi.Where{kubeapi.NotAPI}, "the API server answers")
	var met *kubeapi.Error
	if errors.As(p.contact().err, &met) && met.Where == kubeapi.Status && met.Code >= 500 {
		return failed("look at the health of the cluster's control plane", "the API server answers %d: %s", met.Code, met.Message)
	}
	if version := p.contact().version; f.Status == OK && version != "" {
		return ok("the API server answers: %s", version)
	}
	return f
}

// met is the obstacle, if it is one of some kinds, by what the API server answered the node.
func (p *patient) met(kinds ...join.Kind) *join.Obstacle {
	obstacle := p.asked().obstacle
	if obstacle == nil {
		return nil
	}
	for _, kind := range kinds {
		if obstacle.Kind == kind {
			return obstacle
		}
	}
	return nil
}
