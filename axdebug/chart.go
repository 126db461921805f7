package axdebug

import "time"

// chartSpan is how far back the chart goes, in seconds.
const chartSpan = 300

// chart counts second by second, in a ring over the last chartSpan of them. It
// has no clock and no lock.
type chart struct {
	since   int64 // the first second that was watched, in Unix time
	seconds [chartSpan]second
}

// second is what happened in one second, and how things stood at its end.
type second struct {
	at              int64 // in Unix time: a slot of another time is empty
	started, failed int
	sampled         bool
	active          int
	queued          int
	parked          int
}

// slot is the second t, emptied if it still was an older one.
func (c *chart) slot(t time.Time) *second {
	at := t.Unix()
	s := &c.seconds[at%chartSpan]
	if s.at != at {
		*s = second{at: at}
	}
	return s
}

// sample notes how things stood at the end of the second t.
func (c *chart) sample(t time.Time, active, queued, parked int) {
	s := c.slot(t)
	s.sampled, s.active, s.queued, s.parked = true, active, queued, parked
}

// points are the watched ones of the chartSpan seconds before the running one,
// the oldest first. A second without a sample stands as the one before it: the
// recorder stops sampling only when nothing moves.
func (c *chart) points(now time.Time) []second {
	end := now.Unix()
	var points []second
	var last second
	for at := max(end-chartSpan, c.since); at < end; at++ {
		s := c.seconds[at%chartSpan]
		if s.at != at {
			s = second{}
		}
		if !s.sampled {
			s.active, s.queued, s.parked = last.active, last.queued, last.parked
		}
		s.at = at
		last = s
		points = append(points, s)
	}
	return points
}
