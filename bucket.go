package ax

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// bucket is a token bucket over x/time/rate, which does the arithmetic. The
// caller's moments never go back, so neither does the limiter's clock.
type bucket struct {
	limiter *rate.Limiter
	tokens  float64 // when it was last looked at
	takes   int     // ever, less those given back
	since   instant // when it came into force
	rooms   []room  // in order of time
}

// room bounds what may be given back: of all that was taken before a moment, no
// more than the bucket then had room for. The rest would have overflowed, had it
// not been taken, and whoever came after had the use of that.
type room struct {
	before instant
	tokens int
}

// maxRooms bounds the rooms; beyond it the oldest become one, the stricter.
const maxRooms = 4

// newBucket is a full bucket.
func newBucket(r Rate) bucket {
	return bucket{limiter: rate.NewLimiter(limitOf(r), r.Burst)}
}

// limitOf is the rate in tokens per second.
func limitOf(r Rate) rate.Limit {
	return rate.Limit(float64(r.Limit) / perOf(r).Seconds())
}

// next is the earliest moment with a token; now is the same moment as t.
func (b *bucket) next(t time.Time, now instant) instant { return b.reach(1, t, now) }

// fullAt is the earliest moment with all tokens.
func (b *bucket) fullAt(t time.Time, now instant) instant {
	return b.reach(float64(b.limiter.Burst()), t, now)
}

// reach is the earliest moment with the wanted tokens, to the nanosecond that the
// limiter itself forgives. Rounding in its arithmetic must not name a moment at
// which it would still refuse, hence the loop, which seldom runs.
func (b *bucket) reach(want float64, t time.Time, now instant) instant {
	wait := b.wait(want, t)
	if wait < 1 {
		return now
	}
	if wait >= math.MaxInt64 {
		return never
	}
	at := now.add(time.Duration(math.Round(wait)))
	for extra := time.Duration(1); at < never && b.wait(want, t.Add(at.sub(now))) >= 1; extra *= 2 {
		at = at.add(extra)
	}
	return at
}

// look tells whether there is a token.
func (b *bucket) look(t time.Time) bool {
	b.tokens = b.limiter.TokensAt(t)
	return b.until(1, b.tokens) < 1
}

// wait is how many nanoseconds after t the wanted tokens will be there.
func (b *bucket) wait(want float64, t time.Time) float64 { return b.until(want, b.limiter.TokensAt(t)) }

func (b *bucket) until(want, tokens float64) float64 {
	missing := want - tokens
	switch limit := float64(b.limiter.Limit()); {
	case missing <= 0:
		return 0
	case limit <= 0:
		return math.Inf(1)
	default:
		return missing / limit * float64(time.Second)
	}
}

// take uses a token, which look has just found there.
func (b *bucket) take(t time.Time, now instant) {
	b.note(room{before: now, tokens: b.missing(b.tokens)})
	if !b.charge(t) {
		panic("ax: rate: start taken before its time")
	}
}

// charge uses a token if there is one.
func (b *bucket) charge(t time.Time) bool {
	if !b.limiter.AllowN(t, 1) {
		return false
	}
	b.takes++
	return true
}

// note adds a room and drops those that it makes superfluous: they bind fewer
// starts, to no less.
func (b *bucket) note(r room) {
	n := len(b.rooms)
	if n > 0 && b.rooms[n-1].before == r.before {
		return // what was taken at the same moment has room of its own
	}
	for n > 0 && b.rooms[n-1].tokens >= r.tokens {
		n--
	}
	b.rooms = b.rooms[:n]
	if n == maxRooms {
		b.rooms[1].tokens = min(b.rooms[0].tokens, b.rooms[1].tokens)
		b.rooms = slices.Delete(b.rooms, 0, 1)
	}
	b.rooms = append(b.rooms, r)
}

// giveBack returns the token taken at taken, as far as there was room for it ever
// since. (A Reservation cannot be cancelled for this: x/time/rate restores none
// whose moment has passed.)
func (b *bucket) giveBack(t time.Time, taken instant) {
	if taken < b.since {
		return // nothing of it
	}
	b.takes = max(0, b.takes-1)
	binds := func(r room) bool { return r.before > taken }
	if slices.ContainsFunc(b.rooms, func(r room) bool { return binds(r) && r.tokens < 1 }) {
		return
	}
	for i := range b.rooms {
		if binds(b.rooms[i]) {
			b.rooms[i].tokens--
		}
	}
	b.limiter.AllowN(t, -1)
}

// set changes the rate and keeps the tokens.
func (b *bucket) set(t time.Time, now instant, r Rate) {
	b.limiter.SetLimitAt(t, limitOf(r))
	b.limiter.SetBurstAt(t, r.Burst)
	b.settle(now)
}

// settle makes all that was taken until now final.
func (b *bucket) settle(now instant) {
	b.rooms = append(b.rooms[:0], room{before: now + 1})
}

// spent is how many starts the bucket has not yet made up for.
func (b *bucket) spent(t time.Time) int {
	tokens := b.limiter.TokensAt(t)
	missing := b.missing(tokens)
	if float64(missing) < float64(b.limiter.Burst())-tokens {
		missing++
	}
	return min(b.takes, missing)
}

// missing is how many whole tokens there is room for.
func (b *bucket) missing(tokens float64) int {
	return int(min(float64(b.limiter.Burst())-tokens, math.MaxInt32))
}
