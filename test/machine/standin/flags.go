package main

import "strings"

// flagValue returns what the last --name=value or --name value in argv says, as
// the last one is what counts for kubelet. kubelet's other flags, hundreds of
// them, are of no concern here: the test reads them from args.json.
func flagValue(argv []string, name string) string {
	var value string
	for i, arg := range argv {
		if v, ok := strings.CutPrefix(arg, name+"="); ok {
			value = v
		} else if arg == name && i+1 < len(argv) {
			value = argv[i+1]
		}
	}
	return value
}
