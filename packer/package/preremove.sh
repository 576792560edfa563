#!/bin/sh
# dpkg says "remove" and rpm "0" when the package goes and no other version of
# it comes. Then no link may be left that leads to a unit which is gone. An
# update leaves the unit, and a run of it, alone.
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable nodeadm.service || :
	fi
	if [ -d /run/systemd/system ]; then
		systemctl stop nodeadm.service || :
	fi
	;;
esac
