package simulator

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	actionECRToken       = "ecr:GetAuthorizationToken"
	actionECRPublicToken = "ecr-public:GetAuthorizationToken"
)

// ecrPublicRegion is where ECR Public gives out tokens.
const ecrPublicRegion = "us-east-1"

// amzJSON is the media type of AWS's JSON protocol, which names the call in a
// header.
const amzJSON = "application/x-amz-json-1.1"

// RegistryPassword is the password that ECR gives out in a simulated account, for
// the user AWS and every registry: a test's own registry can go by it.
func RegistryPassword(account string) string { return "registry-password-of-" + account }

// ecrAction names the call behind an X-Amz-Target, "" if it is none of ECR's.
func ecrAction(target string) string {
	service, call, _ := strings.Cut(target, ".")
	switch service {
	case "AmazonEC2ContainerRegistry_V20150921":
		return "ecr:" + call
	case "SpencerFrontendService":
		return "ecr-public:" + call
	}
	return ""
}

// serveECR answers for ECR in every region of the instance's partition, and for
// ECR Public in its one. Signatures are verified: whoever gets an answer has the
// role's secret.
func (s *Server) serveECR(w http.ResponseWriter, r *http.Request, action string, body []byte) {
	in := s.world.Instance
	service, _, _ := strings.Cut(action, ":")
	region, wrong := s.verify(r, service, body)
	if wrong == nil {
		wrong = s.ecrRefusal(r, action, region, body)
	}
	if wrong != nil {
		s.ecrError(w, http.StatusBadRequest, wrong.code, wrong.message)
		return
	}
	data := map[string]any{
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + RegistryPassword(in.Account))),
		"expiresAt":          float64(s.now().Add(12*time.Hour).UnixMilli()) / 1000,
	}
	if action == actionECRPublicToken {
		s.jsonAnswer(w, amzJSON, http.StatusOK, map[string]any{"authorizationData": data})
		return
	}
	data["proxyEndpoint"] = "https://" + in.Account + ".dkr.ecr." + region + "." + in.ServicesDomain
	s.jsonAnswer(w, amzJSON, http.StatusOK, map[string]any{"authorizationData": []any{data}})
}

// ecrRefusal is why a call with a good signature is not answered, nil if it is.
func (s *Server) ecrRefusal(r *http.Request, action, region string, body []byte) *apiError {
	var parameters map[string]any
	switch {
	case partitionOf(region) != s.world.Instance.Partition:
		// Another partition knows nobody of this one.
		return &apiError{"UnrecognizedClientException", "The security token included in the request is invalid."}
	case action != actionECRToken && action != actionECRPublicToken || r.Header.Get("Content-Type") != amzJSON:
		return &apiError{"UnknownOperationException", "the simulator knows GetAuthorizationToken only, as " + amzJSON}
	case action == actionECRPublicToken && region != ecrPublicRegion:
		return &apiError{"UnsupportedCommandException", "The action isn't supported in this Region."}
	case s.denied(action):
		return &apiError{"AccessDeniedException", fmt.Sprintf(
			"User: %s is not authorized to perform: %s on resource: * because no identity-based policy allows the %[2]s action", s.caller(), action)}
	case json.Unmarshal(body, &parameters) != nil:
		return &apiError{"SerializationException", "the parameters are no JSON object"}
	}
	return nil
}

func (s *Server) ecrError(w http.ResponseWriter, status int, code, message string) {
	s.jsonAnswer(w, amzJSON, status, map[string]any{"__type": "com.amazon.coral.service#" + code, "message": message})
}
