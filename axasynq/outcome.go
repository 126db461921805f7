package axasynq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/axsched/ax"
	"github.com/hibiken/asynq"
)

// outcome is what Handler tells asynq of a task that is to be done again.
type outcome struct {
	err     error
	after   time.Duration // when, as far as it is known; 0 = not
	refused bool          // it did not fail, its turn did not come
}

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

// IsFailure is the IsFailure of an asynq.Config. Without it asynq counts every
// error against a task's retries; with it those do not count by which the
// scheduler refused a task that then was not sent: breaker open, queue full or too
// slow, evicted, over budget, cooling down, deadline out of reach or gone, closed. A
// governor's grant that was lost does not count either. What was sent and failed
// counts, also if ax would not send it another time.
//
// Asynq asks it only while retries are left: with asynq.MaxRetry(0) a refusal
// archives the task as any error does.
func IsFailure(err error) bool {
	if o, ok := errors.AsType[*outcome](err); ok {
		return !o.refused
	}
	return err != nil
}

// RetryDelay is the RetryDelayFunc of an asynq.Config. It is what the server asked
// for by Retry-After, or the scheduler by Error.RetryAfter, up to a day; for other
// refusals 5 to 10 s; and asynq's default, growing with n, for everything else.
func RetryDelay(n int, err error, t *asynq.Task) time.Duration {
	o, ok := errors.AsType[*outcome](err)
	switch {
	case ok && o.after > 0:
		return min(o.after, maxRetryAfter)
	case ok && o.refused:
		return 5*time.Second + rand.N(5*time.Second)
	}
	return asynq.DefaultRetryDelayFunc(n, err, t)
}

// maxRetryAfter keeps a hostile header from putting a task off for ever.
const maxRetryAfter = 24 * time.Hour

// errorOf is an error of Do as asynq is to understand it.
func errorOf(r *ax.Request, err error) error {
	e := new(ax.Error)
	errors.As(err, &e)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, ax.ErrCanceledByTag), errors.Is(err, ax.ErrScopeEnded), badCertificate:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	case r.NoRetry && (sent(err) || !refused(err)): // whatever ended it
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	case refused(err):
		return &outcome{err: err, after: e.RetryAfter, refused: true}
	}
	return &outcome{err: err, after: e.RetryAfter}
}

// refused tells whether it was ax that would not send. Of a task that was sent, the
// refusal of a retry stands beside what it failed of, and is no excuse for that.
func refused(err error) bool {
	if errors.Is(err, ax.ErrGrantLost) {
		return true // the attempt was ended for the governor's sake
	}
	if sent(err) {
		return false
	}
	for _, refusal := range [...]error{
		ax.ErrCircuitOpen, ax.ErrQueueFull, ax.ErrQueueTimeout, ax.ErrEvicted, ax.ErrBudget, ax.ErrWouldWait,
		ax.ErrCooldown, ax.ErrWouldExceedDeadline, ax.ErrClosed,
		context.DeadlineExceeded, context.Canceled, // while it waited
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// sent tells whether anything was sent for a task, by itself or by an alternate of its
// Fallback, whose error or status stands beside its own.
func sent(err error) bool {
	switch e := err.(type) {
	case *ax.Error:
		return e.Attempts > 0 || sent(e.Err)
	case *ax.StatusError:
		return true
	case interface{ Unwrap() error }:
		return sent(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), sent)
	}
	return false
}

// answerOf is what a status means for a stored task, as ax has it: 429 and 5xx but
// 501 are worth another try, other errors of 4xx and 501 are not.
func answerOf(r *ax.Request, resp *ax.Response) error {
	status := resp.StatusCode
	if status < 400 {
		return nil
	}
	err := fmt.Errorf("axasynq: answered %s", strings.TrimSpace(strconv.Itoa(status)+" "+http.StatusText(status)))
	retryable := status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented
	if !retryable || r.NoRetry {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return &outcome{err: err, after: retryAfter(resp.Header, time.Now())}
}

// retryAfter is the Retry-After of an answer (RFC 9110, section 10.2.3): seconds or
// a date. 0 = none, or one that says nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.Atoi(v)
		if err != nil || seconds > int(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
