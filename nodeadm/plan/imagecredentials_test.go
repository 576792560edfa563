package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

func TestImageCredentials(t *testing.T) {
	const external = "/etc/eks/image-credential-provider/ecr-credential-provider"
	// kubelet reads the file strictly: these are the fields that it knows.
	type provider struct {
		Name                 string   `json:"name"`
		Args                 []string `json:"args"`
		MatchImages          []string `json:"matchImages"`
		DefaultCacheDuration string   `json:"defaultCacheDuration"`
		APIVersion           string   `json:"apiVersion"`
	}
	own := []string{"ecr-credential-provider"}
	for _, test := range []struct {
		minor             int
		external, nodeadm string
		name, dir, api    string
		args              []string
		dualStackPublic   bool
	}{
		{26, external, "/usr/bin/nodeadm", "ecr-credential-provider", "/etc/eks/image-credential-provider", "v1alpha1", nil, false},
		{27, external, "/usr/bin/nodeadm", "ecr-credential-provider", "/etc/eks/image-credential-provider", "v1", nil, false},
		{32, external, "", "ecr-credential-provider", "/etc/eks/image-credential-provider", "v1", nil, true},
		{36, external, "", "ecr-credential-provider", "/etc/eks/image-credential-provider", "v1", nil, true},
		{26, "", "/usr/bin/nodeadm", "nodeadm", "/usr/bin", "v1alpha1", own, true},
		{27, "", "/usr/local/bin/nodeadm", "nodeadm", "/usr/local/bin", "v1", own, true},
		{32, "", "/opt/nodeadm-1.2", "nodeadm-1.2", "/opt", "v1", own, true},
		{36, "", "/usr/bin/nodeadm", "nodeadm", "/usr/bin", "v1", own, true},
	} {
		t.Run(fmt.Sprintf("1.%d %s%s", test.minor, test.external, test.nodeadm), func(t *testing.T) {
			c, f := node(t, test.minor)
			f.Host.CredentialProvider, f.Host.Nodeadm = test.external, test.nodeadm
			p, err := Build(c, f, Options{})
			if err != nil || len(p.Warnings) > 0 {
				t.Fatal(err, p.Warnings)
			}
			var got struct {
				APIVersion string     `json:"apiVersion"`
				Kind       string     `json:"kind"`
				Providers  []provider `json:"providers"`
			}
			decoder := json.NewDecoder(strings.NewReader(file(t, p, layout.CredentialProvider)))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&got); err != nil || got.APIVersion != "kubelet.config.k8s.io/v1" || got.Kind != "CredentialProviderConfig" || len(got.Providers) != 1 {
				t.Fatalf("%v, %+v", err, got)
			}
			images := awsapi.RegistryPatterns()
			if !test.dualStackPublic {
				images = images[:len(images)-1]
			}
			want := provider{test.name, test.args, images, "12h0m0s", "credentialprovider.kubelet.k8s.io/" + test.api}
			if diff := cmp.Diff(want, got.Providers[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if args := file(t, p, layout.KubeletArgs); !strings.Contains(args, " --image-credential-provider-config="+layout.CredentialProvider+" --image-credential-provider-bin-dir="+test.dir+"'") {
				t.Error(args)
			}
		})
	}
	if images := awsapi.RegistryPatterns(); !slices.Equal(images[len(images)-2:], []string{"public.ecr.aws", "ecr-public.aws.com"}) {
		t.Errorf("%q", images)
	}
}

func TestNoImageCredentials(t *testing.T) {
	for _, test := range []struct {
		name   string
		minor  int
		change func(*facts.Host)
		warns  string
	}{
		{"built into kubelet", 25, func(h *facts.Host) { h.Nodeadm = "/usr/bin/nodeadm" }, ""},
		{"nothing is installed", 34, func(h *facts.Host) { h.CredentialProvider = "" }, "neither ecr-credential-provider nor nodeadm is installed"},
		{"the image's own", 34, func(h *facts.Host) {
			h.KubeletUnit = &facts.KubeletUnit{Path: "/usr/lib/systemd/system/kubelet.service",
				Exec: "/usr/bin/kubelet --config " + layout.KubeletConfig + " --kubeconfig " + layout.Kubeconfig + " --image-credential-provider-config=/x --image-credential-provider-bin-dir=/y $KUBELET_ARGS $KUBELET_EXTRA_ARGS"}
		}, ""},
	} {
		c, f := node(t, test.minor)
		test.change(&f.Host)
		p, err := Build(c, f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(p.Warnings, "\n"); !strings.Contains(warnings, test.warns) || test.warns == "" && warnings != "" {
			t.Errorf("%s: warnings %q", test.name, warnings)
		}
		if slices.ContainsFunc(p.Files, func(f File) bool { return f.Path == layout.CredentialProvider }) || strings.Contains(file(t, p, layout.KubeletArgs), "image-credential-provider") {
			t.Errorf("%s: it is planned", test.name)
		}
	}
}

// TestImageCredentialsOfTheImage: what an image says of providers is not lost.
func TestImageCredentialsOfTheImage(t *testing.T) {
	const ecr, dir = "/etc/eks/image-credential-provider/ecr-credential-provider", "/etc/eks/image-credential-provider"
	provider := func(name, more string) string {
		return `{"name": "` + name + `", "matchImages": ["*.azurecr.io"], "defaultCacheDuration": "1h", "apiVersion": "credentialprovider.kubelet.k8s.io/v1"` + more + `}`
	}
	file := func(providers ...string) string {
		return `{"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [` + strings.Join(providers, ",") + `]}`
	}
	const environment = `, "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}], "args": ["get-credentials"]`
	const token = `, "tokenAttributes": {"serviceAccountTokenAudience": "ecr", "requireServiceAccount": true}`
	for _, test := range []struct {
		name, external, before string
		flags                  []string
		planned                []string // in the file; nil: it is not planned
		absent, dir, warns     string
	}{
		{"another provider", "", file(provider("acr", "")), nil, nil, "", dir, "it names acr"},
		{"another provider beside ECR's", ecr, file(provider("acr", ""), provider("ecr-credential-provider", "")), nil, nil, "", dir, "it names acr"},
		{"ECR's own settings", ecr, file(provider("ecr-credential-provider", environment)), nil, []string{`"HTTPS_PROXY"`, `"get-credentials"`, `"*.dkr.ecr.*.amazonaws.com"`}, "azurecr", dir, ""},
		{"ECR's own settings, and no such program", "", file(provider("ecr-credential-provider", environment)), nil, []string{`"HTTPS_PROXY"`, `"name": "nodeadm"`}, "get-credentials", "/usr/bin", ""},
		{"a service account's token", ecr, file(provider("ecr-credential-provider", token)), nil, []string{`"serviceAccountTokenAudience": "ecr"`}, "", dir, ""},
		{"a service account's token, and no such program", "", file(provider("ecr-credential-provider", token)), nil, []string{`"name": "nodeadm"`}, "tokenAttributes", "/usr/bin", "tokenAttributes of ecr-credential-provider"},
		{"nodeadm's own before, under another name", "", file(provider("nodeadm-1.0", `, "args": ["ecr-credential-provider"]`)), nil, []string{`"name": "nodeadm"`}, "", "/usr/bin", ""},
		{"in YAML", "", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: acr\n", nil, nil, "", dir, "it names acr"},
		{"broken", "", "{", nil, []string{`"name": "nodeadm"`}, "", "/usr/bin", "cannot be read"},
		{"the user's own directory", "", "", []string{"--image-credential-provider-bin-dir=/opt/x"}, []string{`"name": "ecr-credential-provider"`}, "", "/opt/x", ""},
		{"the user's own configuration", "", "", []string{"--image-credential-provider-config=/opt/x.json", "--image-credential-provider-bin-dir=/opt/x"}, nil, "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, 34)
			c.Kubelet.Flags = append(c.Kubelet.Flags, test.flags...)
			f.Host.CredentialProvider, f.Host.Nodeadm = test.external, "/usr/bin/nodeadm"
			if test.before != "" {
				f.Host.Live = map[string][]byte{layout.CredentialProvider: []byte(test.before)}
			}
			p, err := Build(c, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if warnings := strings.Join(p.Warnings, "\n"); !strings.Contains(warnings, test.warns) || test.warns == "" && warnings != "" {
				t.Errorf("warnings %q", warnings)
			}
			at := slices.IndexFunc(p.Files, func(f File) bool { return f.Path == layout.CredentialProvider })
			if (at >= 0) != (test.planned != nil) {
				t.Fatalf("planned: %v", at >= 0)
			}
			for _, want := range test.planned {
				if !strings.Contains(string(p.Files[at].Data), want) {
					t.Errorf("%s is missing in\n%s", want, p.Files[at].Data)
				}
			}
			if test.absent != "" && strings.Contains(string(p.Files[at].Data), test.absent) {
				t.Errorf("%s is in\n%s", test.absent, p.Files[at].Data)
			}
			args := string(p.Files[slices.IndexFunc(p.Files, func(f File) bool { return f.Path == layout.KubeletArgs })].Data)
			if want := "--image-credential-provider-bin-dir=" + test.dir; test.dir != "" && !strings.Contains(args, want) || test.dir == "" && strings.Contains(args, want) {
				t.Errorf("%s, want %s", args, want)
			}
		})
	}
}
