package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// serveHealthz answers where kubelet would, by default on 127.0.0.1:10248, and
// not at all with healthzPort 0. The port is open when it returns; the channel
// says why it closed.
func serveHealthz(config kubeletconfig.KubeletConfiguration) (<-chan error, error) {
	host, port := "127.0.0.1", 10248
	if config.HealthzBindAddress != "" {
		host = config.HealthzBindAddress
	}
	if config.HealthzPort != nil {
		port = int(*config.HealthzPort)
	}
	if port == 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	ended := make(chan error, 1)
	go func() { ended <- http.Serve(listener, mux) }()
	return ended, nil
}

// notifyReady tells systemd, as kubelet does, for units of Type=notify.
func notifyReady() error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "READY=1")
	return err
}
