package doctor

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// cniPatience is how long aws-node may take to come up.
const cniPatience = 30 * time.Second

func cniConf(ctx context.Context, p *patient) Finding {
	if !p.configured() {
		return skipped("nodeadm has not configured this node yet")
	}
	const dir = "/etc/cni/net.d"
	file := p.cniFile(dir)
	if state, err := p.unit(ctx, layout.KubeletService); file == "" && err == nil && state.Active == "active" && state.ActiveFor < cniPatience {
		return warning("look again in a minute: aws-node writes it when it is well", "there is no file in %s yet, and kubelet was started %s ago", dir, state.ActiveFor.Round(time.Second))
	}
	if file == "" {
		return failed("kubectl -n kube-system logs -l k8s-app=aws-node --all-containers, and /var/log/aws-routed-eni on the node; check that the role has AmazonEKS_CNI_Policy, and that images can be pulled",
			"pods have no network: there is no file in %s, and aws-node has not written one yet", dir)
	}
	var network struct {
		cniPlugin
		Plugins []cniPlugin
	}
	if err := json.Unmarshal([]byte(p.text(file)), &network); err != nil {
		return failed("mend it, or remove it and restart aws-node, which writes its own", "pods have no network: %s is no JSON: %v", file, err)
	}
	dirs := p.cniDirs()
	for _, plugin := range append(network.Plugins, network.cniPlugin) {
		for _, program := range []string{plugin.Type, plugin.IPAM.Type} {
			if program != "" && !p.executable(dirs, program) {
				return failed("install it there: aws-node brings Amazon's own, containernetworking-plugins the others", "pods have no network: %s names the plugin %s, and there is no such program in %s", file, program, strings.Join(dirs, ", "))
			}
		}
	}
	return ok("%s says how pods are connected", file)
}

// cniPlugin is a program that connects pods, with the one that it has give out
// addresses.
type cniPlugin struct {
	Type string
	IPAM struct{ Type string }
}

// cniFile is the file that counts: the first by name.
func (p *patient) cniFile(dir string) string {
	names, _ := p.list(dir)
	for _, name := range names {
		file := path.Join(dir, name)
		info, err := os.Stat(p.host(file))
		if err == nil && info.Mode().IsRegular() && slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name)) {
			return file
		}
	}
	return ""
}

// cniDirs are where containerd looks for plugins.
func (p *patient) cniDirs() (dirs []string) {
	s, _ := p.containerd()
	for _, plugin := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		if dir, isText := s.at("plugins", plugin, "cni", "bin_dir").(string); isText && dir != "" {
			dirs = append(dirs, dir)
		}
		several, _ := s.at("plugins", plugin, "cni", "bin_dirs").([]any)
		for _, dir := range several {
			if dir, isText := dir.(string); isText {
				dirs = append(dirs, dir)
			}
		}
	}
	if len(dirs) == 0 {
		dirs = []string{"/opt/cni/bin"}
	}
	return dirs
}

func (p *patient) executable(dirs []string, program string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		info, err := os.Stat(p.host(path.Join(dir, program)))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}
