// Package userdata takes EC2 user data apart into the parts that cloud-init
// would see, whatever they are wrapped in: base64, gzip, UTF-16, MIME, or
// several of these. Its one idea is that nothing gets lost in silence: what
// cannot be read is an error of the document, or the Problem of one part, with
// the line it stands at and what to write instead. It does not know what the
// parts mean.
package userdata

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// The limits keep a hostile or broken document from taking the machine's
// memory. Those of EC2 are far below: 16 KiB before the document is unpacked.
const (
	maxInput    = 16 << 20 // bytes of a document
	maxGunzip   = 8 << 20  // bytes that one gzip stream becomes
	maxUnpacked = 32 << 20 // bytes that all gzip streams of a document become
	maxMembers  = 1000     // gzip members of one stream
	maxLayers   = 4        // encodings around a document, and around each part
	maxDepth    = 8        // multiparts inside each other
	maxParts    = 1000
	maxHeader   = 64 << 10 // bytes of the header of a message or part
)

// Part is one document inside user data. A part with a Problem has no Data.
type Part struct {
	// Index is the place in the document: "1", "2", and "2.1" for the first
	// part of a multipart that is itself the second part.
	Index string

	// ContentType is the media type in lower case, without parameters. As in
	// cloud-init, text/plain gives way to the type that the first characters
	// stand for, such as "#!" for text/x-shellscript; so do a missing type and
	// the types of gzip. It is "" if nothing tells the type.
	ContentType string

	// Declared is the media type that the header has, or its whole text where
	// that is no media type. It is "" without such a header.
	Declared string

	Filename string // of Content-Disposition, or the name of Content-Type

	// Encodings are what was undone, outermost first, those of the whole
	// document included: base64, gzip, quoted-printable, utf-16le, utf-16be.
	Encodings []string

	// Data is what was inside. Of text, which is valid UTF-8 without NUL, a
	// byte order mark is removed and CRLF becomes LF, since YAML and shells
	// both want that. Anything else is left alone. In MIME the line break
	// before a boundary belongs to the boundary.
	Data []byte
	Size int // of Data, in bytes

	// Line is the line of the source, from 1, at which the first line of Data
	// stands. It is 0 where Data was unpacked from base64, gzip or
	// quoted-printable, because its lines are none of the source.
	Line int

	Problem error // why this part could not be read
}

// Parse takes data apart. source names the document in errors, all of which
// are usage faults with a remedy. A document that is empty or blank has no
// parts, and that is no error.
//
// Around the document, and again around each part, up to four encodings are
// undone: gzip and UTF-16 by their first bytes, base64 only where all of the
// text is base64 and becomes gzip or text that looks like user data. The word
// "test" is valid base64 and stays what it is.
//
// The document is a message if it begins with a MIME header; blank lines and
// blanks before that, which here-documents leave behind, do not matter.
// Everything else is a single part. A line that begins with "--" ends a
// header, as a blank line does.
//
// The structure of a message has to be right: a boundary that is missing,
// mistyped or not closed is an error of the document, in a nested multipart
// too. What is wrong in the header or the encoding of one part is the Problem
// of that part.
func Parse(data []byte, source string) ([]Part, error) {
	at := place{source: source, exact: true}
	if len(data) > maxInput {
		return nil, at.fault(0, "make it smaller; EC2 itself takes 16 KiB", "%d bytes are more than the %d that a document may have", len(data), maxInput)
	}
	p := parser{unpackable: maxUnpacked}
	if err := p.document(text{place: at, data: data, line: 1}); err != nil {
		return nil, err
	}
	return p.parts, nil
}

// parser collects the parts and keeps what the limits count.
type parser struct {
	parts      []Part
	sections   int // sections of multiparts so far, containers included
	unpackable int // bytes that gzip may still yield
}

func (p *parser) document(t text) error {
	t, err := p.unwrap(t, 0)
	if err != nil {
		return err
	}
	t.data = bytes.TrimPrefix(t.data, utf8BOM)
	start := t.from(len(t.data) - len(bytes.TrimLeft(t.data, blanks)))
	if len(start.data) == 0 {
		return nil
	}
	if h, body, err := readHeader(start); h.isMessage() {
		if err != nil {
			return err
		}
		return p.entity(h, body, "", 0)
	}
	if err := lostMessage(start); err != nil {
		return err
	}
	p.add(Part{Index: "1", ContentType: typeByPrefix(t.data)}, t)
	return nil
}

// entity handles a message or a part of one: what has a header. The index of
// the message itself is "".
func (p *parser) entity(h header, body text, index string, depth int) error {
	part := Part{Index: index, Encodings: body.encodings}
	spoil := func(err error) error {
		if index == "" {
			return err // without the message there are no parts
		}
		part.Problem = err
		p.parts = append(p.parts, part)
		return nil
	}
	typ, err := h.contentType(body.place)
	part.Declared, part.ContentType, part.Filename = typ.declared, typ.media, h.filename(typ)
	if err != nil {
		return spoil(err)
	}
	body.index = index
	content, err := untransfer(h, body)
	if err != nil {
		return spoil(err)
	}
	if typ.multipart() {
		return p.multipart(typ, content, index, depth+1)
	}
	if err := h.swallowed(body); err != nil {
		return spoil(err)
	}
	content, err = p.unwrap(content, len(content.encodings)-len(body.encodings))
	part.Encodings = content.encodings
	if err != nil {
		return spoil(err)
	}
	if typ.undecided() {
		if byPrefix := typeByPrefix(content.data); byPrefix != "" {
			part.ContentType = byPrefix
		}
	}
	if index == "" {
		part.Index = "1"
	}
	p.add(part, content)
	return nil
}

func (p *parser) multipart(typ contentType, body text, index string, depth int) error {
	if depth > maxDepth {
		return body.fault(body.line, "put the parts side by side into one multipart", "multiparts are nested more than %d deep", maxDepth)
	}
	sections, err := p.split(typ, body)
	if err != nil {
		return err
	}
	for i, section := range sections {
		sub := strconv.Itoa(i + 1)
		if index != "" {
			sub = index + "." + sub
		}
		h, content, err := readHeader(section)
		if err == nil {
			h, err = misplacedHeader(h, content)
		}
		if err != nil { // the type still tells what was lost
			typ, _ := h.contentType(content.place)
			p.parts = append(p.parts, Part{Index: sub, ContentType: typ.media, Declared: typ.declared, Filename: h.filename(typ),
				Encodings: section.encodings, Problem: err})
			continue
		}
		content.data = trimLineBreak(content.data)
		if err := p.entity(h, content, sub, depth); err != nil {
			return err
		}
	}
	return nil
}

// add completes a part that could be read.
func (p *parser) add(part Part, content text) {
	part.Encodings = content.encodings
	part.Data = normalise(content.data)
	part.Size = len(part.Data)
	if content.exact {
		part.Line = content.line
	}
	p.parts = append(p.parts, part)
}

// place names a text in errors.
type place struct {
	source    string
	part      string   // the part that was decoded last, or ""
	encodings []string // what was undone to get there
	exact     bool     // its lines are those of the source
}

// fault is an error at a line; line 0 is the text as a whole.
func (at place) fault(line int, remedy, format string, args ...any) error {
	where := at.source
	if at.part != "" {
		where += ", part " + at.part
	}
	if !at.exact {
		where += " (after " + strings.Join(at.encodings, ", ") + ")"
	}
	if line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	return fault.New(fault.Usage, remedy, "%s: "+format, append([]any{where}, args...)...)
}

// text is a stretch of a document that knows where it stands.
type text struct {
	place
	data  []byte
	line  int    // number of its first line
	index string // of the part it belongs to
}

// from is the text without its first n bytes.
func (t text) from(n int) text {
	t.line += bytes.Count(t.data[:n], []byte("\n"))
	t.data = t.data[n:]
	return t
}

// lineAt is the number of the line that offset n is in.
func (t text) lineAt(n int) int {
	return t.line + bytes.Count(t.data[:n], []byte("\n"))
}

// lastLine is the number of the last line that has something in it.
func (t text) lastLine() int {
	return t.lineAt(len(bytes.TrimRight(t.data, blanks)))
}
