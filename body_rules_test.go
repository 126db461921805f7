package ax_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestBodyUpToTheLimitIsBuffered: the slot is free when Do returns; beyond it
// the body streams and holds the slot.
func TestBodyUpToTheLimitIsBuffered(t *testing.T) {
	for _, c := range []struct {
		limit    int64
		size     int
		unknown  bool
		buffered bool
	}{
		{8, 0, false, true}, {8, 8, false, true}, {8, 9, false, false},
		{8, 8, true, true}, {8, 9, true, false}, {8, 1000, true, false},
		{0, 4 << 20, false, true}, {0, 4<<20 + 1, false, false}, {0, 4<<20 + 1, true, false},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, MaxBodyBytes: c.limit}, func(t *tester) {
				text := strings.Repeat("x", c.size)
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					r := reply(200, text)
					if c.unknown {
						r.ContentLength = -1
					}
					return r, nil
				}
				first := t.Do(dBG, dGet("/x"))
				require.NoError(t, first.Err)
				second := t.Go(dBG, dGet("/y"))
				synctest.Wait()
				if c.buffered {
					require.Equal(t, 2, t.Server.Count())
					require.Zero(t, t.S.Stats().Active)
				} else {
					require.Equal(t, 1, t.Server.Count())
					require.Equal(t, 1, t.S.Stats().Active)
				}
				got, err := io.ReadAll(first.Resp.Body)
				require.NoError(t, err)
				require.True(t, text == string(got), "every byte, in order")
				synctest.Wait()
				require.Equal(t, 2, t.Server.Count(), "the end of the body frees the slot, without Close")
				require.NoError(t, first.Resp.Body.Close())
				r := <-second
				require.NoError(t, r.Err)
				require.NoError(t, r.Resp.Body.Close())
			})
		})
	}
}

// TestBodyStreamHoldsItsSlot until it ends or is closed, once.
func TestBodyStreamHoldsItsSlot(t *testing.T) {
	for name, c := range map[string]struct {
		req     ax.Request
		headers []string
		status  int
	}{
		"Stream":          {ax.Request{URL: at("/x"), Stream: true}, nil, 200},
		"Stream of a 404": {ax.Request{URL: at("/x"), Stream: true}, nil, 404},
		"event stream":    {dGet("/x"), []string{"Content-Type: text/event-stream"}, 200},
		"with a charset":  {dGet("/x"), []string{"Content-Type: Text/Event-Stream; charset=utf-8"}, 200},
		"101":             {dGet("/x"), []string{"Upgrade: tea", "Connection: Upgrade"}, 101},
	} {
		for _, drain := range []bool{true, false} {
			t.Run(fmt.Sprint(name, "/drain=", drain), func(t *testing.T) {
				bubble(t, ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{}}, func(t *tester) {
					var body *dTrickle
					t.Server.Reply = func(h *hit) (*http.Response, error) {
						if h.URL.Path != "/x" {
							return reply(200, ""), nil
						}
						body = dNewTrickle(h.Context(), time.Second, "a", "b")
						r := dReply(body, c.headers...)
						r.StatusCode = c.status
						return r, nil
					}
					r := t.Do(dBG, c.req)
					require.NoError(t, r.Err)
					require.Zero(t, r.At, "headers alone are the answer")
					require.EqualValues(t, 1, t.S.Stats().Succeeded, "the task ended, its slot lives on")
					next := t.Go(dBG, dGet("/next"))
					t.Until(1500 * dms)
					require.Equal(t, 1, t.Server.Count())
					want := 1500 * dms
					if drain {
						got, err := io.ReadAll(r.Resp.Body)
						require.NoError(t, err)
						require.Equal(t, "ab", string(got))
						want = 3500 * dms
					}
					require.NoError(t, r.Resp.Body.Close())
					require.Equal(t, want, (<-next).At)
					require.NoError(t, r.Resp.Body.Close(), "closing twice does nothing")
					synctest.Wait()
					require.True(t, body.Closed())
					require.Zero(t, t.S.Stats().Active, "the slot is given back once")
				})
			})
		}
	}
}

// TestBodyAttemptTimeout covers the body of a buffered answer, of a stream only the headers.
func TestBodyAttemptTimeout(t *testing.T) {
	bubble(t, ax.Config{AttemptTimeout: 1500 * dms}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/late" {
				return after(2*time.Second, 200, "")(h)
			}
			return dReply(dNewTrickle(h.Context(), time.Second, "a", "b", "c")), nil
		}
		buffered := t.Do(dBG, dGet("/x"))
		require.ErrorIs(t, buffered.Err, context.DeadlineExceeded)
		require.NotErrorIs(t, buffered.Err, context.Canceled)
		require.True(t, dError(t, buffered.Err).Timeout())
		require.Equal(t, 1500*dms, buffered.At)
		stream := t.Do(dBG, ax.Request{URL: at("/x"), Stream: true})
		require.Equal(t, "abc", dText(t, stream.Resp.Response))
		require.Equal(t, 4500*dms, t.At())
		late := t.Do(dBG, ax.Request{URL: at("/late"), Stream: true})
		require.ErrorIs(t, late.Err, context.DeadlineExceeded)
		require.Equal(t, 6*time.Second, late.At)
	})
}

// TestBodyIdleTimeout ends a stream that is silent for too long, not one that is slow.
func TestBodyIdleTimeout(t *testing.T) {
	for _, c := range []struct {
		gap  time.Duration
		ends bool
	}{{900 * dms, false}, {1100 * dms, true}} {
		bubble(t, ax.Config{MaxConcurrent: 1, IdleTimeout: time.Second}, func(t *tester) {
			var body *dTrickle
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				body = dNewTrickle(h.Context(), c.gap, strings.Split(strings.Repeat("x", 20), "")...)
				return dReply(body), nil
			}
			r := t.Do(dBG, ax.Request{URL: at("/x"), Stream: true})
			require.NoError(t, r.Err)
			got, err := io.ReadAll(r.Resp.Body)
			if c.ends {
				require.Error(t, err)
				require.NotErrorIs(t, err, io.EOF)
				require.Empty(t, got)
				require.Equal(t, time.Second, t.At())
			} else {
				require.NoError(t, err)
				require.Len(t, got, 20)
				require.Equal(t, 20*c.gap, t.At())
			}
			synctest.Wait()
			require.Zero(t, t.S.Stats().Active, "the slot is free at once, closed or not")
			require.NoError(t, r.Resp.Body.Close())
			require.True(t, body.Closed())
		})
	}
}

// TestBodyStreamsEndWithTheirCaller: cancel tears the connection down and frees the slot.
func TestBodyStreamsEndWithTheirCaller(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return dReply(dNewTrickle(h.Context(), time.Hour, "a")), nil
		}
		ctx, cancel := context.WithCancel(dBG)
		r := t.Do(ctx, ax.Request{URL: at("/x"), Stream: true})
		require.NoError(t, r.Err)
		time.AfterFunc(time.Second, cancel)
		_, err := io.ReadAll(r.Resp.Body)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, t.At())
		synctest.Wait()
		require.Zero(t, t.S.Stats().Active)
		require.Error(t, t.Server.Hits()[0].Context().Err(), "the attempt's ctx ended")
		require.NoError(t, r.Resp.Body.Close())
		require.EqualValues(t, 1, t.S.Stats().Succeeded)
		require.Zero(t, t.S.Stats().Canceled, "one terminal event: the response was given")
	})
}

// TestBodyErrorInTheMiddle of a stream reaches the reader and frees the slot; of
// a buffered body it is the attempt's failure.
func TestBodyErrorInTheMiddle(t *testing.T) {
	boom := errors.New("reset by peer")
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			b := dNewTrickle(h.Context(), time.Second, "a")
			b.end = boom
			return dReply(b), nil
		}
		r := t.Do(dBG, ax.Request{URL: at("/x"), Stream: true})
		require.NoError(t, r.Err)
		got, err := io.ReadAll(r.Resp.Body)
		require.ErrorIs(t, err, boom)
		require.Equal(t, "a", string(got))
		synctest.Wait()
		require.Zero(t, t.S.Stats().Active)
		require.NoError(t, r.Resp.Body.Close())
		require.ErrorIs(t, t.Do(dBG, dGet("/x")).Err, boom)
		require.EqualValues(t, 1, t.S.Stats().Failed)
	})
}

// TestBodyBytes reads the whole body, as often as one likes.
func TestBodyBytes(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return reply(200, "0123456789"), nil }
		for _, stream := range []bool{false, true} {
			r := t.Do(dBG, ax.Request{URL: at("/x"), Stream: stream})
			for range 3 {
				b, err := r.Resp.Bytes()
				require.NoError(t, err)
				require.Equal(t, "0123456789", string(b))
			}
			require.NoError(t, r.Resp.Body.Close())
		}
		require.Zero(t, t.S.Stats().Active)
	})
}

// TestBodyOfNothing: an executor may leave everything nil; callers never see it.
func TestBodyOfNothing(t *testing.T) {
	exec := ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		return &http.Response{StatusCode: 204}, nil
	})
	bubble(t, ax.Config{Executor: exec, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		for _, r := range []ax.Request{dGet("/x"), {Method: "POST", URL: at("/x")}, {URL: at("/x"), Stream: true}} {
			got := t.Do(dBG, r)
			require.NoError(t, got.Err)
			require.Equal(t, 204, got.Status())
			require.NotNil(t, got.Resp.Header)
			require.Empty(t, dText(t, got.Resp.Response))
		}
	})
}

// TestBodyUnclosedStreamIsCollected: forgotten by its caller, a stream is closed
// by the garbage collector, with one warning, and gives its slot back.
func TestBodyUnclosedStreamIsCollected(t *testing.T) {
	base := runtime.NumGoroutine()
	logged := &dRecords{}
	var bodies []*dTrickle // the transport must not hold what ax made, or nothing could be collected
	s, err := ax.New(&http.Client{Transport: dTransport(func(*http.Request) (*http.Response, error) {
		b := dNewTrickle(dBG, time.Hour, "never read")
		bodies = append(bodies, b)
		return dReply(b), nil
	})}, ax.Config{MaxConcurrent: 1, Logger: slog.New(logged)})
	require.NoError(t, err)
	dForget(t, s, false)
	require.Equal(t, 1, s.Stats().Active)
	dEventually(t, func() bool { runtime.GC(); return s.Stats().Active == 0 }, "the slot is given back")
	dEventually(t, bodies[0].Closed, "the body is closed")
	dEventually(t, func() bool { return logged.At(slog.LevelWarn) == 1 }, "one warning")
	dForget(t, s, true)
	for range 5 {
		runtime.GC()
	}
	require.Equal(t, 1, logged.At(slog.LevelWarn), "a closed stream is not warned about")
	require.NoError(t, s.Close())
	dSettled(t, base)
}

// dForget opens a stream and lets go of it, closed or not.
//
//go:noinline
func dForget(t *testing.T, s *ax.Scheduler, closed bool) {
	resp, err := s.Send(dBG, ax.Request{URL: at("/x"), Stream: true})
	require.NoError(t, err)
	if closed {
		require.NoError(t, resp.Body.Close())
	}
}

// TestBodyEventsOverLoopback: server-sent events arrive one by one, over both
// versions of HTTP, and closing ends the server's handler.
func TestBodyEventsOverLoopback(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		more, gone := make(chan struct{}), make(chan struct{})
		s, srv := dLoop(t, ax.Recommended(), h2, func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 0; ; i++ {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				select {
				case <-more:
				case <-r.Context().Done():
					return
				}
			}
		})
		resp, err := s.Get(dBG, srv.URL)
		require.NoError(t, err)
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			require.True(t, lines.Scan())
			require.Equal(t, fmt.Sprintf("data: %d", i), lines.Text())
			require.True(t, lines.Scan())
			if i < 2 {
				more <- struct{}{}
			}
		}
		require.Equal(t, 1, s.Stats().Active)
		require.NoError(t, resp.Body.Close())
		dEventually(t, func() bool { return s.Stats().Active == 0 }, "the slot is free")
		<-gone
	}
}

// TestBodyUpgradeOverLoopback: after 101 the body can be written to as well.
func TestBodyUpgradeOverLoopback(t *testing.T) {
	s, srv := dLoop(t, ax.Recommended(), false, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(conn, rw)
	})
	resp, err := s.Send(dBG, ax.Request{URL: srv.URL, Header: dHeader("Connection", "Upgrade", "Upgrade", "echo")})
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok, "as net/http gives it")
	for _, word := range []string{"ping", "pong"} {
		_, err := io.WriteString(conn, word)
		require.NoError(t, err)
		buf := make([]byte, 4)
		_, err = io.ReadFull(conn, buf)
		require.NoError(t, err)
		require.Equal(t, word, string(buf))
	}
	require.Equal(t, 1, s.Stats().Active)
	require.NoError(t, conn.Close())
	dEventually(t, func() bool { return s.Stats().Active == 0 }, "the slot is free")
}
