package ax

import (
	"context"
	"errors"
	"slices"
	"time"
)

// hedge is the second attempt of a flight whose first is slow: the first
// success of the two wins, which a 429 is not. Its waiter and attempt are guarded by
// the scheduler's mutex.
type hedge struct {
	f    *flight
	wait waiter
	at   *attempt
}

// hedgePolicy is the task's own, else the lane's; nil for a task that may not be
// sent twice, that is nested, or that the user has not asked it for.
func (f *flight) hedgePolicy() *Hedge {
	h := f.task.r.Hedge
	if h == nil {
		h = f.lane.policy.hedge
	}
	if h = hedging(h); h == nil || f.outer != nil || f.work() != nil || f.s.cfg.DryRun || !f.task.idempotent() || !f.task.replayable() {
		return nil
	}
	return h
}

// hedgeAfter is how slow the first attempt must be: what the policy says, else
// the lane's 95th percentile, once it has been measured often enough.
func (f *flight) hedgeAfter() (after time.Duration, hedged bool) {
	h := f.hedgePolicy()
	if h == nil || f.attempts > 1 {
		return 0, false
	}
	if h.After > 0 {
		return h.After, true
	}
	service := &f.lane.stats.service
	return service.quantile(0.95), service.count() >= hedgeSamples
}

// hedgeSamples is how many outcomes a lane's 95th percentile needs to mean
// something: five in a hundred are beyond it.
const hedgeSamples = 20

var errHedgeLost = errors.New("ax: the other attempt answered first")

// landed is one of two attempts that has come to an outcome.
type landed struct {
	at  *attempt
	out outcome
}

// tryHedged is try, with a second attempt beside the first if that is slow. The
// winner is returned with its outcome, and is f.at.
func (f *flight) tryHedged(at *attempt, after time.Duration) (*attempt, outcome) {
	if !f.s.ownTime(at) {
		return at, f.try(at)
	}
	results := make(chan landed, 2) // room for both: nobody waits for the loser
	send := func(at *attempt) {
		go f.tryInto(at, results) // ends with the attempt; its permit is given back by whoever receives
	}
	send(at)
	timer := time.NewTimer(after)
	defer timer.Stop()
	var h *hedge
	var granted chan signal
	var deaf <-chan time.Time
	running, waited, over := []*attempt{at}, at, at.Done()
	for {
		select {
		case <-timer.C:
			if deaf != nil {
				continue // the flight is about to go on without the first
			}
			if h = f.s.askHedge(f); h != nil {
				granted = h.wait.ready
			}
		case <-over:
			over, deaf = nil, time.After(deafAfter)
			if other := running[len(running)-1]; other != waited {
				waited, over, deaf = other, other.Done(), nil
			}
		case <-deaf: // nobody is left who heeds its context
			return f.s.leaveDeaf(f, running, h, results)
		case sig := <-granted:
			granted = nil
			if sig == sigGranted {
				running = append(running, h.at)
				send(h.at)
				if over == nil {
					waited, over, deaf = h.at, h.at.Done(), nil
				}
			}
		case got := <-results:
			running = slices.DeleteFunc(running, func(a *attempt) bool { return a == got.at })
			if len(running) == 0 || got.out.kind == outcomeSuccess && !got.out.failed() {
				if h != nil {
					f.s.endHedge(f, h, got, results, len(running))
				}
				return got.at, got.out
			}
			f.s.countUnsent(f, got)
			f.s.finishLoser(got)
			if !got.out.unsent {
				f.tellLost(got.at, &got.out)
			}
		}
	}
}

// ownTime gives an attempt that may be hedged a timer of its own: the flight has
// one alarm, for one attempt. False if the flight has gone on without it already.
func (s *Scheduler) ownTime(at *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.abandoned {
		return false
	}
	at.ownTimer()
	s.silenceLocked(at.f)
	return true
}

func (a *attempt) ownTimer() {
	a.mu.Lock()
	a.bound = boundNobody
	a.mu.Unlock()
}

// timedByFlight tells whether the flight's alarm is the attempt's timer.
func (a *attempt) timedByFlight() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bound == boundFlight
}

// tryInto is try on a goroutine of its own: a panic, too, is an outcome.
func (f *flight) tryInto(at *attempt, results chan<- landed) {
	out := outcome{err: errAttemptAborted, final: true, crashed: true}
	defer func() {
		if v := recover(); v != nil {
			out = outcome{err: newPanicError(v), final: true, crashed: true}
		}
		results <- landed{at, out}
	}()
	out = f.try(at)
}

// askHedge queues a second attempt of f with f's rank, if the retry budget has
// room for it and nothing else forbids it.
func (s *Scheduler) askHedge(f *flight) *hedge {
	s.mu.Lock()
	defer s.unlockApart()
	now := s.now()
	if f.state != flightRunning || s.state == lifeClosed || !f.lane.retries.allow(now, f.retryRatio()) || f.lane.rejects(now) {
		return nil
	}
	h := &hedge{f: f}
	h.at = f.newAttempt(hold{})
	h.at.n++
	h.at.ownTimer()
	h.wait = waiter{f: f, lane: f.lane, owner: f.owner, at: h.at, kind: waitRetry, ready: make(chan signal, 1)}
	h.wait.node.item = &h.wait
	f.extras().hedge = h
	s.pushLocked(&h.wait, now)
	s.dispatchLocked(now)
	return h
}

// unlockApart is unlock for who has two attempts to look after: users' code that
// follows runs on another goroutine, so that it cannot end this one.
func (s *Scheduler) unlockApart() {
	if len(s.todo) == 0 {
		s.unlock()
		return
	}
	apart(s.unlock)
}

// apart does on another goroutine what users' code is part of, and waits for it.
func apart(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// tellLost tells what one of two attempts came to that is not the flight's.
func (f *flight) tellLost(at *attempt, out *outcome) {
	if f.s.heard() {
		apart(func() { f.tellOutcome(at, out, verdictFinal) })
	}
}

// tellLeft tells of an attempt that has been sent, and whose end is not waited for.
func (f *flight) tellLeft(at *attempt, now instant) {
	err, cause := at.ending()
	if err == nil {
		return
	}
	out := at.ended(err, cause)
	out.took = at.lasted(now)
	f.tellLost(at, &out)
}

// abortHedgeLocked ends the second attempt, queued or running.
func (s *Scheduler) abortHedgeLocked(h *hedge, now instant) {
	s.dropLocked(&h.wait, now)
	at := h.at
	s.later(func() { at.cancel(context.Canceled, errHedgeLost) })
}

// endHedge makes got the outcome of the flight and ends the other attempt,
// which says nothing about the server.
func (s *Scheduler) endHedge(f *flight, h *hedge, got landed, results <-chan landed, running int) {
	s.mu.Lock()
	now := s.now()
	s.dropLocked(&h.wait, now)
	other := h.at
	if got.at == h.at {
		other = f.at
		f.at = h.at
	}
	f.more.hedge = nil
	granted := other.hold.lane != nil
	if running == 0 && granted { // permitted at this very moment, never sent
		s.giveBackLocked(&other.hold, now)
	}
	sent := other.stage.begun() || granted && !other.stage.forestall() // one in a hop holds nothing
	if granted && !sent {
		f.unsendLocked(other)
	}
	s.dispatchLocked(now)
	s.unlockApart()
	other.cancel(context.Canceled, errHedgeLost)
	if running > 0 {
		go func() { s.finishLoser(<-results) }() // ends with the attempt, which has just been cancelled
	}
	if running > 0 && sent {
		f.tellLeft(other, now)
	}
}

// countUnsent leaves out of f's attempts one of two that was never sent.
func (s *Scheduler) countUnsent(f *flight, l landed) {
	s.mu.Lock()
	if l.out.unsent {
		f.unsendLocked(l.at)
	}
	s.unlockApart()
}

// leaveDeaf leaves attempts that do not notice their end to themselves. They keep
// their permits until they return; the flight goes on with an attempt that holds
// nothing.
func (s *Scheduler) leaveDeaf(f *flight, running []*attempt, h *hedge, results <-chan landed) (*attempt, outcome) {
	first := running[0]
	out := first.ended(first.ending())
	s.mu.Lock()
	now := s.now()
	if h != nil {
		s.dropLocked(&h.wait, now)
		if at := h.at; at.hold.lane != nil && !slices.Contains(running, at) && at.stage.forestall() { // granted at this very moment
			s.giveBackLocked(&at.hold, now)
			f.unsendLocked(at)
		}
		f.more.hedge = nil
	}
	stand := f.newAttempt(hold{})
	stand.stage.begin() // as first has
	f.at = stand
	s.dispatchLocked(now)
	s.unlockApart()
	out.arrived, out.took = now, first.lasted(now)
	go func() { // ends with the attempts; Close waits for them
		for range running {
			s.finishLoser(<-results)
		}
	}()
	for _, at := range running {
		if at.n != stand.n && at.stage.begun() {
			f.tellLeft(at, now)
		}
	}
	f.plan(stand, &out)
	return stand, out
}

// finishLoser gives back what an attempt held whose outcome nobody wants. What it says
// about its server counts all the same.
func (s *Scheduler) finishLoser(l landed) {
	streams := l.out.resp != nil && l.out.stream
	if !streams {
		l.at.finish()
	}
	wrote := wrote(l.at, &l.out)
	s.mu.Lock()
	now := s.now()
	s.wroteLocked(l.at.f, wrote)
	if l.out.crashed {
		s.laterUser(l.at.closeAnswer)
	}
	s.recordLocked(l.at, &l.out, now)
	s.heedLocked(l.at, &l.out, now)
	if !streams {
		s.giveBackLocked(&l.at.hold, now)
	}
	if streams { // its end gives back what it holds
		s.laterUser(func() {
			l.at.finish()
			l.out.resp.Body.Close()
		})
	}
	s.dispatchLocked(now)
	s.unlockApart()
}
