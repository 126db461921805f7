package ax_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestX8HoldsNothingAndCounts each thing that would have been held or refused.
func TestX8HoldsNothingAndCounts(t *testing.T) {
	cfg := ax.Config{DryRun: true, MaxConcurrent: 2, MaxQueue: 3}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		var cs []<-chan result
		for range 10 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			r := <-c
			require.NoError(t, r.Err)
			require.Equal(t, fsec, r.At, "nobody waited")
			require.Zero(t, r.Resp.Waited)
			require.Equal(t, ax.FromNetwork, r.Resp.Source)
		}
		require.Equal(t, 10, t.Server.Peak())
		st := t.S.Stats()
		require.Zero(t, st.Rejected)
		require.EqualValues(t, 10, st.Succeeded)
		require.EqualValues(t, 3, st.Would.Queued, "two would have run, three waited")
		require.EqualValues(t, 5, st.Would.Rejected)
		require.EqualValues(t, 3, st.Lanes["a.test"].Would.Queued)
		require.EqualValues(t, 5, st.Lanes["a.test"].Would.Rejected)
		require.Positive(t, st.Would.Wait.P99, "and for how long")
	})
}

// TestX8OrdersAsIf it held: by the task's own AgingStep, where it has one.
func TestX8OrdersAsIf(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		first := t.Go(t.Context(), fGet("/"))
		synctest.Wait()
		normal := t.Go(t.Context(), ax.Request{URL: "http://normal.test/"})
		low := t.Go(t.Context(), ax.Request{URL: "http://low.test/", Priority: ax.Low, AgingStep: time.Millisecond})
		for _, c := range []<-chan result{first, normal, low} {
			require.NoError(t, (<-c).Err)
		}
		t.Until(4 * fsec)
		lanes := t.S.Stats().Lanes
		require.InEpsilon(t, fsec, lanes["low.test"].Would.Wait.P50, 0.1)
		require.InEpsilon(t, 2*fsec, lanes["normal.test"].Would.Wait.P50, 0.1)
	})
}

func TestX8SharesNothing(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		a, b := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))
		for _, c := range []<-chan result{a, b} {
			require.Equal(t, ax.FromNetwork, (<-c).Resp.Source)
		}
		require.Equal(t, ax.FromNetwork, t.Do(t.Context(), fGet("/")).Resp.Source)
		require.Equal(t, 3, t.Server.Count())
		require.EqualValues(t, 1, t.S.Stats().Coalesced)
		require.EqualValues(t, 1, t.S.Stats().WindowHits)
	})
}

func TestX8OneAttemptNoFallbackNoBreakerNoGovernor(t *testing.T) {
	gov := &fGovernor{}
	cfg := ax.Config{
		DryRun: true, Retry: fRetry(2), Governor: gov, Breaker: &ax.Breaker{Window: 1},
		Fallback: &ax.Fallback{Static: fStatic("static")},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fAnswer(503, "own")
		for range 5 {
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, "own", fBody(t, res))
			require.Equal(t, 1, res.Resp.Attempts)
			require.Zero(t, res.At)
		}
		require.Equal(t, 5, t.Server.Count())
		require.Zero(t, t.S.Stats().Retries)
		require.Zero(t, t.S.Stats().Fallbacks)
		require.Zero(t, t.S.Stats().Rejected)
		require.Empty(t, gov.Asks())
		require.Positive(t, t.S.Stats().Would.Held, "an open breaker would have held the later ones")
	})
}

func TestX8PausesWouldHaveHeld(t *testing.T) {
	bubble(t, ax.Config{DryRun: true}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 10")
		t.Do(t.Context(), fGet("/"))
		for range 4 {
			require.Zero(t, t.Do(t.Context(), fGet("/")).At)
		}
		require.EqualValues(t, 4, t.S.Stats().Would.Held)
		require.EqualValues(t, 4, fLane(t).Would.Held)
		t.Until(11 * fsec)
		t.Do(t.Context(), fGet("/"))
		require.EqualValues(t, 4, t.S.Stats().Would.Held)
	})
}

func TestX8SupersedeCooldownAndBudget(t *testing.T) {
	b := fAnn(ax.Budget{Rate: ax.PerSecond(1), Over: ax.OverReject})
	bubble(t, ax.Config{DryRun: true, Budgets: b}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		s1 := t.Go(t.Context(), ax.Request{URL: at("/1"), Supersede: "s"})
		t.Until(fms)
		s2 := t.Go(t.Context(), ax.Request{URL: at("/2"), Supersede: "s"})
		c1 := t.Go(t.Context(), ax.Request{URL: at("/c"), Cooldown: time.Minute})
		t.Until(2 * fms)
		c2 := t.Go(t.Context(), ax.Request{URL: at("/c"), Cooldown: time.Minute})
		var owned []<-chan result
		for range 3 {
			owned = append(owned, t.Go(t.Context(), fOwned("ann", "/")))
		}
		for _, c := range append(owned, s1, s2, c1, c2) {
			require.NoError(t, (<-c).Err)
		}
		st := t.S.Stats()
		require.EqualValues(t, 1, st.Would.Superseded)
		require.EqualValues(t, 1, st.Would.Cooled)
		require.EqualValues(t, 2, st.Owners["ann"].Over)
		require.Zero(t, st.Owners["ann"].Queued)
		require.Zero(t, st.Rejected)
		require.Zero(t, st.Canceled)
		require.Equal(t, 7, t.Server.Count())
	})
}

// Who would have been refused would have ended nobody.
func TestX8CooledSupersedesNobody(t *testing.T) {
	bubble(t, ax.Config{DryRun: true}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		r := ax.Request{URL: at("/"), Supersede: "s", Cooldown: time.Minute}
		first := t.Go(dBG, r)
		synctest.Wait()
		require.NoError(t, t.Do(dBG, r).Err)
		require.NoError(t, (<-first).Err)
		would := t.S.Stats().Would
		require.EqualValues(t, 1, would.Cooled)
		require.Zero(t, would.Superseded)
	})
}

func TestX8RateWouldHaveQueued(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, Rate: ax.PerSecond(2)}, func(t *tester) {
		for range 6 {
			require.Zero(t, t.Do(t.Context(), fGet("/")).At)
		}
		require.EqualValues(t, 4, t.S.Stats().Would.Queued)
		time.Sleep(3 * fsec) // how long is known when the wait would have ended
		require.InDelta(t, 2, t.S.Stats().Would.Wait.P99.Seconds(), 0.2, "the last two would have waited 2 s")
	})
}

func TestX8WithoutDryRunNothingWould(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		a, b := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))
		<-a
		<-b
		require.Equal(t, ax.WouldStats{}, t.S.Stats().Would)
	})
}
