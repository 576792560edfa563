//go:build amd64 || arm64

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Somebody may have put a link where nodeadm is going to write, or above it. It
// is not followed, not even where it stays within the root: nobody named the
// place that it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	s := scenarios[0]
	_, after := s.start(t)
	for _, place := range after.places() {
		for name, leads := range map[string]func(from, inside, outside string) string{
			"inside":               func(from, inside, _ string) string { return relative(from, inside) },
			"inside from the root": func(string, string, string) string { return "/" + elsewhere },
			"outside":              func(_, _, outside string) string { return outside },
			"outside by dots":      func(from, _, outside string) string { return relative(from, outside) },
			"nowhere":              func(string, string, string) string { return "not-there" },
		} {
			t.Run(place+" leads "+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
				inside, link := filepath.Join(root, elsewhere), filepath.Join(root, place)
				for _, path := range []string{inside, link} {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				// What the link leads to is of the right kind, and there is
				// something to change in it.
				after.below(place).edited().write(t, inside)
				after.below(place).edited().write(t, outside)
				to := leads(filepath.Dir(link), inside, outside)
				if err := os.Symlink(to, link); err != nil {
					t.Fatal(err)
				}
				before := readTree(t, dir)
				output, code := s.run.run(t, root)
				if "/"+place == layout.KubeletUnit && strings.HasPrefix(name, "inside") {
					// The image's own unit, which may be a link. There is no need for
					// another one then, and no harm.
					now := readTree(t, dir)
					if kept := []string{"root/" + place, "root/" + elsewhere}; code != 0 || now[kept[0]] != before[kept[0]] || now[kept[1]] != before[kept[1]] {
						t.Errorf("/%s is a link to %s: exit %d, or it has changed:\n%s", place, to, code, brief(output))
					}
					return
				}
				if code != 4 || !namesThis(output, place) {
					t.Errorf("/%s is a link to %s: want exit 4 and an error that names it, got %d:\n%s", place, to, code, brief(output))
				}
				if diff := difference(before, readTree(t, dir)); diff != "" {
					t.Errorf("/%s is a link to %s; what has changed:%s", place, to, diff)
				}
			})
		}
	}
}

// elsewhere is a place in the root that nodeadm knows nothing of.
const elsewhere = "srv"

func relative(from, to string) string {
	rel, err := filepath.Rel(from, to)
	if err != nil {
		panic(err) // both are absolute
	}
	return rel
}

// edited is the tree after somebody has been at all its files.
func (t tree) edited() tree {
	edited := tree{}
	for path, e := range t {
		if e.mode.IsRegular() {
			e.content += "\n" // which no format minds
		}
		edited[path] = e
	}
	return edited
}
