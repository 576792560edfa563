package simulator

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const actionGetCallerIdentity = "sts:GetCallerIdentity"

// presignedLifetime is how long STS takes a presigned request, whatever
// X-Amz-Expires says.
const presignedLifetime = 15 * time.Minute

// serveSTS answers presigned requests for the caller's identity, which is what a
// token for an EKS cluster is. The signature is worked out anew and compared:
// whoever gets an answer has the role's secret.
func (s *Server) serveSTS(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("Action") != "GetCallerIdentity" || r.URL.Path != "/" {
		stsError(w, http.StatusBadRequest, "InvalidAction", "the simulator knows GetCallerIdentity only")
		return
	}
	if s.denied(actionGetCallerIdentity) {
		stsError(w, http.StatusForbidden, "AccessDenied", "denied by the simulation")
		return
	}
	if code, message := s.checkPresigned(r, query); code != "" {
		stsError(w, http.StatusForbidden, code, message)
		return
	}
	in := s.world.Instance
	w.Header().Set("Content-Type", "application/json")
	w.Write(indented(map[string]any{"GetCallerIdentityResponse": map[string]any{
		"GetCallerIdentityResult": map[string]any{"Account": in.Account, "Arn": s.caller(), "UserId": "AROASIMULATED00000000:" + in.ID},
		"ResponseMetadata":        map[string]any{"RequestId": "00000000-0000-0000-0000-000000000000"},
	}}))
}

// checkPresigned says what is wrong with a presigned request, "" if nothing is.
func (s *Server) checkPresigned(r *http.Request, query url.Values) (code, message string) {
	scope := strings.Split(query.Get("X-Amz-Credential"), "/")
	switch {
	case len(scope) != 5 || scope[4] != "aws4_request":
		return "MissingAuthenticationToken", "Request is missing Authentication Token"
	case scope[0] != roleKeyID || query.Get("X-Amz-Security-Token") != roleSessionToken:
		return "InvalidClientTokenId", "The security token included in the request is invalid."
	case scope[2] != s.world.Instance.Region || scope[3] != "sts":
		return "SignatureDoesNotMatch", fmt.Sprintf("Credential should be scoped to a valid region, not '%s'.", scope[2])
	}
	at, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	if now := s.now(); err != nil || at.After(now.Add(5*time.Minute)) || now.After(at.Add(presignedLifetime)) {
		return "SignatureDoesNotMatch", "Signature expired"
	}
	given := query.Get("X-Amz-Signature")
	unsigned := url.Values{}
	for name, values := range query {
		if !strings.HasPrefix(name, "X-Amz-") || name == "X-Amz-Expires" {
			unsigned[name] = values
		}
	}
	again, err := http.NewRequest(http.MethodGet, "https://"+r.Host+"/?"+unsigned.Encode(), nil)
	if err != nil {
		return "SignatureDoesNotMatch", err.Error()
	}
	for name := range strings.SplitSeq(query.Get("X-Amz-SignedHeaders"), ";") {
		if name != "host" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	credentials := aws.Credentials{AccessKeyID: roleKeyID, SecretAccessKey: roleSecret, SessionToken: roleSessionToken}
	signed, _, err := v4.NewSigner().PresignHTTP(r.Context(), credentials, again, emptyHash, "sts", scope[2], at)
	if err == nil {
		var u *url.URL
		if u, err = url.Parse(signed); err == nil && subtle.ConstantTimeCompare([]byte(u.Query().Get("X-Amz-Signature")), []byte(given)) == 1 {
			return "", ""
		}
	}
	return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
}

// emptyHash is the SHA-256 of no body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func stsError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(indented(map[string]any{"Error": map[string]any{"Code": code, "Message": message, "Type": "Sender"}}))
}
