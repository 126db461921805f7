package ax

import (
	"cmp"
	"context"
	"reflect"
	"slices"
)

// ctxWatch waits for the end of one context on behalf of all Calls that it owns: a
// batch of thousands costs one watch, and when it is cancelled one goroutine ends
// them. Guarded by the scheduler's mutex but where said.
type ctxWatch struct {
	s     *Scheduler
	ctx   context.Context
	calls []*Call
	done  <-chan struct{} // which tells it from another in the same place
	stop  func() bool
	fired bool // it has ended
}

// watchKnownLocked has c watched beside others of its context; false if it is the
// first.
func (s *Scheduler) watchKnownLocked(c *Call, done <-chan struct{}) bool {
	w := s.watches.get(watchKey(c.c.ctx))
	if w == nil || w.done != done {
		return false
	}
	w.addLocked(c)
	return true
}

// watchCall has c end with its context.
func (s *Scheduler) watchCall(c *Call, done <-chan struct{}) {
	w := &ctxWatch{s: s, ctx: c.c.ctx, done: done}
	stop := context.AfterFunc(w.ctx, w.end)
	key := watchKey(w.ctx)
	s.mu.Lock()
	defer s.unlock()
	w.stop = stop
	if c.c.kind != 0 {
		s.laterUser(func() { stop() })
		return
	}
	if w.fired {
		w.addLocked(c)
		s.later(func() { go w.end() }) // ends with c
		return
	}
	switch have := s.watches.get(key); {
	case have != nil && have.done == done:
		s.laterUser(func() { stop() })
		w = have
	case have == nil && key != nil:
		s.watches.set(key, w)
	}
	w.addLocked(c)
}

// watchKey is under what a context's watch is found: nil if its type does not tell
// one from another.
func watchKey(ctx context.Context) context.Context {
	if reflect.TypeOf(ctx).Kind() != reflect.Pointer {
		return nil
	}
	return ctx
}

func (w *ctxWatch) addLocked(c *Call) {
	c.watch, c.place = w, int32(len(w.calls))
	w.calls = append(w.calls, c)
}

// unwatchLocked ends the watch on behalf of c; its last Call ends it.
func (c *Call) unwatchLocked() {
	w := c.watch
	if w == nil {
		return
	}
	last := len(w.calls) - 1
	w.calls[c.place] = w.calls[last]
	w.calls[c.place].place = c.place
	w.calls[last] = nil
	w.calls = w.calls[:last]
	c.watch = nil
	if size := cap(w.calls); size > watchKeep && last < size/4 {
		w.calls = slices.Clone(w.calls)
	}
	if last == 0 && !w.fired {
		w.forgetLocked()
		w.s.laterUser(func() { w.stop() })
	}
}

// watchKeep is the room for Calls that a watch may keep.
const watchKeep = 64

func (w *ctxWatch) forgetLocked() {
	if key := watchKey(w.ctx); w.s.watches.get(key) == w {
		w.s.watches.remove(key)
	}
}

// end ends all Calls of the context, which has ended, some at a time; also if a
// listener ends the goroutine.
func (w *ctxWatch) end() {
	ended := false
	defer func() {
		if !ended {
			go w.end() // ends with the last of them
		}
	}()
	err := cmp.Or(ctxError(w.ctx), context.Canceled) // one that is used again for something else has not ended
	for w.endSome(err) {
	}
	ended = true
}

func (w *ctxWatch) endSome(err error) (more bool) {
	s := w.s
	s.mu.Lock()
	defer s.unlock()
	w.fired = true
	w.forgetLocked()
	now := s.now()
	for range leaveTogether {
		if len(w.calls) == 0 {
			return false
		}
		c := &w.calls[len(w.calls)-1].c
		s.leaveLocked(c, c.canceledLocked(err), now)
	}
	return true
}
