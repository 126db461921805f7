package ax_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestD3FirstSentAloneKeepsItsTimeout: who joins a flight lends it a longer timeout, but
// not to whom the flight goes on without.
func TestD3FirstSentAloneKeepsItsTimeout(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				_ = h.Sleep(50 * fms)
				r := reply(200, "data: x\n\n", "Content-Type: text/event-stream")
				return r, nil
			}
			if err := h.Sleep(time.Hour); err != nil {
				return nil, err
			}
			return reply(200, ""), nil
		}
		a := t.Go(t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 100 * fms})
		synctest.Wait()
		b := t.Go(t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 10 * time.Second, Priority: ax.Urgent})
		rb := <-b
		require.NoError(t, rb.Err)
		rb.Resp.Body.Close()
		ra := <-a
		require.Error(t, ra.Err)
		require.Equal(t, 150*fms, ra.At, "%v", ra.Err)
	})
}

// TestD3FirstSentAloneKeepsItsQueueTimeout: the same of the queue.
func TestD3FirstSentAloneKeepsItsQueueTimeout(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			_ = h.Sleep(50 * fms)
			return reply(200, "data: x\n\n", "Content-Type: text/event-stream"), nil
		}
		a := t.Go(t.Context(), ax.Request{URL: at("/"), QueueTimeout: 100 * fms})
		synctest.Wait()
		b := t.Go(t.Context(), ax.Request{URL: at("/"), QueueTimeout: 10 * time.Second, Priority: ax.Urgent})
		rb := <-b
		require.NoError(t, rb.Err)
		ra := <-a
		rb.Resp.Body.Close()
		require.ErrorIs(t, ra.Err, ax.ErrQueueTimeout)
		require.Equal(t, 150*fms, ra.At, "%v", ra.Err)
	})
}

// TestX5QueueTimeoutOfTheFirstLeavesTheBody to the others, who wait on.
func TestX5QueueTimeoutOfTheFirstLeavesTheBody(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		hold := t.Go(t.Context(), fGet("/hold"))
		synctest.Wait()
		post := func(qt time.Duration) *ax.Call {
			req, _ := http.NewRequest("POST", at("/p"), struct{ io.Reader }{strings.NewReader("hello")})
			task, err := ax.TaskFrom(req, ax.Request{DedupeKey: "k", QueueTimeout: qt})
			require.NoError(t, err)
			return t.S.Submit(t.Context(), task)
		}
		a := post(100 * fms)
		b := post(ax.NoTimeout)
		_, err := a.Result()
		require.ErrorIs(t, err, ax.ErrQueueTimeout)
		require.NoError(t, (<-hold).Err)
		_, err = b.Result()
		require.NoError(t, err)
		hits := t.Server.Hits()
		require.Equal(t, "hello", string(hits[len(hits)-1].Body))
	})
}

// closeCount counts the calls of Close.
type closeCount struct {
	io.Reader
	n atomic.Int32
}

func (c *closeCount) Close() error { c.n.Add(1); return nil }

// TestX5LeftBodyIsClosed: a body that its caller has left to the flight is closed,
// once, however that ends.
func TestX5LeftBodyIsClosed(t *testing.T) {
	for _, how := range []string{"queuetimeout", "pauseshutdown", "sent", "leave"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
				t.Server.Reply = qHold(time.Second)
				hold := t.Go(t.Context(), fGet("/hold"))
				synctest.Wait()
				post := func(ctx context.Context, qt time.Duration) (*ax.Call, *closeCount) {
					body := &closeCount{Reader: strings.NewReader("hello")}
					req, _ := http.NewRequest("POST", at("/p"), body)
					task, err := ax.TaskFrom(req, ax.Request{DedupeKey: "k", QueueTimeout: qt})
					require.NoError(t, err)
					return t.S.Submit(ctx, task), body
				}
				ctx, cancel := context.WithCancel(t.Context())
				a, ab := post(ctx, ax.NoTimeout)
				qt := 100 * fms
				if how == "sent" || how == "leave" {
					qt = ax.NoTimeout
				}
				b, bb := post(t.Context(), qt)
				cancel()
				_, err := a.Result()
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, ab.n.Load())
				if how == "leave" {
					b.Cancel()
				}
				if how == "pauseshutdown" {
					t.S.Pause("a.test")
					go t.S.Shutdown(context.Background())
					synctest.Wait()
				}
				_, err = b.Result()
				require.Equal(t, how == "sent", err == nil)
				<-hold
				synctest.Wait()
				require.EqualValues(t, 1, ab.n.Load(), "the first's body")
				require.EqualValues(t, 1, bb.n.Load(), "the joiner's")
			})
		})
	}
}

// TestD4AloneAndRefusedAtItsTurn: who is sent alone has been let in before.
func TestD4AloneAndRefusedAtItsTurn(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, MaxConcurrent: 1, MinRemaining: time.Second}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			_ = h.Sleep(50 * fms)
			return reply(200, "data: x\n\n", "Content-Type: text/event-stream"), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		b := t.Go(t.Context(), ax.Request{URL: at("/"), Priority: ax.Urgent})
		synctest.Wait()
		a := t.Go(ctx, ax.Request{URL: at("/")})
		rb := <-b
		require.NoError(t, rb.Err)
		time.Sleep(2500 * fms)
		rb.Resp.Body.Close()
		ra := <-a
		qErr(t, ra.Err, "queue", ax.ErrWouldExceedDeadline)
	})
}

// TestD3TimeoutGrowsWhileItEnds: a joiner with more time comes in the moment in which
// the attempt ends.
func TestD3TimeoutGrowsWhileItEnds(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := qReal(t, ax.Config{Dedupe: &ax.Dedupe{}, Hedge: &ax.Hedge{After: time.Hour}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			first := s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), AttemptTimeout: 10 * fms}.Task()))
			for range 4 {
				go func() {
					time.Sleep(10 * fms)
					s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), AttemptTimeout: 20 * fms}.Task())).Result()
				}()
			}
			first.Result()
			time.Sleep(time.Second)
		})
	}
}

// TestD3AHedgeGetsTheLongestTimeoutToo: the timeout is the flight's, of both attempts.
func TestD3AHedgeGetsTheLongestTimeoutToo(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Hedge: &ax.Hedge{After: 50 * fms}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				if err := h.Sleep(70 * fms); err != nil {
					return nil, err
				}
				return reply(500, ""), nil
			}
			if err := h.Sleep(time.Second); err != nil {
				return nil, err
			}
			return reply(200, ""), nil
		}
		a := t.Go(t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 100 * fms})
		b := t.GoAt(60*fms, t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 10 * time.Second})
		_, rb := <-a, <-b
		require.NoError(t, rb.Err)
		require.Equal(t, 200, rb.Resp.StatusCode)
	})
}

// TestD3TimeoutGrowsDuringAHop: while the time of the attempt stands still.
func TestD3TimeoutGrowsDuringAHop(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Lanes: []ax.Lane{{Name: "slow", Match: []string{"b.test"}, MaxConcurrent: 1}}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch {
			case h.URL.Path == "/hold":
				if err := h.Sleep(time.Second); err != nil {
					return nil, err
				}
			case h.URL.Host == "a.test":
				return reply(302, "", "Location: http://b.test/x"), nil
			case h.URL.Path == "/x":
				if err := h.Sleep(time.Second); err != nil {
					return nil, err
				}
			}
			return reply(200, ""), nil
		}
		hold := t.Go(t.Context(), ax.Request{URL: "http://b.test/hold"})
		synctest.Wait()
		a := t.Go(t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 100 * fms})
		b := t.GoAt(500*fms, t.Context(), ax.Request{URL: at("/"), AttemptTimeout: 10 * time.Second})
		<-hold
		_, rb := <-a, <-b
		require.NoError(t, rb.Err)
	})
}

// TestDryRunSubmitTimesOut: AttemptTimeout is no limit of scheduling.
func TestDryRunSubmitTimesOut(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, AttemptTimeout: time.Second}, func(t *tester) {
		t.Server.Reply = qHold(time.Hour)
		r := fGet("/hold")
		c := t.S.Submit(t.Context(), ax.Must(r.Task()))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(t, qDone(c), "the attempt has no timeout")
	})
}
