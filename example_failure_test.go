package ax_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/axsched/ax"
)

func ExampleRetry() {
	var calls atomic.Int64
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		echo(w, r)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{
		Retry: &ax.Retry{Max: 2, BaseDelay: 10 * time.Millisecond, Jitter: ax.FullJitter, Budget: 0.2},
	})
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL+"/page")
	fmt.Println(resp.StatusCode, resp.Attempts, err)

	calls.Store(0) // a POST may have happened: it is not sent twice, the answer says why
	resp, err = sched.Send(context.Background(), ax.Request{Method: "POST", URL: server.URL + "/orders"})
	fmt.Println(resp.StatusCode, resp.Attempts, err)

	calls.Store(0) // unless the server can tell that it is the same one
	resp, err = sched.Send(context.Background(), ax.Request{Method: "POST", URL: server.URL + "/orders", IdempotencyKey: "order-4711"})
	fmt.Println(resp.StatusCode, resp.Attempts, err)
	// Output:
	// 200 2 <nil>
	// 503 1 <nil>
	// 200 2 <nil>
}

func ExampleJitter() {
	// Those who failed together do not come back together: FullJitter waits
	// between 0 and the bound, EqualJitter between half of it and all of it.
	retry := ax.Retry{BaseDelay: 200 * time.Millisecond, MaxDelay: 5 * time.Second, Jitter: ax.EqualJitter}
	fmt.Println(retry.Jitter)
	// Output: equal
}

func ExampleOutcome() {
	server := newDemo(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Error", "index is rebuilding")
		w.WriteHeader(http.StatusConflict)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{Retry: &ax.Retry{
		Max: 1, BaseDelay: time.Millisecond,
		If: func(o ax.Outcome) bool { return o.Err != nil || o.Response.Header.Get("X-Error") != "" },
	}})
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL)
	fmt.Println(resp.StatusCode, resp.Attempts, err)
	// Output: 409 2 <nil>
}

func ExampleBreaker() {
	server := newDemo(failing)
	defer server.Close()
	sched := newScheduler(ax.Config{
		Breaker: &ax.Breaker{
			Window:      10,              // of the last ten attempts
			FailureRate: 0.3,             // more than three failed:
			OpenFor:     3 * time.Second, // nothing for three seconds,
			Probes:      1,               // then one,
			Ramp:        3 * time.Second, // then slowly more
			WhenOpen:    ax.OpenReject,
		},
	})
	defer sched.Close()

	for range 10 {
		sched.Get(context.Background(), server.URL)
	}
	_, err := sched.Get(context.Background(), server.URL)
	var e *ax.Error
	fmt.Println(errors.Is(err, ax.ErrCircuitOpen), errors.As(err, &e) && e.RetryAfter > 2*time.Second)
	fmt.Println(server.requests.Load(), "requests")
	// Output:
	// true true
	// 10 requests
}

func ExampleBreakerMode() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{{Name: "legacy", Breaker: &ax.Breaker{WhenOpen: ax.OpenReject}}}})
	defer sched.Close()

	sched.ForceBreaker("legacy", ax.BreakerForceOpen) // maintenance
	_, err := sched.Send(context.Background(), ax.Request{URL: server.URL, Lane: "legacy"})
	fmt.Println(errors.Is(err, ax.ErrCircuitOpen))

	sched.ForceBreaker("legacy", ax.BreakerAuto)
	resp, err := sched.Send(context.Background(), ax.Request{URL: server.URL, Lane: "legacy"})
	fmt.Println(resp.StatusCode, err)
	// Output:
	// true
	// 200 <nil>
}

func ExampleBreakerState() {
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{{Name: "search", Breaker: &ax.Breaker{}}}})
	defer sched.Close()
	if sched.Stats().Lanes["search"].Breaker == ax.BreakerClosed {
		fmt.Println("search is well")
	}
	// Output: search is well
}

func ExampleOpenAction() {
	server := newDemo(failing)
	defer server.Close()
	sched := newScheduler(ax.Config{Breaker: &ax.Breaker{Window: 2, OpenFor: time.Hour, WhenOpen: ax.OpenHold}})
	defer sched.Close()
	for range 2 {
		sched.Get(context.Background(), server.URL)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := sched.Get(ctx, server.URL) // would wait for the breaker, which is longer than it has
	fmt.Println(errors.Is(err, ax.ErrWouldExceedDeadline))
	// Output: true
}

func ExampleFallback() {
	var down atomic.Bool
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			failing(w, r)
			return
		}
		echo(w, r)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{
		Fallback: &ax.Fallback{
			Stale: 10 * time.Minute, // the last good answer, if it is not older
			Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("[]"))}, nil
			},
		},
	})
	defer sched.Close()

	for _, path := range []string{"/news", "/down", "/news", "/never-seen"} {
		down.Store(down.Load() || path == "/down")
		resp, _ := sched.Get(context.Background(), server.URL+path)
		body, _ := resp.Bytes()
		fmt.Println(resp.StatusCode, resp.Source, string(body), resp.Cause != nil)
	}
	// Output:
	// 200 network /news false
	// 200 static [] true
	// 200 stale /news true
	// 200 static [] true
}

func ExampleSource() {
	server := newDemo(failing)
	defer server.Close()
	backup := newDemo(echo)
	defer backup.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	resp, err := sched.Send(context.Background(), ax.Request{
		URL:      server.URL + "/price",
		Fallback: &ax.Fallback{Alternate: ax.Must(ax.Request{URL: backup.URL + "/price"}.Task())},
	})
	switch {
	case err != nil:
		fmt.Println(err)
	case resp.Source == ax.FromStale:
		fmt.Println("an old answer of", resp.Age)
	default:
		fmt.Println(resp.StatusCode, "from the", resp.Source, "for a reason:", resp.Cause != nil)
	}
	// Output: 200 from the alternate for a reason: true
}

func ExampleHedge() {
	var calls atomic.Int64
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 { // the first one is stuck
			<-r.Context().Done()
			return
		}
		echo(w, r)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{
		Retry: &ax.Retry{},
		Hedge: &ax.Hedge{After: 30 * time.Millisecond}, // 0 = the lane's own 95th percentile
	})
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL+"/quote")
	fmt.Println(resp.StatusCode, err, server.requests.Load(), "requests")
	// Output: 200 <nil> 2 requests
}

func ExampleError() {
	server := newDemo(echo)
	server.Close() // nobody is there
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	_, err := sched.Send(context.Background(), ax.Request{URL: server.URL + "/users?token=secret", Owner: "search"})
	var e *ax.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op, e.Owner, e.Attempts, e.Timeout())
	}
	fmt.Println(strings.Contains(err.Error(), "secret"))
	// Output:
	// attempt search 1 false
	// false
}

func ExampleStatusError() {
	server := newDemo(failing)
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	_, err := ax.JSON[[]string](sched.Get(context.Background(), server.URL))
	var status *ax.StatusError
	if errors.As(err, &status) {
		fmt.Println(status.StatusCode, strings.TrimSpace(string(status.Body)))
	}
	// Output: 503 down
}

func ExamplePanicError() {
	sched := newScheduler(ax.Config{Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		panic("a bug")
	})})
	defer sched.Close()

	_, err := sched.Submit(context.Background(), ax.Must(ax.Request{URL: "https://example.com"}.Task())).Result()
	var p *ax.PanicError
	fmt.Println(errors.As(err, &p) && p.Value == "a bug")
	// Output: true
}
