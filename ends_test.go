package ax_test

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestWaitedOfTasksNeverStarted is the time that they were in the queue.
func TestWaitedOfTasksNeverStarted(t *testing.T) {
	ev := &fEvents{}
	cfg := ax.Config{MaxConcurrent: 1, OnEvent: ev.Add}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "ok")
		hog := t.Go(dBG, dGet("/hog"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(dBG, 30*dms)
		defer cancel()
		canceled := t.Go(ctx, dGet("/canceled"))
		late := dGet("/late")
		late.QueueTimeout = 50 * dms
		rejected := t.Go(dBG, late)
		require.ErrorIs(t, (<-canceled).Err, context.DeadlineExceeded)
		err := (<-rejected).Err
		require.ErrorIs(t, err, ax.ErrQueueTimeout)
		require.ErrorContains(t, err, "in the end for a slot: raise QueueTimeout or Config.MaxConcurrent")
		require.NoError(t, (<-hog).Err)
	})
	require.Equal(t, 30*dms, ev.Of(ax.EventCanceled)[0].Waited)
	require.Equal(t, 50*dms, ev.Of(ax.EventRejected)[0].Waited)
}

// TestWaitedOfAJoiner is no longer than it has been there, whatever its flight's.
func TestWaitedOfAJoiner(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}, OnEvent: ev.Add}, func(t *tester) {
		t.Server.Reply = after(10*fsec, 200, "")
		hog, first := t.Go(dBG, dGet("/hog")), t.GoAt(fms, dBG, dGet("/x"))
		t.Until(15 * fsec)
		ctx, cancel := context.WithTimeout(dBG, 2*fsec)
		defer cancel()
		gone := t.Go(ctx, dGet("/x"))
		t.Until(19 * fsec)
		late := t.Do(dBG, dGet("/x"))
		require.Equal(t, ax.FromFlight, late.Resp.Source)
		require.Equal(t, fsec, late.Resp.Waited)
		require.Equal(t, 10*fsec-fms, (<-first).Resp.Waited)
		require.ErrorIs(t, (<-gone).Err, context.DeadlineExceeded)
		require.NoError(t, (<-hog).Err)
	})
	require.Equal(t, 2*fsec, ev.Of(ax.EventCanceled)[0].Waited)
	ends := ev.Of(ax.EventSucceeded)
	slices.SortFunc(ends, func(a, b ax.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	require.Equal(t, fsec, ends[len(ends)-1].Waited)
}

// TestWaitedOfRefusedRetries and of fallbacks counts the last wait, and no backoff.
func TestWaitedOfRefusedRetries(t *testing.T) {
	s := time.Second
	cfg := ax.Config{MaxConcurrent: 1, QueueTimeout: s, Retry: &ax.Retry{Max: 1, BaseDelay: 5 * s, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.Request.URL.Path == "/hog" {
				return after(20*s, 200, "ok")(h)
			}
			return after(0, 503, "")(h)
		}
		retried := t.Go(dBG, dGet("/x"))
		synctest.Wait()
		t.Go(dBG, dGet("/hog"))
		r := <-retried
		require.NoError(t, r.Err)
		require.Equal(t, 503, r.Status())
		require.Equal(t, 6*s, r.At)
		require.Equal(t, s, r.Resp.Waited)
		task := ax.Must(ax.Request{URL: at("/y"), Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
			return &http.Response{StatusCode: 200}, nil
		}}}.Task())
		resp, err := t.S.Do(dBG, task)
		require.NoError(t, err)
		require.Equal(t, ax.FromStatic, resp.Source)
		require.Equal(t, s, resp.Waited)
	})
}

// TestQueueTimeoutNamesTheObstacle and what would help against it.
func TestQueueTimeoutNamesTheObstacle(t *testing.T) {
	hour := []ax.Rate{{Limit: 1, Per: time.Hour}}
	for want, cfg := range map[string]ax.Config{
		"the end of Pause: raise QueueTimeout or call Resume":                {},
		"a slot of its lane: raise QueueTimeout or the lane's MaxConcurrent": {Lanes: []ax.Lane{{Name: "l", Match: []string{"a.test"}, MaxConcurrent: 1}}},
		"a token of its lane: raise QueueTimeout or the lane's Rate":         {Lanes: []ax.Lane{{Name: "l", Match: []string{"a.test"}, Rate: hour}}},
		"a token: raise QueueTimeout or Config.Rate":                         {Rate: hour},
		"its owner's budget: raise QueueTimeout or the Budget":               {Owners: &ax.Budget{MaxConcurrent: 1}},
	} {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = dSlow
			if want[:7] == "the end" {
				require.NoError(t, t.S.Pause(""))
			}
			first := dGet("/first")
			first.Owner = "o"
			ctx, cancel := context.WithCancel(dBG)
			defer cancel()
			t.Go(ctx, first)
			synctest.Wait()
			late := dGet("/late")
			late.Owner, late.QueueTimeout = "o", 50*dms
			require.ErrorContains(t, (<-t.Go(dBG, late)).Err, want)
		})
	}
}

// TestBudgetMaxQueueIsNamed when it is what refuses.
func TestBudgetMaxQueueIsNamed(t *testing.T) {
	bubble(t, ax.Config{Owners: &ax.Budget{MaxConcurrent: 1, MaxQueue: 1}}, func(t *tester) {
		t.Server.Reply = dSlow
		var last ax.Request
		for range 3 {
			last = dGet("/x")
			last.Owner = "o"
			t.Go(dBG, last)
			synctest.Wait()
		}
		require.ErrorContains(t, (<-t.Go(dBG, last)).Err, "over its budget (MaxQueue)")
	})
}
