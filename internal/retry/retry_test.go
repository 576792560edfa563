package retry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

var quick = Policy{Base: time.Millisecond, Max: 4 * time.Millisecond}

func TestSucceedsAfterFailures(t *testing.T) {
	calls := 0
	err := Do(context.Background(), quick, func(context.Context) error {
		if calls++; calls < 4 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 4 {
		t.Fatalf("err %v after %d calls, want nil after 4", err, calls)
	}
}

func TestFinalEndsAtOnce(t *testing.T) {
	calls, denied := 0, errors.New("denied")
	err := Do(context.Background(), quick, func(context.Context) error { calls++; return Final(denied) })
	if err != denied || calls != 1 {
		t.Fatalf("err %v after %d calls, want the bare error after 1", err, calls)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	p, calls := quick, 0
	p.Attempts = 3
	err := Do(context.Background(), p, func(context.Context) error { calls++; return errors.New("no") })
	if calls != 3 || err == nil || !strings.Contains(err.Error(), "3 attempts") {
		t.Fatalf("err %v after %d calls", err, calls)
	}
}

func TestDeadlineKeepsTheLastWholeFailure(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	refused := errors.New("connection refused")
	first := true
	err := Do(ctx, quick, func(ctx context.Context) error {
		if first {
			first = false
			return refused
		}
		<-ctx.Done()
		return ctx.Err()
	})
	var timeout *TimeoutError
	if !errors.As(err, &timeout) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refused) {
		t.Fatalf("err %v: want a TimeoutError that holds the deadline and the refusal", err)
	}
}

func TestReportsFirstFailureAtOnceThenRarely(t *testing.T) {
	p := quick
	p.ReportEvery = time.Hour
	reports, calls := 0, 0
	p.Report = func(error, int, time.Duration) { reports++ }
	_ = Do(context.Background(), p, func(context.Context) error {
		if calls++; calls < 10 {
			return errors.New("not yet")
		}
		return nil
	})
	if reports != 1 {
		t.Fatalf("%d reports of 9 failures, want 1", reports)
	}
}
