package machine

import (
	"strings"
	"testing"
	"time"
)

const world = `
instance: {type: m5.large, region: eu-west-1, localIPv4: 192.168.18.230}
userData: |
  MIME-Version: 1.0
  Content-Type: multipart/mixed; boundary="//"

  --//
  Content-Type: text/x-shellscript; charset="us-ascii"

  #!/bin/bash -xe
  echo "$(hostname) $(cut -d ' ' -f 1 /proc/uptime)" >/var/lib/user-data-ran

  --//
  Content-Type: application/node.eks.aws

  apiVersion: node.eks.aws/v1alpha1
  kind: NodeConfig

  --//--
`

func TestUserData(t *testing.T) {
	Require(t)
	m := Boot(t, Options{Simulator: &Simulator{Binary: BuildNodeadm(t), ConfigYAML: []byte(world)}})
	ctx := within(t, 60*time.Second)

	script := within(t, 20*time.Second)
	for !m.Exists("/var/lib/user-data-ran") && script.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	scriptDone := m.SincePowerOn()
	up := m.WaitBooted(ctx)
	t.Logf("user script done %v after power-on; %s after %v", scriptDone.Round(time.Millisecond), up.State, up.Took.Round(time.Millisecond))
	if script.Err() != nil {
		t.Fatalf("the user script did not run; cloud-init's log ends:\n%s", tail(m.ReadFile("/var/log/cloud-init.log"), 300))
	}
	if up.State != "running" {
		t.Errorf("failed: %v", up.Failed)
	}
	if got := m.ReadFile("/var/lib/user-data-ran"); !strings.HasPrefix(got, "ip-192-168-18-230 ") {
		t.Errorf("the script wrote %q", got)
	}
	if got := m.MustRun(ctx, "cloud-init", "status", "--long"); !strings.Contains(got, "status: done") || !strings.Contains(got, "DataSourceEc2") {
		t.Errorf("cloud-init:\n%s", got)
	}
	if log := m.ReadFile("/var/log/cloud-init-output.log"); !strings.Contains(log, "/var/lib/user-data-ran") && !strings.Contains(log, "++ hostname") {
		t.Errorf("cloud-init-output.log:\n%s", log)
	}
	if asked := m.Journal(SimulatorUnit); !strings.Contains(asked, "/user-data") {
		t.Errorf("the simulator's journal does not say what it was asked:\n%s", asked)
	}
}
