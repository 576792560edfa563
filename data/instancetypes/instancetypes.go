// Package instancetypes knows what the network of each EC2 instance type can
// carry, without asking anybody.
//
// instance-types.csv is the source of record. The binary carries table.txt,
// made from it, and reads only the one line that a question is about: a boot
// asks for one instance type, and should not pay for 1,420.
//
// Rows are only ever added. A type that has disappeared from somebody's list
// still runs in somebody's cluster.
package instancetypes

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:generate go run ./internal/compact instance-types.csv table.txt

//go:embed table.txt
var table string

// Type is what is known of one instance type. A zero number or an empty string
// means unknown.
type Type struct {
	Name       string // such as m5.large
	Arch       string // amd64 or arm64
	Hypervisor string // nitro or xen; normally empty on bare metal, which has none
	BareMetal  bool
	VCPUs      int
	MemoryMiB  int

	// ENIs is how many network interfaces fit on the default network card. The
	// VPC CNI gives pods addresses from that card only, so the cards of a
	// p5.48xlarge must not be added up. Always known.
	ENIs int

	// IPv4PerENI counts the addresses of one interface, its own primary address
	// included. Always known.
	IPv4PerENI int

	NetworkCards int
}

// Lookup finds a type by its exact name.
//
// A prefix is never enough: bootstrap.sh matched names as patterns, and
// m5.metal and m5.metal-48xl are different machines.
func Lookup(name string) (Type, bool) {
	family, size, ok := strings.Cut(name, ".")
	if !ok || !word(size) {
		return Type{}, false
	}
	l, ok := findLine(family)
	if !ok {
		return Type{}, false
	}
	_, entry, ok := strings.Cut(l.entries, " "+size+"=")
	if !ok {
		return Type{}, false
	}
	entry, _, _ = strings.Cut(entry, " ")
	return l.parse(size, entry), true
}

// Family gives every known type of a family, such as "m5", sorted by name. It
// is empty for an unknown family.
func Family(family string) []Type {
	l, ok := findLine(family)
	if !ok {
		return nil
	}
	return l.types(nil)
}

// SmallestOfFamily stands in for a type that is not in the table, such as
// m5.123xlarge: of the types of its family it gives the one whose secondary
// addresses, ENIs*(IPv4PerENI-1), are fewest. Too few pods on a node are a
// smaller evil than pods that never get an address.
func SmallestOfFamily(name string) (Type, bool) {
	family, _, ok := strings.Cut(name, ".")
	if !ok {
		return Type{}, false
	}
	var smallest Type
	for i, t := range Family(family) {
		if i == 0 || t.secondary() < smallest.secondary() {
			smallest = t
		}
	}
	return smallest, smallest.Name != ""
}

func (t Type) secondary() int { return t.ENIs * (t.IPv4PerENI - 1) }

// All gives every type of the table, sorted by name.
func All() []Type {
	var all []Type
	for text := range strings.Lines(table) {
		if strings.HasPrefix(text, "#") {
			continue
		}
		all = newLine(strings.TrimSuffix(text, "\n")).types(all)
	}
	return all
}

// A line of the table: internal/compact describes its form.
type line struct {
	family, arch, hypervisor string
	memoryPerVCPU            int
	entries                  string // " large=3x10,2 metal=15x50,96"
}

func findLine(family string) (line, bool) {
	// Nothing but a word may be searched for: with a space or a newline in it,
	// other parts of the table would match.
	if !word(family) {
		return line{}, false
	}
	// The table begins with a comment, so every family follows a newline.
	i := strings.Index(table, "\n"+family+" ")
	if i < 0 {
		return line{}, false
	}
	text, _, _ := strings.Cut(table[i+1:], "\n")
	return newLine(text), true
}

func newLine(text string) line {
	var l line
	l.family, text, _ = strings.Cut(text, " ")
	l.arch, text, _ = strings.Cut(text, " ")
	l.hypervisor, text, _ = strings.Cut(text, " ")
	ratio, _, _ := strings.Cut(text, " ")
	l.memoryPerVCPU = number(ratio)
	l.entries = text[len(ratio):]
	return l
}

func (l line) types(all []Type) []Type {
	for entry := range strings.FieldsSeq(l.entries) {
		size, facts, _ := strings.Cut(entry, "=")
		all = append(all, l.parse(size, facts))
	}
	return all
}

func (l line) parse(size, facts string) Type {
	t := Type{
		Name:         l.family + "." + size,
		Arch:         known(l.arch),
		BareMetal:    strings.HasPrefix(size, "metal"),
		NetworkCards: 1,
	}
	if !t.BareMetal {
		t.Hypervisor = known(l.hypervisor)
	}

	enis, facts, _ := strings.Cut(facts, "x")
	ips, facts, _ := strings.Cut(facts, ",")
	vcpus, facts, _ := strings.Cut(facts, ",")
	memory, facts, _ := strings.Cut(facts, ",")
	cards, facts, _ := strings.Cut(facts, ",")
	arch, hypervisor, _ := strings.Cut(facts, ",")

	t.ENIs, t.IPv4PerENI, t.VCPUs = number(enis), number(ips), number(vcpus)
	t.MemoryMiB = t.VCPUs * l.memoryPerVCPU
	if memory != "" {
		t.MemoryMiB = number(memory)
	}
	if cards != "" {
		t.NetworkCards = number(cards)
	}
	if arch != "" {
		t.Arch = known(arch)
	}
	if hypervisor != "" {
		t.Hypervisor = known(hypervisor)
	}
	return t
}

func known(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// number reads a number of the table, where "-" is unknown. The generator has
// checked every other one.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// word reports whether s can be one half of an instance type's name.
func word(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return s != ""
}
