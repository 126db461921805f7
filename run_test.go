package ax_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fQuery is a task for work that is not HTTP.
func fQuery(r ax.Request) *ax.Task {
	if r.URL == "" {
		r.URL = at("/query")
	}
	return ax.Must(r.Task())
}

func TestRunReturnsWhatTheCallReturned(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{OnEvent: ev.Add}, func(t *tester) {
		got, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) ([]int, error) { return []int{1, 2}, nil })
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, got)
		require.Zero(t, t.Server.Count(), "nothing is sent")
		require.EqualValues(t, 1, t.S.Stats().Succeeded)
		require.EqualValues(t, 1, fLane(t).Attempts)
		require.Len(t, ev.Of(ax.EventStarted), 1)
		require.Len(t, ev.Of(ax.EventSucceeded), 1)

		type row struct{}
		p, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (*row, error) { return nil, nil })
		require.NoError(t, err)
		require.Nil(t, p, "a nil value is a value")
	})
}

func TestRunErrorIsTheCallsErrorAndIsRetriedByTheMethodsRule(t *testing.T) {
	boom := errors.New("deadlock found")
	rows := []struct {
		r     ax.Request
		calls int
	}{{ax.Request{}, 3}, {ax.Request{NoRetry: true}, 1}, {ax.Request{Method: "POST"}, 1}, {ax.Request{Method: "POST", IdempotencyKey: "k"}, 3}}
	for i, row := range rows {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			calls := 0
			got, err := ax.Run(t.Context(), t.S, fQuery(row.r), func(context.Context) (int, error) { calls++; return 7, boom })
			require.ErrorIs(t, err, boom)
			require.Equal(t, row.calls, calls, "row %d", i)
			require.Equal(t, row.calls, fError(t, err).Attempts)
			require.Equal(t, "a.test", fError(t, err).Lane)
			require.Zero(t, got)
			require.EqualValues(t, 1, t.S.Stats().Failed)
		})
	}
	bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
		calls := 0
		got, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (string, error) {
			if calls++; calls < 3 {
				return "half", boom
			}
			return "whole", nil
		})
		require.NoError(t, err)
		require.Equal(t, "whole", got)
		require.Equal(t, 300*fms, t.At())
	})
}

func TestRunIsUnderTheGateTheRankAndTheRate(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		var order []string
		work := func(name string, p ax.Priority) {
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{Priority: p}), func(context.Context) (int, error) {
				order = append(order, name) // the gate is one: no lock needed
				time.Sleep(100 * fms)
				return 0, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		done := make(chan struct{})
		for i, w := range []struct {
			name string
			p    ax.Priority
		}{{"first", ax.Low}, {"low", ax.Low}, {"urgent", ax.Urgent}, {"normal", ax.Normal}} {
			go func() { work(w.name, w.p); done <- struct{}{} }()
			t.Until(time.Duration(i+1) * fms)
		}
		http := t.Go(t.Context(), ax.Request{URL: at("/"), Priority: ax.Important})
		for range 4 {
			<-done
		}
		require.Equal(t, []string{"first", "urgent", "normal", "low"}, order)
		require.Equal(t, 200*fms, (<-http).At, "HTTP and other work wait in one queue")
	})
	bubble(t, ax.Config{Rate: ax.PerSecond(2)}, func(t *tester) {
		for range 4 {
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { return 0, nil })
			require.NoError(t, err)
		}
		require.Equal(t, fsec, t.At())
	})
}

func TestRunHonoursBreakerBudgetTimeoutAndCancel(t *testing.T) {
	boom := errors.New("down")
	t.Run("breaker", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { return 0, boom })
			require.ErrorIs(t, err, boom)
			_, err = ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { panic("must not run") })
			require.ErrorIs(t, err, ax.ErrCircuitOpen)
		})
	})
	t.Run("budget", func(t *testing.T) {
		bubble(t, ax.Config{Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(1), Over: ax.OverReject})}, func(t *tester) {
			ok := func(context.Context) (int, error) { return 1, nil }
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{Owner: "ann"}), ok)
			require.NoError(t, err)
			_, err = ax.Run(t.Context(), t.S, fQuery(ax.Request{Owner: "ann"}), ok)
			require.ErrorIs(t, err, ax.ErrBudget)
		})
	})
	wait := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	t.Run("attempt timeout", func(t *testing.T) {
		bubble(t, ax.Config{AttemptTimeout: fsec}, func(t *tester) {
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), wait)
			require.Equal(t, fsec, t.At())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, context.Canceled)
			require.True(t, fError(t, err).Timeout())
		})
	})
	t.Run("cancel", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(fsec, func() { cancel(boom) })
			_, err := ax.Run(ctx, t.S, fQuery(ax.Request{}), wait)
			require.Equal(t, fsec, t.At())
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, boom)
		})
	})
	t.Run("tag", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			time.AfterFunc(fsec, func() { t.S.CancelTag("x") })
			_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{Tags: []string{"x"}}), wait)
			require.ErrorIs(t, err, ax.ErrCanceledByTag)
		})
	})
}

func TestRunContextCarriesTheCallersValuesAndIsNested(t *testing.T) {
	type key struct{}
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		ctx := context.WithValue(t.Context(), key{}, "v")
		got, err := ax.Run(ctx, t.S, fQuery(ax.Request{}), func(ctx context.Context) (any, error) {
			resp, err := t.S.Do(ctx, ax.Must(ax.Request{URL: "http://b.test/"}.Task())) // needs no second slot
			if err != nil {
				return nil, err
			}
			return []any{ctx.Value(key{}), resp.StatusCode}, nil
		})
		require.NoError(t, err)
		require.Equal(t, []any{"v", 200}, got)
	})
}

func TestRunPanicUnwindsItsCallerAndReturnsTheSlot(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		require.Panics(t, func() {
			ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { panic("in fn") })
		})
		require.Zero(t, t.S.Stats().Active)
		got, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.Equal(t, 1, got)
	})
}

// TestRunCallsAreNotShared: two functions are not one because their tasks look alike.
func TestRunCallsAreNotShared(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		for i := range 3 {
			got, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { return i, nil })
			require.NoError(t, err)
			require.Equal(t, i, got)
		}
	})
}

func TestRunAfterClose(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		require.NoError(t, t.S.Close())
		_, err := ax.Run(t.Context(), t.S, fQuery(ax.Request{}), func(context.Context) (int, error) { panic("must not run") })
		require.ErrorIs(t, err, ax.ErrClosed)
	})
}
