package doctor

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pattern is something that kubelet or containerd say, and what it means. Where
// that ends in a colon, their own words follow.
type pattern struct {
	expression      *regexp.Regexp
	meaning, remedy string
}

// patterns are in the order in which one explains the next.
var patterns = sync.OnceValue(func() []pattern {
	return []pattern{
		{regexp.MustCompile(`no space left on device`), "a disk is full", "make room: df -h and df -i show where"},
		{regexp.MustCompile(`too many open files`), "there are too many open files or inotify instances", "raise fs.inotify.max_user_instances, or LimitNOFILE of the unit"},
		{regexp.MustCompile(`Exec format error`), "a program is for another architecture", "install the one for this machine (uname -m)"},
		{regexp.MustCompile(`(?i)unknown flag: (\S+)`), "kubelet does not know a flag that it is given:", "take it out of --kubelet-extra-args or spec.kubelet.flags"},
		{regexp.MustCompile(`failed to parse kubelet flag|invalid argument "[^ ]*" for `), "it cannot read a flag that it is given:", "correct it in --kubelet-extra-args or spec.kubelet.flags"},
		{regexp.MustCompile(`unrecognized feature gate|unknown feature gate|cannot set feature gate`), "kubelet does not know a feature gate, or it cannot be set any more:", "take it out of featureGates"},
		{regexp.MustCompile(`failed to load kubelet config file|unknown field "`), "kubelet's configuration is not understood:", "see the line in its log; run nodeadm again, which writes it for this kubelet"},
		{regexp.MustCompile(`unknown 'kubernetes.io' or 'k8s.io' labels|--node-labels in the 'kubernetes.io' namespace`), "kubelet does not register with a label that --node-labels gives:", "take labels below kubernetes.io and k8s.io out of --node-labels"},
		{regexp.MustCompile(`running with swap on is not supported`), "swap is on", "swapoff --all, and take it out of /etc/fstab; or set failSwapOn: false"},
		{regexp.MustCompile(`kubelet is configured to not run on a host using cgroup v1`), "kubelet does not start with cgroups of version 1", "use an image with cgroups of version 2, or set failCgroupV1: false"},
		{regexp.MustCompile(`misconfiguration: kubelet cgroup driver|is different from docker cgroup driver`), "kubelet and the container runtime make cgroups differently", "let nodeadm write both configurations"},
		{regexp.MustCompile(`invalid kernel flag|Failed to start ContainerManager.*kernel`), "the kernel's settings are not those that kubelet wants", "sysctl --system, or protectKernelDefaults: false"},
		{regexp.MustCompile(`address already in use`), "another program has one of its ports", "ss -ltnp shows which"},
		{regexp.MustCompile(`unable to load client CA file`), "the file of the cluster's certificate authority is missing", "run nodeadm again"},
		{regexp.MustCompile(`read-only file system`), "it cannot write:", "see dmesg for why the filesystem is read-only; if the disk is sound: mount -o remount,rw"},
		{regexp.MustCompile(`needs to run as uid`), "it does not run as root:", "take User= out of its unit (systemctl cat kubelet)"},
		{regexp.MustCompile(`could not restore state from checkpoint`), "what its CPU or memory manager has noted is of another policy, or damaged:", "drain the node, rm /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state, and restart kubelet"},
		{regexp.MustCompile(`invalid kubeconfig`), "it cannot use its kubeconfig:", "mend it, or run nodeadm again"},
		{regexp.MustCompile(`validate CRI v1 runtime API|failed to connect.*containerd\.sock|dial unix.*containerd\.sock`), "containerd does not answer it", "systemctl status containerd"},
		{regexp.MustCompile(`image credential provider`), "its image credential provider cannot be used", "see /etc/eks/image-credential-provider"},
		{regexp.MustCompile(`Failed to get system container stats|failed to get cgroup stats`), "cgroups cannot be read", "restart kubelet; if it stays so, the machine"},
		{regexp.MustCompile(`(?i)permission denied.*(?:SELinux|avc)`), "SELinux refuses something", "ausearch -m avc shows what"},
		{regexp.MustCompile(`x509: certificate signed by unknown authority`), "the API server's certificate is signed by another authority", "compare the certificate authority with what EKS says"},
		{regexp.MustCompile(`no such host`), "a name does not resolve", "see endpoint-resolves"},
		{regexp.MustCompile(`\bUnauthorized\b`), "the API server does not know the node's role", "give the role an access entry; see api-auth"},
		{regexp.MustCompile(`denied request|admission webhook .* denied|is forbidden: ValidatingAdmissionPolicy`), "the cluster refuses what it sends:", "let nodes through the admission webhook or policy that the message names: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies"},
		{regexp.MustCompile(`is not allowed to modify node|cannot get resource "nodes"|node "[^"]*" not found`), "the API server knows the instance by another name", "see name-agrees"},
	}
})

// decode finds the first pattern that lines of a log show.
func decode(said []string) *pattern {
	for _, p := range patterns() {
		for _, line := range slices.Backward(said) {
			if !p.expression.MatchString(line) {
				continue
			}
			if strings.HasSuffix(p.meaning, ":") {
				p.meaning += " " + wordsOf(line)
			}
			return &p
		}
	}
	return nil
}

// fatal is how kubelet says why it ends.
var fatal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`"command failed" err=|Failed to start ContainerManager|failed to run Kubelet`)
})

// fatalOf is why kubelet has ended last, in its own words; "" if it has not said.
func fatalOf(said []string) string {
	for _, line := range slices.Backward(said) {
		if fatal().MatchString(line) {
			return wordsOf(line)
		}
	}
	return ""
}

// wordsOf is what a line of kubelet's log says, without time, place and quotes.
func wordsOf(line string) string {
	if _, text, found := strings.Cut(line, ` err="`); found {
		if quoted, err := strconv.QuotedPrefix(`"` + text); err == nil {
			line, _ = strconv.Unquote(quoted)
		}
	} else if _, text, found := strings.Cut(line, "] "); found {
		line = strings.Trim(text, `"`)
	}
	const most = 300
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + " …"
	}
	return strings.Join(strings.Fields(line), " ")
}

// complaint is how errors begin in the logs of Kubernetes and of containerd.
var complaint = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|\s)[EF]\d{4} |level=(error|fatal)|"?[Ee]rr(or)?"?[:=]`)
})

// complaints are the errors among lines of a log, or else all of them.
func complaints(said []string) (errs []string) {
	for _, line := range said {
		if complaint().MatchString(line) {
			errs = append(errs, line)
		}
	}
	if len(errs) == 0 {
		return said
	}
	return errs
}
