package axotel

import (
	"net/http"
	"testing"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The trace is added to a copy: the caller's request is never modified.
func TestTransportDoesNotModifyTheRequest(t *testing.T) {
	var sent *http.Request
	rt := Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r
		return answer(r, 200, ""), nil
	}))
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	req, err := http.NewRequestWithContext(trace.ContextWithSpanContext(t.Context(), sc), "GET", "http://a.test/", nil)
	require.NoError(t, err)
	req.Header.Set("X", "1")
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.Header{"X": {"1"}}, req.Header)
	require.Equal(t, http.Header{"X": {"1"}, "Traceparent": {"00-01000000000000000000000000000000-0200000000000000-00"}}, sent.Header)

	req.Header = nil
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	require.Nil(t, req.Header)
	require.Len(t, sent.Header, 1)
}

// Prepare sees the request without the trace, and what it sets stays.
func TestTransportLeavesPrepareAlone(t *testing.T) {
	var sent []http.Header
	traced(t, ax.Config{}, func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header)
		return answer(r, 200, ""), nil
	}, func(r *rig) {
		_, err := r.S.Send(r.Context(), ax.Request{URL: "http://a.test/", Prepare: func(req *http.Request) error {
			require.Empty(r, req.Header.Get("Traceparent"))
			req.Header.Set("Signature", "of what is there")
			return nil
		}})
		require.NoError(r, err)
		_, err = r.S.Send(r.Context(), ax.Request{URL: "http://a.test/", Prepare: func(req *http.Request) error {
			req.Header.Set("Tracestate", "mine=1")
			return nil
		}})
		require.NoError(r, err)
		require.Len(r, sent, 2)
		require.NotEmpty(r, sent[0].Get("Traceparent"))
		require.Equal(r, "of what is there", sent[0].Get("Signature"))
		require.Empty(r, sent[1].Get("Traceparent"))
		require.Equal(r, "mine=1", sent[1].Get("Tracestate"))
	})
}

// Tasks of different traces still share one answer.
func TestTransportLeavesKeysAlone(t *testing.T) {
	n := 0
	traced(t, ax.Config{Dedupe: &ax.Dedupe{Window: 1 << 40}}, func(r *http.Request) (*http.Response, error) {
		n++
		return answer(r, 200, ""), nil
	}, func(r *rig) {
		task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
		key := task.Key()
		for range 3 {
			ctx, span := r.tp.Tracer("test").Start(r.Context(), "caller")
			_, err := r.S.Do(ctx, task)
			require.NoError(r, err)
			span.End()
		}
		require.Equal(r, 1, n)
		require.Equal(r, key, task.Key())
	})
}

func TestTransportUsesTheProgramsPropagator(t *testing.T) {
	require.Equal(t, propagation.TraceContext{}, orStandard(propagation.NewCompositeTextMapPropagator()))
	// It cannot be unset again, but agrees with the standard on what others test.
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	m, err := baggage.NewMember("tenant", "7")
	require.NoError(t, err)
	b, err := baggage.New(m)
	require.NoError(t, err)
	var sent http.Header
	req, err := http.NewRequestWithContext(baggage.ContextWithBaggage(t.Context(), b), "GET", "http://a.test/", nil)
	require.NoError(t, err)
	_, err = Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r.Header
		return answer(r, 200, ""), nil
	})).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.Header{"Baggage": {"tenant=7"}}, sent)
}

func TestTransportPassesOnCloseIdleConnections(t *testing.T) {
	x := &idler{}
	(&http.Client{Transport: Transport(x)}).CloseIdleConnections()
	(&http.Client{Transport: Transport(roundTrip(nil))}).CloseIdleConnections()
	require.Equal(t, 1, x.closed)
}

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }
