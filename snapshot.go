package ax

import "sync/atomic"

// counters are those of Stats.
type counters struct {
	submitted, succeeded, failed, canceled, rejected    atomic.Uint64
	attempts, retries, coalesced, windowHits, fallbacks atomic.Uint64
	panics                                              atomic.Uint64
}

// laneStats is what a lane remembers of its attempts.
type laneStats struct {
	attempts, failures uint64
	wait, service      histogram
	would              wouldCounts
}

// Stats is a snapshot of everything that can be counted: cheap enough to be
// polled every second with ten thousand lanes.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	st := Stats{
		Active:        s.running,
		Succeeded:     s.count.succeeded.Load(),
		Failed:        s.count.failed.Load(),
		Canceled:      s.count.canceled.Load(),
		Rejected:      s.count.rejected.Load(),
		Attempts:      s.count.attempts.Load(),
		Retries:       s.count.retries.Load(),
		Coalesced:     s.count.coalesced.Load(),
		WindowHits:    s.count.windowHits.Load(),
		Fallbacks:     s.count.fallbacks.Load(),
		DedupeEntries: s.window.entries.len(),
		DedupeBytes:   s.window.bytes,
		Lanes:         make(map[string]LaneStats, s.lanes.len()),
		Owners:        make(map[string]OwnerStats, s.owners.len()),
		Would:         s.would.stats(),
	}
	st.Submitted = s.count.submitted.Load()
	for name, l := range s.lanes.m {
		ls := l.snapshot(now)
		st.Queued += ls.Queued
		st.Parked += ls.Parked
		st.Lanes[name] = ls
	}
	for name, o := range s.owners.m {
		if name == "" {
			continue
		}
		st.Owners[name] = OwnerStats{Active: o.running, Queued: o.inQueue, Started: o.started, Over: o.over, Would: o.would.stats()}
	}
	return st
}

// snapshot is what Stats says of one lane.
func (l *lane) snapshot(now instant) LaneStats {
	ls := LaneStats{
		Active:        l.running,
		MaxConcurrent: l.limit(now),
		Attempts:      l.stats.attempts,
		Failures:      l.stats.failures,
		Wait:          l.stats.wait.quantiles(),
		Service:       l.stats.service.quantiles(),
		Paused:        l.held || l.s.held || l.until > now,
		Would:         l.stats.would.stats(),
	}
	if l.until > now {
		ls.PausedUntil = l.s.wall(l.until)
	}
	if l.brk != nil {
		ls.Breaker = l.brk.state()
	}
	ls.Queued, ls.Parked = l.gauges(now)
	return ls
}

// gauges counts what waits in l: queued for a slot or a token, parked for
// anything else. Ghosts are nobody.
func (l *lane) gauges(now instant) (queued, parked int) {
	if l.s.cfg.DryRun {
		return 0, 0
	}
	queued = l.plain.tasks.len() + l.nested.len()
	for _, q := range l.byOwner {
		if q.owner.blocked {
			parked += q.tasks.len()
		} else {
			queued += q.tasks.len()
		}
	}
	if l.isHeld(now) {
		queued, parked = 0, queued+parked
	}
	return queued, parked + l.resting
}
