package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// maxBinary is what every boot of every node pages in from a cold volume.
const maxBinary = 15 << 20 // bytes

// TestBinary builds the program as it ships: static, and no larger than it may
// be. One careless import can add more than the whole agent.
func TestBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeadm")
	build := exec.Command("make", "--silent", "-C", "../..", "build", "BIN="+path)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d %% of the limit", info.Size(), 100*info.Size()/maxBinary)
	if info.Size() > maxBinary {
		t.Errorf("%d bytes, more than %d", info.Size(), maxBinary)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is dynamically linked")
		}
	}
	t.Run("token", func(t *testing.T) { testTokenIsSmall(t, path) })
}

// testTokenIsSmall holds what kubelet calls every quarter of an hour, beside the
// node's pods, to 15 MiB. Its CPU time is told, in units of a start that does
// nothing, and fails no test: another machine takes another time.
func testTokenIsSmall(t *testing.T, program string) {
	endpoint := serveWorld(t, nil)
	small := filepath.Join(t.TempDir(), "measure")
	if out, err := exec.Command("go", "build", "-o", small, "./testdata/measure").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	measure := func(args ...string) (peak int64, cpu time.Duration) {
		for range 10 {
			out, err := exec.Command(small, append([]string{program}, args...)...).Output()
			var kibibytes, microseconds int64
			if _, scan := fmt.Sscan(string(out), &kibibytes, &microseconds); err != nil || scan != nil {
				t.Fatalf("%v, %v: %s", err, scan, out)
			}
			peak = max(peak, kibibytes)
			cpu += time.Duration(microseconds) * time.Microsecond
		}
		return peak, cpu / 10
	}
	_, start := measure("version")
	peak, cpu := measure("token", "--cluster-name", "c", "--imds-endpoint", endpoint)
	t.Logf("%.1f MiB at most; %v of CPU, %.1f times that of a start", float64(peak)/1024, cpu.Round(100*time.Microsecond), float64(cpu)/float64(start))
	if peak > 15<<10 { // KiB
		t.Errorf("%d KiB resident, more than 15 MiB", peak)
	}
}
