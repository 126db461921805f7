package axredis_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/stretchr/testify/require"
)

// together is a fleet whose only limits are those of all lanes together.
func together(l ax.Limits) axredis.Config {
	return axredis.Config{Lanes: map[string]ax.Limits{"": l}}
}

// busy is an executor that takes 20 ms and knows how many ran at once.
type busy struct{ now, most, sent atomic.Int64 }

func (b *busy) Execute(context.Context, *ax.Task) (*http.Response, error) {
	b.sent.Add(1)
	n := b.now.Add(1)
	defer b.now.Add(-1)
	for m := b.most.Load(); n > m && !b.most.CompareAndSwap(m, n); m = b.most.Load() {
	}
	time.Sleep(20 * ms)
	return &http.Response{StatusCode: http.StatusOK}, nil
}

// getHosts gets from n hosts, each a lane of its own.
func getHosts(t testing.TB, s *ax.Scheduler, n int) time.Duration {
	since := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := s.Get(t.Context(), "http://host"+strconv.Itoa(i)+".example/"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(since)
}

// TestManyLanesUseTheSlotsOfAll, nearly as well as they use a scheduler's own.
func TestManyLanesUseTheSlotsOfAll(t *testing.T) {
	f := newFleetAt(t, startServer(t).addr, together(ax.Limits{MaxConcurrent: 10}))
	measure := func() error {
		var own, fleet busy
		alone := getHosts(t, f.schedulerWith(ax.Config{MaxConcurrent: 10, Executor: &own}), 200)
		before := f.evals(t)
		took := getHosts(t, f.schedulerWith(ax.Config{Governor: f.join(), Executor: &fleet}), 200)
		calls := float64(f.evals(t)-before) / 200
		t.Logf("%v, with limits of its own %v; %.1f calls a start", took, alone, calls)
		require.LessOrEqual(t, fleet.most.Load(), int64(10))
		require.LessOrEqual(t, calls, 5.0)
		if took > 2*alone { // most of it is the race detector's
			return fmt.Errorf("200 starts took %v, with limits of its own %v", took, alone)
		}
		return nil
	}
	onAMachineWithTime(t, measure)
}

// TestManyLanesOfManyMachinesUseTheSlotsOfAll and never more.
func TestManyLanesOfManyMachinesUseTheSlotsOfAll(t *testing.T) {
	f := newFleetAt(t, startServer(t).addr, together(ax.Limits{MaxConcurrent: 10}))
	var b busy
	var all sync.WaitGroup
	since := time.Now()
	for range 4 {
		s := f.schedulerWith(ax.Config{Governor: f.join(), Executor: &b})
		all.Go(func() { getHosts(t, s, 50) })
	}
	all.Wait()
	t.Logf("%v, %d calls", time.Since(since), f.evals(t))
	require.LessOrEqual(t, b.most.Load(), int64(10))
	require.Less(t, time.Since(since), 1500*ms)
}

// TestLanesOfOneMachineGoByRank, also those whose asks are between two answers.
func TestLanesOfOneMachineGoByRank(t *testing.T) {
	cfg := together(ax.Limits{MaxConcurrent: 1})
	cfg.Timeout = 50 * ms // they come back often
	f := newFleet(t, cfg)
	g := f.join()
	blocker := granted(t, g, ask("first", 0))
	var mu sync.Mutex
	var order, want []string
	var all sync.WaitGroup
	for i := range 20 {
		lane := "lane" + strconv.Itoa(i)
		want = append(want, lane)
		rank := ask(lane, time.Duration(i)*time.Second)
		all.Go(func() {
			grant := wait(t, g, rank)
			mu.Lock()
			order = append(order, lane)
			mu.Unlock()
			time.Sleep(10 * ms)
			grant.Release()
		})
	}
	time.Sleep(200 * ms)
	blocker.Release()
	all.Wait()
	require.Equal(t, want, order)
}

// TestAnAskThatIsRefusedForTheFirstTimeDoesNotWait: its task may not want to.
func TestAnAskThatIsRefusedForTheFirstTimeDoesNotWait(t *testing.T) {
	f := newFleet(t, together(ax.Limits{MaxConcurrent: 1}))
	g := f.join()
	granted(t, g, ask("a", 0))
	for _, lane := range []string{"b", "c", "d"} {
		since := time.Now()
		refused(t, g, ask(lane, 0))
		require.Less(t, time.Since(since), 250*ms)
	}
}

// TestALaneThatIsPausedHoldsNobodyUp in the queue for what all lanes share.
func TestALaneThatIsPausedHoldsNobodyUp(t *testing.T) {
	f := newFleet(t, together(ax.Limits{MaxConcurrent: 1}))
	g := f.join()
	blocker := granted(t, g, ask("first", 0))
	g.PauseUntil("paused", time.Now().Add(time.Minute))
	go func() { // ends with its ctx
		for t.Context().Err() == nil {
			grant, _ := g.Acquire(t.Context(), ask("paused", -time.Hour))
			time.Sleep(min(grant.RetryIn, 10*ms))
		}
	}()
	time.Sleep(20 * ms)
	time.AfterFunc(50*ms, blocker.Release)
	since := time.Now()
	wait(t, g, ask("other", 0)).Release()
	require.Less(t, time.Since(since), 250*ms)
}

// TestABurstOverManyLanesIsNoOutage: it waits for connections, not for Redis.
func TestABurstOverManyLanesIsNoOutage(t *testing.T) {
	onAMachineWithTime(t, func() error { return burst(t) })
}

func burst(t *testing.T) error {
	cfg := together(ax.Limits{MaxConcurrent: 10})
	cfg.Timeout = 300 * ms
	f := newFleet(t, cfg)
	l := newLink(t, f.addr)
	var machines []*axredis.Governor
	for range 2 {
		g := f.at(l)
		wait(t, g, ask("warm", 0)).Release()
		machines = append(machines, g)
	}
	l.slow(20 * ms)
	var grants atomic.Int64
	var all sync.WaitGroup
	for i := range 800 {
		all.Go(func() {
			if must(t, machines[i%2], ask("host"+strconv.Itoa(i), 0)).RetryIn == 0 {
				grants.Add(1)
			}
		})
	}
	all.Wait()
	if n := grants.Load(); n > 10 {
		return fmt.Errorf("%d starts at once of 10", n)
	}
	return nil
}

// TestLanesThatWaitForARateAreToldWhen: they need not come back before.
func TestLanesThatWaitForARateAreToldWhen(t *testing.T) {
	f := newFleet(t, together(ax.Limits{Rate: []ax.Rate{{Limit: 2, Per: 2 * time.Second}}}))
	g := f.join()
	since := time.Now()
	granted(t, g, ask("a", 0))
	granted(t, g, ask("b", 0))
	refused(t, g, ask("c", 0))
	require.Greater(t, refused(t, g, ask("d", 0)), time.Second)
	require.Greater(t, refused(t, g, ask("c", 0)), time.Second)
	wait(t, g, ask("c", 0))
	wait(t, g, ask("d", 0))
	require.Less(t, time.Since(since), 2700*ms)
}
