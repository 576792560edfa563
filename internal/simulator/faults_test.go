package simulator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
)

func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func putToken(ctx context.Context, base string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, base+"/latest/api/token", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(headerTTL, "60")
	resp, err := http.DefaultClient.Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

func withFaults(faults ...Fault) World {
	w := Default()
	w.Faults = faults
	return w
}

func TestFaultAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults []Fault
		path   string
		want   []int // of one request after the other
		body   string
	}{
		{"status", []Fault{{Match: "/latest/meta-data/mac", Status: 503}}, "/latest/meta-data/mac", []int{503, 503}, "503 - Service Unavailable"},
		{"all versions", []Fault{{Match: "/latest/meta-data/mac", Status: 503}}, "/2021-03-23/meta-data/mac", []int{503}, ""},
		{"one version", []Fault{{Match: "/2021-03-23/meta-data", Status: 404}}, "/latest/meta-data/mac", []int{200}, ""},
		{"whole segments", []Fault{{Match: "/latest/meta-data/m", Status: 503}}, "/latest/meta-data/mac", []int{200}, ""},
		{"directory", []Fault{{Match: "/latest/meta-data/", Status: 503}}, "/latest/meta-data/mac", []int{503}, ""},
		{"first", []Fault{{Match: "/latest/meta-data", Status: 500, First: 2}}, "/latest/meta-data/mac", []int{500, 500, 200}, "0a:00:c0:a8:12:e6"},
		{"one after the other", []Fault{{Match: "/latest/meta-data", Status: 500, First: 1}, {Match: "/latest/meta-data", Status: 429, First: 1}},
			"/latest/meta-data/mac", []int{500, 429, 200}, ""},
		{"garbage", []Fault{{Match: "/latest/dynamic", Body: "\x00{"}}, "/latest/dynamic/instance-identity/document", []int{200}, "\x00{"},
		{"garbage with status", []Fault{{Match: "/latest/dynamic", Status: 502, Body: "bad gateway"}}, "/latest/dynamic/instance-identity/document", []int{502}, "bad gateway"},
		{"empty", []Fault{{Match: "/latest/user-data", Status: 200}}, "/latest/user-data", []int{200}, ""},
		{"another path", []Fault{{Match: "/latest/user-data", Status: 500}, {Match: "ec2:*", Status: 500}}, "/latest/meta-data/mac", []int{200}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(withFaults(tt.faults...))
			var body string
			for i, want := range tt.want {
				var got int
				if got, body = get(t, s, tt.path); got != want {
					t.Errorf("request %d: %d, want %d", i, got, want)
				}
			}
			if !strings.Contains(body, tt.body) {
				t.Errorf("the last body %q does not hold %q", body, tt.body)
			}
		})
	}
}

func TestFaultUntil(t *testing.T) {
	clock := time.Unix(1_700_000_000, 0)
	s := New(withFaults(Fault{Match: "/latest/api/token", Status: 503, Until: 5 * time.Second}), WithClock(func() time.Time { return clock }))
	if rec := ask(s, "PUT", "/latest/api/token", headerTTL, "60"); rec.Code != 503 {
		t.Errorf("at the start: %d", rec.Code)
	}
	clock = clock.Add(5 * time.Second)
	if rec := ask(s, "PUT", "/latest/api/token", headerTTL, "60"); rec.Code != 200 {
		t.Errorf("after the end: %d", rec.Code)
	}
}

func TestFaultDelay(t *testing.T) {
	s, base := start(t, withFaults(Fault{Match: "/latest/api", Delay: 30 * time.Millisecond}))
	if _, err := putToken(context.Background(), base); err != nil {
		t.Fatal(err)
	}
	r := s.Requests()[0]
	if took := r.End.Sub(r.Start); took < 30*time.Millisecond || r.Status != 200 {
		t.Errorf("took %s, status %d", took, r.Status)
	}
}

func TestFaultDrop(t *testing.T) {
	_, base := start(t, withFaults(Fault{Match: "/latest/api", Drop: true, First: 1}))
	r, _ := http.NewRequest(http.MethodPost, base+"/latest/api/token", strings.NewReader("x")) // a POST is not retried by net/http
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("answered %d", resp.StatusCode)
	}
	if _, err := putToken(context.Background(), base); err != nil {
		t.Error(err)
	}
}

// waitFor polls: what it waits for happens on another goroutine, in microseconds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func TestHangEndsWithTheClient(t *testing.T) {
	for name, method := range map[string]string{"without a body": http.MethodPut, "with a body": http.MethodPost} {
		t.Run(name, func(t *testing.T) {
			s, base := start(t, withFaults(Fault{Match: "/latest/api/token", Hang: true}))
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			var body io.Reader
			if method == http.MethodPost {
				body = strings.NewReader("x")
			}
			r, _ := http.NewRequestWithContext(ctx, method, base+"/latest/api/token", body)
			if resp, err := http.DefaultClient.Do(r); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, %v", resp, err)
			}
			waitFor(t, "the handler ends", func() bool { return !s.Requests()[0].End.IsZero() })
			if st := s.Requests()[0].Status; st != 0 {
				t.Errorf("status %d of a request that was never answered", st)
			}
		})
	}
}

func TestStopEndsHangAndDelay(t *testing.T) {
	for name, f := range map[string]Fault{
		"hang":  {Match: "/latest/api/token", Hang: true},
		"delay": {Match: "/latest/api/token", Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(withFaults(f), WithLog(t.Logf))
			base, stop, err := s.Start("")
			if err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				_, err := putToken(context.Background(), base)
				answered <- err
			}()
			waitFor(t, "the request arrives", func() bool { return len(s.Requests()) == 1 })
			stop()
			if s.Requests()[0].End.IsZero() {
				t.Error("stop returned before the handler did")
			}
			if err := <-answered; err == nil {
				t.Error("answered")
			}
			stop() // a second time does nothing
		})
	}
}

func TestFaultsOfAPIs(t *testing.T) {
	ctx := context.Background()
	in := &eks.DescribeClusterInput{Name: aws.String("ironman-2022")}
	_, base := start(t, withFaults(
		Fault{Match: "eks:DescribeCluster", Status: 429, First: 1},
		Fault{Match: "eks:*", Status: 403, First: 1},
		Fault{Match: "eks:DescribeCluster", Status: 500, First: 1},
		Fault{Match: "eks:DescribeCluster", Status: 400, Code: "InvalidParameterException", First: 1},
		Fault{Match: "eks:DescribeCluster", Body: "<not json>", First: 1},
		Fault{Match: "ec2:DescribeInstances", Code: "InvalidInstanceID.NotFound", First: 1},
		Fault{Match: "ec2:*", Status: 503, First: 1},
		Fault{Match: "ec2:DescribeInstances", Status: 500, First: 1},
		Fault{Match: "ec2:DescribeInstances", Body: "{not xml}", First: 1},
	))
	eksc, ec2c := eksClient(base, "eu-west-1"), ec2Client(base, "eu-west-1")
	for _, want := range []struct {
		status int
		code   string
	}{{429, "ThrottlingException"}, {403, "AccessDeniedException"}, {500, "ServerException"}, {400, "InvalidParameterException"}} {
		_, err := eksc.DescribeCluster(ctx, in)
		wantAPIError(t, err, want.status, want.code)
		var server *ekstypes.ServerException
		if want.code == "ServerException" && !errors.As(err, &server) {
			t.Errorf("%v is no ServerException", err)
		}
	}
	if _, err := eksc.DescribeCluster(ctx, in); err == nil {
		t.Error("the SDK took garbage for a cluster")
	}
	if _, err := eksc.DescribeCluster(ctx, in); err != nil {
		t.Errorf("after the faults: %v", err)
	}
	for _, want := range []struct {
		status int
		code   string
	}{{400, "InvalidInstanceID.NotFound"}, {503, "RequestLimitExceeded"}, {500, "InternalError"}} {
		_, err := ec2c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
		wantAPIError(t, err, want.status, want.code)
	}
	if out, err := ec2c.DescribeInstances(ctx, nil); err == nil && len(out.Reservations) > 0 {
		t.Error("the SDK took garbage for an instance")
	}
	if _, err := ec2c.DescribeInstances(ctx, nil); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

func TestConcurrency(t *testing.T) {
	const clients = 16
	s, base := start(t, withFaults(Fault{Match: "/latest/api/token", Delay: 20 * time.Millisecond}), WithLog(func(string, ...any) {}))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range 5 {
				r, _ := http.NewRequest(http.MethodPut, base+"/latest/api/token", nil)
				r.Header.Set(headerTTL, "60")
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				s.Requests()
			}
		})
		wg.Go(func() {
			if _, err := eksClient(base, "eu-west-1").DescribeCluster(context.Background(), &eks.DescribeClusterInput{Name: aws.String("ironman-2022")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rs := s.Requests()
	if len(rs) != clients*6 {
		t.Errorf("%d requests noted, want %d", len(rs), clients*6)
	}
	conns := make(map[int]bool)
	for _, r := range rs {
		if r.Action == "" {
			conns[r.Conn] = true
		}
	}
	if m := s.MaxInFlight(); m < 2 || m > 2*clients {
		t.Errorf("%d in flight at most", m)
	}
	if len(conns) > clients {
		t.Errorf("%d connections for %d clients", len(conns), clients)
	}
}
