package ax

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// detailError is a sentinel with the numbers of the case. The text is made when
// it is read: most refusals are counted, not printed.
type detailError struct {
	sentinel error
	format   string
	args     []any
}

func (e *detailError) Error() string { return "ax: " + fmt.Sprintf(e.format, e.args...) }
func (e *detailError) Unwrap() error { return e.sentinel }

// queueTimeout is ErrQueueTimeout after waiting for d.
func queueTimeout(d time.Duration, what obstacle) error {
	return &detailError{ErrQueueTimeout, "waited %s in the queue, in the end for %s: raise QueueTimeout or %s", []any{briefly(d), what.name, what.remedy}}
}

// leftError is err, the end of a task that was left while it waited.
type leftError struct {
	error
	waited time.Duration
	what   string
}

func (e *leftError) Error() string {
	return fmt.Sprintf("%v after %s in the queue, waiting for %s", e.error, briefly(e.waited), e.what)
}

func (e *leftError) Unwrap() error { return e.error }

// queueFull is ErrQueueFull of a lane that holds limit waiting tasks; with lane
// "" of the whole scheduler.
func queueFull(lane string, limit int) error {
	if lane == "" {
		return &detailError{ErrQueueFull, "queue is full: %d tasks wait in all lanes: send less, or raise Config.MaxQueue", []any{limit}}
	}
	return &detailError{ErrQueueFull, "queue is full: %d tasks wait in lane %q: send less, or raise its MaxQueue", []any{limit, lane}}
}

// coolingDown is ErrCooldown for another d; d <= 0: while the same task runs.
func coolingDown(d time.Duration) error {
	if d <= 0 {
		return &detailError{ErrCooldown, "same task is still running", nil}
	}
	return &detailError{ErrCooldown, "same task is cooling down for another %s", []any{briefly(d)}}
}

// circuitOpen is ErrCircuitOpen of a lane that probes in d; d <= 0: not known.
func circuitOpen(lane string, d time.Duration) error {
	if d <= 0 {
		return &detailError{ErrCircuitOpen, "circuit breaker of lane %q is open", []any{lane}}
	}
	return &detailError{ErrCircuitOpen, "circuit breaker of lane %q is open for another %s", []any{lane, briefly(d)}}
}

// overBudget is ErrBudget of an owner. limit names what is used up ("Rate[0]",
// "MaxConcurrent", "MaxQueue"); d is the time until it is free again, <= 0: not
// known.
func overBudget(owner, limit string, d time.Duration) error {
	if d <= 0 {
		return &detailError{ErrBudget, "owner %q is over its budget (%s)", []any{owner, limit}}
	}
	return &detailError{ErrBudget, "owner %q is over its budget (%s) for another %s", []any{owner, limit, briefly(d)}}
}

// wouldWait is ErrWouldWait; what names what it would wait for.
func wouldWait(what string) error {
	return &detailError{ErrWouldWait, "task would have to wait for %s", []any{what}}
}

// deadlineError is ErrWouldExceedDeadline, and context.DeadlineExceeded for
// those who know no ax.
type deadlineError struct {
	left     time.Duration // until the deadline
	earliest time.Duration // until the earliest possible start; NoTimeout = none in sight
	why      obstacle      // what it would have to wait for
	minimum  time.Duration // MinRemaining in force; 0 = none
}

func (e *deadlineError) Error() string {
	switch left := brief(e.left); {
	case e.left <= 0:
		return fmt.Sprintf("ax: deadline passed %s ago, before a start was possible", brief(-e.left))
	case e.left >= e.earliest:
		return fmt.Sprintf("ax: deadline in %s leaves less than MinRemaining (%s)", left, brief(e.minimum))
	case e.earliest == NoTimeout:
		return fmt.Sprintf("ax: deadline in %s passes before the earliest possible start: none is in sight, it waits for %s", left, e.why.name)
	default:
		return fmt.Sprintf("ax: deadline in %s passes before the earliest possible start in %s, which waits for %s: raise the deadline or %s",
			left, brief(e.earliest), e.why.name, e.why.remedy)
	}
}

func (e *deadlineError) Unwrap() []error {
	return []error{ErrWouldExceedDeadline, context.DeadlineExceeded}
}

// attemptTimeoutError ends an attempt that took longer than after: a deadline,
// but not the caller's.
type attemptTimeoutError struct{ after time.Duration }

func (e *attemptTimeoutError) Error() string   { return "attempt timed out after " + brief(e.after) }
func (e *attemptTimeoutError) Timeout() bool   { return true }
func (e *attemptTimeoutError) Temporary() bool { return true } // completes net.Error
func (e *attemptTimeoutError) Is(target error) bool {
	return target == context.DeadlineExceeded
}

// idleTimeoutError ends the reading of a streamed body that was silent for
// longer than after.
type idleTimeoutError struct{ after time.Duration }

func (e *idleTimeoutError) Error() string   { return "body was silent for " + brief(e.after) }
func (e *idleTimeoutError) Timeout() bool   { return true }
func (e *idleTimeoutError) Temporary() bool { return true } // completes net.Error
func (e *idleTimeoutError) Is(target error) bool {
	return target == context.DeadlineExceeded
}

// joinedError is several errors with a text of its own; errors.Is finds each of
// them.
type joinedError struct {
	text string
	errs []error
}

func (e *joinedError) Error() string   { return e.text }
func (e *joinedError) Unwrap() []error { return e.errs }

// canceled is context.Canceled that tells why: by sentinel, and by the cause
// that somebody gave. Either may be nil. errors.Is finds all three.
func canceled(sentinel, cause error) error {
	if sentinel == nil {
		sentinel = context.Canceled
	}
	if cause == nil || errors.Is(sentinel, cause) {
		cause = context.Canceled
	}
	if sentinel == context.Canceled && cause == context.Canceled {
		return context.Canceled
	}
	text := sentinel.Error()
	if cause != context.Canceled {
		text += ": " + plainText(cause)
	}
	return &joinedError{text, []error{sentinel, cause, context.Canceled}}
}

// beside is err with another error that goes with it: why it was not retried, or
// what else was tried. Either may be nil.
func beside(err, other error) error {
	switch {
	case err == nil:
		return other
	case other == nil:
		return err
	}
	return &joinedError{plainText(err) + "; " + plainText(other), []error{err, other}}
}

// ctxError is why ctx ended: its Err, and beside it its Cause if that says
// more. It is nil while ctx has not ended.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil || cause == nil || cause == err:
		return err
	case errors.Is(cause, err):
		return cause
	}
	return &joinedError{err.Error() + ": " + plainText(cause), []error{err, cause}}
}

// flatten takes the *url.Errors off the outside of err: their text repeats the
// method and shows the whole URL, query values included.
func flatten(err error) error {
	for {
		u, ok := err.(*url.Error)
		if !ok || u.Err == nil {
			return err
		}
		err = u.Err
	}
}

// plainText is the text of err without the URLs that *url.Errors anywhere in it
// would show, and without the "ax: " that what it is put into has already said.
func plainText(err error) string {
	text := err.Error()
	walkErrors(err, func(e error) {
		if u, ok := e.(*url.Error); ok && u.Err != nil {
			text = strings.ReplaceAll(text, u.Error(), u.Err.Error())
		}
	})
	return strings.TrimPrefix(text, "ax: ")
}

// serversWords begin the texts in which net/http quotes what a server has sent.
var serversWords = [...]string{
	"malformed HTTP ", "malformed MIME header", "bad Content-Length", "bad trailer key", "unsupported transfer encoding",
	"too many transfer encodings", "unsupported protocol scheme", "server sent GOAWAY", "message cannot contain multiple Content-Length headers",
}

// unquoted is err without what a server has sent: a line of its header may hold a
// secret.
func unquoted(err error) error {
	text := err.Error()
	for _, words := range serversWords {
		if i := strings.Index(text, words); i >= 0 {
			if quote := strings.IndexAny(text[i:], "\"["); quote >= 0 {
				return &unquotedError{err, text[:i+quote] + "…"}
			}
		}
	}
	return err
}

// unquotedError is an error with less of a text.
type unquotedError struct {
	error
	text string
}

func (e *unquotedError) Error() string { return e.text }
func (e *unquotedError) Unwrap() error { return e.error }

// walkErrors calls f with err and all that it wraps, outermost first.
func walkErrors(err error, f func(error)) {
	f(err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			walkErrors(inner, f)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			walkErrors(inner, f)
		}
	}
}

// brief is d as people say it: rounded to the millisecond above one.
func brief(d time.Duration) string {
	if d > time.Millisecond {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// briefly is a duration whose text is brief.
type briefly time.Duration

func (d briefly) String() string { return brief(time.Duration(d)) }
