package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestSupersedeNamesBelongToTheInnermostScope(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		sc := t.S.Scope(t.Context())
		inner := sc.Scope(t.Context())
		r := func(path string) *ax.Task { return ax.Must(ax.Request{URL: at(path), Supersede: "search"}.Task()) }
		calls := []*ax.Call{
			t.S.Submit(t.Context(), r("/1")), sc.Submit(t.Context(), r("/2")), inner.Submit(t.Context(), r("/3")),
			t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/4"), Supersede: "other"}.Task())),
		}
		t.Until(500 * fms)
		calls = append(calls, sc.Submit(t.Context(), r("/5")))
		for i, c := range calls {
			_, err := c.Result()
			if i == 1 {
				require.ErrorIs(t, err, ax.ErrSuperseded)
			} else {
				require.NoError(t, err, "call %d", i)
			}
		}
	})
}

// TestX7ANewerTaskWithTheSameKeyJoinsTheFlight: one request serves both versions.
func TestX7ANewerTaskWithTheSameKeyJoinsTheFlight(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "x")
		r := ax.Request{URL: at("/"), Supersede: "s"}
		old := t.Go(t.Context(), r)
		t.Until(500 * fms)
		newer := t.Do(t.Context(), r)
		o := <-old
		require.ErrorIs(t, o.Err, ax.ErrSuperseded)
		require.Equal(t, 500*fms, o.At)
		require.Equal(t, "x", fBody(t, newer))
		require.Equal(t, fsec, newer.At)
		require.Equal(t, 1, t.Server.Count())
		require.False(t, t.Server.Hits()[0].Canceled)
	})
}

func TestSupersedeReachesEveryStage(t *testing.T) {
	stages := map[string]struct {
		cfg   ax.Config
		reply fReply
		op    string
	}{
		"queued":    {ax.Config{MaxConcurrent: 1}, fHang, "queue"},
		"in flight": {ax.Config{}, fHang, "attempt"},
		"backoff":   {ax.Config{Retry: &ax.Retry{BaseDelay: 20 * fsec, Jitter: ax.NoJitter}}, fAnswer(503, ""), "retry"},
		"paused":    {ax.Config{}, nil, "queue"},
	}
	for name, st := range stages {
		t.Run(name, func(t *testing.T) {
			bubble(t, st.cfg, func(t *tester) {
				t.Server.Reply = st.reply
				if name == "queued" {
					t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), NoRetry: true}.Task()))
				}
				if name == "paused" {
					require.NoError(t, t.S.Pause("a.test"))
				}
				time.Sleep(fms)
				old := t.Go(t.Context(), ax.Request{URL: at("/old"), Supersede: "s"})
				t.Until(fsec)
				newer := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://b.test/", Supersede: "s"}.Task()))
				r := <-old
				require.Equal(t, fsec, r.At)
				require.ErrorIs(t, r.Err, ax.ErrSuperseded)
				require.ErrorIs(t, r.Err, context.Canceled)
				require.Equal(t, st.op, fError(t, r.Err).Op)
				newer.Cancel()
			})
		})
	}
}

// TestSupersedeByARefusedTask: one of the two is left, whatever refuses the newer.
func TestSupersedeByARefusedTask(t *testing.T) {
	open := &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}
	over := map[string]ax.Budget{"o": {Rate: ax.PerMinute(1), Over: ax.OverReject}}
	rows := map[string]struct {
		cfg   ax.Config
		newer ax.Request
		prep  func(*tester)
		is    error
	}{
		"NoWait":   {ax.Config{MaxConcurrent: 1}, ax.Request{NoWait: true}, nil, ax.ErrWouldWait},
		"queue":    {ax.Config{MaxConcurrent: 1, MaxQueue: 1}, ax.Request{}, func(t *tester) { t.S.Submit(dBG, ax.Must(fGet("/other").Task())) }, ax.ErrQueueFull},
		"breaker":  {ax.Config{Breaker: open}, ax.Request{}, func(t *tester) { require.NoError(t, t.S.ForceBreaker("a.test", ax.BreakerForceOpen)) }, ax.ErrCircuitOpen},
		"deadline": {ax.Config{Rate: ax.PerMinute(1)}, ax.Request{}, nil, ax.ErrWouldExceedDeadline},
		"budget":   {ax.Config{Budgets: over}, ax.Request{Owner: "o"}, nil, ax.ErrBudget},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, row.cfg, func(t *tester) {
				t.Server.Reply = after(2*fsec, 200, "")
				older := row.newer
				older.URL, older.Supersede, older.NoWait = at("/older"), "s", false
				old := t.Go(dBG, older)
				time.Sleep(fms)
				if row.prep != nil {
					row.prep(t)
				}
				row.newer.URL, row.newer.Supersede = at("/newer"), "s"
				require.ErrorIs(t, t.Do(qTimeout(t, 10*fsec), row.newer).Err, row.is)
				r := <-old
				require.NoError(t, r.Err)
				require.Equal(t, 2*fsec, r.At)
				require.NotContains(t, t.Server.Paths(), "/newer")
			})
		})
	}
}

// TestSupersedeTakesTheOldersPlace in a queue that is full of it, and of no one else.
func TestSupersedeTakesTheOldersPlace(t *testing.T) {
	rows := map[string]ax.Config{
		"scheduler": {MaxConcurrent: 1, MaxQueue: 1},
		"lane":      {Hosts: &ax.Lane{MaxConcurrent: 1, MaxQueue: 1}},
		"owner":     {MaxConcurrent: 1, Owners: &ax.Budget{MaxQueue: 1}},
		"evict":     {MaxConcurrent: 1, MaxQueue: 1, Overflow: ax.OverflowEvict},
	}
	for name, cfg := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(fsec, 200, "")
				r := func(path, name string) ax.Request { return ax.Request{URL: at(path), Owner: "o", Supersede: name} }
				hog := t.Go(dBG, r("/hog", ""))
				time.Sleep(fms)
				old := t.Go(dBG, r("/older", "s"))
				time.Sleep(fms)
				full := ax.ErrQueueFull
				if name == "owner" {
					full = ax.ErrBudget
				}
				require.ErrorIs(t, t.Do(dBG, r("/other", "")).Err, full)
				require.Equal(t, 1, t.S.Stats().Queued)
				newer := t.Go(dBG, r("/newer", "s"))
				o := <-old
				require.ErrorIs(t, o.Err, ax.ErrSuperseded)
				require.ErrorContains(t, o.Err, "superseded by a newer task after 1ms in the queue, waiting for a slot")
				require.Equal(t, 2*fms, o.At)
				require.Equal(t, 2*fsec, (<-newer).At)
				require.NoError(t, (<-hog).Err)
				require.Equal(t, []string{"/hog", "/newer"}, t.Server.Paths())
			})
		})
	}
}

// TestSupersedeByARefusedTaskKeepsTheOldersPlace: it waits where it stood, since when it did.
func TestSupersedeByARefusedTaskKeepsTheOldersPlace(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		hog := t.Go(dBG, dGet("/hog"))
		time.Sleep(fms)
		old := t.Go(dBG, ax.Request{URL: at("/older"), Supersede: "s"})
		time.Sleep(fms)
		behind := t.Go(dBG, dGet("/behind"))
		time.Sleep(fms)
		require.ErrorIs(t, t.Do(dBG, ax.Request{URL: at("/newer"), Supersede: "s", NoWait: true, Priority: ax.Urgent}).Err, ax.ErrWouldWait)
		o := <-old
		require.NoError(t, o.Err)
		require.Equal(t, fsec-fms, o.Resp.Waited)
		require.NoError(t, (<-behind).Err)
		require.NoError(t, (<-hog).Err)
		require.Equal(t, []string{"/hog", "/older", "/behind"}, t.Server.Paths())
	})
}

// TestCaseH44 the last word wins, each loser is told at once and distinctly.
func TestCaseH44Supersede(t *testing.T) {
	took := map[string]time.Duration{"/v1": 300 * fms, "/v2": 200 * fms, "/v3": 50 * fms, "/other": 400 * fms}
	for _, gate := range []int{0, 1} { // in flight; queued behind v1 and the other
		t.Run(strconv.Itoa(gate), func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: gate}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) { return after(took[h.URL.Path], 200, h.URL.Path)(h) }
				v := func(i int, d time.Duration) <-chan result {
					return t.GoAt(d, t.Context(), ax.Request{URL: at("/v" + strconv.Itoa(i)), Supersede: "search"})
				}
				v1, v2, v3 := v(1, 0), v(2, 50*fms), v(3, 100*fms)
				other := t.GoAt(10*fms, t.Context(), ax.Request{URL: at("/other"), Supersede: "elsewhere"})
				r1, r2, r3 := <-v1, <-v2, <-v3
				for i, r := range []result{r1, r2} {
					require.Nil(t, r.Resp)
					require.ErrorIs(t, r.Err, ax.ErrSuperseded)
					require.Equal(t, time.Duration(i+1)*50*fms, r.At)
				}
				require.Equal(t, "/v3", fBody(t, r3))
				require.Equal(t, "/other", fBody(t, <-other))
				if gate == 0 {
					require.Equal(t, 150*fms, r3.At)
				}
			})
		})
	}
	for _, dedupe := range []*ax.Dedupe{nil, {}} {
		t.Run(fmt.Sprint("1000 versions ", dedupe != nil), func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 8, Dedupe: dedupe}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					return after(time.Duration(h.N*7%13)*fms, 200, h.URL.RawQuery)(h)
				}
				var calls []*ax.Call
				for i := range 1000 {
					r := ax.Request{URL: at("/?v=" + strconv.Itoa(i)), Supersede: "s", Priority: ax.Priority(i%4 - 1)}
					calls = append(calls, t.S.Submit(t.Context(), ax.Must(r.Task())))
					if i%10 == 0 {
						time.Sleep(fms)
					}
				}
				for i, c := range calls[:999] {
					resp, err := c.Result()
					if err != nil {
						require.ErrorIs(t, err, ax.ErrSuperseded)
						continue
					}
					require.Less(t, resp.Seq, calls[999].Seq(), "version %d was decided before", i)
				}
				resp, err := calls[999].Result()
				require.Equal(t, "v=999", fBody(t, result{resp, err, 0}))
				require.LessOrEqual(t, t.Server.Peak(), 8)
			})
		})
	}
}
