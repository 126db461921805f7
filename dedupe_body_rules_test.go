package ax_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// What a server gives to one visitor, a session most of all, no other gets, though no
// header of theirs tells them apart.
func TestD4SetCookieIsOnePersons(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}, Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
		visitors := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			if t.At() > 10*time.Minute {
				return reply(503, "down", "Set-Cookie: sid=down"), nil
			}
			if h.URL.Path == "/" {
				return reply(302, "", "Location: /home", "Set-Cookie: first=1"), nil
			}
			visitors++
			return reply(200, "hello", fmt.Sprintf("Set-Cookie: sid=%d", visitors), "Etag: x"), nil
		}
		var all []<-chan result
		for range 3 {
			all = append(all, t.Go(dBG, dGet("/")))
			synctest.Wait()
		}
		cookies := func(r result) (n int) {
			require.NoError(t, r.Err)
			require.Equal(t, "hello", fBody(t, r))
			require.Equal(t, "x", r.Resp.Header.Get("Etag"))
			for resp := r.Resp.Response; resp != nil; resp = resp.Request.Response {
				n += len(resp.Cookies())
			}
			return n
		}
		require.Equal(t, 2, cookies(<-all[0]), "the one whose request it was")
		require.Zero(t, cookies(<-all[1]))
		require.Zero(t, cookies(<-all[2]))
		window := t.Do(dBG, dGet("/"))
		require.Equal(t, ax.FromWindow, window.Resp.Source)
		require.Zero(t, cookies(window))
		t.Until(11 * time.Minute)
		stale := t.Do(dBG, dGet("/"))
		require.Equal(t, ax.FromStale, stale.Resp.Source)
		require.Zero(t, cookies(stale))
		require.Equal(t, 1, visitors)
	})
}

// Who is left alone with an answer is the only one to get it.
func TestD4SetCookieOfALoneSharer(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			return reply(200, "", "Set-Cookie: sid=1"), nil
		}
		ctx, cancel := context.WithCancel(dBG)
		first := t.Go(ctx, dGet("/"))
		synctest.Wait()
		second := t.Go(dBG, dGet("/"))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, (<-first).Err, context.Canceled)
		require.Len(t, (<-second).Resp.Cookies(), 1)
	})
}

// TestD4EachOwnsHeaderAndBody: what one caller does to its answer, none other sees.
func TestD4EachOwnsHeaderAndBody(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			h.Sleep(100 * dms)
			return reply(203, "0123456789", "X-A: 1", "X-B: 2"), nil
		}
		a, b := t.Go(dBG, dGet("/x")), t.Go(dBG, dGet("/x"))
		ra, rb := <-a, <-b
		ra.Resp.Header.Set("X-A", "changed")
		ra.Resp.Header["X-B"][0] = "changed"
		raw, err := ra.Resp.Bytes()
		require.NoError(t, err)
		copy(raw, "zzzzzzzzzz")
		buf := make([]byte, 3)
		_, err = io.ReadFull(ra.Resp.Body, buf)
		require.NoError(t, err)
		require.NoError(t, ra.Resp.Body.Close())
		late := t.Do(dBG, dGet("/x"))
		require.Equal(t, ax.FromWindow, late.Resp.Source)
		for _, r := range []result{rb, late} {
			require.Equal(t, 203, r.Status())
			require.Equal(t, http.Header{"X-A": {"1"}, "X-B": {"2"}}, r.Resp.Header)
			require.EqualValues(t, 10, r.Resp.ContentLength)
			require.Equal(t, "HTTP/1.1", r.Resp.Proto)
			require.Equal(t, "0123456789", dText(t, r.Resp.Response))
		}
	})
}

// dBig answers with the number of the hit, padded beyond a limit of 10 bytes.
func dBig(headers ...string) func(h *hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if err := h.Sleep(100 * dms); err != nil {
			return nil, err
		}
		return reply(200, fmt.Sprintf("%020d", h.N), headers...), nil
	}
}

// TestD4LargeBodiesStreamToOne: the best-ranked caller gets the stream, the
// others are sent for themselves, even when no queue has room for them.
func TestD4LargeBodiesStreamToOne(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int64
		headers []string
	}{
		"larger than MaxBodyBytes": {10, nil},
		"event stream":             {0, []string{"Content-Type: text/event-stream; charset=utf-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 1, MaxBodyBytes: c.limit, Dedupe: &ax.Dedupe{Window: time.Hour}}
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = dBig(c.headers...)
				urgent := dGet("/x")
				urgent.Priority = ax.Urgent
				chans := []<-chan result{t.Go(dBG, dGet("/x")), t.GoAt(10*dms, dBG, urgent), t.GoAt(20*dms, dBG, dGet("/x"))}
				rb := <-chans[1]
				require.NoError(t, rb.Err)
				require.Equal(t, 100*dms, rb.At)
				synctest.Wait()
				require.Equal(t, 1, t.Server.Count(), "the stream holds the slot")
				require.Equal(t, fmt.Sprintf("%020d", 1), dText(t, rb.Resp.Response))
				ra := <-chans[0]
				require.NoError(t, ra.Err)
				require.Equal(t, fmt.Sprintf("%020d", 2), dText(t, ra.Resp.Response))
				rc := <-chans[2]
				require.NoError(t, rc.Err)
				require.Equal(t, fmt.Sprintf("%020d", 3), dText(t, rc.Resp.Response))
				require.Equal(t, 3, t.Server.Count())
				require.Zero(t, t.S.Stats().DedupeEntries, "a stream is not kept")
			})
		})
	}
}

// TestD4StreamGoesToWhoIsStillThere.
func TestD4StreamGoesToWhoIsStillThere(t *testing.T) {
	bubble(t, ax.Config{MaxBodyBytes: 10, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = dBig()
		ctx, leave := context.WithCancel(dBG)
		urgent := dGet("/x")
		urgent.Priority = ax.Urgent
		a, b := t.Go(ctx, urgent), t.Go(dBG, dGet("/x"))
		t.Until(50 * dms)
		leave()
		require.ErrorIs(t, (<-a).Err, context.Canceled)
		rb := <-b
		require.NoError(t, rb.Err)
		require.Equal(t, fmt.Sprintf("%020d", 1), dText(t, rb.Resp.Response))
		require.Equal(t, 1, t.Server.Count())
	})
}

// TestD4WritesAreNotSentAgain: a joiner of a write whose answer streams gets ErrNotReplayable.
func TestD4WritesAreNotSentAgain(t *testing.T) {
	bubble(t, ax.Config{MaxBodyBytes: 10, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = dBig()
		r := ax.Request{Method: "POST", URL: at("/x"), Dedupe: true}
		a, b := t.Go(dBG, r), t.GoAt(10*dms, dBG, r)
		ra, rb := <-a, <-b
		require.NoError(t, ra.Err)
		require.Equal(t, fmt.Sprintf("%020d", 1), dText(t, ra.Resp.Response))
		require.ErrorIs(t, rb.Err, ax.ErrNotReplayable)
		require.Equal(t, 100*dms, rb.At)
		require.Equal(t, 1, t.Server.Count())
	})
}

// TestD4UnknownLengthThroughTransport: alone it streams; with joiners it is
// buffered for at most a second, then one has the stream.
func TestD4UnknownLengthThroughTransport(t *testing.T) {
	for name, c := range map[string]struct {
		callers, chunks, requests int
		answered                  time.Duration // when the first caller has its headers
	}{
		"alone":         {1, 10, 1, 0},
		"short, joined": {2, 2, 1, 600 * dms},
		"long, joined":  {2, 10, 2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					synctest.Wait() // the others have joined
					return dReply(dNewTrickle(h.Context(), 300*dms, strings.Split(strings.Repeat("x", c.chunks), "")...)), nil
				}
				client := &http.Client{Transport: t.S.Transport()}
				answered := make(chan time.Duration, c.callers)
				texts := make(chan string, c.callers)
				for range c.callers {
					go func() {
						resp, err := client.Get(at("/x"))
						if err != nil {
							texts <- err.Error()
							return
						}
						answered <- t.At()
						texts <- dText(t, resp)
					}()
				}
				require.Equal(t, c.answered, <-answered)
				for range c.callers {
					require.Equal(t, strings.Repeat("x", c.chunks), <-texts)
				}
				require.Equal(t, c.requests, t.Server.Count())
			})
		})
	}
}

// TestD5PanicReachesEveryCaller of a flight as an error with the stack.
func TestD5PanicReachesEveryCaller(t *testing.T) {
	for name, blow := range map[string]func(){"panic": func() { panic("kaboom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					h.Sleep(20 * dms)
					if h.N == 1 {
						blow()
					}
					return reply(200, ""), nil
				}
				var chans []<-chan result
				for range 6 {
					chans = append(chans, t.Go(dBG, dGet("/x")))
				}
				for _, c := range chans {
					r := <-c
					require.Error(t, r.Err)
					require.Equal(t, 20*dms, r.At)
					dError(t, r.Err)
					if name == "panic" {
						require.ErrorContains(t, r.Err, "kaboom")
						require.ErrorContains(t, r.Err, "dedupe_body_rules_test.go", "the stack")
					}
				}
				require.EqualValues(t, 6, t.S.Stats().Failed)
				require.Equal(t, 200, t.Do(dBG, dGet("/x")).Status())
			})
		})
	}
}

// TestD5PanicOfOneCaller unwinds that one; on its own goroutine with the very value.
func TestD5PanicOfOneCaller(t *testing.T) {
	for _, r := range []ax.Request{{Method: "POST", URL: at("/x")}, dGet("/x")} {
		log := &dLog{}
		cfg := ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}, Breaker: &ax.Breaker{}, OnEvent: log.On}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.N == 1 {
					panic("kaboom")
				}
				return reply(200, ""), nil
			}
			var value any
			func() {
				defer func() { value = recover() }()
				t.S.Do(dBG, ax.Must(r.Task()))
				t.Error("Do returned")
			}()
			require.Contains(t, fmt.Sprint(value), "kaboom")
			if r.Method == "POST" {
				require.Equal(t, any("kaboom"), value)
			}
			require.Equal(t, ax.EventFailed, log.Last(t, "/x").Kind)
			require.Zero(t, t.S.Stats().Active)
			require.Equal(t, 200, t.Do(dBG, r).Status())
		})
	}
}

// TestD5PanicFromSubmit is an error of Result.
func TestD5PanicFromSubmit(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				panic("kaboom")
			}
			return reply(200, ""), nil
		}
		c := t.S.Submit(dBG, ax.Must(dGet("/x").Task()))
		_, err := c.Result()
		require.ErrorContains(t, err, "kaboom")
		require.ErrorContains(t, err, "dedupe_body_rules_test.go", "the stack")
		dError(t, err)
		require.Equal(t, 200, t.Do(dBG, dGet("/x")).Status())
	})
}

// TestD5PanickingProbe gives its permit back: the breaker moves on.
func TestD5PanickingProbe(t *testing.T) {
	cfg := ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second, Ramp: time.Second}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.N {
			case 1:
				return reply(500, ""), nil
			case 2:
				panic("kaboom")
			}
			return reply(200, ""), nil
		}
		require.Equal(t, 500, t.Do(dBG, dGet("/x")).Status())
		require.Equal(t, ax.BreakerOpen, t.S.Stats().Lanes["a.test"].Breaker)
		_, err := t.S.Submit(dBG, ax.Must(dGet("/x").Task())).Result()
		require.ErrorContains(t, err, "kaboom")
		got := t.Do(dBG, dGet("/x"))
		require.Equal(t, 200, got.Status())
		require.LessOrEqual(t, got.At, 2*time.Second)
	})
}
