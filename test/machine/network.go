package machine

import (
	"context"
	"net"
	"os/exec"
	"strconv"
)

// Connect lays a cable between two machines: a pair of network interfaces, one
// in each, with the names given. Neither has an address yet. The cable is gone
// when one of the machines is powered off.
func Connect(a *Machine, nameA string, b *Machine, nameB string) {
	a.t.Helper()
	out, err := exec.Command("ip", "link", "add", nameA, "netns", strconv.Itoa(a.Leader()),
		"type", "veth", "peer", "name", nameB, "netns", strconv.Itoa(b.Leader())).CombinedOutput()
	if err != nil {
		a.t.Fatalf("connecting %s and %s: %v: %s", a.name, b.name, err, out)
	}
}

// Listen listens on an address of the machine's, until the machine is powered off
// or the listener closed.
func (m *Machine) Listen(network, address string) (l net.Listener, err error) {
	p := m.running()
	if p == nil {
		return nil, net.ErrClosed
	}
	inside := inNetworkOf(p.leader, func() error {
		l, err = net.Listen(network, address)
		return nil
	})
	if inside != nil {
		return nil, inside
	}
	return l, err
}

// Dial connects to an address as it is seen from the machine. Names are not
// resolved.
func (m *Machine) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	p := m.running()
	if p == nil {
		return nil, net.ErrClosed
	}
	inside := inNetworkOf(p.leader, func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return nil
	})
	if inside != nil {
		return nil, inside
	}
	return conn, err
}
