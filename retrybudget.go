package ax

import "time"

const (
	budgetBucket  = 100 * time.Millisecond
	budgetBuckets = int64(10 * time.Second / budgetBucket)
	budgetFloor   = 3 // retries that are always in the budget
)

// retryBudget keeps the retries of a lane within a share of its first attempts,
// both counted over the last 10 s. It counts in buckets of 100 ms and rounds
// against the retry: of the bucket that is partly too old, retries count and
// first attempts do not. So it never allows a retry that exact counting would
// refuse, and is at most 100 ms late in allowing one. The zero value is ready;
// it holds no memory before its first use.
type retryBudget struct {
	ring           *[budgetBuckets + 1]budgetCount
	at             int64 // the latest bucket
	last           int64 // the latest bucket in which something was counted
	firsts, trials int   // first attempts and retries that count
}

type budgetCount struct{ firsts, retries uint32 }

// first counts a first attempt.
func (r *retryBudget) first(now instant) {
	r.advance(now).firsts++
	r.firsts++
	r.last = r.at
}

// retried counts a retry.
func (r *retryBudget) retried(now instant) {
	r.advance(now).retries++
	r.trials++
	r.last = r.at
}

// allow reports whether one more retry, now, is within the budget: the retries
// of the last 10 s, it included, are no more than 3 or ratio × first attempts.
func (r *retryBudget) allow(now instant, ratio float64) bool {
	if r.ring != nil {
		r.advance(now)
	}
	with := r.trials + 1
	return with <= budgetFloor || !exceeds(with, ratio, r.firsts)
}

// allowAt is allow for a retry that is going to be sent at a later moment, as far
// as is known now.
func (r *retryBudget) allowAt(at instant, ratio float64) bool {
	if r.ring == nil || r.idle(at) {
		return true
	}
	firsts, with, newest := 0, 1, bucketOf(at)
	for i := r.at; i > r.at-budgetBuckets-1 && i >= newest-budgetBuckets; i-- {
		with += int(r.bucket(i).retries)
		if i > newest-budgetBuckets {
			firsts += int(r.bucket(i).firsts)
		}
	}
	return with <= budgetFloor || !exceeds(with, ratio, firsts)
}

// idle reports whether nothing counts any more.
func (r *retryBudget) idle(now instant) bool {
	return r.ring == nil || bucketOf(now) > r.last+budgetBuckets
}

func bucketOf(now instant) int64 { return int64(now) / int64(budgetBucket) }

// advance moves the window up to now and returns its latest bucket.
func (r *retryBudget) advance(now instant) *budgetCount {
	if r.idle(now) {
		r.restart(bucketOf(now))
	}
	for to := bucketOf(now); r.at < to; {
		r.at++
		// The bucket 100 back is partly too old; the one 101 back, whose place is reused, is gone.
		r.firsts -= int(r.bucket(r.at - budgetBuckets).firsts)
		r.trials -= int(r.bucket(r.at).retries)
		*r.bucket(r.at) = budgetCount{}
	}
	return r.bucket(r.at)
}

func (r *retryBudget) restart(at int64) {
	if r.ring == nil {
		r.ring = new([budgetBuckets + 1]budgetCount)
	}
	clear(r.ring[:])
	r.at, r.firsts, r.trials = at, 0, 0
}

func (r *retryBudget) bucket(i int64) *budgetCount {
	n := int64(len(r.ring))
	return &r.ring[(i+n)%n] // i is at least −100
}
