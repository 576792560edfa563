package support

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const redacted = "[REDACTED]"

// redactor takes out of texts what is nobody else's business: what looks like a
// secret, and what is known to be one because the user data has it.
type redactor struct {
	known *strings.Replacer
}

// shapes are what secrets look like; what the first group matches stays, and so
// does the last.
var shapes = []*regexp.Regexp{
	// The password and the user in a URL.
	regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@"']+(@)`),
	// A private key, on lines of its own, in one line with \n in it, or with a
	// prefix to each line, as logs have it.
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	// Tokens for Kubernetes, and what they are made of.
	regexp.MustCompile(`(k8s-aws-v1\.)[A-Za-z0-9_-]+()`),
	regexp.MustCompile(`(X-Amz-(?:Signature|Security-Token|Credential)=)[^&\s"']+()`),
	regexp.MustCompile(`((?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}()`),
	regexp.MustCompile(`(\beyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+()`),
	// NAME=value, name: value and "name": "value" of names that say so.
	regexp.MustCompile(`((?i:["']?[A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|credential)[A-Za-z0-9_.-]*["']?\s*[=:]\s*["']?))[^\s"',;}{\[\]]+()`),
	// Docker's logins.
	regexp.MustCompile(`("auth"\s*:\s*")[^"]+(")`),
}

// keepsMeaning are values after such a name that are no secret and that somebody
// needs to see.
var keepsMeaning = regexp.MustCompile(`(?i)^(true|false|null|none|nil|[0-9]{1,9}s?|k8s-aws-v1\.\[REDACTED\]|/[a-z0-9/._-]*)$`)

// newRedactor learns secrets from what the user has given: private keys,
// passwords in URLs, and the values of variables whose names say so.
func newRedactor(sources [][]byte) redactor {
	var secrets []string
	add := func(secret string) {
		if len(secret) >= 4 {
			secrets = append(secrets, secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)))
		}
	}
	for _, source := range sources {
		text := string(source)
		for _, block := range regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END`).FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], `\n`, "\n")) {
				if line = strings.TrimSpace(line); len(line) >= 12 {
					secrets = append(secrets, line)
				}
			}
		}
		for _, login := range regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://([^/\s@"']+)@`).FindAllStringSubmatch(text, -1) {
			_, password, _ := strings.Cut(login[1], ":")
			add(password)
			if plain, err := url.PathUnescape(password); err == nil {
				add(plain)
			}
		}
		for _, variable := range shapes[6].FindAllStringSubmatch(text, -1) {
			if value := strings.TrimPrefix(variable[0], variable[1]); !keepsMeaning.MatchString(value) {
				add(value)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the longest first
	var pairs []string
	for _, secret := range slices.Compact(secrets) {
		pairs = append(pairs, secret, redacted)
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// redact takes the secrets out of a text.
func (r redactor) redact(text []byte) []byte {
	text = []byte(r.known.Replace(string(bytes.ToValidUTF8(text, []byte("�")))))
	for i, shape := range shapes {
		text = shape.ReplaceAllFunc(text, func(found []byte) []byte {
			groups := shape.FindSubmatch(found)
			if i == 6 && keepsMeaning.Match(found[len(groups[1]):]) {
				return found
			}
			return slices.Concat(groups[1], []byte(redacted), groups[2])
		})
	}
	return text
}
