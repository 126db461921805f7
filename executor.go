package ax

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Executor makes one attempt at a task: it sends the request and returns the
// answer as [http.RoundTripper] does, with the body unread. It is called
// concurrently and must return soon after ctx has ended. ctx is the attempt's:
// a request made with it is nested in the attempt, and a body may be read until
// it ends. Of the answer, Header, Body and Request may be nil. With an error the
// answer is ignored and its body closed.
//
// Most Executors wrap another, in the end the one of [HTTPExecutor].
type Executor interface {
	Execute(ctx context.Context, t *Task) (*http.Response, error)
}

// ExecutorFunc is a func as an Executor.
type ExecutorFunc func(context.Context, *Task) (*http.Response, error)

// Execute calls f.
func (f ExecutorFunc) Execute(ctx context.Context, t *Task) (*http.Response, error) { return f(ctx, t) }

// HTTPExecutor is the Executor that sends tasks through c, whose Transport, Jar,
// CheckRedirect and Timeout it honours; Timeout bounds each attempt, its body
// included. c is copied: what is set on it later, be it the Transport of a
// Scheduler that uses this Executor, changes nothing here. A nil c stands for a
// client over a clone of [http.DefaultTransport], with a connection pool of its own.
//
// Errors are those of the transport, without the [url.Error] around them.
// Redirects are followed within the attempt; each hop first passes through the
// scheduler that runs it. Requests of [Scheduler.Transport] are sent as they
// are: their own client does the rest.
func HTTPExecutor(c *http.Client) Executor {
	e := &httpExecutor{}
	if c != nil {
		e.client = *c
		e.base = c.Transport
	}
	if e.base == nil {
		e.base = http.DefaultTransport
	}
	if t, ok := e.base.(*http.Transport); ok && c == nil {
		e.own = t.Clone()
		e.base = e.own
	}
	e.client.Transport = hopTransport{e.base, e.client.Jar}
	return e
}

type httpExecutor struct {
	client http.Client       // its Transport is a hopTransport over base
	base   http.RoundTripper // never nil
	own    *http.Transport   // base, if nobody else knows it
}

// Execute sends t once.
func (e *httpExecutor) Execute(ctx context.Context, t *Task) (*http.Response, error) {
	req, err := t.NewRequest(ctx)
	if err != nil {
		return nil, err
	}
	h := hopperFrom(ctx)
	if jar := e.client.Jar; jar != nil && h != nil && !h.singleHop(t) {
		h.sends(jarOwner(jar, req.URL))
	}
	if h != nil && h.singleHop(t) {
		req.Response = t.redirectedBy()
		resp, err := e.base.RoundTrip(req)
		return resp, markFinal(req, schemeMismatch(err))
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, e.verdict(resp, err)
	}
	return resp, nil
}

// schemeMismatch is what http.Client says in place of err if there was HTTP where TLS
// was expected.
func schemeMismatch(err error) error {
	if e, ok := err.(tls.RecordHeaderError); ok && string(e.RecordHeader[:]) == "HTTP/" {
		return &finalError{error: http.ErrSchemeMismatch}
	}
	return err
}

// closeIdle gives up idle connections that nobody else could ever use.
func (e *httpExecutor) closeIdle() {
	if e.own != nil {
		e.own.CloseIdleConnections()
	}
}

// runExecutor makes one attempt and fills in what an Executor may leave out:
// with a nil error, the answer, its Header and its Body are not nil, and the Body
// of an answer that has none is http.NoBody.
func runExecutor(ctx context.Context, x Executor, t *Task) (*http.Response, error) {
	resp, err := x.Execute(ctx, t)
	if err != nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return nil, unquoted(flatten(err))
	}
	if resp == nil {
		return nil, errNoAnswer
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	if resp.Request == nil && t.Method() == http.MethodHead {
		u := *t.u
		resp.Request = &http.Request{Method: http.MethodHead, URL: &u, Host: t.host, Header: http.Header{}} // says what the answer's length is about
	}
	if resp.Body != nil && resp.Body != http.NoBody && bodiless(resp) {
		if len(resp.Trailer) > 0 {
			_, _ = io.CopyN(io.Discard, resp.Body, 1) // there are none before its end
		}
		resp.Body.Close() // HTTP/2 has one all the same, which misses what Content-Length says
		resp.Body = nil
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	return resp, nil
}

var errNoAnswer = errors.New("ax: the executor returned neither an answer nor an error")

// hopper is what the ctx of an attempt offers to the executor that runs it.
type hopper interface {
	// sends is told whose cookies a client adds to a request: see jarOwner.
	sends(who string)
	// singleHop tells that the caller follows redirects itself: one round trip
	// on the bare transport, without client.
	singleHop(t *Task) bool
	// hop is asked before every request of the attempt but the first, and may
	// block. It returns the request to send, perhaps with another ctx.
	hop(req *http.Request, prevStatus int) (*http.Request, error)
}

type hopperKey struct{}

// hopperFrom is the hopper of the attempt that ctx belongs to; nil outside of one.
func hopperFrom(ctx context.Context) hopper {
	h, _ := ctx.Value(hopperKey{}).(hopper)
	return h
}

// hopTransport asks the attempt's hopper before each redirect hop. It has no
// state: a client tells a hop from a first request by the answer that caused it.
// Its errors are marked, so that those of the client itself can be told apart.
type hopTransport struct {
	base http.RoundTripper
	jar  http.CookieJar // the client's; nil = none
}

func (t hopTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	prev := req.Response
	if prev != nil {
		if h := hopperFrom(req.Context()); h != nil {
			next, err := h.hop(req, prev.StatusCode)
			if err != nil {
				closeRequest(req)
				return nil, &roundTripError{err}
			}
			req = next
			if t.jar != nil {
				if who := jarOwner(t.jar, req.URL); who != "" {
					h.sends("hop " + who) // whom no key foresaw
				}
			}
		}
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return resp, markError(req, err)
	}
	if resp != nil && leadsNowhere(req, resp) {
		if resp.Body != nil {
			resp.Body.Close()
		}
		return nil, errBadLocation
	}
	return resp, nil
}

// CloseIdleConnections passes on what http.Client asks of its Transport.
func (t hopTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// markError tells a transport's error from the client's own, but leaves those alone
// that no repetition can cure: no TLS on the other side (the client looks for that
// very type), and a redirect to no host or to a scheme that is not HTTP's.
func markError(req *http.Request, err error) error {
	if _, ok := err.(tls.RecordHeaderError); ok {
		return err
	}
	if req.Response != nil && (!httpScheme(req.URL.Scheme) || req.URL.Host == "") {
		return err
	}
	return &roundTripError{markFinal(req, err)}
}

func closeRequest(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// leadsNowhere tells a redirect to something that is no URL. The client would
// put that something, secrets and all, into the text of its error.
func leadsNowhere(req *http.Request, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
			return false // not followed anyway
		}
	default:
		return false
	}
	to := resp.Header.Get("Location")
	if to == "" {
		return false
	}
	_, err := req.URL.Parse(to)
	return err != nil
}

var errBadLocation = errors.New("ax: redirected to a Location that is not a URL")

// roundTripError marks an error that went through a client on its way from the
// transport or the hopper below it.
type roundTripError struct{ err error }

func (e *roundTripError) Error() string { return e.err.Error() }
func (e *roundTripError) Unwrap() error { return e.err }

// clientError is an error that the client raised, not the transport below it: a
// redirect that must not or cannot be followed, a body that cannot be had again.
// The same request would end the same way, so it is not worth a retry.
type clientError struct {
	resp *http.Response // whose redirect was refused, its body closed; or nil
	own  bool           // by the user's CheckRedirect: the server did nothing wrong
	err  error
}

func (e *clientError) Error() string {
	if e.resp == nil {
		return e.err.Error()
	}
	return fmt.Sprintf("ax: %d redirect not followed: %v", e.resp.StatusCode, e.err)
}

func (e *clientError) Unwrap() error { return e.err }

// verdict says what an error of Client.Do means. resp is not nil if it comes from
// CheckRedirect, which without one of the user's own refuses nothing but loops.
func (e *httpExecutor) verdict(resp *http.Response, err error) error {
	err = flatten(err)
	if resp != nil {
		resp.Body = http.NoBody // closed by the client
		return &clientError{resp, e.client.CheckRedirect != nil, err}
	}
	if marked, ok := err.(*roundTripError); ok {
		return flatten(marked.err)
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return err // Client.Timeout, which keeps no more than the text of its cause
	}
	return &clientError{nil, false, err}
}
