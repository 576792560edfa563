package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// failure is a death on order. The file's content is what the program prints
// before it exits with 1, at once; or, if its first line is
//
//	fail-after: 2s
//
// the rest of it, after it has been healthy for so long.
type failure struct {
	message string
	after   time.Duration
}

func (f *failure) Error() string { return f.message }

// readFailure returns nil where no failure is ordered.
func readFailure(path string) (*failure, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	message := strings.TrimSpace(string(b))
	first, rest, _ := strings.Cut(message, "\n")
	after, ok := strings.CutPrefix(first, "fail-after:")
	if !ok {
		return &failure{message: message}, nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(after))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		rest = fmt.Sprintf("failed on order after %v", d)
	}
	return &failure{message: rest, after: d}, nil
}
