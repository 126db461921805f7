package ax

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// verdict is what follows an attempt.
type verdict uint8

const (
	verdictFinal verdict = iota // its outcome is the flight's
	verdictRetry                // the flight is in backoff
	verdictGone                 // nobody waits for it any more
)

// retryPlan is what the policy says about one outcome.
type retryPlan struct {
	wanted bool
	early  bool // refused before the body was read: to be judged again
	delay  time.Duration
	after  time.Duration // Retry-After, 0 = none
	why    error         // why there will be no retry, where that is worth saying
}

// retryPolicy is the task's own, else the lane's; nil = no retries.
func (f *flight) retryPolicy() *Retry {
	switch {
	case f.noRetry:
		return nil
	case f.task.r.Retry != nil:
		p := f.task.r.Retry.resolved()
		return &p
	}
	return f.lane.policy.retry
}

// plan asks the policy whether and when there is another attempt: on the
// flight's goroutine, since the policy may be the user's.
func (f *flight) plan(at *attempt, out *outcome) {
	out.retry = retryPlan{}
	p := f.retryPolicy()
	if out.resp != nil {
		if after, ok := retryAfter(out.resp.Header, f.s.wall(out.arrived)); ok {
			out.retry.after = after
		}
	}
	if p == nil || out.final || out.stream || !f.worth(p, at, out) {
		return
	}
	t := f.task
	if !t.idempotent() && !p.Unsafe && !notSent(out.err) {
		return
	}
	if !t.replayable() {
		out.retry.why = ErrNotReplayable
		return
	}
	if int(at.n) > p.Max {
		return
	}
	f.schedule(p, at, out)
}

// worth is whether another attempt could do better.
func (f *flight) worth(p *Retry, at *attempt, out *outcome) bool {
	if out.err == ErrGrantLost {
		return true
	}
	if p.If != nil {
		return p.If(f.outcomeOf(at, out))
	}
	return worthRetrying(out.status(), out.err)
}

// schedule sets the delay, or says that it would be too long.
func (f *flight) schedule(p *Retry, at *attempt, out *outcome) {
	r := &out.retry
	r.delay = max(p.delay(int(at.n)-1, rand.Float64), r.after)
	if r.delay > p.MaxDelay {
		r.why = fmt.Errorf("ax: Retry-After of %v is over Retry.MaxDelay %v", r.after, p.MaxDelay)
		return
	}
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !out.unsent && !at.hold.permit.probe { // what is known already spares the body
		r.why = s.retryRefusedLocked(f, out, s.now())
	} else {
		r.why = f.lateRetryLocked(out)
	}
	r.wanted, r.early = r.why == nil, r.why != nil
}

// lateRetryLocked is why a retry would come too late for all of f's callers.
func (f *flight) lateRetryLocked(out *outcome) error {
	if d := f.deadline(); d != never && out.arrived.add(out.retry.delay) >= d {
		return &lateRetryError{&detailError{ErrWouldExceedDeadline,
			"deadline passes before the earliest possible start: the next attempt is due in %v", []any{out.retry.delay}}}
	}
	return nil
}

// lateRetryError is ErrWouldExceedDeadline of a retry, and context.DeadlineExceeded
// but where it stands beside the attempt's own error: time has not run out then.
type lateRetryError struct{ error }

func (e *lateRetryError) Unwrap() []error { return []error{e.error, context.DeadlineExceeded} }

// retryRefusedLocked is why ax itself would not send another attempt after out, as
// far as is known; all of it once breaker and lane have heard of out.
func (s *Scheduler) retryRefusedLocked(f *flight, out *outcome, now instant) error {
	if err := f.lateRetryLocked(out); err != nil {
		return err
	}
	if s.state != lifeOpen && (f.lane.held || s.held) {
		return ErrClosed
	}
	l, at := f.lane, out.arrived.add(out.retry.delay) // the budget is judged when the retry is to be sent: more first attempts may count then
	if f.outer == nil && l.rejects(now) {
		if until, open := l.brk.openUntil(); !open || until > at {
			return s.circuitErrorLocked(l, now)
		}
	}
	return s.deadlineLocked(f, now)
}

// retryBudgetLocked is whether the lane's retries leave room for one more then.
func (s *Scheduler) retryBudgetLocked(f *flight, at instant) error {
	ratio := f.retryRatio()
	if f.lane.retries.allow(at, ratio) {
		return nil
	}
	return &detailError{ErrRetryBudget, "retry budget of lane %q is used up: at most %g of its first attempts in 10s, or 3", []any{f.lane.name, ratio}}
}

// retryRatio is the retries allowed for each first attempt.
func (f *flight) retryRatio() float64 {
	if p := f.retryPolicy(); p != nil {
		return p.Budget
	}
	return defaultRetryBudget
}

// finishAttempt takes the outcome of an attempt: gives its permit back or hands
// it to the stream, tells the breaker, heeds what the server asked for, and
// decides what follows.
func (s *Scheduler) finishAttempt(f *flight, at *attempt, out outcome) verdict {
	if !out.stream {
		at.finish()
	}
	s.spareBuffers()
	wrote := wrote(at, &out) // hashed before the mutex is taken
	s.mu.Lock()
	now := s.now()
	gone := at.abandoned
	v := verdictGone
	s.wroteLocked(f, wrote)
	if out.unsent {
		f.unsendLocked(at)
	}
	if !gone {
		s.recordLocked(at, &out, now)
		if out.unsent {
			s.giveBackLocked(&at.hold, now) // first: a retry may have its tokens
		}
		f.hauntedLocked(&out)
		s.heedLocked(at, &out, now)
		v = s.nextLocked(f, &out, now)
		if !out.again || v != verdictRetry {
			*f.last() = out
		}
	}
	if out.crashed {
		s.laterUser(at.closeAnswer)
	}
	if v == verdictGone && out.stream {
		s.later(func() { at.stream().abort(context.Canceled) })
	} else if !out.stream {
		s.giveBackLocked(&at.hold, now)
	}
	if v == verdictFinal && out.err == nil && !s.heard() && (!out.failed() || !f.someFallBackLocked()) {
		s.completeLocked(f, f.result(), now) // nothing to tell or to do in between
		v = verdictGone
	}
	s.dispatchLocked(now)
	s.unlock()
	if !gone && !out.unsent {
		f.tellOutcome(at, &out, v)
	}
	return v
}

// unsendLocked takes back the count of an attempt that was not sent.
func (f *flight) unsendLocked(at *attempt) {
	f.attempts--
	if at.n > 1 {
		f.lane.retries.unretried()
	}
}

// recordLocked tells breaker and statistics what the attempt came to.
func (s *Scheduler) recordLocked(at *attempt, out *outcome, now instant) {
	h := &at.hold
	l := h.lane
	if l == nil {
		return
	}
	if out.kind != outcomeNeutral {
		l.stats.seen.attempt(now, &l.stats.service, at.sample(out))
		l.stats.service.record(out.took)
		if out.kind == outcomeFailure {
			l.stats.failures++
		}
	}
	if !h.judged {
		return
	}
	h.judged = false
	l.foldLocked(now)
	if out.kind == outcomeNeutral {
		l.brk.abandon(now, h.permit)
		s.breakerMovedLocked(l, now)
		return
	}
	failed := out.kind == outcomeFailure
	if slow := l.policy.breaker.SlowCall; slow > 0 && out.took > slow {
		failed = true
	}
	l.brk.done(now, h.permit, failed)
	s.breakerMovedLocked(l, now)
}

// sample is out as the lane remembers it for Advice. A hedge follows no failure.
func (a *attempt) sample(out *outcome) sample {
	_, timedOut := out.err.(*attemptTimeoutError)
	return sample{
		kind: out.kind, status: out.status(), took: out.took, timedOut: timedOut,
		retry: a.n > 1 && a.n <= a.f.attempts, mark: a.hold.mark,
	}
}

// heedLocked does what the server asked for: a pause of its lane.
func (s *Scheduler) heedLocked(at *attempt, out *outcome, now instant) {
	l := at.hold.lane
	if l == nil || out.resp == nil {
		return
	}
	longest := 30 * time.Second
	if p := cmp.Or(at.f.retryPolicy(), l.policy.retry); p != nil {
		longest = p.MaxDelay
	}
	var pause time.Duration
	why := "Retry-After"
	switch out.status() {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		pause = out.retry.after
	}
	if reset, _ := quotaReset(out.resp.Header, s.wall(now)); reset > pause {
		pause, why = reset, "no quota left until its reset"
	}
	if pause > 0 {
		s.pauseLocked(l, out.arrived.add(min(pause, longest)), why, now)
	}
}

// nextLocked decides whether the flight goes on.
func (s *Scheduler) nextLocked(f *flight, out *outcome, now instant) verdict {
	s.silenceLocked(f)
	if f.state != flightRunning {
		return verdictGone
	}
	if (out.retry.wanted || out.retry.early) && !out.stream {
		out.retry.why = s.retryRefusedLocked(f, out, now)
		out.retry.wanted = out.retry.why == nil
	}
	out.waited = f.waited
	if out.payload != nil {
		f.answer = out.payload
	}
	if !out.retry.wanted && !out.again {
		f.state = flightSettling
		return verdictFinal
	}
	if f.wait.ready == nil {
		f.wait.ready = make(chan signal, 1)
	}
	f.buffers().sealed = false
	if out.again {
		s.standLocked(f, now)
		return verdictRetry
	}
	f.state = flightResting
	f.lane.resting++
	s.alarmLocked(f, now.add(out.retry.delay))
	return verdictRetry
}

// requeueLocked ends a backoff: the flight waits for its next permit, with the
// rank it always had.
func (s *Scheduler) requeueLocked(f *flight, now instant) {
	f.lane.resting--
	if f.outer == nil {
		f.wait.kind = waitRetry
	}
	s.standLocked(f, now)
}

// standRefusedLocked is why f need not wait for a permit once more.
func (s *Scheduler) standRefusedLocked(f *flight, now instant) error {
	if f.outer == nil && f.lane.rejects(now) {
		return s.circuitErrorLocked(f.lane, now)
	}
	if err := s.deadlineLocked(f, now); err != nil || s.state == lifeOpen {
		return err
	}
	return s.strandedLocked(f.lane, now)
}

// standLocked lets f wait for a permit once more.
func (s *Scheduler) standLocked(f *flight, now instant) {
	f.state = flightWaiting
	if err := s.standRefusedLocked(f, now); err != nil {
		s.pushLocked(&f.wait, now)
		s.refuseLocked(f, f.waitOp(), err, now)
		return
	}
	if f.queueTimeout > 0 {
		s.alarmLocked(f, now.add(f.queueTimeout))
	}
	s.pushLocked(&f.wait, now)
}

// abandonLocked leaves an attempt that does not notice its end to itself: it
// keeps its permit until it returns, the flight goes on without it.
func (s *Scheduler) abandonLocked(f *flight, at *attempt, now instant) {
	at.abandoned = true
	err, cause := at.ending()
	out := at.ended(err, cause)
	out.arrived = now
	out.took = at.lasted(now)
	f.buf.driver++
	driver := f.buf.driver
	s.later(func() { go f.goOn(at, out, driver) }) // ends with the flight; Close waits for it
}

// goOn drives a flight whose attempt was abandoned.
func (f *flight) goOn(at *attempt, out outcome, driver int32) {
	f.onOwnGoroutine(driver, func() { f.goOnWithout(at, out) })
}

func (f *flight) goOnWithout(at *attempt, out outcome) {
	s := f.s
	stand := &attempt{s: s, f: f, task: f.task} // at is its executor's
	_, out = f.guard(stand, func() (*attempt, outcome) {
		f.judge(at, &out)
		f.plan(at, &out)
		return stand, out
	})
	s.mu.Lock()
	now := s.now()
	s.recordLocked(at, &out, now)
	f.hauntedLocked(&out)
	if l := at.hold.lane; l != nil { // a probe may be free, though the slot is not
		s.fixLaneLocked(l, now)
	}
	v := s.nextLocked(f, &out, now)
	*f.last() = out
	ready := make(chan signal, 1) // the old one is the abandoned goroutine's
	f.wait.ready = ready
	s.dispatchLocked(now)
	s.unlock()
	f.tellOutcome(at, &out, v)
	switch v {
	case verdictRetry:
		f.drive(<-ready, func() signal { return <-ready })
	case verdictFinal:
		f.settle()
	}
}
