package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// way is how far a request has come: what a timeout means depends on that.
type way struct {
	context                      context.Context
	proxied                      bool
	connected, begun, handshaken atomic.Bool // TCP, and TLS
}

// follow watches a request on its way.
func (c *Client) follow(request *http.Request) *way {
	w := &way{}
	if c.proxy != nil {
		through, err := c.proxy(request)
		w.proxied = err == nil && through != nil
	}
	w.context = httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				w.connected.Store(true)
			}
		},
		TLSHandshakeStart: func() { w.begun.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				w.handshaken.Store(true)
			}
		},
	})
	return w
}

// classify says where the request broke.
func (w *way) classify(err error) *Error {
	e := Classify(err)
	switch {
	case e.Where != Timeout:
	case w.handshaken.Load():
		e.Where, e.Err = Silent, errors.New("no answer to the request, after TLS was agreed on")
	case w.begun.Load():
		e.Where, e.Err = Silent, errors.New("no answer to the first message of TLS")
	case w.proxied && w.connected.Load():
		e.Where, e.Err = Proxy, errors.New("the proxy takes connections, and does not answer CONNECT")
	case w.proxied:
		e.Where = Proxy
	}
	return e
}
