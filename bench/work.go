package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"
)

// work is what a gate lets through: one attempt.
type work func(ctx context.Context) (*http.Response, error)

// noop answers at once. The response is new each time, its parts are not: one
// allocation.
func noop() work {
	header := http.Header{}
	return func(context.Context) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody}, nil
	}
}

// yielding answers after everybody else had a chance to run: they come to the
// gate and find it full.
func yielding() work {
	answer := noop()
	return func(ctx context.Context) (*http.Response, error) {
		runtime.Gosched()
		return answer(ctx)
	}
}

// job is what all stacks of an experiment are built for.
type job struct {
	work    work
	callers int
	slots   int           // at the gate
	timeout time.Duration // of each attempt; 0 = none
}

// Every stack has the same policies: a rate that never holds anybody back but is
// asked each time, the gate, a breaker that looks at ten outcomes, two retries.
const (
	ratePerSecond = 1_000_000_000
	rateBurst     = 1_000_000
	breakerWindow = 10
	breakerShare  = 0.3
	breakerRest   = 3 * time.Second
	retries       = 2
	retryDelay    = 200 * time.Millisecond
	longWait      = time.Minute // where a peer must be told to wait at all
)

var errStatus = errors.New("bench: status is a failure")

// failure is what breaker and retry take for one.
func failure(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: %d", errStatus, resp.StatusCode)
	}
	return err
}

// callerContexts are one context that can end for each caller, as a handler's.
func callerContexts(callers int) ([]context.Context, func()) {
	parent, cancel := context.WithCancel(context.Background())
	all := make([]context.Context, callers)
	for i := range all {
		ctx, end := context.WithCancel(parent)
		context.AfterFunc(parent, end)
		all[i] = ctx
	}
	return all, cancel
}
