package axredis

import (
	"context"
	"slices"
	"time"
)

// line is a lane's way to Redis: one step at a time carries all that has come up
// meanwhile. So a busy lane needs less than one round trip for a start, and no
// two steps of one process in one lane can overtake each other. It exists while
// there is something to hold or to say. Guarded by the governor's mutex.
type line struct {
	g      *Governor
	name   string
	health *health
	scopes []*scope // the lane's own, then that of ""
	keys   []string

	asks    []*ask
	queued  int // asks of this lane in the governor's queue
	frees   []free
	held    map[string]*lease
	out     int       // leases that attempts have, lost ones too
	soonest time.Time // no lease runs out before
	pause   time.Time // told by this process, or to be told; zero = none, or over
	paused  bool      // Redis has been told
	served  time.Time // rank of the latest grant
	renewAt time.Time
	busy    bool // a goroutine is stepping
	timer   *time.Timer
}

// lineLocked is the line of a lane, made when missing.
func (g *Governor) lineLocked(name string) *line {
	l, ok := g.lines[name]
	if ok {
		return l
	}
	own, all := g.scopes[name], g.scopes[""]
	l = &line{g: g, name: name, health: g.healthLocked(name), held: make(map[string]*lease), keys: []string{g.keys.pause(name)}}
	if own == nil { // counts nothing, but remembers ids and ranks
		own = &scope{name: name, version: all.version}
	}
	for _, s := range []*scope{own, all} {
		if s != nil {
			l.scopes = append(l.scopes, s)
			l.keys = append(l.keys, g.keys.scope(name, s.name, s.version, len(s.rates))...)
		}
	}
	g.lines[name] = l
	return l
}

// leased is whether a start of this lane holds a slot of the fleet.
func (l *line) leased() bool {
	return slices.ContainsFunc(l.scopes, func(s *scope) bool { return s.cap > 0 })
}

// poll is how soon to ask again for a slot.
func (l *line) poll() time.Duration {
	var p time.Duration
	for _, s := range l.scopes {
		if s.cap > 0 || p == 0 {
			p = s.poll()
		}
	}
	return p
}

// pumpLocked sees to it that what is to be told is told.
func (l *line) pumpLocked() {
	if l.busy {
		return
	}
	l.busy = true
	l.g.work.Add(1)
	go l.run() // ends when there is nothing to tell; Close waits for it
}

// run steps until there is nothing to tell.
func (l *line) run() {
	g := l.g
	defer g.work.Done()
	for {
		g.store.crowd.enter()
		g.mu.Lock()
		b := l.batchLocked(time.Now())
		if b == nil {
			l.busy = false
			l.restLocked(time.Now())
			g.mu.Unlock()
			g.store.crowd.leave(false, nil)
			return
		}
		args := l.arguments(b)
		g.mu.Unlock()
		reply, err := g.step(l.keys, args, len(b.asks))
		g.store.crowd.leave(true, err)
		g.mu.Lock()
		now := time.Now()
		g.judgeLocked(l.health, err, b.sent, now)
		if err == nil {
			l.answerLocked(b, reply, now)
		} else {
			l.failLocked(b, l.health.excuses(err, b.sent), now)
		}
		g.announceLocked(l, now)
		g.mu.Unlock()
	}
}

// batchLocked takes what there is to tell; nil if nothing, or nobody listens.
func (l *line) batchLocked(now time.Time) *batch {
	l.expireLocked(now)
	g := l.g
	if l.health.down {
		l.answerAllLocked(now)
		return nil
	}
	slices.SortStableFunc(l.asks, func(a, b *ask) int { return a.rank.Compare(b.rank) })
	l.asks = slices.DeleteFunc(l.asks, func(k *ask) bool {
		if !g.waitsLocked(k, now) {
			return false
		}
		g.queueLocked(k, now)
		return true
	})
	room, wait := l.ownRoom(now)
	if room == 0 {
		l.refuseLocked(time.Time{}, wait)
	}
	renew := l.renews() && !now.Before(l.renewAt)
	if len(l.asks) == 0 && len(l.frees) == 0 && (l.pause.IsZero() || l.paused) && !renew {
		return nil
	}
	b := &batch{sent: now, room: margin{g.cfg.Timeout, g.trip}, pause: l.pause}
	b.asks = head(&l.asks, min(maxBatch, room))
	b.frees = head(&l.frees, maxBatch)
	for _, k := range b.asks {
		k.sent, k.room = now, b.room
	}
	if renew {
		for _, le := range l.held {
			le.told = true
			b.renews = append(b.renews, le)
		}
		l.renewAt = now.Add(g.renewal())
	}
	return b
}

// renews is whether there is something that Redis is told again and again, in case
// it has lost its data: leases, and a pause that this process has asked for.
func (l *line) renews() bool { return len(l.held) > 0 || !l.pause.IsZero() }

// pauseLocked lets the line be paused until then, in the whole fleet.
func (l *line) pauseLocked(until, now time.Time) {
	if !until.After(l.pause) {
		return
	}
	if !l.renews() {
		l.renewAt = now.Add(l.g.renewal())
	}
	l.pause, l.paused = until, false
	l.pumpLocked()
}

// excusedSleep is when to ask again if it was not Redis that failed.
const excusedSleep = 10 * time.Millisecond

// answerLocked deals out what Redis has decided.
func (l *line) answerLocked(b *batch, reply []int64, now time.Time) {
	if b.pause.Equal(l.pause) { // not prolonged meanwhile
		l.paused = true
	}
	for _, le := range b.renews {
		le.confirmLocked(b.sent, now)
	}
	l.expireLocked(now)
	wait := early(time.Duration(reply[0]) * time.Microsecond)
	var refused *ask
	for i, k := range b.asks {
		switch granted := reply[header+i] == 1; {
		case k.left && k.lease != nil && granted: // started in the meantime by what holds in an outage
			k.lease.confirmLocked(b.sent, now)
		case k.left && granted:
			l.freeLocked(k.id, now)
		case k.left:
		case l.g.closed:
			l.freeLocked(k.id, now)
			k.err = ErrClosed
			l.g.doneLocked(k)
		case granted && !l.keepsOwnLocked(k, now):
		case granted:
			l.grantLocked(k, now)
			if k.lease != nil {
				k.lease.confirmLocked(b.sent, now)
			}
			l.g.doneLocked(k)
		case reply[1] == 2: // by the limits of ""
			delete(l.g.queue.called, k)
			l.g.queueLocked(k, now)
		default:
			k.retryIn = wait
			l.g.doneLocked(k)
			if refused == nil {
				refused = k
			}
		}
	}
	if refused != nil && len(l.frees) == 0 {
		l.refuseLocked(refused.rank, wait)
	}
	if l.sharesLocked() {
		room := int(reply[2])
		switch {
		case reply[1] == 2: // what room there is is for others
			room = 0
		case len(b.asks) == 0 && l.leased():
			room = len(l.g.queue.called) + b.unhanded()
		}
		l.g.roomLocked(room, time.Duration(reply[3])*time.Microsecond, now)
	}
}

// keepsOwnLocked is whether a start that Redis allows keeps to this process's own
// record; else it is refused.
func (l *line) keepsOwnLocked(k *ask, now time.Time) bool {
	room, wait := l.ownRoom(now)
	if room > 0 {
		return true
	}
	k.retryIn = wait
	l.freeLocked(k.id, now)
	l.g.doneLocked(k)
	return false
}

// sharesLocked is whether the lane's starts count in "" as well.
func (l *line) sharesLocked() bool { return l.g.scopes[""] != nil }

// refuseLocked spares a step to the asks that are no better than what was refused
// just now.
func (l *line) refuseLocked(rank time.Time, wait time.Duration) {
	l.asks = slices.DeleteFunc(l.asks, func(k *ask) bool {
		if k.rank.Before(rank) {
			return false
		}
		k.retryIn = wait
		l.g.doneLocked(k)
		return true
	})
}

// early is a wait of which a scheduler that adds up to a tenth does not make more
// than it was.
func early(d time.Duration) time.Duration {
	if d > 20*time.Millisecond {
		d = d * 10 / 11
	}
	return max(d, time.Millisecond)
}

// failLocked undoes what nobody has heard of for sure, and answers who asked.
func (l *line) failLocked(b *batch, excused bool, now time.Time) {
	g := l.g
	l.frees = append(b.frees, l.frees...)
	l.renewAt = time.Time{} // whoever answers next hears first what is held
	for _, k := range b.asks {
		if !k.left {
			if excused {
				k.retryIn = excusedSleep
			} else {
				l.answerAloneLocked(k, now)
			}
			g.doneLocked(k)
		}
		if k.lease == nil { // Redis may have granted it nevertheless
			l.freeLocked(k.id, now)
		}
	}
	if g.closed {
		l.frees, l.pause = nil, time.Time{}
	}
}

// grantLocked counts a start and makes its lease, if the lane has slots.
func (l *line) grantLocked(k *ask, now time.Time) {
	l.served = k.rank
	for _, s := range l.scopes {
		s.took(now)
	}
	if !l.leased() {
		return
	}
	for _, s := range l.scopes {
		s.active++
	}
	l.out++
	k.lease = &lease{line: l, id: k.id, since: now, told: !k.sent.IsZero(), lost: make(chan struct{})}
	if !l.renews() {
		l.renewAt = now.Add(l.g.renewal())
	}
	l.held[k.id] = k.lease
	if !l.busy {
		l.restLocked(now)
	}
}

// releaseLocked ends a lease whose attempt has ended.
func (l *line) releaseLocked(le *lease, now time.Time) {
	for _, s := range l.scopes {
		s.gaveBack(now.Sub(le.since))
	}
	l.out--
	le.over = true
	delete(l.held, le.id)
	if l.g.closed {
		return
	}
	if le.told {
		l.frees = append(l.frees, free{le.id, now, l.g.handOverLocked(le.id, now)})
	}
	l.pumpLocked()
}

// freeLocked lets Redis know that id holds nothing, if it could.
func (l *line) freeLocked(id string, now time.Time) {
	if l.leased() {
		l.frees = append(l.frees, free{id: id, since: now})
	}
}

// expiresLocked notes that a lease runs out then.
func (l *line) expiresLocked(until time.Time) {
	if l.soonest.IsZero() || until.Before(l.soonest) {
		l.soonest = until
	}
}

// expireLocked gives up every lease that Redis may give to others soon, and
// forgets what it has given to others long ago.
func (l *line) expireLocked(now time.Time) {
	if !l.soonest.IsZero() && !now.Before(l.soonest) {
		l.soonest = time.Time{}
		for id, le := range l.held {
			switch {
			case le.until.IsZero():
			case now.Before(le.until):
				l.expiresLocked(le.until)
			default:
				le.over = true
				delete(l.held, id)
				close(le.lost)
			}
		}
	}
	ttl := l.g.cfg.LeaseTTL
	l.frees = slices.DeleteFunc(l.frees, func(f free) bool { return now.Sub(f.since) > ttl })
	if !l.pause.IsZero() && !now.Before(l.pause) {
		l.pause = time.Time{}
	}
}

// isIdle is whether there is nothing to hold or to say.
func (l *line) isIdle() bool {
	return l.out == 0 && len(l.asks) == 0 && l.queued == 0 && len(l.frees) == 0 && l.pause.IsZero()
}

// goLocked lets an idle line go.
func (l *line) goLocked() {
	if !l.busy && l.isIdle() {
		l.restLocked(time.Now())
	}
}

// restLocked sets the alarm for what must be told or given up next; without any
// the line goes.
func (l *line) restLocked(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.isIdle() {
		delete(l.g.lines, l.name)
		return
	}
	if l.g.closed || !l.renews() && len(l.frees) == 0 {
		return
	}
	at := now.Add(l.g.renewal())
	if l.renews() && l.renewAt.Before(at) {
		at = l.renewAt
	}
	if !l.pause.IsZero() && l.pause.Before(at) {
		at = l.pause
	}
	if l.health.down {
		at = now.Add(l.health.wait)
	}
	if len(l.held) > 0 && !l.soonest.IsZero() && l.soonest.Before(at) {
		at = l.soonest
	}
	l.timer = time.AfterFunc(at.Sub(now), l.ring)
}

// ring is the alarm.
func (l *line) ring() {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if l.g.closed {
		return
	}
	l.g.probeLocked(l.health, time.Now())
	l.pumpLocked()
}

// waitFor waits for the answer to k: as long as one call may take, and before
// that as long for its turn to be sent.
func (l *line) waitFor(ctx context.Context, k *ask) error {
	timer := time.NewTimer(l.g.cfg.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-k.done:
		case <-timer.C:
		case <-ctx.Done():
		}
		l.g.mu.Lock()
		more := l.endLocked(ctx, k, time.Now())
		l.g.mu.Unlock()
		if more <= 0 {
			return k.err
		}
		timer.Reset(more)
	}
}

// endLocked sees to it that k has an answer, unless there is more time for it.
func (l *line) endLocked(ctx context.Context, k *ask, now time.Time) (more time.Duration) {
	g := l.g
	select {
	case <-k.done:
		if !k.sent.IsZero() && !k.place {
			g.learnLocked(now.Sub(k.sent))
		}
		return 0
	default:
	}
	k.err = ctx.Err()
	silent := l.health.down || l.health.failures > 0
	if more = g.cfg.Timeout - now.Sub(k.sent); k.err == nil && !silent && !k.queued && !k.sent.IsZero() && more > 0 {
		return more
	}
	if _, called := g.queue.called[k]; called && k.err == nil && !silent && k.sent.IsZero() {
		return g.cfg.Timeout / 4 // it is its turn
	}
	switch {
	case k.err != nil && k.queued:
		g.leaveLocked(k)
	case k.queued:
		k.retryIn = again
		g.keepPlaceLocked(k, now)
	case k.err == nil && !silent && k.sent.IsZero():
		k.retryIn = again
	case k.err == nil:
		l.answerAloneLocked(k, now)
	}
	k.left = true
	delete(g.queue.called, k)
	l.asks = slices.DeleteFunc(l.asks, func(o *ask) bool { return o == k })
	return 0
}
