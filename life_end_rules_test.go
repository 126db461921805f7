package ax_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// dShutdown runs Shutdown and tells when it ended, and how.
func dShutdown(t *tester, ctx context.Context) <-chan result {
	ch := make(chan result, 1)
	go func() {
		err := t.S.Shutdown(ctx)
		ch <- result{nil, err, t.At()}
	}()
	return ch
}

// TestX3ShutdownFinishesWhatWasAccepted with its retries, alternates, nested
// calls and redirects, and refuses all else at once.
func TestX3ShutdownFinishesWhatWasAccepted(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}, Dedupe: &ax.Dedupe{Window: time.Hour}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/retry":
				return after(100*dms, map[bool]int{true: 503, false: 200}[h.N == 1], "")(h)
			case "/hop":
				return reply(302, "", "Location: http://b.test/landed"), nil
			case "/nest":
				if _, err := t.S.Send(h.Context(), ax.Request{URL: "http://c.test/nested"}); err != nil {
					return nil, err
				}
			case "/bad":
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		bad := dGet("/bad")
		bad.NoRetry, bad.Fallback = true, &ax.Fallback{Alternate: ax.Must(dGet("/alternate").Task())}
		chans := []<-chan result{t.Go(dBG, dGet("/retry"))}
		for i, r := range []ax.Request{dGet("/hop"), dGet("/nest"), bad, dGet("/queued")} {
			chans = append(chans, t.GoAt(time.Duration(i+1)*dms, dBG, r))
		}
		t.Until(50 * dms)
		down, again := dShutdown(t, dBG), dShutdown(t, dBG)
		synctest.Wait()
		for _, path := range []string{"/new", "/retry"} { // not even as a joiner
			refused := t.Do(dBG, dGet(path))
			require.ErrorIs(t, refused.Err, ax.ErrClosed)
			require.Equal(t, "admit", dError(t, refused.Err).Op)
			require.Equal(t, 50*dms, refused.At)
		}
		for i, c := range chans {
			r := <-c
			require.NoError(t, r.Err, "task %d", i)
			require.Equal(t, 200, r.Status(), "task %d", i)
		}
		for _, c := range []<-chan result{down, again} {
			r := <-c
			require.NoError(t, r.Err)
			require.Equal(t, 1200*dms, r.At, "as soon as the last one has ended")
		}
		n := t.Server.Count()
		require.NoError(t, t.S.Shutdown(dBG))
		require.NoError(t, t.S.Close())
		require.ErrorIs(t, t.Do(dBG, dGet("/late")).Err, ax.ErrClosed)
		require.Equal(t, n, t.Server.Count())
		require.Contains(t, t.Server.Paths(), "/nested")
		require.Contains(t, t.Server.Paths(), "/landed")
		require.Contains(t, t.Server.Paths(), "/alternate")
	})
}

// TestX3ShutdownWaitsForOpenStreams, and tears them down when its ctx ends.
func TestX3ShutdownWaitsForOpenStreams(t *testing.T) {
	for _, patient := range []bool{true, false} {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				return dReply(dNewTrickle(h.Context(), time.Second, "a", "b", "c")), nil
			}
			r := t.Do(dBG, ax.Request{URL: at("/s"), Stream: true})
			require.NoError(t, r.Err)
			ctx, cancel := context.WithTimeout(dBG, 1500*dms)
			defer cancel()
			if patient {
				ctx = dBG
			}
			down := dShutdown(t, ctx)
			text, err := io.ReadAll(r.Resp.Body)
			readEnd := t.At()
			require.NoError(t, r.Resp.Body.Close())
			end := <-down
			if patient {
				require.NoError(t, err)
				require.Equal(t, "abc", string(text))
				require.NoError(t, end.Err)
				require.Equal(t, 3*time.Second, end.At)
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 1500*dms, readEnd)
				require.ErrorIs(t, end.Err, context.DeadlineExceeded)
				require.Equal(t, 1500*dms, end.At)
			}
		})
	}
}

// TestX3ShutdownOutOfTime cancels the rest with ErrClosed and returns the ctx's error.
func TestX3ShutdownOutOfTime(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 2, Retry: &ax.Retry{BaseDelay: 20 * time.Second, Jitter: ax.NoJitter}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/503" {
				return reply(503, ""), nil
			}
			return dSlow(h)
		}
		backoff := t.Go(dBG, dGet("/503"))
		synctest.Wait()
		rest := []<-chan result{t.Go(dBG, dGet("/hog")), t.Go(dBG, dGet("/hog")), t.Go(dBG, dGet("/queued")), backoff}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		end := <-dShutdown(t, ctx)
		require.ErrorIs(t, end.Err, context.DeadlineExceeded)
		require.Equal(t, time.Second, end.At)
		for _, c := range rest {
			r := <-c
			require.ErrorIs(t, r.Err, ax.ErrClosed)
			require.ErrorIs(t, r.Err, context.Canceled)
			require.Equal(t, time.Second, r.At)
		}
		require.EqualValues(t, 4, t.S.Stats().Canceled)
		require.NoError(t, t.S.Close())
		require.NoError(t, t.S.Shutdown(ctx), "after Close, nil, even with a dead ctx")
	})
}

// TestX3PausedLanesEnd at once with ErrClosed when the scheduler shuts down.
func TestX3PausedLanesEnd(t *testing.T) {
	for _, lane := range []string{"a.test", ""} {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = after(100*dms, 200, "")
			running := t.Go(dBG, ax.Request{URL: "http://b.test/"})
			synctest.Wait()
			require.NoError(t, t.S.Pause(lane))
			held := t.Go(dBG, dGet("/x"))
			t.Until(50 * dms)
			down := dShutdown(t, dBG)
			r := <-held
			require.ErrorIs(t, r.Err, ax.ErrClosed)
			require.Equal(t, 50*dms, r.At)
			require.Equal(t, 200, (<-running).Status())
			end := <-down
			require.NoError(t, end.Err)
			require.Equal(t, 100*dms, end.At)
		})
	}
}

// TestX3PausedBackoffsEnd at once, too, with what the task has come to: whichever of
// Pause, Shutdown and the backoff comes last.
func TestX3PausedBackoffsEnd(t *testing.T) {
	for _, lane := range []string{"a.test", ""} {
		for _, order := range []string{"backoff, Pause, Shutdown", "backoff, Shutdown, Pause", "Pause, Shutdown, backoff"} {
			t.Run(lane+order, func(t *testing.T) {
				bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: 10 * time.Second, Jitter: ax.NoJitter}}, func(t *tester) {
					t.Server.Reply = fPaths(map[string]fReply{"/x": after(10*dms, 503, "down"), "/slow": after(time.Minute, 200, "")})
					failed, slow := t.Go(dBG, dGet("/x")), t.Go(dBG, ax.Request{URL: "http://b.test/slow"})
					ended := 20 * dms
					var down <-chan result
					shutdown, pause := func() { down = dShutdown(t, dBG) }, func() { require.NoError(t, t.S.Pause(lane)) }
					steps := []func(){pause, shutdown}
					switch order {
					case "backoff, Shutdown, Pause":
						steps = []func(){shutdown, pause}
						fallthrough
					case "backoff, Pause, Shutdown":
						t.Until(20 * dms)
					default:
						ended = 10 * dms
						synctest.Wait()
					}
					for _, step := range steps {
						step()
						synctest.Wait()
					}
					r := <-failed
					require.Equal(t, ended, r.At)
					require.Equal(t, "down", fBody(t, r))
					require.ErrorIs(t, r.Resp.Cause, ax.ErrClosed)
					require.NoError(t, (<-slow).Err)
					require.NoError(t, (<-down).Err)
				})
			})
		}
	}
}

// TestX3OpenBreakersEnd at once with ErrCircuitOpen or the fallback: what they
// hold already, and what meets one while draining.
func TestX3OpenBreakersEnd(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Breaker: &ax.Breaker{Window: 1, OpenFor: time.Hour}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return reply(500, ""), nil
			}
			return after(100*dms, 500, "")(h)
		}
		require.Equal(t, 500, t.Do(dBG, dGet("/opens")).Status())
		saved := dGet("/saved")
		saved.Fallback = &ax.Fallback{Static: dStatic}
		held, withFallback := t.Go(dBG, dGet("/held")), t.Go(dBG, saved)
		last := t.Go(dBG, ax.Request{URL: "http://b.test/1"})
		synctest.Wait()
		meets := t.Go(dBG, ax.Request{URL: "http://b.test/2"}) // b's breaker opens while draining
		synctest.Wait()
		down := dShutdown(t, dBG)
		r := <-held
		require.ErrorIs(t, r.Err, ax.ErrCircuitOpen)
		require.Zero(t, r.At)
		r = <-withFallback
		require.NoError(t, r.Err)
		require.Equal(t, ax.FromStatic, r.Resp.Source)
		require.ErrorIs(t, r.Resp.Cause, ax.ErrCircuitOpen)
		require.Zero(t, r.At)
		require.Equal(t, 500, (<-last).Status())
		r = <-meets
		require.ErrorIs(t, r.Err, ax.ErrCircuitOpen)
		require.Equal(t, 100*dms, r.At)
		end := <-down
		require.NoError(t, end.Err)
		require.Equal(t, 100*dms, end.At)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestX3CloseAndShutdownTogether: any number, in any order, all return.
func TestX3CloseAndShutdownTogether(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 2}, func(t *tester) {
		t.Server.Reply = dSlow
		var tasks []<-chan result
		for range 5 {
			tasks = append(tasks, t.Go(dBG, dGet("/hog")))
		}
		synctest.Wait()
		var all errgroup.Group
		all.Go(func() error { return t.S.Shutdown(dBG) })
		synctest.Wait()
		t.Until(time.Second)
		for range 3 {
			all.Go(t.S.Close)
			all.Go(func() error { return t.S.Shutdown(dBG) })
		}
		require.NoError(t, all.Wait())
		require.Equal(t, time.Second, t.At())
		for _, c := range tasks {
			r := <-c
			require.ErrorIs(t, r.Err, ax.ErrClosed)
			require.Equal(t, time.Second, r.At)
		}
		require.NoError(t, t.S.Shutdown(dBG))
		require.NoError(t, t.S.Close())
		require.Zero(t, t.Server.Active())
	})
}

// TestX3IdleShutdown returns at once; after it every entry refuses and reads still work.
func TestX3IdleShutdown(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		require.NoError(t, t.S.Shutdown(dBG))
		for name, call := range map[string]func() error{
			"Do":     func() error { return t.Do(dBG, dGet("/x")).Err },
			"Send":   func() error { _, err := t.S.Send(dBG, dGet("/x")); return err },
			"Get":    func() error { _, err := t.S.Get(dBG, at("/x")); return err },
			"Submit": func() error { _, err := t.S.Submit(dBG, ax.Must(dGet("/x").Task())).Result(); return err },
			"Scope":  func() error { _, err := t.S.Scope(dBG).Send(dBG, dGet("/x")); return err },
			"Transport": func() error {
				_, err := (&http.Client{Transport: t.S.Transport()}).Get(at("/x"))
				return err
			},
		} {
			require.ErrorIs(t, call(), ax.ErrClosed, name)
		}
		require.EqualValues(t, 6, t.S.Stats().Rejected)
		require.Zero(t, t.S.CancelTag("x"))
		t.S.Invalidate("x")
		t.S.Advice()
		require.Zero(t, t.Server.Count())
	})
}

// TestX4NoGoroutineWhileIdle, whatever was used before.
func TestX4NoGoroutineWhileIdle(t *testing.T) {
	base := runtime.NumGoroutine()
	srv := &server{start: time.Now()}
	s, err := ax.New(&http.Client{Transport: srv}, ax.Config{
		Dedupe: &ax.Dedupe{Window: time.Hour}, Retry: &ax.Retry{}, Breaker: &ax.Breaker{}, QueueTimeout: time.Hour,
		AttemptTimeout: time.Hour, IdleTimeout: time.Hour, Rate: []ax.Rate{{Limit: 1000}}, Hosts: &ax.Lane{MaxConcurrent: 2},
		Fallback: &ax.Fallback{Stale: time.Hour},
	})
	require.NoError(t, err)
	require.LessOrEqual(t, runtime.NumGoroutine(), base, "New starts none")
	scope := s.Scope(dBG)
	for i := range 50 {
		r := ax.Request{URL: fmt.Sprintf("http://h%d.test/", i%5), Owner: "o", Tags: []string{"x"}, Supersede: fmt.Sprint(i), Cooldown: time.Nanosecond}
		_, err := scope.Send(dBG, r)
		require.NoError(t, err)
		resp, err := s.Send(dBG, ax.Request{URL: at("/stream"), Stream: true})
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	dSettled(t, base)
	require.NoError(t, s.Close())
	dSettled(t, base)
}

// TestX4HostLanesLeave when they are idle and forgetting changes nothing.
func TestX4HostLanesLeave(t *testing.T) {
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "kept", Match: []string{"kept.test"}}}}, func(t *tester) {
		for i := range 200 {
			t.Do(dBG, ax.Request{URL: fmt.Sprintf("http://h%d.test/", i)})
		}
		t.Do(dBG, ax.Request{URL: "http://kept.test/"})
		t.Until(9 * time.Second)
		require.Len(t, t.S.Stats().Lanes, 201, "no attempt within 10 s, not sooner")
		t.Until(21 * time.Second)
		synctest.Wait()
		lanes := t.S.Stats().Lanes
		require.Len(t, lanes, 1)
		require.Contains(t, lanes, "kept")
	})
}

// TestX4HostLanesStay while forgetting would change something.
func TestX4HostLanesStay(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     ax.Config
		reply   func(*hit) (*http.Response, error)
		touch   func(*tester)
		stays   time.Duration  // still there then
		forgets time.Duration  // gone by then; 0 = it stays for good
		tells   []ax.EventKind // of the lane
	}{
		"quota":    {cfg: ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: time.Minute, Guard: 5 * time.Second}}}}, stays: 64 * time.Second, forgets: 76 * time.Second},
		"bucket":   {cfg: ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: time.Minute, Burst: 2}}}}, stays: 59 * time.Second, forgets: 71 * time.Second},
		"outcomes": {cfg: ax.Config{Breaker: &ax.Breaker{MaxAge: time.Minute}}, stays: 59 * time.Second, forgets: 71 * time.Second},
		"open breaker": {cfg: ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: 2 * time.Minute, MaxAge: time.Second}},
			reply: func(*hit) (*http.Response, error) { return reply(500, ""), nil }, stays: 119 * time.Second, forgets: 131 * time.Second,
			tells: []ax.EventKind{ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerClosed}},
		"ramp": {cfg: ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second, Probes: 1, Ramp: 10 * time.Second}},
			reply: func(h *hit) (*http.Response, error) {
				return reply(map[bool]int{true: 500, false: 200}[h.N == 1], ""), nil
			},
			touch: func(t *tester) {
				t.Until(time.Second)
				require.Equal(t, 200, t.Do(dBG, dGet("/x")).Status())
			}, stays: 10 * time.Second, forgets: 12 * time.Second,
			tells: []ax.EventKind{ax.EventBreakerOpened, ax.EventBreakerHalfOpen, ax.EventBreakerRamping, ax.EventBreakerClosed}},
		"pause": {touch: func(t *tester) { require.NoError(t, t.S.Pause("a.test")) }, stays: time.Hour,
			tells: []ax.EventKind{ax.EventLanePaused}},
		"SetLimits": {touch: func(t *tester) { require.NoError(t, t.S.SetLimits("a.test", ax.Limits{MaxConcurrent: 3})) }, stays: time.Hour},
		"Retry-After": {cfg: ax.Config{Retry: &ax.Retry{MaxDelay: 100 * time.Second}},
			reply: func(*hit) (*http.Response, error) { return reply(429, "", "Retry-After: 90"), nil }, stays: 89 * time.Second, forgets: 120 * time.Second,
			tells: []ax.EventKind{ax.EventLanePaused, ax.EventLaneResumed}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []ax.EventKind
			c.cfg.OnEvent = func(e ax.Event) {
				if e.Task == nil {
					told = append(told, e.Kind) // one at a time: they are of one lane
				}
			}
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = c.reply
				ctx, cancel := context.WithTimeout(dBG, time.Second) // no room for a retry
				require.NoError(t, t.Do(ctx, dGet("/x")).Err)
				cancel()
				if c.touch != nil {
					c.touch(t)
				}
				t.Until(c.stays)
				require.Contains(t, t.S.Stats().Lanes, "a.test")
				if c.forgets != 0 {
					t.Until(c.forgets)
					require.NotContains(t, t.S.Stats().Lanes, "a.test")
				}
				synctest.Wait()
				require.Equal(t, c.tells, told)
			})
		})
	}
}

// TestX5CallersRequestIsUntouched: neither the request nor its headers are
// changed, and its body is closed, whatever becomes of it.
func TestX5CallersRequestIsUntouched(t *testing.T) {
	boom := errors.New("reset by peer")
	for name, c := range map[string]struct {
		cfg   ax.Config
		prep  func(*tester)
		reply func(*hit) (*http.Response, error)
		fails bool
	}{
		"sent":          {},
		"failed":        {reply: func(*hit) (*http.Response, error) { return nil, boom }, fails: true},
		"refused":       {cfg: ax.Config{MaxConcurrent: 1, MaxQueue: 1}, prep: func(t *tester) { dHog(t); dHog(t) }, reply: dSlow, fails: true},
		"queue timeout": {cfg: ax.Config{MaxConcurrent: 1, QueueTimeout: time.Second}, prep: dHog, reply: dSlow, fails: true},
		"closed":        {prep: func(t *tester) { require.NoError(t, t.S.Close()) }, fails: true},
	} {
		for _, through := range []string{"Transport", "TaskFrom"} {
			t.Run(name+"/"+through, func(t *testing.T) {
				bubble(t, c.cfg, func(t *tester) {
					t.Server.Reply = c.reply
					if c.prep != nil {
						c.prep(t)
						synctest.Wait()
					}
					body := dNewBody("payload")
					req, err := http.NewRequest("PUT", at("/x?b=2&a=1"), nil)
					require.NoError(t, err)
					req.Body, req.ContentLength = body, 7
					req.Header = dHeader("X-A", "1", "X-A", "2")
					before := req.Clone(dBG)
					before.Body = body
					if through == "Transport" {
						_, err = t.S.Transport().RoundTrip(req)
					} else {
						var task *ax.Task
						task, err = ax.TaskFrom(req, ax.Request{IdempotencyKey: "k", Prepare: func(r *http.Request) error {
							r.Header.Set("X-A", "changed")
							r.URL.Path = "/changed"
							return nil
						}})
						require.NoError(t, err)
						_, err = t.S.Do(dBG, task)
					}
					require.Equal(t, c.fails, err != nil, "%v", err)
					synctest.Wait()
					require.Equal(t, before.Header, req.Header)
					require.Equal(t, before.URL, req.URL)
					require.Equal(t, before.Host, req.Host)
					require.Same(t, body, req.Body)
					require.EqualValues(t, 7, req.ContentLength)
					require.NotZero(t, body.closed.Load(), "the body is closed")
				})
			})
		}
	}
}
