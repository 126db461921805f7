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
	f       *flight
	values  context.Context // the first caller's
	outer   *attempt        // the innermost of those that this one runs inside of
	depth   int             // how many they are
	n       int             // 1 = the flight's first
	hold    hold            // guarded by s.mu
	policy  *lanePolicy     // of the lane it is in
	began   instant         // when the executor was called; hops start it anew
	refused error           // what a hop was refused with
	hopping *waiter         // of the hop under way; guarded by s.mu
	waited  time.Duration   // before it, in the queue
	limit   time.Duration   // its AttemptTimeout
	answer  *http.Response  // the executor's; its goroutine's alone
	stream  *stream
	quit    func()   // ends what its context is from, once its stream has ended; guarded by s.mu
	express *express // while unlisted: what it may become
	alarm   alarm    // its flight's: attempt timeout, backoff, QueueTimeout of a retry

	stage     attemptStage
	stamped   bool // began is when it was sent
	single    bool // Transport(): the caller follows redirects itself
	unlisted  bool // the mutex does not know of it: it watches for Close itself
	due       bool // its time is over; guarded by s.mu
	abandoned bool // its flight has gone on without it; guarded by s.mu

	over     bool // its executor has returned and its body is read; from here on guarded by mu
	watching bool // it stands in s.watching
	mu       sync.Mutex
	watched  context.Context // whose end is the attempt's; nil = a flight's, whose callers come and go
	done     chan struct{}   // made when first asked for
	err      error           // Canceled or DeadlineExceeded, once ended
	cause    error
	deadline instant     // of the attempt itself; never = none
	timer    *time.Timer // only with watched: a flight's deadline is an alarm
	unwatch  func() bool // stops watching
	children *afterEnd   // what runs when it ends: a list
	next     *attempt    // in s.watching; guarded by its mutex
	prev     *attempt
}

// attemptStage decides between two who may come together: whoever calls the
// executor, and whoever ends the task before it is called.
type attemptStage struct{ at atomic.Uint32 }

const (
	attemptGranted uint32 = iota
	attemptBegun
	attemptForestalled
)

// begin tells that the executor is about to be called; false if it must not be.
func (s *attemptStage) begin() bool {
	return s.at.CompareAndSwap(attemptGranted, attemptBegun) || s.begun()
}

func (s *attemptStage) begun() bool { return s.at.Load() == attemptBegun }

// forestall has the executor never be called; false if it has been.
func (s *attemptStage) forestall() bool {
	return s.at.CompareAndSwap(attemptGranted, attemptForestalled) || !s.begun()
}

// afterEnd is one function registered with AfterFunc.
type afterEnd struct {
	run        func()
	next, prev *afterEnd
	listed     bool
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
	a.next = l.first
	if a.next != nil {
		a.next.prev = a
	}
	l.first = a
	return true
}

func (l *attemptList) remove(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.prev != nil {
		a.prev.next = a.next
	} else if l.first == a {
		l.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.next, a.prev = nil, nil
}

// end cancels what is listed, and lets nothing in any more.
func (l *attemptList) end() {
	var all []*attempt
	l.mu.Lock()
	l.closed = true
	for a := l.first; a != nil; a = a.next {
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
	for ; at != nil; at = at.outer {
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

// Value knows the attempt itself; everything else is the caller's.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case attemptKey, ownKey:
		return a
	case hopperKey:
		return hopper(a)
	}
	return a.values.Value(key)
}

// Deadline is the earlier of the attempt's and the caller's.
func (a *attempt) Deadline() (time.Time, bool) {
	a.mu.Lock()
	own, watched := a.deadline, a.watched
	a.mu.Unlock()
	var theirs time.Time
	var ok bool
	if watched != nil {
		theirs, ok = watched.Deadline()
	}
	if own == never {
		return theirs, ok
	}
	if w := a.s.wall(own); !ok || w.Before(theirs) {
		return w, true
	}
	return theirs, true
}

// Err tells whether the attempt has ended, also when nobody watches.
func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
		return a.err
	case a.watched != nil && a.watched.Err() != nil:
		return a.watched.Err()
	case a.unlisted && a.s.life.Err() != nil:
		return context.Canceled
	case a.deadline != never && a.s.now() >= a.deadline:
		return context.DeadlineExceeded
	}
	return nil
}

// Done starts the watch on the caller and the timer, the first time.
func (a *attempt) Done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doneLocked()
}

func (a *attempt) doneLocked() <-chan struct{} {
	if a.done != nil {
		return a.done
	}
	a.done = make(chan struct{})
	if a.err != nil {
		close(a.done)
		return a.done
	}
	a.watchLocked()
	return a.done
}

// watchLocked starts what will end the attempt: the caller's end, the timeout.
func (a *attempt) watchLocked() {
	if a.watched == nil {
		return
	}
	if ctx := a.watched; a.unwatch == nil && ctx.Done() != nil {
		a.unwatch = context.AfterFunc(ctx, func() { a.cancel(ctx.Err(), context.Cause(ctx)) })
	}
	if a.unlisted && !a.watching {
		if a.watching = a.s.watching.add(a); !a.watching {
			go a.cancel(context.Canceled, ErrClosed) // ends at once: it needs a.mu
		}
	}
	if a.deadline != never && a.timer == nil {
		a.timer = time.AfterFunc(a.deadline.sub(a.s.now()), a.timeout)
	}
}

// AfterFunc lets package context derive from an attempt without a goroutine.
func (a *attempt) AfterFunc(f func()) (stop func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		go f() // ends when the child has been told
		return func() bool { return false }
	}
	a.doneLocked()
	child := &afterEnd{run: f, next: a.children, listed: true}
	if child.next != nil {
		child.next.prev = child
	}
	a.children = child
	return func() bool { return a.forget(child) }
}

// forget takes a child off the list; false if it has run, or is gone already.
func (a *attempt) forget(child *afterEnd) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !child.listed {
		return false
	}
	child.listed = false
	if child.prev != nil {
		child.prev.next = child.next
	} else {
		a.children = child.next
	}
	if child.next != nil {
		child.next.prev = child.prev
	}
	return true
}

// timeout ends the attempt at its deadline, unless that has moved.
func (a *attempt) timeout() {
	a.mu.Lock()
	due := a.deadline != never && a.s.now() >= a.deadline
	a.mu.Unlock()
	if due {
		a.cancel(context.DeadlineExceeded, errAttemptTimeout)
	}
}

// cancel ends the attempt for a reason: once, outside every lock.
func (a *attempt) cancel(err, cause error) {
	a.mu.Lock()
	if a.err != nil {
		a.mu.Unlock()
		return
	}
	a.err, a.cause = err, cause
	child := a.children
	a.children = nil
	for c := child; c != nil; c = c.next {
		c.listed = false // from here on nobody changes the list
	}
	if a.done != nil {
		close(a.done)
	}
	a.unwatchLocked()
	a.mu.Unlock()
	for ; child != nil; child = child.next {
		child.run()
	}
}

func (a *attempt) unwatchLocked() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if a.unwatch != nil {
		a.unwatch()
		a.unwatch = nil
	}
	if a.watching {
		a.watching = false
		a.s.watching.remove(a)
	}
}

// finish ends the attempt after its body: nothing may nest in it any more, and
// whatever was derived from it is let go.
func (a *attempt) finish() {
	a.mu.Lock()
	a.over = true
	quiet := a.done == nil && a.err == nil
	if quiet {
		a.err, a.cause = context.Canceled, errAttemptOver
	}
	a.mu.Unlock()
	if !quiet {
		a.cancel(context.Canceled, errAttemptOver)
	}
}

// ending is why the attempt ended before its executor returned: the caller's
// end counts even if nobody had asked for Done.
func (a *attempt) ending() (err, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err, a.cause
	}
	if a.watched != nil && a.watched.Err() != nil {
		return a.watched.Err(), context.Cause(a.watched)
	}
	if a.unlisted && a.s.life.Err() != nil {
		return context.Canceled, ErrClosed
	}
	if a.deadline != never && a.s.now() >= a.deadline {
		return context.DeadlineExceeded, errAttemptTimeout
	}
	return nil, nil
}

// setDeadline moves the attempt's own deadline; never lifts it.
func (a *attempt) setDeadline(t instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deadline = t
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if a.done != nil && a.err == nil {
		a.watchLocked()
	}
}

// watch binds the attempt to the one caller that is left to read its body.
func (a *attempt) watch(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = ctx
	if a.err == nil {
		a.doneLocked()
		a.watchLocked()
	}
}
