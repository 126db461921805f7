package ax_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestX1EveryEndAnswersAtOnceAndSaysWhich ends a task in flight and one in the queue, in each way.
func TestX1EveryEndAnswersAtOnceAndSaysWhich(t *testing.T) {
	why := errors.New("page left")
	rows := []struct {
		name string
		want []error
		end  func(t *tester, sc *ax.Scope, cancel context.CancelCauseFunc, calls []*ax.Call)
	}{
		{"ctx", []error{why}, func(_ *tester, _ *ax.Scope, cancel context.CancelCauseFunc, _ []*ax.Call) { cancel(why) }},
		{"call", nil, func(_ *tester, _ *ax.Scope, _ context.CancelCauseFunc, calls []*ax.Call) {
			for _, c := range calls {
				c.Cancel()
			}
		}},
		{"tag", []error{ax.ErrCanceledByTag}, func(t *tester, _ *ax.Scope, _ context.CancelCauseFunc, _ []*ax.Call) {
			require.Equal(t, 2, t.S.CancelTag("x"))
		}},
		{"scope", []error{ax.ErrScopeEnded, why}, func(t *tester, sc *ax.Scope, _ context.CancelCauseFunc, _ []*ax.Call) {
			require.Equal(t, 2, sc.Cancel(why))
		}},
		{"supersede", []error{ax.ErrSuperseded}, func(t *tester, sc *ax.Scope, _ context.CancelCauseFunc, _ []*ax.Call) {
			for _, name := range []string{"0", "1"} {
				sc.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Supersede: name}.Task())).Discard()
			}
		}},
		{"close", []error{ax.ErrClosed}, func(t *tester, _ *ax.Scope, _ context.CancelCauseFunc, _ []*ax.Call) {
			require.NoError(t, t.S.Close())
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			ev := &fEvents{}
			bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}}, OnEvent: ev.Add}, func(t *tester) {
				t.Server.Reply = fPaths(map[string]fReply{"/hang": fHang})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				sc := t.S.Scope(t.Context())
				t.S.Submit(t.Context(), ax.Must(ax.Request{URL: "http://b.test/hang"}.Task())) // fills lane b
				time.Sleep(fms)
				var calls []*ax.Call
				for i := range 2 {
					r := ax.Request{URL: []string{at("/hang"), "http://b.test/hang"}[i], Tags: []string{"x"}, Supersede: strconv.Itoa(i)}
					calls = append(calls, sc.Submit(ctx, ax.Must(r.Task())))
					time.Sleep(fms)
				}
				require.Equal(t, 2, t.S.Stats().Active)
				require.Equal(t, 1, t.S.Stats().Queued)
				t.Until(fsec)
				row.end(t, sc, cancel, calls)
				for i, c := range calls {
					_, err := c.Result()
					require.Equal(t, fsec, t.At(), "at once")
					require.ErrorIs(t, err, context.Canceled)
					for _, want := range row.want {
						require.ErrorIs(t, err, want)
					}
					require.False(t, fError(t, err).Timeout())
					require.Equal(t, []string{"attempt", "queue"}[i], fError(t, err).Op)
					require.Equal(t, ax.EventCanceled, ev.End(t, c.Seq()).Kind)
				}
				time.Sleep(fms)
				require.True(t, t.Server.Hits()[1].Canceled, "the connection is torn down")
				require.Equal(t, fsec, t.Server.Hits()[1].End)
				require.GreaterOrEqual(t, t.S.Stats().Canceled, uint64(2))
				require.Len(t, fHostHits(t, "b.test"), 1, "the queued one was never sent")
				require.Zero(t, t.S.CancelTag("x"), "no entry is left")
			})
		})
	}
}

func TestX1TheCallersDeadlineIsACancel(t *testing.T) {
	ev := &fEvents{}
	bubble(t, ax.Config{OnEvent: ev.Add}, func(t *tester) {
		t.Server.Reply = fHang
		ctx, cancel := context.WithTimeout(t.Context(), fsec)
		defer cancel()
		res := t.Do(ctx, fGet("/"))
		require.Equal(t, fsec, res.At)
		require.ErrorIs(t, res.Err, context.DeadlineExceeded)
		require.True(t, fError(t, res.Err).Timeout())
		require.Len(t, ev.Of(ax.EventCanceled), 1)
	})
}

// TestX1ADeafTransportKeepsItsSlotButNotItsCaller: a Call is answered, the gate stays true.
func TestX1ADeafTransportKeepsItsSlotButNotItsCaller(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { time.Sleep(10 * fsec); return reply(200, ""), nil }
		c := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(fsec)
		c.Cancel()
		_, err := c.Result()
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, fsec, t.At())
		require.Equal(t, 1, t.S.Stats().Active, "the slot is what the wire holds")
		require.Equal(t, 20*fsec, t.Do(t.Context(), fGet("/")).At)
		require.Equal(t, 1, t.Server.Peak())
	})
}

func TestTagsCountExactlyAndBearAnImmediateResubmit(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 3}, func(t *tester) {
		t.Server.Reply = fHang
		submit := func(tags ...string) *ax.Call {
			return t.S.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Tags: tags}.Task()))
		}
		for range 1000 {
			var old []*ax.Call
			for range 5 {
				old = append(old, submit("x", "y", "x"))
			}
			other := submit("y")
			require.Equal(t, 5, t.S.CancelTag("x"), "each caller once, queued and in flight")
			fresh := submit("x")
			for _, c := range old {
				_, err := c.Result()
				require.ErrorIs(t, err, ax.ErrCanceledByTag)
			}
			select {
			case <-fresh.Done():
				t.Fatal("a task submitted after the call was cancelled by it")
			default:
			}
			require.Equal(t, 1, t.S.CancelTag("x"))
			require.Equal(t, 1, t.S.CancelTag("y"))
			<-other.Done()
			require.Zero(t, t.S.CancelTag("x"))
			require.Zero(t, t.S.CancelTag(""))
		}
	})
}

func TestTagsOfSharersCountCallersAndSpareOthers(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "x")
		tagged := []<-chan result{}
		for range 3 {
			tagged = append(tagged, t.Go(t.Context(), ax.Request{URL: at("/"), Tags: []string{"x"}}))
		}
		free := t.Go(t.Context(), fGet("/"))
		t.Until(fms)
		require.Equal(t, 3, t.S.CancelTag("x"))
		for _, c := range tagged {
			require.ErrorIs(t, (<-c).Err, ax.ErrCanceledByTag)
		}
		require.Equal(t, "x", fBody(t, <-free))
		require.Equal(t, 1, t.Server.Count())
		require.False(t, t.Server.Hits()[0].Canceled)
	})
}
