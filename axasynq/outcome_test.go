package axasynq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

func TestErrorOf(t *testing.T) {
	const retry, skip = "retry", "skip"
	sent := func(err error) error { return &ax.Error{Op: "attempt", Attempts: 1, Err: err} }
	unsent := func(err error) error { return &ax.Error{Op: "admit", Err: err, RetryAfter: 7 * time.Second} }
	for _, c := range []struct {
		name    string
		r       ax.Request
		err     error
		how     string
		failure bool
		after   time.Duration // 0 = not known
	}{
		{"network", ax.Request{}, sent(errors.New("connection reset")), retry, true, 0},
		{"network, NoRetry", ax.Request{NoRetry: true}, sent(errors.New("connection reset")), skip, true, 0},
		{"attempt timeout", ax.Request{}, sent(context.DeadlineExceeded), retry, true, 0},
		{"certificate", ax.Request{}, sent(&tls.CertificateVerificationError{Err: errors.New("bad")}), skip, true, 0},
		{"breaker", ax.Request{}, unsent(ax.ErrCircuitOpen), retry, false, 7 * time.Second},
		{"breaker, NoRetry", ax.Request{NoRetry: true}, unsent(ax.ErrCircuitOpen), retry, false, 7 * time.Second},
		{"queue full", ax.Request{}, unsent(ax.ErrQueueFull), retry, false, 7 * time.Second},
		{"queue timeout", ax.Request{}, &ax.Error{Err: ax.ErrQueueTimeout}, retry, false, 0},
		{"evicted", ax.Request{}, unsent(ax.ErrEvicted), retry, false, 7 * time.Second},
		{"budget", ax.Request{}, unsent(ax.ErrBudget), retry, false, 7 * time.Second},
		{"would wait", ax.Request{}, unsent(ax.ErrWouldWait), retry, false, 7 * time.Second},
		{"cooldown", ax.Request{}, unsent(ax.ErrCooldown), retry, false, 7 * time.Second},
		{"deadline", ax.Request{}, unsent(ax.ErrWouldExceedDeadline), retry, false, 7 * time.Second},
		{"closed", ax.Request{}, unsent(ax.ErrClosed), retry, false, 7 * time.Second},
		{"closed in flight", ax.Request{}, sent(fmt.Errorf("%w: %w", context.Canceled, ax.ErrClosed)), retry, true, 0},
		{"closed in flight, NoRetry", ax.Request{NoRetry: true}, sent(fmt.Errorf("%w: %w", context.Canceled, ax.ErrClosed)), skip, true, 0},
		{"closed, NoRetry", ax.Request{NoRetry: true}, unsent(ax.ErrClosed), retry, false, 7 * time.Second},
		{"grant lost, NoRetry", ax.Request{NoRetry: true}, sent(ax.ErrGrantLost), skip, true, 0},
		{"grant lost before it was sent, NoRetry", ax.Request{NoRetry: true}, unsent(ax.ErrGrantLost), retry, false, 7 * time.Second},
		{"grant lost", ax.Request{}, sent(ax.ErrGrantLost), retry, false, 0},
		{"its retry refused", ax.Request{}, sent(errors.Join(errors.New("connection reset"), ax.ErrCircuitOpen)), retry, true, 0},
		{"alternate sent", ax.Request{}, unsent(errors.Join(ax.ErrCircuitOpen, sent(errors.New("connection reset")))), retry, true, 7 * time.Second},
		{"alternate answered", ax.Request{}, unsent(errors.Join(ax.ErrCircuitOpen, &ax.StatusError{StatusCode: 503})), retry, true, 7 * time.Second},
		{"alternate answered, NoRetry", ax.Request{NoRetry: true}, unsent(errors.Join(ax.ErrCircuitOpen, &ax.StatusError{StatusCode: 503})), skip, true, 0},
		{"alternate refused", ax.Request{}, unsent(errors.Join(ax.ErrCircuitOpen, unsent(ax.ErrQueueFull))), retry, false, 7 * time.Second},
		{"no time left", ax.Request{}, unsent(context.DeadlineExceeded), retry, false, 7 * time.Second},
		{"no time left, NoRetry", ax.Request{NoRetry: true}, unsent(context.DeadlineExceeded), retry, false, 7 * time.Second},
		{"unknown lane, NoRetry", ax.Request{NoRetry: true}, unsent(errors.New("no lane")), skip, true, 0},
		{"superseded, nested", ax.Request{}, sent(ax.ErrSuperseded), retry, true, 0}, // never dropped
		{"tag", ax.Request{}, sent(ax.ErrCanceledByTag), skip, true, 0},
		{"unknown lane", ax.Request{}, unsent(errors.New("no lane")), retry, true, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := errorOf(&c.r, c.err)
			require.Equal(t, c.how == skip, errors.Is(got, asynq.SkipRetry))
			require.NotErrorIs(t, got, asynq.RevokeTask)
			require.Equal(t, c.failure, IsFailure(got))
			require.ErrorIs(t, got, errors.Unwrap(c.err))
			if c.how != retry {
				return
			}
			require.EqualError(t, got, c.err.Error())
			switch d := RetryDelay(0, got, nil); {
			case c.after > 0:
				require.Equal(t, c.after, d)
			case !c.failure:
				require.GreaterOrEqual(t, d, 5*time.Second)
				require.Less(t, d, 10*time.Second)
			default:
				require.GreaterOrEqual(t, d, 15*time.Second) // asynq's own
			}
		})
	}
	require.False(t, IsFailure(nil))
	require.True(t, IsFailure(asynq.ErrLeaseExpired))
	require.Equal(t, 24*time.Hour, RetryDelay(0, &outcome{after: 1 << 60}, nil))
}

func TestAnswerOf(t *testing.T) {
	for _, c := range []struct {
		status int
		how    string
	}{
		{200, ""}, {204, ""}, {304, ""}, {399, ""}, {400, "skip"}, {404, "skip"}, {408, "skip"}, {429, "retry"},
		{500, "retry"}, {501, "skip"}, {503, "retry"}, {599, "retry"},
	} {
		resp := &ax.Response{Response: &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {"3"}}}}
		err := answerOf(&ax.Request{}, resp)
		require.Equal(t, c.how == "", err == nil, c.status)
		require.Equal(t, c.how == "skip", errors.Is(err, asynq.SkipRetry), c.status)
		if c.how == "retry" {
			require.True(t, IsFailure(err))
			require.Equal(t, 3*time.Second, RetryDelay(0, err, nil))
			require.ErrorIs(t, answerOf(&ax.Request{NoRetry: true}, resp), asynq.SkipRetry)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		v    string
		want time.Duration
	}{
		{"", 0}, {"0", 0}, {"120", 2 * time.Minute}, {" 7 ", 7 * time.Second}, {"-5", 0}, {"1.5", 0}, {"soon", 0},
		{"99999999999999999999", 24 * time.Hour}, {"86401", 24 * time.Hour},
		{"Fri, 02 Jan 2026 03:04:35 GMT", 30 * time.Second},
		{"Friday, 02-Jan-26 03:04:35 GMT", 30 * time.Second},
		{"Fri Jan  2 03:04:35 2026", 30 * time.Second},
		{"Fri, 02 Jan 2025 03:04:35 GMT", 0},
		{"Fri, 02 Jan 2099 03:04:35 GMT", 24 * time.Hour},
	} {
		require.Equal(t, c.want, retryAfter(http.Header{"Retry-After": {c.v}}, now), "%q", c.v)
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120")
	f.Add("Fri, 02 Jan 2026 03:04:35 GMT")
	f.Fuzz(func(t *testing.T, v string) {
		d := retryAfter(http.Header{"Retry-After": {v}}, time.Unix(0, 0))
		require.True(t, d >= 0 && d <= 24*time.Hour)
	})
}
