package ax_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestCaseH18 callers who leave are no evidence against the server.
func TestCaseH18CallerCancellationsDoNotOpen(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 200, Breaker: &ax.Breaker{Window: 2, MinCalls: 1}}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{
			"/": after(200*fms, 200, ""),
			"/text": func(h *hit) (*http.Response, error) {
				if h.Sleep(200*fms) != nil {
					return nil, errors.New("context canceled") // only the text says so
				}
				return reply(200, ""), nil
			},
		})
		var cs []<-chan result
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*fms) // the parent's deadline
			if i%2 == 0 {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(10*fms, cancel)
			}
			defer cancel()
			cs = append(cs, t.Go(ctx, fGet([]string{"/", "/text"}[i/2%2])))
		}
		for i, c := range cs {
			r := <-c
			require.Equal(t, 10*fms, r.At)
			require.ErrorIs(t, r.Err, []error{context.Canceled, context.DeadlineExceeded}[i%2])
		}
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
		require.Zero(t, fLane(t).Failures)
		require.EqualValues(t, 100, t.S.Stats().Canceled)
		require.Equal(t, 210*fms, t.Do(t.Context(), fGet("/")).At)
	})
}

// TestCaseH19 half-open lets exactly the probes through; a bad one means a full new pause.
func TestCaseH19HalfOpenLetsNoCrowdThrough(t *testing.T) {
	for _, verdict := range []int{200, 500} {
		bubble(t, ax.Config{MaxConcurrent: 100, Breaker: &ax.Breaker{Window: 10, MinCalls: 1, Probes: 3}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.N == 1 {
					return reply(500, ""), nil
				}
				h.Sleep(200 * fms)
				if h.N == 4 {
					return reply(verdict, ""), nil
				}
				return reply(200, ""), nil
			}
			fOpen(t)
			var cs []<-chan result
			for range 100 {
				cs = append(cs, t.GoAt(3*fsec, t.Context(), fGet("/")))
			}
			t.Until(3*fsec + 199*fms)
			require.Equal(t, 4, t.Server.Count())
			require.Equal(t, 97, fLane(t).Parked)
			t.Until(3*fsec + 201*fms)
			if verdict == 200 {
				require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
			} else {
				require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
				t.Until(6*fsec + 199*fms)
				require.Equal(t, 4, t.Server.Count(), "a full new pause")
				t.Until(6*fsec + 201*fms)
				require.Equal(t, 7, t.Server.Count(), "then exactly three again")
			}
			for _, c := range cs {
				require.NotZero(t, (<-c).Status())
			}
			require.Equal(t, 101, t.Server.Count())
		})
	}
}

// TestCaseH20 whatever a probe ends as, its permit comes back.
func TestCaseH20ProbePermitIsNeverStranded(t *testing.T) {
	ends := map[string]fReply{
		"404":             fAnswer(404, ""),
		"transport error": fBreak(errFWire),
		"cancel":          fHang,
		"panic":           func(*hit) (*http.Response, error) { panic("hook") },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
				t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/probe": end})
				fOpen(t)
				t.Until(3 * fsec)
				ctx, cancel := context.WithTimeout(t.Context(), 50*fms)
				defer cancel()
				_, err := t.S.Submit(ctx, ax.Must(fGet("/probe").Task())).Result()
				require.Equal(t, name == "404", err == nil)
				// Within one further OpenFor and one request it has moved on.
				res := t.Do(t.Context(), fGet("/next"))
				if res.Err != nil {
					require.ErrorIs(t, res.Err, ax.ErrCircuitOpen)
					require.GreaterOrEqual(t, fError(t, res.Err).RetryAfter, time.Duration(0))
					time.Sleep(3 * fsec)
					res = t.Do(t.Context(), fGet("/next"))
				}
				require.NoError(t, res.Err)
				require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
			})
		})
	}
	t.Run("refused by the gate", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
			t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
			t.Server.Reply = fHosts(map[string]fReply{"b.test": after(10*fsec, 200, ""), "a.test": t.Server.Reply})
			fOpen(t)
			b := t.Go(t.Context(), ax.Request{URL: "http://b.test/"})
			t.Until(3500 * fms) // half-open could be, the gate is not free
			r := fGet("/")
			r.NoWait = true
			require.ErrorIs(t, t.Do(t.Context(), r).Err, ax.ErrWouldWait)
			r = fGet("/")
			r.QueueTimeout = fsec
			require.ErrorIs(t, t.Do(t.Context(), r).Err, ax.ErrQueueTimeout)
			require.NoError(t, (<-b).Err)
			require.Equal(t, 10*fsec, t.Do(t.Context(), fGet("/")).At)
			require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
		})
	})
}

// TestCaseH21 the breaker's own refusals are neither retried nor counted.
func TestCaseH21OwnRejectionsAreNotRetriedNorCounted(t *testing.T) {
	cfg := ax.Config{
		Retry:   &ax.Retry{Max: 5, BaseDelay: 100 * fms},
		Breaker: &ax.Breaker{Window: 1, OpenFor: 5 * fsec, WhenOpen: ax.OpenReject},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, "")})
		r := fGet("/bad")
		r.NoRetry = true
		t.Do(t.Context(), r)
		before := fLane(t)
		for i := range 50 {
			t.Until(time.Duration(i) * 99 * fms)
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, time.Duration(i)*99*fms, res.At)
			require.ErrorIs(t, res.Err, ax.ErrCircuitOpen)
		}
		require.Equal(t, 1, t.Server.Count())
		require.Zero(t, t.S.Stats().Retries)
		require.Equal(t, before.Failures, fLane(t).Failures)
		alt := ax.Must(ax.Request{URL: "http://b.test/", NoFallback: true}.Task())
		r = fGet("/")
		r.Fallback = &ax.Fallback{Alternate: alt}
		res := t.Do(t.Context(), r)
		require.Equal(t, 4851*fms, res.At)
		require.Equal(t, ax.FromAlternate, res.Resp.Source)
		require.ErrorIs(t, res.Resp.Cause, ax.ErrCircuitOpen)
		t.Until(5 * fsec)
		require.NoError(t, t.Do(t.Context(), fGet("/")).Err, "the open period was not extended")
	})
}

// TestCaseH22 one error at low traffic is no outage.
func TestCaseH22LowTraffic(t *testing.T) {
	b := ax.Breaker{Window: 10, FailureRate: 0.5, MaxAge: time.Minute}
	bubble(t, ax.Config{Breaker: &b}, func(t *tester) {
		t.Server.Reply = fAnswer(500, "")
		t.Until(time.Hour)
		t.Do(t.Context(), fGet("/"))
		for day := range 20 {
			t.Until(time.Duration(day+1) * 24 * time.Hour)
			t.Do(t.Context(), fGet("/"))
			require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
		}
	})
	for outcomes, want := range map[string]ax.BreakerState{"FSFSFSFSFS": ax.BreakerClosed, "FSFSFSFSFF": ax.BreakerOpen} {
		bubble(t, ax.Config{Breaker: &b}, func(t *tester) {
			t.Server.Reply = fOutcomes(outcomes)
			for range 10 {
				t.Do(t.Context(), fGet("/"))
				time.Sleep(5 * fsec)
			}
			if want == ax.BreakerClosed {
				require.Equal(t, want, fLane(t).Breaker)
			} else {
				require.NotEqual(t, ax.BreakerClosed, fLane(t).Breaker)
			}
		})
	}
}

// TestCaseH23 the rate is judged after successes too.
func TestCaseH23JudgedAfterEveryOutcome(t *testing.T) {
	for outcomes, want := range map[string]ax.BreakerState{"FFS": ax.BreakerOpen, "FSS": ax.BreakerClosed} {
		bubble(t, ax.Config{Breaker: &ax.Breaker{MinCalls: 3, FailureRate: 0.5}}, func(t *tester) {
			t.Server.Reply = fOutcomes(outcomes)
			for range 3 {
				t.Do(t.Context(), fGet("/"))
			}
			require.Equal(t, want, fLane(t).Breaker)
		})
	}
}

// TestCaseH24 callbacks may call back, and a panicking one changes nothing.
func TestCaseH24CallbacksMayCallBack(t *testing.T) {
	var s *ax.Scheduler
	var nested []error
	ev := &fEvents{}
	var panicking atomic.Bool
	cfg := ax.Config{Retry: fRetry(1), Breaker: &ax.Breaker{Window: 1, OpenFor: fsec}, Logger: (&fLog{}).Logger()}
	cfg.OnEvent = func(e ax.Event) {
		ev.Add(e)
		if panicking.Load() {
			panic("hook")
		}
		s.Stats()
		s.CancelTag("nobody")
		if e.Kind == ax.EventBreakerOpened {
			s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://b.test/submitted"}.Task())).Discard()
		}
		if e.Kind == ax.EventStarted && e.Lane == "a.test" {
			_, err := s.Do(e.Context, ax.Must(ax.Request{URL: "http://c.test/nested"}.Task()))
			nested = append(nested, err)
		}
	}
	bubble(t, cfg, func(t *tester) {
		s = t.S
		t.Server.Reply = fPaths(map[string]fReply{"/": fOutcomes("SFSS")})
		for range 3 {
			t.Do(t.Context(), fGet("/"))
		}
		require.NotEmpty(t, nested)
		for _, err := range nested {
			require.NoError(t, err)
		}
		t.Until(10 * fsec)
		panicking.Store(true)
		for range 20 {
			require.NoError(t, t.Do(t.Context(), fGet("/")).Err)
		}
		require.NotEmpty(t, fPathHits(t, "/submitted"))
	})
}

// TestCaseH25 a lane that recovers is not knocked over by those who waited.
func TestCaseH25NoStampedeAfterRecovery(t *testing.T) {
	const limit, ramp = 100, 4 * fsec
	bubble(t, ax.Config{MaxConcurrent: limit, Breaker: &ax.Breaker{Window: 1, Ramp: ramp}}, func(t *tester) {
		var failed atomic.Int64 // when the server first fell over, in nanoseconds
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(500, ""), nil
			}
			crowded := t.Server.Active() > 20 && h.At < 4050*fms // the first second after the good probe
			h.Sleep(50 * fms)
			if crowded {
				failed.CompareAndSwap(0, int64(t.At()))
				return reply(503, ""), nil
			}
			return reply(200, ""), nil
		}
		fOpen(t)
		var cs []<-chan result
		for range 1000 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			require.NotZero(t, (<-c).Status())
		}
		hits := t.Server.Hits()[1:]
		require.Len(t, hits, 1000)
		good := hits[0].End
		require.Equal(t, 3050*fms, good)
		for i, h := range hits[1:] {
			if first := failed.Load(); first > 0 && int64(h.At) >= first {
				break // it re-opened: the test below has that
			}
			running := 1
			for _, o := range hits[:i+1] {
				if o.End > h.At {
					running++
				}
			}
			since := h.At - good
			require.LessOrEqual(t, running, max(1, int((since*limit+ramp-1)/ramp)), "in flight %v after the good probe", since)
		}
	})
}

// TestCaseH25 the second half: a failure on the way up re-opens for a full OpenFor.
func TestCaseH25FailureOnTheRampReopens(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 100, Breaker: &ax.Breaker{Window: 1, Ramp: 4 * fsec}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			h.Sleep(50 * fms)
			if h.N == 1 || h.N == 30 {
				return reply(503, ""), nil
			}
			return reply(200, ""), nil
		}
		t.Do(t.Context(), fGet("/"))
		var cs []<-chan result
		for range 200 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			require.NotZero(t, (<-c).Status())
		}
		hits := t.Server.Hits()
		require.Len(t, hits, 201)
		reopened := hits[29].End
		var next []time.Duration
		for _, h := range hits {
			require.False(t, h.At > reopened && h.At < reopened+3*fsec, "a start at %v, while open", h.At)
			if h.At >= reopened+3*fsec && h.At < reopened+3050*fms {
				next = append(next, h.At)
			}
		}
		require.Equal(t, []time.Duration{reopened + 3*fsec}, next, "one probe again")
	})
}

// A probe that was cancelled has given its permit back when its caller is told so:
// the very next task probes in its place.
func TestF6CancelledProbeIsFreeAtOnce(t *testing.T) {
	for _, how := range []string{"ctx", "Cancel", "shared"} {
		t.Run(how, func(t *testing.T) {
			for range 20 {
				bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, func(t *tester) {
					t.Server.Reply = fPaths(map[string]fReply{"/bad": fAnswer(500, ""), "/probe": fHang})
					fOpen(t)
					t.Until(3 * fsec)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r := fGet("/probe")
					r.NoDedupe = how != "shared"
					call := t.S.Submit(ctx, ax.Must(r.Task()))
					time.Sleep(fsec)
					if how == "Cancel" {
						call.Cancel()
					} else {
						cancel()
					}
					_, err := call.Result()
					require.ErrorIs(t, err, context.Canceled)
					require.NoError(t, t.Do(t.Context(), fGet("/next")).Err)
					require.Equal(t, ax.BreakerRamping, fLane(t).Breaker)
				})
			}
		})
	}
}
