package ax

import (
	"sync/atomic"
	"time"
)

const (
	budgetSpan    = 10 * time.Second
	budgetBucket  = 100 * time.Millisecond
	budgetBuckets = int64(budgetSpan / budgetBucket)
	budgetFloor   = 3 // retries that are always in the budget
)

// retryBudget keeps the retries of a lane within a share of its first attempts,
// both counted over the last 10 s. Retries are kept to the nanosecond; they are
// few, for the budget says so. First attempts are counted in buckets of 100 ms, of
// which the one that is partly too old does not count: it never allows a retry
// that exact counting would refuse. The zero value is ready; it holds no memory
// before its first use. first is safe beside everything else, the rest is not.
type retryBudget struct {
	retries startLog
	ring    atomic.Pointer[budgetRing]
}

// budgetRing is the first attempts in each bucket of the last 10 s, and which
// bucket that is: what is older is overwritten when its place is needed.
type budgetRing [budgetBuckets + 1]atomic.Uint64

// budgetBits is how many bits of a place count; the others number the bucket.
const budgetBits = 24

// first counts a first attempt.
func (r *retryBudget) first(now instant) {
	ring := r.ring.Load()
	if ring == nil {
		r.ring.CompareAndSwap(nil, new(budgetRing))
		ring = r.ring.Load()
	}
	bucket := bucketOf(now)
	place := &ring[bucket%int64(len(ring))]
	number := uint64(bucket+1) << budgetBits // 0 is no bucket
	for {
		have := place.Load()
		next := have + 1
		if have>>budgetBits < number>>budgetBits {
			next = number + 1
		}
		if place.CompareAndSwap(have, next) {
			return
		}
	}
}

// retried counts a retry.
func (r *retryBudget) retried(now instant) {
	r.retries.trim(now, budgetSpan)
	r.retries.add(now)
}

// unretried takes back the latest retry, which was not sent.
func (r *retryBudget) unretried() { r.retries.drop() }

// allow reports whether one more retry at that moment, now or later, is within
// the budget as far as is known now: the retries of the 10 s up to it, it
// included, are no more than 3 or ratio × first attempts.
func (r *retryBudget) allow(at instant, ratio float64) bool {
	with := 1
	for with <= r.retries.len() && r.retries.newest(with-1).add(budgetSpan) > at {
		with++
	}
	return with <= budgetFloor || !exceeds(with, ratio, r.firstsAt(bucketOf(at)))
}

// firstsAt is the first attempts that count in a bucket.
func (r *retryBudget) firstsAt(bucket int64) (n int) {
	ring := r.ring.Load()
	if ring == nil {
		return 0
	}
	for i := range ring {
		have := ring[i].Load()
		if int64(have>>budgetBits)-1 > bucket-budgetBuckets {
			n += int(have & (1<<budgetBits - 1))
		}
	}
	return n
}

func bucketOf(now instant) int64 { return int64(now) / int64(budgetBucket) }
