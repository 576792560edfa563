package plan

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// kubeconfig tells kubelet how to reach the API server and which program makes
// its tokens. A local cluster on an Outpost issues client certificates: there
// the file only serves to ask for the first one, and kubelet writes its real
// kubeconfig itself.
func (b *builder) kubeconfig() error {
	target, name := layout.Kubeconfig, b.cluster.name
	if b.cluster.outpost {
		target, name = layout.BootstrapKubeconfig, b.cluster.id
	}
	program := b.facts.Host.TokenProgram
	if b.facts.Host.TokenProgramAbsent {
		b.warn(program + " is not installed: kubelet will not be able to authenticate to the cluster")
	}
	region := b.facts.Instance.Region
	args := []string{"token", "--cluster-name", name, "--region", region}
	switch path.Base(program) {
	case "aws":
		args = []string{"eks", "get-token", "--cluster-name", name, "--region", region}
	case "aws-iam-authenticator":
		args = []string{"token", "-i", name, "--region", region}
	}
	var list strings.Builder
	for _, a := range args {
		fmt.Fprintf(&list, "          - %s\n", yamlString(a))
	}
	return b.file(target, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
  - name: kubernetes
    cluster:
      certificate-authority: %s
      server: %s
contexts:
  - name: kubelet
    context:
      cluster: kubernetes
      user: kubelet
current-context: kubelet
users:
  - name: kubelet
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1beta1
        command: %s
        args:
%s`, layout.CACertificate, yamlString(b.cluster.endpoint), program, list.String()))
}

// yamlString quotes s for YAML, of which JSON strings are a part.
func yamlString(s string) string {
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	return string(quoted)
}
