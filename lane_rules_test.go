package ax_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// qRouted requires that each request is started in its lane: by its event, and by the lane's statistics.
func qRouted(t *testing.T, cfg ax.Config, want []qRoute) {
	t.Helper()
	var events qEvents
	cfg.OnEvent = events.add
	bubble(t, cfg, func(t *tester) {
		for i, r := range want {
			before := t.S.Stats().Lanes[r.lane].Attempts
			require.Equal(t, 200, t.Do(t.Context(), r.req).Status())
			started := events.of(ax.EventStarted)
			require.Len(t, started, i+1)
			require.Equal(t, r.lane, started[i].Lane, "%s %s", r.req.Method, r.req.URL)
			require.Equal(t, before+1, t.S.Stats().Lanes[r.lane].Attempts, "attempts of lane %s", r.lane)
		}
	})
}

// qRoute is a request and the lane it belongs to.
type qRoute struct {
	req  ax.Request
	lane string
}

// qRouteOf is the route of "URL" or "METHOD URL".
func qRouteOf(method, url, lane string) qRoute {
	return qRoute{ax.Request{Method: method, URL: url}, lane}
}

func TestLaneOfUnlistedHost(t *testing.T) {
	qRouted(t, ax.Config{}, []qRoute{
		qRouteOf("", "http://api.example.com/x", "api.example.com"),
		qRouteOf("", "http://API.Example.COM/x", "api.example.com"),
		qRouteOf("", "http://a.test:80/", "a.test"),
		qRouteOf("", "https://a.test:443/", "a.test"),
		qRouteOf("", "https://a.test/", "a.test"),
		qRouteOf("", "HTTPS://A.TEST:443/", "a.test"),
		qRouteOf("", "http://a.test:443/", "a.test:443"),
		qRouteOf("", "https://a.test:80/", "a.test:80"),
		qRouteOf("", "http://a.test:8080/", "a.test:8080"),
		qRouteOf("", "http://127.0.0.1:8080/", "127.0.0.1:8080"),
		qRouteOf("", "http://127.0.0.1/", "127.0.0.1"),
		qRouteOf("", "http://localhost/", "localhost"),
		qRouteOf("", "http://[::1]:8080/", "[::1]:8080"),
		qRouteOf("", "http://[::1]:80/", "[::1]"),
		qRouteOf("", "http://user:secret@a.test/", "a.test"),
		qRouteOf("POST", "http://a.test/other/path?q=1", "a.test"),
	})
}

func TestLaneMatch(t *testing.T) {
	lanes := []ax.Lane{
		{Name: "host", Match: []string{"a.test"}},
		{Name: "tree", Match: []string{"a.test/v1/"}},
		{Name: "leaf", Match: []string{"a.test/v1/users"}},
		{Name: "users", Match: []string{"a.test/v1/users/"}},
		{Name: "user", Match: []string{"a.test/v1/users/{id}"}},
		{Name: "me", Match: []string{"a.test/v1/users/me"}},
		{Name: "root", Match: []string{"a.test/v1/users/{$}"}},
		{Name: "post", Match: []string{"POST a.test/v1/users"}},
		{Name: "get", Match: []string{"GET a.test/v1/reports/{name...}"}},
		{Name: "port", Match: []string{"a.test:8443"}},
		{Name: "upper", Match: []string{"B.Test/Path"}},
		{Name: "http", Match: []string{"c.test:80"}},
		{Name: "https", Match: []string{"c.test:443"}},
		{Name: "two", Match: []string{"d.test", "e.test/only"}},
		{Name: "six", Match: []string{"[::1]:9000"}},
		{Name: "delete", Match: []string{"DELETE f.test"}},
	}
	want := []qRoute{
		qRouteOf("", "http://a.test/", "host"),
		qRouteOf("", "http://a.test", "host"),
		qRouteOf("", "http://A.TEST/other", "host"),
		qRouteOf("", "http://a.test:9999/other", "host"), // no port is written, any will do
		qRouteOf("", "https://a.test/other", "host"),
		qRouteOf("", "http://a.test/v1/", "tree"),
		qRouteOf("", "http://a.test/v1/other/deep", "tree"),
		qRouteOf("", "http://a.test/v10", "host"),
		qRouteOf("", "http://a.test/V1/users", "host"), // paths have case
		qRouteOf("", "http://a.test/v1/users", "leaf"),
		qRouteOf("", "http://a.test/v1/users?page=2#top", "leaf"),
		qRouteOf("PUT", "http://a.test/v1/users", "leaf"),
		qRouteOf("POST", "http://a.test/v1/users", "post"),
		qRouteOf("", "http://a.test/v1/users/7", "user"),
		qRouteOf("", "http://a.test/v1/users/a%2Fb", "user"), // one segment
		qRouteOf("", "http://a.test/v1/users/me", "me"),
		qRouteOf("", "http://a.test/v1/users/", "root"),
		qRouteOf("", "http://a.test/v1/users/7/posts", "users"),
		qRouteOf("", "http://a.test/v1/reports/2026/12", "get"),
		qRouteOf("HEAD", "http://a.test/v1/reports/2026/12", "get"), // GET is GET and HEAD, as in http.ServeMux
		qRouteOf("POST", "http://a.test/v1/reports/2026/12", "tree"),
		qRouteOf("", "http://a.test:8443/other", "port"),
		qRouteOf("", "https://a.test:8443/", "port"),
		qRouteOf("", "http://b.test/Path", "upper"),
		qRouteOf("", "http://b.test/path", "b.test"),
		qRouteOf("", "http://b.test/Path/deeper", "b.test"),
		qRouteOf("", "http://c.test/", "http"), // the port that is not written in the URL is the scheme's
		qRouteOf("", "https://c.test/", "https"),
		qRouteOf("", "https://c.test:80/", "http"),
		qRouteOf("", "http://c.test:81/", "c.test:81"),
		qRouteOf("", "http://d.test/any", "two"),
		qRouteOf("", "http://e.test/only", "two"),
		qRouteOf("", "http://e.test/", "e.test"),
		qRouteOf("", "http://sub.d.test/", "sub.d.test"), // a host is the whole host, not a suffix
		qRouteOf("", "http://[::1]:9000/", "six"),
		qRouteOf("", "http://[::1]:9001/", "[::1]:9001"),
		qRouteOf("DELETE", "http://f.test/x", "delete"),
		qRouteOf("", "http://f.test/x", "f.test"),
	}
	t.Run("as written", func(t *testing.T) { qRouted(t, ax.Config{Lanes: lanes}, want) })
	t.Run("reversed", func(t *testing.T) {
		reversed := slices.Clone(lanes)
		slices.Reverse(reversed)
		qRouted(t, ax.Config{Lanes: reversed}, want)
	})
}

// Two patterns of which neither is the more specific would leave the lane to chance.
func TestLaneMatchContradictions(t *testing.T) {
	tests := map[string][]string{
		"same pattern twice":      {"a.test", "a.test"},
		"same but for case":       {"a.test", "A.TEST"},
		"overlap":                 {"a.test/{x}/b", "a.test/a/{y}"},
		"empty":                   {""},
		"method only":             {"GET "},
		"no host":                 {"/path"},
		"unclosed wildcard":       {"a.test/{x"},
		"wildcard in mid-segment": {"a.test/x{y}"},
	}
	for name, patterns := range tests {
		t.Run(name, func(t *testing.T) {
			var cfg ax.Config
			for i, p := range patterns {
				cfg.Lanes = append(cfg.Lanes, ax.Lane{Name: "l" + string(rune('0'+i)), Match: []string{p}})
			}
			_, err := ax.New(nil, cfg)
			require.ErrorContains(t, err, "Match[0]")
			require.ErrorContains(t, err, "Lanes[")
		})
	}
}

func TestNamedLane(t *testing.T) {
	lanes := []ax.Lane{
		{Name: "batch", MaxConcurrent: 1},
		{Name: "api", Match: []string{"a.test"}},
	}
	t.Run("a name wins over pattern and host", func(t *testing.T) {
		qRouted(t, ax.Config{Lanes: lanes}, []qRoute{
			{ax.Request{URL: at("/"), Lane: "batch"}, "batch"},
			{ax.Request{URL: "http://b.test/", Lane: "batch"}, "batch"},
			{ax.Request{URL: "http://b.test/", Lane: "api"}, "api"},
			{ax.Request{URL: at("/")}, "api"},
			{ax.Request{URL: at("/"), Lane: "b.test"}, "b.test"}, // an unseen host
		})
	})
	t.Run("by hint", func(t *testing.T) {
		bubble(t, ax.Config{Lanes: lanes}, func(t *tester) {
			ctx := ax.ContextWith(t.Context(), ax.Hints{Lane: "batch"})
			require.Equal(t, 200, t.Do(ctx, ax.Request{URL: at("/")}).Status())
			require.Equal(t, uint64(1), t.S.Stats().Lanes["batch"].Attempts)
			require.Equal(t, 200, t.Do(ctx, ax.Request{URL: at("/"), Lane: "api"}).Status())
			require.Equal(t, uint64(1), t.S.Stats().Lanes["api"].Attempts)
		})
	})
	t.Run("unknown name", func(t *testing.T) {
		bubble(t, ax.Config{Lanes: lanes}, func(t *tester) {
			require.Error(t, t.Do(t.Context(), ax.Request{URL: at("/"), Lane: "nope"}).Err)
			require.Zero(t, t.Server.Count())
			require.NotContains(t, t.S.Stats().Lanes, "nope")
		})
	})
	t.Run("its gate holds for all hosts in it", func(t *testing.T) {
		bubble(t, ax.Config{Lanes: lanes}, func(t *tester) {
			t.Server.Reply = after(time.Second, 200, "")
			qOK(t, qSubmit(t,
				ax.Request{URL: at("/"), Lane: "batch"}, ax.Request{URL: "http://b.test/", Lane: "batch"},
				ax.Request{URL: at("/free")})...)
			require.Equal(t, []time.Duration{0, 0, time.Second}, t.Server.Times())
		})
	})
	t.Run("a host lane is the same by name and by host", func(t *testing.T) {
		bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
			t.Server.Reply = after(time.Second, 200, "")
			qOK(t, qSubmit(t, ax.Request{URL: at("/"), Lane: "b.test"}, ax.Request{URL: "http://b.test/"})...)
			require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
		})
	})
}

// Each lane has limits of its own; the scheduler's hold for all of them together.
func TestLaneLimits(t *testing.T) {
	three := func(t *tester, host string) []*ax.Call {
		u := "http://" + host + "/" + host
		return qSubmit(t, ax.Request{URL: u}, ax.Request{URL: u}, ax.Request{URL: u})
	}
	timesOf := func(t *tester, host string) (ts []time.Duration) {
		for _, h := range t.Server.Hits() {
			if h.URL.Host == host {
				ts = append(ts, h.At)
			}
		}
		return ts
	}
	const s = time.Second
	tests := []struct {
		name       string
		cfg        ax.Config
		a, b, c, d []time.Duration
	}{
		{"none", ax.Config{}, qRepeat(0, 3), qRepeat(0, 3), qRepeat(0, 3), qRepeat(0, 3)},
		{"gates", ax.Config{
			Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 2}, {Name: "b", Match: []string{"b.test"}}},
			Hosts: &ax.Lane{MaxConcurrent: 1},
		}, []time.Duration{0, 0, s}, qRepeat(0, 3), qEvery(0, s, 3), qEvery(0, s, 3)},
		{"rates", ax.Config{
			Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, Rate: []ax.Rate{{Limit: 2, Per: 3 * s}}}},
			Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: 2 * s}}},
		}, []time.Duration{0, 0, 3 * s}, qEvery(0, 2*s, 3), qEvery(0, 2*s, 3), qEvery(0, 2*s, 3)},
		{"two hosts in one lane", ax.Config{
			Lanes: []ax.Lane{{Name: "ab", Match: []string{"a.test", "b.test"}, MaxConcurrent: 3}},
		}, qRepeat(0, 3), qRepeat(s, 3), qRepeat(0, 3), qRepeat(0, 3)},
		{"the scheduler's gate over all", ax.Config{MaxConcurrent: 4, Hosts: &ax.Lane{MaxConcurrent: 2}},
			[]time.Duration{0, 0, s}, []time.Duration{0, 0, s}, []time.Duration{s, s, 2 * s}, []time.Duration{2 * s, 2 * s, 3 * s}},
		{"the scheduler's rate over all", ax.Config{Rate: []ax.Rate{{Limit: 6, Per: s}}},
			qRepeat(0, 3), qRepeat(0, 3), qRepeat(s, 3), qRepeat(s, 3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.cfg, func(t *tester) {
				t.Server.Reply = after(s, 200, "")
				calls := slices.Concat(three(t, "a.test"), three(t, "b.test"), three(t, "c.test"), three(t, "d.test"))
				qOK(t, calls...)
				require.Equal(t, tt.a, timesOf(t, "a.test"), "a")
				require.Equal(t, tt.b, timesOf(t, "b.test"), "b")
				require.Equal(t, tt.c, timesOf(t, "c.test"), "c")
				require.Equal(t, tt.d, timesOf(t, "d.test"), "d")
			})
		})
	}
}

func TestLaneMaxQueue(t *testing.T) {
	cfg := ax.Config{MaxQueue: 3, Hosts: &ax.Lane{MaxConcurrent: 1, MaxQueue: 1}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		var calls []*ax.Call
		for _, host := range []string{"a", "b", "c"} { // one runs, one waits
			u := "http://" + host + ".test/"
			calls = append(calls, qSubmit(t, ax.Request{URL: u}, ax.Request{URL: u})...)
			_, err := qSubmit(t, ax.Request{URL: u, Priority: ax.Urgent})[0].Result()
			require.Equal(t, host+".test", qErr(t, err, "admit", ax.ErrQueueFull).Lane)
		}
		// The scheduler's queue is full too, though this lane's is not.
		calls = append(calls, qSubmit(t, ax.Request{URL: "http://d.test/"})...)
		_, err := qSubmit(t, ax.Request{URL: "http://d.test/"})[0].Result()
		qErr(t, err, "admit", ax.ErrQueueFull)
		require.Equal(t, 3, t.S.Stats().Queued)
		qOK(t, calls...)
	})
}

// A task's own setting, else its lane's, else the scheduler's; NoTimeout lifts what would be inherited.
func TestLaneQueueTimeout(t *testing.T) {
	cfg := ax.Config{QueueTimeout: 3 * time.Second, Lanes: []ax.Lane{
		{Name: "own", QueueTimeout: 2 * time.Second}, {Name: "inherits"}, {Name: "lifted", QueueTimeout: ax.NoTimeout},
	}}
	tests := []struct {
		lane string
		own  time.Duration
		want time.Duration // 0: never
	}{
		{"", 0, 3 * time.Second},
		{"inherits", 0, 3 * time.Second},
		{"own", 0, 2 * time.Second},
		{"own", time.Second, time.Second},
		{"own", 5 * time.Second, 5 * time.Second},
		{"own", ax.NoTimeout, 0},
		{"lifted", 0, 0},
		{"lifted", time.Second, time.Second},
	}
	bubble(t, cfg, func(t *tester) {
		require.NoError(t, t.S.Pause(""))
		var results []<-chan result
		for _, tt := range tests {
			results = append(results, t.Go(t.Context(), ax.Request{URL: at("/"), Lane: tt.lane, QueueTimeout: tt.own}))
		}
		t.Until(time.Hour)
		require.NoError(t, t.S.Resume(""))
		for i, tt := range tests {
			r := <-results[i]
			if tt.want == 0 {
				require.NoError(t, r.Err, "%+v", tt)
				require.Equal(t, time.Hour, r.At, "%+v", tt)
				require.Equal(t, time.Hour, r.Resp.Waited)
				continue
			}
			require.Equal(t, tt.want, r.At, "%+v", tt)
			require.True(t, qErr(t, r.Err, "queue", ax.ErrQueueTimeout).Timeout())
		}
		require.Equal(t, 2, t.Server.Count())
	})
}

func TestLaneMinRemaining(t *testing.T) {
	cfg := ax.Config{MinRemaining: 2 * time.Second, Lanes: []ax.Lane{{Name: "own", MinRemaining: time.Second}, {Name: "inherits"}}}
	bubble(t, cfg, func(t *tester) {
		ctx := qTimeout(t, 1500*qms)
		qErr(t, t.Do(ctx, ax.Request{URL: at("/"), Lane: "inherits"}).Err, "admit", ax.ErrWouldExceedDeadline)
		qErr(t, t.Do(ctx, ax.Request{URL: at("/")}).Err, "admit", ax.ErrWouldExceedDeadline)
		require.Zero(t, t.Server.Count())
		require.Equal(t, 200, t.Do(ctx, ax.Request{URL: at("/"), Lane: "own"}).Status())
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status()) // no deadline, nothing to miss
	})
}

// A lane is found once: an attempt made later is in the lane of the first.
func TestLaneIsFoundOnce(t *testing.T) {
	var events qEvents
	cfg := ax.Config{OnEvent: events.add, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qFirst(1, 503)
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/")}).Status())
		synctest.Wait()
		for _, e := range events.of(ax.EventStarted) {
			require.Equal(t, "a.test", e.Lane)
		}
		require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
		require.Equal(t, uint64(2), t.S.Stats().Lanes["a.test"].Attempts)
	})
}
