package ax

import (
	"fmt"
	"math"
	"time"
)

// checkTurn: when an outermost attempt arrives, nobody who waited when it was
// granted had a better rank and could have started in its place (O2), and nothing
// was closed to it. Both mutexes are held.
func (w *chaosWorld) checkTurn(wire *chaosWire) {
	at, l := wire.at, wire.at.hold.lane
	if l == nil || at.f == nil && at.express == nil {
		return
	}
	taken := at.hold.taken
	if at.unlisted {
		taken = at.began
	}
	t := w.scope("lane " + wire.lane)
	if !w.governs && taken > t.pauseFrom && taken < t.pauseUntil {
		w.wrong("a start in lane %s during its pause, which ends at %v", wire.lane, time.Duration(t.pauseUntil))
	}
	for _, held := range []instant{t.held, w.scope("").held} {
		if taken > held {
			w.wrong("a start in lane %s, on hold since %v", wire.lane, time.Duration(held))
		}
	}
	if b := l.brk; b != nil && b.mode == BreakerAuto && b.in == BreakerOpen && wire.begun > b.until-instant(b.policy.OpenFor) {
		w.wrong("a start in lane %s behind its open breaker", wire.lane)
	}
	if w.governs || at.f != nil && at.f.key != nil || w.hedged {
		return // whose rank may have changed, or whose start was another's turn
	}
	var mine rank
	if at.f != nil {
		mine = at.f.rank
	} else {
		mine = at.express.rank()
	}
	for f := w.s.unfinished; f != nil; f = f.next {
		if f.state != flightWaiting || f.wait.kind > waitRetry || f.wait.since >= taken {
			continue
		}
		same := f.lane == l && f.owner == at.hold.owner
		if same || w.s.unbounded(f, taken) {
			f.callers.each(func(c *caller) bool {
				if c.born < taken && c.rank.before(mine) {
					w.wrong("task %d of lane %s overtook task %d of lane %s", mine.seq, l.name, c.seq(), f.lane.name)
				}
				return true
			})
		}
	}
}

// unbounded tells that f waits for nothing but the scheduler's own limits.
func (s *Scheduler) unbounded(f *flight, then instant) bool {
	l := f.lane
	return !f.owner.limited() && l.gate.limit() == 0 && len(l.rates.rates()) == 0 && l.brk == nil && !l.held &&
		l.until <= then && !l.paused && l.spread.done(then)
}

// checkStill compares the scheduler's books with the truth while nothing moves:
// every goroutine is blocked, so both must agree to the last unit.
func (w *chaosWorld) checkStill() {
	s := w.s
	st := s.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := s.now()
	w.checkSlots()
	w.checkFlights(now, int(st.Submitted-st.Succeeded-st.Failed-st.Canceled-st.Rejected))
	w.checkWires()
	for _, l := range s.lanes.m {
		w.checkBreaker(l, now)
		w.checkAwake(l, now)
	}
	w.checkTokens(now)
}

func (w *chaosWorld) checkSlots() {
	s := w.s
	asks, swift := 0, 0
	for name, l := range s.lanes.m {
		asks, swift = asks+l.asks, swift+l.swiftActive()
		if have := w.scope("lane "+name).active + l.asks; l.gate.active() != have {
			w.wrong("lane %s: %d slots taken, %d in flight", name, l.gate.active(), have)
		}
	}
	if have := w.scope("").active + asks; s.gate.active() != have {
		w.wrong("%d slots taken, %d in flight", s.gate.active(), have)
	}
	for name, o := range s.owners.m {
		if name == "" {
			continue // nobody: express tasks leave it out
		}
		if have := w.scope("owner "+name).active + o.asked; o.gate.active() != have {
			w.wrong("owner %q: %d slots taken, %d in flight", name, o.gate.active(), have)
		}
	}
	w.checkHolds()
	if have := w.scope("").active + w.nested; s.running+swift != have {
		w.wrong("Active is %d, %d are in flight", s.running+swift, have)
	}
}

// checkHolds names the attempt that holds a slot without being anywhere.
func (w *chaosWorld) checkHolds() {
	for f := w.s.unfinished; f != nil; f = f.next {
		if at := f.at; at != nil && at.hold.slot && w.wires[at] == nil {
			w.wrong("attempt %d of %s holds a slot, state %d, hopping %v, hedged %v", at.n, f.task.URL(), f.state, at.hopping() != nil, f.more != nil && f.more.hedge != nil)
		}
	}
}

// checkFlights: every unfinished flight has callers, is where its state says, and
// is not overdue; the gauges count them.
func (w *chaosWorld) checkFlights(now instant, left int) {
	s := w.s
	callers, waits, rests, keyed, counted := 0, 0, 0, 0, 0
	for f := s.unfinished; f != nil; f = f.next {
		n := f.callers.len()
		callers += n
		if n == 0 {
			w.wrong("a flight without callers in state %d", f.state)
		}
		if f.keyed && !f.outdated {
			keyed++
		}
		if f.wait.counted {
			counted++
		}
		switch f.state {
		case flightWaiting:
			waits++
			if f.wait.node.pos == 0 {
				w.wrong("a waiting flight in no queue")
			}
			first := n == 1 && !f.callers.best().joined // joiners may wait longer
			if (first || f.attempts > 0) && f.queueTimeout > 0 && now > f.wait.since.add(f.queueTimeout) {
				w.wrong("a task of lane %s waits since %v, QueueTimeout %v", f.lane.name, time.Duration(f.wait.since), f.queueTimeout)
			}
		case flightResting:
			rests++
		case flightRunning:
			if m := f.more; m != nil && m.hedge != nil {
				h := m.hedge
				if h.wait.node.pos != 0 || h.at.hopping() != nil && h.at.hopping().node.pos != 0 {
					waits++
				}
			}
			if f.at.hopping() != nil && f.at.hopping().node.pos != 0 {
				waits++
			} else if !f.lone && !w.hedged && f.attemptTimeout > 0 && now > f.at.began.add(f.attemptTimeout+deafAfter) {
				w.wrong("an attempt in lane %s since %v, AttemptTimeout %v", f.lane.name, time.Duration(f.at.began), f.attemptTimeout)
			}
		case flightDone:
			w.wrong("a finished flight is listed")
		}
	}
	if keyed > s.flights.len() {
		w.wrong("%d keys, %d keyed flights", s.flights.len(), keyed)
	}
	if counted != s.waiting {
		w.wrong("MaxQueue counts %d, %d wait", s.waiting, counted)
	}
	for _, l := range s.lanes.m {
		callers += l.swiftActive() // who has no flight
	}
	if left != callers {
		w.wrong("%d tasks have no end, flights have %d callers", left, callers)
	}
	w.checkGauges(now, waits, rests)
}

func (w *chaosWorld) checkGauges(now instant, waits, rests int) {
	queued, parked, resting := 0, 0, 0
	for _, l := range w.s.lanes.m {
		q, p := l.gauges(now)
		queued, parked, resting = queued+q, parked+p, resting+l.resting
	}
	if queued+parked != waits+rests || resting != rests {
		w.wrong("Queued %d and Parked %d, but %d wait and %d rest", queued, parked, waits, rests)
		for _, l := range w.s.lanes.m {
			look := func(_ rank, n *heapNode[*waiter]) bool {
				if x := n.item; x != &x.f.wait {
					w.wrong("in the queue of %s: attempt %d of %s, state %d, its flight's latest %v, abandoned %v, hedged %v", l.name, x.at.n, x.f.task.URL(), x.f.state, x.f.at == x.at, x.at.abandoned, x.f.more)
				}
				return true
			}
			l.plain.tasks.each(look)
			l.nested.each(look)
			for _, q := range l.byOwner {
				q.tasks.each(look)
			}
		}
	}
}

// checkWires: what is at a server is wanted by somebody, or knows that it is not.
func (w *chaosWorld) checkWires() {
	for at, wire := range w.wires {
		if wire.ctx.Err() != nil || w.s.streams.m != nil && hasKey(w.s.streams.m, at) {
			continue
		}
		if at.express != nil && !at.express.stage.adopted() {
			continue // its caller's goroutine alone knows it
		}
		if f := at.f; f == nil {
			w.wrong("a body from lane %s is open though nobody has it", wire.lane)
		} else if f.state != flightRunning && (f.state != flightSettling || at.stream() == nil) {
			w.wrong("an attempt of %s in lane %s goes on though nobody wants it: state %d, attempt %d of %d", f.task.URL(), wire.lane, f.state, at.n, f.attempts)
		}
	}
}

func hasKey[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// checkBreaker: no more probes than allowed, and a failure after the breaker let
// traffic through again has opened it.
func (w *chaosWorld) checkBreaker(l *lane, now instant) {
	b := l.brk
	if b == nil || b.mode != BreakerAuto {
		return
	}
	var since instant
	switch b.in {
	case BreakerHalfOpen:
		since = b.until
		probes := 0
		for at, wire := range w.wires {
			if wire.lane == l.name && at.outer() == nil && wire.since >= since && wire.ctx.Err() == nil {
				probes++
			}
		}
		if probes > b.policy.Probes {
			w.wrong("lane %s: %d attempts, %d probes allowed", l.name, probes, b.policy.Probes)
		}
	case BreakerRamping:
		since = b.rise.from
	default:
		return
	}
	if failed := w.scope("lane " + l.name).failed; !w.hedged && failed > since {
		w.wrong("lane %s: the attempt of %v failed (%s), its breaker is %v since %v", l.name, time.Duration(failed), w.scope("lane "+l.name).why, b.in, time.Duration(since))
	}
}

// checkAwake: nothing waits that could start now, and the timer will not miss the
// moment at which time alone lets it.
func (w *chaosWorld) checkAwake(l *lane, now instant) {
	s := w.s
	look := func(what string, t instant) {
		if l.brk != nil {
			what = fmt.Sprintf("(breaker %v, %d in flight) %s", l.brk.in, l.gate.active(), what)
		}
		switch {
		case t <= now:
			w.wrong("%s of lane %s could start now and does not", what, l.name)
		case t < s.timerAt:
			w.wrong("%s of lane %s could start at %v, the timer is set for %v", what, l.name, time.Duration(t), time.Duration(s.timerAt))
		}
	}
	each := func(q *queue) {
		if _, n, ok := q.tasks.top(); ok && l.asks == 0 {
			ofLane, ofOwner, ofAll := l.startAt(now), n.item.owner.startAt(now), s.startAt(now)
			who := fmt.Sprintf("task %d (lane from %v, owner from %v, scheduler from %v)", n.item.f.rank.seq, time.Duration(ofLane), time.Duration(ofOwner), time.Duration(ofAll))
			look(who, max(ofLane, ofOwner, ofAll))
		}
	}
	each(&l.plain)
	for _, q := range l.byOwner {
		each(q)
	}
	l.nested.each(func(_ rank, n *heapNode[*waiter]) bool {
		look("a nested task", s.tokensAt(n.item, now))
		return true
	})
}

// checkTokens: the record of starts is that of the servers, and nothing is held
// back for anybody: a token is taken by a start and by nothing else (L2).
func (w *chaosWorld) checkTokens(now instant) {
	s := w.s
	asks := 0
	for name, l := range s.lanes.m {
		asks += l.asks
		w.checkRecord("lane "+name, l.rates, l.asks, now)
	}
	w.checkRecord("", s.rates, asks, now)
	for name, o := range s.owners.m {
		w.checkRecord("owner "+name, o.rates, o.asked, now)
	}
}

func (w *chaosWorld) checkRecord(scope string, r *rateSet, asks int, now instant) {
	t := w.scope(scope)
	if most := t.mostAllowed(now); !r.exact() || most == 0 || most == math.MaxInt { // what was before there was a rate, it does not know
		return
	}
	if r.pending != asks {
		w.wrong("scope %q: %d tokens are taken for nobody", scope, r.pending-asks)
	}
	have, known := 0, 0
	for _, at := range t.starts {
		if at.add(time.Second) > now {
			have++
		}
	}
	for i := range r.log.len() {
		if r.log.oldest(i).add(time.Second) > now {
			known++
		}
	}
	if have != known {
		w.wrong("scope %q: %d starts in the last second, %d tokens used", scope, have, known)
	}
}

// checkEmpty: when all is over, nothing is left of it.
func (w *chaosWorld) checkEmpty() {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, n := range map[string]int{
		"tasks and attempts": int(s.alive.Load()), "slots": s.gate.active(), "running": s.running, "waiting": s.waiting,
		"flights": s.flights.len(), "URLs": s.byURL.sets.len(), "names": len(s.names), "tags": s.tags.sets.len(),
		"streams": s.streams.len(), "watched contexts": s.watches.len(), "nesting lanes": len(s.nesting), "evictable": s.worst.len(), "ready lanes": s.ready.len(),
		"at servers": len(w.wires), "nested": w.nested, "things to do": len(s.todo),
	} {
		if n != 0 {
			w.wrong("%d %s are left", n, what)
		}
	}
	for name, l := range s.lanes.m {
		if l.gate.active()+l.waiting+l.resting+l.running+l.asks+l.worst.len()+len(l.byOwner) != 0 {
			w.wrong("lane %s is not empty", name)
		}
	}
	for name, o := range s.owners.m {
		if o.gate.active()+o.waiting+o.running+o.inQueue+o.asked+len(o.queues) != 0 {
			w.wrong("owner %q is not empty", name)
		}
	}
}
