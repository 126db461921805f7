package ax

import (
	"fmt"
	"time"
)

// BreakerMode says who decides the state of a lane's breaker: its outcomes or
// an operator. It is what Scheduler.ForceBreaker takes.
type BreakerMode int

const (
	// BreakerAuto, the zero value, lets outcomes decide. Asking for it starts
	// the breaker afresh: closed, every earlier outcome forgotten.
	BreakerAuto BreakerMode = iota
	// BreakerForceOpen keeps the breaker open, without probes, until another mode is set.
	BreakerForceOpen
	// BreakerForceClosed keeps the breaker closed, whatever fails, until another mode is set.
	BreakerForceClosed
)

// String is the mode's name in lower case.
func (m BreakerMode) String() string {
	switch m {
	case BreakerAuto:
		return "auto"
	case BreakerForceOpen:
		return "force-open"
	case BreakerForceClosed:
		return "force-closed"
	}
	return fmt.Sprintf("BreakerMode(%d)", int(m))
}

// minHang is the least time that a probe is given to come to an outcome.
const minHang = 30 * time.Second

// breaker is the failure state machine of one lane: closed → open → half-open →
// ramping → closed. Each state it enters is a new generation, and a permit is
// good for the generation that issued it, so that late outcomes change nothing.
// It is not safe for concurrent use, and now must not run backwards.
type breaker struct {
	policy Breaker // with its defaults resolved
	mode   BreakerMode
	in     BreakerState
	gen    uint32 // of the present state; never 0, which is the permit that is none
	until  instant
	recent tally // since it last closed; kept while open to tell why
	probes []instant
	hungAt instant      // half-open: when the oldest probe in flight counts as failed
	rise   ramp         // ramping
	from   BreakerState // that it last opened from
	begun  int          // starts on the ramp
	moves  []BreakerState
}

// A probe permit holds the moment its attempt began, or one of these.
const (
	probeFree   instant = -1
	probePassed instant = never
)

// permit is the leave to make one attempt; the zero value is none. It goes back
// once, by done or by abandon.
type permit struct {
	gen   uint32
	slot  int32 // of a probe
	probe bool
}

// newBreaker is a closed breaker under p, whose defaults are resolved.
func newBreaker(p Breaker) *breaker {
	return &breaker{policy: p, gen: 1, hungAt: never, recent: tally{size: p.Window, maxAge: p.MaxAge}}
}

// tick makes the transitions that are due by now. It is the only place where
// time alone changes the state, and it dates each change to the moment it fell
// due, so how often it is called makes no difference.
func (b *breaker) tick(now instant) {
	for {
		at := b.wakeAt()
		if at > now || at == never {
			return
		}
		switch b.in {
		case BreakerOpen:
			b.enter(at, BreakerHalfOpen)
		case BreakerHalfOpen: // a probe hangs
			b.enter(at, BreakerOpen)
		case BreakerRamping:
			b.enter(at, BreakerClosed)
		}
	}
}

// wakeAt is the next moment at which tick changes the state, never if only an
// event can.
func (b *breaker) wakeAt() instant {
	if b.mode != BreakerAuto {
		return never
	}
	switch b.in {
	case BreakerOpen:
		return b.until
	case BreakerHalfOpen:
		return b.hungAt
	case BreakerRamping:
		return b.rise.end()
	}
	return never
}

// enter begins a generation.
func (b *breaker) enter(at instant, s BreakerState) {
	if s == BreakerOpen {
		b.from = b.in
	}
	b.in = s
	b.gen++
	b.moves = append(b.moves, s)
	switch s {
	case BreakerClosed:
		b.recent.clear()
	case BreakerOpen:
		b.until = at.add(b.policy.OpenFor)
	case BreakerHalfOpen:
		b.hungAt = never
		if b.probes == nil {
			b.probes = make([]instant, b.policy.Probes)
		}
		for i := range b.probes {
			b.probes[i] = probeFree
		}
	case BreakerRamping:
		b.rise = ramp{from: at, over: b.policy.Ramp, low: b.policy.Probes}
		b.begun = 0
	}
}

// state is the state after the latest tick.
func (b *breaker) state() BreakerState { return b.in }

// takeMoves returns the states entered since it was last called, in order. The
// caller takes them after every call that may move the breaker.
func (b *breaker) takeMoves() []BreakerState {
	m := b.moves
	b.moves = nil
	return m
}

// admits reports whether the breaker lets one more attempt begin now. On the
// ramp limit and earliest say how many, and when.
func (b *breaker) admits(now instant) bool {
	b.tick(now)
	switch b.in {
	case BreakerOpen:
		return false
	case BreakerHalfOpen:
		return b.freeProbe() >= 0
	}
	return true
}

// earliest is the first moment at which the breaker, by time alone, lets one
// more attempt begin: now if one may begin at once, never if that takes an event
// (the outcome of a probe, a freed slot on the ramp, another mode). The ramp is
// judged for a lane with active attempts in flight, a limit of full and, if gap
// is not 0, a rate of one start every gap.
func (b *breaker) earliest(now instant, active, full int, gap time.Duration) instant {
	b.tick(now)
	switch b.in {
	case BreakerOpen:
		return b.until
	case BreakerHalfOpen:
		if b.freeProbe() < 0 {
			return never
		}
	case BreakerRamping:
		return max(now, b.rise.reaches(active+1, full), b.rise.start(b.begun+1, gap))
	}
	return now
}

// openUntil is when OpenFor ends, and whether there is such a moment: not
// while the breaker lets attempts through, nor while it is forced open.
func (b *breaker) openUntil() (instant, bool) {
	if b.in != BreakerOpen || b.mode != BreakerAuto {
		return never, false
	}
	return b.until, true
}

// begin issues the permit for an attempt that admits has let through.
func (b *breaker) begin(now instant) permit {
	b.tick(now)
	p := permit{gen: b.gen}
	switch b.in {
	case BreakerOpen:
		panic("ax: attempt begun behind an open breaker")
	case BreakerHalfOpen:
		i := b.freeProbe()
		if i < 0 {
			panic("ax: more attempts begun than the breaker has probes")
		}
		b.probes[i] = now
		b.hungAt = min(b.hungAt, now.add(b.hang()))
		p.slot, p.probe = int32(i), true
	case BreakerRamping:
		b.begun++
	}
	return p
}

// done counts the outcome of the attempt that p was issued for. That of an
// earlier generation changes nothing.
func (b *breaker) done(now instant, p permit, failed bool) {
	b.tick(now)
	if p.gen != b.gen || b.mode != BreakerAuto {
		return
	}
	switch {
	case b.in == BreakerClosed:
		b.recent.add(now, failed)
		failures, calls := b.recent.counts(now)
		if calls >= b.policy.MinCalls && exceeds(failures, b.policy.FailureRate, calls) {
			b.enter(now, BreakerOpen)
		}
	case failed:
		b.enter(now, BreakerOpen)
	case b.in == BreakerHalfOpen:
		b.settle(p, probePassed)
		if b.allPassed() {
			b.enter(now, BreakerRamping)
		}
	}
}

// holds reports whether p was issued for the state that the breaker is in.
func (b *breaker) holds(p permit) bool { return p.gen == b.gen }

// undisturbed reports whether another success would change nothing but the
// window: the breaker is closed, by its own judgement, and knows of no failure.
func (b *breaker) undisturbed(now instant) bool {
	b.tick(now)
	if b.mode != BreakerAuto || b.in != BreakerClosed {
		return false
	}
	failures, _ := b.recent.counts(now)
	return failures == 0
}

// succeeded counts a success of an undisturbed time.
func (b *breaker) succeeded(at instant) {
	if b.mode == BreakerAuto && b.in == BreakerClosed {
		b.recent.add(at, false)
	}
}

// abandon gives p back without an outcome: the attempt was neutral. A probe's
// permit serves another attempt.
func (b *breaker) abandon(now instant, p permit) {
	b.tick(now)
	if p.probe && p.gen == b.gen {
		b.settle(p, probeFree)
	}
}

// force sets the mode at once. A forced state holds whatever happens; attempts
// under way when the mode changes no longer count.
func (b *breaker) force(now instant, m BreakerMode) {
	b.tick(now)
	to := BreakerClosed
	if m == BreakerForceOpen {
		to = BreakerOpen
	}
	b.mode = m
	if b.in != to {
		b.enter(now, to)
	} else {
		b.gen++ // another reason to be in this state
	}
	if to == BreakerOpen {
		b.until = never
	} else {
		b.recent.clear()
	}
}

// openedBy says why the breaker is open.
func (b *breaker) openedBy(now instant) string {
	switch {
	case b.mode == BreakerForceOpen:
		return "ForceBreaker"
	case b.from == BreakerHalfOpen:
		return "a probe failed"
	case b.from == BreakerRamping:
		return "an attempt failed during the ramp"
	}
	failures, calls := b.recent.counts(now)
	return fmt.Sprintf("%d of the last %d attempts failed", failures, calls)
}

// ramp is the way back to full, nil when the lane is not on it.
func (b *breaker) ramp() *ramp {
	if b.in != BreakerRamping {
		return nil
	}
	return &b.rise
}

// limit is the number of attempts that may be in flight now in a lane whose own
// limit is full.
func (b *breaker) limit(now instant, full int) int {
	b.tick(now)
	if b.in != BreakerRamping {
		return full
	}
	return b.rise.limit(now, full)
}

// forgettable reports whether a new breaker would do as well as this one:
// closed without a recent outcome, or open and not asked for MaxAge after
// OpenFor has passed.
func (b *breaker) forgettable(now instant) bool {
	b.tick(now)
	if b.mode != BreakerAuto {
		return false
	}
	switch b.in {
	case BreakerClosed:
		_, calls := b.recent.counts(now)
		return calls == 0
	case BreakerHalfOpen:
		return b.hungAt == never && now > b.until.add(b.policy.MaxAge)
	}
	return false
}

// hang is the time after which a probe without outcome counts as failed.
func (b *breaker) hang() time.Duration { return max(b.policy.OpenFor, minHang) }

// freeProbe is a permit that no attempt holds, -1 if there is none.
func (b *breaker) freeProbe() int {
	for i, at := range b.probes {
		if at == probeFree {
			return i
		}
	}
	return -1
}

// allPassed reports whether every probe has succeeded.
func (b *breaker) allPassed() bool {
	for _, at := range b.probes {
		if at != probePassed {
			return false
		}
	}
	return true
}

// settle puts what has become of a probe in its place and finds the oldest of
// those still in flight.
func (b *breaker) settle(p permit, to instant) {
	if at := b.probes[p.slot]; at == probeFree || at == probePassed {
		panic("ax: probe permit returned twice")
	}
	b.probes[p.slot] = to
	b.hungAt = never
	for _, at := range b.probes {
		if at != probeFree { // a passed one saturates at never
			b.hungAt = min(b.hungAt, at.add(b.hang()))
		}
	}
}

// exceeds reports whether n is more than rate × of. Decimal rates are rarely
// exact in binary (0.29 × 100 is a little under 29), so a product within
// rounding error of n is taken to equal it.
func exceeds(n int, rate float64, of int) bool {
	const rounding = 1 + 1e-15
	return float64(n) > rate*float64(of)*rounding
}
