package axredis

import (
	"math"
	"time"
)

// health is a small breaker around Redis: after a few calls without answer none
// is made any more, so that an outage costs nothing, until a probe beside the
// callers finds Redis again. One server has one for all lanes. Where lanes may lie
// on several servers each has its own: what happens to one server is nothing to
// the lanes of the others. Guarded by the governor's mutex.
type health struct {
	lane     string // whose it is; "" = all
	keys     []string
	failures int       // one after the other: of calls at once it is one
	failed   time.Time // latest
	answered time.Time // latest
	down     bool
	logged   bool          // that it is down
	wait     time.Duration // between probes; 0 = it answers
	probed   time.Time
}

const (
	// maxFailures in a row open the breaker. One may be an accident.
	maxFailures = 2
	// probeFirst is the time between the first probes, probeLast that between
	// later ones. Whoever asks meanwhile causes them: an idle process probes
	// nothing.
	probeFirst, probeLast = 200 * time.Millisecond, 800 * time.Millisecond
)

// healthLocked is what is known of the server that counts a lane.
func (g *Governor) healthLocked(lane string) *health {
	if g.store.single || g.keys.shared {
		lane = ""
	}
	h, ok := g.health[lane]
	if !ok {
		h = &health{lane: lane, keys: g.keys.probe(lane)}
		g.health[lane] = h
	}
	return h
}

// excuses is whether it was not Redis' fault that a call sent then has failed: it
// found no connection, or others have been answered meanwhile.
func (h *health) excuses(err error, sent time.Time) bool {
	return isCrowded(err) || !h.down && h.answered.After(sent)
}

// judgeLocked learns from the outcome of a call.
func (g *Governor) judgeLocked(h *health, err error, sent, now time.Time) {
	if err == nil {
		h.failures, h.wait, h.answered = 0, 0, now
		if h.logged {
			h.logged = false
			g.logLater(func() { g.cfg.Logger.Info("axredis: Redis answers again", h.of()...) })
		}
		return
	}
	if h.excuses(err, sent) || sent.Before(h.failed) {
		return
	}
	h.failures++
	h.failed = now
	if h.down || h.failures < maxFailures {
		return
	}
	h.down = true
	h.backOff()
	if !h.logged { // since the last answer
		h.logged = true
		g.logLater(func() {
			g.cfg.Logger.Warn("axredis: Redis does not answer", h.of("outage", g.cfg.Outage.String(), "error", err)...)
		})
	}
	g.dissolveLocked(h)
	for _, l := range g.lines {
		if l.health == h {
			l.answerAllLocked(now)
		}
	}
	g.probeLocked(h, now)
}

// of adds to what is logged the lane that it is about, if it is about one.
func (h *health) of(args ...any) []any {
	if h.lane == "" {
		return args
	}
	return append([]any{"lane", h.lane}, args...)
}

// backOff makes the probes rarer: after one that failed, and after one that
// promised too much.
func (h *health) backOff() { h.wait = min(max(2*h.wait, probeFirst), probeLast) }

// logLater logs outside the mutex.
func (g *Governor) logLater(log func()) {
	g.work.Add(1)
	go func() { // ends with the Logger
		defer g.work.Done()
		log()
	}()
}

// isDue is whether it is time for a probe.
func (h *health) isDue(now time.Time) bool { return h.down && now.Sub(h.probed) >= h.wait }

// probeLocked looks whether Redis is back, beside whoever asks, if it is time.
func (g *Governor) probeLocked(h *health, now time.Time) {
	if g.seeks || g.closed || !h.isDue(now) {
		return
	}
	p := probe{args: probeArguments(g.id)}
	var sought []*health
	for _, h := range g.health {
		switch {
		case h.isDue(now):
			h.probed = now
			sought = append(sought, h)
			p.sought = append(p.sought, h.keys)
		case !h.down:
			p.served = append(p.served, h.keys)
		}
	}
	g.seeks = true
	g.work.Add(1)
	go g.seek(p, sought) // ends within the probe's bound; Close cuts it short
}

// seek ends the outage of those for which Redis does all that an ask needs. Then
// every line tells at once what it holds, so that a Redis that has come back empty
// knows it.
func (g *Governor) seek(p probe, sought []*health) {
	defer g.work.Done()
	found, old := g.store.revive(g.life, p)
	defer old.retire()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seeks = false
	for i, h := range sought {
		if !found[i] {
			h.backOff()
			continue
		}
		h.down, h.failures = false, 0
		for _, l := range g.lines {
			if l.health == h {
				l.renewAt = time.Time{}
				l.pumpLocked()
			}
		}
	}
}

// answerAllLocked answers who waits for a Redis that does not answer.
func (l *line) answerAllLocked(now time.Time) {
	for _, k := range l.asks {
		l.answerAloneLocked(k, now)
		l.g.doneLocked(k)
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
	if k.retryIn > 0 {
		return
	}
	l.grantLocked(k, now)
	if l.g.cfg.Outage == FailLocal {
		for _, s := range l.scopes {
			s.alone = now
		}
	}
}

// ownRoom is how many starts the limits leave to this process, were it alone, if it
// was so of late; and else how long they let them wait.
func (l *line) ownRoom(now time.Time) (room int, wait time.Duration) {
	room = math.MaxInt
	for _, s := range l.scopes {
		r, w := s.ownRoom(now)
		room, wait = min(room, r), max(wait, w)
	}
	return room, early(wait)
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
