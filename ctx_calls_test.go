package ax_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// askingCtx asks the scheduler something whenever it is asked itself: under the
// scheduler's mutex that would never return.
type askingCtx struct {
	context.Context
	s *ax.Scheduler
}

func (c askingCtx) Deadline() (time.Time, bool) { c.s.Stats(); return c.Context.Deadline() }
func (c askingCtx) Done() <-chan struct{}       { c.s.Stats(); return c.Context.Done() }
func (c askingCtx) Err() error                  { c.s.Stats(); return c.Context.Err() }
func (c askingCtx) Value(key any) any           { c.s.Stats(); return c.Context.Value(key) }

// AfterFunc is what package context asks for before it starts a goroutine.
func (c askingCtx) AfterFunc(f func()) func() bool {
	c.s.Stats()
	stop := context.AfterFunc(c.Context, f)
	return func() bool { c.s.Stats(); return stop() }
}

// TestNoCtxIsAskedUnderTheMutex, whatever becomes of its task.
func TestNoCtxIsAskedUnderTheMutex(t *testing.T) {
	s := qReal(t, ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{Max: 1, BaseDelay: time.Millisecond}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		switch task.URL() {
		case at("/hangs"):
			<-ctx.Done()
			return nil, ctx.Err()
		case at("/broken"):
			return &http.Response{StatusCode: 500}, nil
		}
		return &http.Response{StatusCode: 200}, nil
	})
	background := askingCtx{context.Background(), s}
	ending := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		return askingCtx{ctx, s}, cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, dedupe := range []bool{false, true} {
			for _, path := range []string{"/", "/broken", "/hangs"} {
				task := ax.Must(ax.Request{URL: at(path), Dedupe: dedupe, AttemptTimeout: time.Second}.Task())
				for _, in := range []interface {
					Do(context.Context, *ax.Task) (*ax.Response, error)
					Submit(context.Context, *ax.Task) *ax.Call
				}{s, s.Scope(background)} {
					ctx, cancel := ending()
					first, second := in.Submit(ctx, task), in.Submit(ctx, task)
					in.Do(ctx, task) // runs, waits or shares
					first.Result()
					second.Result()
					cancel()
				}
				ctx, cancel := ending()
				scope := s.Scope(ctx)
				scope.Scope(background).Submit(background, task).Cancel()
				scope.Do(background, task)
				scope.Cancel(nil)
				scope.Do(background, task)
				cancel()
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.Fail(t, "deadlock: a ctx is asked under the mutex")
	}
}
