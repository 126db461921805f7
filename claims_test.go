package ax_test

import (
	"context"
	"errors"
	"fmt"
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

// atOnce answers at once.
func atOnce() ax.Executor {
	return ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
}

// A window that follows a bucket begins with what the bucket knew, the start on its way included.
func TestL8BucketStartCountsOnceInAWindow(t *testing.T) {
	cfg := ax.Config{Rate: []ax.Rate{{Limit: 2, Per: time.Minute, Burst: 2}}, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventStarted && e.Task.URL() == at("/a") {
			time.Sleep(100 * qms)
		}
	}}
	bubble(t, cfg, func(t *tester) {
		a := t.Go(dBG, ax.Request{URL: at("/a")})
		t.Until(50 * qms)
		require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: ax.PerMinute(2)}))
		t.Until(200 * qms)
		require.NoError(t, (<-a).Err)
		b := t.Do(dBG, ax.Request{URL: at("/b")})
		require.NoError(t, b.Err)
		require.Less(t, b.At, time.Second)
	})
}

func TestL8BucketStartCountsOnceEverywhere(t *testing.T) {
	bucket, minute := []ax.Rate{{Limit: 2, Per: time.Minute, Burst: 2}}, ax.PerMinute(2)
	for i, set := range []func(*tester) error{
		func(t *tester) error { return t.S.SetLimits("l", ax.Limits{Rate: minute}) },
		func(t *tester) error { return t.S.SetBudget("o", ax.Budget{Rate: minute}) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cfg := ax.Config{OnEvent: func(e ax.Event) {
				if e.Kind == ax.EventStarted && e.Task.URL() == at("/a") {
					time.Sleep(100 * qms)
				}
			}}
			if i == 0 {
				cfg.Lanes = []ax.Lane{{Name: "l", Match: []string{"a.test"}, Rate: bucket}}
			} else {
				cfg.Budgets = map[string]ax.Budget{"o": {Rate: bucket}}
			}
			bubble(t, cfg, func(t *tester) {
				a := t.Go(dBG, ax.Request{URL: at("/a"), Owner: "o"})
				t.Until(50 * qms)
				require.NoError(t, set(t))
				require.NoError(t, (<-a).Err)
				b := t.Do(dBG, ax.Request{URL: at("/b"), Owner: "o"})
				require.NoError(t, b.Err)
				require.Less(t, b.At, time.Second)
			})
		})
	}
}

// Who reads the clock before another has moved the rates on is not refused for it.
func TestL7NoRefusalByAnOldClock(t *testing.T) {
	s, err := ax.New(nil, ax.Config{
		MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit,
		Budgets:  map[string]ax.Budget{"o": {Rate: []ax.Rate{{Limit: 1e6}, {Limit: 1e6, Burst: 1e6}}, Over: ax.OverReject}},
		Executor: atOnce(),
	})
	require.NoError(t, err)
	defer s.Close()
	var wg sync.WaitGroup
	var refused atomic.Int64
	task := ax.Must(ax.Request{URL: at("/"), Owner: "o"}.Task())
	for range 4 {
		wg.Go(func() {
			for range 20000 {
				if _, err := s.Do(dBG, task); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, refused.Load())
}

func TestNoWaitIsNotRefusedByAnOldClock(t *testing.T) {
	s, err := ax.New(nil, ax.Config{
		MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit,
		Hosts:    &ax.Lane{Rate: []ax.Rate{{Limit: 1e6}, {Limit: 1e6, Burst: 1e6}}},
		Executor: atOnce(),
	})
	require.NoError(t, err)
	defer s.Close()
	var wg sync.WaitGroup
	var refused atomic.Int64
	task := ax.Must(ax.Request{URL: at("/"), Owner: "o", NoWait: true}.Task())
	for range 4 {
		wg.Go(func() {
			for range 20000 {
				if _, err := s.Do(dBG, task); errors.Is(err, ax.ErrWouldWait) {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, refused.Load())
}

// A new owner has all its tokens, whatever the clock says meanwhile.
func TestL7NewOwnerStartsAtOnce(t *testing.T) {
	for name, over := range map[string]ax.OverAction{"reject": ax.OverReject, "queue": ax.OverQueue} {
		t.Run(name, func(t *testing.T) {
			s, err := ax.New(nil, ax.Config{
				Owners:   &ax.Budget{Rate: []ax.Rate{{Limit: 10, Burst: 10}}, Over: over},
				Executor: atOnce(),
			})
			require.NoError(t, err)
			defer s.Close()
			_, err = s.Do(dBG, ax.Must(ax.Request{URL: at("/"), Owner: "o", NoWait: over == ax.OverQueue}.Task()))
			require.NoError(t, err)
			require.Zero(t, s.Stats().Owners["o"].Over)
		})
	}
}

func TestNewHostStartsAtOnce(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 10, Burst: 10}}}, Executor: atOnce()})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Do(dBG, ax.Must(ax.Request{URL: at("/"), NoWait: true}.Task()))
	require.NoError(t, err)
}

// What ends between grant and call has cost no token.
func TestL2GoexitBeforeTheCallReturnsItsToken(t *testing.T) {
	for _, scope := range []string{"scheduler", "lane"} {
		t.Run(scope, func(t *testing.T) {
			first := true
			cfg := ax.Config{OnEvent: func(e ax.Event) {
				if e.Kind == ax.EventStarted && first {
					first = false
					runtime.Goexit()
				}
			}}
			if scope == "scheduler" {
				cfg.Rate = ax.PerSecond(1)
				cfg.Lanes = []ax.Lane{{Name: "l", Match: []string{"a.test"}}}
			} else {
				cfg.Lanes = []ax.Lane{{Name: "l", Match: []string{"a.test"}, Rate: ax.PerSecond(1)}}
			}
			bubble(t, cfg, func(t *tester) {
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					t.S.Do(dBG, ax.Must(ax.Request{URL: at("/a")}.Task()))
				}()
				<-gone
				ctx, cancel := context.WithTimeout(dBG, time.Hour)
				defer cancel()
				r := t.Do(ctx, ax.Request{URL: at("/b")})
				require.NoError(t, r.Err)
				require.LessOrEqual(t, r.At, time.Second)
			})
		})
	}
}

// A grant goes to nobody whose budget has no room for it.
func TestL9GrantIsNotPassedToAnOwnerWithoutAToken(t *testing.T) {
	gov := qGovernor(func(_ context.Context, a ax.Ask) (ax.Grant, error) {
		if a.Owner == "p" {
			time.Sleep(200 * qms)
		}
		return ax.Grant{}, nil
	})
	cfg := ax.Config{MaxConcurrent: 2, Governor: gov, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventStarted && e.Task.URL() == at("/a") {
			time.Sleep(100 * qms)
		}
	}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		a := t.Go(dBG, ax.Request{URL: at("/a"), Owner: "q"})
		t.Until(10 * qms)
		require.NoError(t, t.S.SetBudget("q", ax.Budget{Rate: ax.PerMinute(1)}))
		t.Until(20 * qms)
		p := t.Go(dBG, ax.Request{URL: at("/p"), Owner: "p"})
		t.Until(30 * qms)
		b := t.Go(dBG, ax.Request{URL: at("/b"), Owner: "q", Priority: ax.Urgent})
		for _, c := range []<-chan result{a, p, b} {
			require.NoError(t, (<-c).Err)
		}
		require.Equal(t, []string{"/a", "/p", "/b"}, t.Server.Paths())
		require.GreaterOrEqual(t, t.Server.Times()[2]-t.Server.Times()[0], time.Minute)
	})
}

// An owner that came to pay has its token back if nothing is sent.
func TestL9PassedGrantUnsentReturnsItsToken(t *testing.T) {
	for name, rate := range map[string][]ax.Rate{
		"window": {{Limit: 1, Per: time.Minute}},
		"smooth": {{Limit: 1, Per: time.Minute, Smooth: true}},
		"bucket": {{Limit: 1, Per: time.Minute, Burst: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) {
				if n.Add(1) == 1 {
					time.Sleep(10 * qms)
					return ax.Grant{StartBy: time.Now().Add(qms)}, nil
				}
				return ax.Grant{}, nil
			})
			cfg := ax.Config{MaxConcurrent: 1, Governor: gov, Budgets: map[string]ax.Budget{"o": {Rate: rate}}}
			cfg.OnEvent = func(e ax.Event) {
				if e.Kind == ax.EventQueued && e.Owner == "o" {
					time.Sleep(20 * qms) // longer than the grant is good for
				}
			}
			bubble(t, cfg, func(t *tester) {
				calls := qSubmit(t, ax.Request{URL: at("/nobody")})
				time.Sleep(qms)
				o := t.Go(dBG, ax.Request{URL: at("/o1"), Owner: "o", Priority: ax.Urgent})
				r := <-o
				require.NoError(t, r.Err)
				require.Less(t, r.At, time.Second)
				qOK(t, calls...)
			})
		})
	}
}

func TestL9RefusedGrantReturnsTheTokenOfANewOwner(t *testing.T) {
	n := 0
	gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) {
		if n++; n == 1 {
			return ax.Grant{RetryIn: 10 * qms}, nil
		}
		return ax.Grant{}, nil
	})
	for name, over := range map[string]ax.OverAction{"reject": ax.OverReject, "queue": ax.OverQueue} {
		t.Run(name, func(t *testing.T) {
			n = 0
			bubble(t, ax.Config{Governor: gov, Owners: &ax.Budget{Rate: []ax.Rate{{Limit: 1, Per: time.Minute, Burst: 1}}, Over: over}}, func(t *tester) {
				r := t.Do(dBG, ax.Request{URL: at("/"), Owner: "o"})
				require.NoError(t, r.Err)
				require.Less(t, r.At, time.Second)
			})
		})
	}
}

// Who is asked for does not count as waiting, for scheduler, lane and owner alike.
func TestL7MaxQueueLeavesOutWhomAGovernorIsAskedFor(t *testing.T) {
	gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) { time.Sleep(10 * qms); return ax.Grant{}, nil })
	for name, cfg := range map[string]ax.Config{
		"scheduler": {MaxQueue: 1}, "lane": {Hosts: &ax.Lane{MaxQueue: 1}}, "owner": {Owners: &ax.Budget{MaxQueue: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Governor = gov
			bubble(t, cfg, func(t *tester) {
				qOK(t, qSubmit(t, ax.Request{URL: at("/1"), Owner: "o"}, ax.Request{URL: at("/2"), Owner: "o"}, ax.Request{URL: at("/3"), Owner: "o"})...)
			})
		})
	}
}

// A reservation whose task has left is the next one's.
func TestL7OrphanedReservationRefusesNobody(t *testing.T) {
	gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) { time.Sleep(100 * qms); return ax.Grant{}, nil })
	bubble(t, ax.Config{Governor: gov, Owners: &ax.Budget{MaxConcurrent: 1, Over: ax.OverReject}}, func(t *tester) {
		ctx, cancel := context.WithCancel(dBG)
		a := t.Go(ctx, ax.Request{URL: at("/a"), Owner: "o"})
		t.Until(10 * qms)
		cancel()
		<-a
		t.Until(20 * qms)
		require.Zero(t, t.S.Stats().Active)
		require.NoError(t, t.Do(dBG, ax.Request{URL: at("/b"), Owner: "o"}).Err)
	})
}

// In windows that come after it was granted, a start of a bucket counts from its call,
// whatever the bucket still knows of it.
func TestL8StartOfABucketCountsFromItsCall(t *testing.T) {
	for _, c := range []struct {
		name       string
		rate       ax.Rate
		lift       bool
		hold, next time.Duration
	}{
		{"refilled", ax.Rate{Limit: 10, Burst: 1}, false, 300 * fms, 400 * fms},
		{"lifted between", ax.Rate{Limit: 1, Per: time.Minute, Burst: 1}, true, 300 * fms, 400 * fms},
		{"known from before", ax.Rate{Limit: 1, Per: time.Minute, Burst: 1}, false, 30 * time.Second, 31 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := ax.Config{Rate: []ax.Rate{c.rate}, OnEvent: func(e ax.Event) {
				if e.Kind == ax.EventStarted && e.Task.URL() == at("/a") {
					time.Sleep(c.hold)
				}
			}}
			bubble(t, cfg, func(t *tester) {
				a := t.Go(dBG, fGet("/a"))
				t.Until(200 * fms)
				if c.lift {
					require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: ax.Unlimited()}))
				}
				require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: ax.PerMinute(1)}))
				require.NoError(t, (<-a).Err)
				t.Until(c.next)
				require.NoError(t, t.Do(dBG, fGet("/b")).Err)
				require.GreaterOrEqual(t, t.Server.Times()[1]-t.Server.Times()[0], time.Minute)
			})
		})
	}
}

func TestL8StartOfABucketGivenBackUnderAWindow(t *testing.T) {
	cfg := ax.Config{Rate: []ax.Rate{{Limit: 1, Per: time.Minute, Burst: 1}}, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventStarted && e.Task.URL() == at("/a") {
			time.Sleep(300 * fms)
			runtime.Goexit()
		}
	}}
	bubble(t, cfg, func(t *tester) {
		t.Go(dBG, fGet("/a"))
		t.Until(100 * fms)
		require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: ax.PerMinute(1)}))
		t.Until(400 * fms)
		require.Zero(t, t.Server.Count())
		b := t.Do(dBG, fGet("/b"))
		require.Less(t, b.At, time.Second)
	})
}

// Retries that a governor is asked for make no room in the queue.
func TestL7MaxQueueWithRetriesAskedFor(t *testing.T) {
	g := &fGovernor{}
	g.Answer = func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n > 2 {
			select {
			case <-ctx.Done():
				return ax.Grant{}, ctx.Err()
			case <-time.After(time.Hour):
			}
		}
		return ax.Grant{}, nil
	}
	bubble(t, ax.Config{Governor: g, Retry: fRetry(1), Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 2, MaxQueue: 1}}}, func(t *tester) {
		t.Server.Reply = fAnswer(503, "")
		for range 2 {
			t.Go(dBG, ax.Request{URL: at("/r"), Owner: "o"})
		}
		t.Until(time.Second)
		require.Len(t, g.Asks(), 4) // both retries are asked for
		queued := 0
		for range 6 {
			c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/n"), Owner: "o"}.Task()))
			synctest.Wait()
			select {
			case <-c.Done():
			default:
				queued++
			}
		}
		require.Equal(t, 1, queued)
	})
}

func TestL7ReservationInAnotherLaneAdmitsNobody(t *testing.T) {
	g := &fGovernor{}
	g.Answer = func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		select {
		case <-ctx.Done():
			return ax.Grant{}, ctx.Err()
		case <-time.After(time.Hour):
		}
		return ax.Grant{}, nil
	}
	bubble(t, ax.Config{Governor: g, Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1, Over: ax.OverReject}}}, func(t *tester) {
		ctx, cancel := context.WithCancel(dBG)
		a := t.Go(ctx, ax.Request{URL: at("/"), Owner: "o"})
		synctest.Wait()
		cancel()
		<-a
		r := <-t.Go(dBG, ax.Request{URL: "http://b.test/", Owner: "o"})
		require.ErrorIs(t, r.Err, ax.ErrBudget, "at %v", r.At)
		require.Less(t, r.At, time.Second)
	})
}
