// Package join finds out whether a node has become part of its cluster, by
// asking the API server as the node itself does, and what keeps it from that.
package join

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/kubeapi"
)

// API is an API server, asked with the node's own credentials.
type API interface {
	Get(ctx context.Context, path string, into any) error
	Post(ctx context.Context, path string, object, into any) error
}

// Options say which node joins which cluster.
type Options struct {
	Node     string // the name that kubelet registers under
	Named    bool   // the user has named the node: --hostname-override
	Instance string // its id
	// BootID is /proc/sys/kernel/random/boot_id of this boot: a Node object that
	// has another is of an earlier life.
	BootID string
	// Started is when the kubelet that runs now was started; nil or zero: not known.
	// What an earlier one has told the API server is no proof that this one can.
	Started  func(ctx context.Context) time.Time
	Cluster  string // its name
	Region   string
	Endpoint string // URL of the API server
	API      API
	// Role is the ARN of the instance's role, without a path; "" if it is not known.
	Role func(ctx context.Context) string
	// LastWords are the last lines that kubelet has logged.
	LastWords func(ctx context.Context) []string
	// Report is told what is in the way when that changes, and now and then.
	Report func(message string)
}

// Node is a node that has joined.
type Node struct {
	Name string `json:"name"`
	// Ready is the status of the condition of that name, "True", "False" or
	// "Unknown", and Reason and Message why.
	Ready   string `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ProviderID is empty until the cloud controller has seen the node.
	ProviderID string `json:"providerID,omitempty"`
	Pods       string `json:"pods,omitempty"` // how many it takes
	// Waited is how long it took.
	Waited time.Duration `json:"-"`
}

func (n Node) String() string {
	text := fmt.Sprintf("joined as %s after %s, Ready=%s", n.Name, n.Waited.Round(100*time.Millisecond), n.Ready)
	if n.Ready != "True" && n.Message != "" {
		text += fmt.Sprintf(" (%s: %s)", n.Reason, n.Message)
	}
	return text
}

// How often the API server is asked: at first, and after a while.
var (
	interval     = 500 * time.Millisecond
	longInterval = 2 * time.Second
	patience     = 15 * time.Second // until longInterval
	reportEvery  = 10 * time.Second
	userEvery    = 3 * time.Second // how often it is asked whom it takes the node for
	// certain is for how long something must be in the way that no waiting mends.
	certain = 5 * time.Second
)

// leaseDuration is for how long kubelet's lease holds, unless it is configured
// otherwise.
const leaseDuration = 40 * time.Second

// skew is how far off a clock has to be to explain that a token is refused.
const skew = 5 * time.Minute

const clockRemedy = "set the clock, and let chronyd or systemd-timesyncd keep it (169.254.169.123 is EC2's time service)"

// Kind is a kind of obstacle.
type Kind string

// The kinds, in the order in which a node meets them.
const (
	NoToken       Kind = "no token"       // none can be made
	NoConnection  Kind = "no connection"  // see Obstacle.Where
	ServerError   Kind = "server error"   // the API server says that it is not well
	WrongClock    Kind = "wrong clock"    // tokens are of another time than the API server's
	Unknown       Kind = "unknown"        // the cluster does not know the role
	NotANode      Kind = "not a node"     // it knows the role as something else
	OtherName     Kind = "other name"     // it knows the instance by another name than kubelet
	Forbidden     Kind = "forbidden"      // it lets this node not be looked at
	OtherInstance Kind = "other instance" // the Node object is another instance's
	Stale         Kind = "stale"          // the Node object is of an earlier boot
	Silent        Kind = "silent"         // nothing is heard from the kubelet that runs
	NotRegistered Kind = "not registered" // there is none, and nothing else is in the way
)

// Obstacle is what keeps a node from joining.
type Obstacle struct {
	Kind  Kind
	Where kubeapi.Where // of NoConnection
	// Cause tells one obstacle from another; Detail goes with it, and may be
	// another each time: addresses, ports, times.
	Cause, Detail string
	Remedy        string

	final bool // waiting does not mend it
	err   error
}

func (o Obstacle) String() string { return o.Cause + o.Detail }

// watch is a wait under way.
type watch struct {
	Options
	user      user // whom the API server takes the node for
	userAsked time.Time
}

// user is somebody whom the API server knows; the zero value is nobody that it
// would name.
type user struct {
	name   string
	groups []string // nil: not known
}

// Wait waits until the API server has the Node object of this very boot, and
// returns it, or says at the end of ctx what was in the way.
//
// Little ends it early: an access entry, a security group, a name may come
// later, and kubelet goes on trying as well.
func Wait(ctx context.Context, o Options) (Node, error) {
	if ctx.Err() != nil {
		return Node{}, fault.New(fault.NotJoined, "give the run more time, such as --timeout 10m", "no time was left to wait for the node to join: %w", ctx.Err())
	}
	w := &watch{Options: o}
	start := time.Now()
	var last Obstacle
	var since, reported time.Time
	for {
		node, now := w.look(ctx)
		if now == nil {
			node.Waited = time.Since(start)
			return node, nil
		}
		if ctx.Err() == nil || last.Cause == "" { // what the end of ctx did is no obstacle
			if now.Cause != last.Cause {
				since = time.Now()
			}
			if now.Cause != last.Cause || time.Since(reported) >= reportEvery {
				reported = time.Now()
				o.Report(fmt.Sprintf("not joined since %s: %s", time.Since(start).Round(time.Second), now))
			}
			last = *now
		}
		if !last.final || time.Since(since) < certain {
			pause := interval
			if time.Since(start) >= patience {
				pause = longInterval
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				continue
			}
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return Node{}, fmt.Errorf("waiting for the node to join: %w", ctx.Err())
		}
		return Node{}, o.failure(ctx, last, time.Since(start))
	}
}

// Ask asks once: the node if it has joined, or else what is in the way.
func Ask(ctx context.Context, o Options) (Node, *Obstacle) {
	w := &watch{Options: o}
	return w.look(ctx)
}

// failure says why the node has not joined.
func (o Options) failure(ctx context.Context, last Obstacle, waited time.Duration) error {
	waited = waited.Round(100 * time.Millisecond)
	if last.err != nil {
		return fault.Wrap(fault.NotJoined, fmt.Errorf("the node has not joined within %s: %w", waited, last.err))
	}
	if last.Remedy == "" { // it is kubelet's to say
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if words := complaints(o.LastWords(ctx)); len(words) > 0 {
			last.Detail += "\n  kubelet's last words:\n    " + strings.Join(words, "\n    ")
		}
		last.Remedy = "journalctl -u kubelet.service shows all that it says"
	}
	return fault.New(fault.NotJoined, last.Remedy, "the node has not joined within %s: %s", waited, last)
}

// complaints are the errors among lines of kubelet's log, or else its last ones.
func complaints(lines []string) []string {
	errs := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !complaint.MatchString(line) })
	if len(errs) > 0 {
		lines = errs
	}
	return lines[max(0, len(lines)-5):]
}

var complaint = regexp.MustCompile(`(^|\s)[EF]\d{4} `)

// nodeObject is a Node object, as far as it counts here.
type nodeObject struct {
	Metadata struct {
		CreationTimestamp time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		Capacity map[string]string `json:"capacity"`
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
		Conditions []struct {
			Type, Status, Reason, Message string
			LastHeartbeatTime             time.Time `json:"lastHeartbeatTime"`
		} `json:"conditions"`
	} `json:"status"`
}

// instance is the id of the instance that the object is of, "" if it does not say.
func (o nodeObject) instance() string {
	return o.Spec.ProviderID[strings.LastIndex(o.Spec.ProviderID, "/")+1:]
}

// heard is the second, by this machine's clock, in which kubelet last wrote the
// object, as far as it tells: its condition Ready is kubelet's, others may be
// anybody's, and when it was created is told by the API server's clock.
func (o nodeObject) heard() time.Time {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			return c.LastHeartbeatTime
		}
	}
	return time.Time{}
}

// look asks once.
func (w *watch) look(ctx context.Context) (Node, *Obstacle) {
	var found nodeObject
	if err := w.API.Get(ctx, "/api/v1/nodes/"+url.PathEscape(w.Node), &found); err != nil {
		return Node{}, w.obstacleOf(ctx, err)
	}
	if other := found.instance(); found.Status.NodeInfo.BootID != w.BootID || other != "" && w.Instance != "" && other != w.Instance {
		return Node{}, w.foreign(found)
	}
	if silent := w.silent(ctx, found); silent != nil {
		return Node{}, silent
	}
	node := Node{Name: w.Node, Ready: "Unknown", Reason: "NotReported", ProviderID: found.Spec.ProviderID, Pods: found.Status.Capacity["pods"]}
	for _, c := range found.Status.Conditions {
		if c.Type == "Ready" {
			node.Ready, node.Reason, node.Message = c.Status, c.Reason, c.Message
		}
	}
	return node, nil
}

// silent is a kubelet from which the API server has not heard: neither the Node
// object nor the lease, which it renews every few seconds, was written since it
// was started, or the lease has run out.
func (w *watch) silent(ctx context.Context, object nodeObject) *Obstacle {
	var started time.Time
	if w.Started != nil {
		started = w.Started(ctx)
	}
	// A kubelet that has just made its Node object may take seconds to make its
	// lease. The object tells whole seconds: in the one in which this kubelet was
	// started, the one before may have written, but that one had a lease.
	heard, second := object.heard(), started.Truncate(time.Second)
	fresh := !started.IsZero() && !heard.Before(second) && time.Since(heard) < leaseDuration
	if fresh && heard.After(second) {
		return nil
	}
	var lease struct {
		Spec struct {
			RenewTime            time.Time `json:"renewTime"`
			LeaseDurationSeconds int       `json:"leaseDurationSeconds"`
		} `json:"spec"`
	}
	err := w.API.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+url.PathEscape(w.Node), &lease)
	var refused *kubeapi.Error
	switch {
	case errors.As(err, &refused) && refused.Where == kubeapi.Status && refused.Code == http.StatusForbidden:
		return nil // the Node authorizer allows it; where another decides, the Node object has to do
	case errors.As(err, &refused) && refused.Where == kubeapi.Status && refused.Code == http.StatusNotFound:
		if fresh {
			return nil
		}
	case err != nil:
		return w.obstacleOf(ctx, err)
	}
	renewed := lease.Spec.RenewTime
	last := "never"
	if !renewed.IsZero() {
		last = renewed.UTC().Format(time.RFC3339)
	}
	switch {
	case renewed.Before(started):
		return &Obstacle{Kind: Silent, Cause: fmt.Sprintf("the API server has not heard from the kubelet that was started at %s", started.UTC().Format(time.RFC3339)), Detail: ": the lease of " + w.Node + " was last renewed " + last}
	case renewed.IsZero() && started.IsZero(): // nothing speaks against it
	case renewed.IsZero(), time.Since(renewed) > max(leaseDuration, time.Duration(lease.Spec.LeaseDurationSeconds)*time.Second):
		return &Obstacle{Kind: Silent, Cause: "the API server hears no more from kubelet", Detail: ": the lease of " + w.Node + " was last renewed " + last}
	}
	return nil
}

// foreign is a Node object that the kubelet of this boot has not written.
func (w *watch) foreign(found nodeObject) *Obstacle {
	created := found.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)
	instance := found.instance()
	switch instance {
	case w.Instance:
		return &Obstacle{Kind: Stale, Cause: fmt.Sprintf("the Node object %s is of an earlier boot (created %s), and kubelet has not renewed it", w.Node, created)}
	case "":
		return &Obstacle{Kind: Stale, Cause: fmt.Sprintf("the Node object %s is of an earlier boot, or of another instance (created %s, without a providerID), and kubelet has not renewed it", w.Node, created)}
	}
	remedy := "if that instance is gone, kubectl delete node " + w.Node + "; then look at journalctl -u kubelet.service"
	if w.Named {
		remedy = "give each instance a name of its own, or leave --hostname-override out of kubelet's flags; " + remedy
	}
	return &Obstacle{Kind: OtherInstance, Remedy: remedy,
		Cause: fmt.Sprintf("the Node object %s is of another instance, %s (providerID %q, created %s)", w.Node, instance, found.Spec.ProviderID, created)}
}

func (w *watch) obstacleOf(ctx context.Context, err error) *Obstacle {
	var e *kubeapi.Error
	if !errors.As(err, &e) {
		return &Obstacle{Kind: ServerError, Cause: err.Error(), err: err}
	}
	switch e.Where {
	case kubeapi.Token:
		return &Obstacle{Kind: NoToken, Cause: "no token can be made", Detail: ": " + err.Error(), err: err}
	case kubeapi.Status:
		return w.refused(ctx, e)
	}
	return w.Connection(e)
}

// Connection is the obstacle that an API server is which cannot be reached, or
// is none.
func (o Options) Connection(e *kubeapi.Error) *Obstacle {
	found := o.connection(e)
	found.Kind, found.Where = NoConnection, e.Where
	return found
}

func (o Options) connection(e *kubeapi.Error) *Obstacle {
	server := address(o.Endpoint)
	why := ": " + e.Error()
	describe := fmt.Sprintf("aws eks describe-cluster --region %s --name %s --query ", o.Region, o.Cluster)
	endpointRemedy := "compare the endpoint (--apiserver-endpoint, or spec.cluster.apiServerEndpoint) with what EKS says: " + describe + "cluster.endpoint"
	switch e.Where {
	case kubeapi.Name:
		return &Obstacle{Cause: fmt.Sprintf("the API server's name %s does not exist", host(o.Endpoint)), Detail: why,
			Remedy: endpointRemedy + "; a private endpoint's name needs enableDnsSupport and enableDnsHostnames in the VPC"}
	case kubeapi.Resolver:
		return &Obstacle{Cause: fmt.Sprintf("no name server answers for the API server's name %s", host(o.Endpoint)), Detail: why,
			Remedy: "check the name servers in /etc/resolv.conf, and that the VPC's DHCP options name ones that the node can reach (AmazonProvidedDNS)"}
	case kubeapi.Refused:
		return &Obstacle{Cause: "connections to the API server at " + server + " are refused", Remedy: endpointRemedy + "; a firewall may refuse them too"}
	case kubeapi.Timeout:
		return &Obstacle{Cause: "the API server at " + server + " does not answer",
			Remedy: "allow 443/tcp from the node to the control plane in the security groups of both, and check the network ACLs; the subnet needs a route to the endpoint: a NAT gateway for a public one, or the cluster's private endpoint"}
	case kubeapi.Silent:
		return &Obstacle{Cause: "the API server at " + server + " takes connections, and says nothing after that", Detail: why,
			Remedy: "large packets get lost if the MTU of the way is smaller than the node's: allow ICMP type 3 code 4 (fragmentation needed) in security groups and network ACLs, and compare ip link with ping -M do -s 1472; otherwise the API server hangs, or something between (a firewall, a load balancer, a proxy) holds the connection"}
	case kubeapi.Unreachable:
		return &Obstacle{Cause: "there is no route to the API server at " + server, Detail: why,
			Remedy: "see what the node itself does: ip route get ADDRESS, and the OUTPUT chains of its firewall (nft list ruleset, iptables -S OUTPUT); then check the routes of its subnet: a NAT gateway for a public endpoint, or the cluster's private endpoint"}
	case kubeapi.Proxy:
		return &Obstacle{Cause: "the proxy does not lead to the API server at " + server, Detail: why, Remedy: "check the proxy's address and what it allows, or name the API server in NO_PROXY"}
	case kubeapi.NotTLS:
		return &Obstacle{Cause: "what listens at " + server + " does not speak TLS, so it is no API server", Remedy: endpointRemedy}
	case kubeapi.NotAPI:
		return &Obstacle{Cause: fmt.Sprintf("what answers at %s is no Kubernetes API server", server), Detail: why, Remedy: endpointRemedy}
	case kubeapi.UnknownCA:
		return &Obstacle{Cause: fmt.Sprintf("the certificate of the API server at %s is not signed by the certificate authority that this node was given", server), final: true,
			Remedy: "compare the authority (--b64-cluster-ca, or spec.cluster.certificateAuthority) with what EKS says: " + describe + "cluster.certificateAuthority.data; an endpoint of another cluster, or a proxy that opens TLS, looks the same"}
	case kubeapi.OtherHost:
		return &Obstacle{Cause: fmt.Sprintf("the certificate of the API server at %s is for another name", server), Detail: why, final: true, Remedy: endpointRemedy}
	case kubeapi.Expired:
		return &Obstacle{Cause: fmt.Sprintf("the certificate of the API server at %s is not valid by this machine's clock", server), Detail: why, Remedy: clockRemedy}
	}
	return &Obstacle{Cause: fmt.Sprintf("the connection to the API server at %s broke", server), Detail: why, Remedy: endpointRemedy + "; check what is between: proxies, firewalls, network ACLs"}
}

// refused is an answer of the API server's that is an error.
func (w *watch) refused(ctx context.Context, e *kubeapi.Error) *Obstacle {
	switch e.Code {
	case http.StatusUnauthorized:
		return w.unauthorized(ctx, e)
	case http.StatusForbidden, http.StatusNotFound:
		u := w.whom(ctx, e)
		if wrong := w.wrongUser(u); wrong != nil {
			return wrong
		}
		switch {
		case e.Code == http.StatusForbidden:
			return &Obstacle{Kind: Forbidden, Cause: "the API server answers 403: " + e.Message, Remedy: "let the cluster's Node authorizer decide about nodes: groups system:bootstrappers and system:nodes"}
		case u.name == "":
			return &Obstacle{Kind: NotRegistered, Cause: "kubelet has not registered the node " + w.Node + " yet, and the API server does not tell whom it takes this instance for"}
		}
		return &Obstacle{Kind: NotRegistered, Cause: "kubelet has not registered the node " + w.Node + " yet"}
	}
	return &Obstacle{Kind: ServerError, Cause: fmt.Sprintf("the API server answers %d", e.Code), Detail: ": " + e.Message, Remedy: "look at the health of the cluster's control plane; kubelet goes on trying"}
}

// unauthorized is an API server that does not know who asks: it does not know
// the role, or the token is not valid at this moment.
func (w *watch) unauthorized(ctx context.Context, e *kubeapi.Error) *Obstacle {
	role := w.Role(ctx)
	whose := "these credentials"
	if role != "" {
		whose = "the role " + role
	}
	if off := time.Until(e.Date); !e.Date.IsZero() && off.Abs() >= skew {
		direction := "behind"
		if off < 0 {
			direction = "ahead of"
		}
		return &Obstacle{Kind: WrongClock, Cause: "the API server answers 401, and this machine's clock is " + direction + " the API server's", Detail: fmt.Sprintf(" by %s: tokens are only valid for a while after they were made", off.Abs().Round(time.Second)),
			Remedy: clockRemedy + "; if it goes on after that, the cluster does not know " + whose}
	}
	if role == "" {
		return &Obstacle{Kind: Unknown, Cause: "the API server answers 401: it knows nobody with these credentials", Remedy: "map their role to the cluster with an access entry or in aws-auth; they come from AWS_ACCESS_KEY_ID, or from the instance's role"}
	}
	kind, username := w.mapping()
	return &Obstacle{Kind: Unknown, Cause: "the API server answers 401: the cluster " + w.Cluster + " does not know " + whose,
		Remedy: fmt.Sprintf("give it an access entry:\n    aws eks create-access-entry --cluster-name %s --principal-arn %s --type %s --region %s\n"+
			"  or, where the cluster goes by aws-auth, add to mapRoles:\n    - rolearn: %s\n      username: %s\n      groups: [system:bootstrappers, system:nodes]\n"+
			"  (the role's ARN, without a path, not the instance profile's)", w.Cluster, role, kind, w.Region, role, username)}
}

// mapping is the type of access entry that gives the instance the node's name,
// and the username that does so in aws-auth.
func (w *watch) mapping() (kind, username string) {
	if w.Node == w.Instance {
		return "EC2", "system:node:{{SessionName}}"
	}
	return "EC2_LINUX", "system:node:{{EC2PrivateDNSName}}"
}

var forbiddenUser = regexp.MustCompile(`User "([^"]+)"`)

// whom finds out whom the API server takes this instance for. It is not asked
// about that each time, since the answer hardly ever changes.
func (w *watch) whom(ctx context.Context, e *kubeapi.Error) user {
	if !w.userAsked.IsZero() && time.Since(w.userAsked) < userEvery {
		return w.user
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	err := w.API.Post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, &review)
	var refused *kubeapi.Error
	switch {
	case err == nil:
		w.user = user{review.Status.UserInfo.Username, review.Status.UserInfo.Groups}
	case errors.As(err, &refused) && refused.Where == kubeapi.Status: // before 1.28 it does not know the question
		w.user = user{}
		if named := forbiddenUser.FindStringSubmatch(e.Message); named != nil {
			w.user.name = named[1]
		}
	default:
		return w.user
	}
	w.userAsked = time.Now()
	return w.user
}

// wrongUser is what is wrong with whom the API server takes this instance for.
// Where any node may read any Node object the only sign of that is that there is
// none.
func (w *watch) wrongUser(u user) *Obstacle {
	kind, username := w.mapping()
	mapping := "map its role with the groups system:bootstrappers and system:nodes and the username " + username + ", which an access entry of type " + kind + " does by itself"
	switch name, isNode := strings.CutPrefix(u.name, "system:node:"); {
	case u.name == "":
		return nil
	case !isNode:
		return &Obstacle{Kind: NotANode, Cause: fmt.Sprintf("the API server takes this instance for %s, which is no node", u.name), Remedy: mapping}
	case u.groups != nil && !slices.Contains(u.groups, "system:nodes"):
		return &Obstacle{Kind: NotANode, Cause: fmt.Sprintf("the API server takes this instance for %s, and that is not in the group system:nodes", u.name), Remedy: mapping}
	case name == w.Node:
		return nil
	default:
		cause := fmt.Sprintf("the API server takes this instance for %s, and kubelet registers as %s: it refuses that", u.name, w.Node)
		if w.Named {
			return &Obstacle{Kind: OtherName, Cause: cause, Remedy: "leave --hostname-override out of kubelet's flags: the name has to be the one that the cluster knows the instance by"}
		}
		return &Obstacle{Kind: OtherName, Cause: cause, Remedy: mapping}
	}
}

func host(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	return u.Hostname()
}

// address is the host and port of a URL.
func address(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
