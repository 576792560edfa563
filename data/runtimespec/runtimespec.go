// Package runtimespec holds the OCI runtime specification that containerd
// gives a container when nobody says anything: what a base runtime
// specification of one's own has to begin from, because containerd takes it as
// a whole.
package runtimespec

import _ "embed"

// Default is that specification, as `ctr oci spec` of containerd 1.6 prints
// it, keys sorted, with the limit of open files that EKS nodes have (65,536,
// which a process may raise to 1,048,576) and without a cgroup path, which
// containerd sets for each container.
//
//go:embed default.json
var Default []byte
