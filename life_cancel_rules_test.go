package ax_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

var errDCause = errors.New("the user went away")

// dWay is one way to end a task early: start submits r and returns its result
// and what ends it.
type dWay struct {
	start func(*tester, ax.Request) (<-chan result, func())
	is    []error
	isNot []error
	timed bool // ends by itself a second after its submission
}

func dCollect(t *tester, c *ax.Call) <-chan result {
	ch := make(chan result, 1)
	go func() {
		resp, err := c.Result()
		ch <- result{resp, err, t.At()}
	}()
	return ch
}

var dWays = map[string]dWay{
	"ctx": {func(t *tester, r ax.Request) (<-chan result, func()) {
		ctx, cancel := context.WithCancel(dBG)
		return t.Go(ctx, r), cancel
	}, []error{context.Canceled}, []error{ax.ErrClosed}, false},
	"ctx cause": {func(t *tester, r ax.Request) (<-chan result, func()) {
		ctx, cancel := context.WithCancelCause(dBG)
		return t.Go(ctx, r), func() { cancel(errDCause) }
	}, []error{context.Canceled, errDCause}, nil, false},
	"deadline": {func(t *tester, r ax.Request) (<-chan result, func()) {
		ctx, cancel := context.WithTimeoutCause(dBG, time.Second, errDCause)
		context.AfterFunc(ctx, cancel)
		return t.Go(ctx, r), func() {}
	}, []error{context.DeadlineExceeded, errDCause}, []error{context.Canceled, ax.ErrWouldExceedDeadline, ax.ErrQueueTimeout}, true},
	"ctx of Submit": {func(t *tester, r ax.Request) (<-chan result, func()) {
		ctx, cancel := context.WithCancel(dBG)
		return dCollect(t, t.S.Submit(ctx, ax.Must(r.Task()))), cancel
	}, []error{context.Canceled}, nil, false},
	"Call.Cancel": {func(t *tester, r ax.Request) (<-chan result, func()) {
		c := t.S.Submit(dBG, ax.Must(r.Task()))
		return dCollect(t, c), c.Cancel
	}, []error{context.Canceled}, []error{ax.ErrClosed, ax.ErrCanceledByTag}, false},
	"Call.Discard, CancelTag": {func(t *tester, r ax.Request) (<-chan result, func()) {
		r.Tags = []string{"other", "victim"}
		c := t.S.Submit(dBG, ax.Must(r.Task()))
		c.Discard()
		return dCollect(t, c), func() { t.S.CancelTag("victim") }
	}, []error{context.Canceled, ax.ErrCanceledByTag}, nil, false},
	"CancelTag": {func(t *tester, r ax.Request) (<-chan result, func()) {
		r.Tags = []string{"victim"}
		return t.Go(dBG, r), func() {
			require.Zero(t, t.S.CancelTag("nobody"))
			require.Equal(t, 1, t.S.CancelTag("victim"))
			require.Zero(t, t.S.CancelTag("victim"))
		}
	}, []error{context.Canceled, ax.ErrCanceledByTag}, []error{ax.ErrScopeEnded}, false},
	"Scope.Cancel": {func(t *tester, r ax.Request) (<-chan result, func()) {
		sc := t.S.Scope(dBG)
		return dCollect(t, sc.Submit(dBG, ax.Must(r.Task()))), func() { require.Equal(t, 1, sc.Cancel(errDCause)) }
	}, []error{context.Canceled, ax.ErrScopeEnded, errDCause}, nil, false},
	"ctx of the scope": {func(t *tester, r ax.Request) (<-chan result, func()) {
		ctx, cancel := context.WithCancel(dBG)
		return dCollect(t, t.S.Scope(ctx).Submit(dBG, ax.Must(r.Task()))), cancel
	}, []error{context.Canceled, ax.ErrScopeEnded}, nil, false},
	"outer scope": {func(t *tester, r ax.Request) (<-chan result, func()) {
		sc := t.S.Scope(dBG)
		return dCollect(t, sc.Scope(dBG).Submit(dBG, ax.Must(r.Task()))), func() { require.Equal(t, 1, sc.Cancel(errDCause)) }
	}, []error{context.Canceled, ax.ErrScopeEnded, errDCause}, nil, false},
	"Supersede": {func(t *tester, r ax.Request) (<-chan result, func()) {
		r.Supersede = "victim"
		return t.Go(dBG, r), func() {
			newer := t.S.Submit(dBG, ax.Must(ax.Request{URL: "http://newer.test/", Supersede: "victim"}.Task()))
			synctest.Wait()
			newer.Cancel()
		}
	}, []error{context.Canceled, ax.ErrSuperseded}, nil, false},
	"Close": {func(t *tester, r ax.Request) (<-chan result, func()) {
		return t.Go(dBG, r), func() { require.NoError(t, t.S.Close()) }
	}, []error{context.Canceled, ax.ErrClosed}, []error{ax.ErrScopeEnded}, false},
}

// dPlace is where a task can be when it is ended.
type dPlace struct {
	cfg      ax.Config
	reply    func(*hit) (*http.Response, error)
	before   func(*tester) // brings the scheduler into the state
	request  ax.Request
	op       string
	sent     int  // requests of the task that the server has seen
	known    bool // the earliest start is known: deadlines fail early there (L5, F3)
	lastSeen int  // the status of the last answer, which the error keeps
}

func dHog(t *tester) {
	t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/hog"), Owner: "o"}.Task())).Discard()
}

// dSlow keeps every request but quick ones until its ctx ends.
func dSlow(h *hit) (*http.Response, error) {
	if h.URL.Path == "/quick" {
		return reply(200, ""), nil
	}
	return nil, h.Sleep(24 * time.Hour)
}

func dBusy(h *hit) (*http.Response, error) {
	if h.URL.Path == "/victim" {
		return reply(503, "busy"), nil
	}
	return reply(200, ""), nil
}

var dPlaces = map[string]dPlace{
	"in flight":       {reply: dSlow, request: dGet("/victim"), op: "attempt", sent: 1},
	"queued":          {cfg: ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, reply: dSlow, before: dHog, request: dGet("/victim"), op: "queue"},
	"queued globally": {cfg: ax.Config{MaxConcurrent: 1}, reply: dSlow, before: dHog, request: dGet("/victim"), op: "queue"},
	"rate": {cfg: ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: 24 * time.Hour}}}}, reply: dSlow, before: dHog,
		request: dGet("/victim"), op: "queue", known: true},
	"over budget": {cfg: ax.Config{Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1}}}, reply: dSlow, before: dHog,
		request: ax.Request{URL: at("/victim"), Owner: "o"}, op: "queue"},
	"paused": {reply: dSlow, before: func(t *tester) {
		t.Do(dBG, dGet("/quick"))
		require.NoError(t, t.S.Pause("a.test"))
	}, request: dGet("/victim"), op: "queue"},
	"all paused": {reply: dSlow, before: func(t *tester) { require.NoError(t, t.S.Pause("")) }, request: dGet("/victim"), op: "queue"},
	"breaker": {cfg: ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: 24 * time.Hour}},
		reply: func(h *hit) (*http.Response, error) { return reply(500, ""), nil }, before: func(t *tester) { t.Do(dBG, dGet("/bad")) },
		request: dGet("/victim"), op: "queue", known: true},
	"backoff": {cfg: ax.Config{Retry: &ax.Retry{BaseDelay: time.Hour, MaxDelay: 2 * time.Hour, Jitter: ax.NoJitter}}, reply: dBusy,
		request: dGet("/victim"), op: "retry", sent: 1, known: true, lastSeen: 503},
	"Retry-After": {cfg: ax.Config{Retry: &ax.Retry{MaxDelay: 2 * time.Hour, Jitter: ax.NoJitter}},
		reply:   func(h *hit) (*http.Response, error) { return reply(503, "", "Retry-After: 3600"), nil },
		request: dGet("/victim"), op: "retry", sent: 1, known: true, lastSeen: 503},
	"joined": {cfg: ax.Config{Dedupe: &ax.Dedupe{}}, reply: dSlow, before: func(t *tester) {
		t.S.Submit(dBG, ax.Must(dGet("/victim").Task())).Discard()
	}, request: dGet("/victim"), sent: 1},
	"alone in a flight":  {cfg: ax.Config{Dedupe: &ax.Dedupe{}}, reply: dSlow, request: dGet("/victim"), op: "attempt", sent: 1},
	"in a queued flight": {cfg: ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, reply: dSlow, before: dHog, request: dGet("/victim"), op: "queue"},
}

// TestX1CancelEverywhere ends a task in every way at every place: it is answered
// in the same moment with an error that tells which, and leaves nothing behind.
func TestX1CancelEverywhere(t *testing.T) {
	for place, p := range dPlaces {
		for name, way := range dWays {
			if way.timed && p.known {
				continue
			}
			t.Run(place+"/"+name, func(t *testing.T) { dCancelAt(t, p, way, name == "Close") })
		}
	}
}

func dCancelAt(t *testing.T, p dPlace, way dWay, closes bool) {
	log := &dLog{}
	cfg := p.cfg
	cfg.OnEvent = log.On
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = p.reply
		if p.before != nil {
			p.before(t)
			synctest.Wait()
		}
		idle := t.S.Stats()
		ch, end := way.start(t, p.request)
		synctest.Wait()
		require.Equal(t, idle.Submitted+1, t.S.Stats().Submitted)
		submitted := t.At()
		if !way.timed {
			t.Until(t.At() + time.Second)
		}
		end()
		r := <-ch
		synctest.Wait()
		require.Nil(t, r.Resp)
		require.Equal(t, submitted+time.Second, r.At, "answered in the same moment")
		e := dError(t, r.Err)
		for _, want := range way.is {
			require.ErrorIs(t, r.Err, want)
		}
		for _, not := range way.isNot {
			require.NotErrorIs(t, r.Err, not)
		}
		require.Equal(t, way.timed, e.Timeout())
		if p.op != "" {
			require.Equal(t, p.op, e.Op)
		}
		if p.lastSeen != 0 {
			require.NotNil(t, e.Response)
			require.Equal(t, p.lastSeen, e.Response.StatusCode)
		}
		last := log.Last(t, "/victim")
		require.Equal(t, ax.EventCanceled, last.Kind)
		require.Equal(t, r.Err.Error(), last.Err.Error())
		dNothingLeft(t, p, idle, closes)
	})
}

// dNothingLeft checks queue, gauges and connection after the victim's end.
func dNothingLeft(t *tester, p dPlace, idle ax.Stats, closes bool) {
	st := t.S.Stats()
	if closes {
		idle.Active = 0
	}
	require.Equal(t, idle.Active, st.Active)
	require.Equal(t, idle.Queued, st.Queued)
	require.Equal(t, idle.Parked, st.Parked)
	sent := 0
	for _, h := range t.Server.Hits() {
		if h.URL.Path != "/victim" {
			continue
		}
		sent++
		if p.op == "attempt" {
			require.True(t, h.Canceled, "the connection is torn down")
		}
	}
	require.Equal(t, p.sent, sent)
	require.Zero(t, t.S.CancelTag("victim"), "no map remembers it")
}

// TestX1NextRunsAtOnce: what a cancelled task held or blocked is free in that moment.
func TestX1NextRunsAtOnce(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = dSlow
		ctx, cancel := context.WithCancel(dBG)
		a, b := t.Go(ctx, dGet("/a")), t.GoAt(dms, ctx, dGet("/b"))
		next := t.GoAt(2*dms, dBG, dGet("/quick"))
		t.Until(100 * dms)
		cancel()
		require.Equal(t, 100*dms, (<-a).At)
		require.Equal(t, 100*dms, (<-b).At)
		got := <-next
		require.Equal(t, 200, got.Status())
		require.Equal(t, 100*dms, got.At)
		require.Equal(t, []string{"/a", "/quick"}, t.Server.Paths())
	})
}

// TestX1DeafTransport keeps its slot until it returns, but delays only a Do without a key.
func TestX1DeafTransport(t *testing.T) {
	post := ax.Request{Method: "POST", URL: at("/deaf")}
	for name, c := range map[string]struct {
		run func(*tester, context.Context) <-chan result
		at  time.Duration
	}{
		"Do":     {func(t *tester, ctx context.Context) <-chan result { return t.Go(ctx, post) }, time.Second},
		"flight": {func(t *tester, ctx context.Context) <-chan result { return t.Go(ctx, dGet("/deaf")) }, 100 * dms},
		"Submit": {func(t *tester, ctx context.Context) <-chan result {
			return dCollect(t, t.S.Submit(ctx, ax.Must(post.Task())))
		}, 100 * dms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
				body := dNewBody("late")
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.URL.Path == "/deaf" {
						time.Sleep(time.Second)
						r := reply(200, "late")
						r.Body = body
						return r, nil
					}
					return reply(200, ""), nil
				}
				ctx, cancel := context.WithCancel(dBG)
				ch := c.run(t, ctx)
				t.Until(100 * dms)
				cancel()
				next := t.Go(dBG, dGet("/next"))
				synctest.Wait()
				require.Equal(t, 1, t.S.Stats().Active, "the slot is kept until it returns")
				require.Equal(t, 1, t.S.Stats().Queued)
				r := <-ch
				require.ErrorIs(t, r.Err, context.Canceled)
				require.Equal(t, c.at, r.At)
				require.Equal(t, time.Second, (<-next).At)
				synctest.Wait()
				require.NotZero(t, body.closed.Load(), "an answer that nobody waits for is closed")
			})
		})
	}
}

// TestX1TagsEndMany: every caller that carries the tag, queued and in flight, joiners too.
func TestX1TagsEndMany(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 2, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = dSlow
		var tagged, plain []<-chan result
		for i := range 6 {
			r := ax.Request{URL: at([]string{"/a", "/a", "/b", "/c", "/c", "/d"}[i]), Tags: []string{"x", "x", "y"}}
			tagged = append(tagged, t.Go(dBG, r))
		}
		plain = append(plain, t.Go(dBG, ax.Request{URL: at("/quick"), Tags: []string{"z"}}))
		synctest.Wait()
		require.Equal(t, 6, t.S.CancelTag("x"))
		for _, c := range tagged {
			require.ErrorIs(t, (<-c).Err, ax.ErrCanceledByTag)
		}
		require.Equal(t, 200, (<-plain[0]).Status())
		require.Zero(t, t.S.CancelTag("y"))
	})
}

// TestErrorOpIsFallbackOnlyWhileOneRuns: else it is how far the task itself had come.
func TestErrorOpIsFallbackOnlyWhileOneRuns(t *testing.T) {
	slow := func(ctx context.Context, _ *ax.Task, _ error) (*http.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	type how struct {
		paused, atDone bool
		end            func(*tester)
	}
	var leave context.CancelFunc
	ctx, tag := func(*tester) { leave() }, func(t *tester) { t.S.CancelTag("x") }
	shutdown := func(t *tester) { require.Error(t, t.S.Shutdown(qTimeout(t, 0))) }
	static := &ax.Fallback{Static: slow}
	rows := []struct {
		name string
		r    ax.Request
		how  how
		op   string
	}{
		{"paused, Shutdown", ax.Request{}, how{true, false, shutdown}, "queue"},
		{"after the attempt", ax.Request{}, how{false, true, tag}, "attempt"},
		{"after the attempt, by ctx", ax.Request{Fallback: static}, how{false, true, ctx}, "attempt"},
		{"in the fallback", ax.Request{Fallback: static}, how{false, false, tag}, "fallback"},
		{"in the fallback, by ctx", ax.Request{Fallback: static}, how{false, false, ctx}, "fallback"},
		{"in the fallback of a refused one", ax.Request{Fallback: static, QueueTimeout: fms}, how{true, false, tag}, "fallback"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var told func(ax.Event)
			bubble(t, ax.Config{OnEvent: func(e ax.Event) { told(e) }}, func(t *tester) {
				t.Server.Reply = fBreak(errFWire)
				told = func(e ax.Event) {
					if row.how.atDone && e.Kind == ax.EventAttemptDone {
						row.how.end(t)
					}
				}
				if row.how.paused {
					require.NoError(t, t.S.Pause("a.test"))
				}
				var ctx context.Context
				ctx, leave = context.WithCancel(t.Context())
				defer leave()
				row.r.URL, row.r.Tags = at("/"), []string{"x"}
				c := t.Go(ctx, row.r)
				time.Sleep(fsec)
				if !row.how.atDone {
					row.how.end(t)
				}
				r := <-c
				require.ErrorIs(t, r.Err, context.Canceled)
				require.Equal(t, row.op, fError(t, r.Err).Op)
			})
		})
	}
}
