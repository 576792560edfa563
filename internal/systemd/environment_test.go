package systemd

import "testing"

func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		name  string
		words []string
		want  string
	}{
		{"plain words stay plain", []string{"--node-labels=a=b,c=d", "--max-pods=29"}, `--node-labels=a=b,c=d --max-pods=29`},
		{"space", []string{"--x=a b"}, `"--x=a b"`},
		{"specifier", []string{"--x=100%"}, `--x=100%%`},
		{"single quote", []string{"it's"}, `"it\'s"`},
		{"double quote", []string{`say "x"`}, `"say \\"x\\""`},
		{"backslash", []string{`a\b`}, `"a\\\\b"`},
		{"empty word", []string{"a", "", "b"}, `a "" b`},
	} {
		want := "[Service]\nEnvironment='ARGS=" + test.want + "'\n"
		if got := string(Environment("ARGS", test.words)); got != want {
			t.Errorf("%s:\n got %s want %s", test.name, got, want)
		}
	}
}
