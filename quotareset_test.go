package ax

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF4QuotaReset(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 250e6, time.UTC)
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	const s = time.Second
	for _, c := range []struct {
		h    http.Header
		want time.Duration // 0: none
	}{
		{header(), 0},
		// RateLimit, later drafts.
		{header("RateLimit", `"default";r=0;t=30`), 30 * s},
		{header("RateLimit", `default; r=0 ;t=30`), 30 * s},
		{header("RateLimit", `"default";r=1;t=30`), 0},
		{header("RateLimit", `"default";r=0`), 0},
		{header("RateLimit", `"default";t=30`), 0},
		{header("RateLimit", `"burst";r=0;t=5, "day";r=9;t=900`), 5 * s},
		{header("RateLimit", `"burst";r=0;t=5`, "RateLimit", `"hour";r=0;t=900;pk=:c2Rm=:`), 900 * s},
		{header("RateLimit", `"a,\";r=9;t=1";t=30;r=0`), 30 * s},
		{header("RateLimit", `"open;r=0;t=30`), 0},
		{http.Header{"ratelimit": {`"default";r=0;t=30`}}, 30 * s},
		// RateLimit, earlier drafts.
		{header("RateLimit", `limit=100, remaining=0, reset=30`), 30 * s},
		{header("RateLimit", `limit=100,remaining=5,reset=30`), 0},
		{header("RateLimit", `remaining=0`), 0},
		// Pairs of fields.
		{header("RateLimit-Remaining", "0", "RateLimit-Reset", "45"), 45 * s},
		{header("RateLimit-Remaining", "3", "RateLimit-Reset", "45"), 0},
		{header("RateLimit-Reset", "45"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "45"), 45 * s},
		{header("x-ratelimit-remaining", "0", "x-ratelimit-reset", "0.5"), s / 2},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(60*s)), 59750 * time.Millisecond},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(60*s)+".5"), 60250 * time.Millisecond},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(60*s)+"125"), 59875 * time.Millisecond},
		{header("X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", in(9*s)), 8750 * time.Millisecond},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(60*s), "Date", "Mon, 30 Nov 2026 02:00:10 GMT"), 50 * s},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "86400"), 24 * time.Hour},
		// Absurd.
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "86401"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(25*time.Hour)), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(-s)), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "0"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "-30"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "soon"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Inf"), 0},
		{header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "99999999999999999999999999999999"), 0},
		{header("X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "30"), 0},
		{header("X-RateLimit-Remaining", "none", "X-RateLimit-Reset", "30"), 0},
		// Several families.
		{header("RateLimit", `"default";r=9;t=30`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "45"), 45 * s},
		{header("RateLimit", `"default";r=0;t=30`, "RateLimit-Remaining", "0", "RateLimit-Reset", "20"), 30 * s},
	} {
		d, ok := quotaReset(c.h, now)
		require.Equal(t, c.want, d, "%v", c.h)
		require.Equal(t, c.want > 0, ok, "%v", c.h)
	}
}

func FuzzQuotaReset(f *testing.F) {
	f.Add(`"default";r=0;t=30`, "0", "30", int64(0))
	f.Add(`limit=9, remaining=0, reset=30`, "0", "1700000000.5", int64(1.7e18))
	f.Add(`"\`, "0", "9e99", int64(-1e18))
	f.Fuzz(func(t *testing.T, list, remaining, reset string, now int64) {
		h := http.Header{"Ratelimit": {list}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}}
		d, ok := quotaReset(h, time.Unix(0, now))
		require.True(t, d >= 0 && d <= 24*time.Hour, "%v", d)
		require.Equal(t, d > 0, ok)
	})
}
