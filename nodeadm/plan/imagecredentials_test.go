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
		{"nothing is installed", 34, func(h *facts.Host) { h.CredentialProvider = "" }, "ecr-credential-provider is not installed"},
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
