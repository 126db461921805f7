package bench

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"sync"
	"time"
)

const detachedLabel = "by hand, detached"

// dedupedGate is a3: a2 with a dedupe that no caller's cancel can hurt.
func dedupedGate(e effort) experiment {
	x := experiment{
		id:      "a3",
		title:   "Overhead of a call, deduped, gate free, with a timeout",
		about:   "As a2, and equal calls share one attempt that belongs to all of them, so it runs apart from every caller's context. Here no two callers have the same key: what is measured is the price of being ready to share. failsafe-go is the yardstick though it does not share.",
		short:   shortDeduped,
		columns: callMetrics(), rounds: e.rounds(20),
	}
	for _, callers := range []int{1, 64, e.size(4096)} {
		j := job{work: noop(), callers: callers, slots: wideGate, timeout: attemptTimeout}
		x.groups = append(x.groups, dedupedGroup(e, j))
	}
	for _, callers := range []int{1, 64} {
		it := contender{callersLabel(callers), axLabel, nsPerCall}
		x.marks = append(x.marks, ratioAtMost(0.80, it, failsafeLabel))
		it.metric = allocs
		x.marks = append(x.marks, beyondAtMost(12, it, bareLabel))
	}
	return x
}

func dedupedGroup(e effort, j job) group {
	return group{callersLabel(j.callers), []contestant{
		callLoad(e, j, failsafeLabel, failsafeHow+", Timeout innermost; no dedupe", failsafeCalls),
		callLoad(e, j, axLabel, "as in a2, with Dedupe", axDedupedCalls),
		callLoad(e, j, detachedLabel, "a map of flights under a mutex, each on a goroutine of its own with the stack of a2, ended by its last caller; a copy of the response for each", detachedCalls),
		callLoad(e, j, bareLabel, bareHow, bareCalls),
	}}
}

// detachedStack shares calls so that each caller may leave without hurting the
// others.
type detachedStack struct {
	stack   *handStack
	timeout time.Duration // of the whole call: one context less; 0 = none
	mu      sync.Mutex
	flights map[string]*detachedFlight
}

type detachedFlight struct {
	callers int // guarded by the stack's mutex
	cancel  context.CancelFunc
	done    chan struct{}
	resp    *http.Response
	err     error
}

func (d *detachedStack) do(ctx context.Context, key string) (*http.Response, error) {
	f := d.join(ctx, key)
	select {
	case <-f.done:
	case <-ctx.Done():
		d.leave(key, f)
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	own := *f.resp
	own.Header = maps.Clone(f.resp.Header)
	if whole, ok := f.resp.Body.(*heldBody); ok {
		own.Body = newHeldBody(whole.b)
	}
	return &own, nil
}

// heldBody is a body that has been read into memory, where all callers find it.
type heldBody struct {
	bytes.Reader
	b []byte
}

func newHeldBody(b []byte) *heldBody {
	h := &heldBody{b: b}
	h.Reset(b)
	return h
}

func (*heldBody) Close() error { return nil }

// join finds the flight of key or starts it.
func (d *detachedStack) join(ctx context.Context, key string) *detachedFlight {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flights[key]; f != nil {
		f.callers++
		return f
	}
	f := &detachedFlight{callers: 1, done: make(chan struct{})}
	ctx = context.WithoutCancel(ctx)
	if d.timeout > 0 {
		ctx, f.cancel = context.WithTimeout(ctx, d.timeout)
	} else {
		ctx, f.cancel = context.WithCancel(ctx)
	}
	d.flights[key] = f
	go func() { // ends with the stack's call
		f.resp, f.err = d.stack.do(ctx)
		d.mu.Lock()
		if d.flights[key] == f {
			delete(d.flights, key)
		}
		d.mu.Unlock()
		f.cancel()
		close(f.done)
	}()
	return f
}

// leave ends the flight with its last caller.
func (d *detachedStack) leave(key string, f *detachedFlight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.callers--; f.callers == 0 && d.flights[key] == f {
		delete(d.flights, key)
		f.cancel()
	}
}

func newDetachedStack(j job) *detachedStack {
	d := &detachedStack{timeout: j.timeout, flights: map[string]*detachedFlight{}}
	j.timeout = 0
	d.stack = newHandStack(j)
	return d
}

func detachedCalls(j job) (call, func()) {
	d := newDetachedStack(j)
	ctxs, cancel := callerContexts(j.callers)
	keys := callerKeys(j.callers)
	return func(c int) error {
		_, err := d.do(ctxs[c], keys[c])
		return err
	}, cancel
}
