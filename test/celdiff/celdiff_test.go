// Package celdiff holds internal/cel to cel-go, in a module of its own so that
// cel-go is a dependency of nothing else.
package celdiff

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/eks-bootstrap/nodeadm/internal/cel"
)

var (
	seed    = flag.Uint64("seed", 1, "seed of the random expressions")
	count   = flag.Int("count", 20000, "number of random expressions")
	maxTime = flag.Duration("max-time", 15*time.Second, "time for random expressions, after which the test ends early")
)

func variables() []string { return []string{"default_enis", "ips_per_eni", "max_pods"} }

// machines are what the variables are: two instance types, and values at which
// arithmetic fails.
func machines() []map[string]int64 {
	return []map[string]int64{
		{"default_enis": 3, "ips_per_eni": 10, "max_pods": 29},
		{"default_enis": 15, "ips_per_eni": 50, "max_pods": 737},
		{"default_enis": 0, "ips_per_eni": math.MaxInt64, "max_pods": math.MinInt64},
	}
}

// result is what an implementation makes of an expression, in a form that
// compares.
type result struct {
	compileErr, evalErr error
	value               any
	asInt               int64
	asIntErr            error
}

func (r result) String() string {
	switch {
	case r.compileErr != nil:
		return "error of compilation: " + r.compileErr.Error()
	case r.evalErr != nil:
		return "error of evaluation: " + r.evalErr.Error()
	}
	return fmt.Sprintf("%T %v, as an int %d, %v", r.value, r.value, r.asInt, r.asIntErr)
}

// unsupported tells whether the error is that the expression has a part of CEL
// that is left out on purpose. TestUnsupported has them, each with its reason.
func (r result) unsupported() bool {
	return r.compileErr != nil && strings.Contains(r.compileErr.Error(), "supported")
}

func ours(src string, vars map[string]int64) (r result) {
	var p *cel.Program
	if p, r.compileErr = cel.Compile(src, variables()); r.compileErr != nil {
		return r
	}
	var v cel.Value
	if v, r.evalErr = p.Eval(vars); r.evalErr != nil {
		return r
	}
	r.value = v.Any()
	r.asInt, r.asIntErr = v.Int()
	return r
}

func newEnv(t testing.TB) *celgo.Env {
	var opts []celgo.EnvOption
	for _, v := range variables() {
		opts = append(opts, celgo.Variable(v, celgo.IntType))
	}
	env, err := celgo.NewEnv(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func theirs(env *celgo.Env, src string, vars map[string]int64) (r result) {
	ast, issues := env.Compile(src)
	if r.compileErr = issues.Err(); r.compileErr != nil {
		return r
	}
	var p celgo.Program
	if p, r.compileErr = env.Program(ast); r.compileErr != nil {
		return r
	}
	in := map[string]any{}
	for k, v := range vars {
		in[k] = v
	}
	var v ref.Val
	if v, _, r.evalErr = p.Eval(in); r.evalErr != nil {
		return r
	}
	r.value = native(v)
	n := v.ConvertToType(types.IntType)
	if types.IsError(n) {
		r.asIntErr = n.(*types.Err)
	} else {
		r.asInt = n.Value().(int64)
	}
	return r
}

// native makes a value of cel-go what Value.Any returns.
func native(v ref.Val) any {
	list, ok := v.Value().([]ref.Val)
	if !ok {
		if l, isList := v.(interface {
			Size() ref.Val
			Get(ref.Val) ref.Val
		}); isList && v.Type() == types.ListType {
			for i := range int64(l.Size().(types.Int)) {
				list = append(list, l.Get(types.Int(i)))
			}
			ok = true
		}
	}
	if !ok {
		return v.Value()
	}
	elems := []any{}
	for _, e := range list {
		elems = append(elems, native(e))
	}
	return elems
}

// same also holds for NaN, which is not equal to itself, and tells -0 from 0.
func same(a, b any) bool {
	if x, ok := a.(float64); ok {
		y, ok := b.(float64)
		return ok && (math.Float64bits(x) == math.Float64bits(y) || math.IsNaN(x) && math.IsNaN(y))
	}
	if x, ok := a.([]any); ok {
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

func differ(a, b result) string {
	switch {
	case (a.compileErr != nil) != (b.compileErr != nil):
		return "compilation"
	case (a.evalErr != nil) != (b.evalErr != nil):
		return "evaluation"
	case !same(a.value, b.value):
		return "value"
	case (a.asIntErr != nil) != (b.asIntErr != nil) || a.asInt != b.asInt:
		return "conversion to int"
	}
	return ""
}

func compare(t *testing.T, env *celgo.Env, src string) (outcome string) {
	t.Helper()
	for _, vars := range machines() {
		a, b := ours(src, vars), theirs(env, src, vars)
		if b.compileErr == nil && a.unsupported() {
			return "not supported"
		}
		if d := differ(a, b); d != "" {
			t.Errorf("%s of\n\t%s\nwith %v:\n\tours:   %v\n\ttheirs: %v", d, src, vars, a, b)
			return "difference"
		}
		switch {
		case a.compileErr != nil:
			return "error of compilation"
		case a.evalErr != nil && outcome == "":
			outcome = "error of evaluation"
		case a.evalErr == nil:
			outcome = "value"
		}
	}
	return outcome
}

func TestCorpus(t *testing.T) {
	env := newEnv(t)
	outcomes := map[string]int{}
	for _, src := range corpus() {
		outcomes[compare(t, env, src)]++
	}
	t.Logf("%d expressions: %v", len(corpus()), outcomes)
	if outcomes["not supported"] > 0 {
		t.Error("what is not supported belongs in TestUnsupported")
	}
}

// TestUnsupported has what cel-go evaluates and internal/cel does not: always
// an error of compilation, and one that says what is wrong.
func TestUnsupported(t *testing.T) {
	env := newEnv(t)
	for _, test := range []struct{ src, message, reason string }{
		{`[1, 2].exists(i, i == max_pods) ? 1 : 2`, "macro 'exists' is not supported", "no collections to go over"},
		{`[1, 2].all(i, i == max_pods) ? 1 : 2`, "macro 'all' is not supported", ""},
		{`[1, 2].exists_one(i, i == max_pods) ? 1 : 2`, "macro 'exists_one' is not supported", ""},
		{`[1, 2].map(i, i * 2)[0]`, "macro 'map' is not supported", ""},
		{`[1, 2].filter(i, i > 1)[0]`, "macro 'filter' is not supported", ""},
		{`has({'a': 1}.a) ? 1 : 2`, "maps are not supported", ""},
		{`{'a': 1}['a']`, "maps are not supported", ""},
		{`google.protobuf.Int64Value{value: 1}`, "unexpected '{'", "protocol buffers"},
		{`null == null`, "null is not supported", "nothing is ever null"},
		{`size(b'abc')`, "bytes are not supported", ""},
		{`size(bytes('abc'))`, "function 'bytes' is not supported", ""},
		{`'abc'.matches('b') ? 1 : 2`, "function 'matches' is not supported", "it would need package regexp"},
		{`int(timestamp('2020-01-01T00:00:00Z'))`, "function 'timestamp' is not supported", ""},
		{`int(duration('1s'))`, "function 'duration' is not supported", ""},
		{`type(1) == int`, "function 'type' is not supported", ""},
		{`int != uint`, "types as values are not supported", ""},
		{`dyn(1) + 1`, "function 'dyn' is not supported", "the checker has no dynamic type"},
		{`null`, "null is not supported", ""},
		{`int`, "types as values are not supported", ""},
		{`[,]`, "the empty list is not supported", "cel-go's grammar has it"},
		{`size([])`, "the empty list is not supported", "its type would have to be inferred"},
		{`size([1, 'a'])`, "lists of several types are not supported", "the checker has no dynamic type"},
		{`[1, 2.0][0]`, "lists of several types are not supported", ""},
		{"1" + strings.Repeat("+1", 100), "64 levels are supported", "a bound, where cel-go's is 250"},
		{"1" + strings.Repeat(" ", 5000), "more than the 4096 supported", "a bound"},
		{"size('\xff')", "not valid UTF-8", "cel-go reads a replacement character; documents are UTF-8"},
	} {
		vars := machines()[0]
		if r := theirs(env, test.src, vars); r.compileErr != nil || r.evalErr != nil {
			t.Errorf("%.60s: cel-go does not support it either: %v", test.src, r)
		}
		if r := ours(test.src, vars); r.compileErr == nil || !strings.Contains(r.compileErr.Error(), test.message) {
			t.Errorf("%.60s: got error %v, want one with %q (%s)", test.src, r.compileErr, test.message, test.reason)
		}
	}
}

// TestBounds has expressions as large as internal/cel takes them, which cel-go,
// with bounds of its own, must take too.
func TestBounds(t *testing.T) {
	env := newEnv(t)
	nest := func(n int, before, after string) string {
		return strings.Repeat(before, n) + "1" + strings.Repeat(after, n)
	}
	sums := "1"
	for range 30 {
		sums = "1" + strings.Repeat("+1", 30) + "+(" + sums + ")"
	}
	for _, src := range []string{
		nest(63, "(", ")"),
		nest(63, "[", "]") + " == " + nest(62, "[", "]") + " ? 1 : 2", // a type error
		nest(62, "[", "]") + " == " + nest(62, "[", "]") + " ? 1 : 2",
		nest(63, "int(", ")"),
		nest(31, "-(-(", "))"),
		nest(64, "1+", ""),
		nest(64, "", "-1"),
		nest(63, "max_pods == 1 ? 1 : ", ""),
		nest(30, "(true ? (", ") : 2)"),
		nest(12, "(1 + 2 * [3][(", ") - 1])"),
		"true" + strings.Repeat(" && true", 64),
		"false" + strings.Repeat(" || max_pods == 1 && true", 61),
		"1" + strings.Repeat("+1*2-3", 20),
		"[1" + strings.Repeat(", 1", 1300) + "][1300]",
		nest(2000, "-", ""),
		nest(2001, "-", ""),
		sums,
	} {
		if outcome := compare(t, env, src); outcome == "not supported" {
			t.Errorf("%.60s...: %s", src, outcome)
		}
	}
}

func TestRandom(t *testing.T) {
	env := newEnv(t)
	g := &generator{rand.New(rand.NewPCG(*seed, 0))}
	outcomes := map[string]int{}
	start, n := time.Now(), 0
	for ; n < *count && time.Since(start) < *maxTime; n++ {
		src := g.source()
		outcome := compare(t, env, src)
		if outcomes[outcome]++; outcomes["difference"] == 10 {
			t.Fatal("too many differences")
		}
	}
	t.Logf("%d expressions in %v, seed %d: %v", n, time.Since(start).Round(time.Millisecond), *seed, outcomes)
	if outcomes["not supported"] > n/20 {
		t.Errorf("of %d expressions, %d are not supported: too many to be what TestUnsupported has", n, outcomes["not supported"])
	}
	if n < 2000 || outcomes["value"] < n/4 {
		t.Errorf("of %d expressions, only %d have a value: too few to prove anything", n, outcomes["value"])
	}
}

// generator makes expressions that mostly pass the type checker: others fail
// in the same place over and over.
type generator struct{ *rand.Rand }

func (g *generator) pick(s ...string) string { return s[g.IntN(len(s))] }

func (g *generator) source() string {
	if g.IntN(8) == 0 {
		return g.tokens()
	}
	typ := g.pick("int", "int", "int", "uint", "double", "bool", "string", "list")
	src := g.expr(typ, 1+g.IntN(5))
	switch g.IntN(20) {
	case 0:
		return g.mutate(src)
	case 1: // without the parentheses, what matters is precedence
		return strings.NewReplacer("(", " ", ")", " ").Replace(src)
	case 2:
		return "// a comment\n" + strings.ReplaceAll(src, " ", " // another\n\t")
	}
	return src
}

// tokens makes a short sequence of anything, which reaches what the grammar of
// the other expressions does not have.
func (g *generator) tokens() string {
	src := ""
	for range 2 + g.IntN(6) {
		src += g.pick("-", "-", "!", "(", "(", ")", ")", "[", "]", "?", ":", ",", ".", "+", "*", "%", "<", "==", "&&", "||", "in", " ", " ",
			"1", "1", "2.5", ".5", "3u", "'a'", "true", "max_pods", "size", "int", "e1", "0x", "r", "{", "}", "//", "\n")
	}
	return src
}

// mutate makes a syntax error, or sometimes something surprising.
func (g *generator) mutate(s string) string {
	src, chars := []rune(s), []rune("()[]{}<>=!&|+-*/%?:.,'\"\\ \n019xuUe_rtb")
	for range 1 + g.IntN(3) {
		i := g.IntN(len(src) + 1)
		if i < len(src) && g.IntN(2) == 0 {
			src = slices.Delete(src, i, i+1)
		} else {
			src = slices.Insert(src, i, chars[g.IntN(len(chars))])
		}
	}
	return string(src)
}

func (g *generator) expr(typ string, depth int) string {
	if g.IntN(60) == 0 { // a type error
		typ = g.pick("int", "uint", "double", "bool", "string", "list")
	}
	if depth <= 0 {
		return g.leaf(typ)
	}
	sub := func(typ string) string { return g.expr(typ, depth-1-g.IntN(2)) }
	switch g.IntN(12) {
	case 0:
		return g.leaf(typ)
	case 1:
		return fmt.Sprintf("(%s ? %s : %s)", sub("bool"), sub(typ), sub(typ))
	case 2:
		return sub(typ) // without parentheses, rarely
	case 3:
		if typ != "bool" || g.IntN(2) == 0 {
			elem := fmt.Sprintf("[%s, %s]", sub(typ), sub(typ))
			if typ != "list" {
				return elem + "[" + g.pick("0", "1", "1", sub("int")) + "]"
			}
		}
	}
	binary := func(typ string, ops ...string) string {
		s := sub(typ) + " " + g.pick(ops...) + " " + sub(typ)
		if g.IntN(4) > 0 {
			s = "(" + s + ")"
		}
		return s
	}
	switch typ {
	case "int":
		switch g.IntN(10) {
		case 0:
			return g.pick("-", "-", "--", "---") + g.pick("(", " (") + sub("int") + ")"
		case 1:
			return "int(" + sub(g.pick("int", "uint", "double", "string")) + ")"
		case 2:
			return g.pick("size("+sub("string")+")", sub("list")+".size()", "("+sub("string")+").size()")
		}
		return binary("int", "+", "-", "*", "/", "%")
	case "uint":
		if g.IntN(4) == 0 {
			return "uint(" + sub(g.pick("int", "uint", "double", "string")) + ")"
		}
		return binary("uint", "+", "-", "*", "/", "%")
	case "double":
		switch g.IntN(6) {
		case 0:
			return g.pick("-", "--") + "(" + sub("double") + ")"
		case 1:
			return "double(" + sub(g.pick("int", "uint", "double", "string")) + ")"
		}
		return binary("double", "+", "-", "*", "/")
	case "bool":
		switch g.IntN(8) {
		case 0:
			return g.pick("!", "!!", "!!!") + "(" + sub("bool") + ")"
		case 1:
			return "bool(" + sub(g.pick("bool", "string")) + ")"
		case 2:
			return fmt.Sprintf("(%s).%s(%s)", sub("string"), g.pick("contains", "startsWith", "endsWith"), sub("string"))
		case 3:
			elem := g.pick("int", "uint", "double", "bool", "string", "list")
			return fmt.Sprintf("(%s in [%s, %s])", sub(elem), sub(elem), sub(elem))
		case 4, 5:
			return binary("bool", "&&", "||")
		case 6:
			return binary("list", "==", "!=")
		}
		return binary(g.pick("int", "uint", "double", "bool", "string"), "==", "!=", "<", "<=", ">", ">=")
	case "string":
		if g.IntN(2) == 0 {
			return "string(" + sub(g.pick("int", "uint", "double", "bool", "string")) + ")"
		}
		return binary("string", "+")
	}
	return binary("list", "+")
}

func (g *generator) leaf(typ string) string {
	switch typ {
	case "int":
		if g.IntN(2) == 0 {
			return g.pick("default_enis", "ips_per_eni", "max_pods", ".max_pods")
		}
		return g.pick("0", "1", "2", "3", "16", "110", "007", "-1", "- 5", "0x1F", "-0x10", "2147483648", "4294967296",
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", fmt.Sprint(g.IntN(1000)))
	case "uint":
		return g.pick("0u", "1u", "2u", "3U", "110u", "0x1Fu", "18446744073709551615u", "9223372036854775808u",
			"18446744073709551616u", fmt.Sprint(g.IntN(1000), "u"))
	case "double":
		return g.pick("0.0", "1.0", ".5", "2.5", "-1.5", "1e3", "1.5e3", "1E-2", "1e18", "1e19", "9.3e18", "1e300", "1e400",
			"9223372036854775807.0", "-9223372036854775808.0", "double('NaN')", "double('-inf')", fmt.Sprint(float64(g.IntN(1000))/8, "e0"))
	case "bool":
		return g.pick("true", "false", "max_pods > 110", "1 / 0 == 1")
	case "string":
		return g.pick(`""`, `"12"`, `'12'`, `"-7"`, `"+7"`, `" 7"`, `"1.5"`, `"1e3"`, `"0x10"`, `"1_000"`, `"true"`, `"t"`, `"True"`, `"inf"`,
			`"a\tb\"\x41\101\u00e9\U0001F600"`, `r"a\n"`, `R'\'`, `'''a'b''' `, "\"\"\"a\r\nb\"\"\"", `"h\u00e9llo"`, `"é"`, `"日本"`, `'\''`)
	}
	return g.pick("[1, 2]", "[max_pods]", "[1, 2, 3,]", "[default_enis, ips_per_eni]")
}

func BenchmarkOurs(b *testing.B) {
	for b.Loop() {
		if r := ours(corpus()[0], machines()[0]); r.value == nil {
			b.Fatal(r)
		}
	}
}

func BenchmarkTheirs(b *testing.B) {
	for b.Loop() {
		if r := theirs(newEnv(b), corpus()[0], machines()[0]); r.value == nil {
			b.Fatal(r)
		}
	}
}
