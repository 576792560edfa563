package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// runtimeChecks ask about what runs containers.
var runtimeChecks = []Check{
	{Name: "containerd-toml", Question: "Can containerd read its configuration?", look: containerdTOML,
		Explanation: "containerd ends at once with a configuration that is no TOML or of a version that it does not know: version 3 came with 2.0, version 1 went with it."},
	{Name: "unit-containerd", Question: "Does containerd run?", Needs: []string{"exec-allowed", "containerd-toml"}, look: unitContainerd,
		Explanation: "kubelet waits for containerd's socket, and the node stays NotReady until it is there. A masked unit was switched off by hand or on the image."},
	{Name: "cri-socket", Question: "Does containerd speak to kubelet?", Needs: []string{"unit-containerd"}, look: criSocket,
		Explanation: "kubelet speaks CRI on containerd's socket. The plugin that does is off where disabled_plugins names cri, as Docker's own packages configure it, or where its configuration or its snapshotter cannot be used."},
	{Name: "cgroup-driver", Question: "Do kubelet and containerd make cgroups the same way?", Needs: []string{"containerd-toml"}, look: cgroupDriver,
		Explanation: "With cgroupDriver systemd in kubelet and SystemdCgroup false in containerd, or the other way round, pods end up in cgroups that nobody watches, or do not start."},
	{Name: "credential-provider", Question: "Can kubelet get passwords for registries?", look: credentialProvider,
		Explanation: "kubelet does not start where the image credential provider that its configuration names is missing. ECR answers 401 to pulls without a password."},
	{Name: "pause-image", Level: Network, Question: "Is the sandbox image there, or can it be pulled?", Needs: []string{"cri-socket"}, look: pauseImage,
		Explanation: "Every pod begins with the sandbox (pause) image. From ECR it needs the endpoints ecr.api and ecr.dkr, and S3 for its layers, in subnets without a way to the internet."},
}

// settings are tables of TOML.
type settings map[string]any

// at follows a path of tables.
func (s settings) at(path ...string) any {
	var here any = map[string]any(s)
	for _, key := range path {
		table, isTable := here.(map[string]any)
		if !isTable {
			return nil
		}
		here = table[key]
	}
	return here
}

// containerd is containerd's configuration, nil where there is none.
func (p *patient) containerd() (settings, error) {
	data, err := p.Root.ReadFile(layout.ContainerdConfig)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s map[string]any
	err = toml.Unmarshal(data, &s)
	return s, err
}

func containerdTOML(_ context.Context, p *patient) Finding {
	s, err := p.containerd()
	if err != nil {
		var place toml.ParseError
		if errors.As(err, &place) {
			return failed("mend it, or run nodeadm again, which writes it anew", "%s: line %d: %s", layout.ContainerdConfig, place.Position.Line, place.Message)
		}
		return failed("mend it, or run nodeadm again, which writes it anew", "%s: %v", layout.ContainerdConfig, err)
	}
	if s == nil {
		return skipped("%s is not there", layout.ContainerdConfig)
	}
	version, _ := s.at("version").(int64)
	have := strings.TrimPrefix(strings.TrimSpace(p.text(layout.ContainerdVersion)), "v")
	if version >= 3 && strings.HasPrefix(have, "1.") {
		return failed("write it in version 2, which both read", "%s is in version %d, and containerd %s reads 2 at most", layout.ContainerdConfig, version, have)
	}
	return ok("%s is in version %d", layout.ContainerdConfig, max(version, 1))
}

// service judges a unit that has to run.
func (p *patient) service(ctx context.Context, name string) Finding {
	state, err := p.unit(ctx, name)
	if err != nil {
		return warning("see whether D-Bus runs: systemctl status dbus; systemctl --failed", "systemd does not say how %s is: %v", name, err)
	}
	seen := fmt.Sprintf("%s: %s, %s (%s), result %s, exit status %d, %d restarts", name, state.Load, state.Active, state.Sub, state.Result, state.ExitStatus, state.Restarts)
	switch {
	case state.Load == "masked":
		return failed("systemctl unmask "+name+" && systemctl start "+name, "%s is masked: nothing can start it", name).seen(seen)
	case state.Load == "not-found":
		return failed("install what brings it", "there is no unit %s", name).seen(seen)
	case state.Load != "loaded":
		return failed("systemctl status "+name+" says which line is wrong", "systemd cannot load %s: %s", name, state.Load).seen(seen)
	case state.Active == "active" && state.ActiveFor > restartsAfter, state.Active == "active" && state.Restarts == 0:
		return ok("%s runs since %s", name, state.ActiveFor.Round(time.Second)).seen(seen)
	}
	what, remedy := name+" does not run", "journalctl -u "+name+" shows more"
	if reason, mend := p.reason(ctx, name); reason != "" {
		return failed(mend, "%s: %s", what, reason).seen(seen)
	}
	said := systemd.LastWords(ctx, name, 60)
	if state.Active == "inactive" && state.Result == "success" { // what it said last was not why it ended
		return failed("systemctl start "+name+", and see what stopped it: journalctl -u "+name, "%s was not started", name).seen(seen).seen(last(complaints(said), 5)...)
	}
	if state.Restarts > 0 {
		what = fmt.Sprintf("%s ends again and again (%d restarts)", name, state.Restarts)
	}
	if known := decode(said); known != nil {
		what, remedy = what+": "+known.meaning, known.remedy
	} else if fatal := fatalOf(said); fatal != "" {
		what += ": " + fatal
	} else if meaning := results[state.Result]; meaning != "" {
		what += ": " + meaning
	}
	return failed(remedy, "%s", what).seen(seen).seen(last(complaints(said), 5)...)
}

// results are how systemd says that a service ended, where that is not how its
// program ended.
var results = map[string]string{
	"timeout":  "it was not ready within its TimeoutStartSec=",
	"watchdog": "it has not called in within its WatchdogSec=",
	"oom-kill": "the kernel has killed it for want of memory",
}

// restartsAfter is how long a service has to run to be taken for one that will.
const restartsAfter = 15 * time.Second

func unitContainerd(ctx context.Context, p *patient) Finding {
	if strings.Contains(p.text(layout.KubeletUnit), layout.DockerService) {
		return p.service(ctx, layout.DockerService)
	}
	return p.service(ctx, layout.ContainerdService)
}

// criAddress is where kubelet speaks CRI, who says so, and whether that is a
// socket of this machine's.
func (p *patient) criAddress() (address, origin string, isUnix bool) {
	address, origin = layout.ContainerdSocket, "kubelet's own default"
	if c, err := p.kubelet(); err == nil && c.ContainerRuntimeEndpoint != "" {
		address, origin = c.ContainerRuntimeEndpoint, "containerRuntimeEndpoint of kubelet's configuration"
	}
	if flag := p.flag("container-runtime-endpoint"); flag != "" {
		address, origin = flag, "kubelet's flag --container-runtime-endpoint"
	}
	path := strings.TrimPrefix(address, "unix://")
	return path, origin, strings.HasPrefix(path, "/")
}

// ofContainerd tells whether a socket is containerd's, by its name.
func ofContainerd(address string) bool { return strings.Contains(address, "containerd") }

func criSocket(ctx context.Context, p *patient) Finding {
	address, origin, isUnix := p.criAddress()
	if !isUnix {
		return skipped("the container runtime is not on this machine's own socket: %s", address)
	}
	remedy := "systemctl restart " + layout.ContainerdService
	if strings.TrimPrefix(address, "/var") != strings.TrimPrefix(layout.ContainerdSocket, "unix://") {
		remedy = "set containerRuntimeEndpoint to " + layout.ContainerdSocket + " (" + origin + " says otherwise) and restart kubelet; or start the container runtime that is meant"
	}
	if !p.Root.Exists(address) {
		return failed(remedy, "kubelet's container runtime is not there: the socket %s is missing", address).seen(origin + ": " + address)
	}
	connection, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "unix", p.host(address))
	if err != nil {
		return failed(remedy, "kubelet's container runtime does not take connections on %s: %v", address, err).seen(origin + ": " + address)
	}
	connection.Close()
	if !ofContainerd(address) {
		return ok("a container runtime takes connections on %s", address)
	}
	if s, err := p.containerd(); err == nil {
		off, _ := s.at("disabled_plugins").([]any)
		for _, name := range off {
			if name == "cri" || name == "io.containerd.grpc.v1.cri" {
				return failed("take it out of disabled_plugins in "+layout.ContainerdConfig+", and restart containerd", "containerd's plugin for kubelet is switched off: disabled_plugins names %v", name)
			}
		}
	}
	out, err := p.output(ctx, "ctr", "--address", address, "plugins", "ls")
	if err != nil {
		if strings.Contains(err.Error(), "executable file not found") {
			return ok("containerd takes connections on %s", address)
		}
		return failed("systemctl restart "+layout.ContainerdService, "containerd does not answer: %v", err)
	}
	for _, line := range lines(out) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "cri" && f[1] != "runtime" && f[1] != "images" || !strings.Contains(f[0], "cri") && f[1] != "cri" {
			continue
		}
		if status := f[len(f)-1]; status != "ok" {
			said := systemd.LastWords(ctx, layout.ContainerdService, 200)
			said = slices.DeleteFunc(said, func(l string) bool {
				return !strings.Contains(l, "cri") || !strings.Contains(l, "level=") || strings.Contains(l, "level=info")
			})
			return failed("mend what journalctl -u "+layout.ContainerdService+" says of it, and restart containerd", "containerd's plugin for kubelet (%s %s) is in the status %s", f[0], f[1], status).seen(last(said, 3)...)
		}
	}
	return ok("containerd speaks CRI on %s", address)
}

func cgroupDriver(_ context.Context, p *patient) Finding {
	c, err := p.kubelet()
	s, tomlErr := p.containerd()
	if err != nil || tomlErr != nil || s == nil {
		return skipped("the node is not configured yet")
	}
	if c.CgroupDriver == "" {
		return skipped("kubelet takes the driver that the runtime says")
	}
	for _, plugin := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		runtimes, _ := s.at("plugins", plugin, "containerd", "runtimes").(map[string]any)
		for name, value := range runtimes {
			runtime, _ := value.(map[string]any)
			if runtime["runtime_type"] != "io.containerd.runc.v2" {
				continue // others have other options
			}
			options, _ := runtime["options"].(map[string]any)
			systemdCgroup, _ := options["SystemdCgroup"].(bool)
			driver := "cgroupfs"
			if systemdCgroup {
				driver = "systemd"
			}
			if driver != c.CgroupDriver {
				return failed(fmt.Sprintf("set SystemdCgroup = %t in %s, and restart containerd; or let nodeadm write both", c.CgroupDriver == "systemd", layout.ContainerdConfig),
					"kubelet makes cgroups by %s and containerd's runtime %s by %s", c.CgroupDriver, name, driver).
					seen(layout.KubeletConfig+": cgroupDriver "+c.CgroupDriver, fmt.Sprintf("%s: %s SystemdCgroup = %t", layout.ContainerdConfig, name, systemdCgroup))
			}
		}
	}
	return ok("both make cgroups by %s", c.CgroupDriver)
}

func credentialProvider(_ context.Context, p *patient) Finding {
	file, dir := p.flag("image-credential-provider-config"), p.flag("image-credential-provider-bin-dir")
	if file == "" {
		return skipped("kubelet uses none")
	}
	data, err := p.Root.ReadFile(file)
	if err != nil {
		return failed("run nodeadm again", "kubelet does not start: the configuration of its image credential provider cannot be read: %v", err)
	}
	var c struct {
		Providers []struct{ Name string }
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return failed("run nodeadm again", "kubelet does not start: %s: %v", file, err)
	}
	for _, provider := range c.Providers {
		program := dir + "/" + provider.Name
		info, err := os.Stat(p.host(program))
		if err != nil || info.Mode()&0o111 == 0 {
			return failed("install it there, or let nodeadm be the provider: remove it from the image and run nodeadm again", "kubelet does not start: the image credential provider %s is missing or not executable", program)
		}
	}
	return ok("%s names %d providers", file, len(c.Providers))
}

func pauseImage(ctx context.Context, p *patient) Finding {
	s, err := p.containerd()
	if err != nil {
		return skipped("containerd's configuration is not known")
	}
	name := ""
	for _, path := range [][]string{
		{"plugins", "io.containerd.grpc.v1.cri", "sandbox_image"},
		{"plugins", "io.containerd.cri.v1.images", "pinned_images", "sandbox"},
	} {
		if image, isText := s.at(path...).(string); isText {
			name = image
		}
	}
	if name == "" {
		return skipped("containerd's own default is used")
	}
	address, _, _ := p.criAddress()
	if !ofContainerd(address) {
		return skipped("the container runtime is not containerd: %s", address)
	}
	out, err := p.output(ctx, "ctr", "--address", address, "--namespace", "k8s.io", "images", "ls", "--quiet", "name=="+name)
	if err != nil {
		return skipped("containerd does not say which images it has: %v", firstLine(err.Error()))
	}
	if strings.TrimSpace(out) == name {
		return ok("%s is on the node", name)
	}
	host, _, found := strings.Cut(name, "/")
	if !found || !strings.Contains(host, ".") {
		return failed("import it (ctr --namespace k8s.io images import), or name another one in spec.containerd.config", "the sandbox image %s is not on the node, and in no registry", name)
	}
	if !strings.Contains(host, ":") {
		host = net.JoinHostPort(host, strconv.Itoa(443))
	}
	connection, err := (&net.Dialer{Timeout: 4 * time.Second}).DialContext(ctx, "tcp", host)
	if err != nil {
		if slices.ContainsFunc(proxyVariables, func(name string) bool { return os.Getenv(name) != "" }) {
			return skipped("%s is not on the node yet, and its registry is reached through a proxy", name)
		}
		return failed("give the subnet a way to the internet or the VPC endpoints ecr.api, ecr.dkr and s3; or bring the image on the node's image", "the sandbox image %s is not on the node, and its registry does not answer: %v", name, err)
	}
	connection.Close()
	return ok("%s is not on the node yet, and its registry answers", name)
}
