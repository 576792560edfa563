package machine

import _ "embed"

//go:embed simulated-ec2.service
var simulatorUnit string

// SimulatorUnit is the name of the unit that runs the simulator.
const SimulatorUnit = "simulated-ec2.service"

// Simulator is a simulated instance metadata service that runs inside the
// machine, so that the address and the moment of every question are the real
// ones. Binary is a host path to a program that takes the command line
//
//	simulate serve --listen 169.254.169.254:80 /etc/nodeadm-test/world.yaml
//
// and ConfigYAML is the world it is to simulate. The program is installed under
// a name of its own, so that /usr/bin/nodeadm remains what the test makes it.
type Simulator struct {
	Binary     string
	ConfigYAML []byte
}

func (s Simulator) files() map[string]File {
	return map[string]File{
		"/usr/local/lib/nodeadm-test/nodeadm": {Source: s.Binary, Mode: 0o755},
		// User data may hold secrets; the world is as private as they are.
		"/etc/nodeadm-test/world.yaml":                              {Content: string(s.ConfigYAML), Mode: 0o600},
		"/etc/systemd/system/" + SimulatorUnit:                      {Content: simulatorUnit},
		"/etc/systemd/system/sysinit.target.wants/" + SimulatorUnit: {Link: "../" + SimulatorUnit},
	}
}
