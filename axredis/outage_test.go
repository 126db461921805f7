package axredis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// slack is what a busy machine may add to a bound.
const slack = 40 * ms

func outage(o axredis.Outage, l ax.Limits) axredis.Config {
	cfg := lanes("api", l)
	cfg.Outage, cfg.Timeout = o, 50*ms
	return cfg
}

// timed is one Acquire and how long it took.
func timed(t testing.TB, g *axredis.Governor, a ax.Ask) (ax.Grant, time.Duration) {
	t.Helper()
	since := time.Now()
	grant := must(t, g, a)
	return grant, time.Since(since)
}

// TestARedisThatNeverAnswersCostsLittleAndThenNothing.
func TestARedisThatNeverAnswersCostsLittleAndThenNothing(t *testing.T) {
	for _, o := range []axredis.Outage{axredis.FailLocal, axredis.FailOpen, axredis.FailClosed} {
		f := newFleet(t, outage(o, ax.Limits{MaxConcurrent: 1000}))
		l := newLink(t, f.addr)
		l.set(linkMute)
		g := f.at(l)
		for range 2 {
			_, took := timed(t, g, ask("api", 0))
			require.LessOrEqual(t, took, 60*ms+slack, "%v", o)
		}
		var total time.Duration
		for range 100 {
			grant, took := timed(t, g, ask("api", 0))
			total += took
			require.Equal(t, o == axredis.FailClosed, grant.RetryIn > 0, "%v", o)
		}
		require.Less(t, total/100, 2*ms, "%v: known by now", o)
		l.set(linkUp)
		back(t, f, g)
	}
}

// back waits until g speaks with Redis again: at most a second.
func back(t testing.TB, f *fleet, g *axredis.Governor) {
	t.Helper()
	since := time.Now()
	for f.leases("api") == 0 {
		if grant := must(t, g, ask("api", 0)); grant.Release != nil {
			time.Sleep(5 * ms)
			defer grant.Release()
		}
		time.Sleep(20 * ms)
		require.Less(t, time.Since(since), time.Second+slack, "back within a second")
	}
}

// TestManyCallersOfADeadRedis: nobody waits for the time-out of another.
func TestManyCallersOfADeadRedis(t *testing.T) {
	f := newFleet(t, outage(axredis.FailOpen, ax.Limits{MaxConcurrent: 1000}))
	l := newLink(t, f.addr)
	g := f.at(l)
	granted(t, g, ask("api", 0))
	l.set(linkMute)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * ms)
			grant, took := timed(t, g, ask("api", 0))
			if grant.RetryIn != 0 || took > 60*ms+slack {
				t.Errorf("retry in %v after %v", grant.RetryIn, took)
			}
		})
	}
	all.Wait()
}

func TestFailLocalAppliesTheFleetsLimitsToThisProcess(t *testing.T) {
	f := newFleet(t, outage(axredis.FailLocal, ax.Limits{MaxConcurrent: 3, Rate: []ax.Rate{{Limit: 4, Per: time.Minute}}}))
	l := newLink(t, f.addr)
	g := f.at(l)
	first := granted(t, g, ask("api", 0)) // counts although Redis granted it
	l.set(linkCut)
	second, third := granted(t, g, ask("api", 0)), granted(t, g, ask("api", 0))
	require.LessOrEqual(t, refused(t, g, ask("api", 0)), 200*ms, "three slots")
	first.Release()
	granted(t, g, ask("api", 0))
	second.Release()
	third.Release()
	require.Greater(t, refused(t, g, ask("api", 0)), 50*time.Second, "four starts")
}

func TestFailOpenAndFailClosed(t *testing.T) {
	dead := freeAddr(t)
	f := newFleetAt(t, dead, outage(axredis.FailOpen, ax.Limits{MaxConcurrent: 1}))
	open := f.join()
	for range 20 {
		granted(t, open, ask("api", 0))
	}
	closed := f.joinWith(func(c *axredis.Config) { c.Outage = axredis.FailClosed })
	for range 20 {
		require.Equal(t, 100*ms, refused(t, closed, ask("api", 0)))
	}
}

// TestAnIdleGovernorProbesNothing: callers cause the probes.
func TestAnIdleGovernorProbesNothing(t *testing.T) {
	f := newFleet(t, outage(axredis.FailOpen, ax.Limits{Rate: ax.PerSecond(100)}))
	l := newLink(t, f.addr)
	g := f.at(l)
	l.set(linkCut)
	for range 5 {
		granted(t, g, ask("api", 0))
	}
	time.Sleep(300 * ms)
	_, before := l.traffic()
	time.Sleep(600 * ms)
	_, after := l.traffic()
	require.Equal(t, before, after)
}

// TestCaseH52ABlipOfTheStore: cut for three seconds in mid-run, and back, once
// with its data and once empty.
func TestCaseH52ABlipOfTheStore(t *testing.T) {
	s := startServer(t)
	for _, empty := range []bool{false, true} {
		onAMachineWithTime(t, func() error { return blip(t, s, empty) })
	}
}

// blip runs two schedulers through an outage and tells what was wrong.
func blip(t *testing.T, s *server, empty bool) error {
	cfg := outage(axredis.FailLocal, ax.Limits{MaxConcurrent: 10, Rate: []ax.Rate{{Limit: 50}}})
	cfg.Timeout = 200 * ms // a busy machine is no outage
	f := newFleetAt(t, s.addr, cfg)
	l := newLink(t, s.addr)
	seen := newCounter()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		sched := f.schedulerWith(ax.Config{Governor: f.at(l), Executor: seen.executor(20 * ms),
			Lanes: []ax.Lane{{Name: "api", MaxConcurrent: 8}}})
		for range 12 {
			all.Go(func() { seen.drive(ctx, sched) })
		}
	}
	time.Sleep(1500 * ms)
	if empty {
		s.stop()
	}
	l.set(linkCut)
	cut := time.Now()
	time.Sleep(long(3*time.Second, 2*time.Second))
	if empty {
		s.start()
	}
	l.set(linkUp)
	back := time.Now()
	time.Sleep(2500 * ms)
	cancel()
	all.Wait()
	require.Empty(t, seen.errors(), "every caller is answered")
	return errors.Join(
		bound("at once in the outage, each process its own slots", seen.peak(cut, back), 1, 16),
		bound("in the outage, by each process's own rate", seen.between(cut, back), int(45*back.Sub(cut).Seconds()),
			int(100*(back.Sub(cut).Seconds()+1))),
		bound("in the second of the return, no more than a burst on top", seen.between(back, back.Add(time.Second)), 43, 150),
		bound("in the second after it", seen.between(back.Add(time.Second), back.Add(2*time.Second)), 43, 51),
		bound("at once after it", seen.peak(back.Add(time.Second), time.Now()), 1, 10),
	)
}

// bound tells that what was seen n times is out of bounds.
func bound(what string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d, want %d to %d", what, n, least, most)
	}
	return nil
}

// TestLeasesOutliveARestart: a Redis that comes back empty is told what is held.
func TestLeasesOutliveARestart(t *testing.T) {
	s := startServer(t)
	cfg := outage(axredis.FailLocal, ax.Limits{MaxConcurrent: 2})
	cfg.LeaseTTL = 5 * time.Second
	f := newFleetAt(t, s.addr, cfg)
	a, b := f.join(), f.join()
	held := granted(t, a, ask("api", 0))
	s.stop()
	offline := granted(t, a, ask("api", 0)) // by this process's own limits
	s.start()
	require.Eventually(t, func() bool { refused(t, a, ask("api", 0)); return f.leases("api") == 2 },
		time.Second+slack, 20*ms)
	refused(t, b, ask("api", 0))
	require.False(t, isLost(held))
	offline.Release()
	held.Release()
	require.Eventually(t, func() bool { return f.leases("api") == 0 }, time.Second, ms)
}

// lost and found are how often a governor has told of it.
func (l *logs) lost() int  { return l.with("does not answer") }
func (l *logs) found() int { return l.with("answers again") }

// TestASlowRedisIsFound although a call has no time to connect: connecting takes
// several round trips, for which only the probe has time, and it does so for all
// lanes.
func TestASlowRedisIsFound(t *testing.T) {
	cfg := axredis.Config{Timeout: 100 * ms, Lanes: map[string]ax.Limits{}}
	for i := range 5 {
		cfg.Lanes[fmt.Sprint(i)] = ax.Limits{MaxConcurrent: 1}
	}
	var out logs
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	f := newFleet(t, cfg)
	l := newLink(t, f.addr)
	l.slow(40 * ms)
	a, b := f.at(l), f.at(l)
	// both is how many lanes gave their only slot to both
	both := func() (n int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for lane := range cfg.Lanes {
			all.Go(func() {
				one, two := must(t, a, ask(lane, 0)), must(t, b, ask(lane, 0))
				for _, g := range []ax.Grant{one, two} {
					if g.Release != nil {
						g.Release()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if one.RetryIn == 0 && two.RetryIn == 0 {
					n++
				}
			})
		}
		all.Wait()
		time.Sleep(30 * ms)
		return n
	}
	since := time.Now()
	for time.Since(since) < 2*time.Second {
		both()
	}
	lost := out.lost()
	require.Equal(t, lost, out.found())
	for time.Since(since) < 4*time.Second {
		require.Zero(t, both())
	}
	require.Equal(t, lost, out.lost(), "and stays so")
}

// TestARedisThatRefusesScriptsIsAnOutage, and one that stays: what the probe does
// is what an ask needs.
func TestARedisThatRefusesScriptsIsAnOutage(t *testing.T) {
	s := startServer(t)
	may := func(rule string) {
		require.NoError(t, s.client().Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", rule).Err())
	}
	may("-@scripting")
	var out logs
	cfg := lanes("api", ax.Limits{MaxConcurrent: 1})
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	c := redis.NewClient(&redis.Options{Addr: s.addr, Username: "u", Password: "p"})
	defer c.Close()
	g, err := axredis.New(c, cfg)
	require.NoError(t, err)
	defer g.Close()
	use := func(d time.Duration) {
		for since := time.Now(); time.Since(since) < d; time.Sleep(5 * ms) {
			if grant := must(t, g, ask("api", 0)); grant.Release != nil {
				grant.Release()
			}
		}
	}
	use(1500 * ms)
	require.Equal(t, []int{1, 0}, []int{out.lost(), out.found()})
	may("+@scripting")
	use(time.Second)
	require.Equal(t, []int{1, 1}, []int{out.lost(), out.found()})
}

// cluster is one of two nodes, whose slots are halved between them.
func cluster(t *testing.T) (nodes [2]*server, c *redis.ClusterClient, nodeOf func(tag string) int) {
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no"}
	nodes[0], nodes[1] = startServer(t, args...), startServer(t, args...)
	first := nodes[0].client()
	require.NoError(t, first.ClusterAddSlotsRange(t.Context(), 0, 8191).Err())
	require.NoError(t, nodes[1].client().ClusterAddSlotsRange(t.Context(), 8192, 16383).Err())
	host, port, _ := net.SplitHostPort(nodes[1].addr)
	require.NoError(t, first.ClusterMeet(t.Context(), host, port).Err())
	for _, n := range nodes {
		require.Eventually(t, func() bool { return len(n.client().ClusterSlots(t.Context()).Val()) == 2 }, 10*time.Second, 50*ms)
	}
	c = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].addr, nodes[1].addr}})
	t.Cleanup(func() { c.Close() })
	return nodes, c, func(tag string) int { return int(first.ClusterKeySlot(t.Context(), tag).Val()) / 8192 }
}

// TestADeadNodeOfAClusterIsNothingToTheLanesOfTheOther.
func TestADeadNodeOfAClusterIsNothingToTheLanesOfTheOther(t *testing.T) {
	nodes, c, nodeOf := cluster(t)
	var out logs
	cfg := axredis.Config{Prefix: "ax", Timeout: 100 * ms, Lanes: map[string]ax.Limits{}, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	var lane [2]string // by its node
	for i := 0; lane[0] == "" || lane[1] == ""; i++ {
		name := fmt.Sprint("lane", i)
		lane[nodeOf("{ax:"+name+"}")] = name
	}
	for _, name := range lane {
		cfg.Lanes[name] = ax.Limits{MaxConcurrent: 1}
	}
	one, err := axredis.New(c, cfg)
	require.NoError(t, err)
	defer one.Close()
	two, err := axredis.New(c, cfg)
	require.NoError(t, err)
	defer two.Close()
	var held ax.Grant
	require.Eventually(t, func() bool { // once all of them know the cluster
		before := out.lost()
		held = wait(t, one, ask(lane[0], 0))
		both := must(t, two, ask(lane[0], 0))
		for _, g := range []ax.Grant{both, wait(t, two, ask(lane[1], 0))} {
			if g.Release != nil {
				g.Release()
			}
		}
		if both.RetryIn > 0 && out.lost() == before && out.lost() == out.found() {
			return true
		}
		held.Release()
		return false
	}, 10*time.Second, 100*ms)
	defer held.Release()
	before := out.lost()
	ofHealthy := "does not answer\" lane=" + lane[0]
	healthy := out.with(ofHealthy)

	require.NoError(t, nodes[1].cmd.Process.Signal(syscall.SIGSTOP))
	slow := 0
	for since := time.Now(); time.Since(since) < long(6*time.Second, 3*time.Second); time.Sleep(5 * ms) {
		grant, took := timed(t, two, ask(lane[1], 0))
		if took > 20*ms {
			slow++
		}
		if grant.Release != nil {
			grant.Release()
		}
		require.Positive(t, must(t, two, ask(lane[0], 0)).RetryIn, "its limit holds")
	}
	require.LessOrEqual(t, slow, 5, "the outage costs two calls")
	require.Equal(t, before+1, out.lost(), "%v", out.lines)
	require.Equal(t, healthy, out.with(ofHealthy))
	require.NoError(t, nodes[1].cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool {
		if grant := must(t, two, ask(lane[1], 0)); grant.Release != nil {
			grant.Release()
		}
		return out.found() == before+1
	}, 3*time.Second, 20*ms)
	require.Positive(t, must(t, two, ask(lane[0], 0)).RetryIn)
}

// TestAWindowHoldsOverALossOfRedis for a process that is alone: it remembers what it
// has started meanwhile.
func TestAWindowHoldsOverALossOfRedis(t *testing.T) {
	const per = 2 * time.Second
	cfg := outage(axredis.FailLocal, ax.Limits{Rate: []ax.Rate{{Limit: 10, Per: per}}})
	cfg.Timeout = 100 * ms
	f := newFleet(t, cfg)
	l := newLink(t, f.addr)
	g := f.at(l)
	l.set(linkCut)
	time.AfterFunc(400*ms, func() { l.set(linkUp) })
	var starts []time.Time
	for end := time.Now().Add(3 * per); time.Now().Before(end); {
		var all sync.WaitGroup // more at once than a window has room for
		grants := make([]ax.Grant, 4)
		for i := range grants {
			all.Go(func() { grants[i] = must(t, g, ask("api", 0)) })
		}
		all.Wait()
		for _, grant := range grants {
			if grant.RetryIn == 0 {
				starts = append(starts, time.Now())
			}
		}
		time.Sleep(10 * ms)
	}
	for i := 10; i < len(starts); i++ {
		require.GreaterOrEqual(t, starts[i].Sub(starts[i-10]), per-20*ms, "start %d", i)
	}
	require.GreaterOrEqual(t, len(starts), 25, "and goes on")
	require.NotEmpty(t, f.keys(), "by Redis")
}
