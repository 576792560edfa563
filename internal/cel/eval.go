package cel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// eval computes the value of a node the checker has passed, which is why the
// type assertions need no second look.
func eval(n *node, vars map[string]int64) (any, error) {
	switch {
	case n.kind == nodeLiteral:
		return n.value, nil
	case n.kind == nodeVariable:
		v, ok := vars[n.name]
		if !ok {
			return nil, errorAt(n.offset, "the variable '%s' has no value", n.name)
		}
		return v, nil
	case n.kind == nodeOperator && n.name == "?":
		cond, err := eval(n.args[0], vars)
		if err != nil {
			return nil, err
		}
		if cond.(bool) {
			return eval(n.args[1], vars)
		}
		return eval(n.args[2], vars)
	case n.kind == nodeOperator && (n.name == "&&" || n.name == "||"):
		return logic(n, vars)
	}
	args := make([]any, len(n.args))
	for i, a := range n.args {
		var err error
		if args[i], err = eval(a, vars); err != nil {
			return nil, err
		}
	}
	var v any
	var err error
	switch n.kind {
	case nodeList:
		return args, nil
	case nodeOperator:
		v, err = operate(n, args)
	default:
		v, err = call(n.name, args)
	}
	if err != nil {
		return nil, errorAt(n.offset, "%v", err)
	}
	return v, nil
}

// logic evaluates && and ||, in which the operand that decides the result does
// so even when the other one, to its left or right, is an error.
func logic(n *node, vars map[string]int64) (any, error) {
	decides := n.name == "||"
	var failed error
	for _, a := range n.args {
		v, err := eval(a, vars)
		switch {
		case err == nil && v.(bool) == decides:
			return decides, nil
		case failed == nil:
			failed = err
		}
	}
	return !decides, failed
}

func operate(n *node, args []any) (any, error) {
	if len(args) == 1 {
		switch x := args[0].(type) {
		case bool:
			return !x, nil
		case float64:
			return -x, nil
		case int64:
			if x == math.MinInt64 {
				return nil, overflow(typInt)
			}
			return -x, nil
		}
	}
	a, b := args[0], args[1]
	switch n.name {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		return slices.ContainsFunc(b.([]any), func(e any) bool { return equal(a, e) }), nil
	case "[":
		list, i := a.([]any), b.(int64)
		if i < 0 || i >= int64(len(list)) {
			return nil, fmt.Errorf("there is no element %d in a list of %d", i, len(list))
		}
		return list[i], nil
	}
	switch x := a.(type) {
	case int64:
		if isRelation(n.name) {
			return relation(n.name, x, b.(int64)), nil
		}
		return intArithmetic(n.name, x, b.(int64))
	case uint64:
		if isRelation(n.name) {
			return relation(n.name, x, b.(uint64)), nil
		}
		return uintArithmetic(n.name, x, b.(uint64))
	case float64:
		if isRelation(n.name) {
			return relation(n.name, x, b.(float64)), nil
		}
		return doubleArithmetic(n.name, x, b.(float64)), nil
	case string:
		if isRelation(n.name) {
			return relation(n.name, x, b.(string)), nil
		}
		return x + b.(string), nil
	case bool:
		return relation(n.name, ordinal(x), ordinal(b.(bool))), nil
	}
	return slices.Concat(a.([]any), b.([]any)), nil
}

func ordinal(b bool) int {
	if b {
		return 1
	}
	return 0
}

func equal(a, b any) bool {
	x, ok := a.([]any)
	if !ok {
		return a == b
	}
	return slices.EqualFunc(x, b.([]any), equal)
}

func isRelation(op string) bool { return op[0] == '<' || op[0] == '>' }

// relation is Go's, not cmp.Compare's, in which NaN has a place: nothing is
// more or less than NaN.
func relation[T cmp.Ordered](op string, a, b T) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

func overflow(t typ) error { return fmt.Errorf("the result is beyond the range of %s", t) }
func byZero() error        { return fmt.Errorf("division by zero") }

func intArithmetic(op string, a, b int64) (any, error) {
	var r int64
	ok := true
	switch op {
	case "+":
		r = a + b
		ok = (r > a) == (b > 0)
	case "-":
		r = a - b
		ok = (r < a) == (b > 0)
	case "*":
		r = a * b
		ok = a == 0 || r/a == b && !(a == -1 && b == math.MinInt64)
	case "/", "%":
		switch {
		case b == 0:
			return nil, byZero()
		case a == math.MinInt64 && b == -1:
			ok = false
		case op == "/":
			r = a / b
		default:
			r = a % b
		}
	}
	if !ok {
		return nil, overflow(typInt)
	}
	return r, nil
}

func uintArithmetic(op string, a, b uint64) (any, error) {
	var r uint64
	ok := true
	switch op {
	case "+":
		r = a + b
		ok = r >= a
	case "-":
		r = a - b
		ok = a >= b
	case "*":
		r = a * b
		ok = a == 0 || r/a == b
	case "/", "%":
		switch {
		case b == 0:
			return nil, byZero()
		case op == "/":
			r = a / b
		default:
			r = a % b
		}
	}
	if !ok {
		return nil, overflow(typUint)
	}
	return r, nil
}

func doubleArithmetic(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	return a / b
}

func call(name string, args []any) (any, error) {
	switch name {
	case "int":
		return toInt(args[0])
	case "uint":
		return toUint(args[0])
	case "double":
		return toDouble(args[0])
	case "bool":
		return toBool(args[0])
	case "string":
		return toString(args[0]), nil
	case "contains":
		return strings.Contains(args[0].(string), args[1].(string)), nil
	case "startsWith":
		return strings.HasPrefix(args[0].(string), args[1].(string)), nil
	case "endsWith":
		return strings.HasSuffix(args[0].(string), args[1].(string)), nil
	}
	if list, ok := args[0].([]any); ok { // size
		return int64(len(list)), nil
	}
	return int64(utf8.RuneCountInString(args[0].(string))), nil
}
