package ax_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

type panicBody struct{ f func() }

func (b panicBody) Read([]byte) (int, error) { b.f(); return 0, nil }
func (b panicBody) Close() error             { return nil }

// an express task whose body panics, or ends its goroutine, gives its slot back
func TestFaultAnExpressTaskWhoseBodyPanicsOrEndsItsGoroutineGivesItsSlotBa(t *testing.T) {
	for _, f := range []func(){func() { panic("boom") }, runtime.Goexit} {
		bubble(t, ax.Config{}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				if h.N == 1 {
					return reply(200, ""), nil
				}
				r := reply(200, "")
				r.Body, r.ContentLength = panicBody{f}, -1
				return r, nil
			}
			t.Do(dBG, dGet("/warm"))
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recover() }()
				t.S.Get(dBG, at("/"))
			}()
			<-done
			require.Zero(t, t.S.Stats().Active)
		})
	}
}

// Close does not wait for ghosts
func TestFaultCloseDoesNotWaitForGhosts(t *testing.T) {
	bubble(t, ax.Config{DryRun: true, MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		a, b := t.Go(dBG, dGet("/1")), t.Go(dBG, dGet("/2"))
		<-a
		<-b
		t.Until(1500 * time.Millisecond)
		done := make(chan struct{})
		go func() { t.S.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Hour):
			require.Fail(t, "Close hangs")
		}
		require.Equal(t, 1500*time.Millisecond, t.At())
	})
}

// an express task is redirected into another lane
func TestFaultAnExpressTaskIsRedirectedIntoAnotherLane(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/from" {
				return redirectTo("http://b.test/to"), nil
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, dGet("/warm"))
		for range 3 {
			got := t.Do(dBG, dGet("/from"))
			require.NoError(t, got.Err)
			require.Equal(t, 200, got.Status())
		}
		require.Zero(t, t.S.Stats().Active)
	})
}

// a budget of nobody in particular holds for express tasks too
func TestFaultABudgetOfNobodyInParticularHoldsForExpressTasksToo(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		if err := t.S.SetBudget("", ax.Budget{MaxConcurrent: 1}); err != nil {
			require.True(t, strings.Contains(err.Error(), "owner"))
			return
		}
		t.Do(dBG, dGet("/warm"))
		a, b := t.Go(dBG, dGet("/1")), t.Go(dBG, dGet("/2"))
		<-a
		<-b
		require.Equal(t, 1, t.Server.Peak())
	})
}

// two hops of an express task through full lanes
func TestFaultTwoHopsOfAnExpressTaskThroughFullLanes(t *testing.T) {
	bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/from":
				return redirectTo("http://b.test/to"), nil
			case "/hold":
				return after(time.Second, 200, "")(h)
			}
			return reply(200, ""), nil
		}
		t.Do(dBG, dGet("/warm"))
		hold := t.Go(dBG, ax.Request{URL: "http://b.test/hold"})
		time.Sleep(10 * time.Millisecond)
		got := <-t.Go(dBG, dGet("/from"))
		<-hold
		require.NoError(t, got.Err)
		require.Equal(t, time.Second, got.At)
		st := t.S.Stats()
		require.Zero(t, st.Active)
		require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
	})
}
