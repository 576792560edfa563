// Command refresh brings the table of instance types up to date.
//
//	go run . -source ec2            # needs ec2:DescribeInstanceTypes
//	go run . -source cni -check     # needs nothing but the Go module proxy
//
// The table only grows. What a source lacks stays, and what a source says
// otherwise about the network of a known type is reported and not believed:
// that is for a person to decide. It is a module of its own, so that what it
// depends on never comes near the agent.
//
// Exit codes: 0 done; 1 the table would change (-check); 2 it did not work;
// 3 a source disagrees with the table.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "refresh:", err)
		code = exitFailed
	}
	os.Exit(code)
}

const (
	exitDone = iota
	exitWouldChange
	exitFailed
	exitDisagreement
)

func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("refresh", flag.ContinueOnError)
	source := flags.String("source", "both", "where to look: cni, ec2 or both")
	check := flags.Bool("check", false, "write nothing; exit with 1 if something would change")
	dir := flags.String("dir", "../instancetypes", "the folder of the table")
	version := flags.String("cni-version", cniVersion, "version of "+cniModule)
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() > 0 {
		return 0, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}

	// EC2 goes first: it is the origin of all other tables and knows most.
	var sources []origin
	if *source == "ec2" || *source == "both" {
		client, err := newEC2(ctx)
		if err != nil {
			return 0, err
		}
		sources = append(sources, origin{"ec2", func() ([]row, error) { return fromEC2(ctx, client) }})
	}
	if *source == "cni" || *source == "both" {
		sources = append(sources, origin{"cni", func() ([]row, error) { return fromCNI(ctx, *version) }})
	}
	if len(sources) == 0 {
		return 0, fmt.Errorf("-source is cni, ec2 or both, not %q", *source)
	}

	table, err := readTable(filepath.Join(*dir, tableFile))
	if err != nil {
		return 0, err
	}
	changed, disagreed := false, false
	for _, s := range sources {
		found, err := s.read()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		var r report
		table, r = merge(table, found)
		r.print(out, s.name, len(found))
		changed = changed || r.changes()
		disagreed = disagreed || len(r.disagreements) > 0
	}

	if changed && !*check {
		if err := write(ctx, *dir, table); err != nil {
			return 0, err
		}
	}
	switch {
	case disagreed:
		return exitDisagreement, nil
	case changed && *check:
		return exitWouldChange, nil
	}
	return exitDone, nil
}

type origin struct {
	name string
	read func() ([]row, error)
}

// write brings the three files of the table up to date.
func write(ctx context.Context, dir string, table []row) error {
	released := filepath.Join(dir, releasedFile)
	old, err := os.ReadFile(released)
	if err != nil {
		return err
	}
	grown, err := grow(old, table)
	if err != nil {
		return fmt.Errorf("%s: %w", released, err)
	}
	if err := os.WriteFile(filepath.Join(dir, tableFile), formatTable(table), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(released, grown, 0o644); err != nil {
		return err
	}
	// The generator belongs to the module of the table, and is run as that
	// module runs it.
	cmd := exec.CommandContext(ctx, "go", "generate", ".")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go generate: %w\n%s", err, bytes.TrimSpace(text))
	}
	return nil
}

func (r report) print(out io.Writer, source string, found int) {
	fmt.Fprintf(out, "%s: %d types, %d of them new\n", source, found, len(r.added))
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "  %s (%d):\n    %s\n", title, len(lines), strings.Join(lines, "\n    "))
		}
	}
	list("new", r.added)
	list("unknown fields filled in", r.filled)
	list("not there, and kept", r.missing)
	list("DISAGREES, and not believed", r.disagreements)
}
