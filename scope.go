package ax

import (
	"cmp"
	"context"
	"net/http"
)

// Scope binds tasks to a lifetime: a page, an incoming request, a job. When its
// context ends, or Cancel is called, everything unfinished in it ends within
// milliseconds, queued or in flight, nested scopes too. An answer that callers
// outside of it share goes on for them. It is safe for concurrent use and needs
// no closing: the end of its context is its end.
type Scope struct {
	s        *Scheduler
	ctx      context.Context
	deadline instant // of ctx, or earlier of an outer scope's
	parent   *Scope

	// Guarded by s.mu.
	err     error // what it ended with, as its tasks are told; nil = it goes on
	callers map[*caller]struct{}
	scopes  map[*Scope]struct{}
	names   names
	unwatch func() bool
}

// Scope makes a scope that ends with ctx, whose deadline bounds that of its tasks.
func (s *Scheduler) Scope(ctx context.Context) *Scope { return s.newScope(ctx, nil) }

// Scope makes a scope inside of s: it ends with ctx or with s, whichever is
// first.
func (s *Scope) Scope(ctx context.Context) *Scope { return s.s.newScope(ctx, s) }

func (s *Scheduler) newScope(ctx context.Context, parent *Scope) *Scope {
	sc := &Scope{s: s, ctx: ctx, deadline: s.deadlineOf(ctx), parent: parent}
	if parent != nil {
		sc.deadline = min(sc.deadline, parent.deadline)
	}
	s.mu.Lock()
	if parent != nil {
		if parent.err != nil {
			sc.err = parent.err
		} else {
			if parent.scopes == nil {
				parent.scopes = make(map[*Scope]struct{})
			}
			parent.scopes[sc] = struct{}{}
		}
	}
	ended := sc.err
	s.unlock()
	if ended == nil && ctx.Done() != nil {
		sc.watch(context.AfterFunc(ctx, func() { sc.end(ctxError(ctx)) }))
	}
	return sc
}

// watch has the watch on the scope's ctx stopped with the scope.
func (s *Scope) watch(stop func() bool) {
	s.s.mu.Lock()
	defer s.s.unlock()
	s.unwatch = stop
	if s.err != nil {
		s.unwatchLocked()
	}
}

func (s *Scope) unwatchLocked() {
	if stop := s.unwatch; stop != nil {
		s.s.laterUser(func() { stop() })
	}
}

// Do is Scheduler.Do for a task of this scope: it also ends with it, with an
// error that Is ErrScopeEnded, the scope's cause and context.Canceled.
func (s *Scope) Do(ctx context.Context, t *Task) (*Response, error) {
	return s.s.do(ctx, t, &way{scope: s})
}

// Send is r.Task followed by Do.
func (s *Scope) Send(ctx context.Context, r Request) (*Response, error) {
	return send(ctx, &r, s.Do)
}

// Submit is Scheduler.Submit for a task of this scope.
func (s *Scope) Submit(ctx context.Context, t *Task) *Call {
	return s.s.submit(ctx, t, &way{scope: s})
}

// Cancel ends the scope for good and everything unfinished in it, and tells how
// many tasks that were. Their errors carry cause, which may be nil. A scope that
// has ended refuses with ErrScopeEnded.
func (s *Scope) Cancel(cause error) int { return s.end(cause) }

func (s *Scope) end(cause error) int {
	err := canceled(ErrScopeEnded, cause) // outside the mutex: the text of cause is users' code
	s.s.mu.Lock()
	n := s.endLocked(err, s.s.now())
	if s.parent != nil {
		delete(s.parent.scopes, s)
	}
	s.s.unlock()
	return n
}

func (s *Scope) endLocked(err error, now instant) int {
	if s.err != nil {
		return 0
	}
	s.err = err
	s.unwatchLocked()
	n := 0
	for inner := range s.scopes {
		n += inner.endLocked(err, now)
	}
	s.scopes = nil
	for c := range s.callers {
		if s.s.leaveLocked(c, c.canceledLocked(err), now) {
			n++
		}
	}
	return n
}

// joinLocked makes c one of the scope's, or refuses. dead is how its ctx has ended.
func (s *Scope) joinLocked(c *caller, dead error) error {
	if err := cmp.Or(s.err, dead); err != nil {
		return err
	}
	if s.callers == nil {
		s.callers = make(map[*caller]struct{})
	}
	s.callers[c] = struct{}{}
	c.extras().scope = s
	return nil
}

type scopeKey struct{}

// ScopeHandler gives every incoming request a scope of its own that ends when
// the handler has returned or the client has gone: whatever next calls through
// it ends then too, so that a service does not go on calling others for a
// client that has left. ContextScope finds it.
func ScopeHandler(s *Scheduler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sc := s.Scope(r.Context())
		defer sc.Cancel(nil)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), scopeKey{}, sc)))
	})
}

// ContextScope is the scope that ScopeHandler put into ctx, or nil.
func ContextScope(ctx context.Context) *Scope {
	sc, _ := ctx.Value(scopeKey{}).(*Scope)
	return sc
}

// names is who last took a Supersede name, within one scope or the scheduler.
type names map[string]*nameEntry

// nameEntry is the unfinished tasks of one name, oldest first: one, but for the
// moment in which a newer one ends an older.
type nameEntry struct {
	in      names
	name    string
	callers []*caller
}

// namesOf is where the names of a task of sc belong.
func (s *Scheduler) namesOf(sc *Scope) *names {
	if sc != nil {
		return &sc.names
	}
	return &s.names
}

func (n *names) joinLocked(name string, c *caller) {
	if *n == nil {
		*n = make(names)
	}
	e := (*n)[name]
	if e == nil {
		e = &nameEntry{in: *n, name: name}
		(*n)[name] = e
	}
	e.callers = append(e.callers, c)
	c.extras().name = e
}

// olderThan is a task of the name that c supersedes, or nil.
func (e *nameEntry) olderThan(c *caller) *caller {
	if len(e.callers) > 0 && e.callers[0].seq() < c.seq() {
		return e.callers[0]
	}
	return nil
}

func (e *nameEntry) leaveLocked(c *caller) {
	for i, have := range e.callers {
		if have == c {
			e.callers = append(e.callers[:i], e.callers[i+1:]...)
			break
		}
	}
	if len(e.callers) == 0 {
		delete(e.in, e.name)
	}
}

// CancelTag ends every unfinished task that bears tag, queued or in flight, and
// tells how many callers that were: who shares an answer with others is counted
// alone, and the others keep it. A task submitted afterwards is not touched.
func (s *Scheduler) CancelTag(tag string) int {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	n := 0
	s.tags.each(tag, func(c *caller) {
		if s.leaveLocked(c, c.canceledLocked(canceled(ErrCanceledByTag, nil)), now) {
			n++
		}
	})
	return n
}

func (s *Scheduler) tagLocked(c *caller, tags []string) {
	c.extras().tags = tags
	for _, tag := range tags {
		s.tags.add(tag, c)
	}
}

// unlistLocked takes c out of everything that knows it.
func (s *Scheduler) unlistLocked(c *caller, now instant) {
	if c.more == nil {
		return
	}
	s.setAlarmLocked(&c.more.alarm, c, never)
	for _, tag := range c.more.tags {
		s.tags.remove(tag, c)
	}
	if c.more.scope != nil {
		delete(c.more.scope.callers, c)
	}
	if c.more.name != nil {
		c.more.name.leaveLocked(c)
	}
	if c.more.cool != nil {
		c.more.cool.endedLocked(c, now)
	}
	c.more = nil
}
