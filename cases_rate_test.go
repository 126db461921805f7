package ax_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// Twenty 429s with one Retry-After: the lane is silent until it is over and then
// leaves on a ramp. The Retry budget is lifted so that all may come again.
func TestCaseH14(t *testing.T) {
	cfg := ax.Config{
		Hosts: &ax.Lane{MaxConcurrent: 20},
		Retry: &ax.Retry{Jitter: ax.NoJitter, Budget: 1},
	}
	bubble(t, cfg, func(t *tester) {
		first, all := qFirst(20, 429, "Retry-After: 2"), make(chan struct{})
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 20 {
				close(all)
			}
			if h.N <= 20 {
				<-all // the first answer would pause the lane under the last of them
			}
			return first(h)
		}
		calls := qMany(t, 20, "/")
		t.Until(500 * qms)
		require.WithinDuration(t, t.start.Add(2*time.Second), t.S.Stats().Lanes["a.test"].PausedUntil, 0)
		require.Equal(t, 20, t.S.Stats().Parked)
		calls = append(calls, qMany(t, 1, "/late")...)
		qOK(t, calls...)
		times := t.Server.Times()
		require.Len(t, times, 41)
		require.Equal(t, qRepeat(0, 20), times[:20])
		require.Equal(t, 2*time.Second, times[20])
		for i := 21; i < 41; i++ {
			require.GreaterOrEqual(t, times[i]-times[i-1], 50*qms, "start %d: a second over the limit of 20", i)
		}
		require.LessOrEqual(t, times[40], 3100*qms)
		require.Equal(t, times[40], qSeen(t)["/late"], "the youngest is the last")
	})
}

// After the pause a lane that has a rate leaves at it.
func TestCaseH14WithRate(t *testing.T) {
	cfg := ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 10, Smooth: true}}}, Retry: &ax.Retry{Jitter: ax.NoJitter, Budget: 1}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, "", "Retry-After: 2"), nil
			}
			return reply(200, ""), nil
		}
		qOK(t, qMany(t, 12, "/")...)
		require.Equal(t, append([]time.Duration{0}, qEvery(2*time.Second, 100*qms, 12)...), t.Server.Times())
	})
}

// A 429 without Retry-After is the business of its own task.
func TestCaseH15(t *testing.T) {
	cfg := ax.Config{
		Retry:   &ax.Retry{Jitter: ax.NoJitter},
		Breaker: &ax.Breaker{Window: 1},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/limited" {
				return reply(429, ""), nil
			}
			return reply(200, ""), nil
		}
		limited := qMany(t, 1, "/limited")
		synctest.Wait()
		for i := range 100 {
			t.Until(time.Duration(i) * 10 * qms)
			for _, url := range []string{at("/healthy"), "http://b.test/healthy"} {
				r := t.Do(t.Context(), ax.Request{URL: url})
				require.Equal(t, 200, r.Status())
				require.Zero(t, r.Resp.Waited)
				require.Equal(t, time.Duration(i)*10*qms, r.At)
			}
			require.Equal(t, ax.BreakerClosed, t.S.Stats().Lanes["a.test"].Breaker)
			require.True(t, t.S.Stats().Lanes["a.test"].PausedUntil.IsZero())
		}
		resp, err := limited[0].Result()
		require.NoError(t, err)
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, 3, resp.Attempts)
		var times []time.Duration
		for _, h := range t.Server.Hits() {
			if h.URL.Path == "/limited" {
				times = append(times, h.At)
			}
		}
		require.Equal(t, []time.Duration{0, 200 * qms, 600 * qms}, times)
	})
}

// No reservation: who leaves the queue does not push back those behind.
func TestCaseH28(t *testing.T) {
	for name, rate := range map[string]ax.Rate{"bucket": {Limit: 10, Burst: 1}, "window": {Limit: 1, Per: 100 * qms}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Rate: []ax.Rate{rate}}, func(t *tester) {
				calls := append(qMany(t, 1, "/first"), qSubmit(t, ax.Request{URL: at("/A")}, ax.Request{URL: at("/B")}, ax.Request{URL: at("/C")})...)
				t.Until(50 * qms)
				calls[1].Cancel()
				qOK(t, calls[0], calls[2], calls[3])
				require.Equal(t, []string{"/first", "/B", "/C"}, t.Server.Paths())
				require.Equal(t, qEvery(0, 100*qms, 3), t.Server.Times())
			})
		})
	}
}

// Local throttling is refused at once, told by type, and costs no token.
func TestCaseH29(t *testing.T) {
	bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 1, Burst: 1}}}, func(t *tester) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := t.Do(ctx, ax.Request{URL: at("/")})
		require.ErrorIs(t, r.Err, context.Canceled)
		require.NotErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status())
		require.Zero(t, t.At(), "the token was still there")
		for range 5 {
			qTooLate(t, t.Do(qTimeout(t, 100*qms), ax.Request{URL: at("/")}), 0)
		}
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status())
		require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
	})
}

// 100 a second and a burst of 10, fought over by 64 goroutines for five seconds
// with cancels, refusals and changes that change nothing: no token is minted or lost.
func TestCaseH36(t *testing.T) {
	rates := []ax.Rate{{Limit: 100, Burst: 10}}
	bubble(t, ax.Config{Rate: rates}, func(t *tester) {
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 36))
				for t.At() < 5*time.Second {
					ctx, cancel := context.WithCancel(t.Context())
					timer := time.AfterFunc(time.Duration(200+rnd.IntN(1500))*qms, cancel)
					switch rnd.IntN(8) {
					case 0:
						_ = t.S.SetLimits("", ax.Limits{Rate: rates})
					case 1:
						_ = t.S.SetLimits("", ax.Limits{})
					case 2:
						t.Do(ctx, ax.Request{URL: at("/"), NoWait: true})
					case 3:
						t.Do(qTimeout(t, 5*qms), ax.Request{URL: at("/")})
					default:
						t.Do(ctx, ax.Request{URL: at("/")})
					}
					timer.Stop()
					cancel()
					time.Sleep(time.Duration(1+rnd.IntN(1000)) * time.Microsecond)
				}
			})
		}
		wg.Wait()
		started := 0
		for _, at := range t.Server.Times() {
			if at < 5*time.Second {
				started++
			}
		}
		require.GreaterOrEqual(t, started, 495)
		require.LessOrEqual(t, started, 510)
	})
}

// 18 a second, whatever the tasks last: the n-th start is at n/18 whole seconds.
func TestCaseH37(t *testing.T) {
	n := 10_000
	if raceEnabled {
		n = 2_000
	}
	bubble(t, ax.Config{MaxQueue: ax.NoLimit, Rate: ax.PerSecond(18)}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return after(time.Duration(h.N*7919%3000)*qms, 200, "")(h)
		}
		qOK(t, qMany(t, n, "/")...)
		times := t.Server.Times()
		qWindow(t, times, 18, time.Second)
		for i, at := range times {
			require.Equal(t, time.Duration(i/18)*time.Second, at, "start %d", i)
		}
	})
}

// Odd numbers are refused when the scheduler is made, by name, or mean what is documented.
func TestCaseH38(t *testing.T) {
	rate := func(r ax.Rate) ax.Config { return ax.Config{Rate: []ax.Rate{r}} }
	bad := []struct {
		field string
		cfg   ax.Config
	}{
		{"Rate[0].Limit", rate(ax.Rate{})},
		{"Rate[0].Limit", rate(ax.Rate{Limit: -1})},
		{"Rate[0].Per", rate(ax.Rate{Limit: 1, Per: -time.Second})},
		{"Rate[0].Burst", rate(ax.Rate{Limit: 1, Burst: -1})},
		{"Rate[0].Guard", rate(ax.Rate{Limit: 1, Guard: -1})},
		{"Rate[0].Guard", rate(ax.Rate{Limit: 1, Burst: 1, Guard: time.Second})},
		{"Rate[0].Smooth", rate(ax.Rate{Limit: 1, Burst: 1, Smooth: true})},
		{"Rate[1].Limit", ax.Config{Rate: []ax.Rate{{Limit: 1}, {}}}},
		{"MaxConcurrent", ax.Config{MaxConcurrent: -1}},
		{"MaxQueue", ax.Config{MaxQueue: -1}},
		{"AgingStep", ax.Config{AgingStep: -1}},
		{"QueueTimeout", ax.Config{QueueTimeout: -1}},
		{"MinRemaining", ax.Config{MinRemaining: -1}},
		{"Lanes[0].MaxConcurrent", ax.Config{Lanes: []ax.Lane{{Name: "x", MaxConcurrent: -1}}}},
		{"Lanes[1].Rate[0].Limit", ax.Config{Lanes: []ax.Lane{{Name: "x"}, {Name: "y", Rate: []ax.Rate{{}}}}}},
		{"Hosts.MaxQueue", ax.Config{Hosts: &ax.Lane{MaxQueue: -1}}},
		{"Hosts.Rate[0].Limit", ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: -5}}}}},
		{"Owners.Rate[0].Limit", ax.Config{Owners: &ax.Budget{Rate: []ax.Rate{{}}}}},
		{"Retry.Budget", ax.Config{Retry: &ax.Retry{Budget: math.NaN()}}},
		{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: math.NaN()}}},
		{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: -0.1}}},
	}
	for _, tt := range bad {
		t.Run(tt.field, func(t *testing.T) {
			s, err := ax.New(nil, tt.cfg)
			require.ErrorContains(t, err, tt.field)
			require.Nil(t, s)
		})
	}
	t.Run("all errors at once", func(t *testing.T) {
		_, err := ax.New(nil, ax.Config{MaxConcurrent: -1, MaxQueue: -2, Rate: []ax.Rate{{}}})
		for _, want := range []string{"MaxConcurrent", "-1", "MaxQueue", "-2", "Rate[0].Limit"} {
			require.ErrorContains(t, err, want)
		}
	})
	good := map[string]ax.Config{
		"all zero":     {},
		"no rate":      {Rate: ax.Unlimited()},
		"huge limit":   rate(ax.Rate{Limit: math.MaxInt / 2}),
		"huge, smooth": rate(ax.Rate{Limit: math.MaxInt / 2, Smooth: true}),
		"huge burst":   rate(ax.Rate{Limit: 1, Burst: math.MaxInt}),
		"tiny window":  rate(ax.Rate{Limit: 1 << 40, Per: 1}),
		"no limit":     {MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit, Hosts: &ax.Lane{MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit}},
		"no timeout":   {QueueTimeout: ax.NoTimeout, AttemptTimeout: ax.NoTimeout, IdleTimeout: ax.NoTimeout},
	}
	for name, cfg := range good {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				qOK(t, qMany(t, 20, "/")...)
				require.LessOrEqual(t, t.At(), 20*time.Nanosecond)
			})
		})
	}
}

// Who has left the queue has burnt nothing; the run's clock starts with the run,
// the queue's with the submission.
func TestCaseH40(t *testing.T) {
	bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 1, Burst: 1}}}, func(t *tester) {
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/first")}).Status())
		var expired []<-chan result
		for range 5 {
			expired = append(expired, t.Go(t.Context(), ax.Request{URL: at("/expired"), QueueTimeout: 100 * qms}))
		}
		fresh := t.GoAt(900*qms, t.Context(), ax.Request{URL: at("/fresh")})
		for _, c := range expired {
			r := <-c
			require.Equal(t, 100*qms, r.At)
			qErr(t, r.Err, "queue", ax.ErrQueueTimeout)
		}
		require.Equal(t, 200, (<-fresh).Status())
		require.Equal(t, []string{"/first", "/fresh"}, t.Server.Paths())
		require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
	})
	t.Run("a run timeout counts from the start", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, AttemptTimeout: time.Second}, func(t *tester) {
			t.Server.Reply = qScript(map[string]time.Duration{"/hold": 5 * time.Second, "/run": 900 * qms, "/long": time.Minute})
			hold := qSubmit(t, ax.Request{URL: at("/hold"), AttemptTimeout: time.Minute})
			synctest.Wait()
			run := t.Go(t.Context(), ax.Request{URL: at("/run"), QueueTimeout: 5100 * qms})
			synctest.Wait()
			long := t.Go(t.Context(), ax.Request{URL: at("/long")})
			r := <-run
			require.Equal(t, 200, r.Status())
			require.Equal(t, 5900*qms, r.At)
			r = <-long
			require.Equal(t, 6900*qms, r.At)
			e := qErr(t, r.Err, "attempt", context.DeadlineExceeded)
			require.True(t, e.Timeout())
			qOK(t, hold...)
		})
	})
}

// New limits reach those who wait already.
func TestCaseH58(t *testing.T) {
	const s = time.Second
	for _, lane := range []string{"", "a.test"} {
		t.Run("rate of "+lane, func(t *testing.T) {
			cfg := ax.Config{Rate: ax.PerMinute(1)}
			if lane != "" {
				cfg = ax.Config{Hosts: &ax.Lane{Rate: ax.PerMinute(1)}}
			}
			bubble(t, cfg, func(t *tester) {
				calls := qMany(t, 51, "/")
				t.Until(s)
				require.Equal(t, 1, t.Server.Count())
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{Rate: []ax.Rate{{Limit: 100, Smooth: true}}}))
				qOK(t, calls...)
				require.Equal(t, append([]time.Duration{0}, qEvery(s, 10*qms, 50)...), t.Server.Times())
				t.Until(3 * s)
				calls = qMany(t, 21, "/") // one starts, twenty wait
				synctest.Wait()
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{Rate: ax.PerSecond(1)}))
				qOK(t, calls...)
				require.Equal(t, qEvery(3*s, s, 21), t.Server.Times()[51:])
			})
		})
		t.Run("gate of "+lane, func(t *testing.T) {
			cfg := ax.Config{MaxConcurrent: 1}
			if lane != "" {
				cfg = ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}
			}
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(s, 200, "")
				calls := qMany(t, 14, "/")
				t.Until(500 * qms)
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 10}))
				synctest.Wait()
				require.Equal(t, 10, t.Server.Active())
				t.Until(700 * qms)
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 1}))
				synctest.Wait()
				require.Equal(t, 10, t.Server.Active(), "nothing is killed")
				qOK(t, calls...)
				want := append(append([]time.Duration{0}, qRepeat(500*qms, 9)...), qEvery(1500*qms, s, 4)...)
				require.Equal(t, want, t.Server.Times())
			})
		})
	}
}

// Waiting is told apart from the server's own time, and is never dressed up as an answer.
func TestCaseH60(t *testing.T) {
	const s = time.Second
	var events qEvents
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 1, OnEvent: events.add, Lanes: []ax.Lane{
		{Name: "a", Match: []string{"a.test"}, Rate: []ax.Rate{{Limit: 1, Per: 3 * s}}},
	}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qScript(map[string]time.Duration{"/hold": 4 * s, "/task": 250 * qms})
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/token")}).Status())
		hold := qSubmit(t, ax.Request{URL: "http://b.test/hold"})
		synctest.Wait()
		task := t.Go(t.Context(), ax.Request{URL: at("/task")}) // a token at 3 s, a slot at 4 s
		synctest.Wait()
		refused := t.Do(t.Context(), ax.Request{URL: at("/refused")})
		e := qErr(t, refused.Err, "admit", ax.ErrQueueFull)
		require.Nil(t, refused.Resp)
		require.Nil(t, e.Response)
		require.Zero(t, e.Attempts)
		r := <-task
		require.Equal(t, 200, r.Status())
		require.Equal(t, 1, r.Resp.Attempts)
		require.Equal(t, 4*s, r.Resp.Waited)
		require.Equal(t, 4250*qms, r.At)
		qOK(t, hold...)
		for _, ev := range events.of(ax.EventAttemptDone) {
			if ev.Task.URL() == at("/task") {
				require.Equal(t, 250*qms, ev.Took)
				require.Equal(t, 1, ev.Attempt)
			}
		}
		require.Equal(t, uint64(1), t.S.Stats().Rejected)
		require.Equal(t, uint64(0), t.S.Stats().Lanes["a"].Failures)
	})
}
