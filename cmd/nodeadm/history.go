package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/apply"
)

func historyCommand() *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "list what earlier runs changed, or show one of them",
		ArgsUsage: "[GENERATION]",
		Description: "Each run that changes something is a generation: what it wrote and what stood there before are kept in\n" +
			"/var/lib/nodeadm/generations. With a number the files of that one are shown as differences.",
		Flags:  append([]cli.Flag{rootFlag(), outputFlag()}, logFlags()...),
		Action: history,
	}
}

func history(c *cli.Context) error {
	options, err := rootOptions(c)
	if err != nil {
		return err
	}
	root := rootfs.Root(options.Root)
	all, err := apply.Generations(root)
	if err != nil {
		return err
	}
	if c.Args().Present() {
		number, err := generationNumber(c)
		if err != nil {
			return err
		}
		for _, g := range all {
			if g.Number == number && g.Outcome == apply.Damaged {
				return fault.New(fault.Disk, "", "%s", g.Reason)
			}
			if g.Number == number {
				return showGeneration(c, root, g)
			}
		}
		return fault.New(fault.Usage, "see nodeadm history", "there is no generation %d", number)
	}
	if all == nil {
		all = []apply.Generation{}
	}
	return output(c, all, func() {
		if len(all) == 0 {
			fmt.Fprintln(c.App.Writer, "nodeadm has not changed anything here yet")
			return
		}
		table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "GENERATION\tTIME\tCOMMAND\tOUTCOME\tFILES\tNODEADM")
		for _, g := range all {
			outcome := string(g.Outcome)
			if g.Pruned {
				outcome += ", kept for reset only"
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%s\n", g.Number, g.Time.Format(time.RFC3339), g.Command, outcome, len(g.Files), g.Version)
		}
		table.Flush()
	})
}

// generationNumber is the one operand of a command.
func generationNumber(c *cli.Context) (int, error) {
	number, err := strconv.Atoi(c.Args().First())
	if err != nil || number < 0 || c.Args().Len() > 1 {
		return 0, fault.New(fault.Usage, "write one number, as nodeadm history lists them", "%q is not the number of a generation", c.Args().First())
	}
	return number, nil
}

// shownGeneration is a generation with its differences.
type shownGeneration struct {
	apply.Generation
	Diffs []previewedFile `json:"differences"`
}

func showGeneration(c *cli.Context, root rootfs.Root, g apply.Generation) error {
	shown := shownGeneration{Generation: g}
	for _, f := range g.Files {
		change := apply.Change{Path: f.Path, Action: f.Action, Origin: f.Origin}
		var err error
		if change.Old, err = g.Old(root, f); err != nil {
			return err
		}
		if !g.Pruned {
			if change.New, err = g.New(root, f); err != nil {
				return err
			}
		}
		for _, v := range []*apply.Version{f.Before, f.After} {
			change.Secret = change.Secret || v != nil && v.Secret
		}
		diff := previewFile(change)
		diff.OldMode, diff.Mode, diff.Owner = "", "", ""
		if f.Before != nil {
			diff.OldMode, diff.Owner = f.Before.Mode, fmt.Sprintf("%d:%d", f.Before.Owner.UID, f.Before.Owner.GID)
		}
		if f.After != nil {
			diff.Mode, diff.Owner = f.After.Mode, fmt.Sprintf("%d:%d", f.After.Owner.UID, f.After.Owner.GID)
		}
		shown.Diffs = append(shown.Diffs, diff)
	}
	return output(c, shown, func() { shown.print(c.App.Writer) })
}

func (g shownGeneration) print(w io.Writer) {
	fmt.Fprintf(w, "generation %d: %s, %s, %s, nodeadm %s\n", g.Number, g.Command, g.Time.Format(time.RFC3339), g.Outcome, g.Version)
	if g.Reason != "" {
		fmt.Fprintf(w, "  %s\n", g.Reason)
	}
	fmt.Fprintln(w)
	printFiles(w, g.Diffs)
}

func rollbackCommand() *cli.Command {
	return &cli.Command{
		Name:      "rollback",
		Usage:     "bring back what stood before the last change, or after an earlier one",
		ArgsUsage: "[GENERATION]",
		Description: "Files first, then units. Without a number the last generation is undone; with one, all that came after it.\n" +
			"A rollback is itself a generation: rolling back again undoes it.",
		Flags:  serviceFlags(),
		Action: rollback,
	}
}

func rollback(c *cli.Context) error {
	options, err := rootOptions(c)
	if err != nil {
		return err
	}
	to := nodeadm.Previous
	if c.Args().Present() {
		if to, err = generationNumber(c); err != nil {
			return err
		}
	}
	shown := follow(&options)
	result, err := nodeadm.Rollback(c.Context, to, options)
	shown.done(err)
	if err == nil && len(result.Changes) == 0 {
		options.Log.Info("nothing changed: the files stand as they stood then")
	}
	return err
}

func resetCommand() *cli.Command {
	return &cli.Command{
		Name:  "reset",
		Usage: "bring back what stood before nodeadm's first run, and forget this instance",
		Description: "For the snapshot of an image: files and units are as before the first run, kubelet's certificates and state are\n" +
			"gone, and so is nodeadm's own memory. It cannot be undone.",
		Flags:  serviceFlags(),
		Action: reset,
	}
}

func reset(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := rootOptions(c)
	if err != nil {
		return err
	}
	shown := follow(&options)
	result, err := nodeadm.Reset(c.Context, options)
	shown.done(err)
	switch {
	case err != nil:
	case len(result.Changes) == 0 && len(result.Forgotten) == 0:
		options.Log.Info("nothing changed: nodeadm has not changed anything here")
	default:
		options.Log.Info("the node is as it was before nodeadm's first run")
	}
	return err
}
