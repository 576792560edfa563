package awsapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/restjson"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// The hosts of the public registry: over IPv4, and over both.
const (
	publicHost          = "public.ecr.aws"
	publicDualStackHost = "ecr-public.aws.com"
)

// publicRegion is the one region in which ECR Public gives out tokens.
const publicRegion = "us-east-1"

// maxAnswer bounds what is read of an answer of ECR's, in bytes; a token has
// about 3,000.
const maxAnswer = 64 << 10

// Registry is a registry of ECR's.
type Registry struct {
	Host            string
	region          string // "" for the public one
	fips, dualStack bool
}

// Public tells whether it is the public registry, which needs no login.
func (r Registry) Public() bool { return r.region == "" }

// hostForm is a form of private registries' hosts: ACCOUNT.SERVICE.REGION.DOMAIN.
type hostForm struct {
	service, domain string
	fips, dualStack bool
}

// registryHosts are the forms that registries of this partition have.
func (p partition) registryHosts() []hostForm {
	forms := []hostForm{{service: "dkr.ecr", domain: p.domain}, {service: "dkr-ecr", domain: "on." + p.dualStack, dualStack: true}}
	if p.fips {
		for _, form := range forms {
			form.service, form.fips = form.service+"-fips", true
			forms = append(forms, form)
		}
	}
	return forms
}

// RegistryPatterns are the hosts of all registries that RegistryOf knows, as
// kubelet's matchImages has them.
func RegistryPatterns() []string {
	var patterns []string
	for _, p := range partitions {
		for _, form := range p.registryHosts() {
			if pattern := "*." + form.service + ".*." + form.domain; !slices.Contains(patterns, pattern) {
				patterns = append(patterns, pattern)
			}
		}
	}
	return append(patterns, publicHost, publicDualStackHost)
}

// RegistryOf is the registry that an image comes from, if it is one of ECR's.
func RegistryOf(image string) (Registry, error) {
	host, _, _ := strings.Cut(image, "/")
	if host == publicHost || host == publicDualStackHost {
		return Registry{Host: host, dualStack: host == publicDualStackHost}, nil
	}
	if account, rest, found := strings.Cut(host, "."); found && len(account) == 12 && strings.Trim(account, "0123456789") == "" {
		for _, p := range partitions {
			for _, form := range p.registryHosts() {
				region, begins := strings.CutPrefix(rest, form.service+".")
				region, ends := strings.CutSuffix(region, "."+form.domain)
				if begins && ends && isRegion(region) && partitionOf(region) == p {
					return Registry{host, region, form.fips, form.dualStack}, nil
				}
			}
		}
	}
	return Registry{}, fault.New(fault.Usage, "ECR's registries are "+publicHost+" and such as 111122223333.dkr.ecr.eu-west-1.amazonaws.com; match only these with this provider",
		"image %q: its registry %q is not one of ECR's", image, host)
}

// isRegion tells whether text can be the name of a region. It becomes a part of
// the host that a signed request goes to.
func isRegion(text string) bool { return regionForm.MatchString(text) }

var regionForm = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)

// RegistryLogin is what a registry takes instead of a user's name and password.
type RegistryLogin struct {
	Username, Password string
	Expires            time.Time
}

// LogIn asks ECR for a login to a registry. One without a name is for the public
// registry from a partition that has no part in it: pull without logging in.
func (c *Client) LogIn(ctx context.Context, r Registry) (RegistryLogin, error) {
	if r.Public() && partitionOf(c.options.Region).name != "aws" {
		return RegistryLogin{}, nil
	}
	service, region, target := "ecr", r.region, "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
	if r.Public() {
		service, region, target = "ecr-public", publicRegion, "SpencerFrontendService.GetAuthorizationToken"
	}
	permission := service + ":GetAuthorizationToken"
	var login RegistryLogin
	err := c.call(ctx, permission, 0, func(ctx context.Context) error {
		body, err := c.post(ctx, c.ecrEndpoint(r), service, region, target)
		if err != nil {
			return err
		}
		if login, err = readLogin(body, r.Public()); err != nil {
			return notYet("the answer holds no login: %v", err)
		}
		return nil
	})
	if r.Public() && errors.Is(err, ErrDenied) {
		return login, fault.New(fault.AWS, PolicyStatement(permission, "sts:GetServiceBearerToken"), "%w", err)
	}
	return login, err
}

// ecrEndpoint is where the API for a registry is, without a slash at the end:
// in the registry's region, and of the registry's own variant.
func (c *Client) ecrEndpoint(r Registry) string {
	service := "ECR"
	if r.Public() {
		service = "ECR PUBLIC"
	}
	if given := c.endpoint(service); given != nil {
		return strings.TrimRight(aws.ToString(given), "/")
	}
	p := partitionOf(r.region)
	dualStack := r.dualStack || c.options.UseDualStack
	fips := r.fips || c.options.UseFIPS && (slices.Contains(fipsRegions, r.region) || p.name == "aws-us-gov")
	switch {
	case r.Public() && dualStack:
		return "https://ecr-public." + publicRegion + ".api." + p.dualStack
	case r.Public():
		return "https://api.ecr-public." + publicRegion + "." + p.domain
	case fips && dualStack:
		return "https://ecr-fips." + r.region + ".api." + p.dualStack
	case fips:
		return "https://ecr-fips." + r.region + "." + p.domain
	case dualStack:
		return "https://ecr." + r.region + ".api." + p.dualStack
	}
	return "https://api.ecr." + r.region + "." + p.domain
}

// post makes one call without parameters to a service that speaks AWS's JSON
// protocol. The SDK has a client for each of the two ECRs, with all of their
// other calls in it, and the binary has no room for them.
func (c *Client) post(ctx context.Context, endpoint, service, region, target string) ([]byte, error) {
	credentials, err := c.credentials(ctx)
	if err != nil {
		return nil, err
	}
	parameters := []byte("{}")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/", bytes.NewReader(parameters))
	if err != nil {
		return nil, fault.New(fault.Usage, "", "endpoint of %s: %w", service, err)
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", target)
	hash := sha256.Sum256(parameters)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(hash[:]), service, region, time.Now()); err != nil {
		return nil, fault.New(fault.AWS, "", "sign the request to %s: %w", service, err)
	}
	answer, err := c.config.HTTPClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil || answer.StatusCode == http.StatusOK {
		return body, err
	}
	return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: answer}, Err: apiError(answer, body)}
}

// apiError is what a service that speaks AWS's JSON protocol says in an answer.
func apiError(answer *http.Response, body []byte) error {
	code, message, _ := restjson.GetErrorInfo(json.NewDecoder(bytes.NewReader(body))) // a proxy may answer anything
	code = cmp.Or(restjson.SanitizeErrorCode(answer.Header.Get("X-Amzn-Errortype")), code, "no code")
	// On a signature that does not fit, AWS repeats what it signed itself, with the
	// session token in it.
	message, _, _ = strings.Cut(message, "\n")
	return &smithy.GenericAPIError{Code: code, Message: cmp.Or(message, answer.Status)}
}

// readLogin reads the answer to GetAuthorizationToken: ECR has a list of
// tokens in it, ECR Public one.
func readLogin(body []byte, public bool) (RegistryLogin, error) {
	type token struct {
		AuthorizationToken []byte  // NAME:PASSWORD, in base64
		ExpiresAt          float64 // in seconds of Unix time
	}
	var one struct{ AuthorizationData token }
	var list struct{ AuthorizationData []token }
	var err error
	if public {
		err = json.Unmarshal(body, &one)
	} else if err = json.Unmarshal(body, &list); err == nil && len(list.AuthorizationData) > 0 {
		one.AuthorizationData = list.AuthorizationData[0]
	}
	if err != nil {
		return RegistryLogin{}, err
	}
	name, password, _ := strings.Cut(string(one.AuthorizationData.AuthorizationToken), ":")
	if name == "" || password == "" {
		return RegistryLogin{}, errors.New("no token is in it")
	}
	return RegistryLogin{name, password, time.UnixMilli(int64(one.AuthorizationData.ExpiresAt * 1000))}, nil
}
