package ax_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fGovernor is a scripted Governor and Pauser. The zero value grants everything.
type fGovernor struct {
	Answer func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) // n: 1 = the first ask

	mu       sync.Mutex
	asks     []ax.Ask
	times    []time.Time
	released int
	pauses   map[string]time.Time
}

// Acquire records the ask.
func (g *fGovernor) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) {
	g.mu.Lock()
	g.asks, g.times = append(g.asks, a), append(g.times, time.Now())
	n := len(g.asks)
	g.mu.Unlock()
	grant, err := ax.Grant{}, error(nil)
	if g.Answer != nil {
		grant, err = g.Answer(ctx, n, a)
	}
	if err == nil && grant.RetryIn == 0 && grant.Release == nil {
		grant.Release = g.release
	}
	return grant, err
}

func (g *fGovernor) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.released++
}

// PauseUntil records a pause.
func (g *fGovernor) PauseUntil(lane string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pauses == nil {
		g.pauses = map[string]time.Time{}
	}
	g.pauses[lane] = until
}

// Asks are the asks so far.
func (g *fGovernor) Asks() []ax.Ask {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]ax.Ask(nil), g.asks...)
}

// Released counts the calls of Release.
func (g *fGovernor) Released() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.released
}

func TestL9AsksOnceForEachAttemptAndReleasesAfterIt(t *testing.T) {
	g := &fGovernor{}
	bubble(t, ax.Config{Governor: g, Retry: fRetry(1), Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fScript(after(fsec, 503, ""), after(fsec, 200, ""))
		r := ax.Request{URL: at("/"), Owner: "ann", Priority: ax.Important}
		a := t.Go(t.Context(), r)
		t.Until(500 * fms)
		b := t.Go(t.Context(), r) // a sharer asks nothing
		t.Until(999 * fms)
		require.Zero(t, g.Released(), "held while the attempt runs")
		t.Until(1050 * fms)
		require.Equal(t, 1, g.Released(), "a waiting retry holds nothing")
		ra, rb := <-a, <-b
		require.NoError(t, ra.Err)
		require.NoError(t, rb.Err)
		time.Sleep(fms)
		require.Equal(t, 2, g.Released())
		asks := g.Asks()
		require.Len(t, asks, 2)
		for _, ask := range asks {
			require.Equal(t, "a.test", ask.Lane)
			require.Equal(t, "ann", ask.Owner)
			require.Equal(t, ax.Important, ask.Priority)
			require.Equal(t, ra.Resp.Seq, ask.Seq)
			// urgentAt = submitted + (Urgent - Important) x AgingStep [O1], the same for the retry
			require.WithinDuration(t, t.start.Add(6*fsec), ask.Rank, 0)
		}
	})
}

func TestL9RefusalTakesNothingAndTheLaneSleeps(t *testing.T) {
	g := &fGovernor{}
	g.Answer = func(_ context.Context, n int, a ax.Ask) (ax.Grant, error) {
		if n == 1 {
			return ax.Grant{RetryIn: 2 * fsec}, nil
		}
		return ax.Grant{}, nil
	}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 1, Per: 100 * fsec}}}, func(t *tester) {
		c := t.Go(t.Context(), fGet("/"))
		t.Until(fsec)
		require.Zero(t, t.Server.Count())
		require.Zero(t, t.S.Stats().Active)
		require.Len(t, g.Asks(), 1, "it sleeps")
		r := <-c
		require.NoError(t, r.Err)
		require.GreaterOrEqual(t, r.At, 2*fsec)
		require.LessOrEqual(t, r.At, 4*fsec, "RetryIn plus jitter; the one token was not burnt")
		require.Len(t, g.Asks(), 2)
		require.Equal(t, 1, g.Released(), "only what was granted")
	})
}

func TestL9RefusalLeavesSlotAndTokenToOtherLanes(t *testing.T) {
	g := &fGovernor{Answer: func(_ context.Context, _ int, a ax.Ask) (ax.Grant, error) {
		if a.Lane == "a.test" {
			return ax.Grant{RetryIn: time.Hour}, nil
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 1, Per: time.Minute}}}, func(t *tester) {
		a := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(fsec)
		require.Equal(t, fsec, t.Do(t.Context(), ax.Request{URL: "http://b.test/"}).At)
		a.Cancel()
		_, err := a.Result()
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestL9ErrorIsARefusal(t *testing.T) {
	g := &fGovernor{Answer: func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
		if n < 4 {
			return ax.Grant{}, errors.New("store is down")
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		res := t.Do(t.Context(), fGet("/"))
		require.NoError(t, res.Err)
		require.Equal(t, 1, res.Resp.Attempts)
		require.Len(t, g.Asks(), 4)
		require.Positive(t, res.At, "no hot loop")
		require.LessOrEqual(t, res.At, 10*fsec)
		require.Zero(t, fLane(t).Failures)
	})
}

func TestL9ABetterNewcomerEndsTheSleepOnce(t *testing.T) {
	g := &fGovernor{}
	g.Answer = func(context.Context, int, ax.Ask) (ax.Grant, error) { return ax.Grant{RetryIn: time.Minute}, nil }
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		submit := func(p ax.Priority) *ax.Call {
			return t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Priority: p}.Task()))
		}
		submit(ax.Normal)
		t.Until(fsec)
		require.Len(t, g.Asks(), 1)
		submit(ax.Normal)
		t.Until(2 * fsec)
		require.Len(t, g.Asks(), 1, "a worse one does not")
		submit(ax.Urgent)
		t.Until(3 * fsec)
		asks := g.Asks()
		require.Len(t, asks, 2, "a better one does")
		require.Equal(t, ax.Urgent, asks[1].Priority)
	})
}

// TestL9TheGrantGoesToTheBestTaskOfThatMoment, whoever it was asked for.
func TestL9TheGrantGoesToTheBestTaskOfThatMoment(t *testing.T) {
	g := &fGovernor{Answer: func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
		if n == 1 {
			time.Sleep(fsec)
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(100*fms, 200, "")
		low := t.Go(t.Context(), fGet("/low"))
		t.Until(500 * fms)
		urgent := t.Go(t.Context(), ax.Request{URL: at("/urgent"), Priority: ax.Urgent})
		require.Equal(t, 1100*fms, (<-urgent).At)
		require.Equal(t, 1200*fms, (<-low).At)
		require.Equal(t, []string{"/urgent", "/low"}, t.Server.Paths())
	})
}

func TestL9AGrantThatNobodyWantsIsReleased(t *testing.T) {
	g := &fGovernor{Answer: func(context.Context, int, ax.Ask) (ax.Grant, error) { time.Sleep(fsec); return ax.Grant{}, nil }}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		c := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(500 * fms)
		c.Cancel()
		_, err := c.Result()
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 500*fms, t.At(), "the caller does not wait for the governor")
		t.Until(2 * fsec)
		require.Equal(t, 1, g.Released())
		require.Zero(t, t.Server.Count())
		require.Zero(t, t.S.Stats().Active)
	})
}

// TestL9OneAskPerReservedSlot: never more asks under way than slots.
func TestL9OneAskPerReservedSlot(t *testing.T) {
	var mu sync.Mutex
	now, peak := 0, 0
	g := &fGovernor{Answer: func(context.Context, int, ax.Ask) (ax.Grant, error) {
		mu.Lock()
		now++
		peak = max(peak, now)
		mu.Unlock()
		time.Sleep(10 * fms)
		mu.Lock()
		now--
		mu.Unlock()
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 3}, func(t *tester) {
		var cs []<-chan result
		for range 30 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			require.NoError(t, (<-c).Err)
		}
		require.Equal(t, 3, peak)
		require.Equal(t, 100*fms, t.At())
		time.Sleep(fms)
		require.Equal(t, len(g.Asks()), g.Released(), "each grant is given back")
	})
}

func TestL9LostGrantIsNeutralAndRetried(t *testing.T) {
	lose := func(n int, _ ax.Ask) chan struct{} {
		lost := make(chan struct{})
		if n == 1 {
			time.AfterFunc(fsec, func() { close(lost) })
		}
		return lost
	}
	g := &fGovernor{}
	g.Answer = func(_ context.Context, n int, a ax.Ask) (ax.Grant, error) { return ax.Grant{Lost: lose(n, a)}, nil }
	ev := &fEvents{}
	bubble(t, ax.Config{Governor: g, OnEvent: ev.Add, Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fScript(fHang, fAnswer(200, "ok"))
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, "ok", fBody(t, res))
		require.Equal(t, []time.Duration{0, 1100 * fms}, t.Server.Times())
		require.True(t, t.Server.Hits()[0].Canceled)
		require.Zero(t, fLane(t).Failures)
		require.ErrorIs(t, ev.Of(ax.EventAttemptDone)[0].Err, ax.ErrGrantLost)
	})
	g2 := &fGovernor{}
	g2.Answer = func(_ context.Context, n int, a ax.Ask) (ax.Grant, error) { return ax.Grant{Lost: lose(n, a)}, nil }
	bubble(t, ax.Config{Governor: g2, Retry: fRetry(2)}, func(t *tester) {
		t.Server.Reply = fHang
		res := t.Do(t.Context(), ax.Request{Method: "POST", URL: at("/"), Body: []byte("x")})
		require.ErrorIs(t, res.Err, ax.ErrGrantLost, "method safety holds here too")
		require.Equal(t, fsec, res.At)
		require.Equal(t, 1, t.Server.Count())
		require.EqualValues(t, 1, t.S.Stats().Failed, "the caller did not end it")
	})
}

func TestL9ASlowGovernorDoesNotStallOtherLanes(t *testing.T) {
	g := &fGovernor{Answer: func(ctx context.Context, _ int, a ax.Ask) (ax.Grant, error) {
		if a.Lane == "a.test" {
			<-ctx.Done() // it hangs until the scheduler ends
			return ax.Grant{}, ctx.Err()
		}
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		a := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(fsec)
		for range 10 {
			require.Equal(t, fsec, t.Do(t.Context(), ax.Request{URL: "http://b.test/"}).At)
		}
		ctx, cancel := context.WithTimeout(t.Context(), fsec)
		defer cancel()
		require.ErrorIs(t, t.Do(ctx, fGet("/")).Err, context.DeadlineExceeded)
		require.NoError(t, t.S.Close())
		_, err := a.Result()
		require.ErrorIs(t, err, ax.ErrClosed)
	})
}

// TestL9LocalLimitsComeFirst: the governor is asked only for a task about to start.
func TestL9LocalLimitsComeFirst(t *testing.T) {
	g := &fGovernor{}
	bubble(t, ax.Config{Governor: g, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		a, b := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))
		t.Until(500 * fms)
		require.Len(t, g.Asks(), 1)
		<-a
		<-b
		require.Len(t, g.Asks(), 2)
	})
}

func TestL9ThePauserIsToldOfPauses(t *testing.T) {
	g := &fGovernor{}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 7")
		t.Do(t.Context(), fGet("/"))
		time.Sleep(fms)
		g.mu.Lock()
		until := g.pauses["a.test"]
		g.mu.Unlock()
		require.WithinDuration(t, t.start.Add(7*fsec), until, 0)
	})
}

// TestL9StrictRank: with StrictPriority the rank is submission minus priority × 1000 h.
func TestL9StrictRank(t *testing.T) {
	g := &fGovernor{}
	bubble(t, ax.Config{Governor: g, StrictPriority: true}, func(t *tester) {
		t.Until(fsec)
		t.Do(t.Context(), ax.Request{URL: at("/"), Priority: ax.Urgent})
		t.Do(t.Context(), ax.Request{URL: at("/"), Priority: ax.Low})
		require.WithinDuration(t, t.start.Add(fsec-2000*time.Hour), g.Asks()[0].Rank, 0)
		require.WithinDuration(t, t.start.Add(fsec+1000*time.Hour), g.Asks()[1].Rank, 0)
	})
}

// TestL9StrictRankKeepsTheOrderOfAnyPriority that a time.Time can tell.
func TestL9StrictRankKeepsTheOrderOfAnyPriority(t *testing.T) {
	g := &fGovernor{}
	bubble(t, ax.Config{Governor: g, StrictPriority: true}, func(t *tester) {
		const level = 1000 * time.Hour
		priorities := []ax.Priority{math.MinInt, -1 << 40, -3000, -2563, -2562, -1500, 1500, 2562, 2563, 3000, 1 << 40, math.MaxInt}
		for _, p := range priorities {
			t.Do(t.Context(), ax.Request{URL: at("/"), Priority: p})
			time.Sleep(fsec)
		}
		asks := g.Asks()
		for i := 1; i < len(asks); i++ {
			require.True(t, asks[i].Rank.Before(asks[i-1].Rank), "%d before %d", priorities[i], priorities[i-1])
		}
		require.Equal(t, t.start.Add(2*fsec).Unix()+3000*int64(level/fsec), asks[2].Rank.Unix())
		require.Equal(t, t.start.Add(9*fsec).Unix()-3000*int64(level/fsec), asks[9].Rank.Unix())
	})
}

// A grant may start another owner's task than the one it was asked for. What that
// pays is counted like any other start.
func TestL9GrantPassedToAnotherOwnerIsCounted(t *testing.T) {
	gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) { time.Sleep(10 * qms); return ax.Grant{}, nil })
	for name, rate := range map[string][]ax.Rate{"window": ax.PerSecond(1), "smooth": {{Limit: 1, Smooth: true}}, "bucket": {{Limit: 1, Burst: 1}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, Governor: gov, Budgets: map[string]ax.Budget{"o": {Rate: rate}}}, func(t *tester) {
				calls := qSubmit(t, ax.Request{URL: at("/nobody")}, ax.Request{URL: at("/o1"), Owner: "o", Priority: ax.Urgent}, ax.Request{URL: at("/o2"), Owner: "o"})
				qOK(t, calls...)
				require.Equal(t, []string{"/o1", "/nobody", "/o2"}, t.Server.Paths())
				require.GreaterOrEqual(t, t.Server.Times()[2]-t.Server.Times()[0], time.Second, "the owner's rate")
				require.Less(t, t.Server.Times()[2], 1100*qms)
			})
		})
	}
}

// Who is asked for is not over a budget that only its own reservation fills.
func TestL9ReservationDoesNotRefuseItsOwner(t *testing.T) {
	for name, b := range map[string]ax.Budget{
		"concurrency, reject":   {MaxConcurrent: 1, Over: ax.OverReject},
		"concurrency, fallback": {MaxConcurrent: 1, Over: ax.OverFallback},
		"rate, reject":          {Rate: ax.PerSecond(1), Over: ax.OverReject},
		"bucket, reject":        {Rate: []ax.Rate{{Limit: 1, Burst: 1}}, Over: ax.OverReject},
	} {
		t.Run(name, func(t *testing.T) {
			refuse := true
			gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) {
				if refuse = !refuse; refuse {
					return ax.Grant{RetryIn: 10 * qms}, nil
				}
				time.Sleep(10 * qms)
				return ax.Grant{}, nil
			})
			bubble(t, ax.Config{Owners: &b, Governor: gov}, func(t *tester) {
				t.Server.Reply = after(100*qms, 200, "")
				for range 3 {
					first := t.Go(dBG, ax.Request{URL: at("/"), Owner: "o"})
					time.Sleep(50 * qms)
					second := t.Do(dBG, ax.Request{URL: at("/"), Owner: "o"})
					require.ErrorIs(t, second.Err, ax.ErrBudget)
					require.NoError(t, (<-first).Err)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// A rate that comes into force while a grant is on its way counts the call that
// follows, in all three scopes.
func TestL8RateThatComesBetweenGrantAndCall(t *testing.T) {
	minute := ax.PerMinute(1)
	for name, set := range map[string]func(*tester) error{
		"scheduler": func(t *tester) error { return t.S.SetLimits("", ax.Limits{Rate: minute}) },
		"lane":      func(t *tester) error { return t.S.SetLimits("a.test", ax.Limits{Rate: minute}) },
		"owner":     func(t *tester) error { return t.S.SetBudget("o", ax.Budget{Rate: minute}) },
	} {
		for _, governed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", governed: ", governed), func(t *testing.T) {
				var cfg ax.Config
				if governed {
					cfg.Governor = qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) { time.Sleep(time.Second); return ax.Grant{}, nil })
				} else {
					cfg.OnEvent = func(e ax.Event) {
						if e.Kind == ax.EventStarted {
							time.Sleep(time.Second)
						}
					}
				}
				cfg.MaxConcurrent = 1
				bubble(t, cfg, func(t *tester) {
					a := t.Go(dBG, ax.Request{URL: at("/a"), Owner: "o"})
					t.Until(500 * qms)
					require.NoError(t, set(t))
					b := t.Go(dBG, ax.Request{URL: at("/b"), Owner: "o"})
					require.NoError(t, (<-a).Err)
					require.NoError(t, (<-b).Err)
					require.GreaterOrEqual(t, t.Server.Times()[1]-t.Server.Times()[0], time.Minute)
				})
			})
		}
	}
}
