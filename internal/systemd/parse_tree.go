package systemd

import (
	"fmt"
	"strings"
)

// Tree is the unit field by field: section → directive → value. The value is a
// string, or a list of all values in order where a directive is repeated, empty
// ones included.
//
// Environment and DefaultEnvironment are maps, variable → value, as they stand
// at the end of the file. The name "" among them stands for an empty
// assignment: whatever other files have set before does not count.
//
// A variable that is named in flagVariables holds flags of a command line and
// is a map too: flag → value, true for one without a value, a list for one that
// is repeated.
func (u Unit) Tree(flagVariables ...string) (map[string]any, error) {
	tree := map[string]any{}
	for _, s := range u.Sections {
		section := below(tree, s.Name)
		for _, d := range s.Directives {
			if !isEnvironment(d.Key) {
				add(section, d.Key, d.Value)
			} else if err := addVariables(below(section, d.Key), d.Value); err != nil {
				return nil, fmt.Errorf("%s= in section %s: %w", d.Key, s.Name, err)
			}
		}
	}
	// Only now: what a later assignment replaces need not be flags.
	for _, s := range u.Sections {
		for _, d := range s.Directives {
			if !isEnvironment(d.Key) {
				continue
			}
			if err := readFlags(below(below(tree, s.Name), d.Key), flagVariables); err != nil {
				return nil, fmt.Errorf("%s= in section %s: %w", d.Key, s.Name, err)
			}
		}
	}
	return tree, nil
}

func isEnvironment(key string) bool { return key == "Environment" || key == "DefaultEnvironment" }

// below is the map under a key, which is made if it is missing.
func below(tree map[string]any, key string) map[string]any {
	nested, found := tree[key].(map[string]any)
	if !found {
		nested = map[string]any{}
		tree[key] = nested
	}
	return nested
}

// add sets a value; a second one makes a list.
func add(tree map[string]any, key string, value any) {
	switch before := tree[key].(type) {
	case nil:
		tree[key] = value
	case []any:
		tree[key] = append(before, value)
	default:
		tree[key] = []any{before, value}
	}
}

func addVariables(variables map[string]any, value string) error {
	if value == "" {
		clear(variables)
		variables[""] = ""
		return nil
	}
	assignments, err := ParseAssignments(value)
	for _, a := range assignments {
		variables[a.Name] = a.Value
	}
	return err
}

// readFlags replaces variables by the flags they hold.
func readFlags(variables map[string]any, names []string) error {
	for _, name := range names {
		value, found := variables[name].(string)
		if !found {
			continue
		}
		flags, err := flagsOf(ParseWords(value))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		variables[name] = flags
	}
	return nil
}

// flagsOf groups words as flags: --name=value, --name value, or --name.
func flagsOf(words []string) (map[string]any, error) {
	flags := map[string]any{}
	for i := 0; i < len(words); i++ {
		name, value, inline := strings.Cut(words[i], "=")
		switch {
		case !isFlag(words[i]) || strings.Trim(name, "-") == "":
			return nil, fmt.Errorf("word %d is neither a flag nor the value of one", i+1)
		case inline:
			add(flags, name, value)
		case i+1 < len(words) && !isFlag(words[i+1]):
			i++
			add(flags, name, words[i])
		default:
			add(flags, name, true)
		}
	}
	return flags, nil
}

// isFlag tells flags from values: -v=2 is a flag too, - and -999 are values.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}
