package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestF3DelaysWithoutJitterAreExact(t *testing.T) {
	rows := []struct {
		name string
		p    ax.Retry
		want []time.Duration
	}{
		{"doubled", ax.Retry{Max: 3, BaseDelay: 100 * fms}, []time.Duration{0, 100 * fms, 300 * fms, 700 * fms}},
		{"capped", ax.Retry{Max: 3, BaseDelay: 100 * fms, MaxDelay: 150 * fms}, []time.Duration{0, 100 * fms, 250 * fms, 400 * fms}},
		{"cap is base", ax.Retry{Max: 2, BaseDelay: fsec, MaxDelay: fsec}, []time.Duration{0, fsec, 2 * fsec}},
		{"defaults", ax.Retry{}, []time.Duration{0, 200 * fms, 600 * fms}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.p.Jitter = ax.NoJitter
			bubble(t, ax.Config{Retry: &row.p}, func(t *tester) {
				t.Server.Reply = fAnswer(503, "")
				res := t.Do(t.Context(), fGet("/"))
				require.NoError(t, res.Err)
				require.Equal(t, row.want, t.Server.Times())
				require.Equal(t, row.want[len(row.want)-1], res.At)
			})
		})
	}
}

func TestF3JitterStaysInItsBounds(t *testing.T) {
	rows := []struct {
		jitter    ax.Jitter
		low, mean float64 // of the bound
	}{{ax.FullJitter, 0, 0.5}, {ax.EqualJitter, 0.5, 0.75}}
	for _, row := range rows {
		t.Run(fmt.Sprint(row.jitter), func(t *testing.T) {
			p := &ax.Retry{Max: 1, BaseDelay: fsec, Jitter: row.jitter, Budget: 1}
			bubble(t, ax.Config{Retry: p, MaxConcurrent: 1000}, func(t *tester) {
				var cs []<-chan result
				t.Server.Reply = fAnswer(500, "")
				for range 1000 {
					cs = append(cs, t.Go(t.Context(), fGet("/")))
				}
				sum, distinct := time.Duration(0), map[time.Duration]bool{}
				for _, c := range cs {
					r := <-c
					require.NoError(t, r.Err)
					require.Equal(t, 2, r.Resp.Attempts)
					require.GreaterOrEqual(t, r.At, time.Duration(row.low*float64(fsec)))
					require.LessOrEqual(t, r.At, fsec)
					sum += r.At
					distinct[r.At] = true
				}
				require.InDelta(t, row.mean, sum.Seconds()/1000, 0.05)
				require.Greater(t, len(distinct), 900, "the delays differ")
			})
		})
	}
}

// TestF3RetryAfterIsAFloor uses a 502, which pauses no lane, and a 429, which does.
func TestF3RetryAfterIsAFloor(t *testing.T) {
	date := func(layout string) string { // the bubble begins at midnight UTC, on a whole second
		return time.Date(2000, 1, 1, 0, 0, 3, 0, time.UTC).Format(layout)
	}
	rows := []struct {
		name   string
		header []string
		want   time.Duration
	}{
		{"seconds", []string{"Retry-After: 3"}, 3 * fsec},
		{"IMF-fixdate", []string{"Retry-After: " + date(http.TimeFormat)}, 3 * fsec},
		{"RFC 850", []string{"Retry-After: " + date("Monday, 02-Jan-06 15:04:05 GMT")}, 3 * fsec},
		{"asctime", []string{"Retry-After: " + date(time.ANSIC)}, 3 * fsec},
		{"lower case", []string{"retry-after: 3"}, 3 * fsec},
		{"shorter than the own delay", []string{"Retry-After: 0"}, 100 * fms},
		{"the first line counts", []string{"Retry-After: 1", "Retry-After: 5"}, fsec},
		{"a bad first line hides the second", []string{"Retry-After: soon", "Retry-After: 5"}, 100 * fms},
		{"garbage", []string{"Retry-After: 3 minutes"}, 100 * fms},
		{"fraction", []string{"Retry-After: 1.5"}, 100 * fms},
		{"empty", []string{"Retry-After: "}, 100 * fms},
		{"negative", []string{"Retry-After: -5"}, 100 * fms},
		{"past", []string{"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"}, 100 * fms},
	}
	for _, row := range rows {
		for _, status := range []int{429, 502, 503} {
			t.Run(fmt.Sprint(row.name, " ", status), func(t *testing.T) {
				bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
					t.Server.Reply = fScript(fAnswer(status, "", row.header...), fAnswer(200, ""))
					res := t.Do(t.Context(), fGet("/"))
					require.Equal(t, 200, res.Status())
					require.Equal(t, []time.Duration{0, row.want}, t.Server.Times())
				})
			})
		}
	}
}

func TestF3WaitThatIsTooLongIsNotBegun(t *testing.T) {
	rows := []struct {
		name    string
		reply   fReply
		p       ax.Retry
		timeout time.Duration
		status  int // 0: the error
	}{
		{"Retry-After over MaxDelay", fAnswer(503, "last", "Retry-After: 31"), ax.Retry{}, 0, 503},
		{"Retry-After of an hour", fAnswer(429, "last", "Retry-After: 3600"), ax.Retry{MaxDelay: fsec}, 0, 429},
		{"Retry-After beyond every integer", fAnswer(429, "last", "Retry-After: 99999999999999999999999999"), ax.Retry{}, 0, 429},
		{"largest integer of seconds", fAnswer(429, "last", "Retry-After: 9223372036854775807"), ax.Retry{}, 0, 429},
		{"Retry-After past the deadline", fAnswer(503, "last", "Retry-After: 5"), ax.Retry{}, fsec, 503},
		{"own delay past the deadline", fAnswer(500, "last"), ax.Retry{BaseDelay: 3 * fsec}, fsec, 500},
		{"error, own delay past the deadline", fBreak(errFWire), ax.Retry{BaseDelay: 3 * fsec}, fsec, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.p.Jitter = ax.NoJitter
			bubble(t, ax.Config{Retry: &row.p}, func(t *tester) {
				t.Server.Reply = row.reply
				ctx := t.Context()
				if row.timeout > 0 {
					c, cancel := context.WithTimeout(ctx, row.timeout)
					defer cancel()
					ctx = c
				}
				res := t.Do(ctx, fGet("/"))
				require.Zero(t, res.At, "final at once")
				require.Equal(t, 1, t.Server.Count())
				if row.status == 0 {
					require.ErrorIs(t, res.Err, errFWire)
					require.ErrorIs(t, res.Err, ax.ErrWouldExceedDeadline)
					require.NotErrorIs(t, res.Err, context.DeadlineExceeded, "it is the attempt's error")
					return
				}
				if errors.Is(res.Resp.Cause, ax.ErrWouldExceedDeadline) {
					require.ErrorIs(t, res.Resp.Cause, context.DeadlineExceeded)
				} else {
					require.Zero(t, row.timeout)
				}
				require.Equal(t, "last", fBody(t, res))
				require.Equal(t, row.status, res.Status())
			})
		})
	}
}

func TestF3RetryAfterExactlyAtMaxDelayIsWaitedFor(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{Jitter: ax.NoJitter}}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(502, "", "Retry-After: 30"), fAnswer(200, ""))
		require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status())
		require.Equal(t, []time.Duration{0, 30 * fsec}, t.Server.Times())
	})
}
