package axotel

import (
	"context"
	"sync"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// observer turns events into spans and metrics. It knows a task from its first
// event to its last, an attempt from its start to the end of its body, and
// nothing longer than that.
type observer struct {
	tracer trace.Tracer
	traces bool // somebody wants spans
	meters *meters

	mu       sync.Mutex // never held across a span, an instrument or a callback
	tasks    map[taskID]*task
	attempts map[context.Context]*attempt // by the context that the executor is given
	flights  map[flightKey]*flight
}

// taskID is a task in its scheduler.
type taskID struct {
	seq  uint64
	task *ax.Task
}

// task is one unfinished task. Its events come one after the other, so that
// only what other tasks and executors reach is guarded by the observer's mutex.
type task struct {
	ctx    context.Context // the caller's, with the task's span
	span   trace.Span
	attrs  []attribute.KeyValue // of its span and of its attempts'
	whose  metric.MeasurementOption
	queued bool // it counts as queued

	running []*attempt // started in its name; guarded
	flight  flightKey  // it stands in that one; zero = in none; guarded
}

// newObserver makes an observer; without tp it makes no spans.
func newObserver(tp trace.TracerProvider, m *meters) *observer {
	traces := tp != nil
	if !traces {
		tp = tracenoop.NewTracerProvider()
	}
	return &observer{
		tracer: tp.Tracer(scopeName), traces: traces, meters: m,
		tasks:    make(map[taskID]*task),
		attempts: make(map[context.Context]*attempt),
		flights:  make(map[flightKey]*flight),
	}
}

// attributesOf describe a task, if anybody wants to know.
func (o *observer) attributesOf(t *ax.Task) []attribute.KeyValue {
	if !o.traces {
		return nil
	}
	return taskAttributes(t)
}

// before is an OnEvent that records an event and then passes it on.
func (o *observer) before(next func(ax.Event)) func(ax.Event) {
	if next == nil {
		return func(e ax.Event) { o.record(e) }
	}
	return func(e ax.Event) {
		e.Context = o.record(e)
		next(e)
	}
}

// record takes in one event and returns its context, with the span it belongs to.
func (o *observer) record(e ax.Event) context.Context {
	if e.Task == nil {
		o.meters.laneMoved(e)
		return e.Context
	}
	id := taskID{e.Seq, e.Task}
	if e.Kind == ax.EventSubmitted {
		return o.begin(id, e).ctx
	}
	o.mu.Lock()
	t := o.tasks[id]
	o.mu.Unlock()
	if t == nil {
		return e.Context
	}
	switch e.Kind {
	case ax.EventStarted:
		return o.started(t, e)
	case ax.EventAttemptDone:
		o.attemptDone(t, e)
	case ax.EventSucceeded, ax.EventFailed, ax.EventCanceled, ax.EventRejected:
		o.ended(id, t, e)
	default:
		o.befell(t, e)
	}
	return t.ctx
}

// begin starts a task's span.
func (o *observer) begin(id taskID, e ax.Event) *task {
	t := &task{whose: o.meters.with(label{lane: e.Lane, owner: e.Owner}), attrs: o.attributesOf(e.Task)}
	t.attrs = append(t.attrs, spanLaneKey.String(e.Lane))
	if e.Owner != "" {
		t.attrs = append(t.attrs, spanOwnerKey.String(e.Owner))
	}
	t.ctx, t.span = o.tracer.Start(e.Context, "ax "+spanMethod(e.Task.Method()),
		trace.WithTimestamp(e.Time), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(t.attrs...))
	o.mu.Lock()
	o.tasks[id] = t
	o.mu.Unlock()
	return t
}

// befell records what happens to a task between its start and its end.
func (o *observer) befell(t *task, e ax.Event) {
	m := o.meters
	at := trace.WithTimestamp(e.Time)
	switch e.Kind {
	case ax.EventQueued:
		o.enqueue(t)
		t.span.AddEvent("queued", at)
	case ax.EventRetryScheduled:
		o.enqueue(t)
		m.retries.Add(t.ctx, 1, t.whose)
		t.span.AddEvent("retry", at, trace.WithAttributes(
			spanAttemptKey.Int(e.Attempt), spanDelayKey.Float64(positive(e.Delay))))
	case ax.EventCoalesced:
		m.shared.Add(t.ctx, 1, m.with(label{lane: e.Lane, owner: e.Owner, source: ax.FromFlight.String()}))
		t.span.AddEvent("coalesced", at)
		o.join(t, e)
	case ax.EventWindowHit:
		m.shared.Add(t.ctx, 1, m.with(label{lane: e.Lane, owner: e.Owner, source: ax.FromWindow.String()}))
		t.span.AddEvent("window-hit", at)
	case ax.EventOverBudget:
		m.over.Add(t.ctx, 1, t.whose)
		t.span.AddEvent("over-budget", at)
	case ax.EventFellBack:
		t.span.AddEvent("fell-back", at, trace.WithAttributes(spanSourceKey.String(e.Source.String())))
	}
}

// enqueue counts t as waiting, once.
func (o *observer) enqueue(t *task) {
	if !t.queued {
		t.queued = true
		o.meters.queued.Add(t.ctx, 1, t.whose)
	}
}

// dequeue is the end of that.
func (o *observer) dequeue(t *task) {
	if t.queued {
		t.queued = false
		o.meters.queued.Add(t.ctx, -1, t.whose)
	}
}

// started begins an attempt in t's name.
func (o *observer) started(t *task, e ax.Event) context.Context {
	o.dequeue(t)
	o.meters.attempts.Add(t.ctx, 1, t.whose)
	if e.Attempt == 1 {
		o.meters.wait.Record(t.ctx, positive(e.Waited), t.whose)
	}
	t.span.AddEvent("started", trace.WithTimestamp(e.Time), trace.WithAttributes(
		spanAttemptKey.Int(e.Attempt), spanWaitedKey.Float64(positive(e.Waited))))
	a := o.expected(e.Context)
	if a == nil {
		return e.Context // its executor has not waited for this
	}
	o.startSpan(a, t.ctx, e.Task, t.attrs, trace.WithTimestamp(e.Time))
	a.n, a.whose = e.Attempt, t.whose
	a.span.SetAttributes(spanAttemptKey.Int(e.Attempt))
	if e.Attempt > 1 {
		a.span.SetAttributes(semconv.HTTPRequestResendCount(e.Attempt - 1))
	}
	o.meters.active.Add(t.ctx, 1, t.whose)
	o.lead(t, a, e)
	close(a.ready)
	return &attemptContext{Context: e.Context, values: trace.ContextWithSpan(e.Context, a.span)}
}

// attemptDone records what an attempt came to, and ends it if no executor of
// ours does.
func (o *observer) attemptDone(t *task, e ax.Event) {
	o.meters.attemptDone(t.ctx, e)
	o.mu.Lock()
	var done *attempt
	for _, a := range t.running {
		if a.n == e.Attempt && !a.claimed {
			done = a
		}
	}
	o.mu.Unlock()
	if done != nil {
		done.end(e.Status, e.Err)
	}
}

// ended records a task's end and forgets it.
func (o *observer) ended(id taskID, t *task, e ax.Event) {
	o.mu.Lock()
	delete(o.tasks, id)
	o.leaveLocked(t)
	var left []*attempt
	for _, a := range t.running {
		if !a.claimed {
			left = append(left, a)
		}
	}
	o.mu.Unlock()
	for _, a := range left {
		a.end(0, e.Err)
	}
	o.dequeue(t)
	o.meters.taskDone(t.ctx, e)
	t.span.SetAttributes(endAttributes(e)...)
	if e.Kind == ax.EventFailed || e.Kind == ax.EventRejected {
		t.span.SetStatus(codes.Error, errorType(e.Err))
	}
	t.span.End(trace.WithTimestamp(e.Time))
}

// endAttributes describe the end of a task.
func endAttributes(e ax.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		spanOutcomeKey.String(e.Kind.String()), spanAttemptsKey.Int(e.Attempt),
		spanWaitedKey.Float64(positive(e.Waited)),
	}
	if e.Status > 0 {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(e.Status))
	}
	if e.Kind == ax.EventSucceeded {
		return append(attrs, spanSourceKey.String(e.Source.String()))
	}
	return append(attrs, semconv.ErrorTypeKey.String(errorType(e.Err)))
}
