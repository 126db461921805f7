package ax

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// attempt is one try of a flight: the context that its executor runs under, and
// what it holds of the limits. As a context it carries the caller's values, and
// it costs a timer and a watch on the caller's context only if somebody asks
// for Done: an executor that never blocks pays for neither.
type attempt struct {
	s       *Scheduler
	f       *flight // nil while express
	task    *Task
	values  context.Context // the first caller's
	hold    hold            // guarded by s.mu
	policy  *lanePolicy     // of the lane it is in
	began   instant         // when the executor was called; hops start it anew. Guarded by mu for others
	waited  time.Duration   // before it, in the queue
	limit   time.Duration   // its AttemptTimeout; as began
	answer  *http.Response  // the executor's; its goroutine's alone
	express *express        // which it is part of, or nil
	more    atomic.Pointer[attemptExtras]
	n       int32 // 1 = the flight's first

	stage     attemptStage
	stamped   bool // began is when it was sent
	single    bool // Transport(): the caller follows redirects itself
	unlisted  bool // the mutex does not know of it: it watches for Close itself
	due       bool // its time is over; guarded by s.mu
	abandoned bool // its flight has gone on without it; guarded by s.mu

	over     bool // its executor has returned and its body is read; from here on guarded by mu
	watching bool // it stands in s.watching
	bound    bound
	mu       sync.Mutex
	deadline instant     // of the attempt itself; never = none
	end      *attemptEnd // nil before
	watch    *attemptWatch
}

// attemptExtras is what few attempts have: nested ones, hops, streams.
type attemptExtras struct {
	outer   *attempt // the innermost of those that this one runs inside of
	depth   int      // how many they are
	refused error    // what a hop was refused with
	hopping *waiter  // of the hop under way; guarded by s.mu
	stream  *stream
	stopped stoppedTime   // while hopping; guarded by s.mu
	turn    chan struct{} // room for one: a hop at a time; made under attempt.mu
	quit    func()        // ends what its context is from, once its stream has ended; guarded by s.mu
}

// extras makes room for what few attempts have.
func (a *attempt) extras() *attemptExtras {
	if m := a.more.Load(); m != nil {
		return m
	}
	a.more.CompareAndSwap(nil, new(attemptExtras))
	return a.more.Load()
}

var noExtras attemptExtras // never changed

// rare is what few attempts have, to look at.
func (a *attempt) rare() *attemptExtras {
	if m := a.more.Load(); m != nil {
		return m
	}
	return &noExtras
}

// outer is the innermost attempt that a runs inside of, or nil.
func (a *attempt) outer() *attempt { return a.rare().outer }

// hopping is the wait of a hop under way, or nil; guarded by s.mu.
func (a *attempt) hopping() *waiter { return a.rare().hopping }

// stream is the body that is still arriving, or nil.
func (a *attempt) stream() *stream { return a.rare().stream }

// attemptStage decides between two who may come together: whoever calls the
// executor, and whoever ends the task before it is called.
type attemptStage struct{ at atomic.Uint32 }

const (
	attemptGranted uint32 = iota
	attemptBegun
	attemptForestalled
	attemptReturned
)

// begin tells that the executor is about to be called; false if it must not be.
func (s *attemptStage) begin() bool {
	return s.at.CompareAndSwap(attemptGranted, attemptBegun) || s.begun()
}

func (s *attemptStage) begun() bool {
	at := s.at.Load()
	return at == attemptBegun || at == attemptReturned
}

// returned tells that the executor has returned: no hop may go on after it.
func (s *attemptStage) returned() bool { return s.at.Load() == attemptReturned }

// forestall has the executor never be called; false if it has been.
func (s *attemptStage) forestall() bool {
	return s.at.CompareAndSwap(attemptGranted, attemptForestalled) || !s.begun()
}

// attemptList is the unlisted attempts that somebody waits for the end of: Close
// ends them. Its mutex is taken under attempt.mu.
type attemptList struct {
	mu     sync.Mutex
	first  *attempt
	closed bool
}

// add lists a; false if Close has been there before.
func (l *attemptList) add(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	a.watch.next = l.first
	if l.first != nil {
		l.first.watch.prev = a
	}
	l.first = a
	return true
}

func (l *attemptList) remove(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, prev := a.watch.next, a.watch.prev
	if prev != nil {
		prev.watch.next = next
	} else if l.first == a {
		l.first = next
	}
	if next != nil {
		next.watch.prev = prev
	}
	a.watch.next, a.watch.prev = nil, nil
}

// end cancels what is listed, and lets nothing in any more.
func (l *attemptList) end() {
	var all []*attempt
	l.mu.Lock()
	l.closed = true
	for a := l.first; a != nil; a = a.watch.next {
		all = append(all, a)
	}
	l.mu.Unlock()
	for _, a := range all {
		a.cancel(context.Canceled, ErrClosed)
	}
}

type attemptKey struct{}

// ownKey is for one question instead of two: does a context say anything to ax?
type ownKey struct{}

// attemptFrom is the innermost unfinished attempt of s that ctx belongs to.
func (s *Scheduler) attemptFrom(ctx context.Context) *attempt {
	at, _ := ctx.Value(attemptKey{}).(*attempt)
	for ; at != nil; at = at.outer() {
		if at.s == s && !at.isOver() {
			return at
		}
	}
	return nil
}

func (a *attempt) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// finish ends the attempt after its body: nothing may nest in it any more, and
// whatever was derived from it is let go.
func (a *attempt) finish() {
	a.mu.Lock()
	a.over = true
	watched := a.end == nil && a.watch != nil
	if a.end == nil && !watched {
		a.end = quietEnd
	}
	a.mu.Unlock()
	if watched {
		a.cancel(context.Canceled, errAttemptOver)
	}
}

// ending is how the attempt has ended, if it has: the caller's end counts even if
// nobody had asked for Done.
func (a *attempt) ending() (err, cause error) { return a.endingAt(0) }

// endingAt is ending for who knows the time; 0 = not known.
func (a *attempt) endingAt(now instant) (err, cause error) {
	a.mu.Lock()
	end, ctx, deadline, unlisted := a.end, a.watched(), a.deadline, a.unlisted
	a.mu.Unlock() // ctx is users' code
	if end != nil {
		return end.err, end.cause
	}
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err(), context.Cause(ctx)
	}
	if unlisted && a.s.life.Err() != nil {
		return context.Canceled, ErrClosed
	}
	if deadline == never {
		return nil, nil
	}
	if now == 0 {
		now = a.s.now()
	}
	if now >= deadline {
		return context.DeadlineExceeded, errAttemptTimeout
	}
	return nil, nil
}

// begin stamps the moment of the send, from which the attempt's time runs.
func (a *attempt) begin() (now instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now = a.s.now()
	a.began, a.stamped = now, true
	if a.limit > 0 {
		a.setDeadlineLocked(now.add(a.limit))
	}
	return now
}

// beginAgain starts the attempt's time anew after a hop, with what was left of it and
// what it has been given meanwhile. It returns the deadline.
func (a *attempt) beginAgain(now instant, stopped stoppedTime) (deadline instant) {
	a.mu.Lock()
	a.began = now
	a.mu.Unlock()
	return a.runOn(now, stopped)
}

// runOn is the same for what has begun before.
func (a *attempt) runOn(now instant, stopped stoppedTime) (deadline instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stopped.left == 0 || a.limit == 0 {
		return never
	}
	deadline = now.add(stopped.left + a.limit - stopped.limit)
	a.setDeadlineLocked(deadline)
	return deadline
}

// extendStopped is extend while the attempt's time does not run.
func (a *attempt) extendStopped(limit time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = limit
}

// extend gives the attempt another limit, 0 = none, and returns its deadline, if it
// has been sent.
func (a *attempt) extend(limit time.Duration) (deadline instant, sent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = limit
	if !a.stamped {
		return never, false
	}
	t := never
	if limit > 0 {
		t = a.began.add(limit)
	}
	a.setDeadlineLocked(t)
	return t, true
}

// limitNow is the AttemptTimeout that the attempt has by now.
func (a *attempt) limitNow() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit
}

// lasted is how long the attempt has been under way.
func (a *attempt) lasted(now instant) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stamped {
		return 0
	}
	return now.sub(a.began)
}

// untilDue is when the attempt's time is over; never if it is not running.
func (a *attempt) untilDue() instant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deadline
}

// setDeadline moves the attempt's own deadline; never lifts it.
func (a *attempt) setDeadline(t instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setDeadlineLocked(t)
}

func (a *attempt) setDeadlineLocked(t instant) {
	a.deadline = t
	w := a.watch
	if w == nil {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if w.done != nil && a.end == nil {
		a.armLocked()
	}
}
