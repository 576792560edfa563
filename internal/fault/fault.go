// Package fault holds the one kind of error people see: what went wrong, the
// class that becomes the exit code, and what to do about it.
package fault

import (
	"errors"
	"fmt"
)

// Code is the class of a failure. Its value is the exit code of the process,
// which user data and automation may rely on.
type Code int

// The classes, in the order a bootstrap can meet them.
const (
	Unexpected Code = 1 // a defect of nodeadm or something nobody foresaw
	Usage      Code = 2 // command line or configuration
	AWS        Code = 3 // instance metadata or an AWS API
	Disk       Code = 4 // reading or writing files
	Service    Code = 5 // systemd, or a service that does not run
	NotJoined  Code = 6 // everything runs and the node still did not join
)

// Error is a failure with its class and its remedy.
type Error struct {
	Code   Code
	Remedy string // what the user can do, as an instruction; may be empty
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// New makes an Error of class code. remedy may be empty.
func New(code Code, remedy, format string, args ...any) error {
	return &Error{Code: code, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a class, unless something below it has one already: who saw
// the failure first knows best what it was.
func Wrap(code Code, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Code: code, Err: err}
}

// CodeOf is the exit code for err: 0 for nil, Unexpected for an error without
// a class. Of several joined errors the first one with a class decides.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Unexpected
}

// Each calls f for every single failure inside err, in order: errors.Join
// holds many, everything else is one.
func Each(err error, f func(error)) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			Each(e, f)
		}
		return
	}
	f(err)
}

// Remedy is the remedy that stands nearest to the surface of err, or "".
func Remedy(err error) string {
	for err != nil {
		if e, ok := err.(*Error); ok && e.Remedy != "" {
			return e.Remedy
		}
		err = errors.Unwrap(err)
	}
	return ""
}
