package support

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

const redacted = "[REDACTED]"

// redactor takes out of texts what is nobody else's business: what looks like a
// secret, and what is known to be one because the user data has it.
type redactor struct {
	known *strings.Replacer
}

// newRedactor learns secrets from what the user has given: whatever would be
// taken out of it.
func newRedactor(sources [][]byte) redactor {
	l := learner{room: maxUnpacked}
	for _, source := range sources {
		l.learn(string(source), maxDepth)
	}
	return redactor{l.replacer()}
}

// redact takes the secrets out of a text.
func (r redactor) redact(data []byte) []byte {
	text := string(bytes.ToValidUTF8(data, []byte("�")))
	text = base64Run().ReplaceAllStringFunc(text, func(run string) string {
		if plain := decode(run); privateKey().MatchString(plain) || r.known.Replace(plain) != plain {
			return redacted
		}
		return run
	})
	text = r.known.Replace(text)
	replaced := func(shape shape, text string) string { return shape.replace(text, func(string, string) {}) }
	for _, shape := range blocks() {
		text = replaced(shape, text)
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		for _, shape := range shapes() {
			lines[i] = replaced(shape, lines[i])
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

// lazy is an expression that is made when it is needed: every start of nodeadm
// would pay for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// shape is what a kind of secrets looks like: what the first group matches stays,
// and so does the last.
type shape struct {
	// A text without any of the hints, in lower case, or without what is needed has no
	// such secret: looking for them is far cheaper.
	hints      []string
	needs      string
	expression *regexp.Regexp
}

// replace takes such secrets out of a text, and tells of each.
func (s shape) replace(text string, tell func(name, secret string)) string {
	if !s.possible(text) {
		return text
	}
	var out strings.Builder
	done := 0
	for _, at := range s.expression.FindAllStringSubmatchIndex(text, -1) {
		begin, end := unquoted(text, at[3], at[4])
		name, secret := text[at[2]:begin], text[begin:end]
		if keeps(name, strings.TrimSpace(secret)) {
			continue
		}
		tell(name, secret)
		out.WriteString(text[done:begin] + redacted)
		if strings.HasSuffix(secret, "\n") {
			out.WriteByte('\n')
		}
		done = end
	}
	return out.String() + text[done:]
}

// What a secret may stand in.
var (
	opening = lazy(`^[ \t]*(?:\$?\\*["'])?`)
	closing = lazy(`\\*["']$`)
)

// unquoted is where the secret is of what was found: its quotes stay.
func unquoted(text string, begin, end int) (int, int) {
	open := opening().FindString(text[begin:end])
	begin += len(open)
	if strings.ContainsAny(open, `"'`) {
		end -= len(closing().FindString(text[begin:end]))
	}
	return begin, end
}

func (s shape) possible(text string) bool {
	if !strings.Contains(text, s.needs) {
		return false
	}
	text = strings.ToLower(text)
	for _, hint := range s.hints {
		if strings.Contains(text, hint) {
			return true
		}
	}
	return false
}

// harmless are values of such names that are no secret, and that somebody may
// need to see.
var (
	harmless = lazy(`(?i)^(|\$|true|false|null|none|nil|required|optional|enabled|disabled|\[?REDACTED\]?|k8s-aws-v1\.\[REDACTED\])[,;)}\]]*$`)
	// Numbers are lifetimes of tokens, and may be passwords; paths are of files.
	number     = lazy(`^[0-9]+(ms|s|m|h)?[,;)}\]]*$`)
	filePath   = lazy(`^/[A-Za-z0-9/._-]*[,;)}\]]*$`)
	ofPassword = lazy(`(?i)passw|pass\b|pwd|secret|phrase|private`)
	ofFile     = lazy(`(?i)file|path|dir|config|provider|plugin|command`)
	// No value of a flag's name at all.
	valueless = lazy(`(?i)--password-stdin[ \t]+["']?$`)
	// A provider of credentials has a name; so has the user of ssh, whose key is elsewhere.
	ofName   = lazy(`(?i)(provider\\*["']?\s*[=:]\s*\\*["']?|\bssh://)$`)
	bareName = lazy(`^[A-Za-z0-9_.-]+[,;)}\]]*$`)
)

func keeps(name, value string) bool {
	return harmless().MatchString(value) ||
		number().MatchString(value) && !ofPassword().MatchString(name) ||
		filePath().MatchString(value) && ofFile().MatchString(name) ||
		valueless().MatchString(name) ||
		bareName().MatchString(value) && ofName().MatchString(name)
}
