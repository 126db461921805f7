package ax

// superseded is a waiting task whose place is to be free for a newer one of its name.
type superseded struct {
	c     *caller
	res   *result // its end, if the newer one is let in
	shown bool    // shownLast before
}

// asideLocked takes the waiting tasks that c supersedes out of their queues, so that c is
// judged as if they had gone: supersedeLocked or putBackLocked follows, in the same
// critical section. Who shares a flight with others leaves no place free.
func (s *Scheduler) asideLocked(c *caller, now instant) (aside []superseded) {
	name := c.name()
	if name == nil || name.olderThan(c) == nil {
		return nil
	}
	s.dispatchLocked(now) // what time has let start by now goes first: it may be behind them
	for _, older := range name.callers {
		f := older.f
		if older.seq() >= c.seq() || f == nil || f.state != flightWaiting || f.callers.len() > 1 {
			continue
		}
		s.tickLaneLocked(f.lane, now) // which may end its wait
		if f.state != flightWaiting {
			continue
		}
		shown := f.shownLast
		aside = append(aside, superseded{older, older.canceledLocked(canceled(ErrSuperseded, nil)), shown})
		s.dropLocked(&f.wait, now)
	}
	return aside
}

// putBackLocked lets those wait on whom a task would have superseded that has been
// refused.
func (s *Scheduler) putBackLocked(aside []superseded, now instant) {
	for _, a := range aside {
		f := a.c.f
		l := f.lane
		asleep, one, best := l.asleep, l.askOne, l.sleepRank
		f.shownLast = a.shown
		s.pushBackLocked(&f.wait, now)
		l.asleep, l.askOne, l.sleepRank = asleep, one, best // no newcomer wakes it
		s.fixLaneLocked(l, now)
	}
	if len(aside) > 0 {
		s.dispatchLocked(now)
	}
}

// supersedeLocked ends what c supersedes.
func (s *Scheduler) supersedeLocked(c *caller, aside []superseded, now instant) {
	for _, a := range aside {
		s.leaveLocked(a.c, a.res, now)
	}
	s.endOlderLocked(c.name(), c, now)
}

// endOlderLocked ends what c supersedes, after c has had the chance to join the
// same flight.
func (s *Scheduler) endOlderLocked(name *nameEntry, c *caller, now instant) {
	if name == nil || EventKind(c.kind) == EventRejected {
		return
	}
	for older := name.olderThan(c); older != nil; older = name.olderThan(c) {
		s.leaveLocked(older, older.canceledLocked(canceled(ErrSuperseded, nil)), now)
	}
}
