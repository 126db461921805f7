package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestCaseH33RequestInsideARequest: nested calls need no slot, so five requests
// that each need another one of the same host do not wedge its gate of five.
func TestCaseH33RequestInsideARequest(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 5, Hosts: &ax.Lane{MaxConcurrent: 5}}
	for _, name := range []string{"the attempt's ctx", "Transport"} {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.URL.Path != "/outer" {
					return after(50*dms, 200, "")(h)
				}
				if name == "Transport" {
					req, err := http.NewRequestWithContext(h.Context(), "GET", at("/token"), nil)
					require.NoError(t, err)
					resp, err := dClient(t).Do(req)
					if err != nil {
						return nil, err
					}
					resp.Body.Close()
				} else if _, err := t.S.Send(h.Context(), dGet("/token")); err != nil {
					return nil, err
				}
				return reply(200, ""), nil
			}
			var chans []<-chan result
			for range 5 {
				ctx, cancel := context.WithTimeout(dBG, 500*dms)
				defer cancel()
				chans = append(chans, t.Go(ctx, dGet("/outer")))
			}
			for _, c := range chans {
				r := <-c
				require.NoError(t, r.Err)
				require.Equal(t, 50*dms, r.At)
			}
			require.Equal(t, 10, t.Server.Count())
			require.Equal(t, 10, t.Server.Peak())
			for range 6 {
				chans = append(chans, t.Go(dBG, dGet("/free")))
			}
			synctest.Wait()
			require.Equal(t, 15, t.Server.Count(), "all five slots are free, and no more")
			for _, c := range chans[5:] {
				require.NoError(t, (<-c).Err)
			}
		})
	}
}

// TestCaseH39DeadContexts: (a) dead before Do, (b) cancelled in the queue, (c) running and queued together.
func TestCaseH39DeadContexts(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = dSlow
		dead, cancel := context.WithCancel(dBG)
		cancel()
		r := t.Do(dead, dGet("/dead"))
		require.ErrorIs(t, r.Err, context.Canceled)
		require.Zero(t, t.Server.Count())

		both, leave := context.WithCancel(dBG)
		running := t.Go(both, dGet("/running"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(dBG)
		queued := t.Go(ctx, dGet("/queued"))
		t.Until(100 * dms)
		require.Equal(t, 1, t.S.Stats().Queued)
		cancel()
		require.Equal(t, 100*dms, (<-queued).At)
		require.Zero(t, t.S.Stats().Queued)

		behind := t.Go(both, dGet("/behind"))
		synctest.Wait()
		next := t.Go(dBG, dGet("/quick"))
		t.Until(200 * dms)
		leave()
		for _, c := range []<-chan result{running, behind} {
			r := <-c
			require.ErrorIs(t, r.Err, context.Canceled)
			require.Equal(t, 200*dms, r.At)
		}
		require.Equal(t, 200*dms, (<-next).At)
		require.Equal(t, []string{"/running", "/quick"}, t.Server.Paths())
	})
}

// TestCaseH45StaleIsBoundedAndHonest: fresh for 1 s, stale for 5 s, marked as
// such; answers like 404 pass through; failures are never kept.
func TestCaseH45StaleIsBoundedAndHonest(t *testing.T) {
	for _, fault := range []int{503, 0, 404} { // 0: a transport error
		cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Second}, Fallback: &ax.Fallback{Stale: 5 * time.Second}}
		bubble(t, cfg, func(t *tester) {
			boom := errors.New("reset by peer")
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				switch {
				case h.N == 1:
					return reply(200, "v1"), nil
				case fault == 0:
					return nil, boom
				}
				return reply(fault, "bad"), nil
			}
			require.Equal(t, "v1", dText(t, t.Do(dBG, dGet("/x")).Resp.Response))
			t.Until(500 * dms)
			require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/x")).Resp.Source)
			require.Equal(t, 1, t.Server.Count())
			t.Until(3 * time.Second)
			a, b := t.Go(dBG, dGet("/x")), t.Go(dBG, dGet("/x"))
			for _, c := range []<-chan result{a, b} {
				r := <-c
				require.NoError(t, r.Err)
				if fault == 404 {
					require.Equal(t, 404, r.Status())
					continue
				}
				require.Equal(t, 200, r.Status())
				require.Equal(t, ax.FromStale, r.Resp.Source)
				require.Equal(t, 3*time.Second, r.Resp.Age)
				require.Zero(t, r.Resp.Attempts)
				require.Error(t, r.Resp.Cause)
				require.Equal(t, "v1", dText(t, r.Resp.Response), "each its own body")
			}
			t.Until(7 * time.Second)
			r := t.Do(dBG, dGet("/x"))
			if fault == 0 {
				require.ErrorIs(t, r.Err, boom)
			} else {
				require.NoError(t, r.Err)
				require.Equal(t, fault, r.Status())
				require.Equal(t, ax.FromNetwork, r.Resp.Source)
			}
			synctest.Wait()
			require.Zero(t, t.S.Stats().DedupeEntries)
		})
	}
}

// TestCaseH46ShutdownBasics: three running, five queued, all answered; new ones refused.
func TestCaseH46ShutdownBasics(t *testing.T) {
	boom := errors.New("reset by peer")
	bubble(t, ax.Config{MaxConcurrent: 3}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			h.Sleep(200 * dms)
			if h.URL.Path == "/1" {
				return nil, boom
			}
			return reply(200, ""), nil
		}
		var chans []<-chan result
		for i := range 8 {
			chans = append(chans, t.Go(dBG, dGet(fmt.Sprint("/", i))))
			synctest.Wait()
		}
		t.Until(100 * dms)
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		first, second := dShutdown(t, ctx), dShutdown(t, ctx)
		synctest.Wait()
		refused := t.Do(dBG, dGet("/new"))
		require.ErrorIs(t, refused.Err, ax.ErrClosed)
		require.Equal(t, 100*dms, refused.At)
		for i, c := range chans {
			r := <-c
			require.Equal(t, time.Duration(i/3+1)*200*dms, r.At)
			if i == 1 {
				require.ErrorIs(t, r.Err, boom)
			} else {
				require.Equal(t, 200, r.Status())
			}
		}
		for _, c := range []<-chan result{first, second} {
			r := <-c
			require.NoError(t, r.Err)
			require.Equal(t, 600*dms, r.At)
		}
		t.Until(time.Minute)
		require.Equal(t, 8, t.Server.Count(), "nothing starts after the return")
	})
}

// TestCaseH48StateDoesNotGrow with hosts, owners, keys, tags and names that came
// once; an open breaker is not forgotten.
func TestCaseH48StateDoesNotGrow(t *testing.T) {
	n := 100_000
	if dRace || testing.Short() {
		n = 10_000
	}
	exec := ax.ExecutorFunc(func(_ context.Context, task *ax.Task) (*http.Response, error) {
		if strings.HasSuffix(task.URL(), "/sick") {
			return reply(500, ""), nil
		}
		return reply(200, ""), nil
	})
	cfg := ax.Config{
		Executor: exec, Dedupe: &ax.Dedupe{Window: time.Second}, Retry: &ax.Retry{}, Owners: &ax.Budget{MaxConcurrent: 2, Rate: ax.PerSecond(5)},
		Breaker: &ax.Breaker{Window: 1, OpenFor: time.Hour, MaxAge: 10 * time.Second, WhenOpen: ax.OpenReject},
		Hosts:   &ax.Lane{MaxConcurrent: 2, Rate: ax.PerSecond(5)}, Fallback: &ax.Fallback{Stale: time.Second},
	}
	bubble(t, cfg, func(t *tester) {
		sick := ax.Request{URL: at("/sick"), NoRetry: true, NoFallback: true}
		require.Equal(t, 500, t.Do(dBG, sick).Status())
		base := dHeap()
		for i := range n {
			name := fmt.Sprint("n", i)
			r := ax.Request{URL: "http://" + name + ".test/" + name, Owner: name, Tags: []string{name}, Supersede: name, Cooldown: time.Second}
			if _, err := t.S.Send(dBG, r); err != nil {
				require.NoError(t, err)
			}
		}
		require.LessOrEqual(t, t.S.Stats().DedupeEntries, 10_000)
		t.Until(t.At() + 2*time.Minute)
		synctest.Wait()
		st := t.S.Stats()
		require.Len(t, st.Lanes, 1)
		require.Equal(t, ax.BreakerOpen, st.Lanes["a.test"].Breaker)
		require.Empty(t, st.Owners)
		require.Zero(t, st.DedupeEntries)
		require.Less(t, dHeap()-base, int64(8<<20), "the heap is back")
		require.ErrorIs(t, t.Do(dBG, sick).Err, ax.ErrCircuitOpen)
	})
}

// dHeap is what lives on the heap.
func dHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCaseH53ClientTimeoutOverAQueue: http.Client.Timeout ends a wait in the queue.
func TestCaseH53ClientTimeoutOverAQueue(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = dSlow
		hog := t.S.Submit(dBG, ax.Must(dGet("/hog").Task()))
		synctest.Wait()
		client := dClient(t)
		client.Timeout = 100 * dms
		_, err := client.Get(at("/x"))
		require.Equal(t, 100*dms, t.At())
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		synctest.Wait()
		st := t.S.Stats()
		require.Zero(t, st.Queued)
		require.Equal(t, 1, st.Active)
		require.Equal(t, 1, t.Server.Count())
		hog.Cancel()
		synctest.Wait()
		require.Equal(t, 200, t.Do(dBG, dGet("/quick")).Status())
		require.Equal(t, 100*dms, t.At())
	})
}

// TestCaseH54RedirectTakesTheLaneOfItsTarget, its gate and its breaker, and
// leaves the credentials behind; through Do and through Transport.
func TestCaseH54RedirectTakesTheLaneOfItsTarget(t *testing.T) {
	for _, transport := range []bool{false, true} {
		cfg := ax.Config{Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}, Breaker: &ax.Breaker{}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.URL.Host == "a.test" {
					return reply(302, "", "Location: http://b.test/landed"), nil
				}
				return after(100*dms, 500, "")(h)
			}
			done := make(chan time.Duration, 4)
			for range 4 {
				go func() {
					header := dHeader("Authorization", "secret")
					if transport {
						req, _ := http.NewRequest("GET", at("/x"), nil)
						req.Header = header
						if resp, err := dClient(t).Do(req); err == nil {
							resp.Body.Close()
						}
					} else {
						t.S.Send(dBG, ax.Request{URL: at("/x"), Header: header})
					}
					done <- t.At()
				}()
				synctest.Wait()
			}
			for i := range 4 {
				require.Equal(t, time.Duration(i+1)*100*dms, <-done)
			}
			var free time.Duration // the end of b's latest request
			for _, h := range t.Server.Hits() {
				if h.URL.Host == "b.test" {
					require.GreaterOrEqual(t, h.At, free, "one at a time")
					free = h.End
				}
				want := map[string]string{"a.test": "secret", "b.test": ""}[h.URL.Host]
				require.Equal(t, want, h.Header.Get("Authorization"))
			}
			lanes := t.S.Stats().Lanes
			require.EqualValues(t, 4, lanes["b"].Failures)
			require.Zero(t, lanes["a.test"].Failures)
		})
	}
}

// TestCaseH54RedirectWithinALane of one slot does not wait for itself.
func TestCaseH54RedirectWithinALane(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		cfg := ax.Config{MaxConcurrent: 1, Hosts: &ax.Lane{MaxConcurrent: 1}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.URL.Path == "/start" {
					return reply(302, "", "Location: "+map[int]string{1: "/end", 2: "http://b.test/end"}[hosts]), nil
				}
				return reply(200, "landed"), nil
			}
			r := t.Do(dBG, dGet("/start"))
			require.NoError(t, r.Err)
			require.Zero(t, r.At)
			require.Equal(t, "landed", dText(t, r.Resp.Response))
			resp, err := dClient(t).Get(at("/start"))
			require.NoError(t, err)
			require.Equal(t, "landed", dText(t, resp))
			require.Zero(t, t.S.Stats().Active)
		})
	}
}
