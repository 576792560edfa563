package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// What a simulated image holds unless told otherwise.
const (
	simulatedKubelet    = "1.34.4"
	simulatedContainerd = "2.1.4"
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:  "simulate",
		Usage: "run a bootstrap against a simulated instance, on any machine",
		Description: "Bootstraps into a directory, against an EC2 instance that exists only in this process:\n" +
			"no EC2, no root and no systemd are needed. Shows what would be on the node.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "instance-type", Value: "m5.large", Usage: "EC2 instance `TYPE`"},
			&cli.StringFlag{Name: "user-data", Usage: "`FILE` with EC2 user data: NodeConfig, or a script that calls bootstrap.sh (default: the cluster's name alone)"},
			&cli.StringFlag{Name: "root", Usage: "write below `DIR` (default: a new temporary directory)"},
			&cli.StringFlag{Name: "kubelet-version", Value: simulatedKubelet, Usage: "version of the image's kubelet"},
			outputFlag(),
		}, logFlags()...),
		Action:      simulate,
		Subcommands: []*cli.Command{serveCommand()},
	}
}

func simulate(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	world, wanted, err := simulated(c)
	if err != nil {
		return err
	}
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	root := c.String("root")
	if root == "" {
		if root, err = os.MkdirTemp("", "nodeadm-simulate-"); err != nil {
			return fault.New(fault.Disk, "", "%w", err)
		}
	} else if err = os.MkdirAll(root, 0o755); err != nil {
		return fault.New(fault.Disk, "", "--root: %w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if root == "/" {
		return fault.New(fault.Usage, "name an empty directory", "--root /: a simulation must not write onto the machine itself")
	}

	endpoint, stop, err := simulator.New(world).Start("")
	if err != nil {
		return err
	}
	defer stop()
	options := nodeadm.Options{
		Root:              root,
		Timeout:           simulationTimeout,
		IMDSEndpoint:      endpoint,
		KubeletVersion:    c.String("kubelet-version"),
		ContainerdVersion: simulatedContainerd,
		Machine:           simulatedMachine(world.Instance.Type),
		Simulated:         true,
		Log:               log,
	}
	options.AWS.Endpoints = map[string]string{"": endpoint}
	result, err := nodeadm.Bootstrap(c.Context, wanted, options)
	if err != nil {
		return err
	}
	return output(c, summarize(root, result), func() { printNode(c.App.Writer, root, result) })
}

// simulated makes the instance and the configuration that the flags describe.
func simulated(c *cli.Context) (simulator.World, config.Config, error) {
	world := simulator.Default()
	world.UserData = ""
	world.Instance.Type = c.String("instance-type")
	if file := c.String("user-data"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return world, config.Config{}, fault.New(fault.Usage, "name a file with EC2 user data", "--user-data: %w", err)
		}
		world.UserData = string(data)
		documents, wanted, err := config.Read([]config.Source{{Name: file, Data: data}}, config.ReadOptions{Scripts: true})
		if err == nil && documents.Tree == nil {
			err = noDocument(documents)
		}
		return knowing(world, wanted), wanted, err
	}
	wanted, err := config.ParseBootstrap([]string{world.Cluster.Name})
	return world, wanted, err
}

// knowing is the world with the cluster that is wanted: EKS knows every one here.
func knowing(world simulator.World, wanted config.Config) simulator.World {
	if wanted.Cluster.Name != "" {
		world.Cluster.Name = wanted.Cluster.Name
	}
	if wanted.Cluster.IPFamily == "ipv6" {
		world.Cluster.IPFamily, world.Cluster.ServiceIPv4CIDR = "ipv6", ""
		if cidr := wanted.Cluster.ServiceCIDR; cidr.IsValid() {
			world.Cluster.ServiceIPv6CIDR = cidr.String()
		}
	}
	return world.Complete()
}

// simulatedMachine is the hardware of an instance type, as far as it counts.
func simulatedMachine(instanceType string) *facts.Machine {
	m := &facts.Machine{CPUs: 2, BPFFS: true, KernelDefaults: true}
	if t, ok := instancetypes.Lookup(instanceType); ok && t.VCPUs > 0 {
		m.CPUs, m.MemoryMiB = t.VCPUs, t.MemoryMiB
	}
	return m
}

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Usage:     "serve a simulated IMDS and AWS APIs",
		ArgsUsage: "[FILE]",
		Description: "Serves instance metadata (IMDSv2), EKS and EC2 on one address, for an instance that FILE\n" +
			"describes in YAML or JSON (default: the m5.large of the documentation). Ends on SIGTERM.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:0", Usage: "`ADDR` to listen on, HOST:PORT"},
			&cli.StringFlag{Name: "tls-cert", Usage: "speak TLS with the certificate in `FILE`, PEM"},
			&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its private key, PEM"},
		}, logFlags()...),
		Action: serve,
	}
}

func serve(c *cli.Context) error {
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	world := simulator.Default()
	switch c.NArg() {
	case 0:
	case 1:
		if world, err = simulator.Load(c.Args().First()); err != nil {
			return fault.New(fault.Usage, "", "%w", err)
		}
	default:
		return fault.New(fault.Usage, "nodeadm simulate serve --listen ADDR FILE", "one file is expected, and there are %d words", c.NArg())
	}
	options := []simulator.Option{simulator.WithLog(log.Debugf)}
	if cert, key := c.String("tls-cert"), c.String("tls-key"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fault.New(fault.Usage, "give both, --tls-cert FILE and --tls-key FILE, in PEM", "--tls-cert, --tls-key: %w", err)
		}
		options = append(options, simulator.WithTLS(pair))
	}
	endpoint, stop, err := simulator.New(world, options...).Start(c.String("listen"))
	if err != nil {
		return fault.New(fault.Usage, "choose another address", "--listen: %w", err)
	}
	defer stop()
	fmt.Fprintln(c.App.Writer, endpoint)
	log.Infof("serving %s as AWS_EC2_METADATA_SERVICE_ENDPOINT and AWS_ENDPOINT_URL at %s", world.Instance.Type, endpoint)
	<-c.Context.Done()
	return nil
}
