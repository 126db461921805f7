package ax

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF5Budget(t *testing.T) {
	var r retryBudget
	require.True(t, r.idle(0))
	require.True(t, r.allow(0, 0.2))
	require.True(t, r.idle(0), "asking costs nothing")
	for range 3 {
		require.True(t, r.allow(0, 0.2), "three are always allowed")
		r.retried(0)
	}
	require.False(t, r.allow(0, 0.2))
	for range 19 {
		r.first(sec)
	}
	require.False(t, r.allow(sec, 0.2), "a fourth of 19")
	r.first(sec)
	require.True(t, r.allow(sec, 0.2), "a fourth of 20")
	r.retried(sec)
	require.False(t, r.allow(10*sec-1, 0.2), "the first three still count")
	require.True(t, r.allow(10*sec, 0.2), "only the fourth does")
	require.False(t, r.idle(11*sec-1))
	require.True(t, r.idle(11*sec+100*ms))
}

func TestF5RatiosAreExact(t *testing.T) {
	var r retryBudget
	for range 100 {
		r.first(0)
	}
	for range 29 {
		require.True(t, r.allow(0, 0.29))
		r.retried(0)
	}
	require.False(t, r.allow(0, 0.29))
}

// An outage of 10 s with 100 first attempts, each of which would be retried twice.
func TestCaseH42Budget(t *testing.T) {
	var r retryBudget
	retries := 0
	for i := range instant(100) {
		r.first(i * 100 * ms)
		for range 2 {
			if r.allow(i*100*ms, 0.2) {
				r.retried(i * 100 * ms)
				retries++
			}
		}
	}
	require.Equal(t, 20, retries)
	require.False(t, r.allow(99*100*ms, 0.2))
	require.True(t, r.allow(20*sec+100*ms, 0.2), "after the recovery")
}

func FuzzRetryBudget(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 1, 1, 50, 1, 99, 1, 200, 1, 255})
	f.Fuzz(playBudget)
}

func TestF5AgainstExactCounting(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		script := make([]byte, 200)
		for i := range script {
			script[i] = byte(rnd.Uint32()) >> rnd.IntN(6)
		}
		playBudget(t, script)
	}
}

// Half-old buckets count against the retry: the first attempts at 50 ms are out
// of the window at 10.06 s, though their bucket is not.
func TestF5RoundsAgainstTheRetry(t *testing.T) {
	var r retryBudget
	for range 100 {
		r.first(50 * ms)
	}
	for range 3 {
		r.retried(sec)
	}
	require.True(t, r.allow(9990*ms, 0.2))
	require.False(t, r.allow(10060*ms, 0.2))
}

// playBudget compares with exact counting, which may be the more generous one,
// but by no more than one bucket of time. It reads from each byte what happens
// and how long after the last.
func playBudget(t *testing.T, script []byte) {
	var r retryBudget
	var firsts, retries []instant
	within := func(at []instant, from, to instant) (n int) {
		for _, a := range at {
			if a > from && a <= to {
				n++
			}
		}
		return n
	}
	now := instant(0)
	for _, c := range script {
		now += instant(c/4) * 37 * ms
		if c%4 < 2 {
			firsts = append(firsts, now)
			r.first(now)
			continue
		}
		const ratio = 0.25
		exact := func(from, fromFirsts instant) bool {
			return within(retries, from, now)+1 <= max(3, within(firsts, fromFirsts, now)/4)
		}
		allowed := r.allow(now, ratio)
		if allowed {
			require.True(t, exact(now-10*sec, now-10*sec), "more than the rule allows")
			retries = append(retries, now)
			r.retried(now)
		} else {
			require.False(t, exact(now-10*sec-100*ms, now-10*sec+100*ms), "much less than the rule allows")
		}
		require.False(t, allowed && r.idle(now))
	}
	require.True(t, r.idle(now.add(10*time.Second+100*time.Millisecond)))
}

// idle reports whether nothing counts any more.
func (r *retryBudget) idle(now instant) bool {
	return (r.retries.len() == 0 || r.retries.newest(0).add(budgetSpan) <= now) && r.firstsAt(bucketOf(now)) == 0
}
