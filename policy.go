package ax

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Dedupe shares one attempt, and for a while its answer, among tasks with equal
// keys. Only GET and HEAD are shared unless a task asks for it with
// [Request.Dedupe] or [Request.DedupeKey]; see [Task.Key] for what makes two
// tasks equal. Each caller gets a header map and a body of its own, and
// leaving early hurts nobody. Set-Cookie goes to the caller alone whose request
// was sent: it may be the session of a visitor whom no header tells apart yet.
//
// What tasks share is one piece of work. It has the best rank and the longest
// AttemptTimeout of all who share it, and the first one's Retry, NoRetry and
// Prepare; each keeps its own ctx, deadline and QueueTimeout: set a deadline on
// ctx to bound the wait. Only those get a fallback's answer who have a fallback.
// Whoever is to have a request of its own sets NoDedupe. The zero value is a good
// one.
//
// A write that its server answers with 2xx or 3xx makes ax forget what it has kept
// of the same URL, query included: for the window and for Fallback.Stale.
// [Scheduler.Invalidate] forgets by key.
type Dedupe struct {
	// Window is how long a success is shared after it completed. Failures and
	// answers that say "Cache-Control: no-store" are never kept. 0 = only while
	// the attempt is in flight. [Request.DedupeWindow] overrides it.
	Window time.Duration
	// MaxEntries bounds the answers kept; the least recently used goes first.
	// 0 = 10,000.
	MaxEntries int
	// MaxBytes bounds the bodies kept, together, in bytes; the least recently
	// used goes first. 0 = 64 MiB.
	MaxBytes int64
	// IgnoreHeaders lists request headers that do not tell two requests apart,
	// beyond User-Agent, Traceparent, Tracestate, Baggage, X-Request-Id and
	// Idempotency-Key. Every other header does. Authorization, Cookie and
	// Proxy-Authorization are refused here: one user must never get another's
	// answer.
	IgnoreHeaders []string
}

// Retry sends failed attempts again. A retry waits without a slot, then queues
// with the rank its task had from the start.
//
// Retried are transport errors (but not bad certificates, bad schemes or
// redirect loops), attempt timeouts, 429 and 5xx except 501, and only if
// sending twice is safe: GET, HEAD, OPTIONS, TRACE, PUT or DELETE, an
// Idempotency-Key, nothing sent yet (a dial error), or Unsafe. The body must be
// replayable. When retries are used up or refused, the last answer is returned
// with a nil error: a status code is no error, as in net/http.
//
// A Retry is a value: it has no state and may be shared by any number of lanes
// and requests. The zero value is a good one.
type Retry struct {
	// Max is the number of retries after the first attempt. 0 = 2. For none
	// leave the Retry nil, or set NoRetry.
	Max int
	// BaseDelay bounds the wait before the first retry; the bound doubles with
	// each further one, up to MaxDelay. 0 = 200ms, or MaxDelay if that is less.
	BaseDelay time.Duration
	// MaxDelay bounds every wait. 0 = 30s. It is also the longest Retry-After
	// (RFC 9110, section 10.2.3) that is waited for: a longer one ends the
	// task at once with that answer, and pauses its lane for MaxDelay. It must
	// not be less than BaseDelay.
	MaxDelay time.Duration
	// Jitter draws the wait under its bound: [FullJitter] (the default),
	// [EqualJitter] or [NoJitter].
	Jitter Jitter
	// Budget keeps retries from multiplying an outage: in any ten seconds a
	// lane sends at most max(3, Budget × first attempts) of them. First
	// attempts are never held back by it. 0 = 0.2. A large number holds back
	// no retry while first attempts come; where none came in ten seconds, the
	// bound is three.
	Budget float64
	// Unsafe also retries methods that are not idempotent: a POST may then be
	// executed twice. Prefer [Request.IdempotencyKey].
	Unsafe bool
	// If decides whether an outcome is worth a retry, in place of the rule
	// above; the safety of the method is not its business. It runs on the
	// attempt's goroutine, outside every lock, once for each attempt, and must
	// not wait for tasks. nil = the rule above.
	If func(Outcome) bool
}

// Jitter spreads the delays of retries, so that those who failed together do
// not come back together.
type Jitter int

const (
	// FullJitter waits a random part of the bound.
	FullJitter Jitter = iota
	// EqualJitter waits half the bound and a random part of the other half.
	EqualJitter
	// NoJitter waits the bound itself: for tests and lone callers.
	NoJitter
)

// String is "full", "equal" or "none".
func (j Jitter) String() string { return enumName("Jitter", int(j), "full", "equal", "none") }

// Breaker opens when too many attempts of a lane fail, holds its traffic back
// for a while, probes, and lets the traffic rise again gradually:
//
//	closed → open → half-open → ramping → closed
//
// A failure is a transport error, an attempt timeout or a 5xx; any other answer
// is a success. What the caller cancelled or ax refused counts for neither, and
// that includes a ctx's deadline and the Timeout of a client above Transport(): a
// server that hangs is noticed only with an AttemptTimeout, or in Do and Send by the
// Timeout of the client that [New] was given.
//
// One failure while half-open or ramping opens it again. A probe that has come to
// no outcome after OpenFor, and 30 s at least, counts as failed. A Breaker is a
// value, each lane keeps its own state; [Scheduler.ForceBreaker] overrides it. The
// zero value is a good one.
type Breaker struct {
	// Window is the number of latest outcomes that are judged, at most
	// 1,000,000. 0 = 10.
	Window int
	// MinCalls is the number of outcomes below which nothing is judged: one
	// error at night is not an outage. 0 = Window; not above Window.
	MinCalls int
	// MaxAge is the age beyond which an outcome no longer counts. 0 = 1m.
	MaxAge time.Duration
	// FailureRate is the share of failures, above 0 and at most 1, above which
	// the breaker opens; with 1 it never does. 0 = 0.3.
	FailureRate float64
	// SlowCall makes a success that took longer count as a failure, measured to
	// the end of a buffered body. 0 = off.
	SlowCall time.Duration
	// OpenFor is the time that the breaker stays open before it probes. 0 = 3s.
	OpenFor time.Duration
	// Probes is the number of attempts sent while half-open; all must succeed.
	// 0 = 1. It must not exceed a MaxConcurrent that applies to it.
	Probes int
	// Ramp is the time from successful probes to the full limits; concurrency
	// and rate rise linearly. It needs something to raise: with NoLimit for every
	// MaxConcurrent and without a Rate it holds nothing back. 0 = 3s.
	Ramp time.Duration
	// WhenOpen says what happens to tasks meanwhile: [OpenHold] (the default)
	// or [OpenReject].
	WhenOpen OpenAction
	// IsFailure decides which outcomes count as failures, in place of the rule
	// above; an answer that is no failure gets no fallback, unless it is a 429. It
	// runs on the attempt's goroutine, outside every lock, once for each attempt,
	// and must not wait for tasks. nil = the rule above.
	IsFailure func(Outcome) bool
}

// OpenAction says what an open breaker does to tasks.
type OpenAction int

const (
	// OpenHold lets tasks wait until the breaker lets them through, or their
	// ctx, deadline or QueueTimeout ends them. Tasks nested in an attempt, which
	// holds a slot, are refused with [ErrCircuitOpen] all the same.
	OpenHold OpenAction = iota
	// OpenReject answers at once: with the fallback if there is one, else with
	// [ErrCircuitOpen].
	OpenReject
)

// String is "hold" or "reject".
func (a OpenAction) String() string { return enumName("OpenAction", int(a), "hold", "reject") }

// Outcome is what one attempt came to, as [Retry.If] and [Breaker.IsFailure]
// judge it. It is valid during the call only.
type Outcome struct {
	// Task is what was attempted.
	Task *Task
	// Attempt is its number; 1 = the first.
	Attempt int
	// Response is what the server said, nil if nothing came. Its body cannot be
	// read here and its headers must not be changed.
	Response *http.Response
	// Err is the transport's or executor's error, nil with a Response.
	Err error
	// Took is the time on the wire: to the end of a buffered body, of a stream
	// to its headers.
	Took time.Duration
}

// Budget limits what one owner (a team, a tenant, a feature) may take of the
// scheduler, whatever its lanes. Answers from a shared flight or window cost
// nothing; retries and hedges do. The zero value limits nothing.
type Budget struct {
	// Rate bounds the owner's starts; all of the rates must allow one. nil or
	// empty = no limit.
	Rate []Rate
	// Over says what happens to tasks beyond the budget: [OverQueue] (the
	// default), [OverFallback] or [OverReject].
	Over OverAction
	// MaxConcurrent bounds the owner's attempts in flight, but for those nested in
	// another. 0 or NoLimit = no limit.
	MaxConcurrent int
	// MaxQueue bounds the owner's waiting tasks; one more is refused with
	// [ErrBudget] whatever Over says, but with OverFallback its fallback may
	// answer. 0 or NoLimit = no limit.
	MaxQueue int
}

// OverAction says what happens to tasks over their owner's budget.
type OverAction int

const (
	// OverQueue parks them until the budget allows; other owners pass.
	OverQueue OverAction = iota
	// OverFallback answers with the task's fallback, or with [ErrBudget] if it
	// has none.
	OverFallback
	// OverReject refuses them with [ErrBudget].
	OverReject
)

// String is "queue", "fallback" or "reject".
func (a OverAction) String() string {
	return enumName("OverAction", int(a), "queue", "fallback", "reject")
}

// Fallback answers in place of a task that has failed: whose last outcome, after
// all retries, is a failure or a 429 (a 404 is an answer). It also answers
// refusals: breaker open with OpenReject, queue full, evicted, QueueTimeout,
// over budget with OverFallback; and, with Stale and Static only, a deadline out
// of reach. It never answers a caller who has left.
//
// The three are tried in order, each may be left out, but not all:
// [Response.Source] says which one answered and [Response.Cause] why. If none
// does, the caller gets the task's own outcome. Of tasks that share an attempt the
// first one's counts, or if that has none another's; who has none gets the outcome
// of the attempt.
type Fallback struct {
	// Alternate is another task, sent in place of this one with its own lane,
	// retries and fallback. If it has no Priority or no Owner it takes those that
	// this task has, by its Request or by [Hints]; but an owner whose Budget says
	// [OverFallback] does not pay for it. nil = none.
	Alternate *Task
	// Stale is the greatest age of a kept good answer to the same key that may
	// be served again; [Response.Age] tells. Good answers are kept for it apart
	// from Dedupe, within its MaxEntries and MaxBytes once more, and need no Dedupe;
	// those that say no-store are not kept, nor is what has no key: a write without
	// Dedupe or DedupeKey. Never use it for what must be current, such as a balance
	// or the state of an order. 0 = none.
	Stale time.Duration
	// Static makes an answer up: a default, an empty list. It runs on the task's
	// goroutine, outside every lock, holds no slot, and must honour ctx. cause
	// is the failure it stands in for. Header, Body and Request of its response
	// may be nil, StatusCode 0 is 200; a response without a Body may be the same
	// one each time. An error means that it has no answer either. nil = none.
	Static func(ctx context.Context, t *Task, cause error) (*http.Response, error)
}

// Hedge sends a second attempt of a task whose first has not answered in time,
// and takes the first success of the two; the other is cancelled. It cuts the
// slowest answers at the price of a few more requests. Hedged are tasks that are
// idempotent by method or Idempotency-Key and whose body can be sent again, unless
// they are nested in an attempt; what Retry says does not matter. It is done once
// at most, for the first attempt, and only within the retry budget of their lane;
// the second attempt needs a slot and tokens as any other.
type Hedge struct {
	// After is the time on the wire after which the second attempt is sent. 0 =
	// the 95th percentile of the lane's latest outcomes, and no hedge before 20 of
	// them. [NoTimeout] = never: it switches an inherited Hedge off.
	After time.Duration
}

// enumName is the name of value v of an enum, or its Go conversion if unknown.
func enumName(typ string, v int, names ...string) string {
	if v < 0 || v >= len(names) {
		return typ + "(" + strconv.Itoa(v) + ")"
	}
	return names[v]
}
