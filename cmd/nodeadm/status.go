package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/nodeadm"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "tell whether the node is as nodeadm made it",
		Description: "How the last run went, which files have changed since, which units run, and max pods. Exit code 0: as planned;\n" +
			"1: something has drifted, a run is at work, or there was none; 5: a service is down.",
		Flags:  append([]cli.Flag{rootFlag(), noStartFlag(), timeoutFlag(), outputFlag()}, logFlags()...),
		Action: status,
	}
}

func status(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := rootOptions(c)
	if err != nil {
		return err
	}
	s, err := nodeadm.ReadStatus(c.Context, options)
	if err != nil {
		return err
	}
	if err := output(c, s, func() { fmt.Fprint(c.App.Writer, s.Describe()) }); err != nil {
		return err
	}
	switch s.Verdict {
	case nodeadm.AsPlanned:
		return nil
	case nodeadm.ServiceDown:
		return exitCode(5)
	}
	return exitCode(1)
}
