package axotel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestInstrumentRefuses(t *testing.T) {
	tp, mp := sdktrace.NewTracerProvider(), sdkmetric.NewMeterProvider()
	require.EqualError(t, Instrument(nil, tp, mp), "axotel: nil Config")

	var none ax.ExecutorFunc
	cfg := ax.Config{Executor: none}
	require.EqualError(t, Instrument(&cfg, tp, mp),
		"axotel: Config.Executor is a nil ExecutorFunc; leave it nil for HTTP")
	require.Nil(t, cfg.OnEvent)

	cfg = ax.Config{}
	require.NoError(t, Instrument(&cfg, tp, mp))
	require.EqualError(t, Instrument(&cfg, tp, mp),
		"axotel: Config.Executor is instrumented already; call Instrument once for each Config")
}

// An OnEvent that is there still runs, and gets what it always got.
func TestInstrumentChainsOnEvent(t *testing.T) {
	kinds := map[ax.EventKind]int{}
	cfg := ax.Config{OnEvent: func(e ax.Event) {
		kinds[e.Kind]++
		require.NotNil(t, e.Context)
	}}
	traced(t, cfg, says(200), func(r *rig) {
		_, err := r.S.Send(r.Context(), ax.Request{Method: "POST", URL: "http://a.test/"})
		require.NoError(r, err)
		require.NoError(r, r.S.Pause("a.test"))
		require.NoError(r, r.S.Resume("a.test"))
		require.Equal(r, map[string]int64{
			"lane=a.test,outcome=lane-paused": 1, "lane=a.test,outcome=lane-resumed": 1,
		}, r.sums("ax.lane.transitions"))
	})
	require.Equal(t, map[ax.EventKind]int{
		ax.EventSubmitted: 1, ax.EventStarted: 1, ax.EventAttemptDone: 1, ax.EventSucceeded: 1,
		ax.EventLanePaused: 1, ax.EventLaneResumed: 1,
	}, kinds)
}

// A panic in it changes nothing for what is recorded.
func TestInstrumentSurvivesPanicsOfOnEvent(t *testing.T) {
	traced(t, ax.Config{OnEvent: func(ax.Event) { panic("boom") }}, says(200), func(r *rig) {
		_, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		require.Len(r, r.tasks(), 1)
		require.Len(r, r.attempts(), 1)
	})
}

// Without providers it records nothing, and a caller's trace still goes along.
func TestInstrumentWithoutProviders(t *testing.T) {
	var got http.Header
	cfg := ax.Config{Executor: ax.HTTPExecutor(&http.Client{Transport: Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r.Header
		return answer(r, 200, "ok"), nil
	}))})}
	require.NoError(t, Instrument(&cfg, nil, nil))
	s, err := ax.New(nil, cfg)
	require.NoError(t, err)
	defer s.Close()
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	_, err = s.Get(trace.ContextWithSpanContext(t.Context(), sc), "http://a.test/")
	require.NoError(t, err)
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", got.Get("Traceparent"))
}

// The default Executor sends the trace over the wire, redirects included.
func TestInstrumentWithoutExecutorPropagates(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Traceparent"))
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusFound)
		}
	}))
	defer srv.Close()
	r := newRig(t, ax.Config{}, nil)
	defer r.S.Close()
	_, err := r.S.Get(t.Context(), srv.URL+"/old")
	require.NoError(t, err)
	require.Len(t, r.attempts(), 1)
	sc := r.attempts()[0].SpanContext
	want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
	require.Equal(t, []string{want, want}, seen)
	r.empty()
}

func TestErrorType(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("x: %w", ax.ErrQueueFull), "queue_full"},
		{fmt.Errorf("%w: %w", ax.ErrSuperseded, context.Canceled), "superseded"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{&url.Error{Op: "Get", URL: "http://a.test/?secret=1", Err: &net.OpError{Op: "dial", Err: timeoutError{}}}, "timeout"},
		{&net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}, "dns"},
		{&tls.CertificateVerificationError{Err: errors.New("bad")}, "certificate"},
		{&ax.PanicError{Value: "v"}, "panic"},
		{errors.New("text"), "_OTHER"},
		{fmt.Errorf("read: %w", &http.MaxBytesError{Limit: 1}), "*http.MaxBytesError"},
		{io.ErrUnexpectedEOF, "_OTHER"},
	} {
		require.Equal(t, c.want, errorType(c.err), "%v", c.err)
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func TestTaskAttributesOfOddRequests(t *testing.T) {
	for _, c := range []struct {
		r    ax.Request
		want map[string]any
		name string
	}{
		{ax.Request{Method: "PROPFIND", URL: "https://a.test/d%2Fe"}, map[string]any{
			"http.request.method": "_OTHER", "http.request.method_original": "PROPFIND",
			"url.full": "https://a.test/d%2Fe", "server.address": "a.test", "server.port": int64(443),
		}, "HTTP"},
		{ax.Request{URL: "http://[::1]:81/"}, map[string]any{
			"http.request.method": "GET", "url.full": "http://[::1]:81/", "server.address": "::1", "server.port": int64(81),
		}, "GET"},
	} {
		got := map[string]any{}
		for _, kv := range taskAttributes(ax.Must(c.r.Task())) {
			got[string(kv.Key)] = kv.Value.AsInterface()
		}
		require.Equal(t, c.want, got)
		require.Equal(t, c.name, spanMethod(ax.Must(c.r.Task()).Method()))
	}
}
