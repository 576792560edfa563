package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

func rootFlag() cli.Flag {
	return &cli.StringFlag{Name: "root", Value: "/", Usage: "work below `DIR` instead of /, look for binaries there, start nothing"}
}

func noStartFlag() cli.Flag {
	return &cli.BoolFlag{Name: "no-start", Usage: "leave services alone"}
}

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "give up after `D`"}
}

func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force-conflicts", Usage: "take over settings that somebody has changed by hand since the last run"}
}

func imdsFlag() cli.Flag {
	return &cli.StringFlag{Name: "imds-endpoint", EnvVars: []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT"}, Usage: "`URL` of instance metadata (default: EC2's own addresses)"}
}

// serviceFlags are shared by every command that changes files and units.
func serviceFlags() []cli.Flag {
	return append([]cli.Flag{rootFlag(), noStartFlag(), timeoutFlag()}, logFlags()...)
}

// bootFlags are shared by every command that works out a node.
func bootFlags() []cli.Flag {
	return append([]cli.Flag{
		imdsFlag(),
		&cli.StringFlag{Name: "kubelet-version", Usage: "take kubelet for version `V` instead of asking the binary"},
		&cli.StringFlag{Name: "credential-plugin", Usage: "`PROGRAM` that makes kubelet's tokens: " + strings.Join(facts.CredentialPlugins, ", ") + " (default: the first that is installed)"},
	}, serviceFlags()...)
}

// changeFlags are shared by the commands that make a node.
func changeFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "show what would change, as nodeadm plan does, and change nothing"},
		outputFlag(),
		forceFlag(),
		&cli.StringFlag{Name: "wait", Value: string(nodeadm.WaitHealthy), Usage: "end when the node is `HOW` far: joined (the API server has it), healthy (kubelet is) or none"},
		&cli.BoolFlag{Name: "rollback-on-failure", Usage: "bring back the former configuration if the services do not run, or the node does not join, with the new one"},
	}, bootFlags()...)
}

// rootOptions reads what all commands that look at a node have.
func rootOptions(c *cli.Context) (nodeadm.Options, error) {
	options, err := commonOptions(c)
	if err != nil {
		return nodeadm.Options{}, err
	}
	if c.String("root") == "" {
		return nodeadm.Options{}, fault.New(fault.Usage, "name a directory; if it comes from a shell variable, that is empty", "--root: the value is empty")
	}
	root, err := filepath.Abs(c.String("root"))
	if err != nil {
		return nodeadm.Options{}, err
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nodeadm.Options{}, fault.New(fault.Usage, "create it, or name the directory with the node's root filesystem", "--root: %s is not a directory", root)
	}
	options.Root, options.NoStart = root, c.Bool("no-start")
	return options, nil
}

// commonOptions reads what commands that need no root have too.
func commonOptions(c *cli.Context) (nodeadm.Options, error) {
	log, err := newLogger(c)
	if err != nil {
		return nodeadm.Options{}, err
	}
	timeout := c.Duration("timeout")
	if timeout <= 0 && hasFlag(c, "timeout") {
		return nodeadm.Options{}, fault.New(fault.Usage, "write a duration such as 5m", "--timeout: %s leaves no time", timeout)
	}
	return nodeadm.Options{
		Timeout: timeout,
		Command: c.Command.Name,
		Version: version,
		Log:     log,
	}, nil
}

func hasFlag(c *cli.Context, name string) bool {
	return slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// bootOptions reads bootFlags and the environment.
func bootOptions(c *cli.Context) (nodeadm.Options, error) {
	options, err := rootOptions(c)
	if err != nil {
		return options, err
	}
	if options.IMDSEndpoint, err = metadataEndpoint(c); err != nil {
		return options, err
	}
	if options.AWS, err = awsOptions(); err != nil {
		return options, err
	}
	options.KubeletVersion = c.String("kubelet-version")
	options.CredentialPlugin = c.String("credential-plugin")
	if given := options.CredentialPlugin; given != "" && !slices.Contains(facts.CredentialPlugins, given) {
		return options, fault.New(fault.Usage, "write one of "+strings.Join(facts.CredentialPlugins, ", "), "--credential-plugin: %q is not known", given)
	}
	if options.Self, err = os.Executable(); err != nil {
		return options, err
	}
	if options.Wait = nodeadm.Wait(c.String("wait")); !slices.Contains(nodeadm.Waits, options.Wait) && hasFlag(c, "wait") {
		return options, fault.New(fault.Usage, "write healthy, joined or none", "--wait: %q is not known", options.Wait)
	}
	if options.Wait == nodeadm.WaitJoined && (options.Root != "/" || options.NoStart) {
		return options, fault.New(fault.Usage, "leave --wait out", "--wait joined: with --root or --no-start nothing is started that could join")
	}
	options.ForceConflicts, options.RollbackOnFailure = c.Bool("force-conflicts"), c.Bool("rollback-on-failure")
	return options, nil
}

func metadataEndpoint(c *cli.Context) (string, error) {
	given := strings.TrimRight(c.String("imds-endpoint"), "/")
	if given == "" {
		if strings.EqualFold(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"), "IPv6") {
			return "http://[fd00:ec2::254]", nil
		}
		return "", nil
	}
	if u, err := url.Parse(given); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fault.New(fault.Usage, "write a URL such as http://169.254.169.254", "--imds-endpoint: %q is not a URL", given)
	}
	return given, nil
}

// awsOptions are what the environment says of AWS APIs, in the variables that
// every AWS tool reads.
func awsOptions() (awsapi.Options, error) {
	o := awsapi.Options{
		Endpoints:       map[string]string{},
		AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
	}
	if os.Getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") != "true" {
		for service, name := range map[string]string{"": "AWS_ENDPOINT_URL", "EC2": "AWS_ENDPOINT_URL_EC2", "EKS": "AWS_ENDPOINT_URL_EKS", "ECR": "AWS_ENDPOINT_URL_ECR", "ECR PUBLIC": "AWS_ENDPOINT_URL_ECR_PUBLIC"} {
			if value := os.Getenv(name); value != "" {
				o.Endpoints[service] = value
			}
		}
	}
	for _, pair := range [][2]string{{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, {"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"}} {
		if os.Getenv(pair[0]) != "" && os.Getenv(pair[1]) == "" {
			return o, fault.New(fault.Usage, "set both, or none to use the instance's role", "%s is set, and %s is not", pair[0], pair[1])
		}
	}
	var fipsErr, dualStackErr error
	o.UseFIPS, fipsErr = environmentSwitch("AWS_USE_FIPS_ENDPOINT")
	o.UseDualStack, dualStackErr = environmentSwitch("AWS_USE_DUALSTACK_ENDPOINT")
	return o, errors.Join(fipsErr, dualStackErr)
}

// environmentSwitch reads a variable that is true or false, in any case. What is
// neither may have been meant as true.
func environmentSwitch(name string) (bool, error) {
	switch value := os.Getenv(name); {
	case strings.EqualFold(value, "true"):
		return true, nil
	case value == "" || strings.EqualFold(value, "false"):
		return false, nil
	default:
		return false, fault.New(fault.Usage, "write true or false", "%s: %q is neither true nor false", name, value)
	}
}

// useProxy makes this process go through the proxy that the configuration
// names; net/http reads it from the environment.
func useProxy(wanted config.Config) error {
	for name, value := range nodeadm.ProxyEnvironment(wanted) {
		if err := errors.Join(os.Setenv(name, value), os.Setenv(strings.ToLower(name), value)); err != nil {
			return err
		}
	}
	return nil
}
