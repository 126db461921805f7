package compat_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// rig is a scheduler before a loopback server. When its test is over it must be
// at rest: no slot, no task and no connection's body is left behind.
type rig struct {
	*ax.Scheduler
	Server *httptest.Server
	wire   *wire
}

// newRig serves handler and puts a scheduler before it.
func newRig(t *testing.T, cfg ax.Config, handler http.HandlerFunc) *rig {
	return rigOver(t, cfg, httptest.NewServer(handler), nil)
}

// rigOver is newRig for a server that runs; over, if not nil, wraps the
// transport below the scheduler.
func rigOver(t *testing.T, cfg ax.Config, srv *httptest.Server, over func(http.RoundTripper) http.RoundTripper) *rig {
	t.Helper()
	r := &rig{Server: srv, wire: &wire{next: srv.Client().Transport}}
	client := &http.Client{Transport: r.wire}
	if over != nil {
		client.Transport = over(r.wire)
	}
	var err error
	r.Scheduler, err = ax.New(client, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.atRest(t)
		require.NoError(t, r.Close())
		srv.CloseClientConnections()
		srv.Close()
	})
	return r
}

// newH2Server is a server that speaks HTTP/2.
func newH2Server(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	return srv
}

// Client is the drop-in: a plain client whose transport is the scheduler.
func (r *rig) Client() *http.Client { return &http.Client{Transport: r.Transport()} }

// Sent is the number of requests that left for the server.
func (r *rig) Sent() int { return int(r.wire.sent.Load()) }

// atRest waits, briefly, for what a cancelled caller left behind, and checks that
// every task has ended and every body was closed.
func (r *rig) atRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		st := r.Stats()
		return st.Active+st.Queued+st.Parked == 0 && r.wire.open.Load() == 0
	}, 5*time.Second, time.Millisecond, "slots, queues or bodies are left")
	st := r.Stats()
	require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
}

// wire counts what passes, and the bodies that are not closed.
type wire struct {
	next       http.RoundTripper
	sent, open atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	b := &countedBody{ReadCloser: resp.Body, open: &w.open}
	resp.Body = b
	if rw, ok := b.ReadCloser.(io.Writer); ok {
		resp.Body = struct {
			*countedBody
			io.Writer
		}{b, rw}
	}
	return resp, nil
}

// countedBody tells when it is closed.
type countedBody struct {
	io.ReadCloser
	open   *atomic.Int64
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if !b.closed.Swap(true) {
		b.open.Add(-1)
	}
	return b.ReadCloser.Close()
}

// quick is Recommended with delays for a test: two retries, a millisecond apart.
func quick() ax.Config {
	cfg := ax.Recommended()
	cfg.Retry = &ax.Retry{BaseDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
	cfg.Breaker = nil
	return cfg
}

// flaky answers 503 to the first n requests, then as next does.
func flaky(n int64, next http.HandlerFunc) http.HandlerFunc {
	var seen atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) <= n {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		next(w, r)
	}
}

// echoUser answers with who asked.
func echoUser(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, r.Header.Get("Authorization"))
}

// together runs n calls at once and waits for them.
func together(n int, call func(i int)) {
	done := make(chan struct{})
	for i := range n {
		go func() { // ends with call; the loop below waits
			defer func() { done <- struct{}{} }()
			call(i)
		}()
	}
	for range n {
		<-done
	}
}

// text reads and closes the body of an answer.
func text(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// soon is a context that bounds a test which would else hang.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}
