package ax

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// header is made from "Name", "value" pairs.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestF3RetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 400e6, time.UTC)
	const s, longest = time.Second, time.Duration(math.MaxInt64)
	for _, c := range []struct {
		h    http.Header
		want time.Duration // 0: none
	}{
		{header(), 0},
		{header("Retry-After", "120"), 120 * s},
		{header("Retry-After", " 007\t"), 7 * s},
		{header("Retry-After", "3", "Retry-After", "9"), 3 * s},
		{header("Retry-After", "x", "Retry-After", "9"), 0},
		{http.Header{"retry-after": {"4"}}, 4 * s},
		{header("Retry-After", "0"), 0},
		{header("Retry-After", "-5"), 0},
		{header("Retry-After", "+5"), 0},
		{header("Retry-After", "1.5"), 0},
		{header("Retry-After", "1e3"), 0},
		{header("Retry-After", "3, 4"), 0},
		{header("Retry-After", ""), 0},
		{header("Retry-After", "soon"), 0},
		{header("Retry-After", "9223372036"), 9223372036 * s},
		{header("Retry-After", "9223372037"), longest},
		{header("Retry-After", "99999999999999999999999999"), longest},
		{header("Retry-After", "Mon, 30 Nov 2026 02:00:05 GMT"), 4600 * time.Millisecond},
		{header("Retry-After", "Monday, 30-Nov-26 02:00:05 GMT"), 4600 * time.Millisecond},
		{header("Retry-After", "Mon Nov 30 02:00:05 2026"), 4600 * time.Millisecond},
		{header("Retry-After", "Tue Dec  1 02:00:00 2026"), 24*time.Hour - 400*time.Millisecond},
		{header("Retry-After", "Mon, 30 Nov 2026 02:00:00 GMT"), 0},
		{header("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT"), 0},
		{header("Retry-After", "Monday, 30-Nov-26 02:00:05 PST"), 0},
		{header("Retry-After", "Mon, 30 Nov 2026 02:00:05 +0000"), 0},
		{header("Retry-After", "2026-11-30T02:00:05Z"), 0},
		{header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), longest},
		// The server's clock is an hour slow; then what a cache kept for 20 s.
		{header("Retry-After", "Mon, 30 Nov 2026 01:00:05 GMT", "Date", "Mon, 30 Nov 2026 01:00:00 GMT"), 5 * s},
		{header("Retry-After", "Mon, 30 Nov 2026 01:00:30 GMT", "Date", "Mon, 30 Nov 2026 01:00:00 GMT", "Age", "20"), 10 * s},
		{header("Retry-After", "Mon, 30 Nov 2026 01:00:05 GMT", "Date", "Mon, 30 Nov 2026 01:00:00 GMT", "Age", "20"), 0},
		{header("Retry-After", "Mon, 30 Nov 2026 02:00:05 GMT", "Date", "yesterday"), 4600 * time.Millisecond},
		{header("Retry-After", "7", "Date", "Mon, 30 Nov 2020 01:00:00 GMT"), 7 * s},
	} {
		d, ok := retryAfter(c.h, now)
		require.Equal(t, c.want, d, "%v", c.h)
		require.Equal(t, c.want > 0, ok, "%v", c.h)
	}
}

func TestCaseH13Dates(t *testing.T) {
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		for frac := time.Duration(0); frac < time.Second; frac += 99 * time.Millisecond {
			now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC).Add(frac)
			for _, name := range []string{"Retry-After", "retry-after"} {
				d, ok := retryAfter(http.Header{name: {now.Add(3 * time.Second).Format(layout)}}, now)
				require.True(t, ok)
				require.True(t, d > 2*time.Second && d <= 3*time.Second, "%v", d)
			}
		}
	}
}

func TestTwoDigitYears(t *testing.T) {
	for now, years := range map[int]map[string]int{
		2026: {"94": 1994, "26": 2026, "69": 2069, "75": 2075, "77": 1977},
		2080: {"80": 2080, "69": 2069, "10": 2110, "31": 2031},
	} {
		for two, want := range years {
			at, ok := httpDate("Sunday, 06-Nov-"+two+" 08:49:37 GMT", time.Date(now, 1, 1, 0, 0, 0, 0, time.UTC))
			require.True(t, ok)
			require.Equal(t, want, at.Year(), "%s in %d", two, now)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "", "", int64(0))
	f.Add("Mon, 30 Nov 2026 02:00:05 GMT", "Mon, 30 Nov 2026 02:00:00 GMT", "99999999999999999999", int64(1e18))
	f.Add("Monday, 30-Nov-26 02:00:05 GMT", "Mon Nov 30 02:00:05 2026", "-1", int64(-1e18))
	f.Fuzz(func(t *testing.T, v, date, age string, now int64) {
		d, ok := retryAfter(http.Header{"Retry-After": {v}, "Date": {date}, "Age": {age}}, time.Unix(0, now))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.Equal(t, d > 0, ok)
	})
}
