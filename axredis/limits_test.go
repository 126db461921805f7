package axredis_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/stretchr/testify/require"
)

func lanes(name string, l ax.Limits) axredis.Config {
	return axredis.Config{Lanes: map[string]ax.Limits{name: l}}
}

func TestSlotsAreTheFleets(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 2}))
	a, b := f.join(), f.join()
	one, two := granted(t, a, ask("api", 0)), granted(t, b, ask("api", 0))
	require.NotNil(t, one.Lost)
	retry := refused(t, a, ask("api", 0))
	require.LessOrEqual(t, retry, 250*ms)
	two.Release()
	two.Release() // once is enough
	require.Eventually(t, func() bool { return f.leases("api") == 1 }, time.Second, ms)
	three := granted(t, a, ask("api", 0))
	refused(t, b, ask("api", time.Second))
	one.Release()
	three.Release()
	require.Eventually(t, func() bool { return f.leases("api") == 0 && a.Lines() == 0 && b.Lines() == 0 }, time.Second, ms,
		"nothing is kept of an idle lane")
}

func TestAnUngovernedLaneCostsNothing(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	g := f.join()
	grant := granted(t, g, ask("other", 0))
	require.Nil(t, grant.Release)
	require.Nil(t, grant.Lost)
	require.Empty(t, f.keys())
}

func TestAllLimitsOrNone(t *testing.T) {
	f := newFleet(t, axredis.Config{Lanes: map[string]ax.Limits{
		"":    {MaxConcurrent: 3},
		"api": {MaxConcurrent: 2, Rate: []ax.Rate{{Limit: 100, Per: time.Minute}, {Limit: 2, Per: time.Hour, Burst: 2}}},
	}})
	g := f.join()
	for range 2 {
		granted(t, g, ask("api", 0))
	}
	granted(t, g, ask("other", 0)) // bound by "" alone
	refused(t, g, ask("other", 0))
	for range 5 {
		refused(t, g, ask("api", 0))
	}
	require.Equal(t, 2, f.leases("api"))
	for _, k := range f.keys() {
		switch n := f.rdb.ZCard(t.Context(), k).Val(); {
		case f.rdb.Type(t.Context(), k).Val() != "zset":
		case hasPart(k, ":rate0:"):
			require.EqualValues(t, 2, n, "a refusal takes no token: %s", k)
		}
	}
}

func TestWindowIsExact(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 5, Per: 300 * ms}}}))
	var mu sync.Mutex
	var starts []time.Time
	warm := time.Now().Add(time.Second) // first calls leave room for connecting
	end := warm.Add(1500 * ms)
	var all sync.WaitGroup
	for range 3 {
		g := f.join()
		all.Go(func() {
			for time.Now().Before(end) {
				if grant := must(t, g, ask("api", 0)); grant.RetryIn > 0 {
					time.Sleep(min(grant.RetryIn, time.Until(end)+ms))
					continue
				}
				mu.Lock()
				starts = append(starts, time.Now())
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i := 5; i < len(starts); i++ {
		require.Greater(t, starts[i].Sub(starts[i-5]), 300*ms, "start %d of %d", i, len(starts))
	}
	after, _ := slices.BinarySearchFunc(starts, warm, time.Time.Compare)
	require.GreaterOrEqual(t, len(starts)-after, 10)
}

// TestWindowIsExactWithALongTimeout: a process that has just come leaves more room
// for its first starts than one that knows how long answers take, and both count
// them.
func TestWindowIsExactWithALongTimeout(t *testing.T) {
	cfg := lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 5, Per: 300 * ms}}})
	cfg.Timeout = 3 * time.Second
	f := newFleet(t, cfg)
	warm, fresh := f.join(), f.join()
	granted(t, warm, ask("api", 0))
	time.Sleep(1400 * ms)
	for range 5 {
		granted(t, fresh, ask("api", 0))
	}
	refused(t, fresh, ask("api", 0))
	for range 2 {
		require.Positive(t, must(t, warm, ask("api", -time.Hour)).RetryIn)
	}
}

func TestBucketStartsFullAndRefills(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 3, Per: 700 * ms, Burst: 3}}}))
	a, b := f.join(), f.join()
	for range 3 {
		granted(t, a, ask("api", 0))
	}
	retry := refused(t, b, ask("api", 0))
	require.Greater(t, retry, 100*ms)
	require.LessOrEqual(t, retry, 213*ms, "a third of 700 ms, jitter taken off: fractions count")
	time.Sleep(234 * ms)
	granted(t, b, ask("api", 0))
}

func TestSmoothAlsoSpaces(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 4, Per: time.Second, Smooth: true}}}))
	a, b := f.join(), f.join()
	granted(t, a, ask("api", 0))
	retry := refused(t, b, ask("api", 0))
	require.InDelta(t, 250*ms*10/11, retry, float64(30*ms))
}

func TestManyAsksAtOnce(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 100}))
	g := f.join()
	var mu sync.Mutex
	var grants []ax.Grant
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if grant := must(t, g, ask("api", 0)); grant.RetryIn == 0 {
				mu.Lock()
				grants = append(grants, grant)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Len(t, grants, 100)
	require.Equal(t, 100, f.leases("api"))
	for _, grant := range grants {
		grant.Release()
	}
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
}

func TestAnAskThatIsToldTwiceIsChargedOnce(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 5, Rate: []ax.Rate{{Limit: 5, Per: time.Minute}, {Limit: 5, Per: time.Hour, Burst: 5}}}))
	// the connection dies after Redis has decided and before it has answered
	l := newLink(t, f.addr)
	g := f.at(l)
	g0 := granted(t, g, ask("api", 0))
	g0.Release()
	for range 3 {
		time.Sleep(5 * ms)
		l.dropNextReply()
		granted(t, g, ask("api", 0))
	}
	require.Equal(t, 3, f.leases("api"))
	granted(t, g, ask("api", 0))
	refused(t, g, ask("api", 0))
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	l := newLink(t, f.addr)
	g := f.at(l)
	granted(t, g, ask("api", 0)).Release()
	l.set(linkMute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
	defer cancel()
	_, err := g.Acquire(ctx, ask("api", 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCloseGivesBackAndRefuses(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	g, other := f.join(), f.join()
	grant := granted(t, g, ask("api", 0))
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	require.True(t, isLost(grant))
	grant.Release()
	_, err := g.Acquire(t.Context(), ask("api", 0))
	require.ErrorIs(t, err, axredis.ErrClosed)
	g.PauseUntil("api", time.Now().Add(time.Hour))
	granted(t, other, ask("api", 0))
}
