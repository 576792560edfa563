package simulator

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The simulator trusts its client no more than a real service does.
const (
	maxHeader     = 64 << 10
	maxBody       = 64 << 10
	maxRecords    = 10_000
	headerTimeout = 10 * time.Second
	bodyTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Request is what the server noted about one request. A request that is still
// being answered has no End; one that was never answered has no Status.
type Request struct {
	Method string
	Path   string
	// Action is the API call, such as eks:DescribeCluster; "" means IMDS.
	Action     string
	Status     int
	Start, End time.Time
	RemoteAddr string
	// Conn numbers the connections of a started server from 1.
	Conn int
}

// Option changes how a Server works, never what is true of its world.
type Option func(*Server)

// WithLog calls logf once for each request that ended. Tokens, credentials and
// user data are not in what it gets.
func WithLog(logf func(format string, args ...any)) Option {
	return func(s *Server) { s.logf = logf }
}

// WithClock replaces time.Now for the age of tokens and for the end of faults.
func WithClock(now func() time.Time) Option {
	return func(s *Server) { s.now = now }
}

// WithTLS makes a started server speak TLS with a certificate: some clients
// take no other, such as the EKS side of tokens.
func WithTLS(certificate tls.Certificate) Option {
	return func(s *Server) { s.tls = &tls.Config{Certificates: []tls.Certificate{certificate}} }
}

// Server answers for one World. It is an http.Handler and may be used as such,
// or listen by itself. It is safe for concurrent use.
type Server struct {
	world World
	tree  *node
	types []InstanceType
	key   [32]byte // what this server's IMDS tokens are signed with
	now   func() time.Time
	logf  func(format string, args ...any)
	tls   *tls.Config // nil: plain HTTP

	mu          sync.Mutex
	started     time.Time
	requests    []*Request
	inFlight    int
	maxInFlight int
	conns       int
	faultHits   []int
	described   int // DescribeInstances answers that named the instance
	clusterSeen int // DescribeCluster answers that found the cluster
	answered    int // API answers, for request ids
}

// New returns a server for w, completed. It does not validate: Start does, and
// so did Parse.
func New(w World, opts ...Option) *Server {
	s := &Server{world: w.Complete(), now: time.Now}
	for _, o := range opts {
		o(s)
	}
	rand.Read(s.key[:]) // never fails
	s.started = s.now()
	s.faultHits = make([]int, len(s.world.Faults))
	s.types = append(s.types, s.world.InstanceTypes...)
	for _, t := range builtinTypes() {
		s.types = append(s.types, t.complete())
	}
	s.tree = s.metadata()
	return s
}

type connKey struct{}

// Start listens on addr ("" means a free port of 127.0.0.1) and serves until
// stop is called, which ends every request, hanging ones too, and returns when
// no handler runs any more. The time of faults counts from here.
func (s *Server) Start(addr string) (base string, stop func(), err error) {
	if err := s.world.Validate(); err != nil {
		return "", nil, err
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	scheme, reached := "http://", reachable(ln.Addr())
	if s.tls != nil {
		scheme, ln = "https://", tls.NewListener(ln, s.tls)
	}
	s.mu.Lock()
	s.started = s.now()
	s.mu.Unlock()

	// Requests hold the gate for reading. Closing it for good waits for those
	// under way and turns later ones away, so that a test's log is not written
	// to after the test.
	var gate sync.RWMutex
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !gate.TryRLock() {
				abort(w)
				return
			}
			defer gate.RUnlock()
			s.ServeHTTP(w, r)
		}),
		// No ReadTimeout or WriteTimeout: they would end a fault that hangs.
		// ServeHTTP sets the deadlines where they belong.
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conns++
			return context.WithValue(ctx, connKey{}, s.conns)
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		srv.Close()
		<-done
		gate.Lock()
	})
	return scheme + reached, stop, nil
}

// reachable turns the address of every interface into one that can be dialled.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
}

// Requests returns what was asked so far, oldest first; of very many, the newest.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	rs := make([]Request, len(s.requests))
	for i, r := range s.requests {
		rs[i] = *r
	}
	return rs
}

// MaxInFlight is the largest number of requests that were ever answered at once.
func (s *Server) MaxInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxInFlight
}

// ServeHTTP answers one request: a fault first, then the service it is for.
// EC2 and ECR are POST /, EKS is /clusters, and the rest is IMDS.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sw := &recorder{ResponseWriter: w}
	rec := s.begin(r)
	defer func() { s.end(rec, sw.status) }()

	body, ok := readBody(sw, r)
	if !ok {
		return
	}
	var form url.Values
	action := ""
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/" && ecrAction(r.Header.Get("X-Amz-Target")) != "":
		action = ecrAction(r.Header.Get("X-Amz-Target"))
	case r.Method == http.MethodPost && r.URL.Path == "/":
		form, _ = url.ParseQuery(string(body))
		action = "ec2:" + form.Get("Action")
	case r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Get("Action") != "":
		action = "sts:" + r.URL.Query().Get("Action")
	case r.URL.Path == "/clusters" || strings.HasPrefix(r.URL.Path, "/clusters/"):
		action = eksAction(r)
	}
	s.mu.Lock()
	rec.Action = action
	s.mu.Unlock()

	if s.fail(sw, r, action) {
		return
	}
	http.NewResponseController(sw).SetWriteDeadline(time.Now().Add(writeTimeout))
	switch {
	case strings.HasPrefix(action, "ec2:"):
		s.serveEC2(sw, r, action, form)
	case strings.HasPrefix(action, "eks:"):
		s.serveEKS(sw, r, action)
	case strings.HasPrefix(action, "ecr:"), strings.HasPrefix(action, "ecr-public:"):
		s.serveECR(sw, r, action, body)
	case strings.HasPrefix(action, "sts:"):
		s.serveSTS(sw, r)
	default:
		s.serveIMDS(sw, r)
	}
}

// readBody reads all of the body, without which the HTTP server would not
// notice that the client of a hanging request went away.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body is too large or did not arrive", http.StatusRequestEntityTooLarge)
		return nil, false
	}
	rc.SetReadDeadline(time.Time{})
	return body, true
}

func (s *Server) begin(r *http.Request) *Request {
	rec := &Request{Method: r.Method, Path: r.URL.Path, RemoteAddr: r.RemoteAddr, Start: time.Now()}
	rec.Conn, _ = r.Context().Value(connKey{}).(int)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) >= maxRecords {
		s.requests = append([]*Request(nil), s.requests[maxRecords/2:]...)
	}
	s.requests = append(s.requests, rec)
	s.inFlight++
	s.maxInFlight = max(s.maxInFlight, s.inFlight)
	return rec
}

func (s *Server) end(rec *Request, status int) {
	s.mu.Lock()
	rec.Status, rec.End = status, time.Now()
	s.inFlight--
	done := *rec
	s.mu.Unlock()
	if s.logf == nil {
		return
	}
	what := done.Path
	if done.Action != "" {
		what = done.Action
	}
	answer := "no answer"
	if status != 0 {
		answer = http.StatusText(status)
	}
	s.logf("%s %q %d %s in %s", done.Method, what, status, answer, done.End.Sub(done.Start).Round(time.Microsecond))
}

// recorder remembers the status. Unwrap lets http.ResponseController through.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// abort closes the connection instead of answering.
func abort(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}
