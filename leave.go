package ax

import "sync"

// leave ends c because its ctx has ended. Users' code that runs on the way may end
// this goroutine: c has its end all the same, and what its lone flight was granted in
// that moment is given back.
func (c *caller) leave(lone *flight) {
	s, left := c.s, false
	defer func() {
		if left {
			return
		}
		s.cancelCaller(c, errAttemptAborted)
		if lone != nil && <-lone.wait.ready == sigGranted {
			s.finishAttempt(lone, lone.at, outcome{err: errAttemptAborted, final: true, caller: true, unsent: true})
		}
		c.finish()
	}()
	s.leaveSoon(c)
	left = true
}

// leaveSoon ends c because its ctx has ended, perhaps on another goroutine: where
// thousands leave at once, one of them takes the mutex for many.
func (s *Scheduler) leaveSoon(c *caller) {
	q := &s.leaving
	l := leaver{c, ctxError(c.ctx)} // which is users' code
	q.mu.Lock()
	q.callers = append(q.callers, l)
	if q.busy {
		q.mu.Unlock()
		return
	}
	q.busy = true
	q.mu.Unlock()
	s.leaveQueued()
}

// leaveQueued has those leave who wait for that, and who come meanwhile.
func (s *Scheduler) leaveQueued() {
	q := &s.leaving
	done := false
	defer func() {
		if !done { // users' code has ended the goroutine
			go s.leaveQueued() // ends with the last of them
		}
	}()
	q.mu.Lock()
	for len(q.callers) > 0 {
		n := min(len(q.callers), leaveTogether)
		batch := q.callers[:n:n]
		q.callers = q.callers[n:]
		q.mu.Unlock()
		s.leaveAll(batch)
		q.mu.Lock()
	}
	q.callers, q.busy = nil, false
	q.mu.Unlock()
	done = true
}

// leaveTogether is how many leave in one critical section.
const leaveTogether = 128

func (s *Scheduler) leaveAll(callers []leaver) {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	for _, l := range callers {
		s.leaveLocked(l.c, l.c.canceledLocked(l.why), now)
	}
}

// leaving is the callers whose ctx has ended, on their way out.
type leaving struct {
	mu      sync.Mutex
	busy    bool
	callers []leaver
}

// leaver is one of them, and how its ctx ended.
type leaver struct {
	c   *caller
	why error
}

// cancelCaller ends c for a reason of its own.
func (s *Scheduler) cancelCaller(c *caller, err error) bool {
	s.mu.Lock()
	ended := s.leaveLocked(c, c.canceledLocked(err), s.now())
	s.unlock()
	return ended
}

// unsentFor tells whether the running attempt has not been sent when c leaves; if
// c is the last to do so, it never will be.
func (f *flight) unsentFor(c *caller) bool {
	if f.callers.len() > 1 {
		return !f.at.stage.begun()
	}
	return f.at.stage.forestall()
}

// hedgeUnsentFor is the same of a hedge that has been granted.
func (f *flight) hedgeUnsentFor(c *caller) bool {
	m := f.more
	if m == nil || m.hedge == nil || m.hedge.at.hold.lane == nil {
		return false
	}
	if f.callers.len() > 1 {
		return !m.hedge.at.stage.begun()
	}
	return m.hedge.at.stage.forestall()
}

// canceledLocked is the result of a caller that was made to leave.
func (c *caller) canceledLocked(err error) *result {
	res := &result{kind: EventCanceled, op: opAdmit, err: err}
	if f := c.f; f != nil {
		res.attempts, res.last, res.waited = f.attempts, f.answer, f.waitedAt(c.s.now())
		f.shownLast = f.shownLast || f.answer != nil
		if f.attempts > 0 && f.state != flightRunning {
			res.retryIn = f.last().retry.after
		}
		if f.state == flightRunning && c.kind == 0 && f.hedgeUnsentFor(c) {
			res.attempts--
		}
		switch {
		case f.state == flightRunning && c.kind == 0 && f.unsentFor(c):
			res.attempts--
			res.op = opQueue
			if res.attempts > 0 {
				res.op = opRetry
			}
		case f.state == flightRunning:
			res.op = opAttempt
		case f.state == flightWaiting && f.attempts == 0:
			now := c.s.now()
			res.op = opQueue
			res.err = &leftError{err, now.sub(c.born), f.wait.obstacle(now).name}
		case f.state == flightResting || f.state == flightWaiting:
			res.op = f.waitOp()
		default:
			res.op = f.settlingOp()
		}
	}
	return res
}

// removeLocked takes c out of f; a body that f still sends stays with f.
func (f *flight) removeLocked(c *caller) {
	if f.task == c.task && f.callers.len() > 1 {
		c.leftBody, f.ownBody = true, true
	}
	f.callers.remove(c)
}

// leaveLocked gives c an end of its own; the last to leave ends the flight and
// frees its key, all in this critical section.
func (s *Scheduler) leaveLocked(c *caller, res *result, now instant) bool {
	if c.kind != 0 {
		return false
	}
	f := c.f
	if f != nil {
		f.removeLocked(c)
	}
	s.endLocked(c, res, now)
	if f == nil {
		return true
	}
	if f.callers.len() == 0 {
		s.abortLocked(f, res, now)
		return true
	}
	s.rerankFlightLocked(f, now)
	return true
}
