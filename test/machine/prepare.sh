#!/bin/sh
# Install what the machine tests and those with loop devices need, on Debian and as root. Elsewhere the
# tests say themselves what is missing, and that they were left out. Arguments are more of what is
# needed, as PROGRAM:PACKAGE.
set -eu
# A kernel in user mode, for arrays of disks; Debian has it for this architecture.
if [ "$(uname -m)" = x86_64 ]; then
	set -- linux.uml:user-mode-linux insmod:kmod "$@"
fi
missing=
for pair in debootstrap:debootstrap systemd-nspawn:systemd-container ip:iproute2 unshare:util-linux file:file \
	losetup:mount mkfs.xfs:xfsprogs mdadm:mdadm "$@"; do
	command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "*** The machine tests will be left out: they need root and the packages$missing ***" >&2
	exit 0
fi
echo "installing$missing for the machine tests"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
