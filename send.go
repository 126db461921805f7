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
	s.called(&at.hold)
}

// called tells the rates that what h has taken of them is used: the Executor is about
// to be called. The clock is read when nobody can be in the way any more, since
// windows do not see what passes from then until the call; so nothing follows it here
// but what another goroutine does.
func (s *Scheduler) called(h *hold) {
	if !h.unsent {
		return
	}
	h.unsent = false
	rates := h.rates(s)
	var exact [len(rates)]bool
	var some, opened bool
	for i, r := range rates {
		if exact[i] = r.exact(); exact[i] {
			r.mu.Lock()
			some = true
		}
	}
	if !some {
		return
	}
	now := s.now()
	for i, r := range rates {
		if exact[i] {
			opened = r.calledLocked(now, h.claims[i]) || opened
			r.mu.Unlock()
		}
	}
	if opened {
		s.alive.Add(1)
		go s.opened(h.lane, h.owner) // at once
	}
}

// opened lets those look again who wait for tokens that a call has used.
func (s *Scheduler) opened(l *lane, o *owner) {
	s.mu.Lock()
	now := s.now()
	s.fixOwnerLocked(o, now)
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	s.aliveLessLocked()
	s.unlock()
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
