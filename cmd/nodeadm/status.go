package main

import (
	"fmt"
	"io"
	"strings"
	"time"

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
	if err := output(c, s, func() { printStatus(c.App.Writer, s) }); err != nil {
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

// printStatus shows people how the node stands.
func printStatus(w io.Writer, s nodeadm.Status) {
	if s.Verdict == nodeadm.NeverRun {
		fmt.Fprintln(w, "nodeadm has not changed anything here yet")
		return
	}
	fmt.Fprintln(w, s.Verdict)
	if s.AtWork != "" {
		fmt.Fprintf(w, "  %s\n", s.AtWork)
	}
	if r := s.LastRun; r == nil {
		fmt.Fprintf(w, "\nlast run: none in this boot\n")
	} else {
		fmt.Fprintf(w, "\nlast run: %s, %s, %s after %.1f s, nodeadm %s\n", r.Command, r.Started.Format(time.RFC3339), r.Outcome, r.Seconds, r.Version)
		for _, p := range r.Phases {
			mark := ""
			if p.Failed {
				mark = "  failed"
			}
			fmt.Fprintf(w, "  %-10s %6.0f ms%s\n", p.Name, p.Seconds*1000, mark)
		}
		if r.Error != "" {
			fmt.Fprintf(w, "  error: %s\n", strings.ReplaceAll(r.Error, "\n", "\n  "))
		}
		if r.Remedy != "" {
			fmt.Fprintf(w, "  fix: %s\n", r.Remedy)
		}
		for _, c := range r.Conflicts {
			fmt.Fprintf(w, "  conflict: %s of %s was set by %q and stays; %q wants it otherwise\n", c.Field, c.Path, c.Manager, c.Wanted)
		}
	}
	if s.Generation > 0 {
		fmt.Fprintf(w, "\ngeneration: %d, %s\n", s.Generation, s.Outcome)
	}
	if s.Interrupted {
		fmt.Fprintf(w, "  that run was cut short; the next one undoes what it did\n")
	}
	if s.MaxPods != nil {
		fmt.Fprintf(w, "max pods: %d, from %s\n", s.MaxPods.Pods, s.MaxPods.Source)
		if s.MaxPods.Arithmetic != "" {
			fmt.Fprintf(w, "  %s\n", s.MaxPods.Arithmetic)
		}
	}
	if len(s.Drift) > 0 {
		fmt.Fprintf(w, "\nfiles that are not as the last run left them:\n")
		for _, d := range s.Drift {
			fmt.Fprintf(w, "  %s: %s\n", d.Path, d.What)
		}
	}
	if len(s.Units) > 0 {
		fmt.Fprintf(w, "\nunits:\n")
		for _, u := range s.Units {
			note := "runs what is on disk"
			if !u.Current {
				note = u.Why
			}
			fmt.Fprintf(w, "  %-24s %-10s %-10s %s\n", u.Name, u.Active, u.Enabled, note)
		}
	}
}
