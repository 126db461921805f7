package axredis_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestAPauseIsTheFleets(t *testing.T) {
	cfg := lanes("api", ax.Limits{})
	cfg.Lanes["other"] = ax.Limits{}
	f := newFleet(t, cfg)
	a, b := f.join(), f.join()
	a.PauseUntil("api", time.Now().Add(5*time.Second))
	require.Eventually(t, func() bool { return must(t, b, ask("api", 0)).RetryIn > 0 }, time.Second, ms)
	retry := refused(t, b, ask("api", 0))
	require.InDelta(t, 5*time.Second*10/11, retry, float64(300*ms))
	a.PauseUntil("api", time.Now().Add(time.Second)) // never cuts short
	time.Sleep(20 * ms)
	require.Greater(t, refused(t, b, ask("api", 0)), 4*time.Second)
	granted(t, b, ask("other", 0))
	a.PauseUntil("unknown", time.Now().Add(time.Second))
	a.PauseUntil("other", time.Now().Add(-time.Second))
	time.Sleep(20 * ms)
	granted(t, b, ask("other", 0))
}

func TestAPauseEnds(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{}))
	a, b := f.join(), f.join()
	since := time.Now()
	a.PauseUntil("api", since.Add(300*ms))
	require.Eventually(t, func() bool { return must(t, b, ask("api", 0)).RetryIn > 0 }, time.Second, ms)
	wait(t, b, ask("api", 0))
	require.GreaterOrEqual(t, time.Since(since), 300*ms)
	require.Less(t, time.Since(since), 450*ms)
}

// TestAPauseSurvivesTheLossOfRedisData: whoever asked for it tells it again, with
// its next ask or at the next renewal, as long as it lasts.
func TestAPauseSurvivesTheLossOfRedisData(t *testing.T) {
	for _, asks := range []bool{true, false} {
		s := startServer(t)
		cfg := lanes("api", ax.Limits{})
		cfg.LeaseTTL, cfg.Timeout = 900*ms, 200*ms
		f := newFleetAt(t, s.addr, cfg)
		a, b := f.join(), f.join()
		a.PauseUntil("api", time.Now().Add(2*time.Second))
		require.Eventually(t, func() bool { return must(t, b, ask("api", 0)).RetryIn > 0 }, time.Second, ms)
		require.NoError(t, f.rdb.FlushAll(t.Context()).Err())
		since := time.Now()
		if asks {
			refused(t, a, ask("api", 0))
			refused(t, b, ask("api", 0))
			continue
		}
		require.Eventually(t, func() bool { return must(t, b, ask("api", 0)).RetryIn > 0 }, time.Second, 5*ms)
		require.Less(t, time.Since(since), 300*ms+slack, "a third of LeaseTTL")
		require.NoError(t, f.rdb.FlushAll(t.Context()).Err())
		require.Eventually(t, func() bool { return must(t, b, ask("api", 0)).RetryIn > 0 }, time.Second, 5*ms, "again")
		require.Eventually(t, func() bool { return a.Lines() == 0 }, 3*time.Second, 5*ms, "nothing is kept of it afterwards")
		require.Greater(t, time.Since(since), 1900*ms)
		granted(t, b, ask("api", 0))
	}
}

// TestOneMachines429StopsTheFleet: the other scheduler learns of the Retry-After
// that only the first one has seen.
func TestOneMachines429StopsTheFleet(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 10}))
	var mu sync.Mutex
	var order []string
	limited := ax.ExecutorFunc(answer(http.StatusTooManyRequests, "Retry-After", "1"))
	a := f.scheduler(f.join(), limited)
	b := f.scheduler(f.join(), ax.ExecutorFunc(recorder(&mu, &order, 0)))
	r := ax.Request{URL: "http://a.test/x", Lane: "api"}
	_, err := a.Send(t.Context(), r)
	require.NoError(t, err)
	since := time.Now()
	time.Sleep(50 * ms)
	_, err = b.Send(t.Context(), r)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(since), 950*ms)
	require.Less(t, time.Since(since), 1500*ms)
}

// TestAnOpenBreakerStopsTheFleet likewise.
func TestAnOpenBreakerStopsTheFleet(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{}))
	var mu sync.Mutex
	var order []string
	failing := ax.ExecutorFunc(answer(http.StatusInternalServerError, "", ""))
	a := f.schedulerWith(ax.Config{Governor: f.join(), Executor: failing,
		Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second}})
	b := f.scheduler(f.join(), ax.ExecutorFunc(recorder(&mu, &order, 0)))
	r := ax.Request{URL: "http://a.test/x", Lane: "api"}
	_, err := a.Send(t.Context(), r)
	require.NoError(t, err)
	since := time.Now()
	time.Sleep(50 * ms)
	_, err = b.Send(t.Context(), r)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(since), 950*ms)
	require.Less(t, time.Since(since), 1500*ms)
}
