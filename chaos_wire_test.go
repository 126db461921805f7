package ax

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChaosWire is chaos over real sockets, HTTP/1.1 and HTTP/2 with TLS, through
// a proxy that cuts, stalls and garbles. An answer must be whole and its caller's
// own, or an error; when all is over, no goroutine and no connection is left.
func TestChaosWire(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			base := runtime.NumGoroutine()
			w := newWireChaos(t, proto)
			w.play(min(*chaosFor/8, time.Minute))
			w.end()
			wireSettled(t, base)
			t.Logf("%s: %d answers, %d errors, %d connections of which %d were hurt", proto, w.answers.Load(), w.errors.Load(), w.proxy.conns.Load(), w.proxy.hurt.Load())
			require.Positive(t, w.answers.Load())
		})
	}
}

// wireSettled waits until no more goroutines run than before.
func wireSettled(t *testing.T, base int) {
	for range 500 {
		if runtime.NumGoroutine() <= base {
			return
		}
		_ = chaosSleep(context.Background(), 10*time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
}

const wireGate = 12

// wireChaos is a scheduler whose connections all go through the proxy.
type wireChaos struct {
	*testing.T
	s               *Scheduler
	proto           string
	srv             *httptest.Server
	proxy           *wireProxy
	base            *http.Transport
	active, most    atomic.Int64 // round trips, to the end of their bodies
	answers, errors atomic.Int64
}

func newWireChaos(t *testing.T, proto string) *wireChaos {
	w := &wireChaos{T: t, proto: proto}
	w.srv = httptest.NewUnstartedServer(http.HandlerFunc(wireServe))
	w.srv.EnableHTTP2 = proto == "HTTP/2.0"
	w.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.srv.StartTLS()
	w.proxy = newWireProxy(t, w.srv.Listener.Addr().String())
	w.base = w.srv.Client().Transport.(*http.Transport).Clone()
	w.base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, w.proxy.addr())
	}
	s, err := New(&http.Client{Transport: w}, Config{
		MaxConcurrent: wireGate, MaxQueue: NoLimit, AttemptTimeout: 250 * time.Millisecond, IdleTimeout: 200 * time.Millisecond,
		MaxBodyBytes: 64 << 10, Dedupe: &Dedupe{Window: 20 * time.Millisecond},
		Retry:   &Retry{Max: 3, BaseDelay: 5 * time.Millisecond, MaxDelay: time.Second, Budget: 0.5},
		Breaker: &Breaker{FailureRate: 0.8, OpenFor: 30 * time.Millisecond, Ramp: 50 * time.Millisecond},
	})
	require.NoError(t, err)
	w.s = s
	return w
}

// wireBody is what the server sends for a path: /size/name.
func wireBody(path, user string) []byte {
	var size int
	var name string
	_, _ = fmt.Sscanf(strings.ReplaceAll(path, "/", " "), " %d %s", &size, &name)
	line := []byte(path + " for " + user + "\n")
	return bytes.Repeat(line, size/len(line)+1)
}

// wireServe answers at its own pace, and not always well.
func wireServe(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if err := chaosSleep(r.Context(), time.Duration(rand.IntN(4000))*time.Microsecond); err != nil {
		return
	}
	switch rand.IntN(20) {
	case 0:
		w.WriteHeader(500)
		return
	case 1:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(429)
		return
	case 2:
		panic(http.ErrAbortHandler)
	}
	body := wireBody(r.URL.Path, r.Header.Get("X-User"))
	w.Header().Set("X-User", r.Header.Get("X-User"))
	if rand.IntN(2) == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	_, _ = w.Write(body)
}

// RoundTrip counts what is under way below the scheduler.
func (w *wireChaos) RoundTrip(req *http.Request) (*http.Response, error) {
	n := w.active.Add(1)
	for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
	}
	resp, err := w.base.RoundTrip(req)
	if err != nil {
		w.active.Add(-1)
		return nil, err
	}
	resp.Body = &wireCounted{ReadCloser: resp.Body, leave: sync.OnceFunc(func() { w.active.Add(-1) })}
	return resp, nil
}

// wireCounted leaves when its body has ended.
type wireCounted struct {
	io.ReadCloser
	leave func()
}

func (b *wireCounted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.leave()
	}
	return n, err
}

func (b *wireCounted) Close() error {
	b.leave()
	return b.ReadCloser.Close()
}

// play lets callers and an operator loose for a while.
func (w *wireChaos) play(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.call(fmt.Sprint("user", i%4), n)
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			w.operate()
			_ = chaosSleep(ctx, 10*time.Millisecond)
		}
		_ = w.s.Resume("")
	})
	all.Wait()
}

func (w *wireChaos) operate() {
	lane := w.srv.Listener.Addr().String()
	switch rand.IntN(8) {
	case 0:
		w.s.CancelTag("tagged")
	case 1:
		require.NoError(w, w.s.Pause(lane))
	case 2:
		require.NoError(w, w.s.SetLimits(lane, Limits{MaxConcurrent: 1 + rand.IntN(wireGate)}))
	case 3:
		require.NoError(w, w.s.Pause(""))
	default:
		require.NoError(w, w.s.Resume(lane))
		require.NoError(w, w.s.Resume(""))
	}
	st := w.s.Stats()
	if st.Active < 0 || st.Active > wireGate || st.Queued < 0 || st.Parked < 0 {
		w.Errorf("impossible gauges: %+v", st)
	}
}

// call is one request of one user, by any way in, and the look at its answer.
func (w *wireChaos) call(user string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5+rand.IntN(800))*time.Millisecond)
	defer cancel()
	size := []int{10, 2000, 30_000, 300_000}[rand.IntN(4)]
	r := Request{
		URL: fmt.Sprintf("%s/%d/n%d", w.srv.URL, size, rand.IntN(6)), Header: http.Header{"X-User": {user}},
		Priority: Priority(rand.IntN(4) - 1), Stream: rand.IntN(8) == 0, NoDedupe: rand.IntN(3) == 0,
	}
	if rand.IntN(6) == 0 {
		r.Tags = []string{"tagged"}
	}
	if rand.IntN(6) == 0 {
		r.Method, r.Body, r.IdempotencyKey = http.MethodPost, []byte("once"), fmt.Sprint(user, n)
	}
	var resp *http.Response
	t := Must(r.Task())
	switch rand.IntN(3) {
	case 0:
		req, err := t.NewRequest(ctx)
		require.NoError(w, err)
		if resp, err = (&http.Client{Transport: w.s.Transport()}).Do(req); err != nil {
			w.errors.Add(1)
			return
		}
	case 1:
		got, err := w.s.Submit(ctx, t).Result()
		if err != nil {
			w.errors.Add(1)
			return
		}
		resp = got.Response
	default:
		got, err := w.s.Do(ctx, t)
		if err != nil {
			w.errors.Add(1)
			return
		}
		resp = got.Response
	}
	w.look(resp, user, t)
}

// look: an answer that ends without an error is whole and its caller's own.
func (w *wireChaos) look(resp *http.Response, user string, t *Task) {
	defer resp.Body.Close()
	if rand.IntN(10) == 0 {
		return
	}
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		w.errors.Add(1)
	case resp.StatusCode != 200:
		w.answers.Add(1)
	case resp.Proto != w.proto:
		w.Errorf("spoke %s", resp.Proto)
	case resp.Header.Get("X-User") != user || !bytes.Equal(body, wireBody(t.u.Path, user)):
		w.Errorf("%s asked for %s and got %d bytes of %s's", user, t.u.Path, len(body), resp.Header.Get("X-User"))
	default:
		w.answers.Add(1)
	}
}

// end shuts everything down; all gauges must then be zero.
func (w *wireChaos) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(w, w.s.Shutdown(ctx))
	st := w.s.Stats()
	require.Zero(w, st.Active+st.Queued+st.Parked)
	require.Equal(w, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
	require.Zero(w, w.active.Load(), "bodies are open")
	require.LessOrEqual(w, w.most.Load(), int64(wireGate))
	w.base.CloseIdleConnections()
	w.proxy.close()
	w.srv.Close()
}

// wireProxy forwards connections and hurts some of them on their way.
type wireProxy struct {
	t           *testing.T
	l           net.Listener
	to          string
	all         sync.WaitGroup
	mu          sync.Mutex
	open        map[net.Conn]struct{}
	closed      bool
	conns, hurt atomic.Int64
}

func newWireProxy(t *testing.T, to string) *wireProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &wireProxy{t: t, l: l, to: to, open: map[net.Conn]struct{}{}}
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.forward(c) })
		}
	})
	return p
}

func (p *wireProxy) addr() string { return p.l.Addr().String() }

// track lets close find a connection; false if that has been called.
func (p *wireProxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = struct{}{}
	return !p.closed
}

func (p *wireProxy) untrack(c net.Conn) {
	c.Close()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

func (p *wireProxy) close() {
	p.l.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// forward carries bytes both ways; the server's may suffer.
func (p *wireProxy) forward(client net.Conn) {
	defer p.untrack(client)
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.untrack(server)
	if !p.track(client) || !p.track(server) {
		return
	}
	p.conns.Add(1)
	p.all.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	if rand.IntN(3) > 0 {
		_, _ = io.Copy(client, server)
		return
	}
	p.hurt.Add(1)
	if _, err := io.CopyN(client, server, int64(rand.IntN(400_000))); err != nil {
		return
	}
	switch rand.IntN(3) {
	case 0: // cut
	case 1: // stall beyond anybody's patience; HTTP/2 would keep such a connection for good
		_ = server.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
		_, _ = io.Copy(io.Discard, server)
	default: // garble
		buf := make([]byte, 1024)
		n, err := server.Read(buf)
		if err == nil && n > 0 {
			buf[rand.IntN(n)] ^= 0x55
			_, _ = client.Write(buf[:n])
			_, _ = io.Copy(client, server)
		}
	}
}
