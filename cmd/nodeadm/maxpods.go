package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/data/instancetypes"
	"github.com/eks-bootstrap/nodeadm/internal/cel"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

func unknownOutput(format string) error {
	return fault.New(fault.Usage, "write -o text or -o json", "--output: %q is not known", format)
}

func maxPodsCommand() *cli.Command {
	return &cli.Command{
		Name:  "max-pods",
		Usage: "print how many pods an instance type can run",
		Description: "Works offline. Takes the flags of max-pods-calculator.sh too, and run under that name it answers as\n" +
			"the script did, with its cap.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "instance-type", Usage: "EC2 instance `TYPE`, such as m5.large"},
			&cli.BoolFlag{Name: "instance-type-from-imds", Usage: "ask instance metadata for the type"},
			&cli.StringFlag{Name: "mode", Value: "secondary-ip", Usage: "`MODE`: secondary-ip, prefix-delegation or ipv6"},
			&cli.BoolFlag{Name: "prefix-delegation", Aliases: []string{"cni-prefix-delegation-enabled"}, Usage: "the same as --mode prefix-delegation"},
			&cli.BoolFlag{Name: "ipv6", Usage: "the same as --mode ipv6"},
			&cli.BoolFlag{Name: "custom-networking", Aliases: []string{"cni-custom-networking-enabled"}, Usage: "the first network interface gives no addresses to pods"},
			&cli.IntFlag{Name: "max-eni", Aliases: []string{"cni-max-eni"}, Usage: "at most `N` network interfaces (MAX_ENI of the VPC CNI)"},
			&cli.IntFlag{Name: "reserved-eni", Usage: "`N` network interfaces are kept for something else"},
			&cli.StringFlag{Name: "expression", Usage: "CEL `EXPRESSION` over default_enis, ips_per_eni and max_pods"},
			&cli.StringFlag{Name: "cap", Usage: "auto: at most 110, or 250 with more than 30 vCPUs; none (default: none with secondary-ip, else auto)"},
			&cli.StringFlag{Name: "cni-version", Usage: "`VERSION` of the VPC CNI; prefixes need 1.9.0 or newer"},
			&cli.BoolFlag{Name: "show-max-allowed", Usage: "the same as --cap none"},
			&cli.BoolFlag{Name: "explain", Usage: "print the arithmetic"},
			&cli.StringFlag{Name: "imds-endpoint", EnvVars: []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT"}, Usage: "`URL` of instance metadata"},
			outputFlag(),
		}, logFlags()...),
		Action: maxPods,
	}
}

func maxPods(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	name, err := maxPodsType(c)
	if err != nil {
		return err
	}
	t, known := instancetypes.Lookup(name)
	if !known {
		return fault.New(fault.Usage, didYouMean(name), "instance type %q is not in this version's table", name)
	}
	how, err := maxPodsHow(c, t)
	if err != nil {
		return err
	}
	m, err := plan.Limits(t).WorkOut(how)
	if err != nil {
		return err
	}
	return output(c, map[string]any{
		"instanceType": t.Name, "enis": t.ENIs, "ipv4PerENI": t.IPv4PerENI, "vcpus": t.VCPUs, "maxPods": m.Planned, "arithmetic": m.Arithmetic,
	}, func() {
		fmt.Fprintln(c.App.Writer, m.Planned)
		if c.Bool("explain") {
			fmt.Fprintf(c.App.Writer, "%s: %s\n", t.Name, m.Arithmetic)
		}
	})
}

// maxPodsType is the instance type that is asked about.
func maxPodsType(c *cli.Context) (name string, err error) {
	if name = c.String("instance-type"); name != "" {
		return name, nil
	}
	if !c.Bool("instance-type-from-imds") {
		return "", fault.New(fault.Usage, "nodeadm max-pods --instance-type m5.large", "no instance type is given")
	}
	endpoint, err := metadataEndpoint(c)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(c.Context, 20*time.Second)
	defer cancel()
	err = imds.New(imds.Options{Endpoint: endpoint}).Get(ctx, "meta-data/instance-type", func(body string) error { name = strings.TrimSpace(body); return nil })
	return name, err
}

// maxPodsHow reads how max pods is to be worked out. Run as the script, the
// answer is capped unless --show-max-allowed is given, and prefixes are passed
// over where the instance or the CNI cannot have them.
func maxPodsHow(c *cli.Context, t instancetypes.Type) (config.MaxPods, error) {
	script := c.App.Metadata["script"] == true
	how := config.MaxPods{Mode: c.String("mode"), CustomNetworking: c.Bool("custom-networking"), MaxENIs: c.Int("max-eni"), ReservedENIs: c.Int("reserved-eni"), Cap: c.String("cap")}
	switch how.Mode {
	case "secondary-ip", "prefix-delegation", "ipv6":
	default:
		return how, fault.New(fault.Usage, "write secondary-ip, prefix-delegation or ipv6", "--mode: %q is not known", how.Mode)
	}
	if how.Cap != "" && how.Cap != "auto" && how.Cap != "none" {
		return how, fault.New(fault.Usage, "write auto or none", "--cap: %q is not known", how.Cap)
	}
	if how.MaxENIs < 0 || how.ReservedENIs < 0 {
		return how, fault.New(fault.Usage, "write 0 or more", "a number of network interfaces is less than nothing")
	}
	if c.Bool("ipv6") {
		how.Mode = "ipv6"
	}
	if c.Bool("prefix-delegation") {
		how.Mode = "prefix-delegation"
		able, err := prefixesSince(c.String("cni-version"))
		if err != nil {
			return how, err
		}
		if script && (!able || !plan.Limits(t).Prefixes) {
			how.Mode = "secondary-ip"
		}
	}
	if script {
		if c.String("cni-version") == "" {
			return how, fault.New(fault.Usage, "add --cni-version VERSION, such as 1.19.0", "the version of the CNI is not given")
		}
		how.Cap = "auto"
	}
	if c.Bool("show-max-allowed") {
		how.Cap = "none"
	}
	if source := c.String("expression"); source != "" {
		program, err := cel.Compile(source, config.MaxPodsVariables)
		if err != nil {
			return how, fault.New(fault.Usage, "write an expression of "+strings.Join(config.MaxPodsVariables, ", "), "--expression: %w", err)
		}
		how.Expression = program
	}
	return how, nil
}

// prefixesSince tells whether a CNI of this version can delegate prefixes;
// one that is not named is taken for a recent one.
func prefixesSince(version string) (bool, error) {
	if version == "" {
		return true, nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); err != nil {
		return false, fault.New(fault.Usage, "write a version such as 1.19.0", "--cni-version: %q is not a version", version)
	}
	return major > 1 || major == 1 && minor >= 9, nil
}

func didYouMean(name string) string {
	var names []string
	for _, t := range instancetypes.All() {
		names = append(names, t.Name)
	}
	if nearest := suggest.Nearest(name, names); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "check the spelling, or update nodeadm"
}
