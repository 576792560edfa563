package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name:        "config",
		Usage:       "check, show and convert configurations",
		Action:      unknownCommand,
		Subcommands: []*cli.Command{checkCommand(), showCommand(), convertCommand(), schemaCommand()},
	}
}

// documentFlags are for commands that read documents and change nothing.
func documentFlags() []cli.Flag {
	return append(append(sourceFlags(), outputFlag()), bootFlags()...)
}

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "find every mistake in documents, without an instance",
		ArgsUsage: "[FILE…]",
		Description: "Exit code 2 if there is any mistake; each is shown with its source, part, line and column. With\n" +
			"--kubelet-version the fields and flags of that kubelet are checked too. Nothing is asked of AWS.",
		Flags:  documentFlags(),
		Action: checkConfig,
	}
}

// finding is a mistake in JSON.
type finding struct {
	Message string `json:"message"`
	Source  string `json:"source,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

func checkConfig(c *cli.Context) error {
	documents, wanted, err := readDocuments(c)
	if version := c.String("kubelet-version"); version != "" && documents.Tree != nil {
		v, parseErr := kubelet.ParseVersion(version)
		if parseErr != nil {
			return fault.New(fault.Usage, "write a version such as 1.34.4", "--kubelet-version: %w", parseErr)
		}
		err = errors.Join(err, plan.CheckKubelet(wanted, v))
	}
	var findings []finding
	fault.Each(err, func(e error) {
		f := finding{Message: e.Error(), Remedy: fault.Remedy(e)}
		if p := (*doctree.Problem)(nil); errors.As(e, &p) {
			f.Message, f.Source, f.Line, f.Column = p.Message, p.Source, p.Line, p.Column
		}
		findings = append(findings, f)
	})
	answer := map[string]any{"valid": err == nil, "parts": documents.Parts, "findings": findings}
	printed := output(c, answer, func() {
		for _, p := range documents.Parts {
			fmt.Fprintln(c.App.Writer, describe(p))
		}
		if err == nil {
			fmt.Fprintln(c.App.Writer, "no mistakes")
		}
	})
	return errors.Join(printed, err)
}

func describe(p config.Part) string {
	verb := "not used"
	if p.Used {
		verb = "used"
	}
	return fmt.Sprintf("%s part %s (%s, %d bytes) is %s: %s", p.Source, p.Index, contentType(p.ContentType), p.Size, verb, p.Why)
}

// readDocuments reads what -c and operands name. Files may be named without
// file://, since people type them.
func readDocuments(c *cli.Context) (config.Documents, config.Config, error) {
	options, err := bootOptions(c)
	if err != nil {
		return config.Documents{}, config.Config{}, err
	}
	quiet(c, options)
	uris := c.StringSlice("config-source")
	for _, file := range c.Args().Slice() {
		if file != "-" {
			file = "file://" + file
		}
		uris = append(uris, file)
	}
	return loadDocuments(c, options, uris, true)
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name:  "show",
		Usage: "show the merged configuration, with the origin of each value",
		Description: "Shows every value of the merged documents and of the kubelet-config.json they lead to, and where it\n" +
			"comes from. With --instance-type the instance is simulated and the command works anywhere.",
		ArgsUsage: "[FILE…]",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "instance-type", Usage: "simulate an instance of `TYPE`"},
			&cli.BoolFlag{Name: "managed-fields", Usage: "show who has set each field of the files on this node instead"},
		}, documentFlags()...),
		Action: showConfig,
	}
}

// shown is one value of the answer.
type shown struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func showConfig(c *cli.Context) error {
	if c.Bool("managed-fields") {
		return showManagedFields(c)
	}
	documents, wanted, err := readDocuments(c)
	if err != nil {
		return err
	}
	options, err := bootOptions(c)
	if err != nil {
		return err
	}
	if name := c.String("instance-type"); name != "" {
		world := simulator.Default()
		world.Instance.Type = name
		endpoint, stop, err := simulator.New(knowing(world, wanted)).Start("")
		if err != nil {
			return err
		}
		defer stop()
		options.IMDSEndpoint, options.AWS.Endpoints = endpoint, map[string]string{"": endpoint}
		options.Machine, options.Simulated = simulatedMachine(name), true
		options.ContainerdVersion = simulatedContainerd
		if options.KubeletVersion == "" {
			options.KubeletVersion = simulatedKubelet
		}
	}
	if err := useProxy(wanted); err != nil {
		return err
	}
	planned, err := nodeadm.Plan(c.Context, wanted, options)
	if err != nil {
		return err
	}
	var values []shown
	documents.Tree.Leaves(func(path string, leaf *doctree.Node) {
		values = append(values, shown{path, redact(leaf.Text()), leaf.Origin.String()})
	})
	for _, o := range planned.Plan.Origins {
		values = append(values, shown{"kubelet-config.json: " + o.Path, o.Value, o.From})
	}
	return output(c, values, func() {
		table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		for _, v := range values {
			fmt.Fprintf(table, "%s\t%s\t%s\n", v.Path, shorten(v.Value), v.Origin)
		}
		table.Flush()
	})
}

// showManagedFields shows who has set what on this node.
func showManagedFields(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := rootOptions(c)
	if err != nil {
		return err
	}
	files, err := nodeadm.ManagedFiles(options)
	if err != nil {
		return err
	}
	return output(c, files, func() {
		if len(files) == 0 {
			fmt.Fprintln(c.App.Writer, "nodeadm has not changed anything here yet")
		}
		for _, file := range files {
			fmt.Fprintf(c.App.Writer, "%s:\n", file.Path)
			table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			for _, f := range file.Fields {
				value, _ := json.Marshal(f.Value) // it was read from a document
				if f.Value == nil {
					value = nil
				}
				fmt.Fprintf(table, "  %s\t%s\t%s\n", f.Field, redact(shorten(string(value))), strings.Join(f.Managers, ", "))
			}
			table.Flush()
		}
	})
}

// redact keeps passwords in URLs out of what people paste.
func redact(value string) string { return userInfo.ReplaceAllString(value, "://…@") }

var userInfo = regexp.MustCompile(`://[^/@\s"]+@`)

func shorten(s string) string {
	s = strings.ReplaceAll(s, "\n", "\\n")
	if len(s) > 80 {
		return s[:77] + "…"
	}
	return s
}

func convertCommand() *cli.Command {
	return &cli.Command{
		Name:      "convert",
		Usage:     "turn one kind of configuration into another",
		ArgsUsage: "[FILE | -- ARGUMENTS OF bootstrap.sh]",
		Description: "Reads user data that calls bootstrap.sh, the arguments of bootstrap.sh after --, a NodeConfig, or\n" +
			"Bottlerocket's settings in TOML; - is standard input. What has no counterpart is said on standard error.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "to", Value: "nodeconfig", Usage: "`KIND` to write: nodeconfig or bootstrap"},
		}, logFlags()...),
		Action: convert,
	}
}

func convert(c *cli.Context) error {
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	to := c.String("to")
	if to != "nodeconfig" && to != "bootstrap" {
		return fault.New(fault.Usage, "write --to nodeconfig or --to bootstrap", "--to: %q is not known", to)
	}
	tree, left, err := convertible(c)
	if err != nil {
		return err
	}
	if to == "nodeconfig" {
		text, err := tree.YAML()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "%s", text)
	} else {
		args, more := config.ToBootstrap(tree)
		left = append(left, more...)
		for i := range args {
			args[i] = config.QuoteWord(args[i])
		}
		fmt.Fprintln(c.App.Writer, "/etc/eks/bootstrap.sh", strings.Join(args, " "))
	}
	for _, path := range left {
		log.Warnf("%s is not converted: there is no counterpart", path)
	}
	return nil
}

// convertible reads whatever it is given as a NodeConfig document. left is what
// could not be read into one.
func convertible(c *cli.Context) (tree *doctree.Node, left []string, err error) {
	words := c.Args().Slice()
	if len(words) == 0 {
		return nil, nil, fault.New(fault.Usage, "nodeadm config convert user-data.txt, or nodeadm config convert -- my-cluster …", "there is nothing to convert")
	}
	name := words[0]
	var data []byte
	if name == "-" {
		data, err = io.ReadAll(os.Stdin)
		name = "standard input"
	} else if info, statErr := os.Stat(name); len(words) == 1 && statErr == nil && !info.IsDir() {
		data, err = os.ReadFile(name)
	} else {
		tree, err = config.ParseBootstrapDocument(words)
		if err == nil {
			_, err = config.Resolve(tree)
		}
		return tree, nil, err
	}
	if err != nil {
		return nil, nil, fault.New(fault.Disk, "", "%w", err)
	}
	return config.Convertible(data, name)
}

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "print the JSON Schema of NodeConfig, for editors",
		Action: func(c *cli.Context) error {
			if err := noOperands(c); err != nil {
				return err
			}
			text, err := config.JSONSchema()
			if err == nil {
				_, err = c.App.Writer.Write(text)
			}
			return err
		},
	}
}
