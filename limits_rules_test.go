package ax_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The slot is held from the send to the end of the body, not only to the headers.
func TestL1SlotCoversTheBody(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return qSlow(h, time.Second), nil }
		qOK(t, qSubmit(t, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")}, ax.Request{URL: at("/3")})...)
		require.Equal(t, qEvery(0, time.Second, 3), t.Server.Times())
		require.Equal(t, 3*time.Second, t.At())
	})
}

// A stream's slot is held until its body is closed or read to the end.
func TestL1SlotCoversTheStream(t *testing.T) {
	ends := map[string]func(*ax.Response) error{
		"close": func(r *ax.Response) error { return r.Body.Close() },
		"EOF":   func(r *ax.Response) error { _, err := io.Copy(io.Discard, r.Body); return err },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) { return qSlow(h, 0), nil }
				stream := t.Do(t.Context(), ax.Request{URL: at("/stream"), Stream: true})
				require.Equal(t, 200, stream.Status())
				require.Zero(t, stream.At)
				waiter := qSubmit(t, ax.Request{URL: at("/waiter")})
				t.Until(2 * time.Second)
				require.Equal(t, 1, t.Server.Count())
				require.Equal(t, 1, t.S.Stats().Active)
				require.NoError(t, end(stream.Resp))
				qOK(t, waiter...)
				require.NoError(t, stream.Resp.Body.Close()) // twice frees nothing twice
				require.Equal(t, []time.Duration{0, 2 * time.Second}, t.Server.Times())
				hold := t.Do(t.Context(), ax.Request{URL: at("/stream"), Stream: true})
				require.NoError(t, stream.Resp.Body.Close())
				qErr(t, t.Do(t.Context(), ax.Request{URL: at("/"), NoWait: true}).Err, "admit", ax.ErrWouldWait)
				require.NoError(t, hold.Resp.Body.Close())
			})
		})
	}
}

// A waiting retry holds no slot, and takes a fresh one when it is due.
func TestL1RetryHoldsNoSlot(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, ""), nil
			}
			return qHold(3 * time.Second)(h)
		}
		calls := qSubmit(t, ax.Request{URL: at("/retried")})
		synctest.Wait()
		require.Zero(t, t.S.Stats().Active)
		require.Equal(t, 1, t.S.Stats().Parked)
		require.Zero(t, t.S.Stats().Queued)
		calls = append(calls, qSubmit(t, ax.Request{URL: at("/hold")})...)
		qOK(t, calls...)
		require.Equal(t, []string{"/retried", "/hold", "/retried"}, t.Server.Paths())
		require.Equal(t, []time.Duration{0, 0, 3 * time.Second}, t.Server.Times())
		resp, _ := calls[0].Result()
		require.Equal(t, 2, resp.Attempts)
		require.Equal(t, 2*time.Second, resp.Waited, "the wait for the second slot; backoff is no queue")
	})
}

// Each attempt pays a token of its own.
func TestL1RetryPaysAToken(t *testing.T) {
	cfg := ax.Config{Rate: ax.PerSecond(1), Retry: &ax.Retry{BaseDelay: 100 * qms, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qFirst(2, 503)
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status())
		require.Equal(t, qEvery(0, time.Second, 3), t.Server.Times())
	})
}

func TestL2Rates(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name string
		rate []ax.Rate
		want []time.Duration
	}{
		{"window", ax.PerSecond(2), []time.Duration{0, 0, s, s, 2 * s, 2 * s}},
		{"Per 0 is a second", []ax.Rate{{Limit: 3}}, []time.Duration{0, 0, 0, s, s, s}},
		{"a minute", ax.PerMinute(1), qEvery(0, time.Minute, 3)},
		{"smooth", []ax.Rate{{Limit: 4, Smooth: true}}, qEvery(0, 250*qms, 9)},
		{"guard", []ax.Rate{{Limit: 2, Guard: 100 * qms}}, []time.Duration{0, 0, 1100 * qms, 1100 * qms, 2200 * qms}},
		{"bucket of one", []ax.Rate{{Limit: 10, Burst: 1}}, qEvery(0, 100*qms, 12)},
		{"bucket of three", []ax.Rate{{Limit: 10, Burst: 3}}, append([]time.Duration{0, 0}, qEvery(0, 100*qms, 6)...)},
		{"bucket larger than the limit", []ax.Rate{{Limit: 1, Burst: 3}}, []time.Duration{0, 0, 0, s, 2 * s}},
		{"all must allow", []ax.Rate{{Limit: 2, Per: s}, {Limit: 3, Per: 10 * s}}, []time.Duration{0, 0, s, 10 * s, 10 * s, 11 * s, 20 * s}},
		{"window and bucket", []ax.Rate{{Limit: 3, Per: s}, {Limit: 2, Per: s, Burst: 1}}, qEvery(0, 500*qms, 5)},
		{"largest limit", []ax.Rate{{Limit: math.MaxInt / 2}}, qRepeat(0, 50)},
		{"largest bucket", []ax.Rate{{Limit: 1, Burst: math.MaxInt}}, qRepeat(0, 50)},
		{"longest window", []ax.Rate{{Limit: 2, Per: math.MaxInt64 / 2}}, qRepeat(0, 2)},
		{"unlimited", ax.Unlimited(), qRepeat(0, 50)},
	}
	for _, tt := range tests {
		for _, where := range []string{"scheduler", "lane"} {
			t.Run(tt.name+"/"+where, func(t *testing.T) {
				cfg := ax.Config{Rate: tt.rate}
				if where == "lane" {
					cfg = ax.Config{Hosts: &ax.Lane{Rate: tt.rate}}
				}
				bubble(t, cfg, func(t *tester) {
					var calls []*ax.Call
					for range tt.want {
						calls = append(calls, qSubmit(t, ax.Request{URL: at("/")})...)
					}
					qOK(t, calls...)
					require.Equal(t, tt.want, t.Server.Times())
				})
			})
		}
	}
}

// Never more than five starts in any second, whenever they are asked for, and
// hardly any of the allowed rate unused.
func TestL2RateIsExactAndUsed(t *testing.T) {
	bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 5}}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Duration(h.N*7919%3000) * qms); err != nil {
				return nil, err
			}
			return reply(200, ""), nil
		}
		var calls []*ax.Call
		for i := range 1000 {
			calls = append(calls, qSubmit(t, ax.Request{URL: at("/"), Priority: ax.Priority(i % 4)})...)
			if i%3 == 0 {
				time.Sleep(time.Duration(i*104729%100) * qms) // 1000 tasks in some 17 s: always more than may start
			}
		}
		qOK(t, calls...)
		times := t.Server.Times()
		require.Len(t, times, 1000)
		qWindow(t, times, 5, time.Second)
		require.LessOrEqual(t, times[999], 203*time.Second, "98 % of five a second")
	})
}

// Idle time is not saved up beyond the bucket, and not at all in a window.
func TestL2IdleTimeIsNotSavedUp(t *testing.T) {
	for name, rate := range map[string]ax.Rate{"bucket": {Limit: 10, Burst: 2}, "smooth": {Limit: 10, Smooth: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Rate: []ax.Rate{rate}}, func(t *tester) {
				t.Until(time.Hour)
				var calls []*ax.Call
				for range 5 {
					calls = append(calls, qSubmit(t, ax.Request{URL: at("/")})...)
				}
				qOK(t, calls...)
				want := qEvery(time.Hour, 100*qms, 5)
				if name == "bucket" {
					want = append([]time.Duration{time.Hour}, qEvery(time.Hour, 100*qms, 4)...)
				}
				require.Equal(t, want, t.Server.Times())
			})
		})
	}
}

// An entry of a window counts until Per after the Executor was called: what the
// grant cost on its way to the wire does not bring two starts nearer to each other.
func TestL2WindowIsExactAtTheWire(t *testing.T) {
	asks := 0
	gov := qGovernor(func(ctx context.Context, _ ax.Ask) (ax.Grant, error) {
		if asks++; asks == 1 {
			time.Sleep(300 * qms)
		}
		return ax.Grant{Release: func() {}}, nil
	})
	bubble(t, ax.Config{MaxConcurrent: 8, Rate: ax.PerSecond(1), Governor: gov}, func(t *tester) {
		qOK(t, qSubmit(t, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")}, ax.Request{URL: at("/3")})...)
		require.Equal(t, []time.Duration{300 * qms, 1300 * qms, 2300 * qms}, t.Server.Times())
	})
}

// By the moments that events tell, no window ever sees a start too many, however the
// goroutines of those who start fare between grant and call.
func TestL2WindowIsExactInRealTime(t *testing.T) {
	const limit, per = 20, 50 * time.Millisecond
	var mu sync.Mutex
	var starts []time.Time
	s, err := ax.New(nil, ax.Config{
		Rate: []ax.Rate{{Limit: limit, Per: per}},
		OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventStarted {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, e.Time)
			}
		},
		Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	task := ax.Must(ax.Request{URL: at("/")}.Task())
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for range 10 {
				_, err := s.Do(dBG, task)
				assert.NoError(t, err)
			}
		})
	}
	callers.Wait()
	slices.SortFunc(starts, time.Time.Compare)
	require.Len(t, starts, 320)
	for i := limit; i < len(starts); i++ {
		require.GreaterOrEqual(t, starts[i].Sub(starts[i-limit]), per, "start %d", i)
	}
}

// A task that waits for a slot takes no token before it starts.
func TestL2NoTokenWhileQueued(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 2, Per: 10 * time.Second}}}, func(t *tester) {
		t.Server.Reply = qHold(9 * time.Second)
		hold := qSubmit(t, ax.Request{URL: at("/hold")})
		synctest.Wait()
		calls := qSubmit(t, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")}, ax.Request{URL: at("/3")})
		qOK(t, append(hold, calls...)...)
		// /1 takes the second token at 9 s, not at 0: it counts until 19 s.
		require.Equal(t, []time.Duration{0, 9 * time.Second, 10 * time.Second, 19 * time.Second}, t.Server.Times())
	})
}

// What cannot start takes none of what it would have needed.
func TestL3AllAtOnceOrNone(t *testing.T) {
	const s = time.Second
	t.Run("blocked by its lane's gate: no token of the scheduler", func(t *testing.T) {
		bubble(t, ax.Config{Rate: ax.PerSecond(1), Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
			t.Server.Reply = qHold(10 * s)
			qSubmit(t, ax.Request{URL: at("/hold")})
			qSubmit(t, ax.Request{URL: at("/blocked"), Priority: ax.Urgent})
			qOK(t, qSubmit(t, ax.Request{URL: "http://b.test/1", Priority: ax.Low}, ax.Request{URL: "http://b.test/2", Priority: ax.Low})...)
			require.Equal(t, qEvery(0, s, 3), t.Server.Times())
		})
	})
	t.Run("blocked by the scheduler's gate: no token of its lane", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: 10 * s}}}}, func(t *tester) {
			t.Server.Reply = qHold(9 * s)
			hold := qSubmit(t, ax.Request{URL: "http://b.test/hold"})
			synctest.Wait()
			calls := qSubmit(t, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")})
			qOK(t, append(hold, calls...)...)
			require.Equal(t, []time.Duration{0, 9 * s, 19 * s}, t.Server.Times())
		})
	})
	t.Run("blocked by its lane: nothing of its owner's", func(t *testing.T) {
		budget := ax.Budget{MaxConcurrent: 2, Rate: []ax.Rate{{Limit: 2, Per: time.Minute}}}
		cfg := ax.Config{Budgets: map[string]ax.Budget{"o": budget}, Hosts: &ax.Lane{MaxConcurrent: 1}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = qHold(10 * s)
			qSubmit(t, ax.Request{URL: at("/hold"), Owner: "o"})
			qSubmit(t, ax.Request{URL: at("/blocked"), Owner: "o", Priority: ax.Urgent})
			t.Until(s)
			require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/free", Owner: "o"}).Status())
			require.Equal(t, s, qSeen(t)["/free"])
		})
	})
	t.Run("blocked by its owner: nothing of lane and scheduler", func(t *testing.T) {
		cfg := ax.Config{MaxConcurrent: 2, Rate: ax.PerSecond(1), Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1}}, Hosts: &ax.Lane{MaxConcurrent: 2}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = qHold(10 * s)
			qSubmit(t, ax.Request{URL: at("/hold"), Owner: "o"}, ax.Request{URL: at("/parked"), Owner: "o", Priority: ax.Urgent})
			qOK(t, qSubmit(t, ax.Request{URL: at("/1"), Priority: ax.Low}, ax.Request{URL: at("/2"), Priority: ax.Low})...)
			require.Equal(t, qEvery(0, s, 3), t.Server.Times())
		})
	})
	t.Run("one rate of two is empty: the other is not spent", func(t *testing.T) {
		bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 1, Per: 5 * s}, {Limit: 1, Per: 3 * s}}}, func(t *tester) {
			qOK(t, qSubmit(t, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")}, ax.Request{URL: at("/3")})...)
			require.Equal(t, qEvery(0, 5*s, 3), t.Server.Times())
		})
	})
}

func TestL4Reject(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 2}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: at("/1"), Priority: ax.Low}, ax.Request{URL: at("/2"), Priority: ax.Low})
		t.Until(100 * qms)
		r := t.Do(t.Context(), ax.Request{URL: at("/3"), Priority: ax.Urgent})
		require.Equal(t, 100*qms, r.At)
		e := qErr(t, r.Err, "admit", ax.ErrQueueFull)
		require.Zero(t, e.Attempts)
		require.False(t, e.Timeout())
		require.Equal(t, uint64(1), t.S.Stats().Rejected)
		qOK(t, calls...)
		require.Equal(t, []string{"/hold", "/1", "/2"}, t.Server.Paths())
	})
}

func TestL4Evict(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 2, Overflow: ax.OverflowEvict}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: at("/low"), Priority: ax.Low}, ax.Request{URL: at("/normal")})
		_, err := qSubmit(t, ax.Request{URL: at("/same"), Priority: ax.Low})[0].Result()
		qErr(t, err, "admit", ax.ErrQueueFull) // does not outrank the worst
		urgent := qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
		_, err = calls[1].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		require.Zero(t, t.At())
		require.Equal(t, 2, t.S.Stats().Queued)
		important := qSubmit(t, ax.Request{URL: at("/important"), Priority: ax.Important})
		_, err = calls[2].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		_, err = qSubmit(t, ax.Request{URL: at("/late")})[0].Result()
		qErr(t, err, "admit", ax.ErrQueueFull)
		qOK(t, calls[0], urgent[0], important[0])
		require.Equal(t, []string{"/hold", "/urgent", "/important"}, t.Server.Paths())
		require.Equal(t, uint64(4), t.S.Stats().Rejected)
	})
}

// By age a low task can outrank an urgent newcomer.
func TestL4EvictGoesByRankNotByPriority(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 1, Overflow: ax.OverflowEvict, AgingStep: time.Second}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qHold(10 * time.Second)
		calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: at("/low"), Priority: ax.Low})
		t.Until(3001 * qms)
		_, err := qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})[0].Result()
		qErr(t, err, "admit", ax.ErrQueueFull)
		qOK(t, calls...)
	})
}

// The waiter that goes is the worst of the queue that is full: of the lane's, though another lane has a worse one.
func TestL4EvictFromTheFullQueue(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Overflow: ax.OverflowEvict, Hosts: &ax.Lane{MaxQueue: 1}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: "http://b.test/low", Priority: ax.Low},
			ax.Request{URL: at("/normal")}, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
		_, err := calls[2].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		qOK(t, calls[0], calls[1], calls[3])
		require.Equal(t, []string{"/hold", "/urgent", "/low"}, t.Server.Paths())
	})
	t.Run("the scheduler's: whatever the lane", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 2, Overflow: ax.OverflowEvict}, func(t *tester) {
			t.Server.Reply = qHold(time.Second)
			calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: "http://b.test/low", Priority: ax.Low},
				ax.Request{URL: at("/normal")}, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
			_, err := calls[1].Result()
			qErr(t, err, "queue", ax.ErrEvicted)
			qOK(t, calls[0], calls[2], calls[3])
		})
	})
}

// Parked tasks are evicted like any other, of a pause and of an owner.
func TestL4EvictParked(t *testing.T) {
	cfg := ax.Config{MaxQueue: 2, Overflow: ax.OverflowEvict, Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		require.NoError(t, t.S.Pause("b.test"))
		calls := qSubmit(t, ax.Request{URL: at("/hold"), Owner: "o"},
			ax.Request{URL: "http://b.test/paused", Priority: ax.Low}, ax.Request{URL: at("/owner"), Owner: "o"})
		require.Equal(t, 2, t.S.Stats().Parked)
		urgent := qSubmit(t, ax.Request{URL: "http://b.test/1", Priority: ax.Urgent})
		_, err := calls[1].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		important := qSubmit(t, ax.Request{URL: "http://b.test/2", Priority: ax.Important})
		_, err = calls[2].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		require.NoError(t, t.S.Resume("b.test"))
		qOK(t, calls[0], urgent[0], important[0])
	})
}

// A retry is never evicted, nor does it count.
func TestL4RetryIsNotEvicted(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 1, Overflow: ax.OverflowEvict, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, ""), nil
			}
			return qHold(3 * time.Second)(h)
		}
		calls := qSubmit(t, ax.Request{URL: at("/retried"), Priority: ax.Low})
		synctest.Wait()
		calls = append(calls, qSubmit(t, ax.Request{URL: at("/hold")})...)
		t.Until(2 * time.Second) // the retry waits for the slot
		calls = append(calls, qSubmit(t, ax.Request{URL: at("/normal")})...)
		urgent := qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
		_, err := calls[2].Result()
		qErr(t, err, "queue", ax.ErrEvicted)
		qOK(t, calls[0], calls[1], urgent[0])
	})
}

// A flight counts once and is evicted with all its callers.
func TestL4EvictedFlight(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 2, Overflow: ax.OverflowEvict, Dedupe: &ax.Dedupe{}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		shared := ax.Request{URL: at("/shared"), Priority: ax.Low}
		calls := qSubmit(t, ax.Request{URL: at("/hold")}, shared, shared, shared, ax.Request{URL: at("/normal")})
		synctest.Wait()
		require.Equal(t, uint64(0), t.S.Stats().Rejected, "three callers, one place")
		urgent := qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
		for _, c := range calls[1:4] {
			_, err := c.Result()
			qErr(t, err, "queue", ax.ErrEvicted)
		}
		qOK(t, calls[0], calls[4], urgent[0])
		require.Equal(t, []string{"/hold", "/urgent", "/normal"}, t.Server.Paths())
	})
}
