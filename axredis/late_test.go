package axredis_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestAGrantTellsUntilWhenItMayStart(t *testing.T) {
	cfg := axredis.Config{LeaseTTL: 3 * time.Second, Timeout: 600 * ms, Lanes: map[string]ax.Limits{
		"window":  {Rate: []ax.Rate{{Limit: 9, Per: time.Minute}}},
		"narrow":  {MaxConcurrent: 9, Rate: []ax.Rate{{Limit: 9, Per: time.Second}, {Limit: 9, Per: time.Minute}}},
		"bucket":  {Rate: []ax.Rate{{Limit: 9, Burst: 9}}},
		"slots":   {MaxConcurrent: 9},
		"nothing": {},
	}}
	f := newFleet(t, cfg)
	g := f.join()
	granted(t, g, ask("slots", 0)) // the first call leaves more room
	for lane, room := range map[string]time.Duration{
		"window": 600 * ms, "narrow": 50 * ms, "bucket": 2700 * ms, "slots": 2700 * ms, "nothing": 2700 * ms,
	} {
		asked := time.Now()
		by := granted(t, g, ask(lane, 0)).StartBy
		require.InDelta(t, room, by.Sub(asked), float64(slack), lane)
	}
	require.Zero(t, must(t, g, ask("unknown", 0)).StartBy)
	alone := newFleetAt(t, freeAddr(t), lanes("api", ax.Limits{Rate: ax.PerSecond(9)})).join()
	require.Zero(t, granted(t, alone, ask("api", 0)).StartBy, "not counted by Redis")
}

// dawdling is a process that gets no processor time for d after each grant.
type dawdling struct {
	ax.Governor
	d time.Duration
}

func (g dawdling) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) {
	grant, err := g.Governor.Acquire(ctx, a)
	if err == nil && grant.RetryIn == 0 {
		time.Sleep(g.d)
	}
	return grant, err
}

// TestALateStartIsNotMade: what one process is late with, others do by then.
func TestALateStartIsNotMade(t *testing.T) {
	onAMachineWithTime(t, func() error {
		f := newFleet(t, lanes("api", ax.Limits{Rate: ax.PerSecond(5)}))
		seen := newCounter()
		slow := f.schedulerWith(ax.Config{Governor: dawdling{f.join(), 120 * ms}, Executor: seen.executor(ms)})
		quick := f.scheduler(f.join(), seen.executor(ms))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(long(6*time.Second, 3*time.Second), cancel)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { seen.drive(ctx, slow) })
			all.Go(func() { seen.drive(ctx, quick) })
		}
		all.Wait()
		t.Logf("%d starts", len(seen.all()))
		require.Empty(t, seen.errors(), "nobody pays for it with an attempt")
		return bound("starts in a second", seen.busiest(time.Second), 1, 5)
	})
}

// freezing stops its own process when its first grant has come.
type freezing struct {
	*axredis.Governor
	once *atomic.Bool
}

func (g freezing) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) {
	grant, err := g.Governor.Acquire(ctx, a)
	if err == nil && grant.RetryIn == 0 && g.once.CompareAndSwap(false, true) {
		fmt.Println("freezing")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for since := time.Now(); time.Since(since) < 100*ms; { // it takes effect a little later
		}
	}
	return grant, err
}

// freezer is a worker that sends one request.
func freezer(j job) {
	g, err := axredis.New(redis.NewClient(&redis.Options{Addr: j.Redis}), j.Config)
	if err != nil {
		panic(err)
	}
	s, err := ax.New(&http.Client{}, ax.Config{Governor: freezing{g, new(atomic.Bool)}, Lanes: []ax.Lane{{Name: "api"}}})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	_, err = s.Send(context.Background(), ax.Request{URL: j.URL + "/" + j.Name, Lane: "api", NoRetry: true})
	fmt.Println("sent:", err)
}

// TestFrozenBetweenGrantAndStart: a process that wakes after its lease does not
// begin what it was granted; it asks again, and none of its attempts is spent.
func TestFrozenBetweenGrantAndStart(t *testing.T) {
	for range int(long(15, 3)) {
		f := newFleet(t, leased(1, 600*ms))
		seen, url := wire(t, ms)
		p := startWorker(t, job{Redis: f.addr, URL: url, Name: "freezer", Config: f.cfg, Freeze: true})
		require.Equal(t, "freezing", <-p.lines)
		other := wait(t, f.join(), ask("api", 0)) // has taken over
		p.signal(syscall.SIGCONT)
		time.Sleep(150 * ms)
		require.Empty(t, seen.all())
		other.Release()
		require.Equal(t, "sent: <nil>", <-p.lines)
		require.Len(t, seen.all(), 1)
	}
}
