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
	if !at.hold.exact {
		at.hold.unsent = false
		return
	}
	s.mu.Lock()
	s.calledLocked(&at.hold, now)
	s.unlock()
}

// calledLocked tells the rates that a token taken has been used now.
func (s *Scheduler) calledLocked(h *hold, now instant) {
	if !h.unsent {
		return
	}
	h.unsent = false
	s.rates.called(now)
	h.lane.rates.called(now)
	h.owner.rates.called(now)
	s.fixOwnerLocked(h.owner, now)
	s.fixLaneLocked(h.lane, now)
	s.dispatchLocked(now)
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
