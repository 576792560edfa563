package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
)

func tokenCommand() *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "print a token for the cluster's API server, as kubelet's credential plugin",
		Description: "An exec credential of client.authentication.k8s.io, v1 or v1beta1 as KUBERNETES_EXEC_INFO asks, with a token made\n" +
			"from the instance role's credentials, or those in AWS_ACCESS_KEY_ID. Nothing is sent to AWS.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "cluster-name", Aliases: []string{"i"}, Usage: "`NAME` of the cluster, or its id for a local cluster on an Outpost"},
			regionFlag("`REGION` of the cluster (default: the instance's)"), imdsFlag(), timeoutFlag(),
		}, logFlags()...),
		Action: token,
	}
}

// execCredential is the answer of a credential plugin.
type execCredential struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Spec       struct{} `json:"spec"`
	Status     struct {
		ExpirationTimestamp string `json:"expirationTimestamp"`
		Token               string `json:"token"`
	} `json:"status"`
}

func token(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	cluster := c.String("cluster-name")
	if cluster == "" {
		return fault.New(fault.Usage, "nodeadm token --cluster-name my-cluster", "--cluster-name is missing")
	}
	answer := execCredential{Kind: "ExecCredential"}
	var err error
	if answer.APIVersion, err = execVersion(os.Getenv("KUBERNETES_EXEC_INFO")); err != nil {
		return err
	}
	options, err := commonOptions(c)
	if err != nil {
		return err
	}
	if options.IMDSEndpoint, err = metadataEndpoint(c); err != nil {
		return err
	}
	ctx, cancel := options.Limit(c.Context)
	defer cancel()
	metadata := imds.New(imds.Options{Endpoint: options.IMDSEndpoint, Report: options.Waiting})
	aws, err := awsOptions()
	if err != nil {
		return err
	}
	aws.IMDS, aws.Report = metadata, options.Waiting
	if aws.Region, err = region(ctx, c, metadata); err != nil {
		return err
	}
	made, expires, err := awsapi.New(aws).Token(ctx, cluster, time.Now())
	if err != nil {
		return err
	}
	answer.Status.Token, answer.Status.ExpirationTimestamp = made, expires.UTC().Format(time.RFC3339)
	return json.NewEncoder(c.App.Writer).Encode(answer)
}

func regionFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "region", Usage: usage + "; also AWS_REGION, AWS_DEFAULT_REGION"}
}

// region is the region that the command line or the environment names, or else
// the instance's.
func region(ctx context.Context, c *cli.Context, metadata *imds.Client) (string, error) {
	// One that is set to nothing is not set.
	region := cmp.Or(c.String("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region != "" {
		return region, nil
	}
	err := metadata.Get(ctx, "meta-data/placement/region", func(body string) error {
		region = strings.TrimSpace(body)
		return nil
	})
	return region, fault.Wrap(fault.AWS, err)
}

// execVersion is the version of the API that the caller speaks; v1beta1, which
// every kubelet knows, for one that does not say.
func execVersion(info string) (string, error) {
	const group = "client.authentication.k8s.io/"
	if info == "" {
		return group + "v1beta1", nil
	}
	var asked struct{ APIVersion string }
	if err := json.Unmarshal([]byte(info), &asked); err != nil {
		return "", fault.New(fault.Usage, "it is set by kubelet and kubectl; unset it when calling by hand", "KUBERNETES_EXEC_INFO is no JSON: %w", err)
	}
	switch asked.APIVersion {
	case group + "v1", group + "v1beta1":
		return asked.APIVersion, nil
	case "":
		return group + "v1beta1", nil
	}
	return "", fault.New(fault.Usage, fmt.Sprintf("write apiVersion: %sv1 into the kubeconfig", group), "KUBERNETES_EXEC_INFO asks for %s, which this nodeadm does not speak", asked.APIVersion)
}
