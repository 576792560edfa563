package userdata

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"
)

// prefixes are the beginnings by which cloud-init tells a type, the longer of
// two before the shorter one.
var prefixes = []struct{ prefix, contentType string }{
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"#cloud-config", "text/cloud-config"},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#include", "text/x-include-url"},
	{"#part-handler", "text/part-handler"},
	{"## template: jinja", "text/jinja2"},
	{"#!", "text/x-shellscript"},
}

// typeByPrefix is the type that the beginning of data stands for, or "". As in
// cloud-init, blanks before it and its case do not matter. Unlike there the
// word has to end: "#included by" is a comment.
func typeByPrefix(data []byte) string {
	data = bytes.TrimLeft(bytes.TrimPrefix(data, utf8BOM), blanks)
	for _, p := range prefixes {
		if len(data) < len(p.prefix) || !strings.EqualFold(string(data[:len(p.prefix)]), p.prefix) {
			continue
		}
		if rest := data[len(p.prefix):]; p.prefix == "#!" || len(rest) == 0 || !wordByte(rest[0]) {
			return p.contentType
		}
	}
	return ""
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// firstKey matches the first line of YAML and of a MIME header.
var firstKey = regexp.MustCompile(`^(?:"[^"\n]{1,200}"|'[^'\n]{1,200}'|[A-Za-z_][A-Za-z0-9_./-]{0,200}):(?:\s|$)`)

// recognisable reports whether data is gzip or text in a shape that user data
// has, or base64 of such a thing. It decides whether base64 is undone, so a
// word that decodes by chance must not pass.
func recognisable(data []byte, depth int) bool {
	if isGzip(data) {
		return true
	}
	if name := utf16Name(data); name != "" {
		decoded, bad := fromUTF16(data, name)
		if bad >= 0 {
			return false
		}
		data = decoded
	}
	data = bytes.TrimPrefix(data, utf8BOM)
	if !readable(data) {
		return false
	}
	start := bytes.Trim(data, blanks)
	if len(start) == 0 {
		return false
	}
	last := start[len(start)-1]
	switch {
	case typeByPrefix(start) != "", firstKey.Match(start):
		return true
	case start[0] == '#': // a comment has something below it
		return bytes.IndexByte(start, '\n') > 0
	case start[0] == '{':
		return last == '}' || jsonAfter(start[1:])
	case start[0] == '[':
		return last == ']' || jsonAfter(start[1:])
	case bytes.HasPrefix(start, []byte("---\n")), bytes.HasPrefix(start, []byte("---\r\n")), bytes.HasPrefix(start, []byte("%YAML ")):
		return true
	}
	if depth == 0 {
		return false
	}
	_, ok, _ := sniffBase64(data, depth-1)
	return ok
}

// jsonAfter reports whether an opening bracket is followed by what follows it
// in JSON.
func jsonAfter(data []byte) bool {
	data = bytes.TrimLeft(data, blanks)
	return len(data) > 0 && (data[0] == '"' || data[0] == '{')
}

// readable reports whether data is UTF-8 without control characters.
func readable(data []byte) bool {
	for _, c := range data {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(data)
}
