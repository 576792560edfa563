package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	units "github.com/eks-bootstrap/nodeadm/systemd"
)

// kubelet plans the service: its configuration, both drop-ins, the unit where
// the image has none, and the credential provider for images.
func (b *builder) kubelet() error {
	if err := b.checkUserFlags(); err != nil {
		return err
	}
	doc, err := b.planKubeletConfig()
	if err != nil {
		return err
	}
	if err := b.checkSwap(doc); err != nil {
		return err
	}
	b.plan.HealthURL = b.healthURL(doc)

	files := []string{layout.KubeletConfig, layout.KubeletArgs, layout.KubeletExtraArgs, layout.CACertificate,
		layout.Kubeconfig, layout.BootstrapKubeconfig, layout.KubeletUnit, layout.CredentialProvider,
		environmentFile(layout.KubeletService)}

	exec := b.kubeletExec()
	dropIn, err := b.kubeletArgs(exec)
	if err != nil {
		return err
	}
	b.unit(Unit{Name: layout.KubeletService, Enabled: true, Files: files})
	if err := b.file(layout.KubeletArgs, dropIn); err != nil {
		return err
	}
	if flags := b.config.Kubelet.Flags; len(flags) > 0 {
		_, err = b.want(wish{path: layout.KubeletExtraArgs, mode: 0o644, manager: managerOf(b.config.Source("spec", "kubelet", "flags")),
			text: string(systemd.Environment("KUBELET_EXTRA_ARGS", flags))})
	}
	return err
}

// checkUserFlags refuses flags that this kubelet does not have: it would exit
// with a usage text when nobody is looking.
func (b *builder) checkUserFlags() error {
	v := b.facts.Host.Kubelet
	var errs []error
	for _, name := range b.config.Kubelet.FlagNames() {
		if kubelet.HasFlag(v, name) {
			continue
		}
		remedy := "leave it out"
		var known []string
		for row := range kubelet.Rows() {
			if row.IsFlag() && row.Name == name && row.Until != 0 && v.Minor >= row.Until {
				remedy = fmt.Sprintf("leave it out: it was removed in 1.%d", row.Until)
			}
			if row.IsFlag() && kubelet.HasFlag(v, row.Name) {
				known = append(known, row.Name)
			}
		}
		if nearest := suggest.Nearest(name, known); nearest != "" && remedy == "leave it out" {
			remedy = "did you mean --" + nearest + "?"
		}
		errs = append(errs, fault.New(fault.Usage, remedy, "%s: kubelet %s has no flag --%s", b.config.Origin("spec.kubelet.flags"), v, name))
	}
	for _, name := range []string{"config", "kubeconfig"} {
		if value, given := b.config.Kubelet.Flag(name); given && value != layout.KubeletConfig && value != layout.Kubeconfig {
			b.warn("kubelet's flag --" + name + "=" + value + " makes kubelet ignore what nodeadm writes")
		}
	}
	origin := b.config.Origin("spec.kubelet.flags")
	if value, _ := b.config.Kubelet.Flag("cloud-provider"); value != "" && value != "external" && v.Minor > 26 {
		errs = append(errs, fault.New(fault.Usage, "leave it out", "%s: kubelet %s has no cloud provider %s; those that were built in were removed by 1.27", origin, v, value))
	}
	if value, given := b.config.Kubelet.Flag("runonce"); given && isTrue(value) {
		errs = append(errs, fault.New(fault.Usage, "leave it out", "%s: --runonce: kubelet would end once its static pods run, and never join", origin))
	}
	if _, given := b.config.Kubelet.Flag("config-dir"); given && kubelet.Has(v, kubelet.Env, dropInDirVariable) && b.config.Instance.KubeletVariable(dropInDirVariable) == "" {
		errs = append(errs, fault.New(fault.Usage, "write spec.instance.environment: {kubelet: {"+dropInDirVariable+": \"1\"}} beside it",
			"%s: kubelet %s takes --config-dir only with %s in its environment", origin, v, dropInDirVariable))
	}
	gates := b.config.Kubelet.FeatureGates()
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		errs = append(errs, b.checkGate(origin+": --feature-gates="+name, name, gates[name]))
	}
	return errors.Join(errs...)
}

// dropInDirVariable is what kubelet wants to see before it takes --config-dir,
// while that is in alpha.
const dropInDirVariable = "KUBELET_CONFIG_DROPIN_DIR_ALPHA"

// isTrue reads the value of a switch; without a value it is on.
func isTrue(value string) bool {
	on, err := strconv.ParseBool(value)
	return on || err != nil
}

// kubeletExec is kubelet's command line as nodeadm itself writes it.
func (b *builder) kubeletExec() string {
	v := b.facts.Host.Kubelet
	words := []string{b.facts.Host.KubeletPath}
	if b.runtimeName == "dockerd" && v.Minor < kubelet.ExternalCloudProvider {
		words = append(words, "--cloud-provider", "aws")
	}
	words = append(words, "--config", layout.KubeletConfig, "--kubeconfig", layout.Kubeconfig)
	switch {
	case b.runtimeName == "dockerd":
		words = append(words, "--container-runtime", "docker", "--network-plugin", "cni")
	case v.Minor < dockershimGone:
		words = append(words, "--container-runtime", "remote", "--container-runtime-endpoint", layout.ContainerdSocket)
	case !kubelet.HasField(v, "containerRuntimeEndpoint"):
		words = append(words, "--container-runtime-endpoint", layout.ContainerdSocket)
	}
	return strings.Join(append(words, "$KUBELET_ARGS", "$KUBELET_EXTRA_ARGS"), " ")
}

// kubeletArgs plans 10-kubelet-args.conf: what the agent works out, for the
// command line that will run.
func (b *builder) kubeletArgs(own string) (string, error) {
	exec, reset := own, ""
	switch image := b.facts.Host.KubeletUnit; {
	case image == nil:
		if err := b.file(layout.KubeletUnit, b.kubeletUnit(own)); err != nil {
			return "", err
		}
	case b.usable(image.Exec):
		exec = image.Exec
	default:
		// The image starts kubelet in a way of its own, in which neither these
		// arguments nor the user's would have any effect.
		if name, isDropIn := dropInName(image.Path); isDropIn && name > "10-kubelet-args.conf" {
			return "", fault.New(fault.Usage, "remove that drop-in, or let its ExecStart= end in $KUBELET_ARGS $KUBELET_EXTRA_ARGS",
				"%s: it replaces kubelet's command line, so that no configuration would reach kubelet", image.Path)
		}
		reset = "ExecStart=\nExecStart=" + own + "\n"
		if image.Exec != "" {
			b.warn("kubelet's command line in " + image.Path + " leaves no place for arguments; " + layout.KubeletArgs + " replaces it")
		}
	}

	if image := b.facts.Host.KubeletUnit; image != nil && image.MissingEnvironment != "" {
		reset = "EnvironmentFile=\n" + lines("EnvironmentFile=", image.Environment) + reset
	}

	v := b.facts.Host.Kubelet
	nodeIP := b.facts.Instance.IPv4
	if b.cluster.ipv6 {
		nodeIP = b.facts.Instance.IPv6[0]
		if n := len(b.facts.Instance.IPv6); n > 1 {
			b.warn("the instance has " + strconv.Itoa(n) + " IPv6 addresses; the node uses the first, " + nodeIP.String())
		}
	}
	args := []string{"--node-ip=" + nodeIP.String()}
	if kubelet.HasFlag(v, "pod-infra-container-image") {
		args = append(args, "--pod-infra-container-image="+b.infraImage)
	}
	// A verbosity in the user's KubeletConfiguration must not be overruled by a flag.
	if logging, _ := b.config.Kubelet.Config["logging"].(map[string]any); logging["verbosity"] == nil {
		args = append(args, "--v=2")
	}
	if v.Minor >= kubelet.ExternalCloudProvider {
		if name := b.ownNodeName(); name != "" {
			args = append(args, "--hostname-override="+name)
		}
		args = append(args, "--cloud-provider=external")
	} else if !hasFlag(exec, "cloud-provider") {
		args = append(args, "--cloud-provider=aws")
	}
	if b.cluster.outpost {
		args = append(args, "--bootstrap-kubeconfig="+layout.BootstrapKubeconfig)
	}
	credentials, err := b.imageCredentials(exec)
	if err != nil {
		return "", err
	}
	labels, err := b.ownLabelFlags()
	if err != nil {
		return "", err
	}
	args = append(append(args, credentials...), labels...)
	return string(systemd.Environment("KUBELET_ARGS", args)) + reset, nil
}

func lines(prefix string, values []string) string {
	var text strings.Builder
	for _, value := range values {
		text.WriteString(prefix + value + "\n")
	}
	return text.String()
}

// usable tells whether a command line of the image's takes up what nodeadm
// writes, for the runtime that was chosen.
func (b *builder) usable(exec string) bool {
	takes := func(variable string) bool {
		return strings.Contains(exec, "$"+variable) || strings.Contains(exec, "${"+variable+"}")
	}
	docker := strings.Contains(exec, "--container-runtime docker") || strings.Contains(exec, "--container-runtime=docker")
	return takes("KUBELET_ARGS") && takes("KUBELET_EXTRA_ARGS") &&
		strings.Contains(exec, layout.KubeletConfig) && strings.Contains(exec, layout.Kubeconfig) &&
		docker == (b.runtimeName == "dockerd")
}

// hasFlag tells whether a command line gives a flag, in either spelling.
func hasFlag(commandLine, name string) bool {
	for _, word := range strings.Fields(commandLine) {
		if word == "--"+name || strings.HasPrefix(word, "--"+name+"=") {
			return true
		}
	}
	return false
}

func dropInName(path string) (string, bool) {
	dir, name := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/")+1:]
	return name, strings.HasSuffix(dir, ".service.d")
}

func (b *builder) kubeletUnit(exec string) string {
	runtime, restart := layout.ContainerdService, "on-failure"
	if b.runtimeName == "dockerd" {
		runtime, restart = layout.DockerService, "always"
	}
	return strings.NewReplacer("@EXEC@", exec, "@RUNTIME@", runtime, "@RESTART@", restart).Replace(units.KubeletService)
}

// healthURL is where kubelet will answer, with the user's flags over the
// document.
func (b *builder) healthURL(doc map[string]any) string {
	address, port := layout.KubeletHealthAddress, strconv.Itoa(layout.KubeletHealthPort)
	if a, ok := doc["healthzBindAddress"].(string); ok && a != "" {
		address = a
	}
	if p, ok := doc["healthzPort"].(int64); ok {
		port = strconv.FormatInt(p, 10)
	}
	if a, given := b.config.Kubelet.Flag("healthz-bind-address"); given {
		address = a
	}
	if p, given := b.config.Kubelet.Flag("healthz-port"); given {
		port = p
	}
	if port == "0" {
		return ""
	}
	if address == "0.0.0.0" || address == "::" || address == "" {
		address = layout.KubeletHealthAddress
	}
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return "http://" + address + ":" + port + "/healthz"
}
