# The recipe of an instance as Debian's image for EC2 makes one: a kernel,
# cloud-init, SSH and sudo, and nothing of Kubernetes. What an image build
# installs lies in a repository on the disk, so that apt works without a network.
# Run as "sh -eu rootfs.sh DIR ARCH", see rootfs.sh of test/machine.
dir=$1
arch=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

echo "debootstrap: systemd, SSH" >&3
debootstrap --arch="$arch" --variant=minbase \
	--include=systemd,systemd-sysv,dbus,iproute2,kmod,openssh-server,procps,sudo \
	bookworm "$dir"

# rpm, so that the other package can be installed too.
echo "apt-get: cloud-init, a kernel, rpm" >&3
chroot "$dir" apt-get install --yes --no-install-recommends cloud-init "linux-image-cloud-$arch" rpm

echo "apt-get: a repository with what an image build installs" >&3
chroot "$dir" apt-get install --yes --no-install-recommends --download-only \
	ca-certificates containerd containernetworking-plugins curl iptables runc
mkdir "$dir/srv/repository"
mv "$dir"/var/cache/apt/archives/*.deb "$dir/srv/repository/"
chroot "$dir" apt-get install --yes --no-install-recommends apt-utils
chroot "$dir" sh -euc 'cd /srv/repository; apt-ftparchive packages . >Packages'
chroot "$dir" apt-get purge --yes --autoremove apt-utils
echo "deb [trusted=yes] file:/srv/repository ./" >"$dir/etc/apt/sources.list"
rm -rf "$dir"/var/lib/apt/lists/*
chroot "$dir" apt-get clean

echo "configuring" >&3
cat >"$dir/etc/cloud/cloud.cfg.d/90_dpkg.cfg" <<'EOF'
datasource_list: [ Ec2 ]
datasource:
  Ec2:
    metadata_urls: ["http://169.254.169.254:80"]
    strict_id: false
    max_wait: 10
    timeout: 5
locale: C.UTF-8
apt: {preserve_sources_list: true}
system_info: {default_user: {name: admin}}
EOF
: >"$dir/etc/machine-id"
rm -f "$dir/var/lib/dbus/machine-id" "$dir/etc/hostname" "$dir/etc/resolv.conf" "$dir"/etc/ssh/ssh_host_*
printf '127.0.0.1 localhost\n::1 localhost\n' >"$dir/etc/hosts"
mkdir -p "$dir/var/log/journal" "$dir/var/lib/containerd"
for unit in console-getty.service getty.target e2scrub_all.timer fstrim.timer; do
	ln -sf /dev/null "$dir/etc/systemd/system/$unit"
done
