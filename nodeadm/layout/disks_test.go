package layout

import "testing"

func TestCheckDisksPath(t *testing.T) {
	for _, test := range []struct {
		path         string
		moves, stays bool // whether it is taken where data is moved, and where not
	}{
		{DisksPath, true, true},
		{"/data/", true, true},
		{"/etcetera", true, true},
		{"/var/lib/containerd-disks", true, true},
		{"/var/lib/containerd", false, true},
		{"/var/lib/containerd/x", false, true},
		{"/var/lib", false, true},
		{"/var", false, true},
		{"/", false, false},
		{"//", false, false},
		{"/etc", false, false},
		{"/proc/x", false, false},
		{"/usr/local/disks", false, false},
		{"/run", false, false},
	} {
		if moves, stays := CheckDisksPath(test.path, true), CheckDisksPath(test.path, false); (moves == nil) != test.moves || (stays == nil) != test.stays {
			t.Errorf("%s: %v, and %v", test.path, moves, stays)
		}
	}
}
