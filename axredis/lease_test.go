package axredis_test

import (
	"context"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/stretchr/testify/require"
)

// leased is a fleet of n slots in lane "api", whose leases last for ttl.
func leased(n int, ttl time.Duration) axredis.Config {
	cfg := lanes("api", ax.Limits{MaxConcurrent: n})
	cfg.LeaseTTL, cfg.Timeout = ttl, 200*ms
	return cfg
}

// TestCaseH51ACrashedHoldersSlotComesBack, not before its lease is over; one that
// renews keeps its own; a late or double release changes nothing.
func TestCaseH51ACrashedHoldersSlotComesBack(t *testing.T) {
	f := newFleet(t, leased(2, 2*time.Second))
	l := newLink(t, f.addr)
	a, b, c := f.at(l), f.join(), f.join()
	crashed, renewed := granted(t, a, ask("api", 0)), granted(t, b, ask("api", 0))
	since := time.Now()
	l.set(linkCut) // A dies: Redis hears no more of it
	third := wait(t, c, ask("api", 0))
	require.GreaterOrEqual(t, time.Since(since), 1990*ms)
	require.LessOrEqual(t, time.Since(since), 2500*ms)
	require.True(t, isLost(crashed), "A has given up before")
	l.set(linkUp)
	crashed.Release()
	crashed.Release()
	time.Sleep(500 * ms)
	refused(t, c, ask("api", 0))
	time.Sleep(2500 * ms)
	require.False(t, isLost(renewed), "B renews")
	require.False(t, isLost(third))
	require.Equal(t, 2, f.leases("api"))
	renewed.Release()
	wait(t, c, ask("api", 0))
}

// TestAHolderThatCannotRenewGivesUpBeforeOthersTakeOver.
func TestAHolderThatCannotRenewGivesUpBeforeOthersTakeOver(t *testing.T) {
	f := newFleet(t, leased(1, time.Second))
	l := newLink(t, f.addr)
	a, b := f.at(l), f.join()
	held := granted(t, a, ask("api", 0))
	l.set(linkMute)
	taken := make(chan time.Time)
	go func() {
		wait(t, b, ask("api", 0))
		taken <- time.Now()
	}()
	<-held.Lost
	lost := time.Now()
	require.Greater(t, (<-taken).Sub(lost), 50*ms)
}

// TestFlushAllReassertsLeases at the next renewal: nothing in flight is
// cancelled, and the cap is exceeded by no more than one cap and no longer than
// a third of the TTL.
func TestFlushAllReassertsLeases(t *testing.T) {
	s := startServer(t)
	f := newFleetAt(t, s.addr, leased(3, 3*time.Second))
	a, b := f.join(), f.join()
	var before, after []ax.Grant
	for range 3 {
		before = append(before, granted(t, a, ask("api", 0)))
	}
	since := time.Now()
	require.NoError(t, f.rdb.FlushAll(t.Context()).Err())
	for time.Since(since) < 1500*ms {
		if grant := must(t, b, ask("api", 0)); grant.RetryIn == 0 {
			after = append(after, grant)
			require.Less(t, time.Since(since), 1100*ms)
		}
		time.Sleep(10 * ms)
	}
	require.LessOrEqual(t, len(after), 3)
	require.Equal(t, 3+len(after), f.leases("api"))
	time.Sleep(2 * time.Second)
	for _, g := range append(before, after...) {
		require.False(t, isLost(g))
		g.Release()
	}
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
	granted(t, b, ask("api", 0))
}

// TestCaseH50SkewedClocks: what the processes' clocks say changes nothing.
func TestCaseH50SkewedClocks(t *testing.T) {
	cfg := lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 20, Burst: 20}}})
	cfg.Timeout = 500 * ms
	f := newFleet(t, cfg)
	a, b := f.join(), f.join()
	a.SkewClock(30 * time.Second)
	b.SkewClock(-30 * time.Second)
	end := time.Now().Add(long(10*time.Second, 3*time.Second))
	span := time.Until(end)
	counts := make(chan int)
	for g, skew := range map[*axredis.Governor]time.Duration{a: 30 * time.Second, b: -30 * time.Second} {
		go func() {
			n := 0
			a := ax.Ask{Lane: "api", Rank: time.Now().Add(skew).Round(0)}
			for time.Now().Before(end) {
				grant, err := g.Acquire(context.Background(), a)
				if err == nil && grant.RetryIn == 0 {
					n++
					a.Rank = time.Now().Add(skew).Round(0)
				}
				time.Sleep(min(grant.RetryIn, max(0, time.Until(end))))
			}
			counts <- n
		}()
	}
	x, y := <-counts, <-counts
	most := 20 + int(span/(50*ms))
	require.LessOrEqual(t, x+y, most+1)
	require.GreaterOrEqual(t, x+y, most*9/10)
	require.GreaterOrEqual(t, min(x, y), (x+y)*3/10, "%d and %d", x, y)
}

// TestSkewedClocksDoNotReorder: ranks travel as distances.
func TestSkewedClocksDoNotReorder(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	a, b := f.join(), f.join()
	a.SkewClock(30 * time.Second)
	b.SkewClock(-30 * time.Second)
	held := granted(t, a, ask("api", 0))
	urgent := ax.Ask{Lane: "api", Rank: time.Now().Add(30 * time.Second).Round(0)}
	normal := ax.Ask{Lane: "api", Rank: time.Now().Add(-30*time.Second + 12*time.Second).Round(0)}
	refused(t, a, urgent)
	refused(t, b, normal)
	held.Release()
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
	refused(t, b, normal)
	granted(t, a, urgent)
	a.PauseUntil("api", time.Now().Add(30*time.Second+5*time.Second).Round(0))
	require.Eventually(t, func() bool {
		retry := must(t, b, normal).RetryIn
		return retry > 4*time.Second && retry < 5*time.Second
	}, time.Second, ms)
}
