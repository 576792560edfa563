package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eks-bootstrap/nodeadm/internal/systemd"
)

// readable are drop-ins as hands write them, all of which systemd understands.
var readable = []string{
	"", // what a service gets from nobody: this one tells
	"[Service]\nEnvironment=ARGS=--a=1\n",
	"[Service]\nEnvironment=A=1 B=2  \t ARGS=x\n",
	"[Service]\nEnvironment='A=one two' \"B=three  four\" ARGS='x y'\n",
	"[Service]\nEnvironment='ARGS=\"x y\" z' \"A=it's\" 'B=say \"x\"'\n",
	"[Service]\nEnvironment=A='in the middle'of B=\"a\"'b'c\n",
	"[Service]\nEnvironment=A=\\x2d\\x2dx B=a\\tb C=a\\nb D=a\\sb E=\\a\\b\\f\\r\\v F=\\\\ G=\\\" H=\\' I=\\101\\060\n",
	"[Service]\nEnvironment='A=\\u00e9\\U0001F600' \"B=\\xc3\\xa9\" C=é世\n",
	"[Service]\nEnvironment='A=100%%' B=%%n C=%%%%s\n",
	"[Service]\nEnvironment=A=100% B=%\n",
	"[Service]\nEnvironment=A=\\x25\\x25 B=\\x25%\n",
	"[Service]\nEnvironment='ARGS=\\x25\\x25 \\x22a b\\x22'\n",
	"[Service]\nEnvironment=A=1 \\\n  B=2 \\\n\tC=3\n",
	"[Service]\nEnvironment='A=one \\\n  two'\n",
	"[Service]\nEnvironment=A=1 \\\n# a comment \\\n  ; another\n  B=2\nEnvironment=C=3\n",
	"[Service]\nEnvironment=A=1 \\\n\nEnvironment=B=2\n",
	"[Service]\nEnvironment=A=1\\\nB=2\n",
	"[Service]\nEnvironment=A=a\\\\\nEnvironment=B=2\n",
	"[Service]\nEnvironment='A=a\\\\\\\nb'\n",
	"[Service]\nEnvironment=A=1 B=2\nEnvironment=A=3\nEnvironment=C=4 C=5\n",
	"[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n",
	"[Service]\nEnvironment=A=1\nEnvironment = \\\n  \nEnvironment=B=2\n",
	"[Service]\nEnvironment=A=1\n[Unit]\nDescription=x\n[Service]\nEnvironment=B=2\n",
	"  [Service]  \n\t Environment \t=  A=1  \t\n  # c\n\n;\n",
	"[Service]\r\nEnvironment=A=1 \\\r\n  B=2\r\n\r\n",
	"[Service]\rEnvironment=A=1\rEnvironment=B=2",
	"[Service]\n\rEnvironment=A=1 \\\n\r\n\rEnvironment=B=2",
	"\ufeff[Service]\nEnvironment=A=1\n",
	"\ufeff# c\n[Service]\nEnvironment=A=1",
	"[Service]\nEnvironment=A=1 B=2 \\",
	"[Service]\nEnvironment=A=1 B=2 \\\n# c",
	"[Service]\nEnvironment='A=\v\f\x01\x7f' B=\v\f\x01\x7f\n",
	"[Service]\nEnvironment=A=\u00a0\u2028\ufffd\ufeff\U0010fffd\n",
	"[Service]\nEnvironment=A= B='' 'C=' _d1=x A_B=\n",
	"[Service]\nEnvironment=A=b=c 'B==' C===\n",
	"[Service]\nEnvironment='A=#x' B=;y C=[z]\n",
	"[Service]\nEnvironment='A=$B ${C} $$' B=`x` C=~ D=*\n",
	`[Service]` + "\n" + `Environment='ARGS=a "b c" \'d e\' f\\\\g "h\\\\i" \'j\\\\k\' \\"l'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=a""b "" x\'\' \'\' c'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=a "b c'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=a \\'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=a\\'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS="a\\'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=a \\\\n b\tc\nd\re\vf\fg\\ h \\x41'` + "\n",
	`[Service]` + "\n" + `Environment='ARGS=$A ${A} $$A %%h'` + " A=1\n",
	"[Service]\nEnvironment='ARGS=  '\n",
	"[Service]\nEnvironment=ARGS=\n",
}

// dropIn is one, and the line in which it is wrong: 0 for none,
// anyLine if it may be right or wrong.
type dropIn struct {
	line int
	text string
}

const anyLine = -1

// unreadable are drop-ins of which systemd passes something over.
var unreadable = []dropIn{
	{1, "Environment=A=1\n[Service]\n"},
	{2, "[Service]\nEnvironment\n"},
	{3, "[Service]\n# c\n=A=1\n"},
	{2, "[Service]\n.include /etc/x\n"},
	{2, "[Service]\n[Unit\n"},
	{1, "[Ser\\\\vice]\n"},
	{2, "[Service]\n\ufffe=1\n"},
	{2, "[Service]\nEnvironment=A=\xff\n"},
	{2, "[Service]\nEnvironment=A=\xed\xa0\x80\n"},
	{2, "[Service]\nEnvironment=A=\ufdd0\n"},
	{2, "[Service]\nEnvironment=A=\U0001ffff\n"},
	{2, "[Service]\nEnvironment=A='1\n"},
	{2, "[Service]\nEnvironment=A=1 \"B=2\n"},
	{2, "[Service]\nEnvironment='A=1\r'\n"},
	{2, "[Service]\nEnvironment=A=\\q\n"},
	{2, "[Service]\nEnvironment=A=\\x4\n"},
	{2, "[Service]\nEnvironment=A=\\x00\n"},
	{2, "[Service]\nEnvironment=A=\\000\n"},
	{2, "[Service]\nEnvironment=A=\\400\n"},
	{2, "[Service]\nEnvironment=A=\\08\n"},
	{2, "[Service]\nEnvironment=A=\\+10\n"},
	{2, "[Service]\nEnvironment=A=\\u00e\n"},
	{2, "[Service]\nEnvironment=A=\\u0000\n"},
	{2, "[Service]\nEnvironment=A=\\ud800\n"},
	{2, "[Service]\nEnvironment=A=\\uffff\n"},
	{2, "[Service]\nEnvironment=A=\\U00110000\n"},
	{2, "[Service]\nEnvironment=A=\\xff\n"},
	{2, "[Service]\nEnvironment=A\n"},
	{2, "[Service]\nEnvironment=''\n"},
	{2, "[Service]\nEnvironment==1\n"},
	{2, "[Service]\nEnvironment=1A=1\n"},
	{2, "[Service]\nEnvironment=A-B=1\n"},
	{2, "[Service]\nEnvironment=A =1\n"},
	{2, "[Service]\nEnvironment='A =1'\n"},
	{2, "[Service]\nEnvironment=é=1\n"},
	{2, "[Service]\nEnvironment=A=1 # B\n"},
}

// defaults are given to all services.
const defaults = "[Manager]\nDefaultEnvironment=D1=x 'D2=a b' \\\n# c\n  D3=\\x2d%%\nDefaultEnvironment=\"D1=100%%\"\n"

// TestSystemdReadsWhatIsParsed holds the reading of drop-ins to systemd's own:
// what is understood here is what a service receives, and what is refused here
// makes systemd warn.
func TestSystemdReadsWhatIsParsed(t *testing.T) {
	var all []dropIn
	for _, text := range append(slices.Clone(readable), renderings(t, 50)...) {
		all = append(all, dropIn{0, text})
	}
	all = append(all, unreadable...)
	for _, text := range randomDropIns(400) {
		all = append(all, dropIn{anyLine, text})
	}
	files, understood := services(all)
	m := Boot(t, Options{Files: files})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)

	m.MustRun(ctx, "sh", "-c", "cd /etc/systemd/system; systemctl show --property LoadState dump-*.service")
	m.MustRun(ctx, append([]string{"systemctl", "start"}, understood...)...)
	m.MustRun(ctx, "journalctl", "--sync")
	warnings := m.MustRun(ctx, "journalctl", "--boot", "--no-pager", "--output", "cat", "_PID=1")

	_, common := dump(m, 0)
	want, err := environmentOf(defaults)
	if diff := cmp.Diff(want, variablesBut(common, "PATH", "LANG", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")); err != nil || diff != "" {
		t.Errorf("the defaults: %v (-parsed +systemd):\n%s", err, diff)
	}
	for i, d := range all {
		want, err := environmentOf(d.text)
		switch {
		case err == nil && d.line > 0:
			t.Errorf("%q is understood", d.text)
		case err == nil:
			args, got := dump(m, i)
			compare(t, d.text, want, args, variablesBut(got, slices.Collect(maps.Keys(common))...))
		case d.line == 0:
			t.Errorf("%q is refused: %v", d.text, err)
		case !warns(warnings, i, d.line) && !strings.Contains(err.Error(), "specifier"): // nobody warns of those
			t.Errorf("%q is refused (%v), and systemd says nothing of line %d", d.text, err, d.line)
		}
	}
	t.Logf("%d drop-ins understood, %d refused", len(understood), len(all)-len(understood))
}

// services are one for each drop-in; those with a drop-in that is understood
// are named.
func services(all []dropIn) (files map[string]File, understood []string) {
	files = map[string]File{
		"/usr/local/bin/dump":                      {Content: "#!/bin/sh\nprintf '%s\\0' $# \"$@\"\ncat /proc/$$/environ\n", Mode: 0o755},
		"/etc/systemd/system.conf.d/defaults.conf": {Content: defaults},
	}
	for i, d := range all {
		files["/etc/systemd/system/"+unitName(i)] = File{Content: fmt.Sprintf(
			"[Service]\nType=oneshot\nExecStart=/usr/local/bin/dump $ARGS\nStandardOutput=truncate:/var/lib/dump-%d\n", i)}
		files[dropInOf(i)] = File{Content: d.text}
		if _, err := environmentOf(d.text); err == nil {
			understood = append(understood, unitName(i))
		}
	}
	return files, understood
}

func compare(t *testing.T, text string, want map[string]string, args []string, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-parsed +systemd):\n%s", text, diff)
	}
	if diff := cmp.Diff(systemd.ParseWords(want["ARGS"]), args, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("$ARGS from %q (-parsed +systemd):\n%s", text, diff)
	}
}

// warns tells whether systemd warned of a line of a drop-in.
func warns(warnings string, i, line int) bool {
	number := `\d+`
	if line > 0 {
		number = strconv.Itoa(line)
	}
	return regexp.MustCompile(regexp.QuoteMeta(dropInOf(i)) + ":" + number + ": ").MatchString(warnings)
}

func unitName(i int) string { return fmt.Sprintf("dump-%d.service", i) }

func dropInOf(i int) string { return "/etc/systemd/system/" + unitName(i) + ".d/10.conf" }

// environmentOf is what a drop-in, or system.conf, sets.
func environmentOf(text string) (map[string]string, error) {
	unit, err := systemd.ParseUnit([]byte(text))
	if err != nil {
		return nil, err
	}
	tree, err := unit.Tree()
	if err != nil {
		return nil, err
	}
	variables := map[string]string{}
	for _, section := range tree {
		for _, key := range []string{"Environment", "DefaultEnvironment"} {
			fields, _ := section.(map[string]any)[key].(map[string]any)
			for name, value := range fields {
				if name != "" {
					variables[name] = value.(string)
				}
			}
		}
	}
	return variables, nil
}

// dump is what a service received.
func dump(m *Machine, i int) (args []string, variables map[string]string) {
	fields := strings.Split(strings.TrimSuffix(m.ReadFile(fmt.Sprintf("/var/lib/dump-%d", i)), "\x00"), "\x00")
	count := 0
	fmt.Sscan(fields[0], &count)
	variables = map[string]string{}
	for _, field := range fields[1+count:] {
		name, value, _ := strings.Cut(field, "=")
		variables[name] = value
	}
	return fields[1 : 1+count], variables
}

func variablesBut(variables map[string]string, without ...string) map[string]string {
	rest := maps.Clone(variables)
	maps.DeleteFunc(rest, func(name, _ string) bool { return slices.Contains(without, name) })
	return rest
}

// renderings are drop-ins that the agent writes, with any characters in them.
func renderings(t *testing.T, n int) []string {
	random := rand.New(rand.NewPCG(15, 92))
	alphabet := []rune("ab=-, \t\n\r\v\f\x01\x7f'\"\\%$#;{}é世\u0085\ufeff")
	texts := make([]string, n)
	for i := range texts {
		flags := map[string]any{}
		for f := range 4 {
			value := ""
			for range random.IntN(10) {
				value += string(alphabet[random.IntN(len(alphabet))])
			}
			flags[fmt.Sprintf("--flag%d", f)] = value
		}
		text, err := systemd.RenderTree(map[string]any{"Service": map[string]any{"Environment": map[string]any{"ARGS": flags, "A": flags["--flag0"]}}})
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	return texts
}

// randomDropIns are made of what the syntax has an opinion on; about half of
// them are right.
func randomDropIns(n int) []string {
	random := rand.New(rand.NewPCG(3, 14))
	pick := func(pieces ...string) string { return pieces[random.IntN(len(pieces))] }
	inner := func() (text string) {
		for range random.IntN(5) {
			text += pick("x", "y", "=", "é", "#", ";", "[", `\\`, `\\\\`, `\'`, `\"`, `\x41`, `\x25%`, `\t`, `\n`, `\u00e9`, "%%", "\v", `\x22`, `\x27`, `\x5c`)
		}
		return text
	}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = "[Service]\n"
		for range 1 + random.IntN(4) {
			texts[i] += pick("Environment=", "Environment=", " Environment =\t", "Environment=\nEnvironment=", "[Service]\nEnvironment=")
			for range random.IntN(4) {
				open := pick("'", `"`)
				assignment := pick("A=", "B=", "ARGS=") + inner()
				texts[i] += pick(assignment, open+assignment+" "+inner()+open, assignment+open+inner()+"  "+inner()+open)
				texts[i] += pick(" ", " ", "  ", "\t", " \\\n", "\\\n ", "\\\n# c\n ", "\\\n; c \\\n ")
			}
			if random.IntN(8) == 0 {
				texts[i] += pick("%", "'", `"`, `\`, `\q`, "\r", "A", "\xff", "[", "=")
			}
			texts[i] += pick("\n", "\n", "\n\n", "\r\n", "\n# c\n", "\n\t;\n")
		}
	}
	return texts
}
