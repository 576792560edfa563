package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/doctor"
	"github.com/eks-bootstrap/nodeadm/nodeadm/support"
)

func supportBundleCommand() *cli.Command {
	return &cli.Command{
		Name:  "support-bundle",
		Usage: "collect what somebody needs who helps with this node",
		Description: "One archive, for root only: how nodeadm ran, its configuration and kubelet's and containerd's, units, the journal\n" +
			"of this boot, cloud-init's logs, the state of the network, aws-node's logs, and what the doctor says of the machine.\n" +
			"Passwords, tokens and private keys are taken out. Nothing goes to the network.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "write to `PATH`, or - for standard output (default: nodeadm-support-TIME.tar.gz)"},
			imdsFlag(),
		}, logFlags()...),
		Action: supportBundle,
	}
}

func supportBundle(c *cli.Context) (err error) {
	if err := noOperands(c); err != nil {
		return err
	}
	if err := asRoot(c); err != nil {
		return err
	}
	options, err := commonOptions(c)
	if err != nil {
		return err
	}
	options.Root = "/"
	if options.IMDSEndpoint, err = metadataEndpoint(c); err != nil {
		return err
	}
	quiet(c, options)
	path := c.String("file")
	if path == "" {
		path = time.Now().UTC().Format("nodeadm-support-20060102T150405Z.tar.gz")
	}
	out := os.Stdout
	if path != "-" {
		if out, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return fault.New(fault.Disk, "name another file with --file; - is standard output", "%w", err)
		}
		defer func() {
			if closed := out.Close(); err == nil && closed != nil {
				err = fault.New(fault.Disk, "", "%w", closed)
			}
			if err != nil {
				os.Remove(path)
			}
		}()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	names, err := support.Write(c.Context, out, support.Options{
		Root: "/", Version: versionText(), Self: self, Documents: secretsOf(c.Context, options),
		Doctor: nodeadm.Diagnose(c.Context, options, doctor.Selection{Level: doctor.Machine}),
	})
	if err != nil {
		return fault.New(fault.Disk, "name a file on another disk with --file", "%w", err)
	}
	if path != "-" {
		fmt.Fprintf(c.App.Writer, "%s: %d files; look through it before you give it away\n", path, len(names))
	}
	return nil
}

// secretsOf reads what the node was told to be, so that its secrets are known.
// Where instance metadata does not answer, what cloud-init has kept does.
func secretsOf(ctx context.Context, options nodeadm.Options) []config.Source {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	sources, _ := nodeadm.ReadSources(ctx, nil, rootfs.Root(options.Root), newMetadata(options), strings.NewReader(""))
	for _, path := range []string{"/var/lib/cloud/instance/user-data.txt", "/var/lib/cloud/instance/user-data.txt.i"} {
		if data, err := os.ReadFile(path); err == nil {
			sources = append(sources, config.Source{Name: path, Data: data})
		}
	}
	return sources
}
