package ax_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fHedged is a GET that is hedged after 100 ms.
func fHedged() ax.Request {
	r := fGet("/")
	r.Hedge = &ax.Hedge{After: 100 * fms}
	return r
}

func TestHedgeSecondAttemptWins(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 2, MinCalls: 1}}, func(t *tester) {
		t.Server.Reply = fScript(after(fsec, 200, "slow"), after(50*fms, 200, "quick"))
		res := t.Do(t.Context(), fHedged())
		require.Equal(t, "quick", fBody(t, res))
		require.Equal(t, 150*fms, res.At)
		require.Equal(t, []time.Duration{0, 100 * fms}, t.Server.Times())
		time.Sleep(fms)
		require.True(t, t.Server.Hits()[0].Canceled, "the loser is cancelled")
		require.Equal(t, 150*fms, t.Server.Hits()[0].End)
		require.Zero(t, t.S.Stats().Active)
		require.EqualValues(t, 2, t.S.Stats().Attempts)
		require.Zero(t, fLane(t).Failures, "the loser is neutral")
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
	})
}

func TestHedgeFirstAttemptMayStillWin(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fScript(after(200*fms, 200, "first"), after(fsec, 200, "second"))
		res := t.Do(t.Context(), fHedged())
		require.Equal(t, "first", fBody(t, res))
		require.Equal(t, 200*fms, res.At)
		time.Sleep(fms)
		require.True(t, t.Server.Hits()[1].Canceled)
	})
}

// TestHedgeFirstSuccessWins: a failure that comes first does not.
func TestHedgeFirstSuccessWins(t *testing.T) {
	rows := map[string][2]fReply{
		"second fails": {after(300*fms, 200, "good"), after(50*fms, 503, "bad")},
		"second cut":   {after(300*fms, 200, "good"), fBreak(errFWire)},
		"first fails":  {after(150*fms, 503, "bad"), after(200*fms, 200, "good")},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{}, func(t *tester) {
				t.Server.Reply = fScript(row[0], row[1])
				res := t.Do(t.Context(), fHedged())
				require.Equal(t, "good", fBody(t, res))
				require.Equal(t, 300*fms, res.At)
				require.Equal(t, 2, t.Server.Count())
			})
		})
	}
}

// TestHedgeA429IsNoSuccess of the two: the task would have failed with it.
func TestHedgeA429IsNoSuccess(t *testing.T) {
	for _, row := range [][2]fReply{
		{after(300*fms, 200, "good"), after(50*fms, 429, "")},
		{after(150*fms, 429, ""), after(200*fms, 200, "good")},
	} {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = fScript(row[0], row[1])
			res := t.Do(t.Context(), fHedged())
			require.Equal(t, "good", fBody(t, res))
			require.Equal(t, 300*fms, res.At)
		})
	}
}

// TestHedgeWhatTheLosersServerAsksFor is heeded as of any other attempt.
func TestHedgeWhatTheLosersServerAsksFor(t *testing.T) {
	for name, busy := range map[string]fReply{
		"429":       fAnswer(429, "", "Retry-After: 5"),
		"503":       fAnswer(503, "", "Retry-After: 5"),
		"streaming": fWith(503, io.NopCloser(strings.NewReader("busy")), -1, "Content-Type: text/event-stream", "Retry-After: 5"),
		"quota":     fAnswer(500, "", "RateLimit-Remaining: 0", "RateLimit-Reset: 5"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{}, func(t *tester) {
				t.Server.Reply = fScript(func(h *hit) (*http.Response, error) { h.Sleep(120 * fms); return busy(h) }, after(50*fms, 200, ""))
				require.Equal(t, 200, t.Do(t.Context(), fHedged()).Status())
				require.WithinDuration(t, t.start.Add(5*fsec+120*fms), fLane(t).PausedUntil, fsec)
			})
		})
	}
}

// TestHedgeEventsComeInPairs: the one that loses is done before the task ends, whether
// it has come to something or is only cancelled.
func TestHedgeEventsComeInPairs(t *testing.T) {
	rows := map[string]struct {
		replies [2]fReply
		want    []string
	}{
		"fails itself": {[2]fReply{after(120*fms, 500, ""), after(50*fms, 200, "")}, []string{
			"submitted 0", "started 1", "started 2", "attempt-done 1 500 120ms", "attempt-done 2 200 50ms", "succeeded 2 200 150ms"}},
		"is cancelled": {[2]fReply{fHang, after(50*fms, 200, "")}, []string{
			"submitted 0", "started 1", "started 2", "attempt-done 1 0 150ms", "attempt-done 2 200 50ms", "succeeded 2 200 150ms"}},
		"is the second": {[2]fReply{after(120*fms, 200, ""), fHang}, []string{
			"submitted 0", "started 1", "started 2", "attempt-done 2 0 20ms", "attempt-done 1 200 120ms", "succeeded 2 200 120ms"}},
		"fails as well": {[2]fReply{after(120*fms, 500, ""), after(50*fms, 503, "")}, []string{
			"submitted 0", "started 1", "started 2", "attempt-done 1 500 120ms", "attempt-done 2 503 50ms", "succeeded 2 503 150ms"}},
		"is deaf": {[2]fReply{func(*hit) (*http.Response, error) { time.Sleep(fsec); return reply(200, ""), nil }, after(50*fms, 200, "")}, []string{
			"submitted 0", "started 1", "started 2", "attempt-done 1 0 150ms", "attempt-done 2 200 50ms", "succeeded 2 200 150ms"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			ev := &fEvents{}
			bubble(t, ax.Config{OnEvent: ev.Add}, func(t *tester) {
				t.Server.Reply = fScript(row.replies[0], row.replies[1])
				require.NoError(t, t.Do(t.Context(), fHedged()).Err)
				time.Sleep(2 * fsec)
				var got []string
				for _, e := range ev.Of() {
					text := fmt.Sprint(e.Kind, " ", e.Attempt)
					if e.Kind == ax.EventAttemptDone || fTerminal(e.Kind) {
						text += fmt.Sprint(" ", e.Status, " ", e.Took)
					}
					if e.Kind == ax.EventAttemptDone && e.Status == 0 {
						require.ErrorIs(t, e.Err, context.Canceled)
					}
					got = append(got, text)
				}
				require.Equal(t, row.want, got)
			})
		})
	}
}

func TestHedgeBothFail(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(150*fms, 503, "bad")
		res := t.Do(t.Context(), fHedged())
		require.Equal(t, "bad", fBody(t, res))
		require.Equal(t, 250*fms, res.At)
		require.Equal(t, 2, t.Server.Count())
	})
}

func TestHedgeAtMostOneAndOnlyWhenSlow(t *testing.T) {
	for _, row := range []struct {
		took time.Duration
		sent int
	}{{99 * fms, 1}, {10 * fsec, 2}} {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = after(row.took, 200, "")
			require.Equal(t, row.took, t.Do(t.Context(), fHedged()).At)
			require.Equal(t, row.sent, t.Server.Count())
		})
	}
}

func TestHedgeOnlyIdempotentAndReplayable(t *testing.T) {
	h := &ax.Hedge{After: 100 * fms}
	rows := []struct {
		r    ax.Request
		sent int
	}{
		{ax.Request{Method: "POST", Body: []byte("b"), Hedge: h}, 1},
		{ax.Request{Method: "PATCH", Body: []byte("b"), Hedge: h}, 1},
		{ax.Request{Method: "POST", Body: []byte("b"), IdempotencyKey: "k", Hedge: h}, 2},
		{ax.Request{Method: "PUT", Body: []byte("b"), Hedge: h}, 2},
		{ax.Request{Method: "GET"}, 1},
	}
	for i, row := range rows {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = after(fsec, 200, "")
			row.r.URL = at("/")
			require.NoError(t, t.Do(t.Context(), row.r).Err)
			require.Equal(t, row.sent, t.Server.Count(), "row %d", i)
			for _, hit := range t.Server.Hits() {
				require.Equal(t, string(row.r.Body), string(hit.Body))
			}
		})
	}
}

func TestHedgeOfALaneAndOfTheScheduler(t *testing.T) {
	cfg := ax.Config{Hedge: &ax.Hedge{After: 100 * fms}, Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, Hedge: &ax.Hedge{After: 300 * fms}}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		a, b := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), ax.Request{URL: "http://b.test/"})
		r := ax.Request{URL: "http://c.test/", Hedge: &ax.Hedge{After: 500 * fms}}
		t.Do(t.Context(), r)
		<-a
		<-b
		require.Equal(t, []time.Duration{0, 100 * fms}, fHostHits(t, "a.test"))
		require.Equal(t, []time.Duration{0, 300 * fms}, fHostHits(t, "b.test"))
		require.Equal(t, []time.Duration{0, 500 * fms}, fHostHits(t, "c.test"))
	})
}

func TestHedgesAreInsideTheRetryBudget(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{}}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		var cs []<-chan result
		for range 10 {
			cs = append(cs, t.Go(t.Context(), fHedged()))
		}
		for _, c := range cs {
			require.Equal(t, fsec, (<-c).At, "a hedge that is refused harms nobody")
		}
		require.Equal(t, 13, t.Server.Count())
	})
}

func TestHedgeTakesASlotATokenAndTheOwnersBudget(t *testing.T) {
	rows := map[string]ax.Config{
		"gate":  {MaxConcurrent: 1},
		"lane":  {Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 1}}},
		"rate":  {Rate: []ax.Rate{{Limit: 1, Per: time.Minute}}},
		"owner": {Budgets: map[string]ax.Budget{"ann": {MaxConcurrent: 1}}},
	}
	for name, cfg := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(fsec, 200, "")
				r := fHedged()
				r.Owner = "ann"
				require.Equal(t, fsec, t.Do(t.Context(), r).At)
				require.Equal(t, 1, t.Server.Count())
				require.Equal(t, 1, t.Server.Peak())
				require.Zero(t, t.S.Stats().Parked)
			})
		})
	}
}

// TestHedgeAfterZeroIsTheLanesP95 within the error bound of a histogram.
func TestHedgeAfterZeroIsTheLanesP95(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			d := 100 * fms
			if h.N == 1001 {
				d = 10 * fsec
			}
			return after(d, 200, fmt.Sprint(h.N))(h)
		}
		for range 1000 {
			t.Do(t.Context(), fGet("/"))
		}
		r := fGet("/")
		r.Hedge = &ax.Hedge{}
		res := t.Do(t.Context(), r)
		require.Equal(t, "1002", fBody(t, res))
		ts := t.Server.Times()
		require.InDelta(t, 0.1, (ts[1001] - ts[1000]).Seconds(), 0.02)
	})
}

func TestHedgeValidation(t *testing.T) {
	_, err := ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: -1}}.Task()
	require.ErrorContains(t, err, "Hedge.After")
	_, err = ax.New(nil, ax.Config{Hedge: &ax.Hedge{After: -1}})
	require.ErrorContains(t, err, "Hedge.After")
}

// TestHedgeOfADeafAttemptWhoseGrantIsLost: the flight goes on without it, at once
// and with what follows alone; nothing of the first is left in a queue.
func TestHedgeOfADeafAttemptWhoseGrantIsLost(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * dms, 200 * dms} { // without, while the retry runs, later
		gov := &fGovernor{Answer: func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
			lost := make(chan struct{})
			if n == 1 {
				time.AfterFunc(10*dms, func() { close(lost) })
			}
			return ax.Grant{Lost: lost}, nil
		}}
		var mu sync.Mutex
		var sent []time.Duration
		var start time.Time
		executor := ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
			mu.Lock()
			sent = append(sent, time.Since(start))
			mu.Unlock()
			time.Sleep(100 * dms) // deaf
			return &http.Response{StatusCode: 200}, nil
		})
		cfg := ax.Config{Governor: gov, Executor: executor, Retry: &ax.Retry{Max: 1, BaseDelay: 5 * dms, Jitter: ax.NoJitter}}
		bubble(t, cfg, func(t *tester) {
			start = time.Now()
			r := dGet("/")
			if after > 0 {
				r.Hedge = &ax.Hedge{After: after}
			}
			resp, err := t.S.Submit(dBG, ax.Must(r.Task())).Result()
			require.NoError(t, err)
			require.Equal(t, 2, resp.Attempts)
			require.Equal(t, 120*dms, t.At())
			t.Until(time.Second)
			require.Equal(t, []time.Duration{0, 20 * dms}, sent, "lost at 10, given up at 15")
			st := t.S.Stats()
			require.Zero(t, st.Active+st.Queued+st.Parked)
		})
	}
}
