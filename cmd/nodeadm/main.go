// Command nodeadm turns an EC2 instance into a node of an EKS cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

func main() {
	// Whoever calls this may have a umask under which a directory, for the moment
	// before its permissions are set, is closed to those who need it.
	syscall.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args)
	stop()
	var quiet exitCode
	if errors.As(err, &quiet) {
		os.Exit(int(quiet))
	}
	report(os.Stderr, err, os.Args)
	os.Exit(int(fault.CodeOf(err)))
}

// exitCode is an answer that a process gives by how it ends: nothing went
// wrong, and there is nothing more to say.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// run is the whole program but for the end of the process.
func run(ctx context.Context, args []string) error {
	app := newApp()
	// Old scripts call these two, which are links to this binary.
	switch filepath.Base(args[0]) {
	case "bootstrap.sh":
		args = append([]string{"nodeadm", "bootstrap"}, args[1:]...)
	case "max-pods-calculator.sh":
		args = append([]string{"nodeadm", "max-pods"}, args[1:]...)
		app.Metadata = map[string]any{"script": true}
	}
	args, err := arrange(app, args)
	if err != nil {
		return err
	}
	return app.RunContext(ctx, args)
}

func newApp() *cli.App {
	app := &cli.App{
		Name:    "nodeadm",
		Usage:   "turn an EC2 instance into a node of an EKS cluster",
		Version: versionText(),
		Commands: []*cli.Command{
			initCommand(), bootstrapCommand(), planCommand(), statusCommand(), doctorCommand(), supportBundleCommand(), historyCommand(), rollbackCommand(), resetCommand(),
			configCommand(), imageCommand(), maxPodsCommand(), tokenCommand(), ecrCredentialProviderCommand(), simulateCommand(), versionCommand(),
		},
		// A comma is an ordinary character in a path.
		DisableSliceFlagSeparator: true,
		Action:                    unknownCommand,
		// Errors and exit codes are main's business.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
	}
	refuseUsage(app.Commands)
	return app
}
