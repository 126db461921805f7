package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
	"resty.dev/v3"
)

const (
	inSecond metric = "most starts in any second"
	inTenth  metric = "most starts in any 100 ms"
	used     metric = "share of the quota used"
)

const (
	axWindowLabel = "ax, exact window"
	axSmoothLabel = "ax, Smooth"
	axBucketLabel = "ax, Burst 200"
)

const (
	quota        = 200 // a second
	eagerCallers = 64
)

// precision is f: how exactly a rate is kept, and how much of it is used.
func precision(e effort) experiment {
	span := 6 * time.Second
	if e.quick {
		span = 3500 * time.Millisecond
	}
	one := func(label, how string, begin func() (starter, func())) contestant {
		return &eager{label: label, notes: how, span: span, begin: begin}
	}
	label := fmt.Sprintf("%d callers", eagerCallers)
	it := func(name string, m metric) contender { return contender{label, name, m} }
	return experiment{
		id:    "f",
		title: "Rate precision",
		about: fmt.Sprintf("%d callers start as often as a limit of %d a second lets them, for %v, all contestants at the same time. Windows slide: they begin at every start. The share is that of the time that m × %d starts in a row should take in what they took, once the first burst is over.",
			eagerCallers, quota, span, quota),
		short:   shortRate,
		columns: []metric{inSecond, inTenth, used}, rounds: e.rounds(4), fresh: true, together: true,
		groups: []group{{label, []contestant{
			one("x/time/rate, burst 200", "Limiter.Wait", bucketStarts(quota)),
			one(axWindowLabel, "PerSecond(200): exact in every window of a second", axStarts(ax.Rate{Limit: quota})),
			one(axSmoothLabel, "the same with Smooth", axStarts(ax.Rate{Limit: quota, Smooth: true})),
			one(axBucketLabel, "the same bucket as x/time/rate's", axStarts(ax.Rate{Limit: quota, Burst: quota})),
			one("x/time/rate, burst 1", "Limiter.Wait", bucketStarts(1)),
			one("uber ratelimit", "New(200): with its slack of 10", uberStarts()),
			one("uber ratelimit, no slack", "New(200, WithoutSlack)", uberStarts(uber.WithoutSlack)),
			one("resty sliding window", "RateLimitSlidingWindow.Allow", restyStarts),
			one("failsafe-go bursty", "AcquirePermit", failsafeStarts(ratelimiter.NewBursty[any])),
			one("failsafe-go smooth", "AcquirePermit", failsafeStarts(ratelimiter.NewSmooth[any])),
		}}},
		marks: []mark{
			atMost(quota, it(axWindowLabel, inSecond)),
			atMost(quota, it(axSmoothLabel, inSecond)),
			atLeast(0.995, it(axWindowLabel, used)),
			atLeast(0.995, it(axSmoothLabel, used)),
			atMost(0.2*quota, it(axSmoothLabel, inTenth)),
		},
	}
}

// starter waits for its turn, then calls start.
type starter func(ctx context.Context, start func()) error

// eager is a contestant: a fresh limiter and callers that never rest.
type eager struct {
	label, notes string
	span         time.Duration
	begin        func() (starter, func())
}

func (g *eager) name() string { return g.label }
func (g *eager) how() string  { return g.notes }
func (g *eager) close()       {}

func (g *eager) measure() (reading, error) {
	start, stop := g.begin()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), g.span)
	defer cancel()
	var mu sync.Mutex
	var starts []time.Duration
	began := time.Now()
	note := func() {
		at := time.Since(began) // before anybody can be in the way
		mu.Lock()
		defer mu.Unlock()
		if at < g.span {
			starts = append(starts, at)
		}
	}
	var all sync.WaitGroup
	for range eagerCallers {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = start(ctx, note) // fails only because the time is over
			}
		})
	}
	all.Wait()
	slices.Sort(starts)
	return reading{
		inSecond: float64(most(starts, time.Second)),
		inTenth:  float64(most(starts, 100*time.Millisecond)),
		used:     quotaUsed(starts),
	}, nil
}

// most is the largest number of starts in any window: [t, t + window).
func most(starts []time.Duration, window time.Duration) int {
	found, first := 0, 0
	for i, at := range starts {
		for at-starts[first] >= window {
			first++
		}
		found = max(found, i-first+1)
	}
	return found
}

// quotaUsed compares the time that whole seconds' worth of starts took, from each
// start after the first burst on, with those seconds.
func quotaUsed(starts []time.Duration) float64 {
	if len(starts) <= quota+1 {
		return 0
	}
	starts = starts[min(quota, len(starts)-quota-1):]
	seconds := (len(starts) - 1) / quota
	var took, want time.Duration
	for i := 0; i+seconds*quota < len(starts); i++ {
		took += starts[i+seconds*quota] - starts[i]
		want += time.Duration(seconds) * time.Second
	}
	return float64(want) / float64(took)
}

func axStarts(r ax.Rate) func() (starter, func()) {
	return func() (starter, func()) {
		type noteKey struct{}
		s := axNew(ax.Config{
			Rate: []ax.Rate{r}, MaxConcurrent: wideGate,
			Executor: ax.ExecutorFunc(func(ctx context.Context, _ *ax.Task) (*http.Response, error) {
				ctx.Value(noteKey{}).(func())()
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}),
		})
		task := axTasks(1)[0]
		return func(ctx context.Context, start func()) error {
			if _, err := s.Do(context.WithValue(ctx, noteKey{}, start), task); err != nil {
				return restUntil(ctx, err)
			}
			return nil
		}, func() { axClose(s) }
	}
}

func bucketStarts(burst int) func() (starter, func()) {
	return func() (starter, func()) {
		l := rate.NewLimiter(quota, burst)
		return func(ctx context.Context, start func()) error {
			if err := l.Wait(ctx); err != nil {
				return restUntil(ctx, err)
			}
			start()
			return nil
		}, func() {}
	}
}

func uberStarts(opts ...uber.Option) func() (starter, func()) {
	return func() (starter, func()) {
		l := uber.New(quota, opts...)
		return func(_ context.Context, start func()) error {
			l.Take()
			start()
			return nil
		}, func() {}
	}
}

func restyStarts() (starter, func()) {
	l := resty.NewRateLimitSlidingWindow(quota, time.Second)
	return func(ctx context.Context, start func()) error {
		if err := l.Allow(ctx); err != nil {
			return restUntil(ctx, err)
		}
		start()
		return nil
	}, func() {}
}

func failsafeStarts(build func(uint, time.Duration) ratelimiter.RateLimiter[any]) func() (starter, func()) {
	return func() (starter, func()) {
		l := build(quota, time.Second)
		return func(ctx context.Context, start func()) error {
			if err := l.AcquirePermit(ctx); err != nil {
				return restUntil(ctx, err)
			}
			start()
			return nil
		}, func() {}
	}
}

// restUntil keeps a caller who was refused for the little time left from asking
// over and over.
func restUntil(ctx context.Context, err error) error {
	<-ctx.Done()
	return err
}
