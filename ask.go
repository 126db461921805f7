package ax

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// askLocked reserves what a start of w takes of this process's own limits and
// asks the governor for the fleet's, outside the mutex. Meanwhile w stays where
// it is and may be overtaken: the grant goes to whoever is best then.
func (s *Scheduler) askLocked(w *waiter, now instant) {
	l := w.lane
	w.owner.asked++ // first: the reservation must not refuse whom it is for
	h, ok := s.takeLocked(l, w.owner, now)
	if !ok {
		w.owner.asked--
		s.fixLaneLocked(l, now)
		return
	}
	l.asks++
	s.asks++
	s.alive.Add(1)
	a := Ask{Lane: l.name, Owner: w.owner.name, Rank: s.rankTime(w.f), Priority: w.f.priority(), Seq: w.f.rank.seq}
	asked := w.f.rank
	s.fixLaneLocked(l, now)
	s.later(func() { go s.ask(l, h, a, asked) }) // ends with Acquire; Close waits for it
}

// rankTime is a rank as other processes can compare it.
func (s *Scheduler) rankTime(f *flight) time.Time {
	if !s.cfg.StrictPriority {
		return s.epoch.Add(time.Duration(f.rank.at)) // never, too, is a rank
	}
	const level = 1000 * time.Hour
	const near = math.MaxInt64 / int64(level)
	const far = math.MaxInt64 / 2 / int64(level/time.Second)
	p, born := int64(f.priority()), s.wall(f.callers.best().born)
	if -near <= p && p <= near {
		return born.Add(-time.Duration(p) * level)
	}
	p = min(max(p, -far), far) // within what time.Time can tell
	return time.Unix(born.Unix()-p*int64(level/time.Second), int64(born.Nanosecond()))
}

// ask is one question to the governor and what follows from its answer.
func (s *Scheduler) ask(l *lane, h hold, a Ask, asked rank) {
	answered := false
	defer func() {
		if !answered { // Goexit
			s.answer(l, h, asked, Grant{}, errGovernorGone)
		}
	}()
	g, err := s.acquire(a)
	answered = true
	s.answer(l, h, asked, g, err)
}

var errGovernorGone = errors.New("ax: the governor ended its goroutine")

// answer takes the governor's word on a reserved permit.
func (s *Scheduler) answer(l *lane, h hold, asked rank, g Grant, err error) {
	s.mu.Lock()
	now := s.now()
	l.asks--
	s.asks--
	l.askOne = false
	payer := h.owner
	var at *attempt
	switch {
	case err != nil:
		s.sleepLocked(l, governorErrorSleep, asked, now)
		s.laterUser(func() { s.log.Warn("ax: governor failed", "lane", l.name, "error", err) })
	case g.RetryIn > 0:
		s.sleepLocked(l, g.RetryIn, asked, now)
		s.refuseNoWaitLocked(l, now)
	default:
		if mine := (&grant{release: g.Release, startBy: g.StartBy, released: make(chan struct{})}); mine.late() {
			s.sleepLocked(l, lateSleep, asked, now)
		} else {
			at = s.grantLocked(l, &h, mine, now)
		}
	}
	var released chan struct{}
	if at != nil && g.Lost != nil {
		released = at.hold.grant.released
	}
	if at == nil {
		s.giveBackLocked(&h, now)
		if err == nil && g.RetryIn <= 0 && g.Release != nil {
			s.laterUser(g.Release)
		}
	}
	payer.asked--
	s.fixOwnerLocked(payer, now)
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	s.aliveLessLocked()
	s.unlock()
	if released != nil {
		go at.watchGrant(g.Lost, released) // ends with the grant
	}
}

// governorErrorSleep is how long a lane waits after its governor failed.
const governorErrorSleep = 100 * time.Millisecond

// lateSleep is how long a lane waits after a grant that came too late.
const lateSleep = time.Millisecond

// acquire is Governor.Acquire, a panic of which is an error.
func (s *Scheduler) acquire(a Ask) (g Grant, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
	}()
	return s.cfg.Governor.Acquire(s.life, a)
}

// refuseNoWaitLocked ends those who would start at once or not at all: the fleet
// has said not at once.
func (s *Scheduler) refuseNoWaitLocked(l *lane, now instant) {
	if !l.noWait {
		return
	}
	l.noWait = false
	for _, w := range l.waiters() {
		if w.f.noWait {
			s.refuseWaiterLocked(w, wouldWait("the fleet's limits"), now)
		}
	}
}

// sleepLocked lets the lane alone for d and up to a tenth more: nothing is
// asked until then, unless a better task comes.
func (s *Scheduler) sleepLocked(l *lane, d time.Duration, asked rank, now instant) {
	l.asleep = now.add(d).add(time.Duration(rand.Int64N(int64(d)/10 + 1)))
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
func (s *Scheduler) grantLocked(l *lane, h *hold, g *grant, now instant) *attempt {
	if s.state == lifeClosed || l.held || s.held || l.until > now || h.judged && !l.brk.holds(h.permit) {
		return nil
	}
	for {
		w := s.bestForLocked(l, h)
		if w == nil {
			return nil
		}
		if err := s.turnLocked(w, now); err != nil {
			s.refuseWaiterLocked(w, err, now)
			continue
		}
		if w.owner != h.owner && !s.passOwnerLocked(h, g, w.owner, now) {
			if s.fixOwnerLocked(w.owner, now); !w.owner.blocked {
				return nil // for a moment: it is asked for again
			}
			continue
		}
		s.dropLocked(w, now)
		h.grant = g
		s.startLocked(w, *h, now)
		s.fixOwnerLocked(w.owner, now)
		if w.at != nil {
			return w.at
		}
		return w.f.at
	}
}

// bestForLocked is the lane's best task that a reserved permit can start: the
// owner it was reserved for is not held up by its own reservation.
func (s *Scheduler) bestForLocked(l *lane, h *hold) *waiter {
	var best *waiter
	if _, q, ok := l.ready.top(); ok {
		_, n, _ := q.item.tasks.top()
		best = n.item
	}
	if q := l.byOwner[h.owner]; q != nil {
		if r, n, ok := q.tasks.top(); ok && (best == nil || r.before(best.f.rank)) {
			best = n.item
		}
	}
	return best
}

// passOwnerLocked makes another owner pay for a reserved permit; false if it cannot.
func (s *Scheduler) passOwnerLocked(h *hold, g *grant, o *owner, now instant) bool {
	if !o.gate.take() {
		return false
	}
	claim := o.rates.take(now, 0)
	if claim == noClaim {
		o.gate.release()
		return false
	}
	was := h.owner
	was.gate.release()
	was.rates.giveBack(now, h.taken, h.claims[ofOwner])
	h.owner, h.claims[ofOwner], g.passed = o, claim, now
	s.fixOwnerLocked(was, now)
	return true
}

// watchGrant ends an attempt whose grant can no longer be held, for as long as
// it holds that.
func (a *attempt) watchGrant(lost, released <-chan struct{}) {
	select {
	case <-lost:
		select {
		case <-released:
			return // given back in the same moment
		default:
		}
		a.cancel(context.Canceled, ErrGrantLost)
		a.s.mu.Lock()
		if f := a.f; f != nil && f.at == a && f.state == flightRunning && !f.lone && a.timedByFlight() {
			a.due = true
			a.s.alarmLocked(f, a.s.now().add(deafAfter))
		}
		a.s.unlock()
	case <-released:
	}
}
