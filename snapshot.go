package ax

import (
	"slices"
	"sync/atomic"
	"time"
)

// counters are those of Stats.
type counters struct {
	succeeded, failed, canceled, rejected               atomic.Uint64
	attempts, retries, coalesced, windowHits, fallbacks atomic.Uint64
	panics                                              atomic.Uint64
}

// laneStats is what a lane remembers of its attempts.
type laneStats struct {
	attempts           atomic.Uint64
	failures           uint64
	wait, service      histogram
	lastWait, lastTook knownQuantiles
	would              wouldCounts
	seen               observed
}

// Stats is a snapshot of everything that can be counted: cheap enough to be
// polled every second with ten thousand lanes.
func (s *Scheduler) Stats() Stats {
	st, lanes := s.gauges()
	st.Lanes = make(map[string]LaneStats, len(lanes))
	s.polling.Lock()
	defer s.polling.Unlock()
	for _, look := range lanes { // without s.mu, which histograms do not need
		of := &look.lane.stats
		look.stats.Wait, look.stats.Service = of.lastWait.of(&of.wait), of.lastTook.of(&of.service)
		st.Lanes[look.lane.name] = look.stats
	}
	return st
}

// knownQuantiles are those of a histogram after so many records: of ten thousand
// lanes few have new ones from one look to the next. Guarded by s.polling.
type knownQuantiles struct {
	after uint64
	Quantiles
}

func (k *knownQuantiles) of(h *histogram) Quantiles {
	if n := h.count(); n != k.after {
		k.after, k.Quantiles = n, h.quantiles()
	}
	return k.Quantiles
}

// laneLook is a lane as it was when Stats looked.
type laneLook struct {
	lane  *lane
	stats LaneStats // but for the quantiles
}

// gauges is what Stats must see at one moment.
func (s *Scheduler) gauges() (Stats, []laneLook) {
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
		Owners:        make(map[string]OwnerStats, s.owners.len()),
		Would:         s.would.stats(),
	}
	lanes := make([]laneLook, 0, s.lanes.len())
	for _, l := range s.lanes.m {
		done, under := l.swiftCounts()
		ls := l.snapshot(now, done, under)
		st.Active += under
		st.Attempts += done + uint64(under)
		st.Succeeded += done
		st.Queued += ls.Queued
		st.Parked += ls.Parked
		lanes = append(lanes, laneLook{l, ls})
	}
	st.Submitted = s.seq.Load() // after what has ended: never less
	for name, o := range s.owners.m {
		if name == "" {
			continue
		}
		os := OwnerStats{Active: o.running, Queued: o.inQueue, Started: o.started, Over: o.over, Would: o.would.stats()}
		if s.cfg.DryRun { // ghosts are nobody
			os.Queued = 0
		}
		st.Owners[name] = os
	}
	return st, lanes
}

// snapshot is what Stats says of one lane, but for the quantiles; under is its
// express attempts under way. What time has changed by now is told when its alarm
// rings.
func (l *lane) snapshot(now instant, done uint64, under int) LaneStats {
	if l.brk != nil {
		l.brk.tick(now)
	}
	ls := LaneStats{
		Active:        l.running + under,
		MaxConcurrent: l.limit(now),
		Attempts:      l.stats.attempts.Load() + done + uint64(under),
		Failures:      l.stats.failures,
		Paused:        l.held || l.s.held || l.until > now,
		Would:         l.stats.would.stats(),
	}
	if l.until > now {
		ls.PausedUntil = l.s.wall(l.until)
	}
	if l.brk != nil {
		ls.Breaker = l.brk.state()
		if until, open := l.brk.openUntil(); open {
			ls.BreakerUntil = l.s.wall(until)
		}
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

// Waiter is a task that waits for a start, as Waiting shows it.
type Waiter struct {
	// Lane and Owner are the task's.
	Lane, Owner string
	// Method and URL are its request's, without user info and query values.
	Method, URL string
	// Priority is what it was submitted with.
	Priority Priority
	// Seq is its place in the order of submission.
	Seq uint64
	// Since is when this wait began, Rank what it is served by: the earlier goes
	// first.
	Since, Rank time.Time
	// Attempts counts those before this wait.
	Attempts int
	// Parked tells that it waits for more than a slot or a token: a budget, an
	// open breaker, a pause.
	Parked bool
	// For is what it waits for, and the setting that decides it: "a slot of its
	// lane: the lane's MaxConcurrent".
	For string
}

// Waiting is the n best-ranked tasks that wait for a start, best first, of all
// lanes together. It looks at every waiting task: for a page or a log line, not
// for a loop. Tasks in backoff wait for time and are not among them.
func (s *Scheduler) Waiting(n int) []Waiter {
	if n <= 0 || s.cfg.DryRun {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var all []*waiter
	for _, l := range s.lanes.m {
		all = append(all, l.waiters()...)
	}
	slices.SortFunc(all, byRank)
	list := make([]Waiter, 0, min(n, len(all)))
	for _, w := range all[:min(n, len(all))] {
		what := w.obstacle(now)
		list = append(list, Waiter{
			For:  what.name + ": " + what.remedy,
			Lane: w.lane.name, Owner: w.owner.name, Method: w.f.task.Method(), URL: w.f.task.redactedURL(),
			Priority: w.f.priority(), Seq: w.f.rank.seq, Since: s.wall(w.since), Rank: s.rankTime(w.f),
			Attempts: int(w.f.attempts), Parked: w.lane.isHeld(now) || w.owner.limited() && w.owner.blocked,
		})
	}
	return list
}
