package support

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const redacted = "[REDACTED]"

// redactor takes out of texts what is nobody else's business: what looks like a
// secret, and what is known to be one because the user data has it.
type redactor struct {
	known *strings.Replacer
}

// lazy is an expression that is made when it is needed: every start of nodeadm
// would pay for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// secretName are names of what is secret, or a part of them.
const secretName = `(?:passw(?:or)?d|passwort|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key-data|credentials?|dockerconfigjson|pwd\b|pass\b)`

// shapes are what secrets look like; what the first group matches stays, and so
// does the last.
var shapes = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		// Private keys, on lines of their own, in one line with \n in it, with a prefix
		// to each line as logs have it, and cut off at either end.
		regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
		// User and password in a URL, which may hold slashes and at signs; escaped, too.
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@:]+:[^\s"']*(@)`),
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@]+(@)`),
		regexp.MustCompile(`(?i)(%3A%2F%2F)[^\s"'&]+?(%40)`),
		regexp.MustCompile(`((?i:proxy)[A-Za-z_]*\\*["']?\s*[=:]\s*\\*["']?)[^\s"'@/]+:[^\s"']*(@)`),
		// Tokens of known kinds.
		regexp.MustCompile(`(k8s-aws-v1\.)[A-Za-z0-9_-]+()`),
		regexp.MustCompile(`((?i:X-Amz-(?:Signature|Security-Token|Credential))(?:=|%3D))[^&\s"']+()`),
		regexp.MustCompile(`(Signature=)[0-9a-fA-F]{16,}()`),
		regexp.MustCompile(`((?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}()`),
		regexp.MustCompile(`(\beyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+()`),
		regexp.MustCompile(`(\b(?:gh[pousr]_|github_pat_|xox[abeoprs]-|glpat-))[A-Za-z0-9_-]{8,}()`),
		regexp.MustCompile(`(hooks\.slack\.com/services/)[A-Za-z0-9/]+()`),
		// A block of YAML under such a name.
		regexp.MustCompile(`((?i:[A-Za-z0-9_.-]*` + secretName + `[A-Za-z0-9_.-]*["']?:[ \t]*[|>][0-9+-]*[ \t]*\n))(?:[ \t]+[^\n]*(?:\n|\z))+()`),
		// NAME: "value", "NAME":"value", also escaped within a string: to the quote.
		regexp.MustCompile(`((?i:[A-Za-z0-9_.-]*` + secretName + `[A-Za-z0-9_.-]*\\*["']?\s*[=:]\s*\\*"))[^"\\]+(\\*")`),
		regexp.MustCompile(`((?i:[A-Za-z0-9_.-]*` + secretName + `[A-Za-z0-9_.-]*["']?\s*[=:]\s*'))[^']+(')`),
		// NAME=value and NAME: value: to the next space.
		regexp.MustCompile(`((?i:[A-Za-z0-9_.-]*` + secretName + `[A-Za-z0-9_.-]*["']?\s*[=:][ \t]*))[^\s"'\\{\[|>][^\s"'\\]*()`),
		// Flags, and what takes a value as the next word.
		regexp.MustCompile(`((?i:--[A-Za-z0-9-]*(?:` + secretName + `|user)[A-Za-z0-9-]*[ \t]+["']?))[^\s"'-][^\s"']*()`),
		regexp.MustCompile(`((?i:\b(?:aws_)?(?:secret_access_key|session_token)[ \t]+["']?))[^\s"'=:]+()`),
		regexp.MustCompile(`(\s-u[ \t]*["']?[^\s"':]+:)[^\s"']+()`),
		// Logins of registries, in JSON and TOML.
		regexp.MustCompile(`(\bauth\\*"?\s*[:=]\s*\\*")[^"\\]+(\\*")`),
	}
})

// harmless are values of such names that are no secret, and that somebody may
// need to see.
var (
	harmless = lazy(`(?i)^(true|false|null|none|nil|required|optional|enabled|disabled|\[REDACTED\]|k8s-aws-v1\.\[REDACTED\])[,;)}\]]*$`)
	// Numbers are lifetimes of tokens, and may be passwords; paths are of files.
	number     = lazy(`^[0-9]+(ms|s|m|h)?[,;)}\]]*$`)
	filePath   = lazy(`^/[A-Za-z0-9/._-]*[,;)}\]]*$`)
	ofPassword = lazy(`(?i)passw|pass\b|pwd|secret|phrase|private`)
	ofFile     = lazy(`(?i)file|path|dir|config|provider|plugin|command`)
)

func keeps(name, value string) bool {
	return harmless().MatchString(value) || number().MatchString(value) && !ofPassword().MatchString(name) || filePath().MatchString(value) && ofFile().MatchString(name)
}

// orphan is the rest of a private key whose beginning was cut off.
var orphan = lazy(`-----END [A-Z ]*PRIVATE KEY-----`)

// login is a line of a list for chpasswd.
var login = lazy(`(?m)^[ \t-]*[a-z_][a-z0-9_-]*:([^\s:]{4,})$`)

// newRedactor learns secrets from what the user has given: whatever would be
// taken out of it.
func newRedactor(sources [][]byte) redactor {
	var secrets []string
	add := func(secret string) {
		if secret = strings.TrimSpace(secret); len(secret) < 4 || harmless().MatchString(secret) {
			return
		}
		secrets = append(secrets, secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)))
		if plain, err := url.PathUnescape(secret); err == nil && len(plain) >= 4 {
			secrets = append(secrets, plain)
		}
	}
	for _, source := range sources {
		text := string(source)
		for _, shape := range shapes() {
			for _, found := range shape.FindAllStringSubmatch(text, -1) {
				secret := strings.TrimSuffix(strings.TrimPrefix(found[0], found[1]), found[2])
				if keeps(found[1], secret) {
					continue
				}
				if _, password, isLogin := strings.Cut(secret, ":"); isLogin {
					add(password)
				}
				for line := range strings.Lines(strings.ReplaceAll(secret, `\n`, "\n")) {
					add(line)
				}
			}
		}
		if _, list, found := strings.Cut(text, "chpasswd:"); found {
			for _, line := range login().FindAllStringSubmatch(list, -1) {
				add(line[1])
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
	if end := orphan().FindIndex(text); end != nil && !bytes.Contains(text[:end[0]], []byte(" PRIVATE KEY-----")) {
		text = slices.Concat([]byte(redacted+"\n"), text[end[0]:])
	}
	for _, shape := range shapes() {
		text = shape.ReplaceAllFunc(text, func(found []byte) []byte {
			groups := shape.FindSubmatch(found)
			secret := found[len(groups[1]) : len(found)-len(groups[2])]
			if keeps(string(groups[1]), string(secret)) {
				return found
			}
			end := groups[2]
			if bytes.HasSuffix(found, []byte("\n")) && len(end) == 0 {
				end = []byte("\n")
			}
			return slices.Concat(groups[1], []byte(redacted), end)
		})
	}
	return text
}
