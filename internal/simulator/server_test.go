package simulator

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestStartRefuses(t *testing.T) {
	if _, _, err := New(World{}).Start(""); err == nil || !strings.Contains(err.Error(), "instance.type") {
		t.Errorf("an invalid world: %v", err)
	}
	if _, _, err := New(Default()).Start("256.0.0.1:0"); err == nil {
		t.Error("listens on an address that does not exist")
	}
}

func TestStartEverywhereIsReachable(t *testing.T) {
	s := New(Default())
	base, stop, err := s.Start(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	resp, err := http.Get(base + "/latest/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestBodyIsBounded(t *testing.T) {
	_, base := start(t, Default())
	resp, err := http.Post(base+"/", "application/x-www-form-urlencoded", strings.NewReader(strings.Repeat("x", maxBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	s := New(Default())
	for i := range maxRecords + 1 {
		ask(s, http.MethodGet, fmt.Sprintf("/%d", i))
	}
	rs := s.Requests()
	if len(rs) > maxRecords || rs[len(rs)-1].Path != fmt.Sprintf("/%d", maxRecords) {
		t.Errorf("%d records, the last of %s", len(rs), rs[len(rs)-1].Path)
	}
}

func TestLogTellsNoSecrets(t *testing.T) {
	var log strings.Builder
	s := New(Default(), WithLog(func(format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) }))
	tok := token(t, s)
	for _, path := range []string{"/latest/user-data", "/latest/meta-data/iam/security-credentials/NodeInstanceRole"} {
		if rec := ask(s, http.MethodGet, path, headerToken, tok); rec.Code != 200 {
			t.Fatalf("%s: %d", path, rec.Code)
		}
	}
	for _, secret := range []string{tok, "simulated-s", "bootstrap.sh"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, log.String())
		}
	}
	if strings.Count(log.String(), "\n") != 3 || !strings.Contains(log.String(), `PUT "/latest/api/token" 200 OK in `) {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	base, stop, err := New(Default(), WithTLS(certified.TLS.Certificates[0])).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	resp, err := certified.Client().Get(base + "/latest/meta-data/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !strings.HasPrefix(base, "https://") || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s: %s", base, resp.Status)
	}
}
