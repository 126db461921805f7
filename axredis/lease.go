package axredis

import (
	"sync"
	"time"
)

// ask is one Acquire that waits for its answer. Guarded by the governor's mutex.
type ask struct {
	line  *line
	id    string
	rank  time.Time
	done  chan struct{} // closed with the answer
	sent  time.Time     // when it was told to Redis; zero = not yet
	room  margin        // that its windows have for a late start
	left  bool          // nobody waits for Redis' answer any more
	alone bool          // answered without Redis

	queued bool      // waits in the governor's queue
	place  bool      // has been answered, but keeps its place there
	wanted bool      // it was the place's turn
	until  time.Time // of a place

	lease   *lease        // of a grant, if the lane has slots
	retryIn time.Duration // > 0: refused
	err     error
}

// lease is one slot of the fleet that an attempt holds. Guarded by the governor's
// mutex.
type lease struct {
	line  *line
	id    string
	since time.Time
	told  bool      // Redis may know it
	until time.Time // give up then; zero = granted in an outage, never confirmed
	over  bool      // released or lost

	lost    chan struct{}
	release sync.Once
}

// lifetime is how long after its call was sent a lease can be relied on: given up
// a tenth early, before Redis lets others have it.
func (g *Governor) lifetime() time.Duration { return g.cfg.LeaseTTL - g.cfg.LeaseTTL/10 }

// renewal is when leases are renewed.
func (g *Governor) renewal() time.Duration { return g.cfg.LeaseTTL / 3 }

// confirmLocked notes that Redis knows of the lease through a call sent then. One
// that ran out while the call was under way stays so: others may have had its
// slot by the time Redis heard.
func (le *lease) confirmLocked(sent, now time.Time) {
	if le.over || !le.until.IsZero() && !now.Before(le.until) {
		return
	}
	le.until = sent.Add(le.line.g.lifetime())
	le.line.expiresLocked(le.until)
}

// Release gives the slot back, once. It does not wait for Redis.
func (le *lease) Release() {
	le.release.Do(func() {
		g := le.line.g
		g.mu.Lock()
		defer g.mu.Unlock()
		le.line.releaseLocked(le, time.Now())
	})
}
