package image

import (
	"path"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
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
		if forPredecessor(root, link) && !masked(root, path.Base(link)) {
			links = append(links, link)
		}
	}
	return links
}

// enabling are the links by which units are started with others.
func enabling(root rootfs.Root, unit string) []string {
	wants, _ := root.Glob(unitDir + "*.wants/" + unit) // a link to nothing enables nothing
	requires, _ := root.Glob(unitDir + "*.requires/" + unit)
	return append(wants, requires...)
}

// forPredecessor tells of a unit that is meant for AWS's nodeadm, by what it runs
// with its drop-ins in /etc.
func forPredecessor(root rootfs.Root, unit string) (found bool) {
	dropIns, _ := root.Glob(unitDir + path.Base(unit) + ".d/*.conf")
	for _, file := range append([]string{unit}, dropIns...) {
		for _, line := range lines(root, file) {
			key, command, _ := strings.Cut(line, "=")
			if strings.TrimSpace(key) == "ExecStart" { // an empty one takes those before it back
				words := strings.Fields(command)
				found = len(words) > 0 && (found || predecessorRuns(path.Base(unit), words))
			}
		}
	}
	return found
}

func predecessorRuns(unit string, words []string) bool {
	if strings.TrimLeft(words[0], "-@:+!|") != layout.Program {
		return false
	}
	return slices.Contains(predecessorUnits, unit) || slices.ContainsFunc(words, func(word string) bool {
		flag, _, _ := strings.Cut(word, "=")
		return slices.Contains(predecessorFlags, flag)
	})
}
