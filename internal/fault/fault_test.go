package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The values are the process's exit codes, which scripts out there go by.
func TestExitCodes(t *testing.T) {
	got := []Code{Unexpected, Usage, AWS, Disk, Service, NotJoined}
	if diff := cmp.Diff([]Code{1, 2, 3, 4, 5, 6}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCodeOf(t *testing.T) {
	disk := New(Disk, "free some space", "write /etc/hosts: %w", io.ErrShortWrite)
	for name, test := range map[string]struct {
		err  error
		want Code
	}{
		"nil":                    {nil, 0},
		"of no class":            {io.EOF, Unexpected},
		"of a class":             {disk, Disk},
		"wrapped":                {fmt.Errorf("apply: %w", disk), Disk},
		"first of several":       {errors.Join(New(Usage, "", "a"), disk), Usage},
		"first that has a class": {errors.Join(io.EOF, disk), Disk},
		"class given":            {Wrap(AWS, io.EOF), AWS},
		"class kept":             {Wrap(AWS, fmt.Errorf("outer: %w", disk)), Disk},
	} {
		if got := CodeOf(test.err); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestNewWraps(t *testing.T) {
	err := New(Disk, "free some space", "write /etc/hosts: %w", io.ErrShortWrite)
	if err.Error() != "write /etc/hosts: short write" || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestWrap(t *testing.T) {
	if err := Wrap(AWS, nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	known := fmt.Errorf("outer: %w", New(Disk, "", "inner"))
	if got := Wrap(AWS, known); got != known {
		t.Errorf("an error with a class was wrapped: %v", got)
	}
	if got := Wrap(AWS, io.EOF); got.Error() != "EOF" || !errors.Is(got, io.EOF) {
		t.Errorf("got %v", got)
	}
}

func TestRemedy(t *testing.T) {
	inner := New(Disk, "free some space", "inner")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nil":                     {nil, ""},
		"none":                    {io.EOF, ""},
		"empty":                   {New(Disk, "", "x"), ""},
		"its own":                 {inner, "free some space"},
		"wrapped":                 {fmt.Errorf("outer: %w", inner), "free some space"},
		"the nearest":             {New(Service, "start it", "outer: %w", inner), "start it"},
		"the nearest with a word": {New(Service, "", "outer: %w", inner), "free some space"},
	} {
		if got := Remedy(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestEach(t *testing.T) {
	a, b, c := errors.New("a"), New(Usage, "", "b"), errors.New("c")
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"nil":               {nil, nil},
		"one":               {a, []string{"a"}},
		"several in order":  {errors.Join(a, b, c), []string{"a", "b", "c"}},
		"joined of joined":  {errors.Join(errors.Join(a, b), c), []string{"a", "b", "c"}},
		"a wrapper is one":  {fmt.Errorf("outer: %w", a), []string{"outer: a"}},
		"with its class":    {Wrap(Disk, a), []string{"a"}},
		"below a class too": {New(Disk, "", "outer: %w", errors.Join(a, b)), []string{"outer: a\nb"}},
	} {
		var got []string
		Each(test.err, func(err error) { got = append(got, err.Error()) })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
