package ax

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms     = instant(time.Millisecond)
	second = instant(time.Second)
)

func testRates(rates ...Rate) *rateSet { return newRateSet(time.Now(), rates) }

// start takes and calls at the earliest moment from now on, which it returns.
func start(r *rateSet, now instant) instant {
	at := max(now, r.next(now))
	r.take(at, 0)
	r.called(at)
	return at
}

// starts are the moments of the next n starts.
func starts(r *rateSet, now instant, n int) []instant {
	at := make([]instant, n)
	for i := range at {
		now = start(r, now)
		at[i] = now
	}
	return at
}

// requireWindow checks every half-open window of span that begins at a start.
func requireWindow(t *testing.T, starts []instant, limit int, span time.Duration) {
	t.Helper()
	for i := limit; i < len(starts); i++ {
		require.GreaterOrEqual(t, starts[i].sub(starts[i-limit]), span, "starts %d and %d", i-limit, i)
	}
}

// called is calledLocked for a set by itself.
func (r *rateSet) called(now instant) (opened bool) {
	if !r.exact() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calledLocked(now, r.claimed())
}

// claimed is what a start taken lately was given.
func (r *rateSet) claimed() claim {
	switch {
	case r.exact():
		return r.era
	case len(r.rates()) > 0:
		return bucketed
	}
	return uncounted
}

func TestRateSetEmptyAllowsEverything(t *testing.T) {
	for name, r := range map[string]*rateSet{"nil": nil, "empty": testRates()} {
		t.Run(name, func(t *testing.T) {
			for i := range instant(100) {
				require.LessOrEqual(t, r.next(i), i)
				r.take(i, 0)
				r.called(i)
				r.giveBack(i, i, r.claimed())
			}
			require.False(t, r.exact())
			require.LessOrEqual(t, r.idleAt(100), instant(100))
			require.Empty(t, r.rates())
		})
	}
}

func TestRateTakeBeforeItsTimeIsRefused(t *testing.T) {
	for _, rate := range []Rate{{Limit: 1}, {Limit: 1, Burst: 1}} {
		r := testRates(rate)
		start(r, 0)
		require.Equal(t, noClaim, r.take(second-2, 0))
		start(r, second)
	}
}

func TestL2WindowSchedule(t *testing.T) {
	for _, c := range []struct {
		name string
		rate []Rate
		want []instant // starts as early as possible from 0
	}{
		{"default Per", []Rate{{Limit: 2}}, []instant{0, 0, second, second, 2 * second}},
		{"guard", []Rate{{Limit: 2, Guard: 50 * time.Millisecond}}, []instant{0, 0, 1050 * ms, 1050 * ms, 2100 * ms}},
		{"smooth", []Rate{{Limit: 4, Smooth: true}}, []instant{0, 250 * ms, 500 * ms, 750 * ms, second}},
		{"smooth, uneven", []Rate{{Limit: 3, Smooth: true}}, []instant{0, 333333333, 666666666, second, second + 333333333}},
		{"two windows", []Rate{{Limit: 2}, {Limit: 3, Per: time.Minute}}, []instant{0, 0, second, 60 * second, 60 * second, 61 * second}},
		{"burst", []Rate{{Limit: 10, Burst: 2}}, []instant{0, 0, 100 * ms, 200 * ms, 300 * ms}},
		{"burst and window", []Rate{{Limit: 10, Burst: 2}, {Limit: 3}}, []instant{0, 0, 100 * ms, second, second, 1100 * ms}},
		{"once in a century", []Rate{{Limit: 1, Per: 100 * 365 * 24 * time.Hour}}, []instant{0, instant(100 * 365 * 24 * time.Hour), 2 * instant(100*365*24*time.Hour)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, starts(testRates(c.rate...), 0, len(c.want)))
		})
	}
}

// An entry counts from its grant until a span after the call, however long the
// Executor keeps it waiting.
func TestL2PendingDoesNotExpire(t *testing.T) {
	r := testRates(Rate{Limit: 2, Guard: 10 * time.Millisecond})
	r.take(0, 0)
	r.take(0, 0)
	require.Equal(t, never, r.next(0))
	require.Equal(t, never, r.next(10*second), "nothing was called yet")
	require.Equal(t, never, r.idleAt(10*second))
	r.called(10 * second)
	require.Equal(t, 11010*ms, r.next(10*second))
	r.giveBack(10*second, 0, r.claimed())
	require.LessOrEqual(t, r.next(10*second), 10*second)
	require.Equal(t, 11010*ms, r.idleAt(10*second))
}

func TestL2ExactUnderRandomTraffic(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := testRates(Rate{Limit: 10, Guard: 20 * time.Millisecond}, Rate{Limit: 300, Per: time.Minute})
		var pending []instant // when they are going to be called
		var called []instant
		callUntil := func(now instant) {
			slices.Sort(pending)
			for len(pending) > 0 && pending[0] <= now {
				before := r.next(pending[0])
				if r.called(pending[0]) {
					require.Equal(t, never, before, "only a call could bring a start about")
				} else {
					require.Equal(t, max(before, r.latest), max(r.next(pending[0]), r.latest), "nobody needs to look again")
				}
				called = append(called, pending[0])
				pending = pending[1:]
			}
		}
		for now := instant(0); len(called) < 2000; now += instant(random.IntN(20)) * ms {
			callUntil(now)
			if r.next(now) > now {
				continue
			}
			r.take(now, 0)
			if random.IntN(10) == 0 {
				r.giveBack(now, now, r.claimed())
				continue
			}
			pending = append(pending, now+instant(random.IntN(50))*ms)
		}
		requireWindow(t, called, 10, 1020*time.Millisecond)
		requireWindow(t, called, 300, time.Minute)
	}
}

func TestL3SeveralRatesAtOnce(t *testing.T) {
	r := testRates(Rate{Limit: 10}, Rate{Limit: 5000, Per: 24 * time.Hour})
	at := starts(r, 0, 10_001)
	requireWindow(t, at, 10, time.Second)
	requireWindow(t, at, 5000, 24*time.Hour)
	require.Equal(t, 499*second, at[4999])
	require.Equal(t, instant(24*time.Hour), at[5000])
	require.Equal(t, instant(48*time.Hour), at[10_000])
}

func TestL2LargeWindowShrinksAgain(t *testing.T) {
	const n = 1_000_000
	r := testRates(Rate{Limit: n})
	require.Zero(t, len(r.log.ring), "no memory before the first start")
	for range n {
		start(r, 0)
	}
	require.Equal(t, second, r.next(0))
	starts(r, second, 1)
	require.Equal(t, 1, r.log.len())
	for i := range instant(20) {
		start(r, (2+i)*second)
	}
	require.Len(t, r.log.ring, logKeep)
}

func TestRateSteadyStateDoesNotAllocate(t *testing.T) {
	r := testRates(Rate{Limit: 100}, Rate{Limit: 1000, Burst: 10}, Rate{Limit: 120, Smooth: true})
	now := starts(r, 0, 500)[499]
	require.Zero(t, testing.AllocsPerRun(1000, func() { now = start(r, now) }))
}

func TestCaseH28CancelGivesBack(t *testing.T) {
	r := testRates(Rate{Limit: 10, Burst: 1})
	start(r, 0)
	// A, B and C wait and hold nothing; A leaves at 50 ms.
	require.Equal(t, 100*ms, r.next(50*ms))
	r.take(100*ms, 0) // B
	require.Equal(t, 200*ms, r.next(100*ms))
	r.take(200*ms, 0) // C, cancelled before its call
	r.giveBack(250*ms, 200*ms, r.claimed())
	require.LessOrEqual(t, r.next(250*ms), 250*ms)
	start(r, 250*ms)
	require.Equal(t, 350*ms, r.next(250*ms))
}

func TestRateGiveBackMintsNothing(t *testing.T) {
	t.Run("room was used since", func(t *testing.T) {
		r := testRates(Rate{Limit: 10, Burst: 3})
		r.take(0, 0)
		for range 3 {
			r.take(100*ms, 0) // full again: what A holds would have overflowed
		}
		r.giveBack(100*ms, 0, r.claimed())
		require.Equal(t, 200*ms, r.next(100*ms))
	})
	t.Run("two share the room", func(t *testing.T) {
		r := testRates(Rate{Limit: 10, Burst: 3})
		r.take(0, 0)
		r.take(0, 0)
		r.take(100*ms, 0) // two tokens were there and room for one
		r.giveBack(100*ms, 0, r.claimed())
		r.giveBack(100*ms, 0, r.claimed())
		require.Equal(t, []instant{100 * ms, 100 * ms, 200 * ms}, starts(r, 100*ms, 3))
	})
	t.Run("at the brim", func(t *testing.T) {
		r := testRates(Rate{Limit: 10, Burst: 3})
		r.take(0, 0)
		r.giveBack(0, 0, r.claimed())
		require.Equal(t, []instant{0, 0, 0, 100 * ms}, starts(r, 0, 4))
	})
	t.Run("spacing", func(t *testing.T) {
		r := testRates(Rate{Limit: 10, Smooth: true})
		start(r, 0)
		r.take(100*ms, 0)
		r.giveBack(130*ms, 100*ms, r.claimed())
		require.Equal(t, []instant{130 * ms, 230 * ms}, starts(r, 130*ms, 2))
		r.take(330*ms, 0)
		r.called(330 * ms)
		r.giveBack(330*ms, 230*ms, r.claimed())
		require.Equal(t, 430*ms, r.next(330*ms), "another has followed")
	})
}

func TestCaseH36NoMintUnderContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu       sync.Mutex
			wg       sync.WaitGroup
			admitted int
			epoch    = time.Now()
			rates    = []Rate{{Limit: 100, Burst: 10}}
			r        = newRateSet(epoch, rates)
		)
		for id := range uint64(64) {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(id, 36))
				for time.Since(epoch) < 5*time.Second {
					now := instant(time.Since(epoch))
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond) // now is stale
					mu.Lock()
					switch {
					case random.IntN(16) == 0:
						r.set(now, slices.Clone(rates))
					case r.next(now) <= max(now, r.latest):
						r.take(now, 0)
						if random.IntN(8) == 0 {
							r.giveBack(now, now, r.claimed())
						} else {
							admitted++
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(random.IntN(2)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, admitted, 495)
		require.LessOrEqual(t, admitted, 511)
	})
}

func TestCaseH37NoDoubleBurst(t *testing.T) {
	for _, rate := range []Rate{{Limit: 18}, {Limit: 18, Smooth: true}, {Limit: 18, Burst: 18}} {
		at := starts(testRates(rate), 0, 10_000)
		if rate.Burst == 0 {
			requireWindow(t, at, 18, time.Second)
		}
		requireBucket(t, at[:1000], 18, 18)
		require.Less(t, at[9999], 556*second, "no throughput lost")
	}
}

// requireBucket checks that no span holds more starts than burst + perSecond × span.
func requireBucket(t *testing.T, starts []instant, burst int, perSecond float64) {
	t.Helper()
	for i := range starts {
		for j := i + burst; j < len(starts); j++ {
			// A nanosecond for each of the two ends is rounding.
			most := float64(burst) + perSecond*(starts[j].sub(starts[i])+2).Seconds()
			if float64(j-i+1) > most {
				require.Failf(t, "too many", "%d starts, %d to %d, where %v are allowed", j-i+1, i, j, most)
			}
		}
	}
}

// Odd values are refused by New; here they only must not panic, spin or overflow.
func TestCaseH38OddValues(t *testing.T) {
	values := []int{math.MinInt, -1, 0, 1, 1e9, math.MaxInt}
	for _, limit := range values {
		for _, per := range values {
			for _, burst := range values {
				for _, guard := range []time.Duration{-1, 0, math.MaxInt64} {
					rate := Rate{Limit: limit, Per: time.Duration(per), Burst: burst, Smooth: true, Guard: guard}
					r := testRates(rate)
					now := instant(0)
					for range 5 {
						next := r.next(now)
						if next == never {
							break
						}
						now = start(r, now)
					}
					r.set(now, []Rate{{Limit: 1, Burst: 1}})
					r.set(now, []Rate{rate, rate})
					r.next(now)
					r.idleAt(now)
				}
			}
		}
	}
}

// What next names must be granted then, whatever the rounding.
func TestRateNextKeepsItsWord(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		rate := Rate{Limit: 1 + random.IntN(1000), Per: 1 + time.Duration(random.Int64N(int64(time.Hour))), Burst: 1 + random.IntN(5)}
		r := testRates(rate, Rate{Limit: 1 + random.IntN(7), Per: time.Duration(1 + random.Int64N(1e12)), Burst: 1})
		now := instant(random.Int64N(math.MaxInt64 / 4))
		for range 50 {
			now = start(r, now)
		}
		idle := r.idleAt(now)
		require.LessOrEqual(t, r.idleAt(idle), idle)
	}
}

func TestCaseH58NewLimitAtOnce(t *testing.T) {
	r := testRates(PerMinute(1)...)
	start(r, 0)
	require.Equal(t, 60*second, r.next(second))
	r.set(second, PerSecond(100))
	require.Equal(t, slices.Repeat([]instant{second}, 50), starts(r, second, 50))
	r.set(second, PerSecond(1))
	require.Equal(t, []instant{2 * second, 3 * second}, starts(r, second, 2), "the fifty still count")
}

func TestL8SetKeepsTheHistory(t *testing.T) {
	window, smooth, burst := Rate{Limit: 10}, Rate{Limit: 10, Smooth: true}, Rate{Limit: 10, Burst: 10}
	for _, c := range []struct {
		name     string
		from, to []Rate
		at       instant   // of the change, after ten starts as early as possible
		want     []instant // of the next starts
	}{
		{"window to longer", []Rate{window}, []Rate{{Limit: 10, Per: time.Minute}}, 950 * ms, []instant{60 * second}},
		{"window to smooth", []Rate{window}, []Rate{smooth}, 950 * ms, []instant{second, 1100 * ms}},
		{"smooth to window", []Rate{smooth}, []Rate{window}, 950 * ms, []instant{second, 1100 * ms}},
		{"smooth to smoother", []Rate{smooth}, []Rate{{Limit: 4, Smooth: true}}, 950 * ms, []instant{1600 * ms, 1850 * ms}},
		{"window to more", []Rate{window}, []Rate{{Limit: 11}}, 500 * ms, []instant{500 * ms, second}},
		{"window to burst", []Rate{window}, []Rate{burst}, 250 * ms, []instant{250 * ms, 250 * ms, 300 * ms}},
		{"burst to window", []Rate{burst}, []Rate{window}, 250 * ms, []instant{250 * ms, 250 * ms, 1250 * ms}},
		{"burst to larger", []Rate{burst}, []Rate{{Limit: 20, Burst: 20}}, 250 * ms, []instant{250 * ms, 250 * ms, 275 * ms}},
		{"burst to two", []Rate{burst}, []Rate{burst, {Limit: 1, Burst: 10}}, 50 * ms, []instant{550*ms + 500*ms}},
		{"to nothing", []Rate{window}, Unlimited(), 250 * ms, []instant{250 * ms, 250 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRates(c.from...)
			starts(r, 0, 10)
			r.set(c.at, c.to)
			require.Equal(t, c.to, r.rates())
			require.Equal(t, c.want, starts(r, c.at, len(c.want)))
		})
	}
}

func TestL8SetWhileStartsArePending(t *testing.T) {
	t.Run("to a bucket and back", func(t *testing.T) {
		r := testRates(Rate{Limit: 2})
		r.take(0, 0)
		r.set(0, []Rate{{Limit: 1, Burst: 2}})
		start(r, 0)
		require.Equal(t, second, r.next(0), "the pending one has paid")
		r.set(0, []Rate{{Limit: 2}})
		require.Equal(t, second, r.next(0))
		r.called(500 * ms)
		start(r, second)
		require.Equal(t, 1500*ms, r.next(second), "an unknown call counts too")
	})
	t.Run("from nothing", func(t *testing.T) {
		r := testRates()
		for range 5 {
			r.take(0, 0)
		}
		r.set(1, []Rate{{Limit: 1}, {Limit: 1, Burst: 3}})
		r.take(1, 0)
		for range 5 {
			r.giveBack(2, 0, uncounted)
			require.Greater(t, r.next(2), instant(2), "what a limit did not know it does not give back")
		}
		r.called(3)
		require.Equal(t, second+3, r.next(3))
		require.Equal(t, second+3, r.idleAt(3))
	})
	t.Run("lowered below them", func(t *testing.T) {
		r := testRates(Rate{Limit: 3})
		for range 3 {
			r.take(0, 0)
		}
		r.set(0, []Rate{{Limit: 1}})
		for i := range instant(3) {
			require.Equal(t, never, r.next(0))
			r.called(i)
		}
		require.Equal(t, second+2, r.next(2))
	})
}

func TestRateAnOldNowChangesNothing(t *testing.T) {
	r := testRates(Rate{Limit: 2}, Rate{Limit: 1, Burst: 2})
	start(r, second)
	r.take(500*ms, 0)
	r.called(400 * ms)
	require.Equal(t, 2*second, r.next(0))
	r.set(0, []Rate{{Limit: 2}, {Limit: 1, Burst: 1}})
	require.Equal(t, 2*second, r.next(second))
}

// With a timer that is always late, now and then by several gaps, a smooth rate
// still yields what it promises, and no gap is shorter than three fifths.
func TestRateSmoothLosesNothingToLateTimers(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	r := testRates(Rate{Limit: 200, Smooth: true})
	const seconds = 20
	var at []instant
	for now := instant(0); now < seconds*second; {
		due := max(now, r.next(now))
		lag := time.Duration(random.IntN(900_000))
		if random.IntN(200) == 0 {
			lag = 15 * time.Millisecond
		}
		now = due.add(lag)
		r.take(now, lag)
		r.called(now)
		at = append(at, now)
	}
	require.GreaterOrEqual(t, len(at), int(0.995*200*seconds))
	requireWindow(t, at, 200, time.Second)
	requireWindow(t, at, 1, 3*time.Millisecond)
	requireWindow(t, at, 40, 100*time.Millisecond)
}

func TestRateSmoothLag(t *testing.T) {
	for _, c := range []struct {
		name string
		now  instant
		lag  time.Duration
		next instant
	}{
		{"in time", 100 * ms, 0, 200 * ms},
		{"timer late", 103 * ms, 3 * time.Millisecond, 200 * ms},
		{"timer very late", 150 * ms, 50 * time.Millisecond, 210 * ms},
		{"timer hopelessly late", 600 * ms, 500 * time.Millisecond, 700 * ms},
		{"late without timer", 103 * ms, 0, 203 * ms},
		{"timer of another", 110 * ms, 3 * time.Millisecond, 210 * ms},
		{"long idle", 900 * ms, 3 * time.Millisecond, 1000 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRates(Rate{Limit: 10, Smooth: true})
			start(r, 0)
			r.take(c.now, c.lag)
			r.called(c.now)
			require.Equal(t, c.next, r.next(c.now))
		})
	}
}

func TestX4IdleAt(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		want instant // after one start at 0
	}{
		{Rate{Limit: 5, Guard: time.Millisecond}, 1001 * ms},
		{Rate{Limit: 5, Per: time.Minute, Smooth: true}, 60 * second},
		{Rate{Limit: 5, Burst: 3}, 200 * ms},
		{Rate{Limit: 1, Per: time.Hour, Burst: 3}, 3600 * second},
	} {
		t.Run(fmt.Sprintf("%+v", c.rate), func(t *testing.T) {
			r := testRates(c.rate)
			require.LessOrEqual(t, r.idleAt(0), instant(0))
			start(r, 0)
			require.Equal(t, c.want, r.idleAt(0))
			require.LessOrEqual(t, r.idleAt(c.want), c.want)
			require.Equal(t, c.rate.Burst == 0, r.exact())
		})
	}
}

// rateModel is the windows of a rateSet by brute force.
type rateModel struct {
	rates   []Rate
	called  []instant
	pending []pendingStart
}

// pendingStart is one that was taken, and whether windows have been in force since.
type pendingStart struct {
	at      instant
	claim   claim
	counted bool
}

func (m *rateModel) longest() (span time.Duration) {
	for _, r := range m.rates {
		span = max(span, r.Per+r.Guard)
	}
	return span
}

func (m *rateModel) forget(now instant) {
	m.called = slices.DeleteFunc(m.called, func(c instant) bool { return c.add(m.longest()) <= now })
}

func (m *rateModel) allows(at instant) bool {
	for _, r := range m.rates {
		n := 0
		for _, p := range m.pending {
			if p.counted {
				n++
			}
		}
		for _, c := range m.called {
			if c.add(r.Per+r.Guard) > at {
				n++
			}
		}
		if n >= r.Limit {
			return false
		}
	}
	return true
}

func (m *rateModel) next(now instant) instant {
	moments := []instant{now}
	for _, r := range m.rates {
		for _, c := range m.called {
			moments = append(moments, max(now, c.add(r.Per+r.Guard)))
		}
	}
	slices.Sort(moments)
	for _, at := range moments {
		if m.allows(at) {
			return at
		}
	}
	return never
}

func fuzzRates(a, b byte) []Rate {
	rates := []Rate{{Limit: 1 + int(a%7), Per: 100 * time.Millisecond, Guard: time.Duration(a/7%3) * time.Millisecond}}
	if b%3 > 0 {
		rates = append(rates, Rate{Limit: 1 + int(b%20), Per: 350 * time.Millisecond})
	}
	return rates
}

// FuzzRateWindows runs programs of two bytes an operation beside the model.
func FuzzRateWindows(f *testing.F) {
	f.Add(byte(2), byte(1), []byte{1, 0, 1, 0, 2, 0, 0, 50, 1, 0, 1, 0, 3, 0, 2, 0, 0, 100, 4, 9, 1, 0})
	f.Add(byte(0), byte(0), randomProgram(1))
	f.Add(byte(30), byte(17), randomProgram(2))
	f.Fuzz(func(t *testing.T, a, b byte, program []byte) {
		m := rateModel{rates: fuzzRates(a, b)}
		r := testRates(m.rates...)
		now := instant(0)
		for pc := 0; pc+1 < len(program); pc += 2 {
			arg := int(program[pc+1])
			switch program[pc] % 5 {
			case 0:
				now += instant(arg) * ms
			case 1:
				if r.next(now) <= now {
					m.forget(now)
					m.pending = append(m.pending, pendingStart{now, r.take(now, 0), len(m.rates) > 0})
				}
			case 2, 3:
				if len(m.pending) == 0 {
					continue
				}
				i := arg % len(m.pending)
				p := m.pending[i]
				m.forget(now)
				if program[pc]%5 == 2 {
					at := now - instant(arg%2)*ms // sometimes an old reading
					if r.calledLocked(at, p.claim); len(m.rates) > 0 {
						m.called = append(m.called, max(at, r.latest))
					}
				} else {
					r.giveBack(now, p.at, p.claim)
				}
				m.pending = slices.Delete(m.pending, i, i+1)
			case 4:
				m.forget(now)
				if m.rates = fuzzRates(byte(arg), program[pc]/5); arg%5 == 0 { // none: all that windows knew is gone
					m.rates, m.called = nil, nil
					for i := range m.pending {
						m.pending[i].counted = false
					}
				}
				m.forget(now)
				r.set(now, m.rates)
			}
			now = max(now, r.latest)
			require.Equal(t, m.next(now), max(now, r.next(now)), "op %d", pc/2)
		}
	})
}

// FuzzRateBucket checks that what was not given back keeps to the bucket, as if
// the rest had never been taken, and that a token is never further off than one.
func FuzzRateBucket(f *testing.F) {
	f.Add(byte(1), byte(100), []byte{1, 0, 0, 9, 1, 0, 1, 0, 2, 0, 1, 0})
	f.Add(byte(3), byte(7), randomProgram(3))
	f.Add(byte(10), byte(200), randomProgram(4))
	f.Fuzz(func(t *testing.T, burst, limit byte, program []byte) {
		program = program[:min(len(program), 1000)]
		rate := Rate{Limit: 1 + int(limit), Burst: 1 + int(burst%12)}
		r := testRates(rate)
		var kept []instant
		now := instant(0)
		for pc := 0; pc+1 < len(program); pc += 2 {
			arg := int(program[pc+1])
			switch program[pc] % 4 {
			case 0:
				now += instant(arg) * ms / 4
			case 1, 2:
				if r.next(now) <= now {
					r.take(now, 0)
					kept = append(kept, now)
				}
			case 3:
				if len(kept) > 0 {
					i := arg % len(kept)
					r.giveBack(now, kept[i], bucketed)
					kept = slices.Delete(kept, i, i+1)
				}
			}
			wait := max(0, r.next(now).sub(now))
			require.LessOrEqual(t, wait, time.Second/time.Duration(rate.Limit)+2, "never further than a token")
		}
		requireBucket(t, kept, rate.Burst, float64(rate.Limit))
	})
}

func randomProgram(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 77))
	program := make([]byte, 600)
	for i := range program {
		program[i] = byte(r.Uint32())
	}
	return program
}

func BenchmarkRateSet(b *testing.B) {
	for _, rates := range [][]Rate{
		{{Limit: 100}}, {{Limit: 1_000_000}}, {{Limit: 100, Smooth: true}}, {{Limit: 100, Burst: 10}},
		{{Limit: 10}, {Limit: 5000, Per: 24 * time.Hour}},
	} {
		b.Run(fmt.Sprintf("rates=%+v", rates), func(b *testing.B) {
			r := testRates(rates...)
			b.ReportAllocs()
			for now := instant(0); b.Loop(); {
				now = start(r, now)
			}
		})
	}
}

// TestL8GiveBackOfWhatNoBucketGave: a start from before there was a rate gives back
// nothing of it.
func TestL8GiveBackOfWhatNoBucketGave(t *testing.T) {
	sec := instant(time.Second)
	r := newRateSet(time.Now(), nil)
	require.Equal(t, uncounted, r.take(0, 0)) // no rates: nothing taken
	r.set(1, []Rate{{Limit: 1, Per: time.Hour, Burst: 1}})
	require.NotEqual(t, noClaim, r.take(2, 0))
	r.giveBack(3, 0, uncounted)
	require.Greater(t, r.next(4), sec, "a token was minted")
	r.set(5, []Rate{{Limit: 1, Per: time.Hour}})
	require.Greater(t, r.next(6), sec, "the window does not know of the start")
}
