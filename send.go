package ax

import "runtime"

// sent stamps the moment of the send: from here the rates' windows count, and the
// attempt's time runs.
func (s *Scheduler) sent(at *attempt) {
	now := at.begin()
	s.count.attempts.Add(1)
	at.hold.lane.stats.attempts.Add(1)
	if at.n == 1 {
		at.f.lane.retries.first(now)
	} else {
		s.count.retries.Add(1)
	}
	if !at.hold.unsent {
		return
	}
	at.hold.unsent = false
	rates := at.hold.rates(s)
	if !rates[ofAll].exact() && !rates[ofLane].exact() && !rates[ofOwner].exact() {
		return
	}
	if _, opened := s.called(rates, at.hold.claims); opened {
		s.mu.Lock()
		s.openedLocked(&at.hold, s.now())
		s.unlock()
	}
}

// called tells rates that a token taken of each is used: the Executor is about to be
// called. The clock is read when nobody can be in the way any more, since windows
// do not see what passes from then until the call. opened tells that somebody who
// could not start before, at no moment, may have one now.
func (s *Scheduler) called(rates [3]*rateSet, claims [3]claim) (now instant, opened bool) {
	var exact [len(rates)]bool
	for i, r := range rates {
		if exact[i] = r.exact(); exact[i] {
			r.mu.Lock()
		}
	}
	now = s.now()
	for i, r := range rates {
		if exact[i] {
			opened = r.calledLocked(now, claims[i]) || opened
			r.mu.Unlock()
		}
	}
	return now, opened
}

// openedLocked lets those look again who wait for tokens that h used.
func (s *Scheduler) openedLocked(h *hold, now instant) {
	s.fixOwnerLocked(h.owner, now)
	s.fixLaneLocked(h.lane, now)
	s.dispatchLocked(now)
}

// calledLocked is called for who holds the mutex. Dispatch follows.
func (s *Scheduler) calledLocked(h *hold, now instant) {
	if h.unsent {
		h.unsent = false
		s.called(h.rates(s), h.claims)
		s.openedLocked(h, now)
	}
}

// roomForExecutor makes the stack of a new goroutine as large as an http.Client
// needs it, while there is next to nothing on it. Left to itself it would double
// twice in the depth of the executor, and each time all frames would be rewritten:
// a tenth of what a shared request on loopback cost.
//
//go:noinline
func roomForExecutor() {
	var room [executorStack]byte
	runtime.KeepAlive(&room)
}

const executorStack = 5 << 10
