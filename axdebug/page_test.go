package axdebug_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

func TestPageTellsTheNumbersWithoutJavaScript(t *testing.T) {
	cfg := ax.Config{
		Lanes:   []ax.Lane{{Name: "api", Match: []string{"api.example"}, MaxConcurrent: 2}},
		Budgets: map[string]ax.Budget{"alice": {MaxConcurrent: 5}},
		Dedupe:  &ax.Dedupe{Window: time.Minute},
	}
	bubble(t, cfg, axdebug.Options{Title: "Shop"}, func(t *tester) {
		t.Submit(
			ax.Request{URL: "https://api.example/a", Owner: "alice"},
			ax.Request{URL: "https://api.example/a", Owner: "alice"},
			ax.Request{URL: "https://api.example/b"},
			ax.Request{URL: "https://api.example/low", Priority: ax.Low},
			ax.Request{URL: "https://api.example/urgent", Priority: ax.Urgent, Owner: "alice"},
		)
		time.Sleep(50 * time.Millisecond)
		page := t.Page("/")
		for _, want := range []string{
			"Shop", "As of 00:00:00",
			"Nothing is held back",
			"Active 2 2 attempts so far",
			"Queued 2 longest wait 50 ms",
			"Parked 0",
			"Finished 0",
			"Dedupe hits 20 % 1 joined a flight · 0 from the window",
			"api closed 2 of 2 2 0 2 0 0 % – –",
			"1 GET https://api.example/urgent api alice urgent 50 ms since 50 ms first queued",
			"2 GET https://api.example/low api – low 50 ms in 17.9 s first queued",
			"alice 1 1 1 0",
			"No advice",
			"Nothing has happened since.",
		} {
			require.Contains(t, page, want)
		}
		time.Sleep(time.Second)
		page = t.Page("/")
		require.Contains(t, page, "Finished 5 5 succeeded · 0 failed · 0 canceled · 0 rejected")
		require.Contains(t, page, "Nobody waits for a start.")
	})
}

func TestEmptyPageSaysSo(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		page := t.Page("/")
		for _, want := range []string{
			"No lane yet: each appears with its first task.", "Nobody waits for a start.", "No owner has a budget.",
			"No advice", "Nothing has happened since.", "Watching has just begun.", "Dedupe hits –",
		} {
			require.Contains(t, page, want)
		}
		require.Contains(t, t.Page("/?kind=failed"), "No event matches the filter. Clear it")
		t.Submit(ax.Request{URL: "https://api.example/"})
		require.Contains(t, t.Page("/?lane=elsewhere"), "No lane's name contains “elsewhere”.")
	})
}

func TestBreakerCountsDown(t *testing.T) {
	cfg := ax.Config{
		Executor: after(0, http.StatusInternalServerError),
		Breaker:  &ax.Breaker{Window: 2, OpenFor: 10 * time.Second},
	}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/1"}, ax.Request{URL: "https://api.example/2"})
		time.Sleep(2500 * time.Millisecond)
		t.Submit(ax.Request{URL: "https://api.example/3"})
		page := t.Page("/")
		require.Contains(t, page, "The breaker of lane api.example is open and probes in 7.5 s")
		require.Contains(t, page, "api.example open 7.5 s")
		require.Contains(t, page, "api.example – normal – in 12.0 s first parked")
		require.Contains(t, t.Ask("GET", "/").Body.String(), `data-ms="7500"`)
		lane := t.Stats()["lanes"].(map[string]any)["api.example"].(map[string]any)
		require.Equal(t, "open", lane["breaker"])
		require.Equal(t, time.Now().Add(7500*time.Millisecond).Format(time.RFC3339Nano), lane["breaker_until"])
	})
}

// What is parked stands out, whatever it waits for.
func TestParkedIsNotCalm(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, axdebug.Options{}, func(t *tester) {
		require.NoError(t, t.S.Pause("held.example"))
		t.Submit(ax.Request{URL: "https://api.example/1"}, ax.Request{URL: "https://api.example/2"}, ax.Request{URL: "https://held.example/"})
		page := t.Ask("GET", "/").Body.String()
		require.Contains(t, page, `<span class="badge warn">parked for `)
		require.Contains(t, page, `<span class="badge calm">queued for `)
		require.NotContains(t, page, `<span class="badge calm">parked`)
	})
}

// Owners whose names are no text stay two: in JSON, where they are keys, and on the
// page.
func TestOwnersThatAreNoText(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Owners: &ax.Budget{MaxConcurrent: 1}}, axdebug.Options{}, func(t *tester) {
		t.Page("/")
		t.Submit(ax.Request{URL: "https://api.example/1", Owner: "a\xff"}, ax.Request{URL: "https://api.example/2", Owner: "a\xfe"})
		owners := t.Stats()["owners"].(map[string]any)
		require.Len(t, owners, 2)
		require.Contains(t, owners, `a\xff`)
		require.Contains(t, owners, `a\xfe`)
		page := t.Page("/")
		require.Contains(t, page, `api.example a\xfe normal`)
		require.Contains(t, page, `submitted 1 GET https://api.example/1 api.example a\xff`)
	})
}

func TestManyLanesStayReadable(t *testing.T) {
	bubble(t, ax.Config{MaxQueue: ax.NoLimit, MaxConcurrent: ax.NoLimit}, axdebug.Options{}, func(t *tester) {
		for i := range 250 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://h%03d.example/", i)})
		}
		require.NoError(t, t.S.Pause("h249.example"))
		page := t.Page("/")
		require.Contains(t, page, "150 quieter lanes not shown; filter by name to find them.")
		require.Contains(t, page, "h249.example paused", "trouble is always shown")
		require.NotContains(t, page, "h200.example closed")
		require.Contains(t, t.Page("/?lane=H200"), "h200.example closed")
	})
}

func TestManyOwnersStayReadable(t *testing.T) {
	bubble(t, ax.Config{Owners: &ax.Budget{MaxConcurrent: 9}}, axdebug.Options{}, func(t *tester) {
		for i := range 60 {
			t.Submit(ax.Request{URL: "https://api.example/", Owner: fmt.Sprintf("owner-%02d", i)})
		}
		t.Submit(ax.Request{URL: "https://api.example/2", Owner: "owner-59"})
		page := t.Page("/")
		require.Contains(t, page, "10 quieter owners not shown.")
		require.Contains(t, page, "owner-59 2 0 2 0")
		require.NotContains(t, page, "owner-58 1 0")
	})
}

func TestLongestWaitsAreShownBesideTheQueue(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Executor: after(time.Hour, http.StatusOK)}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/active"}, ax.Request{URL: "https://api.example/old", Priority: -40})
		time.Sleep(time.Second)
		for i := range 30 {
			t.Submit(ax.Request{URL: fmt.Sprintf("https://api.example/%d", i)})
		}
		page := t.Page("/")
		require.Contains(t, page, "12 of 31 that wait. Waiting longest")
		require.Contains(t, page, "31 GET https://api.example/old api.example – -40 1.0 s in 4 m 11 s first queued")
		require.NotContains(t, t.Page("/?lane=other"), "that wait")
	})
}

func TestMarkupInNamesIsText(t *testing.T) {
	evil := `"><script>alert(1)</script>`
	cfg := ax.Config{
		Lanes:   []ax.Lane{{Name: evil, Match: []string{"api.example"}}},
		Budgets: map[string]ax.Budget{evil: {MaxConcurrent: 1}},
	}
	bubble(t, cfg, axdebug.Options{Title: evil, Control: true, Record: true}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/<b>", Owner: evil}, ax.Request{URL: "https://api.example/", Owner: evil})
		require.NoError(t, t.S.Pause(evil))
		for _, target := range []string{"/", "/?lane=" + "%22%3E%3Cscript%3Ealert(1)", "/nowhere"} {
			require.NotContains(t, t.Ask("GET", target, "Accept", "text/html").Body.String(), "<script>alert")
		}
	})
}

func TestServesBelowAnyPrefix(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		plainMux, stripped := http.NewServeMux(), http.NewServeMux()
		plainMux.Handle("/debug/ax/", t.H)
		stripped.Handle("/debug/ax/", http.StripPrefix("/debug/ax", t.H))
		for _, t.H = range []http.Handler{plainMux, stripped} {
			for target, contentType := range map[string]string{
				"/debug/ax/":           "text/html; charset=utf-8",
				"/debug/ax/stats.json": "application/json",
				"/debug/ax/style.css":  "text/css; charset=utf-8",
				"/debug/ax/app.js":     "text/javascript; charset=utf-8",
				"/debug/ax/icon.svg":   "image/svg+xml",
			} {
				w := t.Ask("GET", target)
				require.Equal(t, http.StatusOK, w.Code, target)
				require.Equal(t, contentType, w.Header().Get("Content-Type"))
			}
			require.Equal(t, http.StatusNotFound, t.Ask("GET", "/debug/ax/page.html").Code)
		}
	})
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{Control: true}, func(t *tester) {
		for _, target := range []string{"/", "/stats.json", "/app.js", "/nowhere", "/pause"} {
			h := t.Ask("GET", target).Header()
			require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", h.Get("Content-Security-Policy"), target)
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
			require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
		}
		require.Equal(t, "no-store", t.Ask("GET", "/").Header().Get("Cache-Control"))

		css := t.Ask("GET", "/style.css")
		require.Equal(t, "no-cache", css.Header().Get("Cache-Control"))
		again := t.Ask("GET", "/style.css", "If-None-Match", css.Header().Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.Code)
	})
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{Control: true}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/"})
		page := t.Ask("GET", "/").Body.String()
		require.NotContains(t, page, " style=", "the policy forbids inline styles")
		require.NotRegexp(t, `<script>|\son[a-z]+=`, page, "and inline scripts")
		require.NotRegexp(t, `(src|href|action)="(https?:)?//`, page)
		for _, name := range []string{"/style.css", "/app.js"} {
			require.NotRegexp(t, `https?://|@import`, t.Ask("GET", name).Body.String())
		}
	})
}

func TestProblemsArePagesForPeople(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{Title: "Shop"}, func(t *tester) {
		w := t.Ask("GET", "/nowhere", "Accept", "text/html,*/*")
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Contains(t, plain(w.Body.String()), "Not Found 404 There is no such page. The one to look at ends in a slash, as does the pattern that the handler is mounted at. Back to Shop")
		w = t.Ask("GET", "/nowhere")
		require.Equal(t, "There is no such page. The one to look at ends in a slash, as does the pattern that the handler is mounted at.\n", w.Body.String())
		w = t.Ask("DELETE", "/")
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	})
}

func TestClosedSchedulerIsStillShown(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{Record: true}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/"})
		require.NoError(t, t.S.Close())
		page := t.Page("/")
		require.Contains(t, page, "0 succeeded · 0 failed · 1 canceled · 0 rejected")
		require.Contains(t, page, "GET https://api.example/ api.example – attempt: scheduler is closed")
	})
}

func TestStatsJSON(t *testing.T) {
	cfg := ax.Config{
		Lanes:   []ax.Lane{{Name: "api", Match: []string{"api.example"}, MaxConcurrent: 1}},
		Budgets: map[string]ax.Budget{"alice": {MaxConcurrent: 5}},
		Dedupe:  &ax.Dedupe{Window: time.Minute},
	}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		t.Submit(ax.Request{URL: "https://api.example/a"})
		time.Sleep(time.Second)
		t.Submit(
			ax.Request{URL: "https://api.example/a"},
			ax.Request{URL: "https://api.example/b", Owner: "alice"},
			ax.Request{URL: "https://api.example/c?key=s3cr3t", Priority: ax.Important},
		)
		got := t.Stats()
		require.Equal(t, "2000-01-01T00:00:01Z", got["time"])
		for name, want := range map[string]float64{
			"active": 1, "queued": 1, "parked": 0, "submitted": 4, "succeeded": 2, "failed": 0, "canceled": 0, "rejected": 0,
			"attempts": 2, "retries": 0, "coalesced": 0, "window_hits": 1, "fallbacks": 0,
		} {
			require.Equal(t, want, got[name], name)
		}
		require.Equal(t, map[string]any{"hit_rate": 0.25, "entries": 1.0, "bytes": got["dedupe"].(map[string]any)["bytes"]}, got["dedupe"])
		lane := got["lanes"].(map[string]any)["api"].(map[string]any)
		require.Equal(t, 1.0, lane["max_concurrent"])
		require.Equal(t, "closed", lane["breaker"])
		require.Equal(t, false, lane["paused"])
		require.NotContains(t, lane, "paused_until")
		require.InDelta(t, 0.1, lane["service_seconds"].(map[string]any)["p50"], 0.01)
		owner := got["owners"].(map[string]any)["alice"].(map[string]any)
		require.Equal(t, 1.0, owner["started"])
		require.Equal(t, []any{map[string]any{
			"seq": 4.0, "lane": "api", "method": "GET", "url": "https://api.example/c?key=xxxxx", "priority": 1.0,
			"since": "2000-01-01T00:00:01Z", "attempts": 0.0, "parked": false, "for": "a slot of its lane: the lane's MaxConcurrent",
		}}, got["waiting"])
		require.Equal(t, []any{}, got["advice"])
	})
}

func TestDryRunIsShown(t *testing.T) {
	cfg := ax.Config{DryRun: true, MaxConcurrent: 1}
	bubble(t, cfg, axdebug.Options{}, func(t *tester) {
		require.NotContains(t, t.Page("/"), "Dry run")
		t.Submit(ax.Request{URL: "https://api.example/1"}, ax.Request{URL: "https://api.example/2"})
		time.Sleep(time.Second)
		require.Contains(t, t.Page("/"), "Would have waited 1 half of them for")
	})
}

func TestHeadIsGetWithoutLooking(t *testing.T) {
	bubble(t, ax.Config{}, axdebug.Options{}, func(t *tester) {
		for _, target := range []string{"/", "/stats.json", "/events", "/live"} {
			require.Equal(t, http.StatusOK, t.Ask("HEAD", target).Code, target)
		}
		require.True(t, strings.HasPrefix(t.Ask("HEAD", "/events").Header().Get("Content-Type"), "text/event-stream"))
	})
}
