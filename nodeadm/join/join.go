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
	BootID   string
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
}

func (n Node) String() string {
	text := fmt.Sprintf("joined as %s, Ready=%s", n.Name, n.Ready)
	if n.Ready != "True" {
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
	// certain is for how long something must be in the way that no waiting mends.
	certain = 3 * time.Second
)

// obstacle is what keeps a node from joining.
type obstacle struct {
	cause, remedy string
	final         bool // waiting does not mend it
	err           error
}

// Wait waits until the API server has the Node object of this very boot, and
// returns it, or says at the end of ctx what was in the way.
//
// Little ends it early: an access entry, a security group, a name may come
// later, and kubelet goes on trying as well.
func Wait(ctx context.Context, o Options) (Node, error) {
	start := time.Now()
	var last obstacle
	var since, reported time.Time
	for {
		node, now := o.look(ctx)
		if now == nil {
			return node, nil
		}
		if ctx.Err() == nil || last.cause == "" { // what the end of ctx did is no obstacle
			if now.cause != last.cause {
				since = time.Now()
			}
			if now.cause != last.cause || time.Since(reported) >= reportEvery {
				reported = time.Now()
				o.Report(fmt.Sprintf("not joined since %s: %s", time.Since(start).Round(time.Second), now.cause))
			}
			last = *now
		}
		if ctx.Err() == nil && !(last.final && time.Since(since) >= certain) {
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
		return Node{}, o.failure(ctx, last, time.Since(start))
	}
}

// failure says why the node has not joined.
func (o Options) failure(ctx context.Context, last obstacle, waited time.Duration) error {
	waited = waited.Round(100 * time.Millisecond)
	if last.err != nil {
		return fault.Wrap(fault.NotJoined, fmt.Errorf("the node has not joined within %s: %w", waited, last.err))
	}
	if last.remedy == "" { // it is kubelet's to say
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if words := complaints(o.LastWords(ctx)); len(words) > 0 {
			last.cause += "\n  kubelet's last words:\n    " + strings.Join(words, "\n    ")
		}
		last.remedy = "journalctl -u kubelet.service shows all that it says"
	}
	return fault.New(fault.NotJoined, last.remedy, "the node has not joined within %s: %s", waited, last.cause)
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
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
		Conditions []struct {
			Type, Status, Reason, Message string
		} `json:"conditions"`
	} `json:"status"`
}

// look asks once.
func (o Options) look(ctx context.Context) (Node, *obstacle) {
	var found nodeObject
	if err := o.API.Get(ctx, "/api/v1/nodes/"+url.PathEscape(o.Node), &found); err != nil {
		return Node{}, o.obstacleOf(ctx, err)
	}
	if found.Status.NodeInfo.BootID != o.BootID {
		return Node{}, &obstacle{cause: fmt.Sprintf("the Node object %s is of an earlier boot, or of another instance (providerID %q, created %s), and kubelet has not renewed it",
			o.Node, found.Spec.ProviderID, found.Metadata.CreationTimestamp.UTC().Format(time.RFC3339))}
	}
	node := Node{Name: o.Node, Ready: "Unknown", Reason: "NotReported"}
	for _, c := range found.Status.Conditions {
		if c.Type == "Ready" {
			node.Ready, node.Reason, node.Message = c.Status, c.Reason, c.Message
		}
	}
	return node, nil
}

func (o Options) obstacleOf(ctx context.Context, err error) *obstacle {
	var e *kubeapi.Error
	if !errors.As(err, &e) {
		return &obstacle{cause: err.Error(), err: err}
	}
	server := address(o.Endpoint)
	describe := fmt.Sprintf("aws eks describe-cluster --region %s --name %s --query ", o.Region, o.Cluster)
	endpointRemedy := "compare the endpoint (--apiserver-endpoint, or spec.cluster.apiServerEndpoint) with what EKS says: " + describe + "cluster.endpoint"
	switch e.Where {
	case kubeapi.Token:
		return &obstacle{cause: "no token can be made: " + err.Error(), err: err}
	case kubeapi.Name:
		return &obstacle{cause: fmt.Sprintf("the API server's name %s does not exist: %v", host(o.Endpoint), err),
			remedy: endpointRemedy + "; a private endpoint's name needs enableDnsSupport and enableDnsHostnames in the VPC"}
	case kubeapi.Resolver:
		return &obstacle{cause: fmt.Sprintf("no name server answers for the API server's name %s: %v", host(o.Endpoint), err),
			remedy: "check the name servers in /etc/resolv.conf, and that the VPC's DHCP options name ones that the node can reach (AmazonProvidedDNS)"}
	case kubeapi.Refused:
		return &obstacle{cause: "connections to the API server at " + server + " are refused", remedy: endpointRemedy + "; a firewall may refuse them too"}
	case kubeapi.Timeout:
		return &obstacle{cause: "the API server at " + server + " does not answer",
			remedy: "allow 443/tcp from the node to the control plane in the security groups of both, and check the network ACLs; the subnet needs a route to the endpoint: a NAT gateway for a public one, or the cluster's private endpoint"}
	case kubeapi.Unreachable:
		return &obstacle{cause: "there is no route to the API server at " + server, remedy: "check the routes of the node (ip route) and of its subnet: a NAT gateway for a public endpoint, or the cluster's private endpoint"}
	case kubeapi.Proxy:
		return &obstacle{cause: fmt.Sprintf("the proxy does not lead to the API server at %s: %v", server, err), remedy: "check the proxy's address and what it allows, or name the API server in NO_PROXY"}
	case kubeapi.NotTLS:
		return &obstacle{cause: "what listens at " + server + " does not speak TLS, so it is no API server", remedy: endpointRemedy}
	case kubeapi.NotAPI:
		return &obstacle{cause: fmt.Sprintf("what answers at %s is no Kubernetes API server: %v", server, err), remedy: endpointRemedy}
	case kubeapi.UnknownCA:
		return &obstacle{cause: fmt.Sprintf("the certificate of the API server at %s is not signed by the certificate authority that this node was given", server), final: true,
			remedy: "compare the authority (--b64-cluster-ca, or spec.cluster.certificateAuthority) with what EKS says: " + describe + "cluster.certificateAuthority.data; an endpoint of another cluster, or a proxy that opens TLS, looks the same"}
	case kubeapi.OtherHost:
		return &obstacle{cause: fmt.Sprintf("the certificate of the API server at %s is for another name: %v", server, err), final: true, remedy: endpointRemedy}
	case kubeapi.Expired:
		return &obstacle{cause: fmt.Sprintf("the certificate of the API server at %s is not valid at this moment, which is %s by this machine's clock: %v", server, time.Now().UTC().Format(time.RFC3339), err),
			remedy: "set the clock, and let chronyd or systemd-timesyncd keep it (169.254.169.123 is EC2's time service)"}
	case kubeapi.Status:
		return o.refused(ctx, e)
	}
	return &obstacle{cause: fmt.Sprintf("the connection to the API server at %s broke: %v", server, err), remedy: endpointRemedy + "; check what is between: proxies, firewalls, network ACLs"}
}

// refused is an answer of the API server's that is an error.
func (o Options) refused(ctx context.Context, e *kubeapi.Error) *obstacle {
	switch e.Code {
	case http.StatusUnauthorized:
		role := o.Role(ctx)
		if role == "" {
			return &obstacle{cause: "the API server answers 401: it knows nobody with these credentials", remedy: "map their role to the cluster with an access entry or in aws-auth; they come from AWS_ACCESS_KEY_ID, or from the instance's role"}
		}
		kind, username := "EC2_LINUX", "system:node:{{EC2PrivateDNSName}}"
		if o.Node == o.Instance {
			kind, username = "EC2", "system:node:{{SessionName}}"
		}
		return &obstacle{cause: "the API server answers 401: the cluster " + o.Cluster + " does not know the role " + role,
			remedy: fmt.Sprintf("give it an access entry:\n    aws eks create-access-entry --cluster-name %s --principal-arn %s --type %s --region %s\n"+
				"  or, where the cluster goes by aws-auth, add to mapRoles:\n    - rolearn: %s\n      username: %s\n      groups: [system:bootstrappers, system:nodes]\n"+
				"  (the role's ARN, without a path, not the instance profile's); a clock that is more than 5 minutes off looks the same", o.Cluster, role, kind, o.Region, role, username)}
	case http.StatusForbidden, http.StatusNotFound:
		if wrong := o.identity(ctx, e); wrong != nil {
			return wrong
		}
		if e.Code == http.StatusNotFound {
			return &obstacle{cause: "kubelet has not registered the node " + o.Node + " yet; the API server would let it"}
		}
		return &obstacle{cause: "the API server answers 403: " + e.Message, remedy: "let the cluster's Node authorizer decide about nodes: groups system:bootstrappers and system:nodes"}
	}
	return &obstacle{cause: fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message), remedy: "look at the health of the cluster's control plane; kubelet goes on trying"}
}

var forbiddenUser = regexp.MustCompile(`User "([^"]+)"`)

// identity finds out whether the API server takes the node for somebody else.
// Where any node may read any Node object the only sign is that there is none.
func (o Options) identity(ctx context.Context, e *kubeapi.Error) *obstacle {
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	err := o.API.Post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, &review)
	user, groups := review.Status.UserInfo.Username, review.Status.UserInfo.Groups
	if err != nil { // an API server before 1.28
		groups = nil
		if named := forbiddenUser.FindStringSubmatch(e.Message); named != nil {
			user = named[1]
		}
	}
	const prefix = "system:node:"
	mapping := "map its role with the groups system:bootstrappers and system:nodes and the username system:node:{{EC2PrivateDNSName}}, which an access entry of type EC2_LINUX does by itself"
	if o.Node == o.Instance {
		mapping = "map its role with the groups system:bootstrappers and system:nodes and the username system:node:{{SessionName}}, which an access entry of type EC2 does by itself"
	}
	switch name, isNode := strings.CutPrefix(user, prefix); {
	case user == "":
		return nil
	case !isNode:
		return &obstacle{cause: fmt.Sprintf("the API server takes this instance for %s, which is no node", user), remedy: mapping}
	case groups != nil && !slices.Contains(groups, "system:nodes"):
		return &obstacle{cause: fmt.Sprintf("the API server takes this instance for %s, and that is not in the group system:nodes", user), remedy: mapping}
	case name == o.Node:
		return nil
	default:
		cause := fmt.Sprintf("the API server takes this instance for %s, and kubelet registers as %s: it refuses that", user, o.Node)
		if o.Named {
			return &obstacle{cause: cause, remedy: "leave --hostname-override out of kubelet's flags: the name has to be the one that the cluster knows the instance by"}
		}
		return &obstacle{cause: cause, remedy: mapping}
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
