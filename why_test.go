package ax_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestWhyATaskWaits: whatever keeps a task from starting is named where people
// look for it: in Waiting, in the event, and in the error of a task that left.
func TestWhyATaskWaits(t *testing.T) {
	lane := func(l ax.Lane) []ax.Lane {
		l.Name, l.Match = "api", []string{"a.test"}
		return []ax.Lane{l}
	}
	for _, c := range []struct {
		what   string
		cfg    ax.Config
		before func(t *tester)
		shown  string
	}{
		{"a slot", ax.Config{MaxConcurrent: 1}, nil, "a slot: Config.MaxConcurrent"},
		{"a slot of its lane", ax.Config{Lanes: lane(ax.Lane{MaxConcurrent: 1})}, nil, "a slot of its lane: the lane's MaxConcurrent"},
		{"a token", ax.Config{Rate: ax.PerMinute(1)}, nil, "a token: Config.Rate"},
		{"a token of its lane", ax.Config{Lanes: lane(ax.Lane{Rate: ax.PerMinute(1)})}, nil, "a token of its lane: the lane's Rate"},
		{"its owner's budget", ax.Config{Owners: &ax.Budget{Rate: ax.PerMinute(1)}}, nil, "its owner's budget: the Budget"},
		{"the end of Pause", ax.Config{Lanes: lane(ax.Lane{})}, func(t *tester) { require.NoError(t, t.S.Pause("api")) }, "the end of Pause: call Resume"},
		{"its owner's budget", ax.Config{MaxConcurrent: 1, Owners: &ax.Budget{MaxConcurrent: 1}}, nil, "its owner's budget: the Budget"},
		{"its breaker to close", ax.Config{Lanes: lane(ax.Lane{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Hour}})},
			func(t *tester) {
				slow := t.Server.Reply
				t.Server.Reply = fAnswer(503, "")
				t.Do(dBG, ax.Request{URL: at("/first"), Owner: "ann"})
				t.Server.Reply = slow
			}, "its breaker to close: set Breaker.WhenOpen to OpenReject"},
		{"its breaker, which is held open by hand", ax.Config{Lanes: lane(ax.Lane{Breaker: &ax.Breaker{}})},
			func(t *tester) { require.NoError(t, t.S.ForceBreaker("api", ax.BreakerForceOpen)) },
			"its breaker, which is held open by hand: call ForceBreaker with BreakerAuto"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var reasons []string
			c.cfg.OnEvent = func(e ax.Event) {
				if e.Kind == ax.EventQueued {
					reasons = append(reasons, e.Reason)
				}
			}
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if err := h.Sleep(time.Hour); err != nil {
						return nil, err
					}
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				}
				ctx, end := context.WithCancel(dBG)
				if c.before != nil {
					c.before(t)
				} else {
					t.Go(dBG, ax.Request{URL: at("/first"), Owner: "ann"})
				}
				synctest.Wait()
				second := t.Go(ctx, ax.Request{URL: at("/second"), Owner: "ann"})
				time.Sleep(time.Second)
				synctest.Wait()
				waiting := t.S.Waiting(10)
				require.Len(t, waiting, 1)
				require.Equal(t, c.shown, waiting[0].For)
				require.Equal(t, []string{c.what}, reasons)

				_, err := t.S.Send(dBG, ax.Request{URL: at("/third"), Owner: "ann", NoWait: true})
				require.ErrorIs(t, err, ax.ErrWouldWait)
				require.ErrorContains(t, err, "task would have to wait for "+c.what)
				end()
				err = (<-second).Err
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "context canceled after 1s in the queue, waiting for "+c.what)
			})
		})
	}
}

// A retry's wait for its turn is bounded too, whichever way its first attempt took.
func TestQueueTimeoutOfARetryAfterAFreeStart(t *testing.T) {
	cfg := ax.Config{
		Lanes:        []ax.Lane{{Name: "api", Match: []string{"a.test"}, Rate: ax.PerMinute(1)}},
		QueueTimeout: 2 * time.Second, Retry: &ax.Retry{Max: 1, BaseDelay: 100 * time.Millisecond, Jitter: ax.NoJitter},
	}
	for _, r := range []ax.Request{dGet("/"), {URL: at("/"), Lane: "api"}, {URL: at("/"), QueueTimeout: 2 * time.Second}, {URL: at("/"), Tags: []string{"x"}}} {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(*hit) (*http.Response, error) { return &http.Response{StatusCode: 503, Body: http.NoBody}, nil }
			got := t.Do(dBG, r)
			require.NoError(t, got.Err)
			require.Equal(t, 2100*time.Millisecond, got.At)
			require.Equal(t, 503, got.Status())
			require.ErrorIs(t, got.Resp.Cause, ax.ErrQueueTimeout)
		})
	}
}

// NoWait says when the same task would start, if time alone decides.
func TestNoWaitKnowsWhen(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerMinute(1)}, func(t *tester) {
		require.NoError(t, t.Do(dBG, dGet("/")).Err)
		time.Sleep(10 * time.Second)
		e, ok := errors.AsType[*ax.Error](t.Do(dBG, ax.Request{URL: at("/"), NoWait: true}).Err)
		require.True(t, ok)
		require.Equal(t, 50*time.Second, e.RetryAfter)
	})
}

// TestX8AttemptsAreWhatWasSent: a dry run counts each task's one attempt once.
func TestX8AttemptsAreWhatWasSent(t *testing.T) {
	bubble(t, ax.Config{DryRun: true}, func(t *tester) {
		for range 3 {
			require.NoError(t, t.Do(dBG, dGet("/")).Err)
		}
		_, err := t.S.Submit(dBG, ax.Must(dGet("/").Task())).Result()
		require.NoError(t, err)
		require.Equal(t, uint64(4), t.S.Stats().Attempts)
		require.Equal(t, uint64(4), t.S.Stats().Lanes["a.test"].Attempts)
		require.Zero(t, t.S.Stats().Retries)
	})
}

// A client that wrapped its transport is told of an old answer as by any cache:
// RFC 9111, section 5.1.
func TestStaleAnswerThroughTransportHasAge(t *testing.T) {
	cfg := ax.Config{Fallback: &ax.Fallback{Stale: time.Hour}}
	bubble(t, cfg, func(t *tester) {
		client := &http.Client{Transport: t.S.Transport()}
		get := func() *http.Response {
			resp, err := client.Get(at("/"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp
		}
		require.Empty(t, get().Header.Get("Age"))
		t.Server.Reply = func(*hit) (*http.Response, error) { return nil, errors.New("down") }
		time.Sleep(90 * time.Second)
		require.Equal(t, "90", get().Header.Get("Age"))
		time.Sleep(10 * time.Second)
		require.Equal(t, "100", get().Header.Get("Age"))
	})
}

// TestWhyALaneIsClosed: events and log lines say what closed it.
func TestWhyALaneIsClosed(t *testing.T) {
	ev, log := &fEvents{}, &fLog{}
	cfg := ax.Config{
		OnEvent: ev.Add, Logger: log.Logger(),
		Breaker: &ax.Breaker{Window: 4, OpenFor: time.Second, Ramp: time.Second, WhenOpen: ax.OpenReject},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fOutcomes("SFFSSFFSS")
		for range 4 {
			t.Do(dBG, fGet("/"))
		}
		for range 3 {
			time.Sleep(time.Second)
			t.Do(dBG, fGet("/")) // a good probe, a failure on the ramp; later a good probe again
			t.Do(dBG, fGet("/"))
		}
		require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerAuto))
		require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen))
		require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerAuto))
		t.Server.Reply = fAnswer(429, "", "Retry-After: 2")
		t.Do(dBG, fGet("/"))
		time.Sleep(3 * time.Second)
		t.Server.Reply = fAnswer(200, "", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 3")
		t.Do(dBG, fGet("/"))
		require.NoError(t, t.S.Pause("a.test"))
		require.NoError(t, t.S.Pause(""))
		synctest.Wait()
		var whys []string
		for _, e := range ev.Of(ax.EventBreakerOpened, ax.EventLanePaused) {
			whys = append(whys, e.Reason)
		}
		require.Equal(t, []string{
			"2 of the last 4 attempts failed", "an attempt failed during the ramp", "a probe failed", "ForceBreaker",
			"Retry-After", "no quota left until its reset", "Pause",
		}, whys)
		require.Len(t, log.Lines("breaker opened", `because="2 of the last 4 attempts failed"`), 1)
		require.Len(t, log.Lines("lane paused", `because="no quota left until its reset"`), 1)
	})
}

// Whoever is first waits for the governor alone.
func TestWhyWaitsForAGovernor(t *testing.T) {
	gov := qGovernor(func(ctx context.Context, _ ax.Ask) (ax.Grant, error) {
		select {
		case <-time.After(time.Hour):
			return ax.Grant{}, nil
		case <-ctx.Done():
			return ax.Grant{}, ctx.Err()
		}
	})
	bubble(t, ax.Config{MaxConcurrent: 1, Governor: gov, Owners: &ax.Budget{MaxConcurrent: 1}}, func(t *tester) {
		ctx, cancel := context.WithCancel(dBG)
		waits := t.Go(ctx, ax.Request{URL: at("/"), Owner: "ann"})
		time.Sleep(time.Second)
		require.Equal(t, "the governor's word: the limits of the fleet", t.S.Waiting(1)[0].For)
		cancel()
		require.ErrorContains(t, (<-waits).Err, "waiting for the governor's word")
	})
}
