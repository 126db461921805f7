package axotel

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
)

// scopeName is the instrumentation scope of all that is recorded.
const scopeName = "github.com/axsched/ax/axotel"

// Instrument has the scheduler that will be made of cfg tell its story to tp, as
// spans, and to mp, as metrics; nil for either leaves that part out. Call it
// once, last before ax.New, and make one scheduler of cfg.
//
// It wraps two fields. OnEvent: the one that is there still runs, after the
// event has been recorded; its Event.Context then carries the span of the task
// or of the running attempt, for its log lines. Executor: the attempt's span is
// put into the context of what is sent. Where Executor is nil it becomes an
// ax.HTTPExecutor whose client uses [Transport] over http.DefaultTransport, and
// ax.New wants a nil client; a client of your own belongs in the Executor:
//
//	client.Transport = axotel.Transport(client.Transport)
//	cfg.Executor = ax.HTTPExecutor(client)
//
// On an error cfg is unchanged.
func Instrument(cfg *ax.Config, tp trace.TracerProvider, mp metric.MeterProvider) error {
	if cfg == nil {
		return errors.New("axotel: nil Config")
	}
	if _, ok := cfg.Executor.(*executor); ok {
		return errors.New("axotel: Config.Executor is instrumented already; call Instrument once for each Config")
	}
	if f, ok := cfg.Executor.(ax.ExecutorFunc); ok && f == nil {
		return errors.New("axotel: Config.Executor is a nil ExecutorFunc; leave it nil for HTTP")
	}
	if mp == nil {
		mp = metricnoop.NewMeterProvider()
	}
	m, err := newMeters(mp.Meter(scopeName))
	if err != nil {
		return fmt.Errorf("axotel: %w", err)
	}
	m.expect(cfg)
	o := newObserver(tp, m)
	next := cfg.Executor
	if next == nil {
		next = ax.HTTPExecutor(&http.Client{Transport: Transport(nil)})
	}
	cfg.Executor = &executor{o: o, next: next}
	cfg.OnEvent = o.before(cfg.OnEvent)
	return nil
}
