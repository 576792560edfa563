package machine

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Several at once build one tree, and nobody sees half of it.
func TestCachedTreeIsBuiltOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	var built atomic.Int32
	build := func(tmp, log string) error {
		built.Add(1)
		time.Sleep(50 * time.Millisecond)
		return os.WriteFile(filepath.Join(tmp, "complete"), nil, 0o644)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := cachedTree(dir, build)
			if err != nil || got != dir || !exists(filepath.Join(dir, "complete")) {
				t.Errorf("%q, %v, or not complete", got, err)
			}
		})
	}
	wg.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

// A build that was killed leaves a directory; one that failed leaves none.
func TestCachedTreeAfterInterruption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	stale := dir + ".building-123"
	if err := os.MkdirAll(filepath.Join(stale, "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("mirror is down")
	if _, err := cachedTree(dir, func(string, string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if exists(dir) {
		t.Error("a failed build is taken for the tree")
	}
	if _, err := cachedTree(dir, func(string, string) error { return nil }); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(dir + ".building-*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
