package ax

import "sync/atomic"

// wouldCounts counts what DryRun would have done, in one lane, owner or all.
type wouldCounts struct {
	queued, rejected, superseded, cooled, held atomic.Uint64
	wait                                       histogram
}

func (w *wouldCounts) stats() WouldStats {
	return WouldStats{
		Queued: w.queued.Load(), Rejected: w.rejected.Load(), Superseded: w.superseded.Load(),
		Cooled: w.cooled.Load(), Held: w.held.Load(), Wait: w.wait.quantiles(),
	}
}

// ghost goes through queue, gate, rates and breaker in place of a task that
// DryRun has sent at once. It holds its slot for as long as the real attempt
// took, so that what waits behind it waits as long as it would have.
type ghost struct {
	f       flight // of no caller
	hold    hold
	alarm   alarm
	started instant // never while it waits
	took    instant // what the real attempt took; never while that runs
	failed  bool
	neutral bool
}

// wouldLocked adds one to a count of the scheduler, the lane and the owner.
func (s *Scheduler) wouldLocked(l *lane, o *owner, which func(*wouldCounts) *atomic.Uint64) {
	for _, w := range []*wouldCounts{&s.would, &l.stats.would, &o.would} {
		which(w).Add(1)
	}
}

// admitDryLocked lets a task go at once and finds out what would have become of
// it.
func (s *Scheduler) admitDryLocked(c *caller, f *flight, want *Hints, w *way, now instant) *flight {
	if !s.arriveLocked(c, want, w, now) {
		return nil
	}
	l, o := c.lane, c.owner
	cooled := s.enlistDryLocked(c, want, w, now)
	if cooled {
		s.wouldLocked(l, o, func(w *wouldCounts) *atomic.Uint64 { return &w.cooled })
	} else {
		s.supersedeDryLocked(c, l, o)
	}
	s.fillLocked(f, c, nil, termsOf(want, l), w.run)
	f.noRetry, f.lone = true, c.call == nil
	c.f = f
	f.callers.add(c)
	if !cooled && !s.shareDryLocked(f, c, want, w, now) {
		s.hauntLocked(f, want, now)
	}
	f.state, f.attempts = flightRunning, 1
	s.linkLocked(f)
	h := hold{lane: l, owner: o}
	s.activateLocked(&h)
	h.mark = l.stats.seen.started(now, l.inFlight())
	f.at = f.newAttempt(h)
	if !f.lone && f.attemptTimeout > 0 {
		s.alarmLocked(f, now.add(f.attemptTimeout))
	}
	return f
}

// enlistDryLocked writes c down where it can be ended, and tells whether a
// cooldown would have refused it.
func (s *Scheduler) enlistDryLocked(c *caller, want *Hints, w *way, now instant) (cooled bool) {
	s.startHeartbeatLocked(now)
	if w.scope != nil {
		_ = w.scope.joinLocked(c, w.scopeDead) // an ended scope refuses nothing either
	}
	if c.task.r.Cooldown > 0 {
		cooled = s.coolLocked(c, want.Owner, now) != nil
	}
	s.labelLocked(c, want, w)
	return cooled
}

// supersedeDryLocked counts, once each, the older tasks of c's name.
func (s *Scheduler) supersedeDryLocked(c *caller, l *lane, o *owner) {
	if c.more == nil || c.more.name == nil {
		return
	}
	for older := c.more.name.olderThan(c); older != nil; older = c.more.name.olderThan(c) {
		c.more.name.leaveLocked(older)
		older.more.name = nil
		s.wouldLocked(l, o, func(w *wouldCounts) *atomic.Uint64 { return &w.superseded })
	}
}

// shareDryLocked counts what sharing would have saved. Flights and window are
// kept as ever, but nobody is given anything of them.
func (s *Scheduler) shareDryLocked(f *flight, c *caller, want *Hints, w *way, now instant) bool {
	s.noteDryRepeatLocked(f, c, want, now)
	var key flightKey
	if !s.sharingOf(c, want, w, &key) {
		return false
	}
	if s.window.get(key.dedupeKey, now) != nil {
		s.count.windowHits.Add(1)
		c.note(noteWindowHit)
		return true
	}
	if have := s.flights.get(key); have != nil && !have.outdated && !have.failedLocked() {
		s.count.coalesced.Add(1)
		c.note(noteCoalesced)
		return true
	}
	s.keyLocked(f, &key)
	return false
}

// hauntLocked sends a ghost through the queue in place of f, or counts that it
// would have been refused.
func (s *Scheduler) hauntLocked(f *flight, want *Hints, now instant) {
	l, o := f.lane, f.owner
	rejected := func(w *wouldCounts) *atomic.Uint64 { return &w.rejected }
	s.tickLaneLocked(l, now)
	if l.isHeld(now) && !l.rejects(now) {
		s.wouldLocked(l, o, func(w *wouldCounts) *atomic.Uint64 { return &w.held })
	}
	if o.limited() && o.startAt(now) > now {
		s.noteOverLocked(o, &f.overBudget, now)
	}
	if l.rejects(now) || o.limited() && o.overAction() != OverQueue && o.startAt(now) > now || s.deadlineLocked(f, now) != nil {
		s.wouldLocked(l, o, rejected)
		return
	}
	g := &ghost{started: never, took: never}
	g.f = flight{s: s, task: f.task, lane: l, owner: o, rank: f.rank, state: flightWaiting, more: &flightExtras{ghost: g}, terms: terms{queueTimeout: f.queueTimeout}}
	g.f.wait = waiter{f: &g.f, lane: l, owner: o, kind: waitGhost}
	g.f.wait.node.item = &g.f.wait
	f.extras().ghost = g
	s.pushLocked(&g.f.wait, now)
	s.dispatchLocked(now)
	if g.started != never {
		return
	}
	if s.boundLocked(&g.f, want, now) != nil {
		s.exorciseLocked(g, now)
		return
	}
	s.wouldLocked(l, o, func(w *wouldCounts) *atomic.Uint64 { return &w.queued })
	if f.queueTimeout > 0 {
		s.setAlarmLocked(&g.alarm, g, now.add(f.queueTimeout))
	}
}

// exorciseLocked takes a ghost out of the queue: its task would have been
// refused.
func (s *Scheduler) exorciseLocked(g *ghost, now instant) {
	s.dropLocked(&g.f.wait, now)
	s.setAlarmLocked(&g.alarm, g, never)
	s.wouldLocked(g.f.lane, g.f.owner, func(w *wouldCounts) *atomic.Uint64 { return &w.rejected })
	s.dispatchLocked(now)
}

// startedLocked: here the task would have started.
func (g *ghost) startedLocked(h hold, now instant) {
	s := g.f.s
	waited := now.sub(g.f.wait.since)
	if waited > 0 {
		s.would.wait.record(waited)
		h.lane.stats.would.wait.record(waited)
		h.owner.would.wait.record(waited)
	}
	s.setAlarmLocked(&g.alarm, g, never) // of QueueTimeout
	s.called(&h)
	g.hold, g.started = h, now
	g.haunt()
}

// doneLocked: the real attempt has ended.
func (g *ghost) doneLocked(out *outcome) {
	g.took = instant(out.took)
	g.failed, g.neutral = out.kind == outcomeFailure, out.kind == outcomeNeutral
	g.haunt()
}

// haunt holds the slot until the task would have ended.
func (g *ghost) haunt() {
	if g.started == never || g.took == never {
		return
	}
	s := g.f.s
	if end := g.started + g.took; end > s.now() {
		s.setAlarmLocked(&g.alarm, g, end)
		return
	}
	g.ringLocked(s.now())
}

// ringLocked: the task would have ended, or waited too long.
func (g *ghost) ringLocked(now instant) {
	s := g.f.s
	if g.started == never {
		s.exorciseLocked(g, now)
		return
	}
	l := g.hold.lane
	if g.hold.judged && !g.neutral {
		g.hold.judged = false
		l.brk.done(now, g.hold.permit, g.failed)
		s.breakerMovedLocked(l, now)
	}
	s.giveBackLocked(&g.hold, now)
}

// layGhostsLocked ends what only DryRun would have waited for in l.
func (s *Scheduler) layGhostsLocked(l *lane, now instant) {
	for _, w := range l.waiters() {
		if w.kind == waitGhost {
			g := w.f.more.ghost
			s.setAlarmLocked(&g.alarm, g, never)
			s.dropLocked(w, now)
		}
	}
}

// runDry makes the one attempt of a task in DryRun: nothing follows it.
func (f *flight) runDry() { f.drive(sigGranted, nil) }

// hauntedLocked tells the ghost of a finished attempt, if it has one.
func (f *flight) hauntedLocked(out *outcome) {
	if m := f.more; m != nil && m.ghost != nil {
		m.ghost.doneLocked(out)
	}
}
