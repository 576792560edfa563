package kubeapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// certificate is one that signs itself, valid for a name between two moments.
func certificate(t *testing.T, name string, from, until time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serve answers at an address of loopback with a certificate.
func serve(t *testing.T, c tls.Certificate, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(answer)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c}}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestAnswer(t *testing.T) {
	now := time.Now()
	c, ca := certificate(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	endpoint := serve(t, c, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/api/v1/nodes/n" {
			t.Errorf("%s, authorization %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Write([]byte(`{"metadata":{"name":"n"}}`))
	})
	client := New(Options{Endpoint: endpoint + "/", CA: ca, Token: func(context.Context) (string, error) { return "secret", nil }})
	var node struct{ Metadata struct{ Name string } }
	if err := client.Get(context.Background(), "/api/v1/nodes/n", &node); err != nil || node.Metadata.Name != "n" {
		t.Errorf("%v, %+v", err, node)
	}
}

func TestWhere(t *testing.T) {
	now := time.Now()
	good, ca := certificate(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	_, otherCA := certificate(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	named, namedCA := certificate(t, "example.com", now.Add(-time.Hour), now.Add(time.Hour))
	old, oldCA := certificate(t, "127.0.0.1", now.Add(-2*time.Hour), now.Add(-time.Hour))
	early, earlyCA := certificate(t, "127.0.0.1", now.Add(time.Hour), now.Add(2*time.Hour))
	answer := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			w.Write([]byte(body))
		}
	}
	ok := answer(200, "application/json", "{}")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	silentURL := &url.URL{Scheme: "http", Host: silent.Addr().String()}
	ends, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ends.Close() })
	go func() {
		for {
			conn, err := ends.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	plain := httptest.NewServer(ok)
	t.Cleanup(plain.Close)
	proxy, err := url.Parse("http://" + closed.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	denying := httptest.NewServer(answer(407, "text/plain", "who are you?"))
	t.Cleanup(denying.Close)
	denyingURL, err := url.Parse(denying.URL)
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name     string
		endpoint string
		ca       []byte
		proxy    *url.URL
		want     Where
		code     int
		says     string
	}{
		{"refused", "https://" + closed.Addr().String(), ca, nil, Refused, 0, "refused"},
		{"silent", "https://" + silent.Addr().String(), ca, nil, Silent, 0, "first message of TLS"},
		{"a proxy that is silent", "https://192.0.2.1", ca, silentURL, Proxy, 0, "does not answer CONNECT"},
		{"ends", "https://" + ends.Addr().String(), ca, nil, Broken, 0, ""},
		{"plain HTTP", strings.Replace(plain.URL, "http:", "https:", 1), ca, nil, NotTLS, 0, ""},
		{"another authority", serve(t, good, ok), otherCA, nil, UnknownCA, 0, "unknown authority"},
		{"another name", serve(t, named, ok), namedCA, nil, OtherHost, 0, "127.0.0.1"},
		{"expired", serve(t, old, ok), oldCA, nil, Expired, 0, "expired"},
		{"not yet valid", serve(t, early, ok), earlyCA, nil, Expired, 0, "not yet valid"},
		{"no proxy there", serve(t, good, ok), ca, proxy, Proxy, 0, "refused"},
		{"a proxy that denies", serve(t, good, ok), ca, denyingURL, Proxy, 0, "407"},
		{"401", serve(t, good, answer(401, "application/json", `{"kind":"Status","message":"Unauthorized"}`)), ca, nil, Status, 401, "Unauthorized"},
		{"403", serve(t, good, answer(403, "application/json", `{"kind":"Status","message":"nodes \"n\" is forbidden"}`)), ca, nil, Status, 403, "is forbidden"},
		{"a page", serve(t, good, answer(200, "text/html", "<html>")), ca, nil, NotAPI, 200, "text/html"},
		{"an error page", serve(t, good, answer(404, "text/html; charset=utf-8", "<html>")), ca, nil, NotAPI, 404, "404"},
		{"JSON of somebody else", serve(t, good, answer(404, "application/json", `{"error":"x"}`)), ca, nil, NotAPI, 404, "404"},
		{"too many questions", serve(t, good, answer(429, "text/plain; charset=utf-8", "Too many requests, please try again later.\n")), ca, nil, Status, 429, "try again later"},
		{"going down", serve(t, good, answer(503, "text/plain", "shutting down")), ca, nil, Status, 503, "shutting down"},
		{"a page of a balancer's", serve(t, good, answer(503, "text/html", "<html>")), ca, nil, NotAPI, 503, "text/html"},
		{"more than anybody reads", serve(t, good, answer(200, "application/json", `"`+strings.Repeat("x", maxBody)+`"`)), ca, nil, NotAPI, 200, "unexpected end"},
		{"accepted and not answered", serve(t, good, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), ca, nil, Silent, 0, "after TLS"},
		{"half an answer", serve(t, good, answer(200, "application/json", `{"a":`)), ca, nil, NotAPI, 200, "unexpected end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Endpoint: test.endpoint, CA: test.ca}
			if test.proxy != nil {
				o.Proxy = http.ProxyURL(test.proxy)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := New(o).Get(ctx, "/api/v1/nodes/n", &struct{}{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if e.Where != test.want || e.Code != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s, code %d: %v; want %s, code %d, %q", e.Where, e.Code, err, test.want, test.code, test.says)
			}
			if e.Where == Status && e.Date.IsZero() {
				t.Error("the server's date is lost")
			}
		})
	}
}

// The resolver's own answers cannot be had on loopback: what it returns can.
func TestWhereNames(t *testing.T) {
	absent := &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
	for _, test := range []struct {
		err  error
		want Where
	}{
		{absent, Name},
		{&net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}, Resolver},
		{&net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}, Resolver},
		{syscall.EHOSTUNREACH, Unreachable},
		{syscall.ENETUNREACH, Unreachable},
		{syscall.EACCES, Unreachable}, // ip route add prohibit
		{syscall.EINVAL, Unreachable}, // ip route add blackhole
		{syscall.EPERM, Unreachable},  // a firewall of this machine's own
		{os.ErrDeadlineExceeded, Timeout},
		{syscall.ECONNRESET, Broken},
	} {
		wrapped := &url.Error{Op: "Get", URL: "https://x", Err: &net.OpError{Op: "dial", Err: test.err}}
		if got := Classify(wrapped).Where; got != test.want {
			t.Errorf("%v: %s, want %s", test.err, got, test.want)
		}
	}
	// It is the proxy's name that does not exist, not the API server's.
	if got := Classify(&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: absent}}).Where; got != Proxy {
		t.Errorf("%s, want %s", got, Proxy)
	}
}

// Who is sent elsewhere does not go there with the token.
func TestNoRedirect(t *testing.T) {
	now := time.Now()
	c, ca := certificate(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	asked := 0
	endpoint := serve(t, c, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	client := New(Options{Endpoint: endpoint, CA: ca, Token: func(context.Context) (string, error) { return "secret", nil }})
	var e *Error
	if err := client.Get(context.Background(), "/api", &struct{}{}); !errors.As(err, &e) || e.Where != NotAPI || e.Code != http.StatusFound || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

func TestToken(t *testing.T) {
	cause := errors.New("no role")
	client := New(Options{Endpoint: "https://127.0.0.1:1", Token: func(context.Context) (string, error) { return "", cause }})
	var e *Error
	if err := client.Get(context.Background(), "/", nil); !errors.As(err, &e) || e.Where != Token || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
