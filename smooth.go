package ax

import (
	"math"
	"time"
)

// spacing keeps starts gap apart, on a schedule: what a timer was late is made up
// for by the starts that follow, each a little early, never by two at once.
type spacing struct {
	gap time.Duration // 0 = none
	spaced
	before spaced  // the latest start
	taken  instant // when that was taken; math.MinInt64 once it cannot be given back
}

// spaced is what the starts so far leave.
type spaced struct {
	last instant // what the latest one counts as
	real instant // when it was
}

// newSpacing has seen no start.
func newSpacing() spacing {
	none := spaced{last: math.MinInt64, real: math.MinInt64}
	return spacing{spaced: none, before: none, taken: math.MinInt64}
}

const (
	leastGap = 3                      // fifths of gap that are left between two starts when the second makes up for lost time
	mostLate = 100 * time.Millisecond // what can be made up for, or one gap if that is longer; more is an idle spell
)

// planned is the moment of the next start if none was ever late.
func (s *spacing) planned() instant { return s.last.add(s.gap) }

// due is the earliest moment of the next start, even if long past.
func (s *spacing) due() instant { return max(s.planned(), s.real.add(s.gap/5*leastGap)) }

// take records a start now, which could have been at due. If that was later than
// lag ago, only the timer made it late, and it counts as made when it was planned.
// One that nobody wanted until long after it was due counts from now: an idle
// spell earns nothing.
func (s *spacing) take(now, due instant, lag time.Duration, taken instant) {
	planned := s.planned()
	s.before, s.taken = s.spaced, taken
	s.last, s.real = now, now
	if now-instant(lag) <= due && now.sub(planned) <= max(mostLate, s.gap) {
		s.last = planned
	}
}

// giveBack undoes the start taken at taken, if no other has followed.
func (s *spacing) giveBack(taken instant) {
	if s.taken == taken {
		s.spaced, s.taken = s.before, math.MinInt64
	}
}
