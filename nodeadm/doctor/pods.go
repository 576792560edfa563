package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// podChecks ask about what pods need on a node that has joined.
var podChecks = []Check{
	{Name: "cidr-overlap", Level: Network, Question: "Do services have addresses of their own?", Needs: []string{"imds-reach"}, look: cidrOverlap,
		Explanation: "Where the service CIDR is a part of the VPC's, addresses of services hide those of instances. EKS takes another range, unless told otherwise."},
	{Name: "max-pods-coherent", Level: Network, Question: "Are there addresses for as many pods as kubelet takes?", Needs: []string{"imds-reach"}, look: maxPodsCoherent,
		Explanation: "With secondary addresses an instance type has ENIs × (addresses − 1) of them for pods. Pods beyond that stay in ContainerCreating, unless the CNI gives out prefixes or makes its own network."},
	{Name: "ipamd", Level: Network, Question: "Has aws-node addresses to give?", look: ipamd,
		Explanation: "aws-node tells of its network interfaces and addresses on 127.0.0.1:61679, and logs to /var/log/aws-routed-eni/ipamd.log."},
	{Name: "kube-proxy", Question: "Does kube-proxy say that it is well?", look: kubeProxy,
		Explanation: "kube-proxy answers on port 10256. Without it pods reach no service, the API server's included, and aws-node does not get ready."},
}

// list is what a directory holds.
func (p *patient) list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(p.host(dir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func cidrOverlap(_ context.Context, p *patient) Finding {
	c, err := p.kubelet()
	instance, _ := p.instance()
	if err != nil || len(c.ClusterDNS) == 0 {
		return skipped("cluster DNS is not known")
	}
	dns, err := netip.ParseAddr(c.ClusterDNS[0])
	if err != nil {
		return warning("run nodeadm again", "clusterDNS is no address: %s", c.ClusterDNS[0])
	}
	for _, cidr := range instance.VPCIPv4CIDRs {
		if cidr.Contains(dns) {
			return warning("give the cluster another service CIDR, or see whether it is local DNS (NodeLocal DNSCache) that is meant", "cluster DNS %s is an address of the VPC, %s", dns, cidr)
		}
	}
	return ok("cluster DNS %s is none of the VPC's addresses", dns)
}

func maxPodsCoherent(_ context.Context, p *patient) Finding {
	instance, _ := p.instance()
	c, err := p.kubelet()
	pods := c.MaxPods
	if n, flagErr := strconv.Atoi(p.flag("max-pods")); flagErr == nil {
		pods = n
	}
	limits, known := instancetypes.Lookup(instance.Type)
	switch {
	case err != nil || pods == 0:
		return skipped("max pods are not set")
	case !known:
		return skipped("the limits of %s are not known", instance.Type)
	}
	most := plan.Limits(limits).ENILimited
	if pods > most && !plan.Limits(limits).Prefixes {
		return warning("set max pods to "+strconv.Itoa(most)+", unless the CNI is another than Amazon's", "kubelet takes %d pods, and %s has addresses for %d", pods, instance.Type, most)
	}
	return ok("kubelet takes %d pods; %s has secondary addresses for %d", pods, instance.Type, most)
}

// ipamdComplaints are what aws-node says when it gets no addresses.
var ipamdComplaints = map[string]string{
	"UnauthorizedOperation":               "give its role the policy AmazonEKS_CNI_Policy",
	"InsufficientFreeAddressesInSubnet":   "free addresses of the subnet, or give the node group a larger one",
	"InsufficientCidrBlocks":              "reserve a CIDR of the subnet for prefixes: it has no free block of 16 addresses",
	"PrivateIpAddressLimitExceeded":       "lower WARM_IP_TARGET, or use another instance type",
	"AttachmentLimitExceeded":             "lower WARM_ENI_TARGET, or use another instance type",
	"NetworkInterfaceLimitExceeded":       "have the account's limit of network interfaces raised",
	"InvalidSubnetID.NotFound":            "mend the ENIConfig that names the subnet",
	"error obtaining EC2 InstanceMetadat": "let pods on the host network reach instance metadata",
}

func ipamd(ctx context.Context, p *patient) Finding {
	if data := p.text("/var/log/aws-routed-eni/ipamd.log"); data != "" && !p.ready() {
		tail := last(lines(data), 200)
		for i := len(tail) - 1; i >= 0; i-- {
			for says, remedy := range ipamdComplaints {
				if strings.Contains(tail[i], says) {
					return warning(remedy, "aws-node gets no addresses: %s", says).seen(tail[i])
				}
			}
		}
	}
	var enis struct {
		TotalIPs    int `json:"TotalIPs"`
		AssignedIPs int `json:"AssignedIPs"`
	}
	answered, err := localJSON(ctx, 61679, "/v1/enis", &enis)
	switch {
	case !answered:
		return skipped("aws-node is not there, or not yet")
	case err != nil:
		return skipped("aws-node's answer is not understood: %v", err)
	case enis.TotalIPs > 0 && enis.AssignedIPs >= enis.TotalIPs:
		return warning("see /var/log/aws-routed-eni/ipamd.log for why it gets no more", "aws-node has given out all of its %d addresses", enis.TotalIPs)
	}
	return ok("aws-node has %d addresses, %d of them given out", enis.TotalIPs, enis.AssignedIPs)
}

// localJSON asks a program on this machine.
func localJSON(ctx context.Context, port int, path string, into any) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port))+path, nil)
	if err != nil {
		return false, err
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return true, fmt.Errorf("it answers %s", answer.Status)
	}
	if into == nil {
		return true, nil
	}
	return true, json.NewDecoder(answer.Body).Decode(into)
}

func kubeProxy(ctx context.Context, p *patient) Finding {
	answered, err := localJSON(ctx, 10256, "/healthz", nil)
	switch {
	case !answered:
		return skipped("kube-proxy is not there, or not yet")
	case err != nil:
		return warning("kubectl -n kube-system logs -l k8s-app=kube-proxy", "kube-proxy is not well: %v", err)
	}
	return ok("kube-proxy is well")
}
