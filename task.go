package ax

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/axsched/ax/internal/redact"
)

// maxAlternates bounds a chain of Fallback.Alternate. Tasks are immutable, so a
// chain cannot come back to itself, but it can be built by a loop without end.
const maxAlternates = 16

// Task is a request that has been checked and copied: nothing that the caller
// still holds can change it. It may be used by many goroutines and sent many
// times; one made by TaskFrom from a body that cannot be read again is good for
// one Do. The zero Task is of no use: get one from Request.Task, TaskFrom or
// json.Unmarshal.
type Task struct {
	r         Request // a private copy; URL is empty if the task is from TaskFrom
	u         *url.URL
	authority string      // of u, canonical: the name of its host's lane
	host      string      // what the server is told; u.Host or an override
	header    http.Header // as it is sent; read only, may be r.Header
	body      []byte      // of Body or JSON; read only
	open      func() (io.ReadCloser, error)
	depth     int  // alternates behind this task
	plain     bool // asks for nothing that needs the scheduler's mutex
	mayRepeat bool

	// Derived on first use and then the same for ever; two goroutines that race
	// derive the same value twice.
	keys  atomic.Pointer[keyParts]
	route atomic.Pointer[lane] // where it went last
	page  atomic.Pointer[string]
}

// Task checks r and makes a Task of a deep copy of it, so that r and all it points
// to may be changed afterwards. JSON is marshalled here. Every fault found is in
// the error, each with the path of its field (Request.Retry.MaxDelay); the error
// holds no user info, no query values and no header values.
func (r Request) Task() (*Task, error) { return newTask(&r) }

// newTask is Task without another copy of r, which it may change.
func newTask(r *Request) (*Task, error) {
	t := new(Task)
	if err := t.build(r, nil, "Request"); err != nil {
		return nil, err
	}
	return t, nil
}

// Must returns t, or panics if err is not nil. It is for tasks built from
// constants: ax.Must(ax.Request{URL: "https://api.example.com/health"}.Task()).
func Must(t *Task, err error) *Task {
	if err != nil {
		panic(err)
	}
	return t
}

// build fills the zero Task from r, or leaves it zero and returns all faults. u is
// the parsed URL, if the caller has one; at is the path of the struct that method,
// URL and header come from.
func (t *Task) build(r *Request, u *url.URL, at string) error {
	var f faults
	if r.Method != "" && !isToken(r.Method) {
		f.add(at+".Method", "%q is not a method", r.Method)
	}
	if u == nil {
		u = r.parseURL(&f)
	}
	if u != nil {
		checkURL(&f, at, u)
	}
	if r.Body != nil || r.JSON != nil || r.GetBody != nil {
		r.wire = r.wire.withoutBody()
	}
	facts := r.checkHeader(&f, at)
	body := r.checkBody(&f)
	r.checkScheduling(&f)
	if err := f.err(); err != nil {
		return err
	}
	if len(r.Query) > 0 {
		r.mergeQuery(u)
	}
	r.cloneTo(&t.r)
	t.u, t.body = u, body
	t.authority = canonicalAuthority(u.Scheme, u.Host)
	t.host = u.Host
	if facts.host != "" {
		t.host = facts.host
	}
	t.header = t.r.sentHeader(facts)
	t.mayRepeat = facts.idempotencyKey != "" || idempotentMethod(t.Method())
	t.keepBody()
	if t.r.Fallback != nil && t.r.Fallback.Alternate != nil {
		t.depth = 1 + t.r.Fallback.Alternate.depth
	}
	t.plain = t.r.plain()
	return nil
}

// keepBody makes the private Request point at the private bytes, and prepares open.
func (t *Task) keepBody() {
	switch {
	case t.r.JSON != nil:
		t.r.JSON = json.RawMessage(t.body)
	case len(t.body) == 0:
		t.r.Body, t.body = nil, nil
	default:
		t.r.Body = t.body
	}
	switch {
	case t.r.GetBody != nil:
		t.open = t.openCallers
	case len(t.body) > 0:
		t.open = t.openBytes
	}
}

// Method is the HTTP method, GET if none was given.
func (t *Task) Method() string {
	if t.r.Method == "" {
		return http.MethodGet
	}
	return t.r.Method
}

// URL is the address with Query merged in. It may hold secrets: user info and query
// values are not redacted.
func (t *Task) URL() string {
	switch {
	case !t.usable():
		return ""
	case t.r.URL != "" && len(t.r.Query) == 0:
		return t.r.URL
	}
	return t.u.String()
}

// Request returns a deep copy of what the task was made from: change it, and build
// the next Task. JSON comes back as json.RawMessage. For a task of TaskFrom the
// copy also carries, unseen, what a Request has no field for; a body that can be
// read only once is shared with t, unless the copy is given another body.
func (t *Task) Request() Request {
	var r Request
	t.r.cloneTo(&r)
	r.wire = r.wire.withoutFirst()
	r.Body = slices.Clone(r.Body)
	if t.r.JSON != nil {
		r.JSON = json.RawMessage(slices.Clone(t.body))
	}
	if t.usable() && r.URL == "" {
		r.URL = t.u.String()
		if u, err := url.Parse(r.URL); err != nil || u.String() != r.URL || !sameURL(u, t.u) {
			r.wire = r.wire.withURL(t.u)
		}
	}
	return r
}

// usable is false for nil and for the zero Task.
func (t *Task) usable() bool { return t != nil && t.u != nil }

// safe says whether the method only reads: RFC 9110, section 9.2.1.
func (t *Task) safe() bool { return safe(t.Method()) }

func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// idempotent says whether sending the request twice does no more than sending it
// once: by its method, or because an Idempotency-Key goes along.
func (t *Task) idempotent() bool { return t.mayRepeat }

// replayable says whether the body, if any, can be sent again.
func (t *Task) replayable() bool { return !t.r.oneShot() }

// redactedURL is the address without user info, query values and fragment.
func (t *Task) redactedURL() string { return redact.URL(t.u) }

var errZeroTask = errors.New("ax: zero Task; make one with Request.Task")

// plain tells whether a task asks for nothing that needs the scheduler's mutex.
func (r *Request) plain() bool {
	return r.Owner == "" && len(r.Tags) == 0 && r.Supersede == "" && r.Cooldown == 0 && r.Hedge == nil &&
		!r.Stream && (r.Retry == nil || r.Retry.If == nil) && (r.Fallback == nil || r.Fallback.Stale == 0) &&
		(r.wire == nil || r.wire.body == nil && r.wire.first == nil)
}

// mayShare tells whether an answer to t may be shared, where that is on or off.
func (t *Task) mayShare(on bool) bool {
	r := &t.r
	switch {
	case r.NoDedupe:
		return false
	case r.Dedupe || r.DedupeKey != "" || r.DedupeWindow > 0:
		return true
	}
	return on && (t.Method() == http.MethodGet || t.Method() == http.MethodHead)
}
