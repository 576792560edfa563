// Package kubeapi asks a Kubernetes API server for the few things that a
// machine outside of it wants to know, and tells precisely where it broke when
// there is no answer.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 10 * time.Second
	maxBody        = 4 << 20 // bytes; a Node with hundreds of images has half a megabyte
)

// Options say which API server, and who asks.
type Options struct {
	Endpoint string // URL
	CA       []byte // PEM; the only authority that is trusted
	// Token makes a bearer token; nil: ask anonymously.
	Token func(context.Context) (string, error)
	// Proxy finds the proxy for a request; nil: there is none.
	Proxy func(*http.Request) (*url.URL, error)
	// Clock, if set, is told of each answer when the server says that it was.
	Clock func(time.Time)
}

// Client asks one API server. It is safe for concurrent use.
type Client struct {
	endpoint string
	token    func(context.Context) (string, error)
	clock    func(time.Time)
	proxy    func(*http.Request) (*url.URL, error)
	http     *http.Client
}

// New makes a client. Nothing is sent until the first request.
func New(o Options) *Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(o.CA)
	return &Client{strings.TrimRight(o.Endpoint, "/"), o.Token, o.Clock, o.Proxy, &http.Client{
		Timeout: requestTimeout,
		// A Kubernetes API sends nobody elsewhere, and the token is for it alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               o.Proxy,
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
				if answer.StatusCode != http.StatusOK {
					return &proxyError{answer.Status}
				}
				return nil
			},
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			// The next question may come when what was wrong is mended.
			DisableKeepAlives: true,
		},
	}}
}

// Where a request broke.
type Where string

// The places, in the order in which a request meets them.
const (
	Token       Where = "token"       // it could not be made
	Name        Where = "name"        // the host's name does not exist
	Resolver    Where = "resolver"    // no name server answered
	Refused     Where = "refused"     // nobody listens there, or a firewall says no
	Timeout     Where = "timeout"     // nothing came back
	Silent      Where = "silent"      // it takes connections, and nothing comes back after that
	Unreachable Where = "unreachable" // there is no route, or one that forbids it
	Broken      Where = "broken"      // the connection ended early
	Proxy       Where = "proxy"       // the proxy did not let it through
	NotTLS      Where = "not TLS"     // somebody else answers
	UnknownCA   Where = "unknown CA"  // the certificate is signed by another authority
	OtherHost   Where = "other host"  // the certificate is for other names
	Expired     Where = "expired"     // the certificate is not valid now, by this machine's clock
	Certificate Where = "certificate" // something else is wrong with it
	Status      Where = "status"      // the answer is an error
	NotAPI      Where = "not an API"  // the answer is not one of a Kubernetes API
)

// Error is a request without the answer that was asked for.
type Error struct {
	Where Where
	// Code and Message are the API's own, where there was an answer. Date is when
	// the server says that it was, zero if it does not.
	Code    int
	Message string
	Date    time.Time
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// proxyError is the answer of a proxy that does not let a request through.
type proxyError struct{ status string }

func (e *proxyError) Error() string { return "the proxy answers " + e.status }

// Get reads the object at path.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Post creates an object at path and reads what became of it.
func (c *Client) Post(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, body, into)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return &Error{Where: Token, Err: err}
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	way := c.follow(request)
	answer, err := c.http.Do(request.WithContext(way.context))
	if err != nil {
		return way.classify(err)
	}
	defer answer.Body.Close()
	date, _ := http.ParseTime(answer.Header.Get("Date")) // zero without one
	if c.clock != nil && !date.IsZero() {
		c.clock(date)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return way.classify(err)
	}
	failed := &Error{Where: Status, Code: answer.StatusCode, Date: date}
	what := fmt.Sprintf("%s %s%s: %s", method, c.endpoint, path, answer.Status)
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch {
	case kind == "application/json":
	case kind == "text/plain" && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500):
		// So an API server speaks that is overloaded or going down.
		failed.Message, _, _ = strings.Cut(strings.TrimSpace(string(data[:min(len(data), 200)])), "\n")
		failed.Err = fmt.Errorf("%s: %s", what, failed.Message)
		return failed
	default:
		failed.Where, failed.Err = NotAPI, fmt.Errorf("%s, content type %q", what, kind)
		return failed
	}
	if answer.StatusCode/100 != 2 {
		var status struct{ Kind, Message string }
		if json.Unmarshal(data, &status) != nil || status.Kind != "Status" {
			failed.Where = NotAPI
		}
		failed.Message = status.Message
		failed.Err = fmt.Errorf("%s: %s", what, status.Message)
		return failed
	}
	if err := json.Unmarshal(data, into); err != nil {
		failed.Where, failed.Err = NotAPI, fmt.Errorf("%s: %w", what, err)
		return failed
	}
	return nil
}

// forbidden tells whether it is this machine that does not let a connection out:
// by a route of type prohibit or blackhole, or by its firewall.
func forbidden(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL)
}

// Classify finds out where a request broke that had no answer, be it to an API
// server or to another.
func Classify(err error) *Error {
	var (
		dns       *net.DNSError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
		timeout   interface{ Timeout() bool }
		proxy     *proxyError
	)
	where := Broken
	switch {
	// Before everything that may be wrong with the way to the proxy.
	case errors.As(err, &proxy), errors.As(err, &op) && op.Op == "proxyconnect":
		where = Proxy
	case errors.As(err, &dns) && dns.IsNotFound:
		where = Name
	case errors.As(err, &dns):
		where = Resolver
	case errors.As(err, &authority):
		where = UnknownCA
	case errors.As(err, &host):
		where = OtherHost
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		where = Expired
	case errors.As(err, &verify), errors.As(err, &invalid):
		where = Certificate
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		where = NotTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		where = Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.As(err, &op) && op.Op == "dial" && forbidden(err):
		where = Unreachable
	case errors.As(err, &timeout) && timeout.Timeout():
		where = Timeout
	}
	// What happened, without the method and the address around it.
	var wire *url.Error
	if errors.As(err, &wire) && where != Timeout {
		err = wire.Err
	}
	return &Error{Where: where, Err: err}
}
