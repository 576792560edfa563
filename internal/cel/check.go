package cel

import (
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/suggest"
)

// checker gives every node its type. There are no implicit conversions in CEL,
// and none of its dynamic types here, so that what passes can only fail for
// its values: an overflow, a division by zero, a string that is not a number.
type checker struct {
	variables []string
}

func (c *checker) check(n *node) (err error) {
	switch n.kind {
	case nodeLiteral:
		n.typ = typeOf(n.value)
		return nil
	case nodeVariable:
		return c.variable(n)
	case nodeCall, nodeMethod:
		// Before the arguments, which may be meaningless without the function.
		if err := c.known(n); err != nil {
			return err
		}
	}
	for _, a := range n.args {
		if err := c.check(a); err != nil {
			return err
		}
	}
	switch n.kind {
	case nodeOperator:
		n.typ, err = operatorType(n)
	case nodeCall, nodeMethod:
		n.typ, err = callType(n)
	case nodeField:
		err = errorAt(n.offset, "%s has no field '%s'", article(n.args[0].typ), n.name)
	case nodeList:
		n.typ, err = listType(n)
	}
	return err
}

func (c *checker) variable(n *node) error {
	for _, v := range c.variables {
		if n.name == v {
			n.typ = typInt
			return nil
		}
	}
	switch n.name {
	case "int", "uint", "double", "bool", "string", "bytes", "list", "map", "type", "null_type", "dyn":
		return errorAt(n.offset, "types as values are not supported")
	}
	return errorAt(n.offset, "unknown variable '%s'%s", n.name, hint(n.name, c.variables))
}

func hint(name string, known []string) string {
	if near := suggest.Nearest(name, known); near != "" {
		return ", did you mean '" + near + "'?"
	}
	if len(known) == 0 {
		return ""
	}
	return ": there are " + strings.Join(known, ", ")
}

// The names are returned by functions, not kept in variables, for the package
// to have nothing to set up when the program starts.

func functions() []string { return []string{"size", "int", "uint", "double", "string", "bool"} }
func methods() []string   { return []string{"size", "contains", "startsWith", "endsWith"} }

// known says what is wrong with a name that is called.
func (c *checker) known(n *node) error {
	names, what, full := functions(), "function", n.name
	if n.kind == nodeMethod {
		names, what = methods(), "method"
		if target := n.args[0]; target.kind == nodeVariable && target.name == "math" {
			full = "math." + n.name
		}
	}
	for _, name := range names {
		if full == name {
			return nil
		}
	}
	switch full {
	case "min", "math.least", "math.min":
		return errorAt(n.offset, "CEL has no function '%s' here: write (a < b ? a : b)", full)
	case "max", "math.greatest", "math.max":
		return errorAt(n.offset, "CEL has no function '%s' here: write (a > b ? a : b)", full)
	case "has", "all", "exists", "exists_one", "existsOne", "map", "filter":
		return errorAt(n.offset, "the macro '%s' is not supported", full)
	case "matches", "type", "dyn", "bytes", "duration", "timestamp",
		"getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek",
		"getHours", "getMinutes", "getSeconds", "getMilliseconds":
		return errorAt(n.offset, "the function '%s' is not supported", full)
	}
	return errorAt(n.offset, "unknown %s '%s'%s", what, full, hint(full, names))
}

func operatorType(n *node) (typ, error) {
	a, b := n.args[0].typ, n.args[len(n.args)-1].typ
	result := typ("")
	switch n.name {
	case "?":
		if a != typBool {
			return "", errorAt(n.args[0].offset, "the condition before '?' is %s, not a bool", article(a))
		}
		if then := n.args[1].typ; then != b {
			return "", errorAt(n.offset, "the conditional is %s or %s, which must be of one type%s",
				article(then), article(b), conversion(then, b))
		}
		return b, nil
	case "!":
		if a == typBool {
			return typBool, nil
		}
		return "", errorAt(n.offset, "'!' does not apply to %s", article(a))
	case "[":
		if a.isList() && b == typInt {
			return a.elem(), nil
		}
		return "", errorAt(n.offset, "%s cannot be indexed with %s", article(a), article(b))
	case "in":
		if b.isList() && a == b.elem() {
			return typBool, nil
		}
		return "", errorAt(n.offset, "'in' does not apply to %s and %s", article(a), article(b))
	case "&&", "||":
		if a == typBool {
			result = typBool
		}
	case "==", "!=":
		result = typBool
	case "<", "<=", ">", ">=":
		if !a.isList() {
			result = typBool
		}
	case "+":
		if a != typBool {
			result = a
		}
	case "*", "/", "-":
		numeric := a == typInt || a == typUint || a == typDouble
		if numeric && !(len(n.args) == 1 && a == typUint) {
			result = a
		}
	case "%":
		if a == typInt || a == typUint {
			result = a
		}
	}
	switch {
	case len(n.args) == 1 && result == "":
		return "", errorAt(n.offset, "'%s' does not apply to %s", n.name, article(a))
	case a != b || result == "":
		return "", errorAt(n.offset, "'%s' does not apply to %s and %s%s", n.name, article(a), article(b), conversion(a, b))
	}
	return result, nil
}

// conversion says how two types could be made one: the one that loses nothing.
func conversion(a, b typ) string {
	if a == b || a.isList() || b.isList() || a == typBool || b == typBool {
		return ""
	}
	to := typInt
	for _, t := range []typ{typString, typDouble} {
		if a == t || b == t {
			to = t
			break
		}
	}
	return ": convert one with " + string(to) + "(...)"
}

func callType(n *node) (typ, error) {
	what, args := "function", n.args
	if n.kind == nodeMethod {
		what, args = "method", n.args[1:]
	}
	if n.name != "size" || n.kind == nodeCall {
		if len(args) != 1 {
			return "", errorAt(n.offset, "the %s '%s' takes one argument, not %d", what, n.name, len(args))
		}
	} else if len(args) != 0 {
		return "", errorAt(n.offset, "the method 'size' takes no arguments")
	}
	a := n.args[0].typ
	ok, result := false, typ(n.name)
	switch n.name {
	case "size":
		ok, result = a == typString || a.isList(), typInt
	case "contains", "startsWith", "endsWith":
		ok, result = a == typString, typBool
		if b := n.args[1].typ; ok && b != typString {
			return "", errorAt(n.offset, "the method '%s' takes a string, not %s", n.name, article(b))
		}
	case "int", "uint", "double":
		ok = !a.isList() && a != typBool
	case "string":
		ok = !a.isList()
	case "bool":
		ok = a == typBool || a == typString
	}
	if !ok {
		return "", errorAt(n.offset, "the %s '%s' does not apply to %s", what, n.name, article(a))
	}
	return result, nil
}

func listType(n *node) (typ, error) {
	if len(n.args) == 0 {
		return "", emptyList(n.offset)
	}
	elem := n.args[0].typ
	for _, a := range n.args[1:] {
		if a.typ != elem {
			return "", errorAt(a.offset, "a list of %s and %s: lists of several types are not supported", elem, a.typ)
		}
	}
	return listOf(elem), nil
}

func article(t typ) string {
	if t == typInt {
		return "an int"
	}
	return "a " + string(t)
}
