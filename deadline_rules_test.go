package ax_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// qTooLate requires that r was refused at once because its deadline is out of reach.
func qTooLate(t *tester, r result, at time.Duration) {
	t.Helper()
	require.Equal(t, at, r.At)
	e := qErr(t, r.Err, "admit", ax.ErrWouldExceedDeadline)
	require.ErrorIs(t, e, context.DeadlineExceeded)
	require.NotErrorIs(t, e, context.Canceled)
	require.True(t, e.Timeout())
	require.Zero(t, e.Attempts)
	require.Nil(t, e.Response)
}

// A deadline before the earliest possible start is refused at once, whatever sets that start.
func TestL5RefusedAtOnce(t *testing.T) {
	const s = time.Second
	ten := []ax.Rate{{Limit: 1, Per: 10 * s}}
	tests := []struct {
		name  string
		cfg   ax.Config
		owner string
		first int    // status of the first request
		after string // its Retry-After
		ready time.Duration
		says  string
	}{
		{"token of the scheduler", ax.Config{Rate: ten}, "", 200, "", 10 * s, "Config.Rate"},
		{"token of the lane", ax.Config{Hosts: &ax.Lane{Rate: ten}}, "", 200, "", 10 * s, "the lane's Rate"},
		{"token of the owner", ax.Config{Budgets: map[string]ax.Budget{"o": {Rate: ten}}}, "o", 200, "", 10 * s, "the Budget"},
		{"the latest of them", ax.Config{Rate: ax.PerSecond(1), Hosts: &ax.Lane{Rate: ten}}, "", 200, "", 10 * s, "the lane's Rate"},
		{"bucket", ax.Config{Rate: []ax.Rate{{Limit: 1, Per: 10 * s, Burst: 1}}}, "", 200, "", 10 * s, "Config.Rate"},
		{"guard", ax.Config{Rate: []ax.Rate{{Limit: 1, Per: 5 * s, Guard: 5 * s}}}, "", 200, "", 10 * s, "Config.Rate"},
		{"pause by Retry-After", ax.Config{}, "", 429, "10", 10 * s, "a pause that the server asked for"},
		{"open breaker", ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: 10 * s}}, "", 500, "", 10 * s, "its breaker to close"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.cfg, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.N > 1 {
						return reply(200, ""), nil
					}
					if tt.after != "" {
						return reply(tt.first, "", "Retry-After: "+tt.after), nil
					}
					return reply(tt.first, ""), nil
				}
				req := ax.Request{URL: at("/"), Owner: tt.owner}
				require.Equal(t, tt.first, t.Do(t.Context(), req).Status())
				t.Until(s)
				late := t.Do(qTimeout(t, tt.ready-s-1), req)
				qTooLate(t, late, s)
				require.ErrorContains(t, late.Err, tt.says)
				require.Equal(t, uint64(1), t.S.Stats().Rejected)
				// In reach by a second: it waits, and nothing was taken by the refusal.
				r := t.Do(qTimeout(t, tt.ready), req)
				require.NoError(t, r.Err)
				require.Equal(t, []time.Duration{0, tt.ready}, t.Server.Times())
			})
		})
	}
}

// The queue's length does not count: who is only behind others may still wait.
func TestL5QueueLengthDoesNotCount(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerSecond(1)}, func(t *tester) {
		qSubmit(t, ax.Request{URL: at("/0")}, ax.Request{URL: at("/1")}, ax.Request{URL: at("/2")}, ax.Request{URL: at("/3")})
		ctx := qTimeout(t, 1500*qms)
		behind := t.Go(ctx, ax.Request{URL: at("/behind")})
		first := t.Go(ctx, ax.Request{URL: at("/first"), Priority: ax.Urgent})
		require.Equal(t, 200, (<-first).Status())
		r := <-behind
		require.Equal(t, 1500*qms, r.At)
		e := qErr(t, r.Err, "queue", context.DeadlineExceeded)
		require.True(t, e.Timeout())
		require.NotContains(t, qSeen(t), "/behind")
		require.Equal(t, uint64(1), t.S.Stats().Canceled)
	})
	t.Run("a gate has no known end", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
			t.Server.Reply = qHold(time.Hour)
			qSubmit(t, ax.Request{URL: at("/hold")})
			synctest.Wait()
			r := t.Do(qTimeout(t, time.Second), ax.Request{URL: at("/")})
			require.Equal(t, time.Second, r.At)
			qErr(t, r.Err, "queue", context.DeadlineExceeded)
			require.NotErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
		})
	})
	t.Run("nor has an explicit pause", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			require.NoError(t, t.S.Pause("a.test"))
			r := t.Do(qTimeout(t, time.Second), ax.Request{URL: at("/")})
			require.Equal(t, time.Second, r.At)
			qErr(t, r.Err, "queue", context.DeadlineExceeded)
			require.NotErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
		})
	})
}

// A context that is over reports itself, though tokens are free or not.
func TestL5DeadContext(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerMinute(1)}, func(t *tester) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			r := t.Do(ctx, ax.Request{URL: at("/")})
			require.ErrorIs(t, r.Err, context.Canceled)
			require.NotErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
		}
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status())
		require.Zero(t, t.At())
		r := t.Do(ctx, ax.Request{URL: at("/")}) // the token is gone by now
		require.ErrorIs(t, r.Err, context.Canceled)
		require.NotErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
		require.Equal(t, 1, t.Server.Count())
		require.Equal(t, uint64(3), t.S.Stats().Canceled)
	})
}

// With less than MinRemaining left when its turn comes a task is refused, and takes nothing.
func TestL5MinRemaining(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, MinRemaining: 500 * qms, Rate: []ax.Rate{{Limit: 2, Per: 10 * time.Second}}}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		hold := qSubmit(t, ax.Request{URL: at("/hold")})
		synctest.Wait()
		late := t.Go(qTimeout(t, 1499*qms), ax.Request{URL: at("/late"), Priority: ax.Urgent})
		synctest.Wait()
		good := t.Go(qTimeout(t, 1501*qms), ax.Request{URL: at("/good")})
		r := <-late
		require.Equal(t, time.Second, r.At)
		e := qErr(t, r.Err, "queue", ax.ErrWouldExceedDeadline)
		require.ErrorIs(t, e, context.DeadlineExceeded)
		g := <-good
		require.Equal(t, 200, g.Status())
		require.Equal(t, time.Second, g.At)
		require.Equal(t, uint64(1), t.S.Stats().Rejected)
		require.Equal(t, []string{"/hold", "/good"}, t.Server.Paths())
		qOK(t, hold...)
	})
}

// A flight goes by the latest deadline of its callers; each of them still leaves by his own.
func TestL5FlightUsesTheLatestDeadline(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerSecond(1), Dedupe: &ax.Dedupe{}}, func(t *tester) {
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/first")}).Status())
		patient := t.Go(t.Context(), ax.Request{URL: at("/shared")})
		synctest.Wait()
		hurried := t.Do(qTimeout(t, 100*qms), ax.Request{URL: at("/shared")})
		require.Equal(t, 100*qms, hurried.At)
		require.ErrorIs(t, hurried.Err, context.DeadlineExceeded)
		p := <-patient
		require.Equal(t, 200, p.Status())
		require.Equal(t, time.Second, p.At)
		require.Equal(t, 2, t.Server.Count())
	})
}
