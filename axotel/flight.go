package axotel

import (
	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/trace"
)

// flightKey is what tasks have in common that share one answer.
type flightKey struct{ key, lane, owner string }

// flight is the tasks that share attempts: whoever joined is linked to all
// attempts made while it waits. Guarded by the observer's mutex.
type flight struct {
	tasks    map[*task]struct{}
	attempts map[*attempt]struct{}
	latest   trace.SpanContext // of the last attempt that has ended
}

func keyOf(e ax.Event) flightKey {
	return flightKey{e.Task.Key(), e.Lane, e.Owner}
}

// enterLocked puts t into the flight of k.
func (o *observer) enterLocked(t *task, k flightKey) *flight {
	f := o.flights[k]
	if f == nil {
		f = &flight{tasks: make(map[*task]struct{}), attempts: make(map[*attempt]struct{})}
		o.flights[k] = f
	}
	f.tasks[t] = struct{}{}
	t.flight = k
	return f
}

// join links a task to the attempts that it shares.
func (o *observer) join(t *task, e ax.Event) {
	if !t.span.IsRecording() {
		return
	}
	k := keyOf(e)
	o.mu.Lock()
	f := o.enterLocked(t, k)
	links := make([]trace.SpanContext, 0, 1)
	for a := range f.attempts {
		links = append(links, a.span.SpanContext())
	}
	if len(links) == 0 && f.latest.IsValid() {
		links = append(links, f.latest)
	}
	o.mu.Unlock()
	for _, l := range links {
		t.span.AddLink(trace.Link{SpanContext: l})
	}
}

// lead makes a an attempt of t's, and links those who share it.
func (o *observer) lead(t *task, a *attempt, e ax.Event) {
	k := flightKey{}
	if a.span.IsRecording() {
		k = keyOf(e)
	}
	var joined []trace.Span
	o.mu.Lock()
	a.task = t
	t.running = append(t.running, a)
	if k.key != "" {
		f := o.enterLocked(t, k)
		f.attempts[a] = struct{}{}
		a.flight, a.of = f, k
		for other := range f.tasks {
			if other != t {
				joined = append(joined, other.span)
			}
		}
	}
	o.mu.Unlock()
	for _, span := range joined {
		span.AddLink(trace.Link{SpanContext: a.span.SpanContext()})
	}
}

// landLocked takes an attempt out of its flight.
func (o *observer) landLocked(a *attempt) {
	if f := a.flight; f != nil {
		delete(f.attempts, a)
		f.latest = a.span.SpanContext()
		o.clearLocked(a.of, f)
	}
}

// leaveLocked takes a task out of its flight.
func (o *observer) leaveLocked(t *task) {
	if f := o.flights[t.flight]; f != nil {
		delete(f.tasks, t)
		o.clearLocked(t.flight, f)
	}
}

// clearLocked forgets a flight that nobody is left in.
func (o *observer) clearLocked(k flightKey, f *flight) {
	if len(f.tasks) == 0 && len(f.attempts) == 0 && o.flights[k] == f {
		delete(o.flights, k)
	}
}
