package ax

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestErrorText(t *testing.T) {
	secret := &url.Error{Op: "Get", URL: "https://h/p?token=hush", Err: io.ErrUnexpectedEOF}
	for _, tt := range []struct {
		e    Error
		want string
	}{
		{Error{Op: "queue", Method: "GET", URL: "https://h/p", Lane: "h", Owner: "x", Err: queueTimeout(3*time.Second, obstacle{"a slot", "Config.MaxConcurrent"})},
			`ax: GET https://h/p (lane "h", owner "x"): queue: waited 3s in the queue, in the end for a slot: raise QueueTimeout or Config.MaxConcurrent`},
		{Error{Op: "queue", Method: "GET", URL: "https://h/p", Lane: "h", Err: ErrEvicted, bare: true},
			`ax: lane "h": queue: evicted from a full queue by a better-ranked task`},
		{Error{Op: "admit", Method: "POST", URL: "https://h/p", Err: ErrClosed},
			`ax: POST https://h/p: admit: scheduler is closed`},
		{Error{Op: "attempt", Method: "GET", URL: "https://h/p", Lane: "h", Attempts: 1, Err: secret},
			`ax: GET https://h/p (lane "h", 1 attempt): attempt: unexpected EOF`},
		{Error{Op: "attempt", Err: fmt.Errorf("signing: %w", secret)}, `ax: attempt: signing: unexpected EOF`},
		{Error{Op: "attempt", Err: beside(secret, secret)}, `ax: attempt: unexpected EOF; unexpected EOF`},
		{Error{Op: "attempt", Err: errors.Join(io.EOF, secret)}, "ax: attempt: EOF\nunexpected EOF"},
		{Error{Op: "retry", Method: "GET", URL: "https://h/p", Lane: "h", Attempts: 3, RetryAfter: 1200 * time.Millisecond,
			Response: &Response{Response: &http.Response{StatusCode: 503}}, Err: context.Canceled},
			`ax: GET https://h/p (lane "h", 3 attempts, last status 503): retry: context canceled (retry after 1.2s)`},
		{Error{Op: "admit", Err: coolingDown(1200500 * time.Microsecond)}, `ax: admit: same task is cooling down for another 1.201s`},
		{Error{Op: "fallback", Err: &Error{Op: "admit", Err: ErrClosed}}, `ax: fallback: admit: scheduler is closed`},
		{Error{}, `ax`},
	} {
		require.EqualError(t, &tt.e, tt.want)
	}
}

func TestErrorUnwraps(t *testing.T) {
	var e *Error
	err := error(&Error{Op: "queue", Err: queueTimeout(time.Second, obstacle{})})
	require.ErrorAs(t, fmt.Errorf("loading: %w", err), &e)
	require.ErrorIs(t, err, ErrQueueTimeout)
	require.NotErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

func TestErrorTimeout(t *testing.T) {
	timeout := &net.DNSError{IsTimeout: true}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{context.DeadlineExceeded, true},
		{&attemptTimeoutError{time.Second}, true},
		{&idleTimeoutError{time.Second}, true},
		{&deadlineError{left: 1, earliest: 2}, true},
		{queueTimeout(time.Second, obstacle{}), true},
		{ErrQueueTimeout, true},
		{&url.Error{Err: &net.OpError{Err: timeout}}, true},
		{fmt.Errorf("wrapped: %w", timeout), true},
		{&Error{Err: ErrQueueTimeout}, true},
		{context.Canceled, false},
		{canceled(ErrSuperseded, nil), false},
		{&url.Error{Err: io.EOF}, false},
		{ErrQueueFull, false},
		{nil, false},
	} {
		require.Equal(t, tt.want, (&Error{Err: tt.err}).Timeout(), "%v", tt.err)
	}
}

func TestDetails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		is   error
		want string
	}{
		{queueTimeout(1500*time.Millisecond, obstacle{"a token", "Config.Rate"}), ErrQueueTimeout, "ax: waited 1.5s in the queue, in the end for a token: raise QueueTimeout or Config.Rate"},
		{queueFull("h", 5), ErrQueueFull, `ax: queue is full: 5 tasks wait in lane "h": send less, or raise its MaxQueue`},
		{queueFull("", 1024), ErrQueueFull, "ax: queue is full: 1024 tasks wait in all lanes: send less, or raise Config.MaxQueue"},
		{coolingDown(0), ErrCooldown, "ax: same task is still running"},
		{circuitOpen("h", 0), ErrCircuitOpen, `ax: circuit breaker of lane "h" is open`},
		{circuitOpen("h", time.Second), ErrCircuitOpen, `ax: circuit breaker of lane "h" is open for another 1s`},
		{overBudget("team-a", "MaxConcurrent", 0), ErrBudget, `ax: owner "team-a" is over its budget (MaxConcurrent)`},
		{overBudget("team-a", "Rate[0]", 700*time.Microsecond), ErrBudget, `ax: owner "team-a" is over its budget (Rate[0]) for another 700µs`},
		{wouldWait("a slot"), ErrWouldWait, "ax: task would have to wait for a slot"},
		{&deadlineError{left: time.Second, earliest: 3 * time.Second, why: obstacleLaneRate}, ErrWouldExceedDeadline,
			"ax: deadline in 1s passes before the earliest possible start in 3s, which waits for a token of its lane: raise the deadline or the lane's Rate"},
		{&deadlineError{left: time.Second, earliest: NoTimeout, why: obstacleHeld}, ErrWouldExceedDeadline,
			"ax: deadline in 1s passes before the earliest possible start: none is in sight, it waits for the end of Pause"},
		{&deadlineError{left: time.Second, minimum: 2 * time.Second}, ErrWouldExceedDeadline,
			"ax: deadline in 1s leaves less than MinRemaining (2s)"},
		{&deadlineError{left: -time.Second}, ErrWouldExceedDeadline, "ax: deadline passed 1s ago, before a start was possible"},
		{&deadlineError{left: 1, earliest: 2, why: obstaclePause}, context.DeadlineExceeded,
			"ax: deadline in 1ns passes before the earliest possible start in 2ns, which waits for the end of a pause that the server asked for: raise the deadline or send less"},
		{&attemptTimeoutError{2 * time.Second}, context.DeadlineExceeded, "attempt timed out after 2s"},
		{&idleTimeoutError{2 * time.Second}, context.DeadlineExceeded, "body was silent for 2s"},
	} {
		require.EqualError(t, tt.err, tt.want)
		require.ErrorIs(t, tt.err, tt.is)
		require.NotErrorIs(t, tt.err, context.Canceled, tt.want)
	}
	var ne net.Error
	require.ErrorAs(t, error(&attemptTimeoutError{}), &ne)
	require.True(t, ne.Timeout())
	require.ErrorAs(t, error(&idleTimeoutError{}), &ne)
	require.True(t, ne.Timeout())
}

func TestCanceled(t *testing.T) {
	gone := errors.New("page is gone")
	for _, tt := range []struct {
		sentinel, cause error
		want            string
	}{
		{nil, nil, "context canceled"},
		{nil, context.Canceled, "context canceled"},
		{nil, gone, "context canceled: page is gone"},
		{ErrSuperseded, nil, "ax: superseded by a newer task"},
		{ErrSuperseded, context.Canceled, "ax: superseded by a newer task"},
		{ErrSuperseded, ErrSuperseded, "ax: superseded by a newer task"},
		{ErrScopeEnded, gone, "ax: scope has ended: page is gone"},
		{ErrScopeEnded, ErrClosed, "ax: scope has ended: scheduler is closed"},
	} {
		err := canceled(tt.sentinel, tt.cause)
		require.EqualError(t, err, tt.want)
		require.ErrorIs(t, err, context.Canceled)
		for _, e := range []error{tt.sentinel, tt.cause} {
			if e != nil {
				require.ErrorIs(t, err, e)
			}
		}
	}
}

func TestCtxError(t *testing.T) {
	gone := errors.New("page is gone")
	require.NoError(t, ctxError(t.Context()))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	require.Equal(t, context.Canceled, ctxError(ctx))

	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(gone)
	err := ctxError(ctx)
	require.EqualError(t, err, "context canceled: page is gone")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, gone)

	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(canceled(ErrScopeEnded, gone))
	require.EqualError(t, ctxError(ctx), "ax: scope has ended: page is gone")

	ctx, stop := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), gone)
	defer stop()
	err = ctxError(ctx)
	require.EqualError(t, err, "context deadline exceeded: page is gone")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, gone)
}

func TestBeside(t *testing.T) {
	require.NoError(t, beside(nil, nil))
	require.Equal(t, io.EOF, beside(io.EOF, nil))
	require.Equal(t, ErrRetryBudget, beside(nil, ErrRetryBudget))
	err := beside(io.EOF, ErrRetryBudget)
	require.EqualError(t, err, "EOF; retry budget is used up")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, ErrRetryBudget)
}

func TestFlatten(t *testing.T) {
	require.NoError(t, flatten(nil))
	require.Equal(t, io.EOF, flatten(io.EOF))
	require.Equal(t, io.EOF, flatten(&url.Error{Err: &url.Error{Err: io.EOF}}))
	empty := &url.Error{Op: "Get"}
	require.Same(t, empty, flatten(empty))
}

func TestStatusAndPanicErrors(t *testing.T) {
	require.EqualError(t, &StatusError{StatusCode: 404, Body: []byte("secret")}, "ax: status 404 Not Found")
	require.EqualError(t, &StatusError{StatusCode: 799}, "ax: status 799")

	err := error(&PanicError{Value: io.EOF, Stack: []byte("goroutine 1 [running]:")})
	require.EqualError(t, err, "ax: panic: EOF\n\ngoroutine 1 [running]:")
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, errors.Unwrap(&PanicError{Value: "boom"}))
}
