package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/test/machine"
)

// Where the control plane is, as seen from nodes.
const (
	Host    = "0123456789ABCDEF0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com"
	Address = "192.168.0.10"
	// Version is that of kube-apiserver.
	Version = "1.36.3"
	// Role is the one of every node.
	Role = "NodeInstanceRole"
)

// Endpoint is the URL of the API server.
const Endpoint = "https://" + Host

// ControlPlane is a machine with what EKS runs for a cluster.
type ControlPlane struct {
	*machine.Machine
	World simulator.World
	// CA is the cluster's certificate authority, PEM.
	CA string

	t         testing.TB
	client    *http.Client
	authority *authority // that signs its certificates
}

// kubernetes are the versions that are built, by minor.
var kubernetes = map[string]string{"1.33": "1.33.13", "1.36": Version}

// Build builds a program of Kubernetes of a minor version; see kubernetes/add.sh.
func Build(t testing.TB, minor, command string) string {
	t.Helper()
	version, known := kubernetes[minor]
	if !known {
		t.Fatalf("no Kubernetes %s", minor)
	}
	const pkg = "k8s.io/component-base/version."
	return machine.BuildPinned(t, "test/cluster/kubernetes/"+minor, "k8s.io/kubernetes/cmd/"+command,
		fmt.Sprintf("-X %sgitVersion=v%s -X %sgitMajor=1 -X %sgitMinor=%s", pkg, version, pkg, pkg, strings.TrimPrefix(minor, "1.")))
}

func unit(description, after string, exec ...string) machine.File {
	return machine.File{Content: "[Unit]\nDescription=" + description + "\nAfter=" + after +
		"\nStartLimitIntervalSec=0\n\n[Service]\nEnvironment=AWS_REGION=eu-west-1 AWS_ACCESS_KEY_ID=simulated AWS_SECRET_ACCESS_KEY=simulated SSL_CERT_FILE=/etc/cluster/ca.crt\n" +
		"ExecStart=" + strings.Join(exec, " ") + "\nRestart=always\nRestartSec=200ms\n"}
}

// StartControlPlane boots a control plane and waits until it answers.
func StartControlPlane(t testing.TB) *ControlPlane {
	t.Helper()
	machine.Require(t)
	ca := newAuthority(t)
	server, admin := ca.server(Host, Address), ca.client("admin", "system:masters")
	aws, signing := ca.server("sts.eu-west-1.amazonaws.com", "ec2.eu-west-1.amazonaws.com"), ca.client("service-accounts", "")

	world := simulator.Default()
	world.UserData = ""
	world.Cluster.Endpoint, world.Cluster.CertificateAuthority, world.Cluster.Version = Endpoint, base64Of(ca.PEM), "1.36"
	document, err := world.Document()
	if err != nil {
		t.Fatal(err)
	}
	const etc = "/etc/cluster/"
	files := map[string]machine.File{
		"/usr/bin/kube-apiserver":        {Source: Build(t, "1.36", "kube-apiserver")},
		"/usr/bin/aws-iam-authenticator": {Source: machine.BuildPinned(t, "test/authenticator", "sigs.k8s.io/aws-iam-authenticator/cmd/aws-iam-authenticator", "")},
		"/usr/bin/nodeadm":               {Source: machine.BuildNodeadm(t)},
		"/etc/hosts":                     {Content: "127.0.0.1 localhost\n127.0.0.1 sts.eu-west-1.amazonaws.com ec2.eu-west-1.amazonaws.com\n"},
		etc + "ca.crt":                   {Content: ca.PEM},
		etc + "server.crt":               {Content: server.cert},
		etc + "server.key":               {Content: server.key, Mode: 0o600},
		etc + "aws.crt":                  {Content: aws.cert},
		etc + "aws.key":                  {Content: aws.key, Mode: 0o600},
		etc + "signing.crt":              {Content: signing.cert},
		etc + "signing.key":              {Content: signing.key, Mode: 0o600},
		etc + "admin.crt":                {Content: admin.cert},
		etc + "admin.key":                {Content: admin.key, Mode: 0o600},
		etc + "world.yaml":               {Content: string(document)},
		etc + "admin.conf": {Content: `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://` + Address + `", certificate-authority: /etc/cluster/ca.crt}}]
users: [{name: u, user: {client-certificate: /etc/cluster/admin.crt, client-key: /etc/cluster/admin.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, Mode: 0o600},
		"/etc/systemd/system/vpc.service": {Content: `[Unit]
DefaultDependencies=no
Before=network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
ExecStart=sh -euc 'ip link set lo up; ip link add vpc type bridge; ip address add ` + Address + `/16 dev vpc; ip link set vpc up'
RemainAfterExit=yes
`},
		"/etc/systemd/system/aws.service": unit("Simulated STS and EC2", "vpc.service",
			"/usr/bin/nodeadm simulate serve -v --listen 127.0.0.1:443 --tls-cert /etc/cluster/aws.crt --tls-key /etc/cluster/aws.key /etc/cluster/world.yaml"),
		"/etc/systemd/system/etcd-cluster.service": unit("etcd", "vpc.service",
			"/usr/bin/etcd --data-dir /var/lib/etcd-cluster --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380"),
		"/etc/systemd/system/authenticator.service": unit("aws-iam-authenticator", "kube-apiserver.service",
			"/usr/bin/aws-iam-authenticator server --cluster-id "+world.Cluster.Name, "--kubeconfig-pregenerated=true --state-dir /var/lib/authenticator",
			"--generate-kubeconfig /var/lib/authenticator/webhook.conf --backend-mode EKSConfigMap --kubeconfig /etc/cluster/admin.conf"),
		"/etc/systemd/system/kube-apiserver.service": unit("kube-apiserver", "etcd-cluster.service",
			"/usr/bin/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address="+Address+" --secure-port=443 --advertise-address="+Address,
			"--tls-cert-file=/etc/cluster/server.crt --tls-private-key-file=/etc/cluster/server.key --client-ca-file=/etc/cluster/ca.crt",
			"--service-cluster-ip-range=10.100.0.0/16 --service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=/etc/cluster/signing.key --service-account-signing-key-file=/etc/cluster/signing.key",
			"--watch-cache=false --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true",
			"--authentication-token-webhook-config-file=/var/lib/authenticator/webhook.conf --authentication-token-webhook-cache-ttl=1s"),
	}
	for _, name := range []string{"vpc", "aws", "etcd-cluster", "authenticator", "kube-apiserver"} {
		files["/etc/systemd/system/multi-user.target.wants/"+name+".service"] = machine.File{Link: "../" + name + ".service"}
	}
	// The webhook's certificate and the kubeconfig for it, which kube-apiserver
	// reads when it starts.
	files["/etc/systemd/system/kube-apiserver.service.d/webhook.conf"] = machine.File{Content: "[Service]\n" +
		"ExecStartPre=sh -c 'mkdir -p /var/lib/authenticator; cd /var/lib/authenticator; [ -e webhook.conf ] || { aws-iam-authenticator init -i " + world.Cluster.Name + " && mv aws-iam-authenticator.kubeconfig webhook.conf; }'\n"}

	c := &ControlPlane{World: world, CA: ca.PEM, t: t, authority: ca}
	c.Machine = machine.Boot(t, machine.Options{Hostname: "control-plane", Files: files})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca.PEM))
	certificate, err := tls.X509KeyPair([]byte(admin.cert), []byte(admin.key))
	if err != nil {
		t.Fatal(err)
	}
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: Host, Certificates: []tls.Certificate{certificate}},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.Dial(ctx, network, net.JoinHostPort(Address, "443"))
		},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for !c.ready(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("kube-apiserver is not ready %v after power-on:\n%s", c.SincePowerOn().Round(time.Second), c.Journal("kube-apiserver.service"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("control plane ready %v after power-on", c.SincePowerOn().Round(time.Millisecond))
	return c
}

func (c *ControlPlane) ready(ctx context.Context) bool {
	status, body, err := c.request(ctx, http.MethodGet, "/readyz", "", nil)
	return err == nil && status == http.StatusOK && string(body) == "ok"
}

// with is the control plane for a test of its own.
func (c *ControlPlane) with(t testing.TB) *ControlPlane {
	other := *c
	other.t = t
	return &other
}

// request asks the API server as its administrator.
func (c *ControlPlane) request(ctx context.Context, method, path, contentType string, body any) (status int, answer []byte, err error) {
	return send(ctx, c.client, "", method, path, contentType, body)
}

// requestAs asks it as who has a token.
func (c *ControlPlane) requestAs(ctx context.Context, token, method, path, contentType string, body any) (status int, answer []byte, err error) {
	transport := c.client.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = nil
	defer transport.CloseIdleConnections()
	return send(ctx, &http.Client{Timeout: c.client.Timeout, Transport: transport}, token, method, path, contentType, body)
}

func send(ctx context.Context, client *http.Client, token, method, path, contentType string, body any) (status int, answer []byte, err error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		reader = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, Endpoint+path, reader)
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// Get reads an object, and tells whether there is one.
func (c *ControlPlane) Get(ctx context.Context, path string, into any) bool {
	c.t.Helper()
	status, answer, err := c.request(ctx, http.MethodGet, path, "", nil)
	switch {
	case err != nil:
		c.t.Fatalf("GET %s: %v", path, err)
	case status == http.StatusNotFound:
		return false
	case status != http.StatusOK:
		c.t.Fatalf("GET %s: %d %s", path, status, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		c.t.Fatalf("GET %s: %v: %s", path, err, answer)
	}
	return true
}

// Apply makes an object be as it is given, by server-side apply.
func (c *ControlPlane) Apply(ctx context.Context, path string, object any) {
	c.t.Helper()
	status, answer, err := c.request(ctx, http.MethodPatch, path+"?fieldManager=test&force=true", "application/apply-patch+yaml", object)
	if err != nil || status != http.StatusOK && status != http.StatusCreated {
		c.t.Fatalf("apply %s: %d %s %v", path, status, answer, err)
	}
}

// Delete removes an object, if there is one.
func (c *ControlPlane) Delete(ctx context.Context, path string) {
	c.t.Helper()
	status, answer, err := c.request(ctx, http.MethodDelete, path, "", nil)
	if err != nil || status != http.StatusOK && status != http.StatusNotFound {
		c.t.Fatalf("delete %s: %d %s %v", path, status, answer, err)
	}
}

// MapRole writes the aws-auth ConfigMap: what an instance with a role is to the
// cluster. username may hold {{EC2PrivateDNSName}} and {{SessionName}}.
func (c *ControlPlane) MapRole(ctx context.Context, role, username string) {
	c.t.Helper()
	c.Apply(ctx, "/api/v1/namespaces/kube-system/configmaps/aws-auth", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "aws-auth", "namespace": "kube-system"},
		"data": map[string]string{"mapRoles": "- rolearn: arn:aws:iam::" + c.World.Instance.Account + ":role/" + role + "\n" +
			"  username: " + username + "\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"},
	})
}
