package awsapi

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/retry"
)

// Cluster is what EKS knows of a cluster and a node needs.
type Cluster struct {
	Endpoint             string // URL of the API server
	CertificateAuthority []byte // PEM
	ServiceIPv4CIDR      string
	ServiceIPv6CIDR      string
	IPFamily             string // "ipv4" or "ipv6"
	ID                   string // only clusters on Outposts have one
	OutpostARN           string
	Version              string // of Kubernetes, such as "1.34"
}

// DescribeCluster asks EKS for a cluster and waits for one that is still being
// created. retries bounds the repetitions; negative means until ctx ends.
func (c *Client) DescribeCluster(ctx context.Context, name string, retries int) (Cluster, error) {
	api := eks.NewFromConfig(c.config, func(o *eks.Options) {
		o.BaseEndpoint = c.endpoint("EKS")
		o.EndpointOptions.UseFIPSEndpoint = c.fips()
		o.EndpointOptions.UseDualStackEndpoint = c.dualStack()
	})
	var found Cluster
	err := c.call(ctx, "eks:DescribeCluster", max(0, retries+1), func(ctx context.Context) error {
		out, err := api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &name})
		if err != nil {
			return err
		}
		cluster := out.Cluster
		if cluster == nil {
			return notYet("the answer holds no cluster")
		}
		switch cluster.Status {
		case types.ClusterStatusCreating, types.ClusterStatusPending:
			return notYet("cluster %s is not ready yet: its status is %s", name, cluster.Status)
		case types.ClusterStatusDeleting, types.ClusterStatusFailed:
			return retry.Final(fault.New(fault.AWS, "name a cluster that is ACTIVE", "cluster %s cannot take nodes: its status is %s", name, cluster.Status))
		}
		found = Cluster{
			Endpoint: aws.ToString(cluster.Endpoint),
			ID:       aws.ToString(cluster.Id),
			Version:  aws.ToString(cluster.Version),
		}
		if cluster.CertificateAuthority != nil {
			found.CertificateAuthority, err = base64.StdEncoding.DecodeString(aws.ToString(cluster.CertificateAuthority.Data))
			if err != nil {
				return fmt.Errorf("certificate authority of cluster %s: %w", name, err)
			}
		}
		if network := cluster.KubernetesNetworkConfig; network != nil {
			found.ServiceIPv4CIDR = aws.ToString(network.ServiceIpv4Cidr)
			found.ServiceIPv6CIDR = aws.ToString(network.ServiceIpv6Cidr)
			found.IPFamily = string(network.IpFamily)
		}
		if outpost := cluster.OutpostConfig; outpost != nil && len(outpost.OutpostArns) > 0 {
			found.OutpostARN = outpost.OutpostArns[0]
		}
		if found.Endpoint == "" || len(found.CertificateAuthority) == 0 {
			return notYet("cluster %s has no endpoint or certificate authority yet", name)
		}
		return nil
	})
	return found, err
}
