package ax

import (
	"math"
	"math/bits"
	"time"
)

// ramp grows a limit linearly from low to full over a time. full is given with
// each question, so that a limit may change while the lane is on its way to it.
type ramp struct {
	from instant
	over time.Duration
	low  int
}

func (r ramp) end() instant { return r.from.add(r.over) }

// done reports whether the limit is full again.
func (r ramp) done(now instant) bool { return now >= r.end() }

// limit is how many attempts may be in flight now: low + (full − low) · t/over,
// rounded down, and never more than full. With NoLimit for full the slope is so
// steep that the ramp holds nothing back.
func (r ramp) limit(now instant, full int) int {
	if r.done(now) || full <= r.low {
		return full
	}
	t := max(now.sub(r.from), 0)
	hi, lo := bits.Mul64(uint64(full-r.low), uint64(t))
	grown, _ := bits.Div64(hi, lo, uint64(r.over)) // t < over, so it is less than full − low
	return r.low + int(grown)
}

// reaches is the first moment at which limit is n or more, never if it stays below.
func (r ramp) reaches(n, full int) instant {
	switch {
	case n > full:
		return never
	case n <= r.low || full <= r.low:
		return r.from
	}
	slope := uint64(full - r.low)
	hi, lo := bits.Mul64(uint64(n-r.low), uint64(r.over))
	lo, carry := bits.Add64(lo, slope-1, 0)
	t, _ := bits.Div64(hi+carry, lo, slope) // rounded up; n ≤ full, so it is at most over
	return r.from.add(time.Duration(t))
}

// start is the moment from which the nth start on the ramp is allowed in a lane
// whose full rate is one start every gap: the rate grows from low a second to
// full. It is never after the end, where the lane's own rate takes over. A gap of
// 0 means no rate.
func (r ramp) start(n int, gap time.Duration) instant {
	if n <= 0 || gap <= 0 {
		return r.from
	}
	// By t seconds the rate has allowed slow·t + (full − slow)·t²/(2·over) starts.
	full, over := 1/gap.Seconds(), r.over.Seconds()
	slow := min(float64(r.low), full)
	t := float64(n) / full
	if bend := (full - slow) / over; bend > 0 {
		t = (math.Sqrt(slow*slow+2*bend*float64(n)) - slow) / bend
	}
	if t >= over {
		return r.end()
	}
	return r.from.add(time.Duration(math.Ceil(t * float64(time.Second))))
}

// fastestGap is the time between two starts at the fastest of the rates, whose
// defaults are resolved, rounded up; 0 without rates. The fastest is the one
// that shapes seconds; slower ones are quotas of longer windows.
func fastestGap(rates []Rate) time.Duration {
	var least time.Duration
	for i, r := range rates {
		if gap := ceilDiv(r.Per, r.Limit); i == 0 || gap < least {
			least = gap
		}
	}
	return least
}

func ceilDiv(d time.Duration, n int) time.Duration {
	q := d / time.Duration(n)
	if d%time.Duration(n) != 0 {
		q++
	}
	return q
}

const (
	// spreadOver is how long the queue behind a pause is kept from leaving as a herd.
	spreadOver = time.Second
	// spreadMost is the limit above which starts are spaced as if it were this:
	// even a lane without limits does not leave in one instant.
	spreadMost = 1000
)

// spread lets the queue of a lane out after a pause. A lane with a rate spaces
// its starts as the rate does on average; one without starts on a ramp from 1,
// the starts one part in limit of a second apart. It is over after a second.
type spread struct {
	rise  ramp
	gap   time.Duration
	free  instant // when the next start is far enough from the last
	rated bool
}

// newSpread is for a pause that ends at from, in a lane with these rates and,
// of its own or the scheduler's, this limit.
func newSpread(from instant, rates []Rate, limit int) spread {
	s := spread{rise: ramp{from: from, over: spreadOver, low: 1}, free: from, rated: len(rates) > 0}
	if s.gap = fastestGap(rates); !s.rated {
		s.gap = ceilDiv(spreadOver, min(limit, spreadMost))
	}
	return s
}

// next is the first moment at which time alone lets one more attempt begin with
// active ones in flight and a limit of full: now if it may at once, never if it
// takes a freed slot.
func (s *spread) next(now instant, active, full int) instant {
	at := max(now, s.free)
	switch {
	case active >= full:
		return never
	case s.rated:
		return at
	}
	return max(at, s.rise.reaches(active+1, full))
}

// took notes a start.
func (s *spread) took(now instant) {
	s.free = min(now.add(s.gap), max(now, s.rise.end()))
}

// limit is how many attempts may be in flight now in a lane whose own limit is full.
func (s *spread) limit(now instant, full int) int {
	if s.rated {
		return full
	}
	return s.rise.limit(now, full)
}

// done reports whether the lane is back to its own limits.
func (s *spread) done(now instant) bool { return s.rise.done(now) }
