package ax

import (
	"context"
	"time"
)

// attemptEnd is how an attempt ended.
type attemptEnd struct {
	err   error // Canceled or DeadlineExceeded
	cause error
}

// quietEnd is that of one which nobody watched.
var quietEnd = &attemptEnd{context.Canceled, errAttemptOver}

// attemptWatch is what it takes to end an attempt while somebody looks.
type attemptWatch struct {
	done     chan struct{}
	reader   context.Context // with boundReader
	timer    *time.Timer     // not with boundFlight: a flight's deadline is an alarm
	unwatch  func() bool     // stops watching
	children *afterEnd       // what runs when it ends: a list
	next     *attempt        // in s.watching; guarded by its mutex
	prev     *attempt
}

// bound says whose end is the attempt's, beside its own.
type bound uint8

const (
	boundFlight bound = iota // the flight's, whose callers come and go
	boundCaller              // the only caller's
	boundReader              // the one's who is left to read the body
	boundNobody
)

// watched is the context whose end is the attempt's, nil for a flight's.
func (a *attempt) watched() context.Context {
	switch a.bound {
	case boundCaller:
		return a.values
	case boundReader:
		return a.watch.reader
	case boundNobody:
		return context.Background()
	}
	return nil
}

// afterEnd is one function registered with AfterFunc.
type afterEnd struct {
	run        func()
	next, prev *afterEnd
	listed     bool
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
	own, watched := a.deadline, a.watched()
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
	err, _ := a.ending()
	return err
}

// Done starts the watch on the caller and the timer, the first time.
func (a *attempt) Done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doneLocked()
}

func (a *attempt) doneLocked() <-chan struct{} {
	w := a.watchLocked()
	if w.done == nil {
		w.done = make(chan struct{})
		if a.end != nil {
			close(w.done)
		} else {
			a.armLocked()
		}
	}
	return w.done
}

// watchLocked makes room for a watch.
func (a *attempt) watchLocked() *attemptWatch {
	if a.watch == nil {
		a.watch = new(attemptWatch)
	}
	return a.watch
}

// armLocked starts what will end the attempt: the caller's end, the timeout.
func (a *attempt) armLocked() {
	ctx, w := a.watched(), a.watch
	if ctx == nil {
		return
	}
	if w.unwatch == nil && ctx.Done() != nil {
		w.unwatch = context.AfterFunc(ctx, func() { a.cancel(ctx.Err(), context.Cause(ctx)) })
	}
	if a.unlisted && !a.watching {
		if a.watching = a.s.watching.add(a); !a.watching {
			go a.cancel(context.Canceled, ErrClosed) // ends at once: it needs a.mu
		}
	}
	if a.deadline != never && w.timer == nil {
		w.timer = time.AfterFunc(a.deadline.sub(a.s.now()), a.timeout)
	}
}

// AfterFunc lets package context derive from an attempt without a goroutine.
func (a *attempt) AfterFunc(f func()) (stop func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end != nil {
		go f() // ends when the child has been told
		return func() bool { return false }
	}
	a.doneLocked()
	child := &afterEnd{run: f, next: a.watch.children, listed: true}
	if child.next != nil {
		child.next.prev = child
	}
	a.watch.children = child
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
		a.watch.children = child.next
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
	if a.end != nil {
		a.mu.Unlock()
		return
	}
	a.end = &attemptEnd{err, cause}
	child := a.unwatchLocked()
	a.mu.Unlock()
	for ; child != nil; child = child.next {
		child.run()
	}
}

// unwatchLocked ends the watch, and returns those that are to be told.
func (a *attempt) unwatchLocked() (children *afterEnd) {
	w := a.watch
	if w == nil {
		return nil
	}
	children, w.children = w.children, nil
	for c := children; c != nil; c = c.next {
		c.listed = false // from here on nobody changes the list
	}
	if w.done != nil {
		close(w.done)
	}
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if w.unwatch != nil {
		w.unwatch()
		w.unwatch = nil
	}
	if a.watching {
		a.watching = false
		a.s.watching.remove(a)
	}
	return children
}

// bindTo binds the attempt to the one caller that is left to read its body.
func (a *attempt) bindTo(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchLocked().reader = ctx
	a.bound = boundReader
	if a.end == nil {
		a.doneLocked()
		a.armLocked()
	}
}
