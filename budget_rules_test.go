package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fOwned is a GET whose owner pays.
func fOwned(owner, path string) ax.Request { return ax.Request{URL: at(path), Owner: owner} }

// fAnn is a set of budgets with one for ann.
func fAnn(b ax.Budget) map[string]ax.Budget { return map[string]ax.Budget{"ann": b} }

func TestL7OverQueueParksAndLetsOthersPass(t *testing.T) {
	rows := map[string]struct {
		b    ax.Budget
		want []time.Duration // ends of ann's tasks, each of 100 ms
	}{
		"rate":       {ax.Budget{Rate: ax.PerSecond(2)}, []time.Duration{100 * fms, 100 * fms, 1100 * fms, 1100 * fms}},
		"running":    {ax.Budget{MaxConcurrent: 1}, []time.Duration{100 * fms, 200 * fms, 300 * fms, 400 * fms}},
		"two rates":  {ax.Budget{Rate: []ax.Rate{{Limit: 2}, {Limit: 3, Per: 10 * fsec}}}, []time.Duration{100 * fms, 100 * fms, 1100 * fms, 10100 * fms}},
		"both kinds": {ax.Budget{Rate: ax.PerSecond(3), MaxConcurrent: 1}, []time.Duration{100 * fms, 200 * fms, 300 * fms, 1100 * fms}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Budgets: fAnn(row.b)}, func(t *tester) {
				t.Server.Reply = after(100*fms, 200, "")
				var calls []*ax.Call
				for range 4 {
					calls = append(calls, t.S.Submit(t.Context(), ax.Must(fOwned("ann", "/").Task())))
				}
				bob := t.Go(t.Context(), fOwned("bob", "/"))
				t.Until(fms)
				st := t.S.Stats()
				require.Zero(t, st.Queued, "over budget is parked, not queued")
				require.Positive(t, st.Parked)
				require.Equal(t, 100*fms, (<-bob).At, "another owner is not delayed")
				for i, c := range calls {
					_, err := c.Result()
					require.NoError(t, err)
					require.Equal(t, row.want[i], t.At(), "task %d", i)
				}
				o := t.S.Stats().Owners["ann"]
				require.EqualValues(t, 4, o.Started)
				require.Positive(t, o.Over)
				require.Zero(t, o.Active+o.Queued)
			})
		})
	}
}

func TestL7OverRejectAndOverFallback(t *testing.T) {
	for _, over := range []ax.OverAction{ax.OverReject, ax.OverFallback} {
		ev := &fEvents{}
		bubble(t, ax.Config{OnEvent: ev.Add, Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(2), Over: over})}, func(t *tester) {
			t.Do(t.Context(), fOwned("ann", "/"))
			t.Until(400 * fms)
			t.Do(t.Context(), fOwned("ann", "/"))
			res := t.Do(t.Context(), fOwned("ann", "/"))
			require.Equal(t, 400*fms, res.At)
			require.ErrorIs(t, res.Err, ax.ErrBudget, "OverFallback without a fallback is a refusal too")
			e := fError(t, res.Err)
			require.Equal(t, "admit", e.Op)
			require.Equal(t, "ann", e.Owner)
			require.ErrorContains(t, e, "ann")
			require.Equal(t, 600*fms, e.RetryAfter, "when it is free again")
			require.Len(t, ev.Of(ax.EventOverBudget), 1)
			require.Equal(t, "ann", ev.Of(ax.EventOverBudget)[0].Owner)
			require.EqualValues(t, 1, t.S.Stats().Rejected)
			require.EqualValues(t, 1, t.S.Stats().Owners["ann"].Over)
			require.NoError(t, t.Do(t.Context(), fOwned("bob", "/")).Err)
			t.Until(fsec)
			require.NoError(t, t.Do(t.Context(), fOwned("ann", "/")).Err)
		})
	}
}

func TestL7AFullOwnerQueueAlwaysRefuses(t *testing.T) {
	for _, over := range []ax.OverAction{ax.OverQueue, ax.OverFallback, ax.OverReject} {
		t.Run(fmt.Sprint(over), func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, Budgets: fAnn(ax.Budget{MaxQueue: 2, Over: over})}, func(t *tester) {
				t.Server.Reply = after(fsec, 200, "")
				var cs []<-chan result
				for range 3 {
					cs = append(cs, t.Go(t.Context(), fOwned("ann", "/")))
					time.Sleep(fms)
				}
				require.Equal(t, 2, t.S.Stats().Owners["ann"].Queued)
				res := t.Do(t.Context(), fOwned("ann", "/"))
				require.Equal(t, 3*fms, res.At)
				require.ErrorIs(t, res.Err, ax.ErrBudget)
				bob := t.Go(t.Context(), fOwned("bob", "/"))
				for _, c := range append(cs, bob) {
					require.NoError(t, (<-c).Err)
				}
			})
		})
	}
}

// TestL7OneWarningPerOwnerAndWindow however many tasks are over.
func TestL7OneWarningPerOwnerAndWindow(t *testing.T) {
	log := &fLog{}
	b := map[string]ax.Budget{"ann": {Rate: ax.PerSecond(1), Over: ax.OverReject}, "bob": {Rate: []ax.Rate{{Limit: 1, Per: 10 * fsec}}, Over: ax.OverReject}}
	bubble(t, ax.Config{Logger: log.Logger(), Budgets: b}, func(t *tester) {
		for i := range 40 { // 4 s: four windows of ann, one of bob
			t.Until(time.Duration(i)*100*fms + fms)
			for range 5 {
				t.Do(t.Context(), fOwned("ann", "/"))
				t.Do(t.Context(), fOwned("bob", "/"))
			}
		}
		require.Len(t, log.Lines("level=WARN", "ann"), 4)
		require.Len(t, log.Lines("level=WARN", "bob"), 1)
		t.Until(12 * fsec)
		for range 3 {
			t.Do(t.Context(), fOwned("bob", "/"))
		}
		require.Len(t, log.Lines("level=WARN", "bob"), 2)
		require.Empty(t, log.Lines("level=WARN", "http://a.test/?"))
	})
}

func TestL7BudgetWithoutWindowWarnsToo(t *testing.T) {
	log := &fLog{}
	bubble(t, ax.Config{Logger: log.Logger(), Budgets: fAnn(ax.Budget{MaxConcurrent: 1, Over: ax.OverReject})}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		c := t.Go(t.Context(), fOwned("ann", "/"))
		t.Until(fms)
		for range 100 {
			require.ErrorIs(t, t.Do(t.Context(), fOwned("ann", "/")).Err, ax.ErrBudget)
		}
		require.Len(t, log.Lines("level=WARN", "ann"), 1)
		<-c
	})
}

func TestL7OwnersTemplateAndUnknownOwners(t *testing.T) {
	tmpl := &ax.Budget{Rate: ax.PerSecond(1), Over: ax.OverReject}
	bubble(t, ax.Config{Owners: tmpl, Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(2), Over: ax.OverReject})}, func(t *tester) {
		allowed := map[string]int{}
		for _, owner := range []string{"ann", "bob", "cid"} {
			for range 4 {
				if t.Do(t.Context(), fOwned(owner, "/")).Err == nil {
					allowed[owner]++
				}
			}
		}
		require.Equal(t, map[string]int{"ann": 2, "bob": 1, "cid": 1}, allowed, "each other owner has one of its own")
		for range 5 {
			require.NoError(t, t.Do(t.Context(), fGet("/")).Err, "who has no owner has no budget")
		}
	})
	bubble(t, ax.Config{Budgets: fAnn(ax.Budget{MaxConcurrent: 1})}, func(t *tester) {
		for i := range 20_000 {
			t.Do(t.Context(), fOwned(fmt.Sprint("owner", i), "/"))
		}
		t.Until(time.Hour)
		t.Do(t.Context(), fGet("/"))
		require.LessOrEqual(t, len(t.S.Stats().Owners), 10_000, "bookkeeping of unknown owners is bounded")
	})
}

func TestL7OwnerFromTheContext(t *testing.T) {
	bubble(t, ax.Config{Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(1), Over: ax.OverReject})}, func(t *tester) {
		ctx := ax.ContextWith(t.Context(), ax.Hints{Owner: "ann"})
		require.NoError(t, t.Do(ctx, fGet("/")).Err)
		require.ErrorIs(t, t.Do(ctx, fGet("/")).Err, ax.ErrBudget)
		require.NoError(t, t.Do(ctx, fOwned("bob", "/")).Err, "the request's own owner counts first")
		require.NoError(t, t.Do(t.Context(), fGet("/")).Err)
	})
}

func TestSetBudgetIsLive(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(100*fms, 200, "")
		require.NoError(t, t.S.SetBudget("ann", ax.Budget{MaxConcurrent: 1}))
		var cs []<-chan result
		for range 10 {
			cs = append(cs, t.Go(t.Context(), fOwned("ann", "/")))
		}
		t.Until(50 * fms)
		require.Equal(t, 1, t.Server.Active())
		require.Equal(t, 1, t.S.Stats().Owners["ann"].Active)
		require.Equal(t, 9, t.S.Stats().Owners["ann"].Queued)
		require.NoError(t, t.S.SetBudget("ann", ax.Budget{MaxConcurrent: 4}))
		t.Until(51 * fms)
		require.Equal(t, 4, t.Server.Active(), "at once, not at the next end")
		require.NoError(t, t.S.SetBudget("ann", ax.Budget{MaxConcurrent: 2}))
		t.Until(110 * fms)
		require.LessOrEqual(t, t.Server.Active(), 3, "nothing is killed, it drains")
		t.Until(160 * fms)
		require.Equal(t, 2, t.Server.Active())
		require.NoError(t, t.S.SetBudget("ann", ax.Budget{}))
		t.Until(161 * fms)
		require.Equal(t, 10, t.Server.Count(), "the zero budget lifts every limit")
		for _, c := range cs {
			require.NoError(t, (<-c).Err)
		}
		require.ErrorContains(t, t.S.SetBudget("ann", ax.Budget{MaxConcurrent: -1}), "MaxConcurrent")
	})
}

// TestL7MaxConcurrentHoldsHoweverContended across lanes and with retries.
func TestL7MaxConcurrentHoldsHoweverContended(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 8, Retry: &ax.Retry{Budget: 1}, Budgets: fAnn(ax.Budget{MaxConcurrent: 3})}, func(t *tester) {
		var anns, peak atomic.Int64
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if strings.HasPrefix(h.URL.Host, "ann") {
				if n := anns.Add(1); n > peak.Load() {
					peak.Store(n)
				}
				defer anns.Add(-1)
			}
			return after(time.Duration(1+h.N%17)*fms, 200+h.N%5/4*303, "")(h)
		}
		var calls []*ax.Call
		for i := range 2000 {
			owner := []string{"ann", "bob"}[i%2]
			r := ax.Request{URL: fmt.Sprintf("http://%s-h%d.test/", owner, i%7), Owner: owner}
			calls = append(calls, t.S.Submit(t.Context(), ax.Must(r.Task())))
			if i%50 == 0 {
				time.Sleep(fms)
				require.LessOrEqual(t, t.S.Stats().Owners["ann"].Active, 3)
			}
			if i%11 == 0 {
				calls[i].Cancel()
			}
			if len(calls)-int(t.S.Stats().Succeeded) > 900 {
				calls[i-300].Result()
			}
		}
		for _, c := range calls {
			c.Result()
		}
		require.LessOrEqual(t, t.Server.Peak(), 8)
		require.EqualValues(t, 3, peak.Load(), "never more, and it has what it may")
	})
}

func TestL7RetriesAndHedgesCostSharedAnswersDoNot(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(1), Dedupe: &ax.Dedupe{Window: time.Minute}, Budgets: fAnn(ax.Budget{Rate: []ax.Rate{{Limit: 3, Per: time.Hour}}, Over: ax.OverReject})}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(503, ""), after(100*fms, 200, ""))
		require.Equal(t, 200, t.Do(t.Context(), fOwned("ann", "/1")).Status())
		require.EqualValues(t, 2, t.S.Stats().Owners["ann"].Started, "the retry paid")
		for range 10 {
			require.Equal(t, ax.FromWindow, t.Do(t.Context(), fOwned("ann", "/1")).Resp.Source)
		}
		a, b := t.Go(t.Context(), fOwned("ann", "/2")), t.Go(t.Context(), fOwned("ann", "/2"))
		require.NoError(t, (<-a).Err)
		require.NoError(t, (<-b).Err)
		require.EqualValues(t, 3, t.S.Stats().Owners["ann"].Started)
		require.ErrorIs(t, t.Do(t.Context(), fOwned("ann", "/3")).Err, ax.ErrBudget)
	})
}

func TestL7ACancelledWaiterTookNothing(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Budgets: fAnn(ax.Budget{Rate: []ax.Rate{{Limit: 2, Per: time.Hour}}, MaxConcurrent: 1, MaxQueue: 1})}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "")
		first := t.Go(t.Context(), fOwned("ann", "/"))
		t.Until(fms)
		for range 100 {
			c := t.S.Submit(t.Context(), ax.Must(fOwned("ann", "/").Task()))
			c.Cancel()
			_, err := c.Result()
			require.ErrorIs(t, err, context.Canceled, "its place in the owner's queue was free again")
		}
		require.NoError(t, (<-first).Err)
		require.Equal(t, 2*fsec, t.Do(t.Context(), fOwned("ann", "/")).At, "the second start was left")
	})
}

// TestD3AFlightParkedByItsPayerIsTakenOver: the owner is part of every key, so sharers
// have one owner between them; what moves is the caller in whose name it pays.
func TestD3AFlightParkedByItsPayerIsTakenOver(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(1)})}, func(t *tester) {
		t.Do(t.Context(), fOwned("ann", "/spent"))
		ctx, cancel := context.WithCancel(t.Context())
		a := t.Go(ctx, fOwned("ann", "/"))
		t.Until(fms)
		b := t.Go(t.Context(), fOwned("ann", "/"))
		t.Until(2 * fms)
		require.EqualValues(t, 1, t.S.Stats().Coalesced)
		require.Positive(t, t.S.Stats().Parked)
		cancel()
		require.ErrorIs(t, (<-a).Err, context.Canceled)
		r := <-b
		require.NoError(t, r.Err)
		require.Equal(t, fsec, r.At, "it goes on for who is left")
		require.Equal(t, 2, t.Server.Count())
		require.EqualValues(t, 2, t.S.Stats().Owners["ann"].Started, "paid once")
	})
}

// TestCaseH47 a noisy neighbour fills its own quota, not the gate.
func TestCaseH47NoisyNeighbour(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 4, Budgets: map[string]ax.Budget{"A": {MaxConcurrent: 2, MaxQueue: 100}}}, func(t *tester) {
		t.Server.Reply = after(50*fms, 200, "")
		var as []*ax.Call
		for range 1000 {
			as = append(as, t.S.Submit(t.Context(), ax.Must(fOwned("A", "/").Task())))
		}
		b := t.Go(t.Context(), fOwned("B", "/"))
		t.Until(fms)
		refused := 0
		for _, c := range as {
			select {
			case <-c.Done():
				_, err := c.Result()
				require.ErrorIs(t, err, ax.ErrBudget)
				require.ErrorContains(t, err, "A")
				require.Equal(t, "A", fError(t, err).Owner)
				refused++
			default:
			}
		}
		require.Equal(t, 898, refused)
		o := t.S.Stats().Owners["A"]
		require.Equal(t, []int{2, 100}, []int{o.Active, o.Queued})
		require.Equal(t, 50*fms, (<-b).At, "B began at once")
		for _, c := range as {
			c.Result()
		}
		require.Equal(t, 51*50*fms, t.At())
		require.Equal(t, 103, t.Server.Count())
		require.Zero(t, t.S.Stats().Owners["A"].Active+t.S.Stats().Owners["A"].Queued)
	})
}

func TestBudgetValidation(t *testing.T) {
	for path, b := range map[string]ax.Budget{
		"MaxConcurrent": {MaxConcurrent: -1}, "MaxQueue": {MaxQueue: -1}, "Rate[0].Limit": {Rate: []ax.Rate{{Limit: 0}}}, "Over": {Over: ax.OverAction(9)},
	} {
		_, err := ax.New(nil, ax.Config{Budgets: fAnn(b)})
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "ann")
		_, err = ax.New(nil, ax.Config{Owners: &b})
		require.ErrorContains(t, err, "Owners."+path)
	}
}

// TestL7WaitingOwnersAreWarnedAboutOnceToo: OverQueue holds twenty tasks over ten windows of one second.
func TestL7WaitingOwnersAreWarnedAboutOnceToo(t *testing.T) {
	log := &fLog{}
	bubble(t, ax.Config{Logger: log.Logger(), Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(2)})}, func(t *tester) {
		var cs []<-chan result
		for range 20 {
			cs = append(cs, t.Go(t.Context(), fOwned("ann", "/")))
		}
		t.Until(500 * fms)
		require.Len(t, log.Lines("level=WARN", "ann"), 1)
		for _, c := range cs {
			require.NoError(t, (<-c).Err)
		}
		require.Equal(t, 9*fsec, t.At())
		require.LessOrEqual(t, len(log.Lines("level=WARN", "ann")), 10, "at most one for each window")
	})
}

// TestL7TheDeadlineKnowsTheOwnersNextToken: who cannot live to see it is refused at once [L5].
func TestL7TheDeadlineKnowsTheOwnersNextToken(t *testing.T) {
	bubble(t, ax.Config{Budgets: fAnn(ax.Budget{Rate: []ax.Rate{{Limit: 1, Per: 10 * fsec}}})}, func(t *tester) {
		require.NoError(t, t.Do(t.Context(), fOwned("ann", "/")).Err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*fsec)
		defer cancel()
		res := t.Do(ctx, fOwned("ann", "/"))
		require.Zero(t, res.At)
		require.ErrorIs(t, res.Err, ax.ErrWouldExceedDeadline)
		require.Equal(t, 10*fsec, t.Do(t.Context(), fOwned("ann", "/")).At, "it took nothing")
	})
}

// TestL7AnOverFallbackAnswersAtOnce and says why.
func TestL7AnOverFallbackAnswersAtOnce(t *testing.T) {
	cfg := ax.Config{Fallback: &ax.Fallback{Static: fStatic("static")}, Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(1), Over: ax.OverFallback})}
	bubble(t, cfg, func(t *tester) {
		require.Equal(t, ax.FromNetwork, t.Do(t.Context(), fOwned("ann", "/")).Resp.Source)
		res := t.Do(t.Context(), fOwned("ann", "/"))
		require.Equal(t, "static", fBody(t, res))
		require.ErrorIs(t, res.Resp.Cause, ax.ErrBudget)
		require.ErrorContains(t, res.Resp.Cause, "ann")
		require.Zero(t, res.At)
		require.Equal(t, 1, t.Server.Count())
	})
}

// Whether a fallback answers is the word of the budget that refused, not of the one
// that is in force when the fallback is looked for.
func TestL7FallbackOfABudgetThatChanges(t *testing.T) {
	s, err := ax.New(&http.Client{Transport: &server{start: time.Now()}}, ax.Config{
		Fallback: &ax.Fallback{Static: fStatic("")},
		Budgets:  map[string]ax.Budget{"o": {Rate: ax.PerMinute(1)}},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	task := ax.Must(ax.Request{URL: at("/"), Owner: "o"}.Task())
	_, err = s.Do(dBG, task)
	require.NoError(t, err)
	var calls []*ax.Call
	for range 50 {
		calls = append(calls, s.Submit(dBG, task))
		require.NoError(t, s.SetBudget("o", ax.Budget{Rate: ax.PerMinute(1), Over: ax.OverFallback}))
		require.NoError(t, s.SetBudget("o", ax.Budget{Rate: ax.PerMinute(1)}))
	}
	for _, c := range calls {
		c.Cancel()
		if r, err := c.Result(); err == nil {
			require.Equal(t, ax.FromStatic, r.Source)
		}
	}
}
