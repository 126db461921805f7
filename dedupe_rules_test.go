package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

const dms = time.Millisecond

// TestD0CooldownRefusesFirst: the same key is refused while it runs and for the
// cooldown after its end, before it could join or be given a kept answer.
func TestD0CooldownRefusesFirst(t *testing.T) {
	log := &dLog{}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, OnEvent: log.On}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		r := ax.Request{URL: at("/x"), Cooldown: time.Second, DedupeWindow: time.Hour}
		first := t.Go(dBG, r)
		t.Until(50 * dms)
		for _, when := range []time.Duration{50 * dms, 101 * dms, 1099 * dms} {
			t.Until(when)
			got := t.Do(dBG, r)
			require.ErrorIs(t, got.Err, ax.ErrCooldown)
			require.Equal(t, when, got.At)
			require.Equal(t, "admit", dError(t, got.Err).Op)
		}
		require.Equal(t, 200, (<-first).Status())
		t.Until(1101 * dms)
		require.Equal(t, ax.FromWindow, t.Do(dBG, r).Resp.Source)
		st := t.S.Stats()
		require.EqualValues(t, 3, st.Rejected)
		require.Zero(t, st.Coalesced)
		require.Equal(t, 1, t.Server.Count())
	})
	for _, e := range log.All() {
		require.NotEqual(t, ax.EventCoalesced, e.Kind)
	}
}

// TestD0CooldownOfAWrite: a write without a key gets one for this alone, with
// or without Dedupe; writes without a cooldown are not shared by it.
func TestD0CooldownOfAWrite(t *testing.T) {
	for _, dedupe := range []*ax.Dedupe{nil, {}} {
		bubble(t, ax.Config{Dedupe: dedupe}, func(t *tester) {
			t.Server.Reply = after(100*dms, 201, "")
			r := ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1"), Cooldown: time.Second}
			other, plain := r, r
			other.Body = []byte("2")
			plain.Cooldown = 0
			first := t.Go(dBG, r)
			synctest.Wait()
			require.ErrorIs(t, t.Do(dBG, r).Err, ax.ErrCooldown)
			b := t.Go(dBG, other)
			c, d := t.Go(dBG, plain), t.Go(dBG, plain)
			synctest.Wait()
			require.Equal(t, 4, t.Server.Count())
			for _, ch := range []<-chan result{first, b, c, d} {
				require.Equal(t, 201, (<-ch).Status())
			}
		})
	}
}

// TestD0JoinerIsATaskOfItsOwn: own Seq and events, no slot, no token, no budget.
func TestD0JoinerIsATaskOfItsOwn(t *testing.T) {
	log := &dLog{}
	cfg := ax.Config{
		MaxConcurrent: 2, Rate: []ax.Rate{{Limit: 2, Per: time.Hour}}, Dedupe: &ax.Dedupe{}, OnEvent: log.On,
		Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}, Over: ax.OverReject}},
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "body")
		r := ax.Request{URL: at("/x"), Owner: "o"}
		a := t.Go(dBG, r)
		b := t.GoAt(10*dms, dBG, r)
		c := t.GoAt(20*dms, dBG, r)
		t.Until(30 * dms)
		st := t.S.Stats()
		require.Equal(t, 1, st.Active)
		require.Equal(t, 1, st.Owners["o"].Active)
		require.Zero(t, st.Queued+st.Parked)
		require.EqualValues(t, 2, st.Coalesced)
		other := t.Go(dBG, dGet("/other")) // the second slot and the second token are free
		ra, rb, rc := <-a, <-b, <-c
		require.Equal(t, 130*dms, (<-other).At)
		require.Equal(t, ax.FromNetwork, ra.Resp.Source)
		for _, j := range []result{rb, rc} {
			require.Equal(t, ax.FromFlight, j.Resp.Source)
			require.Equal(t, 1, j.Resp.Attempts)
			require.Equal(t, 100*dms, j.At)
			require.Equal(t, []ax.EventKind{ax.EventSubmitted, ax.EventCoalesced, ax.EventSucceeded}, log.Kinds(j.Resp.Seq))
			require.Equal(t, ax.FromFlight, log.End(t, j.Resp.Seq).Source)
		}
		require.Less(t, ra.Resp.Seq, rb.Resp.Seq)
		require.Less(t, rb.Resp.Seq, rc.Resp.Seq)
		require.EqualValues(t, 1, t.S.Stats().Owners["o"].Started)
		require.Zero(t, t.S.Stats().Owners["o"].Over)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2InFlightAlways: without a window a key is shared while in flight only.
func TestD2InFlightAlways(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		a, b := t.Go(dBG, dGet("/x")), t.GoAt(99*dms, dBG, dGet("/x"))
		<-a
		require.Equal(t, 100*dms, (<-b).At)
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
		require.Equal(t, 2, t.Server.Count())
		require.Zero(t, t.S.Stats().DedupeEntries)
	})
}

// TestD2WithoutDedupe nothing is shared, unless the config turns it on.
func TestD2WithoutDedupe(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		a, b := t.Go(dBG, dGet("/x")), t.Go(dBG, dGet("/x"))
		<-a
		<-b
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2WindowStartsAtCompletion and its entries leave by a timer.
func TestD2WindowStartsAtCompletion(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Second}}, func(t *tester) {
		t.Server.Reply = after(500*dms, 200, "body")
		require.Equal(t, 200, t.Do(dBG, dGet("/x")).Status())
		st := t.S.Stats()
		require.Equal(t, 1, st.DedupeEntries)
		require.GreaterOrEqual(t, st.DedupeBytes, int64(4))
		t.Until(1400 * dms)
		hit := t.Do(dBG, dGet("/x"))
		require.Equal(t, 1400*dms, hit.At)
		require.Equal(t, ax.FromWindow, hit.Resp.Source)
		require.Equal(t, 900*dms, hit.Resp.Age)
		require.Zero(t, hit.Resp.Attempts)
		require.Equal(t, "body", dText(t, hit.Resp.Response))
		t.Until(1499 * dms)
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/x")).Resp.Source, "a hit does not prolong, the window lasts to its end")
		t.Until(1501 * dms)
		synctest.Wait()
		st = t.S.Stats()
		require.Zero(t, st.DedupeEntries, "left by a timer, nobody asked")
		require.Zero(t, st.DedupeBytes)
		require.EqualValues(t, 2, st.WindowHits)
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2WhatIsKept: only a 2xx that does not say no-store; a task's own window
// overrides no-store, never a failure.
func TestD2WhatIsKept(t *testing.T) {
	for _, c := range []struct {
		status  int
		headers []string
		own     time.Duration
		kept    bool
	}{
		{200, nil, 0, true}, {201, nil, 0, true}, {204, nil, 0, true}, {299, nil, 0, true},
		{304, nil, 0, false}, {400, nil, 0, false}, {404, nil, 0, false}, {429, nil, 0, false}, {500, nil, 0, false}, {503, nil, 0, false},
		{200, []string{"Cache-Control: no-store"}, 0, false},
		{200, []string{"Cache-Control: private, NO-STORE"}, 0, false},
		{200, []string{"Cache-Control: private", "Cache-Control: max-age=0,no-store"}, 0, false},
		{200, []string{"Cache-Control: no-cache"}, 0, true},
		{200, []string{"Cache-Control: no-store"}, time.Minute, true},
		{500, nil, time.Minute, false}, {503, nil, time.Minute, false},
	} {
		t.Run(fmt.Sprint(c.status, c.headers, c.own), func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
				t.Server.Reply = func(*hit) (*http.Response, error) { return reply(c.status, "", c.headers...), nil }
				r := ax.Request{URL: at("/x"), DedupeWindow: c.own}
				require.Equal(t, c.status, t.Do(dBG, r).Status())
				require.Equal(t, c.status, t.Do(dBG, r).Status())
				want := map[bool]int{true: 1, false: 2}[c.kept]
				require.Equal(t, want, t.Server.Count())
			})
		})
	}
}

// TestD2ErrorsAreNotKept: a transport error is shared in flight, then forgotten.
func TestD2ErrorsAreNotKept(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}, func(t *tester) {
		t.Server.Reply = func(*hit) (*http.Response, error) { return nil, errors.New("reset") }
		require.Error(t, t.Do(dBG, dGet("/x")).Err)
		require.Zero(t, t.S.Stats().DedupeEntries)
		require.Error(t, t.Do(dBG, dGet("/x")).Err)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2FirstCallersWindowCounts, the joiners' does not.
func TestD2FirstCallersWindowCounts(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		short, long := dGet("/x"), dGet("/x")
		short.DedupeWindow, long.DedupeWindow = time.Second, time.Hour
		a, b := t.Go(dBG, short), t.GoAt(50*dms, dBG, long)
		<-a
		<-b
		t.Until(1200 * dms)
		require.Equal(t, ax.FromNetwork, t.Do(dBG, long).Resp.Source) // now long is the first
		t.Until(time.Minute)
		require.Equal(t, ax.FromWindow, t.Do(dBG, short).Resp.Source)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2BoundedEntries: the least recently used goes first.
func TestD2BoundedEntries(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour, MaxEntries: 2}}, func(t *tester) {
		for _, path := range []string{"/1", "/2", "/1", "/3"} { // /1 was used after /2
			require.Equal(t, 200, t.Do(dBG, dGet(path)).Status())
		}
		require.Equal(t, 2, t.S.Stats().DedupeEntries)
		require.Equal(t, 3, t.Server.Count())
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/1")).Resp.Source)
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/3")).Resp.Source)
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/2")).Resp.Source)
	})
}

// TestD2BoundedBytes: bodies kept stay below MaxBytes; one that is larger is not kept at all.
func TestD2BoundedBytes(t *testing.T) {
	const limit = 100_000
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour, MaxBytes: limit}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/huge" {
				return reply(200, string(make([]byte, limit+1))), nil
			}
			return reply(200, string(make([]byte, 30_000))), nil
		}
		for i := range 10 {
			t.Do(dBG, dGet(fmt.Sprint("/", i)))
			require.LessOrEqual(t, t.S.Stats().DedupeBytes, int64(limit))
		}
		kept := t.S.Stats().DedupeEntries
		require.InDelta(t, 3, kept, 1)
		t.Do(dBG, dGet("/huge"))
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/huge")).Resp.Source)
		require.LessOrEqual(t, t.S.Stats().DedupeBytes, int64(limit))
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/9")).Resp.Source, "what cannot be kept pushes nothing out")
	})
}

// TestD2WritesForget: a successful unsafe request forgets its URL's entries, no others.
func TestD2WritesForget(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		forgets      bool
	}{
		{"POST", "/x?q=1", 200, true}, {"PUT", "/x?q=1", 204, true}, {"PATCH", "/x?q=1", 201, true}, {"DELETE", "/x?q=1", 204, true},
		{"POST", "/x?q=1", 304, true}, {"POST", "/x?q=1", 404, false}, {"POST", "/x?q=1", 500, false},
		{"POST", "/y", 200, false}, {"OPTIONS", "/x?q=1", 200, false},
	} {
		t.Run(fmt.Sprint(c.method, c.path, c.status), func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.Method == "GET" {
						return reply(200, ""), nil
					}
					return reply(c.status, ""), nil
				}
				plain, lang := dGet("/x?q=1"), dGet("/x?q=1")
				lang.Header = dHeader("Accept-Language", "de")
				t.Do(dBG, plain)
				t.Do(dBG, lang)
				require.Equal(t, c.status, t.Do(dBG, ax.Request{Method: c.method, URL: at(c.path)}).Status())
				want := map[bool]ax.Source{true: ax.FromNetwork, false: ax.FromWindow}[c.forgets]
				require.Equal(t, want, t.Do(dBG, plain).Resp.Source)
				require.Equal(t, want, t.Do(dBG, lang).Resp.Source, "whatever the headers")
			})
		})
	}
}

// TestD2WriteThatIsRedirectedForgets where it was done, too: what a 307 or 308 leads to
// is the same write.
func TestD2WriteThatIsRedirectedForgets(t *testing.T) {
	for _, c := range []struct {
		status, last int
		method       string
		forgets      bool
	}{
		{307, 200, "POST", true}, {308, 204, "DELETE", true}, {307, 500, "POST", false}, {303, 200, "POST", false}, {307, 200, "OPTIONS", false},
	} {
		for _, inFlight := range []bool{true, false} {
			t.Run(fmt.Sprint(c.method, c.status, c.last, inFlight), func(t *testing.T) {
				bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
					t.Server.Reply = func(h *hit) (*http.Response, error) {
						switch {
						case h.URL.Path == "/from":
							return reply(c.status, "", "Location: /via"), nil
						case h.URL.Path == "/via":
							return reply(c.status, "", "Location: http://b.test:80/to"), nil
						case h.Method == "GET":
							return after(fsec, 200, "")(h)
						}
						return reply(c.last, ""), nil
					}
					read := ax.Request{URL: "http://b.test/to"}
					before := t.Go(dBG, read)
					time.Sleep(fms)
					if !inFlight {
						<-before
					}
					r := t.Do(dBG, ax.Request{Method: c.method, URL: at("/from"), Body: []byte("x")})
					if c.status != 303 {
						require.Equal(t, c.last, r.Status())
					}
					got := t.Do(dBG, read).Resp.Source
					require.Equal(t, c.forgets, got == ax.FromNetwork, "%v", got)
				})
			})
		}
	}
}

// What counts is that the server did it, not whether its answer's body came whole or
// anybody was left to read it.
func TestD2WriteWhoseAnswerIsLostForgetsToo(t *testing.T) {
	for name, c := range map[string]struct {
		gone bool
		rest int64
	}{"cut off": {false, 10}, "its caller has left": {true, 0}} {
		for _, hedged := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", hedged: ", hedged), func(t *testing.T) {
				cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}
				if hedged {
					cfg.Hedge = &ax.Hedge{After: time.Minute}
				}
				bubble(t, cfg, func(t *tester) {
					t.Server.Reply = func(h *hit) (*http.Response, error) {
						if h.Method == "GET" {
							return reply(200, ""), nil
						}
						time.Sleep(time.Second) // deaf to its ctx
						r := reply(200, "x")
						r.ContentLength += c.rest
						return r, nil
					}
					t.Do(dBG, dGet("/x"))
					ctx, cancel := context.WithCancel(dBG)
					if c.gone {
						time.AfterFunc(time.Second/2, cancel)
					}
					require.Error(t, t.Do(ctx, ax.Request{Method: "PUT", URL: at("/x")}).Err)
					cancel()
					time.Sleep(time.Second)
					require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
				})
			})
		}
	}
}

// TestD2ReadBehindAWrite: what waited for the slot of the write began after it.
func TestD2ReadBehindAWrite(t *testing.T) {
	for name, listener := range map[string]func(ax.Event){"alone": nil, "heard": func(ax.Event) {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{Window: time.Hour}, OnEvent: listener}, func(t *tester) {
				t.Server.Reply = after(time.Second, 200, "")
				write := t.Go(dBG, ax.Request{Method: "POST", URL: at("/x")})
				synctest.Wait()
				require.NoError(t, t.Do(dBG, dGet("/x")).Err)
				require.NoError(t, (<-write).Err)
				require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/x")).Resp.Source)
			})
		})
	}
}

// TestD2WriteDuringAFlight: a flight that began before the write is delivered,
// not kept, and takes no new joiner.
func TestD2WriteDuringAFlight(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.Method == "POST" {
				return after(10*dms, 200, "")(h)
			}
			return after(200*dms, 200, fmt.Sprint(h.N))(h)
		}
		old := t.Go(dBG, dGet("/x"))
		joined := t.GoAt(20*dms, dBG, dGet("/x"))
		t.Until(50 * dms)
		t.Do(dBG, ax.Request{Method: "POST", URL: at("/x")}) // ends at 60 ms
		fresh := t.GoAt(100*dms, dBG, dGet("/x"))
		for _, ch := range []<-chan result{old, joined} {
			r := <-ch
			require.Equal(t, 200*dms, r.At)
			require.Equal(t, "1", dText(t, r.Resp.Response))
		}
		second := t.GoAt(250*dms, dBG, dGet("/x"))
		for _, ch := range []<-chan result{fresh, second} {
			r := <-ch
			require.Equal(t, 300*dms, r.At)
			require.Equal(t, "3", dText(t, r.Resp.Response), "after the write nobody sees what was read before it")
		}
		t.Until(time.Second)
		kept := t.Do(dBG, dGet("/x"))
		require.Equal(t, ax.FromWindow, kept.Resp.Source)
		require.Equal(t, "3", dText(t, kept.Resp.Response))
	})
}

// TestD2WriteBeforeTheFirstStart: a flight that still waits did not begin before the write.
func TestD2WriteBeforeTheFirstStart(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, Lanes: []ax.Lane{{Name: "reads", Match: []string{"GET a.test"}}}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		require.NoError(t, t.S.Pause("reads"))
		a := t.Go(dBG, dGet("/x"))
		synctest.Wait()
		require.Equal(t, 200, t.Do(dBG, ax.Request{Method: "POST", URL: at("/x")}).Status())
		b := t.Go(dBG, dGet("/x"))
		synctest.Wait()
		require.NoError(t, t.S.Resume("reads"))
		<-a
		require.Equal(t, ax.FromFlight, (<-b).Resp.Source)
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/x")).Resp.Source)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD2Invalidate forgets whatever a task with the key could be given.
func TestD2Invalidate(t *testing.T) {
	for name, c := range map[string]struct {
		ctx         context.Context
		keep, other ax.Request
	}{
		"same":           {dBG, dGet("/x"), dGet("/x")},
		"ignored header": {dBG, ax.Request{URL: at("/x"), Header: dHeader("X-Nonce", "1")}, ax.Request{URL: at("/x"), Header: dHeader("X-Nonce", "2")}},
		"request id":     {dBG, ax.Request{URL: at("/x"), Header: dHeader("X-Request-Id", "1")}, dGet("/x")},
		"hinted owner":   {ax.ContextWith(dBG, ax.Hints{Owner: "o"}), dGet("/x"), dGet("/x")},
		"own key":        {dBG, ax.Request{URL: at("/x"), DedupeKey: "k"}, ax.Request{URL: at("/y"), DedupeKey: "k"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour, IgnoreHeaders: []string{"X-Nonce"}}}, func(t *tester) {
				t.Do(dBG, dGet("/bystander"))
				t.Do(c.ctx, c.keep)
				require.Equal(t, ax.FromWindow, t.Do(c.ctx, c.keep).Resp.Source)
				t.S.Invalidate(ax.Must(c.other.Task()).Key())
				require.Equal(t, 1, t.S.Stats().DedupeEntries)
				require.Equal(t, ax.FromNetwork, t.Do(c.ctx, c.keep).Resp.Source)
				require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/bystander")).Resp.Source)
				t.S.Invalidate("")
				t.S.Invalidate("nobody's")
			})
		})
	}
}
