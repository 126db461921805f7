package ax_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fAlt is a task on another host, so on another lane.
func fAlt(host string, fb *ax.Fallback) *ax.Task {
	return ax.Must(ax.Request{URL: "http://" + host + "/", Fallback: fb}.Task())
}

// fStatic answers with a text.
func fStatic(text string) func(context.Context, *ax.Task, error) (*http.Response, error) {
	return func(context.Context, *ax.Task, error) (*http.Response, error) { return reply(200, text), nil }
}

func TestF7Order(t *testing.T) {
	ev := &fEvents{}
	fb := &ax.Fallback{Alternate: fAlt("b.test", nil), Stale: time.Hour, Static: fStatic("static")}
	bubble(t, ax.Config{Retry: fRetry(1), OnEvent: ev.Add, Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, Fallback: fb}}}, func(t *tester) {
		bad := fAnswer(503, "bad")
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fScript(fAnswer(200, "fresh"), bad), "b.test": fScript(fAnswer(200, "alternate"), bad)})
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, "fresh", fBody(t, res))
		require.Equal(t, ax.FromNetwork, res.Resp.Source)
		require.NoError(t, res.Resp.Cause)

		res = t.Do(t.Context(), fGet("/"))
		require.Equal(t, "alternate", fBody(t, res))
		require.Equal(t, ax.FromAlternate, res.Resp.Source)
		require.Error(t, res.Resp.Cause)
		require.Equal(t, 100*fms, res.At, "after its retries")

		res = t.Do(t.Context(), fGet("/"))
		require.Equal(t, "fresh", fBody(t, res))
		require.Equal(t, ax.FromStale, res.Resp.Source)
		require.Error(t, res.Resp.Cause)
		require.Equal(t, res.At, res.Resp.Age, "it came at 0")
		require.Zero(t, res.Resp.Attempts)

		res = t.Do(t.Context(), fGet("/never-seen"))
		require.Equal(t, "static", fBody(t, res))
		require.Equal(t, ax.FromStatic, res.Resp.Source)
		require.Error(t, res.Resp.Cause)
		require.Zero(t, res.Resp.Attempts)

		require.EqualValues(t, 3, t.S.Stats().Fallbacks)
		var sources []ax.Source
		for _, e := range ev.Of(ax.EventFellBack) {
			sources = append(sources, e.Source)
			require.Equal(t, 2, e.Attempt, e.Source.String())
		}
		require.Equal(t, []ax.Source{ax.FromAlternate, ax.FromStale, ax.FromStatic}, sources)
	})
}

func TestF7OnlyFailuresAnd429FallBack(t *testing.T) {
	rows := []struct {
		reply fReply
		falls bool
	}{
		{fAnswer(500, "own"), true}, {fAnswer(501, "own"), true}, {fAnswer(503, "own"), true}, {fAnswer(429, "own"), true}, {fBreak(errFWire), true}, {fHang, true},
		{fAnswer(404, "own"), false}, {fAnswer(400, "own"), false}, {fAnswer(401, "own"), false}, {fAnswer(304, ""), false}, {fAnswer(200, "own"), false},
	}
	for i, row := range rows {
		bubble(t, ax.Config{AttemptTimeout: fsec, Fallback: &ax.Fallback{Static: fStatic("static")}}, func(t *tester) {
			t.Server.Reply = row.reply
			res := t.Do(t.Context(), fGet("/"))
			require.NoError(t, res.Err)
			require.Equal(t, row.falls, res.Resp.Source == ax.FromStatic, "row %d", i)
		})
	}
}

func TestF7StaticIsToldTheTaskAndTheCause(t *testing.T) {
	var cause error
	var task *ax.Task
	static := func(ctx context.Context, tk *ax.Task, err error) (*http.Response, error) {
		task, cause = tk, err
		return &http.Response{StatusCode: 203}, ctx.Err()
	}
	bubble(t, ax.Config{Fallback: &ax.Fallback{Static: static}}, func(t *tester) {
		t.Server.Reply = fBreak(errFWire)
		res := t.Do(t.Context(), fGet("/x"))
		require.NoError(t, res.Err)
		require.Equal(t, 203, res.Status())
		require.NotNil(t, res.Resp.Body, "never nil")
		require.ErrorIs(t, cause, errFWire)
		require.ErrorIs(t, res.Resp.Cause, errFWire)
		require.Equal(t, at("/x"), task.URL())
		require.EqualValues(t, 1, t.S.Stats().Succeeded)
	})
}

// TestF7StaticThatReturnsNothing is named, not the executor.
func TestF7StaticThatReturnsNothing(t *testing.T) {
	nothing := func(context.Context, *ax.Task, error) (*http.Response, error) { return nil, nil }
	bubble(t, ax.Config{Fallback: &ax.Fallback{Static: nothing}}, func(t *tester) {
		t.Server.Reply = fBreak(errFWire)
		err := t.Do(t.Context(), fGet("/")).Err
		require.ErrorContains(t, err, "Fallback.Static returned neither an answer nor an error")
		require.NotContains(t, err.Error(), "executor")
	})
}

// A response that is made once for all calls is nobody's to change.
func TestF7StaticMayBeOneForAll(t *testing.T) {
	one := &http.Response{Header: http.Header{"A": {"b"}}}
	static := func(context.Context, *ax.Task, error) (*http.Response, error) { return one, nil }
	bubble(t, ax.Config{Fallback: &ax.Fallback{Static: static}}, func(t *tester) {
		t.Server.Reply = after(fsec, 503, "")
		var all []<-chan result
		for range 10 {
			all = append(all, t.Go(dBG, fGet("/")))
		}
		for _, c := range all {
			r := <-c
			require.Equal(t, 200, r.Status())
			require.Equal(t, "b", r.Resp.Header.Get("A"))
			r.Resp.Header.Set("A", "changed")
			require.Empty(t, fBody(t, r))
		}
		require.Equal(t, &http.Response{Header: http.Header{"A": {"b"}}}, one)
	})
}

// TestF7CountsTasks that a fallback answered, not answers.
func TestF7CountsTasks(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, Fallback: &ax.Fallback{Static: fStatic("static")}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(fsec, 503, "")
		a, b := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))
		for _, c := range []<-chan result{a, b} {
			require.Equal(t, ax.FromStatic, (<-c).Resp.Source)
		}
		require.Equal(t, 1, t.Server.Count())
		require.EqualValues(t, 2, t.S.Stats().Fallbacks)
	})
}

// TestF7AnswersRefusals: each way of being refused that a fallback answers, and those that it does not.
func TestF7AnswersRefusals(t *testing.T) {
	fb := &ax.Fallback{Alternate: fAlt("b.test", nil), Static: fStatic("static")}
	busy := func(t *tester) { // takes the only slot for ever, and a place in the queue
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fHang})
		for range 2 {
			r := fGet("/busy")
			r.NoFallback = true
			t.S.Submit(t.Context(), ax.Must(r.Task()))
			time.Sleep(fms)
		}
	}
	gate := []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 1, MaxQueue: 1}}
	rows := []struct {
		name   string
		cfg    ax.Config
		before func(t *tester)
		r      ax.Request
		cause  error
		source ax.Source
	}{
		{"queue full", ax.Config{Lanes: gate}, busy, fGet("/"), ax.ErrQueueFull, ax.FromAlternate},
		{"queue timeout", ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 1}}}, busy,
			ax.Request{URL: at("/"), QueueTimeout: fsec}, ax.ErrQueueTimeout, ax.FromAlternate},
		{"budget", ax.Config{Budgets: map[string]ax.Budget{"ann": {MaxConcurrent: 1, Over: ax.OverFallback}}},
			func(t *tester) {
				t.Server.Reply = fHosts(map[string]fReply{"a.test": fHang})
				t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/busy"), Owner: "ann", NoFallback: true}.Task()))
				time.Sleep(fms)
			}, ax.Request{URL: at("/"), Owner: "ann"}, ax.ErrBudget, ax.FromAlternate},
		{"breaker", ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
			t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(500, "")})
			t.Do(t.Context(), ax.Request{URL: at("/bad"), NoFallback: true})
		}, fGet("/"), ax.ErrCircuitOpen, ax.FromAlternate},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, row.cfg, func(t *tester) {
				row.before(t)
				row.r.Fallback = fb
				res := t.Do(t.Context(), row.r)
				require.NoError(t, res.Err)
				require.Equal(t, row.source, res.Resp.Source)
				require.ErrorIs(t, res.Resp.Cause, row.cause)
			})
		})
	}
	t.Run("evicted", func(t *testing.T) {
		bubble(t, ax.Config{Lanes: gate, Overflow: ax.OverflowEvict}, func(t *tester) {
			t.Server.Reply = fHosts(map[string]fReply{"a.test": after(10*fsec, 200, "")})
			first := t.Go(t.Context(), fGet("/"))
			t.Until(fms)
			low := t.Go(t.Context(), ax.Request{URL: at("/"), Priority: ax.Low, Fallback: fb})
			t.Until(2 * fms)
			high := t.Go(t.Context(), ax.Request{URL: at("/"), Priority: ax.Urgent})
			r := <-low
			require.NoError(t, r.Err)
			require.Equal(t, 2*fms, r.At)
			require.ErrorIs(t, r.Resp.Cause, ax.ErrEvicted)
			require.Equal(t, ax.FromAlternate, r.Resp.Source)
			require.NoError(t, (<-first).Err)
			require.NoError(t, (<-high).Err)
		})
	})
	t.Run("deadline out of reach: no time for an alternate", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(429, "", "Retry-After: 9")})
			t.Do(t.Context(), ax.Request{URL: at("/"), NoFallback: true})
			ctx, cancel := context.WithTimeout(t.Context(), fsec)
			defer cancel()
			res := t.Do(ctx, ax.Request{URL: at("/"), Fallback: fb})
			require.NoError(t, res.Err)
			require.Zero(t, res.At)
			require.Equal(t, ax.FromStatic, res.Resp.Source)
			require.ErrorIs(t, res.Resp.Cause, ax.ErrWouldExceedDeadline)
			require.Empty(t, fHostHits(t, "b.test"))
		})
	})
	t.Run("not those", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, Budgets: map[string]ax.Budget{"bob": {Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}, Over: ax.OverReject}}}, func(t *tester) {
			require.NoError(t, t.Do(t.Context(), ax.Request{URL: at("/"), Owner: "bob"}).Err)
			require.ErrorIs(t, t.Do(t.Context(), ax.Request{URL: at("/"), Owner: "bob", Fallback: fb}).Err, ax.ErrBudget, "OverReject means it")
			t.Server.Reply = fHang
			call := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Cooldown: fsec, NoFallback: true}.Task()))
			time.Sleep(fms)
			require.ErrorIs(t, t.Do(t.Context(), ax.Request{URL: at("/"), Cooldown: fsec, Fallback: fb}).Err, ax.ErrCooldown)
			require.ErrorIs(t, t.Do(t.Context(), ax.Request{URL: at("/"), NoWait: true, Fallback: fb}).Err, ax.ErrWouldWait)
			call.Cancel()
		})
	})
}

func TestF7IfNothingAnswersTheTasksOwnOutcomeStands(t *testing.T) {
	broken := errors.New("static broken")
	static := func(context.Context, *ax.Task, error) (*http.Response, error) { return nil, broken }
	fb := &ax.Fallback{Alternate: fAlt("b.test", nil), Stale: time.Hour, Static: static}
	wireB := errors.New("b is cut")
	t.Run("answer", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(503, "own"), "b.test": fBreak(wireB)})
			r := fGet("/")
			r.Fallback = fb
			res := t.Do(t.Context(), r)
			require.Equal(t, "own", fBody(t, res))
			require.Equal(t, 503, res.Status())
			require.Equal(t, ax.FromNetwork, res.Resp.Source)
			require.ErrorIs(t, res.Resp.Cause, wireB)
			require.ErrorIs(t, res.Resp.Cause, broken)
			require.Zero(t, t.S.Stats().Fallbacks)
		})
	})
	t.Run("error", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = fHosts(map[string]fReply{"a.test": fBreak(errFWire), "b.test": fBreak(wireB)})
			r := fGet("/")
			r.Fallback = fb
			res := t.Do(t.Context(), r)
			for _, want := range []error{errFWire, wireB, broken} {
				require.ErrorIs(t, res.Err, want)
			}
			require.Equal(t, at("/"), fError(t, res.Err).URL)
		})
	})
}

func TestF7AlternateIsAWholeTask(t *testing.T) {
	c := fAlt("c.test", nil)
	b := ax.Must(ax.Request{URL: "http://b.test/", Retry: fRetry(1), Fallback: &ax.Fallback{Alternate: c}}.Task())
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(503, ""), "b.test": fAnswer(502, "")})
		r := fGet("/")
		r.Fallback = &ax.Fallback{Alternate: b}
		res := t.Do(t.Context(), r)
		require.Equal(t, "c.test", fBody(t, res))
		require.Equal(t, ax.FromAlternate, res.Resp.Source)
		require.Equal(t, []time.Duration{0, 100 * fms}, fHostHits(t, "b.test"), "with its own retry")
		lanes := t.S.Stats().Lanes
		require.EqualValues(t, 1, lanes["a.test"].Attempts)
		require.EqualValues(t, 2, lanes["b.test"].Attempts)
		require.EqualValues(t, 1, lanes["c.test"].Attempts)
	})
}

func TestF7NoFallbackAndInheritance(t *testing.T) {
	rows := []struct {
		r    ax.Request
		want string
	}{
		{ax.Request{URL: at("/")}, "scheduler"},
		{ax.Request{URL: at("/"), NoFallback: true}, "own"},
		{ax.Request{URL: at("/"), Fallback: &ax.Fallback{Static: fStatic("request")}}, "request"},
		{ax.Request{URL: "http://lane.test/"}, "lane"},
		{ax.Request{URL: "http://none.test/"}, "own"},
	}
	cfg := ax.Config{Fallback: &ax.Fallback{Static: fStatic("scheduler")}, Lanes: []ax.Lane{
		{Name: "lane", Match: []string{"lane.test"}, Fallback: &ax.Fallback{Static: fStatic("lane")}},
		{Name: "none", Match: []string{"none.test"}, NoFallback: true},
	}}
	for _, row := range rows {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = fAnswer(503, "own")
			require.Equal(t, row.want, fBody(t, t.Do(t.Context(), row.r)))
		})
	}
}

// TestF7SchedulerWideAlternateCannotLoop: it is refused by name, or ends after one hop.
// The Cause names every hop of a chain, and why there was no retry.
func TestF7CauseNamesAll(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(501, ""), "b.test": fAnswer(502, ""), "c.test": fAnswer(503, "")})
		chain := &ax.Fallback{Alternate: fAlt("b.test", &ax.Fallback{Alternate: fAlt("c.test", nil)})}
		r := t.Do(dBG, ax.Request{URL: at("/"), Fallback: chain})
		require.Equal(t, 501, r.Status())
		require.ErrorContains(t, r.Resp.Cause, "502")
		require.ErrorContains(t, r.Resp.Cause, "503")
	})
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}, Retry: fRetry(2)}, func(t *tester) {
		t.Server.Reply = fAnswer(503, "")
		var told error
		static := func(_ context.Context, _ *ax.Task, cause error) (*http.Response, error) {
			told = cause
			return reply(200, ""), nil
		}
		r := t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Static: static}})
		for _, cause := range []error{told, r.Resp.Cause} {
			status, ok := errors.AsType[*ax.StatusError](cause)
			require.True(t, ok)
			require.Equal(t, 503, status.StatusCode)
			require.ErrorIs(t, cause, ax.ErrCircuitOpen, "why it was not retried")
		}
	})
}

// A flight may have callers with a fallback and callers without. Each gets what it
// would have got alone, whoever came first.
func TestF7SharersWithoutFallbackSeeTheOutcome(t *testing.T) {
	static := &ax.Fallback{Static: fStatic("made up")}
	alternate := &ax.Fallback{Alternate: ax.Must(ax.Request{URL: "http://b.test/", Stream: true, NoFallback: true}.Task())}
	for name, fb := range map[string]*ax.Fallback{"stale": {Stale: time.Hour}, "static": static, "streamed alternate": alternate} {
		for _, way := range []string{"lane's", "its own"} {
			for _, firstDeclines := range []bool{true, false} {
				for _, breaks := range []bool{true, false} {
					t.Run(fmt.Sprint(name, ", ", way, ", first declines: ", firstDeclines, ", breaks: ", breaks), func(t *testing.T) {
						ev := &fEvents{}
						cfg := ax.Config{OnEvent: ev.Add, Dedupe: &ax.Dedupe{}}
						with, without := fGet("/"), fGet("/")
						if way == "lane's" {
							cfg.Fallback, without.NoFallback = fb, true
						} else {
							with.Fallback = fb
						}
						bubble(t, cfg, func(t *tester) {
							down := fAnswer(503, "down")
							if breaks {
								down = fBreak(io.ErrUnexpectedEOF)
							}
							slowly := func(h *hit) (*http.Response, error) {
								if err := h.Sleep(time.Second); err != nil {
									return nil, err
								}
								return down(h)
							}
							t.Server.Reply = fHosts(map[string]fReply{"a.test": fScript(fAnswer(200, "good"), slowly), "b.test": fAnswer(200, "alternate")})
							require.Equal(t, "good", fBody(t, t.Do(t.Context(), with)))
							first, second := with, without
							if firstDeclines {
								first, second = without, with
							}
							a := t.Go(t.Context(), first)
							synctest.Wait()
							b := t.Go(t.Context(), second)
							synctest.Wait()
							c := t.Go(t.Context(), without)
							fell, own := <-a, []result{<-b, <-c}
							if firstDeclines {
								fell, own[0] = own[0], fell
							}
							require.Equal(t, map[string]string{"stale": "good", "static": "made up", "streamed alternate": "alternate"}[name], fBody(t, fell))
							require.Error(t, fell.Resp.Cause)
							for _, r := range own {
								if breaks {
									require.ErrorIs(t, r.Err, io.ErrUnexpectedEOF)
									require.Equal(t, 1, fError(t, r.Err).Attempts)
									continue
								}
								require.Equal(t, 503, r.Status())
								require.Equal(t, "down", fBody(t, r))
								require.Contains(t, []ax.Source{ax.FromNetwork, ax.FromFlight}, r.Resp.Source)
							}
							require.Equal(t, 2, len(fHostHits(t, "a.test")), "they shared")
							require.EqualValues(t, 1, t.S.Stats().Fallbacks)
							fellBack := ev.Of(ax.EventFellBack)
							require.Len(t, fellBack, 1)
							require.Equal(t, fell.Resp.Seq, fellBack[0].Seq, "told of the one who fell back")
						})
					})
				}
			}
		}
	}
}

// TestF7AlternateTakesPriorityAndOwner of the task, whoever named them, if it has none;
// OverFallback's owner does not pay, or the fallback would meet the same budget.
func TestF7AlternateTakesPriorityAndOwner(t *testing.T) {
	for _, hinted := range []bool{false, true} {
		for _, row := range []struct {
			over  ax.OverAction
			alt   ax.Request
			owner string
			want  ax.Priority
		}{
			{ax.OverQueue, ax.Request{}, "ann", ax.Urgent},
			{ax.OverReject, ax.Request{}, "ann", ax.Urgent},
			{ax.OverFallback, ax.Request{}, "", ax.Urgent},
			{ax.OverFallback, ax.Request{Owner: "ann"}, "ann", ax.Urgent},
			{ax.OverQueue, ax.Request{Owner: "bob", Priority: ax.Low}, "bob", ax.Low},
		} {
			t.Run(fmt.Sprint(hinted, row.over, row.alt.Owner), func(t *testing.T) {
				g, ev := &fGovernor{}, &fEvents{}
				bubble(t, ax.Config{Governor: g, OnEvent: ev.Add, Budgets: fAnn(ax.Budget{Rate: ax.PerSecond(5), Over: row.over})}, func(t *tester) {
					t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(500, "")})
					row.alt.URL, row.alt.NoFallback = "http://b.test/", true
					r, ctx := fGet("/"), t.Context()
					r.Fallback = &ax.Fallback{Alternate: ax.Must(row.alt.Task())}
					if h := (ax.Hints{Owner: "ann", Priority: ax.Urgent}); hinted {
						ctx = ax.ContextWith(ctx, h)
					} else {
						r.Owner, r.Priority = h.Owner, h.Priority
					}
					require.Equal(t, ax.FromAlternate, t.Do(ctx, r).Resp.Source)
					asks := g.Asks()
					require.Equal(t, []string{"ann", row.owner}, []string{asks[0].Owner, asks[1].Owner})
					require.Equal(t, []ax.Priority{ax.Urgent, row.want}, []ax.Priority{asks[0].Priority, asks[1].Priority})
				})
			})
		}
		t.Run(fmt.Sprint("over budget ", hinted), func(t *testing.T) {
			bubble(t, ax.Config{Budgets: fAnn(ax.Budget{Rate: ax.PerMinute(1), Over: ax.OverFallback})}, func(t *tester) {
				r, ctx := fGet("/"), t.Context()
				r.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil)}
				if hinted {
					ctx = ax.ContextWith(ctx, ax.Hints{Owner: "ann"})
				} else {
					r.Owner = "ann"
				}
				require.Equal(t, ax.FromNetwork, t.Do(ctx, r).Resp.Source)
				require.Equal(t, ax.FromAlternate, t.Do(ctx, r).Resp.Source)
			})
		})
	}
}

func TestF7SchedulerWideAlternateCannotLoop(t *testing.T) {
	cfg := ax.Config{Fallback: &ax.Fallback{Alternate: fAlt("b.test", nil)}}
	if _, err := ax.New(nil, cfg); err != nil {
		require.ErrorContains(t, err, "Fallback.Alternate")
		return
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fAnswer(503, "own")
		require.Equal(t, 503, t.Do(t.Context(), fGet("/")).Status())
		require.Equal(t, 2, t.Server.Count())
	})
}
