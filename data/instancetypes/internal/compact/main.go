// Command compact writes the table that is embedded into nodeadm from the one
// that people read and review.
//
// instance-types.csv has a row per type and a column per fact. table.txt has a
// line per family, and leaves out what the family has in common:
//
//	m5 amd64 nitro 4096 12xlarge=8x30,48 large=3x10,2 metal=15x50,96
//
// that is: family, architecture, hypervisor, MiB of memory per vCPU, and then
// for each size
//
//	SIZE=ENIsxIPs[,VCPUS[,MEMORY[,CARDS[,ARCH[,HYPERVISOR]]]]]
//
// A field that is left out or empty has the usual value: memory by the family's
// ratio, one network card, the family's architecture, the family's hypervisor
// (none on bare metal). A "-" stands for unknown. A size is bare metal if, and
// only if, its name begins with "metal".
package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

const header = "# Code generated from instance-types.csv by go generate; DO NOT EDIT.\n"

var columns = []string{
	"instance_type", "arch", "hypervisor", "bare_metal", "vcpus", "memory_mib",
	"default_card_enis", "ipv4_per_eni", "network_cards",
}

func main() {
	if len(os.Args) != 3 {
		fatal("usage: compact TABLE.csv TABLE.txt")
	}
	in, err := os.Open(os.Args[1])
	if err != nil {
		fatal(err)
	}
	defer in.Close()
	table, err := compact(in)
	if err != nil {
		fatal(fmt.Errorf("%s: %w", os.Args[1], err))
	}
	if err := os.WriteFile(os.Args[2], []byte(table), 0o644); err != nil {
		fatal(err)
	}
}

func fatal(v any) {
	fmt.Fprintln(os.Stderr, "compact:", v)
	os.Exit(1)
}

type row struct {
	family, size, arch, hypervisor string
	metal                          bool
	vcpus, memory, enis, ips       int
	cards                          int
}

// compact makes the text of table.txt from the text of instance-types.csv.
func compact(in io.Reader) (string, error) {
	rows, err := read(in)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(header)
	for len(rows) > 0 {
		// Rows are sorted by name, so those of a family stand together.
		n := 1
		for n < len(rows) && rows[n].family == rows[0].family {
			n++
		}
		writeFamily(&b, rows[:n])
		rows = rows[n:]
	}
	return b.String(), nil
}

func read(in io.Reader) ([]row, error) {
	records, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) < 2 || !slices.Equal(records[0], columns) {
		return nil, fmt.Errorf("the first line must be %s, and rows must follow", strings.Join(columns, ","))
	}
	rows := make([]row, 0, len(records)-1)
	for i, rec := range records[1:] {
		r, err := parse(rec)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", i+2, rec[0], err)
		}
		if i > 0 && records[i][0] >= rec[0] {
			return nil, fmt.Errorf("line %d: %s: not sorted, or there twice", i+2, rec[0])
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func parse(rec []string) (row, error) {
	r := row{arch: rec[1], hypervisor: rec[2]}
	var ok bool
	r.family, r.size, ok = strings.Cut(rec[0], ".")
	if !ok || !word(r.family) || !word(r.size) {
		return r, fmt.Errorf("not the name of an instance type")
	}
	for _, s := range rec[1:3] {
		if s != "" && !word(strings.ReplaceAll(s, "_", "")) {
			return r, fmt.Errorf("%q cannot stand in the table", s)
		}
	}
	metal, err := strconv.ParseBool(rec[3])
	if err != nil {
		return r, err
	}
	if metal != strings.HasPrefix(r.size, "metal") {
		return r, fmt.Errorf("bare_metal is %v: the table takes that from the name, and now needs a field for it", metal)
	}
	r.metal = metal
	for i, dst := range []*int{&r.vcpus, &r.memory, &r.enis, &r.ips, &r.cards} {
		s := rec[4+i]
		if s == "" && i < 2 {
			continue // vCPUs and memory may be unknown; nothing works without the others
		}
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return r, fmt.Errorf("%s must be a positive number, not %q", columns[4+i], s)
		}
		*dst = n
	}
	return r, nil
}

func word(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return s != ""
}

func writeFamily(b *strings.Builder, rows []row) {
	arch, hypervisor, ratio := usual(rows)
	fmt.Fprintf(b, "%s %s %s %d", rows[0].family, orDash(arch), orDash(hypervisor), ratio)
	for _, r := range rows {
		fields := []string{"", "", "", "", ""}
		fields[0] = number(r.vcpus)
		if r.memory != ratio*r.vcpus {
			fields[1] = number(r.memory)
		}
		if r.cards != 1 {
			fields[2] = number(r.cards)
		}
		if r.arch != arch {
			fields[3] = orDash(r.arch)
		}
		if r.metal && r.hypervisor != "" || !r.metal && r.hypervisor != hypervisor {
			fields[4] = orDash(r.hypervisor)
		}
		tail := strings.TrimRight(","+strings.Join(fields, ","), ",")
		fmt.Fprintf(b, " %s=%dx%d%s", r.size, r.enis, r.ips, tail)
	}
	b.WriteByte('\n')
}

// usual gives what most members of a family have. Bare metal has no hypervisor
// and so no say in that.
func usual(rows []row) (arch, hypervisor string, ratio int) {
	var archs, hypervisors []string
	var ratios []int
	for _, r := range rows {
		if r.arch != "" {
			archs = append(archs, r.arch)
		}
		if !r.metal {
			hypervisors = append(hypervisors, r.hypervisor)
		}
		if r.vcpus > 0 && r.memory%r.vcpus == 0 {
			ratios = append(ratios, r.memory/r.vcpus)
		}
	}
	return most(archs), most(hypervisors), most(ratios)
}

func most[T cmp.Ordered](list []T) T {
	var best T
	count := 0
	slices.Sort(list)
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j] == list[i] {
			j++
		}
		if j-i > count {
			best, count = list[i], j-i
		}
		i = j
	}
	return best
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
