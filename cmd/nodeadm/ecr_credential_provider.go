package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
)

func ecrCredentialProviderCommand() *cli.Command {
	return &cli.Command{
		Name:  "ecr-credential-provider",
		Usage: "answer with the login to a registry of ECR, as kubelet's image credential provider",
		Description: "Reads a CredentialProviderRequest of credentialprovider.kubelet.k8s.io from standard input, v1, v1beta1 or v1alpha1,\n" +
			"and asks ECR in the image's region with the instance role's credentials, or those in AWS_ACCESS_KEY_ID.",
		Flags: append([]cli.Flag{
			regionFlag("`REGION` of the instance, which decides about the public registry (default: as instance metadata says)"), imdsFlag(),
			// kubelet kills a provider after a minute, and then nobody says why.
			&cli.DurationFlag{Name: "timeout", Value: 45 * time.Second, Usage: "give up after `D`"},
		}, logFlags()...),
		Action: ecrCredentialProvider,
	}
}

// imageRequest is what kubelet asks a credential provider.
type imageRequest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
}

// imageResponse is the answer. Its fields are the same in every version.
type imageResponse struct {
	APIVersion    string                  `json:"apiVersion"`
	Kind          string                  `json:"kind"`
	CacheKeyType  string                  `json:"cacheKeyType"`
	CacheDuration string                  `json:"cacheDuration"`
	Auth          map[string]registryAuth `json:"auth"` // by registry
}

type registryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// providerVersions are those of the API between kubelet and its providers.
var providerVersions = []string{"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"}

// withoutLogin is how long kubelet may go on pulling without a login before it
// asks again.
const withoutLogin = 5 * time.Minute

func ecrCredentialProvider(c *cli.Context) error {
	if err := noOperands(c); err != nil {
		return err
	}
	options, err := commonOptions(c)
	if err != nil {
		return err
	}
	if options.IMDSEndpoint, err = metadataEndpoint(c); err != nil {
		return err
	}
	aws, err := awsOptions()
	if err != nil {
		return err
	}
	ctx, cancel := options.Limit(c.Context)
	defer cancel()
	request, err := readImageRequest(ctx, c.App.Reader)
	if err != nil {
		return err
	}
	registry, err := awsapi.RegistryOf(request.Image)
	if err != nil {
		return err
	}
	metadata := imds.New(imds.Options{Endpoint: options.IMDSEndpoint, Report: options.Waiting})
	aws.IMDS, aws.Report = metadata, options.Waiting
	if registry.Public() {
		if aws.Region, err = region(ctx, c, metadata); err != nil {
			return err
		}
	}
	login, err := awsapi.New(aws).LogIn(ctx, registry)
	if err != nil {
		return err
	}
	answer := imageResponse{APIVersion: request.APIVersion, Kind: "CredentialProviderResponse", CacheKeyType: "Registry", Auth: map[string]registryAuth{}}
	keep := withoutLogin
	if login.Username != "" {
		answer.Auth[registry.Host] = registryAuth{login.Username, login.Password}
		// A pull may begin at the last moment and take its time. Less than nothing
		// would be kubelet's default.
		keep = max(0, time.Until(login.Expires)/2).Round(time.Second)
	}
	answer.CacheDuration = keep.String()
	return json.NewEncoder(c.App.Writer).Encode(answer)
}

// maxImageRequest bounds what is read of kubelet's question, in bytes.
const maxImageRequest = 1 << 20

// readImageRequest reads until standard input ends, or ctx does.
func readImageRequest(ctx context.Context, in io.Reader) (imageRequest, error) {
	const remedy = `kubelet writes it; by hand: echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderRequest", "image": "111122223333.dkr.ecr.eu-west-1.amazonaws.com/app"}' | nodeadm ecr-credential-provider`
	var request imageRequest
	var data []byte
	read := make(chan error, 1)
	go func() {
		all, err := io.ReadAll(io.LimitReader(in, maxImageRequest+1))
		data = all
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			return request, fault.New(fault.Usage, remedy, "standard input: %w", err)
		}
	case <-ctx.Done():
		return request, fault.New(fault.Usage, remedy, "standard input: no CredentialProviderRequest came: %w", ctx.Err())
	}
	if len(data) > maxImageRequest {
		return request, fault.New(fault.Usage, remedy, "standard input: more than 1 MiB, and a CredentialProviderRequest is expected")
	}
	if err := json.Unmarshal(data, &request); err != nil {
		return request, fault.New(fault.Usage, remedy, "standard input: a CredentialProviderRequest in JSON is expected: %w", err)
	}
	switch {
	case request.Kind != "CredentialProviderRequest":
		return request, fault.New(fault.Usage, remedy, "standard input: kind %q, and CredentialProviderRequest is expected", request.Kind)
	case !slices.Contains(providerVersions, request.APIVersion):
		return request, fault.New(fault.Usage, "write one of these as the provider's apiVersion in kubelet's configuration of image credential providers",
			"standard input: apiVersion %q, and one of %s is expected", request.APIVersion, strings.Join(providerVersions, ", "))
	case request.Image == "":
		return request, fault.New(fault.Usage, remedy, "standard input: the request names no image")
	}
	return request, nil
}
