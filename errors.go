package ax

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What ended a task before or instead of an answer; match them with errors.Is.
// Each comes inside an [*Error], mostly with the numbers of the case in its
// text. Those said to be context.Canceled are found by that too.
//
// Nothing was sent only if Error.Attempts is 0. A retry or a redirect hop may be
// refused too: then the reason stands beside the last error, or in the Cause of the
// last response, or is the error of a task that had been sent.
var (
	// ErrClosed: [Scheduler.Shutdown] or [Scheduler.Close] was called. A task
	// that one of them cancelled is also context.Canceled.
	ErrClosed = errors.New("ax: scheduler is closed")

	// ErrQueueFull: MaxQueue tasks were waiting, in the lane or together. Shed
	// the work, or raise MaxQueue if the backend can catch up.
	ErrQueueFull = errors.New("ax: queue is full")

	// ErrQueueTimeout: no start came within QueueTimeout. It is a Timeout, and
	// not context.Canceled. With Error.Attempts 0 nothing was sent, and the task
	// can be repeated.
	ErrQueueTimeout = errors.New("ax: waited too long in the queue")

	// ErrEvicted: with [OverflowEvict], a better-ranked newcomer took the place
	// in a full queue. Nothing was sent.
	ErrEvicted = errors.New("ax: evicted from a full queue by a better-ranked task")

	// ErrCircuitOpen: the lane's breaker is open and does not hold tasks, or not
	// one nested in an attempt. With Error.Attempts 0 nothing was sent;
	// Error.RetryAfter tells when it probes.
	ErrCircuitOpen = errors.New("ax: circuit breaker is open")

	// ErrBudget: the owner is over its [Budget]. With Error.Attempts 0 nothing was
	// sent; Error.RetryAfter tells when it is free again, if time alone frees it.
	ErrBudget = errors.New("ax: owner is over its budget")

	// ErrRetryBudget: the retry was not sent since too many of the lane's
	// attempts are retries already; see [Retry.Budget]. It stands in the Cause
	// of the last response, or beside the last error.
	ErrRetryBudget = errors.New("ax: retry budget is used up")

	// ErrSuperseded: a newer task of the same [Request.Supersede] name came.
	// It is context.Canceled. There is nothing to do: the newer one answers.
	ErrSuperseded = errors.New("ax: superseded by a newer task")

	// ErrCooldown: the same task is running, or ended less than
	// [Request.Cooldown] ago. Error.RetryAfter tells when it may come again, once
	// it has ended.
	ErrCooldown = errors.New("ax: same task is running or cooling down")

	// ErrWouldWait: the task has NoWait, or is nested in an attempt, and could
	// not start at once.
	ErrWouldWait = errors.New("ax: task would have to wait")

	// ErrCanceledByTag: [Scheduler.CancelTag] was called with one of its tags.
	// It is context.Canceled.
	ErrCanceledByTag = errors.New("ax: canceled by tag")

	// ErrScopeEnded: its [Scope] was cancelled or the scope's ctx ended, before or
	// after the task came. It is context.Canceled.
	ErrScopeEnded = errors.New("ax: scope has ended")

	// ErrNotReplayable: the body cannot be sent or read a second time, so the
	// first outcome is final. Give the body as Body, JSON or GetBody.
	ErrNotReplayable = errors.New("ax: body cannot be sent again")

	// ErrWouldExceedDeadline: the task could not have started before its
	// deadline, or with too little of it left. It is context.DeadlineExceeded.
	// With Error.Attempts 0 nothing was sent; of a retry, which is not waited for
	// then, it stands in the Cause of the last response, or beside the last error.
	ErrWouldExceedDeadline = errors.New("ax: deadline passes before the earliest possible start")

	// ErrGrantLost: the [Governor] could not hold what it had granted, and the
	// attempt was cancelled. It may have reached the server.
	ErrGrantLost = errors.New("ax: the governor's grant was lost")
)

// Error is every failure of Do, Send, Get and [Call.Result]. A status code is
// none: it comes as a Response with a nil error. Find what happened with
// errors.Is and errors.As, which see through to Err. It is not changed once
// returned, and may be kept and shared.
type Error struct {
	// Op is how far the task had come: "admit" (refused before it waited),
	// "queue" (ended while waiting), "attempt" (failed or ended in flight),
	// "retry" (ended between two attempts) or "fallback".
	Op string
	// Method and URL are the task's, without user info and query values.
	Method, URL string
	// Lane and Owner are the task's, "" if it got none.
	Lane, Owner string
	// Attempts is the number of attempts sent; 0 = the server saw nothing.
	Attempts int
	// Response is the last answer seen, nil if none. Its body is buffered, up to
	// 64 KiB, and need not be closed.
	Response *Response
	// RetryAfter is the time after which the same task would be accepted or the
	// server asked to be called again. 0 = not known.
	RetryAfter time.Duration
	// Err is what happened.
	Err error

	// bare leaves method and URL out of the text: http.Client adds its own.
	bare bool
}

// Error tells where it happened, what, and where known what to do about it. It
// carries no user info, query values, headers or bodies.
func (e *Error) Error() string {
	parts := []string{"ax"}
	if where := e.where(); where != "" {
		parts = append(parts, where)
	}
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Err != nil {
		parts = append(parts, plainText(e.Err))
	}
	text := strings.Join(parts, ": ")
	if e.RetryAfter > 0 {
		text += " (retry after " + brief(e.RetryAfter) + ")"
	}
	return text
}

// where is "METHOD URL (details)", or what of it is known and wanted.
func (e *Error) where() string {
	details := e.details()
	if e.bare || e.Method == "" || e.URL == "" {
		return details
	}
	if details == "" {
		return e.Method + " " + e.URL
	}
	return e.Method + " " + e.URL + " (" + details + ")"
}

// details lists where it happened and what had been tried.
func (e *Error) details() string {
	var d []string
	if e.Lane != "" {
		d = append(d, "lane "+strconv.Quote(e.Lane))
	}
	if e.Owner != "" {
		d = append(d, "owner "+strconv.Quote(e.Owner))
	}
	if e.Attempts == 1 {
		d = append(d, "1 attempt")
	} else if e.Attempts > 1 {
		d = append(d, strconv.Itoa(e.Attempts)+" attempts")
	}
	if e.Response != nil && e.Response.Response != nil {
		d = append(d, "last status "+strconv.Itoa(e.Response.StatusCode))
	}
	return strings.Join(d, ", ")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether time ran out: the caller's deadline, an attempt
// timeout, a queue timeout, or a timeout of the transport.
func (e *Error) Timeout() bool {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, ErrQueueTimeout) {
		return true
	}
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && t.Timeout()
}

// StatusError is an answer that is not 2xx where one was needed, as in [JSON].
type StatusError struct {
	// StatusCode is the answer's.
	StatusCode int
	// Header is the answer's.
	Header http.Header
	// Body is the beginning of the answer's body, up to 4 KiB.
	Body []byte
}

// Error names the status. Body may hold secrets and is left out.
func (e *StatusError) Error() string {
	return strings.TrimRight(fmt.Sprintf("ax: status %d %s", e.StatusCode, http.StatusText(e.StatusCode)), " ")
}

// PanicError is a panic in an attempt that more than one caller shares, or in a
// submitted task: each of them gets it as an error. A lone Do panics instead,
// as the call itself would have.
type PanicError struct {
	// Value is what was panicked with.
	Value any
	// Stack is the stack of the goroutine that panicked, as of debug.Stack.
	Stack []byte
}

// Error is the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("ax: panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
