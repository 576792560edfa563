package userdata

import (
	"bytes"
	"mime"
	"regexp"
	"strconv"
	"strings"
)

// field is one field of a header; raw is its text after the colon, line breaks
// included.
type field struct {
	name string // in lower case
	raw  []byte
	line int
}

// value is the text in one line.
func (f field) value() string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(string(f.raw)))
}

// header is the fields in the order they stand.
type header []field

// get returns the first field of that name, as mail readers do; its zero value
// stands for none.
func (h header) get(name string) field {
	for _, f := range h {
		if f.name == name {
			return f
		}
	}
	return field{}
}

// isMessage reports whether a document with this at its start is a message.
// The first lines of YAML are a header in form, so it needs the fields too.
func (h header) isMessage() bool {
	return h.get("mime-version").name != "" || bytes.Contains(h.get("content-type").raw, []byte("/"))
}

const startColumn1 = "start every line of the header at the left margin; in Terraform, <<-EOT removes the indentation"

// indentedField is a field that its indentation makes part of the one above.
var indentedField = regexp.MustCompile(`(?i)^[ \t]+(?:mime-version|content-[a-z-]+)[ \t]*:`)

// readHeader reads the header off the start of t. A blank line ends it, or a
// line that begins with "--", as mail readers have it. The fields before an
// error are returned with it.
func readHeader(t text) (h header, body text, err error) {
	value := 0 // offset of the last field's value
	for offset, line := 0, t.line; offset < len(t.data); line++ {
		row, next := t.data[offset:], len(t.data)
		if n := bytes.IndexByte(row, '\n'); n >= 0 {
			row, next = row[:n], offset+n+1
		}
		if bytes.HasPrefix(row, []byte("--")) {
			next = offset
			line--
		}
		if len(bytes.Trim(row, blanks)) == 0 || next == offset {
			t.data, t.line = t.data[next:], line+1
			return h, t, nil
		}
		if next > maxHeader {
			return h, t, t.fault(t.line, "end the header with a blank line", "the header is longer than %d bytes", maxHeader)
		}
		colon := bytes.IndexByte(row, ':')
		indented := row[0] == ' ' || row[0] == '\t'
		switch {
		case indentedField.Match(row):
			return h, t, t.fault(line, startColumn1, "a field of the header is indented, which makes it part of the line above")
		case indented && len(h) > 0:
			h[len(h)-1].raw = t.data[value : offset+len(row)]
		case colon < 1 || !fieldName(row[:colon]):
			return h, t, noBlankLine(t.place, line)
		default:
			value = offset + colon + 1
			h = append(h, field{strings.ToLower(string(row[:colon])), row[colon+1:], line})
		}
		offset = next
	}
	return h, t.from(len(t.data)), nil
}

func noBlankLine(at place, line int) error {
	return at.fault(line, "write every field as Name: value, and a blank line between the header and the content", "the header does not end before this line, and this is no field of it")
}

func fieldName(name []byte) bool {
	return !bytes.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// swallowed finds content that became fields because the blank line before it
// is missing. "kind: x" could be a field of anyone; it is taken for content if
// nothing is left below, or if there is a key with its value on the next line.
func (h header) swallowed(body text) error {
	blank := len(bytes.TrimSpace(body.data)) == 0
	for _, f := range h {
		first, _, _ := bytes.Cut(f.raw, []byte("\n"))
		if !mailField(f.name) && (blank || len(bytes.TrimSpace(first)) == 0) {
			return noBlankLine(body.place, f.line)
		}
	}
	return nil
}

func mailField(name string) bool {
	switch name {
	case "mime-version", "from", "to", "cc", "subject", "date", "sender", "reply-to", "message-id",
		"number-attachments", "launch-index", "merge-type", "original-filename":
		return true
	}
	return strings.HasPrefix(name, "content-") || strings.HasPrefix(name, "x-")
}

// misplacedHeader finds a header that a blank line above it made content, and
// returns it with the error.
func misplacedHeader(h header, body text) (header, error) {
	start := body.from(len(body.data) - len(bytes.TrimLeft(body.data, blanks)))
	if len(h) == 0 && contentField.Match(start.data) {
		h, _, _ = readHeader(start)
		return h, start.fault(start.line, "remove the blank line between the boundary and the part's header", "the header of the part stands below a blank line, so it is content")
	}
	return h, nil
}

// contentField is the first line of the header of a part.
var contentField = regexp.MustCompile(`(?i)^(?:mime-version|content-(?:type|transfer-encoding|disposition)):`)

// contentType is what the Content-Type field says.
type contentType struct {
	declared string
	media    string // "" if there is no such field
	params   map[string]string
	at       place
	line     int
}

func (c contentType) multipart() bool { return strings.HasPrefix(c.media, "multipart/") }

// undecided reports whether the content decides on the type.
func (c contentType) undecided() bool {
	switch c.media {
	case "", "text/plain", "application/gzip", "application/gzip-compressed", "application/gzipped", "application/x-compress",
		"application/x-compressed", "application/x-gunzip", "application/x-gzip", "application/x-gzip-compressed":
		return true
	}
	return false
}

// bareBoundary is a boundary that should have quotes and has none, which mail
// readers accept.
var bareBoundary = regexp.MustCompile(`(?i)^\s*(multipart/[a-z0-9.+-]+)\s*;(?:.*;)?\s*boundary=([^\s";]+)\s*(?:;.*)?$`)

func (h header) contentType(at place) (contentType, error) {
	f := h.get("content-type")
	if f.name == "" {
		return contentType{}, nil
	}
	value := f.value()
	c := contentType{declared: value, at: at, line: f.line}
	media, params, err := mime.ParseMediaType(value)
	if m := bareBoundary.FindStringSubmatch(value); err != nil && m != nil {
		media, params, err = strings.ToLower(m[1]), map[string]string{"boundary": m[2]}, nil
	}
	if err != nil || !strings.Contains(media, "/") {
		remedy := `write Content-Type: TYPE/SUBTYPE, with quotes around the values of parameters: text/plain; charset="utf-8"`
		if strings.HasPrefix(strings.ToLower(value), "multipart/") {
			remedy = boundaryRemedy
		}
		return c, at.fault(f.line, remedy, "Content-Type %s is malformed", quote(value))
	}
	c.declared, c.media, c.params = media, media, params
	return c, nil
}

func (h header) filename(typ contentType) string {
	_, params, err := mime.ParseMediaType(h.get("content-disposition").value())
	if err == nil && params["filename"] != "" {
		return params["filename"]
	}
	return typ.params["name"]
}

// quote quotes what somebody wrote, short enough for an error.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
