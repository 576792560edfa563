package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

const simulationTimeout = time.Minute

// summary is what a simulation answers in JSON.
type summary struct {
	Root         string        `json:"root"`
	InstanceType string        `json:"instanceType"`
	Kubelet      string        `json:"kubelet"`
	MaxPods      int           `json:"maxPods"`
	ENILimited   int           `json:"eniLimitedPods"`
	Files        []summaryFile `json:"files"`
	Units        []string      `json:"units"`
	Warnings     []string      `json:"warnings,omitempty"`
}

type summaryFile struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	Size int    `json:"size"`
}

func summarize(root string, r nodeadm.Result) summary {
	s := summary{
		Root: root, InstanceType: r.Facts.Instance.Type, Kubelet: r.Facts.Host.Kubelet.String(),
		MaxPods: r.Plan.MaxPods.Effective, ENILimited: r.Plan.MaxPods.ENILimited, Warnings: r.Plan.Warnings,
	}
	for _, f := range r.Plan.Files {
		s.Files = append(s.Files, summaryFile{f.Path, fmt.Sprintf("%04o", f.Mode), len(f.Data)})
	}
	for _, u := range r.Plan.Units {
		s.Units = append(s.Units, u.Name)
	}
	return s
}

// printNode shows people what would be on the node.
func printNode(w io.Writer, root string, r nodeadm.Result) {
	i, p := r.Facts.Instance, r.Plan
	fmt.Fprintf(w, "\n%s %s in %s, kubelet %s, containerd %s\n", i.Type, i.ID, i.Zone, r.Facts.Host.Kubelet, r.Facts.Host.Containerd)
	fmt.Fprintf(w, "\nmax pods: %d, from %s\n  %s\n", p.MaxPods.Effective, p.MaxPods.Source, p.MaxPods.Arithmetic)
	fmt.Fprintf(w, "\nfiles below %s:\n", root)
	for _, f := range p.Files {
		fmt.Fprintf(w, "  %04o %6d  %s\n", f.Mode, len(f.Data), f.Path)
	}
	fmt.Fprintf(w, "\nunits, in the order they come up:\n")
	for _, u := range p.Units {
		fmt.Fprintf(w, "  %s\n", u.Name)
	}
	for _, f := range p.Files {
		if f.Path == layout.KubeletArgs || f.Path == layout.KubeletExtraArgs {
			fmt.Fprintf(w, "\n%s:\n  %s\n", f.Path, strings.ReplaceAll(strings.TrimSpace(string(f.Data)), "\n", "\n  "))
		}
	}
	fmt.Fprintln(w)
}
