package ax

import (
	"math"
	"time"
)

// spacing keeps starts at least gap apart, on a schedule: what a timer was late
// is not lost for the starts that follow.
type spacing struct {
	gap   time.Duration // 0 = none
	last  instant       // what the latest start counts as
	prior instant       // what the one before counts as
	taken instant       // when the latest was taken; math.MinInt64 once it cannot be given back
}

// newSpacing has seen no start.
func newSpacing() spacing {
	return spacing{last: math.MinInt64, prior: math.MinInt64, taken: math.MinInt64}
}

// maxLagShare is the part of a gap that a late timer may shorten the next one by.
const maxLagShare = 5

// due is the earliest moment of the next start, even if long past.
func (s *spacing) due() instant { return s.last.add(s.gap) }

// take records a start now. If it was due later than lag ago, only the timer made
// it late, and it counts as made when it was due. One that nobody wanted until
// long after it was due counts from now: an idle spell earns nothing.
func (s *spacing) take(now, due instant, lag time.Duration, taken instant) {
	s.prior, s.last, s.taken = s.last, now, taken
	if lag > 0 && now-instant(lag) <= due {
		s.last = max(due, now-instant(s.gap/maxLagShare))
	}
}

// giveBack undoes the start taken at taken, if no other has followed.
func (s *spacing) giveBack(taken instant) {
	if s.taken == taken {
		s.last, s.taken = s.prior, math.MinInt64
	}
}
