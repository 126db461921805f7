package ax_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// a nested task's own moment is not forgotten when its lane gets another alarm
func TestFaultANestedTasksOwnMomentIsNotForgottenWhenItsLaneGetsAnotherAla(t *testing.T) {
	cfg := ax.Config{
		Budgets: map[string]ax.Budget{"o": {Rate: []ax.Rate{{Limit: 1, Per: 2 * time.Second, Burst: 1}}}},
		Lanes:   []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 2, Rate: nil}},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch {
			case h.URL.Path == "/outer":
				r, err := t.S.Send(h.Context(), ax.Request{URL: "http://b.test/nested", Owner: "o"})
				if err != nil {
					return nil, err
				}
				return reply(r.StatusCode, ""), nil
			case h.URL.Path == "/429":
				return reply(429, "", "Retry-After: 1"), nil
			case h.URL.Path == "/q":
				return after(10*time.Second, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, ax.Request{URL: at("/use"), Owner: "o"}) // the token, back at 2 s
		t.Until(500 * time.Millisecond)
		t.Do(dBG, ax.Request{URL: "http://b.test/429"}) // paused until 1.5 s, then on a ramp to 2.5 s
		var q []<-chan result
		for range 3 {
			q = append(q, t.Go(dBG, ax.Request{URL: "http://b.test/q"}))
		}
		outer := t.Go(dBG, dGet("/outer"))
		got := <-outer
		require.NoError(t, got.Err)
		for _, c := range q {
			<-c
		}
		t.Log(t.Server.Times(), t.Server.Paths())
		require.Equal(t, 2*time.Second, got.At)
	})
}

// the answer of a retry that was refused later is whole, or says that it is not
func TestFaultTheAnswerOfARetryThatWasRefusedLaterIsWholeOrSaysThatItIsNot(t *testing.T) {
	body := strings.Repeat("x", 300<<10)
	cfg := ax.Config{Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}, Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 1}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/hold" {
				return after(10*time.Second, 200, "")(h)
			}
			return reply(503, body), nil
		}
		got := t.Go(dBG, ax.Request{URL: at("/"), QueueTimeout: time.Second})
		t.Until(100 * time.Millisecond)
		hold := t.Go(dBG, dGet("/hold"))
		r := <-got
		<-hold
		require.NoError(t, r.Err)
		require.ErrorIs(t, r.Resp.Cause, ax.ErrQueueTimeout)
		b, err := r.Resp.Bytes()
		if err == nil {
			require.Len(t, b, len(body), "a part of the body without an error")
		}
	})
}

// a transport error whose retry would be too late still has its alternate
func TestFaultATransportErrorWhoseRetryWouldBeTooLateStillHasItsAlternate(t *testing.T) {
	alt := ax.Must(ax.Request{URL: "http://b.test/alt"}.Task())
	bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: 3 * time.Second, Jitter: ax.NoJitter}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				return reply(200, ""), nil
			}
			return nil, errors.New("connection reset")
		}
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		got := t.Do(ctx, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}})
		require.NoError(t, got.Err)
		require.Equal(t, ax.FromAlternate, got.Resp.Source)
	})
}

// the caller leaves while the alternate runs: alone or sharing, it is Canceled
func TestFaultTheCallerLeavesWhileTheAlternateRunsAloneOrSharingItIsCancel(t *testing.T) {
	alt := ax.Must(ax.Request{URL: "http://b.test/alt"}.Task())
	for _, dedupe := range []bool{true, false} {
		log := &dLog{}
		bubble(t, ax.Config{OnEvent: log.On}, func(t *tester) {
			t.Server.Reply = after(100*time.Millisecond, 503, "")
			ctx, cancel := context.WithCancel(dBG)
			got := t.Go(ctx, ax.Request{URL: at("/"), Dedupe: dedupe, Fallback: &ax.Fallback{Alternate: alt}})
			t.Until(150 * time.Millisecond)
			cancel()
			r := <-got
			require.ErrorIs(t, r.Err, context.Canceled, "dedupe %v", dedupe)
			require.Equal(t, ax.EventCanceled, log.Last(t, "a.test").Kind)
		})
	}
}

// a Governor ends its goroutine
func TestFaultAGovernorEndsItsGoroutine(t *testing.T) {
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n == 1 {
			runtime.Goexit()
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1}, func(t *tester) {
		ctx, cancel := context.WithTimeout(dBG, time.Minute)
		defer cancel()
		got := t.Do(ctx, dGet("/"))
		require.NoError(t, got.Err)
	})
}

// Release panics: nobody else is hurt
func TestFaultReleasePanicsNobodyElseIsHurt(t *testing.T) {
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n == 1 {
			return ax.Grant{Release: func() { panic("boom") }}, nil
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 200, "")
		go func() {
			defer func() { recover() }()
			t.S.Get(dBG, at("/1"))
		}()
		t.Until(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(dBG, time.Minute)
		defer cancel()
		got := <-t.Go(ctx, dGet("/2"))
		require.NoError(t, got.Err)
		require.Equal(t, 200*time.Millisecond, got.At)
	})
}

// a slow OnEvent of one task does not hold up the start of another
func TestFaultASlowOnEventOfOneTaskDoesNotHoldUpTheStartOfAnother(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventCanceled {
			time.Sleep(5 * time.Second)
		}
	}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/1" {
				return after(time.Hour, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/1"), Tags: []string{"x"}}.Task()))
		t.Until(10 * time.Millisecond)
		b := t.Go(dBG, dGet("/2"))
		t.Until(20 * time.Millisecond)
		go t.S.CancelTag("x")
		got := <-b
		<-c.Done()
		require.Equal(t, 20*time.Millisecond, got.At)
	})
}

// a named lane stays for its host, also on the way back
func TestFaultANamedLaneStaysForItsHostAlsoOnTheWayBack(t *testing.T) {
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "n"}}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/1":
				return redirectTo("http://b.test/2"), nil
			case "/2":
				return redirectTo(at("/3")), nil
			}
			return reply(500, ""), nil
		}
		t.Do(dBG, ax.Request{URL: at("/1"), Lane: "n"})
		st := t.S.Stats()
		require.Zero(t, st.Lanes["b.test"].Failures)
		require.EqualValues(t, 1, st.Lanes["n"].Failures)
	})
}

// a joiner's rank counts for a hop that waits
func TestFaultAJoinersRankCountsForAHopThatWaits(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/from":
				return redirectTo("http://b.test/hop"), nil
			case "/hold":
				return after(time.Second, 200, "")(h)
			}
			return after(100*time.Millisecond, 200, "")(h)
		}
		var all []<-chan result
		all = append(all, t.Go(dBG, ax.Request{URL: "http://b.test/hold"}))
		all = append(all, t.GoAt(10*time.Millisecond, dBG, ax.Request{URL: at("/from"), Priority: ax.Low}))
		all = append(all, t.GoAt(20*time.Millisecond, dBG, ax.Request{URL: "http://b.test/other"}))
		all = append(all, t.GoAt(30*time.Millisecond, dBG, ax.Request{URL: at("/from"), Priority: ax.Urgent}))
		for _, c := range all {
			<-c
		}
		require.Equal(t, []string{"/hold", "/from", "/hop", "/other"}, t.Server.Paths())
	})
}

// a probe that streams lets the lane go on at its headers
func TestFaultAProbeThatStreamsLetsTheLaneGoOnAtItsHeaders(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 10, Breaker: &ax.Breaker{Window: 1, MinCalls: 1, OpenFor: time.Second, Ramp: time.Second}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/fail":
				return reply(500, ""), nil
			case "/stream":
				return dReply(dNewTrickle(h.Context(), 20*time.Second, "a")), nil
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, dGet("/fail"))
		s := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/stream"), Stream: true}.Task()))
		b := t.Go(dBG, dGet("/next"))
		got := <-b
		r, err := s.Result()
		require.NoError(t, err)
		r.Body.Close()
		require.Less(t, got.At, 2*time.Second)
	})
}

// a probe that is deaf and times out: the lane probes again after OpenFor
func TestFaultAProbeThatIsDeafAndTimesOutTheLaneProbesAgainAfterOpenFor(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 10, Dedupe: &ax.Dedupe{}, AttemptTimeout: 100 * time.Millisecond,
		Breaker: &ax.Breaker{Window: 1, MinCalls: 1, OpenFor: time.Second, Ramp: time.Second}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/fail":
				return reply(500, ""), nil
			case "/deaf":
				time.Sleep(time.Minute)
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, dGet("/fail"))
		d := t.Go(dBG, dGet("/deaf"))
		t.Until(time.Millisecond)
		b := t.Go(dBG, dGet("/next"))
		got := <-b
		<-d
		require.Less(t, got.At, 2200*time.Millisecond)
		t.Until(2 * time.Minute)
	})
}

// the lane event of one task's failure: OnEvent is slow, another waits for the slot
func TestFaultTheLaneEventOfOneTasksFailureOnEventIsSlowAnotherWaitsForThe(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Breaker: &ax.Breaker{Window: 1, MinCalls: 1}, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventBreakerOpened {
			time.Sleep(5 * time.Second)
		}
	}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return after(100*time.Millisecond, 500, "")(h)
			}
			return reply(200, ""), nil
		}
		a := t.Go(dBG, dGet("/1"))
		t.Until(10 * time.Millisecond)
		b := <-t.Go(dBG, ax.Request{URL: "http://b.test/2"})
		<-a
		require.Equal(t, 100*time.Millisecond, b.At)
	})
}

// a PauseUntil that panics
func TestFaultAPauseUntilThatPanics(t *testing.T) {
	var n atomic.Int32
	bubble(t, ax.Config{Governor: panicPauser{&n}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return reply(429, "", "Retry-After: 1"), nil }
		_, err := t.S.Submit(dBG, ax.Must(dGet("/").Task())).Result()
		require.NoError(t, err)
	})
}

type panicPauser struct{ n *atomic.Int32 }

func (panicPauser) Acquire(context.Context, ax.Ask) (ax.Grant, error) { return ax.Grant{}, nil }
func (panicPauser) PauseUntil(string, time.Time)                      { panic("boom") }
