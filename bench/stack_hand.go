package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const handLabel = "by hand"

const handHow = "a retry loop around gobreaker v2, x/time/rate Wait, x/sync/semaphore"

// handStack is what one writes over the usual libraries.
type handStack struct {
	job
	breaker *gobreaker.CircuitBreaker[*http.Response]
	limiter *rate.Limiter
	gate    *semaphore.Weighted
}

func newHandStack(j job) *handStack {
	return &handStack{
		job: j,
		breaker: gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{
			Interval: time.Minute,
			Timeout:  breakerRest,
			ReadyToTrip: func(c gobreaker.Counts) bool {
				return c.Requests >= breakerWindow && float64(c.TotalFailures) > breakerShare*float64(c.Requests)
			},
		}),
		limiter: rate.NewLimiter(ratePerSecond, rateBurst),
		gate:    semaphore.NewWeighted(int64(j.slots)),
	}
}

// do is one call with its retries.
func (h *handStack) do(ctx context.Context) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := h.breaker.Execute(func() (*http.Response, error) { return h.attempt(ctx) })
		if err == nil || n == retries || ctx.Err() != nil {
			return resp, err
		}
		select {
		case <-time.After(rand.N(retryDelay << n)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// attempt takes a token and a slot and works.
func (h *handStack) attempt(ctx context.Context) (*http.Response, error) {
	if err := h.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	if err := h.gate.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer h.gate.Release(1)
	if h.timeout > 0 {
		timed, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		ctx = timed
	}
	resp, err := h.work(ctx)
	return resp, failure(resp, err)
}

// handCalls has all callers use one stack.
func handCalls(j job) (call, func()) {
	h := newHandStack(j)
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error {
		_, err := h.do(ctxs[c])
		return err
	}, cancel
}

// semaphoreCalls is the gate of x/sync alone.
func semaphoreCalls(j job) (call, func()) {
	gate := semaphore.NewWeighted(int64(j.slots))
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error {
		if err := gate.Acquire(ctxs[c], 1); err != nil {
			return err
		}
		defer gate.Release(1)
		_, err := j.work(ctxs[c])
		return err
	}, cancel
}

// bareCalls is the work without any gate.
func bareCalls(j job) (call, func()) {
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error {
		_, err := j.work(ctxs[c])
		return err
	}, cancel
}
