package config

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
)

var (
	clusterNamePattern = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
	clusterIDPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,99}$`)
	accountPattern     = regexp.MustCompile(`^[0-9]{12}$`)
	tagPattern         = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

	// Kubernetes' rules for qualified names and label values.
	namePattern   = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$`)
	prefixPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// CheckCA makes sure that data is PEM and holds at least one certificate that
// can be read.
func CheckCA(data []byte) error {
	found := false
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("the certificate in it cannot be read: %w", err)
		}
		found = true
	}
	if !found {
		return errors.New("it holds no PEM certificate")
	}
	return nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("not a URL: %q", endpoint)
	}
	if u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%q is not a URL that begins with https://", endpoint)
	}
	if !portExists(u) {
		return fmt.Errorf("%q names a port that there is not", endpoint)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("%q is more than https://HOST[:PORT]", endpoint)
	}
	return nil
}

func labelRemedy(label string) string {
	key, _, _ := strings.Cut(label, "=")
	if !kubelet.LabelAllowed(key) {
		return "use a prefix of your own for it, or set it with kubectl once the node has joined"
	}
	return "write key=value with at most 63 letters, digits, '-', '_' and '.' on each side"
}

// CheckLabel tells why kubelet would refuse a label, written key=value, to
// register a node with.
func CheckLabel(label string) error {
	key, value, _ := strings.Cut(label, "=")
	if err := checkQualifiedName(key); err != nil {
		return err
	}
	if value != "" && (len(value) > 63 || !namePattern.MatchString(value)) {
		return fmt.Errorf("%q is not a label value", value)
	}
	if !kubelet.LabelAllowed(key) {
		return fmt.Errorf("a node may not set labels of Kubernetes' own, such as %s, on itself", key)
	}
	return nil
}

func checkQualifiedName(key string) error {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		prefix, name = "", key
	}
	if prefixed && (len(prefix) > 253 || !prefixPattern.MatchString(prefix)) {
		return fmt.Errorf("the prefix of its key, %q, is not a DNS name", prefix)
	}
	if len(name) > 63 || !namePattern.MatchString(name) {
		return fmt.Errorf("the name of its key is %q", name)
	}
	return nil
}

// CheckTaint tells why kubelet would refuse a taint, written key=value:effect.
func CheckTaint(taint string) error {
	keyValue, effect, found := strings.Cut(taint, ":")
	if !found {
		return errors.New("it has no effect")
	}
	switch effect {
	case "NoSchedule", "PreferNoSchedule", "NoExecute":
	default:
		return fmt.Errorf("%q is not an effect", effect)
	}
	key, value, _ := strings.Cut(keyValue, "=")
	if err := checkQualifiedName(key); err != nil {
		return err
	}
	if value != "" && (len(value) > 63 || !namePattern.MatchString(value)) {
		return fmt.Errorf("%q is not a value", value)
	}
	return nil
}
