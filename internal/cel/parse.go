package cel

import "strconv"

type nodeKind int

const (
	nodeLiteral  nodeKind = iota // value
	nodeVariable                 // name
	nodeOperator                 // name is the operator, "?" the conditional, "[" an index
	nodeCall                     // name(args...)
	nodeMethod                   // args[0].name(args[1:]...)
	nodeField                    // args[0].name
	nodeList                     // [args...]
)

type node struct {
	kind   nodeKind
	offset int
	name   string
	args   []*node
	value  any
	typ    typ // set by the checker
	height int
}

type parser struct {
	lexer lexer
	tok   token
	depth int
}

func parse(src string) (*node, error) {
	p := &parser{lexer: lexer{src: src}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == tokenEOF {
		return nil, errorAt(p.tok.offset, "the expression is empty")
	}
	n, err := p.expr()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokenEOF {
		return nil, p.unexpected("an operator or the end of the expression")
	}
	return n, nil
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lexer.next()
	return err
}

func (p *parser) unexpected(want string) error {
	return errorAt(p.tok.offset, "unexpected %s, expected %s", p.tok, want)
}

func (p *parser) is(symbol string) bool {
	return p.tok.kind == tokenSymbol && p.tok.text == symbol
}

func (p *parser) expect(symbol string) error {
	if !p.is(symbol) {
		return p.unexpected("'" + symbol + "'")
	}
	return p.advance()
}

// operator makes the node of an operator, whose height is bounded: a chain of
// operators is a tree as high as the chain is long, and the passes over the
// tree recurse.
func (p *parser) operator(name string, offset int, args ...*node) (*node, error) {
	return bounded(&node{kind: nodeOperator, name: name, offset: offset, args: args})
}

func bounded(n *node) (*node, error) {
	for _, a := range n.args {
		n.height = max(n.height, a.height+1)
	}
	if n.height > maxDepth {
		return nil, tooDeep(n.offset)
	}
	return n, nil
}

func tooDeep(offset int) error {
	return errorAt(offset, "the expression is nested too deep: %d levels are supported", maxDepth)
}

// expr parses a whole expression. The branch before the colon is not one: CEL
// asks for parentheses around a conditional there.
func (p *parser) expr() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, tooDeep(p.tok.offset)
	}
	defer func() { p.depth-- }()
	cond, err := p.binary(0)
	if err != nil || !p.is("?") {
		return cond, err
	}
	offset := p.tok.offset
	if err := p.advance(); err != nil {
		return nil, err
	}
	then, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	if p.is("?") {
		return nil, errorAt(p.tok.offset, "a conditional between ? and : needs parentheses around it")
	}
	if err := p.expect(":"); err != nil {
		return nil, err
	}
	otherwise, err := p.expr()
	if err != nil {
		return nil, err
	}
	return p.operator("?", offset, cond, then, otherwise)
}

// level returns how tightly a binary operator binds, or -1 if the symbol is
// not one.
func level(symbol string) int {
	switch symbol {
	case "||":
		return 0
	case "&&":
		return 1
	case "==", "!=", "<", "<=", ">", ">=", "in":
		return 2
	case "+", "-":
		return 3
	case "*", "/", "%":
		return 4
	}
	return -1
}

// binary parses the operators that bind at least as tightly as minLevel, all
// of them to the left.
func (p *parser) binary(minLevel int) (*node, error) {
	left, err := p.unary()
	for err == nil && p.tok.kind == tokenSymbol && level(p.tok.text) >= minLevel {
		op := p.tok
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := p.binary(level(op.text) + 1)
		if err != nil {
			return nil, err
		}
		if left, err = p.operator(op.text, op.offset, left, right); err != nil {
			return nil, err
		}
	}
	return left, err
}

// unary parses ! and -. Either may be repeated, but not mixed with the other,
// and an even number of them is dropped without a look at the type of the
// operand: that is cel-go's way.
func (p *parser) unary() (*node, error) {
	if !p.is("!") && !p.is("-") {
		return p.member(false)
	}
	op, count := p.tok, 0
	for p.is(op.text) {
		count++
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	if p.is("!") || p.is("-") {
		return nil, errorAt(p.tok.offset, "'!' and '-' next to each other need parentheses between them")
	}
	// One minus is part of the number after it, or the smallest int could not
	// be written.
	if op.text == "-" && count == 1 && (p.tok.kind == tokenInt || p.tok.kind == tokenDouble) {
		return p.member(true)
	}
	operand, err := p.member(false)
	if err != nil || count%2 == 0 {
		return operand, err
	}
	return p.operator(op.text, op.offset, operand)
}

func (p *parser) member(negative bool) (*node, error) {
	n, err := p.primary(negative)
	for err == nil {
		switch offset := p.tok.offset; {
		case p.is("["):
			if err := p.advance(); err != nil {
				return nil, err
			}
			index, err := p.expr()
			if err != nil {
				return nil, err
			}
			if err := p.expect("]"); err != nil {
				return nil, err
			}
			if n, err = p.operator("[", offset, n, index); err != nil {
				return nil, err
			}
		case p.is("."):
			if err := p.advance(); err != nil {
				return nil, err
			}
			name := p.tok
			if name.kind != tokenIdent || isConstant(name.text) {
				return nil, p.unexpected("a name")
			}
			if err := p.advance(); err != nil {
				return nil, err
			}
			field := &node{kind: nodeField, name: name.text, offset: name.offset, args: []*node{n}}
			if p.is("(") {
				field.kind = nodeMethod
				args, err := p.list("(", ")", false)
				if err != nil {
					return nil, err
				}
				field.args = append(field.args, args...)
			}
			if n, err = bounded(field); err != nil {
				return nil, err
			}
		default:
			return n, nil
		}
	}
	return n, err
}

func emptyList(offset int) error {
	return errorAt(offset, "the empty list is not supported")
}

// list parses expressions between brackets.
func (p *parser) list(open, end string, trailingComma bool) ([]*node, error) {
	if err := p.expect(open); err != nil {
		return nil, err
	}
	var elems []*node
	for !p.is(end) {
		if p.is(",") && trailingComma && elems == nil { // [,] is a list in cel-go
			return nil, emptyList(p.tok.offset)
		}
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		elems = append(elems, e)
		if !p.is(",") {
			break
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.is(end) && !trailingComma {
			return nil, p.unexpected("an argument")
		}
	}
	return elems, p.expect(end)
}

func (p *parser) primary(negative bool) (*node, error) {
	tok := p.tok
	switch {
	case tok.kind == tokenEOF:
		return nil, p.unexpected("a value")
	case p.is("("):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.expr()
		if err != nil {
			return nil, err
		}
		return n, p.expect(")")
	case p.is("["):
		elems, err := p.list("[", "]", true)
		if err != nil {
			return nil, err
		}
		return bounded(&node{kind: nodeList, offset: tok.offset, args: elems})
	case p.is("{"):
		return nil, errorAt(tok.offset, "maps are not supported")
	case p.is("."): // The root scope, which is the only one there is.
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.tok.kind != tokenIdent || isConstant(p.tok.text) {
			return nil, p.unexpected("a name")
		}
		return p.named()
	case tok.kind == tokenSymbol:
		return nil, p.unexpected("a value")
	case tok.kind == tokenIdent && !isConstant(tok.text):
		return p.named()
	}
	value, err := literal(tok, negative)
	if err != nil {
		return nil, err
	}
	return &node{kind: nodeLiteral, offset: tok.offset, value: value}, p.advance()
}

// named parses a variable or a call.
func (p *parser) named() (*node, error) {
	n := &node{kind: nodeVariable, name: p.tok.text, offset: p.tok.offset}
	if isReserved(n.name) {
		return nil, errorAt(n.offset, "'%s' is a reserved word", n.name)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	switch {
	case p.is("("):
		n.kind = nodeCall
		args, err := p.list("(", ")", false)
		if err != nil {
			return nil, err
		}
		n.args = args
		return bounded(n)
	case p.is("{"):
		return nil, errorAt(n.offset, "messages are not supported")
	}
	return n, nil
}

func literal(tok token, negative bool) (any, error) {
	text := tok.text
	if tok.kind == tokenUint {
		text = text[:len(text)-1]
	}
	base := 10
	if len(text) > 2 && text[:2] == "0x" && tok.kind != tokenString {
		base, text = 16, text[2:]
	}
	if negative {
		text = "-" + text
	}
	var value any
	var err error
	switch tok.kind {
	case tokenInt:
		value, err = strconv.ParseInt(text, base, 64)
	case tokenUint:
		value, err = strconv.ParseUint(text, base, 64)
	case tokenDouble:
		value, err = strconv.ParseFloat(text, 64)
	case tokenString:
		value = text
	default:
		if text == "null" {
			return nil, errorAt(tok.offset, "null is not supported")
		}
		value = text == "true"
	}
	if err != nil {
		return nil, errorAt(tok.offset, "the number %s is out of range", tok.text)
	}
	return value, nil
}

func isConstant(name string) bool {
	return name == "true" || name == "false" || name == "null"
}

func isReserved(name string) bool {
	switch name {
	case "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while":
		return true
	}
	return false
}
