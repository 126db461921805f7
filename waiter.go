package ax

// waitKind says what a waiter waits for.
type waitKind uint8

const (
	waitFirst  waitKind = iota // a permit for the first attempt
	waitRetry                  // a permit for a later one, or for a hop into another lane
	waitTokens                 // tokens alone: a nested attempt, or a hop within its lane
	waitGhost                  // a permit that DryRun only counts
)

// signal is what a waiter is woken with.
type signal uint8

const (
	sigGranted signal = iota // its attempt holds all it needs
	sigRefused               // ax will not start it: f.refusal says why
	sigOver                  // nobody is left who wants it
)

// waiter is one wish for a start, in the queue of one lane.
type waiter struct {
	node    heapNode[*waiter]
	f       *flight
	lane    *lane
	owner   *owner
	at      *attempt              // a hop's; nil = the start makes one
	worst   *[2]heapNode[*waiter] // in the eviction heaps of lane and scheduler
	ready   chan signal           // nil = the flight has no goroutine yet
	since   instant
	kind    waitKind
	counted bool // against MaxQueue
}

// pushLocked queues w by its flight's rank.
func (s *Scheduler) pushLocked(w *waiter, now instant) {
	w.since = now
	if w.kind == waitTokens {
		w.lane.nested.push(w.f.rank, &w.node)
		s.nesting[w.lane] = struct{}{}
		w.lane.nestedAt = never // dispatch follows and will know
		s.gate.guard(true)      // it goes ahead of everybody
		s.fixLaneLocked(w.lane, now)
		return
	}
	s.wakeLaneLocked(w.lane, w.f.rank, now)
	q := w.lane.queueOf(w.owner)
	q.tasks.push(w.f.rank, &w.node)
	w.owner.inQueue++
	w.lane.inQueue++
	if (w.kind == waitFirst || w.kind == waitGhost) && !w.f.exempt {
		w.counted = true
		w.lane.waiting++
		w.owner.waiting++
		s.waiting++
		s.pushWorstLocked(w)
	}
	q.fixLocked()
	s.fixLaneLocked(q.lane, now)
	s.fixOwnerLocked(w.owner, now)
}

// pushBackLocked puts w back where it was taken from.
func (s *Scheduler) pushBackLocked(w *waiter, now instant) {
	since := w.since
	s.pushLocked(w, now)
	w.since = since
}

// pushWorstLocked lists w for eviction, where that is on.
func (s *Scheduler) pushWorstLocked(w *waiter) {
	if s.cfg.Overflow != OverflowEvict || w.kind != waitFirst {
		return
	}
	w.worst = new([2]heapNode[*waiter])
	w.worst[0].item, w.worst[1].item = w, w
	w.lane.worst.push(w.f.rank.reversed(), &w.worst[0])
	s.worst.push(w.f.rank.reversed(), &w.worst[1])
}

// dropLocked takes w out of its queue; what it held up is dispatched by the
// caller.
func (s *Scheduler) dropLocked(w *waiter, now instant) {
	if w.node.pos == 0 {
		return
	}
	if w.kind == waitTokens {
		w.lane.nested.remove(&w.node)
		if w.lane.nested.len() == 0 {
			delete(s.nesting, w.lane)
		}
		s.fixLaneLocked(w.lane, now)
		return
	}
	q := w.lane.queueOf(w.owner)
	q.tasks.remove(&w.node)
	w.owner.inQueue--
	w.lane.inQueue--
	s.uncountLocked(w)
	s.fixQueueLocked(q, now)
	if w.owner.inQueue == 0 && w.owner.alarm.pos == 0 {
		s.fixOwnerLocked(w.owner, now) // it may go now
	}
}

// uncountLocked ends w's part in the queue bounds.
func (s *Scheduler) uncountLocked(w *waiter) {
	if !w.counted {
		return
	}
	w.counted = false
	w.lane.waiting--
	w.owner.waiting--
	s.waiting--
	if w.worst != nil {
		w.lane.worst.remove(&w.worst[0])
		s.worst.remove(&w.worst[1])
		w.worst = nil
	}
}

// rerankLocked moves w after its flight's rank changed.
func (s *Scheduler) rerankLocked(w *waiter, now instant) {
	if w.node.pos == 0 {
		return
	}
	if w.kind == waitTokens {
		w.lane.nested.fix(&w.node, w.f.rank)
		return
	}
	q := w.lane.queueOf(w.owner)
	q.tasks.fix(&w.node, w.f.rank)
	if w.worst != nil {
		w.lane.worst.fix(&w.worst[0], w.f.rank.reversed())
		s.worst.fix(&w.worst[1], w.f.rank.reversed())
	}
	s.fixQueueLocked(q, now)
}

// fixQueueLocked puts q where its best task belongs among the lane's queues,
// and the lane where it belongs among the lanes.
func (s *Scheduler) fixQueueLocked(q *queue, now instant) {
	q.fixLocked()
	s.fixLaneLocked(q.lane, now)
}

// fixLocked is the first half of that: the lane is to follow.
func (q *queue) fixLocked() {
	l := q.lane
	best, _, ok := q.tasks.top()
	switch {
	case !ok || q.owner != nil && q.owner.blocked:
		l.ready.remove(&q.node)
	case q.node.pos == 0:
		q.node.item = q
		l.ready.push(best, &q.node)
	default:
		l.ready.fix(&q.node, best)
	}
	if !ok && q.owner != nil {
		q.owner.forgetQueue(q)
		delete(l.byOwner, q.owner)
	}
}

// fixLaneLocked puts l among the lanes that can start something, or sets its
// alarm for when time will let it; it tells what time has changed.
func (s *Scheduler) fixLaneLocked(l *lane, now instant) {
	s.tickLaneLocked(l, now)
	on := l.guardedLocked(now)
	if !on && l.brk != nil {
		l.generation.Store(l.brk.gen)
	}
	l.gate.guard(on) // before the gate is looked at: see gate
	wake := never
	best, _, ok := l.ready.top()
	if ok && l.asks > 0 && (l.askOne || l.asks >= l.startable()) {
		ok = false
	}
	if ok {
		if t := l.startAt(now); t > now {
			ok, wake = false, t
		}
	}
	switch {
	case !ok:
		s.ready.remove(&l.node)
	case l.node.pos == 0:
		l.node.item = l
		s.ready.push(best, &l.node)
	default:
		s.ready.fix(&l.node, best)
	}
	s.setLaneAlarmLocked(l, wake, now)
}

// setLaneAlarmLocked: the lane's next moment is that of a start, of its pause's
// end, of its breaker, or that of its own end. An alarm for less than that may
// stay: it only looks again.
func (s *Scheduler) setLaneAlarmLocked(l *lane, wake, now instant) {
	if l.paused && l.until > now {
		wake = min(wake, l.until)
	}
	if l.brk != nil {
		wake = min(wake, l.brk.wakeAt())
	}
	if l.nested.len() > 0 && l.nestedAt > now { // else dispatch is about to look
		wake = min(wake, l.nestedAt)
	}
	if wake == never {
		if l.alarm.pos != 0 {
			return
		}
		wake = l.forgetAt(now)
	}
	s.setAlarmLocked(&l.alarm, l, wake)
}

// startable counts what could start if the lane allowed it.
func (l *lane) startable() int {
	n := 0
	l.ready.each(func(_ rank, q *heapNode[*queue]) bool { n += q.item.tasks.len(); return n <= l.asks })
	return n
}

// obstacle is what a waiter waits for, and what would help.
type obstacle struct{ name, remedy string }

var (
	obstacleHeld     = obstacle{"the end of Pause", "call Resume"}
	obstaclePause    = obstacle{"the end of a pause that the server asked for", "send less"}
	obstacleBreaker  = obstacle{"its breaker to close", "set Breaker.WhenOpen to OpenReject"}
	obstacleForced   = obstacle{"its breaker, which is held open by hand", "call ForceBreaker with BreakerAuto"}
	obstacleSlot     = obstacle{"a slot", "Config.MaxConcurrent"}
	obstacleLaneSlot = obstacle{"a slot of its lane", "the lane's MaxConcurrent"}
	obstacleOwner    = obstacle{"its owner's budget", "the Budget"}
	obstacleLaneRate = obstacle{"a token of its lane", "the lane's Rate"}
	obstacleRate     = obstacle{"a token", "Config.Rate"}
	obstacleFleet    = obstacle{"the governor's word", "the limits of the fleet"}
	obstacleOthers   = obstacle{"others that go first", "its Priority"}
)

// obstacle is what keeps w from starting now: what is held before whose budget is
// used up, that before what is full, and that before what is too fast.
func (w *waiter) obstacle(now instant) obstacle {
	s, l, o := w.f.s, w.lane, w.owner
	switch {
	case s.held || l.held:
		return obstacleHeld
	case l.until > now:
		return obstaclePause
	case l.brk != nil && l.brk.mode == BreakerForceOpen:
		return obstacleForced
	case l.brk != nil && l.brk.state() == BreakerOpen:
		return obstacleBreaker
	case o.limited() && o.asked == 0 && o.startAt(now) > now:
		return obstacleOwner
	case l.asks > 0 && l.asks >= l.startable():
		return obstacleFleet
	case w.kind != waitTokens && !s.gate.free():
		return obstacleSlot
	case w.kind != waitTokens && l.limit(now) > 0 && l.inFlight() >= l.limit(now):
		return obstacleLaneSlot
	case l.rates.next(now) > now:
		return obstacleLaneRate
	case s.rates.next(now) > now:
		return obstacleRate
	}
	return obstacleOthers
}
