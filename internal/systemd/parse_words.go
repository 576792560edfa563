package systemd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Assignment is an environment variable and its value.
type Assignment struct {
	Name, Value string
}

// ParseAssignments reads the value of Environment= or DefaultEnvironment= as
// the unit-file parser does: quotes and C escapes undone, %% made %. What
// systemd would pass over with a warning is an error, and so is any other %:
// what a specifier means depends on the unit and the machine. Errors name the
// number of a word and nothing of it: values may be secret.
func ParseAssignments(value string) ([]Assignment, error) {
	words, err := splitWords(value, unescapeC)
	if err != nil {
		return nil, err
	}
	var assignments []Assignment
	for i, word := range words {
		word, fixed := undoublePercent(word)
		if !fixed {
			return nil, fmt.Errorf("assignment %d: a %% specifier", i+1)
		}
		name, value, found := strings.Cut(word, "=")
		if !found || !isVariable(name) || !isText(value) {
			return nil, fmt.Errorf("assignment %d: not of the form NAME=VALUE", i+1)
		}
		assignments = append(assignments, Assignment{name, value})
	}
	return assignments, nil
}

// ParseWords splits the value of a variable as systemd does where a command
// line names it as $NAME. There it accepts anything: what is left open at the
// end is closed, and a last lone backslash dropped.
func ParseWords(value string) []string {
	words, _ := splitWords(value, func(after string) (string, int) { return after[:min(1, len(after))], 1 })
	return words
}

// splitWords splits at white space outside of quotes. unescape reads what stands
// after a backslash, inside of quotes or not, and says how long it is; 0 is an
// error. The words are complete even where a quote is not closed.
func splitWords(value string, unescape func(after string) (string, int)) ([]string, error) {
	var words []string
	var quote byte
	var word []byte // nil between words
	for i := 0; i < len(value); i++ {
		c := value[i]
		if word == nil && !isSpace(c) {
			word = []byte{}
		}
		switch {
		case c == '\\':
			text, length := unescape(value[i+1:])
			if length == 0 {
				return nil, errors.New("an unknown escape sequence")
			}
			word = append(word, text...)
			i += length
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && isSpace(c):
			if word != nil {
				words, word = append(words, string(word)), nil
			}
		default:
			word = append(word, c)
		}
	}
	if word != nil {
		words = append(words, string(word))
	}
	if quote != 0 {
		return words, errors.New("a quote that is not closed")
	}
	return words, nil
}

func isSpace(c byte) bool { return strings.IndexByte(space, c) >= 0 }

// unescapeC reads the C escapes of unit files; \s is a space.
func unescapeC(after string) (text string, length int) {
	if after == "" {
		return "", 0
	}
	const letters, meaning = `abfnrtvs\"'`, "\a\b\f\n\r\t\v \\\"'"
	if i := strings.IndexByte(letters, after[0]); i >= 0 {
		return meaning[i : i+1], 1
	}
	switch after[0] {
	case 'x':
		return unescapeCode(after, 1, 3, 16)
	case 'u':
		return unescapeCode(after, 1, 5, 16)
	case 'U':
		return unescapeCode(after, 1, 9, 16)
	}
	return unescapeCode(after, 0, 3, 8)
}

// unescapeCode reads digits: two of base 16 or three of base 8 are a byte,
// more are a code point.
func unescapeCode(after string, from, to, base int) (text string, length int) {
	if len(after) < to {
		return "", 0
	}
	code, err := strconv.ParseUint(after[from:to], base, 32)
	switch {
	case err != nil || code == 0:
		return "", 0
	case to == 3 && code <= 0xff:
		return string([]byte{byte(code)}), to
	case to > 3 && code <= utf8.MaxRune && utf8.ValidRune(rune(code)):
		return string(rune(code)), to
	}
	return "", 0
}

// undoublePercent makes %% of a word %. It is false for any other % but one at
// the very end, which systemd leaves alone.
func undoublePercent(word string) (string, bool) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(word, "%")
		out.WriteString(before)
		if !found {
			return out.String(), true
		}
		if after != "" && after[0] != '%' {
			return "", false
		}
		out.WriteByte('%')
		word = strings.TrimPrefix(after, "%")
	}
}

func isVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && !strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) })
}
