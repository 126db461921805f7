package ax

import (
	"math"
	"time"
)

// instant is a moment on the scheduler's own clock: nanoseconds since it was
// made, monotonic. Eight bytes instead of time.Time's 24, and ordered by <.
type instant int64

// never is later than every moment: only an event can bring it about.
const never instant = math.MaxInt64

// add is t+d, saturating at never.
func (t instant) add(d time.Duration) instant {
	if sum := t + instant(d); d < 0 || sum >= t {
		return sum
	}
	return never
}

// sub is the time from o to t.
func (t instant) sub(o instant) time.Duration { return time.Duration(t - o) }

// now is the present moment on the scheduler's clock.
func (s *Scheduler) now() instant { return instant(time.Since(s.epoch)) }

// wall is t as others read clocks.
func (s *Scheduler) wall(t instant) time.Time {
	if t == never {
		return time.Time{}
	}
	return s.epoch.Add(time.Duration(t))
}

// alarmer is what an alarm rings: under the scheduler's mutex, with dispatch to
// follow, so it only changes state.
type alarmer interface{ ringLocked(now instant) }

// alarm is a place in the scheduler's one timer; the zero value is not set.
type alarm = heapNode[alarmer]

// setAlarmLocked makes a ring once at t: sooner, later, or (never) not at all.
func (s *Scheduler) setAlarmLocked(a *alarm, who alarmer, t instant) {
	switch {
	case t == never:
		s.alarms.remove(a)
	case a.pos == 0:
		a.item = who
		s.alarms.push(rank{at: t}, a)
	default:
		s.alarms.fix(a, rank{at: t})
	}
}

// armLocked sees to it that the timer fires no later than the first alarm. An
// alarm that was taken back leaves the timer as it is: one idle firing is
// cheaper than stopping it each time.
func (s *Scheduler) armLocked() {
	first, _, ok := s.alarms.top()
	if !ok || first.at >= s.timerAt {
		return
	}
	s.timerAt = first.at
	d := first.at.sub(s.now())
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.tick)
		return
	}
	s.timer.Reset(d)
}

// tick rings what is due, on the timer's goroutine, then dispatches.
func (s *Scheduler) tick() {
	s.mu.Lock()
	s.timerAt = never
	now := s.now()
	for {
		first, a, ok := s.alarms.top()
		if !ok || first.at > now {
			break
		}
		s.alarms.pop()
		s.lag = max(s.lag, now.sub(first.at))
		a.item.ringLocked(now)
	}
	s.dispatchLocked(now)
	s.lag = 0
	s.unlock()
}
