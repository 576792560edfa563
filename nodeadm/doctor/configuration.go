package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/userdata"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

// configChecks ask what the node was told to be.
var configChecks = []Check{
	{Name: "userdata-mime", Level: Network, Question: "Can all of the user data be read?", Needs: []string{"imds-reach"}, look: userDataMIME,
		Explanation: "A MIME boundary that is missing, mistyped or not closed makes cloud-init lose parts in silence. The message names the line."},
	{Name: "config-found", Level: Network, Question: "Does anything tell the node which cluster to join?", Needs: []string{"userdata-mime"}, look: configFound,
		Explanation: "nodeadm reads NodeConfig documents in user data and /etc/eks/nodeadm.d; a script in user data calls /etc/eks/bootstrap.sh with the cluster's name."},
	{Name: "config-strict", Level: Network, Question: "Is the configuration free of mistakes?", Needs: []string{"config-found"}, look: configStrict,
		Explanation: "Unknown fields, values of the wrong kind, labels and taints that kubelet would refuse, flags that this kubelet does not have: each is an error with its line. nodeadm config check says the same anywhere."},
	{Name: "ca-valid", Level: Network, Question: "Is the cluster's certificate authority one?", look: caValid,
		Explanation: "The authority that is in user data, or that EKS gave, is what the API server is trusted by. One that was pasted in part, encoded twice or has expired leads to x509 errors in kubelet's log."},
}

// later turns a failure into a warning on a node that is configured all the
// same: it is the next boot that will fail.
func (p *patient) later(f Finding) Finding {
	if f.Status == Failed && p.configured() && (p.LastRun == nil || p.LastRun.Error == "") {
		f.Status = Warning
	}
	return f
}

func userDataMIME(_ context.Context, p *patient) Finding {
	sources, err := p.documents()
	if err != nil {
		return failed(fault.Remedy(err), "the configuration cannot be read: %v", err)
	}
	count := 0
	for _, source := range sources {
		parts, err := userdata.Parse(source.Data, source.Name)
		for _, part := range parts {
			err = errors.Join(err, part.Problem)
		}
		if err != nil {
			return p.later(failed(fault.Remedy(err), "%v", err))
		}
		count += len(parts)
	}
	return ok("%d parts in %d documents", count, len(sources))
}

func configFound(_ context.Context, p *patient) Finding {
	_, err := p.wanted()
	if !errors.Is(err, errNothingWanted) {
		return ok("there is a configuration")
	}
	if p.configured() {
		return skipped("the node was configured by other means than its user data")
	}
	sources, _ := p.documents()
	f := failed("put a NodeConfig document into user data or /etc/eks/nodeadm.d, or a script that calls /etc/eks/bootstrap.sh CLUSTER", "nothing tells this node which cluster to join")
	for _, source := range sources {
		parts, _ := userdata.Parse(source.Data, source.Name)
		for _, part := range parts {
			f = f.seen(fmt.Sprintf("%s part %s: %s, %d bytes", source.Name, part.Index, part.ContentType, part.Size))
		}
	}
	if len(sources) == 0 {
		f = f.seen("there is no user data, and no document in /etc/eks/nodeadm.d")
	}
	return f
}

func configStrict(_ context.Context, p *patient) Finding {
	wanted, err := p.wanted()
	if errors.Is(err, errNothingWanted) { // config-found has judged that
		return skipped("there is no configuration in user data or /etc/eks/nodeadm.d")
	}
	if err == nil {
		version, versionErr := p.version()
		if versionErr == nil {
			err = plan.CheckKubelet(wanted, version)
		}
	}
	if err != nil {
		var all []string
		fault.Each(err, func(one error) { all = append(all, one.Error()) })
		first, rest := all[0], all[1:]
		return p.later(failed(fault.Remedy(err), "%s", first).seen(rest...))
	}
	if wanted.Cluster.Name == "" {
		return ok("the configuration has no mistakes; the cluster's name comes from the instance's tags")
	}
	return ok("the configuration has no mistakes; the cluster is %s", wanted.Cluster.Name)
}

func caValid(_ context.Context, p *patient) Finding {
	endpoint, ca, err := p.cluster()
	if _, unread := p.kubeconfig(); unread != nil && p.configured() && endpoint == "" {
		return skipped("the kubeconfig cannot be read; see kubelet-config-parse")
	}
	if err != nil && p.configured() {
		return failed("run nodeadm again", "the cluster's certificate authority cannot be read: %v", err)
	}
	if endpoint == "" {
		return skipped("the cluster is not known yet")
	}
	describe := "take it from EKS as it is: aws eks describe-cluster --name NAME --query cluster.certificateAuthority.data --output text"
	if err := config.CheckCA(ca); err != nil {
		return failed(describe, "the cluster's certificate authority is none: %v", err)
	}
	var names []string
	valid := false
	for block, rest := pem.Decode(ca); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		now := time.Now()
		switch {
		case now.After(certificate.NotAfter):
			names = append(names, fmt.Sprintf("%s ended at %s", certificate.Subject, certificate.NotAfter.Format(time.RFC3339)))
		case now.Before(certificate.NotBefore):
			names = append(names, fmt.Sprintf("%s begins at %s, and it is %s by this machine's clock", certificate.Subject, certificate.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
		case !certificate.IsCA:
			names = append(names, fmt.Sprintf("%s is the certificate of a server, not of an authority", certificate.Subject))
		default:
			valid = true
			names = append(names, fmt.Sprintf("%s, until %s", certificate.Subject, certificate.NotAfter.Format(time.RFC3339)))
		}
	}
	if !valid {
		return failed(describe, "the cluster's certificate authority cannot be used: %s", strings.Join(names, "; "))
	}
	return ok("the cluster's certificate authority is valid").seen(names...)
}
