package axredis

import (
	"slices"
	"strconv"
	"time"
)

// batch is one step of a line, under way.
type batch struct {
	sent   time.Time // before Redis decided anything
	room   margin
	frees  []free
	renews []*lease
	pause  time.Time // zero = none
	asks   []*ask    // best rank first
}

// free is an id that no longer holds anything.
type free struct {
	id    string
	since time.Time

	handed bool // somebody has been called for what it has held
}

// unhanded is how many frees nobody has been called for.
func (b *batch) unhanded() (n int) {
	for _, f := range b.frees {
		if !f.handed {
			n++
		}
	}
	return n
}

// maxBatch bounds the asks and the frees of one step: a script must not keep Redis
// from the rest of the fleet. Renewals are seldom, and go together.
const maxBatch = 128

// head is the first n of s, which keeps the rest.
func head[T any](s *[]T, n int) []T {
	n = min(n, len(*s))
	h := slices.Clone((*s)[:n])
	*s = slices.Delete(*s, 0, n)
	return h
}

// arguments are the script's, in its order.
func (l *line) arguments(b *batch) []any {
	g := l.g
	hold := time.Second // what only remembers an id
	if l.leased() {
		hold = g.cfg.LeaseTTL
	}
	args := []any{g.id, micros(g.cfg.LeaseTTL), micros(min(hold, g.cfg.LeaseTTL)),
		micros(l.poll()), micros(waiterGrace), int64(0), 0, "", len(l.scopes)}
	if !b.pause.IsZero() {
		args[5] = micros(max(0, time.Until(b.pause)))
	}
	if len(b.asks) > 0 && b.asks[0].rank.Equal(l.served) {
		args[6] = 1
	}
	now := g.now()
	if rank, ok := g.bestLocked(); ok && l.sharesLocked() {
		args[7] = distance(rank, now)
	}
	for _, s := range l.scopes {
		args = append(args, s.cap, len(s.rates))
		for _, r := range s.rates {
			args = append(args, r.limit, micros(r.span(b.room)), r.burst)
		}
	}
	args = append(args, len(b.frees))
	for _, f := range b.frees {
		args = append(args, f.id)
	}
	args = append(args, len(b.renews))
	for _, le := range b.renews {
		args = append(args, le.id)
	}
	args = append(args, len(b.asks))
	for _, k := range b.asks {
		args = append(args, k.id, distance(k.rank, now))
	}
	return args
}

// probeArguments are those of a step without limits, in which id asks and is
// granted: Redis does with them what it does for an ask, and writes. The id is
// given back first, so that it does so every time.
func probeArguments(id string) []any {
	const second = 1_000_000
	return []any{id, second, second, 0, 0, 0, 0, "", 1, 0, 0, 1, id, 0, 1, id, 0}
}

// waiterGrace is how much later than told, and jittered, a waiter may ask again
// without losing its place.
const waiterGrace = 100 * time.Millisecond

// distance is a rank as the script takes it: how far it is from now. Bounded, for
// a script's numbers are exact up to 2⁵³ only.
func distance(rank, now time.Time) string {
	const most = 4e15
	return strconv.FormatInt(min(max(rank.Sub(now).Microseconds(), -most), most), 10)
}

func micros(d time.Duration) int64 { return d.Microseconds() }
