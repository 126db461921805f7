package ax_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

const qms = time.Millisecond

// qSubmit submits from one goroutine: the order of the arguments is the order of Seq.
func qSubmit(t *tester, rs ...ax.Request) []*ax.Call {
	calls := make([]*ax.Call, len(rs))
	for i, r := range rs {
		calls[i] = t.S.Submit(t.Context(), ax.Must(r.Task()))
	}
	return calls
}

// qOK waits for calls and requires a 200 of each.
func qOK(t *tester, calls ...*ax.Call) {
	t.Helper()
	for i, c := range calls {
		resp, err := c.Result()
		require.NoError(t, err, "call %d", i)
		require.Equal(t, 200, resp.StatusCode, "call %d", i)
	}
}

// qDone tells whether the call has ended.
func qDone(c *ax.Call) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// qScript replies 200 once the time named for the path has passed, at once for other paths.
func qScript(took map[string]time.Duration) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if err := h.Sleep(took[h.URL.Path]); err != nil {
			return nil, err
		}
		return reply(200, ""), nil
	}
}

// qHold replies to /hold after d, to everything else at once.
func qHold(d time.Duration) func(*hit) (*http.Response, error) {
	return qScript(map[string]time.Duration{"/hold": d})
}

// qFirst gives the first n requests the status and headers, all later ones 200.
func qFirst(n, status int, headers ...string) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if h.N <= n {
			return reply(status, "", headers...), nil
		}
		return reply(200, ""), nil
	}
}

// qSeen is when the server first saw each path.
func qSeen(t *tester) map[string]time.Duration {
	seen := map[string]time.Duration{}
	for _, h := range t.Server.Hits() {
		if _, ok := seen[h.URL.Path]; !ok {
			seen[h.URL.Path] = h.At
		}
	}
	return seen
}

// qErr requires that err is an *ax.Error of the given Op that wraps is.
func qErr(t require.TestingT, err error, op string, is error) *ax.Error {
	require.ErrorIs(t, err, is)
	e, ok := errors.AsType[*ax.Error](err)
	require.True(t, ok, "%T is no *ax.Error", err)
	require.Equal(t, op, e.Op, "Op of %v", err)
	return e
}

// qWindow requires that no half-open window of per holds more than limit of the ascending times.
func qWindow(t require.TestingT, times []time.Duration, limit int, per time.Duration) {
	for i := limit; i < len(times); i++ {
		require.GreaterOrEqual(t, times[i]-times[i-limit], per, "starts %d and %d of a limit of %d", i-limit, i, limit)
	}
}

// qRepeat is n times d.
func qRepeat(d time.Duration, n int) []time.Duration {
	ds := make([]time.Duration, n)
	for i := range ds {
		ds[i] = d
	}
	return ds
}

// qEvery is n moments from first on, step apart.
func qEvery(first, step time.Duration, n int) []time.Duration {
	ds := make([]time.Duration, n)
	for i := range ds {
		ds[i] = first + time.Duration(i)*step
	}
	return ds
}

// qTimeout is a context that ends after d, by its deadline.
func qTimeout(t *tester, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// qEvents collects events; its add is an OnEvent.
type qEvents struct {
	mu  sync.Mutex
	all []ax.Event
}

func (q *qEvents) add(e ax.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, e)
}

// of are the events of one kind, in the order in which they came.
func (q *qEvents) of(kind ax.EventKind) []ax.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	var some []ax.Event
	for _, e := range q.all {
		if e.Kind == kind {
			some = append(some, e)
		}
	}
	return some
}

// qSlowBody is a body that says nothing for a while and then ends.
type qSlowBody struct {
	h    *hit
	wait time.Duration
}

func (b *qSlowBody) Read([]byte) (int, error) {
	wait := b.wait
	b.wait = 0
	if err := b.h.Sleep(wait); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

func (b *qSlowBody) Close() error { return nil }

// qSlow is a 200 whose body of unknown length ends d after its headers.
func qSlow(h *hit, d time.Duration) *http.Response {
	resp := reply(200, "")
	resp.ContentLength = -1
	resp.Body = &qSlowBody{h, d}
	return resp
}

// qGovernor is a func as a Governor.
type qGovernor func(context.Context, ax.Ask) (ax.Grant, error)

func (g qGovernor) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) { return g(ctx, a) }
