package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	kubeletConfig    = "/etc/kubernetes/kubelet/kubelet-config.json"
	kubeletExtraArgs = "/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf"
	containerdConfig = "/etc/containerd/config.toml"
)

// bootstrapping is the command line of a run in which no AWS API is called.
func bootstrapping(more ...string) []string {
	return append(append([]string{"nodeadm", "bootstrap", "ironman-2022"}, clusterFlags()...), more...)
}

// The answers with -o json, as far as they are looked at here.
type (
	plannedFile struct{ Path, Action, OldMode, Mode, Diff string }

	unitStep struct{ Unit, Action, Why string }

	plannedChange struct {
		ChangesPending bool
		Files          []plannedFile
		Units          []unitStep
		Conflicts      []struct {
			Path, Field, Manager, WantedBy string
			Value, Wanted                  any
			Taken                          bool
		}
		Warnings []string
	}

	generation struct {
		Generation                        int
		Command, Outcome, Reason, Nodeadm string
		Differences                       []plannedFile
	}

	nodeStatus struct {
		Verdict     string
		LastRun     *lastRun
		Generation  int
		Outcome     string
		Interrupted bool
		Drift       []struct{ Path, What string }
		Units       []struct {
			Name, Active, Enabled, Why string
			RunsWhatIsOnDisk           bool
		}
		MaxPods *struct {
			Pods   int
			Source string
		}
	}

	lastRun struct {
		Command, Outcome, Error string
		Seconds                 float64
		ExitCode, Generation    int
		Phases                  []struct {
			Name    string
			Seconds float64
			Failed  bool
		}
		Units []unitStep
	}
)

func decode[T any](t *testing.T, text string) (answer T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	return answer
}

// status is what nodeadm status says, in JSON and by its exit code.
func status(t *testing.T, ctx context.Context, m *Machine) (nodeStatus, int) {
	t.Helper()
	out := m.Run(ctx, "nodeadm", "status", "-o", "json")
	return decode[nodeStatus](t, out.Stdout), out.ExitCode
}

// wantHealthy wants the node as planned and its units to run what is on disk.
func wantHealthy(t *testing.T, ctx context.Context, m *Machine) nodeStatus {
	t.Helper()
	s, code := status(t, ctx, m)
	if code != 0 || s.Verdict != "as planned" || len(s.Drift) > 0 || s.Interrupted {
		t.Errorf("status: exit %d, %+v", code, s)
	}
	for _, name := range []string{"containerd.service", "kubelet.service"} {
		found := false
		for _, u := range s.Units {
			if u.Name == name {
				found = u.Active == "active" && u.Enabled == "enabled" && u.RunsWhatIsOnDisk
			}
		}
		if !found {
			t.Errorf("status does not say that %s runs what is on disk: %+v", name, s.Units)
		}
	}
	return s
}

func history(t *testing.T, ctx context.Context, m *Machine) []generation {
	t.Helper()
	return decode[[]generation](t, m.MustRun(ctx, "nodeadm", "history", "-o", "json"))
}

// kubeletSays is a field of the configuration that kubelet was started with.
func kubeletSays(t *testing.T, m *Machine, field string) string {
	t.Helper()
	return fmt.Sprint(decode[map[string]any](t, m.ReadFile("/run/kubelet-standin/config.json"))[field])
}

// tree is what stands below /etc and /var/lib: the type, permissions, owner and
// content of everything. What containerd and systemd keep for themselves there,
// and what is below the exceptions, stays out.
func tree(t *testing.T, m *Machine, except ...string) map[string]string {
	t.Helper()
	except = append(except, "/var/lib/containerd", "/var/lib/systemd")
	found := map[string]string{}
	for _, top := range []string{"/etc", "/var/lib"} {
		err := filepath.WalkDir(m.Root()+top, func(host string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			path := strings.TrimPrefix(host, m.Root())
			if slices.Contains(except, path) {
				return fs.SkipDir
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			owner := info.Sys().(*syscall.Stat_t)
			text := fmt.Sprintf("%v %d:%d", info.Mode(), owner.Uid, owner.Gid)
			switch {
			case info.Mode().IsRegular():
				data, err := os.ReadFile(host)
				if err != nil {
					return err
				}
				text += "\n" + string(data)
			case info.Mode().Type() == fs.ModeSymlink:
				to, err := os.Readlink(host)
				if err != nil {
					return err
				}
				text += " → " + to
			}
			found[path] = text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// wantTree wants files as they were.
func wantTree(t *testing.T, when string, before, after map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("files %s (-before +after):\n%s", when, diff)
	}
}

// observed is what a command did, as three observers saw it that know nothing
// of each other.
type observed struct {
	Result
	changed []string // what find finds changed since before the command
	calls   []string // method calls on the system bus
	doings  []string // system calls that do more than look
}

// observer runs a command under strace, beside a monitor of the bus. -cnewer
// goes by the time of the last change of anything: content, mode, owner, name.
const observer = `mkdir -p /root/observed && cd /root/observed
busctl monitor --json=short >bus 2>bus.err & monitor=$!
until grep -q Monitoring bus.err; do sleep 0.01; done
touch marker && sleep 0.02
strace -f -s 200 -o trace -e trace=%file,%net,ftruncate,fchmod,fchown,fallocate,fsetxattr,fremovexattr "$@"
code=$?
find / '(' -path /proc -o -path /sys -o -path /root/observed -o -path /var/log/journal ')' -prune -o -cnewer marker -print >changed
# Messages come in order: once this one is there, all are.
busctl call org.freedesktop.DBus / org.freedesktop.DBus.Peer Ping
until grep -q '"Ping"' bus; do sleep 0.01; done
kill $monitor
exit $code`

func observe(t *testing.T, ctx context.Context, m *Machine, argv ...string) observed {
	t.Helper()
	o := observed{Result: m.Run(ctx, append([]string{"sh", "-c", observer, "observer"}, argv...)...)}
	o.changed = strings.Fields(m.ReadFile("/root/observed/changed"))
	type message struct{ Type, Sender, Destination, Interface, Member string }
	var calls []message
	for line := range strings.Lines(m.ReadFile("/root/observed/bus")) {
		if c := decode[message](t, line); c.Type == "method_call" {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		if c.Sender != calls[len(calls)-1].Sender { // the observer's own
			o.calls = append(o.calls, c.Destination+" "+c.Interface+"."+c.Member)
		}
	}
	o.doings = doings(m.ReadFile("/root/observed/trace"))
	return o
}

var (
	// systemCall is the beginning of a call in strace's output. The rest of one
	// that another thread interrupted says nothing new.
	systemCall = regexp.MustCompile(`^\d+ +(\w+)\((.*)`)
	looks      = []string{"access", "faccessat", "faccessat2", "getcwd", "lstat", "newfstatat", "readlink", "readlinkat", "stat", "statfs", "statx"}
	talks      = []string{"getpeername", "getsockname", "getsockopt", "recvfrom", "recvmsg", "sendmsg", "sendto", "setsockopt", "socket"}
	writes     = regexp.MustCompile(`O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)`)
	// Instance metadata and the system bus, and the programs that tell their version.
	mayConnect = regexp.MustCompile(`^\d+, \{(sa_family=AF_INET, sin_port=htons\(80\), sin_addr=inet_addr\("169\.254\.169\.254"\)|sa_family=AF_UNIX, sun_path="(/var)?/run/dbus/system_bus_socket")\}`)
	mayExecute = regexp.MustCompile(`^"/usr/bin/(nodeadm", |(kubelet|containerd)", \["[^"]*", "--version"\])`)
)

// doings are the calls of a trace that do more than look at files and talk to
// the metadata service and the bus. What is not known to be harmless counts.
func doings(trace string) (found []string) {
	for line := range strings.Lines(trace) {
		call := systemCall.FindStringSubmatch(line)
		if call == nil {
			continue
		}
		harmless := slices.Contains(looks, call[1]) || slices.Contains(talks, call[1])
		switch call[1] {
		case "open", "openat", "openat2":
			harmless = !writes.MatchString(call[2]) || strings.Contains(call[2], `"/dev/null"`) || strings.Contains(call[2], `"/dev/tty"`)
		case "connect":
			harmless = mayConnect.MatchString(call[2])
		case "execve":
			harmless = mayExecute.MatchString(call[2])
		}
		if !harmless {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// onlyReads are the calls on the bus that leave no trace in systemd. The match
// is a filter of what the bus hands to this one connection.
var onlyReads = []string{
	"org.freedesktop.DBus org.freedesktop.DBus.Hello",
	"org.freedesktop.DBus org.freedesktop.DBus.AddMatch",
	"org.freedesktop.systemd1 org.freedesktop.DBus.Properties.Get",
	"org.freedesktop.systemd1 org.freedesktop.DBus.Properties.GetAll",
}

func (o observed) wantNothingChanged(t *testing.T) {
	t.Helper()
	if len(o.changed) > 0 {
		t.Errorf("files have changed: %q", o.changed)
	}
	for _, call := range o.calls {
		if !slices.Contains(onlyReads, call) {
			t.Errorf("on the bus: %s", call)
		}
	}
	if !slices.Contains(o.calls, onlyReads[3]) {
		t.Errorf("the bus has seen no question for the state of units: %q", o.calls)
	}
	for _, call := range o.doings {
		t.Errorf("system call: %s", call)
	}
}

// TestPlan is a node of user data on which plan, the unit that ships and plan
// again run. What is planned is what happens, and plan itself does nothing.
func TestPlan(t *testing.T) {
	Require(t)
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files := image(t, "1.34.4")
	files["/etc/systemd/system/nodeadm.service"] = File{Source: root + "/systemd/nodeadm.service"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, nodeConfigUserData("  featureGates: {FastImagePull: true} # of which nodeadm warns"))})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)
	unprivileged := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "nodeadm", "plan"}

	t.Run("the observers see what they have to see", func(t *testing.T) {
		o := observe(t, ctx, m, "sh", "-c", `echo x >/etc/x; chmod 600 /etc/x; mv /etc/x /etc/y; rm /etc/y
			busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager Subscribe`)
		if !slices.Contains(o.changed, "/etc") {
			t.Errorf("find sees %q", o.changed)
		}
		if !slices.Contains(o.calls, "org.freedesktop.systemd1 org.freedesktop.systemd1.Manager.Subscribe") {
			t.Errorf("the monitor sees %q", o.calls)
		}
		for _, call := range []string{"O_CREAT", "chmod", "rename", "unlink", "exec"} {
			if !strings.Contains(strings.Join(o.doings, "\n"), call) {
				t.Errorf("no %s in strace's output: %q", call, o.doings)
			}
		}
	})

	first := observe(t, ctx, m, "nodeadm", "plan")
	asJSON := m.Run(ctx, "nodeadm", "plan", "-o", "json")
	planned := decode[plannedChange](t, asJSON.Stdout)

	t.Run("on a fresh machine it shows everything", func(t *testing.T) {
		if first.ExitCode != 10 || asJSON.ExitCode != 10 || !planned.ChangesPending || len(planned.Conflicts) > 0 || len(planned.Warnings) == 0 {
			t.Errorf("exit %d, in JSON %d: %+v\n%s", first.ExitCode, asJSON.ExitCode, planned, first.Stderr)
		}
		actions := map[string]string{}
		for _, f := range planned.Files {
			actions[f.Path] = f.Action
			old := f.Path
			if f.Action == "create" {
				old = "/dev/null"
			}
			if !strings.HasPrefix(f.Diff, "--- "+old+"\n+++ "+f.Path+"\n@@ ") || f.Mode != "0644" {
				t.Errorf("%s, mode %s:\n%s", f.Path, f.Mode, f.Diff)
			}
			if heading := f.Action + " " + f.Path + " (mode 0644"; !strings.Contains(first.Stdout, heading) || !strings.Contains(first.Stdout, f.Diff) {
				t.Errorf("the text shows %s otherwise:\n%s", f.Path, first.Stdout)
			}
		}
		for path, action := range map[string]string{containerdConfig: "update", kubeletConfig: "create", kubeletExtraArgs: "create", "/etc/systemd/system/kubelet.service": "create"} {
			expect(t, path, action, actions[path])
		}
		var steps []string
		for _, u := range planned.Units {
			steps = append(steps, u.Action+" "+u.Unit)
			if !strings.Contains(first.Stdout, "\n"+u.Action+" "+u.Unit+": "+u.Why+"\n") {
				t.Errorf("the text does not show %+v:\n%s", u, first.Stdout)
			}
		}
		// Whether the kernel is to be set otherwise depends on the host's, which the
		// machine shares.
		steps = slices.DeleteFunc(steps, func(s string) bool { return s == "restart systemd-sysctl.service" })
		if diff := cmp.Diff([]string{"restart containerd.service", "enable kubelet.service", "start kubelet.service"}, steps); diff != "" {
			t.Errorf("units (-want +got):\n%s", diff)
		}
		for _, line := range []string{
			"+Environment='KUBELET_EXTRA_ARGS=--node-labels=from=user-data'\n",
			"\nrestart containerd.service: its configuration changed: " + containerdConfig + "\n",
			"\nenable kubelet.service: it has to start at boot\n",
			"nothing was changed\n",
		} {
			if !strings.Contains(first.Stdout, line) {
				t.Errorf("%q is missing in:\n%s", line, first.Stdout)
			}
		}
	})
	t.Run("and changes nothing", first.wantNothingChanged)
	t.Run("for everybody, and under init's name", func(t *testing.T) {
		for _, argv := range [][]string{unprivileged, {"nodeadm", "init", "--dry-run"}} {
			out := m.Run(ctx, argv...)
			if out.ExitCode != 10 {
				t.Errorf("%s: exit %d: %s", strings.Join(argv, " "), out.ExitCode, out.Stderr)
			}
			expect(t, strings.Join(argv, " "), first.Stdout, out.Stdout)
		}
	})

	t.Run("the unit tells its phases", func(t *testing.T) {
		m.MustRun(ctx, "systemctl", "start", "--no-block", "nodeadm.service")
		var told []string
		last := map[string]string{}
		ended := until(ctx, func() bool {
			for line := range strings.Lines(m.MustRun(ctx, "systemctl", "show", "--property=ActiveState,SubState,StatusText", "nodeadm.service")) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				last[name] = value
			}
			if text := last["StatusText"]; text != "" && !slices.Contains(told, text) {
				told = append(told, text)
			}
			return last["ActiveState"] != "activating" && last["ActiveState"] != "inactive"
		})
		if !ended || last["ActiveState"] != "active" || !slices.Contains(told, "verify 5/5") {
			t.Errorf("%v; told: %q\n%s", last, told, m.Journal("nodeadm.service"))
		}
		for _, text := range told {
			if !slices.Contains([]string{"facts 1/5", "plan 2/5", "apply 3/5", "activate 4/5", "verify 5/5", "done"}, text) {
				t.Errorf("it told %q", text)
			}
		}
		// The unit is active from the moment it says so; a little later the
		// process has ended.
		exited := func() bool {
			return m.MustRun(ctx, "systemctl", "show", "--property=SubState", "--value", "nodeadm.service") == "exited\n"
		}
		if !until(ctx, exited) {
			t.Error("the unit is not active (exited)")
		}
	})

	t.Run("what was planned has happened", func(t *testing.T) {
		for _, f := range planned.Files {
			if f.Action != "create" {
				continue
			}
			_, hunk, _ := strings.Cut(f.Diff, " @@\n")
			var content strings.Builder
			for line := range strings.Lines(hunk) {
				content.WriteString(strings.TrimPrefix(line, "+"))
			}
			expect(t, f.Path, m.ReadFile(f.Path), content.String())
		}
		changed := decode[generation](t, m.MustRun(ctx, "nodeadm", "history", "1", "-o", "json"))
		changed.Differences = slices.DeleteFunc(changed.Differences, func(f plannedFile) bool { return strings.HasPrefix(f.Path, "/var/lib/nodeadm/") })
		if diff := cmp.Diff(planned.Files, changed.Differences); diff != "" {
			t.Errorf("files (-planned +changed):\n%s", diff)
		}
		s := wantHealthy(t, ctx, m)
		var did []unitStep
		for _, u := range planned.Units {
			u.Action = strings.TrimSuffix(u.Action, "e") + "ed"
			did = append(did, u)
		}
		if diff := cmp.Diff(did, s.LastRun.Units); diff != "" {
			t.Errorf("units (-planned +done):\n%s", diff)
		}
	})

	t.Run("afterwards there is nothing to do", func(t *testing.T) {
		o := observe(t, ctx, m, "nodeadm", "plan")
		if o.ExitCode != 0 || !strings.Contains(o.Stdout, "nothing to do") || strings.Contains(o.Stdout, "@@") {
			t.Errorf("exit %d:\n%s%s", o.ExitCode, o.Stdout, o.Stderr)
		}
		o.wantNothingChanged(t)
		out := m.Run(ctx, unprivileged...)
		if out.ExitCode != 0 {
			t.Errorf("without privileges: exit %d: %s", out.ExitCode, out.Stderr)
		}
		expect(t, "without privileges", o.Stdout, out.Stdout)
		if p := decode[plannedChange](t, m.MustRun(ctx, "nodeadm", "plan", "-o", "json")); p.ChangesPending || len(p.Files)+len(p.Units) > 0 {
			t.Errorf("in JSON: %+v", p)
		}
	})
}

// TestGenerations is the life of a node from its first run to a reset: two runs
// at once, an edit by hand, conflicts, ways back and services that are down.
func TestGenerations(t *testing.T) {
	Require(t)
	t.Parallel()
	m := Boot(t, Options{Files: image(t, "1.34.4"), Simulator: instance(t, "")})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)
	// A mode that nodeadm does not leave: it has to come back.
	m.MustRun(ctx, "chmod", "0664", containerdConfig)
	pristine := tree(t, m)
	// The policy that does not follow max pods: otherwise a hand that changes
	// these would change the memory that is reserved too, and so restart kubelet.
	bootstrap := func(more ...string) []string {
		return bootstrapping(append([]string{"--kube-reserved-policy", "legacy"}, more...)...)
	}
	pids := func() (kubelet, containerd string) {
		return mainPID(t, m, "kubelet.service"), mainPID(t, m, "containerd.service")
	}
	// wantRestarted runs something that has to restart kubelet, and it alone.
	wantRestarted := func(t *testing.T, argv ...string) Result {
		t.Helper()
		kubelet, containerd := pids()
		out := m.Run(ctx, argv...)
		after, containerdAfter := pids()
		if out.ExitCode != 0 || after == kubelet || after == "0" {
			t.Errorf("exit %d; kubelet's main PID was %s and is %s: %s", out.ExitCode, kubelet, after, out.Stderr)
		}
		expect(t, "containerd's main PID", containerd, containerdAfter)
		return out
	}
	wantMaxPods := func(t *testing.T, want string) {
		t.Helper()
		if config := m.ReadFile(kubeletConfig); !strings.Contains(config, `"maxPods": `+want+",") {
			t.Errorf("max pods are not %s in %s:\n%s", want, kubeletConfig, config)
		}
		expect(t, "max pods that kubelet runs with", want, kubeletSays(t, m, "maxPods"))
	}

	t.Run("a dry run on a fresh machine", func(t *testing.T) {
		out := m.Run(ctx, bootstrap("--dry-run")...)
		for _, want := range []string{
			"update " + containerdConfig + " (mode 0664 → 0644, owner 0:0)\n--- " + containerdConfig + "\n",
			"create " + kubeletConfig + " (mode 0644, owner 0:0)\n--- /dev/null\n",
			"\nstart kubelet.service: its configuration changed: " + kubeletConfig,
		} {
			if !strings.Contains(out.Stdout, want) {
				t.Errorf("%q is missing", want)
			}
		}
		if out.ExitCode != 10 {
			t.Errorf("exit %d: %s%s", out.ExitCode, out.Stdout, out.Stderr)
		}
		wantTree(t, "after a dry run", pristine, tree(t, m))
	})

	t.Run("of two runs at once one waits", func(t *testing.T) {
		const both = `"$@" >/root/first 2>&1 & first=$!; "$@" >/root/second 2>&1 & second=$!
			wait $first; echo $first $?; wait $second; echo $second $?`
		var pid, code [2]string
		out := m.MustRun(ctx, append([]string{"sh", "-c", both, "both"}, bootstrap()...)...)
		if _, err := fmt.Sscan(out, &pid[0], &code[0], &pid[1], &code[1]); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		said := [2]string{m.ReadFile("/root/first"), m.ReadFile("/root/second")}
		waits := func(i int) bool {
			return strings.Contains(said[i], "(process "+pid[1-i]+": nodeadm bootstrap) is at work on /; waiting for it")
		}
		if code != [2]string{"0", "0"} || waits(0) == waits(1) {
			t.Errorf("processes %q, exit codes %q; the first says:\n%s\nthe second:\n%s", pid, code, said[0], said[1])
		}
		expect(t, "how often kubelet was started", "1", fmt.Sprint(strings.Count(m.Journal("kubelet.service"), "Started kubelet.service")))
		expect(t, "restarts", "0\n", m.MustRun(ctx, "systemctl", "show", "--property=NRestarts", "--value", "kubelet.service"))
		if all := history(t, ctx, m); len(all) != 1 {
			t.Errorf("history: %+v", all)
		}
		if out := m.Run(ctx, bootstrap("--dry-run")...); out.ExitCode != 0 || !strings.Contains(out.Stdout, "nothing to do") {
			t.Errorf("afterwards: exit %d: %s", out.ExitCode, out.Stdout)
		}
	})

	t.Run("status after a good run", func(t *testing.T) {
		s := wantHealthy(t, ctx, m)
		if s.Generation != 1 || s.Outcome != "healthy" || s.MaxPods == nil || s.MaxPods.Pods != 29 || s.LastRun == nil {
			t.Fatalf("%+v", s)
		}
		var phases []string
		for _, p := range s.LastRun.Phases {
			phases = append(phases, p.Name)
			if p.Seconds <= 0 || p.Failed {
				t.Errorf("%+v", p)
			}
		}
		expect(t, "phases", "facts plan apply activate verify", strings.Join(phases, " "))
		inFile := decode[lastRun](t, m.ReadFile("/run/nodeadm/status.json"))
		if diff := cmp.Diff(*s.LastRun, inFile); diff != "" {
			t.Errorf("/run/nodeadm/status.json (-status +file):\n%s", diff)
		}
	})

	t.Run("an edit by hand stays", func(t *testing.T) {
		m.MustRun(ctx, "sed", "-i", `s/"maxPods": 29/"maxPods": 17/`, kubeletConfig)
		if out := m.Run(ctx, "nodeadm", "status"); out.ExitCode != 1 || !strings.Contains(out.Stdout, kubeletConfig+": changed") {
			t.Errorf("status: exit %d: %s", out.ExitCode, out.Stdout)
		}
		words := []string{`conflict with "hand" in ` + kubeletConfig, `.maxPods: 17, set by "hand", stays; "nodeadm" wants 29`, "--force-conflicts"}
		wantConflict := func(what, text string) {
			t.Helper()
			for _, w := range words {
				if !strings.Contains(text, w) {
					t.Errorf("%s does not say %q:\n%s", what, w, text)
				}
			}
		}
		wantConflict("the plan", m.Run(ctx, bootstrap("--dry-run")...).Stdout)
		p := decode[plannedChange](t, m.Run(ctx, bootstrap("--dry-run", "-o", "json")...).Stdout)
		if len(p.Conflicts) != 1 || p.Conflicts[0].Path != kubeletConfig || p.Conflicts[0].Field != ".maxPods" || p.Conflicts[0].Manager != "hand" ||
			p.Conflicts[0].WantedBy != "nodeadm" || p.Conflicts[0].Value != 17.0 || p.Conflicts[0].Wanted != 29.0 || p.Conflicts[0].Taken {
			t.Errorf("conflicts in JSON: %+v", p.Conflicts)
		}

		kubelet, containerd := pids()
		out := m.Run(ctx, bootstrap()...)
		if out.ExitCode != 0 {
			t.Errorf("exit %d", out.ExitCode)
		}
		wantConflict("the run", out.Stderr)
		kubeletAfter, containerdAfter := pids()
		expect(t, "kubelet's main PID", kubelet, kubeletAfter)
		expect(t, "containerd's main PID", containerd, containerdAfter)
		if !strings.Contains(m.ReadFile(kubeletConfig), `"maxPods": 17,`) {
			t.Error("the hand's value is gone")
		}
		if managers := m.MustRun(ctx, "nodeadm", "config", "show", "--managed-fields"); !regexp.MustCompile(`(?m)^ *\.maxPods +17 +hand$`).MatchString(managers) {
			t.Errorf("managed fields:\n%s", managers)
		}
		// Nothing has told kubelet, so that it still runs with the former value.
		s, _ := status(t, ctx, m)
		for _, u := range s.Units {
			if u.Name == "kubelet.service" && u.RunsWhatIsOnDisk {
				t.Errorf("kubelet runs with max pods %s, 17 are on disk, and status says that it runs what is on disk", kubeletSays(t, m, "maxPods"))
			}
		}
	})

	t.Run("until it is taken over", func(t *testing.T) {
		wantRestarted(t, bootstrap("--force-conflicts")...)
		wantMaxPods(t, "29")
		wantHealthy(t, ctx, m)
	})

	t.Run("rollback brings it back, and again undoes that", func(t *testing.T) {
		wantRestarted(t, "nodeadm", "rollback")
		wantMaxPods(t, "17")
		wantHealthy(t, ctx, m)
		// Whose the field is came back too.
		if out := m.Run(ctx, bootstrap("--dry-run")...); out.ExitCode != 0 || !strings.Contains(out.Stdout, `.maxPods: 17, set by "hand"`) {
			t.Errorf("a plan after the rollback: exit %d: %s", out.ExitCode, out.Stdout)
		}
		wantRestarted(t, "nodeadm", "rollback")
		wantMaxPods(t, "29")
		wantHealthy(t, ctx, m)
	})

	t.Run("rollback to an earlier generation", func(t *testing.T) {
		wantRestarted(t, bootstrap("--kubelet-extra-args", "--node-labels=a=b")...)
		if args := kubeletArgs(t, m); !slices.Contains(args, "--node-labels=a=b") {
			t.Errorf("kubelet runs with %q", args)
		}
		if out := m.Run(ctx, "nodeadm", "rollback", "99"); out.ExitCode != 2 || !strings.Contains(out.Stderr, "99") {
			t.Errorf("to a generation that is not there: exit %d: %s", out.ExitCode, out.Stderr)
		}
		wantRestarted(t, "nodeadm", "rollback", "1")
		wantMaxPods(t, "17")
		if args := kubeletArgs(t, m); slices.Contains(args, "--node-labels=a=b") || m.Exists(kubeletExtraArgs) {
			t.Errorf("kubelet runs with %q", args)
		}
		wantHealthy(t, ctx, m)

		var commands []string
		all := history(t, ctx, m)
		for i, g := range all {
			commands = append(commands, g.Command)
			if g.Generation != i+1 || g.Outcome != "healthy" {
				t.Errorf("%+v", g)
			}
		}
		expect(t, "commands", "bootstrap, bootstrap, rollback to 1, rollback to 2, bootstrap, rollback to 1", strings.Join(commands, ", "))
		text := m.MustRun(ctx, "nodeadm", "history")
		if strings.Count(text, "\n") != len(all)+1 || strings.Count(text, " healthy ") != len(all) {
			t.Errorf("history:\n%s", text)
		}
	})

	t.Run("a service that is down", func(t *testing.T) {
		m.MustRun(ctx, "systemctl", "stop", "kubelet.service")
		if s, code := status(t, ctx, m); code != 5 || s.Verdict != "a service is down" {
			t.Errorf("status: exit %d, %+v", code, s)
		}
		m.MustRun(ctx, "systemctl", "start", "kubelet.service")
		wantHealthy(t, ctx, m)
	})

	t.Run("a unit file that was edited", func(t *testing.T) {
		m.MustRun(ctx, "sh", "-c", "echo '# by hand' >>/etc/systemd/system/kubelet.service")
		for _, when := range []string{"before systemd has read it", "before kubelet was restarted"} {
			s, code := status(t, ctx, m)
			stale := false
			for _, u := range s.Units {
				stale = stale || u.Name == "kubelet.service" && !u.RunsWhatIsOnDisk && u.Why != ""
			}
			if code != 1 || !stale || len(s.Drift) != 1 || s.Drift[0].Path != "/etc/systemd/system/kubelet.service" {
				t.Errorf("%s: exit %d, %+v", when, code, s)
			}
			m.MustRun(ctx, "systemctl", "daemon-reload")
		}
	})

	t.Run("reset", func(t *testing.T) {
		m.WriteFile("/var/lib/kubelet/pki/x", File{Content: "a certificate\n"})
		if out := m.Run(ctx, "nodeadm", "reset"); out.ExitCode != 0 {
			t.Errorf("exit %d: %s", out.ExitCode, out.Stderr)
		}
		wantTree(t, "after a reset", pristine, tree(t, m))
		wantUnits(t, ctx, m, "inactive", "active enabled")
		// Its own directory for plugins is Debian's: what stood before the first run.
		if said := lastLineWith(m.Journal("containerd.service"), "Start cri plugin with config"); !strings.Contains(said, "/usr/lib/cni") {
			t.Errorf("containerd runs with\n%s", said)
		}
		if s, _ := status(t, ctx, m); s.Verdict != "never run" || s.LastRun != nil || s.Generation != 0 {
			t.Errorf("status: %+v", s)
		}
		if out := m.MustRun(ctx, "nodeadm", "history"); !strings.Contains(out, "not changed anything") {
			t.Errorf("history: %s", out)
		}
		m.MustRun(ctx, bootstrap()...)
		wantMaxPods(t, "29")
		wantHealthy(t, ctx, m)
	})
}

// wantUnits wants kubelet in a state and not enabled, and containerd in its own.
func wantUnits(t *testing.T, ctx context.Context, m *Machine, kubelet, containerd string) {
	t.Helper()
	expect(t, "kubelet", kubelet+"\n", m.Run(ctx, "systemctl", "is-active", "kubelet.service").Stdout)
	if out := m.Run(ctx, "systemctl", "is-enabled", "kubelet.service"); out.ExitCode == 0 {
		t.Errorf("kubelet is %s", out.Stdout)
	}
	expect(t, "containerd", containerd+"\n", m.MustRun(ctx, "sh", "-c", "echo $(systemctl is-active containerd.service) $(systemctl is-enabled containerd.service)"))
}

func lastLineWith(text, words string) (last string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, words) {
			last = line
		}
	}
	return last
}

// TestWayBack is a node on which things go wrong: a kubelet that does not run
// with what it was given, and runs that are killed.
func TestWayBack(t *testing.T) {
	Require(t)
	t.Parallel()
	files := image(t, "1.34.4")
	// kubelet is started again at once, so that the test need not wait; and a
	// start can be held up.
	files["/etc/systemd/system/kubelet.service.d/05-test.conf"] = File{Content: "[Service]\nRestartSec=100ms\nExecStartPre=/bin/sh -c 'while test -e /run/hold-kubelet; do sleep 0.02; done'\n"}
	m := Boot(t, Options{Files: files, Simulator: instance(t, "")})
	ctx := within(t, 120*time.Second)
	m.WaitBooted(ctx)
	const failing = "/etc/kubelet-standin/fail"
	const memory = "/var/lib/nodeadm/generations"

	wantRolledBack := func(t *testing.T, out Result, words string) {
		t.Helper()
		if out.ExitCode != 5 || !strings.Contains(out.Stderr, words) || !strings.Contains(out.Stderr, "what stood before is back") {
			t.Errorf("exit %d, want 5 with kubelet's last words %q and that what stood before is back:\n%s", out.ExitCode, words, out.Stderr)
		}
		s, _ := status(t, ctx, m)
		if s.LastRun == nil || s.LastRun.Outcome != "rolled back" || s.LastRun.ExitCode != 5 || !strings.Contains(s.LastRun.Error, words) {
			t.Errorf("status: last run %+v", s.LastRun)
		}
		if out := m.Run(ctx, "nodeadm", "status"); !strings.Contains(out.Stdout, "rolled back") {
			t.Errorf("status:\n%s", out.Stdout)
		}
		all := history(t, ctx, m)
		if len(all) < 2 {
			t.Fatalf("history: %+v", all)
		}
		failed, back := all[len(all)-2], all[len(all)-1]
		if failed.Outcome != "failed" || !strings.Contains(failed.Reason, words) {
			t.Errorf("the failed generation: %+v", failed)
		}
		if back.Outcome == "failed" || back.Outcome == "applying" || !strings.HasPrefix(back.Command, fmt.Sprintf("rollback to %d", failed.Generation-1)) {
			t.Errorf("the rollback: %+v", back)
		}
	}

	t.Run("a first boot that fails leaves nothing", func(t *testing.T) {
		m.WriteFile(failing, File{Content: "E1121 no CNI for you\n"})
		before := tree(t, m, "/var/lib/nodeadm")
		wantRolledBack(t, m.Run(ctx, bootstrapping("--rollback-on-failure")...), "no CNI for you")
		wantTree(t, "after a first boot that failed", before, tree(t, m, "/var/lib/nodeadm"))
		wantUnits(t, ctx, m, "inactive", "active enabled")
		if said := lastLineWith(m.Journal("containerd.service"), "Start cri plugin with config"); !strings.Contains(said, "/usr/lib/cni") {
			t.Errorf("containerd runs with\n%s", said)
		}
	})

	t.Run("a change that fails is taken back", func(t *testing.T) {
		m.WriteFile(failing, File{Content: "when-arg: --node-labels=bad=1\nE1121 label bad is not allowed\n"})
		m.MustRun(ctx, bootstrapping("--kubelet-extra-args", "--node-labels=good=1")...)
		wantHealthy(t, ctx, m)
		before, args, containerd := tree(t, m, memory), kubeletArgs(t, m), mainPID(t, m, "containerd.service")
		wantRolledBack(t, m.Run(ctx, bootstrapping("--rollback-on-failure", "--dns-cluster-ip", "10.100.0.99", "--kubelet-extra-args", "--node-labels=bad=1")...), "label bad is not allowed")
		wantTree(t, "after a change that failed", before, tree(t, m, memory))
		if diff := cmp.Diff(args, kubeletArgs(t, m)); diff != "" {
			t.Errorf("kubelet's command line (-before +after):\n%s", diff)
		}
		expect(t, "containerd's main PID", containerd, mainPID(t, m, "containerd.service"))
		wantHealthy(t, ctx, m)
	})

	// killed kills a run at its first call of a kind that has to do with a path.
	killed := func(t *testing.T, calls, path string, argv ...string) {
		t.Helper()
		out := m.Run(ctx, append([]string{"strace", "-f", "-o", "/dev/null", "-P", path, "-e", "trace=" + calls, "-e", "inject=" + calls + ":signal=KILL"}, argv...)...)
		if out.ExitCode != 128+9 {
			t.Fatalf("the run was not killed: exit %d: %s", out.ExitCode, out.Stderr)
		}
	}
	const renames = "?rename,renameat,?renameat2"
	labelled := func(label string) []string {
		return bootstrapping("--dns-cluster-ip", "10.100.0.11", "--kubelet-extra-args", "--node-labels=run="+label)
	}
	// finish is the run after one that was killed.
	finish := func(t *testing.T, label string) Result {
		t.Helper()
		out := m.Run(ctx, labelled(label)...)
		if out.ExitCode != 0 {
			t.Errorf("exit %d: %s", out.ExitCode, out.Stderr)
		}
		if args := kubeletArgs(t, m); !slices.Contains(args, "--node-labels=run="+label) || kubeletSays(t, m, "clusterDNS") != "[10.100.0.11]" {
			t.Errorf("kubelet runs with %q and cluster DNS %s", args, kubeletSays(t, m, "clusterDNS"))
		}
		wantHealthy(t, ctx, m)
		return out
	}
	const undone = "was cut short while it wrote generation"

	t.Run("killed between two files", func(t *testing.T) {
		killed(t, renames, kubeletExtraArgs, labelled("1")...)
		if s, code := status(t, ctx, m); code != 1 || !s.Interrupted || s.Outcome != "applying" {
			t.Errorf("status: exit %d, %+v", code, s)
		}
		out := m.Run(ctx, append(labelled("1"), "--dry-run")...)
		if out.ExitCode != 10 || !strings.Contains(out.Stderr, undone) {
			t.Errorf("plan: exit %d: %s", out.ExitCode, out.Stderr)
		}
		if out := finish(t, "1"); !strings.Contains(out.Stderr, undone) || !strings.Contains(out.Stderr, "was undone") {
			t.Errorf("it does not say that it undid anything:\n%s", out.Stderr)
		}
	})

	t.Run("killed with all files in place, and not wanted any more", func(t *testing.T) {
		before, all := tree(t, m, memory), history(t, ctx, m)
		killed(t, renames, fmt.Sprintf("%s/%d/manifest.json", memory, len(all)+1), labelled("2")...)
		if !strings.Contains(m.ReadFile(kubeletExtraArgs), "run=2") {
			t.Error("the files were not in place")
		}
		if out := finish(t, "1"); !strings.Contains(out.Stderr, "was undone") {
			t.Errorf("it does not say that it undid anything:\n%s", out.Stderr)
		}
		wantTree(t, "after a run that was killed", before, tree(t, m, memory))
		if now := history(t, ctx, m); len(now) != len(all) {
			t.Errorf("history: %+v", now)
		}
	})

	// killedWhen kills a run as soon as a condition of the shell holds.
	killedWhen := func(t *testing.T, condition string, argv ...string) {
		t.Helper()
		const script = `condition=$1; shift; "$@" & run=$!
			until eval "$condition"; do kill -0 $run || break; sleep 0.02; done
			kill -KILL $run; wait $run`
		if out := m.Run(ctx, append([]string{"sh", "-c", script, "killed", condition}, argv...)...); out.ExitCode != 128+9 {
			t.Fatalf("the run was not killed: exit %d: %s", out.ExitCode, out.Stderr)
		}
	}
	// wantStale wants status to see that kubelet does not run what is on disk.
	wantStale := func(t *testing.T) {
		t.Helper()
		s, code := status(t, ctx, m)
		for _, u := range s.Units {
			if code == 0 || u.Name == "kubelet.service" && u.RunsWhatIsOnDisk {
				t.Errorf("status: exit %d, %+v", code, s)
			}
		}
	}
	// killedBeforeRestart kills a run when its generation is complete and synced,
	// and kubelet does not know of it yet.
	killedBeforeRestart := func(t *testing.T, argv ...string) {
		t.Helper()
		next := len(history(t, ctx, m)) + 1
		kubelet := mainPID(t, m, "kubelet.service")
		killed(t, "fsync", fmt.Sprintf("%s/%d", memory, next), argv...)
		if all := history(t, ctx, m); len(all) != next || all[next-1].Outcome != "applied" {
			t.Errorf("history: %+v", all)
		}
		expect(t, "kubelet's main PID", kubelet, mainPID(t, m, "kubelet.service"))
		wantStale(t)
	}

	t.Run("killed before kubelet was restarted", func(t *testing.T) {
		killedBeforeRestart(t, labelled("2")...)
		finish(t, "2")
	})

	t.Run("killed while kubelet starts", func(t *testing.T) {
		m.WriteFile("/run/hold-kubelet", File{})
		killedWhen(t, `test "$(systemctl is-active kubelet.service)" = activating`, labelled("3")...)
		wantStale(t)
		m.MustRun(ctx, "rm", "/run/hold-kubelet")
		finish(t, "3")
	})

	t.Run("killed while it waits for kubelet", func(t *testing.T) {
		killedWhen(t, "grep -q run=4 /run/kubelet-standin/args.json && ! test -e /run/nodeadm/pending-restarts", labelled("4")...)
		finish(t, "4")
	})

	t.Run("a rollback killed before kubelet was restarted", func(t *testing.T) {
		killedBeforeRestart(t, "nodeadm", "rollback")
		expect(t, kubeletExtraArgs, "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--node-labels=run=3'\n", m.ReadFile(kubeletExtraArgs))
		finish(t, "3")
		if all := history(t, ctx, m); slices.ContainsFunc(all, func(g generation) bool { return g.Outcome == "applying" }) {
			t.Errorf("history: %+v", all)
		}
	})
}
