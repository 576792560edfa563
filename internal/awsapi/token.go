package awsapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

// Token makes a token for the API server of a cluster: a request to STS for the
// caller's identity, signed and not sent. The API server sends it, and learns
// who asks. expires is when a new one is needed. Nothing is sent but, where no
// credentials are given, the requests to IMDS for those of the role.
func (c *Client) Token(ctx context.Context, cluster string, now time.Time) (token string, expires time.Time, err error) {
	if c.role != nil {
		if err := c.role.fetch(ctx); err != nil {
			return "", expires, fault.Wrap(fault.AWS, err)
		}
	}
	credentials, err := c.config.Credentials.Retrieve(ctx)
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

// stsEndpoint is the regional endpoint of STS, without a slash at the end.
//
// Nobody on the node goes there: the cluster's control plane does, and takes
// tokens for the hosts it knows. These are the regional ones, and the FIPS ones
// of the four regions that have such beside them; dual-stack hosts are not among
// them, whatever the node's own way to AWS is.
func (c *Client) stsEndpoint() string {
	if given := c.endpoint("STS"); given != nil {
		return strings.TrimRight(aws.ToString(given), "/")
	}
	name := "sts"
	if c.options.UseFIPS && slices.Contains(fipsRegions, c.options.Region) {
		name = "sts-fips"
	}
	return "https://" + name + "." + c.options.Region + "." + domainOf(c.options.Region)
}

// fipsRegions have a FIPS endpoint of STS beside the usual one. In GovCloud the
// usual one is FIPS.
var fipsRegions = []string{"us-east-1", "us-east-2", "us-west-1", "us-west-2"}

// domains are those of AWS's partitions by the beginning of a region's name;
// every other region is in amazonaws.com.
var domains = []struct{ prefix, domain string }{
	{"cn-", "amazonaws.com.cn"},
	{"eusc-", "amazonaws.eu"},
	{"us-iso-", "c2s.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov"},
	{"us-isof-", "csp.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk"},
}

func domainOf(region string) string {
	for _, d := range domains {
		if strings.HasPrefix(region, d.prefix) {
			return d.domain
		}
	}
	return "amazonaws.com"
}
