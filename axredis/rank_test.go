package axredis_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestAWorseRankStepsBackWhileABetterOneWaits(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	a, b := f.join(), f.join()
	held := granted(t, b, ask("api", 0))
	urgent, normal := ask("api", 0), ask("api", 12*time.Second)
	refused(t, b, normal)
	refused(t, a, urgent)
	held.Release()
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
	refused(t, b, normal)
	granted(t, a, urgent).Release()
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
	granted(t, b, normal)
}

func TestAWaiterThatDoesNotComeBackIsForgotten(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	a, b := f.join(), f.join()
	held := granted(t, b, ask("api", 0))
	refused(t, a, ask("api", -time.Hour))
	held.Release()
	since := time.Now()
	wait(t, b, ask("api", 0))
	require.Less(t, time.Since(since), 500*ms)
}

// TestFleetOrderByRank: tasks of four machines for one slot leave in the order of
// their ranks, whichever machine they wait on.
func TestFleetOrderByRank(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	blocker := granted(t, f.join(), ask("api", -time.Hour))
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	for machine := range 4 {
		g := f.join()
		all.Go(func() {
			for i := range 3 { // a machine's own queue is in order
				rank := ask("api", time.Duration(4*i+machine)*time.Second)
				grant := wait(t, g, rank)
				mu.Lock()
				order = append(order, fmt.Sprint(4*i+machine))
				mu.Unlock()
				grant.Release()
			}
		})
	}
	time.Sleep(300 * ms) // everybody waits
	blocker.Release()
	all.Wait()
	for machine := range 4 {
		require.Equal(t, fmt.Sprint(machine), order[machine], "%v", order)
	}
	require.Len(t, order, 12)
}

// TestUrgentOnAGoesBeforeNormalOnB, through two schedulers.
func TestUrgentOnAGoesBeforeNormalOnB(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	var mu sync.Mutex
	var order []string
	exec := ax.ExecutorFunc(recorder(&mu, &order, 50*ms))
	a, b := f.scheduler(f.join(), exec), f.scheduler(f.join(), exec)
	var calls []*ax.Call
	submit := func(s *ax.Scheduler, path string, p ax.Priority) {
		calls = append(calls, s.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test" + path, Lane: "api", Priority: p}.Task())))
	}
	submit(b, "/first", ax.Normal)
	time.Sleep(20 * ms)
	for range 3 {
		submit(b, "/normal", ax.Normal)
	}
	time.Sleep(10 * ms)
	submit(a, "/urgent", ax.Urgent)
	for _, c := range calls {
		_, err := c.Result()
		require.NoError(t, err)
	}
	require.Equal(t, []string{"/first", "/urgent", "/normal", "/normal", "/normal"}, order)
}

// TestALaneThatCannotStartIsInNobodysWay: who waits for its lane's slot does not
// hold back other lanes at the limits of all together.
func TestALaneThatCannotStartIsInNobodysWay(t *testing.T) {
	cfg := lanes("slow", ax.Limits{MaxConcurrent: 1})
	cfg.Lanes[""] = ax.Limits{MaxConcurrent: 3}
	f := newFleet(t, cfg)
	a, b := f.join(), f.join()
	granted(t, a, ask("slow", 0))
	refused(t, a, ask("slow", -time.Hour))
	granted(t, b, ask("fast", time.Hour))
	granted(t, b, ask("fast", time.Hour))
}

// TestTasksThatGiveUpDoNotStarveEachOther: every ask is for a new task, of a rank
// worse than all before it.
func TestTasksThatGiveUpDoNotStarveEachOther(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	var all sync.WaitGroup
	end := time.Now().Add(time.Second)
	counts := make([]int, 3)
	for i := range counts {
		g := f.join()
		all.Go(func() {
			for time.Now().Before(end) {
				grant := must(t, g, ask("api", 0))
				time.Sleep(max(grant.RetryIn, 5*ms))
				if grant.Release != nil {
					counts[i]++
					grant.Release()
				}
			}
		})
	}
	all.Wait()
	for _, n := range counts {
		require.GreaterOrEqual(t, n, 5, "%v", counts)
	}
}

func TestASpentPlaceIsNotInherited(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 2}))
	a, b := f.join(), f.join()
	first := granted(t, a, ask("api", 0))
	urgent := ask("api", -time.Hour)
	var grants [2]ax.Grant // two asks with the rank of the lane's best task, one slot
	var both sync.WaitGroup
	for i := range grants {
		both.Go(func() { grants[i] = must(t, a, urgent) })
	}
	both.Wait()
	require.NotEqual(t, grants[0].RetryIn == 0, grants[1].RetryIn == 0)
	first.Release()
	require.Eventually(t, func() bool { return f.leases("api") == 1 }, time.Second, ms)
	refused(t, b, ask("api", time.Second)) // the place still stands
	refused(t, a, ask("api", time.Minute)) // what comes for it is worse
	granted(t, b, ask("api", time.Second))
}
