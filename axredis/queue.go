package axredis

import (
	"slices"
	"time"
)

// queue is where the asks of all lanes of this process wait for the limits of "".
// Redis is asked for the best of them only: when a slot of this process has come
// back, when Redis says that there is room, or when it may be this process's turn
// among the others. So what waiting costs does not grow with the lanes, and who is
// called is there to start. Guarded by the governor's mutex.
type queue struct {
	asks   []*ask            // best rank first; some are only places
	called map[*ask]struct{} // on their way to Redis
	polls  *ask              // whom the timer called
	freed  int               // slots for whoever is best when it has its answer
	at     time.Time         // of the next call; zero = none
	idle   time.Time         // until when nobody can start; zero = not known
	timer  *time.Timer
}

// placeFor is how long the place of an ask that has been answered is kept for the
// next of its lane, which a scheduler sends after again.
const (
	placeFor = 20 * time.Millisecond
	again    = time.Millisecond
	// near is how many asks wait for a call; the others come back when those
	// may have gone, at the speed at which Redis decides at best.
	near     = 128
	perPlace = 100 * time.Microsecond
	// longWait is longer than Redis lets anybody wait for a slot: it is for a rate.
	longWait = 250 * time.Millisecond
)

// queueLocked lets k wait, in the place of the ask of its lane before it. Who has
// none is answered at once: the task may be one that does not want to wait.
func (g *Governor) queueLocked(k *ask, now time.Time) {
	q := &g.queue
	waits := false
	for i, o := range q.asks {
		if o.place && o.line.name == k.line.name {
			q.asks = slices.Delete(q.asks, i, i+1)
			waits = true
			break
		}
	}
	k.queued, k.sent = true, time.Time{}
	k.line.queued++
	i, _ := slices.BinarySearchFunc(q.asks, k, func(o, k *ask) int {
		if o.rank.After(k.rank) {
			return 1
		}
		return -1 // first come, first served
	})
	q.asks = slices.Insert(q.asks, i, k)
	if q.at.IsZero() {
		g.callAtLocked(now.Add(g.scopes[""].poll()))
	}
	long := q.idle.Sub(now)
	if !waits || i >= near || long > longWait {
		k.retryIn = again
		switch {
		case long > longWait:
			k.retryIn = early(long)
		case i >= near:
			k.retryIn = min(time.Duration(i)*perPlace, time.Second)
		}
		g.keepPlaceLocked(k, now)
		g.doneLocked(k)
	}
}

// keepPlaceLocked lets k, which has been answered, be a place for the next one.
func (g *Governor) keepPlaceLocked(k *ask, now time.Time) {
	k.place, k.until = true, now.Add(k.retryIn+k.retryIn/10+placeFor)
	k.unqueuedLocked()
}

func (k *ask) unqueuedLocked() {
	if k.queued {
		k.queued = false
		k.line.queued--
		k.line.goLocked()
	}
}

// leaveLocked takes k out of the queue.
func (g *Governor) leaveLocked(k *ask) {
	g.queue.asks = slices.DeleteFunc(g.queue.asks, func(o *ask) bool { return o == k })
	k.unqueuedLocked()
}

// waitsLocked is whether an ask must wait behind those that wait already.
func (g *Governor) waitsLocked(k *ask, now time.Time) bool {
	if _, ok := g.queue.called[k]; ok || g.scopes[""] == nil {
		return false
	}
	g.sweepLocked(now)
	for i, o := range g.queue.asks {
		own := o.place && o.line.name == k.line.name
		switch {
		case o.rank.After(k.rank):
			return false
		case own && o.wanted: // its turn came while it was away
			g.queue.asks = slices.Delete(g.queue.asks, i, i+1)
			g.queue.called[k], g.queue.polls = struct{}{}, k
			return false
		case o.wanted: // it has been called already
		case own:
			return o.rank.Equal(k.rank)
		default:
			return true
		}
	}
	return false
}

// sweepLocked forgets the places that nobody has come back for.
func (g *Governor) sweepLocked(now time.Time) {
	g.queue.asks = slices.DeleteFunc(g.queue.asks, func(k *ask) bool { return k.place && !now.Before(k.until) })
}

// callLocked sends the n best to Redis. One who is away just now is expected back.
func (g *Governor) callLocked(n int, now time.Time) {
	q := &g.queue
	g.sweepLocked(now)
	n -= len(q.called)
	var stay []*ask
	for i, k := range q.asks {
		if n <= 0 {
			stay = append(stay, q.asks[i:]...)
			break
		}
		n--
		if k.place {
			k.wanted = true
			g.callAtLocked(k.until)
			stay = append(stay, k)
			continue
		}
		q.called[k] = struct{}{}
		k.line.asks = append(k.line.asks, k)
		k.unqueuedLocked()
		k.line.pumpLocked()
	}
	q.asks = stay
}

// handOverLocked calls the best for the slot that id has held. Its step gives the
// slot back to "" as well, so that it need not wait for that of id's own lane. Not
// while a better one is asking, who may just be refused.
func (g *Governor) handOverLocked(id string, now time.Time) bool {
	if all := g.scopes[""]; all == nil || all.cap == 0 {
		return false
	}
	g.sweepLocked(now)
	if _, away := g.queue.called[g.queue.polls]; away || len(g.queue.asks) == 0 {
		return false
	}
	best := g.queue.asks[0]
	g.callLocked(len(g.queue.called)+1, now)
	if !best.place {
		best.line.frees = append(best.line.frees, free{id, now, true})
	}
	return true
}

// callAtLocked sees to it that the best is called then, or earlier.
func (g *Governor) callAtLocked(at time.Time) {
	q := &g.queue
	if g.closed || !q.at.IsZero() && !at.Before(q.at) {
		return
	}
	q.at = at
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timer = time.AfterFunc(time.Until(at), g.callNext)
}

// callNext is the alarm.
func (g *Governor) callNext() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.closed || g.queue.at.IsZero() || now.Before(g.queue.at) {
		return
	}
	g.queue.at = time.Time{}
	if q := &g.queue; len(q.asks) > 0 {
		q.polls = q.asks[0]
	}
	g.callLocked(len(g.queue.called)+1, now)
	if len(g.queue.asks) > 0 {
		g.callAtLocked(now.Add(g.cfg.Timeout)) // its answer says when indeed
	}
}

// roomLocked calls as many as Redis has room for, and says when it may have more.
func (g *Governor) roomLocked(room int, next time.Duration, now time.Time) {
	if next > 0 {
		g.queue.at, g.queue.idle = time.Time{}, time.Time{}
		g.callAtLocked(now.Add(next))
		if next > longWait {
			g.queue.idle = now.Add(next)
		}
	}
	q := &g.queue
	q.freed = max(q.freed, room-len(q.called))
	if _, away := q.called[q.polls]; away {
		return // it may just be refused, and is better
	}
	g.callLocked(len(q.called)+q.freed, now)
	q.freed = 0
}

// bestLocked is the best rank that waits beside b.
func (g *Governor) bestLocked() (rank time.Time, ok bool) {
	if len(g.queue.asks) == 0 {
		return time.Time{}, false
	}
	return g.queue.asks[0].rank, true
}

// dissolveLocked sends everybody back to the lines of h, for they are answered
// without Redis. nil = of all lines.
func (g *Governor) dissolveLocked(h *health) {
	g.queue.asks = slices.DeleteFunc(g.queue.asks, func(k *ask) bool {
		if h != nil && k.line.health != h {
			return false
		}
		if !k.place {
			k.line.asks = append(k.line.asks, k)
			k.unqueuedLocked()
		}
		return true
	})
}

// doneLocked gives k its answer.
func (g *Governor) doneLocked(k *ask) {
	delete(g.queue.called, k)
	close(k.done)
}
