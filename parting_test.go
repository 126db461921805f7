package ax_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// Who has no fallback does not wait for another's.
func TestPartingIsAtOnce(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": after(time.Second, 503, "down"), "b.test": after(time.Hour, 200, "")})
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(dBG, 5*time.Second)
		defer cancel()
		d := t.Go(ctx, fGet("/"))
		synctest.Wait()
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil)}
		w := t.Go(dBG, with)
		r := <-d
		r2 := <-without
		<-w
		require.Equal(t, 503, r.Status())
		require.Equal(t, time.Second, r2.At)
	})
}

// What a fallback failed of is the matter of who has it.
func TestPartingLeavesOthersFaultsBehind(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		fault := errors.New("static failed")
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			return nil, io.ErrUnexpectedEOF
		}
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		with := fGet("/")
		with.Fallback = &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return nil, fault }}
		w := t.Go(dBG, with)
		<-w
		r := <-without
		require.Equal(t, "attempt", fError(t, r.Err).Op)
		require.NotErrorIs(t, r.Err, fault)
	})
}

// Nor does its panic reach anybody else …
func TestPartingBeforeAPanickingAlternate(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				panic("boom")
			}
			h.Sleep(time.Second)
			return reply(503, "down"), nil
		}
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil), Static: fStatic("x")}
		w := t.Go(dBG, with)
		<-w
		r := <-without
		require.NoError(t, r.Err)
		require.Equal(t, 503, r.Status())
	})
}

// … nor its Goexit …
func TestPartingBeforeGoexitInStatic(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(time.Second, 503, "down")
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		with := fGet("/")
		with.Fallback = &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { runtime.Goexit(); return nil, nil }}
		w := t.Go(dBG, with)
		require.Error(t, (<-w).Err)
		r := <-without
		require.NoError(t, r.Err)
		require.Equal(t, 503, r.Status())
	})
}

// … nor that of a listener who is told of it.
func TestPartingBeforeGoexitInAListener(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventFellBack {
			runtime.Goexit()
		}
	}}, func(t *tester) {
		t.Server.Reply = after(time.Second, 503, "down")
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		with := fGet("/")
		with.Fallback = &ax.Fallback{Static: fStatic("x")}
		w := t.Go(dBG, with)
		r := <-w
		r = <-without
		require.NoError(t, r.Err)
		require.Equal(t, 503, r.Status())
	})
}

// If nobody is left who has one, no fallback runs.
func TestFallbackForNobodyIsNotSent(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": after(time.Second, 503, "down"), "b.test": after(time.Minute, 200, "")})
		ctx, cancel := context.WithCancel(dBG)
		statics := 0
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil), Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
			statics++
			return reply(200, ""), nil
		}}
		w := t.Go(ctx, with)
		synctest.Wait()
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		cancel()
		require.Error(t, (<-w).Err)
		r := <-without
		require.Equal(t, 503, r.Status())
		require.Equal(t, 0, len(fHostHits(t, "b.test")), "nobody wants an alternate")
		require.Equal(t, time.Second, r.At)
	})
}

// If he leaves while it runs, its stream is closed.
func TestFallbackStreamForNobodyIsClosed(t *testing.T) {
	body := &fStream{left: 1 << 20}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": after(time.Second, 503, "down"), "b.test": func(h *hit) (*http.Response, error) {
			h.Sleep(time.Second)
			return fWith(200, body, -1)(h)
		}})
		ctx, cancel := context.WithCancel(dBG)
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: ax.Must(ax.Request{URL: "http://b.test/", Stream: true}.Task())}
		w := t.Go(ctx, with)
		synctest.Wait()
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		t.Until(1500 * fms)
		cancel()
		require.Error(t, (<-w).Err)
		r := <-without
		require.Equal(t, 503, r.Status())
		synctest.Wait()
		_, closed := body.State()
		require.True(t, closed)
		require.Zero(t, t.S.Stats().Active)
		require.Zero(t, t.S.Stats().Fallbacks)
	})
}

// The fallback is that of somebody who is still there …
func TestFallbackOfWhoIsStillThere(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(time.Second, 503, "")
		without := t.Go(dBG, fGet("/"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(dBG)
		one := fGet("/")
		one.Fallback = &ax.Fallback{Stale: time.Hour}
		w1 := t.Go(ctx, one)
		synctest.Wait()
		two := fGet("/")
		two.Fallback = &ax.Fallback{Static: fStatic("two")}
		w2 := t.Go(dBG, two)
		synctest.Wait()
		cancel()
		<-w1
		<-without
		r := <-w2
		require.Equal(t, "two", fBody(t, r))
	})
}

// … also if it was the first caller who has left.
func TestFallbackOfTheFirstWhoLeft(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(time.Second, 503, "")
		ctx, cancel := context.WithCancel(dBG)
		one := fGet("/")
		one.Fallback = &ax.Fallback{Stale: time.Hour}
		w1 := t.Go(ctx, one)
		synctest.Wait()
		two := fGet("/")
		two.Fallback = &ax.Fallback{Static: fStatic("two")}
		w2 := t.Go(dBG, two)
		synctest.Wait()
		cancel()
		<-w1
		r := <-w2
		require.Equal(t, "two", fBody(t, r))
	})
}

// A panic goes on through the only caller left, whatever the other one had.
func TestPanicReachesTheOneWhoIsLeft(t *testing.T) {
	for _, fb := range []*ax.Fallback{nil, {Static: fStatic("x")}} {
		synctest.Test(t, func(t *testing.T) {
			s, err := ax.New(nil, ax.Config{Dedupe: &ax.Dedupe{}, Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
				time.Sleep(time.Second)
				panic("boom")
			})})
			require.NoError(t, err)
			defer s.Close()
			ctx, cancel := context.WithCancel(dBG)
			a := make(chan struct{})
			go func() {
				s.Do(ctx, ax.Must(ax.Request{URL: at("/"), Fallback: fb}.Task()))
				close(a)
			}()
			synctest.Wait()
			got := make(chan any)
			go func() {
				defer func() { got <- recover() }()
				_, _ = s.Do(dBG, ax.Must(fGet("/").Task()))
			}()
			synctest.Wait()
			cancel()
			<-a
			require.Equal(t, "boom", <-got, "fallback of the one who left: %v", fb)
		})
	}
}

// An answer that somebody is to see is not cut for a fallback.
func TestPartingWithALargeAnswer(t *testing.T) {
	for _, stream := range []bool{true, false} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 300 << 10}, func(t *tester) {
			big := strings.Repeat("x", 400<<10)
			t.Server.Reply = after(time.Second, 503, big)
			d := fGet("/")
			d.Stream = stream
			without := t.Go(dBG, d)
			synctest.Wait()
			with := fGet("/")
			with.Fallback = &ax.Fallback{Static: fStatic("static")}
			w := t.Go(dBG, with)
			<-w
			r := <-without
			require.NoError(t, r.Err)
			b, err := io.ReadAll(r.Resp.Body)
			require.NoError(t, err, "after %d bytes of source %v", len(b), r.Resp.Source)
			require.Len(t, b, len(big))
		})
	}
}

// A stream can have failed as well.
func TestF7StreamedAlternateThatFails(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fAnswer(503, "x")
		r := t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{
			Alternate: ax.Must(ax.Request{URL: "http://b.test/", Stream: true}.Task()), Static: fStatic("static")}})
		defer r.Resp.Body.Close()
		require.Equal(t, ax.FromStatic, r.Resp.Source)
	})
}

// Who comes while a fallback runs is not given what was before.
func TestD3NobodyJoinsARefusalThatFallsBack(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject, OpenFor: 3 * time.Second}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fScript(fAnswer(503, ""), fAnswer(200, "good")), "b.test": after(10*time.Second, 200, "b")})
		require.Equal(t, 503, t.Do(dBG, fGet("/")).Status())
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil)}
		w := t.Go(dBG, with)
		t.Until(5 * time.Second) // the breaker is half-open by now
		r := t.Do(dBG, fGet("/"))
		<-w
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status())
	})
}

func TestD3NobodyJoinsAFailureThatFallsBack(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fScript(fBreak(io.ErrUnexpectedEOF), fAnswer(200, "good")), "b.test": after(10*time.Second, 200, "b")})
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil)}
		w := t.Go(dBG, with)
		t.Until(5 * time.Second)
		r := t.Do(dBG, fGet("/")) // no fallback; a.test is well
		<-w
		require.NoError(t, r.Err, "at %v", r.At)
	})
}

// Nor what another caller's deadline made final.
func TestD3NobodyJoinsAFailureOfAnothersDeadline(t *testing.T) {
	slow := true
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Retry: fRetry(2), Rate: ax.PerMinute(1), OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventAttemptDone && slow {
			slow = false
			time.Sleep(time.Second)
		}
	}}, func(t *tester) {
		t.Server.Reply = fScript(after(time.Second, 503, "down"), fAnswer(200, ""))
		ctx, cancel := context.WithTimeout(dBG, 10*time.Second)
		defer cancel()
		a := t.Go(ctx, fGet("/"))
		t.Until(1500 * fms)
		r := t.Do(dBG, fGet("/"))
		<-a
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status(), "%v", r.Resp.Cause)
	})
}

// An alternate's cookies are no more the caller's than any shared answer's.
func TestD4SetCookieOfAnAlternateFromTheWindow(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(503, ""), "b.test": fAnswer(200, "b", "Set-Cookie: sid=1")})
		r := t.Do(dBG, ax.Request{URL: "http://b.test/"})
		require.Len(t, r.Resp.Cookies(), 1)
		r = t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: fAlt("b.test", nil)}})
		require.Equal(t, ax.FromAlternate, r.Resp.Source)
		require.Equal(t, 1, len(fHostHits(t, "b.test")))
		require.Empty(t, r.Resp.Cookies())
	})
}

func TestD4SetCookieOfAnAlternateFromAFlight(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(503, ""), "b.test": func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			return reply(200, "b", "Set-Cookie: sid=1"), nil
		}})
		a := t.Go(dBG, ax.Request{URL: "http://b.test/"})
		synctest.Wait()
		r := t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: fAlt("b.test", nil)}})
		require.Len(t, (<-a).Resp.Cookies(), 1)
		require.Equal(t, 1, len(fHostHits(t, "b.test")))
		require.Empty(t, r.Resp.Cookies())
	})
}

func TestD4SetCookieOfAStaleAlternate(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{"a.test": fAnswer(503, ""), "b.test": fScript(fAnswer(200, "b", "Set-Cookie: sid=1"), fAnswer(503, ""))})
		st := &ax.Fallback{Stale: time.Hour}
		t.Do(dBG, ax.Request{URL: "http://b.test/", Fallback: st})
		r := t.Do(dBG, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: fAlt("b.test", st)}})
		require.Equal(t, "b", fBody(t, r))
		require.Empty(t, r.Resp.Cookies())
	})
}

func TestD4SetCookieIsNotInACause(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Fallback: &ax.Fallback{Static: fStatic("x")}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			return reply(503, "", "Set-Cookie: sid=1"), nil
		}
		a := t.Go(dBG, fGet("/"))
		synctest.Wait()
		b := t.Go(dBG, fGet("/"))
		<-a
		r := <-b
		se, ok := errors.AsType[*ax.StatusError](r.Resp.Cause)
		require.True(t, ok)
		require.Empty(t, se.Header.Values("Set-Cookie"))
	})
}

func TestD4SetCookieInAnErrorsResponse(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Retry: fRetry(1)}, func(t *tester) {
		n := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			if n++; n == 1 {
				return reply(503, "", "Set-Cookie: a=1"), nil
			}
			return nil, errors.New("x")
		}
		a := t.Go(dBG, fGet("/"))
		synctest.Wait()
		b := t.Go(dBG, fGet("/"))
		require.Len(t, fError(t, (<-a).Err).Response.Cookies(), 1)
		require.Empty(t, fError(t, (<-b).Err).Response.Cookies())
	})
}

// A start that was not made costs no token when its retry is judged.
func TestL2LostGrantGivesItsTokenBackBeforeTheRetry(t *testing.T) {
	for _, scope := range []string{"all", "lane", "owner"} {
		rate := []ax.Rate{{Limit: 1, Per: time.Hour, Burst: 2}}
		g := &fGovernor{}
		g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
			if n != 2 {
				return ax.Grant{}, nil
			}
			lost := make(chan struct{})
			time.AfterFunc(10*fms, func() { close(lost) })
			return ax.Grant{Lost: lost}, nil
		}
		slow := true
		cfg := ax.Config{Governor: g, Retry: &ax.Retry{Max: 3, BaseDelay: fms, Jitter: ax.NoJitter}, OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventRetryScheduled && slow {
				slow = false
				time.Sleep(50 * fms)
			}
		}}
		switch scope {
		case "all":
			cfg.Rate = rate
		case "lane":
			cfg.Hosts = &ax.Lane{Rate: rate}
		case "owner":
			cfg.Owners = &ax.Budget{Rate: rate}
		}
		t.Run(scope, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(200, ""))
				ctx, cancel := context.WithTimeout(dBG, 5*time.Second)
				defer cancel()
				r := t.Do(ctx, ax.Request{URL: at("/"), Owner: "o"})
				require.NoError(t, r.Err)
				require.Equal(t, 200, r.Status(), "%v, asks %d", r.Resp.Cause, len(g.Asks()))
			})
		})
	}
}

func TestL2LateGrantGivesItsTokenBackBeforeTheNext(t *testing.T) {
	for name, cfg := range map[string]ax.Config{
		"bucket": {Rate: []ax.Rate{{Limit: 1, Per: time.Hour, Burst: 1}}},
		"window": {Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}},
		"none":   {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				armed := new(atomic.Bool)
				g := &fGovernor{}
				g.Answer = func(_ context.Context, n int, _ ax.Ask) (ax.Grant, error) {
					armed.Store(n == 1)
					return ax.Grant{StartBy: time.Now().Add(10 * fms)}, nil
				}
				cfg.Governor = g
				s := qReal(t, cfg, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
					return qNoop(ctx, task)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				resp, err := s.Get(frozenBeforeTheSend{ctx, armed}, at("/"))
				require.NoError(t, err)
				require.Equal(t, 1, resp.Attempts)
			})
		})
	}
}

func TestF3RetryJustInTime(t *testing.T) {
	for _, burst := range []int{0, 1} {
		bubble(t, ax.Config{Retry: fRetry(2), Rate: []ax.Rate{{Limit: 1, Per: time.Second, Burst: burst}}}, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(200, ""))
			ctx, cancel := context.WithTimeout(dBG, time.Second+time.Microsecond)
			defer cancel()
			r := t.Do(ctx, fGet("/"))
			require.NoError(t, r.Err)
			require.Equal(t, 200, r.Status(), "burst %d: %v", burst, r.Resp.Cause)
		})
	}
}

// An answer after which nothing can come is not cut.
func TestRefusedRetryLeavesTheAnswerWhole(t *testing.T) {
	for _, stream := range []bool{false, true} {
		cfg := ax.Config{Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject, OpenFor: time.Minute}}
		bubble(t, cfg, func(t *tester) {
			big := strings.Repeat("x", 400<<10)
			t.Server.Reply = fPaths(map[string]fReply{"/": after(2*time.Second, 503, big), "/other": after(time.Second, 500, "")})
			other := t.Go(dBG, ax.Request{URL: at("/other"), NoRetry: true})
			r := t.Do(dBG, ax.Request{URL: at("/"), Stream: stream})
			<-other
			require.Equal(t, 503, r.Status())
			require.ErrorIs(t, r.Resp.Cause, ax.ErrCircuitOpen)
			b, err := io.ReadAll(r.Resp.Body)
			require.NoError(t, err, "stream %v: %d", stream, len(b))
			require.Len(t, b, len(big))
			r.Resp.Body.Close()
		})
	}
}

func TestHopelessRetryLeavesTheAnswerWhole(t *testing.T) {
	for _, stream := range []bool{false, true} {
		cfg := ax.Config{Retry: fRetry(2), Rate: ax.PerMinute(1)}
		bubble(t, cfg, func(t *tester) {
			big := strings.Repeat("x", 400<<10)
			t.Server.Reply = after(time.Second, 503, big)
			ctx, cancel := context.WithTimeout(dBG, 10*time.Second)
			defer cancel()
			r := t.Do(ctx, ax.Request{URL: at("/"), Stream: stream})
			require.Equal(t, 503, r.Status())
			require.ErrorIs(t, r.Resp.Cause, ax.ErrWouldExceedDeadline)
			b, err := io.ReadAll(r.Resp.Body)
			require.NoError(t, err, "stream %v: %d", stream, len(b))
			require.Len(t, b, len(big))
			r.Resp.Body.Close()
		})
	}
}

// What a write has answered is not made old by its own second sending.
func TestD2TwinOfAWriteForgetsNotItsAnswer(t *testing.T) {
	for name, c := range map[string]ax.Request{
		"hedge": {Hedge: &ax.Hedge{After: time.Second}},
		"deaf":  {AttemptTimeout: time.Second, Retry: fRetry(2)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.N == 1 {
						time.Sleep(10 * time.Second) // deaf
					}
					return reply(200, "x"), nil
				}
				c.Method, c.URL, c.Dedupe, c.IdempotencyKey = "POST", at("/x"), true, "k"
				require.Equal(t, 200, t.Do(dBG, c).Status())
				require.Equal(t, ax.FromWindow, t.Do(dBG, c).Resp.Source)
				t.Until(20 * time.Second)
				require.Equal(t, ax.FromWindow, t.Do(dBG, c).Resp.Source)
				require.Equal(t, 2, t.Server.Count())
			})
		})
	}
}

// A losing attempt has written too.
func TestD2LosingWriteForgets(t *testing.T) {
	for _, stream := range []bool{false, true} {
		cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, Breaker: &ax.Breaker{IsFailure: func(o ax.Outcome) bool {
			return o.Err != nil || o.Response.Header.Get("X-Bad") != "" || o.Response.StatusCode >= 500
		}}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.Method == "GET" {
					return reply(200, ""), nil
				}
				if h.N == 2 {
					h.Sleep(5 * time.Second)
					return reply(200, "x", "X-Bad: 1"), nil
				}
				h.Sleep(10 * time.Second)
				return reply(500, "x"), nil
			}
			t.Do(dBG, dGet("/x"))
			r := t.Do(dBG, ax.Request{Method: "PUT", URL: at("/x"), Stream: stream, Hedge: &ax.Hedge{After: time.Second}})
			require.NoError(t, r.Err)
			require.Equal(t, 500, r.Status())
			r.Resp.Body.Close()
			require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source, "stream: %v", stream)
		})
	}
}

func TestD2StreamedLoserForgets(t *testing.T) {
	for _, stream := range []bool{false, true} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.Method == "GET" {
					return reply(200, ""), nil
				}
				if h.N == 1 {
					time.Sleep(10 * time.Second) // deaf
				}
				return reply(200, "x"), nil
			}
			r := t.Do(dBG, ax.Request{Method: "PUT", URL: at("/x"), Stream: stream, Hedge: &ax.Hedge{After: time.Second}})
			require.NoError(t, r.Err)
			r.Resp.Body.Close()
			require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
			t.Until(20 * time.Second)
			require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source, "stream: %v", stream)
		})
	}
}

func TestD2StreamedWriteWhoseCallerLeftForgets(t *testing.T) {
	for _, hedged := range []bool{false, true} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.Method == "GET" {
					return reply(200, ""), nil
				}
				time.Sleep(time.Second)
				return reply(200, "x"), nil
			}
			t.Do(dBG, dGet("/x"))
			ctx, cancel := context.WithTimeout(dBG, time.Second/2)
			defer cancel()
			r := ax.Request{Method: "PUT", URL: at("/x"), Stream: true}
			if hedged {
				r.Hedge = &ax.Hedge{After: time.Minute}
			}
			require.Error(t, t.Do(ctx, r).Err)
			time.Sleep(2 * time.Second)
			require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source, "hedged: %v", hedged)
		})
	}
}

// A redirect is a success of the write, whatever becomes of its target.
func TestD2RedirectedWriteForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{start: time.Now()}
		srv.Reply = func(h *hit) (*http.Response, error) {
			if h.Method == "POST" {
				return reply(303, "", "Location: /done"), nil
			}
			if h.URL.Path == "/done" {
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		for _, check := range []func(*http.Request, []*http.Request) error{
			func(*http.Request, []*http.Request) error { return errors.New("no") }, nil,
		} {
			s, err := ax.New(&http.Client{Transport: srv, CheckRedirect: check}, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}})
			require.NoError(t, err)
			_, err = s.Do(dBG, ax.Must(dGet("/x").Task()))
			require.NoError(t, err)
			s.Do(dBG, ax.Must(ax.Request{Method: "POST", URL: at("/x")}.Task()))
			r, err := s.Do(dBG, ax.Must(dGet("/x").Task()))
			require.NoError(t, err)
			if r.Source != ax.FromNetwork {
				t.Errorf("custom %v: %v", check != nil, r.Source)
			}
			s.Close()
		}
	})
}

// A write that began before there was anything to forget.
func TestD2WriteFromBeforeTheFirstReadForgets(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.Method == "POST" {
				h.Sleep(2 * time.Second)
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, ax.Request{Method: "POST", URL: at("/warm")})
		w := t.Go(dBG, ax.Request{Method: "POST", URL: at("/x")})
		synctest.Wait()
		t.Do(dBG, dGet("/x"))
		<-w
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
	})
}

func TestD2WriteDuringAReadThatWillBeStale(t *testing.T) {
	cfg := ax.Config{Lanes: []ax.Lane{{Name: "w", Match: []string{"POST a.test"}}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				h.Sleep(2 * time.Second)
			}
			if h.N >= 3 {
				return reply(503, ""), nil
			}
			return reply(200, "old"), nil
		}
		g := dGet("/x")
		g.Fallback = &ax.Fallback{Stale: time.Hour}
		a := t.Go(dBG, g)
		synctest.Wait()
		require.Equal(t, 200, t.Do(dBG, ax.Request{Method: "POST", URL: at("/x")}).Status())
		<-a
		r := t.Do(dBG, g)
		require.Equal(t, 503, r.Status())
	})
}

// A stream of a failure goes to who has no fallback.
func TestPartingWithAStream(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 300 << 10}, func(t *tester) {
		big := strings.Repeat("x", 400<<10)
		t.Server.Reply = after(time.Second, 503, big)
		with := fGet("/")
		with.Fallback = &ax.Fallback{Static: fStatic("static")}
		w := t.Go(dBG, with)
		synctest.Wait()
		without := t.Go(dBG, fGet("/"))
		a, b := <-w, <-without
		for _, r := range []result{a, b} {
			if r.Resp != nil {
				defer r.Resp.Body.Close()
			}
		}
		require.NoError(t, a.Err)
		require.Equal(t, ax.FromStatic, a.Resp.Source, "status %d", a.Status())
	})
}

// A retry that is refused before the body is read is judged again after it.
func TestF3EarlyRefusalIsNotForWhoJoinsMeanwhile(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Retry: fRetry(2), Rate: ax.PerMinute(1)}, func(t *tester) {
		n := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if n++; n > 1 {
				return reply(200, "good"), nil
			}
			r := reply(503, "")
			r.Body, r.ContentLength = &lateBody{strings.NewReader("down"), 50 * fms}, 4
			return r, nil
		}
		ctx, cancel := context.WithTimeout(dBG, 10*time.Second)
		defer cancel()
		a := t.Go(ctx, fGet("/"))
		t.Until(20 * fms)
		r := t.Do(dBG, fGet("/"))
		<-a
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status(), "cause %v", r.Resp.Cause)
	})
}

// Nobody joins an answer that is being cut.
func TestPartingOfWhoComesWhileAnAnswerIsCut(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 300 << 10}, func(t *tester) {
		big := strings.Repeat("x", 400<<10)
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			r := reply(503, "")
			r.Body, r.ContentLength = &lateBody{strings.NewReader(big), 50 * fms}, int64(len(big))
			return r, nil
		}
		with := fGet("/")
		with.Fallback = &ax.Fallback{Static: fStatic("static")}
		w := t.Go(dBG, with)
		t.Until(20 * fms)
		r := t.Do(dBG, fGet("/"))
		<-w
		require.NoError(t, r.Err)
		b, err := io.ReadAll(r.Resp.Body)
		require.NoError(t, err, "after %d bytes of %v", len(b), r.Resp.Source)
		require.Len(t, b, len(big))
	})
}

// A failure is not kept, also if it is one by IsFailure.
func TestD2FailureIsNotKept(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, Breaker: &ax.Breaker{MinCalls: 100, Window: 100, IsFailure: func(o ax.Outcome) bool {
		return o.Response != nil && o.Response.Header.Get("Bad") != ""
	}}}, func(t *tester) {
		t.Server.Reply = fHosts(map[string]fReply{
			"a.test": fScript(fAnswer(200, "bad", "Bad: 1"), fAnswer(200, "good")),
			"b.test": after(10*time.Second, 503, "b"),
		})
		with := fGet("/")
		with.Fallback = &ax.Fallback{Alternate: fAlt("b.test", nil)}
		w := t.Go(dBG, with)
		t.Until(5 * time.Second)
		require.Equal(t, "good", fBody(t, t.Do(dBG, fGet("/"))))
		r := <-w
		require.Equal(t, "bad", fBody(t, r))
		require.Equal(t, "good", fBody(t, t.Do(dBG, fGet("/"))))
	})
}

func TestF7StaticTrailerIsNobodysToChange(t *testing.T) {
	shared := &http.Response{StatusCode: 200, Header: http.Header{"X": {"1"}}, Trailer: http.Header{"T": {"1"}}}
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fAnswer(503, "")
		r := fGet("/")
		r.Fallback = &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return shared, nil }}
		a := t.Do(dBG, r)
		a.Resp.Header.Set("X", "2")
		a.Resp.Trailer.Set("T", "2")
		b := t.Do(dBG, r)
		require.Equal(t, "1", b.Resp.Header.Get("X"))
		require.Equal(t, "1", b.Resp.Trailer.Get("T"))
	})
}

// lateBody is a body whose first bytes take a while.
type lateBody struct {
	io.Reader
	after time.Duration
}

func (b *lateBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	b.after = 0
	return b.Reader.Read(p)
}

func (b *lateBody) Close() error { return nil }

// A second sending of a write makes old what was read since the first, though not the
// write's own answer.
func TestD2LateTwinOfAWriteForgetsOthers(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, AttemptTimeout: time.Second, Retry: fRetry(1)}, func(t *tester) {
		var state atomic.Pointer[string]
		write := func(s string) { state.Store(&s) }
		write("none")
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch {
			case h.Method == "GET":
				return reply(200, *state.Load()), nil
			case h.N == 1:
				time.Sleep(10 * time.Second) // deaf, but it writes
				write("first")
			default:
				write("second")
			}
			return reply(200, "ok"), nil
		}
		put := ax.Request{Method: "PUT", URL: at("/"), DedupeKey: "k"}
		require.NoError(t, t.Do(dBG, put).Err)
		require.Equal(t, "second", fBody(t, t.Do(dBG, fGet("/"))))
		t.Until(20 * time.Second)
		require.Equal(t, "first", fBody(t, t.Do(dBG, fGet("/"))))
		require.Equal(t, ax.FromWindow, t.Do(dBG, put).Resp.Source)
	})
}
