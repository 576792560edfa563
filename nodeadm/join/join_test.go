package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/kubeapi"
)

const (
	name   = "ip-10-0-0-1.eu-west-1.compute.internal"
	bootID = "11111111-2222-3333-4444-555555555555"
	role   = "arn:aws:iam::111111111111:role/Node"
)

// api answers questions for the node one after the other, the last one for
// ever, and says who asks.
type api struct {
	answers []any // errors, or objects
	user    string
	groups  []string
	asked   int
	reviews int
	// lease is an error or when it was renewed; nil: just now.
	lease any
}

func (a *api) Get(_ context.Context, path string, into any) error {
	if path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name {
		if err, failed := a.lease.(error); failed {
			return err
		}
		renewed, given := a.lease.(time.Time)
		if !given {
			renewed = time.Now()
		}
		data, _ := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": renewed, "leaseDurationSeconds": 40}})
		return json.Unmarshal(data, into)
	}
	if want := "/api/v1/nodes/"; !strings.HasPrefix(path, want) {
		return errors.New("asked for " + path)
	}
	answer := a.answers[min(a.asked, len(a.answers)-1)]
	a.asked++
	if err, failed := answer.(error); failed {
		return err
	}
	data, _ := json.Marshal(answer)
	return json.Unmarshal(data, into)
}

func (a *api) Post(_ context.Context, path string, _, into any) error {
	a.reviews++
	if a.user == "" {
		return &kubeapi.Error{Where: kubeapi.Status, Code: 404, Err: errors.New("no such resource")}
	}
	data, _ := json.Marshal(map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": a.user, "groups": a.groups}}})
	return json.Unmarshal(data, into)
}

func object(boot, ready string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec":     map[string]any{"providerID": "aws:///eu-west-1a/i-0123"},
		"status": map[string]any{"nodeInfo": map[string]any{"bootID": boot}, "capacity": map[string]any{"pods": "29", "cpu": "2"},
			"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": "KubeletNotReady", "message": "cni plugin not initialized"}}},
	}
}

// of is a Node object of another instance, or of none that is known yet.
func of(providerID string) map[string]any {
	o := object("other", "True")
	o["spec"] = map[string]any{"providerID": providerID}
	return o
}

func at(where kubeapi.Where, err string) error {
	return &kubeapi.Error{Where: where, Err: errors.New(err)}
}

func status(code int, message string) error {
	return &kubeapi.Error{Where: kubeapi.Status, Code: code, Message: message, Err: errors.New(message)}
}

// dated is a 401 of an API server whose clock is off by so much from ours.
func dated(off time.Duration) error {
	return &kubeapi.Error{Where: kubeapi.Status, Code: 401, Date: time.Now().Add(off), Err: errors.New("Unauthorized")}
}

// varied is one obstacle in words that are others each time.
type varied struct{ *api }

func (v varied) Get(ctx context.Context, path string, into any) error {
	if err := v.api.Get(ctx, path, into); err != nil {
		return at(kubeapi.Broken, fmt.Sprintf("read tcp 127.0.0.1:%d: connection reset by peer", v.asked))
	}
	return nil
}

// hasten makes the waits of a test short.
func hasten(t *testing.T) {
	old := []time.Duration{interval, longInterval, patience, reportEvery, userEvery, certain}
	t.Cleanup(func() {
		interval, longInterval, patience, reportEvery, userEvery, certain = old[0], old[1], old[2], old[3], old[4], old[5]
	})
	interval, longInterval, patience, reportEvery, userEvery, certain = time.Millisecond, 2*time.Millisecond, time.Second, time.Hour, time.Hour, 20*time.Millisecond
}

func options(a API) (Options, *[]string) {
	var reports []string
	return Options{
		Node: name, Instance: "i-0123", BootID: bootID, Cluster: "c", Region: "eu-west-1", Endpoint: "https://api.example", API: a,
		Role:      func(context.Context) string { return role },
		LastWords: func(context.Context) []string { return []string{"I0101 fine", "E0101 Unable to register node"} },
		Report:    func(m string) { reports = append(reports, m) },
	}, &reports
}

func TestJoined(t *testing.T) {
	hasten(t)
	nodes := []string{"system:nodes"}
	for _, test := range []struct {
		name    string
		answers []any
		reports int
	}{
		{"at once", []any{object(bootID, "True")}, 0},
		{"kubelet takes its time", []any{status(404, "not found"), status(404, "not found"), object(bootID, "False")}, 1},
		{"what stood in the way goes", []any{at(kubeapi.Name, "no such host"), at(kubeapi.Refused, "refused"), status(401, "Unauthorized"), object(bootID, "True")}, 3},
		{"an earlier life", []any{object("other", "True"), object(bootID, "True")}, 1},
		{"a certificate that is replaced soon", []any{at(kubeapi.UnknownCA, "unknown"), object(bootID, "True")}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, reports := options(&api{answers: test.answers, user: "system:node:" + name, groups: nodes})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			node, err := Wait(ctx, o)
			if err != nil || node.Name != name || len(*reports) != test.reports {
				t.Errorf("%+v, %v, reports %q", node, err, *reports)
			}
			if node.ProviderID != "aws:///eu-west-1a/i-0123" || node.Pods != "29" || !strings.HasPrefix(node.String(), "joined as "+name+" after ") {
				t.Errorf("%s: %+v", node, node)
			}
			if node.Ready == "False" && !strings.Contains(node.String(), "cni plugin not initialized") {
				t.Errorf("%s", node)
			}
		})
	}
}

func TestNotJoined(t *testing.T) {
	hasten(t)
	nodes := []string{"system:bootstrappers", "system:nodes"}
	for _, test := range []struct {
		name          string
		answer        any
		user          string
		groups        []string
		change        func(*Options)
		cause, remedy string
	}{
		{"unknown CA", at(kubeapi.UnknownCA, "x"), "", nil, nil, "is not signed by the certificate authority that this node was given", "--query cluster.certificateAuthority.data"},
		{"other host", at(kubeapi.OtherHost, "for a, not b"), "", nil, nil, "is for another name: for a, not b", "--query cluster.endpoint"},
		{"expired", at(kubeapi.Expired, "expired"), "", nil, nil, "by this machine's clock", "set the clock"},
		{"no such name", at(kubeapi.Name, "no such host"), "", nil, nil, "name api.example does not exist", "enableDnsSupport"},
		{"no resolver", at(kubeapi.Resolver, "timeout"), "", nil, nil, "no name server answers", "/etc/resolv.conf"},
		{"refused", at(kubeapi.Refused, "x"), "", nil, nil, "api.example:443 are refused", "endpoint"},
		{"silent", at(kubeapi.Timeout, "x"), "", nil, nil, "api.example:443 does not answer", "security groups"},
		{"silence", at(kubeapi.Silent, "no answer to the first message of TLS"), "", nil, nil, "takes connections, and says nothing after that: no answer to the first message of TLS", "ICMP type 3 code 4"},
		{"no route", at(kubeapi.Unreachable, "x"), "", nil, nil, "no route", "ip route"},
		{"proxy", at(kubeapi.Proxy, "407"), "", nil, nil, "the proxy does not lead to", "NO_PROXY"},
		{"plain", at(kubeapi.NotTLS, "x"), "", nil, nil, "does not speak TLS", "endpoint"},
		{"a page", at(kubeapi.NotAPI, "404"), "", nil, nil, "no Kubernetes API server", "endpoint"},
		{"broken", at(kubeapi.Broken, "EOF"), "", nil, nil, "broke: EOF", "firewalls"},
		{"500", status(503, "etcd is away"), "", nil, nil, "503: etcd is away", "control plane"},
		{"401", status(401, "Unauthorized"), "", nil, nil, "the cluster c does not know the role " + role, "aws eks create-access-entry --cluster-name c --principal-arn " + role + " --type EC2_LINUX --region eu-west-1"},
		{"401 by instance id", status(401, "Unauthorized"), "", nil, func(o *Options) { o.Node = o.Instance }, "401", "--type EC2 "},
		{"401 of unknown credentials", status(401, "Unauthorized"), "", nil, func(o *Options) { o.Role = func(context.Context) string { return "" } }, "knows nobody", "AWS_ACCESS_KEY_ID"},
		{"403 of another name", status(403, "no"), "system:node:i-0123", nodes, nil, "takes this instance for system:node:i-0123, and kubelet registers as " + name, "{{EC2PrivateDNSName}}"},
		{"403 of a name that was chosen", status(403, "no"), "system:node:i-0123", nodes, func(o *Options) { o.Named = true }, "system:node:i-0123", "--hostname-override"},
		{"403 of an old API server", status(403, `nodes "x" is forbidden: User "system:node:y" cannot get`), "", nil, nil, "system:node:y", "EC2_LINUX"},
		{"403 of somebody", status(403, "no"), "admin", nodes, nil, "takes this instance for admin, which is no node", "{{EC2PrivateDNSName}}"},
		{"403 without a group", status(403, "no"), "system:node:" + name, []string{"system:authenticated"}, nil, "not in the group system:nodes", "system:bootstrappers"},
		{"403 of something else", status(403, "a webhook says no"), "system:node:" + name, nodes, nil, "403: a webhook says no", "Node authorizer"},
		{"404 of another name", status(404, "no"), "system:node:y", nodes, nil, "takes this instance for system:node:y", "EC2_LINUX"},
		{"404", status(404, "no"), "system:node:" + name, nodes, nil, "has not registered the node " + name + " yet\n  kubelet's last words:\n    E0101 Unable to register node", "journalctl -u kubelet.service"},
		{"404 of an old API server", status(404, "no"), "", nil, nil, "has not registered the node " + name + " yet, and the API server does not tell whom", "journalctl -u kubelet.service"},
		{"401 and the clock is right", dated(-time.Minute), "", nil, nil, "does not know the role " + role, "create-access-entry"},
		{"401 and the clock is behind", dated(20 * time.Minute), "", nil, nil, "this machine's clock is behind the API server's by ", "set the clock"},
		{"401 and the clock is ahead", dated(-20 * time.Minute), "", nil, nil, "this machine's clock is ahead of the API server's by ", "does not know the role " + role},
		{"an earlier life", object("other", "True"), "", nil, nil, "is of an earlier boot (created 2026-01-02T03:04:05Z), and kubelet has not renewed it\n  kubelet's last words:", "journalctl -u kubelet.service"},
		{"an earlier life of somebody", of(""), "", nil, nil, "of an earlier boot, or of another instance (created 2026-01-02T03:04:05Z", "journalctl -u kubelet.service"},
		{"another instance", of("aws:///eu-west-1a/i-0old"), "", nil, nil, `is of another instance, i-0old (providerID "aws:///eu-west-1a/i-0old", created 2026-01-02T03:04:05Z)`, "kubectl delete node " + name},
		{"another instance of a name that was chosen", of("aws:///eu-west-1a/i-0old"), "", nil, func(o *Options) { o.Named = true }, "is of another instance, i-0old", "leave --hostname-override out"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, _ := options(&api{answers: []any{test.answer}, user: test.user, groups: test.groups})
			if test.change != nil {
				test.change(&o)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := Wait(ctx, o)
			if fault.CodeOf(err) != fault.NotJoined || !strings.Contains(err.Error(), test.cause) || !strings.Contains(fault.Remedy(err), test.remedy) {
				t.Errorf("code %d\n%v\nfix: %s\nwant %q, %q", fault.CodeOf(err), err, fault.Remedy(err), test.cause, test.remedy)
			}
		})
	}
}

// A token that AWS is to blame for keeps AWS's exit code and remedy.
func TestNoToken(t *testing.T) {
	hasten(t)
	cause := fault.New(fault.AWS, "attach a role", "no role")
	o, _ := options(&api{answers: []any{&kubeapi.Error{Where: kubeapi.Token, Err: cause}}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Wait(ctx, o); fault.CodeOf(err) != fault.AWS || fault.Remedy(err) != "attach a role" {
		t.Errorf("%v", err)
	}
}

// No waiting mends a certificate of another authority.
func TestEndsEarly(t *testing.T) {
	hasten(t)
	o, _ := options(&api{answers: []any{at(kubeapi.UnknownCA, "x")}})
	start := time.Now()
	if _, err := Wait(context.Background(), o); fault.CodeOf(err) != fault.NotJoined || time.Since(start) < certain {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// One obstacle is told once, whatever words it comes in, and the API server is
// not asked each time whom it takes the node for.
func TestTellsOnce(t *testing.T) {
	hasten(t)
	for name, answer := range map[string]func(*api) API{
		"varied": func(a *api) API { return varied{a} },
		"plain":  func(a *api) API { return a },
	} {
		a := &api{answers: []any{status(404, "no")}, user: "system:node:y", groups: []string{"system:nodes"}}
		o, reports := options(answer(a))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		_, err := Wait(ctx, o)
		cancel()
		if err == nil || len(*reports) != 1 || a.asked < 3 || a.reviews > 1 {
			t.Errorf("%s: %v, asked %d times and %d times for the user, reports %q", name, err, a.asked, a.reviews, *reports)
		}
	}
}

// A signal ends the wait, and is no obstacle.
func TestCancelled(t *testing.T) {
	hasten(t)
	interval = time.Hour
	o, _ := options(&api{answers: []any{status(404, "no")}})
	o.LastWords = func(context.Context) []string {
		t.Error("kubelet is asked what it says")
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	start := time.Now()
	if _, err := Wait(ctx, o); !errors.Is(err, context.Canceled) || fault.CodeOf(err) == fault.NotJoined || time.Since(start) > time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// Where nothing could be asked any more, nothing is known either.
func TestNoTimeLeft(t *testing.T) {
	o, _ := options(&api{answers: []any{object(bootID, "True")}})
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	if _, err := Wait(ctx, o); fault.CodeOf(err) != fault.NotJoined || !strings.Contains(fault.Remedy(err), "--timeout") {
		t.Errorf("%v", err)
	}
}

// The answer that the end of the wait cuts off is not what was in the way.
func TestDeadline(t *testing.T) {
	hasten(t)
	a := &api{answers: []any{status(401, "Unauthorized")}}
	o, _ := options(a)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	o.API = cutOff{a}
	start := time.Now()
	if _, err := Wait(ctx, o); !strings.Contains(err.Error(), "401") || time.Since(start) > time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// cutOff answers once, and then not before the end.
type cutOff struct{ *api }

func (c cutOff) Get(ctx context.Context, path string, into any) error {
	if c.asked == 0 {
		return c.api.Get(ctx, path, into)
	}
	<-ctx.Done()
	return &kubeapi.Error{Where: kubeapi.Timeout, Err: ctx.Err()}
}

// TestSilentKubelet: a Node object of this boot is no proof that the kubelet
// which runs now can tell the API server anything.
func TestSilentKubelet(t *testing.T) {
	interval, userEvery = time.Millisecond, time.Millisecond
	started := time.Now().Add(-time.Minute)
	second := time.Now().Add(-10 * time.Second).Truncate(time.Second) // in which kubelet wrote the Node object
	for _, test := range []struct {
		name    string
		lease   any
		started time.Time
		says    string // "" if it has joined
	}{
		{"renewed since it was started", time.Now(), started, ""},
		{"renewed, and nobody knows since when it runs", time.Now(), time.Time{}, ""},
		{"renewed by the kubelet before", started.Add(-time.Second), started, "has not heard from the kubelet that was started at"},
		{"never renewed", status(404, "no such lease"), started, "was last renewed never"},
		{"renewed once, long ago", time.Now().Add(-41 * time.Second), started, "hears no more from kubelet"},
		{"no lease yet, and a Node object that is new", status(404, "no such lease"), second.Add(-time.Second), ""},
		{"no lease yet, and a Node object of the second of the start", status(404, "no such lease"), second.Add(time.Second / 2), ""},
		{"no lease yet, and a Node object of before", status(404, "no such lease"), second.Add(time.Second), "was last renewed never"},
		{"a Node object of the second of the start, and a lease of before", second.Add(-time.Second), second.Add(time.Second / 2), "has not heard from the kubelet that was started at"},
		{"a Node object of the second of the start, and a lease since", second.Add(time.Second), second.Add(time.Second / 2), ""},
		{"a Node object since, and a lease of before", second.Add(-2 * time.Second), second.Add(-time.Second / 2), ""},
		{"leases are nobody's to read", status(403, "no"), started, ""},
		{"nobody answers any more", at(kubeapi.Refused, "connection refused"), started, "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := object(bootID, "True")
			if test.started.After(started) {
				ready := node["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
				ready["lastHeartbeatTime"] = second.UTC().Format(time.RFC3339)
			}
			server := &api{answers: []any{node}, user: "system:node:" + name, groups: []string{"system:nodes"}, lease: test.lease}
			_, found := (&watch{Options: Options{Node: name, BootID: bootID, Endpoint: "https://api.example", API: server,
				Started: func(context.Context) time.Time { return test.started }}}).look(t.Context())
			if (found == nil) != (test.says == "") || found != nil && !strings.Contains(found.String(), test.says) {
				t.Errorf("%v, want %q", found, test.says)
			}
		})
	}
}
