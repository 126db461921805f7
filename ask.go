package ax

import (
	"context"
	"math/rand/v2"
	"time"
)

// askLocked reserves what a start of w takes of this process's own limits and
// asks the governor for the fleet's, outside the mutex. Meanwhile w stays where
// it is and may be overtaken: the grant goes to whoever is best then.
func (s *Scheduler) askLocked(w *waiter, now instant) {
	l := w.lane
	h, ok := s.takeLocked(l, w.owner, now)
	if !ok {
		s.fixLaneLocked(l, now)
		return
	}
	l.asks++
	s.alive.Add(1)
	w.owner.asked++
	a := Ask{Lane: l.name, Owner: w.owner.name, Rank: s.rankTime(w.f), Priority: w.f.priority(), Seq: w.f.rank.seq}
	asked := w.f.rank
	s.fixLaneLocked(l, now)
	s.later(func() { go s.ask(l, h, a, asked) }) // ends with Acquire; Close waits for it
}

// rankTime is a rank as other processes can compare it.
func (s *Scheduler) rankTime(f *flight) time.Time {
	if !s.cfg.StrictPriority {
		return s.wall(f.rank.at)
	}
	const level = 1000 * time.Hour
	p := time.Duration(f.priority())
	p = min(max(p, -1000), 1000) // within what time.Time can tell
	return s.wall(f.callers.best().born).Add(-p * level)
}

// ask is one question to the governor and what follows from its answer.
func (s *Scheduler) ask(l *lane, h hold, a Ask, asked rank) {
	g, err := s.acquire(a)
	s.mu.Lock()
	now := s.now()
	l.asks--
	l.askOne = false
	h.owner.asked--
	var at *attempt
	switch {
	case err != nil:
		s.sleepLocked(l, governorErrorSleep, asked, now)
		s.later(func() { s.log.Warn("ax: governor failed", "lane", l.name, "error", err) })
	case g.RetryIn > 0:
		s.sleepLocked(l, g.RetryIn, asked, now)
	default:
		at = s.grantLocked(l, &h, g.Release, now)
	}
	if at == nil {
		s.giveBackLocked(&h, now)
		if err == nil && g.RetryIn <= 0 && g.Release != nil {
			s.later(g.Release)
		}
	}
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	s.aliveLessLocked()
	s.unlock()
	if at != nil && g.Lost != nil {
		go at.watchGrant(g.Lost) // ends with the attempt
	}
}

// governorErrorSleep is how long a lane waits after its governor failed.
const governorErrorSleep = 100 * time.Millisecond

// acquire is Governor.Acquire, a panic of which is an error.
func (s *Scheduler) acquire(a Ask) (g Grant, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
	}()
	return s.cfg.Governor.Acquire(s.life, a)
}

// sleepLocked lets the lane alone for d and up to a tenth more: nothing is
// asked until then, unless a better task comes.
func (s *Scheduler) sleepLocked(l *lane, d time.Duration, asked rank, now instant) {
	l.asleep = now.add(d + time.Duration(rand.Int64N(int64(d)/10+1)))
	l.sleepRank = asked
}

// wakeLaneLocked ends a sleep, once, for a task that is better than what the
// governor refused.
func (s *Scheduler) wakeLaneLocked(l *lane, r rank, now instant) {
	if l.asleep > now && r.before(l.sleepRank) {
		l.asleep = now
		l.sleepRank = rank{at: -never}
		l.askOne = true
	}
}

// grantLocked starts the lane's best task of this moment with the reserved
// permit h; nil if there is none, or the lane has closed meanwhile.
func (s *Scheduler) grantLocked(l *lane, h *hold, release func(), now instant) *attempt {
	if s.state == lifeClosed || l.isHeld(now) {
		return nil
	}
	h.owner.gate.release()
	h.owner.rates.giveBack(now, h.taken)
	s.fixOwnerLocked(h.owner, now)
	for {
		_, q, ok := l.ready.top()
		if !ok {
			h.owner.gate.take() // for giveBackLocked
			h.owner.rates.take(now, 0)
			return nil
		}
		_, n, _ := q.item.tasks.top()
		w := n.item
		if err := s.turnLocked(w, now); err != nil {
			s.refuseWaiterLocked(w, err, now)
			continue
		}
		s.dropLocked(w, now)
		h.owner = w.owner
		w.owner.gate.take()
		w.owner.rates.take(now, 0)
		h.release = release
		s.startLocked(w, *h, now)
		s.fixOwnerLocked(w.owner, now)
		if w.at != nil {
			return w.at
		}
		return w.f.at
	}
}

// watchGrant ends an attempt whose grant can no longer be held.
func (a *attempt) watchGrant(lost <-chan struct{}) {
	select {
	case <-lost:
		a.cancel(context.Canceled, ErrGrantLost)
		a.s.mu.Lock()
		if f := a.f; f != nil && f.at == a && f.state == flightRunning && !f.lone {
			a.due = true
			a.s.alarmLocked(f, a.s.now().add(deafAfter))
		}
		a.s.unlock()
	case <-a.Done():
	}
}
