# Runs kubelet below a directory as far as it comes without a container
# runtime, which is past all checks of its flags and its configuration. Run as
# "sh -eu accept.sh ROOT KUBELET FLAG…" in namespaces of its own; KUBELET is outside of ROOT. Kubelets from
# 1.35 on refuse cgroup v1, so they see the other kind.
root=$1
kubelet=$2
shift 2
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/usr/bin"
touch "$root/usr/bin/kubelet"
mount --bind "$kubelet" "$root/usr/bin/kubelet"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
exec chroot "$root" /usr/bin/kubelet "$@"
