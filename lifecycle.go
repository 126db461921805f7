package ax

import (
	"context"
)

// Shutdown ends the scheduler's life in order: new tasks are refused with
// ErrClosed, accepted ones are finished with all they need (retries, redirect
// hops, nested calls, alternates, open streams). What a paused lane holds ends
// at once with ErrClosed, what an open breaker holds with ErrCircuitOpen or its
// fallback. When ctx ends first, the rest is cancelled with ErrClosed and ctx's
// error returned, perhaps before the cancelled attempts have ended: Close waits for
// them. It may be called often, together with Close; after Close it returns nil. Do
// not call it from OnEvent: it may wait for the very task that tells the event.
func (s *Scheduler) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.state == lifeOpen {
		s.state = lifeDraining
		s.specialLocked()
		now := s.now()
		for _, l := range s.lanes.m {
			s.strandLocked(l, now)
		}
		s.strandRestingLocked(now)
		s.dispatchLocked(now)
	}
	idle := s.idleLocked()
	s.unlock()
	select {
	case <-idle:
		s.end()
		return nil
	default:
	}
	select {
	case <-idle:
		s.end()
		return nil
	case <-ctx.Done():
		s.end()
		return ctx.Err()
	}
}

// Close cancels everything unfinished with ErrClosed, open streams too, and
// waits until all of it has ended: an executor deaf to its context keeps it
// waiting. It may be called often; it returns nil. Do not call it from OnEvent.
func (s *Scheduler) Close() error {
	s.end()
	s.mu.Lock()
	idle := s.idleLocked()
	s.unlock()
	<-idle
	return nil
}

// end cancels whatever is left.
func (s *Scheduler) end() {
	s.mu.Lock()
	if s.state == lifeClosed {
		s.unlock()
		return
	}
	s.state = lifeClosed
	s.specialLocked()
	s.gate.guard(true)
	now := s.now()
	for f := s.unfinished; f != nil; f = s.unfinished {
		c := f.callers.best()
		s.leaveLocked(c, c.canceledLocked(canceled(ErrClosed, nil)), now)
	}
	for at := range s.streams.m {
		s.later(func() { at.cancel(context.Canceled, ErrClosed) })
	}
	s.endOf()
	s.later(s.watching.end)
	s.setAlarmLocked(&s.beat.alarm, &s.beat, never)
	for _, l := range s.lanes.m {
		s.layGhostsLocked(l, now)
	}
	s.window.clear()
	s.stale.clear()
	if x, ok := s.exec.(*httpExecutor); ok {
		s.later(x.closeIdle)
	}
	s.unlock()
}

// idleLocked is closed when nothing is alive any more.
func (s *Scheduler) idleLocked() <-chan struct{} {
	if s.idle == nil {
		s.idle = make(chan struct{})
		if s.isIdle() {
			close(s.idle)
		}
	}
	return s.idle
}

// isIdle tells, under the mutex, that nothing is alive: neither what the mutex
// knows, nor express tasks.
func (s *Scheduler) isIdle() bool { return s.alive.Load() == 0 && s.gate.active() == s.slots }

// specialLocked sets whether the scheduler as a whole asks for more than express
// tasks give.
func (s *Scheduler) specialLocked() {
	s.special.Store(s.state != lifeOpen || s.held || s.cfg.DryRun || s.cfg.Governor != nil ||
		s.cfg.Heartbeat > 0)
	if s.special.Load() {
		s.gate.guard(true)
	}
}

// aliveLess ends one task, attempt or ask.
func (s *Scheduler) aliveLess() {
	if s.alive.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	s.idleCheckLocked()
	s.unlock()
}

// aliveLessLocked is aliveLess in a critical section.
func (s *Scheduler) aliveLessLocked() {
	if s.alive.Add(-1) == 0 {
		s.idleCheckLocked()
	}
}

// idleCheckLocked tells who waits for the end that it has come. New tasks may
// have come since; with an open scheduler nobody waits.
func (s *Scheduler) idleCheckLocked() {
	if s.idle == nil || !s.isIdle() {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// strandLocked ends, while draining, what l would hold for too long.
func (s *Scheduler) strandLocked(l *lane, now instant) {
	if s.state == lifeOpen {
		return
	}
	if err := s.strandedLocked(l, now); err != nil {
		s.refuseLaneLocked(l, err, now)
	}
}

// strandRestingLocked ends, while draining, each backoff behind a Pause: nobody may wait
// for the end of that.
func (s *Scheduler) strandRestingLocked(now instant) {
	if s.state == lifeOpen {
		return
	}
	for f := s.unfinished; f != nil; f = f.next {
		if f.state == flightResting && (f.lane.held || s.held) {
			s.refuseLocked(f, opRetry, ErrClosed, now)
		}
	}
}

// refuseLaneLocked ends the wait of everything in l, retries included, but for the hops
// of attempts that run there: those wait for no more than a token (L6).
func (s *Scheduler) refuseLaneLocked(l *lane, err error, now instant) {
	for _, w := range l.waiters() {
		if w.node.pos != 0 && !w.staysLocked() {
			s.refuseWaiterLocked(w, err, now)
		}
	}
}

// breakerMovedLocked tells the transitions of l's breaker, in their order. An
// open breaker that rejects ends what waits.
func (s *Scheduler) breakerMovedLocked(l *lane, now instant) {
	if moves := l.brk.takeMoves(); len(moves) > 0 { // seldom, and it needs much of a stack
		s.tellMovesLocked(l, moves, now)
	}
}

func (s *Scheduler) tellMovesLocked(l *lane, moves []BreakerState, now instant) {
	for _, state := range moves {
		l.stats.seen.breakerMoved(state)
		e := Event{Kind: breakerEvents[state]}
		if until, open := l.brk.openUntil(); state == BreakerOpen && open {
			e.Delay = until.sub(now)
			s.tellPauser(l.name, until)
		}
		switch state {
		case BreakerOpen:
			e.Reason = l.brk.openedBy(now)
		case BreakerRamping:
			e.Delay = l.policy.breaker.Ramp
		}
		s.laneEventLocked(l.name, e, now)
		if state == BreakerOpen {
			if l.policy.breaker.WhenOpen == OpenReject {
				s.refuseLaneLocked(l, s.circuitErrorLocked(l, now), now)
			}
			s.strandLocked(l, now)
		}
	}
	s.fixLaneLocked(l, now) // what it now lets start has to be seen, or to be woken for
}

var breakerEvents = [...]EventKind{
	BreakerClosed: EventBreakerClosed, BreakerOpen: EventBreakerOpened,
	BreakerHalfOpen: EventBreakerHalfOpen, BreakerRamping: EventBreakerRamping,
}

// tellPauser lets the other processes know of a pause, once the mutex is free.
func (s *Scheduler) tellPauser(lane string, until instant) {
	if p, ok := s.cfg.Governor.(Pauser); ok && !s.cfg.DryRun {
		wall := s.wall(until)
		s.laterUser(func() { p.PauseUntil(lane, wall) })
	}
}
