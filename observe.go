package ax

import (
	"hash/maphash"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"time"
)

// observed is what a lane remembers for Advice, beside the histograms of Stats.
// It is bounded, in bytes: 120 in a lane that has done nothing, 40 more for each
// level of concurrency that it has seen (41 at most, for 2048 in flight), and, in
// lanes where that has happened, 1,200 where something failed, 1,400 where a 429
// came, 1,000 where a task was seen twice. It has a
// lock of its own, a leaf, since express tasks record without the scheduler's.
type observed struct {
	mu      sync.Mutex
	levels  []level // service time by concurrency
	peak    int     // most attempts in flight at the instant peakAt
	peakAt  instant
	near    [2]float32  // mean in flight and service time of the latest few answers
	answers *histogram  // of what the server served; nil = all of service is
	faults  *failureLog // nil until something failed or was sent again
	quota   *quotaWatch // nil until a 429
	keyed   uint64      // tasks that could have been shared
	repeats histogram   // time since the task before with the same key
}

// sample is the outcome of one attempt as observed needs it.
type sample struct {
	kind     outcomeKind
	status   int // 0 = no answer
	took     time.Duration
	timedOut bool // by AttemptTimeout
	retry    bool // it followed a failed attempt of its task
	mark     startMark
}

// started tells that an attempt begins, as one of inFlight in the lane. The mark
// goes back with its outcome. Of what happens at one instant the order is chance:
// an attempt that takes the place of another finds the lane as full as that did.
func (o *observed) started(now instant, inFlight int) startMark {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn(now, inFlight)
	if o.quota != nil {
		o.quota.started(now)
	}
	return startMark{at: now, inFlight: o.peak}
}

// ended tells that one of inFlight attempts gives its place back.
func (o *observed) ended(now instant, inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn(now, inFlight)
}

// inFlight is the attempts under way in l, express ones too.
func (l *lane) inFlight() int { return l.running + l.swiftActive() }

func (o *observed) turn(now instant, inFlight int) {
	if now != o.peakAt {
		o.peak, o.peakAt = 0, now
	}
	o.peak = max(o.peak, inFlight)
}

// attempt takes an outcome that has not yet been recorded in service, the lane's
// histogram of all of them. Neutral ones prove nothing and must not come here.
func (o *observed) attempt(now instant, service *histogram, x sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.take(now, service, &x)
}

// attemptEnded is attempt, then ended.
func (o *observed) attemptEnded(now instant, service *histogram, x sample, inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.take(now, service, &x)
	o.turn(now, inFlight)
}

func (o *observed) take(now instant, service *histogram, x *sample) {
	limited := x.status == http.StatusTooManyRequests
	served := x.kind == outcomeSuccess && !limited
	if limited && o.quota == nil {
		o.quota = new(quotaWatch)
	}
	if o.quota != nil {
		o.quota.ended(x.mark.at, limited)
	}
	if !served && o.answers == nil {
		o.answers = copyOf(service)
	}
	if served {
		if o.answers != nil {
			o.answers.record(x.took)
		}
		o.level(x.mark.inFlight, x.took)
	}
	if o.faults == nil && (x.kind == outcomeFailure || x.retry) {
		o.faults = newFailureLog(service.count())
	}
	if o.faults != nil {
		o.faults.attempt(now, x, limited)
	}
}

// breakerMoved tells of a state that the lane's breaker has entered.
func (o *observed) breakerMoved(state BreakerState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.faults != nil {
		o.faults.breakerMoved(state)
	}
}

// shareable tells of a task that others could share, gap after the one before
// with the same key; seen says that there was one.
func (o *observed) shareable(gap time.Duration, seen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keyed++
	if seen {
		o.repeats.record(gap)
	}
}

// startMark is what an attempt found when it began.
type startMark struct {
	at       instant
	inFlight int // attempts in its lane, itself included
}

// level is what answers took that found so many attempts in flight when they
// began. What happens later does not count: it would make slow answers look like
// those of a busy lane. Of more than levelMemory answers the older ones fade.
type level struct {
	n        uint32  // answers, up to levelMemory
	inFlight float32 // mean of them
	took     float32 // mean, in seconds
	variance float32 // of took
	block    float32 // sum of the latest answers, of a block not yet full
	blocks   uint32  // full ones, up to levelMemory / levelBlock
	spread   float32 // variance of their means
	filled   uint32  // answers in block
	xx, xy   float32 // variance of what they found, covariance with took, about near
}

const (
	levelMemory = 512
	levelBlock  = 16 // answers in a row whose mean is taken; and of near
	levelSingle = 8  // one level for each concurrency up to this
	levelMost   = 41 // levels; beyond levelSingle four for each doubling, up to 2048
)

// level records an answer.
func (o *observed) level(inFlight int, took time.Duration) {
	i := levelIndex(inFlight)
	if i >= len(o.levels) {
		o.levels = slices.Grow(o.levels, i+1-len(o.levels))[:i+1]
	}
	found, lasted := float32(inFlight), float32(took.Seconds())
	dx, dy := found-o.near[0], lasted-o.near[1]
	o.near[0] += dx / levelBlock
	o.near[1] += dy / levelBlock
	o.levels[i].add(found, lasted, dx, dy)
}

// add records an answer that differs by dx and dy from the latest few.
func (l *level) add(found, took, dx, dy float32) {
	l.n = min(l.n+1, levelMemory)
	part := 1 / float32(l.n)
	l.inFlight += (found - l.inFlight) * part
	d := took - l.took
	l.took += d * part
	l.variance = (1 - part) * (l.variance + d*d*part)
	l.xx += (dx*dx - l.xx) * part
	l.xy += (dx*dy - l.xy) * part
	l.block += took
	if l.filled++; l.filled < levelBlock {
		return
	}
	d = l.block/levelBlock - l.took
	l.blocks = min(l.blocks+1, levelMemory/levelBlock)
	l.spread += (d*d - l.spread) / float32(l.blocks)
	l.block, l.filled = 0, 0
}

// levelIndex is the level of so many attempts in flight.
func levelIndex(inFlight int) int {
	if inFlight <= levelSingle {
		return max(inFlight, 1) - 1
	}
	octave := bits.Len(uint(inFlight)) - 1
	quarter := inFlight>>(octave-2) - 4
	return min(levelSingle+(octave-3)*4+quarter, levelMost-1)
}

// copyOf is a histogram with the records of h.
func copyOf(h *histogram) *histogram {
	c := new(histogram)
	stored := h.counts.Load()
	if stored == nil {
		return c
	}
	counts := new(histogramCounts)
	for i := range stored.words {
		counts.words[i].Store(stored.words[i].Load())
	}
	for i := range counts.used { // after the words: what came between is not seen
		counts.used[i].Store(stored.used[i].Load())
	}
	c.counts.Store(counts)
	c.weight.Store(int64(counts.sum()))
	c.total.Store(h.count())
	return c
}

// repeatSlots is how many keys a repeatTable remembers.
const repeatSlots = 2048

// repeatTable remembers when keys were last seen: 32 KiB for all lanes together,
// made when first used. A key that falls on another's place displaces it, so under
// a flood of different ones it finds fewer repeats than there are, never more.
type repeatTable struct {
	seed  maphash.Seed
	slots *[repeatSlots]seenKey
}

type seenKey struct {
	hash uint64 // 0 = nothing
	at   instant
}

// saw notes that key is seen now, and tells how long ago it was before.
func (r *repeatTable) saw(key *flightKey, now instant) (gap time.Duration, seen bool) {
	if r.slots == nil {
		r.seed, r.slots = maphash.MakeSeed(), new([repeatSlots]seenKey)
	}
	hash := r.hash(key.family)
	hash = hash*31 + r.hash(key.owner)
	hash = hash*31 + r.hash(key.lane.name)
	hash |= 1
	slot := &r.slots[hash>>1%repeatSlots]
	gap, seen = now.sub(slot.at), slot.hash == hash
	*slot = seenKey{hash, now}
	return gap, seen
}

// hash is that of one string: maphash.Comparable of the key would need more stack than
// all else that a waiting caller does.
func (r *repeatTable) hash(s string) uint64 { return maphash.String(r.seed, s) }

// noteRepeatLocked watches for duplicates among the tasks that Dedupe shares. A
// task with a window of its own says nothing about Dedupe.Window.
func (s *Scheduler) noteRepeatLocked(c *caller, key *flightKey, now instant) {
	if s.cfg.Dedupe == nil && !s.cfg.DryRun || c.task.r.DedupeWindow > 0 {
		return
	}
	key.lane.stats.seen.shareable(s.repeats.saw(key, now))
}

// noteDryRepeatLocked is the same for DryRun, where duplicates count also while
// Dedupe is off.
func (s *Scheduler) noteDryRepeatLocked(f *flight, c *caller, want *Hints, now instant) {
	if want.NoDedupe || f.work() != nil {
		return
	}
	if key := c.task.sharingKey(s.ignore, want.Owner); key.family != "" {
		s.noteRepeatLocked(c, &flightKey{key, f.lane}, now)
	}
}
