// Command standin takes the place of /usr/bin/kubelet on a test machine.
//
// It is as strict as kubelet about what nodeadm hands over, and does nothing
// else a kubelet does: it decodes its configuration file into kubelet's own
// type and refuses unknown fields, records how it was called, answers health
// checks and runs until it is told to stop. So a test learns in a second
// whether kubelet would have started, without an API server.
//
//	/run/kubelet-standin/args.json   its arguments, argv[0] first, as a JSON array
//	/run/kubelet-standin/env.json    its environment, as a JSON object
//	/run/kubelet-standin/config.json its configuration, as it has read it
//	/etc/kubelet-standin/fail        if there: how it is to fail; see failure
//
// It is a module of its own, so that kubelet's types stay out of the product's
// go.mod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// version is set when the program is linked: -ldflags "-X main.version=v1.34.4".
var version = "v0.0.0"

func main() {
	if slices.ContainsFunc(os.Args[1:], isVersionFlag) {
		fmt.Println("Kubernetes " + version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet stand-in:", err)
		os.Exit(1)
	}
}

func isVersionFlag(arg string) bool { return arg == "--version" || arg == "--version=true" }

// run is the life of the process, in the order a kubelet has it. What it was
// called with is recorded first: a test wants to see it most when the rest
// goes wrong.
func run(ctx context.Context, argv []string) error {
	const records = "/run/kubelet-standin"
	if err := record(records, argv, os.Environ()); err != nil {
		return err
	}
	config, err := readConfig(flagValue(argv, "--config"))
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(records, "config.json"), config); err != nil {
		return err
	}
	if err := checkKubeconfig(flagValue(argv, "--kubeconfig")); err != nil {
		return err
	}
	fail, err := readFailure("/etc/kubelet-standin/fail", argv)
	if err != nil {
		return err
	}
	if fail != nil && fail.after == 0 {
		return fail
	}
	unhealthy, err := serveHealthz(config)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "kubelet stand-in", version, "runs")
	if err := notifyReady(); err != nil {
		return err
	}
	var doom <-chan time.Time
	if fail != nil {
		doom = time.After(fail.after)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-doom:
		return fail
	case err := <-unhealthy:
		return err
	}
}
