package support

import (
	"regexp"
	"sync"
)

// secretName is the end of a name of what is secret; nameHints are in each.
const secretName = `(?:passw(?:or)?d|passwort|passphrase|secret|token|(?:api|access|private|licen[cs]e|activation|encryption|signing|auth)[_-]?key|key-data|credentials?|dockerconfigjson|psk\b|pwd\b|pass\b)[A-Za-z0-9_.-]*`

var nameHints = []string{"pass", "pwd", "psk", "secret", "token", "key", "credential", "dockerconfigjson"}

const (
	fullName = `[A-Za-z0-9_.-]*` + secretName
	named    = `(?i:` + secretName + `\\*["']?\s*[=:]\s*)`
	inWord   = `(?:[^\s"'\\]|\\[^\s"'\\nrt])` // of a shell, or of an escaped string
	inQuote  = `(?:[^"\\]|\\.)`
	word     = `(?:"` + inQuote + `*"|'[^']*'|[^\s"'\\|;&]+)`
	// What comes after a name: to the closing quote, or to the end of the line.
	value    = `(?:"` + inQuote + `*"|'[^'\n]*'|\\+"[^"\\]*\\+"|[^\s"'\\][^\n]*)`
	keyBegin = `-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`
	keyEnd   = `-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`
	// A line of a private key, which a log may have put a prefix to.
	keyLine   = `(?:[^\n]*[A-Za-z0-9+/]{16,}={0,2}[^A-Za-z0-9\n]{0,4}|[ \t]*[A-Za-z0-9+/=]{8,}\r?)`
	keyHeader = `(?:[^\n]*(?:Proc-Type|DEK-Info|Version|Comment|Hash): [^\n]*|[^\n]*\[REDACTED\]|[^\n]*[:\]][ \t]*\r?|[ \t]*\r?)`
)

// blocks are shapes of more than one line.
var blocks = sync.OnceValue(func() []shape {
	return []shape{
		// Private keys: in one line with \n in it, on lines of their own, and cut off at
		// either end. Without an end it goes as far as lines look like a key.
		of(`(`+keyBegin+`)[^\n]*?(`+keyEnd+`)`, "private key"),
		of(`(`+keyBegin+`)[^\n]*\n(?:(?:`+keyLine+`|`+keyHeader+`)\n)*(?:[^\n]*\n){0,2}?[^\n]*?(`+keyEnd+`)`, "private key"),
		of(`(?m)(`+keyBegin+`)(?:[ \tA-Za-z0-9+/=\r]|\\+[nr])*(?:\n(?:`+keyHeader+`\n)*`+keyLine+`$)*()`, "private key"),
		of(`(?m)()(?:^`+keyLine+`\n)+(?:[^\n]*[A-Za-z0-9+/=]\r?\n)?(^(?:[^\n-]|-{1,4}[^\n-])*`+keyEnd+`)`, "private key"),
		of(`()[A-Za-z0-9+/=]{16,}(?:\\+n[A-Za-z0-9+/=]+)*(?:\\+n)+(`+keyEnd+`)`, "private key"),
		// A block or a list of YAML under such a name, and a list of JSON.
		of(`((?i:`+secretName+`["']?:[ \t]*[|>][0-9+-]*[ \t]*\n))(?:[ \t]+[^\n]*(?:\n|\z))+()`, nameHints...),
		of(`((?i:`+secretName+`["']?:[ \t]*\n))(?:[ \t]*-[ \t][^\n]*(?:\n|\z))+()`, nameHints...),
		of(`((?i:`+secretName+`\\*["']?\s*[=:]\s*\[))[^\[\]{}]+(\])`, nameHints...),
		// A variable of a container, and of a program that kubectl runs.
		of(`((?i:\bname\\*["']?\s*[:=]\s*\\*["']?`+fullName+`\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*[:=][ \t]*))`+value+`()`, "value"),
		// A parameter of AWS Systems Manager.
		of(`("Type"\s*:\s*"SecureString"[^{}]*?"Value"\s*:\s*")`+inQuote+`*(")`, "securestring"),
		of(`("Value"\s*:\s*")`+inQuote+`*("[^{}]*?"Type"\s*:\s*"SecureString")`, "securestring"),
		// The headers that containerd sends to a registry.
		of(`(?m)(^[ \t]*\[[^\n]*\bheaders?\][ \t]*\n)(?:[ \t]*(?:[^\s\[][^\n]*)?(?:\n|\z))+()`, "header"),
		// What a shell that traces says of echo PASSWORD | docker login; in either order.
		of(`(\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)`+word+`([^\n]*\n[^\n]*--(?:password-)?stdin)`, "stdin"),
		of(`(--(?:password-)?stdin[^\n]*\n[^\n]*\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)`+word+`()`, "stdin"),
		// A .netrc.
		of(`(\b(?:machine|login)\s+\S+\s+(?:login\s+\S+\s+)?password\s+)[^\s\[]\S*()`, "machine", "login"),
	}
})

// shapes are those of one line.
var shapes = sync.OnceValue(func() []shape {
	return []shape{
		// User and password in a URL, which may hold slashes and at signs; escaped, too.
		of(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@:]+:[^\s"']*(@)`, "://"),
		of(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'/@]+(@)`, "://"),
		of(`(?i)(%3A%2F%2F)[^\s"'&]+?(%40)`, "%3a%2f%2f"),
		of(`((?i:proxy)[A-Za-z_]*\\*["']?\s*[=:]\s*\\*["']?)[^\s"'@/]+:[^\s"']*(@)`, "proxy"),
		// Tokens of known kinds.
		of(`(k8s-aws-v1\.)[A-Za-z0-9_-]+()`, "k8s-aws-v1."),
		of(`((?i:X-Amz-(?:Signature|Security-Token|Credential))(?:=|%3D))[^&\s"']+()`, "x-amz-"),
		of(`(Signature=)[0-9a-fA-F]{16,}()`, "signature="),
		of(`((?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}()`, "bearer", "basic"),
		of(`((?i:authorization\\*["']?\s*[:=]\s*\[?\\*["']?(?:token|apikey|key|digest|negotiate)[ \t]+))[^\s"'\\\[]+()`, "authorization"),
		of(`((?i:authorization\\*["']?\s*[:=]\s*\[?\\*["']?))[A-Za-z0-9._~+/=-]{17,}()`, "authorization"),
		of(`(\beyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+()`, "eyj"),
		of(`(\beyJ)[A-Za-z0-9+/=_-]{97,}()`, "eyj"),
		of(`(\b(?:gh[pousr]_|github_pat_|xox[abeoprs]-|gl[a-z]{2,5}-|hv[bsr]\.|AIza|SG\.))[A-Za-z0-9_.-]{16,}()`, "gh", "xox", "gl", "hv", "aiza", "sg."),
		of(`(\b(?:xox[abeoprs]-|glpat-|glrt-|hvs\.))[A-Za-z0-9_.-]{8,}()`, "xox", "gl", "hvs."),
		of(`(hooks\.slack\.com/services/)[A-Za-z0-9/]+()`, "hooks.slack.com"),
		// NAME: "value", "NAME":"value", also escaped within a string: to the quote, or to
		// the end of a line that was cut off.
		of(`(`+named+`\$?")`+inQuote+`+("|$)`, nameHints...).with(`"`),
		of(`(`+named+`\\")(?:\\{3}"|\\\\|[^"\\])+(\\"|$)`, nameHints...).with(`\"`),
		of(`(`+named+`\\{2,}")[^"\\]+(\\+"|$)`, nameHints...).with(`\\"`),
		of(`(`+named+`\$')(?:[^'\\]|\\.)+('|$)`, nameHints...).with(`$'`),
		of(`(`+named+`')(?:[^']|''|'\\'')+('|$)`, nameHints...).with(`'`),
		// "NAME=value"
		of(`((?:^|[^\\])"(?i:`+fullName+`=))`+inQuote+`+("|$)`, nameHints...).with(`"`),
		of(`(\\+"(?i:`+fullName+`=))[^"\\]+(\\+"|$)`, nameHints...).with(`\"`),
		of(`('(?i:`+fullName+`=))(?:[^']|'\\'')+('|$)`, nameHints...).with(`'`),
		// YAML: to the end of the line.
		of(`(^[ \t]*(?:-[ \t]+)?(?i:["']?`+fullName+`["']?:[ \t]+))[^\s"'\\{\[|>].*()`, nameHints...),
		// NAME=value and NAME: value: to the next space.
		of(`((?i:`+secretName+`["']?\s*[=:][ \t]*))[^\s"'\\{\[|>]`+inWord+`*()`, nameHints...),
		of(`(<(?i:`+fullName+`)>)[^<]+(</|$)`, nameHints...).with(`<`),
		// Flags, and what takes a value as the next word.
		of(`((?i:--[A-Za-z0-9-]*(?:`+secretName+`|user)[A-Za-z0-9-]*[ \t]+["']?))[^\s"'-][^\s"']*()`, append(nameHints, "user")...).with("--"),
		of(`((?i:\b(?:aws_)?(?:secret_access_key|session_token)[ \t]+["']?))[^\s"'=:]+()`, "secret_access_key", "session_token"),
		of(`(\s-u[ \t]*["']?[^\s"':]+:)[^\s"']+()`, "-u"),
		of(`(\b(?:login|sshpass)\b.*?\s-p[ \t=]*)`+word+`()`, "login", "sshpass"),
		of(`(\b(?:mysql|mariadb)[a-z-]*\s(?:.*?\s)?-p)`+word+`()`, "mysql", "mariadb"),
		of(`(\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|'?%s(?:\\n)?'?[ \t]+)*)`+word+`([^|]*\|.*--(?:password-)?stdin)`, "stdin"),
		// Logins of registries, in JSON and TOML, and headers for them.
		of(`(\bauth\\*"?\s*[:=]\s*\\*")[^"\\]+(\\*")`, "auth"),
		of(`(\bauth\s*=\s*')[^']+(')`, "auth"),
		of(`((?i:\bX-[A-Z0-9-]*(?:auth|token|key|secret)[A-Z0-9-]*["']?\s*[:=]\s*\[?\s*["']?))[^\s"'\[\]]+()`, "x-"),
		of(`(\bheaders?\s*=\s*\{)[^}]*(\})`, "header"),
	}
})

func of(expression string, hints ...string) shape {
	return shape{hints: hints, Regexp: regexp.MustCompile(expression)}
}

// with is the shape, of which it is known that it is not without a text.
func (s shape) with(text string) shape {
	s.needs = text
	return s
}
