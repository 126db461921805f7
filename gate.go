package ax

import (
	"math"
	"sync/atomic"
)

// gate counts slots in one atomic word, so that a task that finds a slot free
// and nobody waiting needs no lock. While guarded is set that way is closed:
// slots change hands under the scheduler's mutex alone, and whoever gives one
// back must take that mutex to hand it on. A waiter first sets guarded and then
// looks for a slot, one who leaves first gives up his slot and then looks at
// guarded: one of the two always sees the other.
type gate struct {
	word  atomic.Int64 // slots taken, and the guarded bit
	bound atomic.Int64 // 0 = none
}

const guarded = 1 << 62

// setLimit gives the gate limit slots; 0 = no limit.
func (g *gate) setLimit(limit int) { g.bound.Store(int64(limit)) }

// limit is the number of slots; 0 = no limit.
func (g *gate) limit() int { return int(g.bound.Load()) }

// active is the number of slots taken.
func (g *gate) active() int { return int(g.word.Load() &^ guarded) }

// free reports whether a slot is to be had.
func (g *gate) free() bool { return g.active() < g.most() }

func (g *gate) most() int {
	if limit := g.bound.Load(); limit > 0 {
		return int(limit)
	}
	return math.MaxInt
}

// take takes a slot if one is free. If more slots are taken than a lowered limit
// allows, nobody loses his: the gate drains.
func (g *gate) take() bool { return g.takeUnless(0) }

// pass is take for one who holds no lock: not while the gate is guarded.
func (g *gate) pass() bool { return g.takeUnless(guarded) }

func (g *gate) takeUnless(bit int64) bool {
	for {
		w := g.word.Load()
		if w&bit != 0 || int(w&^guarded) >= g.most() {
			return false
		}
		if g.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// release gives a slot back, and tells whether the gate is guarded: then it must
// be handed on under the mutex.
func (g *gate) release() (handOn bool) {
	w := g.word.Add(-1)
	if w < 0 || w&^guarded > guarded/2 { // below zero, with the bit or without
		panic("ax: gate: release of a slot that was not taken")
	}
	return w&guarded != 0
}

// guard sets or clears the guarded bit.
func (g *gate) guard(on bool) {
	if on {
		g.word.Or(guarded)
	} else {
		g.word.And(^guarded)
	}
}

// isGuarded reports the guarded bit.
func (g *gate) isGuarded() bool { return g.word.Load()&guarded != 0 }
