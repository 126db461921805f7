package ax

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rateSet is all the Rates of one lane, owner or scheduler: a start needs the
// consent of all. Windows share one record of starts, so a second or tenth costs
// no memory; all spaced rates are one spacing, the widest; token buckets stand alone.
//
// A start is taken when the task is granted its turn, and then either called,
// when the Executor is about to be, or given back. A nil or empty set allows
// everything. Moments earlier than the latest one seen count as that one, so a
// caller with an old clock reading can neither mint tokens nor disturb the
// record. It is safe for concurrent use.
type rateSet struct {
	mu       sync.Mutex // a leaf: held for the arithmetic alone
	epoch    time.Time  // instant 0
	inForce  []Rate
	latest   instant
	windows  []window
	buckets  []bucket
	spacing  spacing
	log      startLog
	pending  int         // taken, neither called nor given back; counted while there are windows
	era      claim       // since windows came into force
	seeds    int         // starts that the log began with then: what buckets knew
	seeded   instant     // when that was
	windowed atomic.Bool // there are windows, for who holds no lock
	limited  atomic.Bool // there are rates, likewise
}

// claim is what a set gives for a start taken, to be told of later: which of its
// times it was counted in, since rates come and go between take and call.
type claim uint8

const (
	noClaim   claim = iota // nothing was taken
	uncounted              // taken while there were no rates
	bucketed               // taken of buckets alone: windows that follow them may begin with it
	firstEra               // from here on, and round again: counted as pending
)

// window allows limit starts in any half-open window of span.
type window struct {
	limit int
	span  time.Duration
}

// newRateSet makes a set of unused rates. epoch is the time of instant 0.
func newRateSet(epoch time.Time, rates []Rate) *rateSet {
	r := &rateSet{epoch: epoch, spacing: newSpacing(), latest: math.MinInt64, era: firstEra}
	r.set(math.MinInt64, rates)
	return r
}

// rates are those in force, not to be changed.
func (r *rateSet) rates() []Rate {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce
}

// exact reports whether there is a window, which must be told of calls.
func (r *rateSet) exact() bool { return r != nil && r.windowed.Load() }

func (r *rateSet) exactLocked() bool { return len(r.windows) > 0 }

// next is the earliest moment at which a start is allowed, not after now (or the
// latest moment seen) if it is now; never if only a call or a return of what was
// taken can bring it about. If nothing is taken before, a start is allowed then.
func (r *rateSet) next(now instant) instant {
	if r == nil || !r.limited.Load() {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextLocked(now)
}

func (r *rateSet) nextLocked(now instant) instant {
	at, seen := r.due(), max(now, r.latest)
	for i := range r.buckets {
		at = max(at, r.buckets[i].next(r.time(seen), seen))
	}
	if at <= seen { // somebody has read the clock since
		return min(at, now)
	}
	return at
}

// due is the earliest moment that windows and spacing allow, even if long past.
func (r *rateSet) due() instant {
	at := r.spacing.due()
	for _, w := range r.windows {
		room := w.limit - r.pending // starts that may lie within the span
		switch {
		case room <= 0:
			return never
		case room <= r.log.len():
			at = max(at, r.log.newest(room-1).add(w.span))
		}
	}
	return at
}

// take uses one start now, if next allows it; else it is noClaim. lag is how late
// the timer fired that led to it, 0 if none did.
func (r *rateSet) take(now instant, lag time.Duration) claim {
	if r == nil || !r.limited.Load() {
		return uncounted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.inForce) == 0 {
		return uncounted
	}
	taken, due := now, r.due()
	now = max(now, r.latest)
	if due > now {
		return noClaim
	}
	if len(r.buckets) > 0 && !r.takeTokens(now) {
		return noClaim
	}
	now = r.advance(now)
	r.spacing.take(now, due, lag, taken)
	if !r.exactLocked() {
		return bucketed
	}
	r.pending++
	return r.era
}

// takeTokens takes a token of each bucket, or none.
func (r *rateSet) takeTokens(now instant) bool {
	t := r.time(now)
	for i := range r.buckets {
		if !r.buckets[i].look(t) {
			return false
		}
	}
	for i := range r.buckets {
		r.buckets[i].take(t, now)
	}
	return true
}

// calledLocked tells that the Executor is about to be called for a start taken
// before: it counts until a span from now. Only exact sets need to know. opened
// tells that a start that only this could bring about has a moment now.
func (r *rateSet) calledLocked(now instant, c claim) (opened bool) {
	if !r.exactLocked() {
		return false
	}
	opened = r.due() == never
	now = r.advance(now)
	r.settle(c)
	r.log.add(now)
	return opened
}

// settle ends what c was counted as: as pending, or as a start long made.
func (r *rateSet) settle(c claim) {
	switch {
	case c == r.era && r.pending > 0:
		r.pending--
	case c == bucketed && r.seeds > 0 && r.log.len() > 0 && r.log.oldest(0) == r.seeded:
		r.seeds--
		r.log.shift()
	}
}

// giveBack returns a start that take was given taken for and that is not going
// to be called: nothing was used. Only tokens that would have overflowed
// meanwhile, had they not been taken, do not come back.
func (r *rateSet) giveBack(now, taken instant, c claim) {
	if r == nil || c <= uncounted || !r.limited.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.inForce) == 0 {
		return
	}
	now = r.advance(now)
	for i := range r.buckets {
		r.buckets[i].giveBack(r.time(now), taken)
	}
	r.spacing.giveBack(taken)
	r.settle(c)
}

// set puts other rates in force. What was started still counts: windows keep the
// record that the old ones had, token buckets keep their level and their clock,
// and where one kind follows the other it begins with what the other one knew.
func (r *rateSet) set(now instant, rates []Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLocked(now, rates)
}

func (r *rateSet) setLocked(now instant, rates []Rate) {
	now = r.advance(now)
	if slices.Equal(rates, r.inForce) {
		return
	}
	wasExact, uncalled, old := r.exactLocked(), r.pending, r.buckets
	if !wasExact {
		uncalled = r.spent(now)
	}
	r.inForce, r.windows, r.buckets, r.spacing.gap = slices.Clone(rates), nil, nil, 0
	for _, rate := range rates {
		if rate.Burst < 1 {
			r.addWindow(rate)
		} else if n := len(r.buckets); n < len(old) {
			r.buckets = append(r.buckets, old[n])
			r.buckets[n].set(r.time(now), now, rate)
		} else {
			r.buckets = append(r.buckets, newBucket(rate))
			r.buckets[n].since = now
			r.charge(&r.buckets[n], now, uncalled)
		}
	}
	r.windowed.Store(r.exactLocked())
	r.limited.Store(len(rates) > 0)
	switch {
	case !r.exactLocked():
		r.log, r.pending = startLog{}, 0
	case !wasExact:
		if r.era++; r.era == noClaim {
			r.era = firstEra
		}
		r.seeds, r.seeded = min(uncalled, r.widest()), now
		for range r.seeds {
			r.log.add(now)
		}
	}
	r.log.trim(now, r.span())
}

func (r *rateSet) addWindow(rate Rate) {
	per := perOf(rate)
	r.windows = append(r.windows, window{rate.Limit, time.Duration(instant(per).add(max(0, rate.Guard)))})
	if rate.Smooth && rate.Limit > 0 {
		r.spacing.gap = max(r.spacing.gap, per/time.Duration(rate.Limit))
	}
}

// spent is how many starts the emptiest bucket remembers.
func (r *rateSet) spent(now instant) int {
	n := 0
	for i := range r.buckets {
		n = max(n, r.buckets[i].spent(r.time(now)))
	}
	return n
}

// charge makes a new bucket pay for the starts that are known of: those that the
// windows remember, and n more at this moment.
func (r *rateSet) charge(b *bucket, now instant, n int) {
	for i := r.log.len() - 1; i >= 0; i-- {
		b.charge(r.time(r.log.newest(i)))
	}
	for n > 0 && b.charge(r.time(now)) {
		n--
	}
	b.settle(now)
}

// idleAt is from when on forgetting the set changes nothing, not after now if it
// is idle already; never while starts are pending.
func (r *rateSet) idleAt(now instant) instant {
	if r == nil || !r.limited.Load() {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending > 0 {
		return never
	}
	now = r.advance(now)
	at := r.spacing.due()
	if r.log.len() > 0 {
		at = max(at, r.log.newest(0).add(r.span()))
	}
	for i := range r.buckets {
		at = max(at, r.buckets[i].fullAt(r.time(now), now))
	}
	return at
}

// advance moves the latest moment seen, and forgets what no window remembers.
func (r *rateSet) advance(now instant) instant {
	r.latest = max(r.latest, now)
	r.log.trim(r.latest, r.span())
	return r.latest
}

// span is the longest of the windows'.
func (r *rateSet) span() time.Duration {
	var span time.Duration
	for _, w := range r.windows {
		span = max(span, w.span)
	}
	return span
}

// widest is the largest limit of the windows.
func (r *rateSet) widest() int {
	limit := 0
	for _, w := range r.windows {
		limit = max(limit, w.limit)
	}
	return limit
}

func (r *rateSet) time(at instant) time.Time { return r.epoch.Add(time.Duration(at)) }

// perOf is the rate's Per or its default.
func perOf(rate Rate) time.Duration {
	if rate.Per == 0 {
		return time.Second
	}
	return max(1, rate.Per)
}
