package argv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

var known = map[string]Arity{"kubelet-extra-args": Value, "apiserver-endpoint": Value, "no-start": Switch, "v": Switch}

func TestSplit(t *testing.T) {
	for _, test := range []struct{ name, args, flags, operands string }{
		{"operand first", "my-cluster|--kubelet-extra-args|--node-labels=a=b", "--kubelet-extra-args=--node-labels=a=b", "my-cluster"},
		{"operand last", "--kubelet-extra-args|--node-labels=a=b|my-cluster", "--kubelet-extra-args=--node-labels=a=b", "my-cluster"},
		{"operand between", "--no-start|my-cluster|-v", "--no-start|--v", "my-cluster"},
		{"equals sign", "--kubelet-extra-args=--a=b --c|c", "--kubelet-extra-args=--a=b --c", "c"},
		{"empty value", "--apiserver-endpoint||c", "--apiserver-endpoint=", "c"},
		{"end of flags", "--no-start|--|--not-a-flag", "--no-start", "--not-a-flag"},
		{"a lone dash is an operand", "-", "", "-"},
	} {
		flags, operands, err := Split(strings.Split(test.args, "|"), known)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.flags+"\n"+test.operands, strings.Join(flags, "|")+"\n"+strings.Join(operands, "|")); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestSplitRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--api-server-endpoint|x": "did you mean --apiserver-endpoint?",
		"--zzzzzzzz":              "see --help",
		"c|--kubelet-extra-args":  "write --kubelet-extra-args VALUE",
	} {
		_, _, err := Split(strings.Split(args, "|"), known)
		if fault.CodeOf(err) != fault.Usage || !strings.Contains(fault.Remedy(err), want) {
			t.Errorf("%s: error %v, remedy %q; want a usage error with %q", args, err, fault.Remedy(err), want)
		}
	}
}
