# Powers a machine on. Run as "sh -eu poweron.sh DIR CGROUP NAME" in the mount
# namespace of disk.sh and in a PID namespace of its own: when this process
# dies, the kernel ends everything the machine runs. (nspawn's own death would
# not do: systemd as PID 1 outlives it.)
dir=$1
cgroup=/sys/fs/cgroup/$2
name=$3

# nspawn puts the machine under the control group it is started in; with one
# for all, machines side by side would be in each other's.
mkdir "$cgroup"
echo $$ >"$cgroup/cgroup.procs"

# The identifier of a Xen instance is how cloud-init knows EC2 when it sees no
# firmware tables, as in a container; only on EC2 does it ask for session tokens.
echo ec2e1916-9099-7caf-fd21-012345abcdef >"$dir/hypervisor-uuid"

exec systemd-nspawn --quiet --register=no --keep-unit --machine="$name" --directory="$dir/root" \
	--private-network --resolv-conf=off --timezone=off --link-journal=no \
	--bind-ro="$dir/hypervisor-uuid:/sys/hypervisor/uuid" --console=pipe --boot </dev/null
