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
	maxBody    = 16 << 20        // user data is at most 16 KiB on EC2; nothing else comes near

	tokenTTLHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds" // in the answer to the token request
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
	Report func(err error, attempt int, waited time.Duration)
}

// Client reads instance metadata. It is safe for concurrent use.
type Client struct {
	options Options

	token *gate

	mu       sync.Mutex
	endpoint string
	sdk      *sdk.Client
}

// New makes a client. Nothing is sent until the first read.
func New(o Options) *Client { return &Client{options: o, endpoint: o.Endpoint, token: newGate()} }

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
	// One read goes first and brings the token, waiting and reporting if it
	// must; the others follow when the token is there, all side by side.
	leads, err := c.token.enter(ctx)
	if err != nil {
		return fault.Wrap(fault.AWS, err)
	}
	err = c.patiently(ctx, path, wait, accept)
	c.token.leave(leads, err)
	return err
}

// patiently reads until there is an answer or no hope of one.
func (c *Client) patiently(ctx context.Context, path string, wait bool, accept func(string) error) error {
	policy := retry.Policy{Base: 100 * time.Millisecond, Max: 2 * time.Second, Report: c.options.Report, ReportEvery: 5 * time.Second}
	unauthorized, garbage := 0, 0
	nonsense := func(err error) error {
		// Half an answer may be whole the next time; nonsense stays nonsense.
		if garbage++; garbage >= 3 {
			return retry.Final(fault.New(fault.AWS, remedyGarbage, "%w", err))
		}
		return err
	}
	err := retry.Do(ctx, policy, func(ctx context.Context) error {
		body, err := c.try(ctx, path)
		if err == nil {
			if err := accept(body); err != nil {
				return nonsense(fmt.Errorf("instance metadata: GET /latest/%s: %w", path, err))
			}
			return nil
		}
		var request *requestError
		if !errors.As(err, &request) {
			return err
		}
		switch request.status {
		case http.StatusForbidden:
			return retry.Final(fault.New(fault.AWS, remedyForbidden, "%w", err))
		case http.StatusNotFound:
			if !wait && request.method == http.MethodGet {
				return retry.Final(ErrAbsent)
			}
		case http.StatusUnauthorized:
			if unauthorized++; unauthorized >= maxUnauthorized {
				return retry.Final(fault.New(fault.AWS, remedyUnauthorized, "%w", err))
			}
		case http.StatusOK, http.StatusBadRequest:
			return nonsense(err)
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
	remedyUnreachable  = "is this an EC2 instance, and is its network up? On one, check its metadata options (HttpEndpoint has to be enabled; in a container HttpPutResponseHopLimit has to be 2), what its own firewall does with 169.254.169.254 (iptables -S OUTPUT, nft list ruleset), ip route get 169.254.169.254, and that NO_PROXY names it. Elsewhere try `nodeadm simulate`, or name a metadata service with --imds-endpoint URL"
	remedyAbsent       = "EC2 has no such value for this instance (yet): check that an IAM role is attached if credentials are missing, and that the network interface is up"
	remedyBusy         = "the metadata service is there and does not answer properly: if it persists, stop and start the instance"
)

func timeoutRemedy(last error) string {
	var request *requestError
	if !errors.As(last, &request) || request.status == 0 {
		return remedyUnreachable
	}
	if request.status == http.StatusNotFound && request.method == http.MethodPut {
		return remedyGarbage
	}
	if request.status == http.StatusNotFound {
		return remedyAbsent
	}
	return remedyBusy
}

// requestError is one failed request, named as it went over the wire.
type requestError struct {
	exchange
	cause error
}

func (e *requestError) Error() string {
	what := fmt.Sprintf("instance metadata: %s %s", e.method, e.path)
	switch e.status {
	case 0:
		return fmt.Sprintf("%s: %v", what, e.cause)
	case http.StatusOK:
		if e.method == http.MethodPut {
			return what + ": the answer is no session token"
		}
		return fmt.Sprintf("%s: the answer is not understood: %v", what, e.cause)
	}
	return fmt.Sprintf("%s: the service answered %d %s", what, e.status, http.StatusText(e.status))
}

func (e *requestError) Unwrap() error { return e.cause }

// exchange is the last thing that went over the wire for one read: the token
// request or the read itself. The SDK wraps failures so that neither the
// request nor the status can be told from the error.
type exchange struct {
	method, path string
	status       int // 0: no answer
	err          error
}

type exchangeKey struct{}

// watcher notes each exchange, and opens the gate as soon as the token is there.
type watcher struct {
	next  http.RoundTripper
	token *gate
}

func (w *watcher) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		*x = exchange{method: r.Method, path: r.URL.Path, err: err}
		if resp != nil {
			x.status = resp.StatusCode
		}
	}
	if err == nil && r.Method == http.MethodPut && resp.StatusCode == http.StatusOK && resp.Header.Get(tokenTTLHeader) != "" {
		w.token.open()
	}
	return resp, err
}

// try makes one request, and one for the token before it where there is none.
func (c *Client) try(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	last := exchange{method: http.MethodPut, path: "/latest/api/token"}
	client, err := c.client(ctx)
	if err != nil {
		return "", &requestError{last, plainCause(err)}
	}
	body, err := read(context.WithValue(ctx, exchangeKey{}, &last), client, path)
	if err == nil {
		return body, nil
	}
	if last.err != nil {
		err = last.err
	}
	if last.status == http.StatusUnauthorized {
		c.forget(client)
	}
	return "", &requestError{last, plainCause(err)}
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
	} else if path == "user-data" {
		out, err := client.GetUserData(ctx, &sdk.GetUserDataInput{})
		if err != nil {
			return "", err
		}
		content = out.Content
	} else {
		return "", fmt.Errorf("no such tree in instance metadata: %s", path)
	}
	defer content.Close()
	body, err := io.ReadAll(io.LimitReader(content, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	return string(body), err
}

// client returns the SDK's client, choosing the endpoint on first use.
func (c *Client) client(ctx context.Context) (*sdk.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoint == "" {
		endpoint, err := reachable(ctx)
		if err != nil {
			return nil, err
		}
		c.endpoint = endpoint
	}
	if c.sdk == nil {
		c.sdk = sdk.New(sdk.Options{
			Endpoint:          strings.TrimRight(c.endpoint, "/"),
			ClientEnableState: sdk.ClientEnabled,
			EnableFallback:    aws.FalseTernary, // never IMDSv1
			Retryer:           aws.NopRetryer{}, // this package retries
			HTTPClient:        &http.Client{Transport: &watcher{next: directTransport(), token: c.token}},
		})
	}
	return c.sdk, nil
}

// forget drops the client and with it the token that was refused.
func (c *Client) forget(client *sdk.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sdk == client {
		c.sdk = nil
	}
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

// gate lets one read through first, which fetches the token, and the others
// when the token is there or the first one has ended without it.
type gate struct {
	mu     sync.Mutex
	led    bool
	opened bool
	failed error         // how the last lead ended
	change chan struct{} // closed at the next change
}

func newGate() *gate { return &gate{change: make(chan struct{})} }

// enter waits until the token is there, or this read has to lead.
func (g *gate) enter(ctx context.Context) (leads bool, err error) {
	for {
		g.mu.Lock()
		leads, change := !g.opened && !g.led, g.change
		g.led = g.led || leads
		opened := g.opened
		g.mu.Unlock()
		if leads || opened {
			return leads, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			// The same end is about to reach the read that leads, which knows
			// what it was waiting for.
			select {
			case <-change:
			case <-time.After(200 * time.Millisecond):
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.failed != nil {
				return false, g.failed
			}
			return false, context.Cause(ctx)
		}
	}
}

// leave ends the lead; if it brought no token another read may lead.
func (g *gate) leave(leads bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if leads && !g.opened {
		g.led, g.failed = false, err
		close(g.change)
		g.change = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.opened = true
		close(g.change)
	}
}

// plainCause is what people can use of a transport error.
func plainCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && !op.Timeout() {
		return op
	}
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return fmt.Errorf("no answer within %s", tryTimeout)
	}
	// The SDK's chain of wrappings says where it happened in the SDK; the last
	// link says what.
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
