package compat_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// proxyOver is a proxy for the rig's server whose upstream is the scheduler.
func proxyOver(t *testing.T, r *rig) *httptest.Server {
	t.Helper()
	target, err := url.Parse(r.Server.URL)
	require.NoError(t, err)
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: r.Transport(),
		ErrorLog:  log.New(io.Discard, "", 0),
	})
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front
}

// origin answers with what was asked, moves, hints early, and has trailers.
func origin(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/old":
		http.Redirect(w, r, "/new", http.StatusFound)
	case "/trailer":
		w.Header().Set("Trailer", "X-After")
		io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("X-After", "after")
	default:
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
	}
}

// TestReverseProxy: what a proxy forwards comes through: bodies both ways, a 3xx for
// its own client to follow, trailers.
func TestReverseProxy(t *testing.T) {
	r := newRig(t, quick(), origin)
	front := proxyOver(t, r)
	c := front.Client()
	resp, err := c.Get(front.URL + "/a?q=1")
	require.Equal(t, "GET /a?q=1 ", text(t, resp, err))
	resp, err = c.Post(front.URL+"/b", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
	require.Equal(t, "POST /b "+strings.Repeat("x", 1<<20), text(t, resp, err))
	resp, err = c.Get(front.URL + "/old")
	require.Equal(t, "GET /new ", text(t, resp, err))
	resp, err = c.Get(front.URL + "/trailer")
	require.Equal(t, "body", text(t, resp, err))
	require.Equal(t, "after", resp.Trailer.Get("X-After"))
	require.Equal(t, 5, r.Sent())
}

// TestReverseProxyRetries: reads are retried behind the client's back, a body that
// came from the network can be sent once.
func TestReverseProxyRetries(t *testing.T) {
	r := newRig(t, quick(), flaky(2, origin))
	front := proxyOver(t, r)
	resp, err := front.Client().Get(front.URL + "/a")
	require.Equal(t, "GET /a ", text(t, resp, err))
	require.Equal(t, 3, r.Sent())

	down := newRig(t, quick(), flaky(1, origin))
	front = proxyOver(t, down)
	req, err := http.NewRequest(http.MethodPut, front.URL, strings.NewReader("x"))
	require.NoError(t, err)
	resp, err = front.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 1, down.Sent())
}

// TestReverseProxyUsersApart: cookies and tokens of the proxy's clients distinguish them.
func TestReverseProxyUsersApart(t *testing.T) {
	cfg := quick()
	cfg.Dedupe.Window = time.Minute
	r := newRig(t, cfg, echoUser)
	front := proxyOver(t, r)
	for range 2 {
		for _, user := range []string{"ann", "bob"} {
			req, err := http.NewRequest(http.MethodGet, front.URL, nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", user)
			resp, err := front.Client().Do(req)
			require.Equal(t, user, text(t, resp, err))
		}
	}
	require.Equal(t, 2, r.Sent())
}

// TestReverseProxyStream: an answer in pieces passes as it comes, of an event stream
// and of any answer without a length.
func TestReverseProxyStream(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "text/plain"} {
		t.Run(kind, func(t *testing.T) {
			next := make(chan struct{})
			r := newRig(t, quick(), inPieces(kind, next))
			front := proxyOver(t, r)
			resp, err := front.Client().Get(front.URL)
			require.NoError(t, err)
			defer resp.Body.Close()
			first := make([]byte, 4)
			_, err = io.ReadFull(resp.Body, first)
			require.NoError(t, err)
			require.Equal(t, "one ", string(first))
			close(next)
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "two", string(rest))
		})
	}
}

// TestReverseProxyUpload: a body passes as it comes, too.
func TestReverseProxyUpload(t *testing.T) {
	first := make(chan string, 1)
	r := newRig(t, quick(), func(_ http.ResponseWriter, r *http.Request) {
		p := make([]byte, len("one "))
		io.ReadFull(r.Body, p)
		first <- string(p)
		io.Copy(io.Discard, r.Body)
	})
	front := proxyOver(t, r)
	got := make(chan string, 1)
	body, send := io.Pipe()
	go func() { // ends when the origin has got what was sent
		io.WriteString(send, "one ")
		got <- <-first
		io.WriteString(send, "two")
		send.Close()
	}()
	req, err := http.NewRequestWithContext(soon(t), http.MethodPost, front.URL, body)
	require.NoError(t, err)
	resp, err := front.Client().Do(req)
	require.Empty(t, text(t, resp, err))
	require.Equal(t, "one ", <-got)
}

// TestReverseProxyClientGone: a client that leaves takes its upstream request with it.
func TestReverseProxyClientGone(t *testing.T) {
	r := newRig(t, quick(), inPieces("text/event-stream", nil))
	front := proxyOver(t, r)
	ctx, cancel := context.WithCancel(soon(t))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
	require.NoError(t, err)
	resp, err := front.Client().Do(req)
	require.NoError(t, err)
	require.Equal(t, 1, r.Stats().Active)
	cancel()
	resp.Body.Close()
	r.atRest(t)
}

// TestReverseProxyBackendGone: an answer that breaks off breaks off at the client,
// too, and leaves nothing behind.
func TestReverseProxyBackendGone(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	front := proxyOver(t, r)
	resp, err := front.Client().Get(front.URL)
	require.NoError(t, err)
	p, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "half", string(p))
	require.NoError(t, resp.Body.Close())
	r.atRest(t)
}

// TestReverseProxyShared: two clients that ask the same share one request, and the
// one that leaves does not take it away from the other.
func TestReverseProxyShared(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-answer
		io.WriteString(w, "hello")
	})
	front := proxyOver(t, r)
	ask := func(ctx context.Context) chan string {
		got := make(chan string, 1)
		go func() { // ends with the answer or ctx
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
			resp, err := front.Client().Do(req)
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			p, _ := io.ReadAll(resp.Body)
			got <- string(p)
		}()
		return got
	}
	leaving, leave := context.WithCancel(soon(t))
	first := ask(leaving)
	<-arrived
	second := ask(soon(t))
	require.Eventually(t, func() bool { return r.Stats().Coalesced == 1 }, 5*time.Second, time.Millisecond)
	leave()
	require.Contains(t, <-first, "context canceled")
	require.Eventually(t, func() bool { return r.Stats().Canceled == 1 }, 5*time.Second, time.Millisecond)
	close(answer)
	require.Equal(t, "hello", <-second)
	require.Equal(t, 1, r.Sent())
}

// TestReverseProxyUpgrade: a websocket passes.
func TestReverseProxyUpgrade(t *testing.T) {
	r := newRig(t, quick(), wsEcho)
	front := proxyOver(t, r)
	ctx := soon(t)
	conn, _, err := websocket.Dial(ctx, front.URL, nil)
	require.NoError(t, err)
	wsTalk(t, ctx, conn, "hello")
	wsTalk(t, ctx, conn, "again")
	require.Equal(t, 1, r.Stats().Active)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	r.atRest(t)
}

// TestReverseProxyEarlyHints: what the origin says before its answer is passed on.
func TestReverseProxyEarlyHints(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "body")
	})
	front := proxyOver(t, r)
	hints := make(chan string, 1)
	req, err := http.NewRequestWithContext(withEarlyHints(soon(t), hints), http.MethodGet, front.URL, nil)
	require.NoError(t, err)
	resp, err := front.Client().Do(req)
	require.Equal(t, "body", text(t, resp, err))
	require.Equal(t, "</style.css>; rel=preload", <-hints)
}

// A proxy that never sends its backend more than four requests at once.
func Example_reverseProxy() {
	backend := httptest.NewServer(http.HandlerFunc(origin))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		log.Fatal(err)
	}
	sched, err := ax.New(nil, ax.Config{MaxConcurrent: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: sched.Transport(),
	})
	defer proxy.Close()
	resp, err := http.Get(proxy.URL + "/a")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(strings.TrimSpace(string(body)), err)
	// Output: GET /a <nil>
}
