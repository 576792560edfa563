// Package cel evaluates the numeric part of CEL, the Common Expression
// Language, in which a NodeConfig computes the number of pods from what is
// known of the instance type.
//
// The reference implementation, cel-go, is not used because of what it brings:
// protocol buffers and a generated ANTLR parser make the binary several
// megabytes larger and take milliseconds of package initialisation on every
// boot, of every command, for an expression few nodes have. Expressions that
// are supported here have the value cel-go's standard environment gives them,
// oddities included; test/celdiff holds the two side by side. What is not
// supported is an error when the expression is compiled, never another answer.
package cel

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of an expression. They are far from anything that counts pods, and
// keep a hostile document from costing more than it is worth.
const (
	maxSource = 4 << 10
	maxDepth  = 64
)

// Error is what is wrong with an expression, and where.
type Error struct {
	Line, Column int // from 1, the column in characters
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// Program is an expression that has been parsed and type-checked. It is not
// changed by evaluation.
type Program struct {
	src  string
	root *node
}

// Compile parses src and checks its types. The variables are ints. An error is
// always an *Error.
func Compile(src string, variables []string) (*Program, error) {
	p := &Program{src: src}
	if len(src) > maxSource {
		return nil, &Error{1, 1, fmt.Sprintf("the expression has %d bytes, more than the %d supported", len(src), maxSource)}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{1, 1, "the expression is not valid UTF-8"}
	}
	var err error
	if p.root, err = parse(src); err == nil {
		err = (&checker{variables}).check(p.root)
	}
	if err != nil {
		return nil, p.located(err)
	}
	return p, nil
}

// String is the expression as it was written.
func (p *Program) String() string { return p.src }

// Eval computes the value of the expression. An error is always an *Error.
func (p *Program) Eval(vars map[string]int64) (Value, error) {
	v, err := eval(p.root, vars)
	if err != nil {
		return Value{}, p.located(err)
	}
	return Value{v}, nil
}

// offsetError is an Error before its line and column are worked out, which is
// worth doing only for the one that is returned.
type offsetError struct {
	offset  int
	message string
}

func (e *offsetError) Error() string { return e.message }

func errorAt(offset int, format string, args ...any) error {
	return &offsetError{offset, fmt.Sprintf(format, args...)}
}

func (p *Program) located(err error) error {
	e, ok := err.(*offsetError)
	if !ok {
		return err
	}
	before := p.src[:e.offset]
	lineStart := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		Line:    1 + strings.Count(before, "\n"),
		Column:  1 + utf8.RuneCountInString(before[lineStart:]),
		Message: e.message,
	}
}
