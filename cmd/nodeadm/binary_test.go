package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
}
