package imds_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

const tokenPath = "/latest/api/token"

// start serves the default world with faults.
func start(t *testing.T, faults ...simulator.Fault) (*simulator.Server, string) {
	t.Helper()
	w := simulator.Default()
	w.Faults = faults
	s := simulator.New(w)
	base, stop, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s, base
}

// soon is a context that ends long after everything that works has ended.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// into accepts whatever it gets.
func into(s *string) func(string) error {
	return func(body string) error { *s = body; return nil }
}

// deadline is a context whose deadline passes when the test says so, and not
// when a busy machine has not come round to anything yet.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// after is a context whose deadline passes once s has been asked n times.
func after(t *testing.T, s *simulator.Server, n int, method, path string) context.Context {
	d := deadline{t.Context(), make(chan struct{})}
	go func() {
		defer close(d.passed)
		for count(s, method, path) < n && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	return d
}

// oneAttempt is a client, and a context that ends when the first attempt has
// failed.
func oneAttempt(t *testing.T, endpoint string) (context.Context, *imds.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, imds.New(imds.Options{Endpoint: endpoint, Report: func(error, int, time.Duration) { cancel() }})
}

// count is how often a request was made.
func count(s *simulator.Server, method, path string) (n int) {
	for _, r := range s.Requests() {
		if r.Method == method && r.Path == path {
			n++
		}
	}
	return n
}

// wantFault checks the class, what the message says, and what the remedy says.
func wantFault(t *testing.T, err error, message, remedy string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if code := fault.CodeOf(err); code != fault.AWS {
		t.Errorf("class %d, want %d: %v", code, fault.AWS, err)
	}
	if !strings.Contains(err.Error(), message) {
		t.Errorf("%q does not say %q", err, message)
	}
	if !strings.Contains(fault.Remedy(err), remedy) {
		t.Errorf("the remedy of %q is %q and does not say %q", err, fault.Remedy(err), remedy)
	}
}

func TestGet(t *testing.T) {
	s, base := start(t)
	for name, endpoint := range map[string]string{
		"plain":                   base,
		"slash at the end":        base + "/",
		"several slashes at once": base + "//",
	} {
		c := imds.New(imds.Options{Endpoint: endpoint})
		var mac, doc string
		if err := c.Get(soon(t), "meta-data/mac", into(&mac)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Get(soon(t), "dynamic/instance-identity/document", into(&doc)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if mac != simulator.Default().Instance.MAC || !strings.Contains(doc, `"instanceType": "m5.large"`) {
			t.Errorf("%s: got %q and %q", name, mac, doc)
		}
	}
	if n := count(s, http.MethodPut, tokenPath); n != 3 {
		t.Errorf("%d tokens for three clients", n)
	}
}

// A path outside the known trees is a defect of the caller; it must end all the same.
func TestOtherTree(t *testing.T) {
	t.Parallel()
	_, base := start(t)
	ctx, c := oneAttempt(t, base)
	err := c.Get(ctx, "spot-data/mac", func(string) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "spot-data/mac") {
		t.Errorf("got %v", err)
	}
}

// meeting holds requests until n of them are there, so that a client that asks
// one after the other never gets an answer.
type meeting struct {
	mu   sync.Mutex
	left int
	met  chan struct{}
}

func newMeeting(n int) *meeting { return &meeting{left: n, met: make(chan struct{})} }

func (m *meeting) join(ctx context.Context) {
	m.mu.Lock()
	if m.left--; m.left == 0 {
		close(m.met)
	}
	m.mu.Unlock()
	select {
	case <-m.met:
	case <-ctx.Done():
	}
}

func TestOneTokenForParallelReads(t *testing.T) {
	paths := []string{"meta-data/mac", "meta-data/local-ipv4", "meta-data/local-hostname", "meta-data/ami-id",
		"meta-data/services/domain", "meta-data/services/partition", "meta-data/instance-id", "meta-data/instance-type"}
	sim, all := simulator.New(simulator.Default()), newMeeting(len(paths))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			all.join(r.Context())
		}
		sim.ServeHTTP(w, r)
	}))
	defer srv.Close()

	c := imds.New(imds.Options{Endpoint: srv.URL})
	ctx := soon(t)
	var wg sync.WaitGroup
	for _, p := range paths {
		wg.Go(func() {
			if err := c.Get(ctx, p, func(string) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(sim, http.MethodPut, tokenPath); n != 1 {
		t.Errorf("%d tokens", n)
	}
	if n := len(sim.Requests()); n != len(paths)+1 {
		t.Errorf("%d requests", n)
	}
}

// MaxInFlight sees the same from the server's side: nothing goes beside the
// token, and what follows goes at once.
func TestReadsOverlap(t *testing.T) {
	t.Parallel()
	s, base := start(t, simulator.Fault{Match: "/latest/meta-data", Delay: 300 * time.Millisecond})
	c := imds.New(imds.Options{Endpoint: base})
	ctx := soon(t)
	var wg sync.WaitGroup
	for _, p := range []string{"meta-data/mac", "meta-data/ami-id", "meta-data/local-ipv4"} {
		wg.Go(func() {
			if err := c.Get(ctx, p, func(string) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s.MaxInFlight() < 2 {
		t.Error("the reads went one after the other")
	}
	rs := s.Requests()
	for _, r := range rs[1:] {
		if r.Start.Before(rs[0].Start) || r.Method != http.MethodGet {
			t.Errorf("%s %s beside the token", r.Method, r.Path)
		}
	}
}

func TestAbsent(t *testing.T) {
	s, base := start(t)
	c := imds.New(imds.Options{Endpoint: base})
	err := c.Lookup(soon(t), "meta-data/network/interfaces/macs/"+simulator.Default().Instance.MAC+"/ipv6s", func(string) error {
		t.Error("accept called")
		return nil
	})
	if !errors.Is(err, imds.ErrAbsent) {
		t.Errorf("got %v", err)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// A 404 of the token endpoint is not the absence of a value.
func TestTokenNotFoundIsNotAbsence(t *testing.T) {
	t.Parallel()
	_, base := start(t, simulator.Fault{Match: tokenPath, Status: 404})
	ctx, c := oneAttempt(t, base)
	err := c.Lookup(ctx, "meta-data/mac", func(string) error { return nil })
	if errors.Is(err, imds.ErrAbsent) {
		t.Error("taken for absence")
	}
	wantFault(t, err, "PUT /latest/api/token: the service answered 404", "--imds-endpoint")
}

func TestWhatPassesIsWaitedFor(t *testing.T) {
	const path = "/latest/meta-data/mac"
	for _, test := range []struct {
		name  string
		fault simulator.Fault
	}{
		{"value not there yet", simulator.Fault{Match: path, Status: 404}},
		{"too many requests", simulator.Fault{Match: path, Status: 429}},
		{"internal error", simulator.Fault{Match: path, Status: 500}},
		{"unavailable", simulator.Fault{Match: path, Status: 503}},
		{"connection closed", simulator.Fault{Match: path, Drop: true}},
		{"token refused", simulator.Fault{Match: path, Status: 401}},
		{"token not found", simulator.Fault{Match: tokenPath, Status: 404}},
		{"token busy", simulator.Fault{Match: tokenPath, Status: 429}},
		{"token unavailable", simulator.Fault{Match: tokenPath, Status: 503}},
		{"token connection closed", simulator.Fault{Match: tokenPath, Drop: true}},
		{"token without its lifetime", simulator.Fault{Match: tokenPath, Body: "no token"}},
		{"value refused", simulator.Fault{Match: path, Body: "garbage"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.fault.First = 1
			if test.fault.Drop {
				test.fault.First = 2 // net/http itself tries again where a kept connection turns out closed
			}
			s, base := start(t, test.fault)
			var mac string
			var reports []int
			c := imds.New(imds.Options{Endpoint: base, Report: func(err error, attempt int, _ time.Duration) {
				if err == nil || !strings.Contains(err.Error(), test.fault.Match) {
					t.Errorf("reported: %v", err)
				}
				reports = append(reports, attempt)
			}})
			err := c.Get(soon(t), "meta-data/mac", func(body string) error {
				if mac = body; body == "garbage" {
					return errors.New("not a MAC address")
				}
				return nil
			})
			if err != nil || mac != simulator.Default().Instance.MAC {
				t.Errorf("got %q, %v", mac, err)
			}
			if len(reports) == 0 || reports[0] != 1 {
				t.Errorf("reported at attempts %v, not at the first", reports)
			}
			if n := count(s, http.MethodGet, path) + count(s, http.MethodPut, tokenPath); n < 3 {
				t.Errorf("%d requests in all: the fault was not met", n)
			}
		})
	}
}

func TestWhatDoesNotPassEnds(t *testing.T) {
	const path = "/latest/meta-data/mac"
	reject := func(string) error { return errors.New("not a MAC address") }
	for _, test := range []struct {
		name            string
		fault           simulator.Fault
		accept          func(string) error
		tokens, reads   int // how many requests it may take
		message, remedy string
	}{
		{name: "switched off", fault: simulator.Fault{Match: tokenPath, Status: 403}, tokens: 1, reads: 0,
			message: "PUT /latest/api/token: the service answered 403 Forbidden", remedy: "--http-endpoint enabled"},
		{name: "value refused", fault: simulator.Fault{Match: path, Status: 403}, tokens: 1, reads: 1,
			message: "GET /latest/meta-data/mac: the service answered 403 Forbidden", remedy: "--http-endpoint enabled"},
		{name: "fresh tokens refused", fault: simulator.Fault{Match: path, Status: 401}, tokens: 4, reads: 4,
			message: "GET /latest/meta-data/mac: the service answered 401 Unauthorized", remedy: "refused tokens"},
		{name: "no token in the answer", fault: simulator.Fault{Match: tokenPath, Body: "hello"}, tokens: 3, reads: 0,
			message: "PUT /latest/api/token: the answer is no session token", remedy: "does not look like"},
		{name: "bad request for a token", fault: simulator.Fault{Match: tokenPath, Status: 400}, tokens: 3, reads: 0,
			message: "PUT /latest/api/token: the service answered 400", remedy: "does not look like"},
		{name: "nonsense", fault: simulator.Fault{Match: path, Body: "<html>"}, accept: reject, tokens: 1, reads: 3,
			message: "GET /latest/meta-data/mac: not a MAC address", remedy: "does not look like"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, base := start(t, test.fault)
			accept := test.accept
			if accept == nil {
				accept = func(string) error { return nil }
			}
			err := imds.New(imds.Options{Endpoint: base}).Get(soon(t), "meta-data/mac", accept)
			wantFault(t, err, test.message, test.remedy)
			if tokens, reads := count(s, http.MethodPut, tokenPath), count(s, http.MethodGet, path); tokens != test.tokens || reads != test.reads {
				t.Errorf("%d tokens and %d reads, want %d and %d", tokens, reads, test.tokens, test.reads)
			}
		})
	}
}

// One parallel read that is refused must not hide behind the others' waiting.
func TestForbiddenTokenEndsEveryRead(t *testing.T) {
	_, base := start(t, simulator.Fault{Match: tokenPath, Status: 403})
	c, ctx := imds.New(imds.Options{Endpoint: base}), soon(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			wantFaultIn(t, c.Get(ctx, "meta-data/mac", func(string) error { return nil }), "403")
		})
	}
	wg.Wait()
}

func wantFaultIn(t *testing.T, err error, message string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), message) || fault.CodeOf(err) != fault.AWS {
		t.Errorf("got %v", err)
	}
}

func TestDeadline(t *testing.T) {
	const path = "/latest/meta-data/mac"
	for _, test := range []struct {
		name            string
		faults          []simulator.Fault
		message, remedy string
	}{
		{"token hangs", []simulator.Fault{{Match: tokenPath, Hang: true}}, "PUT /latest/api/token: no answer", "is this an EC2 instance"},
		{"value hangs", []simulator.Fault{{Match: path, Hang: true}}, "GET /latest/meta-data/mac: no answer", "is this an EC2 instance"},
		{"busy first, then silent", []simulator.Fault{{Match: path, Status: 503, First: 1}, {Match: path, Hang: true}},
			"GET /latest/meta-data/mac: the service answered 503", "stop and start the instance"},
		{"always busy", []simulator.Fault{{Match: path, Status: 503}}, "GET /latest/meta-data/mac: the service answered 503", "stop and start the instance"},
		{"never there", []simulator.Fault{{Match: path, Status: 404}}, "GET /latest/meta-data/mac: the service answered 404", "has no such value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, base := start(t, test.faults...)
			c := imds.New(imds.Options{Endpoint: base})
			// When the second attempt is under way, the first has been understood.
			ctx := after(t, s, 2, http.MethodGet, path)
			switch {
			case test.faults[0].Match == tokenPath:
				ctx = after(t, s, 1, http.MethodPut, tokenPath)
			case test.faults[0].Hang:
				ctx = after(t, s, 1, http.MethodGet, path)
			}
			err := c.Get(ctx, "meta-data/mac", func(string) error { return nil })
			wantFault(t, err, test.message, test.remedy)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not context.DeadlineExceeded", err)
			}
			if strings.Contains(err.Error(), "operation error") {
				t.Errorf("the SDK's words in %q", err)
			}
		})
	}
}

// Those who wait for the token of a read that never gets it say what that one
// waited for.
func TestDeadlineOfFollowers(t *testing.T) {
	t.Parallel()
	s, base := start(t, simulator.Fault{Match: tokenPath, Hang: true})
	ctx := after(t, s, 1, http.MethodPut, tokenPath)
	c := imds.New(imds.Options{Endpoint: base})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			err := c.Get(ctx, fmt.Sprintf("meta-data/path-%d", i), func(string) error { return nil })
			wantFaultIn(t, err, "PUT /latest/api/token")
		})
	}
	wg.Wait()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	ctx, c := oneAttempt(t, srv.URL)
	err := c.Get(ctx, "meta-data/mac", func(string) error { return nil })
	wantFault(t, err, "connection refused", "is this an EC2 instance")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s, base := start(t, simulator.Fault{Match: "/latest/meta-data/mac", Hang: true}, simulator.Fault{Match: "/latest/meta-data/ami-id", Status: 404})
	for _, path := range []string{"meta-data/mac", "meta-data/ami-id"} {
		reported := make(chan struct{}, 100)
		ctx, cancel := context.WithCancel(t.Context())
		c := imds.New(imds.Options{Endpoint: base, Report: func(error, int, time.Duration) { reported <- struct{}{} }})
		ended := make(chan error, 1)
		go func() { ended <- c.Get(ctx, path, func(string) error { return nil }) }()
		if path == "meta-data/ami-id" {
			<-reported // it waits between two attempts now, or makes the next
		} else {
			for count(s, http.MethodGet, "/latest/"+path) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		cancelled := time.Now()
		cancel()
		err := <-ended
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s: got %v", path, err)
		}
		if took := time.Since(cancelled); took > 1900*time.Millisecond {
			t.Errorf("%s: ended %s after the signal", path, took)
		}
	}
}

// The leader's context may be its own: when it ends without a token, the next
// read takes over.
func TestNextReadLeads(t *testing.T) {
	t.Parallel()
	_, base := start(t, simulator.Fault{Match: tokenPath, Hang: true, First: 1})
	c := imds.New(imds.Options{Endpoint: base})
	first, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Get(first, "meta-data/mac", func(string) error { return nil }); err == nil {
			t.Error("the first read succeeded")
		}
	})
	wg.Wait()
	if err := c.Get(soon(t), "meta-data/mac", func(string) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A token that is not valid any more costs one refused read and one new token.
func TestTokenRenewed(t *testing.T) {
	w := simulator.Default()
	first, second := simulator.New(w), simulator.New(w) // a token of one is nothing to the other
	var restarted atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if restarted.Load() {
			second.ServeHTTP(w, r)
		} else {
			first.ServeHTTP(w, r)
		}
	}))
	defer srv.Close()
	c := imds.New(imds.Options{Endpoint: srv.URL})
	var mac string
	for range 2 {
		if err := c.Get(soon(t), "meta-data/mac", into(&mac)); err != nil {
			t.Fatal(err)
		}
		restarted.Store(true)
	}
	var got []string
	for _, r := range second.Requests() {
		got = append(got, fmt.Sprintf("%s %s %d", r.Method, r.Path, r.Status))
	}
	want := []string{"GET /latest/meta-data/mac 401", "PUT /latest/api/token 200", "GET /latest/meta-data/mac 200"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the restart (-want +got):\n%s", diff)
	}
}

// A proxy is for the way out, and link-local addresses are not on it. Loopback
// is never sent to a proxy by net/http itself, so the service is named by an
// address that net/http does not take for loopback.
func TestProxyIsIgnored(t *testing.T) {
	const dead = "http://127.0.0.1:1"
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, dead)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	_, base := start(t)
	endpoint := strings.Replace(base, "127.0.0.1", "0.0.0.0", 1)
	r, _ := http.NewRequest(http.MethodGet, endpoint, nil)
	if proxy, err := http.ProxyFromEnvironment(r); err != nil || proxy == nil || proxy.String() != dead {
		if os.Getenv("CI") == "true" {
			t.Fatalf("net/http goes by an environment it read earlier (proxy %v, %v): nothing is proved", proxy, err)
		}
		t.Skipf("net/http goes by an environment it read earlier (proxy %v, %v): nothing is proved", proxy, err)
	}
	var mac string
	if err := imds.New(imds.Options{Endpoint: endpoint}).Get(soon(t), "meta-data/mac", into(&mac)); err != nil {
		t.Error(err)
	}
}

// SDKs look at the environment for their endpoint and for permission to ask at
// all; what the options say is meant.
func TestEnvironmentIsNotAsked(t *testing.T) {
	_, base := start(t)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	var mac string
	if err := imds.New(imds.Options{Endpoint: base}).Get(soon(t), "meta-data/mac", into(&mac)); err != nil {
		t.Error(err)
	}
}
