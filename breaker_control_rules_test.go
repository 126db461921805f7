package ax_test

import (
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestForceBreaker(t *testing.T) {
	t.Run("open rejects a healthy lane until auto", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{WhenOpen: ax.OpenReject}}, func(t *tester) {
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen))
			require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
			t.Until(time.Hour) // no half-open of its own
			require.ErrorIs(t, t.Do(t.Context(), fGet("/")).Err, ax.ErrCircuitOpen)
			require.Zero(t, t.Server.Count())
			require.NoError(t, t.Do(t.Context(), ax.Request{URL: "http://b.test"}).Err)
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerAuto))
			t.Until(time.Hour + time.Minute)
			require.NoError(t, t.Do(t.Context(), fGet("/")).Err)
		})
	})
	t.Run("open holds, then releases", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{}}, func(t *tester) {
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen))
			c := t.Go(t.Context(), fGet("/"))
			t.Until(time.Hour)
			require.Zero(t, t.Server.Count())
			require.Equal(t, 1, t.S.Stats().Parked)
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceClosed))
			require.Equal(t, time.Hour, (<-c).At)
			require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
		})
	})
	t.Run("closed bears every failure", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
			t.Server.Reply = fAnswer(500, "")
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceClosed))
			for range 20 {
				require.NoError(t, t.Do(t.Context(), fGet("/")).Err)
			}
			require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerAuto))
			t.Do(t.Context(), fGet("/"))
			require.Equal(t, ax.BreakerOpen, fLane(t).Breaker, "it judges again")
		})
	})
	t.Run("closed ends an open one at once", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
			fOpen(t)
			c := t.Go(t.Context(), fGet("/"))
			t.Until(fsec)
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceClosed))
			require.Equal(t, fsec, (<-c).At)
		})
	})
	t.Run("unknown", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{}}, func(t *tester) {
			require.Error(t, t.S.ForceBreaker("nosuchlane", ax.BreakerForceOpen))
			require.Error(t, t.S.ForceBreaker("a.test", ax.BreakerMode(99)))
		})
	})
	t.Run("events", func(t *testing.T) {
		ev := &fEvents{}
		bubble(t, ax.Config{OnEvent: ev.Add, Breaker: &ax.Breaker{}}, func(t *tester) {
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen))
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen))
			require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceClosed))
			require.Equal(t, []ax.EventKind{ax.EventBreakerOpened, ax.EventBreakerClosed}, ev.Kinds(fBreakerKinds...))
		})
	})
}

func TestF6TransitionsAreOrderedEventsAndOneLogLineEach(t *testing.T) {
	ev, log := &fEvents{}, &fLog{}
	bubble(t, ax.Config{OnEvent: ev.Add, Logger: log.Logger(), Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fOutcomes("FSS")
		for range 2 {
			t.Do(t.Context(), fGet("/"))
		}
		t.Until(3*fsec + 3*fsec)
		t.Do(t.Context(), fGet("/"))
		require.Equal(t, fBreakerKinds, ev.Kinds(fBreakerKinds...))
		for i, e := range ev.Of(fBreakerKinds...) {
			require.Equal(t, "a.test", e.Lane)
			if i > 0 {
				require.False(t, e.Time.Before(ev.Of(fBreakerKinds...)[i-1].Time))
			}
		}
		require.Len(t, log.Lines("breaker", "a.test"), 4, "one line for each transition")
	})
}

func TestBreakerContradictionsAreRefusedByName(t *testing.T) {
	rows := []struct {
		path string
		cfg  ax.Config
	}{
		{"Breaker.Window", ax.Config{Breaker: &ax.Breaker{Window: -1}}},
		{"Breaker.OpenFor", ax.Config{Breaker: &ax.Breaker{OpenFor: -1}}},
		{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: -0.5}}},
		{"Breaker.Probes", ax.Config{Breaker: &ax.Breaker{Probes: -1}}},
		{"MinCalls", ax.Config{Breaker: &ax.Breaker{Window: 5, MinCalls: 6}}},
		{"Lanes[0].Breaker.Probes", ax.Config{Lanes: []ax.Lane{{Name: "x", Match: []string{"a.test"}, MaxConcurrent: 2, Breaker: &ax.Breaker{Probes: 3}}}}},
	}
	for _, row := range rows {
		_, err := ax.New(nil, row.cfg)
		require.ErrorContains(t, err, row.path)
	}
}
