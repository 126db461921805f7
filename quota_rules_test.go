package ax_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestF4QuotaHeaders: with nothing remaining the lane waits for the reset instead of collecting 429s.
// The bubble's midnight is 946684800 in seconds of the epoch.
func TestF4QuotaHeaders(t *testing.T) {
	rows := []struct {
		name    string
		headers []string
		want    time.Duration
	}{
		{"draft", []string{`RateLimit: "default";r=0;t=5`}, 5 * fsec},
		{"draft with policy", []string{`RateLimit-Policy: "default";q=100;w=60`, `RateLimit: "default";r=0;t=5`}, 5 * fsec},
		{"draft, two quotas, one used up", []string{`RateLimit: "burst";r=0;t=2, "day";r=10;t=20`}, 2 * fsec},
		{"draft, two quotas used up", []string{`RateLimit: "burst";r=0;t=2, "day";r=0;t=20`}, 20 * fsec},
		{"draft, something remains", []string{`RateLimit: "default";r=1;t=5`}, 0},
		{"draft, no reset", []string{`RateLimit: "default";r=0`}, 0},
		{"draft, garbage", []string{`RateLimit: ;;r=0;;t=5;"`}, 0},
		{"draft, negative", []string{`RateLimit: "default";r=0;t=-5`}, 0},
		{"seconds", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"}, 5 * fsec},
		{"epoch", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684805"}, 5 * fsec},
		{"something remains", []string{"X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 5"}, 0},
		{"no reset", []string{"X-RateLimit-Remaining: 0"}, 0},
		{"no remaining", []string{"X-RateLimit-Reset: 5"}, 0},
		{"reset in the past", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684700"}, 0},
		{"reset now", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 0"}, 0},
		{"negative reset", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: -5"}, 0},
		{"garbage", []string{"X-RateLimit-Remaining: none", "X-RateLimit-Reset: 5"}, 0},
		{"garbage reset", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: later"}, 0},
		{"over the cap", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 45"}, 30 * fsec},
		{"epoch over the cap", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684845"}, 30 * fsec},
		{"draft over the cap", []string{`RateLimit: "default";r=0;t=45`}, 30 * fsec},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, ax.Config{}, func(t *tester) {
				t.Server.Reply = fOnce(200, row.headers...)
				require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status())
				if row.want > 0 {
					require.WithinDuration(t, t.start.Add(row.want), fLane(t).PausedUntil, 0)
				} else {
					require.True(t, fLane(t).PausedUntil.IsZero())
				}
				require.Zero(t, t.Do(t.Context(), ax.Request{URL: "http://b.test/"}).At, "one lane only")
				require.Equal(t, row.want, t.Do(t.Context(), fGet("/")).At)
			})
		})
	}
}

// TestF4AbsurdQuotaHeadersCannotCloseALane: ignored or bounded, never waited for.
func TestF4AbsurdQuotaHeadersCannotCloseALane(t *testing.T) {
	for _, reset := range []string{"9223372036854775807", "99999999999999999999999999", "1e300", "NaN", "Inf", "946684800000", "-9223372036854775808"} {
		for _, h := range []string{"X-RateLimit-Reset: " + reset, `RateLimit: "d";r=0;t=` + reset} {
			t.Run(h, func(t *testing.T) {
				bubble(t, ax.Config{}, func(t *tester) {
					t.Server.Reply = fOnce(200, "X-RateLimit-Remaining: 0", h)
					t.Do(t.Context(), fGet("/"))
					require.LessOrEqual(t, t.Do(t.Context(), fGet("/")).At, 30*fsec)
				})
			})
		}
	}
}

func TestF4QuotaOnALastAllowedAnswerSavesThe429s(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{MaxDelay: 10 * fsec}}, func(t *tester) {
		var window time.Duration
		used := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) { // 5 every 4 s, told in its headers
			if h.At >= window+4*fsec {
				window, used = h.At.Truncate(4*fsec), 0
			}
			if used++; used > 5 {
				return reply(429, ""), nil
			}
			left := window + 4*fsec - h.At
			return reply(200, "", "X-RateLimit-Remaining: "+strconv.Itoa(5-used),
				"X-RateLimit-Reset: "+strconv.Itoa(int((left+fsec-1)/fsec))), nil
		}
		for range 20 {
			require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status())
		}
		require.Equal(t, 20, t.Server.Count(), "not one 429")
		require.Zero(t, t.S.Stats().Retries)
	})
}
