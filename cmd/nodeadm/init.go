package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
)

func initCommand() *cli.Command {
	return &cli.Command{
		Name:  "init",
		Usage: "make a node from NodeConfig documents",
		Description: "Reads NodeConfig documents (node.eks.aws/v1alpha1), merges them so that later ones win, and makes the\n" +
			"node. Without -c these are the instance's user data and, over it, /etc/eks/nodeadm.d; where there is none,\n" +
			"and a script in user data calls bootstrap.sh, the node is left to that script.",
		Flags:  append(sourceFlags(), changeFlags()...),
		Action: initNode,
	}
}

// sourceFlags say where documents come from.
func sourceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "config-source", Aliases: []string{"c"}, Usage: "read documents from `SOURCE`: imds://user-data, file:///PATH, or - (repeatable; later ones win)"},
		&cli.BoolFlag{Name: "lenient", Usage: "warn of unknown fields instead of refusing them"},
	}
}

func initNode(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := bootOptions(c)
	if err != nil {
		return err
	}
	// One deadline for reading and for all the rest.
	var cancel context.CancelFunc
	c.Context, cancel = options.Limit(c.Context)
	defer cancel()
	started := time.Now()
	documents, wanted, err := loadDocuments(c, options, c.StringSlice("config-source"), false)
	switch {
	case err != nil:
	case documents.Tree == nil:
		return leave(c, documents.Script, options)
	default:
		err = boot(c, wanted, options)
	}
	explainFailure(c, options, started, err)
	return err
}

// loadDocuments reads and merges all documents, and says what became of each
// part of them. Where scripts are not read as documents, and one of them makes
// the node, there may be no document, and no error.
func loadDocuments(c *cli.Context, options nodeadm.Options, uris []string, scripts bool) (config.Documents, config.Config, error) {
	metadata := newMetadata(options)
	ctx, cancel := options.Limit(c.Context)
	defer cancel()
	sources, err := nodeadm.ReadSources(ctx, uris, rootfs.Root(options.Root), metadata, os.Stdin)
	if err != nil {
		return config.Documents{}, config.Config{}, err
	}
	documents, wanted, err := config.Read(sources, config.ReadOptions{Lenient: c.Bool("lenient"), Scripts: scripts})
	for _, p := range documents.Parts {
		options.Log.Info(describe(p))
	}
	for _, w := range documents.Warnings {
		options.Log.Warn(w)
	}
	// A document that somebody named has to be one; an image's unit runs on
	// instances with user data of either kind.
	if left := documents.Script != "" && len(uris) == 0; err == nil && documents.Tree == nil && !left {
		err = noDocument(documents)
	}
	return documents, wanted, err
}

// leave changes nothing where a script in user data makes the node.
func leave(c *cli.Context, script string, options nodeadm.Options) error {
	why := fmt.Sprintf("nothing to do: there is no NodeConfig document, and %s calls bootstrap.sh: the node is left to that script", script)
	if c.Bool("dry-run") {
		quiet(c, options)
		return output(c, newPreview(nodeadm.Result{}, newOwner(options.Root)), func() { fmt.Fprintln(c.App.Writer, why) })
	}
	options.Log.Info(why)
	follow(&options).done(nil)
	return nil
}

func newMetadata(options nodeadm.Options) *imds.Client {
	return imds.New(imds.Options{Endpoint: options.IMDSEndpoint, Report: options.Waiting})
}

func contentType(t string) string {
	if t == "" {
		return "no content type"
	}
	return t
}

// noDocument says why there is nothing to do.
func noDocument(documents config.Documents) error {
	const remedy = "put a NodeConfig document into user data or /etc/eks/nodeadm.d, or name one with -c"
	if len(documents.Parts) == 0 {
		return fault.New(fault.Usage, remedy, "there is no configuration: no user data, and no documents in /etc/eks/nodeadm.d")
	}
	message := "there is no NodeConfig document among what was read:"
	for _, p := range documents.Parts {
		message += fmt.Sprintf("\n  %s part %s (%s): %s", p.Source, p.Index, contentType(p.ContentType), p.Why)
	}
	return fault.New(fault.Usage, remedy, "%s", message)
}

// boot makes the node and says if there was nothing to do.
func boot(c *cli.Context, wanted config.Config, options nodeadm.Options) error {
	if c.Bool("dry-run") {
		return preview(c, wanted, options)
	}
	if err := useProxy(wanted); err != nil {
		return err
	}
	shown := follow(&options)
	result, err := nodeadm.Bootstrap(c.Context, wanted, options)
	shown.done(err)
	if err != nil {
		return err
	}
	if len(result.Changes) == 0 && len(result.Done) == 0 {
		options.Log.Info("nothing changed: the node is as it was planned")
	}
	return nil
}
