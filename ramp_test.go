package ax

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF6Ramp(t *testing.T) {
	r := ramp{from: 10 * sec, over: 3 * time.Second, low: 1}
	for _, c := range []struct {
		at          instant
		full, limit int
		rise        instant
	}{
		{9 * sec, 4, 1, 11 * sec},
		{10 * sec, 4, 1, 11 * sec},
		{11*sec - 1, 4, 1, 11 * sec},
		{11 * sec, 4, 2, 12 * sec},
		{12*sec + 1, 4, 3, 13 * sec},
		{13*sec - 1, 4, 3, 13 * sec},
		{13 * sec, 4, 4, never},
		{99 * sec, 4, 4, never},
		{10 * sec, 1, 1, never},
		{10 * sec, 0, 0, never},
		{10 * sec, NoLimit, 1, 10*sec + 1},
		{10*sec + 1, NoLimit, 1 + (NoLimit-1)/3_000_000_000, 10*sec + 2},
		{13 * sec, NoLimit, NoLimit, never},
	} {
		require.Equal(t, c.limit, r.limit(c.at, c.full), "limit %+v", c)
		require.Equal(t, c.rise, r.nextRise(c.at, c.full), "rise %+v", c)
	}
	require.Equal(t, never, r.reaches(5, 4))
	require.Equal(t, 10*sec, r.reaches(1, 4))
	require.Equal(t, 10*sec, ramp{from: 10 * sec, over: time.Second, low: 8}.reaches(2, 4), "full below low")
}

func FuzzRamp(f *testing.F) {
	f.Add(int64(1), 1, 10, int64(3e9), int64(1e9))
	f.Add(int64(0), 3, math.MaxInt, int64(math.MaxInt64), int64(1))
	f.Fuzz(func(t *testing.T, from int64, low, full int, over, at int64) {
		if from < 0 || low < 1 || full < 0 || over < 1 || at < 0 {
			return
		}
		r := ramp{instant(from), time.Duration(over), low}
		now := r.from.add(time.Duration(at))
		if r.end() == never {
			return // saturated: it has no end to be exact about
		}
		limit := r.limit(now, full)
		require.True(t, limit <= full && limit >= min(low, full), "limit %d", limit)
		rise := r.nextRise(now, full)
		if limit == full {
			require.Equal(t, never, rise)
			return
		}
		require.True(t, rise > now && rise <= r.end(), "rise %d", rise)
		require.Greater(t, r.limit(rise, full), limit)
		require.Equal(t, limit, r.limit(rise-1, full), "not a moment earlier")
	})
}

func TestF6RateRamp(t *testing.T) {
	r := ramp{from: 10 * sec, over: 4 * time.Second, low: 2}
	const gap = 10 * time.Millisecond // from 2/s to 100/s: by t, 2t + 12.25t²
	require.Equal(t, 10*sec, r.start(0, gap))
	require.Equal(t, 10*sec+215514690, r.start(1, gap))
	require.Equal(t, 10*sec, r.start(99, 0), "no rate")
	require.Equal(t, 12*sec, r.start(53, gap))
	require.Equal(t, 14*sec, r.start(204, gap))
	require.Equal(t, 14*sec, r.start(5000, gap), "never after the end")
	require.Equal(t, 14*sec, r.start(3, time.Hour), "never after the end")
	for n, last := 1, instant(0); n < 210; n++ {
		at := r.start(n, gap)
		require.GreaterOrEqual(t, at, last)
		last = at
	}
}

func TestFastestGap(t *testing.T) {
	require.Zero(t, fastestGap(nil))
	require.Equal(t, 100*time.Millisecond, fastestGap([]Rate{{Limit: 5000, Per: time.Hour}, {Limit: 10, Per: time.Second}}))
	require.Equal(t, 333333334*time.Nanosecond, fastestGap([]Rate{{Limit: 3, Per: time.Second}}))
}

// leave starts n attempts as early as s allows, none of which ends, and returns
// when, counted from the end of the pause.
func leave(s spread, from instant, n, full int) (at []time.Duration) {
	now := instant(0)
	for active := range n {
		now = s.next(now, active, full)
		if now == never {
			return at
		}
		s.took(now)
		at = append(at, now.sub(from))
	}
	return at
}

func TestF4SpreadWithoutRate(t *testing.T) {
	s := newSpread(2*sec, nil, 5)
	const m = time.Millisecond
	require.Equal(t, []time.Duration{0, 250 * m, 500 * m, 750 * m, 1000 * m}, leave(s, 2*sec, 9, 5), "a ramp from 1; the rest need a slot")
	require.Equal(t, 1, s.limit(2*sec, 5))
	require.Equal(t, 3, s.limit(2*sec+500*ms, 5))
	require.Equal(t, 5, s.limit(3*sec, 5))
	require.False(t, s.done(3*sec-1))
	require.True(t, s.done(3*sec))

	// Attempts that end at once free their slots: only the spacing holds.
	now := 2 * sec
	for i := range 5 {
		require.Equal(t, 2*sec+instant(i)*200*ms, s.next(now, 0, 5))
		now = s.next(now, 0, 5)
		s.took(now)
	}
	require.Equal(t, 3*sec, s.next(now, 0, 5))
	s.took(3 * sec)
	require.Equal(t, 3*sec, s.next(3*sec, 4, 5), "no spacing after the second")
}

func TestF4SpreadWithRate(t *testing.T) {
	s := newSpread(2*sec, []Rate{{Limit: 4, Per: time.Second}, {Limit: 1000, Per: time.Hour}}, 100)
	const m = time.Millisecond
	require.Equal(t, []time.Duration{0, 250 * m, 500 * m, 750 * m, 1000 * m, 1000 * m}, leave(s, 2*sec, 6, 100), "then the rate itself")
	require.Equal(t, 100, s.limit(2*sec, 100), "no ramp")
	slow := newSpread(2*sec, PerMinute(1), 100)
	require.Equal(t, []time.Duration{0, 1000 * m}, leave(slow, 2*sec, 2, 100))
}

func TestF4SpreadWithoutAnyLimit(t *testing.T) {
	at := leave(newSpread(0, nil, NoLimit), 0, 1100, NoLimit)
	for i := 1; i <= 1000; i++ {
		require.Equal(t, time.Duration(i)*time.Millisecond, at[i])
	}
	require.Equal(t, time.Second, at[1099])
}

// Of 21 starts after the pause, never more than half fall within 10 ms.
func TestCaseH14Spread(t *testing.T) {
	s := newSpread(2*sec, nil, 20)
	now := 2 * sec
	var at []instant
	for range 21 {
		now = s.next(now, 0, 20)
		s.took(now)
		at = append(at, now)
	}
	for i := range at[:20] {
		require.Equal(t, 50*ms, at[i+1]-at[i])
	}
}

// nextRise is when limit next grows, never if it does not any more.
func (r ramp) nextRise(now instant, full int) instant {
	at := r.limit(now, full)
	if at >= full {
		return never
	}
	return r.reaches(at+1, full)
}
