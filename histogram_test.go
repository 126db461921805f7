package ax

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// within is the stated bound of a quantile's error, and a rounding.
func within(t *testing.T, exact, got time.Duration) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(float64(got-exact)), float64(exact)/33+1, "%v for %v", got, exact)
}

func TestHistogramEmpty(t *testing.T) {
	var h histogram
	require.Equal(t, Quantiles{}, h.quantiles())
	require.Zero(t, h.quantile(0.5))
	require.Zero(t, h.mean())
	require.Zero(t, h.count())
}

func TestHistogramBuckets(t *testing.T) {
	last := -1
	for i := range histogramBuckets {
		v := histogramValue(i)
		require.Equal(t, i, histogramIndex(v), "%v", v)
		require.Greater(t, int(v), last)
		last = int(v)
	}
	for _, c := range []struct {
		d     time.Duration
		index int
	}{
		{math.MinInt64, 0}, {-1, 0}, {0, 0}, {4095, 0}, {4096, 1}, {4096 + 255, 1}, {4096 + 256, 2}, {8191, 16}, {8192, 17},
		{1<<43 - 1, histogramBuckets - 1}, {1 << 43, histogramBuckets - 1}, {math.MaxInt64, histogramBuckets - 1},
	} {
		require.Equal(t, c.index, histogramIndex(c.d), "%v", c.d)
	}
}

func TestHistogramOneDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 5 * time.Microsecond, 100 * time.Millisecond, 7 * time.Second, time.Hour} {
		var h histogram
		for range 5000 {
			h.record(d)
		}
		q := h.quantiles()
		for _, got := range []time.Duration{q.P50, q.P95, q.P99, h.quantile(0), h.quantile(1), h.mean()} {
			within(t, d, got)
		}
		require.Equal(t, uint64(5000), h.count())
	}
}

func TestHistogramAgainstExactQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for name, draw := range map[string]func() float64{
		"uniform":     func() float64 { return float64(time.Millisecond) * (1 + 99*r.Float64()) },
		"exponential": func() float64 { return float64(20*time.Microsecond) + float64(time.Second)*r.ExpFloat64() },
		"log-normal":  func() float64 { return float64(50*time.Millisecond) * math.Exp(1.5*r.NormFloat64()) },
	} {
		t.Run(name, func(t *testing.T) {
			var h histogram
			exact := make([]time.Duration, histogramFull-1)
			for i := range exact {
				exact[i] = time.Duration(draw())
				h.record(exact[i])
			}
			slices.Sort(exact)
			for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
				rank := max(1, int(math.Ceil(q*float64(len(exact)))))
				within(t, exact[rank-1], h.quantile(q))
			}
			q := h.quantiles()
			require.Equal(t, Quantiles{h.quantile(0.5), h.quantile(0.95), h.quantile(0.99)}, q)
			var sum time.Duration
			for _, d := range exact {
				sum += d
			}
			within(t, sum/time.Duration(len(exact)), h.mean())
		})
	}
}

func TestHistogramHalvingKeepsTheShape(t *testing.T) {
	var h histogram
	r := rand.New(rand.NewPCG(13, 14))
	for range 50_000 {
		h.record(time.Millisecond + time.Duration(r.Int64N(int64(99*time.Millisecond))))
	}
	require.InEpsilon(t, 50.5e6, float64(h.quantile(0.5)), 0.1)
	require.InEpsilon(t, 95e6, float64(h.quantile(0.95)), 0.05)
	require.InEpsilon(t, 99e6, float64(h.quantile(0.99)), 0.05)
	require.Equal(t, uint64(50_000), h.count())
}

func TestHistogramRecentMattersMore(t *testing.T) {
	var h histogram
	for range 1_000_000 {
		h.record(10 * time.Millisecond)
	}
	for range 2 * histogramFull {
		h.record(time.Second)
	}
	within(t, time.Second, h.quantile(0.5))
	for range 20 * histogramFull {
		h.record(time.Second)
	}
	within(t, time.Second, h.quantile(0))
}

func TestHistogramIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(histogram{}), uintptr(32))
	require.LessOrEqual(t, unsafe.Sizeof(histogramCounts{}), uintptr(1024))
	var h histogram
	h.record(1)
	require.Zero(t, testing.AllocsPerRun(3*histogramFull, func() { h.record(time.Second) }))
}

func TestHistogramConcurrently(t *testing.T) {
	const goroutines, each = 8, 20_000
	var h histogram
	var wg sync.WaitGroup
	for id := range goroutines {
		wg.Go(func() {
			for i := range each {
				h.record(time.Duration(1+(i+id)%100) * time.Millisecond)
				if i%1000 == 0 {
					q := h.quantiles()
					require.LessOrEqual(t, q.P50, q.P99)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, uint64(goroutines*each), h.count())
	sum := h.counts.Load().sum()
	require.Equal(t, int64(sum), h.weight.Load(), "nothing lost")
	require.LessOrEqual(t, sum, histogramMost)
	require.InEpsilon(t, 50e6, float64(h.quantile(0.5)), 0.1)
}

// While a halving is held up, counts stop short of overflowing.
func TestHistogramHeldUpHalving(t *testing.T) {
	var h histogram
	h.decaying.Store(true)
	for range 100_000 {
		h.record(time.Second)
	}
	sum := h.counts.Load().sum()
	require.Equal(t, histogramMost, sum)
	require.Equal(t, uint64(100_000), h.count())
	within(t, time.Second, h.quantile(0.99))
}

func BenchmarkHistogram(b *testing.B) {
	var h histogram
	b.Run("op=record", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for d := time.Duration(0); pb.Next(); d += 997 * time.Microsecond {
				h.record(d & (1<<34 - 1))
			}
		})
	})
	b.Run("op=quantiles", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.quantiles()
		}
	})
}
