package ax

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// EventKind tells what happened.
//
// A task's events come in order: submitted, then what befalls it, then exactly
// one of the four ends (EventSucceeded, EventFailed, EventCanceled,
// EventRejected), which says what Do returns and is delivered before it does.
// Events of a lane carry no Task.
type EventKind int

const (
	// EventSubmitted: the scheduler was given a task. Each task's first event.
	EventSubmitted EventKind = iota
	// EventCoalesced: the task joined a flight of the same key; it will not be
	// sent by itself. With [Config.DryRun]: it would have.
	EventCoalesced
	// EventWindowHit: the task is answered from the dedupe window.
	EventWindowHit
	// EventQueued: it could not start at once and waits for its first start. The
	// wait of a retry is not told.
	EventQueued
	// EventStarted: an attempt begins; Attempt is its number, Waited the wait
	// before it.
	EventStarted
	// EventAttemptDone: an attempt ended after Took, with Status or Err; or it lost
	// to its [Hedge] and is not waited for. A task that is left while one runs ends
	// without it; who shares that one may be told of its end without its start.
	EventAttemptDone
	// EventRetryScheduled: another attempt queues after Delay.
	EventRetryScheduled
	// EventBreakerOpened: the lane's breaker opened, for Delay.
	EventBreakerOpened
	// EventBreakerHalfOpen: the lane's breaker probes.
	EventBreakerHalfOpen
	// EventBreakerClosed: the lane's breaker closed: its limits are full again. So
	// it is told of a host that is forgotten while its breaker waits for a probe.
	EventBreakerClosed
	// EventLanePaused: the lane, or with an empty Lane every one, starts nothing,
	// for Delay; 0 = until Resume.
	EventLanePaused
	// EventLaneResumed: that pause is over.
	EventLaneResumed
	// EventOverBudget: the task's owner is over its budget.
	EventOverBudget
	// EventFellBack: a fallback, named by Source, takes over; Err is why.
	EventFellBack
	// EventSucceeded ends a task that got a response, whatever its status and
	// its Source.
	EventSucceeded
	// EventFailed ends a task with the error Err, unless that is one of the next two.
	EventFailed
	// EventCanceled ends a task that its caller no longer wanted: ctx or its
	// deadline, Call, tag, scope, supersede, Close.
	EventCanceled
	// EventRejected ends a task that was refused or given up before its first
	// start: queue full or too slow, evicted, budget, cooldown, breaker,
	// deadline out of reach, would wait, closed.
	EventRejected
	// EventBreakerRamping: the lane's probes succeeded and its limits rise
	// again, over Delay.
	EventBreakerRamping
)

// String is the kind in lower case with hyphens, such as "attempt-done".
func (k EventKind) String() string {
	return enumName("EventKind", int(k),
		"submitted", "coalesced", "window-hit", "queued", "started", "attempt-done", "retry-scheduled",
		"breaker-opened", "breaker-half-open", "breaker-closed", "lane-paused", "lane-resumed",
		"over-budget", "fell-back", "succeeded", "failed", "canceled", "rejected", "breaker-ramping")
}

// Verdict is what an attempt says about its server, by the rule of its lane's
// breaker ([Breaker.IsFailure]) also where there is none: breakers and
// [LaneStats.Failures] go by it.
type Verdict int

// What an attempt may say.
const (
	VerdictNeutral Verdict = iota // nothing: its caller ended it, or ax, or the caller's side failed
	VerdictSuccess                // it works
	VerdictFailure                // it does not
)

// String is "neutral", "success" or "failure".
func (v Verdict) String() string {
	return enumName("Verdict", int(v), "neutral", "success", "failure")
}

// Event is one thing that happened to a task or a lane, as [Config.OnEvent] is
// told. Fields that say nothing about its kind are zero.
//
// As text (String, LogValue) it shows no user info, query values, headers or
// bodies, and neither does its Err. Task and Context hold everything: what walks
// through the fields, such as encoding/json, writes all of Task.
type Event struct {
	// Kind tells what happened.
	Kind EventKind
	// Time is when.
	Time time.Time
	// Context carries the caller's values. While an attempt runs it is that
	// attempt's: what is done with it belongs to the attempt and waits for no
	// slot. Never nil.
	Context context.Context
	// Seq is the task's place in the order of submission, from 1 up. 0 = an
	// event of a lane.
	Seq uint64
	// Task is the task; it must not be waited for here. nil = an event of a lane.
	Task *Task
	// Lane is the lane's name, "" before the task has one and if all are meant.
	Lane string
	// Owner is whose budget pays, "" = nobody's.
	Owner string
	// Attempt is the number of the latest attempt; 1 = the first, 0 = none yet. In
	// an end it is that of the attempts for its result, as in Response and Error.
	Attempt int
	// Waited is the time in queues: before this attempt, in an end of all.
	Waited time.Duration
	// Took is the time on the wire, in an end the time since submission.
	Took time.Duration
	// Delay is the time until what is announced.
	Delay time.Duration
	// Status is the response's code, 0 without one.
	Status int
	// Verdict is what an attempt that is done says about its server.
	Verdict Verdict
	// Source tells where the response of EventSucceeded or EventFellBack came from;
	// in others it is zero, which is FromNetwork, and says nothing.
	Source Source
	// Reason is what a queued task waits for, such as "a token of its lane", or
	// why a breaker opened or a lane paused: "4 of the last 10 attempts failed".
	Reason string
	// Err is what went wrong; in an end it is what Do returns, but in
	// EventSucceeded it is [Response.Cause].
	Err error
}

// String is the kind and what e says about it, such as
//
//	started seq=3 request="GET http://api.test/" lane=api.test attempt=1 waited=20ms
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	for _, a := range e.attrs() {
		b.WriteByte(' ')
		b.WriteString(a.Key)
		b.WriteByte('=')
		if text := a.Value.String(); text == "" || strings.ContainsAny(text, " \"\n\r\t=") {
			b.WriteString(strconv.Quote(text))
		} else {
			b.WriteString(text)
		}
	}
	return b.String()
}

// LogValue is the same for package slog: a group.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", e.Kind.String())}, e.attrs()...)...)
}

// attrs are what e says about its kind.
func (e *Event) attrs() []slog.Attr {
	a := make([]slog.Attr, 0, 12)
	texts := func(key, text string) {
		if text != "" {
			a = append(a, slog.String(key, text))
		}
	}
	numbers := func(key string, n int) {
		if n != 0 {
			a = append(a, slog.Int(key, n))
		}
	}
	times := func(key string, d time.Duration) {
		if d != 0 {
			a = append(a, slog.Duration(key, d))
		}
	}
	if e.Task != nil {
		a = append(a, slog.Uint64("seq", e.Seq), slog.String("request", e.Task.Method()+" "+e.Task.redactedURL()))
	}
	texts("lane", e.Lane)
	texts("owner", e.Owner)
	numbers("attempt", e.Attempt)
	times("waited", e.Waited)
	times("took", e.Took)
	times("delay", e.Delay)
	numbers("status", e.Status)
	if e.Kind == EventAttemptDone {
		texts("verdict", e.Verdict.String())
	}
	if e.Kind == EventSucceeded || e.Kind == EventFellBack {
		texts("source", e.Source.String())
	}
	texts("reason", e.Reason)
	if e.Err != nil {
		texts("err", plainText(e.Err))
	}
	return a
}

// String is "network", "flight", "window", "alternate", "stale" or "static".
func (s Source) String() string {
	return enumName("Source", int(s), "network", "flight", "window", "alternate", "stale", "static")
}
