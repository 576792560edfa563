package plan

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/runtimespec"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// environmentFile is the drop-in with a service's environment variables.
func environmentFile(service string) string {
	return "/etc/systemd/system/" + service + ".d/environment.conf"
}

// everyService stands for all services in NodeConfig.
const everyService = "default"

// environment plans the environment of services. Variables for all services
// become systemd's default; containerd, dockerd and kubelet get them in
// drop-ins too, because a default only counts for what is started later.
func (b *builder) environment() error {
	var errs []error
	secret := func(path string, data []byte) { errs = append(errs, b.secret(path, data)) }
	all := maps.Clone(b.config.Instance.Environment)
	common := Proxy(b.config, b.facts)
	maps.Copy(common, all[everyService])
	delete(all, everyService)
	if len(common) > 0 {
		secret(layout.DefaultEnvironment, systemd.Variables("Manager", "DefaultEnvironment", common))
		runtime := layout.ContainerdService
		if b.runtimeName == "dockerd" {
			runtime = layout.DockerService
		}
		for _, service := range []string{layout.KubeletService, runtime} {
			name := strings.TrimSuffix(service, ".service")
			merged := maps.Clone(common)
			maps.Copy(merged, all[name])
			maps.Copy(merged, all[service])
			delete(all, name)
			delete(all, service)
			secret(environmentFile(service), systemd.Variables("Service", "Environment", merged))
		}
	}
	for _, service := range slices.Sorted(maps.Keys(all)) {
		if len(all[service]) == 0 {
			continue
		}
		unit := service
		if !strings.Contains(unit, ".") {
			unit += ".service"
		}
		secret(environmentFile(unit), systemd.Variables("Service", "Environment", all[service]))
	}
	return errors.Join(errs...)
}

// secret is a file that may hold a password.
func (b *builder) secret(path string, data []byte) error {
	manager := managerOf(b.config.Source("spec", "instance", "environment"))
	if b.config.Document.Get("spec", "instance", "environment") == nil {
		manager = managerOf(b.config.Source("spec", "proxy"))
	}
	_, err := b.want(wish{path: path, mode: 0o600, text: string(data), manager: manager})
	return err
}

// Proxy is the proxy settings of a node as environment variables, with all
// that must not go through it: the machine itself, instance metadata, the VPC
// and the cluster's services. It is empty without a proxy.
func Proxy(c config.Config, f facts.Facts) map[string]string {
	variables := map[string]string{}
	if c.Proxy.HTTP == "" && c.Proxy.HTTPS == "" {
		return variables
	}
	direct := []string{"localhost", "127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254", ".internal"}
	for _, cidr := range f.Instance.VPCIPv4CIDRs {
		direct = append(direct, cidr.String())
	}
	if c.Cluster.ServiceCIDR.IsValid() {
		direct = append(direct, c.Cluster.ServiceCIDR.String())
	}
	if f.Cluster != nil {
		for _, cidr := range []string{f.Cluster.ServiceIPv4CIDR, f.Cluster.ServiceIPv6CIDR} {
			if cidr != "" {
				direct = append(direct, cidr)
			}
		}
	}
	if f.PrivateEndpoint {
		endpoint := c.Cluster.Endpoint
		if f.Cluster != nil {
			endpoint = f.Cluster.Endpoint
		}
		if u, err := url.Parse(endpoint); err == nil && u.Hostname() != "" {
			direct = append(direct, u.Hostname())
		}
	}
	direct = append(direct, c.Proxy.NoProxy...)
	for name, value := range map[string]string{"HTTP_PROXY": c.Proxy.HTTP, "HTTPS_PROXY": c.Proxy.HTTPS, "NO_PROXY": strings.Join(direct, ",")} {
		if value != "" {
			variables[name], variables[strings.ToLower(name)] = value, value
		}
	}
	return variables
}

// network plans the resolver.
func (b *builder) network() error {
	n := b.config.Instance.Network
	if len(n.Nameservers) == 0 && len(n.Domains) == 0 {
		return nil
	}
	text := "[Resolve]\n"
	if len(n.Nameservers) > 0 {
		text += "DNS=" + strings.Join(n.Nameservers, " ") + "\n"
	}
	if len(n.Domains) > 0 {
		text += "Domains=" + strings.Join(n.Domains, " ") + "\n"
	}
	b.unit(Unit{Name: layout.ResolvedService, Enabled: true, Files: []string{layout.ResolvedConfig}})
	_, err := b.want(wish{path: layout.ResolvedConfig, mode: 0o644, text: text, manager: managerOf(b.config.Source("spec", "instance", "network"))})
	return err
}

// baseRuntimeSpec plans the OCI specification that every container begins from.
func (b *builder) baseRuntimeSpec() error {
	user := b.config.Containerd.BaseRuntimeSpec
	if user == nil {
		return nil
	}
	doc, err := decodeJSON(runtimespec.Default)
	if err != nil {
		return err
	}
	ownership.Overlay(doc, user)
	text, err := indentJSON(doc)
	if err != nil {
		return err
	}
	return b.file(layout.BaseRuntimeSpec, text)
}
