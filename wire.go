package ax

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// wire is what an http.Request can say and a Request cannot. It is not changed
// once it is part of a Request, apart from the state of its body.
type wire struct {
	body             *oneShot    // the only one there is
	first            *oneShot    // what comes before GetBody is asked
	u                *url.URL    // if its text does not parse back to it
	trailer          http.Header // the caller's map: he fills it while the body is read
	transferEncoding []string
	close            bool
	redirected       *http.Response // led here: another task's answer
}

// withoutBody is for a Request that has another body.
func (w *wire) withoutBody() *wire {
	if w == nil || w.body == nil {
		return w
	}
	c := *w
	c.body = nil
	return &c
}

// withoutFirst is for a Request whose GetBody may be changed.
func (w *wire) withoutFirst() *wire {
	if w == nil || w.first == nil {
		return w
	}
	c := *w
	c.first = nil
	return &c
}

// withURL is for a URL whose text says too little.
func (w *wire) withURL(u *url.URL) *wire {
	var c wire
	if w != nil {
		c = *w
	}
	c.u = u
	return &c
}

// oneShot is a body that can be read once. It has one owner at a time: first the
// Do that claims it, then the attempt that takes it; who has it closes it.
type oneShot struct {
	body           io.ReadCloser
	claimed, taken atomic.Bool
}

// take gives the body out, once.
func (o *oneShot) take() (io.ReadCloser, bool) {
	if o == nil || !o.taken.CompareAndSwap(false, true) {
		return nil, false
	}
	return o.body, true
}

// TaskFrom makes a Task of an existing request: method, URL, header, Host, body,
// Trailer, TransferEncoding and Close are req's, the scheduling fields are r's, and
// r's content fields (Method, URL, Query, Header, Body, JSON, GetBody,
// ContentLength) must be zero. req's context is not kept: the one given to Do is
// used. req and its header are not modified and may be reused afterwards.
//
// The body becomes the task's: it is closed when TaskFrom fails, else when the task
// has been sent or refused. With req.GetBody it is opened anew for every further
// attempt; without, it is read once: the task is then good for one Do, is not
// retried, and has no derived key. Errors are those of Request.Task.
func TaskFrom(req *http.Request, r Request) (*Task, error) {
	if req == nil {
		return nil, errors.New("ax: invalid request: http.Request: nil")
	}
	t, err := taskFrom(req, r)
	if err != nil && req.Body != nil {
		req.Body.Close()
	}
	return t, err
}

func taskFrom(req *http.Request, r Request) (*Task, error) {
	var f faults
	r.checkContentZero(&f)
	if req.URL == nil {
		f.add("http.Request.URL", "nil")
	}
	hasBody := req.Body != nil && req.Body != http.NoBody
	if !hasBody && req.ContentLength > 0 {
		f.add("http.Request.ContentLength", "%d without a body", req.ContentLength)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	u := *req.URL
	r.Method = req.Method
	r.Header = headerWithHost(req)
	r.wire = nil
	w := wire{transferEncoding: slices.Clone(req.TransferEncoding), close: req.Close, redirected: req.Response}
	if body, err := comparableBody(req, &r); err != nil {
		return nil, err
	} else if body != nil {
		r.Body, hasBody = body, false
	}
	if hasBody {
		r.ContentLength = max(0, req.ContentLength)
		r.GetBody = req.GetBody
		if body := (&oneShot{body: req.Body}); req.GetBody == nil {
			w.body = body
		} else {
			w.first = body
		}
	}
	if req.Body != nil && req.Body != http.NoBody {
		w.trailer = req.Trailer
	}
	if hasBody || w.trailer != nil || w.close || w.transferEncoding != nil || w.redirected != nil {
		r.wire = &w
	}
	t := new(Task)
	if err := t.build(&r, &u, "http.Request"); err != nil {
		return nil, err
	}
	return t, nil
}

// redirectedBy is the answer that led a client of Scheduler.Transport to t.
func (t *Task) redirectedBy() *http.Response {
	if t.r.wire == nil {
		return nil
	}
	return t.r.wire.redirected
}

// comparedBytes is the largest body that is read to tell one task from another.
const comparedBytes = 4 << 20

// comparableBody reads the body of a request that is to be compared with others,
// to share its answer or to refuse it twice; nil if that was not asked for, or
// if the body is not known to be small or cannot be opened again.
func comparableBody(req *http.Request, r *Request) ([]byte, error) {
	asked := r.Dedupe || r.Cooldown > 0
	if !asked || r.DedupeKey != "" || req.GetBody == nil || req.ContentLength <= 0 || req.ContentLength > comparedBytes {
		return nil, nil
	}
	rc, err := req.GetBody()
	if err != nil {
		return nil, &bodyError{err}
	}
	defer rc.Close()
	b, err := io.ReadAll(io.LimitReader(rc, req.ContentLength+1))
	if err == nil && int64(len(b)) != req.ContentLength {
		err = fmt.Errorf("GetBody gave another length than ContentLength %d", req.ContentLength)
	}
	if err != nil {
		return nil, &bodyError{err}
	}
	req.Body.Close()
	return b, nil
}

// checkContentZero refuses content beside that of an http.Request.
func (r *Request) checkContentZero(f *faults) {
	for _, c := range [...]struct {
		field string
		set   bool
	}{
		{"Request.Method", r.Method != ""},
		{"Request.URL", r.URL != ""},
		{"Request.Query", len(r.Query) > 0},
		{"Request.Header", len(r.Header) > 0},
		{"Request.Body", r.Body != nil},
		{"Request.JSON", r.JSON != nil},
		{"Request.GetBody", r.GetBody != nil},
		{"Request.ContentLength", r.ContentLength != 0},
	} {
		if c.set {
			f.add(c.field, "must be zero beside an http.Request, which has its own")
		}
	}
}

// headerWithHost is req's header with the override of its host, if there is one, in
// the place where a Request has it. A Host entry of req itself means nothing to
// net/http.
func headerWithHost(req *http.Request) http.Header {
	host := req.Host
	if i := strings.IndexAny(host, "/ "); i >= 0 { // a socket's path, perhaps: net/http cuts it off
		host = host[:i]
	}
	override := host != "" && host != req.URL.Host
	if _, ignored := req.Header["Host"]; !override && !ignored {
		return req.Header
	}
	h := maps.Clone(req.Header)
	delete(h, "Host")
	if override {
		if h == nil {
			h = make(http.Header, 1)
		}
		h["Host"] = []string{host}
	}
	return h
}

// NewRequest returns the request as an attempt sends it, for an Executor: with a
// header map and a body of its own, Idempotency-Key and Content-Type set, and
// Prepare applied. Its GetBody is set if the body can be sent again. Who gets it
// sends it or closes its body. The error is that of GetBody or of Prepare, or
// ErrNotReplayable if the only body was given out before.
func (t *Task) NewRequest(ctx context.Context) (*http.Request, error) {
	if !t.usable() {
		return nil, errZeroTask
	}
	if ctx == nil {
		return nil, errors.New("ax: nil context")
	}
	u := *t.u
	draft := http.Request{
		Method: t.Method(), URL: &u, Host: t.host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: t.header.Clone(),
	}
	if draft.Header == nil {
		draft.Header = make(http.Header)
	}
	if w := t.r.wire; w != nil {
		draft.Trailer, draft.TransferEncoding, draft.Close = w.trailer, w.transferEncoding, w.close
	}
	if err := t.attachBody(&draft); err != nil {
		return nil, err
	}
	req := draft.WithContext(ctx)
	t.bindBody(req)
	if t.r.Prepare != nil {
		if err := t.prepare(req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// attachBody opens the body for one attempt. The first attempt gets the body of the
// http.Request even if there is GetBody, as with http.Client: who wrapped the one
// may have forgotten the other.
func (t *Task) attachBody(req *http.Request) (err error) {
	switch {
	case t.open != nil && t.r.GetBody == nil:
		req.GetBody = t.open
		req.ContentLength = int64(len(t.body))
		req.Body, err = t.open()
	case t.open != nil:
		req.GetBody = t.open
		req.ContentLength = t.r.ContentLength
		if w := t.r.wire; w != nil {
			if body, ok := w.first.take(); ok {
				req.Body = t.callersBody(body)
			}
		}
		if req.Body == nil {
			req.Body, err = t.open()
		}
	case t.r.oneShot():
		req.ContentLength = t.r.ContentLength
		body, ok := t.r.wire.body.take()
		if !ok {
			return &bodyError{ErrNotReplayable}
		}
		req.Body = t.callersBody(body)
	}
	return err
}

// prepare applies Prepare; if it fails or panics, nobody will send the body.
func (t *Task) prepare(req *http.Request) (err error) {
	body, done := req.Body, false
	defer func() {
		if body != nil && (!done || err != nil) {
			body.Close()
		}
	}()
	if e := t.r.Prepare(req); e != nil {
		err = &prepareError{e}
	}
	done = true
	return err
}

// openBytes needs no mark: reading memory cannot fail. The reader is of a type
// that net/http knows, and so sends together with the header.
func (t *Task) openBytes() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(t.body)), nil
}

func (t *Task) openCallers() (io.ReadCloser, error) {
	body, err := t.r.GetBody()
	if err != nil {
		return nil, &bodyError{err}
	}
	if body == nil {
		return nil, &bodyError{errors.New("GetBody returned nil")}
	}
	return t.callersBody(body), nil
}

func (t *Task) callersBody(body io.ReadCloser) *callersBody {
	return &callersBody{ReadCloser: body, announced: t.r.ContentLength}
}

// claim takes the task for one Do. It is false only if the body can be read once
// and another Do has, or had, the task. Who claimed it must see to it that the
// body is closed: by the attempt that gets it, or with closeBody.
func (t *Task) claim() bool {
	return t.replayable() || t.r.wire.body.claimed.CompareAndSwap(false, true)
}

// closeBody closes what is left of an http.Request's body: what no attempt has taken.
// It may be called often, and must be when the task has ended. Of a task whose body
// can be read once, only who claimed it, or knows that nobody will, may call it.
func (t *Task) closeBody() {
	w := t.r.wire
	if w == nil {
		return
	}
	if w.body != nil {
		w.body.claimed.Store(true)
	}
	for _, o := range [...]*oneShot{w.body, w.first} {
		if body, ok := o.take(); ok {
			body.Close()
		}
	}
}

// bindBody has the caller's body be read no more once the attempt is over: a transport
// that was answered early may still be at it, and its memory is the caller's again.
func (t *Task) bindBody(req *http.Request) {
	at, ok := req.Context().Value(attemptKey{}).(*attempt)
	if !ok || t.r.GetBody == nil {
		return
	}
	if body, ok := req.Body.(*callersBody); ok {
		body.bind(at)
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := t.open()
		if b, ok := body.(*callersBody); ok {
			b.bind(at)
		}
		return body, err
	}
}

// callersBody marks the errors of a body that is the caller's, to tell them from
// those of the connection: of its reads, and that it has another length than it was
// said to have.
type callersBody struct {
	io.ReadCloser
	announced int64 // 0 = any number of bytes
	read      int64
	reading   chan struct{} // room for one Read, and for nobody once the attempt is over; nil = not bound
}

// bind lets the body be read as long as at goes on. It is opened anew for each attempt,
// so its reads are short; one that is not is left to itself in the end.
func (b *callersBody) bind(at *attempt) {
	b.reading = make(chan struct{}, 1)
	at.AfterFunc(func() {
		timer := time.NewTimer(deafAfter)
		defer timer.Stop()
		select {
		case b.reading <- struct{}{}:
		case <-timer.C:
		}
	})
}

func (b *callersBody) Read(p []byte) (int, error) {
	if b.reading != nil {
		select {
		case b.reading <- struct{}{}:
			defer func() { <-b.reading }()
		default:
			return 0, &bodyError{errAttemptOver}
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case err != nil && err != io.EOF:
		err = &bodyError{err}
	case b.announced == 0:
	case b.read > b.announced:
		err = &bodyError{fmt.Errorf("it is longer than ContentLength %d", b.announced)}
	case err == io.EOF && b.read < b.announced:
		err = &bodyError{fmt.Errorf("it ends after %d bytes, short of ContentLength %d", b.read, b.announced)}
	}
	return n, err
}

// bodyError marks a failure of the caller's own body. It is final.
type bodyError struct{ Err error }

func (e *bodyError) Error() string { return "ax: request body: " + e.Err.Error() }
func (e *bodyError) Unwrap() error { return e.Err }

// prepareError marks a failure of Prepare. It is final.
type prepareError struct{ Err error }

func (e *prepareError) Error() string { return "ax: Prepare: " + e.Err.Error() }
func (e *prepareError) Unwrap() error { return e.Err }

func (*bodyError) ownFault()    {} // final and neutral: the server is not to blame
func (*prepareError) ownFault() {}
