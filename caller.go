package ax

import (
	"context"
	"net/http"
	"time"
)

// caller is one task given to Do or Submit, and its one end.
type caller struct {
	s        *Scheduler
	task     *Task
	ctx      context.Context
	f        *flight // nil once it has left, and for an answer without one
	lane     *lane   // nil = not found
	owner    *owner
	call     *Call   // nil for Do
	ev       *outbox // nil if nobody listens
	more     *callerExtras
	done     chan struct{} // closed when decided; nil for a lone one
	res      *result
	rank     rank
	born     instant
	deadline instant  // of ctx
	outer    *attempt // that ctx belongs to
	joint    *joint   // of one that shares its flight, or has

	kind     uint8 // EventKind of its end; 0 while undecided
	notes    note
	joined   bool // a flight that another began
	leftBody bool // the flight goes on with it
	bare     bool // its errors leave out what http.Client adds
}

// joint is a caller's part in a flight of many.
type joint struct {
	node  heapNode[*caller]
	terms terms // on which it would have had a flight to itself
}

// callerExtras is what few callers have.
type callerExtras struct {
	tags  []string
	scope *Scope
	name  *nameEntry
	cool  *cooldown
	alarm alarm // QueueTimeout of the wait for the first start
}

// name is where c stands with its Supersede name, nil without one.
func (c *caller) name() *nameEntry {
	if c.more == nil {
		return nil
	}
	return c.more.name
}

func (c *caller) seq() uint64 { return c.rank.seq }

func (c *caller) laneName() string {
	if c.lane == nil {
		return ""
	}
	return c.lane.name
}

func (c *caller) ownerName() string {
	if c.owner == nil {
		return ""
	}
	return c.owner.name
}

// result is what a flight, or what ax itself, answers: shared by all callers.
type result struct {
	kind     EventKind      // terminal
	payload  *payload       // an answer whose body is in memory
	stream   *attempt       // one whose body is still arriving; for one caller
	streamed *http.Response // its answer
	err      error          // no answer
	cause    error
	panicked *PanicError // goes on through a caller that is alone
	source   Source
	attempts int32
	op       op   // of Error
	shared   bool // by more than one reader: each gets copies
	foreign  bool // somebody else's request brought it
	waited   time.Duration
	arrived  instant
	last     *payload // the last answer seen before err
	retryIn  time.Duration
}

// extras makes room for what few callers have.
func (c *caller) extras() *callerExtras {
	if c.more == nil {
		c.more = new(callerExtras)
	}
	return c.more
}

// ringLocked: QueueTimeout has passed. It bounds the wait for the first start
// only.
func (c *caller) ringLocked(now instant) {
	f := c.f
	if c.kind != 0 || f == nil || f.attempts > 0 || f.state != flightWaiting {
		return
	}
	if f.callers.len() > 1 { // the others wait on; its fallback is its own
		f.removeLocked(c)
		c.s.rerankFlightLocked(f, now)
		f = c.s.flightAloneLocked(f, c)
	}
	c.s.refuseLocked(f, opQueue, queueTimeout(now.sub(c.born), f.wait.obstacle(now)), now)
}

// callerSet is the callers of one flight in order of rank. Most flights have
// one, who then needs no heap.
type callerSet struct {
	speaker *caller        // in whose name events are told: the first, then who is best when that leaves
	many    *heap[*caller] // all of them, once there have been two
}

func (cs *callerSet) len() int {
	switch {
	case cs.many != nil:
		return cs.many.len()
	case cs.speaker != nil:
		return 1
	}
	return 0
}

// best is the caller whose rank the flight has.
func (cs *callerSet) best() *caller {
	if cs.many == nil {
		return cs.speaker
	}
	if _, n, ok := cs.many.top(); ok {
		return n.item
	}
	return nil
}

func (cs *callerSet) add(c *caller) {
	if cs.speaker == nil {
		cs.speaker = c
	} else if cs.many == nil {
		cs.many = new(heap[*caller])
		cs.push(cs.speaker)
	}
	if cs.many != nil {
		cs.push(c)
	}
}

func (cs *callerSet) push(c *caller) {
	if c.joint == nil {
		c.joint = new(joint)
	}
	c.joint.node.item = c
	cs.many.push(c.rank, &c.joint.node)
}

func (cs *callerSet) remove(c *caller) {
	if cs.many != nil {
		cs.many.remove(&c.joint.node)
	}
	if cs.speaker == c {
		cs.speaker = nil
		cs.speaker = cs.best()
	}
}

// pop takes out the best.
func (cs *callerSet) pop() *caller {
	c := cs.best()
	if c != nil {
		cs.remove(c)
	}
	return c
}

func (cs *callerSet) each(visit func(*caller) bool) {
	if cs.many != nil {
		cs.many.each(func(_ rank, n *heapNode[*caller]) bool { return visit(n.item) })
	} else if cs.speaker != nil {
		visit(cs.speaker)
	}
}
