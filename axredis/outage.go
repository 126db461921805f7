package axredis

import "time"

// health is a small breaker around Redis: after a few calls without answer none
// is made any more, so that an outage costs nothing, until a probe beside the
// callers finds Redis again. Guarded by the governor's mutex.
type health struct {
	failures int // in a row
	down     bool
	probing  bool
	probed   time.Time
}

const (
	// maxFailures in a row open the breaker. One may be an accident.
	maxFailures = 2
	// probeEvery is the time between probes. Whoever asks meanwhile causes
	// them: an idle process probes nothing.
	probeEvery = 200 * time.Millisecond
)

// judgeLocked learns from the outcome of a call.
func (g *Governor) judgeLocked(err error, now time.Time) {
	h := &g.health
	if err == nil {
		h.failures = 0
		return
	}
	h.failures++
	if h.down || h.failures < maxFailures {
		return
	}
	h.down = true
	g.logLater(func() {
		g.cfg.Logger.Warn("axredis: Redis does not answer", "outage", g.cfg.Outage.String(), "error", err)
	})
	for _, l := range g.lines {
		l.answerAllLocked(now)
	}
	g.probeLocked(now)
}

// logLater logs outside the mutex.
func (g *Governor) logLater(log func()) {
	g.work.Add(1)
	go func() { // ends with the Logger
		defer g.work.Done()
		log()
	}()
}

// probeLocked looks whether Redis is back, beside whoever asks, if it is time.
func (g *Governor) probeLocked(now time.Time) {
	h := &g.health
	if !h.down || h.probing || g.closed || now.Sub(h.probed) < probeEvery {
		return
	}
	h.probing, h.probed = true, now
	g.work.Add(1)
	go g.probe() // ends within Timeout; Close waits for it
}

// probe ends the outage if Redis can be written to. Then every line tells at once
// what it holds, so that a Redis that has come back empty knows it.
func (g *Governor) probe() {
	defer g.work.Done()
	err := g.store.revive()
	g.mu.Lock()
	h := &g.health
	h.probing = false
	if err != nil || !h.down {
		g.mu.Unlock()
		return
	}
	h.down, h.failures = false, 0
	for _, l := range g.lines {
		l.renewAt = time.Time{}
		l.pumpLocked()
	}
	g.mu.Unlock()
	g.cfg.Logger.Info("axredis: Redis answers again")
}

// answerAllLocked answers who waits for a Redis that does not answer.
func (l *line) answerAllLocked(now time.Time) {
	for _, k := range l.asks {
		l.answerAloneLocked(k, now)
		close(k.done)
	}
	l.asks = nil
}

// closedSleep is when FailClosed lets a lane ask again.
const closedSleep = 100 * time.Millisecond

// answerAloneLocked answers k without Redis, as the Outage says.
func (l *line) answerAloneLocked(k *ask, now time.Time) {
	if l.g.closed {
		k.err = ErrClosed
		return
	}
	k.alone = true
	switch l.g.cfg.Outage {
	case FailClosed:
		k.retryIn = closedSleep
	case FailLocal:
		k.retryIn = l.localWait(now)
	}
	if k.retryIn == 0 {
		l.grantLocked(k, now)
	}
}

// localWait is how long the fleet's limits, applied to this process alone, let a
// start wait; 0 = not at all.
func (l *line) localWait(now time.Time) time.Duration {
	var wait time.Duration
	for _, s := range l.scopes {
		if s.full() {
			wait = max(wait, s.poll())
		}
		if d := s.startAt(now).Sub(now); d > 0 {
			wait = max(wait, early(d))
		}
	}
	return wait
}
