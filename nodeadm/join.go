package nodeadm

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/kubeapi"
	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/join"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// join waits until the API server has this node, for as long as the run may take.
func (b *bootstrap) join(ctx context.Context) error { return b.waitJoined(ctx, b.kubeletStarted) }

func (b *bootstrap) waitJoined(ctx context.Context, started func(context.Context) time.Time) error {
	bootID, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fault.New(fault.Unexpected, "", "%w", err)
	}
	node, instance := b.result.Plan.Node, b.result.Facts.Instance
	aws := b.asNode()
	joined, err := join.Wait(ctx, join.Options{
		Node: node.Name, Named: node.Named, Instance: instance.ID, BootID: strings.TrimSpace(string(bootID)),
		Cluster: node.Cluster, Region: instance.Region, Endpoint: node.Endpoint, API: clusterAPI(node, aws),
		Role:      func(ctx context.Context) string { return instance.RoleARN(aws.Role(ctx)) },
		Started:   started,
		LastWords: func(ctx context.Context) []string { return systemd.LastWords(ctx, layout.KubeletService, 50) },
		Report:    func(message string) { b.log.Warn(message) },
	})
	if err != nil {
		return err
	}
	b.result.Node = &joined
	b.log.Info(joined)
	return nil
}

// asNode asks AWS as kubelet's credential plugin does: with the keys of kubelet's
// environment, if it has any, or as the instance's role. The keys that this
// process was given are somebody else's.
func (b *bootstrap) asNode() *awsapi.Client {
	o := b.options.AWS
	o.AccessKeyID = b.config.Instance.KubeletVariable("AWS_ACCESS_KEY_ID")
	o.SecretAccessKey = b.config.Instance.KubeletVariable("AWS_SECRET_ACCESS_KEY")
	o.SessionToken = b.config.Instance.KubeletVariable("AWS_SESSION_TOKEN")
	o.Region, o.IMDS, o.Report = b.result.Facts.Instance.Region, b.metadata(), b.options.Waiting
	return awsapi.New(o)
}

// kubeletStarted is when the kubelet that runs now was started; zero if that is
// not known.
func (b *bootstrap) kubeletStarted(ctx context.Context) time.Time {
	if err := b.connect(ctx); err != nil {
		return time.Time{}
	}
	state, err := b.manager.State(ctx, layout.KubeletService)
	if err != nil {
		return time.Time{}
	}
	return state.Since()
}

// clusterAPI is the API server, asked with tokens of the kind that kubelet's
// credential plugin makes.
func clusterAPI(node plan.Node, aws *awsapi.Client) *kubeapi.Client {
	var mu sync.Mutex
	var token string
	var renew time.Time
	o := kubeapi.Options{Endpoint: node.Endpoint, CA: node.CA, Token: func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.After(renew) {
			made, expires, err := aws.Token(ctx, node.TokensFor, now)
			if err != nil {
				return "", err
			}
			token, renew = made, expires.Add(-time.Minute)
		}
		return token, nil
	}}
	if !node.Direct {
		o.Proxy = http.ProxyFromEnvironment
	}
	return kubeapi.New(o)
}
