package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// failure is a death on order. The file's content is what the program prints
// before it exits with 1, at once. Lines at its beginning may say more:
//
//	fail-after: 2s
//	when-arg: --node-labels=bad=1
//
// The first one lets it be healthy for so long; the second one spares a program
// that was started without that argument.
type failure struct {
	message string
	after   time.Duration
	whenArg string
}

func (f *failure) Error() string { return f.message }

// readFailure returns nil where no failure is ordered for a program with these
// arguments.
func readFailure(path string, argv []string) (*failure, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := &failure{message: strings.TrimSpace(string(b))}
	for {
		first, rest, _ := strings.Cut(f.message, "\n")
		if after, ok := strings.CutPrefix(first, "fail-after:"); ok {
			if f.after, err = time.ParseDuration(strings.TrimSpace(after)); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		} else if arg, ok := strings.CutPrefix(first, "when-arg:"); ok {
			f.whenArg = strings.TrimSpace(arg)
		} else {
			break
		}
		f.message = strings.TrimSpace(rest)
	}
	if f.whenArg != "" && !slices.Contains(argv, f.whenArg) {
		return nil, nil
	}
	if f.message == "" {
		f.message = fmt.Sprintf("failed on order after %v", f.after)
	}
	return f, nil
}
