package config

import (
	"errors"
	"fmt"
	"strings"
)

// SplitWords splits text at white space the way a POSIX shell does: single
// quotes keep everything, double quotes keep all but \" and \\, a backslash
// elsewhere keeps the next character. Nothing is expanded.
func SplitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case '\'', '"':
			end, err := quoted(text[i+1:], c, &word)
			if err != nil {
				return nil, fmt.Errorf("%w at byte %d", err, i+1)
			}
			i += 1 + end
			inWord = true
		case '\\':
			if i++; i == len(text) {
				return nil, errors.New("a backslash stands at the end")
			}
			// A backslash before a line break joins the lines.
			if text[i] != '\n' {
				word.WriteByte(text[i])
				inWord = true
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted copies text up to the closing quote into word and returns where that
// stands.
func quoted(text string, quote byte, word *strings.Builder) (end int, err error) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == quote {
			return i, nil
		}
		if quote == '"' && c == '\\' && i+1 < len(text) && strings.IndexByte(`"\$`+"`\n", text[i+1]) >= 0 {
			if i++; text[i] == '\n' {
				continue
			}
			c = text[i]
		}
		word.WriteByte(c)
	}
	return 0, fmt.Errorf("the quote %c is never closed", quote)
}

// cutFlag splits "--name=value". name is "" for a word that is not a flag; it is
// spelled with dashes, though kubelet takes underscores too.
func cutFlag(word string) (name, value string, inline bool) {
	if !isFlag(word) {
		return "", "", false
	}
	name, value, inline = strings.Cut(strings.TrimLeft(word, "-"), "=")
	if level, found := strings.CutPrefix(word, "-v"); found && level != "" && strings.Trim(level, "0123456789") == "" {
		return "v", level, true // the only one in short that has a value
	}
	return strings.ReplaceAll(name, "_", "-"), value, inline
}

func isFlag(word string) bool { return strings.HasPrefix(word, "-") && len(word) > 1 }
