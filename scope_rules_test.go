package ax_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestX7ScopeEndsForGood(t *testing.T) {
	why := errors.New("gone")
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fHang
		sc := t.S.Scope(t.Context())
		inner := sc.Scope(t.Context())
		innermost := inner.Scope(t.Context())
		cs := []*ax.Call{}
		for _, s := range []*ax.Scope{sc, inner, innermost} {
			cs = append(cs, s.Submit(t.Context(), ax.Must(fGet("/").Task())))
		}
		outside := t.S.Submit(t.Context(), ax.Must(fGet("/").Task()))
		sibling := t.S.Scope(t.Context())
		apart := sibling.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(fsec)
		require.Equal(t, 3, sc.Cancel(why), "nested scopes too")
		for _, c := range cs {
			_, err := c.Result()
			for _, want := range []error{ax.ErrScopeEnded, why, context.Canceled} {
				require.ErrorIs(t, err, want)
			}
		}
		for _, s := range []*ax.Scope{sc, inner, innermost, sc.Scope(t.Context())} {
			_, err := s.Do(t.Context(), ax.Must(fGet("/").Task()))
			require.ErrorIs(t, err, ax.ErrScopeEnded)
			_, err = s.Send(t.Context(), fGet("/"))
			require.ErrorIs(t, err, ax.ErrScopeEnded)
			_, err = s.Submit(t.Context(), ax.Must(fGet("/").Task())).Result()
			require.ErrorIs(t, err, ax.ErrScopeEnded)
			require.Zero(t, s.Cancel(nil))
		}
		require.Equal(t, 5, t.Server.Count())
		for _, c := range []*ax.Call{outside, apart} {
			select {
			case <-c.Done():
				t.Fatal("a task outside the scope ended")
			default:
			}
		}
	})
}

func TestX7TheEndOfTheCtxEndsTheScope(t *testing.T) {
	why := errors.New("client left")
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fHang
		ctx, cancel := context.WithCancelCause(t.Context())
		sc := t.S.Scope(ctx)
		inner := sc.Scope(t.Context())
		a := sc.Submit(t.Context(), ax.Must(fGet("/").Task()))
		b := inner.Submit(context.WithoutCancel(ctx), ax.Must(fGet("/").Task()))
		t.Until(fsec)
		cancel(why)
		for _, c := range []*ax.Call{a, b} {
			_, err := c.Result()
			require.Equal(t, fsec, t.At())
			for _, want := range []error{ax.ErrScopeEnded, why, context.Canceled} {
				require.ErrorIs(t, err, want)
			}
		}
		_, err := sc.Send(t.Context(), fGet("/"))
		require.ErrorIs(t, err, ax.ErrScopeEnded)
		// A scope whose ctx has ended before is born ended.
		_, err = t.S.Scope(ctx).Send(t.Context(), fGet("/"))
		require.ErrorIs(t, err, ax.ErrScopeEnded)
	})
}

func TestX7SharedWorkGoesOnForOutsiders(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(fsec, 200, "x")
		sc := t.S.Scope(t.Context())
		in := sc.Submit(t.Context(), ax.Must(fGet("/").Task()))
		t.Until(fms)
		out := t.Go(t.Context(), fGet("/"))
		t.Until(2 * fms)
		require.Equal(t, 1, sc.Cancel(nil))
		_, err := in.Result()
		require.ErrorIs(t, err, ax.ErrScopeEnded)
		r := <-out
		require.Equal(t, "x", fBody(t, r))
		require.Equal(t, fsec, r.At)
		require.Equal(t, 1, t.Server.Count())
	})
}

func TestScopeOfAFinishedTaskHoldsNothing(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		sc := t.S.Scope(t.Context())
		for range 100 {
			_, err := sc.Send(t.Context(), fGet("/"))
			require.NoError(t, err)
		}
		require.Zero(t, sc.Cancel(nil))
	})
}

func TestScopeHandlerBindsCallsToTheIncomingRequest(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{"/hang": fHang})
		require.Nil(t, ax.ContextScope(t.Context()))
		var err error
		var left *ax.Scope
		h := ax.ScopeHandler(t.S, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			left = ax.ContextScope(r.Context())
			if left == nil {
				return
			}
			// Its ctx is not the request's: only the scope can end it.
			_, err = left.Send(context.WithoutCancel(r.Context()), fGet(r.URL.Path))
			w.WriteHeader(202)
		}))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/ok", nil).WithContext(t.Context()))
		require.Equal(t, 202, rec.Code)
		require.NoError(t, err)
		_, after := left.Send(t.Context(), fGet("/"))
		require.ErrorIs(t, after, ax.ErrScopeEnded, "the scope ends with its request")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(fsec, cancel)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/hang", nil).WithContext(ctx))
		require.Equal(t, fsec, t.At(), "the client left, so does its call")
		require.ErrorIs(t, err, ax.ErrScopeEnded)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// The deadline of a scope's ctx is its tasks': what cannot start before is not waited
// for, nor begun.
func TestL5DeadlineOfAScope(t *testing.T) {
	bubble(t, ax.Config{Rate: ax.PerMinute(1), MinRemaining: 500 * fms}, func(t *tester) {
		ctx, cancel := context.WithTimeout(dBG, fsec)
		defer cancel()
		t.Do(dBG, fGet("/"))
		outer := t.S.Scope(ctx)
		for _, sc := range []*ax.Scope{outer, outer.Scope(dBG), t.S.Scope(dBG).Scope(ctx)} {
			_, err := sc.Send(dBG, fGet("/"))
			require.ErrorIs(t, err, ax.ErrWouldExceedDeadline)
			require.Zero(t, t.At())
		}
		require.NoError(t, t.S.SetLimits("", ax.Limits{Rate: ax.Unlimited()}))
		t.Until(600 * fms)
		_, err := outer.Send(dBG, fGet("/"))
		require.ErrorIs(t, err, ax.ErrWouldExceedDeadline, "MinRemaining")
		require.Equal(t, 1, t.Server.Count())
	})
}
