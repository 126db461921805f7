package ax

import (
	"context"
	"time"
)

// flightState says where a flight is on its way.
type flightState uint8

const (
	flightNew      flightState = iota
	flightWaiting              // in a queue
	flightResting              // in backoff
	flightRunning              // an attempt holds a permit
	flightSettling             // its last outcome is known; a fallback may run
	flightDone
)

// flight is one piece of work on its way to an answer: queued, tried, tried
// again. It belongs to its callers, one or many, and ends when the last of them
// leaves. Guarded by the scheduler's mutex but where said.
type flight struct {
	s      *Scheduler
	task   *Task // the first caller's, as are retry, fallback and window
	lane   *lane
	owner  *owner
	values context.Context // the first caller's
	outer  *attempt        // what it is nested in
	wait   waiter
	rank   rank // the best of its callers'

	callers    callerSet
	key        *flightKey // nil = nobody can share it
	waited     time.Duration
	at         *attempt // the running or the latest
	answer     *payload // the last answer seen
	refusal    error    // why ax goes no further
	buf        *buffers
	more       *flightExtras
	next, prev *flight // in the scheduler's list of what is unfinished
	terms              // its first caller's, with the longest timeouts of all

	attempts   int32
	state      flightState
	refusedOp  op   // Error.Op of refusal
	lone       bool // runs on its only caller's goroutine
	exempt     bool // outside MaxQueue
	keyed      bool // stands in s.flights under key
	filed      bool // stands in s.byURL
	outdated   bool // a write to its URL came after its start: not kept, not joined
	noWait     bool // starts when the governor answers, or not at all
	entered    bool // admission let it wait
	shownLast  bool // answer is in the hands of a caller who left
	ownBody    bool // the caller whose task it has is gone: it closes the body
	overBudget bool // it met its owner's budget
}

// terms is what a caller asks of the flight that answers it.
type terms struct {
	attemptTimeout time.Duration // 0 = none
	queueTimeout   time.Duration // 0 = none; also of the wait after a backoff
	noRetry        bool
	named          bool // its lane was named
	single         bool // Transport(): one hop
}

// termsOf is what want asks for in lane l.
func termsOf(want *Hints, l *lane) terms {
	return terms{
		attemptTimeout: timeoutOf(want.AttemptTimeout, l.policy.attemptTimeout),
		queueTimeout:   timeoutOf(want.QueueTimeout, l.policy.queueTimeout),
		noRetry:        want.NoRetry,
		named:          want.Lane != "",
	}
}

// buffers is what a flight needs once it runs: most of it its goroutine's alone.
type buffers struct {
	out   outcome // of the last attempt
	res   result
	pay   payload
	first attempt // room for it

	// Guarded by s.mu:
	alarm   alarm // attempt timeout, backoff, QueueTimeout of a retry
	sealed  bool  // its answer is a failure that nobody is to see: not joined
	standIn bool  // a fallback is at work
	driver  int32 // which of the goroutines drives it that were given it, one after the other
}

// flightExtras is what few flights have.
type flightExtras struct {
	work   func(ctx context.Context) error // Run: in place of the executor
	beside context.Context                 // of what it does beside its attempts
	quit   func()                          // ends that
	hedge  *hedge
	ghost  *ghost
	who    string // whose cookies its client adds; see way
}

// who is whose cookies its key has.
func (f *flight) who() string {
	if f.more == nil {
		return ""
	}
	return f.more.who
}

// extras makes room for what few flights have.
func (f *flight) extras() *flightExtras {
	if f.more == nil {
		f.more = new(flightExtras)
	}
	return f.more
}

// last is the outcome of the last attempt.
func (f *flight) last() *outcome { return &f.buffers().out }

func (f *flight) buffers() *buffers {
	if f.buf == nil {
		if f.buf = f.s.spare.Swap(nil); f.buf == nil {
			f.buf = new(buffers)
		}
	}
	return f.buf
}

// work is what Run does in place of the executor, or nil.
func (f *flight) work() func(context.Context) error {
	if f.more == nil {
		return nil
	}
	return f.more.work
}

// priority is that of the best-ranked caller.
func (f *flight) priority() Priority { return Priority(^f.rank.level) }

// op is an Error.Op in a byte.
type op uint8

const (
	opAdmit op = iota
	opQueue
	opRetry
	opAttempt
	opFallback
)

func (o op) String() string { return [...]string{"admit", "queue", "retry", "attempt", "fallback"}[o] }

// flightKey is under what a flight can be found: results are shared within one
// lane.
type flightKey struct {
	dedupeKey
	lane *lane
}

// ringLocked: the flight's own moment has come, whatever it does now.
func (f *flight) ringLocked(now instant) {
	s := f.s
	switch f.state {
	case flightResting:
		s.requeueLocked(f, now)
	case flightWaiting:
		s.refuseLocked(f, opQueue, queueTimeout(now.sub(f.wait.since), f.wait.obstacle(now)), now)
	case flightRunning:
		s.attemptDueLocked(f, now)
	}
}

// deadline is the latest of its callers': the flight is worth starting as long
// as one of them can still be answered.
func (f *flight) deadline() instant {
	latest := instant(0)
	f.callers.each(func(c *caller) bool {
		latest = max(latest, c.deadline)
		return true
	})
	return latest
}

// linkLocked lists f among what is unfinished, for Close to find.
func (s *Scheduler) linkLocked(f *flight) {
	f.next = s.unfinished
	if f.next != nil {
		f.next.prev = f
	}
	s.unfinished = f
	f.lane.flights++
	f.owner.flights++
}

func (s *Scheduler) unlinkLocked(f *flight) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		s.unfinished = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.next, f.prev = nil, nil
	f.lane.flights--
	f.owner.flights--
	if f.lane.alarm.pos == 0 || f.owner.alarm.pos == 0 { // they may go now
		now := s.now()
		s.fixLaneLocked(f.lane, now)
		s.fixOwnerLocked(f.owner, now)
	}
}

// rerankFlightLocked gives f the best rank of those who are left.
func (s *Scheduler) rerankFlightLocked(f *flight, now instant) {
	best := f.callers.best().rank
	if best == f.rank {
		return
	}
	f.rank = best
	switch {
	case f.state == flightWaiting:
		s.rerankLocked(&f.wait, now)
	case f.state == flightRunning && f.at.hopping() != nil:
		s.rerankLocked(f.at.hopping(), now)
	}
	if m := f.more; m != nil && m.hedge != nil {
		s.rerankLocked(&m.hedge.wait, now)
	}
	s.dispatchLocked(now)
}

// abortLocked ends a flight that nobody wants any more. A running attempt is
// cancelled and gives back what it holds when its executor returns.
func (s *Scheduler) abortLocked(f *flight, res *result, now instant) {
	s.unkeyLocked(f)
	s.silenceLocked(f)
	was := f.state
	if was == flightDone {
		return
	}
	s.laterUser(f.task.closeBody)
	f.state = flightDone
	s.unlinkLocked(f)
	switch was {
	case flightWaiting:
		s.dropLocked(&f.wait, now)
		s.wakeLocked(f, sigOver)
		s.dispatchLocked(now)
	case flightResting:
		f.lane.resting--
		s.wakeLocked(f, sigOver)
		s.fixLaneLocked(f.lane, now)
	case flightRunning, flightSettling:
		if m := f.more; m != nil && m.hedge != nil {
			s.abortHedgeLocked(m.hedge, now)
		}
		if m := f.more; m != nil && m.quit != nil {
			s.later(m.quit)
		}
		if at := f.at; at != nil {
			if hopping := at.hopping(); hopping != nil {
				s.dropLocked(hopping, now)
			}
			cause := res.err
			s.later(func() { at.cancel(context.Canceled, cause) })
			s.freeProbeLocked(&at.hold, now)
		}
	}
}

// freeProbeLocked lets another task probe in place of one that nobody wants: whatever
// becomes of it says nothing about the server.
func (s *Scheduler) freeProbeLocked(h *hold, now instant) {
	if !h.judged || !h.permit.probe {
		return
	}
	h.judged = false
	h.lane.brk.abandon(now, h.permit)
	s.breakerMovedLocked(h.lane, now)
	s.fixLaneLocked(h.lane, now)
	s.dispatchLocked(now)
}

// refuseLocked ends what f waits for: without an attempt it is the task's end,
// else it makes the last outcome final.
func (s *Scheduler) refuseLocked(f *flight, op op, err error, now instant) {
	f.waited = f.waitedAt(now)
	switch f.state {
	case flightWaiting:
		s.dropLocked(&f.wait, now)
	case flightResting:
		f.lane.resting--
	case flightNew:
	default:
		s.dropLocked(&f.wait, now) // a waiter must not be refused for ever
		return
	}
	f.state = flightSettling
	f.refusal, f.refusedOp = err, op
	f.buffers() // here, since others look for its alarm
	s.silenceLocked(f)
	s.wakeLocked(f, sigRefused)
}

// waitedAt is how long f has been in queues.
func (f *flight) waitedAt(now instant) time.Duration {
	if f.state == flightWaiting && f.wait.node.pos != 0 {
		return f.waited + now.sub(f.wait.since)
	}
	return f.waited
}

// refusalOp is Error.Op of a refusal now.
func (f *flight) refusalOp() op {
	switch {
	case !f.entered:
		return opAdmit
	case f.attempts > 0:
		return opRetry
	}
	return opQueue
}

// settlingOp is Error.Op of an end that comes when f's last outcome is known.
func (f *flight) settlingOp() op {
	switch {
	case f.buf != nil && f.buf.standIn:
		return opFallback
	case f.refusal != nil:
		return f.refusedOp
	case f.attempts > 0:
		return opAttempt
	}
	return opQueue
}

// alarmLocked rings f at t, in place of any other time: it needs one thing at a
// time, and only once it has been started.
func (s *Scheduler) alarmLocked(f *flight, t instant) { s.setAlarmLocked(&f.buf.alarm, f, t) }

// silenceLocked takes f's alarm back.
func (s *Scheduler) silenceLocked(f *flight) {
	if f.buf != nil {
		s.setAlarmLocked(&f.buf.alarm, f, never)
	}
}

// spareBuffers sees to it that the next waiter's are there when it starts, so that
// the mutex is not held while memory is found.
func (s *Scheduler) spareBuffers() {
	if s.gate.isGuarded() && s.spare.Load() == nil {
		s.spare.CompareAndSwap(nil, new(buffers))
	}
}

// wakeLocked sends f's goroutine on, or gives it one. A lone flight's caller
// that has not begun to wait looks at the state itself.
func (s *Scheduler) wakeLocked(f *flight, sig signal) {
	switch {
	case f.wait.ready != nil:
		s.todo = append(s.todo, todo{f: f, sig: sig})
	case !f.lone && sig != sigOver:
		f.wait.ready = make(chan signal, 1)
		s.todo = append(s.todo, todo{f: f, sig: sig, spawn: true})
	}
}
