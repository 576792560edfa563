// Package systemd holds the units that ship with nodeadm. Words between @ are
// filled in by the plan.
package systemd

import _ "embed"

// KubeletService is kubelet.service: @EXEC@ its command line, @RUNTIME@ the
// unit of the container runtime, @RESTART@ the restart policy.
//
//go:embed kubelet.service
var KubeletService string

// BPFMount is sys-fs-bpf.mount.
//
//go:embed sys-fs-bpf.mount
var BPFMount string

// Nodeadm is nodeadm.service, which makes the instance a node at every boot.
//
//go:embed nodeadm.service
var Nodeadm string

// NodeadmAfterScripts is nodeadm-after-scripts.service: the same, but only when
// the scripts in user data have run.
//
//go:embed nodeadm-after-scripts.service
var NodeadmAfterScripts string

// Preset and PresetAfterScripts say which of the two is enabled where presets
// are applied.
//
//go:embed 90-nodeadm.preset
var Preset string

//go:embed 90-nodeadm-after-scripts.preset
var PresetAfterScripts string

// RuntimeSlice is runtime.slice, where kubelet.service runs, and InRuntimeSlice
// a drop-in that puts the container runtime there too.
//
//go:embed runtime.slice
var RuntimeSlice string

//go:embed 00-runtime-slice.conf
var InRuntimeSlice string
