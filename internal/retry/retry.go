// Package retry repeats what may succeed later, and ends: by success, by a
// final error, or by the deadline of the context.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy says how long to pause between attempts and whom to tell.
type Policy struct {
	// Base is the upper bound of the first pause; it doubles with each attempt
	// up to Max. The real pause is drawn evenly from [Base/8, bound]: full
	// jitter, because a whole fleet boots in the same second.
	Base, Max time.Duration
	// Attempts bounds the number of attempts; 0 means the context alone does.
	Attempts int
	// Report is told of the first failure at once and then of one about every
	// ReportEvery, so that waiting is never silent. It may be nil.
	Report      func(err error, attempt int, waited time.Duration)
	ReportEvery time.Duration
}

type finalError struct{ err error }

func (f *finalError) Error() string { return f.err.Error() }
func (f *finalError) Unwrap() error { return f.err }

// Final marks err as one that another attempt cannot cure.
func Final(err error) error { return &finalError{err} }

// TimeoutError is what Do returns when the context ended while the work had
// not yet succeeded: Last is what the last whole attempt said.
type TimeoutError struct {
	Waited time.Duration
	Last   error
	cause  error
}

func (e *TimeoutError) Error() string {
	if errors.Is(e.cause, context.Canceled) {
		return fmt.Sprintf("interrupted after %s: %v", e.Waited.Round(100*time.Millisecond), e.Last)
	}
	return fmt.Sprintf("gave up after %s: %v", e.Waited.Round(100*time.Millisecond), e.Last)
}

// Unwrap gives both the context's error and the last failure to errors.Is/As.
func (e *TimeoutError) Unwrap() []error { return []error{e.cause, e.Last} }

// Do calls work until it succeeds, returns an error marked Final, runs out of
// attempts, or ctx ends.
func Do(ctx context.Context, p Policy, work func(context.Context) error) error {
	start := time.Now()
	var reported time.Time
	var last error
	bound := p.Base
	for attempt := 1; ; attempt++ {
		err := work(ctx)
		if err == nil {
			return nil
		}
		var final *finalError
		if errors.As(err, &final) {
			return final.err
		}
		// An attempt cut short by the deadline says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() == nil && p.Attempts > 0 && attempt >= p.Attempts {
			return fmt.Errorf("%w (%d attempts)", last, attempt)
		}
		if p.Report != nil && ctx.Err() == nil && (attempt == 1 || time.Since(reported) >= p.ReportEvery) {
			reported = time.Now()
			p.Report(err, attempt, time.Since(start))
		}
		pause := p.Base/8 + rand.N(bound-p.Base/8+1)
		select {
		case <-ctx.Done():
			return &TimeoutError{Waited: time.Since(start), Last: last, cause: ctx.Err()}
		case <-time.After(pause):
		}
		bound = min(2*bound, p.Max)
	}
}
