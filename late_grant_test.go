package ax_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestL9LateGrantIsNotUsed: a grant that comes after its StartBy is given back and
// asked for again, which is no attempt.
func TestL9LateGrantIsNotUsed(t *testing.T) {
	g := &fGovernor{}
	g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
		if n > 2 {
			return ax.Grant{StartBy: time.Now().Add(time.Second)}, nil
		}
		by := time.Now().Add(10 * fms)
		time.Sleep(20 * fms)
		return ax.Grant{StartBy: by}, nil
	}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}}, func(t *tester) {
		r := <-t.Go(t.Context(), fGet("/"))
		require.NoError(t, r.Err)
		require.Equal(t, 1, r.Resp.Attempts)
		require.Len(t, g.Asks(), 3)
		require.LessOrEqual(t, r.At, 50*fms)
		synctest.Wait()
		require.Equal(t, 3, g.Released())
		require.Equal(t, uint64(1), t.S.Stats().Attempts)
		require.Zero(t, t.S.Stats().Retries)
	})
}

// frozenBeforeTheSend is a ctx that lets time pass between grant and send, as in a
// process that gets no processor time: the first time that it is asked whether it
// has ended after it was armed.
type frozenBeforeTheSend struct {
	context.Context
	armed *atomic.Bool
}

func (c frozenBeforeTheSend) Err() error {
	if c.armed.CompareAndSwap(true, false) {
		time.Sleep(50 * fms)
	}
	return c.Context.Err()
}

// TestL9LateAtTheSend: the last look at StartBy is where the executor would be
// called; the task keeps its place, its attempt is not counted.
func TestL9LateAtTheSend(t *testing.T) {
	for name, cfg := range map[string]ax.Config{
		"once":       {},
		"with retry": {Retry: &ax.Retry{Max: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				armed := new(atomic.Bool)
				g := &fGovernor{}
				g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
					armed.Store(n == 1)
					return ax.Grant{StartBy: time.Now().Add(10 * fms)}, nil
				}
				cfg.Governor = g
				var sent []time.Duration
				begin := time.Now()
				s := qReal(t, cfg, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
					sent = append(sent, time.Since(begin))
					return qNoop(ctx, task)
				})
				var kinds []ax.EventKind
				s.Watch(func(e ax.Event) { kinds = append(kinds, e.Kind) })
				resp, err := s.Get(frozenBeforeTheSend{t.Context(), armed}, at("/"))
				require.NoError(t, err)
				require.Equal(t, 1, resp.Attempts)
				require.Equal(t, []time.Duration{50 * fms}, sent)
				require.Len(t, g.Asks(), 2)
				synctest.Wait()
				require.Equal(t, 2, g.Released())
				require.Equal(t, uint64(1), s.Stats().Attempts)
				require.Zero(t, s.Stats().Retries)
				require.Equal(t, 1, countOf(kinds, ax.EventStarted))
			})
		})
	}
}

func countOf(all []ax.EventKind, kind ax.EventKind) (n int) {
	for _, k := range all {
		if k == kind {
			n++
		}
	}
	return n
}

// TestL9LateAfterASlowListener: a listener that takes its time before the send does
// not make a late grant a good one.
func TestL9LateAfterASlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fGovernor{}
		g.Answer = func(context.Context, int, ax.Ask) (ax.Grant, error) {
			return ax.Grant{StartBy: time.Now().Add(10 * fms)}, nil
		}
		slow := true
		s := qReal(t, ax.Config{Governor: g, Retry: &ax.Retry{}, OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventStarted && slow {
				slow = false
				time.Sleep(20 * fms)
			}
		}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return qNoop(ctx, task)
		})
		resp, err := s.Get(t.Context(), at("/"))
		require.NoError(t, err)
		require.Equal(t, 2, resp.Attempts)
	})
}

// TestF5LateRetryThenRefusedIsTheLastOutcome: a grant that came too late is none.
func TestF5LateRetryThenRefusedIsTheLastOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		armed := new(atomic.Bool)
		g := &fGovernor{}
		g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
			if n > 2 {
				return ax.Grant{RetryIn: time.Hour}, nil
			}
			armed.Store(n == 2)
			return ax.Grant{StartBy: time.Now().Add(10 * fms)}, nil
		}
		s := qReal(t, ax.Config{Governor: g, Retry: &ax.Retry{Max: 1}, QueueTimeout: time.Minute}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			return reply(503, "busy"), nil
		})
		resp, err := s.Get(frozenBeforeTheSend{t.Context(), armed}, at("/"))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.ErrorIs(t, resp.Cause, ax.ErrQueueTimeout)
		require.Equal(t, 1, resp.Attempts)
	})
}

// TestF5LateGrantsCostNoRetryBudget: what was not sent was no retry.
func TestF5LateGrantsCostNoRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		armed := new(atomic.Bool)
		g := &fGovernor{}
		g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
			armed.Store(n >= 2 && n <= 6)
			return ax.Grant{StartBy: time.Now().Add(10 * fms)}, nil
		}
		n := 0
		s := qReal(t, ax.Config{Governor: g, Retry: &ax.Retry{Max: 1}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			n++
			if n == 1 {
				return reply(503, "busy"), nil
			}
			return reply(200, ""), nil
		})
		resp, err := s.Get(frozenBeforeTheSend{t.Context(), armed}, at("/"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "%v", resp.Cause)
	})
}
