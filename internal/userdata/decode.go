package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"mime/quotedprintable"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	encBase64          = "base64"
	encGzip            = "gzip"
	encQuotedPrintable = "quoted-printable"
	encUTF16LE         = "utf-16le"
	encUTF16BE         = "utf-16be"
)

const blanks = " \t\r\n"

var utf8BOM = []byte("\xef\xbb\xbf")

// unwrap undoes what can be recognised from the bytes alone, one layer after
// the other. done layers have been undone around the same content before.
func (p *parser) unwrap(t text, done int) (text, error) {
	for ; ; done++ {
		data, name, err := p.undo(t)
		if err != nil || name == "" {
			return t, err
		}
		if done == maxLayers {
			return t, t.fault(t.line, "encode it once, or not at all", "there are more than %d encodings around each other (%s, then %s again)",
				maxLayers, strings.Join(t.encodings, ", "), name)
		}
		t = t.decoded(name, data)
	}
}

// decoded is what t becomes without the encoding of that name. UTF-16 keeps
// the lines as they are; of the others only the new text has lines.
func (t text) decoded(name string, data []byte) text {
	t.encodings = append(slices.Clip(t.encodings), name)
	t.data = data
	if name != encUTF16LE && name != encUTF16BE {
		t.part, t.line, t.exact = t.index, 1, false
	}
	return t
}

// undo undoes one encoding and names it; name is "" if there is none.
func (p *parser) undo(t text) (data []byte, name string, err error) {
	if isGzip(t.data) {
		data, err := p.gunzip(t)
		return data, encGzip, err
	}
	if name := utf16Name(t.data); name != "" {
		data, bad := fromUTF16(t.data, name)
		if bad >= 0 {
			return nil, "", t.fault(t.lineAt(min(bad, len(t.data))), "save it as UTF-8", "the text is not valid %s", name)
		}
		return data, name, nil
	}
	data, ok, bad := sniffBase64(t.data, maxLayers)
	switch {
	case !ok:
		return nil, "", nil
	case bad >= 0:
		return nil, "", t.fault(t.lineAt(bad), "encode it again with the standard alphabet, and keep all of it", "the base64 is damaged or cut short here")
	}
	return data, encBase64, nil
}

func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }

// gunzip unpacks as much as the limits allow. Blanks and zeros may follow, as
// they do after a shell or a tape has handled the data.
func (p *parser) gunzip(t text) ([]byte, error) {
	const remedy = "compress it again, and keep all of it"
	limit := min(maxGunzip, p.unpackable)
	source := bytes.NewReader(t.data)
	z, err := gzip.NewReader(source)
	if err != nil {
		return nil, t.fault(t.line, remedy, "the gzip data is damaged: %w", err)
	}
	var out bytes.Buffer
	// What failed counts too: a thousand bombs take as long as one.
	defer func() { p.unpackable = max(0, p.unpackable-out.Len()) }()
	for members := 1; ; members++ {
		z.Multistream(false)
		_, err := io.Copy(&out, io.LimitReader(z, int64(limit-out.Len()+1)))
		switch {
		case out.Len() > limit:
			return nil, t.fault(t.line, "make it smaller; EC2 itself takes 16 KiB", "the gzip data becomes more than the %d bytes allowed here", limit)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, t.fault(t.line, remedy, "the gzip data is cut short")
		case err != nil:
			return nil, t.fault(t.line, remedy, "the gzip data is damaged: %w", err)
		}
		rest := t.data[len(t.data)-source.Len():]
		if len(bytes.TrimLeft(rest, blanks+"\x00")) == 0 {
			return out.Bytes(), nil
		}
		if members == maxMembers {
			return nil, t.fault(t.line, remedy, "the gzip data has more than %d members", maxMembers)
		}
		if err := z.Reset(source); err != nil {
			return nil, t.fault(t.line, remedy, "something other than gzip follows the gzip data")
		}
	}
}

// utf16Name tells UTF-16 by its byte order mark, or by two ASCII characters at
// the start: PowerShell's Unicode encoding writes no mark.
func utf16Name(data []byte) string {
	ascii := func(i int) bool { return data[i] >= ' ' && data[i] < 0x7f || strings.IndexByte(blanks, data[i]) >= 0 }
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		return encUTF16LE
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return encUTF16BE
	case len(data) < 4:
		return ""
	case ascii(0) && data[1] == 0 && ascii(2) && data[3] == 0:
		return encUTF16LE
	case data[0] == 0 && ascii(1) && data[2] == 0 && ascii(3):
		return encUTF16BE
	}
	return ""
}

// fromUTF16 turns data into UTF-8 without a byte order mark. bad is the offset
// of what is no UTF-16, or -1.
func fromUTF16(data []byte, name string) (out []byte, bad int) {
	low, high := 0, 1
	if name == encUTF16BE {
		low, high = 1, 0
	}
	unit := func(i int) rune { return rune(data[i+low]) | rune(data[i+high])<<8 }
	if len(data)%2 != 0 {
		return nil, len(data)
	}
	out = make([]byte, 0, len(data)/2)
	for i := 0; i < len(data); i += 2 {
		r := unit(i)
		if i == 0 && r == 0xfeff {
			continue
		}
		if utf16.IsSurrogate(r) {
			if i+4 > len(data) {
				return nil, i
			}
			if r = utf16.DecodeRune(r, unit(i+2)); r == utf8.RuneError {
				return nil, i
			}
			i += 2
		}
		out = utf8.AppendRune(out, r)
	}
	return out, -1
}

// minDamaged is how many base64 characters have to stand at the start of a
// text before it counts as damaged base64 and not as something else.
const minDamaged = 32

// sniffBase64 decodes data if it is base64 of something recognisable, looking
// through depth further layers of base64. If it clearly was that and something
// broke it, bad is the offset of the break; else bad is -1.
func sniffBase64(data []byte, depth int) (out []byte, ok bool, bad int) {
	bare := bytes.TrimPrefix(data, utf8BOM)
	run, bad := base64Run(bare)
	if bad >= 0 {
		bad += len(data) - len(bare)
		if len(run) < minDamaged {
			return nil, false, -1
		}
		run = run[:len(run)/4*4]
	}
	out, err := base64.RawStdEncoding.DecodeString(string(run))
	if err != nil || len(out) == 0 {
		return nil, false, -1
	}
	if bad >= 0 { // the break may go through a character
		for n := 1; n < utf8.UTFMax && !utf8.Valid(out); n++ {
			out = out[:len(out)-1]
		}
	}
	return out, recognisable(out, depth), bad
}

// base64Run returns the base64 characters of data without blanks and padding.
// bad is the offset of the first byte that cannot be there, or -1; what is one
// character too long or too short is bad at the end.
func base64Run(data []byte) (run []byte, bad int) {
	padding := 0
	for i, c := range data {
		switch {
		case strings.IndexByte(blanks, c) >= 0:
		case c == '=' && padding < 2 && len(run) > 0:
			padding++
		case padding == 0 && (c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'):
			run = append(run, c)
		default:
			return run, i
		}
	}
	if len(run)%4 == 1 {
		return run, len(data)
	}
	return run, -1
}

// untransfer undoes the Content-Transfer-Encoding, which is the word of the
// header: what does not follow it is an error.
func untransfer(h header, body text) (text, error) {
	f := h.get("content-transfer-encoding")
	switch name := strings.ToLower(f.value()); name {
	case "", "7bit", "8bit", "binary":
		return body, nil
	case encBase64:
		run, bad := base64Run(body.data)
		if bad >= 0 {
			return body, body.fault(body.lineAt(bad), "encode the part again, or remove its Content-Transfer-Encoding", "this is not base64, which the part's Content-Transfer-Encoding says it is")
		}
		data, err := base64.RawStdEncoding.DecodeString(string(run))
		if err != nil {
			return body, body.fault(body.line, "encode the part again", "the part is not base64: %w", err)
		}
		return body.decoded(name, data), nil
	case encQuotedPrintable:
		if bad := badEscape(body.data); bad >= 0 {
			return body, body.fault(body.lineAt(bad), "encode the part again, or remove its Content-Transfer-Encoding; a = itself is written =3D", "this is not quoted-printable, which the part's Content-Transfer-Encoding says it is")
		}
		data, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(body.data)))
		if err != nil {
			return body, body.fault(body.line, "encode the part again", "the part is not quoted-printable: %w", err)
		}
		return body.decoded(name, data), nil
	default:
		return body, body.fault(f.line, "write base64, quoted-printable, 7bit, 8bit or binary", "Content-Transfer-Encoding %s is unknown", quote(name))
	}
}

// escape is what may stand from an equals sign on in quoted-printable.
var escape = regexp.MustCompile(`^=(?:[0-9A-Fa-f]{2}|[ \t]*(?:\r?\n|$))`)

// badEscape is the offset of an equals sign that escapes nothing, or -1. The
// library leaves these as they are, and so would mangle a script in silence
// whose transfer encoding is not the one declared.
func badEscape(data []byte) int {
	for offset := 0; ; offset++ {
		n := bytes.IndexByte(data[offset:], '=')
		if n < 0 {
			return -1
		}
		if offset += n; !escape.Match(data[offset:]) {
			return offset
		}
	}
}

// normalise brings text into the form that Part.Data promises. It copies, so
// that parts do not change with the caller's bytes.
func normalise(data []byte) []byte {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return bytes.Clone(data)
	}
	return bytes.ReplaceAll(bytes.TrimPrefix(data, utf8BOM), []byte("\r\n"), []byte("\n"))
}
