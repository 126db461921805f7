package ax

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// oFeed gives outcomes to one lane's memory, one after the other.
type oFeed struct {
	observed
	service histogram
	now     instant
}

// attempt is one that began gap after the one before and took took.
func (f *oFeed) attempt(gap, took time.Duration, x sample) {
	f.now = f.now.add(gap)
	x.mark, x.took = f.started(f.now, max(1, x.mark.inFlight)), took
	f.observed.attempt(f.now.add(took), &f.service, x)
	f.service.record(took)
}

// outcomes feeds one attempt a second: "S" is an answer, "F" a failure, "f" and "s"
// those of a retry, "L" a 429, "T" a timeout.
func (f *oFeed) outcomes(pattern string) {
	for _, c := range pattern {
		x := sample{kind: outcomeSuccess, status: 200, retry: c == 'f' || c == 's'}
		switch c {
		case 'F', 'f':
			x.kind, x.status = outcomeFailure, 500
		case 'T':
			x.kind, x.status, x.timedOut = outcomeFailure, 0, true
		case 'L':
			x.status = 429
		}
		f.attempt(time.Second, 0, x)
	}
}

func TestObservedIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(observed{}), uintptr(120), "in every lane")
	require.LessOrEqual(t, levelMost*unsafe.Sizeof(level{}), uintptr(1640), "at 2048 in flight")
	require.LessOrEqual(t, unsafe.Sizeof(failureLog{}), uintptr(176), "where something failed")
	require.LessOrEqual(t, unsafe.Sizeof(quotaWatch{}), uintptr(400), "where a 429 came")
	require.LessOrEqual(t, unsafe.Sizeof(*repeatTable{}.slots), uintptr(32<<10), "once")
}

func TestObservedAllocatesOnce(t *testing.T) {
	var f oFeed
	f.outcomes("SFSLsf")
	f.attempt(0, time.Second, sample{kind: outcomeSuccess, mark: startMark{inFlight: 5000}})
	f.shareable(1, true)
	kinds := []sample{
		{kind: outcomeSuccess, status: 200}, {kind: outcomeFailure}, {kind: outcomeSuccess, status: 429}, {kind: outcomeSuccess, retry: true},
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		x := kinds[n%len(kinds)]
		x.mark.inFlight = 1 + n%3000
		f.attempt(time.Millisecond, time.Second, x)
		f.shareable(time.Second, n%2 == 0)
		f.breakerMoved(BreakerState(n % 4))
		n++
	}))
}

func TestObservedNeedsNothingWithoutFaults(t *testing.T) {
	var f oFeed
	f.outcomes("SSSSSSSSSS")
	require.Nil(t, f.answers)
	require.Nil(t, f.faults)
	require.Nil(t, f.quota)
	require.Equal(t, 1, cap(f.levels))
}

// A lane of three whose attempts end and begin at one instant is never less full.
func TestObservedSameInstant(t *testing.T) {
	var o observed
	for i := range 3 {
		require.Equal(t, 1+i, o.started(5, 1+i).inFlight)
	}
	for _, running := range []int{3, 2} {
		o.ended(9, running)
	}
	require.Equal(t, 3, o.started(9, 2).inFlight)
	require.Equal(t, 3, o.started(9, 3).inFlight)
	o.ended(10, 3)
	require.Equal(t, 3, o.started(11, 3).inFlight)
	o.ended(12, 3)
	require.Equal(t, 2, o.started(13, 2).inFlight)
}

func TestLevelIndex(t *testing.T) {
	last := -1
	for n := range 5000 {
		i := levelIndex(n)
		require.GreaterOrEqual(t, i, last)
		require.LessOrEqual(t, i, last+1, "no level is left out")
		require.Less(t, i, levelMost)
		last = i
	}
	for n, want := range map[int]int{
		math.MinInt: 0, 0: 0, 1: 0, 2: 1, 8: 7, 9: 8, 10: 9, 11: 9, 12: 10, 16: 12, 19: 12, 20: 13, 32: 16, 2047: 39, 2048: 40, math.MaxInt: levelMost - 1,
	} {
		require.Equal(t, want, levelIndex(n), "%d", n)
	}
}

func TestLevelMeans(t *testing.T) {
	var o observed
	for i := range 400 {
		o.level(4, time.Duration(100+100*(i%2))*time.Millisecond)
	}
	l := o.levels[3]
	require.Equal(t, uint32(400), l.n)
	require.InDelta(t, 4, l.inFlight, 1e-6)
	require.InDelta(t, 0.15, l.took, 1e-4)
	require.InDelta(t, 0.0025, l.variance, 1e-4)
	require.True(t, l.steady())
	for range 4 * levelMemory {
		o.level(4, time.Second)
	}
	require.Equal(t, uint32(levelMemory), o.levels[3].n)
	require.InDelta(t, 1, o.levels[3].took, 0.02, "older answers fade")
}

// The same share of slow answers is steady when they are scattered, and not when
// they come together.
func TestLevelSteady(t *testing.T) {
	slow := func(bad func(i int) bool) bool {
		var o observed
		for i := range levelMemory {
			took := 100 * time.Millisecond
			if bad(i) {
				took = 500 * time.Millisecond
			}
			o.level(1, took)
		}
		return o.levels[0].steady()
	}
	require.True(t, slow(func(i int) bool { return i*37%101 < 25 }))
	require.False(t, slow(func(i int) bool { return i%200 < 50 }))
}

// aLevels are levels of deterministic service: in flight → milliseconds.
func aLevels(pairs ...[2]float32) []level {
	var levels []level
	for _, p := range pairs {
		levels = append(levels, level{n: 100, inFlight: p[0], took: p[1] / 1000})
	}
	return levels
}

func TestFindKnee(t *testing.T) {
	for _, c := range []struct {
		name   string
		levels []level
		want   float64 // 0 = none
	}{
		{"nothing", nil, 0},
		{"one level", aLevels([2]float32{4, 100}), 0},
		{"flat", aLevels([2]float32{1, 100}, [2]float32{8, 100}, [2]float32{64, 105}), 0},
		{"hard", aLevels([2]float32{1, 100}, [2]float32{4, 100}, [2]float32{8, 200}, [2]float32{16, 400}), 4},
		{"between levels", aLevels([2]float32{1, 100}, [2]float32{4, 100}, [2]float32{8, 133}, [2]float32{16, 267}), 6},
		{"serial", aLevels([2]float32{1, 100}, [2]float32{2, 200}, [2]float32{4, 400}), 0},
		{"always full", aLevels([2]float32{8, 200}, [2]float32{16, 400}), 0},
		{"slow for other reasons", aLevels([2]float32{1, 100}, [2]float32{8, 100}, [2]float32{16, 500}, [2]float32{32, 500}), 0},
		{"hardly slower", aLevels([2]float32{1, 100}, [2]float32{8, 100}, [2]float32{11, 138}), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, ok := findKnee(c.levels)
			require.Equal(t, c.want > 0, ok)
			require.InDelta(t, c.want, k.inFlight, 0.05)
		})
	}
}

func TestFindKneeNeedsCertainty(t *testing.T) {
	levels := aLevels([2]float32{1, 100}, [2]float32{4, 100}, [2]float32{8, 200})
	_, ok := findKnee(levels)
	require.True(t, ok)
	few := slices.Clone(levels)
	few[2].n = adviceLevel - 1
	_, ok = findKnee(few)
	require.False(t, ok, "too few answers")
	wide := slices.Clone(levels)
	for i := range wide {
		wide[i].variance = 0.09 // a standard error of 30 ms: 100 ms is not above three of the difference
	}
	_, ok = findKnee(wide)
	require.False(t, ok, "too uncertain")
}

func TestFailureLog(t *testing.T) {
	for _, c := range []struct {
		pattern                    string
		failures, retries, outages uint32
		length                     time.Duration
	}{
		{pattern: "SSSSSSSSSS"},
		{pattern: "SSSFFFFSSS", failures: 4},                                               // four are none
		{pattern: "FFFFFFFFSSS", failures: 8},                                              // never answered before
		{pattern: oTimes("S", 50) + "FFFFFFSSS", outages: 1, length: 6 * time.Second},      // first failure to first answer
		{pattern: oTimes("S", 50) + "FFFFFFSSFSSS", outages: 1, length: 9 * time.Second},   // two answers do not end it
		{pattern: oTimes("S", 50) + "FFFFFF", failures: 0},                                 // not over
		{pattern: oTimes("S", 50) + "FfFfFfFfFfSSS", outages: 1, length: 10 * time.Second}, // its retries say nothing
		{pattern: oTimes("S", 50) + "FfFfSFfS", failures: 6, retries: 3},                   // these do
		{pattern: oTimes("S", 50) + "FffffffS", failures: 7, retries: 6},                   // one task is no outage
		{pattern: oTimes("S", 50) + "FFFFLFFFFS", failures: 8},                             // a 429 is an answer
		{pattern: oTimes("SF", 50) + "FFFFFFSSS", failures: 56},                            // half fails anyway
		{pattern: oTimes("SF", 50) + oTimes("F", 20) + "SSS", failures: 49, outages: 1, length: 21 * time.Second},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			var f oFeed
			f.outcomes(c.pattern)
			if f.faults == nil {
				require.Zero(t, c.failures)
				return
			}
			require.Equal(t, c.failures, f.faults.failures, "failures in normal times")
			require.Equal(t, c.retries, f.faults.retries)
			require.Equal(t, c.outages, f.faults.outages.n)
			require.Equal(t, c.length, f.faults.outages.median())
		})
	}
}

func oTimes(s string, n int) string { return string(slices.Repeat([]byte(s), n)) }

func TestFailureLogTimeoutsAndHelp(t *testing.T) {
	var f oFeed
	f.outcomes(oTimes("S", 50) + "TSFsTTSLs")
	require.Equal(t, uint32(3), f.faults.timeouts)
	require.Equal(t, uint32(4), f.faults.failures)
	require.Equal(t, uint32(2), f.faults.helped)
	require.Equal(t, uint32(2), f.faults.retries)
}

func TestFailureLogFades(t *testing.T) {
	var f oFeed
	f.outcomes(oTimes("FSSSSSSSSS", 30_000))
	require.Less(t, f.faults.answers+f.faults.failures, uint32(faultsMemory))
	require.InEpsilon(t, 0.1, f.faults.share(), 0.01)
}

func TestFailureLogFalseAlarms(t *testing.T) {
	var f oFeed
	f.outcomes(oTimes("S", 50) + "FF")
	f.breakerMoved(BreakerOpen)
	f.breakerMoved(BreakerHalfOpen)
	f.outcomes("S")
	f.breakerMoved(BreakerRamping)
	f.breakerMoved(BreakerClosed)
	require.Equal(t, uint32(1), f.faults.falseAlarms)
	require.Zero(t, f.faults.outages.n)
}

// Behind an open breaker only probes see an outage, and they are retries.
func TestFailureLogProbes(t *testing.T) {
	var f oFeed
	f.outcomes(oTimes("S", 50) + "FFF")
	f.breakerMoved(BreakerOpen)
	for range 5 {
		f.breakerMoved(BreakerHalfOpen)
		f.outcomes("f")
		f.breakerMoved(BreakerOpen)
	}
	f.breakerMoved(BreakerHalfOpen)
	f.outcomes("S")
	f.breakerMoved(BreakerRamping)
	f.outcomes("SS")
	o := f.faults.outages
	require.Equal(t, []uint32{1, 1, 5, 8}, []uint32{o.n, o.opened, o.reopened, o.failures})
}

func TestQuotaSpan(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(i int) (taken, refused int)
		quota  int // 0 = none
	}{
		{"constant", func(int) (int, int) { return 20, 10 }, 20},
		{"a little off", func(i int) (int, int) { return 19 + i%3, 10 }, 20},
		{"as load has it", func(i int) (int, int) { return 10 + 3*i%20, 2 }, 0},
		{"too small", func(int) (int, int) { return 4, 10 }, 0},
		{"nothing", func(int) (int, int) { return 0, 10 }, 0},
		{"more without", func(i int) (int, int) { return 20 + 10*(i%2), 10 * (1 - i%2) }, 0},
		{"less without", func(i int) (int, int) { return 20 - 10*(i%2), 10 * (1 - i%2) }, 20},
		{"too few windows", func(i int) (int, int) { return 20, 10 * min(1, i/22) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q quotaWatch
			for i := range 30 {
				taken, refused := c.second(i)
				for n := range taken + refused {
					at := instant(i)*instant(time.Second) + instant(n)*instant(time.Millisecond)
					q.started(at)
					q.ended(at, n >= taken)
				}
			}
			quota, ok := q.second.quota()
			require.Equal(t, c.quota > 0, ok, "%+v", q.second)
			if ok {
				require.Equal(t, c.quota, quota)
			}
		})
	}
}

func TestQuotaWatchLateOutcomes(t *testing.T) {
	var q quotaWatch
	for i := range 20 {
		at := instant(i) * instant(time.Second)
		q.started(at)
		q.ended(at-instant(time.Second), i%2 == 0)
		q.ended(at-instant(time.Minute), true) // far too late for a second's window
	}
	require.Equal(t, uint32(9), q.second.limited)
	require.Equal(t, uint32(9), q.second.clean)
}

func TestQuotaWatchRuns(t *testing.T) {
	for pattern, want := range map[string]bool{"TTTTTTTTTTLLLLLLLLLL": true, "TTLTLLTLTTLLTLTL": false, "TLTLTLTL": false} {
		var q quotaWatch
		for _, c := range oTimes(pattern, 50) {
			q.ended(0, c == 'L')
		}
		require.Equal(t, want, q.inRuns(), pattern)
	}
}

func TestRepeatTable(t *testing.T) {
	var r repeatTable
	l := &lane{name: "one"}
	key := func(name string) *flightKey { return &flightKey{dedupeKey{family: name}, l} }
	_, seen := r.saw(key("a"), 10)
	require.False(t, seen)
	gap, seen := r.saw(key("a"), 40)
	require.True(t, seen)
	require.Equal(t, time.Duration(30), gap)
	_, seen = r.saw(&flightKey{dedupeKey{family: "a"}, &lane{name: "two"}}, 40)
	require.False(t, seen, "lanes do not share")
	_, seen = r.saw(&flightKey{dedupeKey{family: "a", owner: "x"}, l}, 40)
	require.False(t, seen, "owners do not share")
	for i := range 100_000 {
		_, seen = r.saw(key(fmt.Sprint(i)), 50)
		require.False(t, seen, "different keys are no repeats")
	}
}

func TestRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 7: 7, 999: 1000, 160 * time.Millisecond: 160 * time.Millisecond, 161 * time.Millisecond: 165 * time.Millisecond,
		463 * time.Millisecond: 470 * time.Millisecond, 1001 * time.Millisecond: 1050 * time.Millisecond,
	} {
		require.Equal(t, want, roundUp(d), "%v", d)
	}
	for d := time.Duration(1); d < 100*time.Hour; d += d/7 + 1 {
		require.GreaterOrEqual(t, roundUp(d), d)
		require.LessOrEqual(t, float64(roundUp(d)), 1.05*float64(d)+1)
	}
}

func TestTail(t *testing.T) {
	require.InDelta(t, 0.5, tail(1, 1, 0.5), 1e-12)
	require.InDelta(t, 0.03125, tail(5, 5, 0.5), 1e-12)
	require.InDelta(t, 0.012795198, tail(10, 4, 0.1), 1e-6)
	require.InDelta(t, 1, tail(10, 0, 0.3), 1e-12)
	require.Zero(t, tail(10, 11, 0.3))
}

func BenchmarkObserved(b *testing.B) {
	var o observed
	var service histogram
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		mark := o.started(instant(i), 1+i&7)
		o.attempt(instant(i), &service, sample{kind: outcomeSuccess, status: 200, took: time.Duration(i&1023) * time.Millisecond, mark: mark})
	}
}
