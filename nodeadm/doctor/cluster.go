package doctor

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// clusterChecks ask what the cluster makes of the node.
var clusterChecks = []Check{
	{Name: "token-mint", Level: Network, Question: "Can a token be made?", Needs: []string{"creds-fresh", "kubelet-config-parse"}, look: tokenMint,
		Explanation: "kubelet runs the program that its kubeconfig names, and gets a token that is good for 15 minutes. The same program is run here."},
	{Name: "api-auth", Level: Network, Question: "Does the cluster know the node's role?", Needs: []string{"token-mint", "clock-skew", "api-anon"}, look: apiAuth,
		Explanation: "401 means that neither an access entry nor aws-auth has the role. It has to be the role's ARN, without a path, and not that of the instance profile."},
	{Name: "identity", Level: Network, Question: "Does it know it as a node?", Needs: []string{"api-auth"}, look: identity,
		Explanation: "A node is the user system:node:NAME in the group system:nodes. An access entry of type EC2_LINUX makes it so, one of type STANDARD does not."},
	{Name: "name-agrees", Level: Network, Question: "Does it know it by the name that kubelet has?", Needs: []string{"identity"}, look: nameAgrees,
		Explanation: "The Node authorizer lets a kubelet write the one Node object that its user name ends with. EC2's private DNS name comes with {{EC2PrivateDNSName}}, the instance's id with {{SessionName}}."},
	{Name: "node-name-valid", Question: "Can the node's name be one?", look: nodeNameValid,
		Explanation: "Names are of lower case letters, digits, dashes and dots, 253 characters at most, and 63 for the label kubernetes.io/hostname."},
	{Name: "version-skew", Level: Network, Question: "Do kubelet and the API server go together?", Needs: []string{"api-anon"}, look: versionSkew,
		Explanation: "kubelet must not be newer than the API server, and at most three minor versions older."},
	{Name: "node-exists-elsewhere", Level: Network, Question: "Is the node's name its own?", Needs: []string{"name-agrees"}, look: nodeExistsElsewhere,
		Explanation: "Two instances of one name take the Node object from each other. One that an earlier instance left behind is removed by the cloud controller, or by hand."},
	{Name: "node-registered", Level: Network, Question: "Is there a Node object of this boot?", Needs: []string{"name-agrees", "unit-kubelet"}, look: nodeRegistered,
		Explanation: "kubelet makes its Node object as soon as it reaches the API server. What it is refused stands in its log."},
	{Name: "cni-conf", Question: "Is there a network for pods?", look: cniConf,
		Explanation: "The node is NotReady until a file in /etc/cni/net.d says how pods are connected. aws-node writes it when it is well; it runs on the node's own network, once the node has joined, and needs the pause image, its own image, and AmazonEKS_CNI_Policy."},
	{Name: "node-ready", Level: Network, Question: "Is the node Ready?", Needs: []string{"node-registered"}, look: nodeReady,
		Explanation: "kubelet says itself why it is not: the condition's message is its own."},
	{Name: "known-log-patterns", Level: Network, Question: "Does kubelet's log say what is wrong?", look: knownLogPatterns,
		Explanation: "Asked only where the node is not Ready. Lines that are known are explained."},
	{Name: "stale-marker", Question: "Did nodeadm's last run in this boot end well?", look: staleMarker,
		Explanation: "The error of a run that failed. Where its reason has a check of its own, that one is the cause."},
}

// tokenLifetime is for how long STS takes a signed request.
const tokenLifetime = 15 * time.Minute

func tokenMint(ctx context.Context, p *patient) Finding {
	k, _ := p.kubeconfig()
	if k.command == "" {
		return skipped("kubelet has a certificate instead of tokens")
	}
	token, err := p.token(ctx)
	if err != nil {
		return failed("run it by hand: "+k.command+" "+strings.Join(k.args, " "), "no token can be made: %v", err)
	}
	signed, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "k8s-aws-v1."))
	if err != nil {
		return failed("see which program the kubeconfig names: "+k.command, "the token is none of EKS: %v", err)
	}
	u, err := url.Parse(string(signed))
	if err != nil {
		return failed("see which program the kubeconfig names: "+k.command, "the token is none of EKS: %v", err)
	}
	made, err := time.Parse("20060102T150405Z", u.Query().Get("X-Amz-Date"))
	if err != nil {
		return failed("see which program the kubeconfig names: "+k.command, "the token says not when it was made: %v", err)
	}
	if age := time.Since(made); age > tokenLifetime {
		return failed("see what "+k.command+" caches, or let nodeadm make tokens: --credential-plugin nodeadm", "the token is stale: it was made %s ago, and is good for %s", age.Round(time.Second), tokenLifetime)
	}
	return ok("%s makes tokens, for %s", k.command, u.Hostname())
}

// answers judges by what the API server said to the node, in the order in which
// obstacles hide one another.
func (p *patient) answers(done string, kinds ...join.Kind) Finding {
	if obstacle := p.met(kinds...); obstacle != nil {
		return failed(obstacle.Remedy, "%s", obstacle)
	}
	return ok("%s", done)
}

func apiAuth(_ context.Context, p *patient) Finding {
	k, _ := p.kubeconfig()
	if k.command == "" {
		return skipped("kubelet has a certificate, which this cannot use")
	}
	return p.answers("the API server knows the node", join.Unknown, join.WrongClock, join.ServerError, join.NoToken, join.NoConnection)
}

func identity(_ context.Context, p *patient) Finding {
	return p.answers("it knows it as a node", join.NotANode)
}

func nameAgrees(_ context.Context, p *patient) Finding {
	name, _ := p.nodeName()
	return p.answers("it knows it as "+name, join.OtherName, join.Forbidden)
}

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`) })

func nodeNameValid(_ context.Context, p *patient) Finding {
	name, _ := p.nodeName()
	switch {
	case !nameForm().MatchString(name) || len(name) > 253:
		return failed("leave --hostname-override to nodeadm, or give it a name of lower case letters, digits, dashes and dots", "%q cannot be the name of a node", name)
	case len(name) > 63:
		return failed("use instance ids as names (spec.featureGates.InstanceIdNodeName), or a shorter domain in the DHCP options", "the name %s has %d characters: the label kubernetes.io/hostname takes 63, and kubelet does not register", name, len(name))
	}
	return ok("the node's name is %s", name)
}

func versionSkew(_ context.Context, p *patient) Finding {
	server, err := kubelet.ParseVersion(strings.TrimPrefix(p.contact().version, "v"))
	if err != nil {
		return skipped("the API server does not say its version to everybody")
	}
	have, err := p.version()
	if err != nil {
		return skipped("kubelet's version is not known: %v", err)
	}
	switch {
	case have.Minor > server.Minor:
		return failed(fmt.Sprintf("use an image with kubelet 1.%d or older, or upgrade the cluster first", server.Minor), "kubelet %s is newer than the API server, %s", have, p.contact().version)
	case server.Minor-have.Minor > 3:
		return failed(fmt.Sprintf("use an image with kubelet 1.%d to 1.%d", server.Minor-3, server.Minor), "kubelet %s is more than three minor versions older than the API server, %s", have, p.contact().version)
	}
	return ok("kubelet %s goes with the API server, %s", have, p.contact().version)
}

func nodeExistsElsewhere(_ context.Context, p *patient) Finding {
	return p.answers("no other instance has its name", join.OtherInstance)
}

func nodeRegistered(ctx context.Context, p *patient) Finding {
	f := p.answers("the node is registered", join.Stale, join.Silent, join.NotRegistered)
	if f.Status == Failed {
		said := systemd.LastWords(ctx, layout.KubeletService, 100)
		if known := decode(said); known != nil {
			f.Summary, f.Remedy = f.Summary+": "+known.meaning, known.remedy
		}
		if f.Remedy == "" {
			f.Remedy = "journalctl -u kubelet shows what it is refused; restart kubelet once that is mended, so that it does not wait"
		}
		f = f.seen(last(complaints(said), 5)...)
	}
	return f
}

func nodeReady(ctx context.Context, p *patient) Finding {
	node := p.asked().node
	if node.Name == "" {
		return skipped("the API server has not said how the node is")
	}
	if node.Ready == "True" {
		return ok("%s is Ready", node.Name)
	}
	remedy := "journalctl -u kubelet shows more"
	if uptime := p.uptime(); uptime < 2*time.Minute {
		remedy += fmt.Sprintf("; the machine runs for %s only, so look again in a minute", uptime.Round(time.Second))
	}
	return failed(remedy, "%s is registered and not Ready: %s: %s", node.Name, node.Reason, node.Message)
}

func (p *patient) uptime() time.Duration {
	f := strings.Fields(p.text("/proc/uptime"))
	if len(f) == 0 {
		return 0
	}
	seconds, _ := strconv.ParseFloat(f[0], 64)
	return time.Duration(seconds * float64(time.Second))
}

// ready tells whether the API server says that the node is, if it may be asked.
func (p *patient) ready() bool {
	if p.level < Network {
		return false
	}
	a := p.asked()
	return a.obstacle == nil && a.node.Ready == "True"
}

func knownLogPatterns(ctx context.Context, p *patient) Finding {
	if p.configured() && p.ready() {
		return skipped("the node is Ready")
	}
	said := systemd.LastWords(ctx, layout.KubeletService, 200)
	known := decode(said)
	if known == nil {
		return skipped("there is nothing known in it")
	}
	lines := slices.DeleteFunc(said, func(line string) bool { return !known.expression.MatchString(line) })
	return failed(known.remedy, "kubelet's log: %s", known.meaning).seen(last(lines, 1)...)
}

func staleMarker(_ context.Context, p *patient) Finding {
	run := p.LastRun
	switch {
	case run == nil && p.configured():
		return ok("nodeadm has configured this node in an earlier boot")
	case run == nil:
		return failed("see what should have run it: systemctl status nodeadm.service, /var/log/cloud-init-output.log; or run it by hand: nodeadm init", "nodeadm has not run on this node: %s missing", isOrAre(p.absentFiles()))
	case run.Error == "":
		return ok("%s ended well", run.Command)
	}
	where := ""
	if run.Phase != "" {
		where = " in its phase " + run.Phase
	}
	f := failed(run.Remedy, "nodeadm's last run (%s) failed%s: %s", run.Command, where, firstLine(run.Error)).seen(last(lines(run.Error)[1:], 12)...)
	if p.configured() && p.ready() {
		f.Status = Warning // the node is as it was before
	}
	if f.Remedy == "" {
		f.Remedy = "run it again"
	}
	return f
}

func isOrAre(files []string) string {
	verb := " is"
	if len(files) > 1 {
		verb = " are"
	}
	return strings.Join(files, " and ") + verb
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
