package axotel

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// rig is the vocabulary of the tests: an instrumented scheduler over a scripted
// server, and what it has recorded.
type rig struct {
	*testing.T
	S      *ax.Scheduler
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	tp     *sdktrace.TracerProvider
	mp     *sdkmetric.MeterProvider
	o      *observer
}

// roundTrip is a scripted server.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a response with a body of known length.
func answer(r *http.Request, status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// newRig makes an instrumented scheduler of cfg over server.
func newRig(t *testing.T, cfg ax.Config, server roundTrip) *rig {
	t.Helper()
	r := &rig{T: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	r.tp = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	r.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	if server != nil {
		cfg.Executor = ax.HTTPExecutor(&http.Client{Transport: Transport(server)})
	}
	require.NoError(t, Instrument(&cfg, r.tp, r.mp))
	r.o = cfg.Executor.(*executor).o
	s, err := ax.New(nil, cfg)
	require.NoError(t, err)
	r.S = s
	return r
}

// traced runs f in a synctest bubble and then requires that nothing is left over.
func traced(t *testing.T, cfg ax.Config, server roundTrip, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg, server)
		defer r.S.Close() // a failed assertion must not leave goroutines in the bubble
		f(r)
		require.NoError(t, r.S.Close())
		synctest.Wait()
		r.empty()
	})
}

// empty requires that the observer remembers nothing and all gauges are zero.
func (r *rig) empty() {
	r.Helper()
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	require.Empty(r, r.o.tasks, "tasks")
	require.Empty(r, r.o.attempts, "attempts")
	require.Empty(r, r.o.flights, "flights")
	for _, name := range []string{"ax.attempts.active", "ax.tasks.queued"} {
		for set, n := range r.sums(name) {
			require.Zero(r, n, "%s%v", name, set)
		}
	}
}

// collected is all instruments by name.
func (r *rig) collected() map[string]metricdata.Metrics {
	r.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(r, r.reader.Collect(r.Context(), &rm))
	all := map[string]metricdata.Metrics{}
	for _, scope := range rm.ScopeMetrics {
		require.Equal(r, "github.com/axsched/ax/axotel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

// sums are an instrument's values by attributes, as "lane=a,outcome=b"; of a
// histogram the counts.
func (r *rig) sums(name string) map[string]int64 {
	r.Helper()
	got := map[string]int64{}
	encode := func(s attribute.Set) string { return s.Encoded(attribute.DefaultEncoder()) }
	switch data := r.collected()[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			got[encode(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			got[encode(p.Attributes)] = int64(p.Count)
		}
	}
	return got
}

// total is the sum of a histogram's values, in seconds.
func (r *rig) total(name string) (sum float64) {
	r.Helper()
	for _, p := range r.collected()[name].Data.(metricdata.Histogram[float64]).DataPoints {
		sum += p.Sum
	}
	return sum
}

// of are the recorded spans of a kind, in the order of their starts.
func (r *rig) of(kind trace.SpanKind) tracetest.SpanStubs {
	var got tracetest.SpanStubs
	for _, s := range r.spans.GetSpans() {
		if s.SpanKind != kind {
			continue
		}
		i := len(got)
		for i > 0 && got[i-1].StartTime.After(s.StartTime) {
			i--
		}
		got = append(got[:i], append(tracetest.SpanStubs{s}, got[i:]...)...)
	}
	return got
}

func (r *rig) tasks() tracetest.SpanStubs    { return r.of(trace.SpanKindInternal) }
func (r *rig) attempts() tracetest.SpanStubs { return r.of(trace.SpanKindClient) }

// attrs is a span's attributes by key.
func attrs(s tracetest.SpanStub) map[string]any {
	got := map[string]any{}
	for _, kv := range s.Attributes {
		got[string(kv.Key)] = kv.Value.AsInterface()
	}
	return got
}

// events are the names of a span's events.
func events(s tracetest.SpanStub) []string {
	names := []string{}
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return names
}

// script plays one reply for each request, the last for all that follow.
func script(replies ...roundTrip) roundTrip {
	var mu sync.Mutex
	n := 0
	return func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		reply := replies[min(n, len(replies)-1)]
		n++
		mu.Unlock()
		return reply(r)
	}
}

// says answers at once.
func says(status int, headers ...string) roundTrip {
	return func(r *http.Request) (*http.Response, error) { return answer(r, status, "ok", headers...), nil }
}
