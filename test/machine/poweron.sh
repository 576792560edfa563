# Powers a machine on. Run as "sh -eu poweron.sh DIR CGROUP NAME CONTROLLERS" in the mount
# namespace of disk.sh and in a PID namespace of its own: when this process
# dies, the kernel ends everything the machine runs. (nspawn's own death would
# not do: systemd as PID 1 outlives it.)
dir=$1
cgroup=$2
name=$3
controllers=$4
set --

# nspawn puts the machine under the control group it is started in; with one
# for all, machines side by side would be in each other's.
join() {
	mkdir "$1"
	echo $$ >"$1/cgroup.procs"
}
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
	join "/sys/fs/cgroup/$cgroup"
else # cgroup v1, one hierarchy for each controller
	for hierarchy in /sys/fs/cgroup/*; do
		[ ! -L "$hierarchy" ] || continue
		if [ "${hierarchy##*/}" = cpuset ]; then
			echo 1 >"$hierarchy/cgroup.clone_children" # or the group has neither CPUs nor memory
		fi
		join "$hierarchy/$cgroup"
	done
	export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=0
fi
# A machine with controllers is one that kubelet and runc run on. They make
# control groups and keyrings, set kernel parameters and read the kernel's log.
if [ "$controllers" = 1 ]; then
	export SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes
	set -- --capability=all --bind=/dev/kmsg '--system-call-filter=@keyring bpf'
fi
while read -r volume; do
	set -- "$@" --bind="$volume"
done <"$dir/volumes"

# The identifier of a Xen instance is how cloud-init knows EC2 when it sees no
# firmware tables, as in a container; only on EC2 does it ask for session tokens.
echo ec2e1916-9099-7caf-fd21-012345abcdef >"$dir/hypervisor-uuid"

exec systemd-nspawn --quiet --register=no --keep-unit --machine="$name" --directory="$dir/root" \
	--private-network --resolv-conf=off --timezone=off --link-journal=no \
	--bind-ro="$dir/hypervisor-uuid:/sys/hypervisor/uuid" --console=pipe "$@" --boot </dev/null
