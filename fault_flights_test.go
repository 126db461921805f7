package ax_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func redirectTo(url string) *http.Response { return reply(302, "", "Location: "+url) }

// a hop waits longer than QueueTimeout
func TestFaultAHopWaitsLongerThanQueueTimeout(t *testing.T) {
	cfg := ax.Config{Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}}
	for _, dedupe := range []bool{false, true} {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.URL.Host == "a.test" {
					return redirectTo("http://b.test/to"), nil
				}
				if err := h.Sleep(time.Second); err != nil {
					return nil, err
				}
				return reply(200, ""), nil
			}
			first := t.Go(dBG, ax.Request{URL: "http://b.test/hold"})
			r := t.GoAt(10*time.Millisecond, dBG, ax.Request{URL: at("/from"), QueueTimeout: 100 * time.Millisecond, Dedupe: dedupe})
			got := <-r
			<-first
			if got.Err == nil {
				require.NotNil(t, got.Resp.Response, "nil error and no response, at %v", got.At)
			}
			require.ErrorIs(t, got.Err, ax.ErrQueueTimeout)
			require.Equal(t, 110*time.Millisecond, got.At)
		})
	}
}

// waiting of a shared flight's hop counts as attempt time
func TestFaultWaitingOfASharedFlightsHopCountsAsAttemptTime(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return redirectTo("http://b.test/to"), nil
			}
			if h.URL.Path == "/hold" {
				return after(time.Second, 200, "")(h)
			}
			return reply(200, "ok"), nil
		}
		first := t.Go(dBG, ax.Request{URL: "http://b.test/hold"})
		got := <-t.GoAt(10*time.Millisecond, dBG, ax.Request{URL: at("/from"), AttemptTimeout: 100 * time.Millisecond})
		<-first
		require.NoError(t, got.Err)
		require.NotNil(t, got.Resp.Response, "nil error and no response, at %v", got.At)
		require.Equal(t, 200, got.Status())
		require.Equal(t, time.Second, got.At)
	})
}

// a nested attempt is redirected to another lane
func TestFaultANestedAttemptIsRedirectedToAnotherLane(t *testing.T) {
	var s *ax.Scheduler
	bubble(t, ax.Config{}, func(t *tester) {
		s = t.S
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/outer":
				r, err := s.Get(h.Context(), "http://b.test/inner")
				if err != nil {
					return nil, err
				}
				return reply(r.StatusCode, ""), nil
			case "/inner":
				return redirectTo("http://c.test/far"), nil
			}
			return reply(200, ""), nil
		}
		got := <-t.Go(dBG, dGet("/outer"))
		require.NoError(t, got.Err)
		require.Equal(t, 200, got.Status())
		require.Equal(t, []string{"/outer", "/inner", "/far"}, t.Server.Paths())
	})
}

type countingGovernor struct {
	asks    atomic.Int32
	acquire func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error)
	paused  atomic.Int32
}

func (g *countingGovernor) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) {
	n := int(g.asks.Add(1))
	if n > 10000 {
		panic("asked 10000 times: livelock")
	}
	if g.acquire == nil {
		return ax.Grant{}, nil
	}
	return g.acquire(ctx, n, a)
}
func (g *countingGovernor) PauseUntil(string, time.Time) { g.paused.Add(1) }

// breaker with a governor recovers
func TestFaultBreakerWithAGovernorRecovers(t *testing.T) {
	g := &countingGovernor{}
	g.acquire = func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		time.Sleep(time.Millisecond)
		return ax.Grant{}, nil
	}
	bubble(t, ax.Config{Governor: g, Breaker: &ax.Breaker{Window: 1, MinCalls: 1, OpenFor: time.Second}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		<-t.Go(dBG, dGet("/1"))
		ctx, cancel := context.WithTimeout(dBG, 3*time.Second)
		defer cancel()
		got := <-t.Go(ctx, dGet("/2"))
		require.NoError(t, got.Err, "asks %d", g.asks.Load())
		require.Less(t, got.At, 1100*time.Millisecond)
	})
}

// owner's token bucket and a slow governor
func TestFaultOwnersTokenBucketAndASlowGovernor(t *testing.T) {
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		time.Sleep(1500 * time.Millisecond)
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, Budgets: map[string]ax.Budget{"o": {Rate: []ax.Rate{{Limit: 1, Burst: 1}}}}}, func(t *tester) {
		a := t.Go(dBG, ax.Request{URL: at("/1"), Owner: "o"})
		b := t.Go(dBG, ax.Request{URL: at("/2"), Owner: "o"})
		require.Equal(t, 200, (<-a).Status())
		require.Equal(t, 200, (<-b).Status())
	})
}

// SetBudget lowers the limit while the governor is being asked for a task that leaves
func TestFaultSetBudgetLowersTheLimitWhileTheGovernorIsBeingAskedForATaskT(t *testing.T) {
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n > 1 {
			time.Sleep(time.Second)
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 2}}}, func(t *tester) {
		t.Server.Reply = after(10*time.Second, 200, "")
		a := t.Go(dBG, ax.Request{URL: at("/1"), Owner: "o"})
		t.Until(100 * time.Millisecond)
		ctx, cancel := context.WithCancel(dBG)
		b := t.Go(ctx, ax.Request{URL: at("/2"), Owner: "o"})
		t.Until(200 * time.Millisecond)
		require.NoError(t, t.S.SetBudget("o", ax.Budget{MaxConcurrent: 1}))
		cancel()
		<-b
		require.Equal(t, 200, (<-a).Status())
	})
}

// DryRun: a panic of the executor
func TestFaultDryRunAPanicOfTheExecutor(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) { panic("boom") })}, func(t *tester) {
		require.Panics(t, func() { t.S.Get(dBG, at("/")) })
		done := make(chan struct{})
		go func() { t.S.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Hour):
			require.Fail(t, "Close hangs")
		}
	})
}

// the alternate's attempt panics
func TestFaultTheAlternatesAttemptPanics(t *testing.T) {
	alt := ax.Must(ax.Request{URL: at("/alt"), Prepare: func(*http.Request) error { panic("boom") }}.Task())
	log := &dLog{}
	bubble(t, ax.Config{OnEvent: log.On}, func(t *tester) {
		t.Server.Reply = after(0, 503, "")
		func() {
			defer func() { require.Equal(t, "boom", recover()) }()
			t.S.Send(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}})
		}()
		st := t.S.Stats()
		require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
	})
}

func TestFault08b(t *testing.T) {
	alt := ax.Must(ax.Request{URL: at("/alt"), Prepare: func(*http.Request) error { panic("boom") }}.Task())
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(0, 503, "")
		r, err := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}}.Task())).Result()
		t.Log(r, err)
	})
}

// Static ends its goroutine
func TestFaultStaticEndsItsGoroutine(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(0, 503, "")
		c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/"), Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
			runtime.Goexit()
			return nil, nil
		}}}.Task()))
		select {
		case <-c.Done():
		case <-time.After(time.Hour):
			require.Fail(t, "the Call never ends")
		}
	})
}

// OnEvent ends its goroutine
func TestFaultOnEventEndsItsGoroutine(t *testing.T) {
	bubble(t, ax.Config{OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventAttemptDone {
			runtime.Goexit()
		}
	}}, func(t *tester) {
		c := t.S.Submit(dBG, ax.Must(dGet("/").Task()))
		select {
		case <-c.Done():
		case <-time.After(time.Hour):
			require.Fail(t, "the Call never ends")
		}
	})
}

// the alternate answers with a stream
func TestFaultTheAlternateAnswersWithAStream(t *testing.T) {
	alt := ax.Must(ax.Request{URL: at("/alt"), Stream: true}.Task())
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/alt" {
				return dReply(dNewTrickle(h.Context(), time.Millisecond, "a", "b")), nil
			}
			return reply(503, ""), nil
		}
		got := t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}})
		require.NoError(t, got.Err)
		require.NotNil(t, got.Resp.Response)
		require.Equal(t, "ab", dText(t, got.Resp.Response))
	})
}

// a hedge moves the first attempt's timeout
func TestFaultAHedgeMovesTheFirstAttemptsTimeout(t *testing.T) {
	bubble(t, ax.Config{AttemptTimeout: 100 * time.Millisecond}, func(t *tester) {
		t.Server.Reply = after(10*time.Second, 200, "")
		got := t.Do(dBG, ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: 50 * time.Millisecond}})
		require.Error(t, got.Err)
		require.Equal(t, 100*time.Millisecond, t.Server.Hits()[0].End)
	})
}

// alarm of the first attempt outlives a hedge
func TestFaultAlarmOfTheFirstAttemptOutlivesAHedge(t *testing.T) {
	bubble(t, ax.Config{AttemptTimeout: time.Second}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.N {
			case 1:
				return after(100*time.Millisecond, 500, "")(h)
			case 2:
				return after(70*time.Millisecond, 500, "")(h)
			}
			return reply(200, ""), nil
		}
		got := t.Do(dBG, ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: 50 * time.Millisecond},
			Retry: &ax.Retry{Max: 3, BaseDelay: 2 * time.Second, Jitter: ax.NoJitter}})
		require.NoError(t, got.Err)
		t.Log(t.Server.Times())
		third := t.Server.Hits()[2].At
		require.GreaterOrEqual(t, third, 2*time.Second)
	})
}

// a deaf attempt, already abandoned, follows a redirect
func TestFaultADeafAttemptAlreadyAbandonedFollowsARedirect(t *testing.T) {
	for range 8 {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, AttemptTimeout: 100 * time.Millisecond}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				switch h.N {
				case 1:
					time.Sleep(200 * time.Millisecond) // deaf
					return redirectTo(at("/to")), nil
				}
				return reply(200, ""), nil
			}
			ctx, cancel := context.WithTimeout(dBG, time.Hour)
			defer cancel()
			got := t.Do(ctx, ax.Request{URL: at("/from"), Retry: &ax.Retry{BaseDelay: 2 * time.Second, Jitter: ax.NoJitter}})
			require.NoError(t, got.Err)
			require.Equal(t, 2105*time.Millisecond, got.At)
		})
	}
}

// stale: a write after the start of an unshared GET
func TestFaultStaleAWriteAfterTheStartOfAnUnsharedGET(t *testing.T) {
	for _, invalidate := range []bool{false, true} {
		bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.Method == "POST" {
					return reply(200, ""), nil
				}
				if h.N == 1 {
					return after(200*time.Millisecond, 200, "old")(h)
				}
				return reply(503, "down"), nil
			}
			get := t.Go(dBG, dGet("/x"))
			t.Until(50 * time.Millisecond)
			if invalidate {
				t.S.Invalidate(ax.Must(dGet("/x").Task()).Key())
			} else {
				require.Equal(t, 200, t.Do(dBG, ax.Request{Method: "POST", URL: at("/x")}).Status())
			}
			require.Equal(t, 200, (<-get).Status())
			got := t.Do(dBG, dGet("/x"))
			require.NoError(t, got.Err)
			require.Equal(t, 503, got.Status(), "source %v, invalidate %v", got.Resp.Source, invalidate)
		})
	}
}

// a newer task answered from the window ends the older ones of its name
func TestFaultANewerTaskAnsweredFromTheWindowEndsTheOlderOnesOfItsName(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/slow" {
				return after(300*time.Millisecond, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, dGet("/b"))
		old := t.Go(dBG, ax.Request{URL: at("/slow"), Supersede: "search"})
		t.Until(50 * time.Millisecond)
		got := t.Do(dBG, ax.Request{URL: at("/b"), Supersede: "search"})
		require.Equal(t, ax.FromWindow, got.Resp.Source)
		require.ErrorIs(t, (<-old).Err, ax.ErrSuperseded)
	})
}

// QueueTimeout of one of several callers, with a fallback
func TestFaultQueueTimeoutOfOneOfSeveralCallersWithAFallback(t *testing.T) {
	fb := &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return reply(200, "static"), nil }}
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}, Fallback: fb, QueueTimeout: 100 * time.Millisecond}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		hold := t.Go(dBG, dGet("/hold"))
		a := t.GoAt(10*time.Millisecond, dBG, dGet("/x"))
		b := t.GoAt(20*time.Millisecond, dBG, dGet("/x"))
		rb := <-b
		require.NoError(t, rb.Err)
		require.Equal(t, ax.FromStatic, rb.Resp.Source)
		ra := <-a
		<-hold
		require.NoError(t, ra.Err)
		require.Equal(t, ax.FromStatic, ra.Resp.Source)
	})
}

// a joiner of a nested flight that streams is dispatched unshared: it is not nested
func TestFaultAJoinerOfANestedFlightThatStreamsIsDispatchedUnsharedItIsNot(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 1, Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/outer":
				r, err := t.S.Get(h.Context(), "http://b.test/big")
				if err != nil {
					return nil, err
				}
				b, err := r.Bytes()
				return reply(200, string(b)[:1]), err
			case "/big":
				if h.N > 3 {
					return after(50*time.Millisecond, 200, "")(h)
				}
				return after(100*time.Millisecond, 200, "bigbig")(h)
			case "/hold":
				return after(time.Second, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		outer := t.Go(dBG, dGet("/outer"))
		t.Until(10 * time.Millisecond)
		hold := t.Go(dBG, ax.Request{URL: "http://b.test/hold"})
		t.Until(20 * time.Millisecond)
		joiner := t.Go(dBG, ax.Request{URL: "http://b.test/big"})
		rj := <-joiner
		ro := <-outer
		rh := <-hold
		require.NoError(t, ro.Err)
		require.NoError(t, rh.Err)
		require.NoError(t, rj.Err)
		if rj.Resp.Source == ax.FromNetwork {
			rj.Resp.Body.Close()
		}
		for _, h := range t.Server.Hits() {
			t.Log(h.URL, h.At, h.End)
		}
		third := t.Server.Hits()[3]
		require.Equal(t, 1010*time.Millisecond, third.At, "b.test has one slot, which /hold has until 1010ms")
	})
}

// DryRun: a nested call while shutting down
func TestFaultDryRunANestedCallWhileShuttingDown(t *testing.T) {
	bubble(t, ax.Config{DryRun: true}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/outer" {
				time.Sleep(100 * time.Millisecond)
				r, err := t.S.Get(h.Context(), at("/inner"))
				if err != nil {
					return nil, err
				}
				return reply(r.StatusCode, ""), nil
			}
			return reply(200, ""), nil
		}
		outer := t.Go(dBG, dGet("/outer"))
		t.Until(50 * time.Millisecond)
		go t.S.Shutdown(dBG)
		got := <-outer
		require.NoError(t, got.Err)
	})
}

// DryRun holds no redirect hop
func TestFaultDryRunHoldsNoRedirectHop(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, Rate: ax.PerMinute(1)}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/from" {
				return redirectTo(at("/to")), nil
			}
			return reply(200, ""), nil
		}
		got := t.Do(dBG, dGet("/from"))
		require.NoError(t, got.Err)
		require.Zero(t, got.At)
	})
}

// DryRun tells no Governor
func TestFaultDryRunTellsNoGovernor(t *testing.T) {
	g := &countingGovernor{}
	bubble(t, ax.Config{DryRun: true, Governor: g}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return reply(429, "", "Retry-After: 5"), nil }
		t.Do(dBG, dGet("/"))
		require.Zero(t, g.paused.Load())
	})
}

// a ghost that has started is not ended by QueueTimeout
func TestFaultAGhostThatHasStartedIsNotEndedByQueueTimeout(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, MaxConcurrent: 1, QueueTimeout: time.Second}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/1":
				return after(500*time.Millisecond, 200, "")(h)
			case "/2":
				return after(5*time.Second, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		a := t.Go(dBG, dGet("/1"))
		t.Until(time.Millisecond)
		b := t.Go(dBG, dGet("/2"))
		t.Until(2 * time.Second)
		c := t.Go(dBG, dGet("/3"))
		<-a
		<-c
		require.EqualValues(t, 2, t.S.Stats().Would.Queued)
		<-b
	})
}

// an owner in backoff is not forgotten
func TestFaultAnOwnerInBackoffIsNotForgotten(t *testing.T) {
	bubble(t, ax.Config{Owners: &ax.Budget{MaxConcurrent: 1}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, ""), nil
			}
			return after(10*time.Second, 200, "")(h)
		}
		a := t.Go(dBG, ax.Request{URL: at("/a"), Owner: "o", Retry: &ax.Retry{BaseDelay: 20 * time.Second, Jitter: ax.NoJitter}})
		t.Until(19 * time.Second)
		b := t.Go(dBG, ax.Request{URL: at("/b"), Owner: "o"})
		<-a
		<-b
		require.Equal(t, 1, t.Server.Peak(), "%v", t.Server.Times())
	})
}

// a lane whose task is away on a hop is not forgotten
func TestFaultALaneWhoseTaskIsAwayOnAHopIsNotForgotten(t *testing.T) {
	cfg := ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}
	bubble(t, cfg, func(t *tester) {
		var active, peak atomic.Int32
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				return after(15*time.Second, 503, "")(h)
			}
			if h.N == 1 {
				return redirectTo("http://b.test/"), nil
			}
			if n := active.Add(1); n > peak.Load() {
				peak.Store(n)
			}
			defer active.Add(-1)
			return after(10*time.Second, 200, "")(h)
		}
		a := t.Go(dBG, ax.Request{URL: at("/a"), Retry: &ax.Retry{BaseDelay: 5 * time.Second, Jitter: ax.NoJitter}})
		t.Until(18 * time.Second)
		b := t.Go(dBG, dGet("/b"))
		<-a
		<-b
		require.EqualValues(t, 1, peak.Load(), "%v", t.Server.Times())
	})
}

// an owner whose only task left the queue is forgotten
func TestFaultAnOwnerWhoseOnlyTaskLeftTheQueueIsForgotten(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(time.Minute, 200, "")
		hold := t.Go(dBG, dGet("/hold"))
		t.Until(time.Millisecond)
		ctx, cancel := context.WithCancel(dBG)
		w := t.Go(ctx, ax.Request{URL: at("/w"), Owner: "o"})
		t.Until(30 * time.Second)
		cancel()
		<-w
		<-hold
		t.Until(time.Hour)
		require.NotContains(t, t.S.Stats().Owners, "o")
	})
}

type revHandler struct{ f func() }

func (h revHandler) Enabled(context.Context, slog.Level) bool  { h.f(); return true }
func (h revHandler) Handle(context.Context, slog.Record) error { h.f(); return nil }
func (h revHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h revHandler) WithGroup(string) slog.Handler             { return h }

// a log handler may ask the scheduler
func TestFaultALogHandlerMayAskTheScheduler(t *testing.T) {
	var s *ax.Scheduler
	s, err := ax.New(nil, ax.Config{Logger: slog.New(revHandler{func() { s.Stats() }})})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { s.Pause("a.test"); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
		require.Fail(t, "deadlock: slog.Handler.Enabled is called under the mutex")
	}
}

// the grant of the lane that was left is lost after its release
func TestFaultTheGrantOfTheLaneThatWasLeftIsLostAfterItsRelease(t *testing.T) {
	lost := make(chan struct{})
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n == 1 {
			return ax.Grant{Lost: lost, Release: func() { close(lost) }}, nil
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return redirectTo("http://b.test/"), nil
			}
			return after(100*time.Millisecond, 200, "")(h)
		}
		got := t.Do(dBG, dGet("/"))
		require.NoError(t, got.Err)
	})
}

// Close ends an open stream that nobody reads
func TestFaultCloseEndsAnOpenStreamThatNobodyReads(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return dReply(dNewTrickle(h.Context(), time.Hour, "a", "b")), nil
		}
		got := t.Do(dBG, ax.Request{URL: at("/"), Stream: true})
		require.NoError(t, got.Err)
		done := make(chan struct{})
		go func() { t.S.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Hour):
			got.Resp.Body.Close()
			require.Fail(t, "Close hangs")
		}
		runtime.KeepAlive(got.Resp)
	})
}

// the slot of a stream whose caller's ctx has ended
func TestFaultTheSlotOfAStreamWhoseCallersCtxHasEnded(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return dReply(dNewTrickle(h.Context(), time.Hour, "a", "b")), nil
		}
		ctx, cancel := context.WithCancel(dBG)
		got := t.Do(ctx, ax.Request{URL: at("/"), Stream: true})
		require.NoError(t, got.Err)
		cancel()
		time.Sleep(time.Second)
		active := t.S.Stats().Active
		got.Resp.Body.Close()
		require.Zero(t, active)
	})
}

// joiners with other timeouts race with the start
func TestFaultJoinersWithOtherTimeoutsRaceWithTheStart(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Dedupe: &ax.Dedupe{}, Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		time.Sleep(100 * time.Microsecond)
		return reply(200, ""), nil
	})})
	require.NoError(t, err)
	defer s.Close()
	for range 300 {
		done := make(chan struct{}, 4)
		for i := range 4 {
			go func() {
				s.Send(dBG, ax.Request{URL: at("/"), AttemptTimeout: time.Duration(i+1) * time.Second})
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
	}
}

// both attempts of a hedged Submit keep an answer
func TestFaultBothAttemptsOfAHedgedSubmitKeepAnAnswer(t *testing.T) {
	var n atomic.Int32
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		if n.Add(1)%2 == 1 {
			time.Sleep(12 * time.Millisecond)
			return reply(500, "x"), nil
		}
		time.Sleep(11 * time.Millisecond)
		return reply(200, "y"), nil
	})})
	require.NoError(t, err)
	defer s.Close()
	for range 20 {
		c := s.Submit(dBG, ax.Must(ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: time.Millisecond}}.Task()))
		c.Result()
	}
}

// IsFailure judges the timeout of a deaf attempt too
func TestFaultIsFailureJudgesTheTimeoutOfADeafAttemptToo(t *testing.T) {
	var asked atomic.Int32
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, AttemptTimeout: 100 * time.Millisecond, Breaker: &ax.Breaker{Window: 1, MinCalls: 1, IsFailure: func(o ax.Outcome) bool { asked.Add(1); return false }}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			time.Sleep(time.Second) // deaf
			return reply(200, ""), nil
		}
		got := t.Do(dBG, dGet("/"))
		require.Error(t, got.Err)
		require.Equal(t, ax.BreakerClosed, t.S.Stats().Lanes["a.test"].Breaker)
		require.EqualValues(t, 1, asked.Load())
		t.Until(2 * time.Second)
	})
}

// Retry.If panics for a deaf attempt
func TestFaultRetryIfPanicsForADeafAttempt(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, AttemptTimeout: 100 * time.Millisecond, Retry: &ax.Retry{If: func(o ax.Outcome) bool { panic("boom") }}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			time.Sleep(time.Second) // deaf
			return reply(200, ""), nil
		}
		c := t.S.Submit(dBG, ax.Must(dGet("/").Task()))
		_, err := c.Result()
		require.Error(t, err)
		t.Until(2 * time.Second)
	})
}

// the first caller, whose body can be read once, leaves a queued flight
func TestFaultTheFirstCallerWhoseBodyCanBeReadOnceLeavesAQueuedFlight(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		hold := t.Go(dBG, dGet("/hold"))
		t.Until(time.Millisecond)
		mk := func() *ax.Task {
			u, _ := url.Parse(at("/up"))
			return ax.Must(ax.TaskFrom(&http.Request{Method: "PUT", URL: u, Body: io.NopCloser(bytes.NewReader([]byte("x"))), ContentLength: 1}, ax.Request{DedupeKey: "k"}))
		}
		ctx, cancel := context.WithCancel(dBG)
		a := t.S.Submit(ctx, mk())
		b := t.S.Submit(dBG, mk())
		t.Until(100 * time.Millisecond)
		cancel()
		_, err := a.Result()
		require.ErrorIs(t, err, context.Canceled)
		_, err = b.Result()
		<-hold
		require.NoError(t, err)
	})
}

// a nil ctx for a scope leaves no mutex locked
func TestFaultANilCtxForAScopeLeavesNoMutexLocked(t *testing.T) {
	s, err := ax.New(nil, ax.Config{})
	require.NoError(t, err)
	func() {
		defer func() { recover() }()
		//lint:ignore SA1012 that is the point
		s.Scope(nil)
	}()
	done := make(chan struct{})
	go func() { s.Stats(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
		require.Fail(t, "locked for ever")
	}
}

// a hop is an attempt of the lane it goes to
func TestFaultAHopIsAnAttemptOfTheLaneItGoesTo(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return redirectTo("http://b.test/"), nil
			}
			return reply(500, ""), nil
		}
		t.Do(dBG, dGet("/"))
		b := t.S.Stats().Lanes["b.test"]
		require.GreaterOrEqual(t, b.Attempts, b.Failures)
	})
}
