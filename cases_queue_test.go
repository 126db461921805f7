package ax_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// A front waiter that cannot start holds up nobody: not while it waits, and not when it is cancelled.
func TestCaseH26(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 10, Hosts: &ax.Lane{MaxConcurrent: 9}}, func(t *tester) {
		t.Server.Reply = qHold(time.Hour)
		qMany(t, 9, "/hold")
		front := qSubmit(t, ax.Request{URL: at("/front"), Priority: ax.Urgent})
		synctest.Wait()
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/follower", Priority: ax.Low}).Status())
		t.Until(time.Second)
		front[0].Cancel()
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/follower", Priority: ax.Low}).Status())
		require.Equal(t, time.Second, t.At())
		require.Equal(t, 9, t.Server.Active())
	})
	// The token was due for the front waiter; the one behind it gets it on time.
	t.Run("a rate's front waiter", func(t *testing.T) {
		bubble(t, ax.Config{Rate: []ax.Rate{{Limit: 1, Per: time.Second}}}, func(t *tester) {
			calls := qSubmit(t, ax.Request{URL: at("/first")}, ax.Request{URL: at("/front"), Priority: ax.Urgent}, ax.Request{URL: at("/follower")})
			t.Until(time.Second - 1)
			calls[1].Cancel()
			qOK(t, calls[0], calls[2])
			require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
		})
	})
}

// Ten thousand tasks of a millisecond, each cancelled in its first five, some
// failing, some panicking: no slot is lost and none is made up.
func TestCaseH27(t *testing.T) {
	n := 10_000
	if raceEnabled {
		n = 3_000
	}
	bubble(t, ax.Config{MaxConcurrent: 4, MaxQueue: ax.NoLimit}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/block" {
				return after(time.Second, 200, "")(h)
			}
			if err := h.Sleep(qms); err != nil {
				return nil, err
			}
			switch h.N % 10 {
			case 0:
				return reply(404, ""), nil
			case 1:
				return reply(500, ""), nil
			case 2:
				panic("a broken transport")
			case 3:
				return nil, errors.New("connection reset")
			}
			return reply(200, ""), nil
		}
		rnd := rand.New(rand.NewPCG(27, 27))
		done := make(chan struct{}, n)
		for range n {
			cancelAt := time.Duration(rnd.IntN(51)) * 100 * time.Microsecond // often the very instant of a hand-over
			go func() {
				defer func() {
					_ = recover() // a lone caller's panic is its own
					done <- struct{}{}
				}()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(cancelAt, cancel).Stop()
				_, _ = t.S.Do(ctx, ax.Must(ax.Request{URL: at("/")}.Task()))
			}()
			time.Sleep(time.Duration(rnd.IntN(5)) * 100 * time.Microsecond)
		}
		for range n {
			<-done
		}
		synctest.Wait()
		st := t.S.Stats()
		require.Equal(t, []int{0, 0, 0}, []int{st.Active, st.Queued, st.Parked})
		require.Equal(t, 4, t.Server.Peak())
		before := t.At()
		blocks := qMany(t, 5, "/block")
		synctest.Wait()
		require.Equal(t, 4, t.Server.Active())
		require.Equal(t, before, t.At())
		qOK(t, blocks...)
		require.Equal(t, 4, t.Server.Peak())
	})
}

// One hanging host with five hundred better waiters does not reach another host.
func TestCaseH30(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 8, Hosts: &ax.Lane{MaxConcurrent: 2}}, func(t *tester) {
		running := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return after(10*time.Second, 200, "")(h)
			}
			running = t.Server.Active()
			return reply(200, ""), nil
		}
		for range 502 {
			qSubmit(t, ax.Request{URL: at("/"), Priority: ax.Urgent})
		}
		t.Until(time.Second)
		require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/", Priority: ax.Low}).Status())
		require.Equal(t, time.Second, t.At())
		require.Equal(t, 3, running)
		require.Equal(t, 2, t.Server.Active())
		t.Until(35 * time.Second)
		require.Equal(t, 2, t.S.Stats().Lanes["a.test"].Active)
		require.Equal(t, 8, t.Server.Count()-1, "two every ten seconds")
		require.Equal(t, 3, t.Server.Peak())
	})
}

// Level 5 against an endless stream of level 10: with a level for every 100 ms it
// outranks whatever comes 500 ms after it.
func TestCaseH31(t *testing.T) {
	stream := func(t *tester, n int) []*ax.Call {
		t.Server.Reply = after(10*qms, 200, "")
		calls := qSubmit(t, ax.Request{URL: at("/0"), Priority: 10}, ax.Request{URL: at("/low"), Priority: 5})
		for i := 1; i < n; i++ {
			t.Until(time.Duration(i)*10*qms - 500*time.Microsecond)
			calls = append(calls, qSubmit(t, ax.Request{URL: at("/" + strconv.Itoa(i)), Priority: 10})...)
		}
		return calls
	}
	t.Run("aging", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, AgingStep: 100 * qms}, func(t *tester) {
			qOK(t, stream(t, 200)...)
			// The one of 499.5 ms is still better, the one of 509.5 ms is not.
			require.Equal(t, 510*qms, qSeen(t)["/low"])
			require.Equal(t, qEvery(0, 10*qms, 201), t.Server.Times())
		})
	})
	t.Run("strict", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: 1, StrictPriority: true}, func(t *tester) {
			qOK(t, stream(t, 200)...)
			require.Equal(t, 2*time.Second, qSeen(t)["/low"], "last of all")
		})
	})
	t.Run("three cross over", func(t *testing.T) {
		for _, late := range []bool{false, true} {
			bubble(t, ax.Config{MaxConcurrent: 1, AgingStep: 100 * qms}, func(t *tester) {
				t.Server.Reply = qHold(time.Second)
				calls := qSubmit(t, ax.Request{URL: at("/hold")}, ax.Request{URL: at("/low"), Priority: ax.Low})
				extra := time.Duration(0)
				if late {
					extra = 1
				}
				t.Until(100*qms + extra)
				calls = append(calls, qSubmit(t, ax.Request{URL: at("/normal")})...)
				t.Until(300*qms + extra)
				calls = append(calls, qSubmit(t, ax.Request{URL: at("/urgent"), Priority: ax.Urgent})...)
				qOK(t, calls...)
				want := []string{"/hold", "/urgent", "/normal", "/low"}
				if late {
					want = []string{"/hold", "/low", "/urgent", "/normal"}
				}
				require.Equal(t, want, t.Server.Paths())
			})
		}
	})
}

// A thousand waiters of three priorities, every third cancelled, fifty submitted
// anew with another priority: first come, first served within each. (A queued
// task keeps its priority in ax: to change it is to cancel it and submit another.)
func TestCaseH32(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: ax.NoLimit}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		hold := qMany(t, 1, "/hold")
		type waiter struct {
			path string
			prio ax.Priority
			call *ax.Call
		}
		var all []waiter
		submit := func(prio ax.Priority) {
			path := "/" + strconv.Itoa(len(all))
			all = append(all, waiter{path, prio, qSubmit(t, ax.Request{URL: at(path), Priority: prio})[0]})
		}
		for i := range 1000 {
			submit(ax.Priority(i*31%3) - 1)
		}
		gone := map[string]bool{}
		cancel := func(w waiter) {
			w.call.Cancel()
			gone[w.path] = true
		}
		for i := 2; i < 1000; i += 3 {
			cancel(all[i])
		}
		cancel(all[999]) // the last of the heap
		for i := 0; i < 150; i += 3 {
			cancel(all[i])
			submit(ax.Important - all[i].prio)
		}
		synctest.Wait()
		require.Equal(t, len(all)-len(gone), t.S.Stats().Queued)
		var want []string
		for prio := ax.Important + 1; prio >= ax.Low; prio-- {
			for _, w := range all {
				if w.prio == prio && !gone[w.path] {
					want = append(want, w.path)
				}
			}
		}
		qOK(t, hold...)
		for _, w := range all {
			resp, err := w.call.Result()
			if gone[w.path] {
				qErr(t, err, "queue", context.Canceled)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			w.call.Cancel() // long popped
		}
		require.Equal(t, append([]string{"/hold"}, want...), t.Server.Paths())
	})
}

// Whose ctx is over is not sent.
func TestCaseH39(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = qHold(time.Hour)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, t.Do(dead, ax.Request{URL: at("/a")}).Err, context.Canceled)
		_, err := t.S.Submit(dead, ax.Must(ax.Request{URL: at("/a")}.Task())).Result()
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, t.Server.Count())

		both, cancelBoth := context.WithCancel(t.Context())
		a := t.Go(both, ax.Request{URL: at("/hold")})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		b := t.Go(ctx, ax.Request{URL: at("/b")})
		c := t.Go(both, ax.Request{URL: at("/c")})
		next := t.Go(t.Context(), ax.Request{URL: at("/next")})
		t.Until(time.Second)
		require.Equal(t, 3, t.S.Stats().Queued)
		cancel()
		r := <-b
		require.Equal(t, time.Second, r.At)
		qErr(t, r.Err, "queue", context.Canceled)
		require.Equal(t, 2, t.S.Stats().Queued)
		t.Until(2 * time.Second)
		cancelBoth()
		qErr(t, (<-a).Err, "attempt", context.Canceled)
		require.ErrorIs(t, (<-c).Err, context.Canceled)
		r = <-next
		require.Equal(t, 200, r.Status())
		require.Equal(t, 2*time.Second, r.At)
		require.Equal(t, []string{"/hold", "/next"}, t.Server.Paths())
		require.True(t, t.Server.Hits()[0].Canceled)
		require.Equal(t, uint64(5), t.S.Stats().Canceled)
	})
}

// One runs, two wait; of ten no more are ever alive, and each of the others hears of it once, at once.
func TestCaseH41(t *testing.T) {
	for overflow, policy := range []string{ax.OverflowReject: "reject", ax.OverflowEvict: "evict"} {
		for name, prio := range map[string]func(int) ax.Priority{
			"equal":   func(int) ax.Priority { return ax.Normal },
			"rising":  func(i int) ax.Priority { return ax.Priority(i) },
			"falling": func(i int) ax.Priority { return ax.Priority(-i) },
		} {
			t.Run(policy+"/"+name, func(t *testing.T) {
				var events qEvents
				cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 2, Overflow: ax.Overflow(overflow), OnEvent: events.add}
				bubble(t, cfg, func(t *tester) {
					t.Server.Reply = after(time.Second, 200, "")
					var calls []*ax.Call
					for i := range 10 {
						calls = append(calls, qSubmit(t, ax.Request{URL: at("/" + strconv.Itoa(i)), Priority: prio(i)})...)
						synctest.Wait()
						st := t.S.Stats()
						require.Equal(t, min(i+1, 3), st.Active+st.Queued)
						require.Equal(t, uint64(max(i-2, 0)), st.Rejected)
					}
					want := []string{"/0", "/1", "/2"}
					switch {
					case policy == "evict" && name == "rising":
						want = []string{"/0", "/9", "/8"}
					case name == "rising":
						want = []string{"/0", "/2", "/1"}
					}
					ends := map[uint64]int{}
					for _, e := range events.of(ax.EventRejected) {
						ends[e.Seq]++
					}
					require.Len(t, ends, 7)
					alive := 0
					for i, c := range calls {
						if !qDone(c) {
							alive++
							continue
						}
						_, err := c.Result()
						if policy == "evict" && name == "rising" {
							qErr(t, err, "queue", ax.ErrEvicted)
						} else {
							qErr(t, err, "admit", ax.ErrQueueFull)
						}
						require.Equal(t, 1, ends[c.Seq()], "call %d", i)
					}
					require.Equal(t, 3, alive)
					require.Zero(t, t.At())
					t.Until(3 * time.Second)
					synctest.Wait()
					require.Equal(t, want, t.Server.Paths())
					require.Len(t, events.of(ax.EventRejected), 7)
				})
			})
		}
	}
}

// Of one owner's thousand two run, a hundred wait, and the rest is told off by name; another owner is served at once.
func TestCaseH47(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 4, Budgets: map[string]ax.Budget{"A": {MaxConcurrent: 2, MaxQueue: 100}}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(50*qms, 200, "")
		var calls []*ax.Call
		for range 1000 {
			calls = append(calls, qSubmit(t, ax.Request{URL: at("/A"), Owner: "A"})...)
		}
		b := qSubmit(t, ax.Request{URL: at("/B"), Owner: "B"})
		synctest.Wait()
		require.Zero(t, qSeen(t)["/B"])
		require.Equal(t, 3, t.Server.Active())
		owner := t.S.Stats().Owners["A"]
		require.Equal(t, []int{2, 100}, []int{owner.Active, owner.Queued})
		require.Equal(t, uint64(2), owner.Started)
		require.GreaterOrEqual(t, owner.Over, uint64(898))
		for i, c := range calls {
			require.Equal(t, i >= 102, qDone(c), "call %d", i)
			if i >= 102 {
				_, err := c.Result()
				require.Equal(t, "A", qErr(t, err, "admit", ax.ErrBudget).Owner)
			}
		}
		require.Equal(t, uint64(898), t.S.Stats().Rejected)
		calls[101].Cancel() // gives its place back
		synctest.Wait()
		again := qSubmit(t, ax.Request{URL: at("/A"), Owner: "A"})
		qOK(t, b...)
		require.Equal(t, 50*qms, t.At())
		qOK(t, append(calls[:101], again...)...)
		require.Equal(t, 51*50*qms, t.At(), "102 in pairs")
		require.Equal(t, 3, t.Server.Peak())
	})
}

// A Client.Timeout covers the queue too and leaves nothing behind.
func TestCaseH53(t *testing.T) {
	bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		hold := qMany(t, 1, "/hold")
		synctest.Wait()
		client := &http.Client{Timeout: 100 * qms, Transport: t.S.Transport()}
		resp, err := client.Get(at("/queued"))
		if resp != nil {
			resp.Body.Close()
		}
		require.Equal(t, 100*qms, t.At())
		netErr, ok := errors.AsType[net.Error](err)
		require.True(t, ok)
		require.True(t, netErr.Timeout())
		synctest.Wait()
		require.Zero(t, t.S.Stats().Queued)
		require.Equal(t, 1, t.S.Stats().Active)
		qOK(t, hold...)
		require.Equal(t, []string{"/hold"}, t.Server.Paths())
		resp, err = client.Get(at("/free"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, time.Second, t.At())
		require.Equal(t, 2, t.Server.Count())
	})
}
