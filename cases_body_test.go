package ax_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestCaseH07EarlierBodiesAreClosed: with one connection per host a retry does
// not hang, and small error bodies leave the connection usable.
func TestCaseH07EarlierBodiesAreClosed(t *testing.T) {
	var hits atomic.Int32
	srv := dServe(t, func(w http.ResponseWriter, r *http.Request) {
		if hits.Add(1) < 3 {
			w.WriteHeader(503)
			io.WriteString(w, strings.Repeat("x", 100_000))
			return
		}
		io.WriteString(w, "fine")
	})
	var dials atomic.Int32
	tr := srv.Client().Transport.(*http.Transport)
	tr.MaxConnsPerHost = 1
	dial := tr.DialContext
	tr.DialContext = dCountDials(dial, &dials)
	s, err := ax.New(&http.Client{Transport: tr}, ax.Config{Retry: &ax.Retry{Max: 2, BaseDelay: 10 * dms}})
	require.NoError(t, err)
	defer s.Close()
	start := time.Now()
	resp, err := s.Get(dBG, srv.URL)
	require.NoError(t, err)
	require.Equal(t, 3, resp.Attempts)
	require.Equal(t, "fine", dText(t, resp.Response))
	require.Less(t, time.Since(start), time.Second)
	require.EqualValues(t, 1, dials.Load(), "one connection for all three")
}

// TestCaseH08BodyAfterDo is readable: returning from Do does not end the attempt's ctx.
func TestCaseH08BodyAfterDo(t *testing.T) {
	for _, size := range []int{5, 4 << 20, 5 << 20} {
		for _, stream := range []bool{false, true} {
			s, srv := dLoop(t, ax.Config{AttemptTimeout: 5 * time.Second}, false, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				dPause(r.Context(), 50*dms)
				io.WriteString(w, strings.Repeat("x", size))
			})
			resp, err := s.Send(dBG, ax.Request{URL: srv.URL, Stream: stream})
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			require.NoError(t, resp.Body.Close())
			dEventually(t, func() bool { return s.Stats().Active == 0 }, "the slot is free")
		}
	}
	bubble(t, ax.Config{AttemptTimeout: time.Second}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return dReply(dNewTrickle(h.Context(), 50*dms, "a", "b")), nil
		}
		r := t.Do(dBG, ax.Request{URL: at("/x"), Stream: true})
		require.NoError(t, t.Server.Hits()[0].Context().Err())
		require.Equal(t, "ab", dText(t, r.Resp.Response))
		synctest.Wait()
		require.Error(t, t.Server.Hits()[0].Context().Err(), "ends with the body")
	})
}

// TestCaseH55CallersBuffer: after Do the caller's bytes are the caller's again,
// and every attempt that was read in full sent the same ones.
func TestCaseH55CallersBuffer(t *testing.T) {
	rounds := 200
	if dRace || testing.Short() {
		rounds = 40
	}
	var hits atomic.Int32
	var wrong atomic.Int32
	s, srv := dLoop(t, ax.Config{Retry: &ax.Retry{BaseDelay: time.Microsecond, Budget: 100}}, false, func(w http.ResponseWriter, r *http.Request) {
		if hits.Add(1)%2 == 1 {
			w.WriteHeader(503) // before it read anything
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || len(b) != 1<<20 || bytes.Count(b, b[:1]) != len(b) || string(b[:1]) != r.Header.Get("X-Fill") {
			wrong.Add(1)
		}
	})
	buf := make([]byte, 1<<20)
	fill := func(c byte) {
		for i := range buf {
			buf[i] = c
		}
	}
	for i := range rounds {
		c := byte('a' + i%26)
		fill(c)
		resp, err := s.Send(dBG, ax.Request{Method: "PUT", URL: srv.URL, Body: buf, Header: dHeader("X-Fill", string(rune(c)))})
		fill('!')
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
	}
	require.Zero(t, wrong.Load())
}

// TestCaseH56TruncatedAnswers are failures for everyone and kept by nobody.
func TestCaseH56TruncatedAnswers(t *testing.T) {
	var s *ax.Scheduler
	var hits atomic.Int32
	full := strings.Repeat("x", 1000)
	cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}, Fallback: &ax.Fallback{Stale: time.Hour}, Breaker: &ax.Breaker{}}
	s, srv := dLoop(t, cfg, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		if hits.Add(1) > 1 {
			io.WriteString(w, full)
			return
		}
		for s.Stats().Coalesced < 2 && r.Context().Err() == nil {
			dPause(r.Context(), dms)
		}
		io.WriteString(w, full[:500])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	var calls []*ax.Call
	for range 3 {
		calls = append(calls, s.Submit(dBG, ax.Must(ax.Request{URL: srv.URL}.Task())))
	}
	for _, c := range calls {
		_, err := c.Result()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	st := s.Stats()
	require.EqualValues(t, 1, st.Attempts)
	require.EqualValues(t, 3, st.Failed)
	require.Zero(t, st.DedupeEntries)
	require.EqualValues(t, 1, st.Lanes[strings.TrimPrefix(srv.URL, "http://")].Failures)
	resp, err := s.Get(dBG, srv.URL)
	require.NoError(t, err)
	require.Equal(t, ax.FromNetwork, resp.Source)
	require.Equal(t, full, dText(t, resp.Response))
}

// dEndless is a body without end.
type dEndless struct {
	read   atomic.Int64
	closed atomic.Int32
}

func (b *dEndless) Read(p []byte) (int, error) { b.read.Add(int64(len(p))); return len(p), nil }
func (b *dEndless) Close() error               { b.closed.Add(1); return nil }

// TestCaseH59GiantErrorBodies are read for at most a quarter of a megabyte
// before the retry, which they do not delay.
func TestCaseH59GiantErrorBodies(t *testing.T) {
	for _, length := range []int64{-1, 500 << 20} {
		for _, stream := range []bool{false, true} {
			bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: 100 * dms, Jitter: ax.NoJitter}}, func(t *tester) {
				body := &dEndless{}
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.N > 1 {
						return reply(200, "fine"), nil
					}
					r := reply(503, "")
					r.Body, r.ContentLength = body, length
					return r, nil
				}
				r := t.Do(dBG, ax.Request{URL: at("/x"), Stream: stream})
				require.NoError(t, r.Err)
				require.Equal(t, 100*dms, r.At)
				require.Equal(t, "fine", dText(t, r.Resp.Response))
				require.LessOrEqual(t, body.read.Load(), int64(300_000))
				require.EqualValues(t, 1, min(body.closed.Load(), 1), "closed")
			})
		}
	}
}

// TestCaseH61SecondQueueInTheTransport: when the transport carries less than the
// gate admits, cancels still free their slots at once and nothing hangs; with a
// gate that fits, the urgent task is the next one sent.
func TestCaseH61SecondQueueInTheTransport(t *testing.T) {
	for name, c := range map[string]struct {
		h2    bool
		carry int
	}{"HTTP/1.1": {false, 2}, "HTTP/2.0": {true, 10}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				if !strings.HasPrefix(r.URL.Path, "/crowd/") { // some of it arrives late
					order = append(order, r.URL.Path)
				}
				mu.Unlock()
				if r.URL.Path == "/0" { // so that one slot is free long before the others
					dPause(r.Context(), 60*dms)
					return
				}
				dPause(r.Context(), 200*dms)
			}))
			srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: c.carry}
			if srv.EnableHTTP2 = c.h2; c.h2 {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			client := srv.Client()
			if !c.h2 {
				client.Transport.(*http.Transport).MaxConnsPerHost = c.carry
			}
			took := time.Hour
			for range 3 { // what else the machine does makes it longer, never shorter
				took = min(took, dCrowd(t, client, srv.URL))
				if took < 50*dms {
					break
				}
			}
			require.Less(t, took, 50*dms)
			mu.Lock()
			order = nil
			mu.Unlock()
			dUrgentNext(t, client, srv.URL, c.carry)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, "/urgent", order[c.carry], "%v", order)
		})
	}
}

// dCrowd sends 50 requests through a gate of 50 and cancels 30 of them: how long
// these take to end.
func dCrowd(t *testing.T, client *http.Client, url string) (took time.Duration) {
	s, err := ax.New(client, ax.Config{MaxConcurrent: 50, AttemptTimeout: 300 * dms})
	require.NoError(t, err)
	defer s.Close()
	var stay, leave []*ax.Call
	for i := range 50 {
		tag := "stay"
		if i%5 > 1 { // three of five
			tag = "leave"
		}
		c := s.Submit(dBG, ax.Must(ax.Request{URL: fmt.Sprintf("%s/crowd/%d", url, i), Tags: []string{tag}}.Task()))
		if tag == "leave" {
			leave = append(leave, c)
		} else {
			stay = append(stay, c)
		}
	}
	dPause(dBG, 50*dms)
	start := time.Now()
	require.Equal(t, len(leave), s.CancelTag("leave"))
	for _, c := range leave {
		_, err := c.Result()
		require.ErrorIs(t, err, ax.ErrCanceledByTag)
	}
	took = time.Since(start)
	dEventually(t, func() bool { return s.Stats().Active <= len(stay) }, "cancelled attempts free their slots")
	for _, c := range stay {
		resp, err := c.Result()
		if err != nil {
			require.True(t, dError(t, err).Timeout(), "%v", err)
			continue
		}
		require.Equal(t, 200, resp.StatusCode)
	}
	require.Less(t, time.Since(start), 10*time.Second, "none hangs")
	dEventually(t, func() bool { return s.Stats().Active == 0 }, "no slot is left")
	return took
}

// dUrgentNext fills a gate that fits the transport, queues ten and then an urgent one.
func dUrgentNext(t *testing.T, client *http.Client, url string, gate int) {
	s, err := ax.New(client, ax.Config{MaxConcurrent: gate})
	require.NoError(t, err)
	defer s.Close()
	var calls []*ax.Call
	for i := range gate + 10 {
		calls = append(calls, s.Submit(dBG, ax.Must(ax.Request{URL: fmt.Sprintf("%s/%d", url, i)}.Task())))
	}
	_, err = s.Send(dBG, ax.Request{URL: url + "/urgent", Priority: ax.Urgent})
	require.NoError(t, err)
	for _, c := range calls {
		c.Cancel()
		<-c.Done()
		if _, err := c.Result(); err != nil {
			require.False(t, errors.Is(err, ax.ErrQueueFull))
		}
	}
}
