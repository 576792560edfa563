package simulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const actionDescribeCluster = "eks:DescribeCluster"

// eksAction names the call behind a path of EKS's REST API.
func eksAction(r *http.Request) string {
	name := strings.TrimPrefix(r.URL.Path, "/clusters/")
	if r.Method == http.MethodGet && name != r.URL.Path && name != "" && !strings.Contains(name, "/") {
		return actionDescribeCluster
	}
	return "eks:Unknown"
}

func (s *Server) serveEKS(w http.ResponseWriter, r *http.Request, action string) {
	switch s.signature(r, "eks") {
	case unsigned:
		s.eksError(w, http.StatusForbidden, "MissingAuthenticationTokenException", "Missing Authentication Token")
		return
	case wrongScope:
		s.eksError(w, http.StatusForbidden, "InvalidSignatureException",
			"Credential should be scoped to a valid region and to service eks.")
		return
	}
	if action != actionDescribeCluster {
		s.eksError(w, http.StatusNotFound, "UnknownOperationException", "the simulator knows DescribeCluster only")
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/clusters/")
	if s.denied(action) {
		s.eksError(w, http.StatusForbidden, "AccessDeniedException", fmt.Sprintf(
			"User: %s is not authorized to perform: %s on resource: %s", s.caller(), action, s.clusterARN(name)))
		return
	}
	c := s.world.Cluster
	if c == nil || c.Name != name {
		s.eksError(w, http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: "+name+".")
		return
	}
	s.mu.Lock()
	s.clusterSeen++
	creating := s.clusterSeen <= c.ActiveAfter
	s.mu.Unlock()
	s.eksAnswer(w, http.StatusOK, map[string]any{"cluster": s.cluster(*c, creating)})
}

func (s *Server) clusterARN(name string) string {
	in := s.world.Instance
	return "arn:" + in.Partition + ":eks:" + in.Region + ":" + in.Account + ":cluster/" + name
}

func (s *Server) cluster(c Cluster, creating bool) map[string]any {
	if creating {
		c.Status = "CREATING"
	}
	network := map[string]any{"ipFamily": c.IPFamily}
	if c.ServiceIPv4CIDR != "" {
		network["serviceIpv4Cidr"] = c.ServiceIPv4CIDR
	}
	if c.ServiceIPv6CIDR != "" {
		network["serviceIpv6Cidr"] = c.ServiceIPv6CIDR
	}
	out := map[string]any{
		"name":                    c.Name,
		"arn":                     s.clusterARN(c.Name),
		"status":                  c.Status,
		"version":                 c.Version,
		"kubernetesNetworkConfig": network,
	}
	// A cluster under creation has neither yet.
	if c.Status != "CREATING" && c.Status != "PENDING" {
		out["endpoint"] = c.Endpoint
		out["certificateAuthority"] = map[string]any{"data": c.CertificateAuthority}
	}
	if c.ID != "" {
		out["id"] = c.ID
	}
	if c.OutpostARN != "" {
		out["outpostConfig"] = map[string]any{"outpostArns": []string{c.OutpostARN}}
	}
	return out
}

func (s *Server) eksError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Amzn-Errortype", code)
	s.eksAnswer(w, status, map[string]any{"__type": code, "message": message})
}

func (s *Server) eksAnswer(w http.ResponseWriter, status int, v any) {
	s.jsonAnswer(w, "application/json", status, v)
}

func (s *Server) jsonAnswer(w http.ResponseWriter, mediaType string, status int, v any) {
	body := indented(v)
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("X-Amzn-Requestid", s.requestID())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// requestID has the shape of AWS's, and counts.
func (s *Server) requestID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", s.answered)
}
