package simulator

import (
	"net/http"
	"strings"
)

// Ways in which a request is not signed. The signature itself is not verified:
// the SDK's signer is not what is being tested, while a client that signs for
// the wrong region or service is.
type signing int

const (
	signed signing = iota
	unsigned
	wrongScope
)

// signature looks at the form of Signature Version 4: a credential with a scope
// for this service and region.
func (s *Server) signature(r *http.Request, service string) signing {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok || !strings.Contains(rest, "Signature=") {
		return unsigned
	}
	_, rest, ok = strings.Cut(rest, "Credential=")
	if !ok {
		return unsigned
	}
	credential, _, _ := strings.Cut(rest, ",")
	scope := strings.Split(strings.TrimSpace(credential), "/")
	switch {
	case len(scope) != 5 || scope[0] == "" || scope[4] != "aws4_request":
		return unsigned
	case scope[2] != s.world.Instance.Region || scope[3] != service:
		return wrongScope
	}
	return signed
}

func (s *Server) denied(action string) bool {
	service, _, _ := strings.Cut(action, ":")
	return known(action, s.world.Permissions.Deny) || known(service+":*", s.world.Permissions.Deny)
}

// caller is the identity that AWS names when it denies something.
func (s *Server) caller() string {
	in := s.world.Instance
	return "arn:" + in.Partition + ":sts::" + in.Account + ":assumed-role/" + in.Role + "/" + in.ID
}
