package axotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The attributes of metrics. They are bare, as instruments have a scope.
const (
	laneKey    = attribute.Key("lane")
	ownerKey   = attribute.Key("owner")
	outcomeKey = attribute.Key("outcome")
	sourceKey  = attribute.Key("source")
	stateKey   = attribute.Key("state")
)

// seconds are the bucket bounds that the semantic conventions give for the
// duration of HTTP requests, with room for long queues.
var seconds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}

// meters are the instruments.
type meters struct {
	tasks    metric.Int64Counter
	attempts metric.Int64Counter
	retries  metric.Int64Counter
	shared   metric.Int64Counter
	over     metric.Int64Counter
	lanes    metric.Int64Counter

	active   metric.Int64UpDownCounter
	queued   metric.Int64UpDownCounter
	breakers metric.Int64UpDownCounter

	wait    metric.Float64Histogram
	service metric.Float64Histogram
	total   metric.Float64Histogram

	laneNames, ownerNames names

	mu    sync.RWMutex // guards ready
	ready map[label]metric.MeasurementOption

	tripped map[string]label // breakers that are not closed, by lane; lanes' events come one at a time
}

// newMeters makes the instruments; the error joins all that failed.
func newMeters(m metric.Meter) (*meters, error) {
	var errs []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	durations := func(name, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(seconds[:]...))
		errs = append(errs, err)
		return h
	}
	all := &meters{
		ready:    make(map[label]metric.MeasurementOption),
		tripped:  make(map[string]label),
		tasks:    counter("ax.tasks", "{task}", "Tasks that have ended."),
		attempts: counter("ax.attempts", "{attempt}", "Attempts sent, retries and hedges included."),
		retries:  counter("ax.retries", "{retry}", "Retries scheduled."),
		shared:   counter("ax.dedupe.hits", "{task}", "Tasks that joined a flight or were answered from the dedupe window."),
		over:     counter("ax.budget.exceeded", "{task}", "Tasks that met an exhausted budget of their owner."),
		lanes:    counter("ax.lane.transitions", "{transition}", "Changes of lanes: breakers and pauses."),
		active:   gauge("ax.attempts.active", "{attempt}", "Attempts in flight."),
		queued:   gauge("ax.tasks.queued", "{task}", "Tasks that wait for a start: in a queue or between two attempts."),
		breakers: gauge("ax.breakers.tripped", "{breaker}", "Breakers that are not closed."),
		wait:     durations("ax.task.wait", "Time in the queue before a task's first start."),
		service:  durations("ax.attempt.duration", "Time of an attempt on the wire."),
		total:    durations("ax.task.duration", "Time from a task's submission to its end."),
	}
	return all, errors.Join(errs...)
}

// expect has the lanes and owners that cfg names be told apart, also if they come
// after many others.
func (m *meters) expect(cfg *ax.Config) {
	for _, l := range cfg.Lanes {
		if l.Name != "" {
			m.laneNames.name(l.Name)
		} else if len(l.Match) > 0 {
			m.laneNames.name(l.Match[0])
		}
	}
	for owner := range cfg.Budgets {
		m.ownerNames.name(owner)
	}
}

// label is the attributes of one measurement, "" = without.
type label struct{ lane, owner, outcome, source, state string }

// maxLabels is how many label sets are kept ready: as many as the SDK tells
// apart.
const maxLabels = 2000

// with is l as an option.
func (m *meters) with(l label) metric.MeasurementOption {
	m.mu.RLock()
	opt, ok := m.ready[l]
	m.mu.RUnlock()
	if ok {
		return opt
	}
	attrs := make([]attribute.KeyValue, 0, 4)
	if l.lane != "" {
		attrs = append(attrs, laneKey.String(m.laneNames.bounded(l.lane)))
	}
	if l.owner != "" {
		attrs = append(attrs, ownerKey.String(m.ownerNames.bounded(l.owner)))
	}
	if l.outcome != "" {
		attrs = append(attrs, outcomeKey.String(l.outcome))
	}
	if l.source != "" {
		attrs = append(attrs, sourceKey.String(l.source))
	}
	if l.state != "" {
		attrs = append(attrs, stateKey.String(l.state))
	}
	opt = metric.WithAttributeSet(attribute.NewSet(attrs...))
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ready) < maxLabels {
		m.ready[l] = opt
	}
	return opt
}

// attemptDone records an attempt's time by what it proves about the server.
func (m *meters) attemptDone(ctx context.Context, e ax.Event) {
	m.service.Record(ctx, positive(e.Took), m.with(label{lane: e.Lane, owner: e.Owner, outcome: e.Verdict.String()}))
}

// taskDone records a task's end.
func (m *meters) taskDone(ctx context.Context, e ax.Event) {
	l := label{lane: e.Lane, owner: e.Owner, outcome: e.Kind.String()}
	if e.Kind == ax.EventSucceeded {
		l.source = e.Source.String()
	}
	with := m.with(l)
	m.tasks.Add(ctx, 1, with)
	m.total.Record(ctx, positive(e.Took), with)
}

// laneMoved counts what happened to a lane, and the state of its breaker.
func (m *meters) laneMoved(e ax.Event) {
	m.lanes.Add(e.Context, 1, m.with(label{lane: e.Lane, outcome: e.Kind.String()}))
	switch e.Kind {
	case ax.EventBreakerOpened:
		m.trip(e, ax.BreakerOpen)
	case ax.EventBreakerHalfOpen:
		m.trip(e, ax.BreakerHalfOpen)
	case ax.EventBreakerRamping:
		m.trip(e, ax.BreakerRamping)
	case ax.EventBreakerClosed:
		m.untrip(e)
	}
}

// trip counts the lane's breaker in a state, no longer in the one before.
func (m *meters) trip(e ax.Event, state ax.BreakerState) {
	m.untrip(e)
	l := label{lane: e.Lane, state: state.String()}
	m.tripped[e.Lane] = l
	m.breakers.Add(e.Context, 1, m.with(l))
}

// untrip is the end of that.
func (m *meters) untrip(e ax.Event) {
	if l, ok := m.tripped[e.Lane]; ok {
		delete(m.tripped, e.Lane)
		m.breakers.Add(e.Context, -1, m.with(l))
	}
}

// positive is d in seconds, never less than 0.
func positive(d time.Duration) float64 { return max(d, 0).Seconds() }
