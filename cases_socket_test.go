package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// qGated is a loopback server that answers one waiting request for each Release.
type qGated struct {
	*httptest.Server
	arrived chan string   // paths, in order
	release chan struct{} // one answer each
}

// newQGated starts it: HTTP/2 with so many streams a connection, or HTTP/1 if streams is 0.
func newQGated(t *testing.T, streams int) *qGated {
	g := &qGated{arrived: make(chan string, 1000), release: make(chan struct{})}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.arrived <- r.URL.Path
		select {
		case <-g.release:
		case <-r.Context().Done():
		}
	}))
	if streams > 0 {
		g.EnableHTTP2 = true
		g.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
		g.StartTLS()
	} else {
		g.Start()
	}
	t.Cleanup(g.Close)
	return g
}

// narrow is a client that keeps to one connection of so many streams, or to conns of HTTP/1.
func (g *qGated) narrow(streams, conns int) *http.Client {
	client := g.Client()
	transport := client.Transport.(*http.Transport)
	if streams > 0 {
		transport.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	} else {
		transport.MaxConnsPerHost = conns
	}
	return client
}

// wants receives n arrivals.
func (g *qGated) wants(t *testing.T, n int) (paths []string) {
	for range n {
		select {
		case p := <-g.arrived:
			paths = append(paths, p)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "no request arrives", "after %v", paths)
		}
	}
	return paths
}

// With a gate no wider than what the transport carries there is no second queue
// behind ax: the urgent task is the next one sent.
func TestCaseH61NoSecondQueue(t *testing.T) {
	for name, tt := range map[string]struct{ streams, gate int }{"HTTP/2": {10, 10}, "HTTP/1": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			srv := newQGated(t, tt.streams)
			s, err := ax.New(srv.narrow(tt.streams, tt.gate), ax.Config{MaxConcurrent: tt.gate})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var kept, dropped []*ax.Call
			for i := range 50 {
				task := ax.Must(ax.Request{URL: fmt.Sprintf("%s/%d", srv.URL, i)}.Task())
				if i < 20 {
					kept = append(kept, s.Submit(t.Context(), task))
				} else {
					dropped = append(dropped, s.Submit(ctx, task))
				}
			}
			srv.wants(t, tt.gate)
			cancel()
			for _, c := range dropped {
				_, err := c.Result()
				require.ErrorIs(t, err, context.Canceled)
			}
			kept = append(kept, s.Submit(t.Context(), ax.Must(ax.Request{URL: srv.URL + "/urgent", Priority: ax.Urgent}.Task())))
			srv.release <- struct{}{}
			require.Equal(t, []string{"/urgent"}, srv.wants(t, 1))
			for range 20 {
				srv.release <- struct{}{}
			}
			for _, c := range kept {
				resp, err := c.Result()
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
			}
			require.Zero(t, s.Stats().Active)
			require.NoError(t, s.Close())
		})
	}
}

// With a gate wider than the transport the tasks that wait there unseen are still
// ended by cancel and by their AttemptTimeout, and give their slots back.
func TestCaseH61WideGate(t *testing.T) {
	for name, streams := range map[string]int{"HTTP/2": 10, "HTTP/1": 0} {
		t.Run(name, func(t *testing.T) {
			srv := newQGated(t, streams)
			s, err := ax.New(srv.narrow(streams, 2), ax.Config{MaxConcurrent: 50, AttemptTimeout: time.Second})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var kept, dropped []*ax.Call
			begin := time.Now()
			for i := range 50 {
				task := ax.Must(ax.Request{URL: srv.URL + "/"}.Task())
				if i < 20 {
					kept = append(kept, s.Submit(t.Context(), task))
				} else {
					dropped = append(dropped, s.Submit(ctx, task))
				}
			}
			srv.wants(t, 2)
			require.Equal(t, 50, s.Stats().Active)
			cancel()
			for _, c := range dropped {
				_, err := c.Result()
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Eventually(t, func() bool { return s.Stats().Active <= 20 }, 5*time.Second, qms)
			for _, c := range kept {
				_, err := c.Result()
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.Less(t, time.Since(begin), 10*time.Second, "none hangs")
			require.Eventually(t, func() bool { return s.Stats().Active == 0 }, 5*time.Second, qms)
			require.NoError(t, s.Close())
		})
	}
}
