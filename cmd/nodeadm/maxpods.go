package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

func unknownOutput(format string) error {
	return fault.New(fault.Usage, "write -o text or -o json", "--output: %q is not known", format)
}

func maxPodsCommand() *cli.Command {
	return &cli.Command{
		Name:  "max-pods",
		Usage: "print how many pods an instance type can run",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "instance-type", Usage: "EC2 instance `TYPE`, such as m5.large"},
			outputFlag(),
		},
		Action: maxPods,
	}
}

func maxPods(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	name := c.String("instance-type")
	if name == "" {
		return fault.New(fault.Usage, "nodeadm max-pods --instance-type m5.large", "no instance type is given")
	}
	t, known := instancetypes.Lookup(name)
	if !known {
		return fault.New(fault.Usage, didYouMean(name), "instance type %q is not in this version's table", name)
	}
	pods := plan.ENIMaxPods(t.ENIs, t.IPv4PerENI)
	return output(c, map[string]any{
		"instanceType": t.Name, "enis": t.ENIs, "ipv4PerENI": t.IPv4PerENI, "maxPods": pods,
	}, func() { fmt.Fprintln(c.App.Writer, pods) })
}

func didYouMean(name string) string {
	var names []string
	for _, t := range instancetypes.All() {
		names = append(names, t.Name)
	}
	if nearest := suggest.Nearest(name, names); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "check the spelling, or update nodeadm"
}
