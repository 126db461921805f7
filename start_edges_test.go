package ax_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// bothWays runs f for a task that may go without the mutex, and for one that may
// not; the lane is there already.
func bothWays(t *testing.T, cfg ax.Config, exec ax.ExecutorFunc, f func(t *testing.T, s *ax.Scheduler, r ax.Request)) {
	cfg.Lanes = append(cfg.Lanes, ax.Lane{Name: "a", Match: []string{"a.test"}})
	for name, tags := range map[string][]string{"free": nil, "tagged": {"x"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, qReal(t, cfg, exec), ax.Request{URL: at("/"), Tags: tags})
			})
		})
	}
}

// TestL8LiftedSmoothRateStartsAtOnce: the gap of a rate that is no longer in force
// holds nobody.
func TestL8LiftedSmoothRateStartsAtOnce(t *testing.T) {
	for name, rate := range map[string][]ax.Rate{
		"lifted": ax.Unlimited(), "faster": {{Limit: 1000, Smooth: true}}, "bucket": {{Limit: 1000, Burst: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 1, Per: 10 * time.Second, Smooth: true}}}, func(t *tester) {
				require.NoError(t, t.Do(dBG, dGet("/")).Err)
				second := t.GoAt(time.Second, dBG, dGet("/"))
				t.Until(2 * time.Second)
				require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: rate}))
				require.Equal(t, 2*time.Second, (<-second).At.Truncate(10*time.Millisecond))
			})
		})
	}
}

// TestL2ExactBesideASlowListener: a window counts from the executor, however long
// an OnEvent takes to be told of the start.
func TestL2ExactBesideASlowListener(t *testing.T) {
	var calls []time.Time
	slow := true
	cfg := ax.Config{Rate: ax.PerSecond(1), OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventStarted && slow {
			slow = false
			time.Sleep(900 * time.Millisecond)
		}
	}}
	exec := func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		calls = append(calls, time.Now())
		return qNoop(ctx, task)
	}
	bothWays(t, cfg, exec, func(t *testing.T, s *ax.Scheduler, r ax.Request) {
		calls, slow = nil, true
		for range 2 {
			_, err := s.Send(t.Context(), r)
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, calls[1].Sub(calls[0]), time.Second)
	})
}

// TestX3CloseWaitsForTheLastEvent: after Close nobody is told anything.
func TestX3CloseWaitsForTheLastEvent(t *testing.T) {
	var closed, late atomic.Bool
	cfg := ax.Config{OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventSucceeded {
			time.Sleep(time.Second)
			late.Store(closed.Load())
		}
	}}
	bothWays(t, cfg, qNoop, func(t *testing.T, s *ax.Scheduler, r ax.Request) {
		closed.Store(false)
		go s.Send(t.Context(), r) // ends with the bubble
		synctest.Wait()
		require.NoError(t, s.Close())
		closed.Store(true)
		time.Sleep(2 * time.Second)
		require.False(t, late.Load())
	})
}

// TestX1ExecutorThatPollsLearnsOfClose: it looks at Err and never asks for Done.
func TestX1ExecutorThatPollsLearnsOfClose(t *testing.T) {
	exec := func(ctx context.Context, _ *ax.Task) (*http.Response, error) {
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		return nil, ctx.Err()
	}
	bothWays(t, ax.Config{}, exec, func(t *testing.T, s *ax.Scheduler, r ax.Request) {
		go s.Send(context.Background(), r) // ends with Close
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(begin), time.Second)
	})
}

// TestX6ListenerThatEndsTheGoroutine: t.FailNow in an OnEvent does. Its task has
// its end, and nothing that it held is lost.
func TestX6ListenerThatEndsTheGoroutine(t *testing.T) {
	for _, kind := range []ax.EventKind{ax.EventSubmitted, ax.EventStarted, ax.EventAttemptDone, ax.EventSucceeded} {
		var armed atomic.Bool
		cfg := ax.Config{MaxConcurrent: 1, OnEvent: func(e ax.Event) {
			if e.Kind == kind && armed.CompareAndSwap(true, false) {
				runtime.Goexit()
			}
		}}
		t.Run(kind.String(), func(t *testing.T) {
			bothWays(t, cfg, qNoop, func(t *testing.T, s *ax.Scheduler, r ax.Request) {
				armed.Store(true)
				over := make(chan struct{})
				go func() { // ends at the event
					defer close(over)
					s.Send(t.Context(), r)
				}()
				<-over
				ctx, end := context.WithTimeout(t.Context(), time.Second)
				defer end()
				_, err := s.Send(ctx, r)
				require.NoError(t, err)
				require.NoError(t, s.Close())
				st := s.Stats()
				require.Zero(t, st.Active)
				require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
			})
		})
	}
}

// TestX1SharedLeftAsItsTurnCame: all callers of a flight leave between its grant
// and its send. None has an attempt, and no cooldown is left of what never was.
func TestX1SharedLeftAsItsTurnCame(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the flight's goroutine comes after those who leave
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := qReal(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			calls++
			return qNoop(ctx, task)
		})
		require.NoError(t, s.Pause(""))
		r := ax.Request{URL: at("/"), Cooldown: time.Minute, Tags: []string{"x"}}
		shared := []*ax.Call{s.Submit(t.Context(), ax.Must(r.Task()))}
		r.Cooldown = 0
		shared = append(shared, s.Submit(t.Context(), ax.Must(r.Task())), s.Submit(t.Context(), ax.Must(r.Task())))
		require.NoError(t, s.Resume(""))
		s.CancelTag("x")
		for _, call := range shared {
			_, err := call.Result()
			e, ok := errors.AsType[*ax.Error](err)
			require.True(t, ok)
			require.Zero(t, e.Attempts)
			require.Equal(t, "queue", e.Op)
		}
		synctest.Wait()
		require.Zero(t, calls)
		require.Zero(t, s.Stats().Attempts)
		_, err := s.Send(t.Context(), ax.Request{URL: at("/"), Cooldown: time.Minute})
		require.NoError(t, err)
	})
}

// Who cancels a hedged task whose attempt was deaf is told that it was sent.
func TestHedgeDeafAttemptWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := qReal(t, ax.Config{}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return qNoop(ctx, task)
		})
		var call atomic.Pointer[ax.Call]
		cancels := &ax.Retry{Max: 1, If: func(ax.Outcome) bool { call.Load().Cancel(); return true }}
		call.Store(s.Submit(t.Context(), ax.Must(ax.Request{
			URL: at("/"), AttemptTimeout: time.Second, Hedge: &ax.Hedge{After: 3 * time.Second}, Retry: cancels,
		}.Task())))
		_, err := call.Load().Result()
		e, ok := errors.AsType[*ax.Error](err)
		require.True(t, ok)
		require.Equal(t, 1, e.Attempts)
		require.Equal(t, "attempt", e.Op)
	})
}

// A hedge that is granted as the first attempt answers was not sent.
func TestHedgeGrantedTooLateIsNoAttempt(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			answer := make(chan struct{})
			s := qReal(t, ax.Config{MaxConcurrent: 2}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				calls.Add(1)
				select {
				case <-answer:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return qNoop(ctx, task)
			})
			go s.Get(t.Context(), "http://b.test/") // its slot is the hedge's
			synctest.Wait()
			call := s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: time.Second}}.Task()))
			time.Sleep(2 * time.Second)
			close(answer)
			r, err := call.Result()
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, int(calls.Load())-1, r.Attempts)
			require.Equal(t, uint64(calls.Load()), s.Stats().Attempts)
		})
	}
}

// losesProbe is a governor that takes back its second grant after 100 ms.
type losesProbe struct{ asked atomic.Int32 }

func (g *losesProbe) Acquire(context.Context, ax.Ask) (ax.Grant, error) {
	lost := make(chan struct{})
	if g.asked.Add(1) == 2 {
		time.AfterFunc(100*time.Millisecond, func() { close(lost) })
	}
	return ax.Grant{Lost: lost, Release: func() {}}, nil
}

// TestF6ProbeOfADeafAttempt: an attempt whose grant was lost proves nothing, so its
// probe is free for the next task at once, though a deaf executor keeps its slot.
func TestF6ProbeOfADeafAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		s := qReal(t, ax.Config{
			Governor: &losesProbe{}, Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second}, Hosts: &ax.Lane{NoRetry: true},
		}, func(context.Context, *ax.Task) (*http.Response, error) {
			mu.Lock()
			starts = append(starts, time.Since(begin))
			n := len(starts)
			mu.Unlock()
			switch n {
			case 1:
				return nil, errors.New("down")
			case 2:
				time.Sleep(10 * time.Second) // deaf
			}
			return &http.Response{StatusCode: 200}, nil
		})
		var calls []*ax.Call
		for range 3 {
			calls = append(calls, s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/")}.Task())))
			synctest.Wait()
		}
		_, err := calls[2].Result()
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []time.Duration{0, time.Second, 1105 * time.Millisecond}, starts)
	})
}

// losesFirst is a governor whose first grant is lost before anybody has it.
type losesFirst struct{ asked atomic.Int32 }

func (g *losesFirst) Acquire(context.Context, ax.Ask) (ax.Grant, error) {
	lost := make(chan struct{})
	if g.asked.Add(1) == 1 {
		close(lost)
	}
	return ax.Grant{Lost: lost, Release: func() {}}, nil
}

// TestL9GrantLostBeforeTheSend: like one lost later it is worth another attempt.
func TestL9GrantLostBeforeTheSend(t *testing.T) {
	for range 200 {
		cfg := ax.Config{Governor: &losesFirst{}, Retry: &ax.Retry{BaseDelay: time.Millisecond}}
		synctest.Test(t, func(t *testing.T) {
			s := qReal(t, cfg, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Second):
				}
				return qNoop(ctx, task)
			})
			_, err := s.Get(t.Context(), at("/"))
			require.NoError(t, err)
		})
	}
}
