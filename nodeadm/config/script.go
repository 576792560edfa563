package config

import (
	"bytes"
	"fmt"
	"io"
	"path"
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
	variables := map[string]string{}
	env := &expand.Config{
		Env: expand.FuncEnviron(func(name string) string { return variables[name] }),
		CmdSubst: func(_ io.Writer, c *syntax.CmdSubst) error {
			return fmt.Errorf("the output of a command at %s is only known on the machine", c.Pos())
		},
	}
	assign := func(assigns []*syntax.Assign) {
		for _, a := range assigns {
			if a.Name == nil || a.Value == nil {
				continue
			}
			// A value that cannot be known matters only if it is used.
			if value, err := expand.Literal(env, a.Value); err == nil {
				variables[a.Name.Value] = value
			}
		}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if declaration, ok := node.(*syntax.DeclClause); ok { // export, readonly …
			assign(declaration.Args)
			return true
		}
		call, ok := node.(*syntax.CallExpr)
		if !ok || args != nil || err != nil {
			return args == nil && err == nil
		}
		if len(call.Args) == 0 {
			assign(call.Assigns)
			return true
		}
		at := -1
		for i, word := range call.Args {
			if path.Base(word.Lit()) == "bootstrap.sh" {
				at = i
				break
			}
		}
		if at < 0 {
			return true
		}
		for _, word := range call.Args[at+1:] {
			if err == nil {
				err = plainWord(word)
			}
		}
		if err == nil {
			args, err = expand.Fields(env, call.Args[at+1:]...)
		}
		if err != nil {
			err = fault.New(fault.Usage, "put the value itself into the script to simulate it", "%s: bootstrap.sh at line %d: %w", source, call.Pos().Line(), err)
		} else if args == nil {
			args = []string{}
		}
		return false
	})
	return args, err
}

// plainWord refuses what no user data needs and a reader of it need not work
// out: arithmetic, and sequences such as {1..1000000000}.
func plainWord(word *syntax.Word) (err error) {
	syntax.Walk(word, func(node syntax.Node) bool {
		switch node.(type) {
		case *syntax.ArithmExp:
			err = fmt.Errorf("the arithmetic at %s is not worked out here", node.Pos())
		case *syntax.Word:
			if printed := (&strings.Builder{}); syntax.NewPrinter().Print(printed, node) == nil && strings.Contains(printed.String(), "..") && strings.Contains(printed.String(), "{") {
				err = fmt.Errorf("the sequence at %s is not worked out here", node.Pos())
			}
		}
		return err == nil
	})
	return err
}
