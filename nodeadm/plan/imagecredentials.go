package plan

import (
	"path"
	"slices"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// imageCredentials plans how kubelet gets at images in ECR, and returns the
// flags for it. The provider program that an image brings comes first; nodeadm
// itself is one too.
func (b *builder) imageCredentials(exec string) ([]string, error) {
	v, host := b.facts.Host.Kubelet, b.facts.Host
	program := host.CredentialProvider
	if program == "" {
		program = host.Nodeadm
	}
	switch {
	case v.Minor < kubelet.ExternalCloudProvider: // ECR credentials are built in
		return nil, nil
	case program == "":
		b.warn("ecr-credential-provider is not installed: kubelet will not be able to pull from private ECR repositories")
		return nil, nil
	case hasFlag(exec, "image-credential-provider-config"):
		return nil, nil
	}
	config, err := imageCredentialProviders(program, host.CredentialProvider == "", v)
	if err != nil {
		return nil, err
	}
	if err := b.file(layout.CredentialProvider, config); err != nil {
		return nil, err
	}
	return []string{"--image-credential-provider-config=" + layout.CredentialProvider, "--image-credential-provider-bin-dir=" + path.Dir(program)}, nil
}

// imageCredentialProviders tells kubelet when to ask a program for a login to
// ECR, which is nodeadm itself or ecr-credential-provider. That one speaks v1
// since the release for 1.27.
func imageCredentialProviders(program string, own bool, v kubelet.Version) (string, error) {
	images := awsapi.RegistryPatterns()
	if !own && v.Minor < 32 {
		// Older releases of ecr-credential-provider do not know this host.
		images = slices.DeleteFunc(images, func(host string) bool { return host == "ecr-public.aws.com" })
	}
	provider := map[string]any{
		"name":                 path.Base(program),
		"matchImages":          images,
		"defaultCacheDuration": "12h0m0s",
		"apiVersion":           "credentialprovider.kubelet.k8s.io/v1",
	}
	if own {
		provider["args"] = []string{"ecr-credential-provider"}
	}
	if v.Minor < 27 {
		provider["apiVersion"] = "credentialprovider.kubelet.k8s.io/v1alpha1"
	}
	return indentJSON(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1",
		"kind":       "CredentialProviderConfig",
		"providers":  []any{provider},
	})
}
