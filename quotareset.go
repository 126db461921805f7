package ax

import (
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxReset is the longest time to a reset that is believed.
const maxReset = 24 * time.Hour

// quotaReset is how long until the server's quota is renewed, and whether the
// answer says that nothing of it remains. It reads RateLimit, in the forms of
// the later and the earlier drafts of draft-ietf-httpapi-ratelimit-headers, and
// the pairs of fields …-Remaining and …-Reset that came before it. Of several
// quotas that are used up, the last to be renewed counts. A reset that makes no
// sense or is over a day away is ignored.
func quotaReset(h http.Header, now time.Time) (time.Duration, bool) {
	if !mentionsQuota(h) {
		return 0, false
	}
	server := serverTime(h, now)
	longest := listReset(strings.Join(fields(h, "Ratelimit"), ","), server)
	for _, prefix := range [...]string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		d := untilReset(field(h, prefix+"Remaining"), field(h, prefix+"Reset"), server)
		longest = max(longest, d)
	}
	return longest, longest > 0
}

// mentionsQuota tells, cheaply, whether any field could be about a quota: most
// answers have none.
func mentionsQuota(h http.Header) bool {
	for name := range h {
		if c := name[:min(1, len(name))]; (c == "R" || c == "r" || c == "X" || c == "x") && strings.Contains(strings.ToLower(name), "limit") {
			return true
		}
	}
	return false
}

// listReset reads a RateLimit field: a list of quotas, each with its
// parameters ("burst";r=0;t=5, "day";r=9;t=900), or a dictionary that describes
// one (limit=9, remaining=0, reset=5).
func listReset(v string, server time.Time) time.Duration {
	var longest time.Duration
	var remaining, reset string // of the dictionary
	if strings.Count(strings.ReplaceAll(v, `\"`, ""), `"`)%2 != 0 {
		return 0 // a string without an end: nothing of it can be trusted
	}
	for item := range splitOutsideQuotes(v, ',') {
		var r, t string
		for param := range splitOutsideQuotes(item, ';') {
			name, value, _ := strings.Cut(strings.Trim(param, " \t"), "=")
			switch strings.ToLower(name) {
			case "r":
				r = value
			case "t":
				t = value
			case "remaining":
				remaining = value
			case "reset":
				reset = value
			}
		}
		longest = max(longest, untilReset(r, t, server))
	}
	return max(longest, untilReset(remaining, reset, server))
}

// splitOutsideQuotes yields the parts of s between separators, which count as
// text inside a quoted string (RFC 9651, 3.3.3).
func splitOutsideQuotes(s string, sep byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == sep && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// untilReset is the time from the server's now to a reset, 0 unless nothing
// remains and the reset is in the future and within a day. APIs write it as
// seconds from now, as seconds since 1970 or as milliseconds since 1970: the
// three are so far apart that at most one of them makes sense.
func untilReset(remaining, reset string, server time.Time) time.Duration {
	if left, ok := number(remaining); !ok || left != 0 {
		return 0
	}
	const latest = 1e13 // milliseconds: beyond it no reading is within a day of now, and conversions might overflow
	n, ok := number(reset)
	if !ok || n > latest {
		return 0
	}
	secs, frac := math.Modf(n)
	for _, d := range [...]time.Duration{
		time.Duration(min(n, 2*maxReset.Seconds()) * float64(time.Second)),
		time.Unix(int64(secs), int64(frac*1e9)).Sub(server),
		time.UnixMilli(int64(n)).Sub(server),
	} {
		if d > 0 && d <= maxReset {
			return d
		}
	}
	return 0
}

// number parses digits, with a fraction or without.
func number(v string) (float64, bool) {
	if strings.ContainsFunc(v, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }) {
		return 0, false
	}
	n, err := strconv.ParseFloat(v, 64)
	return n, err == nil
}
