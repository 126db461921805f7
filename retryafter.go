package ax

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter is how long the server asks to wait (RFC 9110, 10.2.3), and whether
// it asks at all: the first Retry-After line counts, as seconds or as a date in
// any of the three forms. What is malformed, negative, past or 0 asks for
// nothing; more than a Duration can hold is the longest Duration.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := field(h, "Retry-After")
	if v == "" {
		return 0, false
	}
	if secs, ok := deltaSeconds(v); ok {
		return secs, secs > 0
	}
	at, ok := httpDate(v, now)
	if !ok {
		return 0, false
	}
	d := at.Sub(serverTime(h, now))
	return max(d, 0), d > 0
}

// serverTime is what the server's clock says now. Its dates are measured against
// that, not against ours: its Date, plus the Age that a cache on the way gives
// it (RFC 9111, 4.2.3). Without a Date it is now.
func serverTime(h http.Header, now time.Time) time.Time {
	date, ok := httpDate(field(h, "Date"), now)
	if !ok {
		return now
	}
	age, _ := deltaSeconds(field(h, "Age"))
	return date.Add(age)
}

// field is the first line of a header field, trimmed; name is canonical. A header
// that was not made by net/http may have its name in lower case.
func field(h http.Header, name string) string {
	values := fields(h, name)
	if len(values) == 0 {
		return ""
	}
	return strings.Trim(values[0], " \t")
}

func fields(h http.Header, name string) []string {
	if values := h[name]; len(values) > 0 {
		return values
	}
	var room [32]byte // most answers have no such field: to find that out costs no memory
	lower := append(room[:0], name...)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	return h[string(lower)]
}

// deltaSeconds parses digits (RFC 9110, 10.2.3), saturating.
func deltaSeconds(v string) (time.Duration, bool) {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, true
}

// httpDate parses the three forms of a date (RFC 9110, 5.6.7): IMF-fixdate, RFC
// 850 and asctime, all in GMT.
func httpDate(v string, now time.Time) (time.Time, bool) {
	const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"
	for _, layout := range [...]string{http.TimeFormat, rfc850, time.ANSIC} {
		t, err := time.Parse(layout, v)
		if err != nil {
			continue
		}
		if layout == rfc850 {
			t = nearCentury(t, now)
		}
		return t, true
	}
	return time.Time{}, false
}

// nearCentury puts a date whose year has two digits into the century that RFC
// 9110 means: never more than 50 years ahead of now.
func nearCentury(t, now time.Time) time.Time {
	horizon := now.AddDate(50, 0, 0)
	for t.After(horizon) {
		t = t.AddDate(-100, 0, 0)
	}
	for next := t.AddDate(100, 0, 0); !next.After(horizon); next = t.AddDate(100, 0, 0) {
		t = next
	}
	return t
}
