//go:build amd64 || arm64

package faults

import (
	"fmt"
	"maps"
	"testing"
)

// A run that is killed at any point leaves every file whole, as it was or as it
// was to be, and the next run ends as if nothing had happened.
func TestKilledAnywhere(t *testing.T) {
	total, ran := 0, 0
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, after := s.start(t)
			points := s.points(t, before, after)
			total, ran = total+len(points), ran+1
			for _, p := range points {
				t.Run(fmt.Sprintf("at %d", p.N), func(t *testing.T) {
					t.Parallel()
					root := t.TempDir()
					before.write(t, root)
					at, out := s.disturbed(t, root, p.N, Kill)
					if !out.Killed {
						t.Fatalf("%v: the run was not killed (exit %d):\n%s", p, out.Code, out.Output)
					}
					s.recovers(t, "killed at "+at.String(), root, before, after)
				})
			}
		})
	}
	// Standard output: the log of a test that passes is shown with -v only.
	fmt.Printf("nodeadm was killed at %d points of %d scenarios\n", total, ran)
	if total < 200 && ran == len(scenarios) { // not with -run and one of them
		t.Errorf("%d points are too few to say anything: are calls missed?", total)
	}
}

// The run that clears up after a killed one may be killed as well.
func TestKilledTwice(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, after := s.start(t)
			points := len(s.points(t, before, after))
			// All pairs would take an hour; these are spread over both runs.
			for first := 1; first <= points; first += 3 {
				second := 1 + first*7%points
				t.Run(fmt.Sprintf("at %d and %d", first, second), func(t *testing.T) {
					t.Parallel()
					root := t.TempDir()
					before.write(t, root)
					one, _ := s.disturbed(t, root, first, Kill)
					two, _ := s.disturbed(t, root, second, Kill) // or it has ended before
					s.recovers(t, fmt.Sprintf("killed at %v, then at %v", one, two), root, before, after)
				})
			}
		})
	}
}

// points are all changes that a scenario's run makes.
func (s scenario) points(t *testing.T, before, after tree) []Point {
	t.Helper()
	root := t.TempDir()
	before.write(t, root)
	out, err := Run(s.run.on(root), root, nil)
	if err != nil || out.Code != 0 {
		t.Fatalf("%v, exit %d:\n%s", err, out.Code, out.Output)
	}
	if diff := difference(after, readTree(t, root)); diff != "" {
		t.Fatalf("a traced run leads elsewhere:%s", diff)
	}
	return out.Points
}

// disturbed is the run with one action, at the n-th change.
func (s scenario) disturbed(t *testing.T, root string, n int, action Action) (at Point, out Outcome) {
	t.Helper()
	out, err := Run(s.run.on(root), root, func(p Point) Action {
		if p.N == n {
			at = p
			return action
		}
		return Continue
	})
	if err != nil {
		t.Fatalf("point %d: %v", n, err)
	}
	return at, out
}

// recovers checks what a run that was cut short has left, and what the next one
// makes of it.
func (s scenario) recovers(t *testing.T, what, root string, before, after tree) {
	t.Helper()
	if torn := notWhole(before, after, readTree(t, root)); torn != "" {
		t.Errorf("%s: neither as before nor as after:%s", what, torn)
	}
	next := s.run
	if s.again != nil {
		next = s.again
	}
	if output, code := next.run(t, root); code != 0 {
		t.Errorf("%s, the next run: exit %d:\n%s", what, code, brief(output))
	}
	if diff := difference(after, readTree(t, root)); diff != "" {
		t.Errorf("%s, after the next run:%s", what, diff)
	}
}

// notWhole says which files are neither as before nor as after.
func notWhole(before, after, now tree) string {
	was, wanted := tree{}, tree{}
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, path := range both.files() {
		if got := now[path]; !isState(path) && got != before[path] && got != after[path] {
			was[path], wanted[path] = after[path], got
		}
	}
	return difference(was, wanted)
}
