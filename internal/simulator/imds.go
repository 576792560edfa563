package simulator

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	headerToken = "X-Aws-Ec2-Metadata-Token"
	headerTTL   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTTL      = 21600
)

// versions are the API versions the service lists; cloud-init tries dated ones,
// the newest it knows first, and goes by which of them answers 404.
func versions() []string {
	return []string{
		"1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01",
		"2008-09-01", "2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25",
		"2014-11-05", "2015-10-20", "2016-04-19", "2016-06-30", "2016-09-02", "2018-03-28",
		"2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03", "2021-03-23",
		"2021-07-15", "2022-07-09", "2022-09-24", "2024-04-11", "latest",
	}
}

func isVersion(segment string) bool { return slices.Contains(versions(), segment) }

// segments splits a path. Empty ones go: clients double slashes, and the
// service does not mind.
func segments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func (s *Server) serveIMDS(w http.ResponseWriter, r *http.Request) {
	path := segments(r.URL.Path)
	w.Header().Set("Server", "EC2ws")
	if slices.Equal(path, []string{"latest", "api", "token"}) {
		s.serveToken(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		imdsError(w, http.StatusMethodNotAllowed)
		return
	}
	left, ok := s.tokenLeft(r.Header.Get(headerToken))
	if !ok {
		imdsError(w, http.StatusUnauthorized)
		return
	}
	w.Header().Set(headerTTL, strconv.Itoa(int(left/time.Second)))
	if len(path) == 0 {
		imdsAnswer(w, "text/plain", []byte(strings.Join(versions(), "\n")))
		return
	}
	if !isVersion(path[0]) {
		imdsError(w, http.StatusNotFound)
		return
	}
	n := s.tree.at(path[1:])
	if n == nil || n.read != nil && strings.HasSuffix(r.URL.Path, "/") {
		imdsError(w, http.StatusNotFound)
		return
	}
	contentType := "text/plain"
	if path[len(path)-1] == "user-data" {
		contentType = "application/octet-stream"
	}
	if n.read != nil {
		imdsAnswer(w, contentType, n.read())
		return
	}
	// The top of the tree lists its directories without a slash.
	imdsAnswer(w, contentType, []byte(n.list(len(path) > 1)))
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", "OPTIONS, PUT")
		imdsError(w, http.StatusMethodNotAllowed)
		return
	}
	// An open proxy on the instance adds this header; the service refuses it.
	if len(r.Header.Values("X-Forwarded-For")) > 0 {
		imdsError(w, http.StatusForbidden)
		return
	}
	ttl, err := strconv.Atoi(r.Header.Get(headerTTL))
	if err != nil || ttl < 1 || ttl > maxTTL {
		imdsError(w, http.StatusBadRequest)
		return
	}
	w.Header().Set(headerTTL, strconv.Itoa(ttl))
	imdsAnswer(w, "text/plain", []byte(s.newToken(time.Duration(ttl)*time.Second)))
}

// A token carries its own expiry under a signature, so that a server remembers
// nothing however many are asked for: 8 bytes of time, 8 random, 24 of HMAC.
const (
	tokenPayload = 16
	tokenSize    = 40
)

func (s *Server) newToken(ttl time.Duration) string {
	token := make([]byte, tokenPayload, tokenSize)
	binary.BigEndian.PutUint64(token, uint64(s.now().Add(ttl).UnixNano()))
	rand.Read(token[8:])
	return base64.URLEncoding.EncodeToString(append(token, s.sign(token)...))
}

func (s *Server) tokenLeft(token string) (time.Duration, bool) {
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil || len(raw) != tokenSize || !hmac.Equal(raw[tokenPayload:], s.sign(raw[:tokenPayload])) {
		return 0, false
	}
	left := time.Unix(0, int64(binary.BigEndian.Uint64(raw))).Sub(s.now())
	return left, left > 0
}

func (s *Server) sign(payload []byte) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(payload)
	return mac.Sum(nil)[:tokenSize-tokenPayload]
}

func imdsAnswer(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Accept-Ranges", "none")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body)
}

// imdsError answers with a page, as the service does: a client that takes any
// body for a value gets XHTML into its files.
func imdsError(w http.ResponseWriter, status int) {
	title := fmt.Sprintf("%d - %s", status, http.StatusText(status))
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head><title>%[1]s</title></head>
 <body><h1>%[1]s</h1></body>
</html>
`, title)
}
