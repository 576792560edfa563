package simulator

import (
	"net/http"
	"strings"
	"time"
)

// fail lets the world's faults at a request, in their order, and reports
// whether one of them was its end.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, action string) bool {
	for i, f := range s.world.Faults {
		if !f.matches(r.URL.Path, action) || !s.strike(i) {
			continue
		}
		if f.Delay > 0 {
			timer := time.NewTimer(f.Delay)
			select {
			case <-timer.C:
			case <-r.Context().Done():
				timer.Stop()
				abort(w)
				return true
			}
		}
		switch {
		case f.Hang:
			<-r.Context().Done()
			abort(w)
			return true
		case f.Drop:
			abort(w)
			return true
		case f.Status != 0 || f.Code != "" || f.Body != "":
			s.answerFault(w, action, f)
			return true
		}
	}
	return false
}

// strike reports whether fault i is still active, and counts the request.
func (s *Server) strike(i int) bool {
	f := s.world.Faults[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Until > 0 && s.now().Sub(s.started) >= f.Until || f.First > 0 && s.faultHits[i] >= f.First {
		return false
	}
	s.faultHits[i]++
	return true
}

// matches compares whole path segments, so that a fault of meta-data/mac leaves
// meta-data/macs alone.
func (f Fault) matches(path, action string) bool {
	if action != "" {
		service, all := strings.CutSuffix(f.Match, "*")
		return f.Match == action || all && strings.HasPrefix(action, service)
	}
	if !strings.HasPrefix(f.Match, "/") {
		return false
	}
	want, got := segments(f.Match), segments(path)
	return below(got, want) || len(got) > 0 && isVersion(got[0]) && below(append([]string{"latest"}, got[1:]...), want)
}

// below reports whether path is dir or lies under it.
func below(path, dir []string) bool {
	if len(path) < len(dir) {
		return false
	}
	for i, s := range dir {
		if path[i] != s {
			return false
		}
	}
	return true
}

// answerFault writes what the document says, and in the service's own form
// whatever the document leaves open.
func (s *Server) answerFault(w http.ResponseWriter, action string, f Fault) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	status := f.Status
	switch {
	case f.Body != "":
		if status == 0 {
			status = http.StatusOK
		}
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		w.Write([]byte(f.Body))
		return
	case f.Code == "" && status < 400:
		w.WriteHeader(status) // an empty answer
		return
	case status == 0:
		status = http.StatusBadRequest
	}
	switch service, _, _ := strings.Cut(action, ":"); service {
	case "ec2":
		code := f.Code
		if code == "" {
			code = map[int]string{
				http.StatusUnauthorized:       "AuthFailure",
				http.StatusForbidden:          "UnauthorizedOperation",
				http.StatusServiceUnavailable: "RequestLimitExceeded",
				http.StatusTooManyRequests:    "RequestLimitExceeded",
			}[status]
		}
		if code == "" {
			code = "InternalError"
		}
		s.ec2Error(w, status, code, "simulated fault")
	case "eks", "ecr", "ecr-public":
		code := f.Code
		if code == "" {
			code = map[int]string{
				http.StatusForbidden:          "AccessDeniedException",
				http.StatusNotFound:           "ResourceNotFoundException",
				http.StatusTooManyRequests:    "ThrottlingException",
				http.StatusServiceUnavailable: "ServiceUnavailableException",
			}[status]
		}
		if code == "" {
			code = "ServerException"
		}
		if service == "eks" {
			s.eksError(w, status, code, "simulated fault")
		} else {
			s.ecrError(w, status, code, "simulated fault")
		}
	default:
		imdsError(w, status)
	}
}
