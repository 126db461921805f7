package axredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/axsched/ax"
)

// scope is one set of limits of the fleet, a lane's or everything's, and what
// this process knows about its own part of it. What changes is guarded by the
// governor's mutex.
type scope struct {
	name    string // of the lane; "" = all together
	cap     int    // slots; 0 = no limit
	rates   []rate
	version string // names these limits in keys
	told    string // what others are told of them

	active    int           // slots held by this process
	meters    []meter       // one for each rate, of this process's starts
	alone     time.Time     // of the latest start that Redis has not counted
	held      time.Duration // how long a slot is held, smoothed; 0 = not known yet
	announced time.Time     // when the version was last told
	warned    map[string]time.Time
}

// rate is one rate as the script takes it. Burst 0 is an exact window.
type rate struct {
	limit int
	per   time.Duration // of a bucket; of a window with its Guard
	burst int
	short time.Duration // Per alone, of which a window's margin is a part
}

// newScope is the scope of limits l. Leases of length ttl are part of its version,
// and so is where it is counted, of which shared decides.
func newScope(name string, l ax.Limits, ttl time.Duration, shared bool) *scope {
	s := &scope{name: name, warned: make(map[string]time.Time)}
	if l.MaxConcurrent != ax.NoLimit {
		s.cap = l.MaxConcurrent
	}
	for _, r := range l.Rate {
		per := r.Per
		if per == 0 {
			per = time.Second
		}
		s.rates = append(s.rates, rate{limit: r.Limit, per: per + r.Guard, burst: r.Burst, short: per})
		if r.Smooth {
			s.rates = append(s.rates, rate{limit: r.Limit, per: per, burst: 1, short: per})
		}
	}
	for _, r := range s.rates {
		s.meters = append(s.meters, newMeter(r))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %v %v %v", s.cap, s.rates, ttl, shared))
	s.version = hex.EncodeToString(sum[:4])
	s.told = s.version
	return s
}

// span is how long a start counts in a window. The margin covers the time
// between Redis' decision and the start, which a window that is exact at the
// wire must not count as part of the window.
func (r rate) span(room margin) time.Duration {
	if r.burst > 0 {
		return r.per
	}
	return r.per + room.of(r.short)
}

// startAt is when this process, were it alone, could start one more.
func (s *scope) startAt(now time.Time) time.Time {
	at := now
	for _, m := range s.meters {
		if t := m.next(now); t.After(at) {
			at = t
		}
	}
	return at
}

// ownRoom is how many starts this process's own record allows, and else how long it
// lets them wait. It counts for a Per after starts that Redis does not know of.
func (s *scope) ownRoom(now time.Time) (room int, wait time.Duration) {
	room = math.MaxInt
	if s.alone.IsZero() {
		return room, 0
	}
	for i, m := range s.meters {
		if now.Sub(s.alone) < s.rates[i].per {
			room = min(room, max(0, m.room(now)))
			wait = max(wait, m.next(now).Sub(now))
		}
	}
	return room, wait
}

// full is whether this process alone holds all slots.
func (s *scope) full() bool { return s.cap > 0 && s.active >= s.cap }

// took counts a start of this process.
func (s *scope) took(now time.Time) {
	for _, m := range s.meters {
		m.took(now)
	}
}

// gaveBack counts the end of an attempt that held its slot for d.
func (s *scope) gaveBack(d time.Duration) {
	s.active--
	if s.held == 0 {
		s.held = d
	}
	s.held += (d - s.held) / 8
}

// poll is how soon a slot of the fleet may become free. Nobody is told when it
// does: who waits asks again, sooner where slots change hands quickly.
func (s *scope) poll() time.Duration {
	const fastest, unknown, slowest = 5 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond
	if s.cap == 0 || s.held == 0 {
		return unknown
	}
	return min(max(s.held/time.Duration(s.cap), fastest), slowest)
}
