package plan

import (
	"cmp"
	"fmt"

	"github.com/eks-bootstrap/nodeadm/data/pauseimage"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
)

// defaultPauseVersion is the tag that bootstrap.sh used to the end; the
// image's content has not changed in a way that matters since.
const defaultPauseVersion = "3.5"

// sandboxImage is the image that holds each pod's namespaces, from the
// registry of the instance's region. The domain is the partition's own as
// instance metadata tells it, never guessed.
func sandboxImage(p config.PauseImage, f facts.Facts) string {
	account, region := pauseimage.Registry(f.Instance.Region)
	if p.Account != "" {
		account, region = p.Account, f.Instance.Region
	}
	service := "ecr"
	if f.Host.ECRFIPS {
		service = "ecr-fips"
	}
	version := defaultPauseVersion
	if p.Version != "" {
		version = p.Version
	}
	return fmt.Sprintf("%s.dkr.%s.%s.%s/eks/pause:%s", account, service, region, f.Instance.ServicesDomain, version)
}

// sandboxOf is the image that a configuration of containerd names for it, "" if
// none, whoever has written it.
func sandboxOf(document map[string]any) string {
	plugins, _ := document["plugins"].(map[string]any)
	images, _ := plugins[criImages].(map[string]any)
	pinned, _ := images["pinned_images"].(map[string]any)
	sandbox, _ := pinned["sandbox"].(string)
	cri, _ := plugins[criV2].(map[string]any)
	older, _ := cri["sandbox_image"].(string)
	return cmp.Or(sandbox, older)
}
