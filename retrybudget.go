package ax

import "time"

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
// before its first use.
type retryBudget struct {
	retries startLog
	ring    *[budgetBuckets + 1]uint32 // first attempts
	at      int64                      // the latest bucket
	firsts  int                        // in the whole buckets of the last 10 s
}

// first counts a first attempt.
func (r *retryBudget) first(now instant) {
	if r.ring == nil {
		r.ring = new([budgetBuckets + 1]uint32)
		r.at = bucketOf(now)
	}
	r.advance(bucketOf(now))
	*r.bucket(r.at)++
	r.firsts++
}

// retried counts a retry.
func (r *retryBudget) retried(now instant) {
	r.retries.trim(now, budgetSpan)
	r.retries.add(now)
}

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

// firstsAt is the first attempts that count in bucket to, the latest or a later.
func (r *retryBudget) firstsAt(to int64) int {
	n := r.firsts
	if r.ring == nil || to <= r.at {
		return n
	}
	for i := r.at - budgetBuckets + 1; i <= min(to-budgetBuckets, r.at); i++ {
		n -= int(*r.bucket(i))
	}
	return n
}

// idle reports whether nothing counts any more.
func (r *retryBudget) idle(now instant) bool {
	return (r.retries.len() == 0 || r.retries.newest(0).add(budgetSpan) <= now) && r.firstsAt(bucketOf(now)) == 0
}

func bucketOf(now instant) int64 { return int64(now) / int64(budgetBucket) }

// advance makes to the latest bucket.
func (r *retryBudget) advance(to int64) {
	if to-r.at > budgetBuckets {
		clear(r.ring[:])
		r.at, r.firsts = to, 0
	}
	for r.at < to {
		r.at++
		r.firsts -= int(*r.bucket(r.at - budgetBuckets)) // partly too old
		*r.bucket(r.at) = 0
	}
}

func (r *retryBudget) bucket(i int64) *uint32 {
	n := int64(len(r.ring))
	return &r.ring[(i+n)%n] // i is at least −100
}
