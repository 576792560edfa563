package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// The flags that lead kubelet to its image credential providers. It takes both
// or none.
const (
	providerConfigFlag = "image-credential-provider-config"
	providerDirFlag    = "image-credential-provider-bin-dir"
)

// ecrCredentialProvider is the provider that images bring.
const ecrCredentialProvider = "ecr-credential-provider"

// tokenAttributesSince is the first minor whose providers may get a token of the
// pod's service account.
const tokenAttributesSince = 33

// imageCredentials plans how kubelet gets at images in ECR, and returns the
// flags for it. The provider program that an image brings comes first; nodeadm
// itself is one too. A configuration with other providers in it is the image's
// own affair.
func (b *builder) imageCredentials(exec string) ([]string, error) {
	v, host := b.facts.Host.Kubelet, b.facts.Host
	_, ownConfig := b.config.Kubelet.Flag(providerConfigFlag)
	dir, ownDir := b.config.Kubelet.Flag(providerDirFlag)
	program := host.CredentialProvider
	if program == "" {
		program = host.Nodeadm
	}
	switch {
	case v.Minor < kubelet.ExternalCloudProvider: // ECR credentials are built in
		return nil, nil
	case hasFlag(exec, providerConfigFlag), ownConfig:
		return nil, nil
	case ownDir: // with a program of the usual name in it
		program = path.Join(dir, ecrCredentialProvider)
	}
	before, err := readProviders(host.Live[layout.CredentialProvider])
	if err != nil {
		b.warn(fmt.Sprintf("%s cannot be read, and is written anew: %v", layout.CredentialProvider, err))
	}
	flags := []string{"--" + providerConfigFlag + "=" + layout.CredentialProvider, "--" + providerDirFlag + "=" + path.Dir(program)}
	if others := before.others(path.Base(program)); len(others) > 0 {
		if !ownDir {
			flags[1] = "--" + providerDirFlag + "=" + path.Dir(layout.CredentialProvider)
		}
		b.warn(fmt.Sprintf("%s stays as it is: it names %s. Programs are taken from %s; whether one of them has passwords for ECR is up to the image",
			layout.CredentialProvider, strings.Join(others, ", "), strings.TrimPrefix(flags[1], "--"+providerDirFlag+"=")))
		return flags, nil
	}
	if program == "" {
		b.warn("neither ecr-credential-provider nor nodeadm is installed on the image: kubelet will not be able to pull from private ECR repositories")
		return nil, nil
	}
	own := program == host.Nodeadm
	if i := slices.IndexFunc(before, func(p provider) bool { return own && p.TokenAttributes != nil }); i >= 0 {
		b.warn(fmt.Sprintf("tokenAttributes of %s in %s is left out: nodeadm, which takes its place, asks ECR as the instance's role alone", before[i].Name, layout.CredentialProvider))
	}
	config, err := imageCredentialProviders(program, own, v, before)
	if err != nil {
		return nil, err
	}
	if err := b.file(layout.CredentialProvider, config); err != nil {
		return nil, err
	}
	return flags, nil
}

// providers are those of a configuration that stands on the node.
type providers []provider

type provider struct {
	Name string `json:"name"`
	Args []any  `json:"args"`
	Env  []any  `json:"env"`

	TokenAttributes map[string]any `json:"tokenAttributes"`
}

func readProviders(data []byte) (providers, error) {
	if data == nil {
		return nil, nil
	}
	trees, problems := doctree.Parse(data, layout.CredentialProvider, 1) // YAML, of which JSON is a part
	if len(problems) > 0 {
		return nil, problems[0]
	}
	var file struct {
		Providers providers `json:"providers"`
	}
	if len(trees) != 1 {
		return nil, fmt.Errorf("%d documents, and one is expected", len(trees))
	}
	err := trees[0].Decode(&file)
	return file.Providers, err
}

// others are the providers that are neither nodeadm's nor ECR's.
func (p providers) others(own string) (names []string) {
	for _, provider := range p {
		ours := slices.Equal(provider.Args, []any{ecrCredentialProvider}) // nodeadm under whatever name it had
		if provider.Name != own && provider.Name != ecrCredentialProvider && !ours {
			names = append(names, provider.Name)
		}
	}
	return names
}

// imageCredentialProviders tells kubelet when to ask a program for a login to
// ECR, which is nodeadm itself or ecr-credential-provider. That one speaks v1
// since the release for 1.27.
//
// What the configuration before says of the environment and the arguments of
// ecr-credential-provider, such as its proxy, stays, and so does whose service
// account's token it gets.
func imageCredentialProviders(program string, own bool, v kubelet.Version, before providers) (string, error) {
	images := awsapi.RegistryPatterns()
	if !own && v.Minor < 32 {
		// Older releases of ecr-credential-provider do not know this host.
		images = slices.DeleteFunc(images, func(host string) bool { return host == "ecr-public.aws.com" })
	}
	entry := map[string]any{
		"name":                 path.Base(program),
		"matchImages":          images,
		"defaultCacheDuration": "12h0m0s",
		"apiVersion":           "credentialprovider.kubelet.k8s.io/v1",
	}
	if own {
		entry["args"] = []string{ecrCredentialProvider}
	}
	for _, earlier := range before {
		if len(earlier.Env) > 0 {
			entry["env"] = earlier.Env
		}
		if len(earlier.Args) > 0 && !own {
			entry["args"] = earlier.Args
		}
		if earlier.TokenAttributes != nil && !own && v.Minor >= tokenAttributesSince {
			entry["tokenAttributes"] = earlier.TokenAttributes
		}
	}
	if v.Minor < 27 {
		entry["apiVersion"] = "credentialprovider.kubelet.k8s.io/v1alpha1"
	}
	return indentJSON(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1",
		"kind":       "CredentialProviderConfig",
		"providers":  []any{entry},
	})
}
