package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/image"
)

func imageCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append(append(more, rootFlag(), outputFlag()), logFlags()...)
	}
	return &cli.Command{
		Name:  "image",
		Usage: "make a machine image one that nodes boot from",
		Description: "What an image build calls: install when kubelet and containerd are there, check, and clean as the last step before the\n" +
			"snapshot. --root DIR names an image that is mounted there.",
		Action: unknownCommand,
		Subcommands: []*cli.Command{
			{
				Name:   "install",
				Usage:  "install nodeadm, its unit and what a node needs around it; start nothing",
				Flags:  flags(&cli.BoolFlag{Name: "after-user-scripts", Usage: "make nodes at boot only when the scripts in user data have run"}),
				Action: imageInstall,
			},
			{
				Name:   "check",
				Usage:  "find everything that a node would lack",
				Flags:  flags(),
				Action: imageCheck,
			},
			{
				Name:   "clean",
				Usage:  "remove what belongs to the instance that the image was made on",
				Flags:  flags(&cli.BoolFlag{Name: "dry-run", Usage: "tell what would be done, and end with exit code 10 if there is anything"}),
				Action: imageClean,
			},
		},
	}
}

func imageInstall(c *cli.Context) error {
	options, err := imageOptions(c)
	if err != nil {
		return err
	}
	self, err := ownProgram(os.Executable, os.Args[0])
	if err != nil {
		return err
	}
	changes, err := image.Install(c.Context, image.Options{Root: rootfs.Root(options.Root), Program: self, AfterScripts: c.Bool("after-user-scripts")})
	if err != nil {
		return err
	}
	return printChanges(c, changes, "nothing to do: everything is installed")
}

// ownProgram is the file that is running, found by the name it was called by
// where there is no /proc to ask, as in a chroot.
func ownProgram(executable func() (string, error), name string) (string, error) {
	self, err := executable()
	if err == nil {
		return self, nil
	}
	if self, _ := exec.LookPath(name); self != "" {
		return self, nil
	}
	return "", fault.New(fault.Disk, "mount /proc, or call nodeadm by its path", "find the program that is running: %w", err)
}

func imageCheck(c *cli.Context) error {
	options, err := imageOptions(c)
	if err != nil {
		return err
	}
	self, err := ownProgram(os.Executable, os.Args[0])
	if err != nil {
		return err
	}
	findings := image.Check(c.Context, image.Options{Root: rootfs.Root(options.Root), Program: self})
	if findings == nil {
		findings = []image.Finding{}
	}
	err = output(c, findings, func() {
		for _, f := range findings {
			fmt.Fprintf(c.App.Writer, "%s: %s\n  fix: %s\n", f.Name, f.What, f.Remedy)
		}
		if len(findings) == 0 {
			fmt.Fprintln(c.App.Writer, "the image has what a node needs")
		}
	})
	if err == nil && len(findings) > 0 {
		return exitCode(fault.Usage)
	}
	return err
}

func imageClean(c *cli.Context) error {
	options, err := imageOptions(c)
	if err != nil {
		return err
	}
	root := rootfs.Root(options.Root)
	const none = "nothing to do: no traces of an instance"
	planned, err := image.Plan(root)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		for i := range planned {
			planned[i].Action = "would " + planned[i].Action
		}
		if err := printChanges(c, planned, none); err != nil || len(planned) == 0 {
			return err
		}
		return changesPending
	}
	// What runs wrote for this instance goes first; services are left alone, since
	// the machine is about to be turned off.
	options.NoStart, options.Timeout = true, cleanTimeout
	result, err := nodeadm.Reset(c.Context, options)
	var changes []image.Change
	for _, change := range result.Changes {
		changes = append(changes, image.Change{Path: change.Path, Action: "bring back"})
	}
	for _, path := range result.Forgotten {
		changes = append(changes, image.Change{Path: path, Action: "remove"})
	}
	if err != nil {
		err = fault.New(fault.CodeOf(err), strings.ReplaceAll(fault.Remedy(err), "nodeadm reset", "nodeadm image clean"), "%w", err)
	} else {
		var removed []image.Change
		removed, err = image.Clean(c.Context, root)
		changes = append(changes, removed...)
	}
	if err != nil && len(changes) == 0 {
		return err
	}
	// What is done is told also where something has failed.
	return errors.Join(printChanges(c, changes, none), err)
}

// cleanTimeout bounds how long another run is waited for.
const cleanTimeout = 5 * time.Minute

func imageOptions(c *cli.Context) (nodeadm.Options, error) {
	if err := noOperands(c); err != nil {
		return nodeadm.Options{}, err
	}
	return rootOptions(c)
}

func printChanges(c *cli.Context, changes []image.Change, none string) error {
	if changes == nil {
		changes = []image.Change{}
	}
	width := 8
	for _, change := range changes {
		width = max(width, len(change.Action))
	}
	return output(c, changes, func() {
		for _, change := range changes {
			fmt.Fprintf(c.App.Writer, "%-*s %s\n", width, change.Action, change.Path)
		}
		if len(changes) == 0 {
			fmt.Fprintln(c.App.Writer, none)
		}
	})
}
