//go:build amd64 || arm64

package faults

import (
	"fmt"
	"regexp"
	"sync"
	"testing"
)

// Two runs that are started together on one root do the work of one.
func TestTogether(t *testing.T) {
	seen := regexp.MustCompile(`waiting for it|nothing changed`)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, after := s.start(t)
			for n := range 10 {
				root := t.TempDir()
				before.write(t, root)
				var both sync.WaitGroup
				said, codes := [2]string{}, [2]int{}
				for i := range said {
					both.Go(func() { said[i], codes[i] = s.run.run(t, root) })
				}
				both.Wait()
				outputs := fmt.Sprintf("exit %d:\n%sexit %d:\n%s", codes[0], said[0], codes[1], said[1])
				if codes != [2]int{} {
					t.Fatalf("round %d: %s", n, outputs)
				}
				if diff := difference(after, readTree(t, root)); diff != "" {
					t.Errorf("round %d:%s", n, diff)
				}
				if !seen.MatchString(outputs) {
					t.Errorf("round %d: neither noticed the other: %s", n, outputs)
				}
			}
		})
	}
}
