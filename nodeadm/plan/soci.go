package plan

import (
	"fmt"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// What a machine needs so that fetching and unpacking many layers at once gains
// anything; below, AWS's own nodeadm does without, too.
const (
	sociCPUs      = 4
	sociMemoryMiB = 7 * 1024
)

// chooseFastImagePull tells whether images are pulled by the SOCI snapshotter,
// which fetches and unpacks the layers of an image side by side. One
// configuration serves many sizes and images of a fleet: where it cannot be,
// images are pulled as usual, with a warning.
func (b *builder) chooseFastImagePull() bool {
	if !b.config.FastImagePull {
		return false
	}
	h, obstacle := b.facts.Host, ""
	switch {
	case b.runtimeName != "containerd":
		obstacle = "the container runtime is " + b.runtimeName
	case !kubelet.HasField(h.Kubelet, "imageServiceEndpoint"):
		obstacle = fmt.Sprintf("kubelet %s has no imageServiceEndpoint", h.Kubelet)
	case h.ContainerdTemplate != nil:
		obstacle = h.ContainerdTemplate.Path + " replaces containerd's configuration"
	case len(h.SOCIUnits) == 0:
		obstacle = "soci-snapshotter-grpc and its soci-snapshotter.service are not installed"
	case h.CPUs < sociCPUs || h.MemoryMiB < sociMemoryMiB:
		obstacle = fmt.Sprintf("it needs %d CPUs and 7 GiB of memory, and here are %d and %.1f GiB", sociCPUs, h.CPUs, float64(h.MemoryMiB)/1024)
	}
	if obstacle != "" {
		b.warn("the feature gate FastImagePull has no effect, and images are pulled as usual: " + obstacle)
	}
	return obstacle == ""
}

// soci plans the snapshotter's own configuration. What the image says there
// counts more.
func (b *builder) soci() error {
	if !b.fastImagePull {
		return nil
	}
	var t tomlText
	t.table("content_store")
	t.line("type = %q", "containerd")
	t.table("cri_keychain") // passwords come from kubelet, with each pull
	t.line("enable_keychain = true")
	t.line("image_service_path = %q", strings.TrimPrefix(layout.ContainerdSocket, "unix://"))
	t.table("pull_modes.parallel_pull_unpack")
	t.line("enable = true")
	t.line("concurrent_download_chunk_size = %q", "16mb")
	t.line("discard_unpacked_layers = true")
	t.line("max_concurrent_downloads = -1")
	t.line("max_concurrent_downloads_per_image = 20")
	t.line("max_concurrent_unpacks = -1")
	t.line("max_concurrent_unpacks_per_image = 12")
	if unpigz := b.facts.Host.Unpigz; unpigz != "" {
		t.table("pull_modes.parallel_pull_unpack.decompress_streams.gzip")
		t.line("path = %q", unpigz)
		t.line(`args = ["-d", "-c"]`)
	}
	text := strings.TrimPrefix(t.String(), "\n")
	fields, err := decodeTOML([]byte(text))
	if err != nil {
		return err
	}
	for _, name := range b.facts.Host.SOCIUnits {
		u := Unit{Name: name, Enabled: true, StartOnly: true}
		if strings.HasSuffix(name, ".service") {
			u.StartOnly, u.Files = false, []string{layout.SOCIConfig}
		}
		b.unit(u)
	}
	_, err = b.want(wish{path: layout.SOCIConfig, mode: 0o644, text: text, keepsImage: true,
		intents: []ownership.Intent{{Manager: Agent, Fields: fields, Yields: true}}})
	return err
}
