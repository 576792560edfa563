package support

import (
	"regexp"
	"strings"
	"sync"
)

// secretName is the end of a name of what is secret; nameHints are in each.
const secretName = `(?:passw(?:or)?d|passwort|passphrase|secret|token|(?:api|access|private|licen[cs]e|activation|encryption|signing|auth)[_-]?key|key-data|credentials?|dockerconfigjson|psk\b|pwd\b|pass\b)[A-Za-z0-9_.-]*`

const nameHints = "pass pwd psk secret token key credential dockerconfigjson"

const (
	fullName = `[A-Za-z0-9_.-]*` + secretName
	inWord   = `(?:[^\s"'\\]|\\[^\s"'\\nrt])` // of a shell, or of an escaped string
	inQuote  = `(?:[^"\\\n]|\\.)`
	word     = `(?:"` + inQuote + `*"|'[^']*'|[^\s"'\\|;&]+)`
	// What comes after a name: to the closing quote, or to the end of the line.
	value    = `(?:"` + inQuote + `*"|'[^'\n]*'|\\+"[^"\\]*\\+"|[^\s"'\\][^\n]*)`
	keyBegin = `-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`
	keyEnd   = `-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`
	// A line of a private key, which a log may have put a prefix to.
	keyLine   = `(?:[^\n]*[A-Za-z0-9+/]{16,}={0,2}[^A-Za-z0-9\n]{0,4}|[ \t]*[A-Za-z0-9+/=]{8,}\r?)`
	keyHeader = `(?:[^\n]*(?:Proc-Type|DEK-Info|Version|Comment|Hash): [^\n]*|[^\n]*\[REDACTED\]|[^\n]*[:\]][ \t]*\r?|[ \t]*\r?)`
)

// values are what may come after a name and its colon or equals sign.
const values = "" +
	// A block of YAML, a list of it, unless that is of objects, and a list of JSON.
	`[ \t]*[|>][0-9+-]*[ \t]*\r?\n(?:[ \t]*\r?\n)*(?:[ \t]+[^\n]*(?:\n|\z)(?:[ \t]*\r?\n)*)+|` +
	`[ \t]*\r?\n(?:[ \t]*-[ \t](?:[^\n:]|:[^ \t\n])*(?:\n|\z))+|` +
	`\s*\[[^\[\]{}]+\]|` +
	// To the quote, which may be escaped within a string, and some lines further; or to
	// the end of a line that was cut off.
	`\s*\\{2,}"[^"\\\n]+(?:\\+"|$)|` +
	`\s*\\"(?:\\{3}"|\\\\|[^"\\\n])+(?:\\"|$)|` +
	`\s*\$?"` + inQuote + `*(?:\n` + inQuote + `*){0,8}"|` +
	`\s*\$?"` + inQuote + `+$|` +
	`\s*\$'(?:[^'\\\n]|\\.)+(?:'|$)|` +
	`\s*'(?:[^'\n]|''|'\\'')*(?:\n[^'\n]*){0,8}'|` +
	`\s*'[^'\n]+$|` +
	// To the next space.
	`[ \t]*[^\s"'\\{\[|>]` + inWord + `*`

// blocks are shapes of more than one line.
var blocks = compiled([]kind{
	// Private keys: in one line with \n in it, on lines of their own, and cut off at
	// either end. Without an end it goes as far as lines look like a key.
	{"private", "", `(` + keyBegin + `)[^\n]*?(` + keyEnd + `)`},
	{"private", "", `(` + keyBegin + `)[^\n]*\n(?:(?:` + keyLine + `|` + keyHeader + `)\n)*(?:[^\n]*\n){0,2}?[^\n]*?(` + keyEnd + `)`},
	{"private", "", `(?m)(` + keyBegin + `)(?:[ \tA-Za-z0-9+/=\r]|\\+[nr])*(?:\n(?:` + keyHeader + `\n)*` + keyLine + `$)*()`},
	{"private", "", `(?m)()(?:^` + keyLine + `\n)+(?:[^\n]*[A-Za-z0-9+/=]\r?\n)?(^(?:[^\n-]|-{1,4}[^\n-])*` + keyEnd + `)`},
	{"private", "", `()[A-Za-z0-9+/=]{16,}(?:\\+n[A-Za-z0-9+/=]+)*(?:\\+n)+(` + keyEnd + `)`},
	// YAML: to the end of the line.
	{nameHints, "", `(?m)(^[ \t]*(?:-[ \t]+)?(?i:["']?` + fullName + `["']?:[ \t]+))[^\s"'\\{\[|>][^\n]*()`},
	// What else has such a name.
	{nameHints, "", `(?m)((?i:` + secretName + `\\*["']?[ \t]*[=:]))(?:` + values + `)()`},
	// A variable of a container, and of a program that kubectl runs.
	{"value", "", `((?i:\bname\\*["']?\s*[:=]\s*\\*["']?` + fullName + `\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*[:=][ \t]*))` + value + `()`},
	// A parameter of AWS Systems Manager.
	{"securestring", "", `("Type"\s*:\s*"SecureString"[^{}]*?"Value"\s*:\s*")` + inQuote + `*(")`},
	{"securestring", "", `("Value"\s*:\s*")` + inQuote + `*("[^{}]*?"Type"\s*:\s*"SecureString")`},
	// The headers that containerd sends to a registry.
	{"header", "", `(?m)(^[ \t]*\[[^\n]*\bheaders?\][ \t]*\n)(?:[ \t]*(?:[^\s\[][^\n]*)?(?:\n|\z))+()`},
	// What a shell that traces says of echo PASSWORD | docker login; in either order.
	{"stdin", "", `(\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)` + word + `([^\n]*\n[^\n]*--(?:password-)?stdin)`},
	{"stdin", "", `(--(?:password-)?stdin[^\n]*\n[^\n]*\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)` + word + `()`},
	// A .netrc.
	{"machine login", "", `(\b(?:machine|login)\s+\S+\s+(?:login\s+\S+\s+)?password\s+)\S+()`},
})

// shapes are those of one line.
var shapes = compiled([]kind{
	// User and password in a URL, which may hold slashes and at signs; escaped, too.
	{"://", "", `([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@:]+:[^\s"']*(@)`},
	{"://", "", `([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@]+(@)`},
	{"%3a%2f%2f", "", `(?i)(%3A%2F%2F)[^\s"'&]+?(%40)`},
	{"proxy", "", `((?i:proxy)[A-Za-z_]*\\*["']?\s*[=:]\s*\\*["']?)[^\s"'@/]+:[^\s"']*(@)`},
	// Tokens of known kinds.
	{"k8s-aws-v1.", "", `(k8s-aws-v1\.)[A-Za-z0-9_-]+()`},
	{"x-amz-", "", `((?i:X-Amz-(?:Signature|Security-Token|Credential))(?:=|%3D))[^&\s"']+()`},
	{"signature=", "", `(Signature=)[0-9a-fA-F]{16,}()`},
	{"bearer basic", "", `((?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}()`},
	{"authorization", "", `((?i:authorization\\*["']?\s*[:=]\s*\[?\\*["']?(?:token|apikey|key|digest|negotiate)[ \t]+))[^\s"'\\]+()`},
	{"authorization", "", `((?i:authorization\\*["']?\s*[:=]\s*\[?\\*["']?))[A-Za-z0-9._~+/=-]{17,}()`},
	{"eyj", "", `(\beyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+()`},
	{"eyj", "", `(\beyJ)[A-Za-z0-9+/=_-]{97,}()`},
	{"gh xox gl hv aiza sg.", "", `(\b(?:gh[pousr]_|github_pat_|xox[abeoprs]-|gl[a-z]{2,5}-|hv[bsr]\.|AIza|SG\.))[A-Za-z0-9_.-]{16,}()`},
	{"xox gl hvs.", "", `(\b(?:xox[abeoprs]-|glpat-|glrt-|hvs\.))[A-Za-z0-9_.-]{8,}()`},
	{"hooks.slack.com", "", `(hooks\.slack\.com/services/)[A-Za-z0-9/]+()`},
	// Flags, and what takes a value as the next word.
	{nameHints + " user", "", `((?i:--[A-Za-z0-9-]*(?:` + secretName + `|user)[A-Za-z0-9-]*[ \t]+))(?:"` + inQuote + `*"|'[^']*'|["']?[^\s"'-][^\s"']*)()`},
	{"secret_access_key session_token", "", `((?i:\b(?:aws_)?(?:secret_access_key|session_token)[ \t]+["']?))[^\s"'=:]+()`},
	{"-u", "", `(\s-u[ \t]*["']?[^\s"':]+:)[^\s"']+()`},
	{"login sshpass", "", `(\b(?:login|sshpass)\b.*?\s-p[ \t=]*)` + word + `()`},
	{"mysql mariadb", "", `(\b(?:mysql|mariadb)[a-z-]*\s(?:.*?\s)?-p)` + word + `()`},
	{"stdin", "", `(\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)` + word + `([^|]*\|.*--(?:password-)?stdin)`},
	// Logins of registries, in JSON and TOML, and headers for them.
	{"auth", "", `(\bauth\\*"?\s*[:=]\s*\\*")[^"\\]+(\\*")`},
	{"auth", "", `(\bauth\s*=\s*')[^']+(')`},
	{"x-", "", `((?i:\bX-[A-Z0-9-]*(?:auth|token|key|secret)[A-Z0-9-]*["']?\s*[:=]\s*\[?\s*["']?))[^\s"'\[\]]+()`},
	{"header", "", `(\bheaders?\s*=\s*\{)[^}]*(\})`},
	// "NAME=value" and <NAME>value</NAME>; last, as there may be others in the value.
	{nameHints, `"`, `((?:^|[^\\])"(?i:` + fullName + `=))` + inQuote + `+("|$)`},
	{nameHints, `\"`, `(\\+"(?i:` + fullName + `=))[^"\\]+(\\+"|$)`},
	{nameHints, `'`, `('(?i:` + fullName + `=))(?:[^']|'\\'')+('|$)`},
	{nameHints, `<`, `(<(?i:` + fullName + `)>)[^<]+(</|$)`},
})

// kind is a shape that is not made yet.
type kind struct{ hints, needs, expression string }

// compiled are shapes that are made when they are needed.
func compiled(kinds []kind) func() []shape {
	return sync.OnceValue(func() (made []shape) {
		for _, k := range kinds {
			made = append(made, shape{strings.Fields(k.hints), k.needs, regexp.MustCompile(k.expression)})
		}
		return made
	})
}
