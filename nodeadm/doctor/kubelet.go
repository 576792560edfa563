package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/systemd"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// kubeletChecks ask about kubelet. Those that look at its files need a node that
// nodeadm has configured; whether it has is asked at the end, when everything
// that keeps it from that had its say.
var kubeletChecks = []Check{
	{Name: "kubelet-config-parse", Question: "Are kubelet's files there and readable?", look: kubeletConfigParse,
		Explanation: "kubelet-config.json, the kubeconfig and the certificate authority it names: kubelet does not start, or does not find its cluster, without one of them."},
	{Name: "ran-from-ami", Level: Network, Question: "Were kubelet's files made on this instance?", Needs: []string{"kubelet-config-parse", "imds-reach"}, look: ranFromAMI,
		Explanation: "An image that was made of a running node carries that node's name, certificates and identity. nodeadm image clean removes them before the snapshot."},
	{Name: "ports-free", Question: "Are kubelet's ports its own?", look: portsFree,
		Explanation: "kubelet listens on 10250, and on 127.0.0.1:10248 for its health. Another program, or a second kubelet, on one of them keeps it from starting."},
	{Name: "unit-kubelet", Question: "Does kubelet run?", Needs: []string{"exec-allowed", "kubelet-config-parse"}, look: unitKubelet,
		Explanation: "systemd starts kubelet again when it ends; what it said last is the reason, and known reasons are named."},
	{Name: "kubelet-health", Question: "Does kubelet say that it is well?", Needs: []string{"unit-kubelet"}, look: kubeletHealth,
		Explanation: "kubelet answers on 127.0.0.1:10248/healthz as soon as its main loop runs."},
	{Name: "applied-matches", Question: "Is everything as nodeadm left it?", look: appliedMatches,
		Explanation: "Files that somebody has changed since, and services that do not run what is on disk. nodeadm status says the same; nodeadm plan shows what a run would change."},
	{Name: "ordering-cycle", Question: "Did systemd start everything that it should have?", look: orderingCycle,
		Explanation: "Units that are ordered in a circle are not all started: systemd deletes one of the jobs and says so in the journal of the boot."},
	{Name: "cloud-init-status", Question: "Did cloud-init do its work?", look: cloudInitStatus,
		Explanation: "Scripts in user data are run by cloud-init; its own log is /var/log/cloud-init-output.log."},
}

func kubeletConfigParse(_ context.Context, p *patient) Finding {
	missing := p.absentFiles()
	if len(missing) > 0 && !p.configured() && (p.LastRun == nil || p.LastRun.Error != "") {
		f := skipped("nodeadm has not configured this node yet")
		f.ends = true
		return f
	}
	if len(missing) > 0 {
		return failed("run nodeadm again", "%s is missing", strings.Join(missing, " and "))
	}
	c, err := p.kubelet()
	if err != nil {
		return failed("mend it, or run nodeadm again", "kubelet's configuration cannot be read: %v", err)
	}
	k, err := p.kubeconfig()
	if err != nil {
		return failed("mend it, or run nodeadm again", "the kubeconfig cannot be read: %v", err)
	}
	for _, file := range []string{c.Authentication.X509.ClientCAFile, k.caFile} {
		if file != "" && !p.Root.Exists(file) {
			return failed("run nodeadm again", "the certificate authority %s is missing", file)
		}
	}
	return ok("kubelet's files are there; its API server is %s", k.endpoint)
}

var instanceID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`i-[0-9a-f]{8,17}$`) })

func ranFromAMI(_ context.Context, p *patient) Finding {
	instance, _ := p.instance()
	const remedy = "nodeadm reset, and reboot; before the next snapshot: nodeadm image clean"
	c, _ := p.kubelet()
	for _, id := range []string{c.ProviderID, p.flag("provider-id")} {
		if id = instanceID().FindString(id); id != "" && id != instance.ID {
			return failed(remedy, "kubelet's configuration is of another instance, %s: this one is %s", id, instance.ID)
		}
	}
	return ok("kubelet's files were made for %s", instance.ID)
}

// listener finds out which process listens on a port.
func (p *patient) listener(port int) (pid, name string) {
	inode := ""
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, line := range lines(p.text(file)) {
			// sl local_address rem_address st … inode; 0A is LISTEN
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inode = f[9]
			}
		}
	}
	if inode == "" {
		return "", ""
	}
	sockets, _ := filepath.Glob(p.host("/proc/[0-9]*/fd/*"))
	for _, socket := range sockets {
		if to, _ := os.Readlink(socket); to == "socket:["+inode+"]" {
			pid = filepath.Base(filepath.Dir(filepath.Dir(socket)))
			return pid, strings.TrimSpace(p.text("/proc/" + pid + "/comm"))
		}
	}
	return "?", "another program"
}

func portsFree(_ context.Context, p *patient) Finding {
	ports := []int{10250, layout.KubeletHealthPort}
	if c, err := p.kubelet(); err == nil && c.HealthzPort != nil && *c.HealthzPort > 0 {
		ports[1] = *c.HealthzPort
	}
	for _, port := range ports {
		if pid, name := p.listener(port); name != "" && name != "kubelet" {
			return failed("stop it, or give it another port", "%s (process %s) listens on %d, which kubelet needs", name, pid, port)
		}
	}
	return ok("nobody else has kubelet's ports")
}

func unitKubelet(ctx context.Context, p *patient) Finding {
	return p.service(ctx, layout.KubeletService)
}

func kubeletHealth(ctx context.Context, p *patient) Finding {
	port := layout.KubeletHealthPort
	if c, err := p.kubelet(); err == nil && c.HealthzPort != nil {
		if port = *c.HealthzPort; port <= 0 {
			return skipped("kubelet's health endpoint is switched off")
		}
	}
	where := "http://" + net.JoinHostPort(layout.KubeletHealthAddress, strconv.Itoa(port)) + "/healthz"
	said := func() []string { return last(complaints(systemd.LastWords(ctx, layout.KubeletService, 60)), 5) }
	// One that was started this moment does not listen yet.
	var answer *http.Response
	var err error
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		var request *http.Request
		if request, err = http.NewRequestWithContext(asking, http.MethodGet, where, nil); err != nil {
			return skipped("%v", err)
		}
		answer, err = (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err == nil || asking.Err() != nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil {
		return failed("journalctl -u kubelet shows what it waits for", "kubelet runs and does not answer on port %d", port).seen(said()...)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return failed("journalctl -u kubelet shows more", "kubelet is not well: %s", strings.TrimSpace(string(body))).seen(said()...)
	}
	return ok("kubelet is well")
}

func appliedMatches(_ context.Context, p *patient) Finding {
	if len(p.Stale) > 0 {
		return warning("nodeadm status shows which; systemctl daemon-reload, or run nodeadm again", "a service does not run what is on disk: %s", p.Stale[0]).seen(p.Stale[1:]...).seen(p.Edited...)
	}
	if len(p.Edited) > 0 {
		return warning("nodeadm plan shows the difference; put what you want into the configuration, and run nodeadm again", "somebody has changed %s", p.Edited[0]).seen(p.Edited[1:]...)
	}
	if p.LastRun == nil && !p.configured() {
		return skipped("nodeadm has not configured this node yet")
	}
	return ok("files and services are as nodeadm left them")
}

func orderingCycle(ctx context.Context, p *patient) Finding {
	out, err := p.output(ctx, "journalctl", "--boot", "--no-pager", "--quiet", "--output=cat", "_PID=1", "--grep=ordering cycle|deleted to break ordering", "--lines=20")
	found := lines(out)
	if err != nil && len(found) == 0 || len(found) == 0 {
		return ok("systemd found no ordering cycle")
	}
	f := failed("take apart what the lines name: After= and Before= of these units go in a circle; systemctl list-dependencies --after UNIT", "systemd did not start everything at boot: units are ordered in a circle").seen(last(found, 6)...)
	if !slices.ContainsFunc(found, func(line string) bool {
		return strings.Contains(line, "deleted") && (strings.Contains(line, "nodeadm") || strings.Contains(line, "kubelet") || strings.Contains(line, "containerd") || strings.Contains(line, "cloud-"))
	}) {
		f.Status = Warning
	}
	return f
}

func cloudInitStatus(_ context.Context, p *patient) Finding {
	text := p.text("/run/cloud-init/result.json")
	if text == "" {
		return skipped("cloud-init has not ended, or is not used")
	}
	errors := regexp.MustCompile(`(?s)"errors":\s*\[\s*("(?:[^"\\]|\\.)*")`).FindStringSubmatch(text)
	if errors != nil {
		return warning("see /var/log/cloud-init-output.log", "cloud-init had errors: %s", errors[1])
	}
	return ok("cloud-init has ended without errors")
}
