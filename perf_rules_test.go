package ax_test

import (
	"context"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// The tests of this file measure real time or memory. They compare with a run of
// their own where they can and leave room for a noisy machine: what they are to
// catch is a wrong order of growth. Under the race detector they run small.

// qScaled is n, or a small part of it under the race detector.
func qScaled(n int) int {
	if raceEnabled {
		return n / 16
	}
	return n
}

// qNoop answers at once.
func qNoop(context.Context, *ax.Task) (*http.Response, error) {
	return &http.Response{StatusCode: 200}, nil
}

// qReal is a scheduler over exec in real time, closed at the end of the test.
func qReal(t testing.TB, cfg ax.Config, exec ax.ExecutorFunc) *ax.Scheduler {
	cfg.Executor = exec
	s, err := ax.New(nil, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// qTasks are GETs to so many hosts.
func qTasks(hosts int) []*ax.Task {
	tasks := make([]*ax.Task, hosts)
	for i := range tasks {
		tasks[i] = ax.Must(ax.Request{URL: "http://h" + strconv.Itoa(i) + ".test/"}.Task())
	}
	return tasks
}

// qDrain is how long n queued tasks over so many lanes take to leave through a gate of 256.
func qDrain(t *testing.T, n, lanes int) time.Duration {
	release := make(chan struct{})
	s := qReal(t, ax.Config{MaxConcurrent: 256, MaxQueue: ax.NoLimit}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		select {
		case <-release:
			return qNoop(ctx, task)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	tasks := qTasks(lanes)
	calls := make([]*ax.Call, n)
	for i := range calls {
		calls[i] = s.Submit(t.Context(), tasks[i%lanes])
	}
	require.Equal(t, n-256, s.Stats().Queued)
	runtime.GC()
	begin := time.Now()
	close(release)
	for _, c := range calls {
		_, err := c.Result()
		require.NoError(t, err)
	}
	took := time.Since(begin)
	require.NoError(t, s.Close())
	return took
}

// qAtMost requires that b takes at most so many times as long as a, by the
// shortest of several runs of each in turn: what else the machine does makes a
// run longer, never shorter.
func qAtMost(t *testing.T, times time.Duration, a, b func() time.Duration) {
	bestA, bestB := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for run := range 30 { // as a rule three
		bestA, bestB = min(bestA, a()), min(bestB, b())
		if run >= 2 && bestB <= times*bestA {
			return
		}
	}
	require.LessOrEqual(t, bestB, times*bestA, "the small run took %v", bestA)
}

// Four times the queue takes four times as long, not sixteen; on one lane and over a thousand.
func TestCaseH57(t *testing.T) {
	for _, lanes := range []int{1, 1000} {
		t.Run(strconv.Itoa(lanes), func(t *testing.T) {
			small, large := qScaled(16<<10), qScaled(64<<10)
			qAtMost(t, 6, func() time.Duration { return qDrain(t, small, lanes) }, func() time.Duration { return qDrain(t, large, lanes) })
		})
	}
}

// Cancelling whole queues is no more than cancelling each waiter cheaply.
func TestCaseH57CancelAll(t *testing.T) {
	n := qScaled(64 << 10)
	tests := map[string]func(s *ax.Scheduler, calls []*ax.Call, cancel context.CancelFunc){
		"ctx": func(_ *ax.Scheduler, _ []*ax.Call, cancel context.CancelFunc) { cancel() },
		"tag": func(s *ax.Scheduler, _ []*ax.Call, _ context.CancelFunc) { require.Equal(t, n, s.CancelTag("all")) },
		"call": func(_ *ax.Scheduler, calls []*ax.Call, _ context.CancelFunc) {
			for _, c := range calls {
				c.Cancel()
			}
		},
		"call, youngest first": func(_ *ax.Scheduler, calls []*ax.Call, _ context.CancelFunc) {
			for i := range calls {
				calls[len(calls)-1-i].Cancel()
			}
		},
		"close": func(s *ax.Scheduler, _ []*ax.Call, _ context.CancelFunc) { require.NoError(t, s.Close()) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			s := qReal(t, ax.Config{MaxQueue: ax.NoLimit}, qNoop)
			require.NoError(t, s.Pause(""))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := make([]*ax.Call, n)
			task := ax.Must(ax.Request{URL: at("/"), Tags: []string{"all"}}.Task())
			for i := range calls {
				calls[i] = s.Submit(ctx, task)
			}
			begin := time.Now()
			end(s, calls, cancel)
			for _, c := range calls {
				_, err := c.Result()
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Less(t, time.Since(begin), 5*time.Second, "nobody walks through the others")
			st := s.Stats()
			require.Zero(t, st.Queued+st.Parked)
			require.Equal(t, uint64(n), st.Canceled)
		})
	}
}

// Blocked lanes cost the dispatcher nothing: ten thousand of them, each with a
// better waiter, cost at most twice what ten cost.
func TestO3BlockedLanesCostNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // their memory is not what is measured
	prepare := func(blocked int) func() time.Duration {
		free := ax.Lane{Name: "free", Match: []string{"free.test"}}
		s := qReal(t, ax.Config{
			MaxConcurrent: 2, MaxQueue: ax.NoLimit, Lanes: []ax.Lane{free},
			Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}},
		}, qNoop)
		for i := range blocked {
			task := ax.Must(ax.Request{URL: "http://h" + strconv.Itoa(i) + ".test/", Priority: ax.Urgent}.Task())
			_, err := s.Do(t.Context(), task)
			require.NoError(t, err)
			s.Submit(t.Context(), task)
		}
		work := ax.Must(ax.Request{URL: "http://free.test/", Priority: ax.Low}.Task())
		calls := make([]*ax.Call, qScaled(16<<10))
		return func() time.Duration {
			require.Equal(t, blocked, s.Stats().Queued+s.Stats().Parked)
			require.NoError(t, s.Pause("free"))
			for i := range calls {
				calls[i] = s.Submit(t.Context(), work)
			}
			begin := time.Now()
			require.NoError(t, s.Resume("free"))
			for _, c := range calls {
				_, err := c.Result()
				require.NoError(t, err)
			}
			return time.Since(begin)
		}
	}
	qAtMost(t, 2, prepare(10), prepare(qScaled(10_000)))
}

// qHeap is the live heap and all stacks.
func qHeap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A hundred thousand hosts come and go and leave nothing, not even with everything switched on.
func TestX4HostsAreForgotten(t *testing.T) {
	n := qScaled(100_000)
	cfg := ax.Recommended()
	cfg.Hosts = &ax.Lane{MaxConcurrent: 2, Rate: ax.PerSecond(10)}
	cfg.Executor = ax.ExecutorFunc(qNoop)
	bubble(t, cfg, func(t *tester) {
		before := qHeap()
		for i := range n {
			_, err := t.S.Do(t.Context(), ax.Must(ax.Request{URL: "http://h" + strconv.Itoa(i) + ".test/"}.Task()))
			require.NoError(t, err)
		}
		require.Len(t, t.S.Stats().Lanes, n)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Empty(t, t.S.Stats().Lanes)
		require.Zero(t, t.S.Stats().DedupeEntries)
		require.Less(t, qHeap()-before, int64(8<<20), "a few MB: an emptied map keeps its buckets")
	})
}

// A Do that finds its gate free through an Executor that does nothing.
func TestAllocationsOfAFreeDo(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	s := qReal(t, ax.Config{}, qNoop)
	task := ax.Must(ax.Request{URL: at("/")}.Task())
	ctx := context.Background()
	allocs := testing.AllocsPerRun(2000, func() {
		if _, err := s.Do(ctx, task); err != nil {
			panic(err)
		}
	})
	require.LessOrEqual(t, allocs-1, 3.0, "beside the Executor's own response")
}

// A queued Call, with all that the scheduler keeps for it.
func TestBytesOfAQueuedCall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory too")
	}
	const n = 20_000
	s := qReal(t, ax.Config{MaxConcurrent: 1, MaxQueue: ax.NoLimit}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	task := ax.Must(ax.Request{URL: at("/")}.Task())
	s.Submit(context.Background(), task) // takes the slot
	calls := make([]*ax.Call, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := qHeap()
	for i := range calls {
		calls[i] = s.Submit(ctx, task)
	}
	each := (qHeap() - before) / n
	require.Equal(t, n, s.Stats().Queued)
	require.LessOrEqual(t, each, int64(600))
	runtime.KeepAlive(calls)
}

// TestBytesOfAWaitingDo: a goroutine's first stack is enough for the wait. How large
// that is the runtime learns from others, so one that waits for nothing is measured
// beside it.
func TestBytesOfAWaitingDo(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory too")
	}
	const n = 10_000
	all := ax.Config{MaxConcurrent: 1, MaxQueue: ax.NoLimit, Rate: ax.PerSecond(1000), Retry: &ax.Retry{}, Breaker: &ax.Breaker{}}
	shared := all
	shared.Dedupe = &ax.Dedupe{}
	memory := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	for _, c := range []struct {
		name    string
		cfg     ax.Config
		waiting func(ax.Stats) int
		most    int64 // beside the goroutine
	}{
		{"in the queue", all, func(s ax.Stats) int { return s.Queued }, 1200},
		{"for the answer to another", shared, func(s ax.Stats) int { return int(s.Coalesced) }, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := qReal(t, c.cfg, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			task := ax.Must(ax.Request{URL: at("/")}.Task())
			s.Submit(context.Background(), task) // takes the slot
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := memory()
			for range n {
				go func() { <-ctx.Done() }()
			}
			bare := memory() - before
			before = memory()
			for range n {
				go s.Do(ctx, task)
			}
			require.Eventually(t, func() bool { return c.waiting(s.Stats()) == n }, time.Minute, time.Millisecond)
			require.LessOrEqual(t, (memory()-before-bare)/n, c.most)
		})
	}
}
