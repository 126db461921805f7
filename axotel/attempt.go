package axotel

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// attempt is one attempt under way. Its event and its executor may come in
// either order, for the events of a task are told one after the other: whoever
// comes first puts it into observer.attempts.
type attempt struct {
	o     *observer
	key   context.Context
	ready chan struct{} // closed when the event has filled in the rest
	span  trace.Span
	n     int
	whose metric.MeasurementOption

	// Guarded by the observer's mutex.
	claimed bool // an executor ends it, with the body; else its event does
	told    bool // its event has come
	orphan  bool // the executor did not wait for the event
	over    bool
	task    *task     // in whose name it started; nil for an orphan
	flight  *flight   // whose it is; nil = nobody can join it
	of      flightKey // flight's key
}

// startSpan gives a its span, a child of what parent carries.
func (o *observer) startSpan(a *attempt, parent context.Context, t *ax.Task, attrs []attribute.KeyValue, opts ...trace.SpanStartOption) {
	opts = append(opts, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	_, a.span = o.tracer.Start(parent, spanMethod(t.Method()), opts...)
}

// expected is the attempt that an event tells of, new or found waiting; nil if
// its executor has gone on without it, or is through already.
func (o *observer) expected(ctx context.Context) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.attempts[ctx]
	switch {
	case a == nil && ctx.Err() != nil, a != nil && a.orphan:
		return nil
	case a == nil:
		a = &attempt{o: o, key: ctx, ready: make(chan struct{})}
		o.attempts[ctx] = a
	}
	a.told = true
	return a
}

// eventLate is how long an executor waits for the event of its attempt. It is
// late only while another goroutine is telling what came before it: a few
// microseconds, unless an OnEvent is slow.
const eventLate = 100 * time.Millisecond

// claim is the attempt that an executor runs under ctx. If the event does not
// come the attempt is a child of the caller's span instead of the task's.
func (o *observer) claim(ctx context.Context, t *ax.Task) *attempt {
	o.mu.Lock()
	a := o.attempts[ctx]
	if a == nil {
		a = &attempt{o: o, key: ctx, ready: make(chan struct{})}
		o.attempts[ctx] = a
	}
	a.claimed = true
	o.mu.Unlock()
	select {
	case <-a.ready:
		return a
	default:
	}
	timer := time.NewTimer(eventLate)
	defer timer.Stop()
	select {
	case <-a.ready:
		return a
	case <-timer.C:
	case <-ctx.Done():
	}
	return o.orphaned(a, ctx, t)
}

// orphaned lets a go on without its event.
func (o *observer) orphaned(a *attempt, ctx context.Context, t *ax.Task) *attempt {
	o.mu.Lock()
	if a.told { // just now
		o.mu.Unlock()
		<-a.ready
		return a
	}
	a.orphan = true
	o.mu.Unlock()
	o.startSpan(a, ctx, t, o.attributesOf(t))
	a.whose = o.meters.with(label{})
	o.meters.active.Add(ctx, 1, a.whose)
	return a
}

// end ends the attempt, once, by the status or the error that it came to.
func (a *attempt) end(status int, err error) {
	o := a.o
	o.mu.Lock()
	if a.over {
		o.mu.Unlock()
		return
	}
	a.over = true
	delete(o.attempts, a.key)
	if t := a.task; t != nil {
		for i, r := range t.running {
			if r == a {
				t.running = append(t.running[:i], t.running[i+1:]...)
				break
			}
		}
	}
	o.landLocked(a)
	o.mu.Unlock()
	o.meters.active.Add(a.key, -1, a.whose)
	if status > 0 {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	switch {
	case err != nil:
		kind := errorType(err)
		a.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		a.span.SetStatus(codes.Error, kind)
	case status >= 400: // the conventions for the client's side
		a.span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		a.span.SetStatus(codes.Error, "")
	}
	a.span.End()
}

// redirected has the span describe the hop that is sent now, and tell of the one
// before as an event.
func (a *attempt) redirected(req *http.Request) {
	if !a.span.IsRecording() {
		return
	}
	from := []attribute.KeyValue{semconv.HTTPResponseStatusCode(req.Response.StatusCode)}
	if r := req.Response.Request; r != nil && r.URL != nil {
		from = append(from, urlAttributes(r.URL)...)
	}
	a.span.AddEvent("redirected", trace.WithAttributes(from...))
	a.span.SetName(spanMethod(req.Method))
	a.span.SetAttributes(methodAttributes(req.Method)...)
	a.span.SetAttributes(urlAttributes(req.URL)...)
}

// attemptContext is an attempt's context with its span. Unlike a plain
// context.WithValue it lets what is derived from it end without a goroutine.
type attemptContext struct {
	context.Context                 // the attempt's
	values          context.Context // the same with the span
	of              *attempt
}

// attemptKey asks an attempt's context for its *attempt.
type attemptKey struct{}

// Value knows the attempt and its span; everything else is the attempt's.
func (c *attemptContext) Value(key any) any {
	if key == (attemptKey{}) && c.of != nil {
		return c.of
	}
	return c.values.Value(key)
}

// AfterFunc is asked for by package context.
func (c *attemptContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.Context, f)
}
