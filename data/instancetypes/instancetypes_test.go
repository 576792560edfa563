package instancetypes

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func readCSV(t testing.TB, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return records[1:]
}

// maxPods is the rule of secondary addresses: the primary address of each ENI
// is not for pods, and two pods use the host's network.
func maxPods(t Type) int { return t.ENIs*(t.IPv4PerENI-1) + 2 }

func TestEveryRow(t *testing.T) {
	records := readCSV(t, "instance-types.csv")
	all := All()
	if len(all) != len(records) {
		t.Fatalf("All gives %d types, instance-types.csv has %d", len(all), len(records))
	}
	for i, rec := range records {
		n := func(s string) int {
			if s == "" {
				return 0
			}
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("%s: %v", rec[0], err)
			}
			return n
		}
		want := Type{
			Name: rec[0], Arch: rec[1], Hypervisor: rec[2], BareMetal: rec[3] == "true",
			VCPUs: n(rec[4]), MemoryMiB: n(rec[5]), ENIs: n(rec[6]), IPv4PerENI: n(rec[7]), NetworkCards: n(rec[8]),
		}
		if got, ok := Lookup(rec[0]); !ok || got != want {
			t.Errorf("Lookup(%s) = %+v, %v, want %+v", rec[0], got, ok, want)
		}
		if all[i] != want {
			t.Errorf("All()[%d] = %+v, want %+v", i, all[i], want)
		}
	}
}

// What has been released stays, with the numbers it was released with: nodes
// of a running cluster must not change when the agent does. The file gains
// rows, and loses none.
func TestReleasedTypesStay(t *testing.T) {
	released := readCSV(t, "testdata/released.csv")
	if len(released) < 1420 {
		t.Errorf("released.csv has %d rows; it had 1420", len(released))
	}
	for _, rec := range released {
		got, ok := Lookup(rec[0])
		if !ok {
			t.Errorf("%s has vanished", rec[0])
			continue
		}
		row := []string{got.Name, strconv.Itoa(got.ENIs), strconv.Itoa(got.IPv4PerENI), strconv.Itoa(maxPods(got))}
		if !slices.Equal(row, rec) {
			t.Errorf("%s is now %v, was released as %v", rec[0], row, rec)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	all := All()
	seen := make(map[string]bool)
	for i, x := range all {
		if i > 0 && all[i-1].Name >= x.Name {
			t.Errorf("%s and %s are not in order", all[i-1].Name, x.Name)
		}
		if seen[x.Name] {
			t.Errorf("%s stands there twice", x.Name)
		}
		seen[x.Name] = true
		if x.ENIs < 1 || x.IPv4PerENI < 2 || x.NetworkCards < 1 {
			t.Errorf("%+v: incomplete", x)
		}
		// Documents say "fewer than 30 vCPUs" and programs "more than 30" where
		// the recommended cap changes. As long as nothing lies between, both are
		// right.
		if x.VCPUs >= 25 && x.VCPUs <= 31 {
			t.Errorf("%s has %d vCPUs: the limit of the pod cap has to be settled", x.Name, x.VCPUs)
		}
		if x.Arch != "" && x.Arch != "amd64" && x.Arch != "arm64" {
			t.Errorf("%s: architecture %q", x.Name, x.Arch)
		}
	}
}

func TestMaxPodsOfWellKnownTypes(t *testing.T) {
	for name, want := range map[string]int{
		"t3.nano":       4,
		"m4.large":      20,
		"m5.large":      29,
		"m4.xlarge":     58,
		"p5.48xlarge":   100,  // 32 cards, of which one counts
		"c6in.32xlarge": 394,  // 2 cards
		"c9g.24xlarge":  1514, // no cap here
	} {
		got, ok := Lookup(name)
		if !ok || maxPods(got) != want {
			t.Errorf("%s: %d pods (%v), want %d", name, maxPods(got), ok, want)
		}
	}
}

func TestLookupIsExact(t *testing.T) {
	for _, name := range []string{
		"", ".", "m5", "m5.", ".large", "m5.larg", "m5.large ", " m5.large", "M5.large", "m5.Large",
		"5.large", "m5.metal-48xl", "c7i.metal", "m5.large=3x10,2", "m5.large=", "m5.large.large", "m5 amd64.large",
		"m5.large\nm5", "\nm5.large", "m5\n.large", "#.large", "# Code.large", "m5.4096", "m5.arge", "m5.xlarge xlarge",
	} {
		if got, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) = %+v", name, got)
		}
	}
}

func TestFamily(t *testing.T) {
	var names []string
	for _, x := range Family("t3") {
		names = append(names, x.Name)
	}
	if got, want := strings.Join(names, " "), "t3.2xlarge t3.large t3.medium t3.micro t3.nano t3.small t3.xlarge"; got != want {
		t.Errorf("t3: %s, want %s", got, want)
	}
	for _, family := range []string{"", "t", "t3.", "t3 amd64", "\n", "T3", "zz9"} {
		if got := Family(family); len(got) != 0 {
			t.Errorf("Family(%q) = %v", family, got)
		}
	}
}

func TestSmallestOfFamily(t *testing.T) {
	for name, want := range map[string]string{
		"m5.123xlarge":  "m5.large",
		"m5.large":      "m5.large",
		"m5.":           "m5.large",
		"c7i-flex.huge": "c7i-flex.large",
		"t3.pico":       "t3.micro", // the first by name of micro and nano, which are equal
		"zz9.large":     "",
		"m5":            "",
		"":              "",
	} {
		got, ok := SmallestOfFamily(name)
		if got.Name != want || ok != (want != "") {
			t.Errorf("SmallestOfFamily(%q) = %q, %v, want %q", name, got.Name, ok, want)
		}
	}
}

func FuzzLookup(f *testing.F) {
	for _, s := range []string{"", ".", "m5.large", "m5.metal", "m5.metal-48xl", "m5\n.large", "u-6tb1.metal", "m5 amd64.large"} {
		f.Add(s)
	}
	names := make(map[string]bool)
	for _, x := range All() {
		names[x.Name] = true
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := Lookup(name)
		if ok != names[name] {
			t.Errorf("Lookup(%q) = %+v, %v", name, got, ok)
		}
		if ok && got.Name != name {
			t.Errorf("Lookup(%q) answers for %q", name, got.Name)
		}
		if x, ok := SmallestOfFamily(name); ok && !names[x.Name] {
			t.Errorf("SmallestOfFamily(%q) = %q", name, x.Name)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for _, name := range []string{"a1.large", "m5.large", "z1d.xlarge", "zz9.large"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Lookup(name)
			}
		})
	}
}
