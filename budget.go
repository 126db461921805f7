package ax

import (
	"slices"
	"time"
)

// owner is one that pays for tasks: what it may start, hold and queue, and what
// it has. Guarded by the scheduler's mutex.
type owner struct {
	s      *Scheduler
	name   string
	budget *Budget // nil = no limit of its own
	fixed  bool    // named in Config or by SetBudget: never forgotten

	gate    gate
	rates   *rateSet
	asked   int      // its tasks that a governor is being asked for
	queues  []*queue // one for each lane it waits in, while it has a budget
	blocked bool     // it may start nothing: its queues are out of their lanes' choice
	alarm   alarm

	waiting  int // first starts that wait: MaxQueue
	running  int // attempts
	flights  int // unfinished
	inQueue  int // waiters
	lastUsed instant
	warned   instant // no second WARN before
	started  uint64
	over     uint64
	would    wouldCounts
}

// limited tells whether o has a budget, and so a queue of its own.
func (o *owner) limited() bool { return o.budget != nil }

// startAt is the earliest moment at which o's budget allows a start.
func (o *owner) startAt(now instant) instant {
	if !o.gate.free() {
		return never
	}
	return max(now, o.rates.next(now))
}

// forgetQueue lets go of a queue that is empty.
func (o *owner) forgetQueue(q *queue) {
	if i, last := slices.Index(o.queues, q), len(o.queues)-1; i >= 0 {
		o.queues[i], o.queues[last] = o.queues[last], nil
		o.queues = o.queues[:last]
	}
}

// forgetAt is from when on forgetting o changes nothing.
func (o *owner) forgetAt(now instant) instant {
	if o.fixed || o.flights > 0 || o.running > 0 || o.asked > 0 || o.inQueue > 0 || len(o.queues) > 0 {
		return never
	}
	return max(o.lastUsed.add(10*time.Second), o.rates.idleAt(now))
}

// ringLocked: time has given o a token, or o can go.
func (o *owner) ringLocked(now instant) {
	if o.forgetAt(now) <= now {
		o.s.owners.remove(o.name)
		return
	}
	o.s.fixOwnerLocked(o, now)
}

// ownerLocked finds or makes the owner of that name.
func (s *Scheduler) ownerLocked(name string) *owner {
	if name == "" && s.nobody != nil {
		return s.nobody
	}
	o := s.owners.get(name)
	if o != nil {
		return o
	}
	o = &owner{s: s, name: name, rates: newRateSet(s.epoch, nil), lastUsed: s.now()}
	if b, ok := s.cfg.Budgets[name]; ok {
		o.fixed = true
		s.setBudgetLocked(o, b, o.lastUsed)
	} else if s.cfg.Owners != nil && name != "" {
		s.setBudgetLocked(o, *s.cfg.Owners, o.lastUsed)
	}
	s.owners.set(name, o)
	s.fixOwnerLocked(o, o.lastUsed)
	return o
}

// setBudgetLocked puts a resolved budget in force; the history of starts stays.
func (s *Scheduler) setBudgetLocked(o *owner, b Budget, now instant) {
	o.budget = &b
	o.gate.setLimit(ownLimit(b.MaxConcurrent))
	o.rates.set(now, b.Rate)
}

// fixOwnerLocked blocks or unblocks o's queues after anything that may have
// changed what it can start: O(log n) for each lane that it waits in.
func (s *Scheduler) fixOwnerLocked(o *owner, now instant) {
	if o == s.nobody && !o.blocked && !o.limited() {
		return // most tasks are nobody's
	}
	t := o.startAt(now)
	if blocked := t > now; blocked != o.blocked {
		o.blocked = blocked
		for _, q := range slices.Clone(o.queues) { // a queue may go meanwhile
			s.fixQueueLocked(q, now)
		}
	}
	if o.blocked && len(o.queues) > 0 {
		if o.budget.Over != OverQueue && o.asked == 0 {
			s.refuseOwnerLocked(o, now)
		}
		if t != never {
			s.setAlarmLocked(&o.alarm, o, t)
		}
		return
	}
	if o.alarm.pos == 0 {
		s.setAlarmLocked(&o.alarm, o, o.forgetAt(now))
	}
}

// refuseOwnerLocked ends what waits of an owner whose budget refuses instead of
// queueing.
func (s *Scheduler) refuseOwnerLocked(o *owner, now instant) {
	for len(o.queues) > 0 {
		_, n, _ := o.queues[0].tasks.top()
		s.refuseWaiterLocked(n.item, s.overBudgetLocked(o, &n.item.f.overBudget, now), now)
	}
}

// admitOwnerLocked is the owner's word on a new task: nil, or ErrBudget. What it
// lets wait is told once per window.
func (s *Scheduler) admitOwnerLocked(f *flight, now instant) error {
	o := f.owner
	if !o.limited() || o.startAt(now) <= now || f.lane.asks > 0 && o.asked > o.inQueue { // one is reserved that nobody waits for
		return nil
	}
	if o.budget.Over != OverQueue {
		return s.overBudgetLocked(o, &f.overBudget, now)
	}
	s.noteOverLocked(o, &f.overBudget, now)
	return nil
}

// noteOverLocked counts a task that met the budget, and warns once a window.
func (s *Scheduler) noteOverLocked(o *owner, noted *bool, now instant) {
	if *noted {
		return
	}
	*noted = true
	o.over++
	if now < o.warned {
		return
	}
	window := time.Second
	for _, r := range o.budget.Rate {
		window = max(window, r.Per)
	}
	o.warned = now.add(window)
	free := o.startAt(now)
	s.laterUser(func() {
		attrs := []any{"owner", o.name}
		if free != never {
			attrs = append(attrs, "free_in", free.sub(now))
		}
		s.log.Warn("ax: owner is over its budget", attrs...)
	})
}

// overBudgetLocked is the refusal that names the owner and when it is free.
func (s *Scheduler) overBudgetLocked(o *owner, noted *bool, now instant) error {
	what := "Rate"
	if !o.gate.free() {
		what = "MaxConcurrent"
	}
	return s.overLimitLocked(o, what, noted, now)
}

func (s *Scheduler) overLimitLocked(o *owner, what string, noted *bool, now instant) error {
	s.noteOverLocked(o, noted, now)
	free := o.startAt(now)
	if free == never || free <= now {
		return &budgetError{overBudget(o.name, what, 0), o.overAction()}
	}
	return &budgetError{hinted(overBudget(o.name, what, free.sub(now)), free.sub(now)), o.overAction()}
}

// budgetError is ErrBudget, and what the budget that refused says about fallbacks.
type budgetError struct {
	error
	over OverAction
}

func (e *budgetError) Unwrap() error { return e.error }

// askedFirst is how many first starts hold a reservation at the governor, and so do not
// count against MaxQueue.
func askedFirst(asked, inQueue, waiting int) int {
	return min(waiting, max(0, asked-(inQueue-waiting)))
}

// askedFirst is the same of all lanes together.
func (s *Scheduler) askedFirst() (n int) {
	if s.asks == 0 {
		return 0
	}
	for _, l := range s.lanes.m {
		n += askedFirst(l.asks, l.inQueue, l.waiting)
	}
	return n
}

// maxQueue is how many first starts of o may wait; 0 = any number.
func (o *owner) maxQueue() int {
	if o.budget == nil {
		return 0
	}
	return ownLimit(o.budget.MaxQueue)
}

// overAction is what an exhausted budget does.
func (o *owner) overAction() OverAction {
	if o.budget == nil {
		return OverQueue
	}
	return o.budget.Over
}
