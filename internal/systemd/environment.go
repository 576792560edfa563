// Package systemd talks to systemd in its own two languages: unit files, and
// D-Bus. It knows nothing of what the units are for.
package systemd

import (
	"maps"
	"slices"
	"strings"
)

// Environment is the text of a drop-in that sets one environment variable of a
// service to a list of words. A command line that names the variable as $NAME
// receives exactly these words.
//
// Two readers stand in between. The unit-file parser undoes C escapes, quotes
// and % specifiers of the assignment; later, when $NAME is expanded, systemd
// splits the value at white space and undoes quotes and backslashes once more.
// See systemd.exec(5) on Environment= and systemd.service(5) on command lines.
func Environment(name string, words []string) []byte {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteWord(w)
	}
	return []byte("[Service]\nEnvironment='" + assignmentEscaper.Replace(name+"="+strings.Join(quoted, " ")) + "'\n")
}

// Variables is the text of a drop-in with one environment variable a line, in
// the given section and directive: Service and Environment, or Manager and
// DefaultEnvironment.
func Variables(section, directive string, variables map[string]string) []byte {
	text := "[" + section + "]\n"
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		text += directive + "='" + assignmentEscaper.Replace(name+"="+variables[name]) + "'\n"
	}
	return []byte(text)
}

var assignmentEscaper = strings.NewReplacer(`\`, `\\`, `'`, `\'`, `%`, `%%`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

// quoteWord leaves a word alone where it can: drop-ins are read by people.
func quoteWord(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n\r\"'\\") {
		return w
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
}
