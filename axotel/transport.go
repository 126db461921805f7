package axotel

import (
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// Transport sends the trace along: it wraps base, nil for
// http.DefaultTransport, and adds the headers of the span in a request's
// context, those of the attempt under an instrumented scheduler. It belongs below
// the scheduler, as the Transport of the client that makes the attempts, and is
// safe for concurrent use.
//
// The headers are those of otel.GetTextMapPropagator; where the program has set
// none, W3C Trace Context. They are added to a copy, after Request.Prepare and
// beside dedupe keys, so neither can notice. A request that has one of these
// headers already, by its caller or by Prepare, which may have signed it, is sent
// as it is. Redirect hops are sent with them too, and from then on the attempt's
// span describes the hop.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base}
}

type transport struct{ base http.RoundTripper }

// RoundTrip sends req, with the headers of its context's span.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, ok := req.Context().Value(attemptKey{}).(*attempt); ok && req.Response != nil {
		a.redirected(req)
	}
	p := orStandard(otel.GetTextMapPropagator())
	for _, name := range p.Fields() {
		if len(req.Header.Values(name)) > 0 {
			return t.base.RoundTrip(req)
		}
	}
	added := propagation.HeaderCarrier{}
	p.Inject(req.Context(), added)
	if len(added) == 0 {
		return t.base.RoundTrip(req)
	}
	sent := req.WithContext(req.Context())
	sent.Header = make(http.Header, len(req.Header)+len(added))
	for name, values := range req.Header {
		sent.Header[name] = values
	}
	for name, values := range added {
		sent.Header[name] = values
	}
	return t.base.RoundTrip(sent)
}

// CloseIdleConnections is asked for by http.Client.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// orStandard is p, or W3C Trace Context if p propagates nothing.
func orStandard(p propagation.TextMapPropagator) propagation.TextMapPropagator {
	if len(p.Fields()) > 0 {
		return p
	}
	return propagation.TraceContext{}
}
