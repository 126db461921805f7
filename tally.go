package ax

import "time"

// tally is the sliding window of the latest size outcomes that are at most
// maxAge old. Adding and expiring are O(1); memory grows with use up to size.
type tally struct {
	size     int
	maxAge   time.Duration
	ring     []tallied
	head, n  int // the oldest, and how many
	failures int
}

type tallied struct {
	at     instant
	failed bool
}

func (t *tally) add(now instant, failed bool) {
	t.expire(now)
	if t.n == t.size {
		t.drop()
	}
	if t.n == len(t.ring) {
		t.grow()
	}
	t.ring[(t.head+t.n)%len(t.ring)] = tallied{now, failed}
	t.n++
	if failed {
		t.failures++
	}
}

func (t *tally) counts(now instant) (failures, calls int) {
	t.expire(now)
	return t.failures, t.n
}

func (t *tally) expire(now instant) {
	for t.n > 0 && now.sub(t.ring[t.head].at) > t.maxAge {
		t.drop()
	}
}

// drop forgets the oldest outcome.
func (t *tally) drop() {
	if t.ring[t.head].failed {
		t.failures--
	}
	t.head = (t.head + 1) % len(t.ring)
	t.n--
}

// grow doubles the full ring within size.
func (t *tally) grow() {
	ring := make([]tallied, min(max(2*len(t.ring), 8), t.size))
	copied := copy(ring, t.ring[t.head:])
	copy(ring[copied:], t.ring[:t.head])
	t.ring, t.head = ring, 0
}

func (t *tally) clear() { t.head, t.n, t.failures = 0, 0, 0 }
