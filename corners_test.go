package ax_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// A hedge that is granted at the very moment at which the deaf first attempt is left
// to itself gives its permit back.
func TestL1HedgeGrantedAsTheFirstIsLeft(t *testing.T) {
	for i := range 30 {
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := ax.New(nil, ax.Config{MaxConcurrent: 2, AttemptTimeout: 100 * time.Millisecond,
					Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
						if task.URL() == "http://a.test/hold" {
							time.Sleep(105 * time.Millisecond)
							return reply(200, ""), nil
						}
						time.Sleep(time.Second) // deaf
						return reply(200, ""), nil
					})})
				require.NoError(t, err)
				hold := s.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test/hold", AttemptTimeout: ax.NoTimeout}.Task()))
				c := s.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test/x", Hedge: &ax.Hedge{After: 50 * time.Millisecond}}.Task()))
				hold.Result()
				_, err = c.Result()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(10 * time.Second)
				require.Zero(t, s.Stats().Active)
				s.Close()
			})
		})
		if !ok {
			return
		}
	}
}

// What DryRun would have refused is counted once, though its QueueTimeout comes later.
func TestX8GhostIsRejectedOnce(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, MaxConcurrent: 1, QueueTimeout: time.Second,
		Breaker: &ax.Breaker{MinCalls: 1, Window: 1, WhenOpen: ax.OpenReject, OpenFor: 10 * time.Second}}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 500, "")
		a := t.Go(t.Context(), ax.Request{URL: at("/1")})
		b := t.Go(t.Context(), ax.Request{URL: at("/2")})
		<-a
		<-b
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 1, t.S.Stats().Would.Rejected)
	})
}

// Who is sent alone after all finds the stale answer of its own cookies.
func TestD1CookiesOfWhoIsSentAlone(t *testing.T) {
	for _, cookie := range []bool{false, true} {
		t.Run(fmt.Sprint(cookie), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				jar, _ := cookiejar.New(nil)
				if cookie {
					u, _ := url.Parse("http://a.test/")
					jar.SetCookies(u, []*http.Cookie{{Name: "s", Value: "alice"}})
				}
				s, err := ax.New(&http.Client{Jar: jar, Transport: rt(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/hold" {
						time.Sleep(10 * time.Second)
					}
					resp := reply(200, "good")
					resp.Request = r
					return resp, nil
				})}, ax.Config{Dedupe: &ax.Dedupe{}, MaxConcurrent: 1})
				require.NoError(t, err)
				defer s.Close()
				r := ax.Request{URL: "http://a.test/x", QueueTimeout: time.Second, Fallback: &ax.Fallback{Stale: time.Hour}}
				_, err = s.Send(t.Context(), r)
				require.NoError(t, err)
				go s.Get(t.Context(), "http://a.test/hold")
				synctest.Wait()
				first := s.Submit(t.Context(), ax.Must(r.Task()))
				second := s.Submit(t.Context(), ax.Must(r.Task()))
				_, err1 := first.Result()
				_, err2 := second.Result()
				require.NoError(t, err1)
				require.NoError(t, err2)
			})
		})
	}
}

type grantFunc func(context.Context, ax.Ask) (ax.Grant, error)

func (f grantFunc) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) { return f(ctx, a) }

// A task whose older version a governor is being asked for is judged without that one.
func TestSupersedeOfWhoIsAskedFor(t *testing.T) {
	for _, over := range []ax.OverAction{ax.OverQueue, ax.OverReject} {
		t.Run(over.String(), func(t *testing.T) {
			bubble(t, ax.Config{
				Budgets:  map[string]ax.Budget{"o": {MaxConcurrent: 1, Over: over}},
				Governor: grantFunc(func(ctx context.Context, a ax.Ask) (ax.Grant, error) { time.Sleep(time.Second); return ax.Grant{}, nil }),
			}, func(t *tester) {
				old := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/1"), Owner: "o", Supersede: "x"}.Task()))
				time.Sleep(100 * time.Millisecond)
				newer := t.Do(t.Context(), ax.Request{URL: at("/2"), Owner: "o", Supersede: "x"})
				require.NoError(t, newer.Err)
				_, err := old.Result()
				require.ErrorIs(t, err, ax.ErrSuperseded)
			})
		})
	}
}

// A hedge that loses while it waits in a redirect hop is told to be done.
func TestX2LoserInAHopIsTold(t *testing.T) {
	var mu sync.Mutex
	var evs []string
	bubble(t, ax.Config{
		Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}},
		OnEvent: func(e ax.Event) {
			if e.Task != nil && e.Task.URL() == "http://a.test/x" {
				mu.Lock()
				evs = append(evs, e.String())
				mu.Unlock()
			}
		},
	}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				h.Sleep(10 * time.Second)
				return reply(200, ""), nil
			}
			if h.N == 2 {
				return reply(302, "", "Location: http://b.test/"), nil
			}
			return reply(200, "ok"), nil
		}
		go t.S.Get(t.Context(), "http://b.test/hold")
		synctest.Wait()
		r := t.Do(t.Context(), ax.Request{URL: "http://a.test/x", Hedge: &ax.Hedge{After: time.Second}})
		require.NoError(t, r.Err)
		synctest.Wait()
		started, ended := 0, 0
		for _, e := range evs {
			if len(e) > 7 && e[:7] == "started" {
				started++
			}
			if len(e) > 12 && e[:12] == "attempt-done" {
				ended++
			}
		}
		require.Equal(t, started, ended)
	})
}

func jarWith(v string) (*cookiejar.Jar, *url.URL) {
	jar, _ := cookiejar.New(nil)
	u, _ := url.Parse("http://a.test/")
	jar.SetCookies(u, []*http.Cookie{{Name: "s", Value: v}})
	return jar, u
}

// What is kept of one who was sent alone is for its cookies alone.
func TestD1CookiesOfWhoIsSentAloneAreNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jar, u := jarWith("alice")
		var n atomic.Int32
		s, err := ax.New(&http.Client{Jar: jar, Transport: rt(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			resp := reply(200, "you are "+r.Header.Get("Cookie"))
			switch n.Add(1) {
			case 1:
				resp = reply(200, strings.Repeat("x", 2000))
			case 3:
				resp = reply(500, "")
			}
			resp.Request = r
			return resp, nil
		})}, ax.Config{Dedupe: &ax.Dedupe{}, MaxBodyBytes: 1000})
		require.NoError(t, err)
		defer s.Close()
		r := ax.Request{URL: "http://a.test/me", Fallback: &ax.Fallback{Stale: time.Hour}}
		one := s.Submit(t.Context(), ax.Must(r.Task()))
		two := s.Submit(t.Context(), ax.Must(r.Task()))
		resp, err := one.Result()
		require.NoError(t, err)
		resp.Body.Close()
		_, err = two.Result()
		require.NoError(t, err)
		jar.SetCookies(u, []*http.Cookie{{Name: "s", MaxAge: -1}})
		resp, err = s.Send(t.Context(), r)
		require.NoError(t, err)
		b, _ := resp.Bytes()
		require.NotContains(t, string(b), "alice", "%v", resp.Source)
	})
}

// Stale answers are told apart by cookies also where nothing is shared.
func TestD1CookiesAlsoOfStaleAnswers(t *testing.T) {
	for name, mod := range map[string]func(*ax.Request){
		"plain":    func(*ax.Request) {},
		"nodedupe": func(r *ax.Request) { r.NoDedupe = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				jar, u := jarWith("alice")
				var n atomic.Int32
				s, err := ax.New(&http.Client{Jar: jar, Transport: rt(func(r *http.Request) (*http.Response, error) {
					resp := reply(200, "you are "+r.Header.Get("Cookie"))
					if n.Add(1) == 2 {
						resp = reply(500, "")
					}
					resp.Request = r
					return resp, nil
				})}, ax.Config{})
				require.NoError(t, err)
				defer s.Close()
				r := ax.Request{URL: "http://a.test/me", Fallback: &ax.Fallback{Stale: time.Hour}}
				mod(&r)
				_, err = s.Send(t.Context(), r)
				require.NoError(t, err)
				jar.SetCookies(u, []*http.Cookie{{Name: "s", MaxAge: -1}})
				resp, err := s.Send(t.Context(), r)
				require.NoError(t, err)
				b, _ := resp.Bytes()
				require.NotContains(t, string(b), "alice", "%v", resp.Source)
			})
		})
	}
}

// The request of an alternate's answer has the caller's context, which has not ended.
func TestF7AlternatesRequestHasTheCallersContext(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/alt" {
				resp := reply(200, "ok")
				resp.Request = h.Request
				return resp, nil
			}
			return reply(500, ""), nil
		}
		type k struct{}
		ctx := context.WithValue(t.Context(), k{}, 1)
		resp, err := t.S.Send(ctx, ax.Request{URL: at("/x"), Fallback: &ax.Fallback{Alternate: ax.Must(ax.Request{URL: at("/alt")}.Task())}})
		require.NoError(t, err)
		require.Equal(t, ax.FromAlternate, resp.Source)
		require.NoError(t, resp.Request.Context().Err())
	})
}

// A permit that is still being asked for, of a task that has left, makes no room in
// the queue.
func TestL8QueueBoundOrphanedAsk(t *testing.T) {
	bubble(t, ax.Config{MaxQueue: 1, Governor: grantFunc(func(ctx context.Context, a ax.Ask) (ax.Grant, error) {
		time.Sleep(10 * time.Second)
		return ax.Grant{}, nil
	})}, func(t *tester) {
		require.NoError(t, t.S.Pause("b.test"))
		a := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test/"}.Task()))
		synctest.Wait()
		a.Cancel()
		b1 := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://b.test/1"}.Task()))
		b2 := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://b.test/2"}.Task()))
		synctest.Wait()
		require.False(t, qDone(b1))
		require.True(t, qDone(b2), "two wait in a queue of one: %+v", t.S.Stats().Parked)
	})
}

// A retry that waits in one lane takes no place from a first start in another.
func TestL8QueueBoundRetryElsewhere(t *testing.T) {
	first := true
	bubble(t, ax.Config{MaxQueue: 1, Retry: &ax.Retry{BaseDelay: time.Millisecond, Jitter: ax.NoJitter}, Governor: grantFunc(func(ctx context.Context, a ax.Ask) (ax.Grant, error) {
		if a.Lane == "a.test" {
			time.Sleep(10 * time.Second)
		}
		return ax.Grant{}, nil
	})}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if first {
				first = false
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://b.test/"}.Task()))
		synctest.Wait()
		t.S.Pause("b.test")
		time.Sleep(time.Second)                                                    // the retry of b waits, paused
		t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test/"}.Task())) // being asked for
		synctest.Wait()
		t.S.Pause("c.test")
		c := t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://c.test/"}.Task()))
		synctest.Wait()
		require.False(t, qDone(c), "%v", func() error { _, err := c.Result(); return err })
	})
}

// A hop within its lane waits for a token alone, also if the breaker opens meanwhile.
func TestL6SameLaneHopBehindABreaker(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerSecond(2), Breaker: &ax.Breaker{MinCalls: 1, Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/bad" {
				h.Sleep(300 * time.Millisecond)
				return reply(500, ""), nil
			}
			if h.URL.Path == "/from" {
				return reply(302, "", "Location: "+at("/to")), nil
			}
			return reply(200, "ok"), nil
		}
		bad := t.Go(t.Context(), ax.Request{URL: at("/bad")})
		synctest.Wait()
		r := t.Do(t.Context(), ax.Request{URL: at("/from")})
		<-bad
		require.NoError(t, r.Err)
	})
}

type stalled struct{ ctx context.Context }

func (b stalled) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }

func (b stalled) Close() error { return nil }

// A hop that the executor leaves behind does not keep the attempt's time from running.
func TestF4HopLeftBehindStopsNoClock(t *testing.T) {
	for _, submit := range []bool{false, true} {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
				s, err := ax.New(nil, ax.Config{AttemptTimeout: time.Second,
					Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}}},
					Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
						go x.Execute(ctx, task)
						time.Sleep(100 * time.Millisecond)
						return &http.Response{StatusCode: 200, ContentLength: 5, Body: stalled{ctx}}, nil
					})})
				require.NoError(t, err)
				defer s.Close()
				require.NoError(t, s.Pause("b"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				task := ax.Must(ax.Request{URL: "http://a.test/from"}.Task())
				if submit {
					_, err = s.Submit(ctx, task).Result()
				} else {
					_, err = s.Do(ctx, task)
				}
				if d := time.Since(start); d > 2*time.Second {
					t.Errorf("submit=%v: %v after %v", submit, err, d)
				}
			})
		})
	}
}

// A hop is granted while the executor returns without it.
func TestL6HopGrantedAsItIsLeft(t *testing.T) {
	x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
	s, err := ax.New(nil, ax.Config{
		Governor: grantFunc(func(ctx context.Context, a ax.Ask) (ax.Grant, error) {
			return ax.Grant{StartBy: time.Now().Add(time.Hour)}, nil
		}),
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			go x.Execute(ctx, task)
			for range rand.IntN(60) {
				runtime.Gosched()
			}
			return reply(200, ""), nil
		})})
	require.NoError(t, err)
	defer s.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				s.Get(context.Background(), "http://a.test/from")
			}
		})
	}
	wg.Wait()
}

type badClose struct {
	io.Reader
	goexit bool
}

func (b badClose) Close() error {
	if b.goexit {
		runtime.Goexit()
	}
	panic("close")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A loser whose body's Close panics or ends its goroutine hurts nobody.
func TestX6LosersBodyClosesBadly(t *testing.T) {
	for _, goexit := range []bool{false, true} {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				s, err := ax.New(nil, ax.Config{
					Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
						if n.Add(1) == 1 {
							time.Sleep(2 * time.Second)
							return &http.Response{StatusCode: 500, ContentLength: -1, Body: badClose{zeros{}, goexit}}, nil
						}
						time.Sleep(3 * time.Second)
						return reply(200, "ok"), nil
					})})
				require.NoError(t, err)
				resp, err := s.Submit(t.Context(), ax.Must(ax.Request{URL: "http://a.test/", Stream: true, Hedge: &ax.Hedge{After: time.Second}}.Task())).Result()
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				time.Sleep(time.Minute)
				require.Zero(t, s.Stats().Active, "goexit=%v", goexit)
				s.Close()
			})
		})
	}
}

// After Close nothing is counted any more.
func TestX8NoGhostAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := ax.New(&http.Client{Transport: redirecting("http://b.test/")}, ax.Config{DryRun: true, Rate: ax.PerMinute(1), QueueTimeout: time.Second})
		for range 3 {
			s.Get(t.Context(), "http://a.test/")
		}
		s.Close()
		before := s.Stats().Would
		time.Sleep(10 * time.Second)
		require.Equal(t, before, s.Stats().Would)
	})
}

// A listener that ends the goroutine before a stream has been handed over leaves no
// slot taken.
func TestL1GoexitWithAStreamUnderWay(t *testing.T) {
	for _, submit := range []bool{true, false} {
		t.Run("", func(t *testing.T) {
			s, err := ax.New(nil, ax.Config{
				OnEvent: func(e ax.Event) {
					if e.Kind == ax.EventAttemptDone {
						runtime.Goexit()
					}
				},
				Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
					return reply(200, "ok"), nil
				})})
			require.NoError(t, err)
			task := ax.Must(ax.Request{URL: "http://a.test/", Stream: true}.Task())
			if submit {
				_, err = s.Submit(t.Context(), task).Result()
				require.Error(t, err)
			} else {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.Do(context.Background(), task)
				}()
				<-ended
			}
			for range 5 {
				runtime.GC()
				time.Sleep(50 * time.Millisecond)
			}
			require.Zero(t, s.Stats().Active)
			s.Close()
		})
	}
}

// The same for a task that went without the mutex.
func TestL1GoexitWithAnExpressStream(t *testing.T) {
	s, err := ax.New(nil, ax.Config{
		OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventAttemptDone {
				runtime.Goexit()
			}
		},
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			r := reply(200, "ok", "Content-Type: text/event-stream")
			return r, nil
		})})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); s.Get(context.Background(), "http://a.test/") }()
	<-done
	for range 5 {
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	require.Zero(t, s.Stats().Active)
}

// A Prepare may send through the scheduler: its start was counted before.
func TestL6NestedInPrepare(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerSecond(1)}, func(t *tester) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := t.Do(ctx, ax.Request{URL: at("/x"), Prepare: func(req *http.Request) error {
			_, err := t.S.Get(req.Context(), at("/token"))
			return err
		}})
		require.NoError(t, r.Err, "%v", r.At)
	})
}
