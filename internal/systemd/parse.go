package systemd

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Unit is a unit file, a drop-in or another file of the same syntax, such as
// system.conf: its sections in the order in which they stand. A section that is
// begun twice stands here twice.
type Unit struct {
	Sections []Section
}

// Section is a section of a unit file with its directives in order.
type Section struct {
	Name       string
	Directives []Directive
}

// Directive is one assignment. Value is as it stands in the file, continuation
// lines joined; what quotes and escapes mean differs from directive to directive.
type Directive struct {
	Key, Value string
}

// space is what systemd takes for white space; \v and \f are not.
const space = " \t\n\r"

// ParseUnit reads a unit file as systemd.syntax(7) says. What systemd would
// pass over with a warning is an error: such a file was not meant as it reads.
// Errors name the line and nothing of what stands there, which may be secret.
func ParseUnit(data []byte) (Unit, error) {
	var u Unit
	text := strings.TrimPrefix(string(data), "\ufeff")
	var pending []string // lines that the next one continues
	first := 0
	flush := func(line string) error {
		line = strings.Join(append(pending, line), " ")
		pending = nil
		if err := u.add(strings.Trim(line, space)); err != nil {
			return fmt.Errorf("line %d: %w", first, err)
		}
		return nil
	}
	for number := 1; text != ""; number++ {
		var line string
		line, text = cutLine(text)
		if strings.Contains(line, "\x00") {
			return Unit{}, fmt.Errorf("line %d: a NUL byte", number)
		}
		// Also between lines that continue each other; a backslash at the end of
		// a comment continues nothing.
		if start := strings.TrimLeft(line, space); start != "" && strings.ContainsRune("#;", rune(start[0])) {
			continue
		}
		if pending == nil {
			first = number
		}
		if endsInBackslash(line) {
			pending = append(pending, line[:len(line)-1])
		} else if err := flush(line); err != nil {
			return Unit{}, err
		}
	}
	if err := flush(""); err != nil {
		return Unit{}, err
	}
	return u, nil
}

// cutLine takes off the first line. Like \n, a lone \r ends a line, and both
// together, in either order, end one.
func cutLine(text string) (line, rest string) {
	i := strings.IndexAny(text, "\r\n")
	if i < 0 {
		return text, ""
	}
	line, rest = text[:i], text[i+1:]
	if pair := text[i:min(i+2, len(text))]; pair == "\r\n" || pair == "\n\r" {
		rest = rest[1:]
	}
	return line, rest
}

// endsInBackslash tells whether the last character is a backslash that no other
// one escapes.
func endsInBackslash(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// add reads a whole line that is no comment.
func (u *Unit) add(line string) error {
	if line == "" {
		return nil
	}
	if !isText(line) {
		return errors.New("not valid UTF-8")
	}
	if line[0] == '[' {
		name, closed := strings.CutSuffix(line[1:], "]")
		if !closed || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune("\"'\\\x7f", r) }) {
			return errors.New("not a section header")
		}
		u.Sections = append(u.Sections, Section{Name: name})
		return nil
	}
	key, value, found := strings.Cut(line, "=")
	key = strings.TrimRight(key, space)
	switch {
	case !found || !isKey(key):
		return errors.New("neither a section header nor an assignment")
	case len(u.Sections) == 0:
		return errors.New("an assignment before the first section")
	}
	last := &u.Sections[len(u.Sections)-1]
	last.Directives = append(last.Directives, Directive{key, strings.TrimLeft(value, space)})
	return nil
}

func isKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool { return !isNameRune(r) && r != '-' && r != '.' })
}

func isNameRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// isText tells whether systemd takes a string for UTF-8. It refuses the code
// points that Unicode says will never be characters.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r == 0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
	})
}
