#!/usr/bin/env bash
# Install what kubelet starts containers with: containerd, runc and the CNI
# plugins, as the distribution has them.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/os-release
case "$ID" in
debian | ubuntu)
	# What the distribution does by itself after a boot would hold apt's locks.
	if [ -d /run/systemd/system ]; then
		systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service || :
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q -o APT::Update::Error-Mode=any
	apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 \
		ca-certificates containerd containernetworking-plugins curl iptables mount runc
	apt-get clean
	;;
amzn)
	# curl is there, in one of two packages that exclude each other.
	dnf install -q -y ca-certificates cni-plugins containerd iptables-nft runc util-linux
	dnf clean packages
	;;
*)
	echo "there are no packages listed here for $ID, only for amzn, debian and ubuntu" >&2
	exit 1
	;;
esac

# containerd and aws-node look here only. Copies and not a link, since aws-node
# puts its own plugins there, under some of the same names.
mkdir -p /opt/cni/bin
for dir in /usr/lib/cni /usr/libexec/cni; do
	if [ -d "$dir" ] && ! [ "$dir" -ef /opt/cni/bin ]; then
		cp -a "$dir/." /opt/cni/bin/
	fi
done
