package awsapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

const (
	// tokenPrefix begins every token that EKS takes.
	tokenPrefix = "k8s-aws-v1."
	// clusterHeader names the cluster that a token is for; it is signed.
	clusterHeader = "x-k8s-aws-id"
	// tokenLifetime is a minute less than STS takes a presigned request for.
	tokenLifetime = 14 * time.Minute
	// emptyHash is the SHA-256 of no body.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// clusterName is the form of a cluster's name, and of a local cluster's id.
var clusterName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`)

// Token makes a token for the API server of a cluster: a request to STS for the
// caller's identity, signed and not sent. The API server sends it, and learns
// who asks. expires is when a new one is needed. Nothing is sent but, where no
// credentials are given, the requests to IMDS for those of the role.
func (c *Client) Token(ctx context.Context, cluster string, now time.Time) (token string, expires time.Time, err error) {
	if !isRegion(c.options.Region) { // it becomes a part of a host
		return "", expires, fault.New(fault.Usage, "write the cluster's region as AWS does, such as eu-west-1", "%q is no region", c.options.Region)
	}
	if !clusterName.MatchString(cluster) {
		return "", expires, fault.New(fault.Usage, "write the cluster's name as EKS has it: letters, digits, dashes and underscores, 100 at most", "%q is no name of a cluster", cluster)
	}
	credentials, err := c.credentials(ctx)
	if err != nil {
		return "", expires, fault.Wrap(fault.AWS, err)
	}
	// X-Amz-Expires as the AWS CLI gives it; STS counts 15 minutes whatever it is.
	query := url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}, "X-Amz-Expires": {"60"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.stsEndpoint()+"/?"+query.Encode(), nil)
	if err != nil {
		return "", expires, fault.New(fault.Usage, "", "endpoint of STS: %w", err)
	}
	request.Header.Set(clusterHeader, cluster)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, credentials, request, emptyHash, "sts", c.options.Region, now)
	if err != nil {
		return "", expires, fault.Wrap(fault.AWS, fmt.Errorf("sign the request to STS: %w", err))
	}
	expires = now.Add(tokenLifetime)
	if credentials.CanExpire && credentials.Expires.Before(expires) {
		expires = credentials.Expires
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed)), expires, nil
}

// credentials are what requests are signed with here, where no client of the
// SDK's does it.
func (c *Client) credentials(ctx context.Context) (aws.Credentials, error) {
	if c.role != nil {
		if err := c.role.fetch(ctx); err != nil {
			return aws.Credentials{}, err
		}
	}
	return c.config.Credentials.Retrieve(ctx)
}

// stsEndpoint is the regional endpoint of STS, without a slash at the end.
//
// Nobody on the node goes there: the cluster's control plane does, and takes
// tokens for the hosts it knows. These are the regional ones, and the FIPS ones
// of the four regions that have such beside them; dual-stack hosts and those of
// AWS_ENDPOINT_URL are not among them, whatever the node's own way to AWS is.
func (c *Client) stsEndpoint() string {
	name := "sts"
	if c.options.UseFIPS && slices.Contains(fipsRegions, c.options.Region) {
		name = "sts-fips"
	}
	return "https://" + name + "." + c.options.Region + "." + partitionOf(c.options.Region).domain
}
