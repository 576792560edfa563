package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
)

func bootstrapCommand() *cli.Command {
	return &cli.Command{
		Name:      "bootstrap",
		Usage:     "make a node from the arguments of bootstrap.sh",
		ArgsUsage: "CLUSTER",
		Description: "Takes every flag of Amazon Linux 2's bootstrap.sh, in any order, before or after the\n" +
			"name of the cluster. Run under the name bootstrap.sh the binary is this command.",
		Flags:  append(dialectFlags(), changeFlags()...),
		Action: bootstrap,
	}
}

// dialectFlags are the flags of bootstrap.sh.
func dialectFlags() []cli.Flag {
	var flags []cli.Flag
	for _, f := range config.BootstrapFlags() {
		flags = append(flags, &cli.StringFlag{Name: f.Name, Usage: "`" + f.Placeholder + "`: " + f.Usage})
	}
	return flags
}

func bootstrap(c *cli.Context) error {
	options, err := bootOptions(c)
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, f := range config.BootstrapFlags() {
		values[f.Name] = c.String(f.Name)
	}
	wanted, err := config.FromBootstrap(values, c.Args().Slice())
	if err != nil {
		return err // it is in the command line, and says so itself
	}
	started := time.Now()
	err = boot(c, wanted, options)
	explainFailure(c, options, started, err)
	return err
}
