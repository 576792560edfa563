package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
)

// metadataChecks ask what EC2 says of the instance.
var metadataChecks = []Check{
	{Name: "imds-reach", Level: Network, Question: "Does instance metadata answer?", look: imdsReach,
		Explanation: "Everything that a node knows of itself comes from 169.254.169.254 (or [fd00:ec2::254]): its id, its role's credentials, its user data. It can be switched off for an instance, be blocked by a firewall on the node, or get lost where a proxy is set for it."},
	{Name: "region-partition", Level: Network, Question: "Is the API server one of the instance's own region?", Needs: []string{"imds-reach"}, look: regionPartition,
		Explanation: "An endpoint of another region or partition is that of another cluster, often of the same name. Tokens are made for the region in kubeconfig."},
	{Name: "instance-profile", Level: Network, Question: "Has the instance a role?", Needs: []string{"imds-reach"}, look: instanceProfile,
		Explanation: "kubelet's tokens are made from the credentials of the role in the instance profile. Without one the API server answers 401 to everything."},
	{Name: "creds-fresh", Level: Network, Question: "Are the role's credentials valid?", Needs: []string{"instance-profile"}, look: credsFresh,
		Explanation: "EC2 renews them hours before they end. They are stale on an instance that was hibernated, or whose clock is wrong, or where something caches instance metadata."},
	{Name: "dhcp-domain", Level: Network, Question: "Is the host name in EC2's own domain?", Needs: []string{"imds-reach"}, look: dhcpDomain,
		Explanation: "A domain-name in the VPC's DHCP options changes the host name, not EC2's private DNS name, under which nodes register. Whoever calls kubelet by node name, such as the metrics server, needs that name to resolve."},
}

func (p *patient) lookup(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	var text string
	err := p.metadata.Lookup(ctx, path, func(body string) error { text = body; return nil })
	return text, err
}

func imdsReach(_ context.Context, p *patient) Finding {
	instance, err := p.instance()
	if err != nil {
		return failed(fault.Remedy(err), "instance metadata does not answer: %v", err)
	}
	return ok("%s, %s in %s", instance.ID, instance.Type, instance.Zone)
}

var regionInHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.([a-z]{2,}(?:-[a-z]+)+-[0-9]+)\.eks\.`) })

func regionPartition(_ context.Context, p *patient) Finding {
	instance, _ := p.instance()
	endpoint, _, _ := p.cluster()
	named := regionInHost().FindStringSubmatch(endpoint)
	if named == nil {
		return skipped("the endpoint names no region")
	}
	if named[1] != instance.Region {
		return failed("give the node the endpoint of its own cluster: aws eks describe-cluster --region "+instance.Region+" --name NAME --query cluster.endpoint", "the API server %s is in %s, and this instance in %s", endpoint, named[1], instance.Region)
	}
	return ok("the API server and the instance are in %s", instance.Region)
}

func instanceProfile(ctx context.Context, p *patient) Finding {
	if p.AWS.AccessKeyID != "" {
		return skipped("credentials are in the environment")
	}
	const remedy = "attach an instance profile with the node's role: aws ec2 associate-iam-instance-profile --instance-id ID --iam-instance-profile Name=NAME"
	text, err := p.lookup(ctx, "meta-data/iam/info")
	if errors.Is(err, imds.ErrAbsent) {
		return failed(remedy, "the instance has no instance profile, and so no role")
	}
	if err != nil {
		return failed(fault.Remedy(err), "%v", err)
	}
	var info struct{ Code, Message, InstanceProfileArn string }
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return skipped("meta-data/iam/info is not understood: %v", err)
	}
	if info.Code != "" && info.Code != "Success" {
		return failed("check the instance profile, and the trust policy of its role: ec2.amazonaws.com has to be allowed sts:AssumeRole", "EC2 cannot assume the role of %s: %s %s", info.InstanceProfileArn, info.Code, info.Message)
	}
	return ok("instance profile %s", info.InstanceProfileArn)
}

func credsFresh(ctx context.Context, p *patient) Finding {
	if p.AWS.AccessKeyID != "" {
		return skipped("credentials are in the environment")
	}
	const dir = "meta-data/iam/security-credentials/"
	const trust = "check the trust policy of the role: ec2.amazonaws.com has to be allowed sts:AssumeRole"
	list, err := p.lookup(ctx, dir)
	if errors.Is(err, imds.ErrAbsent) || err == nil && strings.TrimSpace(list) == "" {
		return failed("check that the instance profile holds a role", "the instance profile brings no credentials")
	}
	if err != nil {
		return failed(fault.Remedy(err), "%v", err)
	}
	role := strings.Fields(list)[0]
	text, err := p.lookup(ctx, dir+role)
	if err != nil {
		return failed(trust, "there are no credentials of the role %s: %v", role, err)
	}
	var c struct {
		Code, Message           string
		LastUpdated, Expiration time.Time
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return failed("see what answers in the place of instance metadata", "the credentials of the role %s are not understood: %v", role, err)
	}
	if c.Code != "" && c.Code != "Success" {
		return failed(trust, "there are no credentials of the role %s: %s %s", role, c.Code, c.Message)
	}
	if past := time.Since(c.Expiration); past > 0 {
		return failed("check the clock (timedatectl) and what stands between the node and instance metadata; if both are right, stop and start the instance",
			"the credentials of the role %s ended %s ago, at %s", role, past.Round(time.Second), c.Expiration.Format(time.RFC3339))
	}
	return ok("the credentials of the role %s are valid until %s", role, c.Expiration.Format(time.RFC3339))
}

func dhcpDomain(_ context.Context, p *patient) Finding {
	instance, _ := p.instance()
	_, domain, found := strings.Cut(instance.Hostname, ".")
	if !found {
		return skipped("the host name has no domain")
	}
	if domain == "ec2.internal" || strings.HasSuffix(domain, ".compute.internal") {
		return ok("the host name is %s", instance.Hostname)
	}
	name, _ := p.nodeName()
	f := warning("have DNS resolve the name, or let callers go by address, such as --kubelet-preferred-address-types=InternalIP of the metrics server; or set domain-name in the DHCP options back",
		"the VPC's DHCP options have the domain %s: the host name is %s", domain, instance.Hostname)
	return f.seen(fmt.Sprintf("the node registers as %s", name))
}
