package ax

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// model is a scheduler of the simplest kind: no heaps, no alarms, no callbacks.
// It looks at every waiting task after every event and knows nothing but the
// rules: O1 to O4, L1 to L4, L7 and L8. What it starts, and when, is what the
// real one must start.
type model struct {
	now     time.Duration
	global  modelLimits
	lanes   map[string]*modelLimits
	owners  map[string]*modelLimits
	waiting []*modelTask
	running []*modelTask
	resting []*modelTask
	log     []modelEvent
}

// modelLimits is what one scope allows and has had.
type modelLimits struct {
	gate, active  int // gate 0 = none
	queue, queued int // queue 0 = none
	rate          int // a second, 0 = none
	starts        []time.Duration
	held          bool
}

type modelTask struct {
	id, attempt   int
	prio          Priority
	born, due     time.Duration // due: end of backoff, of QueueTimeout
	lane, owner   string
	step, timeout time.Duration
	since         time.Duration
}

type modelEvent struct {
	at   time.Duration
	id   int
	what string // "start", "reject", "timeout", "evict"
}

// before is O1.
func (t *modelTask) before(o *modelTask) bool {
	urgent := func(t *modelTask) time.Duration { return t.born + time.Duration(Urgent-t.prio)*t.step }
	return cmp.Or(cmp.Compare(urgent(t), urgent(o)), -cmp.Compare(t.prio, o.prio), cmp.Compare(t.id, o.id)) < 0
}

func (m *model) scopes(t *modelTask) []*modelLimits {
	return []*modelLimits{&m.global, m.lanes[t.lane], m.owners[t.owner]}
}

// allows tells whether a scope lets one more start.
func (l *modelLimits) allows(now time.Duration) bool {
	recent := 0
	for _, at := range l.starts {
		if now-at < time.Second {
			recent++
		}
	}
	return !l.held && (l.gate == 0 || l.active < l.gate) && (l.rate == 0 || recent < l.rate)
}

// dispatch starts the best task that every limit lets start, until there is none.
func (m *model) dispatch() {
	for {
		var best *modelTask
		for _, t := range m.waiting {
			free := !slices.ContainsFunc(m.scopes(t), func(l *modelLimits) bool { return !l.allows(m.now) })
			if free && (best == nil || t.before(best)) {
				best = t
			}
		}
		if best == nil {
			return
		}
		m.leaveQueue(best)
		best.attempt++
		for _, l := range m.scopes(best) {
			l.active++
			l.starts = append(l.starts, m.now)
		}
		m.running = append(m.running, best)
		m.tell(best, "start")
	}
}

func (m *model) tell(t *modelTask, what string) {
	m.log = append(m.log, modelEvent{m.now, t.id, what})
}

func (m *model) leaveQueue(t *modelTask) {
	m.waiting = slices.DeleteFunc(m.waiting, func(o *modelTask) bool { return o == t })
	if t.attempt == 0 {
		for _, l := range m.scopes(t) {
			l.queued--
		}
	}
}

// submit lets a task wait or start; a full queue evicts its worst or rejects.
func (m *model) submit(t *modelTask, evict bool) {
	t.born, t.since, t.due = m.now, m.now, m.now+t.timeout
	m.waiting = append(m.waiting, t)
	for _, l := range m.scopes(t) {
		l.queued++
	}
	m.dispatch()
	full := func(l *modelLimits) bool { return l.queue > 0 && l.queued > l.queue }
	lane := m.lanes[t.lane]
	if t.attempt > 0 || !full(lane) && !full(&m.global) {
		return
	}
	worst := t
	for _, o := range m.waiting {
		if evict && o.attempt == 0 && (!full(lane) || o.lane == t.lane) && worst.before(o) {
			worst = o
		}
	}
	what := "evict"
	if worst == t {
		what = "reject"
	}
	m.leaveQueue(worst)
	m.tell(worst, what)
	m.dispatch()
}

// end gives back what an attempt holds; a failed one rests and comes again.
func (m *model) end(t *modelTask, again bool) {
	m.running = slices.DeleteFunc(m.running, func(o *modelTask) bool { return o == t })
	for _, l := range m.scopes(t) {
		l.active--
	}
	if again {
		t.due = m.now + modelBackoff<<(t.attempt-1)
		m.resting = append(m.resting, t)
	}
	m.dispatch()
}

// cancel takes a task out of wherever it is.
func (m *model) cancel(t *modelTask) {
	switch {
	case slices.Contains(m.waiting, t):
		m.leaveQueue(t)
	case slices.Contains(m.running, t):
		m.end(t, false)
	}
	m.resting = slices.DeleteFunc(m.resting, func(o *modelTask) bool { return o == t })
	m.dispatch()
}

// advance lets time pass, moment by moment.
func (m *model) advance(to time.Duration) {
	for m.now < to {
		next := to
		for _, l := range m.all() {
			for _, at := range l.starts {
				if end := at + time.Second; end > m.now {
					next = min(next, end)
				}
			}
		}
		for _, t := range append(slices.Clone(m.waiting), m.resting...) {
			if t.due > m.now {
				next = min(next, t.due)
			}
		}
		m.now = next
		m.timeouts()
		m.dispatch()
	}
}

func (m *model) timeouts() {
	for _, t := range slices.Clone(m.waiting) {
		if t.timeout > 0 && t.due <= m.now {
			m.leaveQueue(t)
			m.tell(t, "timeout")
		}
	}
	for _, t := range slices.Clone(m.resting) {
		if t.due <= m.now {
			m.resting = slices.DeleteFunc(m.resting, func(o *modelTask) bool { return o == t })
			t.due = m.now + t.timeout
			m.waiting = append(m.waiting, t)
		}
	}
}

// all is every scope.
func (m *model) all() []*modelLimits {
	return append(slices.AppendSeq(slices.Collect(maps.Values(m.lanes)), maps.Values(m.owners)), &m.global)
}

const modelBackoff = 40 * time.Millisecond
