package ax

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

// fallbackIn is t's own, else that of the lane it is in; nil = none.
func (t *Task) fallbackIn(l *lane) *Fallback {
	switch {
	case t.r.NoFallback:
		return nil
	case t.r.Fallback != nil:
		return t.r.Fallback
	}
	return l.policy.fallback
}

// fallbackPolicy is the first caller's, or if that has none the one of another;
// nil = none. Who has none is not given what it answers: see declineLocked.
func (f *flight) fallbackPolicy() *Fallback {
	if f.work() != nil { // an answer made of thin air has no T for Run
		return nil
	}
	if own := f.task.fallbackIn(f.lane); own != nil {
		return own
	}
	return f.lent.Load()
}

// declinesFallback tells a caller that is to see what became of the request itself.
func (c *caller) declinesFallback() bool { return c.task.fallbackIn(c.lane) == nil }

// declineLocked ends the callers of f that have no fallback with the result that
// there was without one.
func (s *Scheduler) declineLocked(f *flight, own *result, now instant) {
	var all []*caller
	f.callers.each(func(c *caller) bool {
		if c.declinesFallback() {
			all = append(all, c)
		}
		return true
	})
	for _, c := range all {
		f.callers.remove(c)
		s.endLocked(c, own, now)
	}
}

// fallbackFor is what may answer in place of res, or nil.
func (f *flight) fallbackFor(res *result) *Fallback {
	fb := f.fallbackPolicy()
	if fb == nil || res.kind == EventCanceled || res.stream != nil {
		return nil
	}
	if f.attempts > 0 {
		if !f.last().failed() || f.last().final && !answersFinal(f.last().err) {
			return nil
		}
		return fb
	}
	if b, ok := errors.AsType[*budgetError](res.err); ok && b.over != OverFallback {
		return nil
	}
	for _, refusal := range []error{ErrCircuitOpen, ErrQueueFull, ErrEvicted, ErrQueueTimeout, ErrBudget, ErrWouldExceedDeadline} {
		if errors.Is(res.err, refusal) {
			return fb
		}
	}
	return nil
}

// answersFinal tells whether a fallback may stand in for an error that ax made
// itself: a redirect hop that was refused, but not the caller's own fault.
func answersFinal(err error) bool {
	return errors.Is(err, ErrCircuitOpen) || errors.Is(err, ErrQueueTimeout)
}

// fallBack tries the members of fb in turn. When none answers, res stays the
// result and tells what they failed of.
func (f *flight) fallBack(fb *Fallback, res *result) *result {
	cause := res.err // with res.cause in it
	if cause == nil {
		cause = beside(statusErrorOf(res), res.cause)
	}
	var faults []error
	if late := f.attempts == 0 && errors.Is(res.err, ErrWouldExceedDeadline); fb.Alternate != nil && !late {
		got, err := f.alternate(fb.Alternate)
		if err == nil {
			return f.fellBack(got, FromAlternate, cause)
		}
		faults = append(faults, fmt.Errorf("alternate: %w", err))
	}
	if f.s.flightOver(f) {
		return res
	}
	if fb.Stale > 0 {
		if got := f.s.staleFor(f, fb.Stale); got != nil {
			return f.fellBack(got, FromStale, cause)
		}
	}
	if fb.Static != nil {
		got, err := f.static(fb, cause)
		if err == nil {
			return f.fellBack(got, FromStatic, cause)
		}
		faults = append(faults, fmt.Errorf("static: %w", err))
	}
	if len(faults) > 0 {
		joined := errors.Join(faults...)
		if res.err != nil {
			res.err = beside(res.err, joined)
		} else {
			res.cause = errors.Join(res.cause, joined)
		}
	}
	if f.attempts > 0 && res.err != nil {
		res.op = opFallback
	}
	return res
}

// fellBack marks an answer with where it came from and why.
func (f *flight) fellBack(got *result, from Source, cause error) *result {
	got.kind, got.source, got.cause = EventSucceeded, from, cause
	got.waited += f.waitedInAll()
	if c := f.leaderOf(func(c *caller) bool { return !c.declinesFallback() }); c != nil {
		c.tell(Event{Kind: EventFellBack, Source: from, Err: cause})
	}
	return got
}

// alternate sends another task in place of this one, with all that it has of
// its own. Its answer counts unless it has failed too.
func (f *flight) alternate(t *Task) (*result, error) {
	ctx := f.flightContext()
	h := HintsFrom(ctx) // who pays and how urgent it is stays; where it goes is its own
	c, own := f.s.admit(ContextWith(ctx, Hints{Priority: h.Priority, Owner: h.Owner}), t, &way{accepted: true})
	c.goThrough(own)
	got := *c.res // finish forgets a stream
	if _, err := c.finish(); err != nil {
		return nil, err
	}
	if got.payload != nil && (got.payload.resp.StatusCode >= 500 || got.payload.resp.StatusCode == http.StatusTooManyRequests) {
		return nil, beside(statusErrorOf(&got), got.cause)
	}
	return &got, nil
}

// static asks the user's own function for an answer.
func (f *flight) static(fb *Fallback, cause error) (got *result, err error) {
	defer func() {
		if v := recover(); v != nil {
			got, err = nil, newPanicError(v)
		}
	}()
	resp, err := fb.Static(f.flightContext(), f.task, cause)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errNoAnswer
	}
	own := *resp // which may be one for all calls
	own.StatusCode = cmp.Or(own.StatusCode, http.StatusOK)
	if own.Body == nil {
		own.Body = http.NoBody
	}
	if own.Header = own.Header.Clone(); own.Header == nil {
		own.Header = make(http.Header)
	}
	body, _, err := buffer(&own, math.MaxInt64, 0)
	if err != nil {
		return nil, err
	}
	return &result{payload: &payload{resp: &own, body: body}, arrived: f.s.now()}, nil
}

// staleFor is the last good answer to f's key, no older than age.
func (s *Scheduler) staleFor(f *flight, age time.Duration) *result {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := f.staleKey()
	if !ok {
		return nil
	}
	e := s.stale.get(key, s.now())
	if e == nil || s.now().sub(e.stored) > age {
		return nil
	}
	return &result{payload: e.payload, shared: true, arrived: e.stored}
}

// flightOver tells whether nobody wants f any more.
func (s *Scheduler) flightOver(f *flight) bool {
	if f.lone && f.values.Err() != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.state == flightDone
}

// statusErrorOf is an answer as the cause of a fallback.
func statusErrorOf(res *result) error {
	switch {
	case res.payload != nil:
		return statusError(&Response{Response: res.payload.response(true, context.Background())})
	case res.stream != nil:
		return &StatusError{StatusCode: res.streamed.StatusCode, Header: res.streamed.Header.Clone()}
	}
	return errNoAnswer
}
