package ax

import "time"

// cooldown refuses the same key while a task runs and for a time after it: a
// second click. Guarded by the scheduler's mutex.
type cooldown struct {
	s       *Scheduler
	key     dedupeKey
	running *caller // nil once it has ended
	length  time.Duration
	until   instant
	alarm   alarm
}

// coolLocked lets c be the one that runs under its key, or refuses it.
func (s *Scheduler) coolLocked(c *caller, owner string, now instant) error {
	key, ok := c.task.baseKey(s.ignore, owner)
	if !ok {
		return nil // Request.Task refuses what has no key
	}
	have := s.cooling.get(key)
	switch {
	case have == nil:
	case have.running != nil:
		return coolingDown(0)
	case have.until > now:
		return hinted(coolingDown(have.until.sub(now)), have.until.sub(now))
	}
	if have == nil {
		have = &cooldown{s: s, key: key}
		s.cooling.set(key, have)
	}
	have.running, have.length = c, c.task.r.Cooldown
	s.setAlarmLocked(&have.alarm, have, never)
	c.extras().cool = have
	return nil
}

// endedLocked starts the time after. A task that was never started leaves none:
// nothing happened that a second click would double.
func (cd *cooldown) endedLocked(c *caller, now instant) {
	cd.running = nil
	if c.res.kind == EventRejected || c.res.kind == EventCanceled && c.res.attempts == 0 {
		cd.s.cooling.remove(cd.key)
		return
	}
	cd.until = now.add(cd.length)
	cd.s.setAlarmLocked(&cd.alarm, cd, cd.until)
}

// ringLocked: cooled down.
func (cd *cooldown) ringLocked(instant) { cd.s.cooling.remove(cd.key) }
