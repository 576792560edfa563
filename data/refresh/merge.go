package main

import (
	"fmt"
	"slices"
	"strings"
)

// A report says what a source had to say about the table.
type report struct {
	added         []string // new types
	filled        []string // known types of which more is known now
	missing       []string // known types that the source does not have
	disagreements []string // known types with another network
}

func (r report) changes() bool { return len(r.added)+len(r.filled) > 0 }

// merge adds to a table what a source has found, and takes nothing away.
//
// Values that are known never change, whatever a source says. Nodes have been
// set up by them; and sources have been wrong about whole columns before, by
// adding up network cards. What was unknown may become known.
func merge(table, found []row) ([]row, report) {
	var rep report
	merged := slices.Clone(table)
	index := make(map[string]int, len(merged))
	for i, r := range merged {
		index[r.name] = i
	}
	seen := make(map[string]bool, len(found))
	for _, f := range found {
		seen[f.name] = true
		i, known := index[f.name]
		if !known {
			index[f.name] = len(merged)
			merged = append(merged, f)
			rep.added = append(rep.added, fmt.Sprintf("%s: %d ENIs x %d addresses", f.name, f.enis, f.ips))
			continue
		}
		r := &merged[i]
		if r.enis != f.enis || r.ips != f.ips {
			rep.disagreements = append(rep.disagreements, fmt.Sprintf("%s: %d ENIs x %d addresses, the table has %d x %d",
				f.name, f.enis, f.ips, r.enis, r.ips))
			continue
		}
		if names := r.fill(f); len(names) > 0 {
			rep.filled = append(rep.filled, r.name+": "+strings.Join(names, ", "))
		}
	}
	for _, r := range table {
		if !seen[r.name] {
			rep.missing = append(rep.missing, r.name)
		}
	}
	slices.SortFunc(merged, func(a, b row) int { return strings.Compare(a.name, b.name) })
	for _, list := range [][]string{rep.added, rep.filled, rep.disagreements} {
		slices.Sort(list)
	}
	return merged, rep
}

// fill takes from f what r does not know, and names what that was.
func (r *row) fill(f row) []string {
	var names []string
	if r.arch == "" && f.arch != "" {
		r.arch = f.arch
		names = append(names, "arch")
	}
	// No hypervisor is not an unknown one on bare metal.
	if r.hypervisor == "" && f.hypervisor != "" && !r.metal {
		r.hypervisor = f.hypervisor
		names = append(names, "hypervisor")
	}
	if r.vcpus == 0 && f.vcpus != 0 {
		r.vcpus = f.vcpus
		names = append(names, "vcpus")
	}
	if r.memory == 0 && f.memory != 0 {
		r.memory = f.memory
		names = append(names, "memory_mib")
	}
	return names
}
