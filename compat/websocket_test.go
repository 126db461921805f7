package compat_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// wsEcho sends every message back until the other side closes.
func wsEcho(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, p, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, p) != nil {
			return
		}
	}
}

// wsTalk says one word and wants it back.
func wsTalk(t *testing.T, ctx context.Context, conn *websocket.Conn, word string) {
	t.Helper()
	require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(word)))
	_, p, err := conn.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, word, string(p))
}

// TestWebsocket: a dial is a task, the connection keeps its slot until it is
// closed, and two dials are never one.
func TestWebsocket(t *testing.T) {
	r := newRig(t, quick(), wsEcho)
	ctx := soon(t)
	opts := &websocket.DialOptions{HTTPClient: r.Client()}
	a, _, err := websocket.Dial(ctx, r.Server.URL, opts)
	require.NoError(t, err)
	b, _, err := websocket.Dial(ctx, r.Server.URL, opts)
	require.NoError(t, err)
	wsTalk(t, ctx, a, "one")
	wsTalk(t, ctx, b, "two")
	wsTalk(t, ctx, a, "three")
	require.Equal(t, 2, r.Stats().Active)
	require.NoError(t, a.Close(websocket.StatusNormalClosure, ""))
	require.Equal(t, 1, r.Stats().Active)
	require.NoError(t, b.CloseNow())
	require.Equal(t, 0, r.Stats().Active)
	require.Equal(t, 2, r.Sent())
}

// TestWebsocketDialRetried: a handshake that met a 503 is tried again, and one
// that is refused for good comes back as it is.
func TestWebsocketDialRetried(t *testing.T) {
	r := newRig(t, quick(), flaky(2, wsEcho))
	ctx := soon(t)
	conn, _, err := websocket.Dial(ctx, r.Server.URL, &websocket.DialOptions{HTTPClient: r.Client()})
	require.NoError(t, err)
	wsTalk(t, ctx, conn, "hello")
	require.NoError(t, conn.CloseNow())
	require.Equal(t, 3, r.Sent())

	no := newRig(t, quick(), http.NotFound)
	_, resp, err := websocket.Dial(ctx, no.Server.URL, &websocket.DialOptions{HTTPClient: no.Client()})
	require.ErrorContains(t, err, "got 404")
	require.Equal(t, 404, resp.StatusCode)
}

// TestWebsocketServerCloses: the slot comes back as well if the other side ends it.
func TestWebsocketServerCloses(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, req *http.Request) {
		if conn, err := websocket.Accept(w, req, nil); err == nil {
			conn.Close(websocket.StatusGoingAway, "later")
		}
	})
	ctx := soon(t)
	conn, _, err := websocket.Dial(ctx, r.Server.URL, &websocket.DialOptions{HTTPClient: r.Client()})
	require.NoError(t, err)
	_, _, err = conn.Read(ctx)
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err))
	require.Equal(t, 0, r.Stats().Active)
}

// TestWebsocketClose: Close ends open connections. A tag does not: the task that has
// its answer is over.
func TestWebsocketClose(t *testing.T) {
	r := newRig(t, quick(), wsEcho)
	ctx := soon(t)
	client := &http.Client{Transport: r.TransportWith(ax.Hints{Tags: []string{"live"}})}
	conn, _, err := websocket.Dial(ctx, r.Server.URL, &websocket.DialOptions{HTTPClient: client})
	require.NoError(t, err)
	defer conn.CloseNow()
	require.Equal(t, 0, r.CancelTag("live"))
	wsTalk(t, ctx, conn, "hello")
	require.NoError(t, r.Close())
	_, _, err = conn.Read(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	require.Equal(t, 0, r.Stats().Active)
}

// TestWebsocketLane: connections that stay open take up slots; in a lane of their own
// they do not take those of its host's other requests.
func TestWebsocketLane(t *testing.T) {
	cfg := quick()
	cfg.Lanes = []ax.Lane{{Name: "live", Match: []string{"127.0.0.1/live"}}}
	r := newRig(t, cfg, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/live" {
			wsEcho(w, req)
		}
	})
	ctx := soon(t)
	for range 8 { // more than the six that Recommended allows a host
		conn, _, err := websocket.Dial(ctx, r.Server.URL+"/live", &websocket.DialOptions{HTTPClient: r.Client()})
		require.NoError(t, err)
		defer conn.CloseNow()
	}
	resp, err := r.Client().Get(r.Server.URL + "/page")
	require.Empty(t, text(t, resp, err))
	require.Equal(t, 8, r.Stats().Active)
}

// TestWebsocketDialTimeout: the time that bounds a dial does not bound the
// connection, be it the context's or the client's.
func TestWebsocketDialTimeout(t *testing.T) {
	r := newRig(t, ax.Config{}, wsEcho)
	for name, transport := range map[string]http.RoundTripper{
		"net/http": r.Server.Client().Transport,
		"ax":       r.Transport(),
	} {
		t.Run(name+" ctx", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(soon(t), 5*time.Second)
			conn, _, err := websocket.Dial(ctx, r.Server.URL, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
			require.NoError(t, err)
			defer conn.CloseNow()
			cancel()
			wsTalk(t, soon(t), conn, "still here")
		})
		t.Run(name+" client", func(t *testing.T) {
			conn, _, err := websocket.Dial(soon(t), r.Server.URL, &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: transport, Timeout: 5 * time.Second},
			})
			require.NoError(t, err)
			defer conn.CloseNow()
			wsTalk(t, soon(t), conn, "still here")
		})
	}
}

// TestWebsocketTraced: with tracers on both sides it is still a connection.
func TestWebsocketTraced(t *testing.T) {
	tr := newTracer()
	r := rigOver(t, quick(), httptest.NewServer(http.HandlerFunc(wsEcho)), tr.Over)
	ctx := soon(t)
	conn, _, err := websocket.Dial(ctx, r.Server.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: tr.Over(r.Transport())},
	})
	require.NoError(t, err)
	wsTalk(t, ctx, conn, "hello")
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	tr.allEnded(t, 2)
}

// A websocket behind the gate: its slot is held until it is closed.
func Example_websocket() {
	server := httptest.NewServer(http.HandlerFunc(wsEcho))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: sched.Transport()},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	_, word, err := conn.Read(ctx)
	fmt.Println(string(word), err, sched.Stats().Active)
	// Output: hello <nil> 1
}
