package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestAPICallResult blocks until done and is always the same.
func TestAPICallResult(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "hello")
		c := t.S.Submit(dBG, ax.Must(dGet("/x").Task()))
		require.Zero(t, t.At(), "Submit does not block")
		select {
		case <-c.Done():
			t.Fatal("done too early")
		default:
		}
		var wg sync.WaitGroup
		got := make([]*ax.Response, 4)
		for i := range got {
			wg.Go(func() { got[i], _ = c.Result() })
		}
		<-c.Done()
		require.Equal(t, 100*dms, t.At())
		wg.Wait()
		resp, err := c.Result()
		require.NoError(t, err)
		for _, r := range got {
			require.Same(t, resp, r)
		}
		require.Equal(t, c.Seq(), resp.Seq)
		require.Equal(t, "hello", dText(t, resp.Response))
		boom := errors.New("reset by peer")
		t.Server.Reply = func(*hit) (*http.Response, error) { return nil, boom }
		c = t.S.Submit(dBG, ax.Must(dGet("/x").Task()))
		_, err = c.Result()
		_, again := c.Result()
		require.ErrorIs(t, err, boom)
		require.Equal(t, err, again)
	})
}

// TestAPICallSeq grows in the order of submission, over all entries.
func TestAPICallSeq(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		last := int64(-1)
		for i := range 20 {
			c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/x"), Priority: ax.Priority(i%4 - 1)}.Task()))
			require.Greater(t, int64(c.Seq()), last)
			r := t.Do(dBG, dGet("/y"))
			require.Greater(t, r.Resp.Seq, c.Seq())
			last = int64(r.Resp.Seq)
		}
	})
}

// TestAPISubmitNeverBlocks, whatever stands in the way: it is all in the Call.
func TestAPISubmitNeverBlocks(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 2}, func(t *tester) {
		t.Server.Reply = dSlow
		require.NoError(t, t.S.Pause("p.test"))
		var calls []*ax.Call
		for range 6 {
			calls = append(calls, t.S.Submit(dBG, ax.Must(dGet("/hog").Task())))
		}
		require.Zero(t, t.At())
		full := 0
		for _, c := range calls {
			synctest.Wait()
			select {
			case <-c.Done():
				_, err := c.Result()
				require.ErrorIs(t, err, ax.ErrQueueFull)
				full++
			default:
			}
		}
		require.Equal(t, 3, full)
		require.Zero(t, t.At())
		dead, cancel := context.WithCancel(dBG)
		cancel()
		_, err := t.S.Submit(dead, ax.Must(dGet("/x").Task())).Result()
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestAPICallCancelAfterDone closes a body that nobody reads.
func TestAPICallCancelAfterDone(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		var body *dTrickle
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			body = dNewTrickle(h.Context(), time.Hour, "a")
			return dReply(body), nil
		}
		c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/x"), Stream: true}.Task()))
		<-c.Done()
		require.Equal(t, 1, t.S.Stats().Active)
		c.Cancel()
		c.Cancel()
		synctest.Wait()
		require.True(t, body.Closed())
		require.Zero(t, t.S.Stats().Active)
		resp, err := c.Result()
		require.NoError(t, err, "the result stands")
		require.Equal(t, 200, resp.StatusCode)
		require.EqualValues(t, 1, t.S.Stats().Succeeded)
		require.Zero(t, t.S.Stats().Canceled)
	})
}

// TestAPICallDiscard: bodies are drained and closed when they come, or if they have come.
func TestAPICallDiscard(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
			var body *dTrickle
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				h.Sleep(100 * dms)
				body = dNewTrickle(h.Context(), 100*dms, "a", "b")
				return dReply(body), nil
			}
			c := t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/x"), Stream: true}.Task()))
			if late {
				<-c.Done()
			}
			c.Discard()
			c.Discard()
			require.LessOrEqual(t, t.At(), 100*dms, "Discard does not wait")
			t.Until(time.Second)
			synctest.Wait()
			require.True(t, body.Closed())
			require.Empty(t, body.chunks, "drained, so that the connection is used again")
			require.Zero(t, t.S.Stats().Active)
			require.EqualValues(t, 1, t.S.Stats().Succeeded, "it was sent and answered")
		})
	}
}

// TestAPISubmitIsOwnedByItsContext, even after Submit returned.
func TestAPISubmitIsOwnedByItsContext(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = dSlow
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		c := t.S.Submit(ctx, ax.Must(dGet("/x").Task()))
		_, err := c.Result()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, t.At())
		c.Cancel()
		c.Discard()
	})
}

// TestAPISendAndGet are Do with a task made on the way.
func TestAPISendAndGet(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return reply(200, fmt.Sprintf("%s %s %s %s", h.Method, h.URL.RequestURI(), h.Header.Get("Content-Type"), h.Body)), nil
		}
		resp, err := t.S.Get(dBG, at("/x?q=1"))
		require.NoError(t, err)
		require.Equal(t, "GET /x?q=1  ", dText(t, resp.Response))
		resp, err = t.S.Send(dBG, ax.Request{Method: "POST", URL: at("/x?q=1"), Query: map[string][]string{"r": {"2"}}, JSON: map[string]int{"a": 1}})
		require.NoError(t, err)
		require.Equal(t, `POST /x?q=1&r=2 application/json {"a":1}`, dText(t, resp.Response))
		require.Equal(t, ax.FromNetwork, resp.Source)
		require.Equal(t, 1, resp.Attempts)
		require.Zero(t, resp.Waited)
		require.Zero(t, resp.Age)
		require.NoError(t, resp.Cause)
		_, err = t.S.Send(dBG, ax.Request{})
		require.ErrorContains(t, err, "URL")
		_, err = t.S.Get(dBG, "http://[::1")
		require.ErrorContains(t, err, "URL")
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestAPIMust gives the task or panics with the error.
func TestAPIMust(t *testing.T) {
	task, err := dGet("/x").Task()
	require.Same(t, task, ax.Must(task, err))
	boom := errors.New("boom")
	require.PanicsWithError(t, "boom", func() { ax.Must(nil, boom) })
}

// TestAPIJSON decodes a 2xx; all else is an error that tells.
func TestAPIJSON(t *testing.T) {
	type user struct{ Name string }
	long := strings.Repeat("x", 10_000)
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/204":
				return reply(204, ""), nil
			case "/404":
				return reply(404, long, "X-Why: none"), nil
			case "/302":
				return reply(302, ""), nil
			case "/garbage":
				return reply(200, "{"), nil
			case "/reset":
				return nil, errDCause
			}
			return reply(201, `{"Name":"Ada"}`), nil
		}
		for _, stream := range []bool{false, true} {
			get := func(path string) (user, error) {
				return ax.JSON[user](t.S.Send(dBG, ax.Request{URL: at(path), Stream: stream}))
			}
			u, err := get("/201")
			require.NoError(t, err)
			require.Equal(t, user{"Ada"}, u)
			u, err = get("/204")
			require.NoError(t, err)
			require.Zero(t, u)
			_, err = get("/404")
			var status *ax.StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 404, status.StatusCode)
			require.Equal(t, "none", status.Header.Get("X-Why"))
			require.Equal(t, long[:4<<10], string(status.Body))
			require.ErrorContains(t, err, "404")
			_, err = get("/302")
			require.ErrorAs(t, err, &status)
			require.Equal(t, 302, status.StatusCode)
			_, err = get("/garbage")
			require.Error(t, err)
			require.False(t, errors.As(err, &status))
			_, err = get("/reset")
			require.ErrorIs(t, err, errDCause)
			synctest.Wait()
			require.Zero(t, t.S.Stats().Active, "JSON closes what it was given")
		}
	})
}

// TestAPIErrorTellsAll: its fields, its Timeout, nothing that is secret.
func TestAPIErrorTellsAll(t *testing.T) {
	boom := errors.New("reset by peer")
	bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: dms}, Lanes: []ax.Lane{{Name: "bulk"}}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 2 {
				return reply(500, strings.Repeat("x", 100_000), "X-Why: none"), nil
			}
			return nil, boom
		}
		r := ax.Request{URL: "http://user:hush@a.test/x?token=hush&a=hush", Header: dHeader("Authorization", "Bearer hush"), Lane: "bulk", Owner: "o"}
		got := t.Do(dBG, r)
		e := dError(t, got.Err)
		require.ErrorIs(t, got.Err, boom)
		require.Equal(t, "attempt", e.Op)
		require.Equal(t, "GET", e.Method)
		require.Equal(t, "bulk", e.Lane)
		require.Equal(t, "o", e.Owner)
		require.Equal(t, 3, e.Attempts)
		require.False(t, e.Timeout())
		require.NotNil(t, e.Response, "the last answer seen")
		require.Equal(t, 500, e.Response.StatusCode)
		b, err := e.Response.Bytes()
		require.NoError(t, err)
		require.Len(t, b, 64<<10)
		require.Contains(t, e.URL, "a.test/x")
		for _, text := range []string{e.URL, got.Err.Error(), fmt.Sprintf("%+v", got.Err)} {
			require.NotContains(t, text, "hush")
		}
	})
}

// TestAPIConcurrentUse of one task and one scheduler by many.
func TestAPIConcurrentUse(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 8}, func(t *tester) {
		t.Server.Reply = after(dms, 200, "ok")
		task := ax.Must(ax.Request{Method: "PUT", URL: at("/x"), JSON: map[string]int{"a": 1}, Header: dHeader("X-A", "1")}.Task())
		var callers errgroup.Group
		for range 100 {
			callers.Go(func() error { _, err := t.S.Do(dBG, task); return err })
		}
		require.NoError(t, callers.Wait())
		require.Equal(t, 8, t.Server.Peak())
		for _, h := range t.Server.Hits() {
			require.Equal(t, `{"a":1}`, string(h.Body))
		}
	})
}

// TestAPIErrorsResponseHasTheTasksSeq: the last answer seen is one of this task.
func TestAPIErrorsResponseHasTheTasksSeq(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(1)}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(200, ""), fAnswer(500, ""), fBreak(errFWire))
		t.Do(t.Context(), fGet("/"))
		c := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		_, err := c.Result()
		require.Equal(t, c.Seq(), fError(t, err).Response.Seq)
		require.Equal(t, 2, fError(t, err).Response.Attempts)
	})
}
