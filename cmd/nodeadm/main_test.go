package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/argv"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
)

// TestMain lets the test binary stand in for nodeadm, so that tests see what a
// shell sees: arguments, output and exit code of a process.
func TestMain(m *testing.M) {
	if os.Getenv("NODEADM_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// program runs nodeadm under the name that args begin with.
func program(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return fed(t, "", args...)
}

// fed is program with something on standard input.
func fed(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args[1:]...)
	cmd.Args[0], cmd.Stdin = args[0], strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "NODEADM_TEST_MAIN=1", "AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func serveWorld(t *testing.T, change func(*simulator.World)) string {
	t.Helper()
	w := simulator.Default()
	if change != nil {
		change(&w)
	}
	endpoint, stop, err := simulator.New(w).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return endpoint
}

func bootstrapArgs(name, endpoint, root string, more ...string) []string {
	c := simulator.Default().Cluster
	args := []string{name}
	if name == "nodeadm" {
		args = append(args, "bootstrap")
	}
	return append(append(args, "--root", root, "--imds-endpoint", endpoint, "--kubelet-version", "1.30.4", "--timeout", "3s",
		"--apiserver-endpoint", c.Endpoint, "--b64-cluster-ca", c.CertificateAuthority), more...)
}

func TestMaxPods(t *testing.T) {
	for name, want := range map[string]string{"m4.large": "20", "m4.xlarge": "58", "m5.large": "29", "p5.48xlarge": "100", "c6in.32xlarge": "394"} {
		if out, _, code := program(t, "nodeadm", "max-pods", "--instance-type", name); out != want+"\n" || code != 0 {
			t.Errorf("%s: %q, exit %d; want %s", name, out, code, want)
		}
	}
	if _, errs, code := program(t, "nodeadm", "max-pods", "--instance-type", "m5.lrage"); code != 2 || !strings.Contains(errs, "m5.large") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestMaxPodsEveryRow asks for every released type.
func TestMaxPodsEveryRow(t *testing.T) {
	f, err := os.Open("../../data/instancetypes/testdata/released.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 1421 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		var out bytes.Buffer
		app := newApp()
		app.Writer = &out
		if err := app.RunContext(context.Background(), []string{"nodeadm", "max-pods", "--instance-type", row[0]}); err != nil || out.String() != row[3]+"\n" {
			t.Errorf("%s: %q, %v; want %s", row[0], out.String(), err, row[3])
		}
	}
}

func TestTwoEmptyRootsAreEqual(t *testing.T) {
	endpoint := serveWorld(t, nil)
	first, second := t.TempDir(), t.TempDir()
	for _, root := range []string{first, second} {
		if _, errs, code := program(t, bootstrapArgs("nodeadm", endpoint, root, "c", "--kubelet-extra-args", "--node-labels=b=1,a=2")...); code != 0 {
			t.Fatalf("exit %d: %s", code, errs)
		}
	}
	if out, err := exec.Command("diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// The script's name is the same command, flags and name in any order.
	third := t.TempDir()
	args := bootstrapArgs("/etc/eks/bootstrap.sh", endpoint, third, "--kubelet-extra-args", "--node-labels=b=1,a=2", "c")
	if _, errs, code := program(t, args...); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if out, err := exec.Command("diff", "-r", first, third).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, errs, code := program(t, args...); code != 0 || !strings.Contains(errs, "nothing changed") {
		t.Errorf("a second run: exit %d: %s", code, errs)
	}
}

func TestBadInputWritesNothing(t *testing.T) {
	endpoint := serveWorld(t, nil)
	fault := func(match string, status int) string {
		return serveWorld(t, func(w *simulator.World) { w.Faults = []simulator.Fault{{Match: match, Status: status}} })
	}
	hang := serveWorld(t, func(w *simulator.World) { w.Faults = []simulator.Fault{{Match: "/latest/meta-data/mac", Hang: true}} })
	garbage := serveWorld(t, func(w *simulator.World) { w.Faults = []simulator.Fault{{Match: "/latest/dynamic", Body: "<html>"}} })
	for _, test := range []struct {
		name     string
		endpoint string
		args     []string
		code     int
		want     string
	}{
		{"no cluster name", endpoint, nil, 2, "fix: add the name"},
		{"unknown flag", endpoint, []string{"c", "--use-max-pod", "true"}, 2, "did you mean --use-max-pods?"},
		{"unknown flag of kubelet", endpoint, []string{"c", "--kubelet-extra-args", "--max-pod=3"}, 2, "did you mean --max-pods?"},
		{"runtime", endpoint, []string{"c", "--container-runtime", "dockerd"}, 2, "containerd only"},
		{"IPv6 without a service CIDR", endpoint, []string{"c", "--ip-family", "ipv6"}, 2, "--service-ipv6-cidr"},
		{"containerd configuration that is not there", endpoint, []string{"c", "--containerd-config-file", "/no/such.toml"}, 2, "/no/such.toml does not exist"},
		{"kubelet too old", endpoint, []string{"c", "--kubelet-version", "1.21.3"}, 2, "1.22 to 1.37"},
		{"a wait that is not known", endpoint, []string{"c", "--wait", "ready"}, 2, "write healthy, joined or none"},
		{"a wait for what cannot come", endpoint, []string{"c", "--wait", "joined"}, 2, "nothing is started that could join"},
		{"no time", endpoint, []string{"c", "--timeout", "0s"}, 2, "--timeout"},
		{"log format", endpoint, []string{"c", "--log-format", "xml"}, 2, "--log-format"},
		{"endpoint", "ftp://x", []string{"c"}, 2, "--imds-endpoint"},
		{"IMDS absent", "http://127.0.0.1:1", []string{"c"}, 3, "nodeadm simulate"},
		{"IMDS 401", fault("/latest/api/token", 401), []string{"c"}, 3, "401"},
		{"IMDS 403", fault("/latest/api/token", 403), []string{"c"}, 3, "--http-endpoint enabled"},
		{"IMDS 404", fault("/latest/meta-data/mac", 404), []string{"c"}, 3, "GET /latest/meta-data/mac: the service answered 404"},
		{"IMDS 500", fault("/latest/dynamic", 500), []string{"c"}, 3, "500"},
		{"IMDS garbage", garbage, []string{"c"}, 3, "not an instance identity document"},
		{"IMDS never", hang, []string{"c"}, 3, "GET /latest/meta-data/mac: no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			_, errs, code := program(t, bootstrapArgs("nodeadm", test.endpoint, root, test.args...)...)
			if code != test.code || !strings.Contains(errs, test.want) || !strings.Contains(errs, "fix: ") {
				t.Errorf("exit %d, want %d with %q and a remedy:\n%s", code, test.code, test.want, errs)
			}
			if left, _ := os.ReadDir(root); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestCredentialsAreLate: IAM makes a role known some time after the boot.
func TestCredentialsAreLate(t *testing.T) {
	endpoint := serveWorld(t, func(w *simulator.World) {
		w.Faults = []simulator.Fault{{Match: "/latest/meta-data/iam", Status: 404, First: 3}}
	})
	cmd := exec.Command(os.Args[0], "bootstrap", "--root", t.TempDir(), "--kubelet-version", "1.30.4", "ironman-2022")
	cmd.Env = append(os.Environ(), "NODEADM_TEST_MAIN=1", "AWS_ENDPOINT_URL="+endpoint, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+endpoint)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "404") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestJSONLog(t *testing.T) {
	_, errs, code := program(t, "nodeadm", "bootstrap", "--log-format", "json", "a/b")
	var entry struct {
		Level, Msg, Remedy string
		ExitCode           int
	}
	if err := json.Unmarshal([]byte(errs), &entry); err != nil || code != 2 || entry.ExitCode != 2 || entry.Remedy == "" || entry.Level != "error" {
		t.Errorf("exit %d, %v: %s", code, err, errs)
	}
}

func TestSimulate(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	script := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(script, []byte("#!/bin/bash\n/etc/eks/bootstrap.sh mine --kubelet-extra-args '--node-labels=a=b'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code := program(t, "nodeadm", "simulate", "--instance-type", "c6in.32xlarge", "--user-data", script, "--root", root)
	for _, want := range []string{"8 ENIs × (50 IPv4 addresses − 1) + 2 = 394", "KUBELET_EXTRA_ARGS=--node-labels=a=b", "kubelet.service", "/etc/containerd/config.toml"} {
		if !strings.Contains(out, want) {
			t.Errorf("the answer lacks %q", want)
		}
	}
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	out, _, code = program(t, "nodeadm", "simulate", "-o", "json", "--root", root)
	var answer struct{ MaxPods int }
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || answer.MaxPods != 29 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	if _, errs, code := program(t, "nodeadm", "simulate", "--root", "/"); code != 2 {
		t.Errorf("a simulation into /: exit %d: %s", code, errs)
	}
}

// TestSimulateCluster: the simulated instance is one of the cluster that is
// asked for.
func TestSimulateCluster(t *testing.T) {
	for _, test := range []struct {
		name, cluster string
		says          string
	}{
		{"IPv6", "{name: c, ipFamily: ipv6}", "--node-ip=2001:db8::5"},
		{"IPv6 by its CIDR", "{name: c, cidr: 'fd00:1::/108'}", "--node-ip=2001:db8::5"},
		{"Outpost", "{name: c, enableOutpost: true, id: id-of-c}", "/etc/hosts does not get the addresses"},
	} {
		document, root := filepath.Join(t.TempDir(), "node.yaml"), t.TempDir()
		if err := os.WriteFile(document, []byte("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: "+test.cluster+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, errs, code := program(t, "nodeadm", "simulate", "--user-data", document, "--root", root)
		if code != 0 || !strings.Contains(out+errs, test.says) {
			t.Errorf("%s: exit %d: %s%s", test.name, code, out, errs)
		}
		if _, err := os.Stat(filepath.Join(root, "etc/hosts")); err == nil {
			t.Errorf("%s: /etc/hosts was written", test.name)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	if _, errs, code := program(t, "nodeadm", "bootstarp"); code != 2 || !strings.Contains(errs, "did you mean nodeadm bootstrap?") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, errs, code := program(t, "nodeadm", "config", "chekc"); code != 2 || !strings.Contains(errs, "did you mean nodeadm config check?") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, errs, code := program(t, "nodeadm", "bootstrap", "--timeout", "5", "c"); code != 2 || !strings.Contains(errs, "fix: write a duration") {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, args := range [][]string{{"nodeadm"}, {"nodeadm", "--help"}, {"nodeadm", "help", "bootstrap"}, {"nodeadm", "config", "--help"}, {"nodeadm", "bootstrap", "--help", "c"}, {"nodeadm", "bootstrap", "--help"}, {"nodeadm", "version"}, {"nodeadm", "simulate", "serve", "-h"}} {
		if out, errs, code := program(t, args...); code != 0 || out == "" {
			t.Errorf("%q: exit %d: %s", args, code, errs)
		}
	}
}

// TestConvertedUserDataMakesTheSameNode: user data as a managed node group
// generates it, as a NodeConfig, leads to the same files.
func TestConvertedUserDataMakesTheSameNode(t *testing.T) {
	c := simulator.Default().Cluster
	userData := filepath.Join(t.TempDir(), "user-data")
	script := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/bash\nset -ex\n" +
		"B64_CLUSTER_CA=" + c.CertificateAuthority + "\nAPI_SERVER_URL=" + c.Endpoint + "\nK8S_CLUSTER_DNS_IP=10.100.0.10\n" +
		"/etc/eks/bootstrap.sh ironman-2022 --kubelet-extra-args '--node-labels=eks.amazonaws.com/capacityType=ON_DEMAND,eks.amazonaws.com/nodegroup=ng --max-pods=29' " +
		"--b64-cluster-ca $B64_CLUSTER_CA --apiserver-endpoint $API_SERVER_URL --dns-cluster-ip $K8S_CLUSTER_DNS_IP --use-max-pods false\n\n--//--\n"
	if err := os.WriteFile(userData, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	document, errs, code := program(t, "nodeadm", "config", "convert", "--to", "nodeconfig", userData)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	converted := filepath.Join(t.TempDir(), "nodeconfig.yaml")
	if err := os.WriteFile(converted, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	endpoint := serveWorld(t, nil)
	byScript, byDocument := t.TempDir(), t.TempDir()
	common := func(root string) []string {
		return []string{"--root", root, "--imds-endpoint", endpoint, "--kubelet-version", "1.30.4"}
	}
	if _, errs, code := program(t, append([]string{"bootstrap.sh", "ironman-2022", "--kubelet-extra-args", "--node-labels=eks.amazonaws.com/capacityType=ON_DEMAND,eks.amazonaws.com/nodegroup=ng --max-pods=29",
		"--b64-cluster-ca", c.CertificateAuthority, "--apiserver-endpoint", c.Endpoint, "--dns-cluster-ip", "10.100.0.10", "--use-max-pods", "false"}, common(byScript)...)...); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if _, errs, code := program(t, append([]string{"nodeadm", "init", "-c", "file://" + converted}, common(byDocument)...)...); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if out, err := exec.Command("diff", "-r", byScript, byDocument).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// And back.
	if line, errs, code := program(t, "nodeadm", "config", "convert", "--to", "bootstrap", converted); code != 0 || errs != "" || !strings.HasPrefix(line, "/etc/eks/bootstrap.sh ironman-2022 ") {
		t.Errorf("exit %d: %s%s", code, line, errs)
	}
}

func TestConfigCheck(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	document := "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    nme: x\n    cidr: 10.0.0.1\n    enableOutpost: \"yes\"\n  kubelet:\n    flags: [\"--register-with-taints=a\"]\n  instance:\n    localStorage: {strategy: RAID5}\n"
	if err := os.WriteFile(bad, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	_, errs, code := program(t, "nodeadm", "config", "check", bad)
	for _, at := range []string{":5:5: ", ":6:11: ", ":7:20: ", ":9:13: ", ":11:30: "} {
		if !strings.Contains(errs, "error: "+bad+at) {
			t.Errorf("no mistake at %s", at)
		}
	}
	if n := strings.Count(errs, "error: "); code != 2 || n != 5 {
		t.Errorf("exit %d with %d mistakes, want 2 with 5:\n%s", code, n, errs)
	}
	out, _, code := program(t, "nodeadm", "config", "check", "-o", "json", "-c", "file://"+bad)
	var answer struct {
		Valid    bool
		Findings []struct {
			Line, Column    int
			Message, Remedy string
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 2 || answer.Valid || len(answer.Findings) != 5 || answer.Findings[0].Line != 5 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	good := filepath.Join(t.TempDir(), "good.yaml")
	if err := os.WriteFile(good, []byte("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {containerLogMaxWorkers: 2}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := program(t, "nodeadm", "config", "check", good); code != 0 || !strings.Contains(out, "no mistakes") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := program(t, "nodeadm", "config", "check", "--kubelet-version", "1.29", good); code != 2 || !strings.Contains(errs, "good.yaml:3:") || !strings.Contains(errs, "came with 1.30") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestConfigShowTellsOrigins(t *testing.T) {
	dir := t.TempDir()
	userData, dropIn := filepath.Join(dir, "user-data"), filepath.Join(dir, "50-site.yaml")
	for path, text := range map[string]string{
		userData: "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: application/node.eks.aws\n\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster: {name: c}\n  kubelet: {config: {registryPullQPS: 7}}\n--B--\n",
		dropIn:   "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {config: {clusterDomain: corp.local}}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := program(t, "nodeadm", "config", "show", "--instance-type", "m5.large", "-o", "json", userData, dropIn)
	var values []struct{ Path, Value, Origin string }
	if err := json.Unmarshal([]byte(out), &values); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	origins := map[string]string{}
	for _, v := range values {
		origins[v.Path] = v.Origin
	}
	for path, want := range map[string]string{
		"spec.cluster.name":                       userData + ":10:19",
		"kubelet-config.json: registryPullQPS":    userData + ":11:39",
		"kubelet-config.json: clusterDomain":      dropIn + ":4:37",
		"kubelet-config.json: maxPods":            "network interfaces of m5.large: 3 ENIs × (10 IPv4 addresses − 1) + 2 = 29",
		"kubelet-config.json: address":            "default for kubelet v1.34.4",
		"kubelet-config.json: providerID":         "instance metadata",
		"kubelet-config.json: serverTLSBootstrap": "default for kubelet v1.34.4",
	} {
		if origins[path] != want {
			t.Errorf("%s comes from %q, want %q", path, origins[path], want)
		}
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n/etc/eks/bootstrap.sh c --kubelet-extra-args --v=4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := program(t, "nodeadm", "config", "show", "--instance-type", "m5.large", script); !strings.Contains(out, "--kubelet-extra-args") {
		t.Errorf("the flag is not named:\n%s", out)
	}
}

// TestDeniedEndsAtOnce: a permission that is missing does not come while one
// waits.
func TestDeniedEndsAtOnce(t *testing.T) {
	for _, action := range []string{"eks:DescribeCluster", "ec2:DescribeInstances"} {
		endpoint := serveWorld(t, func(w *simulator.World) { w.Permissions.Deny = []string{action} })
		document := filepath.Join(t.TempDir(), "document.yaml")
		text := "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: {name: ironman-2022}}\n"
		if action == "ec2:DescribeInstances" {
			text = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n" // the name comes from tags
		}
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "init", "-c", "file://"+document, "--root", t.TempDir(), "--kubelet-version", "1.30.4", "--timeout", "60s")
		cmd.Env = append(os.Environ(), "NODEADM_TEST_MAIN=1", "AWS_ENDPOINT_URL="+endpoint, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+endpoint)
		start := time.Now()
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(string(out), `"Action": "`+action+`"`) {
			t.Errorf("%s: exit %d:\n%s", action, code, out)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: it took %s to say no", action, took)
		}
	}
}

// A proxy that the configuration names is used for AWS APIs, and never for
// instance metadata.
func TestProxyOfTheConfiguration(t *testing.T) {
	server := simulator.New(simulator.Default())
	endpoint, stop, err := server.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var proxied []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied = append(proxied, r.URL.String())
		server.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	document := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(document, []byte("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster: {name: ironman-2022}\n  proxy: {http: \""+proxy.URL+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ENDPOINT_URL_EKS", "http://eks.invalid")
	_, errs, code := program(t, "nodeadm", "init", "-c", "file://"+document, "--root", t.TempDir(), "--imds-endpoint", endpoint, "--kubelet-version", "1.34.4", "--timeout", "5s")
	if diff := cmp.Diff([]string{"http://eks.invalid/clusters/ironman-2022"}, proxied); code != 0 || diff != "" {
		t.Errorf("exit %d, through the proxy (-want +got):\n%s\n%s", code, diff, errs)
	}
}

// TestRunFlags: user data is read with the flags that the command itself takes.
func TestRunFlags(t *testing.T) {
	known := map[string]argv.Arity{}
	for _, f := range changeFlags() {
		arity := argv.Value
		if _, isSwitch := f.(*cli.BoolFlag); isSwitch {
			arity = argv.Switch
		}
		for _, name := range f.Names() {
			known[name] = arity
		}
	}
	if diff := cmp.Diff(known, config.RunFlags); diff != "" {
		t.Errorf("(-command +user data):\n%s", diff)
	}
	if _, err := config.ParseBootstrap([]string{"c", "--wait", "joined", "--timeout", "10m", "--credential-plugin=aws", "--rollback-on-failure", "--use-max-pods", "false"}); err != nil {
		t.Error(err)
	}
}

// TestAWSEnvironment: what is said of credentials and endpoints is taken, or
// refused, and never passed over.
func TestAWSEnvironment(t *testing.T) {
	for _, test := range []struct {
		environment map[string]string
		says        string // "" if it is taken
	}{
		{map[string]string{"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "x"}, ""},
		{map[string]string{"AWS_ACCESS_KEY_ID": "AKIA"}, "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"},
		{map[string]string{"AWS_SECRET_ACCESS_KEY": "x"}, "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"},
		{map[string]string{"AWS_USE_FIPS_ENDPOINT": "banana"}, "AWS_USE_FIPS_ENDPOINT"},
		{map[string]string{"AWS_USE_DUALSTACK_ENDPOINT": "1"}, "AWS_USE_DUALSTACK_ENDPOINT"},
		{map[string]string{"AWS_USE_FIPS_ENDPOINT": "TRUE", "AWS_USE_DUALSTACK_ENDPOINT": "False"}, ""},
	} {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"} {
			t.Setenv(name, test.environment[name])
		}
		o, err := awsOptions()
		if (err == nil) != (test.says == "") || err != nil && (!strings.Contains(err.Error(), test.says) || fault.CodeOf(err) != fault.Usage) {
			t.Errorf("%v: %v", test.environment, err)
		}
		if test.environment["AWS_USE_FIPS_ENDPOINT"] == "TRUE" && (!o.UseFIPS || o.UseDualStack) {
			t.Errorf("%v: %+v", test.environment, o)
		}
	}
}
