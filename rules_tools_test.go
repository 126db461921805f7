package ax_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fms and fsec shorten the tables of the rule tests.
const (
	fms  = time.Millisecond
	fsec = time.Second
)

// errFWire is what a broken connection looks like in the rule tests.
var errFWire = errors.New("wire cut")

// fReply is what a scripted server does with one request.
type fReply = func(*hit) (*http.Response, error)

// fAnswer answers at once.
func fAnswer(status int, body string, headers ...string) fReply {
	return func(*hit) (*http.Response, error) { return reply(status, body, headers...), nil }
}

// fBreak fails at once, as a transport does.
func fBreak(err error) fReply {
	return func(*hit) (*http.Response, error) { return nil, err }
}

// fHang answers only when the attempt is ended.
func fHang(h *hit) (*http.Response, error) {
	<-h.Context().Done()
	return nil, h.Context().Err()
}

// fScript plays one reply for each request that it is asked for, the last for all that follow.
func fScript(steps ...fReply) fReply {
	var n atomic.Int64
	return func(h *hit) (*http.Response, error) { return steps[min(int(n.Add(1)), len(steps))-1](h) }
}

// fHosts answers by host; a host that is not named says 200.
func fHosts(by map[string]fReply) fReply {
	return func(h *hit) (*http.Response, error) {
		if f := by[h.URL.Host]; f != nil {
			return f(h)
		}
		return reply(200, h.URL.Host), nil
	}
}

// fPaths answers by path; a path that is not named says 200.
func fPaths(by map[string]fReply) fReply {
	return func(h *hit) (*http.Response, error) {
		if f := by[h.URL.Path]; f != nil {
			return f(h)
		}
		return reply(200, h.URL.Path), nil
	}
}

// fOutcomes turns "FFS" into a script of failures (500) and successes.
func fOutcomes(pattern string) fReply {
	var steps []fReply
	for _, c := range pattern {
		if c == 'F' {
			steps = append(steps, fAnswer(500, ""))
		} else {
			steps = append(steps, fAnswer(200, ""))
		}
	}
	return fScript(steps...)
}

// fRetry is a policy whose delays are exact: 100 ms, 200 ms, 400 ms …
func fRetry(max int) *ax.Retry {
	return &ax.Retry{Max: max, BaseDelay: 100 * fms, Jitter: ax.NoJitter}
}

// fGet is a GET of a path on a.test.
func fGet(path string) ax.Request { return ax.Request{URL: at(path)} }

// fError is err as the one error type that Do returns.
func fError(t testing.TB, err error) *ax.Error {
	t.Helper()
	var e *ax.Error
	require.ErrorAs(t, err, &e)
	return e
}

// fBody is the whole body of an answer that must be there.
func fBody(t testing.TB, r result) string {
	t.Helper()
	require.NoError(t, r.Err)
	require.NotNil(t, r.Resp)
	b, err := io.ReadAll(r.Resp.Body)
	require.NoError(t, err)
	require.NoError(t, r.Resp.Body.Close())
	return string(b)
}

// fHostHits are the arrivals at one host.
func fHostHits(t *tester, host string) []time.Duration {
	var ts []time.Duration
	for _, h := range t.Server.Hits() {
		if h.URL.Host == host {
			ts = append(ts, h.At)
		}
	}
	return ts
}

// fPathHits are the arrivals at one path.
func fPathHits(t *tester, path string) []time.Duration {
	var ts []time.Duration
	for _, h := range t.Server.Hits() {
		if h.URL.Path == path {
			ts = append(ts, h.At)
		}
	}
	return ts
}

// fLane is a.test's statistics now.
func fLane(t *tester) ax.LaneStats { return t.S.Stats().Lanes["a.test"] }

// fEvents keeps the events of a scheduler in the order in which they came.
type fEvents struct {
	mu  sync.Mutex
	all []ax.Event
}

// Add is an OnEvent.
func (e *fEvents) Add(ev ax.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// Of are the events of some kinds, of every kind if none is named.
func (e *fEvents) Of(kinds ...ax.EventKind) []ax.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []ax.Event
	for _, ev := range e.all {
		for _, k := range kinds {
			if ev.Kind == k {
				out = append(out, ev)
			}
		}
		if len(kinds) == 0 {
			out = append(out, ev)
		}
	}
	return out
}

// Kinds are the kinds of the events that Of returns.
func (e *fEvents) Kinds(kinds ...ax.EventKind) []ax.EventKind {
	var out []ax.EventKind
	for _, ev := range e.Of(kinds...) {
		out = append(out, ev.Kind)
	}
	return out
}

// End is the one terminal event of a task; there must be exactly one.
func (e *fEvents) End(t testing.TB, seq uint64) ax.Event {
	t.Helper()
	var ends []ax.Event
	for _, ev := range e.Of() {
		if ev.Seq == seq && fTerminal(ev.Kind) {
			ends = append(ends, ev)
		}
	}
	require.Len(t, ends, 1, "terminal events of task %d", seq)
	return ends[0]
}

// fTerminal tells whether a kind ends a task.
func fTerminal(k ax.EventKind) bool {
	return k == ax.EventSucceeded || k == ax.EventFailed || k == ax.EventCanceled || k == ax.EventRejected
}

// fLog keeps what a scheduler logs, one line a record.
type fLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write lets a slog handler write here.
func (l *fLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Logger logs here, every level.
func (l *fLog) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Lines are the lines that contain every one of the words, whatever their case.
func (l *fLog) Lines(words ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
next:
	for line := range strings.Lines(l.buf.String()) {
		for _, w := range words {
			if !strings.Contains(strings.ToLower(line), strings.ToLower(w)) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// fStream is a body that counts what is read of it and knows when it is closed.
type fStream struct {
	mu     sync.Mutex
	left   int
	read   int
	closed bool
	fail   error // instead of io.EOF
}

// Read hands out zero bytes.
func (b *fStream) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.left == 0 {
		if b.fail != nil {
			return 0, b.fail
		}
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	clear(p[:n])
	b.left -= n
	b.read += n
	return n, nil
}

// Close closes it.
func (b *fStream) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// State is what was read so far and whether it is closed.
func (b *fStream) State() (read int, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read, b.closed
}

// fWith answers with a body of its own kind.
func fWith(status int, body io.ReadCloser, length int64, headers ...string) fReply {
	return func(*hit) (*http.Response, error) {
		r := reply(status, "", headers...)
		r.Body, r.ContentLength = body, length
		return r, nil
	}
}
