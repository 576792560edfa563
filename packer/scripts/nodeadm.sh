#!/usr/bin/env bash
# Install nodeadm from NODEADM_PACKAGE, if it is the file that NODEADM_SHA256
# names, and have it prepare the image. kubelet and containerd are there already.
set -euo pipefail
: "${NODEADM_PACKAGE:?}" "${NODEADM_SHA256:?}"

echo "$NODEADM_SHA256  $NODEADM_PACKAGE" | sha256sum --check --quiet
case "$NODEADM_PACKAGE" in
*.deb) dpkg --install "$NODEADM_PACKAGE" ;;
*.rpm) rpm --upgrade --replacepkgs "$NODEADM_PACKAGE" ;;
*.tar.gz)
	unpacked=$(mktemp --directory)
	trap 'rm -rf "$unpacked"' EXIT
	tar --extract --gzip --file="$NODEADM_PACKAGE" --directory="$unpacked" --strip-components=1
	install --mode=755 "$unpacked/nodeadm" /usr/bin/nodeadm
	;;
*)
	echo "$NODEADM_PACKAGE is neither a deb nor an rpm nor a tar.gz" >&2
	exit 1
	;;
esac
nodeadm image install
