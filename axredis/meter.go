package axredis

import (
	"sort"
	"time"
)

// meter counts one process's starts against a rate, for when Redis does not.
type meter interface {
	// next is the earliest moment, not before now, that allows a start.
	next(now time.Time) time.Time
	// room is how many starts are allowed now.
	room(now time.Time) int
	// took counts a start, allowed or not.
	took(now time.Time)
}

func newMeter(r rate) meter {
	if r.burst == 0 {
		return &window{limit: r.limit, per: r.per}
	}
	return &bucket{interval: float64(r.per) / float64(r.limit), burst: r.burst}
}

// window allows limit starts in any stretch of per.
type window struct {
	limit int
	per   time.Duration
	ends  []time.Time // of the latest starts, oldest first; at most limit
}

func (w *window) next(now time.Time) time.Time {
	if len(w.ends) < w.limit || !w.ends[0].After(now) {
		return now
	}
	return w.ends[0]
}

func (w *window) room(now time.Time) int {
	over := sort.Search(len(w.ends), func(i int) bool { return w.ends[i].After(now) })
	return w.limit - len(w.ends) + over
}

func (w *window) took(now time.Time) {
	if len(w.ends) == w.limit {
		w.ends = w.ends[1:]
	}
	w.ends = append(w.ends, now.Add(w.per))
}

// bucket allows burst starts at once and then one each interval. What it is short
// of being full is its debt, in nanoseconds.
type bucket struct {
	interval float64
	burst    int
	debt     float64
	last     time.Time
}

func (b *bucket) owed(now time.Time) float64 {
	return max(0, b.debt-float64(max(0, now.Sub(b.last))))
}

func (b *bucket) next(now time.Time) time.Time {
	over := b.owed(now) - float64(b.burst-1)*b.interval
	return now.Add(time.Duration(max(0, over)))
}

func (b *bucket) room(now time.Time) int {
	return int(float64(b.burst) - b.owed(now)/b.interval + 1e-9)
}

// took lets the debt grow to what a full burst costs and no further: starts that
// others allowed must not close the gate for long.
func (b *bucket) took(now time.Time) {
	b.debt = min(b.owed(now)+b.interval, float64(b.burst)*b.interval)
	b.last = now
}
