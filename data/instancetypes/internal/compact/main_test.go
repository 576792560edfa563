package main

import (
	"os"
	"strings"
	"testing"
)

func TestCommittedTableIsTheGeneratedOne(t *testing.T) {
	in, err := os.Open("../../instance-types.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	got, err := compact(in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../table.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("table.txt is not what instance-types.csv makes: run go generate ./data/instancetypes")
	}
	// Every boot carries the table, so its size is a promise.
	if len(got) > 30<<10 {
		t.Errorf("table.txt has %d bytes, more than 30 KiB", len(got))
	}
}

func TestCompact(t *testing.T) {
	const head = "instance_type,arch,hypervisor,bare_metal,vcpus,memory_mib,default_card_enis,ipv4_per_eni,network_cards\n"
	for _, tt := range []struct {
		name, rows, want, err string
	}{
		{
			name: "what a family shares is said once",
			rows: "m5.large,amd64,nitro,false,2,8192,3,10,1\nm5.metal,amd64,,true,96,393216,15,50,1\nm5.xlarge,amd64,nitro,false,4,16384,4,15,1\n",
			want: "m5 amd64 nitro 4096 large=3x10,2 metal=15x50,96 xlarge=4x15,4\n",
		},
		{
			name: "what differs is said where it differs",
			rows: "z1.2xlarge,amd64,nitro,false,8,8000,4,15,2\nz1.large,amd64,nitro,false,2,4096,3,10,1\nz1.metal,arm64,nitro,true,,,5,6,1\nz1.xlarge,amd64,xen,false,4,8192,4,15,1\n",
			want: "z1 amd64 nitro 2048 2xlarge=4x15,8,8000,2 large=3x10,2 metal=5x6,-,,,arm64,nitro xlarge=4x15,4,,,,xen\n",
		},
		{
			name: "unknown",
			rows: "a1.large,,,false,,,3,10,1\n",
			want: "a1 - - 0 large=3x10,-\n",
		},
		{name: "unsorted", rows: "b1.large,,,false,,,3,10,1\na1.large,,,false,,,3,10,1\n", err: "not sorted"},
		{name: "twice", rows: "a1.large,,,false,,,3,10,1\na1.large,,,false,,,3,10,1\n", err: "twice"},
		{name: "no ENIs", rows: "a1.large,,,false,,,,10,1\n", err: "default_card_enis"},
		{name: "metal by another name", rows: "a1.large,,,true,,,3,10,1\n", err: "bare_metal"},
		{name: "no size", rows: "a1,,,false,,,3,10,1\n", err: "not the name"},
		{name: "a name that would break the table", rows: "a1.la=rge,,,false,,,3,10,1\n", err: "not the name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := compact(strings.NewReader(head + tt.rows))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := header + tt.want; got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
