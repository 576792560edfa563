package simulator

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExampleIsDefault(t *testing.T) {
	got, err := Load("testdata/m5-large.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("the example differs from Default (-default +example):\n%s", diff)
	}
}

func TestDefaultIsValidAndRoundTrips(t *testing.T) {
	w := Default()
	if err := w.Validate(); err != nil {
		t.Fatal(err)
	}
	doc, err := w.Document()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(doc, "default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	raw, _ := base64.StdEncoding.DecodeString(w.Cluster.CertificateAuthority)
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatal("the example CA is not PEM")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsExample(t *testing.T) {
	w, err := Load("testdata/faults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if w.InstanceTypes[0].ENIs != 60 {
		t.Errorf("ENIs of four cards = %d, want 60", w.InstanceTypes[0].ENIs)
	}
	if w.Faults[1].Until != 2*time.Second || w.Faults[4].Body != "\x00 garbage" {
		t.Errorf("faults = %+v", w.Faults)
	}
	doc, err := w.Document()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(doc, "again.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSONDocument(t *testing.T) {
	w, err := Parse([]byte(`{"instance": {"type": "m7g.large", "region": "cn-north-1", "tags": {"a": "b"}},
		"cluster": {"name": "c"}, "faults": [{"match": "/latest", "delay": "10ms"}]}`), "w.json")
	if err != nil {
		t.Fatal(err)
	}
	if w.Instance.Architecture != "arm64" || w.Instance.Partition != "aws-cn" || w.Faults[0].Delay != 10*time.Millisecond {
		t.Errorf("got %+v", w)
	}
}

func TestComplete(t *testing.T) {
	for region, want := range map[string]struct{ partition, domain, hostname, zoneID string }{
		"us-east-1":      {"aws", "amazonaws.com", "ip-10-0-0-7.ec2.internal", "use1-az1"},
		"ap-southeast-2": {"aws", "amazonaws.com", "ip-10-0-0-7.ap-southeast-2.compute.internal", "apse2-az1"},
		"cn-northwest-1": {"aws-cn", "amazonaws.com.cn", "ip-10-0-0-7.cn-northwest-1.compute.internal", "cnnw1-az1"},
		"us-gov-west-1":  {"aws-us-gov", "amazonaws.com", "ip-10-0-0-7.us-gov-west-1.compute.internal", "usgw1-az1"},
		"us-iso-east-1":  {"aws-iso", "c2s.ic.gov", "ip-10-0-0-7.us-iso-east-1.compute.internal", "usie1-az1"},
		"us-isob-east-1": {"aws-iso-b", "sc2s.sgov.gov", "ip-10-0-0-7.us-isob-east-1.compute.internal", "usie1-az1"},
		"eu-isoe-west-1": {"aws-iso-e", "cloud.adc-e.uk", "ip-10-0-0-7.eu-isoe-west-1.compute.internal", "euiw1-az1"},
		"us-isof-east-1": {"aws-iso-f", "csp.hci.ic.gov", "ip-10-0-0-7.us-isof-east-1.compute.internal", "usie1-az1"},
		"eusc-de-east-1": {"aws-eusc", "amazonaws.eu", "ip-10-0-0-7.eusc-de-east-1.compute.internal", "euscde1-az1"},
	} {
		w := World{Instance: Instance{Type: "m5.large", Region: region, LocalIPv4: "10.0.0.7"}, Cluster: &Cluster{Name: "c"}}
		in := w.Complete().Instance
		got := struct{ partition, domain, hostname, zoneID string }{in.Partition, in.ServicesDomain, in.Hostname, in.ZoneID}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", region, got, want)
		}
		if err := w.Validate(); err != nil {
			t.Errorf("%s: %v", region, err)
		}
		if w.Cluster.Endpoint != "" {
			t.Errorf("%s: Complete changed its receiver's cluster", region)
		}
		if c := w.Complete().Cluster; c.ServiceIPv4CIDR != "172.20.0.0/16" {
			t.Errorf("%s: service range %s beside a VPC in 10.0.0.0/8", region, c.ServiceIPv4CIDR)
		}
	}
	w := World{
		Instance:      Instance{Type: "c6gn.large", Region: "us-west-2", Zone: "us-west-2-lax-1b"},
		Cluster:       &Cluster{Name: "six", IPFamily: "ipv6"},
		InstanceTypes: []InstanceType{{Type: "m5.metal", ENIs: 15, IPv4PerENI: 50, VCPUs: 96, MemoryMiB: 393216}},
	}.Complete()
	if w.Instance.ZoneID != "usw2-lax1-az2" {
		t.Errorf("zone id of a local zone = %q", w.Instance.ZoneID)
	}
	if w.Cluster.ServiceIPv4CIDR != "" || w.Cluster.ServiceIPv6CIDR == "" {
		t.Errorf("ranges of an IPv6 cluster: %+v", w.Cluster)
	}
	if w.InstanceTypes[0].Hypervisor != "" {
		t.Error("bare metal has a hypervisor")
	}
	if diff := cmp.Diff(w, w.Complete()); diff != "" {
		t.Errorf("completing twice changes something:\n%s", diff)
	}
}

func TestArchitecture(t *testing.T) {
	for typ, want := range map[string]string{
		"m5.large": "x86_64", "g5.xlarge": "x86_64", "g5g.xlarge": "arm64", "a1.large": "arm64",
		"c7gn.large": "arm64", "t4g.small": "arm64", "p5en.48xlarge": "x86_64", "im4gn.large": "arm64",
	} {
		if got := architectureOf(typ); got != want {
			t.Errorf("%s: %s, want %s", typ, got, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const head = "instance:\n  type: m5.large\n  region: eu-west-1\n"
	for _, tt := range []struct{ name, doc, want string }{
		{"empty", "", "w.yaml: the document is empty"},
		{"comment only", "# nothing\n", "w.yaml: the document is empty"},
		{"syntax", head + "userData: [\n", "w.yaml:"},
		{"unknown at the top", head + "clutser: {name: a}\n", `w.yaml:4:1: unknown field "clutser" in the document: did you mean "cluster"?`},
		{"unknown below", head + "  vpcCIDR: []\n", `w.yaml:4:3: unknown field "vpcCIDR" in instance: did you mean "vpcCIDRs"?`},
		{"unknown in a list", head + "faults:\n- match: /latest\n  statsu: 500\n", `w.yaml:6:3: unknown field "statsu" in faults[0]: did you mean "status"?`},
		{"nothing near", head + "xyzzyxyzzy: 1\n", `w.yaml:4:1: unknown field "xyzzyxyzzy" in the document`},
		{"twice", head + "userData: a\nuserData: b\n", `w.yaml:5: mapping key "userData" already defined at line 4`},
		{"list for mapping", "instance: []\n", "w.yaml:1:11: instance must be a mapping of fields"},
		{"mapping for value", head + "userData: {a: b}\n", "w.yaml:4:11: userData must be a single value"},
		{"value for list", head + "  ipv6: fd00::1\n", "w.yaml:4:9: instance.ipv6 must be a list"},
		{"value for tags", head + "  tags: a\n", "w.yaml:4:9: instance.tags must be a mapping"},
		{"list as a tag", head + "  tags: {a: [b]}\n", "w.yaml:4:13: instance.tags.a must be a single value"},
		{"number", head + "  hopLimit: many\n", "w.yaml:4: cannot unmarshal !!str `many` into int"},
		{"duration without unit", head + "faults: [{match: /latest, delay: 5}]\n", "w.yaml:4: cannot unmarshal !!int `5` into time.Duration"},
		{"two documents", head + "---\ninstance: {}\n", "w.yaml:4:1: one document is expected, and a second begins here"},
		{"no type", "instance:\n  region: eu-west-1\n", `w.yaml:2:3: instance.type: "" is not an instance type such as m5.large`},
		{"zone elsewhere", head + "  zone: eu-west-2a\n", `w.yaml:4:9: instance.zone: "eu-west-2a" is not a zone of region "eu-west-1"`},
		{"mac", head + "  mac: 0A-00-00-00-00-01\n", "w.yaml:4:8: instance.mac:"},
		{"range", head + "  vpcCIDRs: [10.0.0.0/16, 10.1.2.3/16]\n", `w.yaml:4:27: instance.vpcCIDRs[1]: "10.1.2.3/16" has bits set behind its prefix; write 10.1.0.0/16`},
		{"slash in a tag", head + "  tags: {kubernetes.io/cluster/a: owned}\n  tagsInMetadata: true\n", "w.yaml:5:19: instance.tagsInMetadata: EC2 refuses"},
		{"denied action", head + "permissions: {deny: [ec2:DescribeInstance]}\n", `w.yaml:4:22: permissions.deny[0]: unknown action "ec2:DescribeInstance": did you mean "ec2:DescribeInstances"?`},
		{"fault without effect", head + "faults: [{match: /latest}]\n", "w.yaml:4:10: faults[0]: nothing goes wrong here"},
		{"hang and status", head + "faults: [{match: /latest, hang: true, status: 500}]\n", "w.yaml:4:10: faults[0]: hang, drop and an answer"},
		{"fault's action", head + "faults: [{match: meta-data, hang: true}]\n", "w.yaml:4:18: faults[0].match: neither a path"},
		{"both user data", head + "userData: a\nuserDataFile: b\n", "w.yaml:5:15: userDataFile: give userData or userDataFile, not both"},
		{"CA", head + "cluster: {name: a, certificateAuthority: '***'}\n", "w.yaml:4:42: cluster.certificateAuthority: not base64"},
		{"alias of itself", "instance: &a\n  tags: *a\n", "w.yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.doc), "w.yaml")
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error\n%v\ndoes not hold\n%s", err, tt.want)
			}
			if strings.Contains(err.Error(), ": yaml: ") || strings.Contains(err.Error(), "simulator.") {
				t.Errorf("error speaks of the parser: %v", err)
			}
		})
	}
}

func TestParseReportsAllErrors(t *testing.T) {
	_, err := Parse([]byte("instance:\n  typ: a\n  regio: b\nuserdata: c\n"), "w.yaml")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got: %v", err)
	}
}

func TestUserDataFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ud", "\x1f\x8b raw bytes")
	write("big", strings.Repeat("x", maxUserData+1))
	doc := "instance: {type: m5.large, region: eu-west-1}\nuserDataFile: "
	w, err := Load(write("w.yaml", doc+"ud\n"))
	if err != nil {
		t.Fatal(err)
	}
	if w.UserData != "\x1f\x8b raw bytes" || w.UserDataFile != "" {
		t.Errorf("got %q from %q", w.UserData, w.UserDataFile)
	}
	for _, name := range []string{"big", "absent"} {
		if _, err := Load(write("w.yaml", doc+name+"\n")); err == nil || !strings.Contains(err.Error(), "userDataFile") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/m5-large.yaml", "testdata/faults.yaml"} {
		doc, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Add([]byte("instance: &a\n  tags: *a\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if strings.Contains(string(doc), "userDataFile") {
			t.Skip("reads files")
		}
		w, err := Parse(doc, "fuzz")
		if err != nil {
			return
		}
		if err := w.Validate(); err != nil {
			t.Errorf("parsed, but not valid: %v", err)
		}
		New(w)
	})
}
