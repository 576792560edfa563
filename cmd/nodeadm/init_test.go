package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

// TestInitLeavesTheNodeToAScript: the unit is enabled on images for user data of
// either kind, so a script that calls bootstrap.sh is no failure of it.
func TestInitLeavesTheNodeToAScript(t *testing.T) {
	const call = "#!/bin/bash\n/etc/eks/bootstrap.sh my-cluster\n"
	for _, test := range []struct {
		name, userData string
		more           []string
		code           int
		says           string
	}{
		{"script", call, nil, 0, "user data calls bootstrap.sh: the node is left to that script"},
		{"arguments that only the machine knows", "#!/bin/bash\n/etc/eks/bootstrap.sh \"$(hostname)\"\n", nil, 0, "is left to that script"},
		{"one part of several", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/cloud-config\n\n#cloud-config\n{}\n--//\nContent-Type: text/x-shellscript\n\n" + call + "--//--\n", nil, 0, "user data part 2 calls bootstrap.sh"},
		{"dry run", call, []string{"--dry-run"}, 0, "nothing to do"},
		{"named", call, []string{"-c", "imds://user-data"}, 2, "there is no NodeConfig document"},
		{"another script", "#!/bin/bash\necho\n", nil, 2, "there is no NodeConfig document"},
		{"nothing", "", nil, 2, "there is no configuration"},
	} {
		t.Run(test.name, func(t *testing.T) {
			endpoint := serveWorld(t, func(w *simulator.World) { w.UserData = test.userData })
			socket := filepath.Join(t.TempDir(), "notify")
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			t.Setenv("NOTIFY_SOCKET", socket)
			root := t.TempDir()
			out, errs, code := program(t, append([]string{"nodeadm", "init", "--root", root, "--imds-endpoint", endpoint, "--timeout", "5s"}, test.more...)...)
			if code != test.code || !strings.Contains(out+errs, test.says) {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
				t.Errorf("%v, %v", entries, err)
			}
			if test.code != 0 || test.more != nil {
				return
			}
			message := make([]byte, 100)
			if err := manager.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if n, err := manager.Read(message); err != nil || string(message[:n]) != "READY=1\nSTATUS=done" {
				t.Errorf("to the service manager: %q, %v", message[:n], err)
			}
		})
	}
}
