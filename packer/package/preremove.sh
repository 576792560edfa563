#!/bin/sh
# dpkg says "remove" and rpm "0" when the package goes and no other version of
# it comes. Then no link may be left that leads to a unit which is gone. An
# update leaves the unit, and a run of it, alone.
case "$1" in
remove | 0)
	# The second one is not in the package: nodeadm image install has put it
	# there, and it runs the program that goes now.
	for unit in nodeadm.service nodeadm-after-scripts.service; do
		if command -v systemctl >/dev/null && systemctl --quiet is-enabled "$unit" 2>/dev/null; then
			systemctl --quiet disable "$unit" || :
		fi
		if [ -d /run/systemd/system ] && systemctl --quiet is-active "$unit"; then
			systemctl stop "$unit" || :
		fi
	done
	# What nodeadm image install has put there beside: links to the program, in
	# place of scripts that come back, and the second unit with its preset.
	for script in /etc/eks/bootstrap.sh /etc/eks/max-pods-calculator.sh; do
		if [ "$(readlink "$script")" = /usr/bin/nodeadm ]; then
			if [ -f "$script.before-nodeadm" ]; then
				mv -f "$script.before-nodeadm" "$script"
			else
				rm -f "$script"
			fi
		fi
	done
	for file in /etc/systemd/system/nodeadm-after-scripts.service /etc/systemd/system-preset/90-nodeadm.preset; do
		if [ -f "$file" ] && ! [ -L "$file" ]; then
			rm -f "$file"
		fi
	done
	;;
esac
