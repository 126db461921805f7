package ax

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Source tells where a Response came from.
type Source int

// Where a Response may come from.
const (
	FromNetwork   Source = iota // an attempt of this task
	FromFlight                  // an attempt that it shared with others
	FromWindow                  // an answer from before, within the dedupe window
	FromAlternate               // the alternate task of its Fallback
	FromStale                   // the last good answer, by its Fallback
	FromStatic                  // the func of its Fallback
)

// Response is the answer to a task. It is independent of those that other
// callers got from the same attempt: headers, trailers and body are its own.
//
// The embedded Body is never nil and must be closed, as with [http.Client]. If
// it was buffered, which is the rule, forgetting that costs nothing; a streamed
// one holds its slot and its connection until it is read to the end or closed.
type Response struct {
	*http.Response
	Source   Source        // where it came from
	Attempts int           // sent for this result; 0 for FromWindow, FromStale, FromStatic
	Waited   time.Duration // in queues, all attempts together
	Age      time.Duration // since the shared or stale answer arrived
	Seq      uint64        // order of submission in its scheduler
	Cause    error         // why a fallback answered, or why a failure was not retried; else nil

	read    sync.Once // guards what follows
	body    []byte
	bodyErr error
}

var errNilResponse = errors.New("ax: there is no response")

// Bytes is the whole body, however much of Body has been read, as often as it is
// called, before and after Close. All calls return the same slice, which belongs
// to the holder of r: nobody else's answer changes with it.
//
// Of a streamed body it reads what is left, closes it and remembers it, so there
// it is the whole body only if nobody has read from Body before. An error in the
// middle comes with the bytes before it, each time. Bytes is safe for
// concurrent use, but not beside a Read from a streamed Body.
func (r *Response) Bytes() ([]byte, error) {
	if r == nil || r.Response == nil {
		return nil, errNilResponse
	}
	r.read.Do(func() { r.body, r.bodyErr = readWhole(r.Body) })
	return r.body, r.bodyErr
}

func readWhole(rc io.ReadCloser) ([]byte, error) {
	switch b := rc.(type) {
	case nil:
		return []byte{}, nil
	case *memoryBody:
		if b.cut {
			return b.whole(), io.ErrUnexpectedEOF
		}
		return b.whole(), nil
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

// statusBodyBytes is how much of a body a StatusError keeps.
const statusBodyBytes = 4 << 10

// JSON decodes the body of a 2xx answer into a T and closes it. It takes what Do
// and Send return: an err is passed on, any other status is a [*StatusError]
// with the first 4 KiB of the body. An empty answer to HEAD, an empty 204 and an
// empty 205 are the zero value. A body that is not a T is an error that names
// the type and the byte where it went wrong, and quotes nothing.
func JSON[T any](r *Response, err error) (T, error) {
	var v T
	if r == nil || r.Response == nil {
		if err == nil {
			err = errNilResponse
		}
		return v, err
	}
	if r.Body != nil {
		defer r.Body.Close()
	}
	if err != nil {
		return v, err
	}
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return v, statusError(r)
	}
	b, err := r.Bytes()
	if err != nil {
		return v, fmt.Errorf("ax: reading a body for %v: %w", reflect.TypeFor[T](), err)
	}
	if len(b) == 0 && mayBeEmpty(r.Response) {
		return v, nil
	}
	var decoded T
	if err := json.Unmarshal(b, &decoded); err != nil {
		return v, &decodeError{reflect.TypeFor[T](), err}
	}
	return decoded, nil
}

func mayBeEmpty(r *http.Response) bool {
	return r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusResetContent ||
		r.Request != nil && r.Request.Method == http.MethodHead
}

func statusError(r *Response) error {
	e := &StatusError{StatusCode: r.StatusCode, Header: r.Header.Clone()}
	if m, ok := r.Body.(*memoryBody); ok {
		e.Body = append([]byte{}, m.b[:min(len(m.b), statusBodyBytes)]...)
	} else if r.Body != nil {
		// What could not be read changes nothing about the status.
		e.Body, _ = io.ReadAll(io.LimitReader(r.Body, statusBodyBytes))
	}
	return e
}

// decodeError hides the text of package json's errors, which quotes the body.
type decodeError struct {
	into reflect.Type
	err  error
}

func (e *decodeError) Error() string {
	if s, ok := errors.AsType[*json.SyntaxError](e.err); ok {
		return fmt.Sprintf("ax: body for %v is not JSON at byte %d", e.into, s.Offset)
	}
	if u, ok := errors.AsType[*json.UnmarshalTypeError](e.err); ok {
		field := ""
		if u.Field != "" {
			field = " in field " + u.Field
		}
		return fmt.Sprintf("ax: body for %v does not fit %v%s at byte %d", e.into, u.Type, field, u.Offset)
	}
	return fmt.Sprintf("ax: body for %v was refused by a %T", e.into, e.err)
}

func (e *decodeError) Unwrap() error { return e.err }

// payload is an answer whose body is wholly in memory.
type payload struct {
	resp *http.Response // its Body is of no use any more
	body []byte         // never written to once it is shared
	cut  bool           // there was more
}

// response is the answer as one caller gets it, whose ctx is ctx. Not shared, it is
// the executor's answer itself, and the payload is used up; shared, nothing that can
// be written to is in common with the answers of others. Shared calls may be concurrent.
func (p *payload) response(shared bool, ctx context.Context) *http.Response {
	return p.readBy(new(memoryBody), p.head(shared, ctx), shared)
}

// head is response without a reader of its body.
func (p *payload) head(shared bool, ctx context.Context) *http.Response {
	if shared {
		return cloneResponse(p.resp, ctx)
	}
	return p.resp
}

// readBy gives head m as the reader of its body.
func (p *payload) readBy(m *memoryBody, head *http.Response, shared bool) *http.Response {
	m.b, m.shared, m.cut = p.body, shared, p.cut
	head.Body = m
	return head
}

// cloneResponse copies r without its body; its requests have ctx, for that of the
// caller who sent them is his. A herd does it all at once, so in small steps, which
// need little stack.
func cloneResponse(r *http.Response, ctx context.Context) *http.Response {
	c := new(http.Response)
	*c = *r
	c.Header = cloneHeader(r.Header)
	if c.Header == nil {
		c.Header = http.Header{}
	}
	if r.Trailer != nil {
		c.Trailer = cloneHeader(r.Trailer)
	}
	c.TransferEncoding = slices.Clone(r.TransferEncoding)
	c.Body = http.NoBody
	if r.Request != nil {
		c.Request = cloneRequest(r.Request, ctx)
	}
	return c
}

//go:noinline
func cloneHeader(h http.Header) http.Header { return h.Clone() }

//go:noinline
func cloneRequest(r *http.Request, ctx context.Context) *http.Request {
	c := r.Clone(ctx)
	c.Body = nil
	if before := r.Response; before != nil {
		c.Response = cloneResponse(before, ctx)
	}
	return c
}

// dropCookies takes out of a copy, and of the redirects that led to it, what its
// server gave to the one who asked: a session that is nobody else's.
func dropCookies(r *http.Response) {
	for r != nil {
		delete(r.Header, "Set-Cookie")
		if r.Request == nil {
			return
		}
		r = r.Request.Response
	}
}

// memoryBody reads a body that is wholly in memory.
type memoryBody struct {
	b      []byte
	off    int
	shared bool // others read b too
	cut    bool // there was more
	closed atomic.Bool
}

// Read copies; there is no WriteTo, which would show b itself to the Writer. As
// with the bodies of package http, Close may come beside a Read.
func (m *memoryBody) Read(p []byte) (int, error) {
	if m.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if m.off == len(m.b) {
		return 0, m.end()
	}
	n := copy(p, m.b[m.off:])
	m.off += n
	return n, nil
}

// end is what follows the last byte.
func (m *memoryBody) end() error {
	if m.cut {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

func (m *memoryBody) Close() error {
	m.closed.Store(true)
	return nil
}

// whole is the body for a caller who may write to it.
func (m *memoryBody) whole() []byte {
	if m.shared {
		return append(make([]byte, 0, len(m.b)), m.b...)
	}
	return m.b
}

// ofAttempt tells whether req has the context of an attempt.
func ofAttempt(req *http.Request) bool { return req.Context().Value(attemptKey{}) != nil }

// withContext is req with ctx, and so are those that were redirected to it.
func withContext(req *http.Request, ctx context.Context) *http.Request {
	c := req.WithContext(ctx)
	if before := req.Response; before != nil && before.Request != nil {
		own := *before
		own.Body = http.NoBody // closed, and leads to what it was read with
		own.Request = withContext(before.Request, ctx)
		c.Response = &own
	}
	return c
}

// errorBody is how much of an answer an Error keeps.
const errorBody = 64 << 10

// lastAnswer is the beginning of an answer, for an Error.
func lastAnswer(p *payload) *Response {
	head := payload{resp: p.resp, body: p.body[:min(len(p.body), errorBody)]}
	return &Response{Response: head.response(true, context.Background())}
}
