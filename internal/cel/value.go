package cel

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Value is the result of an expression.
type Value struct {
	v any // int64, uint64, float64, bool, string or []any of these
}

// Any returns the value as an int64, uint64, float64, bool, string or []any.
func (v Value) Any() any { return v.v }

// Int converts the value to a CEL int: a double loses its fraction, a string
// is read as a decimal number. Whether a number of pods can be that large or
// that small is for the caller to say.
func (v Value) Int() (int64, error) {
	n, err := toInt(v.v)
	if err != nil {
		return 0, fmt.Errorf("%s is not an int: %w", v, err)
	}
	return n, nil
}

// String returns the value the way CEL writes it.
func (v Value) String() string {
	switch x := v.v.(type) {
	case uint64:
		return strconv.FormatUint(x, 10) + "u"
	case string:
		return strconv.Quote(x)
	case []any:
		var elems []string
		for _, e := range x {
			elems = append(elems, Value{e}.String())
		}
		return "[" + strings.Join(elems, ", ") + "]"
	case nil:
		return "no value"
	}
	return toString(v.v)
}

// typ is a type, by the name CEL has for it.
type typ string

const (
	typInt    typ = "int"
	typUint   typ = "uint"
	typDouble typ = "double"
	typBool   typ = "bool"
	typString typ = "string"
)

func listOf(elem typ) typ { return "list(" + elem + ")" }

// elem returns the type of the elements of a list, or "".
func (t typ) elem() typ {
	if inner, ok := strings.CutPrefix(string(t), "list("); ok {
		return typ(strings.TrimSuffix(inner, ")"))
	}
	return ""
}

func (t typ) isList() bool { return t.elem() != "" }

func toInt(v any) (int64, error) {
	switch x := v.(type) {
	case int64:
		return x, nil
	case uint64:
		if x > math.MaxInt64 {
			return 0, fmt.Errorf("%d is beyond the range of int", x)
		}
		return int64(x), nil
	case float64:
		// cel-go leaves out -2^63, which would fit, and so does this. The
		// comparison is written to be false for NaN.
		if !(x > math.MinInt64 && x < math.MaxInt64) {
			return 0, fmt.Errorf("%s is beyond the range of int", toString(x))
		}
		return int64(x), nil
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the string %q is not a decimal int", x)
		}
		return n, nil
	}
	return 0, fmt.Errorf("a %s cannot be converted to int", typeOf(v))
}

func toUint(v any) (uint64, error) {
	switch x := v.(type) {
	case int64:
		if x < 0 {
			return 0, fmt.Errorf("%d is beyond the range of uint", x)
		}
		return uint64(x), nil
	case float64:
		if !(x >= 0 && x < math.MaxUint64) {
			return 0, fmt.Errorf("%s is beyond the range of uint", toString(x))
		}
		return uint64(x), nil
	case string:
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the string %q is not a decimal uint", x)
		}
		return n, nil
	}
	return v.(uint64), nil
}

func toDouble(v any) (float64, error) {
	switch x := v.(type) {
	case int64:
		return float64(x), nil
	case uint64:
		return float64(x), nil
	case string:
		d, err := strconv.ParseFloat(x, 64)
		if err != nil {
			return 0, fmt.Errorf("the string %q is not a double", x)
		}
		return d, nil
	}
	return v.(float64), nil
}

func toBool(v any) (bool, error) {
	if s, ok := v.(string); ok {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("the string %q is not a bool", s)
		}
		return b, nil
	}
	return v.(bool), nil
}

func toString(v any) string {
	switch x := v.(type) {
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(x)
	}
	return v.(string)
}

func typeOf(v any) typ {
	switch v.(type) {
	case int64:
		return typInt
	case uint64:
		return typUint
	case float64:
		return typDouble
	case bool:
		return typBool
	case string:
		return typString
	}
	return "list"
}
