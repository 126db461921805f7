package ax

import (
	"cmp"
	"sync/atomic"
	"time"
)

// lane is one route: whatever shares a gate, rates, a pause and a breaker.
// It is guarded by the scheduler's mutex, but for what tasks without the mutex use:
// gate, rates, generation, swift, clean, first attempts in retries, histograms.
type lane struct {
	s      *Scheduler
	name   string
	policy lanePolicy
	fixed  bool // configured or given limits by hand: never forgotten

	gate     gate // own limit; active counts outermost attempts
	maxQueue int  // 0 = only the scheduler's
	rates    *rateSet
	brk      *breaker // nil = none
	retries  retryBudget

	held      bool    // Pause
	until     instant // the server's wish: no start before
	paused    bool    // told by an event; resumed tells the end
	spread    spread  // how the lane leaves a pause
	asleep    instant // a governor refused until then
	noWait    bool    // somebody who will not wait may be among those asked for
	askOne    bool    // a better task has ended the sleep: it is asked for alone
	sleepRank rank    // whom
	asks      int     // reserved permits a governor is being asked for

	plain    queue // of owners without a budget
	byOwner  map[*owner]*queue
	ready    heap[*queue]  // those whose owner may start something
	nestedAt instant       // when time lets the next of nested start
	nested   heap[*waiter] // waiting for tokens alone, ahead of everybody
	worst    heap[*waiter] // first starts, worst rank first; only with OverflowEvict
	node     heapNode[*lane]
	alarm    alarm
	gone     bool // forgotten: who still knows it must ask anew

	plainPolicy bool          // no policy that asks for more than express gives
	generation  atomic.Uint32 // the breaker's, while undisturbed
	swift       swiftStats
	clean       clean

	inQueue  int     // waiters for a permit
	waiting  int     // first starts that wait: MaxQueue
	flights  int     // unfinished, wherever they are
	resting  int     // flights in backoff
	running  int     // attempts that the mutex knows, nested ones too
	slots    int     // of gate, those that the mutex knows
	lastUsed instant // last start or end of an attempt
	stats    laneStats
}

// queue is the part of a lane's queue that belongs to one owner with a budget,
// or to all the others together.
type queue struct {
	lane  *lane
	owner *owner // nil = all owners without a budget
	tasks heap[*waiter]
	node  heapNode[*queue]
}

func newLane(s *Scheduler, name string, policy lanePolicy, fixed bool) *lane {
	l := &lane{
		s: s, name: name, policy: policy, fixed: fixed,
		maxQueue: policy.maxQueue,
		rates:    newRateSet(s.epoch, policy.rate),
	}
	l.gate.setLimit(policy.maxConcurrent)
	l.lastUsed = s.now()
	l.plain.lane = l
	if b := policy.breaker; b != nil {
		l.brk = newBreaker(*b)
		if b.Window <= maxClean {
			l.clean = newClean(b.Window)
		}
	}
	l.plainPolicy = policy.plain()
	return l
}

// plain tells whether express tasks can do all that the policy asks for.
func (p *lanePolicy) plain() bool {
	return p.hedge == nil && (p.fallback == nil || p.fallback.Stale == 0) && (p.retry == nil || p.retry.If == nil) &&
		(p.breaker == nil || p.breaker.IsFailure == nil && p.breaker.Window <= maxClean)
}

// startAt is the earliest moment, as far as is known now, at which the lane
// lets an outermost attempt start: now or earlier if it does, never if only an
// event can bring it about.
func (l *lane) startAt(now instant) instant {
	if l.held || !l.gate.free() {
		return never
	}
	t := max(now, l.until, l.asleep)
	if l.brk != nil && l.brk.state() != BreakerClosed || !l.spread.done(now) {
		t = max(t, l.recoveringAt(now))
	}
	return max(t, l.rates.next(now))
}

// recoveringAt is startAt as far as breaker and spread decide.
//
//go:noinline
func (l *lane) recoveringAt(now instant) instant {
	t, full := now, l.full()
	if l.brk != nil {
		var gap time.Duration
		if l.brk.ramp() != nil {
			gap = fastestGap(l.rates.rates())
		}
		t = max(t, l.brk.earliest(now, l.gate.active(), full, gap))
	}
	if !l.spread.done(now) {
		t = max(t, l.spread.next(now, l.gate.active(), full))
	}
	return t
}

// full is the concurrency that a ramp of the lane leads to: its own limit, or
// the scheduler's.
func (l *lane) full() int {
	return cmp.Or(l.gate.limit(), l.s.gate.limit(), NoLimit)
}

// knownStart is startAt as far as time alone decides: pause, breaker (which does
// not hold nested tasks: it refuses them), tokens; and what holds longest.
func (l *lane) knownStart(now instant, breaker bool) (at instant, why obstacle) {
	at = now
	if l.until > at {
		at, why = l.until, obstaclePause
	}
	if l.brk != nil && breaker {
		if until, open := l.brk.openUntil(); open && until > at {
			at, why = until, obstacleBreaker
		}
	}
	if token := l.rates.next(now); token != never && token > at {
		at, why = token, obstacleLaneRate
	}
	return at, why
}

// limit is the concurrency in force now, which a ramp lowers; 0 = none of the
// lane's own.
func (l *lane) limit(now instant) int {
	full := l.full()
	least := full
	if l.brk != nil && l.brk.ramp() != nil {
		least = min(least, l.brk.limit(now, full))
	}
	if !l.spread.done(now) {
		least = min(least, l.spread.limit(now, full))
	}
	if least == full {
		return l.gate.limit()
	}
	return least
}

// isHeld tells whether what waits here is parked rather than queued: behind a
// pause or an open breaker.
func (l *lane) isHeld(now instant) bool {
	if l.held || l.s.held || l.until > now {
		return true
	}
	if l.brk == nil {
		return false
	}
	return l.brk.state() == BreakerOpen || l.brk.state() == BreakerHalfOpen && !l.brk.admits(now)
}

// rejects tells whether a start that meets the breaker is refused instead of
// waiting.
func (l *lane) rejects(now instant) bool {
	return l.brk != nil && l.policy.breaker.WhenOpen == OpenReject && !l.brk.admits(now)
}

// queueOf is where tasks of o wait, made when missing.
func (l *lane) queueOf(o *owner) *queue {
	if !o.limited() {
		return &l.plain
	}
	q := l.byOwner[o]
	if q == nil {
		q = &queue{lane: l, owner: o}
		if l.byOwner == nil {
			l.byOwner = make(map[*owner]*queue)
		}
		l.byOwner[o] = q
		o.queues = append(o.queues, q)
	}
	return q
}

// waiters is everything that waits in l, in no order.
func (l *lane) waiters() []*waiter {
	var all []*waiter
	collect := func(_ rank, n *heapNode[*waiter]) bool { all = append(all, n.item); return true }
	l.plain.tasks.each(collect)
	l.nested.each(collect)
	for _, q := range l.byOwner {
		q.tasks.each(collect)
	}
	return all
}

// idle tells that nothing of the lane is under way.
func (l *lane) idle() bool {
	return l.flights == 0 && l.running == 0 && l.gate.active() == 0 && l.asks == 0 && l.plain.tasks.len() == 0 &&
		len(l.byOwner) == 0 && l.nested.len() == 0
}

// forgetAt is from when on forgetting the lane changes nothing: never while
// something is under way, or set by hand.
func (l *lane) forgetAt(now instant) instant {
	if l.fixed || l.held || !l.idle() {
		return never
	}
	used := max(l.lastUsed, instant(l.swift.used.Load()))
	t := max(used.add(10*time.Second), l.until, l.asleep, l.rates.idleAt(now))
	if l.brk == nil || l.brk.forgettable(now) {
		return t
	}
	quiet := used.add(l.policy.breaker.MaxAge)
	if until, open := l.brk.openUntil(); open {
		quiet = until.add(l.policy.breaker.MaxAge)
	}
	return max(t, quiet, now.add(time.Second))
}

// ringLocked: time has changed what the lane allows, or the lane can go. What has
// changed is told first, also of a lane that goes.
func (l *lane) ringLocked(now instant) {
	l.s.tickLaneLocked(l, now)
	if l.forgetAt(now) <= now {
		l.gone = true
		l.gate.guard(true) // before the last look
		l.foldLocked(now)
		if l.forgetAt(now) <= now {
			l.s.dropLaneLocked(l, now)
			return
		}
		l.gone = false
	}
	l.s.fixLaneLocked(l, now)
}
