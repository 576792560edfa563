// Package machine gives a test a Linux machine of its own: a booted systemd
// with D-Bus, containerd and cloud-init, in about a second, thrown away when
// the test ends.
//
// What nodeadm does to a node shows only where systemd really parses the
// units, D-Bus really answers and cloud-init really runs the user data. A
// machine here is a systemd-nspawn container on an overlay over a cached
// Debian tree, with a network namespace that holds nothing but loopback, so a
// simulated instance metadata service can stand on its real address,
// 169.254.169.254, without the host noticing.
//
//	m := machine.Boot(t, machine.Options{Files: map[string]machine.File{
//		"/usr/bin/nodeadm": {Source: machine.BuildNodeadm(t), Mode: 0o755},
//	}})
//	m.WaitBooted(ctx)
//	m.MustRun(ctx, "nodeadm", "version")
//
// Nothing is left behind. Mounts live in a private mount namespace, processes
// in a PID namespace whose end is tied to the test process, so that even a
// test that is killed takes its machines with it.
package machine
