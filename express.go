package ax

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Most tasks find their gate free and nobody waiting. They go without the
// scheduler's mutex: a slot of lane and scheduler by compare-and-swap, a token
// under the rates' own lock, a success noted in atomics. Whatever is out of the
// ordinary (a failure, a stream, a waiter, a pause, Close) turns such a task into
// a flight like any other, under the mutex, with the slot that it holds.
//
// The mutex is what everything else may rely on, so a gate is guarded whenever
// somebody waits, or when more than slots and tokens decides: see gate and
// guardedLocked.

// express is the attempt of such a task, before there is a flight.
type express struct {
	at    attempt
	lane  *lane
	seq   uint64
	stage expressStage
	heard bool          // somebody listened when it began
	took  time.Duration // once it has succeeded
	c     *caller       // once adopted; guarded by s.mu
}

// expressStage decides between the end of an express task and whatever makes a
// flight of it.
type expressStage struct{ at atomic.Uint32 }

const (
	expressRuns uint32 = iota
	expressEnded
	expressAdopted
)

func (s *expressStage) end() bool     { return s.at.CompareAndSwap(expressRuns, expressEnded) }
func (s *expressStage) adopt() bool   { return s.at.CompareAndSwap(expressRuns, expressAdopted) }
func (s *expressStage) adopted() bool { return s.at.Load() == expressAdopted }

// expressLane is the lane by which t may go without the mutex, or nil: nothing
// about it, its context, its client or the scheduler asks for more.
func (s *Scheduler) expressLane(ctx context.Context, t *Task, w *way) *lane {
	if !t.plain || w.scope != nil || w.run != nil || w.accepted || w.hints != nil || s.special.Load() {
		return nil
	}
	if t.mayShare(s.cfg.Dedupe != nil) || !t.safe() && s.remembers.Load() {
		return nil
	}
	l := s.listed[t.r.Lane]
	if t.r.Lane == "" {
		l = s.knownLane(t)
	}
	if l == nil || !l.plainPolicy || ctx.Value(ownKey{}) != nil || ctx.Err() != nil {
		return nil
	}
	if _, limited := ctx.Deadline(); limited && l.policy.minRemaining > 0 {
		return nil
	}
	return l
}

// pass takes what a start needs of the scheduler and of l, or nothing.
func (s *Scheduler) pass(l *lane, now instant) (claims [3]claim, ok bool) {
	if !l.gate.pass() {
		return claims, false
	}
	if !s.gate.pass() {
		s.handOn(l, l.gate.release())
		return claims, false
	}
	if claims[ofLane] = l.rates.take(now, 0); claims[ofLane] == noClaim {
		s.passBack(l)
		return claims, false
	}
	if claims[ofAll] = s.rates.take(now, 0); claims[ofAll] == noClaim {
		l.rates.giveBack(now, now, claims[ofLane])
		s.passBack(l)
		return claims, false
	}
	return claims, true
}

// passBack gives the slots back.
func (s *Scheduler) passBack(l *lane) {
	awaited := l.gate.release()
	s.handOn(l, s.gate.release() || awaited)
}

// handOn lets a slot that was just given back go to who waits for it, if
// somebody does.
func (s *Scheduler) handOn(l *lane, awaited bool) {
	if !awaited {
		return
	}
	s.mu.Lock()
	now := s.now()
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	s.idleCheckLocked()
	s.unlock()
}

// express does t without the mutex, if it can: ok is false if it has not begun.
func (s *Scheduler) express(ctx context.Context, t *Task, w *way) (r *Response, err error, ok bool) {
	l := s.expressLane(ctx, t, w)
	if l == nil {
		return nil, nil, false
	}
	generation, now := l.generation.Load(), s.now()
	claims, ok := s.pass(l, now)
	if !ok {
		return nil, nil, false
	}
	l.swift.started.Add(1)
	x := new(express)
	x.begin(s, ctx, t, l, w, now)
	x.at.hold.permit.gen, x.at.hold.claims = generation, claims
	x.at.hold.unsent, x.at.hold.taken = true, now
	x.at.hold.mark = l.stats.seen.started(now, l.gate.active())
	if l.policy.retry != nil {
		l.retries.first(now)
	}
	r, resp, err := x.attempt()
	if r != nil {
		x.end(r)
		return r, nil, true
	}
	c := x.adopt()
	r, err = x.at.f.carryOn(c, &x.at, resp, err)
	return r, err, true
}

// begin fills in what the attempt, and its executor, need.
func (x *express) begin(s *Scheduler, ctx context.Context, t *Task, l *lane, w *way, now instant) {
	at := &x.at
	x.seq, x.lane = s.seq.Add(1), l
	at.s, at.task, at.values, at.bound, at.single, at.n = s, t, ctx, boundCaller, w.single, 1
	at.hold.lane, at.hold.owner, at.hold.slot, at.hold.judged = l, s.nobody, true, l.brk != nil
	at.policy = &l.policy
	at.began, at.deadline, at.unlisted, at.express = now, never, true, x
	at.stamped = true
	at.stage.begin()
	if d := timeoutOf(t.r.AttemptTimeout, l.policy.attemptTimeout); d > 0 {
		at.limit = d
		at.deadline = now.add(d)
	}
	if x.heard = s.heard(); x.heard {
		s.alive.Add(1) // until all has been told
	}
}

// sent stamps the moment at which the executor is called, where that is not the
// one of the start, and tells the windows.
func (x *express) sent() {
	s, h := x.at.s, &x.at.hold
	if x.heard {
		x.at.began = s.now()
		if d := x.at.limit; d > 0 {
			x.at.setDeadline(x.at.began.add(d))
		}
	}
	s.called(h)
}

// tell tells an event of a task whose goroutine is the only one that knows it.
func (x *express) tell(now instant, e *Event) {
	at := &x.at
	e.Time, e.Seq, e.Task, e.Lane = at.s.wall(now), x.seq, at.task, x.lane.name
	at.s.call(e)
}

// tellBegin tells that the task is there and starts.
func (x *express) tellBegin() {
	x.tell(x.at.began, &Event{Kind: EventSubmitted, Context: x.at.values})
	x.tell(x.at.began, &Event{Kind: EventStarted, Attempt: 1, Context: &x.at})
}

// end gives the slot back and tells of the success; all of it also if a listener
// ends the goroutine.
func (x *express) end(r *Response) {
	s, l := x.at.s, x.lane
	if !x.heard {
		s.passBack(l)
		return
	}
	defer s.aliveLess()
	took := x.took
	now := x.at.began.add(took)
	defer x.tell(now, &Event{Kind: EventSucceeded, Attempt: 1, Status: r.StatusCode, Took: took, Context: x.at.values})
	s.passBack(l)
	x.tell(now, &Event{Kind: EventAttemptDone, Attempt: 1, Status: r.StatusCode, Verdict: VerdictSuccess, Took: took, Context: x.at.values})
}

// attempt calls the executor and, if all is ordinary, ends the task. A panic or
// Goexit of the executor or of its body ends it on the way through.
func (x *express) attempt() (r *Response, resp *http.Response, err error) {
	returned := false
	defer func() {
		if !returned {
			c := x.adopt()
			x.at.answer = resp
			f := x.at.f
			c.through(f, func() { f.crashed(&x.at) }) // whose events may end the goroutine once more
			c.finish()
		}
	}()
	if x.heard {
		x.tellBegin()
	}
	x.sent()
	resp, err = runExecutor(&x.at, x.at.s.exec, x.at.task)
	if err == nil && !x.stage.adopted() && x.ordinary(resp) {
		r, err = x.succeed(resp)
	}
	returned = true
	return r, resp, err
}

// ordinary tells whether an answer, once its body is read, ends the task: a
// success that asks for nothing.
func (x *express) ordinary(resp *http.Response) bool {
	if !x.at.task.safe() && x.at.s.remembers.Load() { // somebody has begun to meanwhile
		return false
	}
	if serverError(resp.StatusCode) || resp.StatusCode == http.StatusTooManyRequests || mentionsQuota(resp.Header) {
		return false
	}
	if resp.Body != http.NoBody && (isStream(resp) || resp.ContentLength < 0 && x.at.single || resp.ContentLength > x.at.s.cfg.MaxBodyBytes) {
		return false
	}
	return !x.lane.gate.isGuarded()
}

// succeed reads the body of an ordinary answer and ends the task. It returns nil
// if something has come between: an error of the body, or an answer as good as
// new.
func (x *express) succeed(resp *http.Response) (*Response, error) {
	at := &x.at
	s, l := at.s, x.lane
	a := new(answered)
	a.body.b = emptyBody
	if resp.Body != http.NoBody {
		body, whole, err := buffer(resp, s.cfg.MaxBodyBytes, 0)
		if err != nil || !whole {
			return nil, err
		}
		a.body.b = body
	}
	resp.Body = &a.body
	now := s.now()
	took := now.sub(at.began)
	end, _ := at.ending()
	if b := l.policy.breaker; end != nil || b != nil && b.SlowCall > 0 && took > b.SlowCall || !x.stage.end() {
		return nil, nil
	}
	at.finish()
	l.stats.seen.attemptEnded(now, &l.stats.service, sample{kind: outcomeSuccess, status: resp.StatusCode, took: took, mark: at.hold.mark}, l.gate.active())
	l.noteSuccess(now, took)
	if req := resp.Request; req != nil && !at.single && ofAttempt(req) {
		resp.Request = withContext(req, at.values)
	}
	a.Response.Response = resp
	a.Attempts, a.Seq = 1, x.seq
	x.took = took
	return &a.Response, nil
}

var emptyBody = []byte{}

// answered is a Response and the reader of its body: one allocation for what
// lives together.
type answered struct {
	Response
	body memoryBody
}

// adopt makes a flight of an express task, with the slot it holds, known to the
// mutex like any other; once. It is nil if the task has ended.
func (x *express) adopt() *caller {
	s := x.at.s
	lone := new(loneTask)
	deadline := s.deadlineOf(x.at.values)
	s.mu.Lock()
	defer s.unlock()
	if x.stage.adopt() {
		c, f := lone.parts()
		c.deadline = deadline
		s.adoptLocked(x, c, f)
		x.c = c
	}
	return x.c
}

// rank is the place in a queue that it would have had.
func (x *express) rank() rank {
	t := x.at.task
	step := cmp.Or(t.r.AgingStep, x.lane.policy.agingStep)
	return rankOf(x.at.began, t.r.Priority, step, x.seq, x.at.s.cfg.StrictPriority)
}

func (s *Scheduler) adoptLocked(x *express, c *caller, f *flight) {
	at := &x.at
	t, l := at.task, x.lane
	c.s, c.task, c.ctx, c.f, c.lane, c.owner = s, t, at.values, f, l, s.nobody
	c.rank, c.born, c.bare = x.rank(), at.began, at.single
	s.fillLocked(f, c, nil, terms{
		attemptTimeout: at.limit, queueTimeout: timeoutOf(t.r.QueueTimeout, l.policy.queueTimeout),
		noRetry: t.r.NoRetry, named: t.r.Lane != "",
	}, nil)
	f.at, f.attempts, f.state = at, 1, flightRunning
	if x.heard {
		c.ev = new(outbox) // and has been counted
	} else {
		s.alive.Add(1)
	}
	s.count.attempts.Add(1)
	f.callers.add(c)
	at.f = f
	s.linkLocked(f)
	s.slots++
	l.slots++
	l.swift.adopted++
	f.owner.gate.take()
	l.stats.attempts.Add(1)
	s.activateLocked(&at.hold)
	if s.state == lifeClosed {
		s.leaveLocked(c, c.canceledLocked(canceled(ErrClosed, nil)), s.now())
	}
}

// guardedLocked tells whether a start in l must be decided under the mutex.
func (l *lane) guardedLocked(now instant) bool {
	if l.gone || l.held || l.until > now || l.asleep > now || !l.spread.done(now) {
		return true
	}
	if l.plain.tasks.len() > 0 || len(l.byOwner) > 0 || l.nested.len() > 0 {
		return true
	}
	return l.brk != nil && !l.brk.undisturbed(now)
}

// noteSuccess counts an ordinary success of an attempt that did not wait.
func (l *lane) noteSuccess(now instant, took time.Duration) {
	l.swift.done.Add(1)
	l.swift.used.Store(int64(now))
	if l.brk != nil {
		l.clean.note(now)
	}
	l.stats.service.record(took)
	l.stats.wait.record(0)
}

// swiftStats is what express tasks leave in their lane.
type swiftStats struct {
	started atomic.Uint64 // attempts
	done    atomic.Uint64 // successes
	adopted uint64        // become flights; guarded by s.mu
	used    atomic.Int64  // instant of the last
}

// clean is the latest successes of a lane whose breaker has seen no failure
// lately: nothing to judge, so they wait here until it has.
type clean struct {
	n  atomic.Uint64
	at []atomic.Int64
}

// maxClean is the largest Breaker.Window for which that is kept.
const maxClean = 1024

func newClean(window int) clean { return clean{at: make([]atomic.Int64, window)} }

func (c *clean) note(now instant) {
	i := c.n.Add(1) - 1
	c.at[i%uint64(len(c.at))].Store(int64(now))
}

// foldLocked tells the breaker of the successes noted since it last heard.
func (l *lane) foldLocked(now instant) {
	if l.brk == nil || len(l.clean.at) == 0 {
		return
	}
	n := l.clean.n.Swap(0)
	size := uint64(len(l.clean.at))
	for i := n - min(n, size); i < n; i++ {
		l.brk.succeeded(min(instant(l.clean.at[i%size].Load()), now))
	}
}

// swiftCounts is the express attempts of l that are done, and those under way: of one
// look, so that their sum never falls.
func (l *lane) swiftCounts() (done uint64, active int) {
	done = l.swift.done.Load() // before what began: never more
	return done, int(l.swift.started.Load() - l.swift.adopted - done)
}

// swiftActive is the express attempts under way in l.
func (l *lane) swiftActive() int {
	_, active := l.swiftCounts()
	return active
}
