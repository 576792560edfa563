# The recipe of the machine's disk: a small Debian 12 with systemd, D-Bus,
# containerd, cloud-init and etcd. Run as "sh -eu rootfs.sh DIR ARCH" in mount and
# PID namespaces of its own; progress goes to file descriptor 3. The text of
# this file names the cache: every change here makes a new disk.
dir=$1
arch=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

echo "debootstrap: systemd, D-Bus, containerd" >&3
debootstrap --arch="$arch" --variant=minbase \
	--include=systemd,systemd-sysv,dbus,ca-certificates,iproute2,containerd,kmod,procps,strace,util-linux \
	bookworm "$dir"

# In a second step: debootstrap configures python3-cryptography before what it
# depends on, and gives up.
echo "apt-get: cloud-init, what a cluster needs, and filesystems" >&3
chroot "$dir" apt-get install --yes --no-install-recommends cloud-init containernetworking-plugins etcd-server iptables xfsprogs

echo "configuring" >&3
# The simulated metadata service is the only source there is. cloud-init's own
# choice of locale is not in a minimal Debian, and would fail cloud-config.
cat >"$dir/etc/cloud/cloud.cfg.d/90_dpkg.cfg" <<'EOF'
datasource_list: [ Ec2 ]
datasource:
  Ec2:
    metadata_urls: ["http://169.254.169.254:80"]
    strict_id: false
    max_wait: 10
    timeout: 5
locale: C.UTF-8
EOF

# Empty, not absent: each machine gets an identity of its own, and yet it is
# no "first boot", which would reset every unit to its preset.
: >"$dir/etc/machine-id"
rm -f "$dir/var/lib/dbus/machine-id" "$dir/etc/hostname" "$dir/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$dir/etc/hosts"

# A journal that outlives the boot, so that a test can read it after power-off.
mkdir -p "$dir/var/log/journal" "$dir/var/lib/containerd"

# Only the machine that is a control plane has etcd run.
chroot "$dir" systemctl disable etcd.service

# Timers that reach for Debian's mirrors, and a login prompt nobody sees.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
	console-getty.service getty.target; do
	ln -sf /dev/null "$dir/etc/systemd/system/$unit"
done

chroot "$dir" apt-get clean
rm -rf "$dir"/var/lib/apt/lists/* "$dir"/var/cache/debconf/*-old "$dir"/var/log/*.log "$dir"/var/log/apt \
	"$dir"/usr/share/doc/* "$dir"/usr/share/man/* "$dir"/usr/share/locale/*
