package ax

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

// outbox keeps one task's events in order though several goroutines may have
// some to tell: whoever finds it free tells his own, then what others left
// meanwhile. Nobody waits for a slow OnEvent but him whose task it is.
type outbox struct {
	mu     sync.Mutex
	busy   bool // somebody is telling
	ended  bool // the terminal event has been told or left
	left   []Event
	reason string   // what its task waits for first
	after  []func() // to be done when all has been told
}

// note is an event of admission, told once the mutex is free.
type note uint8

const (
	noteSubmitted note = 1 << iota
	noteQueued
	noteOverBudget
	noteCoalesced
	noteWindowHit
)

func (c *caller) note(n note) {
	if c.ev != nil {
		c.notes |= n
	}
}

// tellAdmission tells what admission noted, then what has come since: until then
// the outbox is busy.
func (c *caller) tellAdmission() {
	if c.ev == nil {
		return
	}
	defer c.ev.drain(c.s) // also if the listener ends this goroutine
	for _, k := range [...]struct {
		n    note
		kind EventKind
	}{{noteSubmitted, EventSubmitted}, {noteCoalesced, EventCoalesced}, {noteWindowHit, EventWindowHit}, {noteOverBudget, EventOverBudget}, {noteQueued, EventQueued}} {
		if c.notes&k.n != 0 {
			e := Event{Kind: k.kind}
			if k.kind == EventQueued {
				e.Reason = c.ev.reason
			}
			c.fill(&e)
			c.s.call(&e)
		}
	}
}

// tellAdmittedLone frees the mutex after an admission and does tellAdmission, on the
// goroutine that is to drive f: users' code that ends it must not take along what f
// holds.
func (c *caller) tellAdmittedLone(f *flight) {
	unlocked, returned := false, false
	defer func() {
		if returned {
			return
		}
		if c.ev != nil && !unlocked {
			c.ev.drain(c.s)
		}
		c.s.cancelCaller(c, errAttemptAborted)
		if f != nil && f.lone && f.at != nil {
			c.s.finishAttempt(f, f.at, outcome{err: errAttemptAborted, final: true, caller: true, unsent: true})
		}
		c.finish()
	}()
	c.s.unlock()
	unlocked = true
	if c.ev != nil { // else less stack is needed
		c.tellAdmission()
	}
	returned = true
}

// fill completes an event of c.
func (c *caller) fill(e *Event) {
	e.Time = c.s.wall(c.s.now())
	e.Seq, e.Task, e.Lane, e.Owner = c.seq(), c.task, c.laneName(), c.ownerName()
	if e.Context == nil {
		e.Context = c.ctx
	}
}

// tell tells one event of c in its turn. Without OnEvent it costs a nil check.
func (c *caller) tell(e Event) {
	if c.ev == nil {
		return
	}
	c.tellThen(e, nil)
}

// tellThen tells e and then, when e and all before it have been told, does
// next.
func (c *caller) tellThen(e Event, next func()) {
	o := c.ev
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return
	}
	o.ended = e.Kind.terminal()
	if next != nil {
		o.after = append(o.after, next)
	}
	c.fill(&e)
	if o.busy {
		o.left = append(o.left, e)
		o.mu.Unlock()
		return
	}
	o.busy = true
	o.mu.Unlock()
	defer o.drain(c.s) // also if the listener ends this goroutine
	c.s.call(&e)
}

// drain tells what was left while the outbox was busy, and frees it.
func (o *outbox) drain(s *Scheduler) {
	freed := false
	defer func() {
		if !freed { // a listener has ended this goroutine
			o.drain(s)
		}
	}()
	for {
		o.mu.Lock()
		left, after := o.left, o.after
		o.left, o.after = nil, nil
		if len(left) == 0 && len(after) == 0 {
			o.busy, freed = false, true
			o.mu.Unlock()
			return
		}
		if len(left) > 0 {
			o.left, o.after = left[1:], after
		}
		o.mu.Unlock()
		if len(left) > 0 {
			s.call(&left[0])
			continue
		}
		for _, next := range after {
			next()
		}
	}
}

// call is OnEvent, whose panics are logged and change nothing else.
func (s *Scheduler) call(e *Event) {
	listeners := s.listeners.Load()
	if listeners == nil {
		return
	}
	for _, l := range *listeners {
		s.callOne(l, e)
	}
}

func (s *Scheduler) callOne(l *listener, e *Event) {
	defer func() {
		if v := recover(); v != nil {
			s.count.panics.Add(1)
			s.log.Error("ax: OnEvent panicked", "event", e.Kind.String(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	l.hear(*e) // the one copy
}

// listener is one who is told all events.
type listener struct{ hear func(Event) }

// Watch has f called with every event of lanes and of the tasks submitted from now
// on, as Config.OnEvent is and under the same rules, until stop is called. Where
// somebody listens already, OnEvent or another Watch, events of older tasks come
// too. An event under way may still come after stop has returned. A nil f watches
// nothing.
func (s *Scheduler) Watch(f func(Event)) (stop func()) {
	if f == nil {
		return func() {}
	}
	l := &listener{f}
	s.relisten(func(ls []*listener) []*listener { return append(ls, l) })
	return func() {
		s.relisten(func(ls []*listener) []*listener {
			return slices.DeleteFunc(ls, func(have *listener) bool { return have == l })
		})
	}
}

// relisten puts a changed copy of the listeners in force; nil if there is none,
// so that events cost a nil check then.
func (s *Scheduler) relisten(change func([]*listener) []*listener) {
	s.mu.Lock()
	defer s.unlock()
	var have []*listener
	if p := s.listeners.Load(); p != nil {
		have = slices.Clone(*p)
	}
	have = change(have)
	if len(have) == 0 {
		s.listeners.Store(nil)
	} else {
		s.listeners.Store(&have)
	}
}

// heard tells whether anybody listens.
func (s *Scheduler) heard() bool { return s.listeners.Load() != nil }

// speaker is the caller in whose name a flight's events are told; nil if nobody
// listens or nobody is left.
func (f *flight) speaker() *caller {
	s := f.s
	if !s.heard() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.callers.speaker
}

// tell tells an event of a flight.
func (f *flight) tell(at *attempt, e Event) {
	c := f.speaker()
	if c == nil {
		return
	}
	if at != nil {
		e.Context = at
	}
	c.tell(e)
}

// begin has at begin, unless that has been forestalled, and tells of it: what was
// told of the task so far comes first, whoever is telling it. Both in one critical
// section, so that who leaves meanwhile has either had neither or has both.
func (f *flight) begin(at *attempt) bool {
	s := f.s
	if !s.heard() {
		return at.stage.begin()
	}
	s.mu.Lock()
	c := f.callers.speaker
	if c == nil || c.ev == nil {
		s.mu.Unlock()
		return at.stage.begin()
	}
	if !at.stage.begin() {
		s.mu.Unlock()
		return false
	}
	t := turn{c: c, e: Event{Kind: EventStarted, Attempt: int(at.n), Waited: at.waited, Context: at}}
	t.take()
	s.mu.Unlock()
	t.tell()
	return true
}

// turn is the right to tell an event of c, or the duty to wait until that is done.
type turn struct {
	c    *caller // nil = there is nothing to tell any more
	e    Event
	told chan struct{} // not nil = somebody else is telling, and will close it
}

// take gives c's outbox to who is about to tell the event, or leaves that there.
func (t *turn) take() {
	c, o := t.c, t.c.ev
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		t.c = nil
		return
	}
	o.ended = t.e.Kind.terminal()
	c.fill(&t.e)
	if o.busy {
		told := make(chan struct{})
		t.told = told
		o.left = append(o.left, t.e)
		o.after = append(o.after, func() { close(told) })
	}
	o.busy = true
}

// tell returns when the event has been told, and all that was left meanwhile.
func (t *turn) tell() {
	switch {
	case t.c == nil:
	case t.told != nil:
		<-t.told
	default:
		defer t.c.ev.drain(t.c.s) // also if the listener ends this goroutine
		t.c.s.call(&t.e)
	}
}

// tellNow tells e and returns when it has been told, whoever told it.
func (c *caller) tellNow(e Event) {
	t := turn{c: c, e: e}
	t.take()
	t.tell()
}

// tellOutcome tells what an attempt came to and whether another follows.
func (f *flight) tellOutcome(at *attempt, out *outcome, v verdict) {
	if !f.s.heard() {
		return
	}
	f.tell(nil, Event{
		Kind: EventAttemptDone, Attempt: int(at.n), Took: out.took, Status: out.status(), Verdict: Verdict(out.kind), Err: out.err,
	})
	if v == verdictRetry {
		f.tell(nil, Event{
			Kind: EventRetryScheduled, Attempt: int(at.n), Delay: out.retry.delay, Status: out.status(), Err: out.err,
		})
	}
}

// tellEnd tells the terminal event on the caller's goroutine and returns when it
// has been told, whoever told it.
func (c *caller) tellEnd(resp *Response, err error) {
	if c.ev == nil {
		return
	}
	c.tellNow(c.terminal(resp, err))
}

// tellEndThen tells the terminal event, then does next.
func (c *caller) tellEndThen(resp *Response, err error, next func()) {
	if c.ev == nil {
		next()
		return
	}
	c.tellThen(c.terminal(resp, err), next)
}

// terminal is the event that equals what Do returns.
func (c *caller) terminal(resp *Response, err error) Event {
	e := Event{Kind: EventKind(c.kind), Err: err, Attempt: int(c.res.attempts), Waited: c.waited()}
	if resp != nil && resp.Response != nil {
		e.Status, e.Source, e.Waited = resp.StatusCode, resp.Source, resp.Waited
		e.Err = resp.Cause
	}
	e.Took = c.s.now().sub(c.born)
	return e
}

// terminal tells whether a task has exactly one event of this kind.
func (k EventKind) terminal() bool {
	return k == EventSucceeded || k == EventFailed || k == EventCanceled || k == EventRejected
}

// laneEventLocked tells, once the mutex is free, what happened to a lane, or with ""
// to all: in the order in which it happened, and one log line each.
func (s *Scheduler) laneEventLocked(name string, e Event, now instant) {
	e.Time, e.Lane = s.wall(now), name
	e.Context = context.Background()
	if s.heard() {
		s.laneEvents.mu.Lock()
		s.laneEvents.left = append(s.laneEvents.left, e)
		s.laneEvents.mu.Unlock()
		s.laterUser(s.tellLanes)
	}
	s.laterUser(func() {
		attrs := []any{"lane", cmp.Or(e.Lane, "all lanes")}
		if e.Delay > 0 {
			attrs = append(attrs, "for", e.Delay)
		}
		if e.Reason != "" {
			attrs = append(attrs, "because", e.Reason)
		}
		level := slog.LevelInfo
		if e.Kind == EventBreakerOpened {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "ax: "+strings.ReplaceAll(e.Kind.String(), "-", " "), attrs...)
	})
}

// tellLanes tells the lanes' events that wait, unless somebody else is at it.
func (s *Scheduler) tellLanes() {
	o := &s.laneEvents
	o.mu.Lock()
	if o.busy {
		o.mu.Unlock()
		return
	}
	o.busy = true
	o.mu.Unlock()
	o.drain(s)
}
