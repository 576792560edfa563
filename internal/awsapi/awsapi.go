// Package awsapi makes the few AWS API calls that a node may need, each once,
// with patience for what passes and a clear end for what does not.
//
// The SDK's own retries are off: they know nothing of a boot. A throttled call
// goes on with full jitter until the context ends, a denied one ends at once
// and names the permission.
package awsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/retry"
)

// Options say where the APIs are and who is asking.
type Options struct {
	Region string
	// Endpoints override the address of a service by its SDK identifier
	// ("EC2", "ECR PUBLIC"); the empty key stands for all services. These are the
	// values of AWS_ENDPOINT_URL_<SERVICE> and AWS_ENDPOINT_URL.
	Endpoints map[string]string
	// UseFIPS and UseDualStack choose AWS's endpoint variants.
	UseFIPS, UseDualStack bool
	// AccessKeyID, SecretAccessKey and SessionToken are used if set; otherwise
	// the instance's role is asked for through IMDS.
	AccessKeyID, SecretAccessKey, SessionToken string
	IMDS                                       *imds.Client
	// Report is told while something is waited for; see retry.Policy.
	Report func(err error, attempt int, waited time.Duration)
}

// Client calls AWS APIs. It is safe for concurrent use.
type Client struct {
	options Options
	role    *roleCredentials // nil where other credentials were given
	config  aws.Config
}

// New makes a client. Nothing is sent until the first call.
func New(o Options) *Client {
	role := &roleCredentials{imds: o.IMDS}
	var provider aws.CredentialsProvider = role
	if o.AccessKeyID != "" {
		role, provider = nil, credentials.NewStaticCredentialsProvider(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)
	}
	return &Client{o, role, aws.Config{
		Region:      o.Region,
		Credentials: provider,
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
		HTTPClient:  &http.Client{Timeout: 10 * time.Second},
	}}
}

func (c *Client) endpoint(service string) *string {
	for _, key := range []string{service, ""} {
		if url := c.options.Endpoints[key]; url != "" {
			return &url
		}
	}
	return nil
}

func (c *Client) fips() aws.FIPSEndpointState {
	if c.options.UseFIPS {
		return aws.FIPSEndpointStateEnabled
	}
	return aws.FIPSEndpointStateUnset
}

func (c *Client) dualStack() aws.DualStackEndpointState {
	if c.options.UseDualStack {
		return aws.DualStackEndpointStateEnabled
	}
	return aws.DualStackEndpointStateUnset
}

// ErrDenied is in every error that an API ended with for want of a permission,
// so that a caller who can do without the answer can tell.
var ErrDenied = errors.New("denied")

// call repeats one API call. permission names what the node's role needs for
// it, in IAM's words; attempts 0 means until ctx ends.
func (c *Client) call(ctx context.Context, permission string, attempts int, do func(context.Context) error) error {
	if c.role != nil {
		if err := c.role.fetch(ctx); err != nil {
			return fault.Wrap(fault.AWS, fmt.Errorf("%s: %w", permission, err))
		}
	}
	policy := retry.Policy{Base: 500 * time.Millisecond, Max: 15 * time.Second, Attempts: attempts, Report: c.options.Report, ReportEvery: 5 * time.Second}
	err := retry.Do(ctx, policy, func(ctx context.Context) error {
		err := do(ctx)
		if err == nil {
			return nil
		}
		return classify(permission, c.options.Region, err)
	})
	var timeout *retry.TimeoutError
	if answer := (*answerError)(nil); errors.As(err, &timeout) && !errors.As(timeout.Last, &answer) {
		return fault.New(fault.AWS, "check that the node can reach the AWS APIs (route, security group, VPC endpoint, proxy)", "%w", err)
	}
	return fault.Wrap(fault.AWS, err)
}

// throttled are the codes that AWS services use for "slow down".
var throttled = map[string]bool{
	"Throttling": true, "ThrottlingException": true, "ThrottledException": true, "RequestLimitExceeded": true,
	"TooManyRequestsException": true, "EC2ThrottledException": true, "RequestTimeout": true, "RequestThrottled": true, "SlowDown": true, "RequestThrottledException": true,
}

// badCredentials are the codes for credentials that are wrong in themselves,
// whatever they would be allowed.
var badCredentials = map[string]bool{
	"AuthFailure": true, "ExpiredToken": true, "ExpiredTokenException": true, "InvalidClientTokenId": true, "UnrecognizedClientException": true, "MissingAuthenticationToken": true,
}

// classify decides whether err is worth another attempt, and puts into words
// what it means where it is not.
func classify(permission, region string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return retry.Final(err)
	}
	if answer := (*answerError)(nil); errors.As(err, &answer) {
		return &answerError{permission + ": " + answer.said}
	}
	var api smithy.APIError
	var response interface{ HTTPStatusCode() int }
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	if !errors.As(err, &api) {
		// What happened on the wire, without the SDK's words around it.
		if wire := (*url.Error)(nil); errors.As(err, &wire) {
			err = wire
		}
		return fmt.Errorf("%s: %w", permission, err)
	}
	said := fmt.Sprintf("%s: %s: %s", permission, api.ErrorCode(), api.ErrorMessage())
	switch code := api.ErrorCode(); {
	case throttled[code] || status == http.StatusTooManyRequests || status >= 500:
		return &answerError{said}
	case code == "InvalidInstanceID.NotFound":
		return &answerError{said} // EC2 is eventually consistent: a new instance is not known everywhere at once
	case code == "ResourceNotFoundException":
		return retry.Final(fault.New(fault.AWS, fmt.Sprintf("check the cluster's name and that it is in %s, the region of this instance", region), "%s", said))
	case badCredentials[code]:
		return retry.Final(fault.New(fault.AWS, "AWS does not know these credentials, or not any more: check the clock of this machine, AWS_ACCESS_KEY_ID if it is set, and that the instance's role still exists", "%s", said))
	case code == "RequestExpired" || code == "SignatureDoesNotMatch" || code == "RequestTimeTooSkewed" || code == "InvalidSignatureException":
		return retry.Final(fault.New(fault.AWS, "AWS refuses signatures that are more than 5 minutes off: check the clock of this machine", "%s", said))
	case status == http.StatusForbidden || status == http.StatusUnauthorized || code == "UnauthorizedOperation" || code == "AccessDenied" || code == "AccessDeniedException":
		return retry.Final(fault.New(fault.AWS, PolicyStatement(permission), "%s: %w (%s)", said, ErrDenied, http.StatusText(status)))
	case status >= 400 && status < 500:
		return retry.Final(fault.New(fault.AWS, "", "%s", said))
	}
	return &answerError{said}
}

// answerError is what an API answered, and worth another attempt: the API was
// reached.
type answerError struct{ said string }

func (e *answerError) Error() string { return e.said }

func notYet(format string, args ...any) error { return &answerError{fmt.Sprintf(format, args...)} }

// PolicyStatement is the remedy for missing permissions: what to add to a
// policy of the node's role.
func PolicyStatement(permissions ...string) string {
	actions := `"` + strings.Join(permissions, `", "`) + `"`
	if len(permissions) > 1 {
		actions = "[" + actions + "]"
	}
	return fmt.Sprintf(`allow it in a policy of the node's role: {"Effect": "Allow", "Action": %s, "Resource": "*"}`, actions)
}

// roleCredentials are the credentials of the instance's role. They are fetched
// before a call, by the caller's clock: the SDK would ask for them under a
// context that never ends. EC2 answers 404 until IAM has made a newly attached
// role known, which can take some seconds after boot; that is waited for.
type roleCredentials struct {
	imds *imds.Client

	mu      sync.Mutex
	name    string
	current aws.Credentials
}

// Role is the name of the instance's role, "" where the credentials are others
// or none can be had.
func (c *Client) Role(ctx context.Context) string {
	if c.role == nil || c.role.fetch(ctx) != nil {
		return ""
	}
	c.role.mu.Lock()
	defer c.role.mu.Unlock()
	return c.role.name
}

// fetch makes sure that the credentials are there and fresh.
func (r *roleCredentials) fetch(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current.HasKeys() && (!r.current.CanExpire || time.Until(r.current.Expires) > time.Minute) {
		return nil
	}
	const dir = "meta-data/iam/security-credentials/"
	var role string
	err := r.imds.Get(ctx, dir, func(body string) error {
		role, _, _ = strings.Cut(strings.TrimSpace(body), "\n")
		if role == "" {
			return errors.New("no role is named")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("credentials of the instance's role: %w", err)
	}
	err = r.imds.Get(ctx, dir+role, func(body string) error {
		var answer struct {
			Code, AccessKeyId, SecretAccessKey, Token string
			Expiration                                time.Time
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return fmt.Errorf("not a credentials document: %w", err)
		}
		if answer.Code != "Success" || answer.AccessKeyId == "" || answer.SecretAccessKey == "" {
			return fmt.Errorf("EC2 has no credentials for the role: code %q", answer.Code)
		}
		if past := time.Since(answer.Expiration); past > 0 && !answer.Expiration.IsZero() {
			return fmt.Errorf("they ended at %s, and it is %s by this machine's clock", answer.Expiration.Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
		}
		r.name = role
		r.current = aws.Credentials{
			AccessKeyID: answer.AccessKeyId, SecretAccessKey: answer.SecretAccessKey, SessionToken: answer.Token,
			CanExpire: !answer.Expiration.IsZero(), Expires: answer.Expiration, Source: "instance role",
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("credentials of the instance's role: %w", err)
	}
	return nil
}

// Retrieve gives the SDK what fetch brought.
func (r *roleCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, nil
}
