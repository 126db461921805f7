package ax

import "runtime"

// sent stamps the moment of the send: from here the rates' windows count, and the
// attempt's time runs.
func (s *Scheduler) sent(at *attempt) {
	f := at.f
	shared := !f.lone && f.seen // by joiners, the flight's alarm, who leaves a deaf one
	if !shared && !at.hold.exact {
		s.begun(at)
		at.hold.unsent = false
		return
	}
	s.mu.Lock()
	s.begun(at)
	if at.limit > 0 && !at.due && at.timedByFlight() && f.at == at && f.state == flightRunning {
		s.alarmLocked(f, at.began.add(at.limit))
	}
	s.calledLocked(&at.hold, at.began)
	s.unlock()
}

// begun stamps and counts an attempt: for a shared flight under the mutex.
func (s *Scheduler) begun(at *attempt) {
	at.began, at.stamped = s.now(), true
	s.count.attempts.Add(1)
	at.hold.lane.stats.attempts.Add(1)
	if at.n == 1 {
		at.f.lane.retries.first(at.began)
	} else {
		s.count.retries.Add(1)
	}
	if d := at.f.attemptTimeout; d > 0 {
		at.limit = d
		at.setDeadline(at.began.add(d))
	}
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
