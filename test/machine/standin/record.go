package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// record writes how the program was called, each file whole or not at all,
// since a test polls for it.
func record(dir string, argv, environ []string) error {
	env := make(map[string]string, len(environ))
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "env.json"), env); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "args.json"), argv)
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
