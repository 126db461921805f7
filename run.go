package ax

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// outcomeKind is what an attempt proves about the server.
type outcomeKind uint8

const (
	outcomeNeutral = outcomeKind(VerdictNeutral)
	outcomeSuccess = outcomeKind(VerdictSuccess)
	outcomeFailure = outcomeKind(VerdictFailure)
)

// outcome is that of one attempt.
type outcome struct {
	kind    outcomeKind
	resp    *http.Response
	payload *payload // its body is in memory, whole or as much as a retry needs
	stream  bool     // its body is still arriving, and holds the permit
	err     error
	final   bool // err is the caller's own, or ax's: no retry
	caller  bool // the caller is gone
	unsent  bool // the executor has not been called
	crashed bool // it has not returned: what it has answered is to be closed
	again   bool // and is to be, with another grant
	took    time.Duration
	waited  time.Duration // of the flight so far
	arrived instant
	retry   retryPlan
}

// status is the answer's, 0 without one.
func (o *outcome) status() int {
	if o.resp == nil {
		return 0
	}
	return o.resp.StatusCode
}

// failed tells whether the task has failed if this is its last outcome: a
// failure or a 429.
func (o *outcome) failed() bool {
	return o.err != nil || o.kind == outcomeFailure || o.status() == http.StatusTooManyRequests
}

// newAttempt is the next attempt of f, holding h.
func (f *flight) newAttempt(h hold) *attempt {
	a := &f.buffers().first
	if a.s != nil {
		a = new(attempt)
	}
	a.s, a.f, a.task, a.values, a.single = f.s, f, f.task, f.values, f.single
	a.n, a.hold, a.limit, a.deadline = f.attempts, h, f.attemptTimeout, never
	a.policy = &f.lane.policy
	if f.outer != nil {
		m := a.extras()
		m.outer, m.depth = f.outer, f.outer.within()
	}
	if f.lone {
		a.bound = boundCaller
	}
	return a
}

// runLone drives a flight on its only caller's goroutine.
func (f *flight) runLone(c *caller) {
	sig, waits := f.entry()
	if waits {
		sig = f.awaitCaller(c)
	}
	f.runFrom(sig, c)
}

// runFrom is runLone from the first signal on.
//
//go:noinline
func (f *flight) runFrom(sig signal, c *caller) {
	await := func() signal { return f.awaitCaller(c) }
	c.through(f, func() { f.drive(sig, await) })
}

// carryOn drives a flight whose first attempt has been made already, up to its
// answer, and ends the task.
func (f *flight) carryOn(c *caller, at *attempt, resp *http.Response, err error) (*Response, error) {
	await := func() signal { return f.awaitCaller(c) }
	c.through(f, func() {
		at, out := f.guard(at, func() (*attempt, outcome) { return at, f.digest(at, resp, err) })
		f.drive(f.after(at, out, await), await)
	})
	return c.finish()
}

// through has c and its flight, if it has one, end also if do does not return: a
// panic or Goexit of the executor goes on through its caller.
func (c *caller) through(f *flight, do func()) {
	returned := false
	defer func() {
		if !returned {
			if f != nil {
				f.s.endAborted(f, 0, errAttemptAborted)
			}
			c.finish()
		}
	}()
	do()
	returned = true
}

// entry is where admission left the flight: it waits, or what it was told.
func (f *flight) entry() (sig signal, waits bool) {
	switch {
	case f.wait.ready != nil:
		return 0, true
	case f.refusal != nil:
		return sigRefused, false
	}
	return sigGranted, false
}

// awaitCaller waits for the next signal or for the end of the caller's ctx. A
// permit granted at that very moment is taken along: the attempt will find its
// context ended and give it back.
func (f *flight) awaitCaller(c *caller) signal {
	select {
	case sig := <-f.wait.ready:
		return sig
	case <-c.ctx.Done():
		c.leave(f)
		return <-f.wait.ready
	}
}

// run drives a flight on a goroutine of its own.
func (f *flight) run(sig signal) {
	roomForExecutor()
	ready := f.wait.ready
	f.onOwnGoroutine(0, func() { f.drive(sig, func() signal { return <-ready }) })
}

// onOwnGoroutine gives all callers an end also if do does not return: beside the
// attempts, users' code runs in fallbacks and OnEvent.
func (f *flight) onOwnGoroutine(driver int32, do func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err := errAttemptAborted
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
		f.s.endAborted(f, driver, err)
	}()
	do()
	returned = true
}

// drive takes the flight from its first signal to its end.
func (f *flight) drive(sig signal, await func() signal) {
	for sig == sigGranted {
		first := f.at
		at, out := f.guard(first, func() (*attempt, outcome) {
			if after, hedged := f.hedgeAfter(); hedged {
				return f.tryHedged(first, after)
			}
			return first, f.try(first)
		})
		sig = f.after(at, out, await)
	}
	if sig == sigRefused {
		f.settle()
	}
}

// closeAnswer closes what an attempt was reading when it did not return.
func (a *attempt) closeAnswer() {
	switch {
	case a.stream() != nil:
		a.stream().abort(errAttemptAborted)
	case a.answer != nil && a.answer.Body != nil:
		a.answer.Body.Close()
	}
}

// after is what follows the outcome of an attempt.
func (f *flight) after(at *attempt, out outcome, await func() signal) signal {
	switch f.s.finishAttempt(f, at, out) {
	case verdictRetry:
		return await()
	case verdictFinal:
		return sigRefused
	}
	return sigOver
}

// guard makes an attempt, or that and a hedge: it returns the one that counts.
// Whatever way the executor leaves (return, panic, Goexit), the permit goes back
// and every caller gets an end. On a lone flight's goroutine, which is its
// caller's, a panic goes on through it.
func (f *flight) guard(first *attempt, do func() (*attempt, outcome)) (at *attempt, out outcome) {
	at = first
	returned := false
	defer func() {
		if returned {
			return
		}
		if !f.lone {
			if v := recover(); v != nil {
				out = outcome{err: newPanicError(v), final: true, crashed: true}
				return // drive goes on with it
			}
		}
		f.crashed(at)
	}()
	at, out = do()
	returned = true
	return at, out
}

// crashed ends a flight whose attempt did not return.
func (f *flight) crashed(at *attempt) {
	if f.s.finishAttempt(f, at, outcome{err: errAttemptAborted, final: true, crashed: true}) == verdictFinal {
		f.settle()
	}
}

// try sends the attempt and reads its answer as far as it is kept in memory.
func (f *flight) try(at *attempt) outcome {
	s := f.s
	if err, cause := at.ending(); err != nil {
		return f.forestalled(at, at.ended(err, cause))
	}
	if at.hold.grant.late() {
		return outcome{err: ErrGrantLost, again: true, unsent: at.stage.forestall()}
	}
	if !f.begin(at) {
		return outcome{err: context.Canceled, final: true, caller: true, unsent: true}
	}
	at.endIfLate() // a listener may have taken its time
	s.sent(at)
	resp, err := f.execute(at)
	return f.digest(at, resp, err)
}

// endIfLate ends an attempt whose grant is no longer good for a start.
func (a *attempt) endIfLate() {
	if a.hold.grant.late() {
		a.cancel(context.Canceled, ErrGrantLost)
	}
}

// forestalled is the outcome of an attempt that ended before it was sent. If its
// grant was lost, it may have another.
func (f *flight) forestalled(at *attempt, out outcome) outcome {
	out.unsent = at.stage.forestall()
	if !out.caller {
		out.arrived = f.s.now()
		f.plan(at, &out)
	}
	return out
}

// digest reads an answer as far as it is kept in memory, and judges it.
func (f *flight) digest(at *attempt, resp *http.Response, err error) outcome {
	s := f.s
	at.endHops()
	at.answer = resp
	out := outcome{resp: resp, arrived: s.now()}
	out.took = out.arrived.sub(at.began)
	switch {
	case err != nil:
		out = at.failedWith(err)
		if refused, ok := errors.AsType[*clientError](err); ok && refused.resp != nil { // by CheckRedirect, which has closed it
			out.payload = f.keep(refused.resp, nil)
			out.payload.cut = refused.resp.ContentLength != 0
		}
	case resp != nil:
		f.receive(at, &out)
	}
	if out.payload == nil || len(out.payload.body) > 0 { // else it took no time to read
		out.took = s.now().sub(at.began)
	}
	f.judge(at, &out)
	if out.err != nil {
		out.arrived = s.now()
		f.plan(at, &out)
	}
	return out
}

// execute is the call of the executor.
func (f *flight) execute(at *attempt) (*http.Response, error) {
	if f.work() != nil {
		return nil, f.work()(at)
	}
	return runExecutor(at, f.s.exec, f.task)
}

// receive reads the body into memory, or leaves it to arrive.
func (f *flight) receive(at *attempt, out *outcome) {
	resp := out.resp
	if end, cause := at.endingAt(out.arrived); end != nil { // deaf to its end, it answered all the same
		resp.Body.Close()
		*out = at.ended(end, cause)
		return
	}
	if f.plan(at, out); out.retry.wanted {
		f.keepHead(at, out)
		return
	}
	spare := (serverError(resp.StatusCode) || resp.StatusCode == http.StatusTooManyRequests) && f.allFallBack()
	switch streams := f.streams(resp); {
	case streams && spare:
		f.keepHead(at, out)
		return
	case streams:
		f.openStream(at, out)
		return
	}
	body, whole, err := buffer(resp, f.s.cfg.MaxBodyBytes, f.patience(resp))
	switch {
	case err != nil:
		*out = at.failedWith(unquoted(err))
	case whole:
		out.payload = f.keep(resp, body)
	case spare:
		f.keepHead(at, out)
	default:
		f.openStream(at, out)
	}
}

// failedWith is the outcome of an attempt that ended in err. Who ended it
// decides what it proves.
func (a *attempt) failedWith(err error) outcome {
	if refused := a.rare().refused; refused != nil {
		return outcome{err: refused, final: true}
	}
	if end, cause := a.ending(); end != nil {
		return a.ended(end, cause)
	}
	if neutral(err) {
		return outcome{err: err, final: true}
	}
	return outcome{kind: outcomeFailure, err: err}
}

// ended is the outcome of an attempt whose context ended first.
func (a *attempt) ended(end, cause error) outcome {
	switch {
	case end == nil:
		panic("ax: the end of an attempt that goes on")
	case errors.Is(cause, errAttemptTimeout):
		return outcome{kind: outcomeFailure, err: &attemptTimeoutError{after: a.limitNow()}}
	case errors.Is(cause, ErrGrantLost):
		return outcome{err: ErrGrantLost}
	}
	return outcome{err: joinCause(end, cause), final: true, caller: true}
}

// judge lets the breaker's own rule say what the outcome proves.
func (f *flight) judge(at *attempt, out *outcome) {
	if out.err == nil {
		out.kind = outcomeSuccess
		if isFailure(out.status(), nil) {
			out.kind = outcomeFailure
		}
	}
	b := at.policy.breaker
	if b == nil || b.IsFailure == nil || out.kind == outcomeNeutral {
		return
	}
	if b.IsFailure(f.outcomeOf(at, out)) {
		out.kind = outcomeFailure
	} else {
		out.kind = outcomeSuccess
	}
}

// outcomeOf is what user callbacks see of an attempt.
func (f *flight) outcomeOf(at *attempt, out *outcome) Outcome {
	o := Outcome{Task: f.task, Attempt: int(at.n), Err: out.err, Took: out.took}
	if out.resp != nil {
		resp := *out.resp
		resp.Body = http.NoBody // it is the caller's
		o.Response = &resp
	}
	return o
}

// attemptDueLocked ends a flight's attempt at its timeout. One that is deaf to
// its context is left to itself a moment later: it keeps its permit until it
// returns, but the flight goes on.
func (s *Scheduler) attemptDueLocked(f *flight, now instant) {
	at := f.at
	if at.hopping() != nil || at.isOver() {
		return // that wait has a bound of its own; or it has just returned
	}
	if t := at.untilDue(); !at.due && t > now { // it was sent later than granted, or not yet, or has been given more time
		if t == never && f.attemptTimeout > 0 {
			t = now.add(f.attemptTimeout)
		}
		s.alarmLocked(f, t)
		return
	}
	if !at.due {
		at.due = true
		s.later(at.timeout)
		s.alarmLocked(f, now.add(deafAfter))
		return
	}
	s.abandonLocked(f, at, now)
}

// deafAfter is how long an executor may take to notice that its context ended.
const deafAfter = 5 * time.Millisecond

var (
	errAttemptTimeout = errors.New("ax: attempt timeout")
	errAttemptOver    = errors.New("ax: attempt is over")
	errAttemptAborted = errors.New("ax: the executor panicked or ended its goroutine")
)

// joinCause is err, with cause beside it where that says more.
func joinCause(err, cause error) error {
	if cause == nil || cause == err || errors.Is(cause, err) {
		if cause != nil {
			return cause
		}
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
