package ax

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets as wide as a sixteenth of their power of
// two, so a quantile is at most one part in 33 off, between 4 µs and two hours;
// what is shorter counts as 0, what is longer as two hours.
//
// Recent durations matter more: whenever 2048 have come together, all counts are
// halved, so what is 1024 records older weighs half as much.
//
// The zero histogram is empty and holds no buckets; the first record allocates
// one kilobyte, later ones nothing. Safe for concurrent use, without locks: a
// reader sees each record made meanwhile or does not.
type histogram struct {
	counts   atomic.Pointer[histogramCounts]
	total    atomic.Uint64 // records ever
	weight   atomic.Int64  // sum of the counts
	decaying atomic.Bool
}

// histogramCounts holds two counts of 16 bits a word, whose sum is bounded by
// histogramMost. Most lanes fill few words: used has a bit for each two of which
// one ever was other than zero, so that a reader can leave out the rest.
type histogramCounts struct {
	used  [histogramBuckets/4/32 + 1]atomic.Uint32 // beside the first words, which are read most
	words [(histogramBuckets + 1) / 2]atomic.Uint32
}

// add counts one more in bucket i.
func (c *histogramCounts) add(i int) {
	c.words[i/2].Add(1 << (i % 2 * 16))
	if used, bit := &c.used[i/128], uint32(1)<<(i/4%32); used.Load()&bit == 0 {
		used.Or(bit)
	}
}

// count is that of bucket i.
func (c *histogramCounts) count(i int) int {
	return int(c.words[i/2].Load() >> (i % 2 * 16) & math.MaxUint16)
}

// each visits the buckets that count something, the shortest durations first,
// until visit returns false.
func (c *histogramCounts) each(visit func(i, n int) bool) {
	for block := range c.used {
		for left := c.used[block].Load(); left != 0; left &= left - 1 {
			first := 4 * (block*32 + bits.TrailingZeros32(left))
			for i := first; i < min(first+4, histogramBuckets); i++ {
				if n := c.count(i); n > 0 && !visit(i, n) {
					return
				}
			}
		}
	}
}

// sum is that of all counts.
func (c *histogramCounts) sum() int {
	if c == nil {
		return 0
	}
	sum := 0
	c.each(func(_, n int) bool { sum += n; return true })
	return sum
}

const (
	histogramFull    = 2048                                // weight at which counts are halved
	histogramMost    = 1 << 15                             // weight above which nothing is counted
	histogramLowest  = 12                                  // 2¹² ns is the least that is not 0
	histogramOctaves = 31                                  // powers of two told apart, up to 2⁴³ ns
	histogramBits    = 4                                   // of a power of two: 16 buckets
	histogramBuckets = 1 + histogramOctaves<<histogramBits // the first is for 0
)

// record counts d; a negative d counts as 0.
func (h *histogram) record(d time.Duration) {
	counts := h.counts.Load()
	if counts == nil {
		h.counts.CompareAndSwap(nil, new(histogramCounts))
		counts = h.counts.Load()
	}
	weight := h.weight.Add(1)
	if weight > histogramMost {
		h.total.Add(1)
		h.weight.Add(-1) // whoever is halving is held up: better lose a record than a count
		return
	}
	i := histogramIndex(d)
	counts.add(i)
	h.total.Add(1) // after it: who has seen this one counted has seen it
	if weight >= histogramFull && h.decaying.CompareAndSwap(false, true) {
		h.weight.Add(-counts.halve())
		h.decaying.Store(false)
	}
}

// halve halves all counts and returns what it took away. The odd one of a count
// is carried to the next, so that also rare durations keep their share. Records
// made meanwhile are kept; only one goroutine may halve at a time.
func (c *histogramCounts) halve() (taken int64) {
	carry := uint32(0)
	for i := range c.words {
		word := c.words[i].Load()
		low, high := word&math.MaxUint16, word>>16
		lowKept := (low + carry) / 2
		carry = (low + carry) % 2
		highKept := (high + carry) / 2
		carry = (high + carry) % 2
		low, high = low-lowKept, high-highKept
		c.words[i].Add(-(low | high<<16))
		taken += int64(low + high)
	}
	return taken
}

// count is the number of records ever made.
func (h *histogram) count() uint64 { return h.total.Load() }

// quantiles are the usual three; zero if nothing was recorded.
func (h *histogram) quantiles() Quantiles {
	var q [3]time.Duration
	h.find(q[:], 0.50, 0.95, 0.99)
	return Quantiles{P50: q[0], P95: q[1], P99: q[2]}
}

// quantile is the least duration that is not exceeded by the part q of those that
// count, 0 to 1; zero if nothing was recorded.
func (h *histogram) quantile(q float64) time.Duration {
	var d [1]time.Duration
	h.find(d[:], q)
	return d[0]
}

// find sets found to the quantiles parts, which ascend.
func (h *histogram) find(found []time.Duration, parts ...float64) {
	counts := h.counts.Load()
	sum := counts.sum()
	if sum == 0 {
		return
	}
	seen, next, last := 0, 0, 0
	counts.each(func(i, n int) bool {
		seen, last = seen+n, i
		for next < len(parts) && float64(seen) >= max(1, parts[next]*float64(sum)) {
			found[next] = histogramValue(i)
			next++
		}
		return next < len(parts)
	})
	for ; next < len(parts); next++ { // counts were halved between the two looks
		found[next] = histogramValue(last)
	}
}

// mean is the average of those that count; zero if nothing was recorded.
func (h *histogram) mean() time.Duration {
	counts := h.counts.Load()
	if counts == nil {
		return 0
	}
	total, sum := 0.0, 0
	counts.each(func(i, n int) bool {
		total, sum = total+float64(n)*float64(histogramValue(i)), sum+n
		return true
	})
	return time.Duration(total / float64(max(1, sum)))
}

// histogramIndex is the bucket of d.
func histogramIndex(d time.Duration) int {
	if d < 1<<histogramLowest {
		return 0
	}
	octave := bits.Len64(uint64(d)) - 1
	if octave >= histogramLowest+histogramOctaves {
		return histogramBuckets - 1
	}
	within := int(d>>(octave-histogramBits)) - 1<<histogramBits
	return 1 + (octave-histogramLowest)<<histogramBits + within
}

// histogramValue stands for all durations in bucket i: it is off by the same part
// of the shortest as of the longest.
func histogramValue(i int) time.Duration {
	if i == 0 {
		return 0
	}
	shift := (i-1)>>histogramBits + histogramLowest - histogramBits
	low := float64((i-1)&(1<<histogramBits-1) + 1<<histogramBits)
	return time.Duration(math.Ldexp(2*low*(low+1)/(2*low+1), shift))
}
