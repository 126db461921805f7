package compat_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// tracer records the spans of the transports that it instruments.
type tracer struct {
	tracetest.SpanRecorder
	options []otelhttp.Option
}

func newTracer() *tracer {
	tr := new(tracer)
	tr.options = []otelhttp.Option{
		otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&tr.SpanRecorder))),
		otelhttp.WithPropagators(propagation.TraceContext{}),
	}
	return tr
}

// Over instruments next.
func (tr *tracer) Over(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(next, tr.options...)
}

// parents are the Traceparent headers that a server saw.
type parents struct {
	mu   sync.Mutex
	seen []string
}

func (p *parents) Note(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.seen = append(p.seen, r.Header.Get("Traceparent"))
		p.mu.Unlock()
		next(w, r)
	}
}

// allEnded checks that as many spans ended as started, and how many that were.
func (tr *tracer) allEnded(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(tr.Ended()) == want }, 5*time.Second, time.Millisecond)
	require.Len(t, tr.Started(), want)
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// TestOTelHTTPOver: above the scheduler a span is a request of the program, its
// waits and retries included; every attempt tells the server the same span.
func TestOTelHTTPOver(t *testing.T) {
	tr, seen := newTracer(), new(parents)
	r := newRig(t, quick(), seen.Note(flaky(2, hello)))
	resp, err := (&http.Client{Transport: tr.Over(r.Transport())}).Get(r.Server.URL)
	require.Equal(t, "hello", text(t, resp, err))
	tr.allEnded(t, 1)
	require.Len(t, seen.seen, 3)
	require.NotEmpty(t, seen.seen[0])
	require.Equal(t, seen.seen[0], seen.seen[1])
	require.Equal(t, seen.seen[0], seen.seen[2])
}

// TestOTelHTTPBelow: below the scheduler a span is an attempt.
func TestOTelHTTPBelow(t *testing.T) {
	tr, seen := newTracer(), new(parents)
	srv := httptest.NewServer(seen.Note(flaky(2, hello)))
	r := rigOver(t, quick(), srv, tr.Over)
	resp, err := r.Client().Get(srv.URL)
	require.Equal(t, "hello", text(t, resp, err))
	tr.allEnded(t, 3)
	require.Len(t, seen.seen, 3)
	require.NotEqual(t, seen.seen[0], seen.seen[1])
	require.NotEqual(t, seen.seen[1], seen.seen[2])
}

// TestOTelHTTPBothSides: the spans of the attempts are children of the request's.
func TestOTelHTTPBothSides(t *testing.T) {
	tr := newTracer()
	srv := httptest.NewServer(flaky(1, hello))
	r := rigOver(t, quick(), srv, tr.Over)
	resp, err := (&http.Client{Transport: tr.Over(r.Transport())}).Get(srv.URL)
	require.Equal(t, "hello", text(t, resp, err))
	tr.allEnded(t, 3)
	spans := tr.Started() // the request's own is the first
	for _, attempt := range spans[1:] {
		require.Equal(t, spans[0].SpanContext().SpanID(), attempt.Parent().SpanID())
	}
}

// TestOTelHTTPShared: a trace does not tell two requests apart: they share one
// attempt, each with a span of its own.
func TestOTelHTTPShared(t *testing.T) {
	tr := newTracer()
	cfg := quick()
	cfg.Dedupe.Window = time.Minute
	r := newRig(t, cfg, hello)
	c := &http.Client{Transport: tr.Over(r.Transport())}
	for range 3 {
		resp, err := c.Get(r.Server.URL)
		require.Equal(t, "hello", text(t, resp, err))
	}
	tr.allEnded(t, 3)
	require.Equal(t, 1, r.Sent())
}

// TestOTelHTTPStream: on either side a stream arrives in pieces, and its span ends
// with it.
func TestOTelHTTPStream(t *testing.T) {
	for _, side := range []string{"over", "below"} {
		t.Run(side, func(t *testing.T) {
			tr, next := newTracer(), make(chan struct{})
			srv := httptest.NewServer(inPieces("text/event-stream", next))
			var r *rig
			var c *http.Client
			if side == "over" {
				r = rigOver(t, quick(), srv, nil)
				c = &http.Client{Transport: tr.Over(r.Transport())}
			} else {
				r = rigOver(t, quick(), srv, tr.Over)
				c = r.Client()
			}
			resp, err := c.Get(srv.URL)
			require.NoError(t, err)
			require.Empty(t, tr.Ended())
			readPieces(t, r, resp.Body, next)
			tr.allEnded(t, 1)
		})
	}
}

// Spans of requests above the gate, spans of attempts below it.
func Example_otelhttp() {
	server := httptest.NewServer(flaky(1, hello))
	defer server.Close()
	tr := newTracer()
	sched, err := ax.New(&http.Client{Transport: tr.Over(http.DefaultTransport)}, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client := &http.Client{Transport: tr.Over(sched.Transport())}
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	fmt.Println(len(tr.Ended()), "spans: a request and its two attempts")
	// Output: 3 spans: a request and its two attempts
}
