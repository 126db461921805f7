package axredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeters(t *testing.T) {
	const ms = time.Millisecond
	zero := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name   string
		rate   rate
		starts []time.Duration // counted, whether they were allowed or not
		at     time.Duration
		next   time.Duration
	}{
		{"window, empty", rate{limit: 2, per: 100 * ms}, nil, 0, 0},
		{"window, room", rate{limit: 2, per: 100 * ms}, []time.Duration{0}, 10 * ms, 10 * ms},
		{"window, full", rate{limit: 2, per: 100 * ms}, []time.Duration{0, 30 * ms}, 40 * ms, 100 * ms},
		{"window, the oldest has left", rate{limit: 2, per: 100 * ms}, []time.Duration{0, 30 * ms}, 100 * ms, 100 * ms},
		{"window, more than allowed", rate{limit: 2, per: 100 * ms}, []time.Duration{0, 30 * ms, 40 * ms}, 50 * ms, 130 * ms},
		{"bucket, empty debt", rate{limit: 10, per: time.Second, burst: 2}, nil, 0, 0},
		{"bucket, room", rate{limit: 10, per: time.Second, burst: 2}, []time.Duration{0}, 0, 0},
		{"bucket, spent", rate{limit: 10, per: time.Second, burst: 2}, []time.Duration{0, 0}, 0, 100 * ms},
		{"bucket, refilled in part", rate{limit: 10, per: time.Second, burst: 2}, []time.Duration{0, 0}, 40 * ms, 100 * ms},
		{"bucket, refilled", rate{limit: 10, per: time.Second, burst: 2}, []time.Duration{0, 0}, time.Second, time.Second},
		{"bucket, more than allowed", rate{limit: 10, per: time.Second, burst: 2}, []time.Duration{0, 0, 0, 0}, 0, 100 * ms},
		{"bucket, clock set back", rate{limit: 10, per: time.Second, burst: 1}, []time.Duration{time.Hour}, 0, 100 * ms},
	} {
		m := newMeter(c.rate)
		for _, s := range c.starts {
			m.took(zero.Add(s))
		}
		require.Equal(t, c.next, m.next(zero.Add(c.at)).Sub(zero), c.name)
	}
}

func TestEarlyNeverMakesAJitteredWaitLonger(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 21 * time.Millisecond, time.Second, time.Hour} {
		if d > 20*time.Millisecond {
			require.LessOrEqual(t, early(d)+early(d)/10, d)
		}
		require.GreaterOrEqual(t, early(d), time.Millisecond)
	}
}

func TestDistanceIsBounded(t *testing.T) {
	now := time.Now()
	require.Equal(t, "-4000000000000000", distance(time.Time{}, now))
	require.Equal(t, "4000000000000000", distance(now.Add(1<<62).Add(1<<62), now))
	require.Equal(t, "-1500", distance(now.Add(-1500*time.Microsecond), now))
	require.Equal(t, "3600000000000000", distance(now.Add(1000*1000*time.Hour), now), "strict priority is told exactly")
}

func TestMargin(t *testing.T) {
	m := margin{50 * time.Millisecond, time.Millisecond}
	require.Equal(t, 50*time.Millisecond, m.of(time.Minute))
	require.Equal(t, 5*time.Millisecond, m.of(100*time.Millisecond))
	require.Equal(t, 2*time.Millisecond, m.of(time.Millisecond))
	require.Equal(t, m.most, margin{most: m.most}.of(time.Millisecond))
	for _, m := range []margin{{most: 2 * time.Second}, {2 * time.Second, 3 * time.Second}} {
		require.Equal(t, time.Second, m.of(time.Minute), "the script counts on it")
	}
}
