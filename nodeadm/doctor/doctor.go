// Package doctor finds out why a node does not join its cluster, or what else is
// wrong with it, on the node itself.
//
// A check asks one question, under a name that does not change from release to
// release. The checks stand in the order in which a node depends on what they
// look at, so that the first one that fails is the cause, and failures after it
// are what follows from that. Nothing on the node is changed.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Level is what a check needs to be allowed.
type Level int

// The levels.
const (
	Machine Level = iota // the machine alone
	Network              // the network, but no permission of AWS's
	AWS                  // reading from AWS's APIs
)

// MarshalText writes a level as people call it.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads it back.
func (l *Level) UnmarshalText(text []byte) error {
	for *l = Machine; *l <= AWS; *l++ {
		if l.String() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("%q is no level", text)
}

func (l Level) String() string { return fmt.Sprintf("L%d", int(l)) }

// Status is what became of a check.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it joins in spite of this, and will have trouble
	Failed  Status = "failed"  // it does not join, or runs no pods, because of this
	Skipped Status = "skipped" // it could not be asked, or there was nothing to ask
)

// Finding is the answer of a check.
type Finding struct {
	Status Status `json:"status"`
	// Summary is one sentence, and Evidence what it was seen by.
	Summary  string   `json:"summary"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy says what to do, as an instruction.
	Remedy string `json:"remedy,omitempty"`

	// ends: what needs this check cannot be asked, though it has not failed.
	ends bool
}

// Check is one question that is asked of a node.
type Check struct {
	Name     string   `json:"name"`
	Level    Level    `json:"level"`
	Question string   `json:"question"`
	Needs    []string `json:"needs,omitempty"` // checks without whose success it cannot be asked
	// Explanation is what somebody should know who sees it fail.
	Explanation string `json:"explanation"`

	look func(context.Context, *patient) Finding
}

// Checks are all of them, in order.
func Checks() []Check { return slices.Concat(groups...) }

// groups are the checks, in the order in which a node depends on what they ask.
var groups = [][]Check{machineChecks, metadataChecks, configChecks, networkChecks, runtimeChecks, kubeletChecks, awsChecks, clusterChecks, podChecks}

// Result is a check and what it found.
type Result struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Finding
	// Consequence: something has failed that comes before.
	Consequence bool    `json:"consequence,omitempty"`
	Seconds     float64 `json:"seconds"`
}

// Report is everything that was found.
type Report struct {
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Cause is the check that names the cause; "" if none failed.
	Cause   string    `json:"cause,omitempty"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Results []Result  `json:"results"`
}

// Count tells how many checks ended in a status.
func (r Report) Count(status Status) (n int) {
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// Selection says which checks are made.
type Selection struct {
	Only  []string // these and what they need; all if empty
	Skip  []string
	Level Level // the highest
}

// Budget is how long all checks together may take.
const Budget = 20 * time.Second

// Examine makes the checks, side by side as far as they do not need one another,
// and ends within the budget: what has not answered by then is skipped.
func Examine(ctx context.Context, o Options, s Selection) Report {
	started := time.Now()
	if !o.Started.IsZero() {
		started = o.Started
	}
	ctx, cancel := context.WithDeadline(ctx, started.Add(Budget))
	defer cancel()
	o.level = s.Level
	p := newPatient(ctx, o)
	defer p.close()
	report := Report{Started: started.UTC(), Results: examine(ctx, p, s.choose(Checks()))}
	report.conclude()
	report.Seconds = time.Since(started).Seconds()
	return report
}

// ask asks, and takes a mistake of this program for what it is.
func (c Check) ask(ctx context.Context, p *patient) (f Finding) {
	defer func() {
		if mistake := recover(); mistake != nil {
			f = warning("report it to who makes nodeadm, with the output of nodeadm support-bundle", "a mistake in nodeadm itself: %v", mistake)
		}
	}()
	return c.look(ctx, p)
}

// Unmade are the checks that somebody wants by name and that will not be made,
// since they are above the level or to be skipped.
func (s Selection) Unmade() (names []string) {
	made := s.choose(Checks())
	for _, name := range s.Only {
		if !slices.ContainsFunc(made, func(c Check) bool { return c.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// choose picks checks, and those that they need.
func (s Selection) choose(all []Check) []Check {
	wanted := map[string]bool{}
	for _, check := range slices.Backward(all) { // what a check needs stands before it
		if len(s.Only) == 0 || slices.Contains(s.Only, check.Name) || wanted[check.Name] {
			wanted[check.Name] = true
			for _, need := range check.Needs {
				wanted[need] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool {
		return !wanted[c.Name] || c.Level > s.Level || slices.Contains(s.Skip, c.Name)
	})
}

// running is a check under way; its result is final when done is closed.
type running struct {
	done   chan struct{}
	result Result
	// because is what keeps checks that need this one from being made: itself, or
	// what kept it from being made.
	because string
}

func examine(ctx context.Context, p *patient, chosen []Check) []Result {
	var mu sync.Mutex // around results: a check that is late changes nothing any more
	late := false
	all := map[string]*running{}
	for _, check := range chosen {
		all[check.Name] = &running{make(chan struct{}), Result{Check: check.Name, Level: check.Level, Finding: skipped("not asked: there was no time left")}, check.Name}
	}
	for _, check := range chosen {
		go func() {
			this := all[check.Name]
			defer close(this.done)
			start, because := time.Now(), ""
			for _, need := range check.Needs {
				before := all[need]
				if before == nil {
					continue // nobody wants to know: it is taken for granted
				}
				select {
				case <-before.done:
				case <-ctx.Done():
				}
				mu.Lock()
				because = before.because
				mu.Unlock()
				if because != "" {
					break
				}
			}
			finding := skipped("not asked, because of %s", because)
			if because == "" {
				start = time.Now()
				mu.Lock()
				this.result.Finding = warning("see what it asks (nodeadm doctor explain "+check.Name+"), and ask by hand", "there was no answer within %s", Budget)
				mu.Unlock()
				finding = check.ask(ctx, p)
				if ctx.Err() != nil {
					return // what it says now is that it was interrupted
				}
				if finding.Status == Failed || finding.ends {
					because = check.Name
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if !late {
				this.because, this.result.Finding, this.result.Seconds = because, finding, time.Since(start).Seconds()
			}
		}()
	}
	for _, check := range chosen {
		select {
		case <-all[check.Name].done:
		case <-ctx.Done():
		}
	}
	mu.Lock()
	defer mu.Unlock()
	late = true
	var results []Result
	for _, check := range chosen {
		results = append(results, all[check.Name].result)
	}
	return results
}

// conclude names the cause: the first failure, as the checks stand.
func (r *Report) conclude() {
	var warnings []string
	for i := range r.Results {
		result := &r.Results[i]
		switch {
		case result.Status == Warning:
			warnings = append(warnings, result.Check)
		case result.Status != Failed:
		case r.Cause == "":
			r.Cause = result.Check
			r.Verdict = fmt.Sprintf("%s: %s", result.Check, result.Summary)
		default:
			result.Consequence = true
		}
	}
	switch {
	case r.Cause != "":
	case len(warnings) > 0:
		r.Verdict = "nothing keeps this node from its cluster; look at " + strings.Join(warnings, ", ")
	case r.Count(OK) == 0:
		r.Verdict = "nothing could be asked"
	default:
		r.Verdict = fmt.Sprintf("nothing is wrong: %d checks are fine", r.Count(OK))
	}
}

// The ways in which a check ends.

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Summary: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Finding {
	return Finding{Status: Skipped, Summary: fmt.Sprintf(format, args...)}
}

func failed(remedy, format string, args ...any) Finding {
	return Finding{Status: Failed, Summary: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warning(remedy, format string, args ...any) Finding {
	return Finding{Status: Warning, Summary: fmt.Sprintf(format, args...), Remedy: remedy}
}

// seen adds evidence.
func (f Finding) seen(evidence ...string) Finding {
	f.Evidence = append(f.Evidence, evidence...)
	return f
}
