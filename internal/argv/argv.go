// Package argv puts command lines into an order that Go's flag package
// understands: flags first, operands after them. People write both in any
// order, as with GNU getopt, and values may begin with dashes.
package argv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// Arity tells whether a flag takes a value.
type Arity int

// A Switch stands alone, as in --no-start or --no-start=false; a Value flag
// takes the next word whatever it looks like, as in --name value or
// --name=value.
const (
	Switch Arity = iota
	Value
)

// Split separates flags, each as one word "--name=value", from operands. An
// unknown flag and a missing value are errors that name the mend. "--" ends
// the flags.
func Split(args []string, known map[string]Arity) (flags, operands []string, err error) {
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			return flags, append(operands, args[i+1:]...), nil
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			operands = append(operands, word)
			continue
		}
		name, value, inline := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		arity, ok := known[name]
		switch {
		case !ok:
			return nil, nil, unknown(word, name, known)
		case inline:
			flags = append(flags, "--"+name+"="+value)
		case arity == Switch:
			flags = append(flags, "--"+name)
		case i+1 == len(args):
			return nil, nil, fault.New(fault.Usage, "write "+word+" VALUE", "%s: the value is missing", word)
		default:
			i++
			flags = append(flags, "--"+name+"="+args[i])
		}
	}
	return flags, operands, nil
}

func unknown(word, name string, known map[string]Arity) error {
	names := make([]string, 0, len(known))
	for n := range known {
		if len(n) > 1 {
			names = append(names, n)
		}
	}
	slices.Sort(names) // of equal distances the same one wins every time
	remedy := "see --help for the flags there are"
	if nearest := suggest.Nearest(name, names); nearest != "" {
		remedy = fmt.Sprintf("did you mean --%s?", nearest)
	}
	shown, _, _ := strings.Cut(word, "=")
	return fault.New(fault.Usage, remedy, "unknown flag %s", shown)
}
