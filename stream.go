package ax

import (
	"context"
	"net/http"
	"time"
)

// streams tells whether a body goes to its reader as it arrives.
func (f *flight) streams(resp *http.Response) bool {
	if f.task.r.Stream || isStream(resp) {
		return true
	}
	return f.single && resp.ContentLength < 0 && resp.Body != http.NoBody && !f.isShared()
}

// isShared tells whether more than one caller waits for the answer.
func (f *flight) isShared() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.callers.len() > 1
}

// patience is how long a body of unknown length may take before those who share
// it go ways of their own: through Transport() its reader may expect it to come
// in pieces.
func (f *flight) patience(resp *http.Response) time.Duration {
	if f.single && resp.ContentLength < 0 {
		return time.Second
	}
	return 0
}

// openStream lets the attempt go on until its body ends: the permit is held, the
// attempt's own time no longer runs, IdleTimeout does.
func (f *flight) openStream(at *attempt, out *outcome) {
	s := f.s // the stream must not know the flight: its caller would never be forgotten
	at.setDeadline(never)
	at.answer = nil // who holds the body hides that it was forgotten
	out.stream = true
	stream, body := newStreamBody(out.resp.Body, streamOptions{
		idle:   at.policy.idleTimeout,
		onEnd:  func(error) { s.streamEnded(at) },
		cancel: at.abort,
		log:    s.log,
		method: f.task.Method(),
		url:    f.task.redactedURL(),
	})
	at.extras().stream = stream
	out.resp.Body = body
	if stream.upgraded {
		at.freeOfCaller()
	}
	at.AfterFunc(func() { // whoever ends the attempt ends the stream, read or not
		err, cause := at.ending()
		stream.abort(joinCause(err, cause))
	})
}

// freeOfCaller lets an attempt outlive the caller's ctx: as with net/http, that
// bounds the making of an upgraded connection, not its use. Close, and whatever
// else ends the attempt, still do.
func (a *attempt) freeOfCaller() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound = boundNobody
	if w := a.watch; w != nil && w.unwatch != nil {
		w.unwatch()
		w.unwatch = nil
	}
}

// abort tears down the connection of an attempt.
func (a *attempt) abort() { a.cancel(context.Canceled, errAttemptOver) }

// streamEnded gives back what the attempt held: its body has been read, closed
// or lost.
func (s *Scheduler) streamEnded(at *attempt) {
	at.finish()
	s.mu.Lock()
	now := s.now()
	s.streams.remove(at)
	s.giveBackLocked(&at.hold, now)
	if m := at.extras(); m.quit != nil {
		s.later(m.quit)
		m.quit = nil
	}
	s.dispatchLocked(now)
	s.unlock()
}

// keepHead keeps as much of an answer as costs little, since another is to come
// in its place: a retry's, a fallback's.
func (f *flight) keepHead(at *attempt, out *outcome) {
	head, whole := drainBody(out.resp, drainBytes, at.abort)
	out.payload = f.keep(out.resp, head)
	out.payload.cut = !whole
}

// keep is an answer in memory. The first of a lone flight has a place already.
func (f *flight) keep(resp *http.Response, body []byte) *payload {
	p := new(payload)
	if f.lone && f.buffers().pay.resp == nil {
		p = &f.buf.pay
	}
	p.resp, p.body = resp, body
	return p
}
