package ax_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestF6ExactlyTheProbes releases a crowd at the instant of half-open.
func TestF6ExactlyTheProbes(t *testing.T) {
	for _, probes := range []int{1, 3} {
		for _, when := range []ax.OpenAction{ax.OpenHold, ax.OpenReject} {
			t.Run(fmt.Sprint(probes, when), func(t *testing.T) {
				bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, Probes: probes, WhenOpen: when}}, func(t *tester) {
					t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/": after(200*fms, 200, "")})
					fOpen(t)
					var cs []<-chan result
					for range 100 {
						cs = append(cs, t.GoAt(3*fsec, t.Context(), fGet("/")))
					}
					t.Until(3*fsec + 199*fms)
					require.Equal(t, 1+probes, t.Server.Count())
					require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
					require.Equal(t, probes, fLane(t).Active)
					if when == ax.OpenHold {
						require.Equal(t, 100-probes, fLane(t).Parked)
					} else {
						require.EqualValues(t, 100-probes, t.S.Stats().Rejected)
					}
					t.Until(3*fsec + 201*fms)
					require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
					for _, c := range cs {
						<-c
					}
				})
			})
		}
	}
}

// TestF6OneFailureReopens in half-open and on the ramp, each for a full OpenFor.
func TestF6OneFailureReopens(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{OnEvent: ev.Add, Breaker: &ax.Breaker{Window: 10, MinCalls: 1, Probes: 2, OpenFor: 4 * fsec, Ramp: 3 * fsec}}, func(t *tester) {
		t.Server.Reply = fOutcomes("F" + "SF" + "SS" + "SF" + "SS" + "S")
		do := func() result { return t.Do(t.Context(), fGet("/")) }
		do()                                 // opens at 0
		require.Equal(t, 4*fsec, do().At)    // a good probe
		require.Equal(t, 500, do().Status()) // a bad one
		require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
		require.Equal(t, 8*fsec, do().At, "a full OpenFor again")
		require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
		require.Equal(t, 8*fsec, do().At)
		require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		t.Until(9 * fsec)
		do()
		require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		require.Equal(t, 500, do().Status())
		require.Equal(t, ax.BreakerOpen, fLane(t).Breaker, "one failure on the ramp, though the rate would bear it")
		at := t.At()
		require.Equal(t, at+4*fsec, do().At)
		do()
		require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		time.Sleep(3 * fsec)
		do()
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
		require.Equal(t, []ax.EventKind{
			ax.EventBreakerOpened, ax.EventBreakerHalfOpen,
			ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerRamping,
			ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerRamping, ax.EventBreakerClosed,
		}, ev.Kinds(fBreakerKinds...))
		for _, e := range ev.Of(ax.EventBreakerRamping) {
			require.Equal(t, 3*fsec, e.Delay)
		}
	})
}

func TestF6ProbeThatIsNeitherFailureNorErrorIsASuccess(t *testing.T) {
	for _, status := range []int{404, 429, 304} {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/": fAnswer(status, "")})
			fOpen(t)
			require.Equal(t, status, t.Do(t.Context(), fGet("/")).Status())
			require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		})
	}
}

// TestF6RampOfConcurrency grows in a line from Probes to the limit over Ramp.
func TestF6RampOfConcurrency(t *testing.T) {
	const limit, ramp = 40, 4 * fsec
	b := &ax.Breaker{Window: 1, Ramp: ramp}
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: limit, Breaker: b}}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/": after(100*fms, 200, "")})
		t.Do(t.Context(), fGet("/bad"))
		var cs []<-chan result
		for range 900 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		verdict := 3*fsec + 100*fms
		for step := range 16 {
			since := time.Duration(step)*ramp/16 + 7*fms
			t.Until(verdict + since)
			most := 1 + int((since*(limit-1)+ramp-1)/ramp)
			least := int(since * (limit - 1) / ramp) // what ended within the last 100 ms is replaced as the ramp allows
			require.LessOrEqual(t, t.Server.Active(), most, "at %v of the ramp", since)
			require.GreaterOrEqual(t, t.Server.Active(), least, "the ramp is used, at %v", since)
			st := t.S.Stats().Lanes["a"]
			require.Equal(t, ax.BreakerRamping, st.Breaker)
			require.LessOrEqual(t, st.MaxConcurrent, most)
			require.GreaterOrEqual(t, st.MaxConcurrent, max(1, least))
		}
		t.Until(verdict + ramp + 10*fms)
		require.Equal(t, limit, t.Server.Active())
		require.Equal(t, limit, t.S.Stats().Lanes["a"].MaxConcurrent)
		for _, c := range cs {
			require.Equal(t, 200, (<-c).Status())
		}
		require.Equal(t, limit, t.Server.Peak())
	})
}

// TestF6RampWithoutALaneLimitEndsAtTheSchedulers uses the scheduler's gate as the full limit.
func TestF6RampWithoutALaneLimitEndsAtTheSchedulers(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 10, Breaker: &ax.Breaker{Window: 1, Ramp: 10 * fsec}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/": after(100*fms, 200, "")})
		fOpen(t)
		var cs []<-chan result
		for range 600 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		t.Until(3*fsec + 100*fms + 5*fsec + fms)
		require.GreaterOrEqual(t, t.Server.Active(), 4)
		require.LessOrEqual(t, t.Server.Active(), 6, "half way up")
		t.Until(3*fsec + 100*fms + 10*fsec + fms)
		require.Equal(t, 10, t.Server.Active())
		for _, c := range cs {
			<-c
		}
	})
}

func TestF6RampOfTheRate(t *testing.T) {
	const limit, ramp = 40, 4 * fsec
	lane := ax.Lane{Name: "a", Match: []string{"a.test"}, Rate: ax.PerSecond(limit), Breaker: &ax.Breaker{Window: 1, Ramp: ramp}}
	bubble(t, ax.Config{Lanes: []ax.Lane{lane}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
		t.Do(t.Context(), fGet("/bad"))
		var cs []<-chan result
		for range 300 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			require.Equal(t, 200, (<-c).Status())
		}
		ts := t.Server.Times()[1:]
		require.Equal(t, 3*fsec, ts[0])
		for i, at := range ts {
			since, inSecond := at-3*fsec, 0
			for _, o := range ts[:i+1] {
				if o > at-fsec {
					inSecond++
				}
			}
			require.LessOrEqual(t, inSecond, min(limit, 1+int((since*limit+ramp-1)/ramp)), "starts in the second before %v", at)
		}
		require.LessOrEqual(t, ts[299], 3*fsec+ramp+8*fsec)
	})
}

func TestF6LateOutcomesChangeNothing(t *testing.T) {
	for _, late := range []int{200, 500} {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{
				"/late": after(4*fsec, late, ""), "/later": after(1500*fms, late, ""), "/bad": fAnswer(500, ""), "/probe": after(2*fsec, 200, ""),
			})
			l1, l2 := t.Go(t.Context(), fGet("/late")), t.Go(t.Context(), fGet("/later"))
			t.Until(fms)
			fOpen(t)
			probe := t.Go(t.Context(), fGet("/probe"))
			t.Until(2 * fsec)
			require.Equal(t, late, (<-l2).Status())
			require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
			t.Until(3*fsec + 2*fms)
			require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker, "the open period was not prolonged")
			t.Until(4500 * fms)
			require.Equal(t, late, (<-l1).Status())
			require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
			require.Equal(t, 5*fsec+fms, (<-probe).At)
			require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		})
	}
}

func TestF6CancelledProbeGivesItsPermitBack(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/hang": fHang})
		fOpen(t)
		ctx, cancel := context.WithCancel(t.Context())
		hang := t.Go(ctx, fGet("/hang"))
		t.Until(fms)
		next := t.Go(t.Context(), fGet("/next"))
		t.Until(3500 * fms)
		require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
		cancel()
		require.ErrorIs(t, (<-hang).Err, context.Canceled)
		require.Equal(t, 3500*fms, (<-next).At, "the next one is the probe at once")
		require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
	})
}

// TestF6HungProbeIsJudgedInTime, also if nobody waits behind it and nobody asks: what is
// told is told in its moment, and Stats knows at that very moment.
func TestF6HungProbeIsJudgedInTime(t *testing.T) {
	ev := &fEvents{}
	opened, halfOpen := ax.EventBreakerOpened, ax.EventBreakerHalfOpen
	bubble(t, ax.Config{OnEvent: ev.Add, Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/hung": fHang})
		fOpen(t)
		hung := t.S.Submit(t.Context(), ax.Must(fGet("/hung").Task()))
		t.Until(33*fsec - 1)
		require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
		require.Zero(t, fLane(t).BreakerUntil)
		t.Until(33 * fsec)
		require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
		require.WithinDuration(t, t.start.Add(36*fsec), fLane(t).BreakerUntil, 0)
		t.Until(36 * fsec)
		require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
		require.Zero(t, fLane(t).BreakerUntil)
		t.Until(37 * fsec)
		var at, delays []time.Duration
		for _, e := range ev.Of(opened, halfOpen) {
			at, delays = append(at, e.Time.Sub(t.start)), append(delays, e.Delay)
		}
		require.Equal(t, []ax.EventKind{opened, halfOpen, opened, halfOpen}, ev.Kinds(opened, halfOpen))
		require.Equal(t, []time.Duration{0, 3 * fsec, 33 * fsec, 36 * fsec}, at)
		require.Equal(t, []time.Duration{3 * fsec, 0, 3 * fsec, 0}, delays)
		require.Equal(t, 1, fLane(t).Active, "the attempt itself goes on")
		hung.Cancel()
	})
}

// TestF6HungProbeCountsAsFailed after max(OpenFor, 30 s); its attempt goes on.
func TestF6HungProbeCountsAsFailed(t *testing.T) {
	for _, row := range []struct{ openFor, verdict time.Duration }{{3 * fsec, 30 * fsec}, {40 * fsec, 40 * fsec}} {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: row.openFor}}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/hung": after(100*fsec, 200, "late"), "/next": after(200*fsec, 200, "")})
			fOpen(t)
			hung := t.Go(t.Context(), fGet("/hung"))
			t.Until(fms)
			next := t.Go(t.Context(), fGet("/next"))
			t.Until(row.openFor + row.verdict - fms)
			require.Equal(t, ax.BreakerHalfOpen, fLane(t).Breaker)
			t.Until(row.openFor + row.verdict + fms)
			require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
			require.Equal(t, 1, fLane(t).Active, "the attempt itself goes on")
			t.Until(2*row.openFor + row.verdict + fms)
			require.Equal(t, []time.Duration{2*row.openFor + row.verdict}, fPathHits(t, "/next"), "a new probe after a full OpenFor")
			r := <-hung
			require.Equal(t, "late", fBody(t, r))
			require.Equal(t, row.openFor+100*fsec, r.At)
			require.Equal(t, 200, (<-next).Status())
		})
	}
}
