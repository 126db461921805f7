package ax

import (
	"cmp"
	"context"
	"time"
)

// wants is what the caller wants of the scheduling: the task's word, then its
// context's, then its client's.
func (c *caller) wants(w *way, want *Hints) {
	r := &c.task.r
	want.Priority, want.Lane, want.Owner, want.Tags = r.Priority, r.Lane, r.Owner, r.Tags
	want.AttemptTimeout, want.QueueTimeout, want.NoWait = r.AttemptTimeout, r.QueueTimeout, r.NoWait
	want.fill(hintsOf(c.ctx))
	want.fill(w.hints)
	want.NoRetry = r.NoRetry || want.NoRetry && r.Retry == nil
	want.NoDedupe = r.NoDedupe || want.NoDedupe && !r.Dedupe && r.DedupeKey == ""
}

// admitLocked decides what becomes of a new task, whose flight is f, or made if that
// is nil and nobody shares one with it. It returns the flight that
// will answer it, or nil when the task has been decided at once.
func (s *Scheduler) admitLocked(c *caller, f *flight, want *Hints, w *way, now instant) *flight {
	if !s.arriveLocked(c, want, w, now) {
		return nil
	}
	if err := s.enlistLocked(c, want, w, now); err != nil {
		s.rejectLocked(c, err, now)
		return nil
	}
	name := c.name()
	key, have, kept := s.findLocked(c, want, w, now)
	switch {
	case kept != nil:
		s.endKeptLocked(c, kept, now)
	case have != nil:
		s.joinLocked(have, c, want, now)
	}
	if kept != nil || have != nil {
		s.endOlderLocked(name, c, now)
		return c.f
	}
	if f == nil {
		f = newFlight()
	}
	s.fillLocked(f, c, c.outer, termsOf(want, c.lane), w.run)
	if c.joint != nil {
		c.joint.terms = f.terms
	}
	if w.who != "" {
		f.extras().who = w.who
	}
	if key != nil {
		f.lone = false
		s.keyLocked(f, key)
	}
	c.f = f
	f.callers.add(c)
	s.enterLocked(f, c, want, w, now)
	if f.overBudget {
		c.note(noteOverBudget)
	}
	return f
}

// arriveLocked gives a new task its place: number, lane, owner and rank. False if
// that has been its end.
func (s *Scheduler) arriveLocked(c *caller, want *Hints, w *way, now instant) bool {
	c.rank.seq, c.born = s.seq.Add(1), now // numbered in the order of admission
	if err := s.closedLocked(c.outer, w); err != nil {
		s.rejectLocked(c, err, now)
		return false
	}
	if w.dead != nil {
		s.endLocked(c, c.canceledLocked(w.dead), now)
		return false
	}
	l, err := s.laneLocked(c.task, want.Lane)
	if err != nil {
		s.rejectLocked(c, err, now)
		return false
	}
	c.lane, c.owner = l, s.ownerLocked(want.Owner)
	step := cmp.Or(c.task.r.AgingStep, l.policy.agingStep)
	c.rank = rankOf(c.born, want.Priority, step, c.seq(), s.cfg.StrictPriority)
	return true
}

// closedLocked tells whether a task comes too late. Shutdown lets in what
// accepted tasks need.
func (s *Scheduler) closedLocked(outer *attempt, w *way) error {
	if s.state == lifeClosed || s.state == lifeDraining && outer == nil && !w.accepted {
		return ErrClosed
	}
	return nil
}

// rejectLocked ends a task that is not let in.
func (s *Scheduler) rejectLocked(c *caller, err error, now instant) {
	s.endLocked(c, &result{kind: EventRejected, op: opAdmit, err: err, retryIn: retryHint(err)}, now)
}

// enlistLocked writes c into whatever can end or refuse it: scope, cooldown,
// tags, name. What was written is taken back by endLocked.
func (s *Scheduler) enlistLocked(c *caller, want *Hints, w *way, now instant) error {
	s.startHeartbeatLocked(now)
	if w.scope != nil {
		if err := w.scope.joinLocked(c, w.scopeDead); err != nil {
			return err
		}
	}
	if c.task.r.Cooldown > 0 {
		if err := s.coolLocked(c, want.Owner, now); err != nil {
			return err
		}
	}
	s.labelLocked(c, want, w)
	return nil
}

// labelLocked writes c down under its tags and its name.
func (s *Scheduler) labelLocked(c *caller, want *Hints, w *way) {
	if len(want.Tags) > 0 {
		s.tagLocked(c, want.Tags)
	}
	if name := c.task.r.Supersede; name != "" {
		s.namesOf(w.scope).joinLocked(name, c)
	}
}

// fillLocked makes f the flight that c would need if nobody shared one with it.
func (s *Scheduler) fillLocked(f *flight, c *caller, outer *attempt, t terms, run func(context.Context) error) {
	l, o := c.lane, c.owner
	f.s, f.task, f.lane, f.owner, f.values, f.outer = s, c.task, l, o, c.ctx, outer
	f.wait.f, f.wait.lane, f.wait.owner, f.wait.node.item = f, l, o, &f.wait
	if outer != nil {
		f.wait.kind, f.exempt = waitTokens, true
	}
	f.rank = c.rank
	f.terms = t
	f.single = c.bare
	if run != nil {
		f.extras().work = run
	}
	f.lone = c.call == nil
	if f.hedgePolicy() != nil {
		f.lone = false
		f.extras() // now, under the mutex: two attempts read it
	}
}

// timeoutOf is a task's own time limit, else its lane's; 0 = none.
func timeoutOf(own, lane time.Duration) time.Duration {
	if own != 0 {
		return timeLimit(own)
	}
	return lane
}

// enterLocked lets f wait for its first start, or start, or refuses it. What c
// supersedes goes only if it is not refused.
func (s *Scheduler) enterLocked(f *flight, c *caller, want *Hints, w *way, now instant) {
	s.linkLocked(f)
	s.fileLocked(f)
	aside := s.asideLocked(c, now)
	if err := s.refusalLocked(f, now); err != nil {
		s.refuseLocked(f, opAdmit, err, now)
		s.putBackLocked(aside, now)
		return
	}
	f.state = flightWaiting
	s.pushLocked(&f.wait, now)
	s.dispatchLocked(now)
	if f.state == flightWaiting {
		if err := s.boundLocked(f, want, now); err != nil {
			s.refuseLocked(f, opAdmit, err, now)
		}
		s.dispatchLocked(now) // who was refused or evicted may have been in the way
	}
	if f.refusal != nil {
		s.putBackLocked(aside, now)
	} else {
		s.supersedeLocked(c, aside, now)
	}
	if f.state != flightWaiting {
		return
	}
	f.entered = true
	c.note(noteQueued)
	if c.ev != nil {
		c.ev.reason = f.wait.obstacle(now).name
	}
	if f.queueTimeout > 0 {
		s.setAlarmLocked(&c.extras().alarm, c, now.add(f.queueTimeout))
	}
	if f.lone {
		if f.wait.ready = w.ready; f.wait.ready == nil {
			f.wait.ready = make(chan signal, 1)
		}
	}
}

// refusalLocked is why f is not even queued, or nil.
func (s *Scheduler) refusalLocked(f *flight, now instant) error {
	l := f.lane
	s.tickLaneLocked(l, now)
	if f.outer != nil {
		if err := s.nestingLocked(f.lane, f.outer, now); err != nil {
			return err
		}
	} else {
		if l.rejects(now) {
			return s.circuitErrorLocked(l, now)
		}
		if s.state != lifeOpen {
			if err := s.strandedLocked(l, now); err != nil {
				return err
			}
		}
		if err := s.admitOwnerLocked(f, now); err != nil {
			return err
		}
	}
	return s.deadlineLocked(f, now)
}

// deadlineLocked refuses what cannot start before its last caller's deadline.
func (s *Scheduler) deadlineLocked(f *flight, now instant) error {
	d := f.deadline()
	if d == never {
		return nil
	}
	at, why := f.lane.knownStart(now, f.outer == nil)
	if token := s.rates.next(now); token != never && token > at {
		at, why = token, obstacleRate
	}
	if token := f.owner.rates.next(now); token != never && token > at {
		at, why = token, obstacleOwner
	}
	if d < at {
		return hinted(&deadlineError{left: d.sub(now), earliest: at.sub(now), why: why}, at.sub(now))
	}
	return nil
}

// boundLocked is the word of NoWait and of the queue bounds on a task that has
// to wait.
func (s *Scheduler) boundLocked(f *flight, want *Hints, now instant) error {
	if s.cfg.Governor != nil && f.lane.asks > 0 {
		f.noWait = want.NoWait
		f.lane.noWait = f.lane.noWait || want.NoWait
	} else if want.NoWait {
		return s.wouldWaitLocked(f, now)
	}
	if !f.wait.counted {
		return nil
	}
	l, o := f.lane, f.owner
	if o.limited() && o.maxQueue() > 0 && o.waiting-askedFirst(o.asked, o.inQueue, o.waiting) > o.maxQueue() {
		return s.overLimitLocked(o, "MaxQueue", &f.overBudget, now)
	}
	laneFull := l.maxQueue > 0 && l.waiting-askedFirst(l.asks, l.inQueue, l.waiting) > l.maxQueue // those asked for wait for nothing here
	if !laneFull && (s.maxQueue == 0 || s.waiting <= s.maxQueue || s.waiting-s.askedFirst() <= s.maxQueue) {
		return nil
	}
	if s.cfg.Overflow == OverflowEvict {
		worst := &s.worst
		if laneFull {
			worst = &l.worst
		}
		if _, n, ok := worst.top(); ok && n.item != &f.wait {
			s.refuseLocked(n.item.f, opQueue, ErrEvicted, now)
			return nil
		}
	}
	if laneFull {
		return queueFull(l.name, l.maxQueue)
	}
	return queueFull("", s.maxQueue)
}

// wouldWaitLocked is the word of NoWait on f, and when time alone would let it
// start.
func (s *Scheduler) wouldWaitLocked(f *flight, now instant) error {
	err := wouldWait(f.wait.obstacle(now).name)
	t := max(s.startAt(now), f.lane.startAt(now), f.owner.startAt(now))
	if t == never || t <= now {
		return err
	}
	return hinted(err, t.sub(now))
}

// nestingLocked is whether an attempt inside another may start, now or once
// time frees a token; its gates are its outermost attempt's.
func (s *Scheduler) nestingLocked(l *lane, outer *attempt, now instant) error {
	if l.held || s.held {
		return wouldWait("the end of a Pause, and is nested in an attempt")
	}
	if l.brk == nil || outer.hold.lane == l {
		return nil
	}
	if !l.brk.admits(now) {
		return s.circuitErrorLocked(l, now)
	}
	return nil
}

// strandedLocked is why, while draining, nothing may wait in this lane.
func (s *Scheduler) strandedLocked(l *lane, now instant) error {
	if l.held || s.held || l.until > now {
		return ErrClosed
	}
	if l.brk != nil && !l.brk.admits(now) {
		if l.brk.state() == BreakerOpen {
			return s.circuitErrorLocked(l, now)
		}
	}
	return nil
}

// circuitErrorLocked says which lane's breaker refuses, and for how long.
func (s *Scheduler) circuitErrorLocked(l *lane, now instant) error {
	until, open := l.brk.openUntil()
	switch {
	case l.brk.state() == BreakerHalfOpen && l.brk.freeProbe() < 0:
		return &detailError{ErrCircuitOpen, "circuit breaker of lane %q is half-open, and its probes are out", []any{l.name}}
	case !open:
		return circuitOpen(l.name, 0)
	}
	return hinted(circuitOpen(l.name, until.sub(now)), until.sub(now))
}
