package userdata

import (
	"bytes"
	"fmt"
	"strings"
)

const boundaryRemedy = `write Content-Type: multipart/mixed; boundary="BOUNDARY"`

// stray is a line that looks as if it should have been a boundary.
type stray struct {
	line int
	text string
}

func (s stray) String() string {
	if s.line == 0 {
		return ""
	}
	return fmt.Sprintf("; line %d has %s", s.line, quote(s.text))
}

// split cuts the body of a multipart at its boundaries. Library readers forgive
// what is not closed and skip what is outside; both lose parts in silence.
func (p *parser) split(typ contentType, body text) ([]text, error) {
	boundary := strings.TrimRight(typ.params["boundary"], " \t")
	if boundary == "" {
		return nil, typ.at.fault(typ.line, boundaryRemedy, "%s has no boundary", typ.media)
	}
	opening, closing := "--"+boundary, "--"+boundary+"--"
	remedy := fmt.Sprintf("begin every part with the line %s and end the message with %s", opening, closing)

	trimmed := bytes.ToLower(bytes.Trim([]byte(boundary), decoration))

	var sections []text
	var dashed, inside stray // the first line of dashes before a part, the last near miss inside one
	var outside stray        // the first line outside of the parts that looks like a boundary
	start, closed := -1, 0   // offset at which the current section begins, line of the closing boundary
	number := body.line
	cut := func(end int) {
		section := body
		section.data = body.data[start:end]
		section.line = sections[len(sections)-1].line
		sections[len(sections)-1] = section
	}
	for offset := 0; offset < len(body.data); number++ {
		next := len(body.data)
		if n := bytes.IndexByte(body.data[offset:], '\n'); n >= 0 {
			next = offset + n + 1
		}
		line := bytes.TrimRight(body.data[offset:next], blanks)
		isOpening, isClosing := string(line) == opening, string(line) == closing
		switch {
		case isOpening && closed > 0:
			return nil, body.fault(number, fmt.Sprintf("put %s behind the last part and nowhere else", closing), "a part begins after the end of the message, which is at line %d", closed)
		case isOpening:
			if start >= 0 {
				cut(offset)
			}
			if p.sections++; p.sections > maxParts {
				return nil, body.fault(number, "use fewer parts", "there are more than %d parts", maxParts)
			}
			sections = append(sections, text{line: number + 1})
			start, inside = next, stray{}
		case isClosing && closed == 0:
			if start < 0 {
				return nil, body.fault(number, remedy, "the message ends before its first part%s", first(outside, dashed))
			}
			cut(offset)
			closed = number
		case isClosing: // once more: nothing is lost
		case start >= 0 && closed == 0:
			if nearly(line, trimmed) {
				inside = stray{number, string(line)}
			}
		default:
			if outside.line == 0 && (nearly(line, trimmed) || dashes(line) && contentField.Match(body.data[next:])) {
				outside = stray{number, string(line)}
			}
			if dashed.line == 0 && dashes(line) {
				dashed = stray{number, string(line)}
			}
		}
		offset = next
	}
	switch {
	case start < 0:
		return nil, typ.at.fault(typ.line, remedy, "the boundary %s begins no part%s", quote(boundary), first(outside, dashed))
	case closed == 0:
		return nil, body.fault(body.lastLine(), fmt.Sprintf("the message must end with %s", closing), "the message ends without its closing boundary: it is cut short or the line is missing%s", inside)
	case outside.line > 0:
		return nil, body.fault(outside.line, remedy, "%s stands outside of the parts and is not the boundary %s, so what follows it would be lost", quote(outside.text), quote(opening))
	}
	return sections, nil
}

func first(a, b stray) stray {
	if a.line > 0 {
		return a
	}
	return b
}

// dashes reports whether a line can be meant as a boundary of some kind. YAML
// and PEM have lines of three and five dashes.
func dashes(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) > 2 && bytes.HasPrefix(line, []byte("--")) && line[2] != '-'
}

// decoration is what people put around a boundary, or leave out.
const decoration = "-\"' \t;:"

// nearly reports whether a line is a boundary but for its decoration, case, or
// up to two characters in one place. want is the boundary in lower case without
// decoration.
func nearly(line, want []byte) bool {
	got := bytes.Trim(line, decoration)
	if len(got) == 0 || len(want) == 0 || max(len(got), len(want)) > min(len(got), len(want))+2 {
		return false
	}
	if bytes.EqualFold(got, want) {
		return true
	}
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("--")) {
		return false
	}
	got = bytes.ToLower(got)
	shorter, longer := min(len(got), len(want)), max(len(got), len(want))
	prefix, suffix := 0, 0
	for prefix < shorter && got[prefix] == want[prefix] {
		prefix++
	}
	for suffix < shorter-prefix && got[len(got)-1-suffix] == want[len(want)-1-suffix] {
		suffix++
	}
	// Of a short boundary two characters are all there is.
	return longer-prefix-suffix <= min(2, shorter/3)
}

// lostMessage finds a document that is meant as a message and is none, because
// a comment or nothing at all stands where the header should. Every reader
// takes that for plain text and sees no parts.
func lostMessage(t text) error {
	if typeByPrefix(t.data) != "" {
		return nil
	}
	line, below, _ := bytes.Cut(t.data, []byte("\n"))
	if dashes(line) && contentField.Match(below) {
		return t.fault(t.line, boundaryRemedy+" and a blank line before the first part", "a part begins here, but the header of the message is missing")
	}
	rest := t
	for bytes.HasPrefix(rest.data, []byte("#")) {
		n := bytes.IndexByte(rest.data, '\n')
		if n < 0 {
			return nil
		}
		n += len(rest.data[n:]) - len(bytes.TrimLeft(rest.data[n:], blanks))
		rest = rest.from(n)
	}
	if rest.line == t.line || !contentField.Match(rest.data) {
		return nil
	}
	if h, _, _ := readHeader(rest); h.isMessage() {
		return t.fault(t.line, "remove what stands above the header of the message", "a comment stands before the MIME header, so cloud-init would find no parts")
	}
	return nil
}

// trimLineBreak removes the line break that belongs to the boundary below.
func trimLineBreak(data []byte) []byte {
	if bytes.HasSuffix(data, []byte("\r\n")) {
		return data[:len(data)-2]
	}
	return bytes.TrimSuffix(data, []byte("\n"))
}
