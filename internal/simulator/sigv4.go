package simulator

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Ways in which a request is not signed. The signature itself is not verified
// for EC2 and EKS: the SDK's signer is not what is being tested, while a client
// that signs for the wrong region or service is. See verify for the others.
type signing int

const (
	signed signing = iota
	unsigned
	wrongScope
)

// authorization reads a header of Signature Version 4: the credential's key,
// date, region, service and end, and which headers are signed. scope is nil if it
// is none.
func authorization(r *http.Request) (scope, headers []string, signature string) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return nil, nil, ""
	}
	for field := range strings.SplitSeq(rest, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(field), "="); name {
		case "Credential":
			scope = strings.Split(value, "/")
		case "SignedHeaders":
			headers = strings.Split(value, ";")
		case "Signature":
			signature = value
		}
	}
	if len(scope) != 5 || scope[0] == "" || scope[4] != "aws4_request" || signature == "" {
		return nil, nil, ""
	}
	return scope, headers, signature
}

// signature looks at the form of Signature Version 4: a credential with a scope
// for this service and region.
func (s *Server) signature(r *http.Request, service string) signing {
	scope, _, _ := authorization(r)
	switch {
	case scope == nil:
		return unsigned
	case scope[2] != s.world.Instance.Region || scope[3] != service:
		return wrongScope
	}
	return signed
}

// verify works the signature of a request out anew, and returns the region that
// it is for.
func (s *Server) verify(r *http.Request, service string, body []byte) (region string, wrong *apiError) {
	scope, headers, given := authorization(r)
	switch {
	case scope == nil:
		return "", &apiError{"MissingAuthenticationTokenException", "Missing Authentication Token"}
	case scope[0] != roleKeyID || r.Header.Get("X-Amz-Security-Token") != roleSessionToken:
		return "", &apiError{"UnrecognizedClientException", "The security token included in the request is invalid."}
	case scope[3] != service:
		return "", &apiError{"InvalidSignatureException", fmt.Sprintf("Credential should be scoped to correct service: '%s'.", service)}
	}
	const timeForm, tolerance = "20060102T150405Z", 5 * time.Minute
	now := s.now().UTC()
	at, err := time.Parse(timeForm, r.Header.Get("X-Amz-Date"))
	switch {
	case err != nil:
		return "", &apiError{"IncompleteSignatureException", "Date must be in ISO-8601 'basic format'."}
	case at.Before(now.Add(-tolerance)):
		return "", &apiError{"InvalidSignatureException", fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - 5 min.)",
			at.Format(timeForm), now.Add(-tolerance).Format(timeForm), now.Format(timeForm))}
	case at.After(now.Add(tolerance)):
		return "", &apiError{"InvalidSignatureException", fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + 5 min.)",
			at.Format(timeForm), now.Add(tolerance).Format(timeForm), now.Format(timeForm))}
	}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(headers, name) {
			return "", &apiError{"InvalidSignatureException", fmt.Sprintf("'%s' must be a 'SignedHeader' in the AWS Authorization.", name)}
		}
	}
	again := r.Clone(r.Context())
	again.Header, again.ContentLength, again.URL.Host = http.Header{}, 0, r.Host
	for _, name := range headers {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	credentials := aws.Credentials{AccessKeyID: roleKeyID, SecretAccessKey: roleSecret, SessionToken: roleSessionToken}
	hash := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials, again, hex.EncodeToString(hash[:]), service, scope[2], at); err != nil {
		return "", &apiError{"InvalidSignatureException", err.Error()}
	}
	if _, _, right := authorization(again); subtle.ConstantTimeCompare([]byte(right), []byte(given)) != 1 {
		// AWS repeats what it signed, session token included.
		return "", &apiError{"InvalidSignatureException", "The request signature we calculated does not match the signature you provided. " +
			"Check your AWS Secret Access Key and signing method. Consult the service documentation for details.\n\n" +
			"The Canonical String for this request should have been\n'" + r.Method + "\n" + r.URL.Path + "\n\nx-amz-security-token:" + roleSessionToken + "\n'"}
	}
	return scope[2], nil
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
