// Package imds reads the EC2 instance metadata service, version 2.
//
// It adds to the SDK's client what a boot needs: one token for all reads,
// values that are not there told apart from values that are refused, patience
// with a service that is not ready yet, and an end to it.
package imds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/retry"
)

// The two link-local addresses EC2 serves instance metadata on.
const (
	IPv4Endpoint = "http://169.254.169.254"
	IPv6Endpoint = "http://[fd00:ec2::254]"
)

const (
	tryTimeout = 2 * time.Second // for one request; the real service answers within milliseconds
	maxBody    = 1 << 20         // user data is at most 16 KiB; nothing else comes near
	// A token that the service itself gave out and then refuses is a service
	// that does not speak the protocol; a few fresh tokens are enough to know.
	maxUnauthorized = 4
)

// Options configure a Client.
type Options struct {
	// Endpoint is the base URL. Empty means EC2's own addresses, IPv4 first
	// and IPv6 where there is no IPv4.
	Endpoint string
	// Report is told while something is waited for; see retry.Policy.
	Report func(request string, err error, attempt int, waited time.Duration)
}

// Client reads instance metadata. It is safe for concurrent use.
type Client struct {
	options Options

	mu       sync.Mutex
	endpoint string
	sdk      *sdk.Client
	token    *gate
}

// New makes a client. Nothing is sent until the first read.
func New(o Options) *Client { return &Client{options: o, endpoint: o.Endpoint} }

// ErrAbsent is what an optional read of a path that has no value ends with.
var ErrAbsent = errors.New("not present in instance metadata")

// Get reads a path such as "meta-data/mac" or "dynamic/instance-identity/document"
// and passes the body to accept. It waits for a value that is not there yet
// (404), for a service that is busy (429, 5xx), unreachable or slow, and for a
// value that accept refuses at first; it ends at once where the answer is 403.
func (c *Client) Get(ctx context.Context, path string, accept func(string) error) error {
	return c.get(ctx, path, true, accept)
}

// Lookup reads a path that need not have a value: a 404 ends it with ErrAbsent.
func (c *Client) Lookup(ctx context.Context, path string, accept func(string) error) error {
	return c.get(ctx, path, false, accept)
}

func (c *Client) get(ctx context.Context, path string, wait bool, accept func(string) error) error {
	policy := retry.Policy{Base: 100 * time.Millisecond, Max: 2 * time.Second, ReportEvery: 5 * time.Second}
	if c.options.Report != nil {
		policy.Report = func(err error, attempt int, waited time.Duration) {
			c.options.Report(path, err, attempt, waited)
		}
	}
	unauthorized, garbage := 0, 0
	err := retry.Do(ctx, policy, func(ctx context.Context) error {
		body, err := c.try(ctx, path)
		if err == nil {
			if err := accept(body); err != nil {
				err = fmt.Errorf("instance metadata: GET /latest/%s: %w", path, err)
				// Half an answer may be whole the next time; nonsense stays nonsense.
				if garbage++; garbage >= 3 {
					return retry.Final(fault.New(fault.AWS, remedyGarbage, "%w", err))
				}
				return err
			}
			return nil
		}
		var request *requestError
		if !errors.As(err, &request) {
			return err
		}
		switch status := request.status; {
		case status == http.StatusForbidden:
			return retry.Final(fault.New(fault.AWS, remedyForbidden, "%w", err))
		case status == http.StatusNotFound && !wait && !request.token:
			return retry.Final(ErrAbsent)
		case status == http.StatusUnauthorized:
			if unauthorized++; unauthorized >= maxUnauthorized {
				return retry.Final(fault.New(fault.AWS, remedyUnauthorized, "%w", err))
			}
		case status == http.StatusBadRequest:
			return retry.Final(fault.New(fault.AWS, remedyGarbage, "%w", err))
		}
		return err
	})
	if errors.Is(err, ErrAbsent) {
		return err
	}
	var timeout *retry.TimeoutError
	if errors.As(err, &timeout) {
		return fault.New(fault.AWS, timeoutRemedy(timeout.Last), "%w", err)
	}
	return fault.Wrap(fault.AWS, err)
}

const (
	remedyForbidden = "the instance metadata service is switched off for this instance or blocked by a policy or firewall on it: " +
		"enable it (aws ec2 modify-instance-metadata-options --instance-id ID --http-endpoint enabled)"
	remedyUnauthorized = "the service refused tokens that it had just issued: check that nothing stands between the instance and its metadata service (a proxy, a metadata mock), and --imds-endpoint"
	remedyGarbage      = "this does not look like the EC2 instance metadata service: check --imds-endpoint and AWS_EC2_METADATA_SERVICE_ENDPOINT"
	remedyUnreachable  = "is this an EC2 instance, and is its network up? Elsewhere try `nodeadm simulate`, or name a metadata service with --imds-endpoint URL"
	remedyAbsent       = "EC2 has no such value for this instance (yet): check that an IAM role is attached if credentials are missing, and that the network interface is up"
	remedyBusy         = "the metadata service is there and does not answer properly: if it persists, stop and start the instance"
)

func timeoutRemedy(last error) string {
	var request *requestError
	if !errors.As(last, &request) || request.status == 0 {
		return remedyUnreachable
	}
	if request.status == http.StatusNotFound {
		return remedyAbsent
	}
	return remedyBusy
}

// requestError is one failed request, named as it went over the wire.
type requestError struct {
	method, path string
	token        bool // the token request failed, not the read
	status       int  // 0: no answer at all
	cause        error
}

func (e *requestError) Error() string {
	what := fmt.Sprintf("instance metadata: %s /latest/%s", e.method, e.path)
	if e.status != 0 {
		return fmt.Sprintf("%s: the service answered %d %s", what, e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("%s: %v", what, e.cause)
}

func (e *requestError) Unwrap() error { return e.cause }

// try makes one request. The first one to be made fetches the token; all
// others wait for that and then go side by side.
func (c *Client) try(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	client, token, err := c.client(ctx)
	if err != nil {
		return "", err
	}
	leads := token.enter(ctx)
	defer token.leave(leads)

	body, err := read(ctx, client, path)
	if err == nil {
		return body, nil
	}
	failed := &requestError{method: http.MethodGet, path: path, cause: rootCause(err)}
	var status interface{ HTTPStatusCode() int }
	if errors.As(err, &status) {
		failed.status = status.HTTPStatusCode()
	}
	if !token.open() {
		failed.method, failed.path, failed.token = http.MethodPut, "api/token", true
	}
	if failed.status == http.StatusUnauthorized {
		c.forget(client)
	}
	return "", failed
}

func read(ctx context.Context, client *sdk.Client, path string) (string, error) {
	var content io.ReadCloser
	if name, ok := strings.CutPrefix(path, "meta-data/"); ok {
		out, err := client.GetMetadata(ctx, &sdk.GetMetadataInput{Path: name})
		if err != nil {
			return "", err
		}
		content = out.Content
	} else if name, ok := strings.CutPrefix(path, "dynamic/"); ok {
		out, err := client.GetDynamicData(ctx, &sdk.GetDynamicDataInput{Path: name})
		if err != nil {
			return "", err
		}
		content = out.Content
	} else {
		return "", fmt.Errorf("no such tree in instance metadata: %s", path)
	}
	defer content.Close()
	body, err := io.ReadAll(io.LimitReader(content, maxBody))
	return string(body), err
}

// client returns the SDK's client, choosing the endpoint on first use.
func (c *Client) client(ctx context.Context) (*sdk.Client, *gate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoint == "" {
		endpoint, err := reachable(ctx)
		if err != nil {
			return nil, nil, &requestError{method: http.MethodPut, path: "api/token", token: true, cause: err}
		}
		c.endpoint = endpoint
	}
	if c.sdk == nil {
		c.token = newGate()
		c.sdk = sdk.New(sdk.Options{
			Endpoint:          strings.TrimRight(c.endpoint, "/"),
			ClientEnableState: sdk.ClientEnabled,
			EnableFallback:    aws.FalseTernary, // never IMDSv1
			Retryer:           aws.NopRetryer{}, // this package retries
			HTTPClient:        &http.Client{Transport: &tokenWatcher{next: directTransport(), token: c.token}},
		})
	}
	return c.sdk, c.token, nil
}

// forget drops the client and with it the token that was refused.
func (c *Client) forget(client *sdk.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sdk == client {
		c.sdk = nil
	}
}

// SDK is a metadata client of the SDK's own kind, for its credential provider,
// sharing the token. It makes single attempts.
func (c *Client) SDK(ctx context.Context) (*sdk.Client, error) {
	client, _, err := c.client(ctx)
	return client, err
}

// reachable dials both of EC2's addresses, IPv4 with a head start, and takes
// the one that answers first.
func reachable(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		endpoint string
		err      error
	}
	answers := make(chan answer, 2)
	dial := func(endpoint string, after <-chan time.Time) {
		if after != nil {
			select {
			case <-after:
			case <-ctx.Done():
			}
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, "http://")+":80")
		if err == nil {
			conn.Close()
		}
		answers <- answer{endpoint, err}
	}
	go dial(IPv4Endpoint, nil)
	go dial(IPv6Endpoint, time.After(300*time.Millisecond))
	first := <-answers
	if first.err == nil {
		return first.endpoint, nil
	}
	second := <-answers
	if second.err == nil {
		return second.endpoint, nil
	}
	if first.endpoint == IPv4Endpoint {
		return "", first.err
	}
	return "", second.err
}

// directTransport never goes through a proxy: the address is link-local.
func directTransport() http.RoundTripper {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: tryTimeout}).DialContext,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     5 * time.Second,
	}
}

// gate lets one request through first, which fetches the token, and the others
// when the token is there or the first one is done.
type gate struct {
	mu     sync.Mutex
	led    bool
	done   chan struct{}
	opened bool
}

func newGate() *gate { return &gate{done: make(chan struct{})} }

// enter returns true for the request that leads; others wait for it.
func (g *gate) enter(ctx context.Context) bool {
	for {
		g.mu.Lock()
		if g.opened {
			g.mu.Unlock()
			return false
		}
		if !g.led {
			g.led = true
			g.mu.Unlock()
			return true
		}
		done := g.done
		g.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return false
		}
	}
}

// leave ends the lead; if it brought no token another request may lead.
func (g *gate) leave(leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if leads && !g.opened {
		g.led = false
		close(g.done)
		g.done = make(chan struct{})
	}
}

// opens is called when the token has arrived.
func (g *gate) opens() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.opened = true
		close(g.done)
	}
}

func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// tokenWatcher opens the gate as soon as the token request has been answered.
type tokenWatcher struct {
	next  http.RoundTripper
	token *gate
}

func (w *tokenWatcher) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPut && resp.StatusCode == http.StatusOK {
		w.token.opens()
	}
	return resp, err
}

// rootCause strips the SDK's wrapping down to what happened on the wire.
func rootCause(err error) error {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) {
		err = send.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return fmt.Errorf("no answer within %s", tryTimeout)
	}
	return err
}
