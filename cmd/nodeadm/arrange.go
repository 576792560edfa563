package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/argv"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// arrange puts the words after a command into the order the command line
// library wants: it stops reading flags at the first operand.
func arrange(app *cli.App, args []string) ([]string, error) {
	head, commands := 1, app.Commands
	var command *cli.Command
	for head < len(args) {
		next := find(commands, args[head])
		if next == nil {
			break
		}
		command, commands = next, next.Subcommands
		head++
	}
	if command == nil {
		return args, nil
	}
	known := map[string]argv.Arity{"help": argv.Switch, "h": argv.Switch}
	for _, f := range command.Flags {
		_, isSwitch := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			known[name] = argv.Value
			if isSwitch {
				known[name] = argv.Switch
			}
		}
	}
	flags, operands, err := argv.Split(args[head:], known)
	if err != nil {
		return nil, err
	}
	if slices.Contains(flags, "--help") || slices.Contains(flags, "--h") {
		return append(slices.Clone(args[:head]), "--help"), nil
	}
	arranged := append(slices.Clone(args[:head]), flags...)
	return append(append(arranged, "--"), operands...), nil
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// unknownCommand is what runs when no command was named, or none of a group.
func unknownCommand(c *cli.Context) error {
	commands, group := c.App.Commands, ""
	if c.Command != nil && len(c.Command.Subcommands) > 0 && c.Command.Name != c.App.Name {
		commands, group = c.Command.Subcommands, c.Command.Name+" "
	}
	if !c.Args().Present() && group == "" {
		return cli.ShowAppHelp(c)
	}
	word := c.Args().First()
	var names []string
	for _, command := range commands {
		if command.Name != "help" {
			names = append(names, command.Name)
		}
	}
	if word == "" { // a script whose variable is empty is not to go on
		return fault.New(fault.Usage, "name one of "+strings.Join(names, ", ")+"; see nodeadm "+group+"--help", "nodeadm %sneeds a command", group)
	}
	remedy := "the commands are " + strings.Join(names, ", ")
	if nearest := suggest.Nearest(word, names); nearest != "" {
		remedy = "did you mean nodeadm " + group + nearest + "?"
	}
	return fault.New(fault.Usage, remedy, "unknown command %q", word)
}

// noOperands refuses words that a command has no use for.
func noOperands(c *cli.Context) error {
	if c.Args().Present() {
		return fault.New(fault.Usage, "see "+c.Command.HelpName+" --help", "unexpected word %q", c.Args().First())
	}
	return nil
}

// usageError turns what the command line library says of a flag's value into
// one of ours.
func usageError(c *cli.Context, err error, _ bool) error {
	remedy := "see nodeadm --help; flags stand after the command"
	if c.Command != nil && c.Command.Name != "" {
		remedy = "see " + c.Command.HelpName + " --help"
	}
	if strings.Contains(err.Error(), "flag -timeout") {
		remedy = "write a duration such as 30s or 5m"
	}
	return fault.New(fault.Usage, remedy, "%w", err)
}

// refuseUsage installs usageError on all commands.
func refuseUsage(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		refuseUsage(c.Subcommands)
	}
}
