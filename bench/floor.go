package bench

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const floorLabel = "one mutex"

const floorHow = "hand-written floor: gate, token bucket and failure count under one mutex, container/heap by priority, a channel for each waiter"

// floorGate is the least that a prioritised gate can be: everything under one
// mutex, and a freed slot goes to the best waiter.
type floorGate struct {
	mu       sync.Mutex
	free     int
	tokens   float64
	refilled time.Time
	failures int
	outcomes int
	seq      uint64
	waiting  floorQueue
}

// floorWaiter waits for a slot: its channel is closed when it has one.
type floorWaiter struct {
	priority int
	seq      uint64
	index    int // -1 = not in the queue
	ready    chan struct{}
}

func newFloorGate(slots int) *floorGate {
	return &floorGate{free: slots, tokens: rateBurst, refilled: time.Now()}
}

// enter takes a slot, or waits for one until ctx ends.
func (g *floorGate) enter(ctx context.Context, priority int) error {
	g.mu.Lock()
	g.spendLocked(time.Now())
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return nil
	}
	g.seq++
	w := &floorWaiter{priority: priority, seq: g.seq, ready: make(chan struct{})}
	heap.Push(&g.waiting, w)
	g.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return g.leave(ctx, w)
	}
}

// spendLocked takes a token; the rate is one that never holds anybody back.
func (g *floorGate) spendLocked(now time.Time) {
	g.tokens = min(rateBurst, g.tokens+now.Sub(g.refilled).Seconds()*ratePerSecond) - 1
	g.refilled = now
}

// leave gives up, unless the slot came first.
func (g *floorGate) leave(ctx context.Context, w *floorWaiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.index < 0 {
		return nil
	}
	heap.Remove(&g.waiting, w.index)
	return ctx.Err()
}

// exit hands the slot on and counts the outcome.
func (g *floorGate) exit(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outcomes++; err != nil {
		g.failures++
	}
	if g.outcomes == breakerWindow {
		g.outcomes, g.failures = 0, 0
	}
	if len(g.waiting) == 0 {
		g.free++
		return
	}
	close(heap.Pop(&g.waiting).(*floorWaiter).ready)
}

// floorCalls has all callers use one gate, with a retry loop around it.
func floorCalls(j job) (call, func()) {
	g := newFloorGate(j.slots)
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error {
		for n := 0; ; n++ {
			if err := g.enter(ctxs[c], 0); err != nil {
				return err
			}
			resp, err := j.work(ctxs[c])
			err = failure(resp, err)
			g.exit(err)
			if err == nil || n == retries {
				return err
			}
		}
	}, cancel
}

// floorQueue is a container/heap of waiters.
type floorQueue []*floorWaiter

func (q floorQueue) Len() int { return len(q) }
func (q floorQueue) Less(i, k int) bool {
	if q[i].priority != q[k].priority {
		return q[i].priority > q[k].priority
	}
	return q[i].seq < q[k].seq
}
func (q floorQueue) Swap(i, k int) {
	q[i], q[k] = q[k], q[i]
	q[i].index, q[k].index = i, k
}
func (q *floorQueue) Push(x any) {
	w := x.(*floorWaiter)
	w.index = len(*q)
	*q = append(*q, w)
}
func (q *floorQueue) Pop() any {
	end := len(*q) - 1
	w := (*q)[end]
	(*q)[end] = nil
	*q = (*q)[:end]
	w.index = -1
	return w
}
