#!/usr/bin/env bash
# Install kubelet from KUBELET_URL, if it is the file that KUBELET_SHA256 names.
set -euo pipefail
: "${KUBELET_URL:?}" "${KUBELET_SHA256:?}" "${KUBERNETES_VERSION:?}"

kubelet=/usr/bin/kubelet
if ! echo "$KUBELET_SHA256  $kubelet" | sha256sum --check --status 2>/dev/null; then
	download=$(mktemp)
	trap 'rm -f "$download"' EXIT
	curl --fail --silent --show-error --location --retry 5 --output "$download" "$KUBELET_URL"
	echo "$KUBELET_SHA256  $download" | sha256sum --check --quiet
	install --mode=755 "$download" "$kubelet"
fi

# EKS's own add -eks- and a commit.
said=$("$kubelet" --version)
case "$said" in
"Kubernetes v$KUBERNETES_VERSION" | "Kubernetes v$KUBERNETES_VERSION-"*) echo "$said" ;;
*)
	echo "$KUBELET_URL is $said, not v$KUBERNETES_VERSION" >&2
	exit 1
	;;
esac
