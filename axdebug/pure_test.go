package axdebug

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://api.example/a":                   "https://api.example/a",
		"https://u:p@api.example/a":               "https://api.example/a",
		"https://api.example/a?k=v&k=w&flag#frag": "https://api.example/a?k=xxxxx&k=xxxxx&flag",
		"https://api.example/a%2Fb?k=a%20b":       "https://api.example/a%2Fb?k=xxxxx",
		"https://api.example/?k=v=w":              "https://api.example/?k=xxxxx",
		"https://api.example/?k=xxxxx":            "https://api.example/?k=xxxxx",
		"https://api.example/%zz?k=v":             "xxxxx",
		"http://[::1]:8080/?token=secret&&x=1":    "http://[::1]:8080/?token=xxxxx&&x=xxxxx",
	} {
		require.Equal(t, want, redactURL(raw), raw)
	}
}

func FuzzRedactURL(f *testing.F) {
	f.Add("https://api.example/a", "user", "name", "value")
	f.Fuzz(func(t *testing.T, base, user, name, value string) {
		const secret = "pl4nt3d"
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || strings.Contains(base, secret) || strings.Contains(user+name, secret) {
			return
		}
		u.User = url.UserPassword(user, secret)
		u.RawQuery = url.Values{name: {secret + value}}.Encode()
		require.NotContains(t, redactURL(u.String()), secret)
	})
}

func TestErrorText(t *testing.T) {
	task := ax.Must(ax.Request{URL: "https://user:passw0rd@api.example/a?token=s3cr3t%2F1&n=ab"}.Task())
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"none":        {nil, ""},
		"plain":       {errors.New("connection reset"), "connection reset"},
		"first line":  {errors.New("one\ntwo"), "one"},
		"its URL":     {fmt.Errorf("get %s: no", task.URL()), "get https://api.example/a?token=xxxxx&n=xxxxx: no"},
		"another URL": {errors.New(`parse "http://u:p@h.example/?a=b": no`), `parse "http://h.example/?a=xxxxx": no`},
		"query value": {errors.New("token s3cr3t/1 or s3cr3t%2F1 for passw0rd"), "token xxxxx or xxxxx for xxxxx"},
		"short value": {errors.New("about n"), "about n"},
		"url.Error":   {&url.Error{Op: "Get", URL: task.URL(), Err: errors.New("EOF")}, `Get "https://api.example/a?token=xxxxx&n=xxxxx": EOF`},
		"of ax":       {&ax.Error{Op: "queue", Method: "GET", URL: "x", Lane: "api", Err: ax.ErrQueueTimeout}, "queue: waited too long in the queue"},
		"panic":       {&ax.PanicError{Value: "s3cr3t", Stack: []byte("stack")}, "ax: panic in the attempt"},
		"long":        {errors.New(strings.Repeat("é", 400)), strings.Repeat("é", 150) + "…"},
	} {
		require.Equal(t, tt.want, errorText(tt.err, task), name)
	}
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "–", -time.Second: "–", 420 * time.Microsecond: "0.42 ms", 1500 * time.Microsecond: "1.5 ms", 12*time.Millisecond + 900: "12 ms",
		999 * time.Millisecond: "999 ms", time.Second: "1.0 s", 2999 * time.Millisecond: "2.9 s", 59*time.Second + 999*time.Millisecond: "59.9 s",
		time.Minute: "1 m 00 s", 4*time.Minute + 5*time.Second: "4 m 05 s", 130 * time.Minute: "2 h 10 m",
	} {
		require.Equal(t, want, took(d), d.String())
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		require.Equal(t, want, number(n))
	}
	require.Equal(t, []string{"–", "0 %", "0.1 %", "9.9 %", "10 %", "100 %"},
		[]string{percent(0, 0), percent(0, 5), percent(1, 1000), percent(99, 1000), percent(996, 10000), percent(5, 5)})
	require.Equal(t, []string{"12 B", "1.5 KiB", "2.0 MiB"}, []string{size(12), size(1536), size(2 << 20)})
	require.Equal(t, []string{"1 lane", "0 lanes", "1,500 lanes"}, []string{plural(1, "lane"), plural(0, "lane"), plural(1500, "lane")})
	require.Equal(t, "– | 0 / 2.0 ms / 1.0 s", quantiles(ax.Quantiles{})+" | "+quantiles(ax.Quantiles{P95: 2 * time.Millisecond, P99: time.Second}))
}

func TestSetting(t *testing.T) {
	var off *ax.Retry
	for _, tt := range []struct {
		v    any
		want string
	}{
		{nil, "off"}, {off, "off"}, {&ax.Retry{}, "defaults"}, {8, "8"}, {0, "0"}, {math.MaxInt, "no limit"}, {ax.NoLimit, "no limit"},
		{time.Duration(0), "0"}, {1500 * time.Millisecond, "1.5s"}, {ax.NoTimeout, "none"}, {0.25, "0.25"}, {true, "true"},
		{[]ax.Rate(nil), "no limit"}, {ax.PerSecond(5), "5 per 1s"}, {[]ax.Rate{{Limit: 2, Burst: 3}, {Limit: 60, Per: time.Minute}}, "2 per 1s, burst 3, 60 per 1m0s"},
		{ax.Rate{Limit: 1}, "1 per 1s"}, {ax.FullJitter, "full"},
		{&ax.Breaker{Window: 20, FailureRate: 0.5, OpenFor: time.Second, IsFailure: func(ax.Outcome) bool { return true }},
			"Window 20, FailureRate 0.5, OpenFor 1s, IsFailure set"},
	} {
		if tt.v == ax.FullJitter {
			tt.want = ax.FullJitter.String()
		}
		require.Equal(t, tt.want, setting(tt.v))
	}
}

func TestSpelled(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "söka": "söka", "a\xff": `a\xff`, "a\xfe": `a\xfe`, "é\xc3": `é\xc3`, "\ufffd": "\ufffd", "\ufffd\x80b": "\ufffd" + `\x80b`,
	} {
		require.Equal(t, want, spelled(name))
	}
}

func TestNiceTop(t *testing.T) {
	for n, want := range map[int]int{0: 4, 4: 4, 5: 10, 10: 10, 11: 20, 21: 50, 51: 100, 999: 1000, 1001: 2000, math.MaxInt: math.MaxInt} {
		require.Equal(t, want, niceTop(n), n)
	}
}

func TestChart(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	c := chart{since: start.Unix()}
	require.Empty(t, c.points(at(0)), "no second is over yet")

	c.slot(at(0)).started = 3
	c.sample(at(0), 2, 1, 0)
	c.slot(at(2)).failed = 1
	require.Equal(t, []second{
		{at: at(0).Unix(), started: 3, sampled: true, active: 2, queued: 1},
		{at: at(1).Unix(), active: 2, queued: 1},
		{at: at(2).Unix(), failed: 1, active: 2, queued: 1},
	}, c.points(at(3)), "gauges stand until the next sample")

	c.sample(at(300), 5, 0, 0)
	points := c.points(at(301))
	require.Len(t, points, chartSpan)
	require.Equal(t, second{at: at(1).Unix()}, points[0], "the slot of second 0 was used again")
	require.Equal(t, 5, points[299].active)
	require.Zero(t, c.points(at(2000))[0].failed, "old slots are empty")
}

func TestRenderingIsShared(t *testing.T) {
	var rs renderings
	made := 0
	render := func(f filter) []byte {
		made++
		return []byte(f.Lane)
	}
	a, leaveA := rs.join(filter{Lane: "x"})
	b, leaveB := rs.join(filter{Lane: "x"})
	c, leaveC := rs.join(filter{Lane: "y"})
	start := time.Now()
	require.Equal(t, "x", string(a.since(start, render)))
	require.Equal(t, "x", string(b.since(start, render)))
	require.Equal(t, 1, made)
	require.Equal(t, "y", string(c.since(start, render)))
	require.Equal(t, 2, made)
	b.since(time.Now().Add(time.Hour), render)
	require.Equal(t, 3, made, "it was too old")
	leaveA()
	require.Len(t, rs.all, 2)
	leaveB()
	leaveC()
	require.Empty(t, rs.all)
}

func TestRing(t *testing.T) {
	r := ring[int]{size: 3}
	var lost int
	for i := range 8 {
		if r.put(i) {
			lost++
		}
	}
	var got []int
	for v := range r.each {
		got = append(got, v)
	}
	require.Equal(t, []int{5, 6, 7}, got)
	require.Equal(t, 5, lost)
}

func TestPriorityAndUrgency(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	require.Equal(t, []string{"low", "normal", "important", "urgent", "7", "-3"}, []string{
		priorityName(ax.Low), priorityName(ax.Normal), priorityName(ax.Important), priorityName(ax.Urgent), priorityName(7), priorityName(-3)})
	require.Equal(t, []string{"in 3.0 s", "since 2.0 s", "since 1.0 ms", "–"}, []string{
		urgency(now.Add(3*time.Second), now), urgency(now.Add(-2*time.Second), now), urgency(now, now), urgency(now.Add(-2000*time.Hour), now)})
}

func TestAdviceIsShown(t *testing.T) {
	var b strings.Builder
	v := view{Advice: []adviceRow{{"api", "AttemptTimeout", "30s", "1.2s", "p99 of 5,000 attempts is 0.8 s"}}}
	require.NoError(t, parsePages().content(&b, v))
	require.Contains(t, b.String(), "<b>api</b> AttemptTimeout")
	require.Contains(t, b.String(), "<span>30s</span>")
	require.Contains(t, b.String(), "<strong>1.2s</strong>")
	require.Contains(t, b.String(), "p99 of 5,000 attempts is 0.8 s")
}

func TestKindNames(t *testing.T) {
	names := kindNames()
	require.Equal(t, "submitted", names[0])
	require.Contains(t, names, ax.EventBreakerRamping.String())
	require.NotContains(t, strings.Join(names, ""), "(")
}
