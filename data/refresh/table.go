package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	tableFile    = "instance-types.csv"
	releasedFile = "testdata/released.csv"

	tableHeader = "instance_type,arch,hypervisor,bare_metal,vcpus,memory_mib,default_card_enis,ipv4_per_eni,network_cards"
)

// A row of instance-types.csv. Zero and empty are unknown.
type row struct {
	name, arch, hypervisor string
	metal                  bool
	vcpus, memory          int
	enis, ips              int // of the default network card
	cards                  int
}

func readTable(path string) ([]row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(records) == 0 || strings.Join(records[0], ",") != tableHeader {
		return nil, fmt.Errorf("%s: the first line must be %s", path, tableHeader)
	}
	var table []row
	for i, rec := range records[1:] {
		r := row{name: rec[0], arch: rec[1], hypervisor: rec[2], metal: rec[3] == "true"}
		for j, dst := range []*int{&r.vcpus, &r.memory, &r.enis, &r.ips, &r.cards} {
			if rec[4+j] == "" {
				continue
			}
			if *dst, err = strconv.Atoi(rec[4+j]); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+2, err)
			}
		}
		table = append(table, r)
	}
	return table, nil
}

func formatTable(table []row) []byte {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	var b bytes.Buffer
	b.WriteString(tableHeader + "\n")
	for _, r := range table {
		fmt.Fprintf(&b, "%s,%s,%s,%t,%s,%s,%d,%d,%d\n", r.name, r.arch, r.hypervisor, r.metal,
			number(r.vcpus), number(r.memory), r.enis, r.ips, r.cards)
	}
	return b.Bytes()
}

// grow adds the types of table that released.csv does not have. Lines that stand
// there are promises and stay byte by byte.
func grow(released []byte, table []row) ([]byte, error) {
	header, text, ok := strings.Cut(string(released), "\n")
	if !ok || header != "type,enis,ips,max_pods" {
		return nil, fmt.Errorf("the first line must be type,enis,ips,max_pods")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	known := make(map[string]bool)
	for _, l := range lines {
		name, _, _ := strings.Cut(l, ",")
		known[name] = true
	}
	for _, r := range table {
		if !known[r.name] {
			lines = append(lines, fmt.Sprintf("%s,%d,%d,%d", r.name, r.enis, r.ips, r.enis*(r.ips-1)+2))
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		a, _, _ = strings.Cut(a, ",")
		b, _, _ = strings.Cut(b, ",")
		return strings.Compare(a, b)
	})
	return []byte(header + "\n" + strings.Join(lines, "\n") + "\n"), nil
}
