package kubelet

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is a kubelet's version. The zero Version is an unknown one.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads a version as people and programs write it: 1.30, v1.30.4,
// 1.30.4-eks-abc123, v1.31.0+k3s, or the output of `kubelet --version`.
func ParseVersion(s string) (Version, error) {
	text := strings.TrimSpace(s)
	text = strings.TrimPrefix(text, "Kubernetes ")
	text = strings.TrimPrefix(text, "v")
	// What a vendor adds says nothing about what the kubelet understands.
	if i := strings.IndexAny(text, "-+"); i >= 0 {
		text = text[:i]
	}
	parts := strings.Split(text, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return Version{}, fmt.Errorf("%q is not a Kubernetes version such as 1.30.4", s)
	}
	var v Version
	for i, dst := range []*int{&v.Major, &v.Minor, &v.Patch}[:len(parts)] {
		n, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil {
			return Version{}, fmt.Errorf("%q is not a Kubernetes version such as 1.30.4", s)
		}
		*dst = int(n)
	}
	return v, nil
}

// String gives the version as Kubernetes writes it, such as v1.30.4.
func (v Version) String() string {
	return fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// AtLeast reports whether v is of the given minor or a later one.
func (v Version) AtLeast(minor int) bool {
	return v.Compare(Version{Major: 1, Minor: minor}) >= 0
}

// Compare is negative if v is older than w, and positive if it is newer.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch))
}
