package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestF7StaleIsBoundedAndApartFromTheWindow(t *testing.T) {
	for _, dedupe := range []*ax.Dedupe{nil, {}, {Window: fsec}} {
		t.Run(fmt.Sprint(dedupe), func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: dedupe, Fallback: &ax.Fallback{Stale: 5 * fsec}}, func(t *tester) {
				t.Server.Reply = fScript(fAnswer(200, "v1", "X-V: 1"), fAnswer(503, "bad"))
				require.Equal(t, "v1", fBody(t, t.Do(t.Context(), fGet("/"))))
				t.Until(4999 * fms)
				res := t.Do(t.Context(), fGet("/"))
				require.Equal(t, "v1", fBody(t, res))
				require.Equal(t, ax.FromStale, res.Resp.Source)
				require.Equal(t, 4999*fms, res.Resp.Age)
				require.Equal(t, "1", res.Resp.Header.Get("X-V"))
				t.Until(5001 * fms)
				res = t.Do(t.Context(), fGet("/"))
				require.Equal(t, 503, res.Status(), "no older than that; the answer given did not renew it")
				require.Equal(t, "bad", fBody(t, res))
			})
		})
	}
}

func TestF7StaleKeysAreAsStrictAsThoseOfDedupe(t *testing.T) {
	bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, "ann's"), fAnswer(503, "bad"))
		r := func(who string) ax.Request {
			return ax.Request{URL: at("/me"), Header: http.Header{"Authorization": {who}}}
		}
		require.Equal(t, "ann's", fBody(t, t.Do(t.Context(), r("ann"))))
		require.Equal(t, "bad", fBody(t, t.Do(t.Context(), r("bob"))))
		require.Equal(t, "bad", fBody(t, t.Do(t.Context(), ax.Request{Method: "POST", URL: at("/me"), Header: http.Header{"Authorization": {"ann"}}})))
		require.Equal(t, "ann's", fBody(t, t.Do(t.Context(), r("ann"))))
		t.S.Invalidate(ax.Must(r("ann").Task()).Key())
		require.Equal(t, "bad", fBody(t, t.Do(t.Context(), r("ann"))))
	})
}

func TestF7SharersOfAStaleAnswerSeeThatItIsStale(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, "v1"), after(100*fms, 503, "bad"))
		t.Do(t.Context(), fGet("/"))
		t.Until(fsec)
		cs := []<-chan result{t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))}
		for _, c := range cs {
			r := <-c
			require.Equal(t, "v1", fBody(t, r))
			require.Equal(t, ax.FromStale, r.Resp.Source)
			require.Equal(t, 1100*fms, r.Resp.Age)
			require.Error(t, r.Resp.Cause)
		}
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestCaseH34 nothing is tried for a caller who is gone; each hop has the whole body.
func TestCaseH34FallbackChain(t *testing.T) {
	slow := after(100*fms, 503, "no")
	post := func(host string, fb *ax.Fallback) ax.Request {
		return ax.Request{Method: "POST", URL: "http://" + host + "/", Body: []byte("body of " + host), Fallback: fb}
	}
	chain := func() ax.Request {
		f2 := ax.Must(post("f2.test", nil).Task())
		f1 := ax.Must(post("f1.test", &ax.Fallback{Alternate: f2}).Task())
		return post("p.test", &ax.Fallback{Alternate: f1})
	}
	hosts := func(t *tester) (hs []string) {
		for _, h := range t.Server.Hits() {
			require.Equal(t, "body of "+h.URL.Host, string(h.Body))
			hs = append(hs, h.URL.Host)
		}
		return hs
	}
	t.Run("cancel", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = slow
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*fms, cancel)
			res := t.Do(ctx, chain())
			require.ErrorIs(t, res.Err, context.Canceled)
			require.Equal(t, 50*fms, res.At)
			time.Sleep(fsec)
			require.Equal(t, []string{"p.test"}, hosts(t))
		})
	})
	t.Run("deadline", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = slow
			ctx, cancel := context.WithTimeout(t.Context(), 150*fms)
			defer cancel()
			res := t.Do(ctx, chain())
			require.LessOrEqual(t, res.At, 150*fms)
			time.Sleep(fsec)
			require.Equal(t, []string{"p.test", "f1.test"}, hosts(t), "f1 had time left, f2 had none")
		})
	})
	t.Run("to the end", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				h.Sleep(100 * fms)
				if h.URL.Host == "p.test" {
					return reply(503, "own"), nil
				}
				return nil, errors.New("cut at " + h.URL.Host)
			}
			res := t.Do(t.Context(), chain())
			require.Equal(t, []string{"p.test", "f1.test", "f2.test"}, hosts(t))
			require.Equal(t, 300*fms, res.At)
			require.Equal(t, "own", fBody(t, res))
			require.ErrorContains(t, res.Resp.Cause, "cut at f1.test")
			require.ErrorContains(t, res.Resp.Cause, "cut at f2.test")
		})
	})
}

// TestCaseH45 stale is bounded, errors are never stored, an answer is an answer.
func TestCaseH45StaleIsNotForEver(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{Window: fsec}, Fallback: &ax.Fallback{Stale: 5 * fsec}}
	for _, down := range []fReply{fAnswer(503, "bad"), fBreak(errFWire)} {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(200, "v1"), down)
			t.Do(t.Context(), fGet("/"))
			t.Until(500 * fms)
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, "v1", fBody(t, res))
			require.Equal(t, ax.FromWindow, res.Resp.Source)
			require.Equal(t, 1, t.Server.Count())

			t.Until(3 * fsec)
			one, two := t.Go(t.Context(), fGet("/")), t.Go(t.Context(), fGet("/"))
			r1, r2 := <-one, <-two
			r1.Resp.Header.Set("X-Mine", "1")
			require.Empty(t, r2.Resp.Header.Get("X-Mine"))
			for _, r := range []result{r1, r2} {
				require.Equal(t, "v1", fBody(t, r))
				require.Equal(t, ax.FromStale, r.Resp.Source)
				require.Equal(t, 3*fsec, r.Resp.Age)
			}
			t.Until(7 * fsec)
			res = t.Do(t.Context(), fGet("/"))
			require.NotEqual(t, 200, res.Status())
			require.Zero(t, t.S.Stats().DedupeEntries)
		})
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, "v1"), fAnswer(404, "gone"))
		t.Do(t.Context(), fGet("/"))
		t.Until(3 * fsec)
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, 404, res.Status())
		require.Equal(t, ax.FromNetwork, res.Resp.Source)
		require.Equal(t, "gone", fBody(t, res))
	})
}

// TestF7StaleAnswersRefusals: an open breaker and a deadline out of reach, at once.
func TestF7StaleAnswersRefusals(t *testing.T) {
	stale := &ax.Fallback{Stale: time.Hour}
	bubble(t, ax.Config{Fallback: stale, Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, "v1"), fAnswer(500, "bad"))
		t.Do(t.Context(), fGet("/"))
		for range 3 { // the first meets the failure, the others the open breaker
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, "v1", fBody(t, res))
			require.Equal(t, ax.FromStale, res.Resp.Source)
		}
		require.Equal(t, 2, t.Server.Count())
		res := t.Do(t.Context(), fGet("/unknown"))
		require.ErrorIs(t, res.Err, ax.ErrCircuitOpen, "nothing answers: the refusal stands")
		require.EqualValues(t, 1, t.S.Stats().Rejected)
	})
	bubble(t, ax.Config{Fallback: stale}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/": fAnswer(200, "v1"), "/busy": fAnswer(429, "", "Retry-After: 20")})
		t.Do(t.Context(), fGet("/"))
		t.Do(t.Context(), fGet("/busy"))
		ctx, cancel := context.WithTimeout(t.Context(), fsec)
		defer cancel()
		res := t.Do(ctx, fGet("/"))
		require.Equal(t, "v1", fBody(t, res))
		require.Zero(t, res.At)
		require.Equal(t, ax.FromStale, res.Resp.Source)
		require.ErrorIs(t, res.Resp.Cause, ax.ErrWouldExceedDeadline)
	})
}

// TestF7TheCallerWhoIsGoneGetsNoStale: a cancel is answered as a cancel.
func TestF7TheCallerWhoIsGoneGetsNoStale(t *testing.T) {
	bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: time.Hour, Static: fStatic("static")}}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, "v1"), fHang)
		t.Do(t.Context(), fGet("/"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(fsec, cancel)
		res := t.Do(ctx, fGet("/"))
		require.ErrorIs(t, res.Err, context.Canceled)
		require.Nil(t, res.Resp)
		require.Zero(t, t.S.Stats().Fallbacks)
	})
}

// What a write did before does not stand for what it should have done now.
func TestF7StaleIsNotForWrites(t *testing.T) {
	for name, c := range map[string]struct {
		r    ax.Request
		want ax.Source
	}{
		"plain":     {ax.Request{Method: "POST", URL: at("/orders"), Body: []byte("7")}, ax.FromNetwork},
		"put":       {ax.Request{Method: "PUT", URL: at("/orders"), Body: []byte("7")}, ax.FromNetwork},
		"dedupe":    {ax.Request{Method: "POST", URL: at("/search"), Body: []byte("q"), Dedupe: true}, ax.FromStale},
		"named":     {ax.Request{Method: "POST", URL: at("/search"), Body: []byte("q"), DedupeKey: "q"}, ax.FromStale},
		"no dedupe": {ax.Request{URL: at("/news"), NoDedupe: true}, ax.FromStale},
		"head":      {ax.Request{Method: "HEAD", URL: at("/news")}, ax.FromStale},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
				t.Server.Reply = fScript(fAnswer(201, ""), fAnswer(500, ""))
				require.Equal(t, 201, t.Do(dBG, c.r).Status())
				require.Equal(t, c.want, t.Do(dBG, c.r).Resp.Source)
			})
		})
	}
}

// No older than this, but as old.
func TestF7StaleAtItsBound(t *testing.T) {
	for _, over := range []time.Duration{0, 1} {
		bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: 5 * fsec}}, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(200, ""), fAnswer(503, ""))
			t.Do(dBG, fGet("/"))
			time.Sleep(5*fsec + over)
			r := t.Do(dBG, fGet("/"))
			require.Equal(t, over == 0, r.Resp.Source == ax.FromStale)
		})
	}
}
