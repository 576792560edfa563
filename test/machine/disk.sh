# Assembles a machine's disk and keeps it for as long as standard input stays
# open, which is for as long as the test process lives. Run as
# "sh -eu disk.sh LOWER DIR CONTROLLERS VOLUMES" in a mount namespace of its own;
# CONTROLLERS is 1 for a machine that needs the resource controllers, VOLUMES the
# number of its instance store volumes.
lower=$1
dir=$2
controllers=$3
volumes=$4

# One unified hierarchy, on hosts with cgroup v1, v2 or both: nspawn looks here
# to see which kind to give the machine. Only where a machine needs the
# controllers, and the host has them on v1, does it get the host's own kind.
unified() {
	umount -R /sys/fs/cgroup 2>/dev/null || true
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	# Where v2 has the controllers, machines may use them. Where v1 has them, or
	# somebody above forbids it, systemd does well without.
	for controller in cpuset cpu io memory pids; do
		(echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control) 2>/dev/null || true
	done
}
if [ "$controllers" = 0 ] || [ ! -d /sys/fs/cgroup/memory ]; then
	unified
fi
# A test that was killed could not remove its machines' control groups.
for stale in /sys/fs/cgroup/nodeadm-test-* /sys/fs/cgroup/*/nodeadm-test-*; do
	pid=${stale##*nodeadm-test-}
	if [ -d "$stale" ] && [ ! -d "/proc/${pid%%-*}" ]; then
		find "$stale" -depth -type d -exec rmdir {} + 2>/dev/null || true
	fi
done

# nspawn keeps locks and sockets by machine name; on a tmpfs of the
# namespace's own none of them stays behind.
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn

mount -t tmpfs -o mode=755 tmpfs "$dir"
mkdir "$dir/upper" "$dir/scratch" "$dir/root" "$dir/containerd"
mount -t overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/scratch" overlay "$dir/root"
# containerd unpacks images into overlays of its own, and the kernel does not
# take an overlay as the upper layer of another. A directory beside it outlives
# power-off as the rest of the disk does.
mount --bind "$dir/containerd" "$dir/root/var/lib/containerd"

# The volumes are loop devices over sparse files. The kernel gives them up when
# this process, which has them open, and the machine have ended.
: >"$dir/volumes"
for n in $(seq "$volumes"); do
	truncate -s 512M "$dir/volume$n"
	loop=$(losetup --find --show "$dir/volume$n")
	eval "exec $((n + 2))<\"$loop\""
	losetup --detach "$loop"
	echo "$loop" >>"$dir/volumes"
done

echo ready
exec cat
