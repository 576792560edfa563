package config

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// callOf finds the first command in a script whose program is bootstrap.sh.
// Variables that the script itself sets are known; what only the running
// machine could tell, such as the output of a command, is an error.
func callOf(script []byte, source string) (args []string, err error) {
	file, err := syntax.NewParser().Parse(bytes.NewReader(script), source)
	if err != nil {
		return nil, fault.New(fault.Usage, "bash -n shows the same mistake", "%w", err)
	}
	for _, operand := range []func(*syntax.CallExpr) int{programOf, anyWordOf} {
		s := shell{operand: operand, source: source, variables: map[string]expand.Variable{}, unknown: map[string]bool{}}
		syntax.Walk(file, s.visit)
		if s.args != nil || s.err != nil {
			return s.args, s.err
		}
	}
	return nil, nil
}

const bootstrapScript = "bootstrap.sh"

// runners are commands that run another one, which is among their words.
var runners = []string{".", "bash", "command", "env", "exec", "nice", "nohup", "sh", "source", "stdbuf", "sudo", "timeout"}

// programOf is where bootstrap.sh stands in a command as its program, -1 if it
// is another command.
func programOf(call *syntax.CallExpr) int {
	first := path.Base(call.Args[0].Lit())
	if first != bootstrapScript && !slices.Contains(runners, first) {
		return -1
	}
	return anyWordOf(call)
}

// anyWordOf is where bootstrap.sh stands in a command at all: a function or a
// program that nobody knows may run it.
func anyWordOf(call *syntax.CallExpr) int {
	return slices.IndexFunc(call.Args, func(word *syntax.Word) bool { return path.Base(word.Lit()) == bootstrapScript })
}

// shell goes through a script as far as the call of bootstrap.sh.
type shell struct {
	operand func(*syntax.CallExpr) int
	source  string

	variables map[string]expand.Variable
	unknown   map[string]bool // variables that only the machine knows
	// blocks are the syntax that is being gone through, with the variables that
	// are set in it if it may not be run, or not once.
	blocks []block

	args []string
	err  error
}

type block struct {
	node syntax.Node
	sets map[string]bool // nil for what is run as it stands
}

// visit is called for each node, and with nil after the last one in it.
func (s *shell) visit(node syntax.Node) bool {
	if s.args != nil || s.err != nil {
		return false
	}
	if node == nil {
		last := s.blocks[len(s.blocks)-1]
		s.blocks = s.blocks[:len(s.blocks)-1]
		s.forget(last.sets)
		return true
	}
	b := block{node: node}
	switch n := node.(type) {
	case *syntax.IfClause:
		if len(s.blocks) > 0 { // one that is an else: the branch before was not taken
			if before, isElse := s.blocks[len(s.blocks)-1].node.(*syntax.IfClause); isElse && before.Else == n {
				s.forget(s.blocks[len(s.blocks)-1].sets)
			}
		}
		b.sets = map[string]bool{}
	case *syntax.WhileClause, *syntax.ForClause, *syntax.CaseItem, *syntax.FuncDecl, *syntax.Subshell:
		b.sets = map[string]bool{}
	case *syntax.BinaryCmd:
		b.sets = map[string]bool{}
		if call, isCall := n.X.Cmd.(*syntax.CallExpr); isCall && n.Op == syntax.AndStmt && len(call.Args) == 0 {
			b.sets = nil // after an assignment, which succeeds
		}
	case *syntax.DeclClause: // export, readonly …
		s.assign(n.Args)
	case *syntax.CallExpr:
		s.call(n)
	}
	s.blocks = append(s.blocks, b)
	return s.args == nil && s.err == nil
}

// forget takes it that nobody knows any more what variables are.
func (s *shell) forget(names map[string]bool) { maps.Copy(s.unknown, names) }

func (s *shell) call(call *syntax.CallExpr) {
	if len(call.Args) == 0 {
		s.assign(call.Assigns)
		return
	}
	if slices.Contains([]string{"read", "mapfile", "readarray", "printf"}, call.Args[0].Lit()) {
		for _, word := range call.Args[1:] {
			s.unknown[word.Lit()] = true
		}
	}
	at := s.operand(call)
	if at < 0 {
		return
	}
	args, err := s.words(call.Args[at+1:])
	if err != nil {
		s.err = fault.New(fault.Usage, "put the value itself into the script to simulate it", "%s: bootstrap.sh at line %d: %w", s.source, call.Pos().Line(), err)
		return
	}
	s.args = append([]string{}, args...)
}

// assign takes note of variables. A value that cannot be known matters only if
// it is used.
func (s *shell) assign(assigns []*syntax.Assign) {
	for _, a := range assigns {
		if a.Name == nil || a.Naked {
			continue
		}
		name := a.Name.Value
		for _, b := range s.blocks {
			if b.sets != nil {
				b.sets[name] = true
			}
		}
		before := s.variables[name]
		v, err := s.value(a)
		switch {
		case err != nil, a.Index != nil, a.Append && s.unknown[name]:
			s.unknown[name] = true
			continue
		case a.Append && v.Kind == expand.Indexed && before.Kind == expand.Indexed:
			v.List = append(slices.Clone(before.List), v.List...)
		case a.Append && v.Kind == expand.Indexed && before.Set:
			v.List = append([]string{before.Str}, v.List...)
		case a.Append && before.Kind == expand.Indexed:
			s.unknown[name] = true // it goes to the first of them
			continue
		case a.Append:
			v.Str = before.Str + v.Str
		}
		s.variables[name] = v
		delete(s.unknown, name)
	}
}

func (s *shell) value(a *syntax.Assign) (v expand.Variable, err error) {
	v.Set, v.Kind = true, expand.String
	if a.Array != nil {
		v.Kind = expand.Indexed
		var words []*syntax.Word
		for _, element := range a.Array.Elems {
			if element.Index != nil || element.Value == nil {
				return v, fmt.Errorf("the array at %s is not worked out here", element.Pos())
			}
			words = append(words, element.Value)
		}
		v.List, err = s.words(words)
		return v, err
	}
	if a.Value == nil {
		return v, nil
	}
	if err := s.plain(a.Value); err != nil {
		return v, err
	}
	v.Str, err = expand.Literal(s.config(), a.Value)
	return v, err
}

// words are what the shell makes of words.
func (s *shell) words(words []*syntax.Word) ([]string, error) {
	for _, word := range words {
		if err := s.plain(word); err != nil {
			return nil, err
		}
	}
	return expand.Fields(s.config(), words...)
}

func (s *shell) config() *expand.Config {
	return &expand.Config{
		Env: environment(s.variables),
		CmdSubst: func(_ io.Writer, c *syntax.CmdSubst) error {
			return fmt.Errorf("the output of a command at %s is only known on the machine", c.Pos())
		},
	}
}

// environment is what a script has set.
type environment map[string]expand.Variable

func (e environment) Get(name string) expand.Variable { return e[name] }

func (e environment) Each(f func(string, expand.Variable) bool) {
	for name, v := range e {
		if !f(name, v) {
			return
		}
	}
}

// plain refuses what only the machine knows, and what no user data needs and a
// reader of it need not work out: arithmetic, and sequences such as
// {1..1000000000}.
func (s *shell) plain(word *syntax.Word) (err error) {
	braces := *word // SplitBraces takes it apart
	if syntax.SplitBraces(&braces) && hasSequence(&braces) {
		return fmt.Errorf("the sequence at %s is not worked out here", word.Pos())
	}
	inFunction := slices.ContainsFunc(s.blocks, func(b block) bool { _, is := b.node.(*syntax.FuncDecl); return is })
	syntax.Walk(word, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.ArithmExp:
			err = fmt.Errorf("the arithmetic at %s is not worked out here", node.Pos())
		case *syntax.ParamExp:
			if n.Param != nil && (s.unknown[n.Param.Value] || inFunction && strings.Contains("@*123456789", n.Param.Value)) {
				err = fmt.Errorf("$%s at %s is only known on the machine", n.Param.Value, node.Pos())
			}
		}
		return err == nil
	})
	return err
}

func hasSequence(word *syntax.Word) bool {
	return slices.ContainsFunc(word.Parts, func(part syntax.WordPart) bool {
		b, is := part.(*syntax.BraceExp)
		return is && (b.Sequence || slices.ContainsFunc(b.Elems, hasSequence))
	})
}
