package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/doctor"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "find out why this node does not join its cluster",
		Description: "Asks everything that a node depends on, side by side, within 20 seconds, and changes nothing. The first\n" +
			"failure, in the order in which one thing depends on the other, is the cause. Exit code 0: nothing is wrong;\n" +
			"1: there are warnings; 2: a cause was found.",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "check", Usage: "make the check `NAME`, and those that it needs (repeatable)"},
			&cli.StringSliceFlag{Name: "skip", Usage: "leave the check `NAME` out (repeatable)"},
			&cli.IntFlag{Name: "level", Value: int(doctor.AWS), Usage: "go as far as `N`: 0 the machine alone, 1 the network, 2 reading from AWS's APIs where that is allowed"},
			&cli.BoolFlag{Name: "list", Usage: "list all checks"},
			&cli.BoolFlag{Name: "all", Usage: "show the checks that found nothing too"},
			outputFlag(), imdsFlag(),
		}, logFlags()...),
		Action: examine,
		Subcommands: []*cli.Command{{
			Name:      "explain",
			Usage:     "tell what a check asks and why",
			ArgsUsage: "NAME",
			Flags:     append([]cli.Flag{outputFlag()}, logFlags()...),
			Action:    explainCheck,
		}},
	}
}

func examine(c *cli.Context) error {
	if c.Args().Present() {
		return unknownCommand(c)
	}
	if c.Bool("list") {
		return listChecks(c)
	}
	level := c.Int("level")
	if level < int(doctor.Machine) || level > int(doctor.AWS) {
		return fault.New(fault.Usage, "write 0, 1 or 2", "--level: %d is no level", level)
	}
	selection := doctor.Selection{Only: c.StringSlice("check"), Skip: c.StringSlice("skip"), Level: doctor.Level(level)}
	for _, name := range slices.Concat(selection.Only, selection.Skip) {
		if _, err := checkNamed(name); err != nil {
			return err
		}
	}
	if unmade := selection.Unmade(); len(unmade) > 0 {
		return fault.New(fault.Usage, "nodeadm doctor --list shows the level of each", "--check %s: it is above the level, or to be skipped", strings.Join(unmade, ", "))
	}
	if err := asRoot(c); err != nil {
		return err
	}
	options, err := commonOptions(c)
	if err != nil {
		return err
	}
	options.Root = "/"
	if options.AWS, err = awsOptions(); err != nil {
		return err
	}
	if options.IMDSEndpoint, err = metadataEndpoint(c); err != nil {
		return err
	}
	quiet(c, options)
	if err := proxyOf(c.Context, options, selection.Level); err != nil {
		return err
	}
	report := nodeadm.Diagnose(c.Context, options, selection)
	if err := output(c, report, func() { printReport(c.App.Writer, report, c.Bool("all")) }); err != nil {
		return err
	}
	switch {
	case report.Cause != "":
		return exitCode(2)
	case report.Count(doctor.Warning) > 0:
		return exitCode(1)
	}
	return nil
}

// asRoot refuses to look at what only root sees: half of an examination names
// the wrong cause.
func asRoot(c *cli.Context) error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Usage, "sudo nodeadm "+c.Command.Name, "nodeadm %s has to be run as root", c.Command.Name)
	}
	return nil
}

// proxyNames are the variables that name proxies, as kubelet reads them.
var proxyNames = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// proxyOf goes to the network the way kubelet does, whatever the shell says: by
// the environment of the kubelet that runs or, where none does, by the
// configuration.
func proxyOf(ctx context.Context, options nodeadm.Options, level doctor.Level) error {
	for _, name := range proxyNames {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	if environment, running := kubeletEnvironment(ctx); running {
		for _, name := range proxyNames {
			if value := environment[name]; value != "" {
				if err := os.Setenv(name, value); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if level < doctor.Network {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	sources, err := nodeadm.ReadSources(ctx, nil, rootfs.Root(options.Root), newMetadata(options), strings.NewReader(""))
	if err != nil {
		return nil // a check says so
	}
	if _, wanted, err := config.Read(sources, config.ReadOptions{Scripts: true, Lenient: true}); err == nil {
		return useProxy(wanted)
	}
	return nil
}

const proxyTimeout = 2 * time.Second

// kubeletEnvironment is the environment of the kubelet that runs.
func kubeletEnvironment(ctx context.Context) (map[string]string, bool) {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	manager, err := systemd.Observe(ctx)
	if err != nil {
		return nil, false
	}
	defer manager.Close()
	state, err := manager.State(ctx, layout.KubeletService)
	if err != nil || state.MainPID == 0 {
		return nil, false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", state.MainPID))
	if err != nil {
		return nil, false
	}
	environment := map[string]string{}
	for variable := range strings.SplitSeq(string(data), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	return environment, true
}

func listChecks(c *cli.Context) error {
	checks := doctor.Checks()
	return output(c, checks, func() {
		for _, check := range checks {
			fmt.Fprintf(c.App.Writer, "%s  %-22s %s\n", check.Level, check.Name, check.Question)
		}
	})
}

func explainCheck(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return fault.New(fault.Usage, "nodeadm doctor explain NAME; nodeadm doctor --list shows all names", "name one check")
	}
	check, err := checkNamed(c.Args().First())
	if err != nil {
		return err
	}
	return output(c, check, func() {
		w := c.App.Writer
		fmt.Fprintf(w, "%s (%s)\n\n%s\n%s\n", check.Name, check.Level, check.Question, check.Explanation)
		if len(check.Needs) > 0 {
			fmt.Fprintf(w, "\nNot asked where one of these failed: %s\n", strings.Join(check.Needs, ", "))
		}
	})
}

func checkNamed(name string) (doctor.Check, error) {
	var names []string
	for _, check := range doctor.Checks() {
		if check.Name == name {
			return check, nil
		}
		names = append(names, check.Name)
	}
	remedy := "nodeadm doctor --list shows all names"
	if nearest := suggest.Nearest(name, names); nearest != "" {
		remedy = "did you mean " + nearest + "?"
	}
	return doctor.Check{}, fault.New(fault.Usage, remedy, "there is no check %q", name)
}

// printReport tells people the verdict first, then what it was seen by, and then
// the rest.
func printReport(w io.Writer, r doctor.Report, all bool) {
	verdict := r.Verdict
	if r.Cause != "" {
		verdict = "CAUSE " + verdict
	}
	fmt.Fprintln(w, verdict)
	for _, result := range r.Results {
		if result.Check == r.Cause {
			printFinding(w, result.Finding)
		}
	}
	section := func(title string, chosen func(doctor.Result) bool, full bool) {
		begun := false
		for _, result := range r.Results {
			if !chosen(result) {
				continue
			}
			if !begun {
				fmt.Fprintf(w, "\n%s:\n", title)
				begun = true
			}
			fmt.Fprintf(w, "  %-22s %s\n", result.Check, strings.ReplaceAll(result.Summary, "\n", "\n    "))
			if full {
				printFinding(w, result.Finding)
			}
		}
	}
	section("what failed after it, and may follow from it", func(x doctor.Result) bool { return x.Consequence }, false)
	section("warnings", func(x doctor.Result) bool { return x.Status == doctor.Warning }, true)
	if all {
		section("fine", func(x doctor.Result) bool { return x.Status == doctor.OK }, false)
		section("not asked", func(x doctor.Result) bool { return x.Status == doctor.Skipped }, false)
	}
	fmt.Fprintf(w, "\n%d fine, %d not asked, in %.1f s; --all shows them\n", r.Count(doctor.OK), r.Count(doctor.Skipped), r.Seconds)
}

func printFinding(w io.Writer, f doctor.Finding) {
	for _, line := range f.Evidence {
		fmt.Fprintf(w, "    %s\n", line)
	}
	if f.Remedy != "" {
		fmt.Fprintf(w, "  fix: %s\n", f.Remedy)
	}
}

// blockLines is how many lines a failure of a run may take on the console, which
// EC2 keeps the last 64 KiB of.
const blockLines = 12

// explainFailure tells the log why a run has failed.
func explainFailure(c *cli.Context, options nodeadm.Options, started time.Time, err error) {
	if c.Bool("dry-run") || !nodeadm.Explicable(c.Context, options, err) {
		return
	}
	report := nodeadm.ExplainFailure(c.Context, options, started, err)
	for _, line := range block(report) {
		options.Log.Error(line)
	}
}

// block is a report for the console.
func block(r doctor.Report) []string {
	if r.Cause == "" {
		return []string{"doctor: apart from this failure nothing is wrong with the node"}
	}
	lines := []string{"doctor: CAUSE " + r.Verdict}
	var consequences []string
	for _, result := range r.Results {
		switch {
		case result.Check == r.Cause:
			for _, line := range result.Evidence {
				lines = append(lines, "doctor:   "+line)
			}
			for i, line := range strings.Split(result.Remedy, "\n") {
				label := "fix: "
				if i > 0 {
					label = "     "
				}
				if line != "" {
					lines = append(lines, "doctor:   "+label+line)
				}
			}
		case result.Consequence:
			consequences = append(consequences, result.Check)
		}
	}
	var end []string
	if len(consequences) > 0 {
		end = append(end, "doctor:   failed after it: "+strings.Join(consequences, ", "))
	}
	end = append(end, "doctor: nodeadm doctor on the node shows everything")
	// The remedy is what counts: evidence goes first.
	for room := blockLines - len(end); len(lines) > room; {
		lines = slices.Delete(lines, 1, 2)
	}
	whole := append(lines, end...)
	for i, line := range whole {
		line = strings.ReplaceAll(line, "\n", " ")
		if runes := []rune(line); len(runes) > blockWidth {
			line = string(runes[:blockWidth]) + "…"
		}
		whole[i] = line
	}
	return whole
}

const blockWidth = 400
