package image

import (
	"path"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	parse "github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// predecessorUnits are those that AWS's images bring, and predecessorFlags the
// flags that only AWS's nodeadm has.
var (
	predecessorUnits = []string{"nodeadm-config.service", "nodeadm-run.service", "nodeadm-reconcile.service"}
	predecessorFlags = []string{"--skip", "-s", "--config-cache", "--daemon", "-d", "--development", "--console"}
)

// predecessors are the links that enable units of AWS's nodeadm: they would run
// this program, and fail, or be at work on the same node.
func predecessors(root rootfs.Root) (links []string) {
	for _, link := range enabling(root, "*.service") {
		unit := path.Base(link)
		if masked(root, unit) {
			continue
		}
		if slices.ContainsFunc(commands(root, link), func(words []string) bool { return forPredecessor(unit, words) }) {
			links = append(links, link)
		}
	}
	return links
}

// enabling are the links by which units are started with others.
func enabling(root rootfs.Root, unit string) (links []string) {
	for _, kind := range []string{"wants", "requires"} {
		found, _ := root.Glob(unitDir + "*." + kind + "/" + unit) // a link to nothing enables nothing
		links = append(links, found...)
	}
	return links
}

// forPredecessor tells of a command line that is meant for AWS's nodeadm.
func forPredecessor(unit string, words []string) bool {
	if len(words) == 0 || strings.TrimLeft(words[0], "-@:+!|") != layout.Program {
		return false
	}
	return slices.Contains(predecessorUnits, unit) || slices.ContainsFunc(words[1:], func(word string) bool {
		flag, _, _ := strings.Cut(word, "=")
		return slices.Contains(predecessorFlags, flag)
	})
}

// commands are what a unit runs, its drop-ins in /etc included.
func commands(root rootfs.Root, unit string) (commands [][]string) {
	dropIns, _ := root.Glob(unitDir + path.Base(unit) + ".d/*.conf")
	for _, file := range append([]string{unit}, dropIns...) {
		data, _ := root.ReadFile(file)
		parsed, _ := parse.ParseUnit(data) // a broken one is none that AWS's image brought
		for _, section := range parsed.Sections {
			for _, d := range section.Directives {
				switch {
				case section.Name != "Service" || d.Key != "ExecStart":
				case d.Value == "":
					commands = nil
				default:
					commands = append(commands, parse.ParseWords(d.Value))
				}
			}
		}
	}
	return commands
}
