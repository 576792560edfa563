package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/doctree"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/kubeapi"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// Options say how the node is reached, and what is known of it.
type Options struct {
	// Root is where the node's files are; "/" but in tests.
	Root rootfs.Root
	// IMDSEndpoint is the URL of instance metadata; empty: EC2's own.
	IMDSEndpoint string
	// AWS says how AWS APIs are reached; the region and the instance's role are
	// filled in here.
	AWS awsapi.Options
	// Documents reads the configuration that nodeadm starts from.
	Documents func(context.Context) ([]config.Source, error)
	// LastRun is how nodeadm's last run in this boot ended; nil: there was none.
	LastRun *LastRun
	// Edited are files that are not as nodeadm left them, and Stale the units that
	// do not run what is on disk, each with why.
	Edited, Stale []string
	// Started is when the examination began, if it was before the first check.
	Started time.Time

	level Level // of the checks that are made
}

// LastRun is how a run of nodeadm ended.
type LastRun struct {
	Command       string
	Error, Remedy string // "" if it went well
	Phase         string // that failed
}

// patient is the node under examination. What several checks want to know is
// found out once, by the first one that asks.
type patient struct {
	Options

	instance   func() (facts.Instance, error)
	documents  func() ([]config.Source, error)
	wanted     func() (config.Config, error)
	kubeconfig func() (kubeconfig, error)
	version    func() (kubelet.Version, error) // of the kubelet on the node
	kubelet    func() (kubeletConfig, error)
	flags      func() []string
	manager    func() (*systemd.Manager, error)
	contact    func() contact
	asked      func() asked
	described  func() (awsapi.Cluster, error)

	metadata *imds.Client
}

// contact is what an anonymous request to the API server met.
type contact struct {
	err     error
	version string // of the API server
	// date is when the API server says that it answered, and met when that was by
	// this machine's clock.
	date, met time.Time
}

// asked is what the API server answers the node.
type asked struct {
	node     join.Node
	obstacle *join.Obstacle
}

func newPatient(ctx context.Context, o Options) *patient {
	p := &patient{Options: o, metadata: imds.New(imds.Options{Endpoint: o.IMDSEndpoint})}
	p.instance = sync.OnceValues(func() (facts.Instance, error) {
		if o.level < Network {
			return facts.Instance{}, errNotAsked
		}
		ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
		defer cancel()
		return facts.GatherInstance(ctx, p.metadata)
	})
	p.documents = sync.OnceValues(func() ([]config.Source, error) {
		if o.level < Network {
			return nil, errNotAsked
		}
		ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
		defer cancel()
		return o.Documents(ctx)
	})
	p.wanted = sync.OnceValues(func() (config.Config, error) {
		sources, err := p.documents()
		if err != nil {
			return config.Config{}, err
		}
		documents, wanted, err := config.Read(sources, config.ReadOptions{Scripts: true})
		if err == nil && documents.Tree == nil {
			err = errNothingWanted
		}
		return wanted, err
	})
	p.kubeconfig = sync.OnceValues(p.readKubeconfig)
	p.kubelet = sync.OnceValues(p.readKubeletConfig)
	p.flags = sync.OnceValue(p.readFlags)
	p.version = sync.OnceValues(func() (kubelet.Version, error) { return p.kubeletVersion(ctx) })
	p.manager = sync.OnceValues(func() (*systemd.Manager, error) { return observe(ctx) })
	p.contact = sync.OnceValue(func() contact { return p.makeContact(ctx) })
	p.asked = sync.OnceValue(func() asked { return p.patiently(ctx) })
	p.described = sync.OnceValues(func() (awsapi.Cluster, error) {
		ctx, cancel := context.WithTimeout(ctx, awsTimeout)
		defer cancel()
		k, _ := p.kubeconfig()
		return p.aws().DescribeCluster(ctx, k.cluster, 0)
	})
	return p
}

func (p *patient) close() {
	if manager, err := p.manager(); err == nil {
		manager.Close()
	}
}

// How long the parts of an answer may take.
const (
	metadataTimeout = 4 * time.Second
	awsTimeout      = 8 * time.Second
	programTimeout  = 8 * time.Second
	systemdTimeout  = 4 * time.Second
)

// errNotAsked is the answer of the network where it may not be asked.
var errNotAsked = errors.New("the network is not asked")

var errNothingWanted = errors.New("neither a NodeConfig document nor a call of bootstrap.sh is in it")

// host is the path on this machine of a file of the node.
func (p *patient) host(path string) string { return filepath.Join(string(p.Root), path) }

// text reads a file of the node, of /proc or /sys too; "" if it is not there.
func (p *patient) text(path string) string {
	data, err := os.ReadFile(p.host(path))
	if err != nil {
		return ""
	}
	return string(data)
}

// kubeconfig is how kubelet reaches the API server, and by which tokens.
type kubeconfig struct {
	endpoint, caFile   string
	caData             []byte // instead of the file
	cluster            string // its name, as the tokens are for
	region             string
	command            string
	args               []string
	environment        []string
	clientCertificates bool // instead of tokens, as on Outposts
}

// kubeconfigEntry is a context, a cluster or a user of a kubeconfig.
type kubeconfigEntry struct {
	Name    string
	Context struct{ Cluster, User string }
	Cluster struct {
		Server string `json:"server"`
		CA     string `json:"certificate-authority"`
		CAData []byte `json:"certificate-authority-data"`
	}
	User struct {
		Certificate string `json:"client-certificate"`
		Data        string `json:"client-certificate-data"`
		Exec        *struct {
			Command string                         `json:"command"`
			Args    []string                       `json:"args"`
			Env     []struct{ Name, Value string } `json:"env"`
		} `json:"exec"`
	}
}

func (p *patient) readKubeconfig() (k kubeconfig, err error) {
	path := layout.Kubeconfig
	if !p.Root.Exists(path) && p.Root.Exists(layout.BootstrapKubeconfig) {
		path = layout.BootstrapKubeconfig
	}
	data, err := p.Root.ReadFile(path)
	if err != nil {
		return k, err
	}
	trees, problems := doctree.Parse(data, path, 1)
	if len(problems) > 0 {
		return k, problems[0]
	}
	if len(trees) == 0 {
		return k, fmt.Errorf("%s is empty", path)
	}
	var file struct {
		Current                   string `json:"current-context"`
		Contexts, Clusters, Users []kubeconfigEntry
	}
	if err := trees[0].Decode(&file); err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	if file.Current == "" {
		return k, fmt.Errorf("%s has no current-context", path)
	}
	find := func(kind string, all []kubeconfigEntry, name string) (found kubeconfigEntry) {
		i := slices.IndexFunc(all, func(e kubeconfigEntry) bool { return e.Name == name })
		if i >= 0 {
			return all[i]
		}
		if err == nil {
			err = fmt.Errorf("%s has no %s %q, for its current-context %q", path, kind, name, file.Current)
		}
		return found
	}
	context := find("context", file.Contexts, file.Current).Context
	cluster, user := find("cluster", file.Clusters, context.Cluster).Cluster, find("user", file.Users, context.User).User
	if err == nil && cluster.Server == "" {
		err = fmt.Errorf("%s: the cluster %q has no server", path, context.Cluster)
	}
	if err != nil {
		return k, err
	}
	k.endpoint, k.caData, k.caFile = cluster.Server, cluster.CAData, cluster.CA
	if k.caFile != "" && !filepath.IsAbs(k.caFile) {
		k.caFile = filepath.Join(filepath.Dir(path), k.caFile)
	}
	if len(k.caData) > 0 {
		k.caFile = "" // it counts for less
	}
	k.clientCertificates = user.Certificate != "" || user.Data != ""
	if user.Exec != nil {
		k.command, k.args = user.Exec.Command, user.Exec.Args
		for _, variable := range user.Exec.Env {
			k.environment = append(k.environment, variable.Name+"="+variable.Value)
		}
		for i, arg := range k.args[:max(0, len(k.args)-1)] {
			switch arg {
			case "--cluster-name", "-i", "--cluster-id":
				k.cluster = k.args[i+1]
			case "--region":
				k.region = k.args[i+1]
			}
		}
	}
	return k, nil
}

// kubeletConfig is kubelet's configuration, as far as checks look at it.
type kubeletConfig struct {
	Authentication struct {
		X509 struct {
			ClientCAFile string `json:"clientCAFile"`
		} `json:"x509"`
	} `json:"authentication"`
	CgroupDriver             string                     `json:"cgroupDriver"`
	ClusterDNS               []string                   `json:"clusterDNS"`
	ContainerRuntimeEndpoint string                     `json:"containerRuntimeEndpoint"`
	EvictionHard             map[string]string          `json:"evictionHard"`
	FailCgroupV1             *bool                      `json:"failCgroupV1"`
	FailSwapOn               *bool                      `json:"failSwapOn"`
	HealthzPort              *int                       `json:"healthzPort"`
	KubeReserved             map[string]json.RawMessage `json:"kubeReserved"`
	SystemReserved           map[string]json.RawMessage `json:"systemReserved"`
	MaxPods                  int                        `json:"maxPods"`
	ProtectKernelDefaults    bool                       `json:"protectKernelDefaults"`
	ProviderID               string                     `json:"providerID"`
}

func (p *patient) readKubeletConfig() (c kubeletConfig, err error) {
	tree, err := p.kubeletDocument(layout.KubeletConfig)
	if err != nil {
		return c, err
	}
	for _, path := range p.kubeletDropIns() {
		later, err := p.kubeletDocument(path)
		if err != nil {
			return c, err
		}
		// As kubelet merges them: maps key by key, all else replaced.
		if tree, err = (doctree.Merger{Rule: func(string) doctree.Rule { return doctree.Replace }}).Merge(tree, later); err != nil {
			return c, err
		}
	}
	if err := tree.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", layout.KubeletConfig, err)
	}
	// Flags count for more.
	if off := p.flag("fail-swap-on"); off != "" {
		value := off != "false"
		c.FailSwapOn = &value
	}
	if port, err := strconv.Atoi(p.flag("healthz-port")); err == nil {
		c.HealthzPort = &port
	}
	if driver := p.flag("cgroup-driver"); driver != "" {
		c.CgroupDriver = driver
	}
	return c, nil
}

func (p *patient) kubeletDocument(path string) (*doctree.Node, error) {
	data, err := p.Root.ReadFile(path)
	if err != nil {
		return nil, err
	}
	trees, problems := doctree.Parse(data, path, 1) // YAML, of which JSON is a part
	if len(problems) > 0 {
		return nil, problems[0]
	}
	if len(trees) != 1 || !trees[0].IsMap {
		return nil, fmt.Errorf("%s is no document", path)
	}
	return trees[0], nil
}

// kubeletDropIns are the documents below --config-dir, in kubelet's order.
func (p *patient) kubeletDropIns() (paths []string) {
	dir := p.flag("config-dir")
	if dir == "" {
		return nil
	}
	_ = filepath.WalkDir(p.host(dir), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			paths = append(paths, filepath.Join(dir, strings.TrimPrefix(path, p.host(dir))))
		}
		return nil
	})
	return paths
}

// readFlags collects kubelet's flags: those of its command line, and those of
// the variables that drop-ins of its unit set.
func (p *patient) readFlags() []string {
	var command, names []string
	variables := map[string][]string{}
	for _, path := range p.kubeletUnitFiles() {
		started, set := p.commandLine(path)
		if started != nil {
			command = started
		}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if !strings.HasPrefix(name, "KUBELET_") {
				continue
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			variables[name] = set[name]
		}
	}
	for _, name := range names {
		command = append(command, variables[name]...)
	}
	return command
}

// kubeletUnitFiles are the files of kubelet's unit, in systemd's order.
func (p *patient) kubeletUnitFiles() (paths []string) {
	const vendor = "/usr/lib/systemd/system/kubelet.service"
	dropIns := map[string]string{}
	for _, dir := range []string{vendor, "/run/systemd/system/kubelet.service", layout.KubeletUnit} {
		found, _ := p.Root.Glob(dir + ".d/*.conf")
		for _, path := range found {
			dropIns[filepath.Base(path)] = path
		}
	}
	paths = []string{p.Root.FirstExisting(layout.KubeletUnit, vendor)}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		paths = append(paths, dropIns[name])
	}
	return paths
}

// commandLine is what a file of kubelet's unit says of its command line, nil if
// nothing, and of variables.
func (p *patient) commandLine(path string) (command []string, variables map[string][]string) {
	variables = map[string][]string{}
	data, err := p.Root.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	unit, err := systemd.ParseUnit(data)
	if err != nil {
		return nil, nil
	}
	for _, section := range unit.Sections {
		for _, d := range section.Directives {
			switch d.Key {
			case "ExecStart":
				command = systemd.ParseWords(d.Value)
			case "Environment":
				assignments, _ := systemd.ParseAssignments(d.Value)
				for _, a := range assignments {
					variables[a.Name] = systemd.ParseWords(a.Value)
				}
			}
		}
	}
	return command, variables
}

// flag is the value of a flag of kubelet's, the last one if there are several.
func (p *patient) flag(name string) string { return flagOf(p.flags(), name) }

func flagOf(words []string, name string) (value string) {
	for i, word := range words {
		switch key, after, found := strings.Cut(strings.TrimLeft(word, "-"), "="); {
		case !strings.HasPrefix(word, "-") || key != name:
		case found:
			value = after
		case i+1 < len(words):
			value = words[i+1]
		}
	}
	return value
}

// kubeletVersion is that of the program on the node.
func (p *patient) kubeletVersion(ctx context.Context) (kubelet.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	said, _, err := facts.Versions(ctx, p.Root)
	if said == "" {
		return kubelet.Version{}, err
	}
	return kubelet.ParseVersion(said)
}

// nodeName is what kubelet registers under, and whether somebody has chosen it,
// in the configuration or by hand.
func (p *patient) nodeName() (name string, named bool) {
	if name = p.flag("hostname-override"); name != "" {
		wanted, err := p.wanted()
		_, named = wanted.Kubelet.Flag("hostname-override")
		_, own := p.commandLine(layout.KubeletArgs)
		return strings.ToLower(name), err == nil && named || flagOf(own["KUBELET_ARGS"], "hostname-override") != name
	}
	name, _ = os.Hostname()
	return strings.ToLower(name), false
}

func (p *patient) region() string {
	if k, err := p.kubeconfig(); err == nil && k.region != "" {
		return k.region
	}
	instance, _ := p.instance()
	return instance.Region
}

func (p *patient) aws() *awsapi.Client {
	o := p.AWS
	o.Region, o.IMDS = p.region(), p.metadata
	return awsapi.New(o)
}

// cluster is the API server that the node is to join: as kubelet knows it or,
// before that, as it is wanted.
func (p *patient) cluster() (endpoint string, ca []byte, err error) {
	k, err := p.kubeconfig()
	if err == nil && k.caFile == "" {
		return k.endpoint, k.caData, nil
	}
	if err == nil {
		ca, err = p.Root.ReadFile(k.caFile)
		return k.endpoint, ca, err
	}
	wanted, wantedErr := p.wanted()
	if wantedErr != nil || wanted.Cluster.Endpoint == "" {
		return "", nil, err
	}
	return wanted.Cluster.Endpoint, wanted.Cluster.CertificateAuthority, nil
}

// client asks the API server, as kubelet would; without token anonymously.
func (p *patient) client(token func(context.Context) (string, error), clock func(time.Time)) (*kubeapi.Client, error) {
	endpoint, ca, err := p.cluster()
	if err != nil {
		return nil, err
	}
	return kubeapi.New(kubeapi.Options{Endpoint: endpoint, CA: ca, Token: token, Clock: clock, Proxy: http.ProxyFromEnvironment}), nil
}

func (p *patient) makeContact(ctx context.Context) (c contact) {
	client, err := p.client(nil, func(date time.Time) { c.date, c.met = date, time.Now() })
	if err != nil {
		return contact{err: err}
	}
	var version struct{ GitVersion string }
	c.err = client.Get(ctx, "/version", &version)
	c.version = version.GitVersion
	return c
}

// token makes one as kubelet gets it: by the program that the kubeconfig names.
func (p *patient) token(ctx context.Context) (string, error) {
	k, err := p.kubeconfig()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := command(ctx, k.command, k.args...)
	cmd.Env = append(p.kubeletEnvironment(), append(k.environment, `KUBERNETES_EXEC_INFO={"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}`)...)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s: no answer within %s", k.command, strings.Join(k.args, " "), programTimeout)
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("%s %s: %w: %s", k.command, strings.Join(k.args, " "), err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", err
	}
	var credential struct {
		Status struct{ Token string }
	}
	if err := json.Unmarshal(out, &credential); err != nil || credential.Status.Token == "" {
		return "", fmt.Errorf("%s %s: its answer holds no token", k.command, strings.Join(k.args, " "))
	}
	return credential.Status.Token, nil
}

// kubeletEnvironment is this process's, but for what it says of AWS: that is the
// affair of whoever runs it, and kubelet's unit has its own.
func (p *patient) kubeletEnvironment() []string {
	const ofAWS = "AWS_"
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, ofAWS) })
	for _, path := range p.kubeletUnitFiles() {
		_, variables := p.commandLine(path)
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			if strings.HasPrefix(name, ofAWS) {
				environment = append(environment, name+"="+strings.Join(variables[name], " "))
			}
		}
	}
	return environment
}

// patiently asks again where kubelet was started only now: it takes seconds until
// it has registered the node and said that it is ready.
func (p *patient) patiently(ctx context.Context) (a asked) {
	for until := time.Now().Add(settling); ; {
		a = p.ask(ctx)
		settled := a.obstacle == nil && a.node.Ready == "True"
		if a.obstacle != nil {
			switch a.obstacle.Kind {
			case join.Silent, join.Stale, join.NotRegistered:
			default:
				settled = true
			}
		}
		state, err := p.unit(ctx, layout.KubeletService)
		if settled || err != nil || state.Active != "active" || state.ActiveFor > young || time.Now().After(until) || ctx.Err() != nil {
			return a
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// How long a kubelet is young, and is waited for.
const (
	young    = 20 * time.Second
	settling = 8 * time.Second
)

// ask asks the API server about the node as the node itself does.
func (p *patient) ask(ctx context.Context) asked {
	token := sync.OnceValues(func() (string, error) { return p.token(ctx) })
	client, err := p.client(func(context.Context) (string, error) { return token() }, nil)
	if err != nil {
		return asked{obstacle: &join.Obstacle{Kind: join.NoConnection, Cause: err.Error()}}
	}
	o := p.joining()
	o.API = client
	node, obstacle := join.Ask(ctx, o)
	return asked{node, obstacle}
}

// joining is the node on its way into the cluster.
func (p *patient) joining() join.Options {
	endpoint, _, _ := p.cluster()
	k, _ := p.kubeconfig()
	instance, _ := p.instance()
	name, named := p.nodeName()
	return join.Options{
		Node: name, Named: named, Instance: instance.ID, BootID: strings.TrimSpace(p.text("/proc/sys/kernel/random/boot_id")),
		Cluster: k.cluster, Region: p.region(), Endpoint: endpoint,
		Role: p.role, Started: p.kubeletStarted,
	}
}

// kubeletStarted is when the kubelet that runs was started.
func (p *patient) kubeletStarted(ctx context.Context) time.Time {
	state, err := p.unit(ctx, layout.KubeletService)
	if err != nil {
		return time.Time{} // not known
	}
	return state.Since()
}

// role is the ARN of the instance's role, without a path; "" if it is not known.
func (p *patient) role(ctx context.Context) string {
	instance, err := p.instance()
	if err != nil {
		return ""
	}
	return instance.RoleARN(p.aws().Role(ctx))
}

// observe reaches systemd, or gives up. The connection ends with ctx.
func observe(ctx context.Context) (*systemd.Manager, error) {
	type answer struct {
		manager *systemd.Manager
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		manager, err := systemd.Observe(ctx)
		answers <- answer{manager, err}
	}()
	select {
	case a := <-answers:
		return a.manager, a.err
	case <-time.After(systemdTimeout):
		return nil, fmt.Errorf("no answer over D-Bus within %s", systemdTimeout)
	}
}

// unit asks systemd for a unit.
func (p *patient) unit(ctx context.Context, name string) (systemd.State, error) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	manager, err := p.manager()
	if err != nil {
		return systemd.State{}, err
	}
	return manager.State(ctx, name)
}

// reason asks systemd why a unit does not run.
func (p *patient) reason(ctx context.Context, name string) (reason, remedy string) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	manager, err := p.manager()
	if err != nil {
		return "", ""
	}
	return manager.Reason(ctx, name)
}

// command is a program that ends with all that it has started.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// output runs a program that only looks.
func (p *patient) output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := command(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: no answer within %s", program, programTimeout)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// configured tells whether there is a node at all to look at.
func (p *patient) configured() bool {
	return p.Root.Exists(layout.KubeletConfig) && (p.Root.Exists(layout.Kubeconfig) || p.Root.Exists(layout.BootstrapKubeconfig))
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// lines are the lines of a text that are not blank.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// last are the last of some lines.
func last(lines []string, n int) []string { return slices.Clone(lines[max(0, len(lines)-n):]) }
