package axdebug_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

func TestEventsAreStreamedInOrder(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		r := t.Read("/events")
		defer r.Leave()
		require.Equal(t, "text/event-stream", r.Header().Get("Content-Type"))
		require.Equal(t, "retry: 2000\n\n", r.Take())
		t.Submit(ax.Request{URL: "https://u:pw@api.example/a?key=s3cr3t", Owner: "alice"})
		time.Sleep(time.Second)
		events, named := eventsIn(t.T, r.Take())
		require.Empty(t, named)
		require.Equal(t, []string{"submitted", "started", "attempt-done", "succeeded"}, kinds(events))
		require.Equal(t, map[string]any{
			"n": 4.0, "time": "2000-01-01T00:00:00.1Z", "kind": "succeeded", "seq": 1.0, "lane": "api.example", "owner": "alice",
			"method": "GET", "url": "https://api.example/a?key=xxxxx", "attempt": 1.0, "took_seconds": 0.1, "status": 200.0,
			"source": "network",
		}, events[3])
	})
}

func TestEventsAreFiltered(t *testing.T) {
	bubble(t, ax.Config{Executor: after(0, http.StatusBadGateway), Breaker: &ax.Breaker{Window: 2}}, axdebug.Options{}, func(t *tester) {
		all := map[string]*reader{}
		for _, q := range []string{"kind=ends", "kind=problems", "kind=started&lane=B.EX", "q=needle", "q=alice"} {
			all[q] = t.Read("/events?" + q)
			defer all[q].Leave()
		}
		for i := range 2 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://a.example/%d", i), Owner: "alice"}, ax.Request{URL: fmt.Sprintf("https://b.example/needle/%d", i)})
		}
		time.Sleep(time.Second)
		got := func(q string) []string {
			events, _ := eventsIn(t.T, all[q].Take())
			return kinds(events)
		}
		require.Equal(t, []string{"succeeded", "succeeded", "succeeded", "succeeded"}, got("kind=ends"))
		require.Equal(t, []string{"breaker-opened", "breaker-opened"}, got("kind=problems"))
		require.Equal(t, []string{"started", "started"}, got("kind=started&lane=B.EX"))
		require.Len(t, got("q=needle"), 8)
		require.Len(t, got("q=alice"), 8)
	})
}

func TestSlowReaderLosesTheOldestAndIsTold(t *testing.T) {
	bubble(t, ax.Config{Executor: after(0, http.StatusOK)}, axdebug.Options{}, func(t *tester) {
		r := t.Read("/events?kind=submitted")
		r.hold <- struct{}{} // the reader takes nothing, and holds up nobody
		for i := range 1000 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://api.example/%d", i)})
		}
		require.Equal(t, uint64(1000), t.S.Stats().Succeeded)
		<-r.hold
		time.Sleep(time.Second)
		events, named := eventsIn(t.T, r.Take())
		require.Equal(t, []string{`dropped {"dropped":743}`}, named, "one was on its way to the reader, 256 wait for him")
		require.Len(t, events, 257)
		require.Equal(t, "https://api.example/999", events[256]["url"])
		r.Leave()
	})
}

func TestSilentStreamSaysThatItLives(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		r := t.Read("/events")
		defer r.Leave()
		r.Take()
		time.Sleep(31 * time.Second)
		require.Equal(t, ": alive\n\n: alive\n\n", r.Take())
	})
}

func TestLiveStreamIsThePageEachSecond(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		r := t.Read("/live?kind=succeeded")
		defer r.Leave()
		r.Take()
		t.Submit(ax.Request{URL: "https://api.example/a"})
		time.Sleep(2500 * time.Millisecond)
		pages := strings.Split(strings.TrimSpace(r.Take()), "\n\n")
		require.Len(t, pages, 2)
		for i, p := range pages {
			require.True(t, strings.HasPrefix(p, "event: page\ndata: <main id=\"content\""), p[:80])
			require.True(t, strings.HasSuffix(p, "data: </main>"))
			text := plain(strings.ReplaceAll(p, "\ndata: ", "\n"))
			require.Contains(t, text, fmt.Sprintf("As of 00:00:0%d", i+1))
			require.Contains(t, text, "00:00:00.100 succeeded 1 GET https://api.example/a api.example – 200 · took 100 ms")
			require.NotContains(t, text, "00:00:00.000 started")
		}
	})
}

// However many read /live, the page is made once a second for each filter; each
// begins with one of its own.
func TestLiveStreamIsMadeOnceForAll(t *testing.T) {
	cfg := ax.Config{Executor: after(0, http.StatusBadGateway), Breaker: &ax.Breaker{Window: 1, OpenFor: time.Hour}}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/"})
		made := map[string]bool{} // the countdown tells one rendering from the next
		var all []*reader
		take := func() {
			for _, r := range all {
				for _, left := range countdowns.FindAllString(r.Take(), -1) {
					made[left] = true
				}
			}
		}
		for range 5 {
			r := t.Read("/live")
			defer r.Leave()
			all = append(all, r)
			time.Sleep(150 * time.Millisecond)
		}
		take()
		require.Len(t, made, 5)
		clear(made)
		time.Sleep(4 * time.Second)
		take()
		require.Contains(t, []int{4, 5}, len(made), "at the edges one more")
	})
}

var countdowns = regexp.MustCompile(`data-ms="\d+"`)

// Carriage returns end lines of a stream too, wherever they come from.
func TestLiveStreamSurvivesCarriageReturns(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Owners: &ax.Budget{MaxConcurrent: 1}, Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		time.Sleep(100 * time.Millisecond)
		return nil, errors.New("550 mailbox\r\rbusy")
	})}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		r := t.Read("/live")
		defer r.Leave()
		r.Take()
		t.Submit(ax.Request{URL: "https://api.example/a", Owner: "tenant\r\n\r\nevil\r"})
		time.Sleep(1500 * time.Millisecond)
		page := r.Take()
		require.NotContains(t, page, "\r")
		require.Equal(t, len(page)-2, strings.Index(page, "\n\n"), "it is one event")
		require.True(t, strings.HasSuffix(page, "data: </main>\n\n"))
		text := plain(strings.ReplaceAll(page, "\ndata: ", "\n"))
		require.Contains(t, text, "550 mailbox")
		require.NotContains(t, text, "busy", "an error is shown as one line")
		require.Contains(t, text, "tenant evil")
	})
}

func TestStreamsAreBounded(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		var all []*reader
		for range 64 {
			all = append(all, t.Read("/events"))
		}
		w := t.Ask("GET", "/live")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "5", w.Header().Get("Retry-After"))
		all[0].Leave()
		all[0] = t.Read("/live")
		require.Equal(t, http.StatusOK, all[0].code)
		for _, r := range all {
			r.Leave()
		}
	})
}

// TestNothingRunsWhenNobodyLooks: the bubble fails if a goroutine is left, and
// would wait for ever for time to stand still if a timer went on.
func TestNothingRunsWhenNobodyLooks(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/unseen"})
		time.Sleep(time.Second)
		require.NotContains(t, t.Page("/"), "unseen", "nothing was recorded before the first look")

		r := t.Read("/live")
		time.Sleep(time.Second)
		r.Leave()
		t.Submit(ax.Request{URL: "https://api.example/soon-after"})
		time.Sleep(4 * time.Minute)
		require.Contains(t, t.Page("/"), "soon-after", "who comes back finds what happened meanwhile")

		time.Sleep(6 * time.Minute)
		t.Submit(ax.Request{URL: "https://api.example/later"})
		page := t.Page("/")
		require.NotContains(t, page, "later")
		require.NotContains(t, page, "soon-after", "the recording was forgotten")
		require.Contains(t, page, "recorded since 00:10:02")
	})
}

func TestRecordKeepsWhatNobodySaw(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{Record: true}, func(t *tester) {
		time.Sleep(time.Hour)
		t.Submit(ax.Request{URL: "https://api.example/unseen"})
		time.Sleep(time.Hour)
		page := t.Page("/")
		require.Contains(t, page, "01:00:00.100 succeeded 1 GET https://api.example/unseen")
		require.Contains(t, page, "recorded since 00:00:00")
	})
}

func TestFloodLeavesRareEventsInSight(t *testing.T) {
	cfg := ax.Config{Executor: after(0, http.StatusOK)}
	bubble(t, cfg, axdebug.Options{Record: true}, func(t *tester) {
		require.NoError(t, t.S.Pause("rare.example"))
		for i := range 500 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://api.example/%d", i)})
		}
		require.NotContains(t, t.Page("/"), "lane paused")
		require.Contains(t, t.Page("/?kind=lane-paused"), "lane paused – – rare.example")
		require.Equal(t, 100, strings.Count(t.Ask("GET", "/").Body.String(), `class="kind"`))
	})
}

var drawn = regexp.MustCompile(`data-name="(\w+)" data-values="([^"]*)"`)

func TestChartIsDrawnSecondBySecond(t *testing.T) {
	bubble(t, ax.Config{Executor: after(1700*time.Millisecond, http.StatusBadGateway), MaxConcurrent: 2}, axdebug.Options{}, func(t *tester) {
		t.Page("/")
		for i := range 3 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://api.example/%d", i)})
		}
		time.Sleep(5500 * time.Millisecond)
		page := t.Ask("GET", "/").Body.String()
		lines := map[string]string{}
		for _, m := range drawn.FindAllStringSubmatch(page, -1) {
			lines[m[1]] = m[2]
		}
		require.Equal(t, map[string]string{
			"active": "2 1 1 0 0", "queued": "1 0 0 0 0", "parked": "0 0 0 0 0", "started": "2 1 0 0 0", "failed": "0 2 0 1 0",
		}, lines)
		require.True(t, strings.Contains(page, `points="295,50 296,75 297,75 298,100 299,100"`))
		require.True(t, strings.Contains(page,
			`aria-label="Tasks at once over the last five minutes. Latest: active 0, queued 0, parked 0. Scale 0 to 4."`))
	})
}

// The chart's failures are those of the lanes: the caller's deadline is none, what
// a breaker's own rule says is one, and what was before the look is not drawn.
func TestChartCountsFailuresAsLanesDo(t *testing.T) {
	cfg := ax.Config{Breaker: &ax.Breaker{IsFailure: func(o ax.Outcome) bool { return o.Response != nil && o.Response.StatusCode == http.StatusOK }}}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/"})
		time.Sleep(time.Second)
		t.Page("/")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := t.S.Get(ctx, "https://api.example/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		t.Submit(ax.Request{URL: "https://api.example/"})
		time.Sleep(time.Second)
		require.Equal(t, uint64(2), t.S.Stats().Lanes["api.example"].Failures)
		page := t.Ask("GET", "/").Body.String()
		require.Contains(t, page, `data-name="failed" data-values="0 1"`)
	})
}

func TestLookingIsSafeFromEverywhere(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Executor: after(0, http.StatusOK), MaxQueue: ax.NoLimit})
	require.NoError(t, err)
	defer s.Close()
	tt := &tester{T: t, S: s, H: axdebug.HandlerWith(s, axdebug.Options{Control: true})}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 50 {
				_, _ = s.Get(context.Background(), fmt.Sprintf("https://h%d.example/%d", i, j))
			}
		})
		all.Go(func() {
			for range 5 {
				tt.Ask("GET", "/")
				tt.Ask("GET", "/stats.json")
				tt.post("/pause", "")
				tt.post("/resume", "")
			}
		})
	}
	all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		r := &reader{head: make(http.Header), hold: make(chan struct{}, 1)}
		req, _ := http.NewRequestWithContext(ctx, "GET", "/events", nil)
		tt.H.ServeHTTP(r, req)
	})
	all.Wait()
}

// brokenWriter is a reader whose connection has gone.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, context.Canceled }

func TestGoneReaderEndsHisStream(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		for _, target := range []string{"/events", "/live"} {
			req, err := http.NewRequest("GET", target, nil)
			require.NoError(t, err)
			t.H.ServeHTTP(brokenWriter{&reader{head: make(http.Header)}}, req) // returns
		}
		synctest.Wait()
	})
}

// TestStreamOutlivesTheServersWriteTimeout reads two pages, a second apart, from a
// server that gives an answer a fifth of that.
func TestStreamOutlivesTheServersWriteTimeout(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Executor: after(0, http.StatusOK)})
	require.NoError(t, err)
	defer s.Close()
	server := httptest.NewUnstartedServer(axdebug.Handler(s))
	server.Config.WriteTimeout = 200 * time.Millisecond
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/live", nil)
	require.NoError(t, err)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	pages := 0
	for pages < 2 && lines.Scan() {
		if lines.Text() == "event: page" {
			pages++
		}
	}
	require.NoError(t, lines.Err())
	require.Equal(t, 2, pages)
}
