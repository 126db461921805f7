package ax_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// dBG is the context of callers that never leave.
var dBG = context.Background()

// dGet is a plain GET of a path on the usual host.
func dGet(path string) ax.Request { return ax.Request{URL: at(path)} }

// dLog keeps every event; use its On as Config.OnEvent.
type dLog struct {
	mu     sync.Mutex
	events []ax.Event
}

func (l *dLog) On(e ax.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// All are the events so far.
func (l *dLog) All() []ax.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Of are the events of one task.
func (l *dLog) Of(seq uint64) []ax.Event {
	return slices.DeleteFunc(l.All(), func(e ax.Event) bool { return e.Seq != seq })
}

// Kinds are the kinds of one task's events, in order.
func (l *dLog) Kinds(seq uint64) []ax.EventKind {
	var ks []ax.EventKind
	for _, e := range l.Of(seq) {
		ks = append(ks, e.Kind)
	}
	return ks
}

// dTerminal tells whether a task's story ends with k.
func dTerminal(k ax.EventKind) bool {
	return k == ax.EventSucceeded || k == ax.EventFailed || k == ax.EventCanceled || k == ax.EventRejected
}

// End is the one terminal event of a task, which must be its last.
func (l *dLog) End(t require.TestingT, seq uint64) ax.Event {
	events := l.Of(seq)
	require.NotEmpty(t, events, "events of task %d", seq)
	n := 0
	for _, e := range events {
		if dTerminal(e.Kind) {
			n++
		}
	}
	require.Equal(t, 1, n, "terminal events of task %d", seq)
	last := events[len(events)-1]
	require.True(t, dTerminal(last.Kind), "the last event of task %d is %v", seq, last.Kind)
	return last
}

// Last is the end of the youngest task whose URL holds path.
func (l *dLog) Last(t require.TestingT, path string) ax.Event {
	seq, found := uint64(0), false
	for _, e := range l.All() {
		if e.Task != nil && strings.Contains(e.Task.URL(), path) && (!found || e.Seq > seq) {
			seq, found = e.Seq, true
		}
	}
	require.True(t, found, "no event for %s", path)
	return l.End(t, seq)
}

// dRecords is a slog.Handler that keeps what was logged.
type dRecords struct {
	mu   sync.Mutex
	recs []string
	lvls []slog.Level
}

func (d *dRecords) Enabled(context.Context, slog.Level) bool { return true }
func (d *dRecords) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *dRecords) WithGroup(string) slog.Handler            { return d }

func (d *dRecords) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recs, d.lvls = append(d.recs, text), append(d.lvls, r.Level)
	return nil
}

// At counts the records of a level and above.
func (d *dRecords) At(min slog.Level) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, l := range d.lvls {
		if l >= min {
			n++
		}
	}
	return n
}

// dBody is a request body that knows whether it was closed and how much was read.
type dBody struct {
	r      io.Reader
	read   atomic.Int64
	closed atomic.Int32
}

func dNewBody(text string) *dBody { return &dBody{r: strings.NewReader(text)} }

func (b *dBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (b *dBody) Close() error { b.closed.Add(1); return nil }

// dTrickle is a response body that gives one chunk per gap, ends with its
// request's ctx and with Close, as a connection's would.
type dTrickle struct {
	ctx    context.Context
	gap    time.Duration
	chunks []string
	end    error // after the last chunk; nil = io.EOF
	once   sync.Once
	shut   chan struct{}
}

func dNewTrickle(ctx context.Context, gap time.Duration, chunks ...string) *dTrickle {
	return &dTrickle{ctx: ctx, gap: gap, chunks: chunks, shut: make(chan struct{})}
}

func (b *dTrickle) Read(p []byte) (int, error) {
	if len(b.chunks) == 0 {
		if b.end != nil {
			return 0, b.end
		}
		return 0, io.EOF
	}
	timer := time.NewTimer(b.gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-b.shut:
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.chunks[0])
	if b.chunks[0] = b.chunks[0][n:]; b.chunks[0] == "" {
		b.chunks = b.chunks[1:]
	}
	return n, nil
}

func (b *dTrickle) Close() error { b.once.Do(func() { close(b.shut) }); return nil }

// Closed tells whether Close was called.
func (b *dTrickle) Closed() bool {
	select {
	case <-b.shut:
		return true
	default:
		return false
	}
}

// dReply is an answer of unknown length with this body.
func dReply(body io.ReadCloser, headers ...string) *http.Response {
	r := reply(200, "", headers...)
	r.Body, r.ContentLength = body, -1
	return r
}

// dText reads and closes the body of an answer.
func dText(t require.TestingT, r *http.Response) string {
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	return string(b)
}

// dError is the *ax.Error that every failure is.
func dError(t require.TestingT, err error) *ax.Error {
	var e *ax.Error
	require.ErrorAs(t, err, &e)
	return e
}

// dLoop is a scheduler over a real client and a server on loopback.
func dLoop(t *testing.T, cfg ax.Config, http2 bool, h http.HandlerFunc) (*ax.Scheduler, *httptest.Server) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	if http2 {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	s, err := ax.New(srv.Client(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, srv
}

// dPause waits for d or for the end of ctx; outside bubbles, where servers are real.
func dPause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dEventually waits up to a second for ok; outside bubbles.
func dEventually(t require.TestingT, ok func() bool, msg string) {
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			require.Fail(t, msg)
			return
		}
		dPause(dBG, time.Millisecond)
	}
}

// dSettled waits until no more goroutines run than base.
func dSettled(t require.TestingT, base int) {
	dEventually(t, func() bool { runtime.Gosched(); return runtime.NumGoroutine() <= base }, "goroutines are left")
}

// dTransport is a func as an http.RoundTripper.
type dTransport func(*http.Request) (*http.Response, error)

func (f dTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dServe is a plain server on loopback.
func dServe(t *testing.T, h http.HandlerFunc) *httptest.Server {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// dDial is what http.Transport.DialContext is.
type dDial = func(ctx context.Context, network, addr string) (net.Conn, error)

// dCountDials is dial, or the net package's own, with a counter.
func dCountDials(dial dDial, n *atomic.Int32) dDial {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return dial(ctx, network, addr)
	}
}
