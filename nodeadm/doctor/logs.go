package doctor

import (
	"regexp"
	"sync"
)

// pattern is something that kubelet or containerd say, and what it means.
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
		{regexp.MustCompile(`(?i)unknown flag: (\S+)`), "kubelet does not know a flag that it is given", "take it out of --kubelet-extra-args or spec.kubelet.flags"},
		{regexp.MustCompile(`unrecognized feature gate|unknown feature gate|cannot set feature gate`), "kubelet does not know a feature gate, or it cannot be set any more", "take it out of featureGates"},
		{regexp.MustCompile(`failed to load kubelet config file|unknown field "`), "kubelet's configuration is not understood", "see the line in its log; run nodeadm again, which writes it for this kubelet"},
		{regexp.MustCompile(`unknown 'kubernetes.io' or 'k8s.io' labels|--node-labels in the 'kubernetes.io' namespace`), "kubelet does not register with a label that --node-labels gives", "take labels below kubernetes.io and k8s.io out of --node-labels"},
		{regexp.MustCompile(`running with swap on is not supported`), "swap is on", "swapoff --all, and take it out of /etc/fstab; or set failSwapOn: false"},
		{regexp.MustCompile(`kubelet is configured to not run on a host using cgroup v1`), "kubelet does not start with cgroups of version 1", "use an image with cgroups of version 2, or set failCgroupV1: false"},
		{regexp.MustCompile(`misconfiguration: kubelet cgroup driver|is different from docker cgroup driver`), "kubelet and the container runtime make cgroups differently", "let nodeadm write both configurations"},
		{regexp.MustCompile(`invalid kernel flag|Failed to start ContainerManager.*kernel`), "the kernel's settings are not those that kubelet wants", "sysctl --system, or protectKernelDefaults: false"},
		{regexp.MustCompile(`address already in use`), "another program has one of its ports", "ss -ltnp shows which"},
		{regexp.MustCompile(`unable to load client CA file`), "the file of the cluster's certificate authority is missing", "run nodeadm again"},
		{regexp.MustCompile(`validate CRI v1 runtime API|failed to connect.*containerd\.sock|dial unix.*containerd\.sock`), "containerd does not answer it", "systemctl status containerd"},
		{regexp.MustCompile(`image credential provider`), "its image credential provider cannot be used", "see /etc/eks/image-credential-provider"},
		{regexp.MustCompile(`Failed to get system container stats|failed to get cgroup stats`), "cgroups cannot be read", "restart kubelet; if it stays so, the machine"},
		{regexp.MustCompile(`(?i)permission denied.*(?:SELinux|avc)`), "SELinux refuses something", "ausearch -m avc shows what"},
		{regexp.MustCompile(`x509: certificate signed by unknown authority`), "the API server's certificate is signed by another authority", "compare the certificate authority with what EKS says"},
		{regexp.MustCompile(`no such host`), "a name does not resolve", "see endpoint-resolves"},
		{regexp.MustCompile(`\bUnauthorized\b`), "the API server does not know the node's role", "give the role an access entry; see api-auth"},
		{regexp.MustCompile(`is not allowed to modify node|cannot get resource "nodes"|node "[^"]*" not found`), "the API server knows the instance by another name", "see name-agrees"},
	}
})

// decode finds the first pattern that lines of a log show.
func decode(said []string) *pattern {
	for _, p := range patterns() {
		for _, line := range said {
			if p.expression.MatchString(line) {
				return &p
			}
		}
	}
	return nil
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
