package axredis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
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
