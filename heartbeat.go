package ax

// heartbeat logs, while there is work, one line each Config.Heartbeat. Guarded
// by the scheduler's mutex.
type heartbeat struct {
	s        *Scheduler
	alarm    alarm
	finished uint64
}

// startHeartbeatLocked lets the heart beat as long as there is work.
func (s *Scheduler) startHeartbeatLocked(now instant) {
	if s.cfg.Heartbeat <= 0 || s.beat.alarm.pos != 0 {
		return
	}
	s.beat.s = s
	s.beat.finished = s.finished()
	s.setAlarmLocked(&s.beat.alarm, &s.beat, now.add(s.cfg.Heartbeat))
}

// finished counts the tasks that have ended.
func (s *Scheduler) finished() uint64 {
	return s.count.succeeded.Load() + s.count.failed.Load() + s.count.canceled.Load() + s.count.rejected.Load()
}

// ringLocked: one beat.
func (h *heartbeat) ringLocked(now instant) {
	s := h.s
	finished := s.finished()
	done := finished - h.finished
	h.finished = finished
	if s.alive.Load() == 0 && done == 0 {
		return
	}
	active, queued, parked := s.running, 0, 0
	oldest, where := now, ""
	for name, l := range s.lanes.m {
		q, p := l.gauges(now)
		queued += q
		parked += p
		if since, ok := l.oldest(); ok && since < oldest {
			oldest, where = since, name
		}
	}
	age := now.sub(oldest)
	s.laterUser(func() {
		s.log.Info("ax: heartbeat", "active", active, "queued", queued, "parked", parked,
			"finished", done, "oldest_wait", age, "oldest_lane", where)
	})
	if s.alive.Load() > 0 {
		s.setAlarmLocked(&h.alarm, h, now.add(s.cfg.Heartbeat))
	}
}

// oldest is since when the longest-waiting task of l waits.
func (l *lane) oldest() (since instant, ok bool) {
	since = never
	for _, w := range l.waiters() {
		since = min(since, w.since)
	}
	return since, since != never
}
