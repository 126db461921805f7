package ax_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

var dNaN = math.NaN()

// dBadConfigs are configs with one fault each, by the path that the error must spell.
var dBadConfigs = []struct {
	path string
	cfg  ax.Config
}{
	{"MaxConcurrent", ax.Config{MaxConcurrent: -1}},
	{"MaxQueue", ax.Config{MaxQueue: -1}},
	{"Rate[0].Limit", ax.Config{Rate: []ax.Rate{{}}}},
	{"Rate[0].Limit", ax.Config{Rate: []ax.Rate{{Limit: -1}}}},
	{"Rate[1].Per", ax.Config{Rate: []ax.Rate{{Limit: 1}, {Limit: 1, Per: -1}}}},
	{"Rate[0].Burst", ax.Config{Rate: []ax.Rate{{Limit: 1, Burst: -1}}}},
	{"Rate[0].Guard", ax.Config{Rate: []ax.Rate{{Limit: 1, Guard: -1}}}},
	{"Rate[0].Guard", ax.Config{Rate: []ax.Rate{{Limit: 1, Burst: 1, Guard: 1}}}},
	{"AttemptTimeout", ax.Config{AttemptTimeout: -1}},
	{"IdleTimeout", ax.Config{IdleTimeout: -1}},
	{"QueueTimeout", ax.Config{QueueTimeout: -1}},
	{"MinRemaining", ax.Config{MinRemaining: -1}},
	{"AgingStep", ax.Config{AgingStep: -1}},
	{"MaxBodyBytes", ax.Config{MaxBodyBytes: -1}},
	{"Overflow", ax.Config{Overflow: -1}},
	{"Overflow", ax.Config{Overflow: 99}},
	{"Dedupe.Window", ax.Config{Dedupe: &ax.Dedupe{Window: -1}}},
	{"Dedupe.MaxEntries", ax.Config{Dedupe: &ax.Dedupe{MaxEntries: -1}}},
	{"Dedupe.MaxBytes", ax.Config{Dedupe: &ax.Dedupe{MaxBytes: -1}}},
	{"Retry.Max", ax.Config{Retry: &ax.Retry{Max: -1}}},
	{"Retry.BaseDelay", ax.Config{Retry: &ax.Retry{BaseDelay: -1}}},
	{"Retry.MaxDelay", ax.Config{Retry: &ax.Retry{MaxDelay: -1}}},
	{"Retry.BaseDelay", ax.Config{Retry: &ax.Retry{BaseDelay: 2, MaxDelay: 1}}},
	{"Retry.Jitter", ax.Config{Retry: &ax.Retry{Jitter: -1}}},
	{"Retry.Jitter", ax.Config{Retry: &ax.Retry{Jitter: 99}}},
	{"Retry.Budget", ax.Config{Retry: &ax.Retry{Budget: -0.1}}},
	{"Retry.Budget", ax.Config{Retry: &ax.Retry{Budget: dNaN}}},
	{"Breaker.Window", ax.Config{Breaker: &ax.Breaker{Window: -1}}},
	{"Breaker.MinCalls", ax.Config{Breaker: &ax.Breaker{MinCalls: -1}}},
	{"Breaker.MinCalls", ax.Config{Breaker: &ax.Breaker{Window: 5, MinCalls: 6}}},
	{"Breaker.MaxAge", ax.Config{Breaker: &ax.Breaker{MaxAge: -1}}},
	{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: -0.1}}},
	{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: dNaN}}},
	{"Breaker.FailureRate", ax.Config{Breaker: &ax.Breaker{FailureRate: 1.5}}},
	{"Breaker.SlowCall", ax.Config{Breaker: &ax.Breaker{SlowCall: -1}}},
	{"Breaker.OpenFor", ax.Config{Breaker: &ax.Breaker{OpenFor: -1}}},
	{"Breaker.Probes", ax.Config{Breaker: &ax.Breaker{Probes: -1}}},
	{"Breaker.Ramp", ax.Config{Breaker: &ax.Breaker{Ramp: -1}}},
	{"Breaker.WhenOpen", ax.Config{Breaker: &ax.Breaker{WhenOpen: -1}}},
	{"Breaker.WhenOpen", ax.Config{Breaker: &ax.Breaker{WhenOpen: 99}}},
	{"Fallback.Stale", ax.Config{Fallback: &ax.Fallback{Stale: -1}}},
	{"Lanes[1].Name", ax.Config{Lanes: []ax.Lane{{Name: "a"}, {Name: "a"}}}},
	{"Lanes[0].Match[1]", ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test", ""}}}}},
	{"Lanes[1].Match[0]", ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}}, {Name: "b", Match: []string{"A.test"}}}}},
	{"Lanes[0].MaxConcurrent", ax.Config{Lanes: []ax.Lane{{Name: "a", MaxConcurrent: -1}}}},
	{"Lanes[0].MaxQueue", ax.Config{Lanes: []ax.Lane{{Name: "a", MaxQueue: -1}}}},
	{"Lanes[1].Rate[0].Limit", ax.Config{Lanes: []ax.Lane{{Name: "a"}, {Name: "b", Rate: []ax.Rate{{}}}}}},
	{"Lanes[0].AttemptTimeout", ax.Config{Lanes: []ax.Lane{{Name: "a", AttemptTimeout: -1}}}},
	{"Lanes[0].IdleTimeout", ax.Config{Lanes: []ax.Lane{{Name: "a", IdleTimeout: -1}}}},
	{"Lanes[0].QueueTimeout", ax.Config{Lanes: []ax.Lane{{Name: "a", QueueTimeout: -1}}}},
	{"Lanes[0].MinRemaining", ax.Config{Lanes: []ax.Lane{{Name: "a", MinRemaining: -1}}}},
	{"Lanes[0].AgingStep", ax.Config{Lanes: []ax.Lane{{Name: "a", AgingStep: -1}}}},
	{"Lanes[0].Retry.Max", ax.Config{Lanes: []ax.Lane{{Name: "a", Retry: &ax.Retry{Max: -1}}}}},
	{"Lanes[0].Breaker.Probes", ax.Config{Lanes: []ax.Lane{{Name: "a", Breaker: &ax.Breaker{Probes: -1}}}}},
	{"Lanes[0].Fallback.Stale", ax.Config{Lanes: []ax.Lane{{Name: "a", Fallback: &ax.Fallback{Stale: -1}}}}},
	{"Lanes[0].NoRetry", ax.Config{Lanes: []ax.Lane{{Name: "a", Retry: &ax.Retry{}, NoRetry: true}}}},
	{"Lanes[0].NoBreaker", ax.Config{Lanes: []ax.Lane{{Name: "a", Breaker: &ax.Breaker{}, NoBreaker: true}}}},
	{"Lanes[0].NoFallback", ax.Config{Lanes: []ax.Lane{{Name: "a", Fallback: &ax.Fallback{Stale: 1}, NoFallback: true}}}},
	{"Hosts.MaxConcurrent", ax.Config{Hosts: &ax.Lane{MaxConcurrent: -1}}},
	{"Hosts.Rate[0].Per", ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: -1}}}}},
	{"Hosts.Retry.Budget", ax.Config{Hosts: &ax.Lane{Retry: &ax.Retry{Budget: dNaN}}}},
	{"Hosts.Match", ax.Config{Hosts: &ax.Lane{Match: []string{"a.test"}}}},
	{"Owners.MaxConcurrent", ax.Config{Owners: &ax.Budget{MaxConcurrent: -1}}},
	{"Owners.MaxQueue", ax.Config{Owners: &ax.Budget{MaxQueue: -1}}},
	{"Owners.Over", ax.Config{Owners: &ax.Budget{Over: 99}}},
	{"Owners.Rate[0].Limit", ax.Config{Owners: &ax.Budget{Rate: []ax.Rate{{}}}}},
}

// TestAPIConfigErrorsSpellThePath, one by one and all joined.
func TestAPIConfigErrorsSpellThePath(t *testing.T) {
	for _, c := range dBadConfigs {
		t.Run(c.path, func(t *testing.T) {
			s, err := ax.New(nil, c.cfg)
			require.Nil(t, s)
			require.ErrorContains(t, err, c.path)
		})
	}
	_, err := ax.New(nil, ax.Config{Budgets: map[string]ax.Budget{"alice": {MaxConcurrent: -1}}})
	for _, word := range []string{"Budgets", "alice", "MaxConcurrent"} {
		require.ErrorContains(t, err, word)
	}
	_, err = ax.New(nil, ax.Config{MaxConcurrent: -1, QueueTimeout: -1, Lanes: []ax.Lane{{Name: "a", MaxQueue: -1}}, Retry: &ax.Retry{Max: -7}})
	for _, path := range []string{"MaxConcurrent", "QueueTimeout", "Lanes[0].MaxQueue", "Retry.Max", "-7"} {
		require.ErrorContains(t, err, path, "all are told at once, with the value")
	}
	_, err = ax.New(http.DefaultClient, ax.Config{Executor: ax.ExecutorFunc(nil)})
	require.ErrorContains(t, err, "Executor")
}

// TestAPIConfigZeroIsValid, and so is what the helpers give.
func TestAPIConfigZeroIsValid(t *testing.T) {
	for _, cfg := range []ax.Config{
		{}, ax.Recommended(),
		{Dedupe: &ax.Dedupe{}, Retry: &ax.Retry{}, Breaker: &ax.Breaker{}, Hosts: &ax.Lane{}, Owners: &ax.Budget{}},
		{MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit, AttemptTimeout: ax.NoTimeout, QueueTimeout: ax.NoTimeout, Rate: ax.Unlimited()},
		{Rate: append(ax.PerSecond(5), ax.PerMinute(100)...)},
		{Lanes: []ax.Lane{{Name: "a", Match: []string{"GET a.test:80/v1/{id}", "a.test", "POST A.TEST/", "[::1]:8080/x"}}, {Name: "b", NoRetry: true}}},
	} {
		s, err := ax.New(nil, cfg)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	require.Equal(t, []ax.Rate{{Limit: 5, Per: time.Second}}, ax.PerSecond(5))
	require.Equal(t, []ax.Rate{{Limit: 5, Per: time.Minute}}, ax.PerMinute(5))
	require.Equal(t, 6, ax.Recommended().Hosts.MaxConcurrent)
}

// TestAPIConfigIsCopied deeply: changes after New do nothing.
func TestAPIConfigIsCopied(t *testing.T) {
	cfg := ax.Config{
		Rate: []ax.Rate{{Limit: 1000, Per: time.Hour}}, Dedupe: &ax.Dedupe{Window: time.Hour, IgnoreHeaders: []string{"X-Nonce"}},
		Lanes:   []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 1000, Per: time.Hour}}}},
		Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 5}}, Retry: &ax.Retry{Max: 1, BaseDelay: dms},
	}
	bubble(t, cfg, func(t *tester) {
		cfg.Rate[0].Limit, cfg.Lanes[0].Rate[0].Limit = 1, 1
		cfg.Dedupe.Window, cfg.Dedupe.IgnoreHeaders[0] = 0, "X-Other"
		cfg.Lanes[0].Match[0], cfg.Lanes[0].MaxConcurrent = "z.test", 9
		cfg.Retry.Max = 7
		cfg.Budgets["o"] = ax.Budget{MaxConcurrent: 1, Over: ax.OverReject}
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/503" {
				return reply(503, ""), nil
			}
			return after(100*dms, 200, "")(h)
		}
		a, b := t.Go(dBG, ax.Request{URL: at("/x"), Owner: "o"}), t.Go(dBG, ax.Request{URL: at("/y"), Owner: "o"})
		require.NoError(t, (<-a).Err)
		require.NoError(t, (<-b).Err)
		require.Equal(t, 1, t.Server.Peak())
		kept := ax.Request{URL: at("/x"), Owner: "o", Header: dHeader("X-Nonce", "1")}
		require.Equal(t, ax.FromWindow, t.Do(dBG, kept).Resp.Source)
		require.Equal(t, 2, t.Do(dBG, dGet("/503")).Resp.Attempts)
	})
}

// TestAPILiveSettingsAreChecked as Config is, and unknown lanes are errors.
func TestAPILiveSettingsAreChecked(t *testing.T) {
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "bulk"}}}, func(t *tester) {
		require.ErrorContains(t, t.S.SetLimits("", ax.Limits{MaxConcurrent: -1}), "MaxConcurrent")
		require.ErrorContains(t, t.S.SetLimits("", ax.Limits{MaxQueue: -1}), "MaxQueue")
		require.ErrorContains(t, t.S.SetLimits("bulk", ax.Limits{Rate: []ax.Rate{{}}}), "Rate[0].Limit")
		require.ErrorContains(t, t.S.SetBudget("o", ax.Budget{MaxConcurrent: -1}), "MaxConcurrent")
		require.ErrorContains(t, t.S.SetBudget("o", ax.Budget{Rate: []ax.Rate{{Limit: 1, Per: -1}}}), "Rate[0].Per")
		for _, lane := range []string{"", "bulk", "new.test", "127.0.0.1:8080", "localhost", "new.test:81"} {
			require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 5}), lane)
			require.NoError(t, t.S.Pause(lane), lane)
			require.NoError(t, t.S.Resume(lane), lane)
		}
		require.ErrorContains(t, t.S.SetLimits("typo", ax.Limits{MaxConcurrent: 5}), "typo")
		require.ErrorContains(t, t.S.Pause("typo"), "typo")
		require.ErrorContains(t, t.S.Resume("typo"), "typo")
		_, err := t.S.Send(dBG, ax.Request{URL: at("/x"), Lane: "typo"})
		require.ErrorContains(t, err, "typo")
	})
}

// TestAPIRequestErrorsSpellTheField.
func TestAPIRequestErrorsSpellTheField(t *testing.T) {
	reader := func() (io.ReadCloser, error) { return http.NoBody, nil }
	for _, c := range []struct {
		path string
		r    ax.Request
	}{
		{"Method", ax.Request{Method: "B AD", URL: at("/")}},
		{"URL", ax.Request{}},
		{"URL", ax.Request{URL: "/relative"}},
		{"URL", ax.Request{URL: "http://"}},
		{"URL", ax.Request{URL: "http://[::1"}},
		{"URL", ax.Request{URL: "http://a.test/%zz"}},
		{"JSON", ax.Request{URL: at("/"), Body: []byte("x"), JSON: 1}},
		{"GetBody", ax.Request{URL: at("/"), Body: []byte("x"), GetBody: reader}},
		{"GetBody", ax.Request{URL: at("/"), JSON: 1, GetBody: reader}},
		{"JSON", ax.Request{URL: at("/"), JSON: make(chan int)}},
		{"ContentLength", ax.Request{URL: at("/"), GetBody: reader, ContentLength: -1}},
		{"AttemptTimeout", ax.Request{URL: at("/"), AttemptTimeout: -1}},
		{"QueueTimeout", ax.Request{URL: at("/"), QueueTimeout: -1}},
		{"AgingStep", ax.Request{URL: at("/"), AgingStep: -1}},
		{"Retry.Max", ax.Request{URL: at("/"), Retry: &ax.Retry{Max: -1}}},
		{"Retry.Budget", ax.Request{URL: at("/"), Retry: &ax.Retry{Budget: dNaN}}},
		{"NoRetry", ax.Request{URL: at("/"), Retry: &ax.Retry{}, NoRetry: true}},
		{"NoDedupe", ax.Request{URL: at("/"), Dedupe: true, NoDedupe: true}},
		{"DedupeWindow", ax.Request{URL: at("/"), DedupeWindow: -1}},
		{"Cooldown", ax.Request{URL: at("/"), Cooldown: -1}},
		{"Fallback.Stale", ax.Request{URL: at("/"), Fallback: &ax.Fallback{Stale: -1}}},
		{"NoFallback", ax.Request{URL: at("/"), Fallback: &ax.Fallback{Stale: 1}, NoFallback: true}},
	} {
		t.Run(c.path, func(t *testing.T) {
			task, err := c.r.Task()
			require.Nil(t, task)
			require.ErrorContains(t, err, c.path)
			require.Panics(t, func() { ax.Must(c.r.Task()) })
		})
	}
	_, err := ax.Request{URL: at("/"), QueueTimeout: -1, Cooldown: -1}.Task()
	require.ErrorContains(t, err, "QueueTimeout")
	require.ErrorContains(t, err, "Cooldown", "all of them joined")
}

// TestAPIRequestErrorsHideSecrets: no user info, no query value, no header value.
func TestAPIRequestErrorsHideSecrets(t *testing.T) {
	for _, address := range []string{
		"http://user:hush@a.test:bad/?q=hush", "http://user:hush@[::1/?q=hush", "http://user:hush@a.test/%zz?q=hush",
		"//user:hush@a.test/?q=hush", "/x?q=hush", "http://user:hush@/x?q=hush", "user:hush@a.test?q=hush", "http://a.test/\x7f?q=hush",
	} {
		_, err := ax.Request{URL: address, Header: dHeader("Authorization", "hush")}.Task()
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "hush", address)
	}
}

// TestAPITaskFromErrors: the request must exist and r must not describe content.
func TestAPITaskFromErrors(t *testing.T) {
	req, err := http.NewRequest("GET", at("/"), nil)
	require.NoError(t, err)
	_, err = ax.TaskFrom(nil, ax.Request{})
	require.Error(t, err)
	for path, r := range map[string]ax.Request{
		"Method": {Method: "GET"}, "URL": {URL: at("/")}, "Query": {Query: url.Values{"a": {"1"}}}, "Header": {Header: dHeader("A", "1")},
		"Body": {Body: []byte("x")}, "JSON": {JSON: 1}, "GetBody": {GetBody: func() (io.ReadCloser, error) { return nil, nil }},
		"ContentLength": {ContentLength: 1}, "Cooldown": {Cooldown: -1},
	} {
		_, err = ax.TaskFrom(req, r)
		require.ErrorContains(t, err, path)
	}
	task, err := ax.TaskFrom(req, ax.Request{Priority: ax.Urgent, Owner: "o", Tags: []string{"t"}})
	require.NoError(t, err)
	require.Equal(t, "GET", task.Method())
	require.Equal(t, at("/"), task.URL())
	require.Equal(t, ax.Urgent, task.Request().Priority)
}

// TestAPIEnumsHaveNames: each its own, none a number, also beyond the named ones.
func TestAPIEnumsHaveNames(t *testing.T) {
	enums := map[string][]any{
		"Priority":     {ax.Low, ax.Normal, ax.Important, ax.Urgent},
		"Source":       {ax.FromNetwork, ax.FromFlight, ax.FromWindow, ax.FromAlternate, ax.FromStale, ax.FromStatic},
		"Overflow":     {ax.OverflowReject, ax.OverflowEvict},
		"Jitter":       {ax.FullJitter, ax.EqualJitter, ax.NoJitter},
		"OpenAction":   {ax.OpenHold, ax.OpenReject},
		"OverAction":   {ax.OverQueue, ax.OverFallback, ax.OverReject},
		"BreakerState": {ax.BreakerClosed, ax.BreakerOpen, ax.BreakerHalfOpen, ax.BreakerRamping},
		"EventKind": {ax.EventSubmitted, ax.EventCoalesced, ax.EventWindowHit, ax.EventQueued, ax.EventStarted, ax.EventAttemptDone,
			ax.EventRetryScheduled, ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerClosed, ax.EventLanePaused,
			ax.EventLaneResumed, ax.EventOverBudget, ax.EventFellBack, ax.EventSucceeded, ax.EventFailed, ax.EventCanceled, ax.EventRejected},
	}
	for kind, values := range enums {
		seen := map[string]bool{}
		for _, v := range values {
			s, ok := v.(fmt.Stringer)
			require.True(t, ok, "%s has no String method", kind)
			text := s.String()
			require.NotEmpty(t, text)
			require.False(t, strings.ContainsAny(text, "0123456789 "), "%s: %q", kind, text)
			require.False(t, seen[text], "%s: %q twice", kind, text)
			seen[text] = true
		}
	}
	for _, odd := range []any{ax.Priority(7), ax.Priority(-7), ax.Source(99), ax.Overflow(-1), ax.Jitter(99), ax.OpenAction(99),
		ax.OverAction(99), ax.BreakerState(99), ax.EventKind(99)} {
		require.NotEmpty(t, odd.(fmt.Stringer).String())
	}
	require.Equal(t, ax.Priority(0), ax.Normal)
}

// TestAPINilClient is one over a clone of the default transport.
func TestAPINilClient(t *testing.T) {
	srv := dServe(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	s, err := ax.New(nil, ax.Config{})
	require.NoError(t, err)
	resp, err := s.Get(dBG, srv.URL)
	require.NoError(t, err)
	require.Equal(t, "hello", dText(t, resp.Response))
	require.NoError(t, s.Close())
}

// TestAPINewIsQuiet: New alone schedules nothing and starts nothing.
func TestAPINewIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(&http.Client{Transport: &server{}}, ax.Recommended())
		require.NoError(t, err)
		require.Zero(t, s.Stats().Submitted)
		require.Empty(t, s.Advice())
		// Not closed: an idle scheduler holds no goroutine that this bubble would wait for.
	})
}
