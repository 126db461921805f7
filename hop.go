package ax

import (
	"cmp"
	"context"
	"net/http"
	"time"
)

// singleHop tells an executor that the caller follows redirects itself.
func (a *attempt) singleHop(t *Task) bool { return a.single && t == a.task }

// hop is the executor's question before it follows a redirect: the next request
// takes the lane of its own method and URL. In the same lane the attempt keeps
// what it holds and waits only for a token, ahead of the queue; for another it
// gives everything back first and queues there like a retry.
func (a *attempt) hop(req *http.Request, _ int) (*http.Request, error) {
	return req, a.enter(req)
}

// sends is told whose cookies the client adds to a request of the attempt. If they are
// not those that the task's key has, nobody else is to have the answer.
func (a *attempt) sends(who string) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if f := a.f; f != nil && who != f.who() {
		f.outdated = true
	}
}

// flight is the one that the attempt belongs to, made if there was none; nil once
// that is over.
func (a *attempt) flight() *flight {
	a.s.mu.Lock()
	f, x := a.f, a.express
	a.s.mu.Unlock()
	if f != nil || x == nil {
		return f
	}
	if x.adopt() == nil {
		return nil
	}
	return a.f
}

// enter is hop without its result.
func (a *attempt) enter(req *http.Request) error {
	s := a.s
	f := a.flight() // a hop is more than express tasks give
	hw := &hopWait{waiter: waiter{f: f, at: a, ready: make(chan signal, 1), kind: waitTokens}}
	w := &hw.waiter
	w.node.item = w
	turn := a.hopTurn()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-a.Done():
		return a.joinedEnd()
	}
	err, cause := a.ending()
	s.mu.Lock()
	now := s.now()
	if refused := a.rare().refused; refused != nil && err == nil { // it holds nothing any more
		s.unlock()
		return refused
	}
	if err != nil || a.abandoned || f == nil || f.state == flightDone || a.hold.lane == nil || a.stage.returned() {
		s.unlock()
		return joinCause(cmp.Or(err, context.Canceled), cause)
	}
	left := a.stopTime()
	if s.cfg.DryRun {
		s.unlock()
		a.goOn(now, left)
		return nil
	}
	if f.at == a {
		s.silenceLocked(f)
	}
	from := a.hold.lane
	to := f.lane
	if authority := canonicalAuthority(req.URL.Scheme, req.URL.Host); !f.named || authority != f.task.authority {
		to = s.routeLocked(req.Method, req.URL, authority)
	}
	w.lane, w.owner = to, f.owner
	if to != from {
		s.leaveForLocked(a, w, now)
	}
	if err := s.hopRefusedLocked(a, w, now); err != nil {
		a.extras().refused = err
		s.dispatchLocked(now)
		s.unlock()
		a.goOn(now, left) // the executor may have another way
		return err
	}
	a.extras().hopping, a.extras().stopped = w, left
	s.pushLocked(w, now)
	s.dispatchLocked(now)
	if f.queueTimeout > 0 && w.node.pos != 0 {
		s.setAlarmLocked(&hw.alarm, hw, now.add(f.queueTimeout))
	}
	s.unlock()
	return a.awaitHop(hw, left)
}

// leaveForLocked gives back what the attempt holds of the lane it leaves: the
// redirect is that lane's outcome.
func (s *Scheduler) leaveForLocked(a *attempt, w *waiter, now instant) {
	l := a.hold.lane
	if a.hold.judged {
		a.hold.judged = false
		l.brk.done(now, a.hold.permit, false)
		s.breakerMovedLocked(l, now)
	}
	if a.outer() == nil {
		w.kind = waitRetry
	}
	l.stats.service.record(now.sub(a.began))
	s.giveBackLocked(&a.hold, now)
}

// hopRefusedLocked is why a hop is not even queued.
func (s *Scheduler) hopRefusedLocked(a *attempt, w *waiter, now instant) error {
	l := w.lane
	s.tickLaneLocked(l, now)
	if a.hold.lane == l { // it stays: only a token
		return nil
	}
	if outer := a.outer(); outer != nil {
		return s.nestingLocked(l, outer, now)
	}
	if l.rejects(now) {
		return s.circuitErrorLocked(l, now)
	}
	if s.state != lifeOpen {
		return s.strandedLocked(l, now)
	}
	return nil
}

// awaitHop waits for what the hop needs, on the goroutine of the executor.
func (a *attempt) awaitHop(w *hopWait, left stoppedTime) error {
	s := a.s
	sig := sigOver
	select {
	case sig = <-w.ready:
	case <-a.Done():
	}
	s.mu.Lock()
	now := s.now()
	s.dropLocked(&w.waiter, now)
	s.setAlarmLocked(&w.alarm, w, never)
	a.extras().hopping = nil
	if sig != sigGranted || a.stage.returned() { // or the executor has returned meanwhile
		s.dispatchLocked(now)
		s.unlock()
		a.goOn(now, left)
		if refused := a.rare().refused; refused != nil {
			return refused
		}
		err, cause := a.ending()
		return joinCause(err, cause)
	}
	s.fixOwnerLocked(a.hold.owner, now)
	s.fixLaneLocked(a.hold.lane, now)
	s.dispatchLocked(now)
	late := a.hold.grant.late()
	s.unlock()
	if late {
		a.cancel(context.Canceled, ErrGrantLost)
	}
	a.goOn(now, left)
	s.mu.Lock()
	if !a.stage.returned() { // else its hold is what the end of the attempt gives back
		s.called(&a.hold)
	}
	s.mu.Unlock()
	return nil
}

// endHops has no hop outlive the executor, which may have left one behind.
func (a *attempt) endHops() {
	a.stage.at.Store(attemptReturned) // first: a hop makes extras, then looks at it under the mutex
	if a.more.Load() == nil {
		return
	}
	s := a.s
	s.mu.Lock()
	defer s.unlock()
	if w := a.hopping(); w != nil {
		now := s.now()
		s.dropLocked(w, now)
		a.extras().hopping = nil
		s.timeLocked(a, a.runOn(now, a.extras().stopped))
		s.dispatchLocked(now)
	}
}

// joinedEnd is the end of the attempt as one error.
func (a *attempt) joinedEnd() error { return joinCause(a.ending()) }

// goOn starts the attempt's clock again, with the time that was left.
func (a *attempt) goOn(now instant, left stoppedTime) {
	s := a.s
	s.mu.Lock()
	defer s.unlock()
	if a.stage.returned() {
		return // endHops has seen to it
	}
	s.timeLocked(a, a.beginAgain(now, left))
}

// timeLocked has the flight of an attempt end it at t, if that is whose time it is.
func (s *Scheduler) timeLocked(a *attempt, t instant) {
	f := a.f
	if t != never && a.timedByFlight() && f != nil && f.at == a && !a.abandoned && f.state == flightRunning {
		s.alarmLocked(f, t)
	}
}

// hopTurn is taken by the one hop that is under way.
func (a *attempt) hopTurn() chan struct{} {
	m := a.extras()
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.turn == nil {
		m.turn = make(chan struct{}, 1)
	}
	return m.turn
}

// hopWait is the wait of a redirect hop; QueueTimeout bounds it.
type hopWait struct {
	waiter
	alarm alarm
}

// ringLocked: QueueTimeout has passed.
func (w *hopWait) ringLocked(now instant) {
	if w.node.pos != 0 {
		w.f.s.refuseWaiterLocked(&w.waiter, queueTimeout(now.sub(w.since), w.obstacle(now)), now)
	}
}

// stoppedTime is what was left of an attempt's time, and of how much; 0 = it has no
// limit.
type stoppedTime struct{ left, limit time.Duration }

// stopTime stops the attempt's time while a hop waits: it is no attempt time.
func (a *attempt) stopTime() stoppedTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	deadline := a.deadline
	if deadline == never {
		return stoppedTime{}
	}
	a.setDeadlineLocked(never)
	return stoppedTime{max(deadline.sub(a.s.now()), 1), a.limit}
}
