package ax

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// transport is a Scheduler as an http.RoundTripper.
type transport struct {
	s     *Scheduler
	hints *Hints // nil = none
}

// Transport is the scheduler as an http.RoundTripper, for clients and SDKs that
// exist: client.Transport = s.Transport(). Every request becomes a task of its
// own, redirects included, which the client follows as ever; what the context
// says (ContextWith) counts. An answer of known length up to MaxBodyBytes is
// buffered, one of unknown length, such as net/http decompresses, is streamed: close
// it, and set Config.IdleTimeout. A stale answer (Fallback.Stale) has
// an Age header. Errors are *Error, but net/http may put one of its own in place
// of it when client.Timeout fires, which covers waiting and retries too. The
// deprecated http.Request.Cancel is not heeded: use the context.
func (s *Scheduler) Transport() http.RoundTripper { return &transport{s: s} }

// TransportWith is Transport with defaults for one client's requests: the
// context's own hints come first.
func (s *Scheduler) TransportWith(h Hints) http.RoundTripper {
	h.Tags = append([]string(nil), h.Tags...)
	return &transport{s: s, hints: &h}
}

// CloseIdleConnections closes those of the client that New was given or made, as
// http.Client's method of that name expects; with an Executor it does nothing.
func (t *transport) CloseIdleConnections() {
	if x, ok := t.s.exec.(*httpExecutor); ok {
		x.client.CloseIdleConnections()
	}
}

// RoundTrip makes a task of req and does it. It never modifies req and always
// closes its body.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	task, err := TaskFrom(req, Request{})
	if err != nil {
		return nil, &Error{Op: "admit", Method: req.Method, Err: err, bare: true}
	}
	r, err := t.s.do(req.Context(), task, &way{hints: t.hints, single: true})
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.bare = true
		}
		return nil, err
	}
	resp := r.Response // itself, not a copy: net/http puts trailers into it when the body ends
	resp.Request = req
	if r.Source == FromStale { // with a header of its own
		resp.Header.Set("Age", strconv.FormatInt(ageBefore(resp.Header)+int64(r.Age/time.Second), 10))
	}
	return resp, nil
}

// ageBefore is the age in seconds that an answer already had when it arrived, which
// adds to what it has since (RFC 9111, sections 4.2.3 and 5.1).
func ageBefore(h http.Header) int64 {
	const most = 1 << 31 // section 1.2.2: what is more counts as this
	n, err := strconv.ParseUint(h.Get("Age"), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return int64(min(n, most))
}
