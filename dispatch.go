package ax

import (
	"slices"
	"time"
)

// hold is what one attempt has taken of the limits, until it gives it back.
type hold struct {
	lane   *lane
	owner  *owner
	permit permit    // the breaker's
	judged bool      // its outcome counts at the lane's breaker
	slot   bool      // of scheduler, lane and owner; nested attempts have none
	active bool      // counted as running
	unsent bool      // tokens are taken, the executor has not been called
	claims [3]claim  // which: of the scheduler's rates, the lane's, the owner's
	taken  instant   // when they were
	grant  *grant    // the governor's
	mark   startMark // for Advice
}

// grant is what a Governor gave.
type grant struct {
	release  func()        // nil = nothing to do
	startBy  time.Time     // zero = any time
	released chan struct{} // closed with it
	passed   instant       // when another owner came to pay; 0 = it never did
}

// late tells that a start would come later than was granted.
func (g *grant) late() bool {
	return g != nil && !g.startBy.IsZero() && time.Now().After(g.startBy)
}

// dispatchLocked starts whatever may start now, best rank first. It is called
// after every event that may have let something start, in the same critical
// section; what only time will let start has an alarm.
func (s *Scheduler) dispatchLocked(now instant) {
	if len(s.nesting) > 0 {
		s.dispatchNestedLocked(now)
	}
	for {
		_, n, ok := s.ready.top()
		if !ok {
			s.gate.guard(s.special.Load() || len(s.nesting) > 0)
			return
		}
		if t := s.startAt(now); t > now {
			if s.gate.isGuarded() {
				s.setAlarmLocked(&s.alarm, s, t)
				return
			}
			s.gate.guard(true) // and look once more
			continue
		}
		s.dispatchLaneLocked(n.item, now)
	}
}

// ringLocked: the scheduler's own rates allow a start again; dispatch follows.
func (s *Scheduler) ringLocked(instant) {}

// startAt is the earliest moment at which the scheduler's own limits allow a
// start.
func (s *Scheduler) startAt(now instant) instant {
	if s.held || !s.gate.free() {
		return never
	}
	return max(now, s.rates.next(now))
}

// dispatchLaneLocked starts, refuses or asks for the best task of l, or finds
// that l cannot start anything after all.
func (s *Scheduler) dispatchLaneLocked(l *lane, now instant) {
	s.tickLaneLocked(l, now)
	if l.startAt(now) > now {
		s.fixLaneLocked(l, now)
		return
	}
	_, q, ok := l.ready.top()
	if !ok { // the breaker has just ended what waited
		s.fixLaneLocked(l, now)
		return
	}
	_, n, ok := q.item.tasks.top()
	if !ok {
		panic("ax: an empty queue was ready")
	}
	w := n.item
	if w.owner.startAt(now) > now {
		s.fixOwnerLocked(w.owner, now)
		return
	}
	if w.kind != waitGhost {
		if err := s.turnLocked(w, now); err != nil {
			s.refuseWaiterLocked(w, err, now)
			return
		}
	}
	if s.cfg.Governor != nil && w.kind != waitGhost {
		s.askLocked(w, now)
		return
	}
	s.dropLocked(w, now)
	h, ok := s.takeLocked(l, w.owner, now)
	if !ok {
		s.pushBackLocked(w, now)
		return
	}
	s.startLocked(w, h, now)
}

// turnLocked judges, when its turn has come, whether w still has the time.
func (s *Scheduler) turnLocked(w *waiter, now instant) error {
	if w.kind == waitRetry && w.at == nil {
		if err := s.retryBudgetLocked(w.f, now); err != nil {
			return err
		}
	}
	d := w.f.deadline()
	if d == never {
		return nil
	}
	least := w.lane.policy.minRemaining
	if left := d.sub(now); left < least || left <= 0 {
		return &deadlineError{left: left, earliest: 0, minimum: least}
	}
	return nil
}

// takeLocked takes a slot and a token of everything that l and o are bounded by,
// or nothing: a task that needs no mutex may have been faster.
func (s *Scheduler) takeLocked(l *lane, o *owner, now instant) (hold, bool) {
	h := hold{lane: l, owner: o}
	if !s.takeSlotsLocked(&h) {
		return hold{}, false
	}
	if !s.takeTokensLocked(&h, now) {
		s.dropSlotsLocked(&h)
		return hold{}, false
	}
	if l.brk != nil {
		h.judged, h.permit = true, l.brk.begin(now)
	}
	if h.permit.probe { // perhaps nobody waits behind it: it must not hang unseen
		s.fixLaneLocked(l, now)
	}
	l.spread.took(now)
	s.fixOwnerLocked(o, now)
	return h, true
}

// takeSlotsLocked takes a slot of scheduler, lane and owner, or none.
func (s *Scheduler) takeSlotsLocked(h *hold) bool {
	switch {
	case !s.gate.take():
		return false
	case !h.lane.gate.take():
		s.gate.release()
		return false
	case !h.owner.gate.take():
		s.gate.release()
		h.lane.gate.release()
		return false
	}
	h.slot = true
	h.lane.slots++
	s.slots++
	return true
}

func (s *Scheduler) dropSlotsLocked(h *hold) {
	h.slot = false
	h.lane.slots--
	s.slots--
	s.gate.release()
	h.lane.gate.release()
	h.owner.gate.release()
}

// takeTokensLocked takes a token of each rate, or none.
func (s *Scheduler) takeTokensLocked(h *hold, now instant) bool {
	rates := h.rates(s)
	for i, r := range rates {
		if h.claims[i] = r.take(now, s.lag); h.claims[i] == noClaim {
			for j, taken := range rates[:i] {
				taken.giveBack(now, now, h.claims[j])
			}
			return false
		}
	}
	h.unsent, h.taken = true, now
	return true
}

// rates is all that must allow a start under h.
func (h *hold) rates(s *Scheduler) [3]*rateSet {
	return [...]*rateSet{ofAll: s.rates, ofLane: h.lane.rates, ofOwner: h.owner.rates}
}

// Where they stand in it.
const (
	ofAll = iota
	ofLane
	ofOwner
)

// giveBackLocked undoes a hold, or ends it: what was not sent costs no token.
// Dispatch follows.
func (s *Scheduler) giveBackLocked(h *hold, now instant) {
	l, o := h.lane, h.owner
	if l == nil {
		return
	}
	if h.unsent {
		for i, r := range h.rates(s) {
			taken := h.taken
			if i == ofOwner && h.grant != nil {
				taken = max(taken, h.grant.passed)
			}
			r.giveBack(now, taken, h.claims[i])
		}
		h.unsent = false
	}
	if h.judged {
		l.brk.abandon(now, h.permit)
		s.breakerMovedLocked(l, now)
		h.judged = false
	}
	if h.slot {
		s.dropSlotsLocked(h)
	}
	if h.active {
		h.active = false
		l.stats.seen.ended(now, l.inFlight())
		s.running--
		l.running--
		o.running--
		s.aliveLessLocked()
	}
	l.lastUsed, o.lastUsed = now, now
	if g := h.grant; g != nil {
		h.grant = nil
		s.later(func() { close(g.released) })
		if g.release != nil {
			s.laterUser(g.release)
		}
	}
	h.lane = nil
	s.fixOwnerLocked(o, now)
	s.fixLaneLocked(l, now)
}

// startLocked gives w what it waited for. It leaves its queue, its flight runs.
func (s *Scheduler) startLocked(w *waiter, h hold, now instant) {
	s.dropLocked(w, now)
	if w.kind == waitGhost {
		w.f.more.ghost.startedLocked(h, now)
		return
	}
	f := w.f
	waited := now.sub(w.since)
	hedging := w.hedgesLocked()
	if !hedging {
		f.waited += waited
	}
	s.activateLocked(&h)
	h.mark = h.lane.stats.seen.started(now, h.lane.inFlight())
	h.lane.stats.wait.record(waited)
	if w.at != nil { // a hop, which goes on in another lane, or a hedge
		w.at.hold, w.at.policy = h, &h.lane.policy
		if hedging {
			f.attempts++
			f.lane.retries.retried(now)
		} else {
			h.lane.stats.attempts.Add(1)
		}
		s.wakeWaiterLocked(w, sigGranted)
		return
	}
	f.state = flightRunning
	f.attempts++
	f.at = f.newAttempt(h)
	if !f.lone && f.attemptTimeout > 0 {
		s.alarmLocked(f, now.add(f.attemptTimeout))
	} else {
		s.silenceLocked(f)
	}
	f.at.waited = waited
	if f.attempts > 1 {
		f.lane.retries.retried(now)
	}
	s.wakeLocked(f, sigGranted)
}

// hedgesLocked tells the waiter of a hedge.
func (w *waiter) hedgesLocked() bool {
	m := w.f.more
	return m != nil && m.hedge != nil && w == &m.hedge.wait
}

// activateLocked counts an attempt as running.
func (s *Scheduler) activateLocked(h *hold) {
	s.alive.Add(1)
	h.active = true
	s.running++
	h.lane.running++
	h.owner.running++
	h.owner.started++
}

// refuseWaiterLocked ends the wait of a task or of a hop.
func (s *Scheduler) refuseWaiterLocked(w *waiter, err error, now instant) {
	if w.kind == waitGhost {
		s.exorciseLocked(w.f.more.ghost, now)
		return
	}
	if w.at == nil {
		s.refuseLocked(w.f, w.f.refusalOp(), err, now)
		return
	}
	s.dropLocked(w, now)
	w.at.extras().refused = err
	s.wakeWaiterLocked(w, sigRefused)
}

// wakeWaiterLocked sends on the attempt that waits for a hop.
func (s *Scheduler) wakeWaiterLocked(w *waiter, sig signal) {
	ready := w.ready
	s.later(func() { ready <- sig }) // has room: one signal for each wait
}

// dispatchNestedLocked starts what waits for tokens alone.
func (s *Scheduler) dispatchNestedLocked(now instant) {
	for l := range s.nesting {
		s.tickLaneLocked(l, now)
		l.nestedAt = s.dispatchTokensLocked(l, now)
		s.fixLaneLocked(l, now)
	}
}

// dispatchTokensLocked starts the nested waiters of l in order of rank as far
// as tokens go. One whose owner has none lets the next one pass.
func (s *Scheduler) dispatchTokensLocked(l *lane, now instant) (wake instant) {
	wake = never
	for _, w := range inOrder(&l.nested) {
		if err := s.tokensRefusedLocked(w, now); err != nil {
			s.refuseWaiterLocked(w, err, now)
		} else if t := s.tokensAt(w, now); t > now {
			wake = min(wake, t)
		} else if !s.startTokensLocked(w, now) {
			wake = min(wake, max(s.tokensAt(w, now), now+1)) // somebody who needs no mutex was faster
		}
	}
	return wake
}

// inOrder is what waits in h, best first.
func inOrder(h *heap[*waiter]) []*waiter {
	all := make([]*waiter, 0, h.len())
	h.each(func(_ rank, n *heapNode[*waiter]) bool { all = append(all, n.item); return true })
	slices.SortFunc(all, byRank)
	return all
}

func byRank(a, b *waiter) int {
	switch {
	case a.f.rank.before(b.f.rank):
		return -1
	case b.f.rank.before(a.f.rank):
		return 1
	}
	return 0
}

// tokensAt is when time lets w start: pause and rates, no gate.
func (s *Scheduler) tokensAt(w *waiter, now instant) instant {
	t := max(now, w.lane.rates.next(now), s.rates.next(now), w.owner.rates.next(now))
	if !w.staysLocked() { // a hop in its own lane waits only for a token
		t = max(t, w.lane.until)
	}
	return t
}

// tokensRefusedLocked is why a nested task may wait no longer; a hop may.
func (s *Scheduler) tokensRefusedLocked(w *waiter, now instant) error {
	if w.staysLocked() {
		return nil
	}
	if err := s.nestingLocked(w.lane, w.f.outer, now); err != nil {
		return err
	}
	return s.turnLocked(w, now)
}

// staysLocked tells a hop within its lane: it still holds all but a token.
func (w *waiter) staysLocked() bool { return w.at != nil && w.at.hold.lane == w.lane }

// startTokensLocked starts a nested attempt, or sends a hop on.
func (s *Scheduler) startTokensLocked(w *waiter, now instant) bool {
	if w.staysLocked() {
		if !s.takeTokensLocked(&w.at.hold, now) {
			return false
		}
		s.dropLocked(w, now)
		w.f.waited += now.sub(w.since)
		s.wakeWaiterLocked(w, sigGranted)
		return true
	}
	h := hold{lane: w.lane, owner: w.owner}
	if !s.takeTokensLocked(&h, now) {
		return false
	}
	if w.lane.brk != nil && w.f.outer.hold.lane != w.lane {
		h.judged, h.permit = true, w.lane.brk.begin(now)
	}
	s.startLocked(w, h, now)
	s.fixOwnerLocked(w.owner, now)
	return true
}

// tickLaneLocked lets time change a lane's breaker and pause, and tells it.
func (s *Scheduler) tickLaneLocked(l *lane, now instant) {
	if l.brk != nil {
		l.brk.tick(now)
		s.breakerMovedLocked(l, now)
	}
	if l.paused && l.until <= now && !l.held {
		s.pauseOverLocked(l, now)
	}
}

// pauseOverLocked ends a pause of l.
func (s *Scheduler) pauseOverLocked(l *lane, now instant) {
	l.paused = false
	s.laneEventLocked(l.name, Event{Kind: EventLaneResumed}, now)
	l.spread = newSpread(now, l.rates.rates(), l.full())
}

// pauseLocked closes l until t: its server asked for it, by what why says.
func (s *Scheduler) pauseLocked(l *lane, t instant, why string, now instant) {
	if t <= l.until || t <= now {
		return
	}
	l.until = t
	l.paused = true
	s.laneEventLocked(l.name, Event{Kind: EventLanePaused, Delay: t.sub(now), Reason: why}, now)
	s.tellPauser(l.name, t)
	s.strandLocked(l, now)
	s.fixLaneLocked(l, now)
}
