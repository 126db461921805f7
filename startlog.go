package ax

import (
	"sort"
	"time"
)

// startLog is the moments of starts, in order: a ring that grows with what it
// holds and shrinks again. The zero log is empty.
type startLog struct {
	ring  []instant // its length is zero or a power of two
	first int       // where the oldest is
	n     int
}

// logKeep is the capacity that an emptied log may keep.
const logKeep = 16

func (l *startLog) len() int { return l.n }

// newest is the moment of the i-th start from the newest, which is 0.
func (l *startLog) newest(i int) instant { return l.oldest(l.n - 1 - i) }

func (l *startLog) oldest(i int) instant { return l.ring[(l.first+i)&(len(l.ring)-1)] }

// add records a start, not earlier than those before.
func (l *startLog) add(at instant) {
	if l.n == len(l.ring) {
		l.resize(max(logKeep, 2*l.n))
	}
	l.ring[(l.first+l.n)&(len(l.ring)-1)] = at
	l.n++
}

// shift forgets the oldest, which there must be.
func (l *startLog) shift() {
	l.first, l.n = (l.first+1)&(len(l.ring)-1), l.n-1
}

// drop forgets the newest, if there is one.
func (l *startLog) drop() { l.n = max(0, l.n-1) }

// trim forgets what is span old or older.
func (l *startLog) trim(now instant, span time.Duration) {
	old := func(i int) bool { return l.oldest(i).add(span) <= now }
	if l.n == 0 || !old(0) {
		return
	}
	gone := sort.Search(l.n, func(i int) bool { return !old(i) })
	l.first, l.n = (l.first+gone)&(len(l.ring)-1), l.n-gone
	// A half at a time: a burst every span must not mean to shrink and regrow wholly.
	if size := len(l.ring); size > logKeep && l.n <= size/4 {
		l.resize(size / 2)
	}
}

// resize moves the starts into a ring of another size.
func (l *startLog) resize(size int) {
	ring := make([]instant, size)
	for i := range l.n {
		ring[i] = l.oldest(i)
	}
	l.ring, l.first = ring, 0
}
