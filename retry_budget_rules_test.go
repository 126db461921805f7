package ax_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestF5BudgetOfALane counts retries to the last one: max(3, Budget × first attempts).
func TestF5BudgetOfALane(t *testing.T) {
	rows := []struct {
		firsts, retries int
		budget          float64
	}{{1, 1, 0}, {3, 3, 0}, {10, 3, 0}, {15, 3, 0}, {20, 4, 0}, {50, 10, 0}, {10, 5, 0.5}, {10, 10, 1}}
	for _, row := range rows {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			p := fRetry(1)
			p.Budget = row.budget
			bubble(t, ax.Config{Retry: p}, func(t *tester) {
				t.Server.Reply = fAnswer(503, "busy")
				var cs []<-chan result
				for range row.firsts {
					cs = append(cs, t.Go(t.Context(), fGet("/")))
				}
				retried := 0
				for _, c := range cs {
					r := <-c
					require.Equal(t, "busy", fBody(t, r))
					require.Equal(t, 503, r.Status())
					if r.Resp.Attempts == 2 {
						retried++
						require.NotErrorIs(t, r.Resp.Cause, ax.ErrRetryBudget)
					} else {
						require.ErrorIs(t, r.Resp.Cause, ax.ErrRetryBudget)
					}
				}
				require.Equal(t, row.retries, retried)
				require.Equal(t, row.firsts+row.retries, t.Server.Count())
				require.EqualValues(t, row.retries, t.S.Stats().Retries)
			})
		})
	}
}

func TestF5BudgetRefillsAndIsPerLane(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(1)}, func(t *tester) {
		t.Server.Reply = fAnswer(503, "")
		for range 3 {
			require.Equal(t, 2, t.Do(t.Context(), fGet("/")).Resp.Attempts)
		}
		// At 300 ms the retries at 100, 200 and 300 ms have used it up.
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, 1, res.Resp.Attempts, "a first attempt is never blocked, its retry is")
		require.ErrorIs(t, res.Resp.Cause, ax.ErrRetryBudget)
		require.Equal(t, 2, t.Do(t.Context(), ax.Request{URL: "http://b.test/"}).Resp.Attempts, "another lane has its own")

		t.Until(9900 * fms) // a retry would leave at 10 s: all three are within the ten seconds up to it
		require.Equal(t, 1, t.Do(t.Context(), fGet("/")).Resp.Attempts)
		t.Until(10050 * fms) // at 10.15 s the first has left the window
		require.Equal(t, 2, t.Do(t.Context(), fGet("/")).Resp.Attempts)
		t.Until(40 * fsec)
		require.Equal(t, 2, t.Do(t.Context(), fGet("/")).Resp.Attempts, "and after a rest")
	})
}

func TestF5ErrorStaysTheTasksErrorWhenTheBudgetRefuses(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(1)}, func(t *tester) {
		t.Server.Reply = fBreak(errFWire)
		for range 3 {
			t.Do(t.Context(), fGet("/"))
		}
		res := t.Do(t.Context(), fGet("/"))
		require.ErrorIs(t, res.Err, errFWire)
		require.ErrorIs(t, res.Err, ax.ErrRetryBudget)
		require.Equal(t, 1, fError(t, res.Err).Attempts)
	})
}

// TestF5WhateverRefusesARetryIsTheCause: the last outcome stands, the refusal explains it.
func TestF5WhateverRefusesARetryIsTheCause(t *testing.T) {
	t.Run("breaker", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
			t.Server.Reply = fAnswer(503, "last")
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, "last", fBody(t, res))
			require.ErrorIs(t, res.Resp.Cause, ax.ErrCircuitOpen)
			require.LessOrEqual(t, res.At, 100*fms)
			require.Equal(t, 1, t.Server.Count())
			require.EqualValues(t, 1, t.S.Stats().Succeeded, "a response is a success of the task")
		})
	})
	t.Run("breaker that holds", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(200, ""))
			require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status())
			require.Equal(t, []time.Duration{0, 3 * fsec}, t.Server.Times(), "the retry is the probe")
		})
	})
	t.Run("owner", func(t *testing.T) {
		b := map[string]ax.Budget{"ann": {Rate: []ax.Rate{{Limit: 1, Per: time.Minute}}, Over: ax.OverReject}}
		bubble(t, ax.Config{Retry: fRetry(2), Budgets: b}, func(t *tester) {
			t.Server.Reply = fAnswer(503, "last")
			r := fGet("/")
			r.Owner = "ann"
			res := t.Do(t.Context(), r)
			require.Equal(t, "last", fBody(t, res))
			require.ErrorIs(t, res.Resp.Cause, ax.ErrBudget)
			require.Equal(t, 1, t.Server.Count())
		})
	})
	t.Run("MinRemaining", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2), MinRemaining: 950 * fms}, func(t *tester) {
			t.Server.Reply = fAnswer(503, "last")
			ctx, cancel := context.WithTimeout(t.Context(), fsec)
			defer cancel()
			res := t.Do(ctx, fGet("/"))
			require.Equal(t, "last", fBody(t, res))
			require.ErrorIs(t, res.Resp.Cause, ax.ErrWouldExceedDeadline)
			require.LessOrEqual(t, res.At, 100*fms)
			require.Equal(t, 1, t.Server.Count())
		})
	})
	t.Run("QueueTimeout", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2), MaxConcurrent: 1, QueueTimeout: fsec}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{"/": fAnswer(503, "last"), "/long": after(10*fsec, 200, "")})
			long := t.GoAt(50*fms, t.Context(), fGet("/long"))
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, "last", fBody(t, res))
			require.ErrorIs(t, res.Resp.Cause, ax.ErrQueueTimeout)
			require.Equal(t, 1100*fms, res.At, "its wait counts from the end of the backoff")
			require.Equal(t, 200, (<-long).Status())
		})
	})
}

func TestF5RetryWaitsWithoutASlotAndIsNeverRefusedForAFullQueue(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(1), MaxConcurrent: 1, MaxQueue: 1}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{
			"/bad":  fScript(fAnswer(503, ""), fAnswer(200, "")),
			"/long": after(fsec, 200, ""),
		})
		bad := t.Go(t.Context(), fGet("/bad"))
		t.Until(10 * fms)
		require.Equal(t, 1, t.S.Stats().Parked, "in backoff")
		require.Zero(t, t.S.Stats().Active)
		long := t.Go(t.Context(), fGet("/long")) // takes the only slot
		next := t.GoAt(20*fms, t.Context(), fGet("/next"))
		r := <-bad
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status())
		require.Equal(t, 1010*fms, fPathHits(t, "/bad")[1], "it has the older rank and no place of MaxQueue")
		require.NoError(t, (<-long).Err)
		require.NoError(t, (<-next).Err)
	})
}

func TestF5BackoffEndsAtOnceOnEachKindOfEnd(t *testing.T) {
	p := &ax.Retry{BaseDelay: 10 * fsec, Jitter: ax.NoJitter}
	ends := map[string]struct {
		end  func(t *tester, c *ax.Call, sc *ax.Scope)
		want error
	}{
		"call":  {func(_ *tester, c *ax.Call, _ *ax.Scope) { c.Cancel() }, context.Canceled},
		"tag":   {func(t *tester, _ *ax.Call, _ *ax.Scope) { t.S.CancelTag("x") }, ax.ErrCanceledByTag},
		"scope": {func(_ *tester, _ *ax.Call, sc *ax.Scope) { sc.Cancel(nil) }, ax.ErrScopeEnded},
		"close": {func(t *tester, _ *ax.Call, _ *ax.Scope) { t.S.Close() }, ax.ErrClosed},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: p}, func(t *tester) {
				t.Server.Reply = fAnswer(503, "last")
				sc := t.S.Scope(t.Context())
				r := fGet("/")
				r.Tags = []string{"x"}
				c := sc.Submit(t.Context(), ax.Must(r.Task()))
				t.Until(100 * fms)
				e.end(t, c, sc)
				_, err := c.Result()
				require.Equal(t, 100*fms, t.At())
				require.ErrorIs(t, err, e.want)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, "retry", fError(t, err).Op)
				require.Equal(t, 503, fError(t, err).Response.StatusCode)
				require.EqualValues(t, 1, t.S.Stats().Canceled)
			})
		})
	}
}
