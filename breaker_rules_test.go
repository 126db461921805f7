package ax_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fBreakerKinds are the kinds of a breaker's events.
var fBreakerKinds = []ax.EventKind{ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerRamping, ax.EventBreakerClosed}

// fOpen makes a.test's breaker open at once by one failure at /bad.
func fOpen(t *tester) {
	t.Do(t.Context(), fGet("/bad"))
	require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
}

// TestF6OpensAboveTheRate plays outcomes one by one; the breaker must open at the one named, or never.
func TestF6OpensAboveTheRate(t *testing.T) {
	rows := []struct {
		name     string
		b        ax.Breaker
		outcomes string
		openAt   int // 0 = never
	}{
		{"3 of 10 is not above 0.3", ax.Breaker{}, "FFFSSSSSSS", 0},
		{"4 of 10 is", ax.Breaker{}, "FFFFSSSSSS", 10},
		{"not before MinCalls", ax.Breaker{}, "FFFFFFFFFF", 10},
		{"the window slides", ax.Breaker{}, "SSSSSSSSSSFFFF", 14},
		{"old failures slide out", ax.Breaker{}, "FFFSSSSSSSSSSFFFS", 0},
		{"MinCalls below the window", ax.Breaker{MinCalls: 2}, "SF", 2},
		{"one call is enough", ax.Breaker{MinCalls: 1}, "F", 1},
		{"half is not above half", ax.Breaker{FailureRate: 0.5}, "FFFFFSSSSS", 0},
		{"six of ten is", ax.Breaker{FailureRate: 0.5}, "FFFFSSSSFF", 10},
		{"judged on a success too", ax.Breaker{MinCalls: 3, FailureRate: 0.5}, "FFS", 3},
		{"one of three is not", ax.Breaker{MinCalls: 3, FailureRate: 0.5}, "FSS", 0},
		{"window of one", ax.Breaker{Window: 1}, "SSF", 3},
		{"a rate of one never opens", ax.Breaker{Window: 3, FailureRate: 1}, "FFFFFF", 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.b.WhenOpen = ax.OpenReject
			bubble(t, ax.Config{Breaker: &row.b}, func(t *tester) {
				t.Server.Reply = fOutcomes(row.outcomes)
				for i := range len(row.outcomes) {
					require.NoError(t, t.Do(t.Context(), fGet("/")).Err, "call %d", i+1)
					want := ax.BreakerClosed
					if i+1 == row.openAt {
						want = ax.BreakerOpen
					}
					require.Equal(t, want, fLane(t).Breaker, "after call %d", i+1)
				}
				failed := strings.Count(row.outcomes, "F")
				require.EqualValues(t, failed, fLane(t).Failures)
			})
		})
	}
}

func TestF6OldOutcomesNoLongerCount(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 4, MaxAge: 10 * fsec}}, func(t *tester) {
		t.Server.Reply = fOutcomes("FFFSFFFF")
		for range 3 {
			t.Do(t.Context(), fGet("/"))
		}
		t.Until(10*fsec + 1)
		t.Do(t.Context(), fGet("/"))
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker, "one sample is fewer than MinCalls")
		for i := range 3 {
			require.Equal(t, ax.BreakerClosed, fLane(t).Breaker, "failure %d", i)
			t.Do(t.Context(), fGet("/"))
		}
		require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
	})
}

func TestF6SlowSuccessIsAFailure(t *testing.T) {
	rows := []struct {
		reply fReply
		want  ax.BreakerState
	}{
		{after(fsec-1, 200, "x"), ax.BreakerClosed},
		{after(fsec+1, 200, "x"), ax.BreakerOpen},
		{after(fsec+1, 404, "x"), ax.BreakerOpen},
	}
	for _, row := range rows {
		bubble(t, ax.Config{Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1, SlowCall: fsec}}, func(t *tester) {
			t.Server.Reply = row.reply
			require.Equal(t, "x", fBody(t, t.Do(t.Context(), fGet("/"))))
			require.Equal(t, 1, t.Server.Count(), "the caller has its answer, slow or not")
			require.Equal(t, row.want, fLane(t).Breaker)
		})
	}
}

// fSlowBody sleeps before its end.
type fSlowBody struct {
	fStream
	d time.Duration
}

// Read sleeps once.
func (b *fSlowBody) Read(p []byte) (int, error) {
	time.Sleep(b.d)
	b.d = 0
	return b.fStream.Read(p)
}

func TestF6SlowCallIsMeasuredToTheEndOfTheBody(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, SlowCall: fsec}}, func(t *tester) {
		t.Server.Reply = fWith(200, &fSlowBody{fStream{left: 4}, 2 * fsec}, 4)
		require.NoError(t, t.Do(t.Context(), fGet("/")).Err)
		require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
	})
}

func TestF6IsFailureReplacesTheRule(t *testing.T) {
	for _, status := range []int{404, 500} {
		var seen ax.Outcome
		b := &ax.Breaker{Window: 1, IsFailure: func(o ax.Outcome) bool {
			seen = o
			return o.Response != nil && o.Response.StatusCode == 404
		}}
		bubble(t, ax.Config{Breaker: b}, func(t *tester) {
			t.Server.Reply = after(5*fms, status, "")
			t.Do(t.Context(), fGet("/"))
			require.Equal(t, status == 404, fLane(t).Breaker == ax.BreakerOpen)
			require.Equal(t, 1, seen.Attempt)
			require.Equal(t, 5*fms, seen.Took)
			require.Equal(t, "GET", seen.Task.Method())
		})
	}
}

func TestF6IsFailureIsNotAskedAboutNeutralOutcomes(t *testing.T) {
	b := &ax.Breaker{Window: 1, IsFailure: func(ax.Outcome) bool { return true }}
	bubble(t, ax.Config{Breaker: b}, func(t *tester) {
		t.Server.Reply = fHang
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(fms, cancel)
		require.ErrorIs(t, t.Do(ctx, fGet("/")).Err, context.Canceled)
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
	})
}

func TestF6OpenHoldParksUntilTheProbe(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
		fOpen(t)
		c := t.GoAt(fsec, t.Context(), fGet("/"))
		t.Until(2 * fsec)
		st := t.S.Stats()
		require.Equal(t, []int{0, 0, 1}, []int{st.Active, st.Queued, st.Parked})
		require.Equal(t, 1, st.Lanes["a.test"].Parked)
		r := <-c
		require.Equal(t, 3*fsec, r.At, "OpenFor is 3 s unless set")
		require.Equal(t, 2*fsec, r.Resp.Waited)
		require.Equal(t, 1, r.Resp.Attempts)
	})
}

func TestF6OpenHoldKnowsTheEarliestStart(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fAnswer(500, "")
		fOpen(t)
		ctx, cancel := context.WithTimeout(t.Context(), fsec)
		defer cancel()
		res := t.Do(ctx, fGet("/"))
		require.Zero(t, res.At)
		require.ErrorIs(t, res.Err, ax.ErrWouldExceedDeadline)
		r := fGet("/")
		r.NoWait = true
		res = t.Do(t.Context(), r)
		require.Zero(t, res.At)
		require.ErrorIs(t, res.Err, ax.ErrWouldWait)
	})
}

func TestF6OpenRejectRefusesAtOnce(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{OnEvent: ev.Add, Retry: fRetry(5), Breaker: &ax.Breaker{Window: 1, OpenFor: 5 * fsec, WhenOpen: ax.OpenReject}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
		r := fGet("/bad")
		r.NoRetry = true
		t.Do(t.Context(), r)
		t.Until(2 * fsec)
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, 2*fsec, res.At)
		require.ErrorIs(t, res.Err, ax.ErrCircuitOpen)
		e := fError(t, res.Err)
		require.Equal(t, "admit", e.Op)
		require.Equal(t, "a.test", e.Lane)
		require.Equal(t, 3*fsec, e.RetryAfter)
		require.Zero(t, e.Attempts)
		require.False(t, e.Timeout())
		require.EqualValues(t, 1, t.S.Stats().Rejected)
		require.Len(t, ev.Of(ax.EventRejected), 1)
		require.Equal(t, 1, t.Server.Count())
		t.Until(5 * fsec)
		require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status(), "the first after OpenFor is the probe")
	})
}

// TestF6OpenRejectWhileTheProbesAreOut: nobody knows when they come back.
func TestF6OpenRejectWhileTheProbesAreOut(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/probe": after(fsec, 200, "")})
		fOpen(t)
		t.Until(3 * fsec)
		probe := t.Go(t.Context(), fGet("/probe"))
		time.Sleep(fms)
		err := t.Do(t.Context(), fGet("/")).Err
		require.ErrorIs(t, err, ax.ErrCircuitOpen)
		require.EqualError(t, err, `ax: GET http://a.test/ (lane "a.test"): admit: circuit breaker of lane "a.test" is half-open, and its probes are out`)
		require.Zero(t, fError(t, err).RetryAfter)
		require.NoError(t, (<-probe).Err)
	})
}

func TestF6IsPerLane(t *testing.T) {
	bubble(t, ax.Config{
		Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject},
		Lanes:   []ax.Lane{{Name: "none", Match: []string{"c.test"}, NoBreaker: true}, {Name: "own", Match: []string{"d.test"}, Breaker: &ax.Breaker{Window: 2}}},
	}, func(t *tester) {
		t.Server.Reply = fAnswer(500, "")
		for _, host := range []string{"a.test", "c.test", "d.test"} {
			t.Do(t.Context(), ax.Request{URL: "http://" + host})
		}
		lanes := t.S.Stats().Lanes
		require.Equal(t, ax.BreakerOpen, lanes["a.test"].Breaker)
		require.Equal(t, ax.BreakerClosed, lanes["none"].Breaker)
		require.Equal(t, ax.BreakerClosed, lanes["own"].Breaker, "its own policy wants two")
		require.NoError(t, t.Do(t.Context(), ax.Request{URL: "http://b.test"}).Err)
		require.NoError(t, t.Do(t.Context(), ax.Request{URL: "http://c.test"}).Err)
	})
}
