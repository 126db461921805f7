package ax

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"
)

// settle gives the flight its result: the last outcome or the refusal, unless
// a fallback answers instead.
func (f *flight) settle() {
	res := f.result()
	if gone := f.goneResult(); gone != nil && res.kind != EventCanceled {
		f.s.complete(f, gone)
		return
	}
	if f.entered && errors.Is(f.refusal, ErrBudget) {
		f.tell(nil, Event{Kind: EventOverBudget, Err: f.refusal})
	}
	if fb := f.fallbackFor(res); fb != nil {
		res = f.fallBack(fb, res)
		if gone := f.goneResult(); gone != nil && res.source == FromNetwork {
			res = gone
		}
	}
	f.s.complete(f, res)
}

// goneResult is that of a lone caller whose ctx has ended beside an attempt: there
// is nobody else to notice it.
func (f *flight) goneResult() *result {
	if !f.lone || f.fallbackPolicy() == nil || f.values.Err() == nil {
		return nil
	}
	return &result{
		kind: EventCanceled, op: f.settlingOp(), err: ctxError(f.values), attempts: f.attempts, last: f.answer,
	}
}

// waitedInAll is how long a flight that has come to its end was in queues.
func (f *flight) waitedInAll() time.Duration {
	if f.refusal != nil { // at the end of a last wait
		return f.waited
	}
	return f.last().waited
}

// result is what the flight came to without a fallback.
func (f *flight) result() *result {
	res := &f.buffers().res
	*res = result{attempts: f.attempts, waited: f.waitedInAll(), retryIn: f.last().retry.after, last: f.answer}
	if out := f.last(); out.unsent && out.caller {
		res.kind, res.op, res.err = EventCanceled, f.waitOp(), out.err
		return res
	}
	if f.attempts == 0 && f.refusal != nil {
		res.kind, res.op, res.err = EventRejected, f.refusedOp, f.refusal
		res.retryIn = retryHint(f.refusal)
		return res
	}
	out := f.last()
	res.arrived = out.arrived
	res.cause = out.retry.why
	if f.refusal != nil {
		res.cause = f.refusal
	}
	if out.err == nil {
		res.kind, res.payload = EventSucceeded, out.payload
		if out.stream {
			res.stream, res.streamed = f.at, out.resp
		}
		return res
	}
	res.kind, res.op, res.err = EventFailed, opAttempt, out.err
	res.panicked, _ = out.err.(*PanicError)
	if out.caller {
		res.kind = EventCanceled
	}
	if f.refusal != nil && f.refusedOp == opRetry {
		res.op = opRetry
	}
	if late, ok := res.cause.(*lateRetryError); ok {
		res.err = beside(out.err, late.error)
	} else if res.cause != nil {
		res.err = beside(out.err, res.cause)
	}
	return res
}

// waitOp is the Error.Op of an end while waiting.
func (f *flight) waitOp() op {
	if f.attempts > 0 {
		return opRetry
	}
	return opQueue
}

// complete gives all callers their end and lets the flight go, in one critical
// section: who comes after finds either the flight or its kept answer.
func (s *Scheduler) complete(f *flight, res *result) {
	s.mu.Lock()
	now := s.now()
	s.completeLocked(f, res, now)
	s.dispatchLocked(now)
	s.unlock()
}

func (s *Scheduler) completeLocked(f *flight, res *result, now instant) {
	s.unkeyLocked(f)
	if f.state == flightDone {
		s.dropResultLocked(res)
		return
	}
	f.state = flightDone
	if f.ownBody {
		s.laterUser(f.task.closeBody)
	}
	s.unlinkLocked(f)
	if m := f.more; m != nil && m.quit != nil {
		if res.stream != nil && res.source == FromAlternate {
			res.stream.extras().quit = m.quit // the stream is read under it
		} else {
			s.later(m.quit)
		}
	}
	s.keepLocked(f, res, now)
	res.shared = res.shared || f.shownLast || f.callers.len() > 1
	if f.callers.len() > 1 {
		res.panicked = nil
	}
	if res.stream != nil {
		s.handOverLocked(f, res, now)
	} else {
		for c := f.callers.pop(); c != nil; c = f.callers.pop() {
			s.endLocked(c, res, now)
		}
	}
}

// heirLocked takes out the caller who is given the stream: the best-ranked, or, if the
// answer is a failure, the best-ranked of those without a fallback.
func (f *flight) heirLocked(res *result) *caller {
	heir := f.callers.best()
	if res.source == FromNetwork && f.last().failed() && heir.fallsBack() {
		var other *caller
		f.callers.each(func(c *caller) bool {
			if !c.fallsBack() && (other == nil || c.rank.before(other.rank)) {
				other = c
			}
			return true
		})
		heir = cmp.Or(other, heir)
	}
	f.callers.remove(heir)
	return heir
}

// handOverLocked gives a body that is still arriving to the best-ranked caller.
// The others get a request of their own where that is safe.
func (s *Scheduler) handOverLocked(f *flight, res *result, now instant) {
	c := f.heirLocked(res)
	res.shared = false
	at := res.stream
	stream := at.stream()
	if !stream.ended.Load() {
		s.streams.set(at, struct{}{})
	}
	if !f.lone && !stream.upgraded {
		ctx := c.ctx
		s.later(func() { at.bindTo(ctx) })
	}
	s.endLocked(c, res, now)
	at.f, at.express = nil, nil
	s.silenceLocked(f)
	f.buf.alarm = alarm{}
	*f.last() = outcome{} // whoever holds the body hides that its reader has forgotten it
	for c := f.callers.pop(); c != nil; c = f.callers.pop() {
		if m := c.task.Method(); m != http.MethodGet && m != http.MethodHead {
			s.endLocked(c, &result{
				kind: EventFailed, op: opAttempt, attempts: f.attempts,
				err: fmt.Errorf("%w: the shared answer is a stream", ErrNotReplayable),
			}, now)
			continue
		}
		s.sendAloneLocked(f, c, now)
	}
}

// sendAloneLocked gives a caller of f a flight that nobody shares, with the
// rank it has, outside MaxQueue: it has been accepted already.
func (s *Scheduler) sendAloneLocked(f *flight, c *caller, now instant) {
	alone := s.flightAloneLocked(f, c)
	alone.exempt, alone.entered, alone.state = true, true, flightWaiting
	if alone.queueTimeout > 0 {
		s.setAlarmLocked(&c.extras().alarm, c, now.add(alone.queueTimeout))
	}
	s.pushLocked(&alone.wait, now)
	if s.state != lifeOpen {
		if err := s.strandedLocked(alone.lane, now); err != nil {
			s.refuseLocked(alone, opQueue, err, now)
		}
	}
}

// flightAloneLocked makes c, who has left f, the only caller of a new flight: the
// one that it would have had without f.
func (s *Scheduler) flightAloneLocked(f *flight, c *caller) *flight {
	t := f.terms
	if c.joint != nil {
		t = c.joint.terms
	}
	alone := newFlight()
	s.fillLocked(alone, c, c.outer, t, nil)
	alone.lone = false
	if who := f.who(); who != "" {
		alone.extras().who = who
	}
	c.joined = false
	c.f = alone
	alone.callers.add(c)
	s.linkLocked(alone)
	s.fileLocked(alone)
	return alone
}

// dropResultLocked closes what nobody is left to read.
func (s *Scheduler) dropResultLocked(res *result) {
	if res.stream != nil {
		stream := res.stream.stream()
		s.later(func() { stream.abort(context.Canceled) })
	}
}

// endLocked gives c its one end and takes it out of everything that knows it.
func (s *Scheduler) endLocked(c *caller, res *result, now instant) {
	if c.kind != 0 {
		panic("ax: a task ended twice")
	}
	c.kind, c.res, c.f = uint8(res.kind), res, nil
	s.unlistLocked(c, now)
	switch res.kind {
	case EventSucceeded:
		s.count.succeeded.Add(1)
		switch res.source {
		case FromAlternate, FromStale, FromStatic:
			s.count.fallbacks.Add(1)
		}
	case EventFailed:
		s.count.failed.Add(1)
	case EventCanceled:
		s.count.canceled.Add(1)
	default:
		s.count.rejected.Add(1)
	}
	switch {
	case c.call != nil:
		c.call.unwatchLocked()
		s.laterUser(c.call.deliver)
	case c.done != nil:
		s.todo = append(s.todo, todo{done: c.done})
	}
}

// finish is the end of Do, on the caller's goroutine: the event first, then
// the answer that it told.
func (c *caller) finish() (*Response, error) {
	resp, err := c.answer()
	defer c.tellLast(resp, err) // also if Close of the body panics
	if !c.leftBody {
		c.task.closeBody()
	}
	if p := c.res.panicked; p != nil {
		panic(p.Value)
	}
	return resp, err
}

// tellLast tells the terminal event: then the task is over, also if a listener
// ends the goroutine.
func (c *caller) tellLast(resp *Response, err error) {
	defer c.s.aliveLess()
	c.tellEnd(resp, err)
}

// answer builds what Do returns: a response of c's own.
func (c *caller) answer() (*Response, error) {
	res := c.res
	if res.err != nil {
		return nil, c.failure(res)
	}
	both := new(answered)
	r := &both.Response
	r.Source, r.Attempts, r.Waited = res.source, int(res.attempts), c.waited()
	r.Seq, r.Cause = c.seq(), res.cause
	if c.joined && res.source == FromNetwork {
		r.Source = FromFlight
	}
	if r.Source != FromNetwork && r.Source != FromAlternate {
		r.Age = c.s.now().sub(res.arrived)
	}
	if r.Source == FromWindow || r.Source == FromStale || r.Source == FromStatic {
		r.Attempts = 0
	}
	switch {
	case res.stream != nil:
		r.Response = res.streamed
		*res = result{kind: res.kind, attempts: res.attempts} // or it would keep the body from being found forgotten
	case res.payload != nil:
		head := res.payload.head(res.shared, c.ctx)
		if res.shared && (c.joined || res.foreign || r.Source == FromWindow || r.Source == FromStale) {
			dropCookies(head)
		}
		r.Response = res.payload.readBy(&both.body, head, res.shared)
	}
	c.ownRequest(r)
	return r, nil
}

// ownRequest gives the request that an answer tells of the context of c, for that of
// its attempt, or of what was sent in its place, is over. Through Transport the client's
// own request takes its place.
func (c *caller) ownRequest(r *Response) {
	if r.Response == nil || r.Request == nil || c.bare {
		return
	}
	if r.Source == FromAlternate || ofAttempt(r.Request) {
		r.Request = withContext(r.Request, c.ctx)
	}
}

// waited is how long c has been in queues: no longer than it has been there itself.
func (c *caller) waited() time.Duration {
	if !c.joined {
		return c.res.waited
	}
	return min(c.res.waited, c.s.now().sub(c.born))
}

// failure is res as the error of c.
func (c *caller) failure(res *result) *Error {
	e := &Error{
		Op: res.op.String(), Method: c.task.Method(), URL: c.task.redactedURL(), Lane: c.laneName(), Owner: c.ownerName(),
		Attempts: int(res.attempts), RetryAfter: res.retryIn, Err: res.err, bare: c.bare,
	}
	if res.last != nil {
		e.Response = lastAnswer(res.last)
		if c.joined {
			dropCookies(e.Response.Response)
		}
		e.Response.Attempts, e.Response.Seq = e.Attempts, c.seq()
	}
	return e
}

// hintedError is a refusal that knows when asking again makes sense.
type hintedError struct {
	error
	retryIn time.Duration
}

func (h *hintedError) Unwrap() error { return h.error }

func hinted(err error, retryIn time.Duration) error { return &hintedError{err, retryIn} }

// retryHint is when asking again makes sense, as far as err knows; 0 = unknown.
func retryHint(err error) time.Duration {
	if h, ok := errors.AsType[*hintedError](err); ok {
		return h.retryIn
	}
	return 0
}

// flightContext is for what a flight does beside its attempts: the first
// caller's values, ended when nobody wants the flight any more. A lone flight's
// ends with its caller's too.
func (f *flight) flightContext() context.Context {
	if f.more != nil && f.more.beside != nil { // this goroutine's
		return f.more.beside
	}
	from := f.values
	if !f.lone {
		from = context.WithoutCancel(from)
	}
	ctx, cancel := context.WithCancelCause(from) // asks from, which is users' code
	s := f.s
	s.mu.Lock()
	defer s.unlock()
	m := f.extras()
	m.beside, m.quit = ctx, func() { cancel(context.Canceled) }
	if f.state == flightDone {
		s.laterUser(m.quit)
	}
	return ctx
}

// newPanicError is what a recovered panic is turned into, on its goroutine.
func newPanicError(v any) error { return &PanicError{Value: v, Stack: debug.Stack()} }

// endAborted ends a flight whose driver is about to end under it: perhaps on the way
// to another attempt, by a listener. One that has been left behind ends nothing.
func (s *Scheduler) endAborted(f *flight, driver int32, err error) {
	s.mu.Lock()
	if f.buf != nil && f.buf.driver != driver {
		s.unlock()
		return
	}
	now := s.now()
	s.undoLocked(f, now)
	s.completeLocked(f, &result{kind: EventFailed, op: opAttempt, attempts: f.attempts, err: err}, now)
	s.dispatchLocked(now)
	s.unlock()
}

// undoLocked takes back what f waits for, or holds of an attempt that nobody is going
// to begin.
func (s *Scheduler) undoLocked(f *flight, now instant) {
	switch f.state {
	case flightWaiting:
		s.dropLocked(&f.wait, now)
		s.silenceLocked(f)
	case flightResting:
		f.lane.resting--
		s.silenceLocked(f)
	case flightRunning, flightDone:
		if f.at == nil || f.at.hold.lane == nil || !f.at.stage.forestall() {
			return
		}
		s.giveBackLocked(&f.at.hold, now)
		f.hauntedLocked(&outcome{})
		if f.state == flightRunning {
			f.unsendLocked(f.at)
			s.silenceLocked(f)
		}
	case flightSettling:
		if f.last().stream { // which nobody has been given
			s.dropResultLocked(&result{stream: f.at})
			*f.last() = outcome{}
		}
	}
}

// unusable tells what no task can be made of; a body is closed all the same.
func unusable(ctx context.Context, t *Task, w *way) error {
	var err error
	switch {
	case !t.usable():
		return &Error{Op: "admit", Err: errZeroTask, bare: w.single}
	case ctx == nil:
		err = errors.New("ax: nil context; use context.Background()")
	case !t.claim():
		return &Error{Op: "admit", Method: t.Method(), URL: t.redactedURL(), Err: ErrNotReplayable, bare: w.single}
	default:
		err = cmp.Or(w.hints.validate(), hintsOf(ctx).validate())
	}
	if err == nil {
		return nil
	}
	t.closeBody()
	return &Error{Op: "admit", Method: t.Method(), URL: t.redactedURL(), Err: err, bare: w.single}
}
