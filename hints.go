package ax

import (
	"context"
	"slices"
	"time"
)

// Hints is what a context (ContextWith) or a client (Scheduler.TransportWith) may say
// about the requests that are made with it, without touching the code that makes
// them. A hint only fills a field that the Request left zero, so it never overrides
// what a task says for itself. Where several speak, the task comes first, then its
// context, then the client.
type Hints struct {
	// Priority is for tasks of priority Normal, the zero value.
	Priority Priority
	// Lane is for tasks that name no lane.
	Lane string
	// Owner is for tasks that name no owner: theirs is the budget that pays, and
	// answers are shared within it only.
	Owner string
	// Tags are for tasks that have none; they are not added to others.
	Tags []string
	// AttemptTimeout bounds each attempt. 0 = the lane's, then the scheduler's; a
	// negative one fails the task.
	AttemptTimeout time.Duration
	// QueueTimeout bounds each wait for a turn. 0 = the lane's, then the
	// scheduler's; a negative one fails the task.
	QueueTimeout time.Duration
	// NoRetry turns retries off for tasks without a Retry of their own.
	NoRetry bool
	// NoWait starts each task at once or refuses it with ErrWouldWait.
	NoWait bool
	// NoDedupe shares nothing, but for tasks that say Dedupe or have a DedupeKey.
	NoDedupe bool
}

type hintsKey struct{}

// ContextWith returns a child of ctx that carries a copy of h. It replaces hints that
// ctx carries already, as a whole; to add to those, start from HintsFrom.
func ContextWith(ctx context.Context, h Hints) context.Context {
	h.Tags = slices.Clone(h.Tags)
	return &hintedContext{ctx, &h}
}

// hintedContext is a context with hints.
type hintedContext struct {
	context.Context
	hints *Hints
}

func (c *hintedContext) Value(key any) any {
	switch key.(type) {
	case hintsKey, ownKey:
		return c.hints
	}
	return c.Context.Value(key)
}

// HintsFrom returns a copy of the hints that ctx carries, or the zero Hints.
func HintsFrom(ctx context.Context) Hints {
	p := hintsOf(ctx)
	if p == nil {
		return Hints{}
	}
	h := *p
	h.Tags = slices.Clone(h.Tags)
	return h
}

// hintsOf is what ctx carries, not to be changed; nil = nothing.
func hintsOf(ctx context.Context) *Hints {
	p, _ := ctx.Value(hintsKey{}).(*Hints)
	return p
}

// fill fills the zero fields of h from outer, which may be nil.
func (h *Hints) fill(outer *Hints) {
	if outer == nil {
		return
	}
	if h.Priority == 0 {
		h.Priority = outer.Priority
	}
	if h.Lane == "" {
		h.Lane = outer.Lane
	}
	if h.Owner == "" {
		h.Owner = outer.Owner
	}
	if len(h.Tags) == 0 {
		h.Tags = outer.Tags
	}
	if h.AttemptTimeout == 0 {
		h.AttemptTimeout = outer.AttemptTimeout
	}
	if h.QueueTimeout == 0 {
		h.QueueTimeout = outer.QueueTimeout
	}
	h.NoRetry = h.NoRetry || outer.NoRetry
	h.NoWait = h.NoWait || outer.NoWait
	h.NoDedupe = h.NoDedupe || outer.NoDedupe
}

// validate names negative durations: no constructor could refuse them earlier.
func (h *Hints) validate() error {
	if h == nil || h.AttemptTimeout >= 0 && h.QueueTimeout >= 0 {
		return nil
	}
	var f faults
	if h.AttemptTimeout < 0 {
		f.add("Hints.AttemptTimeout", "%v is negative", h.AttemptTimeout)
	}
	if h.QueueTimeout < 0 {
		f.add("Hints.QueueTimeout", "%v is negative", h.QueueTimeout)
	}
	return f.err()
}
