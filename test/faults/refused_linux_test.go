//go:build amd64 || arm64

package faults

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

var diskErrors = []unix.Errno{unix.ENOSPC, unix.EIO, unix.EROFS, unix.EACCES}

// Whatever the disk refuses, a run does all or nothing, and says which.
func TestDiskErrors(t *testing.T) {
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, after := s.start(t)
			for _, p := range s.points(t, before, after) {
				errnos := diskErrors
				if i > 0 { // one is enough where the first scenario has seen them all
					errnos = diskErrors[p.N%len(diskErrors):][:1]
				}
				for _, errno := range errnos {
					t.Run(fmt.Sprintf("%s at %d", unix.ErrnoName(errno), p.N), func(t *testing.T) {
						t.Parallel()
						root := t.TempDir()
						before.write(t, root)
						at, out := s.disturbed(t, root, p.N, Fail(errno))
						if at.N == 0 {
							t.Fatalf("%v: the run did not get there (exit %d):\n%s", p, out.Code, out.Output)
						}
						if s.forgets && out.Code == 4 && namesPath(out.Output) {
							s.recovers(t, fmt.Sprintf("%v at %v", errno, at), root, before, after)
							return
						}
						allOrNothing(t, fmt.Sprintf("%v at %v", errno, at), before, after, readTree(t, root), out.Output, out.Code)
					})
				}
			}
		})
	}
}

// A filesystem that turns read-only in the middle lets nothing be undone. Then
// files are whole at least, and the next run, on a disk that works again, ends
// as if nothing had happened.
func TestDiskGoesAway(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before, after := s.start(t)
			for _, p := range s.points(t, before, after) {
				t.Run(fmt.Sprintf("at %d", p.N), func(t *testing.T) {
					t.Parallel()
					root := t.TempDir()
					before.write(t, root)
					out, err := Run(s.run.on(root), root, func(now Point) Action {
						if now.N < p.N {
							return Continue
						}
						return Fail(unix.EROFS)
					})
					if err != nil {
						t.Fatal(err)
					}
					if out.Code != 4 && out.Code != 0 || out.Code == 4 && !namesPath(out.Output) {
						t.Errorf("gone at %v: want exit 4, got %d:\n%s", p, out.Code, brief(out.Output))
					}
					s.recovers(t, "gone at "+p.String(), root, before, after)
				})
			}
		})
	}
}

// allOrNothing checks that a run that had to do with a bad disk either failed
// as it should and changed nothing, or succeeded.
func allOrNothing(t *testing.T, what string, before, after, now tree, output string, code int) {
	t.Helper()
	switch code {
	case 0:
		if diff := difference(after, now); diff != "" {
			t.Errorf("%s: exit 0, but:%s\n%s", what, diff, brief(output))
		}
	case 4:
		if diff := difference(before, now); diff != "" {
			t.Errorf("%s: exit 4, and it left:%s\n%s", what, diff, brief(output))
		}
		if !namesPath(output) {
			t.Errorf("%s: the error names no path:\n%s", what, brief(output))
		}
	default:
		t.Errorf("%s: exit %d, want 4:\n%s", what, code, brief(output))
	}
}
