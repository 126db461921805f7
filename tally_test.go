package ax

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF6WindowSlides(t *testing.T) {
	b := testBreaker(func(p *Breaker) { p.Window, p.MinCalls, p.FailureRate = 20, 20, 0.9 })
	for i := range instant(100) {
		call(b, i*sec, i%2 == 0)
		failures, calls := b.counts(i * sec)
		require.Equal(t, min(int(i)+1, 20), calls)
		require.Equal(t, (calls+1-int(i)%2*(calls%2))/2, failures, "after %d", i)
	}
	failures, calls := b.counts(150 * sec)
	require.Equal(t, [2]int{5, 10}, [2]int{failures, calls}, "those from 90 s on are at most a minute old")
}

// TestTallyAgainstSlice compares with a slice of all outcomes, under waits that
// let the window fill, empty and grow while it is neither.
func TestTallyAgainstSlice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{1, 2, 7, 8, 9, 40, 1000} {
		w := tally{size: size, maxAge: 10 * time.Second}
		var all []tallied
		now := instant(0)
		for range 3000 {
			now += instant(rnd.IntN(2)*rnd.IntN(2)*rnd.IntN(1500)) * ms
			failed := rnd.IntN(3) == 0
			w.add(now, failed)
			all = append(all, tallied{now, failed})
			now += instant(rnd.IntN(2)) * ms
			var failures, calls int
			for _, o := range all[max(0, len(all)-size):] {
				if now-o.at <= 10*sec {
					calls++
					if o.failed {
						failures++
					}
				}
			}
			gotFailures, gotCalls := w.counts(now)
			require.Equal(t, [2]int{failures, calls}, [2]int{gotFailures, gotCalls}, "size %d at %v", size, now)
		}
		require.LessOrEqual(t, len(w.ring), size)
	}
}
