#!/usr/bin/env bash
# Install kubelet from KUBELET_URL, if it is the file that KUBELET_SHA256 names
# and says that it is KUBERNETES_VERSION.
set -euo pipefail
: "${KUBELET_URL:?}" "${KUBELET_SHA256:?}" "${KUBERNETES_VERSION:?}"

kubelet=/usr/bin/kubelet
new=$kubelet
if ! echo "$KUBELET_SHA256  $kubelet" | sha256sum --check --status 2>/dev/null; then
	# Beside its place, since it is run there first: /tmp may be noexec.
	new=$(mktemp "$kubelet.XXXXXX")
	trap 'rm -f "$new"' EXIT
	curl --fail --silent --show-error --location --retry 5 --output "$new" "$KUBELET_URL"
	echo "$KUBELET_SHA256  $new" | sha256sum --check --quiet
	chmod 755 "$new"
fi

# EKS's own add -eks- and a commit.
said=$("$new" --version)
case "$said" in
"Kubernetes v$KUBERNETES_VERSION" | "Kubernetes v$KUBERNETES_VERSION-"*) echo "$said" ;;
*)
	echo "$KUBELET_URL is $said, not v$KUBERNETES_VERSION" >&2
	exit 1
	;;
esac
if [ "$new" != "$kubelet" ]; then
	mv -f "$new" "$kubelet"
fi
