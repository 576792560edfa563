package doctor

import (
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
)

// awsChecks ask AWS's APIs what only they know. A node need not be allowed to:
// what is denied or cannot be reached is no failure.
var awsChecks = []Check{
	{Name: "cluster-described", Level: AWS, Question: "Does EKS say the same of the cluster as the node's files?", Needs: []string{"creds-fresh", "kubelet-config-parse"}, look: clusterDescribed,
		Explanation: "An endpoint or an authority that EKS does not know was copied from another cluster, or from one that was made anew under the same name."},
	{Name: "instance-tag", Level: AWS, Question: "Has the instance the cluster's tag?", Needs: []string{"creds-fresh", "kubelet-config-parse"}, look: instanceTag,
		Explanation: "kubernetes.io/cluster/NAME = owned (or shared) tells controllers whose instance it is. Clusters up to 1.18 needed it on subnets too."},
}

// unasked judges an AWS API that did not say what was asked.
func unasked(permission string, err error) Finding {
	if errors.Is(err, awsapi.ErrDenied) {
		return skipped("the role may not %s; to have it checked: %s", permission, awsapi.PolicyStatement(permission))
	}
	return skipped("%s cannot be asked from here: %v", permission, firstLine(err.Error()))
}

func clusterDescribed(_ context.Context, p *patient) Finding {
	k, _ := p.kubeconfig()
	if k.cluster == "" || k.clientCertificates {
		return skipped("the kubeconfig does not name the cluster")
	}
	described, err := p.described()
	if err != nil && strings.Contains(err.Error(), "ResourceNotFoundException") {
		return failed("correct the cluster's name in the configuration: aws eks list-clusters --region "+p.region(), "EKS has no cluster %s in %s", k.cluster, p.region())
	}
	if err != nil {
		return unasked("eks:DescribeCluster", err)
	}
	endpoint, ca, err := p.cluster()
	switch {
	case err != nil:
		return skipped("the node's own files cannot be read: %v", err)
	case p.ready():
		return ok("EKS knows %s, and the API server that kubelet asks knows the node", k.cluster) // by whatever name it goes
	case !strings.EqualFold(strings.TrimRight(endpoint, "/"), strings.TrimRight(described.Endpoint, "/")):
		return failed("give the node the endpoint that EKS says, or leave endpoint and authority out", "kubelet asks %s, and EKS says that the API server of %s is %s", endpoint, k.cluster, described.Endpoint)
	case !slices.ContainsFunc(certificates(described.CertificateAuthority), func(c string) bool { return slices.Contains(certificates(ca), c) }):
		return failed("give the node the authority that EKS says, or leave endpoint and authority out", "the node has another certificate authority than EKS says that %s has", k.cluster)
	}
	return ok("EKS says the same of %s", k.cluster)
}

func instanceTag(ctx context.Context, p *patient) Finding {
	instance, _ := p.instance()
	k, _ := p.kubeconfig()
	if k.cluster == "" {
		return skipped("the kubeconfig does not name the cluster")
	}
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	seen, err := p.aws().DescribeInstance(ctx, instance.ID, false)
	if err != nil {
		return unasked("ec2:DescribeInstances", err)
	}
	tag := "kubernetes.io/cluster/" + k.cluster
	switch value := seen.Tags[tag]; value {
	case "owned", "shared":
		return ok("the instance has the tag %s=%s", tag, value)
	case "":
		return warning("aws ec2 create-tags --resources "+instance.ID+" --tags Key="+tag+",Value=owned; and let the launch template do so", "the instance has no tag %s", tag)
	default:
		return warning("set it to owned", "the instance's tag %s is %q", tag, value)
	}
}

// certificates are those of a PEM text, whatever stands around them.
func certificates(text []byte) (all []string) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, string(block.Bytes))
	}
	return all
}
