package support

import (
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// How far it is followed what is packed in what is packed, and how much of it.
const (
	maxDepth    = 4
	maxUnpacked = 8 << 20 // bytes, in all
)

var (
	// base64Run may go over lines.
	base64Run  = lazy(`(?m)[A-Za-z0-9+/]{12,}={0,2}(?:\r?\n[ \t]*[A-Za-z0-9+/]+={0,2}$)*`)
	privateKey = lazy(keyBegin)
	// login is a line of a list for chpasswd.
	login = lazy(`(?m)^[ \t-]*[a-z_][a-z0-9_-]*:([^\s:]{4,})$`)
	// reference is to a secret that is elsewhere.
	reference = lazy(`^\$(\(|\{?[A-Z_][A-Z0-9_]*\}?$)`)
)

// learner gathers the secrets of the user data.
type learner struct {
	secrets []string
	room    int // for what is unpacked
}

// learn learns the secrets of a text, and of what is packed in it, and says
// whether there are any.
func (l *learner) learn(text string, depth int) bool {
	before := len(l.secrets)
	for _, shape := range blocks() {
		shape.replace(text, l.found)
	}
	for _, line := range strings.Split(text, "\n") {
		for _, shape := range shapes() {
			shape.replace(line, l.found)
		}
	}
	if _, list, found := strings.Cut(text, "chpasswd:"); found {
		for _, line := range login().FindAllStringSubmatch(list, -1) {
			l.add(line[1])
		}
	}
	for _, run := range base64Run().FindAllString(text, -1) {
		if len(run) >= 40 && depth > 0 && l.learn(l.unpack(run), depth-1) {
			l.found("", run) // whoever has it has what is in it
		}
	}
	return len(l.secrets) > before
}

// found learns a secret, and every line of it: nobody knows in which form it
// turns up.
func (l *learner) found(_, secret string) {
	if _, password, isLogin := strings.Cut(secret, ":"); isLogin {
		l.add(password)
	}
	for _, line := range strings.Split(strings.ReplaceAll(secret, `\n`, "\n"), "\n") {
		l.add(line)
		for i, part := range strings.Split(line, `"`) {
			if i%2 == 1 {
				l.add(part)
			}
		}
	}
}

// add learns a secret, without what the syntax around it has left on it.
func (l *learner) add(secret string) {
	secret = strings.Trim(strings.TrimPrefix(strings.TrimSpace(secret), "- "), `"'`)
	forms := []string{secret}
	if end := strings.IndexAny(secret, ";,)}]&|"); end > 0 {
		forms = append(forms, secret[:end])
	}
	if plain, err := url.PathUnescape(secret); err == nil {
		forms = append(forms, plain)
	}
	if plain, err := strconv.Unquote(`"` + secret + `"`); err == nil {
		forms = append(forms, plain)
	}
	forms = append(forms, strings.ReplaceAll(secret, `'\''`, "'"), strings.ReplaceAll(secret, "''", "'"))
	for _, form := range forms {
		if len(form) < 4 || harmless().MatchString(form) || reference().MatchString(form) || strings.Contains(redacted, form) {
			continue
		}
		l.secrets = append(l.secrets, form, url.QueryEscape(form), base64.StdEncoding.EncodeToString([]byte(form)))
	}
}

// replacer replaces what was learned, the longest first.
func (l *learner) replacer() *strings.Replacer {
	slices.SortFunc(l.secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, secret := range slices.Compact(l.secrets) {
		pairs = append(pairs, secret, redacted)
	}
	return strings.NewReplacer(pairs...)
}

// unpack is what is in base64, compressed or not, as far as there is room.
func (l *learner) unpack(run string) string {
	plain := decode(run)
	if unzip, err := gzip.NewReader(strings.NewReader(plain)); err == nil {
		data, _ := io.ReadAll(io.LimitReader(unzip, int64(l.room))) // the beginning of a broken one is worth having, too
		plain = string(data)
	}
	plain = plain[:min(len(plain), l.room)]
	l.room -= len(plain)
	return plain
}

// decode is what is in base64, as far as it is base64.
func decode(run string) string {
	data := []byte(strings.NewReplacer("\r", "", "\n", "", " ", "", "\t", "", "=", "").Replace(run))
	if len(data)%4 == 1 {
		data = data[:len(data)-1]
	}
	n, _ := base64.RawStdEncoding.Decode(data, data)
	return string(data[:n])
}
