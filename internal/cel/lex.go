package cel

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEOF    tokenKind = iota
	tokenSymbol           // an operator or a bracket, and the word in
	tokenIdent
	tokenInt
	tokenUint
	tokenDouble
	tokenString // text is what the literal stands for
)

type token struct {
	kind   tokenKind
	offset int
	text   string
}

// String is the token as an error message names it.
func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "the end of the expression"
	case tokenString:
		return "a string"
	}
	return "'" + t.text + "'"
}

type lexer struct {
	src string
	pos int
}

func (l *lexer) next() (token, error) {
	l.skipSpace()
	start, rest := l.pos, l.src[l.pos:]
	if rest == "" {
		return token{tokenEOF, start, ""}, nil
	}
	take := func(kind tokenKind, n int) (token, error) {
		l.pos += n
		return token{kind, start, rest[:n]}, nil
	}
	switch c := rest[0]; {
	case isDigit(c), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return take(number(rest))
	case isLetter(c):
		n := 1
		for n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n])) {
			n++
		}
		word := strings.ToLower(rest[:n])
		if n < len(rest) && (rest[n] == '"' || rest[n] == '\'') {
			switch word {
			case "r":
				return l.str(n)
			case "b", "br":
				return token{}, errorAt(start, "bytes are not supported")
			}
		}
		if rest[:n] == "in" {
			return take(tokenSymbol, n)
		}
		return take(tokenIdent, n)
	case c == '"' || c == '\'':
		return l.str(0)
	}
	if len(rest) > 1 {
		switch rest[:2] {
		case "==", "!=", "<=", ">=", "&&", "||":
			return take(tokenSymbol, 2)
		}
	}
	if strings.IndexByte("<>+-*/%!?:.,()[]{}", rest[0]) >= 0 {
		return take(tokenSymbol, 1)
	}
	switch rest[0] {
	case '=':
		return token{}, errorAt(start, "'=' is not an operator: write == to compare")
	case '&', '|':
		return token{}, errorAt(start, "'%c' is not an operator: write %c%c", rest[0], rest[0], rest[0])
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return token{}, errorAt(start, "unexpected character %q", r)
}

func (l *lexer) skipSpace() {
	for l.pos < len(l.src) {
		switch l.src[l.pos] {
		case ' ', '\t', '\r', '\n', '\f':
			l.pos++
		case '/':
			if !strings.HasPrefix(l.src[l.pos:], "//") {
				return
			}
			end := strings.IndexByte(l.src[l.pos:], '\n')
			if end < 0 {
				end = len(l.src) - l.pos
			}
			l.pos += end
		default:
			return
		}
	}
}

// number returns the kind and the length of the longest number s starts with.
func number(s string) (tokenKind, int) {
	kind, n := tokenInt, 0
	if len(s) > 2 && s[:2] == "0x" && isHex(s[2]) {
		for n = 3; n < len(s) && isHex(s[n]); n++ {
		}
	} else {
		n = digits(s, 0)
		if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
			kind, n = tokenDouble, digits(s, n+1)
		}
		if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
			m := n + 1
			if m < len(s) && (s[m] == '+' || s[m] == '-') {
				m++
			}
			if m < len(s) && isDigit(s[m]) {
				kind, n = tokenDouble, digits(s, m)
			}
		}
	}
	if kind == tokenInt && n < len(s) && (s[n] == 'u' || s[n] == 'U') {
		kind, n = tokenUint, n+1
	}
	return kind, n
}

func digits(s string, n int) int {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// str reads a string literal whose opening quote is prefix bytes ahead; a
// prefix makes the string raw.
func (l *lexer) str(prefix int) (token, error) {
	start := l.pos
	l.pos += prefix
	quote := l.src[l.pos : l.pos+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(l.src[l.pos:], triple) {
		quote = triple
	}
	l.pos += len(quote)
	var b strings.Builder
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch c := rest[0]; {
		case strings.HasPrefix(rest, quote):
			l.pos += len(quote)
			return token{tokenString, start, b.String()}, nil
		case len(quote) == 1 && (c == '\n' || c == '\r'):
			return token{}, errorAt(start, "the string does not end on its line")
		case c == '\r':
			// A multi-line string has the same value whatever ends its lines.
			b.WriteByte('\n')
			l.pos++
			if strings.HasPrefix(rest, "\r\n") {
				l.pos++
			}
		case c == '\\' && prefix == 0:
			if err := l.escape(&b); err != nil {
				return token{}, err
			}
		default:
			b.WriteByte(c)
			l.pos++
		}
	}
	return token{}, errorAt(start, "the string does not end")
}

func (l *lexer) escape(b *strings.Builder) error {
	start, rest := l.pos, l.src[l.pos+1:]
	if rest == "" {
		return errorAt(start, "the string does not end")
	}
	c := rest[0]
	if i := strings.IndexByte("abfnrtv\"'\\?`", c); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\"'\\?`"[i])
		l.pos += 2
		return nil
	}
	skip, length, base := 1, 0, 16
	switch c {
	case 'x', 'X':
		length = 2
	case 'u':
		length = 4
	case 'U':
		length = 8
	case '0', '1', '2', '3':
		skip, length, base = 0, 3, 8
	}
	if length > 0 && len(rest) >= skip+length {
		n, err := strconv.ParseUint(rest[skip:skip+length], base, 32)
		if err == nil && n <= utf8.MaxRune && utf8.ValidRune(rune(n)) {
			b.WriteRune(rune(n))
			l.pos += 1 + skip + length
			return nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return errorAt(start, "the string has an invalid escape sequence \\%c", r)
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
func isHex(c byte) bool    { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
