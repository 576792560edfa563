package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"
)

// Set by the linker; see the Makefile.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
	date    = "unknown"
)

func versionText() string { return fmt.Sprintf("%s (commit %s, %s)", version, commit, date) }

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{outputFlag()},
		Action: func(c *cli.Context) error {
			if err := noOperands(c); err != nil {
				return err
			}
			return output(c, map[string]string{
				"version": version, "commit": commit, "date": date, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			}, func() { fmt.Fprintln(c.App.Writer, "nodeadm", versionText()) })
		},
	}
}

// outputFlag is carried by every command that answers something.
func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "text", Usage: "`FORMAT` of the answer: text or json"}
}

// output prints answer in the format asked for.
func output(c *cli.Context, answer any, text func()) error {
	switch format := c.String("output"); format {
	case "text":
		text()
		return nil
	case "json":
		enc := json.NewEncoder(c.App.Writer)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(answer)
	default:
		return unknownOutput(format)
	}
}
