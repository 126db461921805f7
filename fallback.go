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

// fallsBack tells whether a fallback may answer c.
func (c *caller) fallsBack() bool { return c.task.fallbackIn(c.lane) != nil }

// fallbackPolicy is that of f's first caller, wherever he is; nil = none. Run has none:
// what a fallback answers is no T.
func (f *flight) fallbackPolicy() *Fallback {
	if f.work() != nil {
		return nil
	}
	return f.task.fallbackIn(f.lane)
}

// allFallBack tells whether nobody is to see the outcome itself if a fallback answers.
// Then nobody may join any more who would.
func (f *flight) allFallBack() bool {
	if f.lone || f.work() != nil {
		return f.fallbackPolicy() != nil
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	all := true
	f.callers.each(func(c *caller) bool { all = c.fallsBack(); return all })
	f.buf.sealed = f.buf.sealed || all
	return all
}

// someFallBackLocked tells whether there is anybody for whom a fallback may answer.
func (f *flight) someFallBackLocked() (some bool) {
	if f.work() == nil {
		f.callers.each(func(c *caller) bool { some = c.fallsBack(); return !some })
	}
	return some
}

// partLocked ends the callers of f that have no fallback with res, at once. It returns
// the fallback for the others: the first caller's, else that of the best-ranked; nil if
// nobody is left.
func (s *Scheduler) partLocked(f *flight, res *result, now instant) (fb *Fallback) {
	var parting []*caller
	var best *caller
	f.callers.each(func(c *caller) bool {
		switch {
		case !c.fallsBack():
			parting = append(parting, c)
		case best == nil || c.task == f.task || best.task != f.task && c.rank.before(best.rank):
			best = c
		}
		return true
	})
	if best == nil {
		return nil
	}
	if len(parting) > 0 {
		own := *res // the fallback may add to it what it failed of
		own.shared, own.panicked = true, nil
		for _, c := range parting {
			f.removeLocked(c)
			s.endLocked(c, &own, now)
		}
		res.shared = true
	}
	return best.task.fallbackIn(best.lane)
}

// fallbackFor is what may answer in place of res, or nil.
func (f *flight) fallbackFor(res *result) *Fallback {
	if !f.mayFallBack(res) {
		return nil
	}
	f.s.mu.Lock()
	defer f.s.unlock()
	fb := f.fallbackPolicy()
	if !f.lone {
		fb = f.s.partLocked(f, res, f.s.now())
	}
	f.buffers().standIn = fb != nil
	return fb
}

// mayFallBack tells whether res is one that a fallback may stand in for.
func (f *flight) mayFallBack(res *result) bool {
	if f.s.cfg.DryRun || f.work() != nil || res.kind == EventCanceled || res.stream != nil {
		return false
	}
	if f.attempts > 0 {
		return f.last().failed() && (!f.last().final || answersFinal(f.last().err))
	}
	if b, ok := errors.AsType[*budgetError](res.err); ok && b.over != OverFallback {
		return false
	}
	for _, refusal := range []error{ErrCircuitOpen, ErrQueueFull, ErrEvicted, ErrQueueTimeout, ErrBudget, ErrWouldExceedDeadline} {
		if errors.Is(res.err, refusal) {
			return true
		}
	}
	return false
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
	f.tell(nil, Event{Kind: EventFellBack, Attempt: int(f.attempts), Source: from, Err: cause})
	return got
}

// alternate sends another task in place of this one, with all that it has of
// its own. Its answer counts unless it has failed too.
func (f *flight) alternate(t *Task) (*result, error) {
	c, own := f.s.admit(ContextWith(f.flightContext(), f.heritage()), t, &way{accepted: true})
	c.goThrough(own)
	got := *c.res // finish forgets a stream
	got.foreign = got.foreign || c.joined || got.source == FromWindow || got.source == FromStale
	got.shared = got.shared || got.foreign // its cookies are taken out of a copy
	resp, err := c.finish()
	if err != nil {
		return nil, err
	}
	if serverError(resp.StatusCode) || resp.StatusCode == http.StatusTooManyRequests {
		err := beside(statusErrorOf(&got), got.cause)
		resp.Body.Close()
		return nil, err
	}
	return &got, nil
}

// heritage is what an alternate has of f where it says nothing itself: how urgent it is
// and who pays, but for an owner whose budget is to be spared by it. Where it goes is
// its own.
func (f *flight) heritage() Hints {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	h := Hints{Priority: f.priority()}
	if o := f.owner; !o.limited() || o.budget.Over != OverFallback {
		h.Owner = o.name
	}
	return h
}

var errNothingStatic = errors.New("ax: Fallback.Static returned neither an answer nor an error")

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
		return nil, errNothingStatic
	}
	own := *resp // which may be one for all calls
	own.StatusCode = cmp.Or(own.StatusCode, http.StatusOK)
	if own.Body == nil {
		own.Body = http.NoBody
	}
	own.Trailer = own.Trailer.Clone()
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
		resp := res.payload.response(true, context.Background())
		dropCookies(resp) // all who share the answer see the error
		return statusError(&Response{Response: resp})
	case res.stream != nil:
		h := res.streamed.Header.Clone()
		delete(h, "Set-Cookie")
		return &StatusError{StatusCode: res.streamed.StatusCode, Header: h}
	}
	return errNoAnswer
}
