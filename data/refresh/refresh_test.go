package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	m5 := row{name: "m5.large", arch: "amd64", hypervisor: "nitro", vcpus: 2, memory: 8192, enis: 3, ips: 10, cards: 1}
	m5metal := row{name: "m5.metal", metal: true, enis: 15, ips: 50, cards: 1}
	p5 := row{name: "p5.48xlarge", enis: 2, ips: 50, cards: 32}
	with := func(r row, change func(*row)) row {
		change(&r)
		return r
	}

	for _, tt := range []struct {
		name         string
		table, found []row
		want         []row
		report       report
	}{
		{
			name:  "nothing new",
			table: []row{m5, p5}, found: []row{p5, m5},
			want: []row{m5, p5},
		},
		{
			name:  "a new type is added, in its place",
			table: []row{m5, p5}, found: []row{m5, p5, m5metal},
			want:   []row{m5, m5metal, p5},
			report: report{added: []string{"m5.metal: 15 ENIs x 50 addresses"}},
		},
		{
			name:  "a type that the source lacks stays",
			table: []row{m5, p5}, found: []row{m5},
			want:   []row{m5, p5},
			report: report{missing: []string{"p5.48xlarge"}},
		},
		{
			name:  "the network of a known type does not change",
			table: []row{m5, p5}, found: []row{m5, with(p5, func(r *row) { r.enis = 64; r.vcpus = 192 })},
			want:   []row{m5, p5},
			report: report{disagreements: []string{"p5.48xlarge: 64 ENIs x 50 addresses, the table has 2 x 50"}},
		},
		{
			name:  "nor do other known values",
			table: []row{m5}, found: []row{with(m5, func(r *row) { r.arch, r.hypervisor, r.vcpus, r.memory, r.cards = "arm64", "xen", 3, 1, 2 })},
			want: []row{m5},
		},
		{
			name:  "what was unknown is filled in, but for the hypervisor of bare metal",
			table: []row{m5metal}, found: []row{with(m5metal, func(r *row) { r.arch, r.hypervisor, r.vcpus, r.memory = "amd64", "nitro", 96, 393216 })},
			want:   []row{with(m5metal, func(r *row) { r.arch, r.vcpus, r.memory = "amd64", 96, 393216 })},
			report: report{filled: []string{"m5.metal: arch, vcpus, memory_mib"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := fmt.Sprint(tt.table)
			got, rep := merge(tt.table, tt.found)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if !reflect.DeepEqual(rep, tt.report) {
				t.Errorf("report %+v\nwant   %+v", rep, tt.report)
			}
			if fmt.Sprint(tt.table) != before {
				t.Error("merge has changed its argument")
			}
		})
	}
}

func TestReleasedOnlyGrows(t *testing.T) {
	const old = "type,enis,ips,max_pods\nb1.large,3,10,29\nz1.gone,9,9,74\n"
	got, err := grow([]byte(old), []row{
		{name: "a1.large", enis: 4, ips: 15},
		{name: "b1.large", enis: 7, ips: 7}, // whatever the table says now, it was released otherwise
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "type,enis,ips,max_pods\na1.large,4,15,58\nb1.large,3,10,29\nz1.gone,9,9,74\n"; string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The real table survives reading and writing, byte by byte.
func TestTableRoundTrip(t *testing.T) {
	const path = "../instancetypes/" + tableFile
	table, err := readTable(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(formatTable(table)) != string(want) {
		t.Error("it does not")
	}
}

const m5Large = `<item>
  <instanceType>m5.large</instanceType><bareMetal>false</bareMetal><hypervisor>nitro</hypervisor>
  <processorInfo><supportedArchitectures><item>x86_64</item></supportedArchitectures></processorInfo>
  <vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo>
  <networkInfo><maximumNetworkInterfaces>3</maximumNetworkInterfaces><ipv4AddressesPerInterface>10</ipv4AddressesPerInterface>
   <maximumNetworkCards>1</maximumNetworkCards><defaultNetworkCardIndex>0</defaultNetworkCardIndex>
   <networkCards><item><networkCardIndex>0</networkCardIndex><maximumNetworkInterfaces>3</maximumNetworkInterfaces></item></networkCards>
  </networkInfo></item>`

// Three cards, of which the second is the default one.
const multiCard = `<item>
  <instanceType>yy7.48xlarge</instanceType><bareMetal>false</bareMetal><hypervisor>nitro</hypervisor>
  <processorInfo><supportedArchitectures><item>arm64</item></supportedArchitectures></processorInfo>
  <vCpuInfo><defaultVCpus>192</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>786432</sizeInMiB></memoryInfo>
  <networkInfo><maximumNetworkInterfaces>30</maximumNetworkInterfaces><ipv4AddressesPerInterface>50</ipv4AddressesPerInterface>
   <maximumNetworkCards>3</maximumNetworkCards><defaultNetworkCardIndex>1</defaultNetworkCardIndex>
   <networkCards><item><networkCardIndex>0</networkCardIndex><maximumNetworkInterfaces>8</maximumNetworkInterfaces></item>
   <item><networkCardIndex>1</networkCardIndex><maximumNetworkInterfaces>12</maximumNetworkInterfaces></item>
   <item><networkCardIndex>2</networkCardIndex><maximumNetworkInterfaces>10</maximumNetworkInterfaces></item></networkCards>
  </networkInfo></item>`

// serveEC2 answers DescribeInstanceTypes with one item per page, and has the
// program find it as it would find any other endpoint.
func serveEC2(t *testing.T, items ...string) (requests *int) {
	t.Helper()
	requests = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		if action := r.FormValue("Action"); action != "DescribeInstanceTypes" {
			t.Errorf("action %s", action)
		}
		page := 0
		if token := r.FormValue("NextToken"); token != "" {
			fmt.Sscanf(token, "page-%d", &page)
		}
		next := ""
		if page+1 < len(items) {
			next = fmt.Sprintf("<nextToken>page-%d</nextToken>", page+1)
		}
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>
<instanceTypeSet>%s</instanceTypeSet>%s</DescribeInstanceTypesResponse>`, items[page], next)
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_EC2": server.URL, "AWS_REGION": "us-west-2",
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
	} {
		t.Setenv(name, value)
	}
	return requests
}

func TestFromEC2(t *testing.T) {
	requests := serveEC2(t, m5Large, multiCard)
	client, err := newEC2(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got, err := fromEC2(context.Background(), client)
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{name: "m5.large", arch: "amd64", hypervisor: "nitro", vcpus: 2, memory: 8192, enis: 3, ips: 10, cards: 1},
		// 12, and neither 8 nor 30.
		{name: "yy7.48xlarge", arch: "arm64", hypervisor: "nitro", vcpus: 192, memory: 786432, enis: 12, ips: 50, cards: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if *requests != 2 {
		t.Errorf("%d requests for 2 pages", *requests)
	}
}

func TestEC2WithoutDefaultCard(t *testing.T) {
	serveEC2(t, strings.ReplaceAll(multiCard, "<networkCardIndex>1<", "<networkCardIndex>7<"))
	client, err := newEC2(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fromEC2(context.Background(), client); err == nil || !strings.Contains(err.Error(), "yy7.48xlarge") {
		t.Errorf("error %v", err)
	}
}

func TestParseCNI(t *testing.T) {
	const src = `package vpc
var instanceNetworkingLimits = map[string]InstanceTypeLimits{
	"yy7.48xlarge": {
		ENILimit: 30, IPv4Limit: 50, DefaultNetworkCardIndex: 1,
		NetworkCards: []NetworkCard{
			{MaximumNetworkInterfaces: 8, NetworkCardIndex: 0},
			{MaximumNetworkInterfaces: 12, NetworkCardIndex: 1},
		},
		HypervisorType: "nitro", IsBareMetal: false,
	},
	"yy7.metal": {ENILimit: 4, IPv4Limit: 15, HypervisorType: "unknown", IsBareMetal: true},
}`
	got, err := parseCNI("limits.go", src)
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{name: "yy7.48xlarge", hypervisor: "nitro", enis: 12, ips: 50, cards: 2},
		{name: "yy7.metal", metal: true, enis: 4, ips: 15, cards: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	for name, src := range map[string]string{
		"renamed":   "package vpc\nvar limits = map[string]int{}",
		"no limits": strings.ReplaceAll(src, "IPv4Limit", "AddressLimit"),
		"no Go":     "<html>",
	} {
		if rows, err := parseCNI("limits.go", src); err == nil {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}

// The whole way: from EC2's answer to the three files, in a copy of the folder.
func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "instancetypes")
	if err := os.CopyFS(dir, os.DirFS("../instancetypes")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module instancetypes\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	refresh := func(want int, args ...string) string {
		t.Helper()
		var out strings.Builder
		code, err := run(context.Background(), append([]string{"-source", "ec2", "-dir", dir}, args...), &out)
		if err != nil {
			t.Fatal(err)
		}
		if code != want {
			t.Errorf("exit code %d, want %d\n%s", code, want, out.String())
		}
		return out.String()
	}
	before := read(tableFile) + read(releasedFile) + read("table.txt")

	serveEC2(t, m5Large)
	refresh(exitDone, "-check")

	serveEC2(t, m5Large, multiCard)
	refresh(exitWouldChange, "-check")
	if read(tableFile)+read(releasedFile)+read("table.txt") != before {
		t.Error("-check has written")
	}

	refresh(exitDone)
	for name, line := range map[string]string{
		tableFile:    "\nyy7.48xlarge,arm64,nitro,false,192,786432,12,50,3\n",
		releasedFile: "\nyy7.48xlarge,12,50,590\n",
		"table.txt":  "\nyy7 arm64 nitro 4096 48xlarge=12x50,192,,3\n",
	} {
		if !strings.Contains(read(name), line) {
			t.Errorf("%s has no line %q", name, line)
		}
	}
	refresh(exitDone, "-check")

	// The same type again, with its cards added up.
	after := read(tableFile)
	serveEC2(t, strings.ReplaceAll(multiCard, "<maximumNetworkInterfaces>12<", "<maximumNetworkInterfaces>30<"))
	if out := refresh(exitDisagreement); !strings.Contains(out, "yy7.48xlarge: 30 ENIs x 50 addresses, the table has 12 x 50") {
		t.Error(out)
	}
	if read(tableFile) != after {
		t.Error("a disagreement has changed the table")
	}

	// The folder still passes its own tests.
	cmd := exec.Command("go", "test", "./...")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-source", "web"}, {"surplus"}, {"-source", "ec2", "-dir", "/nonexistent"}} {
		if _, err := run(context.Background(), args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
