package ax_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// qNest lets the server answer /outer by a call of its own to url, with the attempt's ctx.
func qNest(t *tester, url string, inner *result) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if h.URL.Path != "/outer" {
			return reply(200, ""), nil
		}
		*inner = t.Do(h.Context(), ax.Request{URL: url})
		if inner.Err != nil {
			return reply(424, ""), nil
		}
		return reply(200, ""), nil
	}
}

// qPass hands an inner result on as the server's own.
func qPass(r result) (*http.Response, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	return reply(r.Status(), ""), nil
}

// The outer calls have a deadline: where nesting wedges they fail, and do not
// take the whole bubble with them.

// A nested call takes no slot: not of its lane, not of the scheduler, not of its owner, at any depth.
func TestL6NestedTakesNoSlot(t *testing.T) {
	tight := ax.Config{MaxConcurrent: 1, MaxQueue: 1, Hosts: &ax.Lane{MaxConcurrent: 1, MaxQueue: 1}, Owners: &ax.Budget{MaxConcurrent: 1}}
	t.Run("from the RoundTripper", func(t *testing.T) {
		bubble(t, tight, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				depth, _ := strconv.Atoi(h.URL.Path[1:])
				if depth == 10 {
					return after(time.Second, 200, "")(h)
				}
				r := t.Do(h.Context(), ax.Request{URL: at("/" + strconv.Itoa(depth+1)), Owner: "o"})
				return qPass(r)
			}
			require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/0"), Owner: "o"}).Status())
			require.Equal(t, time.Second, t.At())
			require.Equal(t, 11, t.Server.Peak())
			qOK(t, qSubmit(t, ax.Request{URL: at("/10"), Owner: "o"}, ax.Request{URL: at("/10"), Owner: "o"})...)
			require.Equal(t, 3*time.Second, t.At(), "the gate is one again")
		})
	})
	t.Run("from Prepare", func(t *testing.T) {
		bubble(t, tight, func(t *tester) {
			r := t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer"), Prepare: func(req *http.Request) error {
				inner := t.Do(req.Context(), ax.Request{URL: at("/token")})
				return inner.Err
			}})
			require.Equal(t, 200, r.Status())
			require.Equal(t, []string{"/token", "/outer"}, t.Server.Paths())
		})
	})
	t.Run("from the Executor", func(t *testing.T) {
		var s *ax.Scheduler
		cfg := tight
		cfg.Executor = ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			if task.URL() == at("/inner") {
				return &http.Response{StatusCode: 204}, nil
			}
			resp, err := s.Do(ctx, ax.Must(ax.Request{URL: at("/inner")}.Task()))
			if err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: resp.StatusCode}, nil
		})
		bubble(t, cfg, func(t *tester) {
			s = t.S
			require.Equal(t, 204, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
		})
	})
	t.Run("into another lane that is full, by Submit", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 2, Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.URL.Path != "/outer" {
					return qHold(time.Hour)(h)
				}
				resp, err := t.S.Submit(h.Context(), ax.Must(ax.Request{URL: "http://b.test/inner"}.Task())).Result()
				if err != nil {
					return nil, err
				}
				return reply(resp.StatusCode, ""), nil
			}
			qSubmit(t, ax.Request{URL: "http://b.test/hold"})
			synctest.Wait()
			require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
			require.Zero(t, t.At())
		})
	})
}

// It pays tokens, and waits for them ahead of its lane's queue and outside MaxQueue.
func TestL6NestedPaysTokens(t *testing.T) {
	for name, cfg := range map[string]ax.Config{
		"of the scheduler": {MaxConcurrent: 2, MaxQueue: 1, Rate: ax.PerSecond(1)},
		"of the lane":      {MaxConcurrent: 2, MaxQueue: 1, Hosts: &ax.Lane{Rate: ax.PerSecond(1)}},
		"of the owner":     {MaxConcurrent: 2, MaxQueue: 1, Owners: &ax.Budget{Rate: ax.PerSecond(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				var urgent []*ax.Call
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.URL.Path != "/outer" {
						return reply(200, ""), nil
					}
					urgent = qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent, Owner: "o"}) // fills the queue
					r := t.Do(h.Context(), ax.Request{URL: at("/inner"), Priority: ax.Low, Owner: "o"})
					return qPass(r)
				}
				require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer"), Priority: ax.Low, Owner: "o"}).Status())
				qOK(t, urgent...)
				require.Equal(t, []string{"/outer", "/inner", "/urgent"}, t.Server.Paths())
				require.Equal(t, qEvery(0, time.Second, 3), t.Server.Times())
			})
		})
	}
}

// What only an event could bring, a nested call does not wait for.
func TestL6NestedIsRefusedRatherThanStuck(t *testing.T) {
	pauses := map[string]string{"its lane": "b.test", "its parent's lane": "a.test", "everything": ""}
	for name, lane := range pauses {
		t.Run("pause of "+name, func(t *testing.T) {
			bubble(t, ax.Config{}, func(t *tester) {
				var inner result
				url := "http://b.test/inner"
				if lane == "a.test" {
					url = at("/inner")
				}
				nest := qNest(t, url, &inner)
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					require.NoError(t, t.S.Pause(lane))
					return nest(h)
				}
				require.Equal(t, 424, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
				qErr(t, inner.Err, "admit", ax.ErrWouldWait)
				require.Zero(t, inner.At)
				require.Equal(t, 1, t.Server.Count())
			})
		})
	}
	t.Run("open breaker, though it holds", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			var inner result
			nest := qNest(t, "http://b.test/inner", &inner)
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.N == 1 {
					return reply(500, ""), nil
				}
				return nest(h)
			}
			require.Equal(t, 500, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: "http://b.test/"}).Status())
			require.Equal(t, 424, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
			qErr(t, inner.Err, "admit", ax.ErrCircuitOpen)
			require.Zero(t, inner.At)
		})
	})
	t.Run("probe permits are out", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second}}, func(t *tester) {
			var inner result
			nest := qNest(t, "http://b.test/inner", &inner)
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				switch {
				case h.N == 1:
					return reply(500, ""), nil
				case h.URL.Path == "/hold":
					return after(10*time.Second, 200, "")(h)
				}
				return nest(h)
			}
			require.Equal(t, 500, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: "http://b.test/"}).Status())
			t.Until(2 * time.Second)
			qSubmit(t, ax.Request{URL: "http://b.test/hold"})
			synctest.Wait()
			require.Equal(t, ax.BreakerHalfOpen, t.S.Stats().Lanes["b.test"].Breaker)
			require.Equal(t, 424, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
			qErr(t, inner.Err, "admit", ax.ErrCircuitOpen)
			require.Equal(t, 2*time.Second, inner.At)
		})
	})
	t.Run("a pause that time ends is waited for", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			var inner result
			nest := qNest(t, "http://b.test/inner", &inner)
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.N == 1 {
					return reply(429, "", "Retry-After: 2"), nil
				}
				return nest(h)
			}
			require.Equal(t, 429, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: "http://b.test/"}).Status())
			require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
			require.Equal(t, []time.Duration{0, 0, 2 * time.Second}, t.Server.Times())
		})
	})
}

// In its parent's lane a nested call rides the parent's probe permit, uncounted.
func TestL6NestedRidesThePermit(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second}}, func(t *tester) {
		var inner result
		nest := qNest(t, at("/inner"), &inner)
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(500, ""), nil
			}
			return nest(h)
		}
		require.Equal(t, 500, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/")}).Status())
		t.Until(2 * time.Second)
		require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
		require.Equal(t, 200, inner.Status())
		require.Equal(t, ax.BreakerRamping, t.S.Stats().Lanes["a.test"].Breaker)
	})
}

// Only the ctx of an unfinished attempt nests.
func TestL6FinishedAttemptDoesNotNest(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		var kept context.Context
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				kept = context.WithoutCancel(h.Context())
			}
			return qHold(time.Second)(h)
		}
		require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/outer")}).Status())
		hold := qSubmit(t, ax.Request{URL: at("/hold")})
		synctest.Wait()
		require.Equal(t, 200, t.Do(kept, ax.Request{URL: at("/")}).Status())
		require.Equal(t, []time.Duration{0, 0, time.Second}, t.Server.Times())
		qOK(t, hold...)
	})
}

// A nested call does not join the flight that waits for it.
func TestL6NestedDoesNotJoinItsOwnFlight(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N > 1 {
				return reply(200, ""), nil
			}
			r := t.Do(h.Context(), ax.Request{URL: at("/same")})
			return qPass(r)
		}
		ctx := qTimeout(t, time.Minute)
		require.Equal(t, 200, t.Do(ctx, ax.Request{URL: at("/same")}).Status())
		require.Equal(t, 2, t.Server.Count())
		require.Zero(t, t.At())
	})
}

// qRedirects answers each path of the map with a 302 to its URL, other paths by next.
func qRedirects(to map[string]string, next func(*hit) (*http.Response, error)) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if url, ok := to[h.URL.Path]; ok {
			return reply(302, "", "Location: "+url), nil
		}
		return next(h)
	}
}

// In its own lane a hop keeps its slot: a gate of one is enough.
func TestL6HopInTheSameLane(t *testing.T) {
	t.Run("keeps the slot", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
			t.Server.Reply = qRedirects(map[string]string{"/1": at("/2"), "/2": at("/3")}, after(time.Second, 200, ""))
			qOK(t, qSubmit(t, ax.Request{URL: at("/1"), Priority: ax.Low}, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})...)
			require.Equal(t, []string{"/1", "/2", "/3", "/urgent"}, t.Server.Paths())
			require.Equal(t, []time.Duration{0, 0, 0, time.Second}, t.Server.Times())
		})
	})
	t.Run("waits for a token, ahead of the queue", func(t *testing.T) {
		bubble(t, ax.Config{Rate: ax.PerSecond(1)}, func(t *tester) {
			t.Server.Reply = qRedirects(map[string]string{"/1": at("/2")}, qScript(nil))
			qOK(t, qSubmit(t, ax.Request{URL: at("/1"), Priority: ax.Low}, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})...)
			require.Equal(t, []string{"/1", "/2", "/urgent"}, t.Server.Paths())
			require.Equal(t, qEvery(0, time.Second, 3), t.Server.Times())
		})
	})
	t.Run("a named lane stays for the same host", func(t *testing.T) {
		cfg := ax.Config{Lanes: []ax.Lane{{Name: "named", MaxConcurrent: 1}}}
		bubble(t, cfg, func(t *tester) {
			require.NoError(t, t.S.Pause("a.test"))
			t.Server.Reply = qRedirects(map[string]string{"/1": at("/2")}, qScript(nil))
			require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/1"), Lane: "named"}).Status())
			require.Zero(t, t.At())
		})
	})
	t.Run("a named lane ends at another host", func(t *testing.T) {
		cfg := ax.Config{Lanes: []ax.Lane{{Name: "named"}}}
		bubble(t, cfg, func(t *tester) {
			require.NoError(t, t.S.SetLimits("b.test", ax.Limits{MaxConcurrent: 1}))
			t.Server.Reply = qRedirects(map[string]string{"/1": "http://b.test/2"}, qHold(time.Second))
			qSubmit(t, ax.Request{URL: "http://b.test/hold"})
			synctest.Wait()
			require.Equal(t, 200, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/1"), Lane: "named"}).Status())
			require.Equal(t, time.Second, t.At())
		})
	})
}

// Into another lane a hop goes with empty hands: slot and permit are back before it
// waits, and the wait is no attempt time.
func TestL6HopIntoAnotherLane(t *testing.T) {
	cfg := ax.Config{AttemptTimeout: 1500 * qms, Hosts: &ax.Lane{MaxConcurrent: 1}, Owners: &ax.Budget{MaxConcurrent: 2}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = qRedirects(map[string]string{"/1": "http://b.test/2"}, func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/hold": // two of them last longer than an AttemptTimeout
				return after(1400*qms, 200, "")(h)
			case "/2":
				return after(time.Second, 200, "")(h)
			}
			return after(100*qms, 200, "")(h)
		})
		hold := qSubmit(t, ax.Request{URL: "http://b.test/hold", Owner: "p"}, ax.Request{URL: "http://b.test/hold", Owner: "p", Priority: ax.Urgent})
		synctest.Wait()
		hop := t.Go(t.Context(), ax.Request{URL: at("/1"), Owner: "o"})
		synctest.Wait()
		require.Equal(t, 1, t.S.Stats().Active, "only the holder")
		next := qSubmit(t, ax.Request{URL: at("/next"), Owner: "o"}, ax.Request{URL: "http://c.test/next", Owner: "o"})
		qOK(t, next...)
		require.Equal(t, 100*qms, t.At(), "lane and owner have their slots back")
		r := <-hop
		require.Equal(t, 200, r.Status())
		require.Equal(t, 3800*qms, r.At, "waits until 2.8 s, then takes one")
		qOK(t, hold...)
	})
}

// The 3xx is the outcome of the lane that gave it, what follows is the next lane's.
func TestL6HopOutcomes(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = qRedirects(map[string]string{"/1": "http://b.test/2"}, func(*hit) (*http.Response, error) { return reply(500, ""), nil })
		require.Equal(t, 500, t.Do(qTimeout(t, 5*time.Minute), ax.Request{URL: at("/1")}).Status())
		lanes := t.S.Stats().Lanes
		require.Equal(t, ax.BreakerClosed, lanes["a.test"].Breaker)
		require.Equal(t, ax.BreakerOpen, lanes["b.test"].Breaker)
		require.Zero(t, lanes["a.test"].Failures)
		require.Equal(t, uint64(1), lanes["b.test"].Failures)
	})
}

// A cancel reaches a hop that waits.
func TestL6HopIsCancelled(t *testing.T) {
	bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
		t.Server.Reply = qRedirects(map[string]string{"/1": "http://b.test/2"}, qHold(time.Hour))
		qSubmit(t, ax.Request{URL: "http://b.test/hold"})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		hop := t.Go(ctx, ax.Request{URL: at("/1")})
		t.Until(time.Second)
		cancel()
		r := <-hop
		require.Equal(t, time.Second, r.At)
		require.True(t, errors.Is(r.Err, context.Canceled))
		synctest.Wait()
		require.Zero(t, t.S.Stats().Queued)
		require.Equal(t, 1, t.S.Stats().Active)
		require.NotContains(t, qSeen(t), "/2")
	})
}
