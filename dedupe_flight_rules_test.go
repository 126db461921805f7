package ax_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// dValue is a key of context values.
type dValue struct{}

// TestD3LeavingEarlyHurtsNobody: each caller has its own deadline; the flight
// carries the first one's values even when that one has left.
func TestD3LeavingEarlyHurtsNobody(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(200*dms, 200, "")
		first, leave := context.WithCancel(context.WithValue(dBG, dValue{}, "first"))
		a := t.Go(first, dGet("/x"))
		b := t.GoAt(5*dms, context.WithValue(dBG, dValue{}, "second"), dGet("/x"))
		short, cancel := context.WithTimeout(dBG, 60*dms)
		defer cancel()
		c := t.GoAt(10*dms, short, dGet("/x"))
		t.Until(20 * dms)
		leave()
		ra, rc, rb := <-a, <-c, <-b
		require.ErrorIs(t, ra.Err, context.Canceled)
		require.Equal(t, 20*dms, ra.At)
		require.ErrorIs(t, rc.Err, context.DeadlineExceeded)
		require.NotErrorIs(t, rc.Err, context.Canceled)
		require.Equal(t, 60*dms, rc.At)
		require.Equal(t, 200, rb.Status())
		require.Equal(t, 200*dms, rb.At)
		require.Equal(t, 1, t.Server.Count())
		h := t.Server.Hits()[0]
		require.False(t, h.Canceled)
		require.Equal(t, "first", h.Context().Value(dValue{}))
	})
}

// TestD3LastLeaverFreesTheKey in the same moment; who comes next starts anew.
func TestD3LastLeaverFreesTheKey(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		ctx, leave := context.WithCancel(dBG)
		a, b := t.Go(ctx, dGet("/x")), t.Go(ctx, dGet("/x"))
		t.Until(50 * dms)
		require.Equal(t, 1, t.Server.Active())
		leave()
		ra, rb := <-a, <-b
		c := t.Do(dBG, dGet("/x"))
		require.ErrorIs(t, ra.Err, context.Canceled)
		require.ErrorIs(t, rb.Err, context.Canceled)
		require.Equal(t, 200, c.Status())
		require.Equal(t, ax.FromNetwork, c.Resp.Source)
		require.Equal(t, 150*dms, c.At)
		hits := t.Server.Hits()
		require.Len(t, hits, 2)
		require.True(t, hits[0].Canceled)
		require.Equal(t, 50*dms, hits[0].End)
	})
}

// TestD3LeaveMeetsJoin: whoever joins while the last one leaves gets an answer, never its cancel.
func TestD3LeaveMeetsJoin(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(10*dms, 200, "")
		for range 500 {
			ctx, leave := context.WithCancel(dBG)
			a := t.Go(ctx, dGet("/x"))
			synctest.Wait()
			go leave()
			b, c := t.Go(dBG, dGet("/x")), t.Go(dBG, dGet("/x"))
			rb, rc := <-b, <-c
			require.NoError(t, rb.Err)
			require.NoError(t, rc.Err)
			require.ErrorIs(t, (<-a).Err, context.Canceled)
		}
	})
}

// TestD3FirstCallersRetry counts, for all of its joiners.
func TestD3FirstCallersRetry(t *testing.T) {
	retry := &ax.Retry{Max: 1, BaseDelay: 10 * dms, Jitter: ax.NoJitter}
	for _, firstRetries := range []bool{true, false} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
			t.Server.Reply = after(100*dms, 503, "")
			with, without := dGet("/x"), dGet("/x")
			with.Retry, without.NoRetry = retry, true
			first, second, want := with, without, 2
			if !firstRetries {
				first, second, want = without, with, 1
			}
			a, b := t.Go(dBG, first), t.GoAt(50*dms, dBG, second)
			require.Equal(t, 503, (<-a).Status())
			rb := <-b
			require.Equal(t, 503, rb.Status())
			require.Equal(t, want, rb.Resp.Attempts)
			require.Equal(t, want, t.Server.Count())
		})
	}
}

// TestD3FirstCallersPrepareAndIdempotencyKey are what is sent.
func TestD3FirstCallersPrepareAndIdempotencyKey(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		mark := func(name string) ax.Request {
			return ax.Request{URL: at("/x"), DedupeKey: "k", IdempotencyKey: name, Prepare: func(r *http.Request) error {
				r.Header.Set("X-Mark", name)
				return nil
			}}
		}
		a, b := t.Go(dBG, mark("first")), t.GoAt(10*dms, dBG, mark("second"))
		<-a
		require.Equal(t, 200, (<-b).Status())
		require.Equal(t, 1, t.Server.Count())
		require.Equal(t, "first", t.Server.Hits()[0].Header.Get("X-Mark"))
		require.Equal(t, "first", t.Server.Hits()[0].Header.Get("Idempotency-Key"))
	})
}

// TestD3RankIsTheBest of its callers: an urgent joiner lifts a waiting flight,
// and one that leaves takes its rank along.
func TestD3RankIsTheBest(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
			t.Server.Reply = after(100*dms, 200, "")
			low, urgent := dGet("/x"), dGet("/x")
			low.Priority, urgent.Priority = ax.Low, ax.Urgent
			ctx, leave := context.WithCancel(dBG)
			defer leave()
			chans := []<-chan result{
				t.Go(dBG, dGet("/hog")),
				t.GoAt(10*dms, dBG, low),
				t.GoAt(20*dms, dBG, dGet("/normal")),
				t.GoAt(30*dms, ctx, urgent),
			}
			want := []string{"/hog", "/x", "/normal"}
			t.Until(50 * dms)
			if leaves {
				leave()
				want = []string{"/hog", "/normal", "/x"}
			}
			for _, c := range chans {
				<-c
			}
			require.Equal(t, want, t.Server.Paths())
		})
	}
}

// TestD3TimeoutIsTheLongest of its callers'.
func TestD3TimeoutIsTheLongest(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(500*dms, 200, "")
		short, long := dGet("/x"), dGet("/x")
		short.AttemptTimeout, long.AttemptTimeout = 100*dms, time.Second
		hog := t.Go(dBG, dGet("/hog"))
		a, b := t.GoAt(10*dms, dBG, short), t.GoAt(20*dms, dBG, long)
		<-hog
		ra, rb := <-a, <-b
		require.NoError(t, ra.Err)
		require.NoError(t, rb.Err)
		require.Equal(t, time.Second, ra.At)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD3WithinOneLane: the same key in two lanes is two flights.
func TestD3WithinOneLane(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Lanes: []ax.Lane{{Name: "one"}, {Name: "two"}}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		var chans []<-chan result
		for _, lane := range []string{"one", "two", "one", ""} {
			chans = append(chans, t.Go(dBG, ax.Request{URL: at("/x"), Lane: lane}))
		}
		for _, c := range chans {
			require.Equal(t, 200, (<-c).Status())
		}
		require.Equal(t, 3, t.Server.Count())
	})
}

// TestD3NoWaitJoinsOnlyAStartedFlight.
func TestD3NoWaitJoinsOnlyAStartedFlight(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		hog := t.Go(dBG, dGet("/hog"))
		waiting := t.GoAt(10*dms, dBG, dGet("/x"))
		noWait := dGet("/x")
		noWait.NoWait = true
		t.Until(50 * dms)
		refused := t.Do(dBG, noWait)
		require.ErrorIs(t, refused.Err, ax.ErrWouldWait)
		require.Equal(t, 50*dms, refused.At)
		<-hog
		t.Until(150 * dms)
		joined := t.Do(dBG, noWait)
		require.NoError(t, joined.Err)
		require.Equal(t, ax.FromFlight, joined.Resp.Source)
		require.Equal(t, 200*dms, (<-waiting).At)
		require.Equal(t, 2, t.Server.Count())
	})
}

// TestD3FirstLeavesWhileQueued: the flight waits on for the others and is sent once.
func TestD3FirstLeavesWhileQueued(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		ctx, leave := context.WithCancel(dBG)
		hog := t.Go(dBG, dGet("/hog"))
		a, b := t.GoAt(10*dms, ctx, dGet("/x")), t.GoAt(20*dms, dBG, dGet("/x"))
		t.Until(30 * dms)
		require.Equal(t, 1, t.S.Stats().Queued, "a flight counts once")
		leave()
		require.Equal(t, 30*dms, (<-a).At)
		require.Equal(t, 1, t.S.Stats().Queued)
		<-hog
		rb := <-b
		require.NoError(t, rb.Err)
		require.Equal(t, 200*dms, rb.At)
		require.Equal(t, []string{"/hog", "/x"}, t.Server.Paths())
	})
}

// TestD3ErrorsReachEveryCaller as their own, with their own Seq and story.
func TestD3ErrorsReachEveryCaller(t *testing.T) {
	log := &dLog{}
	cause := errors.New("reset by peer")
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, OnEvent: log.On}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { h.Sleep(100 * dms); return nil, cause }
		var calls []*ax.Call
		for range 5 {
			calls = append(calls, t.S.Submit(dBG, ax.Must(dGet("/x").Task())))
		}
		var seqs []uint64
		for _, c := range calls {
			_, err := c.Result()
			require.ErrorIs(t, err, cause)
			require.Equal(t, "attempt", dError(t, err).Op)
			require.Equal(t, ax.EventFailed, log.End(t, c.Seq()).Kind)
			seqs = append(seqs, c.Seq())
		}
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(seqs))), 5)
		require.EqualValues(t, 5, t.S.Stats().Failed)
		require.Equal(t, 1, t.Server.Count())
	})
}
