package activate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// manager is a systemd that does what it is told and notes it. It loads unit
// files only when it is told to, as the real one does.
type manager struct {
	mu      sync.Mutex
	units   map[string]systemd.State
	onDisk  map[string]systemd.State // what Reload makes of units that were not loaded
	fail    map[string]error         // by call, such as "start a.service"
	calls   []string
	changed func(unit string, n int, s *systemd.State) // what has become of a unit at its n-th State
	asked   map[string]int
}

func (m *manager) do(call string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
	return m.fail[call]
}

func (m *manager) Reload(context.Context) error {
	err := m.do("reload")
	for name, s := range m.onDisk {
		m.units[name] = s
	}
	for name, s := range m.units {
		s.NeedReload = false
		m.units[name] = s
	}
	return err
}

func (m *manager) Enable(_ context.Context, units ...string) error {
	for _, u := range units {
		m.set(u, func(s *systemd.State) { s.FileState = "enabled" })
	}
	return m.do("enable " + strings.Join(units, " "))
}

func (m *manager) ResetFailed(_ context.Context, unit string) error {
	m.set(unit, func(s *systemd.State) { s.Active = "inactive" })
	return m.do("reset-failed " + unit)
}

func (m *manager) Start(_ context.Context, unit string) error { return m.run("start ", unit) }

func (m *manager) Restart(_ context.Context, unit string) error { return m.run("restart ", unit) }

func (m *manager) run(verb, unit string) error {
	err := m.do(verb + unit)
	if err == nil {
		m.set(unit, func(s *systemd.State) { s.Active, s.Sub = "active", "running" })
	}
	return err
}

func (m *manager) set(unit string, change func(*systemd.State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.units[unit]
	change(&s)
	m.units[unit] = s
}

func (m *manager) State(_ context.Context, unit string) (systemd.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail["state "+unit]; err != nil {
		return systemd.State{}, err
	}
	s, ok := m.units[unit]
	if !ok {
		return systemd.State{Load: "not-found", Active: "inactive", Sub: "dead"}, nil
	}
	if m.changed != nil {
		if m.asked == nil {
			m.asked = map[string]int{}
		}
		m.asked[unit]++
		m.changed(unit, m.asked[unit], &s)
	}
	return s, nil
}

func state(active string) systemd.State {
	return systemd.State{Load: "loaded", Active: active, Sub: "x", FileState: "enabled"}
}

func TestStale(t *testing.T) {
	units := []plan.Unit{
		{Name: "sys-fs-bpf.mount", Files: []string{"/etc/bpf"}, StartOnly: true},
		{Name: "containerd.service", Files: []string{"/etc/containerd", "/etc/both"}},
		{Name: "kubelet.service", Files: []string{"/etc/kubelet", "/etc/both"}},
		{Name: "other.service"},
	}
	for _, test := range []struct {
		name             string
		changed, pending []string
		want             []string
	}{
		{"nothing", nil, nil, nil},
		{"a file of nobody's", []string{"/etc/nobody"}, nil, nil},
		{"one unit", []string{"/etc/kubelet"}, nil, []string{"kubelet.service"}},
		{"two, in the units' order", []string{"/etc/kubelet", "/etc/both"}, nil, []string{"containerd.service", "kubelet.service"}},
		{"only to be started", []string{"/etc/bpf"}, []string{"sys-fs-bpf.mount"}, nil},
		{"left by an earlier run", nil, []string{"kubelet.service"}, []string{"kubelet.service"}},
		{"left and changed", []string{"/etc/kubelet"}, []string{"kubelet.service"}, []string{"kubelet.service"}},
		{"left by an earlier run and not in the plan", nil, []string{"docker.service"}, nil},
	} {
		if diff := cmp.Diff(test.want, Stale(units, test.changed, test.pending)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestUnits(t *testing.T) {
	const unit = "kubelet.service"
	file := "/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf"
	disabled := state("inactive")
	disabled.FileState = "disabled"
	static := state("inactive")
	static.FileState = "static"
	outdated := state("active")
	outdated.NeedReload = true
	for _, test := range []struct {
		name           string
		state          systemd.State
		enabled        bool
		stale, changed []string
		calls          []string
		done           []Done
	}{
		{name: "runs", state: state("active"), enabled: true},
		{name: "not running", state: state("inactive"), calls: []string{"start kubelet.service"},
			done: []Done{{unit, "started", "it was inactive"}}},
		{name: "runs an older configuration", state: state("active"), stale: []string{unit}, changed: []string{"/etc/kubernetes/x", file, "/etc/other"},
			calls: []string{"reload", "restart kubelet.service"},
			done:  []Done{{unit, "restarted", "its configuration changed: " + file + ", /etc/kubernetes/x"}}},
		{name: "no unit file among the changes", state: state("active"), stale: []string{unit}, changed: []string{"/etc/kubernetes/x"},
			calls: []string{"restart kubelet.service"},
			done:  []Done{{unit, "restarted", "its configuration changed: /etc/kubernetes/x"}}},
		{name: "files changed that are nobody's", state: state("active"), changed: []string{"/etc/other"}},
		{name: "stale since an earlier run", state: state("active"), stale: []string{unit}, calls: []string{"restart kubelet.service"},
			done: []Done{{unit, "restarted", "its configuration changed: an earlier run was interrupted"}}},
		{name: "stale and not running", state: state("inactive"), stale: []string{unit}, changed: []string{"/etc/kubernetes/x"},
			calls: []string{"restart kubelet.service"},
			done:  []Done{{unit, "started", "its configuration changed: /etc/kubernetes/x"}}},
		{name: "failed", state: state("failed"), calls: []string{"reset-failed kubelet.service", "start kubelet.service"},
			done: []Done{{unit, "started", "it was failed"}}},
		{name: "failed and stale", state: state("failed"), stale: []string{unit}, changed: []string{"/etc/kubernetes/x"},
			calls: []string{"reset-failed kubelet.service", "restart kubelet.service"},
			done:  []Done{{unit, "started", "its configuration changed: /etc/kubernetes/x"}}},
		{name: "disabled", state: disabled, enabled: true, calls: []string{"enable kubelet.service", "start kubelet.service"},
			done: []Done{{unit, "enabled", "it has to start at boot"}, {unit, "started", "it was inactive"}}},
		{name: "disabled, and so it shall be", state: disabled, calls: []string{"start kubelet.service"},
			done: []Done{{unit, "started", "it was inactive"}}},
		{name: "cannot be enabled", state: static, enabled: true, calls: []string{"start kubelet.service"},
			done: []Done{{unit, "started", "it was inactive"}}},
		{name: "changed since systemd read it", state: outdated, calls: []string{"reload"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &manager{units: map[string]systemd.State{unit: test.state}}
			units := []plan.Unit{{Name: unit, Enabled: test.enabled, Files: []string{file, "/etc/kubernetes/x"}}}
			done, err := Units(t.Context(), m, units, test.stale, test.changed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.calls, m.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.done, done); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}

			// Once more, with nothing changed, is nothing at all.
			m.calls = nil
			if done, err := Units(t.Context(), m, units, nil, nil); err != nil || len(done) != 0 || len(m.calls) != 0 {
				t.Errorf("the second time: %v, %v, calls %q", done, err, m.calls)
			}
		})
	}
}

// One reload is enough for all, and the units come up in the plan's order.
func TestUnitsInOrder(t *testing.T) {
	outdated := state("inactive")
	outdated.NeedReload = true
	m := &manager{
		units:  map[string]systemd.State{"b.service": state("active"), "c.service": outdated},
		onDisk: map[string]systemd.State{"a.mount": state("inactive")},
	}
	units := []plan.Unit{{Name: "a.mount", StartOnly: true}, {Name: "c.service"}, {Name: "b.service", Files: []string{"/etc/b"}}}
	done, err := Units(t.Context(), m, units, []string{"b.service"}, []string{"/etc/systemd/system/a.mount", "/etc/b"})
	if err != nil || len(done) != 3 {
		t.Errorf("%v, %v", done, err)
	}
	if diff := cmp.Diff([]string{"reload", "start a.mount", "start c.service", "restart b.service"}, m.calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnitsEnd(t *testing.T) {
	const unit = "kubelet.service"
	broken := errors.New("broken")
	load := func(s string) *systemd.State { return &systemd.State{Load: s, Active: "inactive"} }
	inactive := state("inactive")
	disabled, failed := inactive, state("failed")
	disabled.FileState = "disabled"
	failed.Result, failed.ExitStatus = "exit-code", 203
	for _, test := range []struct {
		name         string
		state        *systemd.State // nil means that systemd does not know the unit
		fail         string
		says, remedy string
	}{
		{"not there", nil, "", "kubelet.service does not exist", "install"},
		{"masked", load("masked"), "", "kubelet.service is masked", "systemctl unmask kubelet.service"},
		{"bad setting", load("bad-setting"), "", "bad-setting", "systemd-analyze verify kubelet.service"},
		{"error", load("error"), "", "error", "systemd-analyze verify kubelet.service"},
		{"no state", &inactive, "state kubelet.service", "broken", ""},
		{"no enable", &disabled, "enable kubelet.service", "broken", ""},
		{"no reset", &failed, "reset-failed kubelet.service", "broken", ""},
		{"no start", &inactive, "start kubelet.service", "broken\n  state inactive", "journalctl -u kubelet.service"},
		{"no reload", &systemd.State{Load: "loaded", Active: "active", NeedReload: true}, "reload", "broken", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &manager{units: map[string]systemd.State{"first.service": state("inactive")}, fail: map[string]error{test.fail: broken}}
			if test.state != nil {
				m.units[unit] = *test.state
			}
			done, err := Units(t.Context(), m, []plan.Unit{{Name: "first.service"}, {Name: unit, Enabled: true}, {Name: "never.service"}}, nil, nil)
			if err == nil || fault.CodeOf(err) != fault.Service || !strings.Contains(err.Error(), test.says) || !strings.Contains(fault.Remedy(err), test.remedy) {
				t.Errorf("class %d: %v, remedy %q", fault.CodeOf(err), err, fault.Remedy(err))
			}
			if test.fail != "" && !errors.Is(err, broken) {
				t.Errorf("%v hides its cause", err)
			}
			if test.fail != "reload" && !strings.HasPrefix(test.fail, "state") && (len(done) == 0 || done[0].Unit != "first.service") {
				t.Errorf("done: %v", done)
			}
			for _, call := range m.calls {
				if strings.Contains(call, "never.service") {
					t.Errorf("%s after the end", call)
				}
			}
		})
	}
}

func running(pid, restarts uint32) systemd.State {
	return systemd.State{Load: "loaded", Active: "active", Sub: "running", MainPID: pid, Restarts: restarts, ActiveFor: time.Hour}
}

// healthz answers 200 from the n-th request on.
func healthz(t *testing.T, n int32) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < n {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/healthz", asked
}

func silent(string) {}

func TestHealthy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url, asked := healthz(t, 3)
	m := &manager{units: map[string]systemd.State{"kubelet.service": running(100, 0)}}
	m.changed = func(_ string, n int, s *systemd.State) {
		if n < 3 {
			s.Active, s.Sub = "activating", "start"
		}
	}
	if err := Healthy(ctx, m, "kubelet.service", url, silent); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 3 || m.asked["kubelet.service"] != 5 {
		t.Errorf("asked %d times for health and %d times for the state", n, m.asked["kubelet.service"])
	}
	if len(m.calls) != 0 {
		t.Errorf("it did %q", m.calls)
	}
}

// The deadline comes while the endpoint does not answer as it should.
func TestHealthyDeadline(t *testing.T) {
	url, _ := healthz(t, 1<<30)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, test := range map[string]struct{ url, says string }{
		"unwell":         {url, "500 Internal Server Error"},
		"does not serve": {gone.URL + "/healthz", "/healthz: no answer yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
			defer cancel()
			m := &manager{units: map[string]systemd.State{"nodeadm-test.service": running(100, 0)}}
			err := Healthy(ctx, m, "nodeadm-test.service", test.url, silent)
			if fault.CodeOf(err) != fault.Service || !strings.Contains(err.Error(), "did not become healthy within") || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(fault.Remedy(err), "journalctl -u nodeadm-test.service") {
				t.Errorf("remedy %q", fault.Remedy(err))
			}
		})
	}
}

// The rest is about time, and goes by a clock of its own.
func TestHealthyInTime(t *testing.T) {
	const unit = "nodeadm-test.service"
	for _, test := range []struct {
		name     string
		state    systemd.State
		changed  func(unit string, n int, s *systemd.State)
		fail     error
		fresh    bool
		least    time.Duration
		most     time.Duration
		says     []string // empty means that it becomes healthy
		reported bool
	}{
		{name: "has run for long", state: running(100, 7), most: 0},
		{name: "just started", state: running(100, 0), fresh: true, least: settle, most: settle + pollInterval},
		{name: "another process after a second", state: running(100, 0), fresh: true,
			changed: func(_ string, n int, s *systemd.State) {
				if n > 10 {
					s.MainPID, s.Restarts = 200, 1
				}
			}, least: settle + 10*pollInterval, most: settle + 12*pollInterval},
		{name: "failed", state: systemd.State{Load: "loaded", Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 1, Restarts: 5},
			says: []string{unit + " failed", "state failed (failed), result exit-code, exit status 1, 5 restarts"}},
		{name: "fails later", state: running(100, 0), fresh: true,
			changed: func(_ string, n int, s *systemd.State) {
				if n > 5 {
					s.Active = "failed"
				}
			}, least: 5 * pollInterval, most: 6 * pollInterval, says: []string{unit + " failed"}},
		{name: "ends again and again", state: running(100, 4), fresh: true,
			changed: func(_ string, n int, s *systemd.State) {
				s.Restarts += uint32(n / 10)
				s.MainPID += uint32(n / 10)
				if n%10 > 3 {
					s.Active, s.Sub = "activating", "auto-restart"
				}
			}, least: 29 * pollInterval, most: 31 * pollInterval, says: []string{"has ended 3 times"}},
		{name: "restarted twice, then well", state: running(100, 0), fresh: true,
			changed: func(_ string, n int, s *systemd.State) {
				s.Restarts = uint32(min(n/10, 2))
				s.MainPID += s.Restarts
			}, least: 19*pollInterval + settle, most: 21*pollInterval + settle},
		{name: "never active", state: systemd.State{Load: "loaded", Active: "activating", Sub: "start-pre"},
			least: time.Minute, most: time.Minute + pollInterval, says: []string{"within 1m0s", "is activating (start-pre)"}, reported: true},
		{name: "stopped by somebody", state: systemd.State{Load: "loaded", Active: "inactive", Sub: "dead"},
			least: time.Minute, most: time.Minute + pollInterval, says: []string{"is inactive (dead)"}, reported: true},
		{name: "systemd does not answer", state: running(100, 0), fail: errors.New("broken bus"), says: []string{"broken bus"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				since, pid, age := time.Now(), test.state.MainPID, time.Hour
				if test.fresh {
					age = 0
				}
				m := &manager{units: map[string]systemd.State{unit: test.state}, changed: func(unit string, n int, s *systemd.State) {
					if test.changed != nil {
						test.changed(unit, n, s)
					}
					if s.MainPID != pid {
						since, pid, age = time.Now(), s.MainPID, 0
					}
					if s.Active == "active" {
						s.ActiveFor = age + time.Since(since)
					}
				}}
				if test.fail != nil {
					m.fail = map[string]error{"state " + unit: test.fail}
				}
				var reports []string
				start := time.Now()
				err := Healthy(ctx, m, unit, "", func(s string) {
					reports = append(reports, fmt.Sprintf("%s %s", time.Since(start), s))
				})
				took := time.Since(start)
				if took < test.least || took > max(test.most, test.least) {
					t.Errorf("it took %s, want %s to %s", took, test.least, test.most)
				}
				if len(test.says) == 0 && err != nil {
					t.Errorf("got %v", err)
				}
				for _, words := range test.says {
					if err == nil || !strings.Contains(err.Error(), words) || fault.CodeOf(err) != fault.Service {
						t.Errorf("%v does not say %q", err, words)
					}
				}
				if test.reported != (len(reports) > 0) || len(reports) > 12 {
					t.Errorf("reported %q", reports)
				}
			})
		})
	}
}

// A signal ends it as the deadline does.
func TestHealthyCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		m := &manager{units: map[string]systemd.State{"nodeadm-test.service": {Load: "loaded", Active: "activating"}}}
		start := time.Now()
		err := Healthy(ctx, m, "nodeadm-test.service", "", silent)
		if took := time.Since(start); err == nil || took > 3*time.Second+pollInterval {
			t.Errorf("%v after %s", err, took)
		}
	})
}
