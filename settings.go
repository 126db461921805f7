package ax

import (
	"errors"
	"fmt"
	"strings"
)

// Pause stops starts in a lane, or everywhere with "": queued work waits,
// running attempts go on. Tasks nested in a running attempt do not wait: they are
// refused with ErrWouldWait. It outlasts any pause that a server asks for. The
// error says that lane is neither configured nor an authority; a host not seen
// yet is fine, but one without a dot or a port ("users") is known by that name
// only while its lane is in use: list it in Config.Lanes.
func (s *Scheduler) Pause(lane string) error { return s.hold(lane, true) }

// Resume ends a Pause. A server's Retry-After that has not passed still counts.
// What waited starts as the limits allow, without a ramp.
func (s *Scheduler) Resume(lane string) error { return s.hold(lane, false) }

func (s *Scheduler) hold(name string, held bool) error {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	if name == "" {
		if s.held == held {
			return nil
		}
		s.held = held
		s.specialLocked()
		e := Event{Kind: EventLaneResumed}
		if held {
			e.Kind, e.Reason = EventLanePaused, "Pause"
		}
		s.laneEventLocked("", e, now)
		if held {
			for _, l := range s.lanes.m {
				s.strandLocked(l, now)
			}
			s.strandRestingLocked(now)
		}
		s.dispatchLocked(now)
		return nil
	}
	l, err := s.namedLaneLocked(name)
	if err != nil {
		return err
	}
	if l.held == held {
		return nil
	}
	l.held = held
	switch {
	case held && !l.paused:
		l.paused = true
		s.laneEventLocked(l.name, Event{Kind: EventLanePaused, Reason: "Pause"}, now)
	case held:
	case l.until <= now:
		l.paused = false
		s.laneEventLocked(l.name, Event{Kind: EventLaneResumed}, now)
	}
	s.strandLocked(l, now)
	s.strandRestingLocked(now)
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	return nil
}

// SetLimits changes the limits of a lane, or with "" of the scheduler, while it
// runs: what a raised limit allows starts at once, a lowered one ends nothing
// that runs. Zero fields keep what is in force; NoLimit and Unlimited lift it.
// The history of starts stays: a new rate counts the old starts too, as far as
// they are known; see [Limits]. The lane of a host is named as in [Config.Hosts],
// seen or not; for one without a dot or a port see Pause. Limits of a host that no
// request goes to have no effect. A lane given limits by hand is kept for good.
func (s *Scheduler) SetLimits(lane string, l Limits) error {
	if err := invalid(l.validate("Limits")); err != nil {
		return err
	}
	l = l.resolved()
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	if lane == "" {
		if l.MaxConcurrent != 0 {
			s.gate.setLimit(ownLimit(l.MaxConcurrent))
		}
		if l.MaxQueue != 0 {
			s.maxQueue = ownLimit(l.MaxQueue)
		}
		if l.Rate != nil {
			s.rates.set(now, l.Rate)
			s.specialLocked()
		}
		for _, la := range s.lanes.m {
			s.fixLaneLocked(la, now)
		}
	} else {
		la, err := s.namedLaneLocked(lane)
		if err != nil {
			return err
		}
		la.fixed = true
		if l.MaxConcurrent != 0 {
			la.gate.setLimit(ownLimit(l.MaxConcurrent))
		}
		if l.MaxQueue != 0 {
			la.maxQueue = ownLimit(l.MaxQueue)
		}
		if l.Rate != nil {
			la.rates.set(now, l.Rate)
		}
		s.fixLaneLocked(la, now)
	}
	s.dispatchLocked(now)
	return nil
}

// SetBudget puts a budget in force for an owner, new or known; what it allows
// starts at once. It replaces the whole budget: the zero Budget has no limits.
func (s *Scheduler) SetBudget(owner string, b Budget) error {
	if err := invalid(b.validate("Budget")); err != nil {
		return err
	}
	if owner == "" {
		return errors.New(`ax: SetBudget: the owner "" is nobody in particular; use SetLimits("", …) for all tasks together`)
	}
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	o := s.ownerLocked(owner)
	o.fixed = true
	was := o.limited()
	s.setBudgetLocked(o, b.resolved(), now)
	if !was {
		s.separateLocked(o, now)
	}
	s.fixOwnerLocked(o, now)
	s.dispatchLocked(now)
	return nil
}

// separateLocked moves what waits of an owner that has just been given its first
// budget into queues of its own.
func (s *Scheduler) separateLocked(o *owner, now instant) {
	if o.inQueue == 0 {
		return
	}
	for _, l := range s.lanes.m {
		var own []*waiter
		l.plain.tasks.each(func(_ rank, n *heapNode[*waiter]) bool {
			if n.item.owner == o {
				own = append(own, n.item)
			}
			return true
		})
		for _, w := range own {
			l.plain.tasks.remove(&w.node)
			l.queueOf(o).tasks.push(w.f.rank, &w.node)
		}
		if len(own) > 0 {
			s.fixQueueLocked(&l.plain, now)
			s.fixQueueLocked(l.queueOf(o), now)
		}
	}
}

// ForceBreaker holds a lane's breaker open or closed whatever happens, or lets
// it judge again from a clean window. Lanes are named as for Pause; that of a host,
// seen or not, is then kept for good. The error says that the lane is unknown or
// has no breaker.
func (s *Scheduler) ForceBreaker(lane string, mode BreakerMode) error {
	s.mu.Lock()
	defer s.unlock()
	l, err := s.namedLaneLocked(lane)
	if err != nil {
		return err
	}
	if l.brk == nil {
		return fmt.Errorf("ax: lane %q has no breaker to force; set Config.Breaker or the lane's", lane)
	}
	if mode < BreakerAuto || mode > BreakerForceClosed {
		return fmt.Errorf("ax: BreakerMode %d is none of BreakerAuto, BreakerForceOpen, BreakerForceClosed", mode)
	}
	now := s.now()
	l.fixed = true
	l.brk.force(now, mode)
	s.breakerMovedLocked(l, now)
	s.fixLaneLocked(l, now)
	s.dispatchLocked(now)
	return nil
}

// namedLaneLocked is the lane that the caller names: configured, or that of a
// host, which is made if it is new.
func (s *Scheduler) namedLaneLocked(name string) (*lane, error) {
	if l := s.lanes.get(name); l != nil {
		return l, nil
	}
	if !isAuthority(name) {
		return nil, fmt.Errorf("ax: lane %q is neither configured nor a host (with a dot, a port, or localhost)", name)
	}
	return s.hostLaneLocked(strings.ToLower(name)), nil
}
