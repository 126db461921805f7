package ax_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// selfCtx asks the scheduler, as a tracing or auth context may
type selfCtx struct {
	context.Context
	f func()
}

func (c selfCtx) Value(k any) any { c.f(); return c.Context.Value(k) }

// a ctx is user code too
func TestFaultACtxIsUserCodeToo(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) { return reply(200, ""), nil })})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { s.Get(selfCtx{dBG, func() { s.Stats() }}, at("/")); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
		require.Fail(t, "deadlock: ctx.Value is called under the mutex")
	}
}

// a tag, a scope or Close ends a lone task while its fallback runs
func TestFaultATagAScopeOrCloseEndsALoneTaskWhileItsFallbackRuns(t *testing.T) {
	alt := ax.Must(ax.Request{URL: "http://b.test/alt"}.Task())
	static := func(ctx context.Context, _ *ax.Task, _ error) (*http.Response, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Second):
			return reply(200, ""), nil
		}
	}
	for name, fb := range map[string]*ax.Fallback{"alternate": {Alternate: alt}, "static": {Static: static}} {
		for _, dedupe := range []bool{true, false} {
			bubble(t, ax.Config{}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.URL.Host == "b.test" {
						return after(10*time.Second, 200, "")(h)
					}
					return reply(503, ""), nil
				}
				got := t.Go(dBG, ax.Request{URL: at("/"), Tags: []string{"x"}, Dedupe: dedupe, Fallback: fb})
				t.Until(100 * time.Millisecond)
				require.Equal(t, 1, t.S.CancelTag("x"))
				r := <-got
				require.ErrorIs(t, r.Err, ax.ErrCanceledByTag)
				require.Equal(t, 100*time.Millisecond, r.At, "%s, dedupe %v", name, dedupe)
			})
		}
	}
}

// Close while a lone task's Static waits for its ctx
func TestFaultCloseWhileALoneTasksStaticWaitsForItsCtx(t *testing.T) {
	static := func(ctx context.Context, _ *ax.Task, _ error) (*http.Response, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Hour):
			return reply(200, ""), nil
		}
	}
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(0, 503, "")
		got := t.Go(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Static: static}})
		t.Until(100 * time.Millisecond)
		t.S.Close()
		require.Equal(t, 100*time.Millisecond, t.At())
		require.ErrorIs(t, (<-got).Err, ax.ErrClosed)
	})
}

// Run has no use for the answer of a fallback
func TestFaultRunHasNoUseForTheAnswerOfAFallback(t *testing.T) {
	boom := errors.New("boom")
	bubble(t, ax.Config{Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return reply(200, ""), nil }}}, func(t *tester) {
		n, err := ax.Run(dBG, t.S, ax.Must(dGet("/").Task()), func(context.Context) (int, error) { return 7, boom })
		require.ErrorIs(t, err, boom, "got %d", n)
	})
}

// an executor that ends its goroutine, hedged
func TestFaultAnExecutorThatEndsItsGoroutineHedged(t *testing.T) {
	bubble(t, ax.Config{Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) { runtime.Goexit(); return nil, nil })}, func(t *tester) {
		ctx, cancel := context.WithTimeout(dBG, time.Hour)
		defer cancel()
		got := <-t.Go(ctx, ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: time.Second}})
		require.Error(t, got.Err)
		require.Less(t, got.At, time.Minute)
	})
}

// a governor that refuses for good
func TestFaultAGovernorThatRefusesForGood(t *testing.T) {
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		time.Sleep(time.Millisecond)
		return ax.Grant{RetryIn: math.MaxInt64}, nil
	}}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		t.Do(ctx, dGet("/"))
		require.EqualValues(t, 1, g.asks.Load())
	})
}

// AttemptTimeout of a joiner of an attempt that began at the very beginning
func TestFaultAttemptTimeoutOfAJoinerOfAnAttemptThatBeganAtTheVeryBeginnin(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(500*time.Millisecond, 200, "")
		a := t.Go(dBG, ax.Request{URL: at("/"), AttemptTimeout: 100 * time.Millisecond})
		b := t.GoAt(50*time.Millisecond, dBG, ax.Request{URL: at("/"), AttemptTimeout: time.Second})
		rb := <-b
		<-a
		require.NoError(t, rb.Err)
	})
}

// a stale answer's bound is the asker's, whoever kept it last
func TestFaultAStaleAnswersBoundIsTheAskersWhoeverKeptItLast(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		down := false
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if down {
				return reply(503, ""), nil
			}
			return reply(200, "v"), nil
		}
		long := ax.Request{URL: at("/"), Fallback: &ax.Fallback{Stale: time.Hour}}
		short := ax.Request{URL: at("/"), Fallback: &ax.Fallback{Stale: time.Second}}
		t.Do(dBG, long)
		t.Do(dBG, short)
		down = true
		t.Until(time.Minute)
		got := t.Do(dBG, long)
		require.Equal(t, ax.FromStale, got.Resp.Source)
	})
}

// with a task's own Retry its MaxDelay bounds the pause of the lane
func TestFaultWithATasksOwnRetryItsMaxDelayBoundsThePauseOfTheLane(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return reply(429, "", "Retry-After: 3600"), nil }
		t.Do(dBG, ax.Request{URL: at("/"), Retry: &ax.Retry{MaxDelay: 5 * time.Second}})
		require.Equal(t, t.start.Add(5*time.Second), t.S.Stats().Lanes["a.test"].PausedUntil)
	})
}

// caller ctx ended by deadline during a lone backoff and during alternates
func TestFaultCallerCtxEndedByDeadlineDuringALoneBackoffAndDuringAlternate(t *testing.T) {
	alt := ax.Must(ax.Request{URL: "http://b.test/alt"}.Task())
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 503, "")
		ctx, cancel := context.WithTimeout(dBG, 150*time.Millisecond)
		defer cancel()
		got := <-t.Go(ctx, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}})
		require.ErrorIs(t, got.Err, context.DeadlineExceeded)
	})
}

// one slot, streams handed over to callers that left at the same time
func TestFaultOneSlotStreamsHandedOverToCallersThatLeftAtTheSameTime(t *testing.T) {
	for range 20 {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxConcurrent: 1, MaxBodyBytes: 1}, func(t *tester) {
			t.Server.Reply = after(100*time.Millisecond, 200, "big")
			ctx, cancel := context.WithTimeout(dBG, 100*time.Millisecond)
			defer cancel()
			a := t.Go(ctx, dGet("/"))
			b := t.Go(dBG, dGet("/"))
			c := t.Go(ctx, dGet("/"))
			for _, r := range []<-chan result{a, b, c} {
				go func() {
					if got := <-r; got.Err == nil {
						got.Resp.Body.Close()
					}
				}()
			}
			t.Until(10 * time.Second)
			require.Zero(t, t.S.Stats().Active)
		})
	}
}

// a window answer shows nobody another caller's context
func TestFaultAWindowAnswerShowsNobodyAnotherCallersContext(t *testing.T) {
	type key struct{}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		t.Server.Reply = after(0, 200, "")
		t.Do(context.WithValue(dBG, key{}, "secret of A"), dGet("/"))
		got := t.Do(dBG, dGet("/"))
		require.Nil(t, got.Resp.Request.Context().Value(key{}))
	})
}

// fallback of a refused hop by ErrBudget or ErrQueueFull etc: error identity and Op
func TestFaultFallbackOfARefusedHopByErrBudgetOrErrQueueFullEtcErrorIdenti(t *testing.T) {
	cfg := ax.Config{Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, Breaker: &ax.Breaker{Window: 1, MinCalls: 1, WhenOpen: ax.OpenReject}}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				return reply(500, ""), nil
			}
			return redirectTo("http://b.test/"), nil
		}
		t.Do(dBG, ax.Request{URL: "http://b.test/"})
		got := t.Do(dBG, dGet("/"))
		require.ErrorIs(t, got.Err, ax.ErrCircuitOpen)
		require.Equal(t, "attempt", dError(t, got.Err).Op)
		require.EqualValues(t, 0, t.S.Stats().Lanes["a.test"].Failures)
	})
}

// Shutdown: a task sent alone after a stream into a lane that is paused ends at once
func TestFaultShutdownATaskSentAloneAfterAStreamIntoALaneThatIsPausedEndsA(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 1, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 200, "big")
		a := t.Go(dBG, dGet("/"))
		b := t.Go(dBG, dGet("/"))
		t.Until(50 * time.Millisecond)
		require.NoError(t, t.S.Pause("a.test"))
		go t.S.Shutdown(dBG)
		t.Until(200 * time.Millisecond)
		ra, rb := result{}, result{}
		select {
		case ra = <-a:
		case <-time.After(time.Minute):
		}
		if ra.Resp != nil {
			ra.Resp.Body.Close()
		}
		select {
		case rb = <-b:
		case <-time.After(time.Minute):
			require.Fail(t, "the paused lane holds a task while draining")
		}
		if rb.Resp != nil {
			rb.Resp.Body.Close()
		}
	})
}
