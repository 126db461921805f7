package ax

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Priority orders tasks that wait. A higher one goes first, and waiting raises
// every task one level for each AgingStep, so that none starves. Any int is
// allowed; the named levels are what most programs need.
type Priority int

// The named levels. The zero value is Normal.
const (
	Low       Priority = iota - 1 // background work
	Normal                        // the zero value
	Important                     // somebody waits for it
	Urgent                        // before all that is named here
)

// String is the level's name in lower case, or "Priority(n)" for any other int.
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case Important:
		return "important"
	case Urgent:
		return "urgent"
	}
	return "Priority(" + strconv.Itoa(int(p)) + ")"
}

// Request says what is to be sent and how it is to be scheduled. It is a plain
// value: fill it in, then call Request.Task, which copies it deeply. Only URL is
// needed. In every field zero means the default that is named there; a negative
// number and a contradiction are errors of Request.Task.
type Request struct {
	// Method is the HTTP method, sent as it is written. "" = GET.
	Method string
	// URL is absolute: it must have a scheme and a host. Any scheme is accepted
	// here; one that the client does not speak fails when it is sent. User info
	// is sent as basic authentication. A fragment is neither sent nor compared.
	URL string
	// Query is added behind the URL's own query, encoded and sorted by name.
	Query url.Values
	// Header is sent beside what net/http adds. A Host entry (one value) replaces
	// the host that the server is told, as http.Request.Host does; the connection
	// still goes to the URL's host. Names must be tokens, and values must not hold
	// control characters (RFC 9110, section 5).
	Header http.Header
	// Body is copied by Request.Task. At most one of Body, JSON and GetBody may be
	// set. Empty = no body.
	Body []byte
	// JSON is marshalled once, by Request.Task, and sent as application/json
	// unless Header has a Content-Type. nil = no body; for the JSON value null use
	// json.RawMessage("null").
	JSON any
	// GetBody opens a body that is too large to hold in memory. It is called for
	// every attempt and redirect that sends the body, maybe from several
	// goroutines, and each reader it returns is closed. An error of it, or of the
	// reader, is final: it ends the task without a retry.
	GetBody func() (io.ReadCloser, error)
	// ContentLength is the size of what GetBody opens, in bytes; it needs GetBody.
	// 0 = unknown, sent in chunks.
	ContentLength int64

	// Priority decides who goes first among waiting tasks. 0 = Normal.
	Priority Priority
	// Lane names the lane to use: one of Config.Lanes, or that of a host, as in
	// Config.Hosts. A host without a dot or a port ("users") is known by that name
	// only while its lane is in use: list it in Config.Lanes. "" = the lane whose
	// pattern matches, else the one of the URL's host.
	Lane string
	// Owner names who pays for this task, see Config.Budgets. "" = nobody in
	// particular. Answers are never shared between owners.
	Owner string
	// Tags are names by which Scheduler.CancelTag finds the task.
	Tags []string

	// AttemptTimeout bounds each attempt: headers and body, of a stream the
	// headers only. A shared attempt has the longest of its callers'. 0 = the
	// lane's, then the scheduler's; NoTimeout = none.
	AttemptTimeout time.Duration
	// QueueTimeout bounds each wait for a turn. A first start that comes too late
	// is ErrQueueTimeout; for a retry the last outcome stands. 0 = the lane's, then
	// the scheduler's; NoTimeout = none.
	QueueTimeout time.Duration
	// AgingStep is the wait that is worth one level of Priority. 0 = the lane's,
	// then the scheduler's.
	AgingStep time.Duration

	// Retry replaces the lane's policy, it is not merged with it. nil = inherit.
	Retry *Retry
	// NoRetry turns retries off. It excludes Retry.
	NoRetry bool
	// NoWait starts the task at once or refuses it with ErrWouldWait.
	NoWait bool
	// IdempotencyKey is sent as the Idempotency-Key header, the same on every
	// attempt, and allows any method to be retried. "" = none, unless Header has
	// one.
	IdempotencyKey string

	// DedupeKey names the result: tasks with the same DedupeKey and Owner share
	// one, whatever their method, URL and headers. "" = a key is derived from
	// the whole request, for GET and HEAD only.
	DedupeKey string
	// Dedupe derives a key for any method, the body included. A body from GetBody
	// cannot be compared and what Prepare does is not known beforehand: with
	// these, set DedupeKey. It excludes NoDedupe.
	Dedupe bool
	// NoDedupe shares nothing: Task.Key is "". A DedupeKey beside it still names
	// the task for Cooldown and Fallback.Stale.
	NoDedupe bool
	// DedupeWindow is how long a success is shared after it completed, whatever
	// its Cache-Control says. For GET and HEAD it switches sharing on, also without
	// Config.Dedupe; a write needs Dedupe or DedupeKey beside it. It does nothing
	// with NoDedupe, or with Prepare and no DedupeKey. 0 = the scheduler's, which
	// heeds no-store.
	DedupeWindow time.Duration
	// Supersede names a place that only the newest task holds: a new task of this
	// name, in the same Scope or else in the scheduler, cancels the unfinished
	// older ones with ErrSuperseded. One that is refused at once cancels nobody; the
	// place of an older one that waits is free for it. "" = none.
	Supersede string
	// Cooldown refuses a task that has one with ErrCooldown while another with the
	// same key and a Cooldown runs, and that long after it ended. One that was
	// refused, or cancelled before it was sent, leaves none. A write has a key for
	// this purpose without Dedupe; with GetBody or Prepare, set DedupeKey. 0 = off.
	Cooldown time.Duration

	// Fallback replaces the lane's. nil = inherit. Alternates may be chained 16
	// deep.
	Fallback *Fallback
	// NoFallback turns fallbacks off. It excludes Fallback.
	NoFallback bool
	// Hedge sends a second attempt when the first one is slow. nil = inherit.
	Hedge *Hedge
	// Stream hands the body over as it arrives: it is never buffered, and the slot
	// is held until the body ends or is closed. Set it for a server that answers
	// before it has read the whole request (full duplex): any other answer is read
	// to its end at once, and net/http then ends the upload.
	Stream bool
	// Prepare is called with the request of every attempt just before it is sent:
	// to sign or to trace. It runs before the first hop of an attempt, not on
	// redirects, on the goroutine that runs the attempt, and may run for several
	// attempts at once. It may change the request, but not keep it. Rates have
	// counted the attempt before: where it takes its time, [Rate.Guard] covers
	// that, and AttemptTimeout runs. An error is final. With Prepare no key is
	// derived.
	Prepare func(*http.Request) error

	// wire is what only an http.Request can say; TaskFrom sets it and
	// Task.Request hands it on.
	wire *wire
}

// cloneTo copies r, and all that can be changed through it but for the bodies. Empty maps
// and slices become nil.
func (r *Request) cloneTo(to *Request) {
	*to = *r
	to.Query = cloneValues(r.Query)
	to.Header = cloneValues(r.Header)
	to.Tags = append([]string(nil), r.Tags...)
	to.Retry = clonePtr(r.Retry)
	to.Fallback = clonePtr(r.Fallback)
	to.Hedge = clonePtr(r.Hedge)
}

// cloneValues copies a header or a query with one backing array for all values.
func cloneValues[M ~map[string][]string](m M) M {
	if len(m) == 0 {
		return nil
	}
	return M(http.Header(m).Clone())
}

// sentHeader is the header of r as an attempt sends it.
func (r *Request) sentHeader(facts headerFacts) http.Header {
	if !facts.rewrite {
		return r.Header
	}
	h := maps.Clone(r.Header)
	if h == nil {
		h = make(http.Header, 2)
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return http.CanonicalHeaderKey(name) == "Host" })
	if r.JSON != nil && facts.contentType == "" {
		h["Content-Type"] = []string{"application/json"}
	}
	if r.IdempotencyKey != "" {
		maps.DeleteFunc(h, func(name string, _ []string) bool { return http.CanonicalHeaderKey(name) == "Idempotency-Key" })
		h["Idempotency-Key"] = []string{r.IdempotencyKey}
	}
	return h
}
