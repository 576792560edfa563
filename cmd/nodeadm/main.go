// Command nodeadm turns an EC2 instance into a node of an EKS cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args)
	stop()
	report(os.Stderr, err, os.Args)
	os.Exit(int(fault.CodeOf(err)))
}

// run is the whole program but for the end of the process.
func run(ctx context.Context, args []string) error {
	// Old user data calls /etc/eks/bootstrap.sh, which is a link to this binary.
	if filepath.Base(args[0]) == "bootstrap.sh" {
		args = append([]string{"nodeadm", "bootstrap"}, args[1:]...)
	}
	app := newApp()
	args, err := arrange(app, args)
	if err != nil {
		return err
	}
	return app.RunContext(ctx, args)
}

func newApp() *cli.App {
	return &cli.App{
		Name:            "nodeadm",
		Usage:           "turn an EC2 instance into a node of an EKS cluster",
		Version:         versionText(),
		Commands:        []*cli.Command{initCommand(), bootstrapCommand(), maxPodsCommand(), simulateCommand(), versionCommand()},
		HideHelpCommand: true,
		Action:          unknownCommand,
		// Errors and exit codes are main's business.
		ExitErrHandler: func(*cli.Context, error) {},
	}
}
