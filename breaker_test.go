package ax

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sec = instant(time.Second)

// testBreaker is the default policy, spelled out.
func testBreaker(change ...func(*Breaker)) *breaker {
	p := Breaker{Window: 10, MinCalls: 10, MaxAge: time.Minute, FailureRate: 0.3, OpenFor: 3 * time.Second, Probes: 1, Ramp: 3 * time.Second}
	for _, f := range change {
		f(&p)
	}
	return newBreaker(p)
}

func minCalls(n int) func(*Breaker) { return func(p *Breaker) { p.MinCalls = n } }
func probes(n int) func(*Breaker)   { return func(p *Breaker) { p.Probes = n } }

// call is one attempt that ends at once.
func call(b *breaker, now instant, failed bool) { b.done(now, b.begin(now), failed) }

// open opens b at now by failures alone.
func open(b *breaker, now instant) {
	for b.state() == BreakerClosed {
		call(b, now, true)
	}
}

// outcomesOf feeds outcomes: F fails, S succeeds.
func outcomesOf(b *breaker, now instant, s string) {
	for _, c := range s {
		call(b, now, c == 'F')
	}
}

func TestBreakerNames(t *testing.T) {
	require.Equal(t, "closed open half-open ramping BreakerState(9)",
		fmt.Sprint(BreakerClosed, " ", BreakerOpen, " ", BreakerHalfOpen, " ", BreakerRamping, " ", BreakerState(9)))
	require.Equal(t, "auto force-open force-closed BreakerMode(-1)",
		fmt.Sprint(BreakerAuto, " ", BreakerForceOpen, " ", BreakerForceClosed, " ", BreakerMode(-1)))
}

func TestF6Transitions(t *testing.T) {
	type row struct {
		at   time.Duration
		do   string // F, S: outcome of a new attempt; b: begin; f, s, a: end the oldest begun; x: abandon, i.e. a; O, C, A: force
		want BreakerState
	}
	const s = time.Second
	for name, c := range map[string]struct {
		with func(*Breaker)
		rows []row
	}{
		"opens above the rate, not at it": {func(p *Breaker) {}, []row{
			{0, "SSSSSSSFFF", BreakerClosed}, {0, "F", BreakerOpen},
		}},
		"heals over a ramp": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {3*s - 1, "", BreakerOpen}, {3 * s, "", BreakerHalfOpen},
			{4 * s, "b", BreakerHalfOpen}, {5 * s, "s", BreakerRamping},
			{8*s - 1, "SS", BreakerRamping}, {8 * s, "", BreakerClosed},
		}},
		"a failed probe opens for a full OpenFor": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {5 * s, "b", BreakerHalfOpen}, {6 * s, "f", BreakerOpen},
			{9*s - 1, "", BreakerOpen}, {9 * s, "", BreakerHalfOpen},
		}},
		"a failure on the ramp opens for a full OpenFor": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {3 * s, "S", BreakerRamping}, {5 * s, "F", BreakerOpen},
			{8*s - 1, "", BreakerOpen}, {8 * s, "", BreakerHalfOpen},
		}},
		"all probes must succeed": {func(p *Breaker) { p.MinCalls, p.Probes = 1, 3 }, []row{
			{0, "F", BreakerOpen}, {3 * s, "SS", BreakerHalfOpen}, {3 * s, "S", BreakerRamping},
			{4 * s, "F", BreakerOpen}, {7 * s, "SSF", BreakerOpen},
		}},
		"an abandoned probe is tried again": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {3 * s, "bababa", BreakerHalfOpen}, {4 * s, "S", BreakerRamping},
		}},
		"a hung probe fails, its late success changes nothing": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {4 * s, "b", BreakerHalfOpen}, {34*s - 1, "", BreakerHalfOpen},
			{34 * s, "", BreakerOpen}, {37*s - 1, "s", BreakerOpen}, {37 * s, "b", BreakerHalfOpen},
		}},
		"a hung probe is given OpenFor if that is longer": {func(p *Breaker) { p.MinCalls, p.OpenFor = 1, 40*s }, []row{
			{0, "F", BreakerOpen}, {40 * s, "b", BreakerHalfOpen}, {80*s - 1, "", BreakerHalfOpen}, {80 * s, "", BreakerOpen},
		}},
		"late outcomes of the closed state": {minCalls(1), []row{
			{0, "bbbbb", BreakerClosed}, {0, "f", BreakerOpen}, {1 * s, "f", BreakerOpen},
			{3 * s, "f", BreakerHalfOpen}, {3 * s, "s", BreakerHalfOpen}, {4 * s, "b", BreakerHalfOpen},
			{4 * s, "f", BreakerHalfOpen}, {4 * s, "s", BreakerRamping},
		}},
		"late outcomes of the ramp": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {3 * s, "S", BreakerRamping}, {5 * s, "b", BreakerRamping},
			{6 * s, "", BreakerClosed}, {7 * s, "f", BreakerClosed}, {7 * s, "F", BreakerOpen},
		}},
		"the window is empty after the ramp": {minCalls(4), []row{
			{0, "FFFF", BreakerOpen}, {3 * s, "S", BreakerRamping}, {6 * s, "FFF", BreakerClosed}, {6 * s, "F", BreakerOpen},
		}},
		"forced open": {minCalls(1), []row{
			{0, "O", BreakerOpen}, {3600 * s, "", BreakerOpen}, {3600 * s, "A", BreakerClosed}, {3600 * s, "F", BreakerOpen},
		}},
		"forced closed": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {1 * s, "C", BreakerClosed}, {1 * s, "FFFFFFFFFFFFF", BreakerClosed},
			{2 * s, "bA", BreakerClosed}, {2 * s, "f", BreakerClosed}, {2 * s, "F", BreakerOpen}, {2 * s, "A", BreakerClosed},
		}},
		"forced open while open": {minCalls(1), []row{
			{0, "F", BreakerOpen}, {1 * s, "O", BreakerOpen}, {10 * s, "", BreakerOpen}, {10 * s, "A", BreakerClosed},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBreaker(c.with)
			var held []permit
			for i, r := range c.rows {
				now := instant(r.at)
				for _, e := range r.do {
					switch e {
					case 'F', 'S':
						require.True(t, b.admits(now), "row %d", i)
						call(b, now, e == 'F')
					case 'b':
						require.True(t, b.admits(now), "row %d", i)
						held = append(held, b.begin(now))
					case 'f', 's':
						b.done(now, held[0], e == 'f')
						held = held[1:]
					case 'a':
						b.abandon(now, held[0])
						held = held[1:]
					case 'O':
						b.force(now, BreakerForceOpen)
					case 'C':
						b.force(now, BreakerForceClosed)
					case 'A':
						b.force(now, BreakerAuto)
					}
				}
				b.tick(now)
				require.Equal(t, r.want, b.state(), "row %d: %v %q", i, r.at, r.do)
			}
		})
	}
}

func TestF6WhatTheSchedulerAsks(t *testing.T) {
	b := testBreaker(minCalls(1), probes(2))
	require.Equal(t, never, b.wakeAt())
	require.Equal(t, 5*sec, b.earliest(5*sec, 9, 10, 0))
	_, ok := b.openUntil()
	require.False(t, ok)
	require.Nil(t, b.ramp())

	call(b, 5*sec, true)
	require.False(t, b.admits(5*sec))
	require.Equal(t, 8*sec, b.wakeAt())
	require.Equal(t, 8*sec, b.earliest(6*sec, 0, 10, 0))
	until, ok := b.openUntil()
	require.True(t, ok)
	require.Equal(t, 8*sec, until)
	failures, calls := b.counts(6 * sec)
	require.Equal(t, [2]int{1, 1}, [2]int{failures, calls}, "what opened it")

	require.Equal(t, 9*sec, b.earliest(9*sec, 0, 10, 0))
	p, q := b.begin(9*sec), b.begin(10*sec)
	require.True(t, p.probe)
	require.Equal(t, never, b.earliest(10*sec, 2, 10, 0))
	require.Equal(t, 39*sec, b.wakeAt(), "the older probe hangs first")
	b.done(11*sec, p, false)
	require.Equal(t, 40*sec, b.wakeAt(), "then the other")
	require.False(t, b.admits(11*sec), "a probe that passed has used its permit")
	b.abandon(12*sec, q)
	require.Equal(t, never, b.wakeAt())
	require.True(t, b.admits(12*sec))
	call(b, 12*sec, false)

	require.Equal(t, []BreakerState{BreakerOpen, BreakerHalfOpen, BreakerRamping}, b.takeMoves())
	require.Empty(t, b.takeMoves())
	require.Equal(t, 15*sec, b.wakeAt())
	require.Equal(t, 2, b.limit(12*sec, 10))
	require.Equal(t, 12*sec, b.earliest(12*sec, 1, 10, 0))
	require.Equal(t, 12*sec+375*ms, b.earliest(12*sec, 2, 10, 0), "the third of 2 + 8t/3s")
	require.Equal(t, 12*sec+375*ms, b.ramp().nextRise(12*sec, 10))
	require.Equal(t, never, b.earliest(12*sec, 10, 10, 0), "only a freed slot helps")
	b.begin(12 * sec)
	b.begin(12 * sec)
	require.Equal(t, 12*sec+927050984, b.earliest(12*sec, 0, 10, 100*time.Millisecond), "third start: 2t + 4t²/3 = 3")
	require.Equal(t, 10, b.limit(15*sec, 10))
	require.Equal(t, []BreakerState{BreakerClosed}, b.takeMoves())

	b.force(16*sec, BreakerForceOpen)
	_, ok = b.openUntil()
	require.False(t, ok, "a forced state has no known end")
	require.Equal(t, never, b.earliest(16*sec, 0, 10, 0))
	require.Equal(t, never, b.wakeAt())
	require.False(t, b.forgettable(9999*sec))
}

func TestF6LazyTicksChangeNothing(t *testing.T) {
	b := testBreaker(minCalls(1))
	call(b, 0, true)
	b.begin(4 * sec)
	b.tick(1000 * sec)
	require.Equal(t, []BreakerState{BreakerOpen, BreakerHalfOpen, BreakerOpen, BreakerHalfOpen}, b.takeMoves())
	require.True(t, b.admits(1000*sec))
}

func TestF6MisuseIsLoud(t *testing.T) {
	b := testBreaker(minCalls(1))
	call(b, 0, true)
	require.Panics(t, func() { b.begin(1 * sec) }, "behind an open breaker")
	p := b.begin(3 * sec)
	require.Panics(t, func() { b.begin(3 * sec) }, "a second probe of one")
	b.abandon(3*sec, p)
	require.Panics(t, func() { b.abandon(3*sec, p) }, "a permit twice")
	require.NotPanics(t, func() { b.done(3*sec, permit{}, true); b.abandon(3*sec, permit{}) }, "no permit")
	require.Equal(t, BreakerHalfOpen, b.state())
}

func TestF6ExactRates(t *testing.T) {
	for mille := 1; mille <= 1000; mille++ {
		rate := float64(mille) / 1000
		for calls := 1; calls <= 1000; calls += 1 + calls/50 {
			at := mille * calls / 1000 // the most failures that are not over the rate
			require.False(t, exceeds(at, rate, calls), "%d of %d at %v", at, calls, rate)
			require.True(t, exceeds(at+1, rate, calls), "%d of %d at %v", at+1, calls, rate)
		}
	}
	require.False(t, exceeds(1, 1.0/3, 3))
	require.False(t, exceeds(2, 2.0/3, 3))
	require.True(t, exceeds(3, 2.0/3, 3))
}

func TestX4ForgettableBreaker(t *testing.T) {
	b := testBreaker()
	require.True(t, b.forgettable(0))
	call(b, 10*sec, false)
	require.False(t, b.forgettable(70*sec))
	require.True(t, b.forgettable(70*sec+1))
	open(b, 100*sec)
	require.False(t, b.forgettable(163*sec))
	require.True(t, b.forgettable(163*sec+1))
	p := b.begin(200 * sec)
	require.False(t, b.forgettable(200*sec), "a probe is in flight")
	b.done(200*sec, p, false)
	require.False(t, b.forgettable(201*sec), "on the ramp")
	require.True(t, b.forgettable(203*sec))
}

// Callers that give up are neutral: they leave nothing behind.
func TestCaseH18Breaker(t *testing.T) {
	b := testBreaker()
	for i := range instant(100) {
		b.abandon(i*10*ms, b.begin(i*10*ms))
	}
	failures, calls := b.counts(sec)
	require.Equal(t, [3]int{0, 0, int(BreakerClosed)}, [3]int{failures, calls, int(b.state())})
	require.True(t, b.admits(sec))
}

func TestCaseH19Breaker(t *testing.T) {
	for _, failed := range []bool{false, true} {
		b := testBreaker(minCalls(1), probes(3))
		call(b, 0, true)
		var held []permit
		for range 100 {
			if b.admits(3 * sec) {
				held = append(held, b.begin(3*sec))
			}
		}
		require.Len(t, held, 3)
		for i, p := range held {
			require.False(t, b.admits(3*sec+200*ms), "until the verdict")
			b.done(3*sec+200*ms, p, failed && i == 2)
		}
		if failed {
			until, ok := b.openUntil()
			require.True(t, ok)
			require.Equal(t, 6*sec+200*ms, until)
		} else {
			require.Equal(t, BreakerRamping, b.state())
		}
	}
}

func TestCaseH20Breaker(t *testing.T) {
	b := testBreaker(minCalls(1))
	call(b, 0, true)
	b.abandon(3*sec, b.begin(3*sec)) // the gate refused after the permit was taken
	require.True(t, b.admits(3*sec))
	call(b, 3*sec, false) // a 404 is a success
	require.Equal(t, BreakerRamping, b.state())
}

func TestCaseH22Breaker(t *testing.T) {
	b := testBreaker(func(p *Breaker) { p.FailureRate = 0.5 })
	now := 3600 * sec
	for range 21 {
		call(b, now, true)
		now += 24 * 3600 * sec
	}
	require.Equal(t, BreakerClosed, b.state())
	outcomesOf(b, now, "SSSSSFFFFF")
	require.Equal(t, BreakerClosed, b.state(), "5 of 10 are not more than half")
	b.force(now, BreakerAuto)
	outcomesOf(b, now, "SSSSFFFFFF")
	require.Equal(t, BreakerOpen, b.state(), "6 of 10")
}

func TestCaseH23Breaker(t *testing.T) {
	half := func(p *Breaker) { p.MinCalls, p.FailureRate = 3, 0.5 }
	b := testBreaker(half)
	outcomesOf(b, 0, "FF")
	require.Equal(t, BreakerClosed, b.state())
	outcomesOf(b, 0, "S")
	require.Equal(t, BreakerOpen, b.state(), "a success completes the evidence")
	b = testBreaker(half)
	outcomesOf(b, 0, "FSS")
	require.Equal(t, BreakerClosed, b.state())
}

func TestCaseH25Breaker(t *testing.T) {
	b := testBreaker(minCalls(1), func(p *Breaker) { p.Ramp = 4 * time.Second })
	call(b, 0, true)
	call(b, 3*sec, false)
	for at := instant(0); at < 4*sec; at += ms {
		most := max(1, int(math.Ceil(100*time.Duration(at).Seconds()/4)))
		require.LessOrEqual(t, b.limit(3*sec+at, 100), most, "%v after the probe", time.Duration(at))
	}
	require.Equal(t, 100, b.limit(7*sec, 100))
}

// counts are the outcomes that the breaker judges by; while it is open or on
// its way back, those that opened it.
func (b *breaker) counts(now instant) (failures, calls int) {
	b.tick(now)
	return b.recent.counts(now)
}
